"""The policy pack and what a pull request shows, with the real engine."""
