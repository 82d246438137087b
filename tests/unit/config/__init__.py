"""Settings: every rule by one wrong thing in a compliant stack."""
