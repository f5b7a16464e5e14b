# make without cmake, ninja, pkg-config, a compiler or protoc-c, or with an empty PREFIX: one line with the remedy, and nothing of CMake's.
# SPDX-License-Identifier: MIT
. "${SOURCE_DIR:?is set by ctest}/tests/harness/expect.sh"
for program in make cmake ninja pkg-config protoc-c; do
    command -v $program >/dev/null || { echo "skipped: needs $program"; exit 77; }
done
mkdir "$work/tree" "$work/bin" "$work/aside"
cp -r "$SOURCE_DIR"/{Makefile,CMakeLists.txt,CMakePresets.json,cmake} "$work/tree"
IFS=: read -ra folders <<<"$PATH"
for folder in "${folders[@]}"; do
    find "$folder/" -maxdepth 1 -executable ! -type d -exec ln -s -t "$work/bin" {} + 2>/dev/null # the first of a name
done
lacks() { # WHAT PROGRAMS [TARGET]: make with a PATH without the programs that these patterns match
    rm -rf "$work/tree/build"
    (cd "$work/bin" && eval "mv -- $2 ../aside") 2>/dev/null # some are not here
    run 2 env -i PATH="$work/bin" make -C "$work/tree" "${3:-tutti}"
    mv "$work"/aside/* "$work/bin"
    grep -v '^make: \*\*\*\|^make: [EL]' "$work/err" >"$work/said"
    equal "what make says without $1" "$(cat "$work/said")" \
        "make: not found here: $1: scripts/install-deps installs what is missing"
}
lacks "cmake, perhaps more" cmake
lacks "cmake, perhaps more" cmake uninstall
lacks "ninja (ninja-build), perhaps libraries" "ninja ninja-build samu"
lacks "pkg-config, perhaps libraries" "*pkg-config pkgconf"
lacks "protoc-c (protobuf-c-compiler), perhaps libraries" protoc-c
lacks "a C compiler (gcc), perhaps libraries" "cc gcc clang"
lacks "a C compiler (gcc), ninja (ninja-build), pkg-config, perhaps libraries" "cc gcc clang ninja ninja-build samu *pkg-config pkgconf"

# An unset variable is no folder, and not the default one either.
for target in install uninstall; do
    run 2 make -C "$work/tree" $target PREFIX= DESTDIR="$work/stage"
    err_has '^make: PREFIX is empty, expected a folder, such as PREFIX=\$HOME/tutti$'
done
[ ! -e "$work/stage" ] || fail "it was installed"
finish
