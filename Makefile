# Every verb makes what it needs first, so each of them works alone on a fresh machine (Python 3.11 or newer; no Docker).

PYTHON ?= python3
SEEDS ?= 300
STACK ?= torpor
TESTS ?= tests
LOCKS := infra/locks

# As pip does: trust what the system trusts.
export UV_SYSTEM_CERTS := 1
export PIP_DISABLE_PIP_VERSION_CHECK := 1

DEV := .venv/.installed
MINISTACK := .venv-ministack/.installed
SAM := .venv-sam/.installed
AUDIT := .venv-audit/.installed

.DEFAULT_GOAL := help
.PHONY: help setup demo test check audit format bench simulate deploy load lock sam clean distclean

help: ## Show the verbs.
	@awk 'BEGIN { FS = ":.*## " } /^[a-z]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(DEV) $(MINISTACK) ## Make the environments from the locks: .venv, and .venv-ministack for the local AWS.

demo: $(DEV) $(MINISTACK) ## Deploy template.yaml to a local AWS and run the twelve example orders to their ends.
	.venv/bin/python -m examples.demo

test: $(DEV) $(MINISTACK) ## Run every test (TESTS=path for some).
	.venv/bin/python -m pytest $(TESTS)

check: $(DEV) ## Lint, formatting, types, and the template.
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy
	.venv/bin/cfn-lint template.yaml
	@if [ -x .venv-sam/bin/sam ]; then SAM_CLI_TELEMETRY=0 .venv-sam/bin/sam validate --lint --region us-east-1; fi
	@if [ -x .venv-audit/bin/checkov ]; then .venv/bin/python -m infra.audit; fi

audit: $(DEV) $(AUDIT) ## Hold the template to checkov's rules, and the locks to the known vulnerabilities.
	.venv/bin/python -m infra.audit

format: $(DEV) ## Format the code and mend what the linter can.
	.venv/bin/ruff check --fix-only .
	.venv/bin/ruff format .

bench: $(DEV) $(MINISTACK) ## Measure, and write bench/results.json.
	.venv/bin/python -m bench

simulate: $(DEV) ## Play seeds of the simulated world (SEEDS=300), or see broken products caught (MUTANTS=1).
	.venv/bin/python -m tests.simulation --seeds $(SEEDS) $(if $(MUTANTS),--mutants)

load: $(DEV) $(MINISTACK) ## Put bounded load on a local stack.
	.venv/bin/python -m bench.load

deploy: $(DEV) $(SAM) ## Build and deploy to AWS with your credentials (STACK=torpor).
	.venv/bin/torpor deploy --stack $(STACK)

sam: $(SAM) ## Make .venv-sam, which holds the AWS SAM CLI.

lock: $(DEV) ## Resolve the dependencies again and rewrite infra/locks.
	.venv/bin/python -m infra.lock

clean: ## Remove what builds and runs left behind.
	rm -rf .torpor .aws-sam dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage
	find . -name __pycache__ -type d -not -path './.venv*' -prune -exec rm -rf {} +

distclean: clean ## Remove the environments too.
	rm -rf .venv .venv-ministack .venv-sam .venv-audit

# Locks hold a hash of every file, so what is installed is what was resolved. uv is only faster: where it cannot be had
# or cannot reach the index as pip does, pip does the same. A lock names everything: --no-deps keeps a pip of 2023 from
# taking a dependency with extras for one that has no pin.
$(DEV): $(LOCKS)/uv.txt $(LOCKS)/dev.txt pyproject.toml
	@.venv/bin/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear .venv
	@[ -x .venv/bin/uv ] || .venv/bin/python -m pip install --quiet --require-hashes -r $(LOCKS)/uv.txt || true
	$(call install,.venv,dev)
	.venv/bin/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

$(MINISTACK): $(LOCKS)/ministack.txt | $(DEV)
	$(call environment,.venv-ministack,ministack)

$(AUDIT): $(LOCKS)/audit.txt | $(DEV)
	$(call environment,.venv-audit,audit)

$(SAM): $(LOCKS)/sam.txt | $(DEV)
	$(call environment,.venv-sam,sam)

define environment
	@$(1)/bin/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(1)
	$(call install,$(1),$(2))
	@touch $@
endef

define install
	@echo "installing $(LOCKS)/$(2).txt into $(1)"
	@.venv/bin/uv pip install --quiet --python $(1)/bin/python --no-deps --require-hashes -r $(LOCKS)/$(2).txt 2>/dev/null \
		|| $(1)/bin/python -m pip install --quiet --no-deps --require-hashes -r $(LOCKS)/$(2).txt
endef
