"""Test support: gvirtus."""
