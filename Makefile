# A thin front for the CMake presets; see README.md.
#
## make              builds everything into build/: the command, libraries, tests, benches, examples
## make tutti        builds the command alone
## make demo         installs what is missing, builds, and trains with 2 ranks (scripts/demo)
## make test         installs what is missing, builds, and runs the tests (scripts/test)
## make test-long    the tests under sanitizers, and compiled for arm64: make asan, make tsan, make ubsan, make arm64
## make check        format, layers, warnings of two compilers, short tests
## make bench        the benchmarks
## make docs         the pages of docs/ as a site, build/site
## make format       formats the sources
## make install      installs into PREFIX (default /usr/local); make install PREFIX=$HOME/tutti; DESTDIR=FOLDER for packages
## make uninstall    removes what make install has installed there
## make clean        removes the build folders
PREFIX ?= /usr/local
JOBS ?= $(shell nproc)
CMAKE = cmake
CONFIGURE_LOG = --log-level=WARNING

.PHONY: help all tutti installable prefix demo test test-long bench check docs install uninstall clean format asan tsan ubsan arm64

BUILD = @$(CMAKE) --build build -j$(JOBS) --target $@ $(if $(findstring s,$(firstword -$(MAKEFLAGS))),-- --quiet)

HAS_CMAKE = @command -v $(CMAKE) >/dev/null || \
    { echo "make: not found here: $(CMAKE), perhaps more: scripts/install-deps installs what is missing" >&2; exit 1; }

all: build/build.ninja ; $(BUILD)
tutti: build/build.ninja ; $(BUILD)
installable: build/build.ninja ; $(BUILD)

build/build.ninja:
	$(HAS_CMAKE)
	@rm -f build/missing.txt
	@$(CMAKE) --preset release $(CONFIGURE_LOG) >build-configure.log 2>&1 || \
	    { sed 's/^/make: /' build/missing.txt 2>/dev/null || cat build-configure.log; rm -f build-configure.log; exit 1; } >&2
	@rm -f build-configure.log

help: ; @sed -n 's/^## //p' Makefile

demo: ; scripts/demo
test: ; scripts/test
bench: all ; bench/run

# The longer tier: everything under AddressSanitizer and UBSan, the multithreaded parts under ThreadSanitizer, collectives
# under clang's UBSan, which finds more than gcc's (offsets of null pointers), and what processors may differ in
# compiled for arm64, in qemu-user.
test-long: asan tsan ubsan arm64
asan:
	$(CMAKE) --preset asan $(CONFIGURE_LOG) && $(CMAKE) --build build-asan -j$(JOBS)
	ctest --preset asan
tsan:
	$(CMAKE) --preset tsan $(CONFIGURE_LOG) && $(CMAKE) --build build-tsan -j$(JOBS)
	ctest --preset tsan -R 'comm|loader|launch|reducer|ddp|run_|elastic|thread|parallel|trainer|writer' -E 'elastic.*_all'
ubsan:
	$(CMAKE) --preset clang-ubsan $(CONFIGURE_LOG) && $(CMAKE) --build build-clang-ubsan -j$(JOBS)
	ctest --preset clang-ubsan -R 'distributed/comm_'
arm64: ; scripts/test --arm64 || [ $$? = 77 ]

check: ; tools/check

# The pages of docs/ as a site: build/site. Its search needs a server.
docs:
	@command -v mkdocs >/dev/null || { echo "make docs needs mkdocs: apt-get install mkdocs (scripts/install-deps --ci does)" >&2; exit 4; }
	@mkdocs build --quiet
	@echo "build/site/index.html; with search: python3 -m http.server -d build/site, then http://localhost:8000"
format: ; tools/format

# DESTDIR=FOLDER: in front of PREFIX, for packages.
prefix:
	@[ -n "$(PREFIX)" ] || { echo 'make: PREFIX is empty, expected a folder, such as PREFIX=$$HOME/tutti' >&2; exit 1; }
install: prefix installable
	@rm -f build/install_manifest.txt # that root left
	@tools/cmake-plain $(CMAKE) --install build --prefix "$$(realpath -m "$(PREFIX)")"
uninstall: prefix
	$(HAS_CMAKE)
	@tools/cmake-plain $(CMAKE) -D PREFIX="$$(realpath -m "$(PREFIX)")" -P cmake/Uninstall.cmake
clean: ; rm -rf build build-dev build-clang build-clang-ubsan build-asan build-tsan build-cuda build-arm64
