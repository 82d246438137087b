# A fresh machine needs Python 3.11 or later and make; Go as well where official downloads can't be reached.
# Everything else is installed into .venv and the user's cache folder.

STACK ?= jetson
PYTHON ?= python3
BIN := .venv/bin

.PHONY: up preview down env reset preflight test test-unit check fmt bench-preview bench-policy bench-hosts policy-exceptions requirements install
.DEFAULT_GOAL := help

.PHONY: help
help: ## List the targets.
	@sed -n 's/^\([a-z-]*\):[^#]*## /\1: /p' Makefile | awk -F': ' '{ printf "  make %-18s %s\n", $$1, $$2 }'

install: .venv/installed ## Install the Python environment (every other target does it when needed).

.venv/installed: requirements-dev.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or later is needed; this is " + sys.version.split()[0] + ". Choose another with PYTHON=python3.12")'
	@echo "Installing the Python environment into .venv"
	@$(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement requirements-dev.txt
	@touch $@

up: install ## Install STACK (jetson or x86) on the simulator, or on the cluster of KUBECONFIG.
	@$(BIN)/python -m operations up --stack $(STACK)

preview: install ## Show what `make up` would change.
	@$(BIN)/python -m operations preview --stack $(STACK)

preflight: install ## Check the cluster against STACK; change nothing.
	@$(BIN)/python -m operations preflight --stack $(STACK)

down: install ## Remove STACK, and stop its simulator.
	@$(BIN)/python -m operations down --stack $(STACK)

env: install ## Print what puts pulumi, kubectl and the Python environment on PATH: eval "$(make env)"
	@$(BIN)/python -m toolchain run --group all -- sh -c 'echo "export PATH=\"$$PATH\""'

reset: install ## Forget the simulator of STACK with all its data.
	@$(BIN)/python -m operations reset --stack $(STACK)

test: install ## All tests, on the real Pulumi engine and a real API server; builds what can't be downloaded.
	@$(BIN)/python -m toolchain install --group all
	@$(BIN)/python -m pytest

test-unit: install ## The tests that need neither toolchain nor cluster: seconds.
	@$(BIN)/python -m pytest -m "not engine"

check: install ## Lint, types, layers.
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

fmt: install ## Format the code.
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

bench-preview: install ## Preview of a full stack over an empty program, and a no-op `up` over a preview.
	@$(BIN)/python -m benchmarks.preview

bench-policy: install ## What the policy pack costs per resource.
	@$(BIN)/python -m benchmarks.policy

bench-hosts: install ## What many hosts cost over one: HOSTS of them behind a real sshd on loopback.
	@$(BIN)/python -m benchmarks.hosts

policy-exceptions: install ## What the policy pack accepts, by whose design and why.
	@$(BIN)/python -m policy.exceptions

requirements: install ## Pin the dependencies of pyproject.toml again, with hashes.
	@$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate --no-header pyproject.toml --output-file requirements.txt
	@$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate --no-header --group dev pyproject.toml --output-file requirements-dev.txt
