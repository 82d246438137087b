"""What the tests of every tier share: stacks, golden files, stand-ins."""
