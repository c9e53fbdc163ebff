# Thin front of CMake and tools/. `make help` lists the targets.
.PHONY: $(shell sed -nE 's/^([a-z-]+):.*/\1/p' $(firstword $(MAKEFILE_LIST)))

all: build

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-19s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

deps: ## install the Debian packages that the program is built with
	@tools/install-deps product

deps-test:
	@tools/install-deps product openmpi mpich demo test oracle

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

test: ## build and run every test
	@tools/install-deps product openmpi mpich demo test
	@tools/build-and-test

dist: build ## a tarball that runs anywhere and a Debian package, in dist/
	@tools/install-deps dist
	@tools/make-dist

dist-wheel: everything ## a wheel for Python that carries its libraries, in dist/, tried in an empty environment
	@tools/make-wheel

check-dist: dist ## run the tarball in a root that holds the C library alone
	@tools/check-dist

check-wheel: dist-wheel ## run the wheel in a root that holds Python and numpy alone (as root)
	@tools/check-wheel

check: ## the tests and all slower checks, with what each does and a table of how long each took
	@tools/check-all test check-separate check-mpich check-dist check-format check-naming check-pytorch check-onnx check-python check-wheel check-finetune check-tensorboard \
	  check-combinations check-mutations check-plans check-sanitizers check-fuzz check-faults check-ranks check-kill check-interrupt check-soak check-networks check-pages

check-format: ## formatting, without changing files
	@tools/install-deps format
	@tools/check-format

check-separate: deps-test ## every file compiles by itself
	@tools/configure separate
	@tools/check-separate

check-naming: ## clang-tidy: names and common mistakes
	@tools/install-deps product openmpi mpich demo test oracle check
	@tools/check-naming

check-pytorch: everything ## operators and models against PyTorch on fresh data
	@tools/check-pytorch

check-onnx: everything ## every model in onnxruntime and OpenCV, and networks that PyTorch of today exports
	@tools/check-onnx

check-python: everything ## the Python package, installed into an environment of its own
	@tools/check-python

N ?= 600
SEED ?= 1
check-combinations: everything ## N drawn combinations of flags (SEED says which), each against one device
	@tools/check-combinations --draws $(N) --seed $(SEED)

check-mutations: deps-test ## break the program in one place after the other: does the test that ought to notice fail?
	@tools/mutation-test

PLANS ?= 2000
check-plans: build ## PLANS drawn plans for drawn clusters: an answer or a sentence, and more of anything is not worse
	@/usr/bin/python3 -B tests/planner/drawn_plans.py build/millrace --draws $(PLANS) --seed $(SEED) --jobs 2

check-finetune: everything ## fine-tuning on few pictures, against training from scratch and PyTorch
	@ctest --test-dir build -C slow -R reference_fine_tuning --no-tests=error --verbose

check-tensorboard: build ## read what --tensorboard writes with TensorBoard itself
	@tools/check-tensorboard

check-mpich: everything ## the tests between processes under MPICH, those that `make test` leaves out too
	@ctest --test-dir build -C slow -L mpich --no-tests=error --output-on-failure

check-sanitizers: deps-test ## the tests under address, undefined-behaviour and thread sanitizers
	@tools/check-sanitizer asan-ubsan
	@tools/check-sanitizer tsan

check-fuzz: deps ## hostile inputs for every parser, five million each
	@tools/install-deps check
	@tools/fuzz 5000000

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
	@tools/elastic-test

check-kill: everything ## kill training, or one of its ranks, at random moments, resume, compare bit for bit
	@tools/kill-test --kills 50
	@tools/kill-test --kills 20 --ranks 2

SOAK_MINUTES ?= 120
check-soak: everything ## train for SOAK_MINUTES with evaluations, checkpoints and faults: nothing grows, nothing is lost
	@tools/soak-test --minutes $(SOAK_MINUTES)

check-networks: everything ## train between two hosts in network namespaces (as root)
	@tools/install-deps check
	@tools/check-networks

check-pages: build ## open reports in headless Chromium: figures, zoom, narrow windows, light and dark
	@tools/install-deps check
	@tests/report/page_check.py build/millrace build/screenshots

bench: bench-single bench-today bench-depthwise bench-inference bench-fine-tuning bench-shared bench-trace bench-data bench-checkpoint bench-precision bench-head bench-planner ## every benchmark

bench-python: everything ## what Python costs against the command line and C++, and beside PyTorch
	@tools/check-python -k arrays
	@tools/torch-environment
	@cmake --build build --target predict_picture
	@bench/python_overhead.py

reference: ## what public headers and the Python package say of themselves, as pages in build/reference
	@tools/make-reference $(wildcard build/venv/python/lib/python3*/site-packages/millrace/_millrace.pyi)

bench-single: everything ## time one device against PyTorch and against the kernels alone
	@build/millrace bench single

bench-today: everything ## training steps against the PyTorch of today, at its best
	@tools/install-deps peer
	@bench/today.py

bench-inference: everything ## forward passes against the PyTorch of today, at its best
	@tools/install-deps peer
	@bench/today.py --inference

bench-depthwise: everything ## the same of networks with depthwise and grouped convolutions
	@tools/install-deps peer
	@bench/today.py --jobs mobilenet_v2:32,efficientnet_b0:32,resnext50_32x4d:16

bench-fine-tuning: everything ## steps with frozen layers, and the time to the label of one photo
	@bench/fine_tuning.py

bench-shared: everything ## what is left of the speed beside busy neighbours, against PyTorch
	@bench/shared.py

bench-trace: everything ## what --trace costs
	@bench/trace.py

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
	@bench/timelines.py
	@bench/plan_choice.py --jobs 20
	@build/millrace bench published -o build/published

format: ## rewrite the C++ files in the project's format
	@tools/install-deps format
	@tools/check-format --fix

clean: ## remove every build directory
	@rm -rf build build-separate build-asan-ubsan build-tsan build-dist dist
