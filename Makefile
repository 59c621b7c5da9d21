# The two commands are `make demo` and `make test`; both set the checkout up first (tools/setup.sh).
# Options of the command behind a target go into ARGS: make demo ARGS="--transports zenoh", make test ARGS="-k e3 -x"

BIN := .venv/bin
SOURCES := twinlink apps tests examples benchmarks colosseum
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help setup demo test thorough bench comparison faults mutants k8s-check lint image clean

help: ## this list
	@sed -n 's/^\([a-z0-9-]*\):[^#]*## \(.*\)/  make \1\t\2/p' $(firstword $(MAKEFILE_LIST)) | expand -t 18

setup: ## install what is missing and make .venv/ (the other targets do it themselves)
	@tools/setup.sh

demo: setup ## the whole path over ZeroMQ and Zenoh, one minute; report in demo-out/
	@$(BIN)/twinlink demo $(ARGS)

# Most tests wait for something, so three go on at a time; more would keep two cores busy, and each other waiting.  The
# tests of a file or class share what they started.  tests/conftest.py has the order.
test: setup ## every test but those of `make thorough`
	@$(BIN)/python -m pytest --numprocesses 3 --dist loadscope --no-loadscope-reorder -m "not thorough" $(ARGS)

thorough: setup ## what `make test` has no time for: the detector on more seeds and scenes, WebSocket's whole conformance
	@$(BIN)/python -m pytest --numprocesses 3 -m thorough $(ARGS)

bench: setup ## the goals table: this library against raw transports and peers, paired in one run
	@$(BIN)/python -m benchmarks.goals $(ARGS)

comparison: setup ## docs/comparison.md: every system in one sweep, on an idle machine (root)
	@$(BIN)/python -m benchmarks.comparison $(ARGS)

faults: setup ## schedules of faults against three transports, judged from ledgers (root)
	@$(BIN)/python -m tests.faults.lab $(ARGS)

mutants: setup ## faults put into the core, found by the traces of the protocol or the tests of the core
	@$(BIN)/python -m tests.traces.mutants $(ARGS)

# Keeps what it builds in $TWINLINK_K8S_CACHE, by default ~/.cache/twinlink/k8s; needs Go 1.24 the first time.
k8s-check: setup ## k8s/ against a private kube-apiserver (built once, 5 to 30 minutes)
	@$(BIN)/python -m tests.k8s.cluster_check $(ARGS)

lint: setup ## style and types: ruff, mypy and the C compilers that are here, changing nothing
	@$(BIN)/ruff check $(SOURCES)
	@$(BIN)/ruff format --check $(SOURCES)
	@$(BIN)/mypy $(SOURCES)
	@$(BIN)/python -m tests.c.building

# containers/README.md
BUILDER ?= $(firstword $(foreach tool,podman buildah docker,$(if $(shell command -v $(tool)),$(tool))))
BASE ?= docker.io/library/debian:12-slim
IMAGES ?= exporter replay
VERSION ?= $(shell sed -n 's/^__version__ = "\(.*\)"/\1/p' twinlink/__init__.py)
TAG ?= $(VERSION)
REVISION ?= $(shell git describe --always --exclude '*' --dirty --abbrev=40)

image: ## the container images twinlink-exporter and twinlink-replay, with podman, buildah or docker
	@test -n "$(BUILDER)" || { echo "make image: install podman, buildah or docker, or name one: BUILDER=..." >&2; exit 2; }
	@case "$(BASE)" in *@sha256:*) ;; *) echo "make image: $(BASE) may come to mean another image; for a release give BASE=NAME@sha256:DIGEST (containers/README.md)" >&2 ;; esac
	@for image in $(IMAGES); do \
	  $(BUILDER) build --file containers/$$image.Containerfile --tag twinlink-$$image:$(TAG) --build-arg BASE=$(BASE) \
	    --build-arg VERSION=$(VERSION) --build-arg REVISION=$(REVISION) $(ARGS) . || exit 2; \
	done

clean: ## remove .venv/, caches and what demo, bench and MGEN sweeps left
	@rm -rf .venv demo-out bench-out comparison-out truths-out mgen-out dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
