"""Undoes what a stack made, in order and with checks, and heals Helm releases that a killed run left half done."""
