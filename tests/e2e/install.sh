# The installed copy: programs compile against it and run, by pkg-config (shared and static), CMake and from C++; so does
# the program in README.md.   timeout: 240
# SPDX-License-Identifier: MIT
. "${SOURCE_DIR:?is set by ctest}/tests/harness/train.sh"
. "$SOURCE_DIR/tests/harness/compiler.sh"
skipped=""

install_copy
eval "$(sed -n 's/^-- for your shell: //p' install.out)" # only the line that make install prints
[ "$(command -v tutti)" = "$prefix/bin/tutti" ] || { cat install.out; fail "the line does not lead to the installed command"; }
"$prefix/bin/tutti" --version >version
[ "$(head -n 1 version)" = "tutti $(pkg-config --modversion tutti)" ] || fail "the command's and tutti.pc's versions differ"

# runs TEXT PROGRAM: with two ranks, in its own folder; must print TEXT
runs() {
    mkdir "$2.run"
    (cd "$2.run" && timeout 180 "$prefix/bin/tutti" run -n 2 "../$2") >"$2.out" 2>&1 || { cat "$2.out"; fail "$2: exit code $?"; }
    grep -q -e "$1" "$2.out" || { cat "$2.out"; fail "$2 does not say \"$1\""; }
}
eval "flags=($(pkg-config --cflags --libs tutti))" # the shell undoes pkg-config's quoting
example="$SOURCE_DIR/examples/bring_your_own_gradients.c"

compile "$c" -Wall -Wextra -o shared "$example" "${flags[@]}"
ldd shared >shared.ldd # not piped: grep -q would leave ldd a broken pipe
grep -q "libtutti.so.0.1 => $libraries/" shared.ldd || { cat shared.ldd; fail "shared: not the installed library"; }
runs 'loss' shared

# Static: with no libtutti.so to prefer.
mkdir static-only
cp "$libraries/libtutti.a" static-only
eval "static=($(pkg-config --static --libs tutti))"
compile "$c" -o static "$example" -I"$prefix/include" -Lstatic-only "${static[@]/#-L*/-Lstatic-only}"
ldd static >static.ldd
grep -q libtutti static.ldd && fail "static: needs libtutti.so"
runs 'loss' static

sed -n '/^```c$/,/^```$/p' "$SOURCE_DIR/README.md" | sed '/^```/d; s/epoch < 5/epoch < 1/' >readme.c
grep -q 'epoch < 1' readme.c || fail "README.md's program has another loop"
compile "$c" -Wall -Wextra -o readme readme.c "${flags[@]}"
runs 'epoch 0  loss' readme
[ "$(ls readme.run)" = mlp.ckpt ] || fail "README.md's program left $(ls readme.run)"

if [ -n "$cxx" ]; then
    cat >program.cc <<'END'
#include <tutti/tutti.h>
int main()
{
    tutti_group *group;
    float one = 1;

    TUTTI_MUST(tutti_group_init(&group, nullptr));
    tutti_buf buffer = TUTTI_BUF(&one, 1, TUTTI_F32);
    TUTTI_MUST(tutti_all_reduce(group, buffer, TUTTI_SUM, nullptr));
    tutti_reducer *reducer;
    tutti_reducer_parameter parameter = {};
    parameter.name = "w";
    parameter.count = 10;
    tutti_comm_hook hook;
    TUTTI_MUST(tutti_reducer_new(&reducer, group, &parameter, 1, nullptr));
    TUTTI_MUST(tutti_comm_hook_bf16(&hook, nullptr));
    TUTTI_MUST(tutti_reducer_set_hook(reducer, &hook));
    TUTTI_MUST(tutti_reducer_begin(reducer));
    float *grad = static_cast<float *>(tutti_reducer_grad(reducer, 0));
    grad[9] = float(tutti_group_rank(group));
    tutti_reducer_ready(reducer, 0);
    TUTTI_MUST(tutti_reducer_finish(reducer));
    printf("sum %g mean %g\n", double(one), double(grad[9]));
    tutti_reducer_free(reducer);
    tutti_group_free(group);
}
END
    compile "$cxx" -Wall -Wextra -o program program.cc "${flags[@]}"
    runs 'sum 2 mean 0.5' program
else
    skipped=" (no C++ compiler: that part is skipped)"
fi

mkdir project
cp "$example" project/main.c
cat >project/CMakeLists.txt <<'END'
cmake_minimum_required(VERSION 3.16)
project(user LANGUAGES C)
find_package(tutti 0.1 REQUIRED)
add_executable(main main.c)
target_link_libraries(main tutti::tutti)
add_executable(alone main.c)
target_link_libraries(alone tutti::tutti_static)
END
export CMAKE_GENERATOR=$(sed -n 's/^CMAKE_GENERATOR:INTERNAL=//p' "$BUILD_DIR/CMakeCache.txt")
CC=$c timeout 180 cmake -S project -B project/build >cmake.out 2>&1 && # by the PATH
    timeout 180 cmake --build project/build >>cmake.out 2>&1 || { cat cmake.out; fail "the CMake project"; }
cp project/build/main package
runs 'loss' package
cp project/build/alone package-static
ldd package-static >static.ldd
! grep libtutti static.ldd || fail "tutti::tutti_static needs libtutti.so"
runs 'loss' package-static
echo "the installed copy is complete$skipped"
