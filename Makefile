# Every target sets up what it needs; `make help` lists them.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
# Evaluated once, by the first recipe that uses it.
venv = $(eval venv := $(shell hack/setup))$(if $(venv),$(venv),$(error hack/setup failed))
bin = $(venv)/bin
run = PATH="$(bin):$$PATH" HF_HUB_OFFLINE=1

.PHONY: help
help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 22

.PHONY: setup
setup: ## make the virtual environment (outside the tree)
	@echo "$(venv)"

.PHONY: lint
lint: ## ruff, mypy --strict, import-linter
	$(run) ruff format --check .
	$(run) ruff check .
	$(run) mypy
	$(run) lint-imports

.PHONY: unit
unit: ## tests that need neither torch nor processes: seconds
	$(run) pytest -q -m "not torch and not processes and not cluster and not node"

.PHONY: test
test: verify lint ## everything that CI runs
	$(run) pytest -q --durations=15

.PHONY: generate
generate: ## protobuf stubs, CRDs and rules of Prometheus from their sources
	$(run) hack/generate-protobuf
	$(run) hack/generate-crds
	$(run) hack/generate-prometheus

.PHONY: generate-deploy
generate-deploy: ## the objects under deploy/ from the chart (builds Helm the first time)
	$(run) hack/generate-deploy

.PHONY: verify
verify: ## fail when a generated file differs from its source
	$(run) hack/verify-generated

.PHONY: demo
demo: ## ask a FullSplit service about pictures, on this machine (KEEP=1 leaves it running)
	$(run) hack/demo

.PHONY: cluster-up
cluster-up: ## a cluster of one node on this machine, without Docker (root; docs/cluster.md)
	@$(run) hack/cluster up

.PHONY: cluster-down
cluster-down: ## end that cluster
	@$(run) hack/cluster down

.PHONY: cluster-demo
cluster-demo: ## all of it: that cluster, images, Helm, examples/shapes.yaml, questions to its pods (cluster-down ends it)
	@$(run) hack/cluster-demo

.PHONY: images
images: ## build the images of operator and worker, and bring them to the cluster
	@$(run) hack/cluster images

.PHONY: bench
bench: ## the tables of docs/benchmarks.md, side by side in one run
	$(run) python -m bench $(ARGS)

.PHONY: bench-peers
bench-peers: ## environments of the peers that bench compares with (vLLM on CPU, AIPerf)
	hack/bench-peers

.PHONY: shapes-eval
shapes-eval: ## exact answers of builtin://shapes over 1,000 held-out scenes
	cd models && $(run) python -m training.evaluate

.PHONY: shapes-train
shapes-train: ## train the shapes model again (40 minutes on 2 cores)
	cd models && $(run) python -m training.train

.PHONY: shapes-train-encoder
shapes-train-encoder: ## train its second encoder again, against the committed language model (8 minutes)
	cd models && $(run) python -m training.train_encoder

# What `make test` samples; docs/sweeps.md has what it found.
sweeps = $(addprefix tests/control_plane/, test_schema_sweep.py test_near_misses.py test_live_sweep.py \
	test_random_walks.py test_crashes.py test_watches.py test_keda_itself.py) tests/mutants \
	tests/coherence tests/triptych_contract/test_key_attacks.py tests/gitops/test_flux.py \
	tests/node/test_product.py
.PHONY: sweep
sweep: ## sweeps that `make test` samples, in full: every write, place, walk (hours; ARGS for pytest)
	TRIPTYCH_SWEEP=full $(run) pytest -q --durations=15 $(sweeps) $(ARGS)

.PHONY: keda
keda: ## scaling by KEDA and Prometheus themselves, from their Go modules (builds for 10 to 45 minutes the first time)
	TRIPTYCH_SWEEP=full $(run) pytest -q -s tests/control_plane/test_keda_itself.py $(ARGS)

.PHONY: mutants
mutants: ## faults that are put into the operator on purpose, and which tests find them (an hour)
	TRIPTYCH_SWEEP=full $(run) pytest -q -s tests/mutants $(ARGS)
