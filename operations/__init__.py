"""What a person runs beside `pulumi`: one command that joins toolchain, simulator and engine."""
