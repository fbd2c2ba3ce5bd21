# Two commands: `make run` executes every notebook on embedded data, `make test` tests package and notebooks.
# Both make the environment in .venv first if it is missing.

PYTHON ?= python3
BIN := .venv/bin
NOTEBOOKS := $(sort $(wildcard notebooks/[0-9]*.ipynb))
BUILD := $(CURDIR)/build

.PHONY: run test test-course mutants lint bench report notebooks clean

.venv/ready: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet -e ".[dev]"
	touch $@

# Runs go to a folder of their own, so that the committed records stay as they are.
run: .venv/ready
	rm -rf $(BUILD)/run && mkdir -p $(BUILD)/run/notebooks
	cd notebooks && for notebook in $(notdir $(NOTEBOOKS)); do \
	  echo "== $$notebook"; \
	  FEDNB_PROGRESS=off FEDNB_RUNS=$(BUILD)/run/runs ../$(BIN)/papermill --no-progress-bar --log-level ERROR -k python3 \
	    $$notebook $(BUILD)/run/notebooks/$$notebook || exit 1; \
	done
	$(BIN)/python -m fednb report --runs results/runs --out $(BUILD)/run
	@echo "The executed notebooks are in $(BUILD)/run/notebooks"

# Two files or notebooks at a time, on one thread each.
test: export OMP_NUM_THREADS = 1
test: .venv/ready
	$(BIN)/python -m pytest -n 2 --dist loadfile tests
	FEDNB_PROGRESS=off FEDNB_WORKERS=1 FEDNB_RUNS=$$(mktemp -d)/runs $(BIN)/python -m pytest -n 2 --dist loadfile \
	  --nbval-lax --nbval-current-env --nbval-cell-timeout=300 -p no:cacheprovider $(NOTEBOOKS)

# Faults put in on purpose, one at a time: the tests must see each.
mutants: export OMP_NUM_THREADS = 1
mutants: .venv/ready
	$(BIN)/python tests/mutants.py

# Hand-outs are made of every notebook, executed, solved and graded; two at a time, on one thread each.
test-course: export OMP_NUM_THREADS = 1
test-course: .venv/ready
	$(BIN)/python -m pytest -n 2 tests/test_course.py -m course --durations=0

lint: .venv/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

bench: .venv/ready
	$(BIN)/python -m fednb.bench

report: .venv/ready
	$(BIN)/python -m fednb report

# Execute the notebooks in place, to commit their outputs.
notebooks: .venv/ready
	cd notebooks && for notebook in $(notdir $(NOTEBOOKS)); do \
	  FEDNB_PROGRESS=off FEDNB_RUNS=$$(mktemp -d)/runs ../$(BIN)/jupyter nbconvert --to notebook --inplace --execute \
	    --ExecutePreprocessor.record_timing=False --ExecutePreprocessor.kernel_name=python3 \
	    $$notebook || exit 1; \
	done

clean:
	rm -rf build .venv
