# make report | test | docs | lab | check | bench; each does its own set-up the first time.
VENV ?= .venv
PYTHON ?=
BIN = $(VENV)/bin
LOG ?=
OUT ?= out/report
ARGS ?=

# What rests on matrix products and factorizations, scikit-learn's own checks of estimators included.
BLAS_TESTS = tests/test_linalg.py tests/cost/test_augmented_linear.py tests/cost/test_training_cost.py \
	tests/cost/test_step_time_model.py tests/cost/test_nonnegative.py tests/forecast/test_temporal_factorization.py \
	tests/forecast/test_lag_regression.py tests/segments/test_segmenter.py

.DEFAULT_GOAL := help
# A process of the tests is a core: threads that wait for one another on busy cores take 30 times as long.
ONE_THREAD = OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
# uv installs no bytecode: without writing it, every process compiles all that it imports.
unexport PYTHONDONTWRITEBYTECODE
.PHONY: help setup core requirements docs report test test-all lab check format lint types notebooks prescott modern giotto bench bench-check bench-cost bench-segments bench-forecast bench-planning bench-scale bench-report bench-users clean

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /make \1|/' | column -t -s '|'

setup: ## make .venv and install everything (the other commands do this by themselves)
	@VENV="$(VENV)" PYTHON="$(PYTHON)" bash scripts/setup.sh all

core:
	@VENV="$(VENV)" PYTHON="$(PYTHON)" bash scripts/setup.sh core

requirements: core ## pin what gpudemand alone needs, with hashes, in requirements.txt
	@{ echo "# What gpudemand alone needs, and to build it, with hashes; made by \`make requirements\` from constraints.txt."; \
	  printf 'hatchling\neditables\n' | $(BIN)/uv pip compile --quiet --no-header --no-annotate --generate-hashes --universal \
	    --python-version 3.11 --constraint constraints.txt pyproject.toml -; } > requirements.new && mv requirements.new requirements.txt

report: core ## demand report on the bundled sample; LOG=jobs.csv ARGS="--format sacct --tz UTC" for your own
	@$(BIN)/gpudemand report $(LOG) --out $(OUT) $(ARGS)

test: setup ## tests and docstring examples, without the slow ones; ARGS="tests/forecast -x"
	@$(ONE_THREAD) $(BIN)/python -m pytest -q -n auto --dist worksteal -m "not slow" $(ARGS)

test-all: setup ## all tests, those of statistics, killed processes, browsers and large networks included
	@$(ONE_THREAD) $(BIN)/python -m pytest -q -n auto --dist worksteal $(ARGS)

docs: ## the documentation: out/docs/index.html
	@VENV="$(VENV)" PYTHON="$(PYTHON)" bash scripts/setup.sh docs
	@$(BIN)/python -m sphinx --fail-on-warning --keep-going --quiet --builder html docs out/docs && echo out/docs/index.html

lab: setup ## JupyterLab on the notebooks
	@$(ONE_THREAD) $(BIN)/jupyter lab notebooks $(if $(filter 0,$(shell id -u)),--allow-root)

check: setup lint types test-all notebooks ## everything that CI runs on this environment

format: setup ## put the code into shape
	@$(BIN)/ruff format . && $(BIN)/ruff check --fix .

lint: setup
	@$(BIN)/ruff format --check . && $(BIN)/ruff check .

types: setup ## types, as on Linux, Windows and macOS
	@printf '%s\n' linux win32 darwin | xargs -P 2 -I {} $(BIN)/mypy --platform {} --cache-dir .mypy_cache/{}

notebooks: setup ## run every notebook from a fresh kernel; their stored outputs stay as they are
	@$(ONE_THREAD) $(BIN)/python -m pytest -q -c /dev/null --rootdir . -p no:cacheprovider -n auto --nbmake --nbmake-timeout 900 notebooks

prescott: setup ## tests of linear algebra as on a processor that OpenBLAS does not know
	@$(ONE_THREAD) OPENBLAS_CORETYPE=Prescott $(BIN)/python -m pytest -q -n auto --dist worksteal $(BLAS_TESTS)

modern: ## the core on the newest numpy, pandas and scikit-learn, installed from a wheel
	@PYTHON="$(PYTHON)" bash scripts/test_wheel.sh modern $(ARGS)

giotto: ## the core and its topology on the versions that giotto-tda pins, installed from a wheel
	@PYTHON="$(PYTHON)" bash scripts/test_wheel.sh giotto $(ARGS)

bench: setup ## speed of the usage engine beside an expert's pandas
	@$(BIN)/python -m benchmarks.usage $(ARGS)

bench-check: setup ## accuracy and time of the main parts, beside what they were at earlier commits; ARGS=--record
	@$(ONE_THREAD) $(BIN)/python -m benchmarks.ledger $(ARGS)

bench-cost: setup ## how well training cost is predicted, on our own measurements; ARGS="--track dnnabacus placement lattuada"
	@$(BIN)/python -m benchmarks.cost$(if $(findstring --track,$(ARGS)),,.own) $(ARGS)

bench-segments: setup ## how well and how fast users are told apart by shape; ARGS="--data DIR" for your own series
	@$(BIN)/python -m benchmarks.segments $(ARGS) && $(BIN)/python -m benchmarks.segments.speed

bench-forecast: setup ## how well demand is forecast; ARGS="--data DIR --track spot --origins 28"
	@$(BIN)/python -m benchmarks.forecast $(ARGS)

bench-planning: setup ## demand from jobs up, run times and plans; ARGS="--data DIR"
	@$(BIN)/python -m benchmarks.planning $(ARGS)

bench-scale: setup ## seconds and peak memory on logs larger than memory; ARGS="--jobs 10e6 100e6"
	@$(BIN)/python -m benchmarks.scale.jobs $(ARGS)

bench-report: setup ## seconds and peak memory of a report from a store of five million jobs; ARGS="--jobs 5e6"
	@$(BIN)/python -m benchmarks.scale.report $(ARGS)

bench-users: setup ## forecasts of many users in chunks, by one process and by two; ARGS="--users 1e6"
	@$(BIN)/python -m benchmarks.scale.users $(ARGS)

clean: ## remove the environment and everything made
	rm -rf $(VENV) .venv-modern .venv-giotto out dist build .pytest_cache .mypy_cache .ruff_cache
