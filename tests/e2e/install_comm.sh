# The small library by itself: libtutti_comm needs libc, libsodium and xxHash only; a program over it, by pkg-config and by
# the CMake package, shared and static, and programs in C++ and Rust need no more, and run.   timeout: 240
# SPDX-License-Identifier: MIT
. "${SOURCE_DIR:?is set by ctest}/tests/harness/train.sh"
. "$SOURCE_DIR/tests/harness/compiler.sh"
examples=$SOURCE_DIR/examples
rust=$(command -v rustc || true)
skipped=""

install_copy
export PKG_CONFIG_PATH="$libraries/pkgconfig" LD_LIBRARY_PATH="$libraries"
eval "shared=($(pkg-config --cflags --libs tutti_comm))" # the shell undoes pkg-config's quoting
eval "static=($(pkg-config --cflags --libs --static tutti_comm))"

# needs FILE: the libraries that it loads, and that those load
needs() {
    ldd "$1" | sed -E 's/ => .*//; s/ \(0x.*//; s/^[[:space:]]*//; s/.*\///; s/\.so.*//; /^linux-(vdso|gate)/d; /^ld-linux/d' | sort -u
}
# small FILE: loads only the small library's dependencies, the C library's parts, and what the compiler adds ($2)
small() {
    needs "$1" >"$1.needs"
    ! grep -vxE "libtutti_comm|libsodium|libxxhash|libc|libm|libpthread|libdl|librt${2:-}" "$1.needs" ||
        fail "$1 needs more than the small library: $(tr '\n' ' ' <"$1.needs")"
    grep -qx libsodium "$1.needs" || fail "$1 does not load libsodium: is ldd read rightly? $(tr '\n' ' ' <"$1.needs")"
}
# runs TEXT PROGRAM: with two ranks; must print TEXT
runs() {
    timeout 180 "$prefix/bin/tutti" run -n 2 "./$2" >"$2.out" 2>&1 || { cat "$2.out"; fail "$2: exit code $?"; }
    grep -q -e "$1" "$2.out" || { cat "$2.out"; fail "$2 does not say \"$1\""; }
}

cp "$libraries/libtutti_comm.so.0.1" library
small library
readelf -d library | grep -q 'SONAME.*\[libtutti_comm\.so\.0\.1\]' || fail "libtutti_comm.so.0.1 has another soname"

example=$examples/bring_your_own_gradients.c
mkdir static-only # no libtutti_comm.so to prefer
cp "$libraries/libtutti_comm.a" static-only
compile "$c" -Wall -Wextra -o shared "$example" "${shared[@]}"
compile "$c" -Wall -Wextra -o static "$example" "${static[@]/#-L*/-Lstatic-only}"
for kind in shared static; do
    small $kind
    runs 'loss' $kind
done
grep -qx libtutti_comm shared.needs || fail "shared: does not load libtutti_comm.so"
! grep -q libtutti static.needs || fail "static: loads a library of Tutti"

mkdir project
cp "$example" project/main.c
cat >project/CMakeLists.txt <<'EOF'
cmake_minimum_required(VERSION 3.16)
project(user LANGUAGES C)
find_package(tutti 0.1 REQUIRED)
foreach(target tutti_comm tutti_comm_static tutti tutti_static)
  add_executable(with_${target} main.c)
  target_link_libraries(with_${target} tutti::${target})
endforeach()
EOF
export CMAKE_GENERATOR=$(sed -n 's/^CMAKE_GENERATOR:INTERNAL=//p' "$BUILD_DIR/CMakeCache.txt")
CC=$c timeout 180 cmake -S project -B project/build -DCMAKE_PREFIX_PATH="$prefix" >cmake.out 2>&1 &&
    timeout 180 cmake --build project/build >>cmake.out 2>&1 || { cat cmake.out; fail "the CMake project"; }
for target in tutti_comm tutti_comm_static tutti tutti_static; do
    cp "project/build/with_$target" .
    runs 'loss' with_$target
    case $target in *comm*) small with_$target ;; esac
done
needs with_tutti | grep -qx libtutti || fail "tutti::tutti is not libtutti.so"
! needs with_tutti_static | grep -q libtutti || fail "tutti::tutti_static loads a library of Tutti"

# Both in one program would duplicate state.
sed -i 's/^foreach.*/foreach(target once)/; s/with_[^ )]*/both/; s/tutti::\${target}/tutti::tutti tutti::tutti_comm/' project/CMakeLists.txt
! cmake -S project -B project/build >both.out 2>&1 || fail "CMake links both libraries"
grep -q 'tutti_library' both.out || { cat both.out; fail "CMake does not say which two libraries"; }

if [ -n "$cxx" ]; then
    compile "$cxx" -Wall -Wextra -pedantic -o in_cxx "$examples/all_reduce.cc" "${shared[@]}"
    small in_cxx '|libstdc\+\+|libc\+\+|libc\+\+abi|libgcc_s'
    runs '2 ranks, sum of the last elements 1999' in_cxx
else
    skipped=" no C++ compiler,"
fi
if [ -n "$rust" ] && "$rust" --version >/dev/null 2>&1; then
    for level in 0 3; do # optimised code leaves other values where a wrong declaration reads
        compile "$rust" -C opt-level=$level -o in_rust "$examples/all_reduce.rs" -C "linker=$c" -L "$libraries" -l tutti_comm
        small in_rust '|libgcc_s'
        runs '2 ranks, sum of the last elements 1999' in_rust
    done
else
    skipped="$skipped no Rust compiler,"
fi
echo "libtutti_comm stands alone${skipped:+ (left out:${skipped%,})}"
