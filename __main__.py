"""The Pulumi program: validate the stack's settings, look at the cluster, register KaiAnywhere."""

from components.program import run

run()
