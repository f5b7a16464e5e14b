# A thin front for the CMake presets; see README.md.
PREFIX ?= /usr/local
JOBS ?= $(shell nproc)
CMAKE = cmake
CONFIGURE_LOG = --log-level=WARNING

.PHONY: all tutti demo test test-long bench check install clean format asan tsan arm64

BUILD = @$(CMAKE) --build build -j$(JOBS) --target $@ $(if $(findstring s,$(firstword -$(MAKEFLAGS))),-- --quiet)

all: build/build.ninja ; $(BUILD)
tutti: build/build.ninja ; $(BUILD)

build/build.ninja:
	@command -v $(CMAKE) >/dev/null || { echo "make: no $(CMAKE) here: scripts/install-deps installs what building needs" >&2; exit 1; }
	@$(CMAKE) --preset release $(CONFIGURE_LOG) >build-configure.log 2>&1 || { cat build-configure.log; rm -f build-configure.log; exit 1; }
	@rm -f build-configure.log

demo: ; scripts/demo
test: ; scripts/test
bench: all ; bench/run

# The longer tier: everything under AddressSanitizer and UBSan, the race-prone parts under ThreadSanitizer,
# and what processors may differ in compiled for arm64, in qemu-user.
test-long: asan tsan arm64
asan:
	$(CMAKE) --preset asan $(CONFIGURE_LOG) && $(CMAKE) --build build-asan -j$(JOBS)
	ctest --preset asan
tsan:
	$(CMAKE) --preset tsan $(CONFIGURE_LOG) && $(CMAKE) --build build-tsan -j$(JOBS)
	ctest --preset tsan -R 'comm|loader|launch|reducer|ddp|run_'
arm64: ; scripts/test --arm64 || [ $$? = 77 ]

check: ; tools/check
format: ; tools/format

install: all ; $(CMAKE) --install build --prefix $(PREFIX)
clean: ; rm -rf build build-dev build-clang build-asan build-tsan build-cuda build-arm64
