# Everything happens in .venv, made with the first Python >= 3.11 that is found (or PYTHON=...).
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help run test check types system bench bench-exec incident format lock clean

PYTHONS := $(or $(PYTHON),python3 python3.13 python3.12 python3.11 python3.14)
PY := .venv/bin/python
PIP := $(PY) -m pip --disable-pip-version-check --no-input
TREE := gateway tests $(wildcard bench)

# $(call install,ARGS): quiet, and one sentence where it fails.
install = { $(PIP) install $(1) >.venv/install.log 2>&1 || { \
  echo "Installing the packages failed: is there a network? What pip said is in .venv/install.log." >&2; exit 1; }; }

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' Makefile

run: .venv/.run ## Start the gateway; options with ARGS="--config FILE --listen ADDR"
	@exec $(PY) -m gateway serve $(ARGS)

# Much of the suite is waiting, so that two processes need about half the time; `-n 0` is none of them.
test: check ## Format, lint, types, layers, and every test that needs only Python
	@$(PY) -m pytest -n auto --maxprocesses 4 --dist worksteal $(ARGS)

check: .venv/.test ## The static half of `test`
	@$(PY) -m ruff format --check $(TREE)
	@$(PY) -m ruff check $(TREE)
	@$(PY) -m mypy
	@.venv/bin/lint-imports --no-logo

system: .venv/.test ## The tests that need other programs (nginx, Node, ...)
	@bash tests/system/install.sh
	@$(PY) -m pytest -m system tests/system $(ARGS)

bench: .venv/.run ## Measure, side by side with nginx
	@exec $(PY) -m bench.run $(ARGS)

bench-exec: .venv/.run ## Measure the sidecar for commands, side by side with the shell
	@exec $(PY) -m bench.exec $(ARGS)

incident: .venv/.test ## A night of 13,312 requests, 24 of them broken, without the gateway and with it
	@exec $(PY) -m bench.incident $(ARGS)

format: .venv/.test ## Write the code in the one format
	@$(PY) -m ruff check --fix --quiet $(TREE); $(PY) -m ruff format $(TREE)

LOCK := $(PY) -m piptools compile --quiet --upgrade --generate-hashes --strip-extras --no-header \
  --no-emit-index-url --no-emit-trusted-host --no-emit-find-links
lock: .venv/.run ## Renew requirements/*.txt from pyproject.toml and requirements/*.in
	@$(call install,pip-tools)
	@$(LOCK) --extra speed -o requirements/run.txt pyproject.toml
	@$(LOCK) -o requirements/test.txt requirements/test.in
	@$(LOCK) -o requirements/build.txt requirements/build.in

clean: ## Remove what was made here
	@rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis build dist
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/bin/python:
	@any=; for python in $(PYTHONS); do \
	  "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || continue; any=$$python; \
	  "$$python" -c 'import ensurepip, venv' 2>/dev/null || continue; \
	  echo "Making .venv with $$("$$python" --version) ..." >&2; \
	  rm -rf .venv; "$$python" -m venv .venv >/dev/null 2>&1 && exit; done; rm -rf .venv; \
	if [ -n "$$any" ]; then echo "$$any has no venv module: install it (Debian: apt install python3-venv)." >&2; \
	else echo "No Python of version 3.11 or newer was found: install one, or say which with PYTHON=/path/to/python3." >&2; \
	fi; exit 1

.venv/.run: requirements/run.txt requirements/build.txt pyproject.toml | .venv/bin/python
	@echo "Installing the gateway into .venv ..." >&2
	@$(call install,--require-hashes -r requirements/run.txt -r requirements/build.txt)
	@$(call install,--no-deps --no-build-isolation --editable .)
	@touch $@

.venv/.test: requirements/test.txt | .venv/.run
	@echo "Installing what the tests need into .venv ..." >&2
	@$(call install,--require-hashes -r requirements/test.txt)
	@touch $@
