"""The workflows: what they may do, who may call them, and what their scripts do."""
