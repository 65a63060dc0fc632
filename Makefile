# Thin lines over cargo and scripts/. Each target installs what it needs first, and says what it installs.
#
# PROFILE=dev builds faster and runs slower: `make run PROFILE=dev`. CI runs every target with it.

CARGO ?= cargo
PROFILE ?= release

TARGET_DIR = $(or $(CARGO_TARGET_DIR),target)
# The one binary that run, ha, images and sample-image use.
KUBELEET = $(TARGET_DIR)/$(if $(filter dev,$(PROFILE)),debug,$(PROFILE))/kubeleet
# What is shipped and measured takes several times as long to build.
bench dist: PROFILE := $(if $(filter release,$(PROFILE)),dist,$(PROFILE))
# In the dev profile everything is built at once, tests and benches included: one set of features, so that no
# crate is compiled twice for different targets of this file.
ONE_BUILD = $(filter dev,$(PROFILE))
BUILD = $(CARGO) build --locked --profile $(PROFILE) $(if $(ONE_BUILD),--workspace --all-targets,--package kubeleet)
# The same for targets that always use the dev profile; they start the binary that this builds.
DEV_BUILD = $(CARGO) build --locked --workspace --all-targets
DEV_BINARY = KUBELEET_BINARY=$(abspath $(TARGET_DIR)/debug/kubeleet)

.PHONY: help run build test lint clean

help:                ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 22

run: build           ## a whole cluster in this terminal: Redis, api, scheduler, two workers, a service
	@scripts/install redis
	$(KUBELEET) dev $(ARGS)

build:               ## the binary, target/release/kubeleet
	@scripts/install build
	$(BUILD)

test:                ## all tests, on a real Redis and, where one answers, a real engine; ARGS="-p kubeleet-api" for some
	@scripts/install build redis pebble names
	scripts/test $(ARGS)

lint:                ## formatting, clippy, words and dependencies, as CI checks them
	@scripts/install build python
	$(CARGO) fmt --all --check
	scripts/check-words --self-test
	scripts/check-words
	scripts/check-docs
	scripts/check-rooms --self-test
	scripts/check-rooms
	scripts/test-for --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	scripts/check-dependencies

clean:               ## deletes everything that was built
	$(CARGO) clean

.PHONY: explore gaps bench instructions check-api

explore:             ## production code under adversarial schedules: SEEDS=20000, FROM=0 (the first), PROFILE=explore is fastest
	@scripts/install build redis
	SIMULATOR_SEEDS=$(or $(SEEDS),600) SIMULATOR_FROM=$(or $(FROM),0) $(CARGO) test --locked \
	  --profile $(if $(ONE_BUILD),dev --workspace,explore --package kubeleet-simulator) \
	  --test schedules no_schedule_breaks_an_invariant -- --nocapture

GAPS = $(DEV_BINARY) KUBELEET_GAPS=$(or $(TRIES),20) scripts/test --workspace --test scenarios

gaps:                ## measures that `stop` pods never run twice: TRIES=20 of each fault
	@scripts/install build redis hosts
	$(DEV_BUILD)
	$(GAPS) gaps
	$(GAPS) a_host_that_is_cut_off

bench:               ## how fast: decisions (criterion), then whole clusters; ARGS="placement --full" for one part
	@scripts/install build redis hosts
	$(if $(filter quality,$(ARGS)),,$(BUILD))
	$(if $(TRACES),TRACES=$(abspath $(TRACES))) $(CARGO) bench --locked --profile $(PROFILE) \
	  $(if $(ONE_BUILD),--workspace,--package kubeleet-placement) --bench quality -- $(ARGS)
	$(if $(filter quality,$(ARGS)),,$(CARGO) bench --locked --profile $(PROFILE) \
	  $(if $(ONE_BUILD),--workspace,--package kubeleet-placement) --bench decide -- --quick)
	$(if $(filter quality,$(ARGS)),,$(CARGO) bench --locked --profile $(PROFILE) \
	  $(if $(ONE_BUILD),--workspace,--package kubeleet-proxy) --bench ingress --bench handover --bench names -- $(ARGS))
	$(if $(filter ingress handover names quality,$(ARGS)),,KUBELEET_BINARY=$(abspath $(KUBELEET)) $(CARGO) bench --locked --profile $(PROFILE) \
	  $(if $(ONE_BUILD),--workspace,--package kubeleet-tests) --bench cluster -- $(ARGS))

instructions:        ## instructions of one placement decision, and of Redis for one pod; fails on a gross regression
	scripts/instructions

check-api:           ## the API against its own description, a generated client, and the metrics of every daemon
	@scripts/install build redis python promtool
	$(MAKE) --no-print-directory build PROFILE=dev
	KUBELEET=$(TARGET_DIR)/debug/kubeleet scripts/check-api

.PHONY: dist package-check images sample-image ha ha-down

dist:                ## what people install, in target/dist-files: archive, Debian package, image, SBOM, install.sh
	@scripts/install build python
	$(if $(ONE_BUILD),$(BUILD))
	$(if $(ONE_BUILD),KUBELEET_BINARY=$(KUBELEET)) PROFILE=$(PROFILE) scripts/dist $(ARGS)

package-check: dist  ## the package on a machine with systemd: install, upgrade and go back with pods, purge
	scripts/package-check

images: build        ## kubeleet's image and one of Redis, made without any registry
	KUBELEET_BINARY=$(KUBELEET) scripts/images

sample-image: build  ## a stand-in for spaster/alpine-sleep where no registry can be reached
	$(KUBELEET) sample-image spaster/alpine-sleep

ha: build            ## the highly available stack in containers: three Redis, three Sentinels, three nodes
	KUBELEET_BINARY=$(KUBELEET) scripts/ha up

ha-down:             ## ends it and its pods; what is stored is kept
	@scripts/ha down

.PHONY: chaos failovers soak fuzz walk mistakes upgrade servers engines

CHAOS = $(DEV_BINARY) $(CARGO) bench --locked --profile dev --workspace --bench chaos --

chaos:               ## the HA stack's processes under faults and a client that remembers; ARGS=failovers for a part
	@scripts/install build redis
	$(DEV_BUILD)
	$(CHAOS) $(ARGS)

failovers:           ## FAILOVERS=20 failovers under 50 POST/s: no 201 may be lost
	@scripts/install build redis
	$(DEV_BUILD)
	$(CHAOS) failovers --failovers $(or $(FAILOVERS),20)

# About three hours on two cores, of which the schedules take more than one: 110 failovers, 535 kills and
# aborts, 130 updates, ten minutes without Redis, the ablations, a million random writes, ten minutes of each
# mistake, and then 20,000 schedules. Four stacks run at a time. Each part is printed, and left in
# target/chaos, as it ends.
SOAK_TIMES ?= 10
SOAK_KILLS ?= 75
SOAK_FAILOVERS ?= 70
SOAK_ROLLOUTS ?= 100
SOAK_AWAY ?= 10m
SOAK_ALSO ?= walk fuzz mistakes
SOAK_PARTS ?= processes failovers rollouts outage master slow steps ablations
soak:                ## the long round of chaos, the walk and the fuzzer, then SEEDS=20000 schedules
	@scripts/install build redis
	$(DEV_BUILD)
	$(CHAOS) $(SOAK_PARTS) --lanes 4 \
	  --times $(SOAK_TIMES) --kills $(SOAK_KILLS) --failovers $(SOAK_FAILOVERS) --rollouts $(SOAK_ROLLOUTS) --away $(SOAK_AWAY) $(ARGS)
	$(MAKE) $(SOAK_ALSO)
	$(MAKE) explore SEEDS=$(or $(SEEDS),20000)

# CI makes 5,000 writes as a part of `make test`.
FUZZ = $(CARGO) test --locked --workspace --test broken_keys
fuzz:                ## random writes to Redis while 200 pods run: WRITES=1000000, SEED=1
	@scripts/install build redis
	$(DEV_BUILD)
	FUZZ_WRITES=$(or $(WRITES),1000000) FUZZ_SEED=$(or $(SEED),1) $(FUZZ) random_writes -- --nocapture

walk:                ## every key in Redis with every wrong value
	@scripts/install build redis
	$(DEV_BUILD)
	KUBELEET_WALK_ALL=1 $(FUZZ) every_key -- --nocapture

mistakes:            ## a full Redis, other clusters on the engine, greedy clients: MISTAKES_SECONDS=600 of each
	@scripts/install build redis
	$(DEV_BUILD)
	$(DEV_BINARY) MISTAKES_SECONDS=$(or $(MISTAKES_SECONDS),600) scripts/test --workspace --test scenarios mistakes

upgrade:             ## this version and the one before, mixed under load: nothing lost, nothing restarted
	@scripts/install build redis python
	scripts/upgrade

servers:             ## tests on Valkey 8 and 9 and Redis 6.2 and 8, from PyPI: ARGS=valkey-9 for one
	@scripts/install build redis python
	scripts/servers $(ARGS)

engines:             ## tests of containers on Docker and on a Podman of their own: ARGS=podman for one
	@scripts/install build redis podman
	scripts/engines $(ARGS)
