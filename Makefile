# make demo, make test: everything else is set up by them. See README.md.
VENV   := .venv
PY     := $(VENV)/bin/python
PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3 python; do \
	$$p -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
BENCHES := step work_precision sweep memory compile_time scaling roofline precision ensemble
CHANGED := $(shell git diff --name-only --diff-filter=d HEAD -- 'tests/test_*.py' 2>/dev/null)

.PHONY: env demo test test-slow check bench clean
env: $(VENV)/.ready

$(VENV)/.ready: pyproject.toml
	@test -n "$(PYTHON)" || { echo "mflandscape needs Python >= 3.11 with venv; set PYTHON=/path/to/python"; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(PY) -m pip install --quiet --disable-pip-version-check --upgrade pip
	$(PY) -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

demo: env
	$(VENV)/bin/mflandscape run --preset paper-s1 --n-particles 1000 --max-steps 10000 --out results/demo --resume
	$(VENV)/bin/mflandscape plot results/demo

test: env
	FAST_COMPILATION=1 $(PY) -m pytest -m "not slow" -n 2 --dist loadfile

test-slow: env
	$(PY) -m pytest -n 2 --dist loadfile

check: env
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .
	$(VENV)/bin/pyright
	$(if $(CHANGED),$(PY) -m pytest $(CHANGED))

bench: env
	set -e; for name in $(BENCHES); do \
		BENCH_RESULTS=results/bench $(PY) benchmarks/$$name.py --quick; \
	done

clean:
	rm -rf $(VENV) results .pytest_cache .ruff_cache
