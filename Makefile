# Everything a developer or CI runs. Needs Python 3.11+, Rust (rustup) and a C compiler; the rest
# is put into .venv and .tools. `make` alone lists the targets.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

PYTHON ?= python3
FUZZ_SECONDS ?= 600
SOAK_MINUTES ?= 5
UV_VERSION := 0.13.8
CARGO_FUZZ_VERSION := 0.13.2

FUZZ_TARGETS = $(basename $(notdir $(wildcard fuzz/fuzz_targets/*.rs)))
FUZZ = PATH="$(CURDIR)/.tools/bin:$$PATH" cargo +nightly fuzz

BIN := .venv/bin
TARGET := $(or $(CARGO_TARGET_DIR),target)
PLAY := python/verus/play/play.wasm
STAMPS := .venv/stamps

# What needs no tools must work without them.
ifneq ($(filter-out help clean,$(or $(MAKECMDGOALS),help)),)
FOUND := $(shell PYTHON='$(PYTHON)' scripts/toolchain)
ifneq ($(firstword $(FOUND)),ok)
$(error $(wordlist 2,99,$(FOUND)))
endif
ifneq ($(word 2,$(FOUND)),)
export RUSTUP_TOOLCHAIN := $(word 2,$(FOUND))
endif
endif

# What is developed builds soon; what is released (wheels, `pip install .`, packages) is optimised across crates, as Cargo.toml
# says. Not incrementally: rustc then inlines little between crates, and simulations take nearly twice as long.
QUICK := CARGO_PROFILE_RELEASE_LTO=false CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 CARGO_PROFILE_RELEASE_DEBUG=0

# `test` takes the extension and the program `verus-endpoint` that `make test-rust` has compiled, with their assertions:
# compiling them once more is a sixth of what CI computes. On Linux only.
COMPILED_FOR ?= release

# Cargo and maturin must agree on the interpreter, or each would rebuild PyO3 after the other.
export PYO3_PYTHON := $(CURDIR)/$(BIN)/python
# Several compile at once: each says its crates, a line each, in a log as on a terminal.
export CARGO_TERM_PROGRESS_WHEN := never
# The extension takes Python's symbols from the interpreter that loads it.
export PYO3_BUILD_EXTENSION_MODULE := 1
export PIP_DISABLE_PIP_VERSION_CHECK := 1

# The sources of the crates named, and what every build depends on. When a test or a bench changes,
# nothing here is built again.
rust_of = Cargo.toml Cargo.lock rust-toolchain.toml $(shell find $(addprefix crates/,$(1)) -type f \
  \( -path '*/src/*' -o -path '*/bpf/*' -o -path '*/data/*' -o -name Cargo.toml -o -name build.rs \))
EXTENSION_RUST := $(call rust_of,words core verus forward peers model senders channel measure sim capture py extension)
PLAY_RUST := $(call rust_of,words core verus forward peers model senders channel measure sim play)
ENDPOINT_RUST := $(call rust_of,words core verus forward peers model senders channel measure sim capture clock emu net quic quinn probe transfer kernel cli)

# `verus kernel` where there is what it takes (clang, libelf, zlib).
KERNEL = $(shell scripts/kernel-features 2>/dev/null)

##@ Use
# The playground's module is optimised on one processor, and in a folder of its own: it is built beside the rest.
.PHONY: build
build: ## Build everything into .venv (the command is .venv/bin/verus)
	@$(MAKE) --no-print-directory --jobs=2 \
	  $(STAMPS)/packages $(PLAY) $(STAMPS)/extension $(BIN)/verus-endpoint

# Packages arrive while Rust compiles.
.PHONY: lab
lab: ## Build what simulates, without the playground and the program behind probe, serve, send, receive and shell
	@$(MAKE) --no-print-directory --jobs=2 $(STAMPS)/packages $(STAMPS)/extension

.PHONY: play
play: $(PLAY) ## Build what `verus play` shows in a browser

# The demo simulates only: it needs no program that takes longer to link than all else to compile.
.PHONY: demo
demo: lab ## Build, then compare controllers on the built-in channels: table, plots, report
	@$(BIN)/verus compare --report --out verus-results/demo --force
	@echo
	@echo 'Next:'
	@echo '  . .venv/bin/activate                    so that `verus` is found in this shell'
	@echo '  verus compare --trace rate:12 --scheme verus:ratio=2..6 bbr'
	@echo '  verus list schemes                      likewise queues, traffic, channels'
	@echo '  verus help                              every verb, with examples'
	@echo '  make build                              the rest: play, probe, serve, send, receive and shell (minutes)'

PREFIX ?= /usr/local
.PHONY: install-capi
install-capi: ## Build and install the C library below PREFIX (/usr/local), with header and pkg-config file
	cargo build --release --locked --package verus-capi
	crates/capi/install "$${CARGO_TARGET_DIR:-target}/release" '$(PREFIX)' '$(VERSION)'

##@ Check
# The first tier draws no new numbers and does not mind how busy the machine is; the second has the rest. Both go on after a
# failure, and end with what failed and how to run it alone (scripts/tests).
.PHONY: test
test: ## Build, then run every test that gives the same answer on every machine
	@$(PYTHON) scripts/tests test-rust test-python

# BESIDE: other targets that compute while tests wait for the clock.
.PHONY: test-rest
test-rest: ## What `make test` leaves out: pages, claims, new seeds, the clock, attacks; as root, and with recordings, what takes these
	@targets='test-clock'; idle='$(BESIDE) test-claims test-pages test-seeds'; left=''; \
	if why=$$(scripts/why-not-test-root); then left+="Not run: make test-root ($$why)"$$'\n'; else targets+=' test-root'; fi; \
	if [ -f "$${VERUS_SHARED:-../shared}/traces/MANIFEST.csv" ]; then idle+=' test-recordings'; \
	else left+='Not run: make test-recordings (no recordings beside the checkout)'$$'\n'; fi; \
	if $(BIN)/verus virtual status >/dev/null 2>&1; then idle+=' test-virtual'; \
	else left+='Not run: make test-virtual (no guest kernel: make guest-kernel)'$$'\n'; fi; \
	status=0; $(PYTHON) scripts/tests $$targets --idle $$idle || status=$$?; echo -n "$$left"; exit $$status

# The whole workspace is named everywhere, so that nothing is built another time with other features.
CARGO_TEST = cargo test --workspace $(KERNEL) --locked --no-fail-fast
# What it compiles.
TEST_PROGRAMS = --profile test --workspace $(KERNEL) --lib --bins --tests --examples

# Many tests wait: twice as many at once as there are processors.
.PHONY: test-rust
test-rust: $(STAMPS)/packages
	RUST_TEST_THREADS=$$((2 * $$(getconf _NPROCESSORS_ONLN))) $(CARGO_TEST)

PYTEST = $(BIN)/python -m pytest --numprocesses=logical --dist=loadfile --no-loadscope-reorder

.PHONY: test-python
test-python: build
	$(PYTEST) -m 'not real_time and not pages and not claims and not recordings and not virtual'

# What a reader sees.
.PHONY: test-pages
test-pages: build ## What documents print runs, and pages are looked at in a browser
	status=0; $(CARGO_TEST) $$(scripts/which_tests.py test-pages) || status=1; \
	$(PYTEST) -m 'pages and not real_time' || status=1; exit $$status

.PHONY: test-claims
test-claims: build ## What the papers and the arena claim, measured again on built-in channels
	$(PYTEST) -m claims

# Ignored tests take more than a checkout, and nobody takes them for passed where they cannot run.
.PHONY: test-seeds
test-seeds: $(STAMPS)/packages ## Every property, of numbers drawn anew: more of them, and repeated with SEED
	@export PROPTEST_RNG_SEED=$${SEED:-$$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')} PROPTEST_CASES=1024; \
	echo "Drawn with PROPTEST_RNG_SEED=$$PROPTEST_RNG_SEED PROPTEST_CASES=1024 (make test-seeds SEED=$$PROPTEST_RNG_SEED)"; \
	$(CARGO_TEST) $$(scripts/which_tests.py test-seeds)

# One at a time, while nothing else runs but what yields to it.
.PHONY: test-clock
test-clock: build ## What reads the clock: real sockets and pauses, emulated links, attacks on the endpoints
	status=0; $(CARGO_TEST) $$(scripts/which_tests.py test-clock) --test-threads=1 || status=1; \
	$(BIN)/python -m pytest -m real_time || status=1; exit $$status

.PHONY: test-root
test-root: $(STAMPS)/packages ## What takes root, network namespaces and TUN
	$(CARGO_TEST) $$(scripts/which_tests.py test-root)

# Of what does not ship: recordings and references of others, in ../shared or where VERUS_SHARED says. Fails without them.
.PHONY: test-recordings
test-recordings: build ## What holds on recordings, which must be there (VERUS_SHARED, else ../shared)
	status=0; $(CARGO_TEST) $$(scripts/which_tests.py test-recordings) || status=1; \
	$(PYTEST) -m recordings || status=1; exit $$status

# On virtual time, so that a busy machine changes nothing.
.PHONY: test-virtual
test-virtual: guest-kernel ## What takes a guest kernel: real programs and Linux's TCP on virtual time
	$(PYTEST) -m virtual

# Into the user's cache, from the newest linux-source of /usr/src; minutes.
.PHONY: guest-kernel
guest-kernel: build ## Build the guest kernel of virtual time, unless there is one
	@$(BIN)/verus virtual status >/dev/null 2>&1 || $(BIN)/verus virtual build

.PHONY: lint
lint: ## Formatting, lints, types, licences, WebAssembly, releases
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=line lint-rust lint-python lint-licenses lint-wasm lint-release
	@echo "make lint: formatting, lints, types and licences are clean"

.PHONY: lint-rust
lint-rust: $(STAMPS)/backend
	cargo fmt --all --check
	cargo fmt --manifest-path examples/own-controller/Cargo.toml --check
	cargo clippy --workspace $(KERNEL) --all-targets --locked -- -D warnings
	RUSTDOCFLAGS='-D warnings' cargo doc --workspace --no-deps --locked --quiet

.PHONY: lint-python
lint-python: $(STAMPS)/packages
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy

# Advisories need a database from the network and change without a commit: not part of this check.
.PHONY: lint-licenses
lint-licenses: $(STAMPS)/packages
	$(BIN)/cargo-deny --log-level error check licenses bans sources

.PHONY: lint-wasm
lint-wasm:
	scripts/check-wasm

.PHONY: lint-release
lint-release: .tools/release/stamp
	$(RELEASE)/check-jsonschema --quiet --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(RELEASE)/check-jsonschema --quiet --builtin-schema vendor.citation-file-format CITATION.cff
	$(RELEASE)/zizmor --quiet --offline --no-progress --min-severity medium .github/workflows
	$(RELEASE)/hadolint Dockerfile

.PHONY: format
format: $(STAMPS)/packages ## Format Rust and Python
	cargo fmt --all
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

##@ Attack
# As root: each attack is made in namespaces of its own. `make attacks ATTACKS=--annex` writes docs/results/attacks.txt.
.PHONY: attacks
attacks: build ## Attack the endpoints, with an honest client beside: tried, happened, held (as root)
	$(BIN)/python -m attacks $(ATTACKS)

.PHONY: soak
soak: build ## Servers under 200 honest clients and attacks for SOAK_MINUTES (5; as root)
	$(BIN)/python -m attacks.soak --minutes $(SOAK_MINUTES) --out verus-results/soak --force

##@ Measure
.PHONY: bench
bench: ## Time the simulator and the transports, each beside a bare program that moves the same
	cargo bench --locked -p verus-sim -p verus-quinn -p verus-probe -p verus-emu --bench '*'

.PHONY: hostile
hostile: ## Set 1,000 seeds of receivers that lie against every controller: table of bounds
	HOSTILE_SEEDS=1000 cargo test --release --locked -p verus-faults --test faults hostile -- --nocapture
	HOSTILE_SEEDS=1000 cargo test --release --locked -p verus-quic --lib hostile -- --nocapture

# Not part of CI: of the claims, those on built-in channels are measured again by every `make test`.
.PHONY: figures
figures: build ## Run again what the documents quote, and write docs/results and the pages (needs recordings)
	$(BIN)/python scripts/figures.py --traces "$${VERUS_SHARED:-../shared}/traces"

.PHONY: figures-timed
figures-timed: build ## Likewise of what takes time and CPU: on a machine with nothing else to do (as root)
	$(BIN)/python scripts/figures.py --traces "$${VERUS_SHARED:-../shared}/traces" --timed

.PHONY: quoted
quoted: build ## Write the numbers of sentences again, in the README and the tutorials (after `make figures`)
	$(BIN)/python scripts/quoted.py --write

# No recordings: nothing but simulations of what others published.
.PHONY: check-results
check-results: build ## Run the published suites again, and write the tables of docs/check.md
	$(BIN)/python scripts/figures.py --only check.csv laws.txt

# Without root, and not on the machine's clock: a busy machine changes nothing.
.PHONY: kernel-queues
kernel-queues: build ## Run Linux's queues beside ours, and write docs/kernel-queues.md (takes a guest kernel with DualPI2: verus virtual build)
	$(BIN)/python scripts/figures.py --only kernel-queues.txt

# The example in C, and any calls in any order, with the library and the example instrumented.
.PHONY: capi-sanitized
capi-sanitized: ## Run the C interface's tests under AddressSanitizer (needs nightly Rust)
	RUSTFLAGS=-Zsanitizer=address VERUS_CFLAGS=-fsanitize=address,undefined cargo +nightly test --locked \
	  --target $(MACHINE)-unknown-linux-gnu --package verus-capi --test capi -- calls program

.PHONY: fuzz
fuzz: .tools/bin/cargo-fuzz fuzz/Cargo.lock ## Fuzz each parser for FUZZ_SECONDS (600), with nightly Rust
	for target in $(FUZZ_TARGETS); do \
	  mkdir -p "fuzz/found/$$target"; \
	  $(FUZZ) run "$$target" "fuzz/found/$$target" "fuzz/corpus/$$target" -- \
	    -max_total_time=$(FUZZ_SECONDS) -rss_limit_mb=2048 -timeout=10; \
	done

.PHONY: fuzz-keep
fuzz-keep: .tools/bin/cargo-fuzz fuzz/Cargo.lock ## Add to the corpora what fuzzing found that reaches new code
	for target in $(FUZZ_TARGETS); do \
	  $(FUZZ) run "$$target" "fuzz/corpus/$$target" "fuzz/found/$$target" -- -merge=1 -use_counters=0; \
	done

##@ Document
.PHONY: site
site: build .tools/site/stamp ## Build the documentation into target/site/html
	$(BIN)/python scripts/pages.py
	NO_MKDOCS_2_WARNING=1 .tools/site/bin/mkdocs build --strict --quiet
	VERUS_SITE=target/site/html $(BIN)/python -m pytest --quiet --durations=0 python/tests/test_site.py
	@echo 'target/site/html/index.html'

.PHONY: pictures
pictures: build ## Draw the pictures of docs/how-it-works.md again
	$(BIN)/python scripts/pictures.py

##@ Release
# .github/workflows/release.yml calls these; what they make lies in dist.
RELEASE := .tools/release/bin
VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)
MACHINE := $(shell uname -m)
STATIC_TARGET := $(MACHINE)-unknown-linux-musl
STATIC := dist/verus-endpoint-$(VERSION)-$(MACHINE)-linux-static
# What is packed: the static one, or another that is named.
ENDPOINT ?= $(STATIC)
OBJECT := dist/forward.bpf.o

.PHONY: crates
crates: ## Pack the crates that are published, in order, as crates.io would get them (asks it for its index)
	cargo publish --workspace --locked --dry-run --no-verify

.PHONY: wheels
wheels: .tools/release/stamp ## Build the wheel of this platform, in a manylinux container on Linux, and try it
	$(RELEASE)/cibuildwheel --output-dir dist

.PHONY: sources
sources: .tools/release/stamp ## Pack the sources for Python
	$(RELEASE)/uv build --quiet --sdist --out-dir dist

.PHONY: endpoint-static
endpoint-static: ## Build verus-endpoint for any Linux of this processor (needs musl-tools and rustup's musl target)
	CC_$(subst -,_,$(STATIC_TARGET))=musl-gcc CARGO_PROFILE_RELEASE_STRIP=symbols \
	  CARGO_BUILD_RUSTFLAGS="--remap-path-prefix=$${CARGO_HOME:-$$HOME/.cargo}=cargo" \
	  cargo build --release --locked --package verus-cli --target $(STATIC_TARGET)
	mkdir -p dist
	cp target/$(STATIC_TARGET)/release/verus-endpoint $(STATIC)

# The same for every processor of one byte order.
.PHONY: kernel-object
kernel-object: ## Write `forward` for Linux's TCP as bpftool registers it (needs clang, libelf and zlib)
	mkdir -p dist
	cargo run --quiet --locked --package verus-kernel --features load --example object > $(OBJECT)

.PHONY: vectors
vectors: ## Write test vectors of `forward`, for implementations in other languages (needs a C compiler)
	mkdir -p dist/vectors
	VERUS_VECTORS=$(CURDIR)/dist/vectors cargo test --quiet --locked --package verus-kernel --test kernel vectors
	tar --create --gzip --file dist/forward-vectors-$(VERSION).tar.gz --directory dist vectors
	rm -r dist/vectors

.PHONY: packages
packages: .tools/release/stamp kernel-object ## Pack verus-endpoint for Debian and for RPM (ENDPOINT: another than the static one)
	for kind in deb rpm; do \
	  ENDPOINT='$(ENDPOINT)' OBJECT='$(OBJECT)' VERSION='$(VERSION)' ARCH='$(patsubst aarch64,arm64,$(patsubst x86_64,amd64,$(MACHINE)))' \
	    $(RELEASE)/nfpm package --config packaging/nfpm.yaml --packager "$$kind" --target dist; \
	done

.PHONY: container
container: ## Build the container image `verus`
	docker build --tag verus .

.PHONY: publish-crates
publish-crates: ## Send the crates to crates.io (CARGO_REGISTRY_TOKEN)
	cargo publish --workspace --locked

.PHONY: publish-python
publish-python: .tools/release/stamp ## Send dist to PyPI, as the trusted publisher that the workflow is
	$(RELEASE)/uv publish --trusted-publishing always dist/*.whl dist/*.tar.gz

##@ Keep
COMPILE = $(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes \
  --no-emit-index-url --no-emit-find-links --no-header --no-annotate

.PHONY: lock
lock: $(STAMPS)/packages ## Pin the newest allowed versions of the Python packages
	$(BIN)/pip install --quiet uv==$(UV_VERSION)
	$(COMPILE) --group dev --output-file requirements.lock pyproject.toml
	for group in release site; do $(COMPILE) --group "$$group" --output-file "$$group.lock"; done

.PHONY: bundle
bundle: $(STAMPS)/packages ## Write the script that pages carry, after `make lock` brought another vl-convert
	$(BIN)/python scripts/bundle.py

.PHONY: clean
clean: ## Remove everything that was built, downloaded or drawn
	rm -rf .venv .tools dist target fuzz/target fuzz/found verus-results
	rm -f python/verus/_verus*.so $(PLAY)

.PHONY: help
help:
	@awk -F ':.*## ' '/^##@/ {printf "\n%s\n", substr($$0, 5)} \
	  /^[a-z-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' Makefile

# What was done, and whether it must be done again.
$(STAMPS)/packages: requirements.lock | $(STAMPS)/backend
	@echo 'Installing the Python packages'
	@$(BIN)/python -m pip install --quiet --require-hashes --requirement requirements.lock
	@touch $@

# What only the site or only releases need has an environment of its own.
.tools/%/stamp: %.lock
	'$(PYTHON)' -m venv --clear .tools/$*
	.tools/$*/bin/pip install --quiet --require-hashes --requirement $*.lock
	touch $@

# What builds the extension, by itself, so that Rust need not wait for the other packages.
$(STAMPS)/backend: requirements.lock
	@[ -x $(BIN)/python ] || '$(PYTHON)' -m venv .venv
	@mkdir -p $(STAMPS)
	@awk '/^[a-z]/ {ours = /^maturin==/} ours' requirements.lock > $(STAMPS)/maturin.lock
	@$(BIN)/python -m pip install --quiet --no-deps --require-hashes --requirement $(STAMPS)/maturin.lock
	@touch $@

# By the backend itself, of which pip would show nothing.
$(STAMPS)/extension: $(STAMPS)/backend pyproject.toml scripts/build_backend.py README.md $(EXTENSION_RUST)
	@echo 'Compiling the Rust crates for Python'
	@rm -rf target/editable
	@mkdir -p target/editable
ifeq ($(COMPILED_FOR),test)
	@scripts/kernel-features >/dev/null
	@cargo build --locked $(TEST_PROGRAMS)
	@PATH="$(CURDIR)/$(BIN):$$PATH" PYTHONPATH=scripts $(BIN)/python -c \
	  'import build_backend; build_backend.link("$(TARGET)/debug/lib_verus.so", "target/editable")'
else
	@PATH="$(CURDIR)/$(BIN):$$PATH" PYTHONPATH=scripts $(QUICK) \
	  $(BIN)/python -c 'import build_backend; build_backend.build_editable("target/editable")'
endif
	@$(BIN)/python -m pip install --quiet --no-deps --force-reinstall target/editable/*.whl
	@touch $@

# Beside the interpreter, where `verus` looks for it.
$(BIN)/verus-endpoint: $(ENDPOINT_RUST) | $(STAMPS)/packages
	@echo 'Compiling verus-endpoint'
	@scripts/kernel-features >/dev/null
ifeq ($(COMPILED_FOR),test)
	@cargo build --locked $(TEST_PROGRAMS)
	@install -m 755 $(TARGET)/debug/verus-endpoint $@
else
	@$(QUICK) cargo build --locked --release --package verus-cli $(KERNEL)
	@install -m 755 $(TARGET)/release/verus-endpoint $@
endif

# Without a standard library for WebAssembly it says so, and tries again next time.
$(PLAY): $(PLAY_RUST) scripts/build_play.py
	@echo 'Compiling the playground'
	@'$(PYTHON)' scripts/build_play.py

# The targets are built with the versions of what ships; cargo adds libFuzzer.
fuzz/Cargo.lock: Cargo.lock
	cp $< $@

.tools/bin/cargo-fuzz:
	@cargo +nightly --version >/dev/null 2>&1 || \
	  { echo 'Fuzzing needs nightly Rust (rustup toolchain install nightly).' >&2; exit 2; }
	cargo +nightly install cargo-fuzz --version $(CARGO_FUZZ_VERSION) --locked --root .tools
