# make tune   set up a virtual environment and auto-schedule the tutorial's convolution layer on the CPU
# make tune-cuda   the same on an NVIDIA GPU
# make tune-network   tune the 24 tasks of ResNet-18 on the CPU, compile the network, check and time it
# make tune-vta   tune the ten convolutions of ResNet-18 on a simulated accelerator, run the network in int8, check it
# make test   set up the environment and run the checks and tests
# make test-torch   the tests that need PyTorch (several GB, which are installed)
# make notebooks   write the chapters of docs/chapters as notebooks
# make test-clang   the tests of C programs with clang 16 or newer (CLANG=...)
# make test-lowest   tests of models and files with the lowest versions of dependencies that are allowed
# make teach   execute those notebooks whole (Jupyter's kernel is installed), open reports in Chromium, if there is one, and
#              run an ablation on measured programs
# make test-long   whole runs: a fleet, tutorial pages, networks, every sketch compiled
PYTHON ?= python3
VENV ?= .venv
RUN := $(VENV)/bin/python
PIP := $(RUN) -m pip install -qq --no-compile --disable-pip-version-check
LOG ?= conv2d.json
TRIALS ?= 64
CUDA_LOG ?= conv2d_cuda.json
CUDA_TRIALS ?= 512
NETWORK ?= resnet-18
NETWORK_LOG ?= $(NETWORK).json
NETWORK_TRIALS ?= 192
VTA_LOG ?= vta.resnet18_v1.log
VTA_TRIALS ?= 640
SEEDS ?= 1000:2000
CLANG ?= clang-16
LOWEST := build/lowest
READERS := tests/relay_lite/test_stored_dtypes.py tests/relay_lite/test_onnx_operators.py tests/ansor_ext/shipped_model \
	tests/arithmetic/test_stored.py tests/ansor/test_cost_model.py tests/reports/test_every_dtype_is_checked.py
# Each process begins with half of the tests, so what a module prepares is prepared once; who is done takes over some.
PYTEST := $(RUN) -m pytest -n 2 --dist worksteal
LAYER := conv2d --shape 1,7,7,512,512,3,1,1

# The tests start hundreds of processes, each of which would compile the packages anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: tune tune-cuda tune-network tune-vta test test-torch test-long test-clang test-lowest notebooks teach lint fuzz bench clean

# The pip that comes with Python may be one that takes twice as long to find packages.
$(VENV)/.installed: setup.py pyproject.toml
	$(PYTHON) -m venv $(VENV)
	-$(PIP) --upgrade pip
	$(PIP) --editable ".[dev]"
	touch $@

tune: $(VENV)/.installed
	$(RUN) -m ansor tune $(LAYER) --target c --more $(TRIALS) --log $(LOG) --compare

$(VENV)/.installed-cuda: $(VENV)/.installed
	$(PIP) --editable ".[cuda]" || \
		echo "the packages of the extra [cuda] could not be installed" >&2
	$(RUN) -c "import pycuda" 2> /dev/null && touch $@ || true

tune-cuda: $(VENV)/.installed-cuda
	$(RUN) -m ansor tune $(LAYER) --target cuda --more $(CUDA_TRIALS) --log $(CUDA_LOG) --compare

tune-network: $(VENV)/.installed
	$(RUN) -m ansor tune-network $(NETWORK) --target c --trials $(NETWORK_TRIALS) --log $(NETWORK_LOG)

tune-vta: $(VENV)/.installed
	$(RUN) -m ansor vta tune --trials $(VTA_TRIALS) --log $(VTA_LOG)

test: $(VENV)/.installed
	$(PYTEST) -m "not slow and not long and not gpu and not torch"

test-long: $(VENV)/.installed
	$(PYTEST) -m "long and not slow and not gpu"

$(VENV)/.installed-torch: $(VENV)/.installed
	$(PIP) --editable ".[torch]" transformers
	touch $@

test-torch: $(VENV)/.installed-torch
	$(RUN) -m pytest -m torch tests/torch tests/reports

test-clang: $(VENV)/.installed
	CC=$(CLANG) $(PYTEST) -m "not slow and not long and not gpu and not torch" tests/codegen_c tests/reports

test-lowest: $(VENV)/.installed
	mkdir -p build
	$(RUN) -m tests.architecture.lowest > $(LOWEST).txt
	$(PYTHON) -m venv $(LOWEST)
	$(LOWEST)/bin/python -m pip install -qq --no-compile --disable-pip-version-check --requirement $(LOWEST).txt
	PYTHONPATH=. $(LOWEST)/bin/python -m pytest -n 2 -m "not slow and not long and not gpu and not torch" $(READERS)

notebooks: $(VENV)/.installed
	$(RUN) -m tests.notebooks

$(VENV)/.installed-notebooks: $(VENV)/.installed
	$(PIP) --editable ".[notebooks]"
	touch $@

teach: $(VENV)/.installed-notebooks
	$(RUN) -m tests.teach
	$(RUN) -m tests.report_in_browser
	rm -rf build/study
	$(RUN) -m benchmarks.study ablation --seeds 1 --trials 48 --out build/study

lint: $(VENV)/.installed
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports

fuzz: $(VENV)/.installed
	ANSOR_WHOLE=1 $(PYTEST) -m "not gpu and not torch"
	ANSOR_FUZZ=180 $(PYTEST) tests/te_lite/test_fuzz.py
	ANSOR_FUZZ=24 $(PYTEST) tests/te_lite/test_backward_reads.py tests/ansor/test_backward_search.py
	$(RUN) -m tests.whole_way --seeds $(SEEDS) --jobs 2
	$(RUN) -m tests.whole_way --seeds $(SEEDS) --jobs 2 --graphs
	$(RUN) -m tests.whole_way --seeds $(SEEDS) --jobs 2 --asks
	$(RUN) -m tests.whole_way --seeds $(SEEDS) --jobs 2 --wide
	$(RUN) -m tests.whole_way --seeds $(SEEDS) --jobs 2 --models --batch 4
	$(RUN) -m tests.vta_sim.random_programs --seeds $(SEEDS)

bench: $(VENV)/.installed
	$(RUN) -m benchmarks.lanes
	$(RUN) -m benchmarks.cpu_codegen

clean:
	rm -rf $(VENV) build *.egg-info
