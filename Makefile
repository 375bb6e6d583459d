# make demo    tools listed, called, refused, paused, approved and finished; brings the package alone into .venv
# make setup   the whole environment: .venv with the package, its extras and the checkers, and what tests run against
# make console   the web page that `toolpost up` serves; `make setup` builds it, `make demo` does not need it
# make card    the approval card for other front ends, which the React example shows; `make setup` builds it
# make test    all checks, then all tests with the coverage gates
# make quick   the tests that start no other programs, without linters: less than two minutes, for while you work
# make test-live   search, scrape and model providers as they are today, with the keys of the environment
# make check   linters, types and layers only
# make bench   the figures, beside those of peers
# make prove   a million simulated calls, crashes at every commit, planted mistakes, real kills, several processes: hours
# make conformance   the official MCP suite against our client and our gateway
# make test-litellm   our models by the real litellm, installed at first (minutes), against a scripted provider
# make demo-llm   an agent with a small model on this machine's CPU, which is installed at first (196 MB)
# make test-llm   the tests with that model, which `make test` skips where it is not installed
# make test-peers   Penguiflow's own planner over our catalog, installed at first (minutes); `make test` skips it
# make test-n8n   the tests of webhooks against a real n8n, installed at first (minutes); records its answers again
# make test-postgres   the tests of stores, of whole calls, of the gateway and of agents on each PostgreSQL that is installed
# make test-third-store   whole calls on a third store, which is slow and commits events out of order
# make test-scale   workers under kills and outages; artifacts in object storage: kills, wrong credentials, lost buckets, copies, and all tests of stores
# make soak    two gateways and two workers under a light load for 30 minutes: memory, descriptors, connections and latency
# make test-console   the web console: Vitest, its checkers, every page and journey in a real browser, figures, first load
# make test-clients   third-party clients, installed at first (minutes), list and call through the gateway
# make test-frameworks   adapters of more agent frameworks, installed at first (minutes), with their tests and pages
# make docs    the examples in the documents only
# make test-imports   import every module without modules that only POSIX has
# make release   wheel, sdist and SBOM in dist/, tested as they are installed
# make hooks   install ruff as a pre-commit hook

PYTHON ?= $(shell for p in python3.11 python3 python3.12 python3.13 python3.14; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
EXTRAS := arrow,dev,gateway,graphql,http,keyring,langchain,mcp,oauth,objects,postgres,scale,search,websocket,workflow
# More than the two cores of a small machine: tests of servers and programs wait as often as they work.
WORKERS ?= 3
BIN := .venv/$(if $(filter Windows_NT,$(OS)),Scripts,bin)
PIP := $(BIN)/python -m pip --disable-pip-version-check install --constraint constraints.txt
TYPED := $(wildcard src tests tools bench conformance examples)
# Built by Vite, not in Git.
CONSOLE := src/toolpost/console/static/index.html
CARD := packages/approval-card/dist/types/index.d.ts
# The small model is large for a part: its own targets bring it.
PARTS := $(patsubst tools/parts/%.txt,.parts/%/.installed,$(filter-out %/llm.txt,$(wildcard tools/parts/*.txt)))

# Tests start hundreds of programs that import the package: it is compiled once, wherever bytecode is switched off, too.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: setup console card chromium demo test quick test-imports test-live release hooks check check-style check-mypy check-pyright check-layers check-console bench prove conformance demo-llm test-litellm test-llm test-peers test-n8n test-clients test-frameworks test-console test-postgres test-third-store test-scale soak docs clean
.DEFAULT_GOAL := setup

setup: .venv/.installed node_modules/.installed $(PARTS) console card chromium

# The package alone, which is all that the demo needs. The build backend is installed first, with the constraints.
.venv/.package: pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed; name it with: make setup PYTHON=/path/to/python" >&2; exit 1; }
	@echo "Installing toolpost and its libraries into .venv, once"
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(PIP) hatchling editables
	$(PIP) --no-build-isolation --editable .
	@touch $@

.venv/.installed: .venv/.package
	$(PIP) --no-build-isolation --editable '.[$(EXTRAS)]'
	@touch $@

node_modules/.installed: package.json package-lock.json .npmrc
	npm ci --ignore-scripts --loglevel=error
	@touch $@

# Third-party programs whose requirements conflict with those of .venv: each has a separate environment and a complete list.
.parts/%/.installed: tools/parts/%.txt | .venv/.installed
	$(BIN)/python -m venv --clear --without-pip .parts/$*
	$(BIN)/python -m pip --disable-pip-version-check --python .parts/$*/bin/python install --quiet --no-deps --requirement $<
	@touch $@

console: $(CONSOLE)

console/node_modules/.installed: console/package.json console/package-lock.json console/.npmrc
	npm ci --prefix console --ignore-scripts --loglevel=error
	@touch $@

$(CONSOLE): console/node_modules/.installed $(wildcard console/*.html console/*.ts console/*.json) $(shell find console/src console/public packages/approval-card/src -type f)
	npm run --prefix console --silent build -- --logLevel warn

# The package of the approval card. The console includes its sources.
card: $(CARD)

packages/approval-card/node_modules/.installed: packages/approval-card/package.json packages/approval-card/package-lock.json packages/approval-card/.npmrc
	npm ci --prefix packages/approval-card --ignore-scripts --loglevel=error
	@touch $@

$(CARD): packages/approval-card/node_modules/.installed $(wildcard packages/approval-card/*.js packages/approval-card/*.json) $(shell find packages/approval-card/src -type f)
	npm run --prefix packages/approval-card --silent build

# The browser of tests/browser is the one of the system. If none can be installed, the setup reports that and continues.
chromium: .venv/.package
	@$(BIN)/python -m tools.chromium

demo: .venv/.package
	$(BIN)/toolpost demo

# Coverage is measured for a folder. For a package, it imports the package again whenever sys.path changes, and then removes
# modules from sys.modules that another thread is importing.
# There is one report, which fails below the percentage of pyproject.toml: each report reads all of the source in ten seconds.
# The checkers run at a lower priority than the tests, and their output follows that of the tests. The line calls `make` by
# its name, not by its variable, because `make --dry-run` runs every line that contains the variable.
test: setup
	@nice -n 10 make --no-print-directory check > checks.log 2>&1 & trap "kill $$!" INT TERM; \
	$(BIN)/python -m pytest --numprocesses=$(WORKERS) --dist=worksteal --cov=$(CURDIR)/src/toolpost --cov-report= --cov-fail-under=0; \
	tests=$$?; wait $$!; checks=$$?; cat checks.log; exit $$((tests + checks))
	@$(BIN)/coverage json --quiet
	@$(BIN)/python -m tools.branch_gate coverage.json 90

# Compiled tests stay for the next run, whatever the environment says: compiling takes each worker longer than all imports.
quick: export PYTHONDONTWRITEBYTECODE =
quick: .venv/.installed
	$(BIN)/python -m pytest --numprocesses=$(WORKERS) --dist=worksteal -m "not programs and not slow and not waits" --hypothesis-profile=quick

# Never part of `test`: it sends requests to public services, some of which cost money.
test-live: .venv/.installed
	TOOLPOST_LIVE=1 $(BIN)/python -m pytest tests/builtin/test_live_providers.py tests/schema/test_live_model_providers.py

# Every module is imported, without modules that only POSIX has.
test-imports: .venv/.installed
	$(BIN)/python -m pytest tests/test_platforms.py

# The distributions of a release in dist/, tested as they are installed.
release: .venv/.installed console
	$(BIN)/python -m tools.release

# ruff before every commit.
hooks: .venv/.installed
	$(PIP) pre-commit
	$(BIN)/pre-commit install

check: setup
	@$(MAKE) --no-print-directory --jobs=$(WORKERS) --output-sync check-style check-mypy check-pyright check-layers check-console

check-style:
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

check-mypy:
	$(BIN)/mypy $(TYPED)

check-pyright:
	node_modules/.bin/pyright --pythonpath $(BIN)/python

check-layers:
	$(BIN)/lint-imports

check-console: console/node_modules/.installed
	npm run --prefix console --silent check

bench: setup
	$(BIN)/python -m bench

# Options reach it by PROVE, such as PROVE="kills --kills 50".
prove: .venv/.installed
	$(BIN)/python -m tools.prove $(PROVE)
	$(BIN)/python -m bench.replicas $(REPLICAS)

conformance: setup
	$(BIN)/python -m conformance

demo-llm: .parts/llm/.installed
	$(BIN)/python -m tools.small_model

test-llm: .parts/llm/.installed
	$(BIN)/python -m pytest tests/agents/test_small_model.py

# litellm and its requirements are larger than everything else together.
test-litellm: .venv/.installed
	$(BIN)/python -m venv --clear --without-pip .parts/litellm
	$(BIN)/python -m pip --disable-pip-version-check --python .parts/litellm/bin/python install --quiet --no-deps --requirement tools/litellm.txt
	PYTHONPATH=src:. .parts/litellm/bin/python -m tests.agents.models.litellm_trial

# In the environment in which `make bench` measures penguiflow.
test-peers: .venv/.installed
	$(BIN)/python -m bench.envs penguiflow
	$(BIN)/python -m pytest tests/agents/test_peer_agents.py

test-n8n: setup
	$(BIN)/python -m tools.n8n

# The Inspector has a separate list, because it is larger than all other npm packages of the tests. `npm ci` rejects the list
# if a registry lacks the optional bindings for other systems.
.parts/inspector/.installed: tools/inspector/package.json tools/inspector/package-lock.json .npmrc
	mkdir -p .parts/inspector
	cp tools/inspector/package.json tools/inspector/package-lock.json .npmrc .parts/inspector
	npm install --prefix .parts/inspector --ignore-scripts --loglevel=error
	@touch $@

# A server with an MCP App.
.parts/apps/.installed: tools/apps/package.json tools/apps/package-lock.json .npmrc
	mkdir -p .parts/apps
	cp tools/apps/package.json tools/apps/package-lock.json .npmrc .parts/apps
	npm ci --prefix .parts/apps --ignore-scripts --loglevel=error
	@touch $@

# Each client in Python has a separate environment by a complete list, or that of a peer of the benchmarks.
test-clients: setup .parts/inspector/.installed .parts/apps/.installed
	$(BIN)/python -m pytest tests/gateway/test_clients.py tests/gateway/trial_clients.py

# Each framework has a separate environment by a complete list, which takes minutes to install.
test-frameworks: setup
	$(BIN)/python -m pytest -o faulthandler_timeout=0 tests/adapters/frameworks/test_own_environments.py tests/adapters/frameworks/trial_all.py

# Without workers, because the tests share the browser and measure times.
test-console: .venv/.installed console chromium check-console
	$(BIN)/python -m tools.console_budget
	$(BIN)/python -m bench.metrics
	$(BIN)/python -m pytest tests/browser/console/test_*.py tests/browser/console/trial_*.py

# PostgreSQL replaces SQLite. The wheel contains two versions, and the system may have another.
test-postgres: .venv/.installed
	$(BIN)/python -m tools.postgres_tests --numprocesses=$(WORKERS)

# Code of the tests, which replaces SQLite: it shows what depends on one database.
test-third-store: .venv/.installed
	$(BIN)/python -m pytest tests/life_of_a_call --third-store --numprocesses=$(WORKERS)

# Real servers that tests kill, disconnect and misuse.
test-scale: .venv/.installed .parts/objects/.installed
	$(BIN)/python -m pytest tests/objects/trial_failures.py tests/objects/trial_copies.py tests/objects/trial_contract.py tests/objects/trial_deployment.py tests/scale/trial_workers.py --numprocesses=$(WORKERS) --dist=loadfile

# Options reach it by SOAK, such as SOAK="--minutes 5".
soak: .venv/.installed
	$(BIN)/python -m bench.soak $(SOAK)

docs: setup
	$(BIN)/python -m pytest tests/docs

clean:
	rm -rf .venv .parts node_modules console/node_modules packages/approval-card/node_modules packages/approval-card/dist src/toolpost/console/static dist build htmlcov .coverage .coverage.* coverage.json checks.log
	rm -rf .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find src tests tools bench conformance examples -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
