# Two commands: `make run` executes every notebook on embedded data, `make test` tests package and notebooks.
# Both make the environment in .venv first if it is missing.

PYTHON ?= python3
VENV ?= .venv
BIN := $(abspath $(VENV))/bin
# What pip is to install besides, or instead of the newest: `make test VENV=build/old PIP="-c old.txt"`
PIP ?=
NOTEBOOKS := $(sort $(wildcard notebooks/[0-9]*.ipynb notebooks/extras/*.ipynb))
SOLUTIONS := $(sort $(wildcard notebooks/solutions/*.ipynb))
BUILD := $(CURDIR)/build
TWO := -n 2 --dist loadfile --no-loadscope-reorder
# Three at a time where some wait for processes that they have killed.
THREE := -n 3 --dist loadfile --no-loadscope-reorder
PACKAGES := docs/explorer/node_modules/.package-lock.json

.PHONY: run test quick test-course site test-site mutants matrix lint bench report notebooks clean

$(VENV)/ready: pyproject.toml
	@echo "Making the environment in $(VENV), once: some minutes and, on Linux, some gigabytes"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --upgrade pip
	@PYTHONWARNINGS=ignore $(BIN)/python -m pip install --quiet $(PIP) -e ".[dev]"
	@touch $@

# Runs go to a folder of their own, so that the committed records stay as they are. A notebook that fails does not keep the
# others, or the tables, from being made; the exit status tells.
run: $(VENV)/ready
	@rm -rf $(BUILD)/run
	@$(BIN)/fednb notebooks --out $(BUILD)/run; status=$$?; \
	  $(BIN)/fednb report --runs results/runs --out $(BUILD)/run && exit $$status

# Two or three files or notebooks at a time, on one thread each; what the tests of a file share (a wheel, a cluster, a sweep) is
# made once. Notebooks with another seed than that of their outputs, with the solutions of their exercises in place, and with few
# steps in late rounds: `make run` and `make test-course` take all.
test: export OMP_NUM_THREADS = 1
test: $(VENV)/ready
	$(BIN)/python -m pytest $(THREE) -p no:nbval tests
	PYTHONPATH=$(CURDIR)/tests FEDNB_PROGRESS=off FEDNB_WORKERS=1 FEDNB_RUNS=$$(mktemp -d)/runs $(BIN)/python -m pytest $(TWO) \
	  -p another_seed --nbval-lax --nbval-current-env --nbval-cell-timeout=300 -p no:cacheprovider $(NOTEBOOKS)

# While one works: all tests but those that start other processes or go through all methods with all options.
quick: export OMP_NUM_THREADS = 1
quick: $(VENV)/ready
	$(BIN)/python -m pytest $(TWO) -p no:nbval -m "not course and not slow" tests

# Faults put in on purpose, one at a time: the tests must see each.
mutants: export OMP_NUM_THREADS = 1
mutants: $(VENV)/ready
	$(BIN)/python tests/mutants.py

# Hand-outs are made of every notebook, executed, solved and graded; two at a time, on one thread each.
test-course: export OMP_NUM_THREADS = 1
test-course: $(VENV)/ready
	@command -v bwrap \
	  || { apt-get update -qq && apt-get install -y -qq --no-install-recommends bubblewrap > /dev/null; } \
	  || { echo "make test-course needs bubblewrap: install it, and try again."; exit 1; }
	$(BIN)/python -m pytest -n 2 tests/course -m course --durations=0

$(VENV)/docs: $(VENV)/ready
	@PYTHONWARNINGS=ignore $(BIN)/python -m pip install --quiet $(PIP) -e ".[docs]"
	@touch $@

$(VENV)/browser: $(VENV)/docs
	@PYTHONWARNINGS=ignore $(BIN)/python -m pip install --quiet $(PIP) -e ".[browser]"
	@touch $@

# What draws the tables, curves and equations of the site, in the versions of the lock file.
$(PACKAGES): docs/explorer/package.json docs/explorer/package-lock.json
	@command -v npm > /dev/null || { echo "make site needs npm (Node.js): install it, and try again."; exit 1; }
	@npm ci --prefix docs/explorer --loglevel=error --no-audit --no-fund > /dev/null
	@touch $@

# All pages, with outputs as they are committed, and the results explorer. They open from a file, without a network.
site: $(VENV)/docs $(PACKAGES)
	@rm -rf $(BUILD)/site
	@$(BIN)/python -m sphinx -q -W --keep-going -d $(BUILD)/doctrees -c docs . $(BUILD)/site
	@echo "The site: $(BUILD)/site/index.html"

# The site in a headless browser, which is Debian's Chromium if there is none.
test-site: export OMP_NUM_THREADS = 1
test-site: site $(VENV)/browser
	@command -v chromium || command -v chromium-browser || command -v google-chrome \
	  || { apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium > /dev/null; } \
	  || { echo "make test-site needs Chromium: install it, and try again."; exit 1; }
	$(BIN)/python -m pytest -n 2 tests/browser

# Both commands in throw-away environments: with the oldest versions that pyproject.toml allows, and with the newest.
matrix: $(VENV)/ready
	$(BIN)/python tests/matrix.py

lint: $(VENV)/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/ready
	$(BIN)/python tests/bench.py

report: $(VENV)/ready
	$(BIN)/fednb report

# Execute the notebooks in place, to commit their outputs.
notebooks: $(VENV)/ready
	for notebook in $(NOTEBOOKS) $(SOLUTIONS); do \
	  FEDNB_PROGRESS=off FEDNB_RUNS=$$(mktemp -d)/runs $(BIN)/jupyter nbconvert --to notebook --inplace --execute \
	    --ExecutePreprocessor.record_timing=False --ExecutePreprocessor.kernel_name=python3 \
	    $$notebook || exit 1; \
	done

clean:
	rm -rf build $(VENV)
