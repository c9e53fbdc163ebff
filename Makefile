# Thin front of CMake and tools/. `make help` lists the targets.
.PHONY: all help deps build demo test check check-sanitizers check-naming check-format \
        check-pytorch check-combinations check-fuzz check-kill check-interrupt check-networks check-pages bench bench-single bench-data bench-checkpoint \
        bench-precision bench-head bench-planner format clean

all: build

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  \1|\2/' | column -t -s '|'

deps: ## install the Debian packages of packages.txt that are missing
	@tools/install-deps

build: deps ## configure and build everything, warnings as errors
	@tools/configure default
	@cmake --build --preset default

demo: build ## train something real-sized and show the result
	@tools/demo

test: build ## build and run every test
	@ctest --preset default

check: test check-format check-naming check-pytorch check-combinations check-sanitizers check-fuzz check-kill check-interrupt check-networks check-pages ## the tests and all slower checks

check-format: ## formatting, without changing files
	@tools/install-deps check
	@tools/check-format

check-naming: ## clang-tidy: names and common mistakes
	@tools/install-deps check
	@tools/check-naming

check-pytorch: build ## operators and models against PyTorch on fresh data
	@tools/check-pytorch

N ?= 600
SEED ?= 1
check-combinations: build ## N drawn combinations of flags (SEED says which), each against one device
	@tools/check-combinations --draws $(N) --seed $(SEED)

check-sanitizers: deps ## the tests under address, undefined-behaviour and thread sanitizers
	@tools/check-sanitizer asan-ubsan
	@tools/check-sanitizer tsan

check-fuzz: deps ## a million hostile inputs for every parser
	@tools/install-deps check
	@tools/fuzz 1000000

check-interrupt: build ## interrupt commands at random moments: answered within a second, nothing lost
	@tools/interrupt-test --moments 50
	@tools/interrupt-test --moments 10 --commands train --ranks 2

check-kill: build ## kill training, or one of its ranks, at random moments, resume, compare bit for bit
	@tools/kill-test --kills 50
	@tools/kill-test --kills 20 --ranks 2

check-networks: build ## train between two hosts in network namespaces (as root)
	@tools/check-networks

check-pages: build ## open reports in headless Chromium: figures, zoom, narrow windows, light and dark
	@tools/install-deps check
	@tests/report/page_check.py build/millrace build/screenshots

bench: bench-single bench-data bench-checkpoint bench-precision bench-head bench-planner ## every benchmark

bench-single: build ## time one device against PyTorch and against the kernels alone
	@build/millrace bench single

bench-data: build ## the loader against PyTorch, real data against synthetic
	@bench/data_loader_peer.py build
	@bench/real_data.py

bench-checkpoint: build ## training steps while a checkpoint is written
	@bench/checkpoint_slowdown.py

bench-precision: build ## 16-bit training against float32: memory, speed, losses, accuracy
	@bench/precision.py
	@bench/precision.py --arithmetic storage memory speed

bench-head: build ## classifiers of many identities against Partial FC in PyTorch
	@build/millrace bench head --peer

bench-planner: build ## predictions against runs here, the planner's choice against all plans, published rows
	@bench/prediction.py --links
	@bench/plan_choice.py
	@build/millrace bench published -o build/published

format: ## rewrite the C++ files in the project's format
	@tools/install-deps check
	@tools/check-format --fix

clean: ## remove every build directory
	@rm -rf build build-asan-ubsan build-tsan
