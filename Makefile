# Thin lines over cargo. Each installs what it needs first, and says what.

CARGO ?= cargo

.PHONY: run test explore lint build gaps bench instructions sample-image clean help

help:                ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 22

run: build           ## a whole cluster in this terminal: Redis, api, scheduler, two workers, a service
	@scripts/install redis
	./target/release/kubeleet dev $(ARGS)

build:               ## the release binary, target/release/kubeleet
	@scripts/install build
	$(CARGO) build --release --locked --package kubeleet

test:                ## all tests, on a real Redis and, where one answers, a real engine
	@scripts/install build redis
	$(CARGO) build --locked --workspace
	$(CARGO) test --workspace --locked

lint:                ## formatting and clippy, as CI checks them
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings

explore:             ## production code under adversarial schedules: SEEDS=20000, FROM=0 (the first)
	@scripts/install build redis
	EXPLORER_SEEDS=$(or $(SEEDS),600) EXPLORER_FROM=$(or $(FROM),0) $(CARGO) test --locked --profile explore \
	  --package kubeleet-tests --test schedules no_schedule_breaks_an_invariant -- --nocapture

gaps:                ## measures that `stop` pods never run twice: TRIES=20 of each fault
	@scripts/install build redis hosts
	KUBELEET_GAPS=$(or $(TRIES),20) $(CARGO) test --locked --workspace --test scenario_guard gaps
	KUBELEET_GAPS=$(or $(TRIES),20) $(CARGO) test --locked --workspace --test scenario_hosts

bench:               ## how fast: decisions (criterion), then whole clusters; ARGS="placement --full" for one part
	@scripts/install build redis hosts
	$(CARGO) bench --locked --package kubeleet-scheduler -- --quick
	$(CARGO) build --release --locked --package kubeleet
	$(CARGO) bench --locked --package kubeleet-tests --bench cluster -- $(ARGS)

instructions:        ## what one placement decision takes, in instructions; fails on a gross regression
	scripts/instructions

sample-image: build  ## a stand-in for spaster/alpine-sleep where no registry can be reached
	./target/release/kubeleet sample-image spaster/alpine-sleep

clean:               ## forget everything that was built
	$(CARGO) clean

.PHONY: images ha ha-down

images:              ## kubeleet's image and one of Redis, made without any registry
	scripts/images

ha:                  ## the highly available stack in containers: three Redis, three Sentinels, three nodes
	@scripts/ha up

ha-down:             ## ends it and its pods; what is stored is kept
	@scripts/ha down

.PHONY: chaos soak failovers

CHAOS = $(CARGO) bench --locked --profile dev --workspace --bench chaos --

chaos:               ## the HA stack's processes under faults and a client that remembers; ARGS=failovers for a part
	@scripts/install build redis
	$(CHAOS) $(ARGS)

failovers:           ## twenty failovers under 50 POST/s: no 201 may be lost
	@scripts/install build redis
	$(CHAOS) failovers --failovers 20

# Perhaps two hours on two cores, of which the schedules take 75 minutes and more: 110 failovers, 535 kills and aborts, ten
# minutes without Redis, the ablations, and then 20,000 schedules. Four stacks at a time, of which the one without Redis
# takes next to nothing; each part is printed, and left in target/chaos, as it ends.
SOAK_TIMES ?= 10
SOAK_KILLS ?= 75
soak:                ## the long round of chaos, then 20,000 seeds of the explorer
	@scripts/install build redis
	$(CHAOS) processes failovers outage master slow steps ablations --lanes 4 \
	  --times $(SOAK_TIMES) --kills $(SOAK_KILLS) --failovers 70 --away 10m $(ARGS)
	$(MAKE) explore SEEDS=20000
