# A fresh machine needs Python 3.11 or later and make; Go as well where official downloads can't be reached.
# Everything else is installed into .venv and the user's cache folder.

STACK ?= jetson
PYTHON ?= python3
# How many test files run at once, instead of 4 fast ones and then 5 others: two cores are busy with so many. Each of the
# others may have a control plane (2 GB), and waits for it.
WORKERS ?=
BIN := .venv/bin
KAI_ANYWHERE := bin/kai-anywhere
# An environment that keeps no compiled modules has each of these processes compile all tests anew, which takes it 9 s.
PYTEST = PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest --dist loadfile --no-loadscope-reorder --numprocesses
FAST = $(PYTEST) $(or $(WORKERS),4) -m "not engine"
# What most tests of the engine tier need.
NEEDED := --group engine --group simulator

.DEFAULT_GOAL := help

##@ Stack

.PHONY: up preview preflight status probe-privilege repair rollback down env reset

up: install ## Install STACK (jetson or x86) on the simulator, or on the cluster of KUBECONFIG.
	@$(KAI_ANYWHERE) up --stack $(STACK)

preview: install ## Show what `make up` would change.
	@$(KAI_ANYWHERE) preview --stack $(STACK)

preflight: install ## Check the cluster against STACK; change nothing.
	@$(KAI_ANYWHERE) preflight --stack $(STACK)

status: install ## Show who has which share of which GPU on STACK's cluster, and what is Pending and why.
	@$(KAI_ANYWHERE) status --stack $(STACK)

probe-privilege: install ## Find out how much of its board KAI's reservation pod needs on NODE, a Jetson of STACK.
	@$(KAI_ANYWHERE) probe-privilege --stack $(STACK) --node "$(NODE)"

repair: install ## Put back what was changed on STACK's cluster outside of Pulumi.
	@$(KAI_ANYWHERE) repair --stack $(STACK)

rollback: install ## Undo everything of STACK, what `make down` can't see too; shows first, and asks.
	@$(KAI_ANYWHERE) rollback --stack $(STACK)

down: install ## Remove STACK, and stop its simulator.
	@$(KAI_ANYWHERE) down --stack $(STACK)

# And what lets pulumi's Python program reach its engine where a proxy is set.
env: install ## Print what puts kai-anywhere, pulumi, kubectl and Python on PATH: eval "$(make env)"
	@$(BIN)/python -m toolchain run --group shell -- python -c 'import os, shlex; print("export PATH=" + shlex.quote(os.getcwd() + "/bin:" + os.environ["PATH"]) + " no_grpc_proxy=" + shlex.quote(os.environ.get("no_grpc_proxy", "")))'

reset: install ## Forget the simulator of STACK with all its data.
	@$(KAI_ANYWHERE) reset --stack $(STACK)

##@ Checks before a change

.PHONY: check review policy policy-exceptions policy-corpus drift update images

check: install ## Lint, types, layers.
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

review: install ## Preview STACK with the policy pack; review/comment.md is what a pull request shows.
	@$(KAI_ANYWHERE) review --stack $(STACK)

policy: install ## Run the policy pack on previews of every stack, and prove that it was in force.
	@$(KAI_ANYWHERE) policy

policy-exceptions: install ## What the policy pack accepts, by whose design and why.
	@$(BIN)/python -m policy.exceptions

policy-corpus: install ## Recall and false positives of the policy pack on Kubernetes' own Pod Security fixtures.
	@$(BIN)/python -m tests.policy.corpus

drift: install ## Compare the cluster with STACK; fail where they differ.
	@$(KAI_ANYWHERE) drift --stack $(STACK)

update: install ## Check a newer chart (CHART=folder or archive) before its version is pinned in manifests/versions.py.
	@$(KAI_ANYWHERE) update --chart "$(CHART)"

images: install ## Print every image of STACK with digests; images.STACK.lock.json has them for programs (CHARTS=archives).
	@$(KAI_ANYWHERE) images --stack $(STACK) $(foreach chart,$(CHARTS),--chart "$(chart)")

##@ Tests

.PHONY: test test-unit test-faults

# First the fast tests, while Go builds what the others can't do without; then those, while it builds, at the lowest
# priority, what only some of them ask for. They fetch it themselves where it is not there yet, so a failure there is theirs.
# Two builds run beside each other: one alone comes to a large package again and again, which a single core compiles.
test: install ## All tests, on the real Pulumi engine and a real API server; builds what can't be downloaded.
	@trap 'kill $$ahead 2>/dev/null; wait' EXIT; trap 'exit 130' INT TERM; \
	beside() { nice -n 19 $(BIN)/python -m "$$@" >/dev/null 2>&1 & ahead="$$ahead $$!"; }; \
	beside toolchain install --group engine; beside toolchain install --group simulator; \
	$(FAST) || exit; \
	kill $$ahead 2>/dev/null; wait; \
	beside toolchain install --group simulator; \
	$(BIN)/python -m toolchain install $(NEEDED) || exit; \
	beside tests.support.programs; \
	$(PYTEST) $(or $(WORKERS),5) -m engine

test-unit: install ## The fast tests: they need neither toolchain nor cluster.
	@$(FAST)

test-faults: install ## The tests of docs/faults.md alone; `make test` has them too.
	@$(BIN)/python -m toolchain install $(NEEDED)
	@$(PYTEST) $(or $(WORKERS),5) -m "engine or not engine" tests/faults $$($(BIN)/python -m tests.faults)

##@ Benchmarks

.PHONY: bench bench-preview bench-installation bench-policy bench-carriers bench-webhook bench-admission
.PHONY: bench-hosts bench-nodes bench-simulator bench-status bench-doctor

bench: install ## Everything that has a goal, as JSON and a page with plots in benchmarks/results (BENCH=quick: a look).
	@$(BIN)/python -m benchmarks.report $(SECTIONS)

bench-preview: install ## Preview of a full stack over an empty program, and a no-op `up` over a preview.
	@$(BIN)/python -m benchmarks.preview

bench-installation: install ## `up` from nothing over `helm install` and `kubectl apply` of the same objects.
	@$(BIN)/python -m benchmarks.installation

bench-policy: install ## What the policy pack costs per resource.
	@$(BIN)/python -m benchmarks.policy

bench-carriers: install ## What the policy and the webhook add to a pod's creation, round by round.
	@$(BIN)/python -m benchmarks.carriers

bench-webhook: install ## The admission server over the simplest Flask server doing the same.
	@$(BIN)/python -m benchmarks.webhook

bench-admission: install ## The admission server alone, and what each carrier adds to a pod's creation.
	@$(BIN)/python -m benchmarks.admission

bench-hosts: install ## What many hosts cost over one: HOSTS of them behind a real sshd on loopback.
	@$(BIN)/python -m benchmarks.hosts

bench-nodes: install ## What many Jetsons cost in one stack over one: `up` and a preview (NODES, ROUNDS).
	@$(BIN)/python -m benchmarks.nodes

bench-simulator: install ## Memory and start of the simulator, alone and with KAI's programs (KAI_PROGRAMS, settings `kai` of STACK).
	@STACK=$(STACK) $(BIN)/python -m benchmarks.simulator

bench-status: install ## What `status` costs on 100, 1,000 and 5,000 nodes.
	@$(BIN)/python -m benchmarks.status

bench-doctor: install ## What `doctor` costs on 100, 1,000 and 5,000 nodes.
	@$(BIN)/python -m benchmarks.doctor

##@ Development

.PHONY: help install fmt reference docs requirements

help: ## List the targets.
	@awk -F ':.*## ' '/^##@ / { printf "\n%s\n", substr($$0, 5) } /^[a-z-]+:.*## / { printf "  make %-18s %s\n", $$1, $$2 }' Makefile

install: .venv/installed ## Install the Python environment (every other target does it when needed).

# Where the Python that it was made of is gone, after an upgrade or with a moved checkout, it is made anew.
.venv/bin/python:
	@rm -rf .venv

.venv/installed: requirements-dev.txt .venv/bin/python
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or later is needed; this is " + sys.version.split()[0] + ". Choose another with PYTHON=python3.12")'
	@$(PYTHON) -m venv .venv
	@$(BIN)/python -P toolchain/python_environment.py requirements-dev.txt
	@touch $@

fmt: install ## Format the code.
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

reference: install ## Write docs/settings.md, schemas, docs/compatibility.md and the version in templates and examples anew.
	@$(BIN)/python -m operations.settings

docs: install ## Build the docs as a site into .site/; a link that leads nowhere is an error.
	@$(BIN)/zensical build --strict --clean

requirements: install ## Pin the dependencies of pyproject.toml again, with hashes.
	@$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate --no-header pyproject.toml --output-file requirements.txt
	@$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate --no-header --group dev pyproject.toml --output-file requirements-dev.txt
	@$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate --no-header --group admission --output-file agents/admission/requirements.txt
	@$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate --no-header --group metrics --output-file agents/metrics/requirements.txt
