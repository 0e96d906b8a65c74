# make tune   set up a virtual environment and auto-schedule the tutorial's convolution layer on the CPU
# make test   set up the environment and run the checks and tests
PYTHON ?= python3
VENV ?= .venv
RUN := $(VENV)/bin/python
LOG ?= conv2d.json
TRIALS ?= 64

.PHONY: tune test lint fuzz bench clean

$(VENV)/.installed: setup.py pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(RUN) -m pip install --quiet --disable-pip-version-check --editable ".[dev]"
	touch $@

tune: $(VENV)/.installed
	$(RUN) -m ansor tune conv2d --shape 1,7,7,512,512,3,1,1 --target c --trials $(TRIALS) --log $(LOG) --compare

test: $(VENV)/.installed
	$(RUN) -m pytest -n 2 -m "not slow and not gpu"

lint: $(VENV)/.installed
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports

fuzz: $(VENV)/.installed
	$(RUN) -m pytest -n 2 -m slow
	ANSOR_FUZZ=180 $(RUN) -m pytest -n 2 tests/te_lite/test_fuzz.py

bench: $(VENV)/.installed
	$(RUN) -m benchmarks.lanes
	$(RUN) -m benchmarks.cpu_codegen

clean:
	rm -rf $(VENV) build *.egg-info
