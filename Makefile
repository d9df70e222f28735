# Two commands on a fresh machine with Python 3.11+, Java 17+ and make: `make report`, `make test`.
#
#   make report ARGS="02 -p release 2.5"     arguments of `python -m isrlab report`
#   make report LOCKED=1                     exactly the libraries of pylock.toml
#   make test ARGS="-k rules -n 0"           arguments of pytest
#   make test JOBS=4                         processes, of tests or of notebooks (2)
#   make judge RUNS=1000 RELEASES="2.8.2 3.9.2"   (100 schedules; all releases; needs Maven and Java)
#   make hunt RELEASE=4.3.1 SECONDS=600 SEED=7    (60 seconds of processor time; needs Maven and Java)
#   make watch RELEASE=4.4.0                 what a release changes against the one before it (needs Maven and Java)
#   make hold ARGS="17"                      the sentences of one notebook (default: all), where results are missing
#   make record NAME=loss_bounce VERSION=0.10.2.2 TRIES=3   (real brokers; needs Maven and Java)
#   make test PYTHON=python3.12 VENV=/tmp/v  another interpreter, another environment

PYTHON ?= python3
LOCKED ?=
VENV ?= $(if $(LOCKED),.venv-locked,.venv)
JOBS ?= 2
ARGS ?=
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
SIBLINGS := $(foreach name,ops proof book,--editable packages/$(name))
PIP = $(BIN)/python -m pip install --quiet --disable-pip-version-check
# uv installs in a third of pip's time, and reads pylock.toml, as pip does only from 26.1 on.
UV = $(PIP) uv && VIRTUAL_ENV=$(VENV) $(BIN)/uv
# pip does it where uv cannot: if only pip's settings name the registry, for example.
INSTALL = install() { { $(UV) pip install --quiet "$$@"; } || \
  { echo "uv could not install them, pip tries"; $(PIP) --no-compile "$$@"; }; }; install
# Names that make an environment without numba, Spark and the tests' libraries, if there is none.
LIGHT := $(if $(LOCKED)$(wildcard $(INSTALLED)),,01 02 03 04 05 06 07 08 09 10)
IS_LIGHT := $(and $(filter $(LIGHT),$(firstword $(ARGS))),$(filter -% $(LIGHT) none,$(or $(word 2,$(ARGS)),none)))
FOR_REPORT := $(if $(IS_LIGHT),$(VENV)/.installed-notebooks,$(INSTALLED))
# All tests of a file or notebook run in one process, in the order of tests/conftest.py. (With pytest
# 9.2 and xdist 3.8 `--dist loadgroup` silently groups nothing: pytest-xdist issue 1386.)
MEASURED := $(BIN)/python tools/processor_seconds.py
PYTEST := $(BIN)/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder
TUTORIALS := $(shell grep -L '^ *"from isrlab import.* spark' notebooks/*.ipynb)  # those that need no Spark
SPARK_NOTEBOOKS := $(notdir $(basename $(filter-out $(TUTORIALS),$(wildcard notebooks/*.ipynb))))

# Hundreds of processes import the package here; some images let none of them keep what it compiled.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help report page site install test every-test check quick-tests lint types lab wheel lock bench day notebooks judge hunt hold watch record clean

help: ## list these targets
	@sed -n 's/^\([a-z]*\):.*## /  make \1	/p' Makefile | expand -t 18

# Java's quick compiler and serial collector: half the CPU time. Its default of 48 MB for machine code
# is too little for the Spark process that the notebooks of a report share. With the archive of
# Spark's classes, which the tests make, a JVM needs half as long to start.
CLASSES := $(abspath $(VENV))/spark.jsa
COMPILER := -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC
QUICK := $(COMPILER) -XX:SharedArchiveFile=$(CLASSES) -Xlog:cds*=off
every-test: export JDK_JAVA_OPTIONS ?= $(QUICK)
# Spark without pyspark.zip, which each Python worker compiles anew: it finds pyspark beside isrlab.
SPARK := $(abspath $(VENV))/spark
every-test: export SPARK_HOME ?= $(SPARK)
ifeq ($(ARGS),)
report: export JDK_JAVA_OPTIONS ?= $(QUICK)
endif
report: $(FOR_REPORT) ## run every notebook and write reports/index.html
	$(MEASURED) $(BIN)/python -m isrlab report --jobs $(JOBS) $(ARGS)

page: $(INSTALLED) ## build the playground in reports/play, for any web server (needs npm the first time)
	$(BIN)/python -m isrlab page $(ARGS)

site: report page ## all notebooks as pages and the playground: one folder, reports/, to publish

install: $(INSTALLED) ## make the environment that the other targets use

# nbval executes the tutorials and compares their outputs with the stored ones. The notebooks on Spark
# are executed, with small fleets, only if no `make report` has run their current versions.
test: $(INSTALLED) ## ruff, mypy and all tests, nbval on the tutorials included; the twenty slowest
	@$(MEASURED) $(MAKE) --no-print-directory lint types every-test

$(SPARK): $(INSTALLED)
	@mkdir -p $@ && cd $@ && ln -sf ../lib/*/site-packages/pyspark/bin ../lib/*/site-packages/pyspark/jars .

$(CLASSES): $(INSTALLED) | $(SPARK)
	@echo "archiving Spark's classes, once ..."
	@JDK_JAVA_OPTIONS="$(COMPILER) -XX:ArchiveClassesAtExit=$@.new" $(BIN)/python -c "\
	from isrlab import spark; session = spark.session('local[1]'); session.range(3).count(); \
	java = session.sparkContext._gateway; session.stop(); java.shutdown(); \
	java.proc.stdin.close(); java.proc.wait()" > /dev/null 2>&1 && mv $@.new $@ || \
	echo "no archive was made: Java starts more slowly"

every-test: $(CLASSES)
	$(PYTEST) --durations=20 --nbval --nbval-current-env tests $(TUTORIALS) $(ARGS)

check: $(INSTALLED) ## ruff, mypy and the quick tests of what changed since main (all, if nothing did)
	@$(MEASURED) $(MAKE) --no-print-directory lint types quick-tests

quick-tests:
	$(PYTEST) -m "not slow" -q $$($(BIN)/python tools/affected.py) $(ARGS)

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/lint-imports --no-logo
	$(BIN)/ruff format --check .

types: $(INSTALLED)
	$(BIN)/mypy

lab: $(INSTALLED) ## open the notebooks in JupyterLab
	$(BIN)/python -m isrlab lab . $(ARGS)

wheel: $(INSTALLED) ## build the four wheels, with the notebooks and the data, in dist
	rm -rf build packages/*/build
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir dist . $(addprefix ./packages/,ops proof book)

lock: $(INSTALLED) ## update pylock.toml, the exact versions of all libraries
	$(BIN)/python tools/requirements.py > .requirements.txt
	$(UV) pip compile --quiet --universal --python-version 3.11 --upgrade --no-header \
	  --no-emit-index-url --format pylock.toml -o pylock.toml .requirements.txt
	@rm .requirements.txt

bench: $(INSTALLED) ## run the benchmarks
	@set -e; for file in benchmarks/bench_*.py; do echo "$$file"; $(BIN)/python "$$file" $(ARGS); done

# By default the folder is kept in ~/.cache, and the leaders of this machine's cores run.
day: $(INSTALLED) ## run the day of 100,000 partitions again, resumable: ARGS="FOLDER [spark://host:7077 [LEADERS]]"
	$(BIN)/python benchmarks/a_day.py $(or $(ARGS),$(HOME)/.cache/isrlab/day)

notebooks: $(INSTALLED) ## run the tutorials again and store their outputs
	$(BIN)/jupyter nbconvert --to notebook --execute --inplace \
	  --ExecutePreprocessor.record_timing=False \
	  --NotebookExporter.preprocessors=isrlab.report.notebooks.KeepPlayers \
	  --ClearMetadataPreprocessor.enabled=True \
	  --ClearMetadataPreprocessor.preserve_cell_metadata_mask=tags \
	  --ClearMetadataPreprocessor.preserve_cell_metadata_mask=jupyter \
	  --ClearMetadataPreprocessor.preserve_nb_metadata_mask=kernelspec \
	  $(filter-out %/00_start_here.ipynb,$(TUTORIALS)) notebooks/00_start_here.ipynb

# Maven keeps Kafka's jars in ~/.m2; their paths are kept in ~/.cache/isrlab/judge.
RUNS ?= 100
RELEASES ?=
judge: $(INSTALLED) ## let Kafka's own classes judge the engine, on random schedules
	@$(BIN)/python -c 'import jpype' 2>/dev/null || { $(INSTALL) --editable '.[judge]' $(SIBLINGS); }
	@cd packages/proof && $(abspath $(BIN))/python -m judge $(RELEASES) \
	  --runs $(RUNS) --jobs $(JOBS) $(ARGS)

# SECONDS is also a shell variable: only a value on the command line counts.
RELEASE ?=
SEED ?= 1
REPLAY ?=
hunt: override SECONDS := $(if $(filter command line,$(origin SECONDS)),$(SECONDS),60)
hunt: $(INSTALLED) ## look for schedules in which Kafka's controller breaks its promises
	@cd packages/proof && $(abspath $(BIN))/python -m hunt $(RELEASE) \
	  --seconds $(SECONDS) --seed $(SEED) $(if $(REPLAY),--replay '$(REPLAY)') $(ARGS)

hold: $(INSTALLED) ## check the notebooks' sentences at other seeds, settings and releases
	@cd packages/book && $(abspath $(BIN))/python -m hold $(ARGS)

watch: $(INSTALLED) ## what RELEASE changes in rules, log messages and promises; judge and hunt run on it
	@$(BIN)/python -c 'import jpype' 2>/dev/null || { $(INSTALL) --editable '.[judge]' $(SIBLINGS); }
	@cd packages/proof && $(abspath $(BIN))/python -m judge.watch $(RELEASE) $(ARGS)

NAME ?=
VERSION ?=
TRIES ?= 1
record: $(INSTALLED) ## play a schedule on real brokers; without NAME, list what is kept
	@$(BIN)/python -c 'import confluent_kafka, kazoo' 2>/dev/null || \
	  { $(INSTALL) --editable '.[record]' $(SIBLINGS); }
	@cd packages/proof && $(abspath $(BIN))/python -m record $(NAME) \
	  $(if $(NAME),--version $(VERSION) --tries $(TRIES)) $(ARGS)

clean: ## remove the outputs of the targets above, except the environment
	rm -rf reports build packages/*/build dist .import_linter_cache .pytest_cache .mypy_cache .ruff_cache .hypothesis spark-warehouse

# The stamp avoids a second installation: it is older than pyproject.toml only after a change of it.
$(INSTALLED): EXTRAS := all,test
$(VENV)/.installed-notebooks: EXTRAS := notebooks
$(INSTALLED) $(VENV)/.installed-notebooks: pyproject.toml $(wildcard packages/*/pyproject.toml) $(if $(LOCKED),pylock.toml)
	@test -x $(BIN)/python || $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "isrlab needs Python 3.11 or newer, and '$(PYTHON)' is older or missing." \
	         "Install one, then name it: make PYTHON=python3.12 ..." >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -c 'import ensurepip, venv' || \
	  { echo "$(PYTHON) cannot make virtual environments: its venv module is missing." \
	         "On Debian: apt-get install python3-venv" >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(if $(LOCKED),$(UV) pip install --quiet --requirement pylock.toml)
	@echo "installing isrlab and its libraries in $(VENV) ..."
	@$(INSTALL) $(if $(LOCKED),--no-deps --editable .,--editable '.[$(EXTRAS)]') $(SIBLINGS)
	@touch $@
