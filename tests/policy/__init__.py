"""Tests of the policy pack: pure rules, the SDK's real proxies, and the pack as a process."""
