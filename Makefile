# Every target sets itself up: it needs Python >= 3.11 and make, nothing else.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
WORKERS ?= 2
# Versions to install: CONSTRAINTS=.ci/constraints.txt gives those that were last tested together.
CONSTRAINTS ?=

# Where it is set, every process compiles all sources again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test test-all test-lowest check lint docs kernels wheel release soak soak-properties bench torch ray extras flower chaos format clean
help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' Makefile | sed -E 's/:.*## /\t/' | expand -t 18

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "fdro needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version 2>&1). Try: make PYTHON=python3.11 ..."; exit 1; }
	@$(PYTHON) -m venv $(VENV) || \
	  { rm -rf $(VENV); echo "could not make a virtual environment; on Debian and Ubuntu: apt install python3-venv"; exit 1; }

PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile $(if $(CONSTRAINTS),-c $(CONSTRAINTS))

$(VENV)/.run: pyproject.toml | $(BIN)/python
	$(PIP) -e ".[demo,plot]"
	@touch $@

$(VENV)/.test: pyproject.toml | $(BIN)/python
	$(PIP) -e ".[test]"
	@touch $@ $(VENV)/.run

$(VENV)/.dev: pyproject.toml | $(BIN)/python
	$(PIP) -e ".[dev]"
	@touch $@ $(VENV)/.run $(VENV)/.test

demo: $(VENV)/.run  ## a short run that compares robust training with FedAvg
	@$(BIN)/fdro --version
	$(BIN)/fdro demo

test: $(VENV)/.test kernels  ## what everyone runs at every change: minutes
	$(BIN)/python -m pytest -n $(WORKERS) $(ARGS)

test-all: $(VENV)/.dev kernels  ## all cases of grids, kills, notebooks, commands of bench; PART=3/7 runs a part of what `make test` leaves out
	HYPOTHESIS_PROFILE=thorough $(BIN)/python -m pytest -n $(WORKERS) -m "" --durations=20 $(if $(PART),--part=$(PART)) $(ARGS)

test-lowest:  ## the oracles' tests on the lowest versions that pyproject.toml allows, in an environment of its own
	$(PYTHON) .ci/lowest.py -n $(WORKERS) $(ARGS)

check: lint docs  ## lint, format, types, import rule, documentation; `make -j2 check` does both halves at once

lint: $(VENV)/.dev  ## lint, format, types, import rule
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q tests/test_import_rule.py

docs: $(VENV)/.dev  ## the documentation as HTML; prints the page to open
	$(BIN)/sphinx-build -W -q -b html docs docs/_build/html
	@echo "open file://$(CURDIR)/docs/_build/html/index.html"

kernels: $(VENV)/.run  ## make the libraries of all kernels now, which takes two minutes once; otherwise each when it is first called
	$(BIN)/python -m uncertainty_sets.kernels.native --workers $(WORKERS)

wheel: $(BIN)/python  ## wheel and sdist in dist/; the wheel is installed outside the checkout and tested there
	rm -rf dist
	$(PIP) build
	FDRO_KERNELS=require $(BIN)/python -m build --outdir dist
	$(BIN)/python .ci/trial.py dist/*.whl

release: $(BIN)/python  ## dry run of a release: version, changelog, tree, tag, wheel, sdist, metadata; uploads nothing
	$(BIN)/python .ci/release.py
	$(MAKE) --no-print-directory wheel
	$(PIP) twine
	$(BIN)/python -m twine check --strict dist/*
	@echo "ready in dist/; nothing was tagged or uploaded. What remains is in CONTRIBUTING.md, under Releases"

soak: $(VENV)/.dev  ## adversarial cases for the oracles, checked independently; ARGS=--minutes=30
	$(BIN)/python -m bench soak $(ARGS)

soak-properties: $(VENV)/.dev  ## 20,000 examples per property (hours)
	HYPOTHESIS_PROFILE=soak $(BIN)/python -m pytest -n $(WORKERS) -m property $(ARGS)

torch: $(VENV)/.test  ## PyTorch, at the release that the adapter is tested with
	$(PIP) torch==2.13.0

ray: $(VENV)/.test  ## Ray, at the release that the engine is tested with
	$(PIP) ray==2.60.0

extras: torch ray  ## PyTorch and Ray, and the tests that `make test` skipped without them
	$(BIN)/python -m pytest -n $(WORKERS) --part=skipped $(ARGS)

flower: $(VENV)/.test  ## Flower, in an environment of its own since it needs older packages, and the tests of its engine
	@test -x $(VENV)-flower/bin/python || $(PYTHON) -m venv $(VENV)-flower
	@# everything else comes from $(VENV), which this one is laid over
	@$(VENV)-flower/bin/python -c 'import pathlib, site, sys; pathlib.Path(site.getsitepackages()[0], "below.pth").write_text(f"import site; site.addsitedir({sys.argv[1]!r})\n")' \
	  "$$($(BIN)/python -c 'import site; print(site.getsitepackages()[0])')"
	@# typer 0.20, which flwr needs, warns with click 8.4 and newer, and warnings are errors here
	$(VENV)-flower/bin/python -m pip install --quiet --disable-pip-version-check --no-compile flwr==1.41.0 "click<8.4"
	@# the deployment's tests are one group in one process: they share its SuperLink and nodes
	$(VENV)-flower/bin/python -m pytest -n $(WORKERS) --dist loadgroup -k flower tests/fdro_core $(ARGS)

chaos: ray  ## hosts killed at random for two minutes on threads, on Ray's processes and on its nodes
	$(BIN)/python -m bench chaos $(ARGS)

bench: $(VENV)/.dev  ## the complexity table, measured, in its quick form
	$(BIN)/python -m bench complexity --quick $(ARGS)

format: $(VENV)/.dev  ## format the code and apply automatic lint fixes
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:  ## remove what the targets made
	rm -rf $(VENV) $(VENV)-flower $(VENV)-lowest build dist docs/_build .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -prune -exec rm -rf {} +
