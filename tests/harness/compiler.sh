# compiler.sh -- for test scripts that compile programs, after expect.sh or train.sh: $c is a C compiler. Without one, or if the
# libraries need a sanitizer's run time, the test is skipped.   SPDX-License-Identifier: MIT
c=$(command -v "${CC:-cc}" || command -v gcc || command -v clang || true)
[ -n "$c" ] || { echo "skipped: needs a C compiler" && exit 77; }
grep -q '^TUTTI_SANITIZE:[A-Z]*=.' "$BUILD_DIR/CMakeCache.txt" && {
    echo "skipped: the libraries of this build need a sanitizer's run time"
    exit 77
}
compile() { # COMMAND...: without any output
    timeout 300 "$@" >compile.out 2>&1 && [ ! -s compile.out ] || { cat compile.out; fail "to compile: $*"; }
}
take() { # PAGE NAME: a program in docs/, of less than 60 lines
    "$SOURCE_DIR/tools/doc-code" "$SOURCE_DIR/docs/$1" "$2" >"$2" || fail "$2 is not in docs/$1"
    [ "$(wc -l <"$2")" -lt 60 ] || fail "$2 has $(wc -l <"$2") lines, not under 60"
}
# An installed copy in $prefix, with a space, as users have them; its libraries are in $libraries.
install_copy() {
    prefix="$work/a prefix"
    command -v cmake >/dev/null && command -v pkg-config >/dev/null || { echo "skipped: needs cmake and pkg-config" && exit 77; }
    cmake --install "$BUILD_DIR" --prefix "$prefix" >install.out 2>&1 || { cat install.out; fail "cmake --install"; }
    libraries=$(dirname "$(find "$prefix" -name libtutti_comm.so)")
}
cxx=$(command -v "${CXX:-c++}" || command -v g++ || command -v clang++ || true)
