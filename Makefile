# Thin front of CMake and tools/. `make help` lists the targets.
.PHONY: all help deps deps-test deps-bench build mpi everything demo test dist check-dist check check-separate check-mpich check-sanitizers check-naming check-format \
        check-pytorch check-combinations check-fuzz check-faults check-ranks check-kill check-interrupt check-networks check-pages bench bench-single bench-shared bench-data bench-checkpoint \
        bench-precision bench-head bench-planner format clean

all: build

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  \1|\2/' | column -t -s '|'

deps: ## install the Debian packages that the program is built with
	@tools/install-deps product

deps-test:
	@tools/install-deps product openmpi mpich demo test

build: deps ## build the program and, for each MPI that is installed, its plug-in
	@tools/configure product
	@cmake --build --preset product

mpi: ## install Open MPI and build the program with its plug-in
	@tools/install-deps product openmpi
	@tools/configure product
	@cmake --build --preset product

everything: deps-test
	@tools/configure default
	@cmake --build --preset everything

demo: ## plan, train on two devices and as a pipeline, and write a report, in about a minute
	@tools/install-deps product demo
	@$(MAKE) --no-print-directory build
	@build/millrace demo -o run/demo

test: deps-test ## build and run every test
	@tools/build-and-test

dist: build ## a tarball that runs anywhere and a Debian package, in dist/
	@tools/install-deps dist
	@tools/make-dist

check-dist: dist ## run the tarball in a root that holds the C library alone
	@tools/check-dist

check: test check-separate check-mpich check-dist check-format check-naming check-pytorch check-combinations check-sanitizers check-fuzz check-faults check-ranks check-kill check-interrupt check-networks check-pages ## the tests and all slower checks

check-format: ## formatting, without changing files
	@tools/install-deps check
	@tools/check-format

check-separate: deps-test ## every file compiles by itself
	@tools/configure separate
	@tools/check-separate

check-naming: ## clang-tidy: names and common mistakes
	@tools/install-deps product openmpi mpich demo test check
	@tools/check-naming

check-pytorch: everything ## operators and models against PyTorch on fresh data
	@tools/check-pytorch

N ?= 600
SEED ?= 1
check-combinations: everything ## N drawn combinations of flags (SEED says which), each against one device
	@tools/check-combinations --draws $(N) --seed $(SEED)

check-mpich: everything ## the tests between processes under MPICH, those that `make test` leaves out too
	@ctest --test-dir build -C slow -L mpich --no-tests=error --output-on-failure

check-sanitizers: deps-test ## the tests under address, undefined-behaviour and thread sanitizers
	@tools/check-sanitizer asan-ubsan
	@tools/check-sanitizer tsan

check-fuzz: deps ## a million hostile inputs for every parser
	@tools/install-deps check
	@tools/fuzz 1000000

check-interrupt: everything ## interrupt commands at random moments: answered within a second, nothing lost
	@tools/interrupt-test --moments 50
	@tools/interrupt-test --moments 10 --commands train --ranks 2

check-faults: everything ## spoil every call by which commands write files: no file lost, none half written
	@tools/write-fault-test

check-ranks: everything ## kill, stop and cut off ranks at random moments (as root), and let a job restart itself
	@for mpi in openmpi mpich; do \
	   tools/rank-fault-test --faults 20 --mpi $$mpi && tools/rank-fault-test --faults 20 --ranks 4 --mpi $$mpi && \
	   tools/rank-fault-test --faults 30 --mpi $$mpi --two-hosts && \
	   tools/rank-fault-test --faults 30 --ranks 4 --mpi $$mpi --two-hosts || exit 1; \
	 done
	@tools/restart-test
	@tools/restart-test --hosts localhost:2

check-kill: everything ## kill training, or one of its ranks, at random moments, resume, compare bit for bit
	@tools/kill-test --kills 50
	@tools/kill-test --kills 20 --ranks 2

check-networks: everything ## train between two hosts in network namespaces (as root)
	@tools/install-deps check
	@tools/check-networks

check-pages: build ## open reports in headless Chromium: figures, zoom, narrow windows, light and dark
	@tools/install-deps check
	@tests/report/page_check.py build/millrace build/screenshots

bench: bench-single bench-shared bench-data bench-checkpoint bench-precision bench-head bench-planner ## every benchmark

bench-single: everything ## time one device against PyTorch and against the kernels alone
	@build/millrace bench single

bench-shared: everything ## what is left of the speed beside busy neighbours, against PyTorch
	@bench/shared.py

bench-data: everything ## the loader against PyTorch, real data against synthetic
	@bench/data_loader_peer.py build
	@bench/real_data.py

bench-checkpoint: everything ## training steps while a checkpoint is written
	@bench/checkpoint_slowdown.py

bench-precision: everything ## 16-bit training against float32: memory, speed, losses, accuracy
	@bench/precision.py
	@bench/precision.py --arithmetic storage memory speed

bench-head: everything ## classifiers of many identities against Partial FC in PyTorch
	@build/millrace bench head --peer

bench-planner: everything ## predictions against runs here, the planner's choice against all plans, published rows
	@bench/prediction.py --links
	@bench/plan_choice.py
	@build/millrace bench published -o build/published

format: ## rewrite the C++ files in the project's format
	@tools/install-deps check
	@tools/check-format --fix

clean: ## remove every build directory
	@rm -rf build build-separate build-asan-ubsan build-tsan build-dist dist
