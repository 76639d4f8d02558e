# Two commands are enough on a fresh Debian machine: `make quickstart` and `make test`.
PRESET ?= release
BUILD  := build
ifneq ($(PRESET),release)
BUILD  := build/$(PRESET)
endif
JOBS   ?= $(shell nproc)
# The quickstart sets these to OFF, because it does not install the packages that only tests and other
# components need.
WITH_TESTS := ON
WITH_ALL   := ON
# How long `make chaos` and `make fuzz` run.
FAULTS       ?= 1000
FUZZ_SECONDS ?= 60

.PHONY: help quickstart build package test test-debian13 test-quickstart test-train-only test-libtorch test-long chaos fuzz bench interop check format clean configure

help:
	@echo "make quickstart      install packages, build, train on 60,000 real images"
	@echo "make test            install packages, build, check, run every test; PRESET=asan or tsan: with sanitizers"
	@echo "make test-debian13   the same on a fresh Debian 13, installed in build/debian13; needs root"
	@echo "make test-quickstart make quickstart on a fresh Debian, with its time; needs root"
	@echo "make test-train-only a project that only trains, on a Debian without the other packages; needs root"
	@echo "make test-libtorch   every test with the newest LibTorch, from PyPI; CUDA=1: linked with CUDA"
	@echo "make chaos           disturb runs in every way at random moments (FAULTS=$(FAULTS), SEED=...); best as root"
	@echo "make fuzz            give damaged inputs to every reader of files (FUZZ_SECONDS=$(FUZZ_SECONDS)); best with PRESET=asan"
	@echo "make test-long       all of these, with 1,000 faults; takes hours"
	@echo "make build           build everything into build/ (PRESET=release|debug|asan|tsan)"
	@echo "make package         make a Debian package with the libraries, the headers and the command"
	@echo "make bench           measure against PyTorch; WORK=A,B: only these workloads"
	@echo "make interop         check against PyTorch, TensorBoard, MLflow, onnxruntime and others, from PyPI"
	@echo "make check           check the order of modules, the layout, and that every source has a test"
	@echo "make format          lay out the sources with clang-format 14"
	@echo "make clean           remove build/"

quickstart:
	@scripts/bootstrap
	@$(MAKE) --no-print-directory configure WITH_TESTS=OFF WITH_ALL=OFF
	@cmake --build $(BUILD) --target quickstart -j $(JOBS)
	@$(BUILD)/bin/quickstart

configure:
	@cmake --preset $(PRESET) --log-level=WARNING -Wno-dev -DLOCKSTEP_TESTS=$(WITH_TESTS) \
		-DLOCKSTEP_IMAGE=$(WITH_ALL) -DLOCKSTEP_SCIENCE=$(WITH_ALL) -DLOCKSTEP_COMMAND=$(WITH_ALL) > /dev/null

build:
	@scripts/bootstrap test
	@$(MAKE) --no-print-directory configure
	@cmake --build $(BUILD) -j $(JOBS)

# Runs the tests, which include scripts/check, and lists what could not be tested on this machine.
test: build
	@scripts/test $(BUILD) -j $(JOBS)

test-debian13:
	@scripts/test-debian13

test-quickstart:
	@scripts/test-quickstart

test-train-only: build
	@scripts/test-train-only $(BUILD)

test-libtorch:
	@scripts/bootstrap test
	@CUDA=$(CUDA) scripts/test-libtorch

# Disturbs runs at random moments: signals, exceptions, cut links, full disks, damaged files. Each must end as
# promised, with the weights and logs of the undisturbed run. Then as many faults as each transport got are injected into
# runs of which nodes may come and go, if this machine allows it.
chaos: build
	@$(BUILD)/bin/lockstep_chaos --faults $(FAULTS) $(if $(SEED),--seed $(SEED))
	@if $(BUILD)/bin/lockstep_chaos --elastic --list | grep -q ' elastic '; then \
		$(BUILD)/bin/lockstep_chaos --elastic --only elastic --faults $$((($(FAULTS) + 3) / 4)) $(if $(SEED),--seed $(SEED)); fi

# Gives damaged inputs to everything that reads files.
fuzz:
	@scripts/bootstrap test
	@$(MAKE) --no-print-directory configure
	@cmake --build $(BUILD) -j $(JOBS) --target fuzz
	@FUZZ_SECONDS=$(FUZZ_SECONDS) ctest --test-dir $(BUILD) -C fuzz -R '^fuzz$$' -V

# Runs all tests, the longest last. Takes hours. With AddressSanitizer every reader of files gets 1,000
# damaged ones.
test-long:
	@$(MAKE) --no-print-directory test
	@$(MAKE) --no-print-directory test-quickstart
	@$(MAKE) --no-print-directory test-train-only
	@$(MAKE) --no-print-directory test-libtorch
	@LOCKSTEP_DAMAGED=1000 $(MAKE) --no-print-directory test PRESET=asan
	@$(MAKE) --no-print-directory test PRESET=tsan
	@$(MAKE) --no-print-directory fuzz PRESET=asan FUZZ_SECONDS=600
	@$(MAKE) --no-print-directory chaos
	@$(MAKE) --no-print-directory test-debian13

bench:
	@scripts/bootstrap test bench
	@$(MAKE) --no-print-directory configure
	@cmake --build $(BUILD) -j $(JOBS) --target lockstep_bench
	@$(BUILD)/bin/lockstep_bench --output $(BUILD)/bench.json $(if $(WORK),--work $(WORK))

interop:
	@scripts/bootstrap test
	@$(MAKE) --no-print-directory configure
	@cmake --build $(BUILD) -j $(JOBS) --target lockstep_app
	@scripts/interop install
	@scripts/interop check $(BUILD)/bin/lockstep

# build/package/liblockstep-dev_VERSION_ARCHITECTURE.deb
package: build
	@test -e $(BUILD)/CPackConfig.cmake || { echo "make package: needs a build with Debian's LibTorch" >&2; exit 1; }
	@cd $(BUILD) && cpack --config CPackConfig.cmake > /dev/null && ls package/*.deb

check:
	@scripts/check

format:
	@scripts/format

clean:
	@rm -rf build
