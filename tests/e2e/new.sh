# `tutti new`: its folder builds against the installed copy and against the build folder, trains and evaluates with two ranks by
# the commands of its README; errors leave nothing behind.   timeout: 180
# SPDX-License-Identifier: MIT
. "${SOURCE_DIR:?is set by ctest}/tests/harness/train.sh"

# ---- Refused -------------------------------------------------------------------------------------------------------------
mkdir here && cd here
for name in int main "two words" a/b /tmp 9lives "a;b" "a\$b" é "" test Makefile tutti "$(printf 'x%.0s' {1..65})"; do
    refused 2 'tutti new --help' "$TUTTI" new "$name"
done
refused 2 'a word of C' "$TUTTI" new while
refused 2 'has a slash; give the folder with --dir' "$TUTTI" new a/b
refused 2 'there is no flag "--dri" (did you mean "--dir"?); see tutti new --help' "$TUTTI" new x --dri y
refused 2 'which name?' "$TUTTI" new
refused 2 'one name, not two' "$TUTTI" new x y
refused 2 '--dir needs a value, a folder' "$TUTTI" new x --dir
refused 1 'there is no folder nowhere' "$TUTTI" new x --dir nowhere
rm refused.out
[ -z "$(ls -A)" ] || fail "a refused name left $(ls -A)"
mkdir taken && touch taken/mine file
refused 2 'taken is there already' "$TUTTI" new taken
refused 2 'file is there already' "$TUTTI" new file
[ "$(ls -A taken)" = mine ] || fail "a folder that was there has been touched"
if [ "$(id -u)" != 0 ]; then
    mkdir -m 555 locked
    refused 1 'Permission denied' "$TUTTI" new x --dir locked
fi
# A full disk, if a file system can be mounted.
cat >full.sh <<'END'
mkdir small && mount -t tmpfs -o size=4k,nr_inodes=20 tmpfs small || exit 77
"$TUTTI" new x --dir small
code=$?
[ -z "$(ls -A small)" ] || { echo "left: $(ls -A small)"; exit 99; }
exit $code
END
code=0
unshare -rm bash full.sh >full.out 2>&1 || code=$?
case $code in
4) grep -q 'No space left' full.out || { cat full.out; fail "does not say that the disk is full"; } ;;
77 | 1) echo "no full disk was tried: $(head -n 1 full.out)" ;;
*) cat full.out; fail "on a full disk: exit code $code" ;;
esac
cd ..

# ---- Made ----------------------------------------------------------------------------------------------------------------
c=$(command -v "${CC:-cc}" || command -v gcc || command -v clang || true)
[ -n "$c" ] && command -v cmake >/dev/null || { echo "skipped from here on: needs a C compiler and cmake"; exit 77; }
export CC=$c CFLAGS="-Wall -Wextra -Wshadow -Wconversion -Werror" CMAKE_GENERATOR=$(sed -n 's/^CMAKE_GENERATOR:INTERNAL=//p' "$BUILD_DIR/CMakeCache.txt")
grep -q '^TUTTI_SANITIZE:[A-Z]*=.' "$BUILD_DIR/CMakeCache.txt" && CFLAGS="$CFLAGS -fsanitize=$(sed -n 's/^TUTTI_SANITIZE:[A-Z]*=//p' "$BUILD_DIR/CMakeCache.txt")"

# commands README: the blocks of sh, for this shell
commands() { sed -n '/^```sh$/,/^```$/{/^```/d; p}' "$1"; }
# trains FOLDER: by the first commands of its README
trains() {
    (cd "$1" && commands README.md | sed -n 1,2p >first && grep -q 'run -n 2 build/' first && timeout 360 bash -e first) >"$1.out" 2>&1 ||
        { cat "$1.out"; fail "the commands of $1/README.md: exit code $?"; }
    local summary
    summary=$(echo "$1"/runs/*/summary.json)
    [ "$(field "$summary" world_size)" = 2 ] || { cat "$summary"; fail "$1 was not trained by two ranks"; }
    awk -v a="$(field "$summary" val_accuracy)" 'BEGIN { exit !(a >= 0.95) }' || { cat "$summary"; fail "$1: the loss does not fall enough"; }
}

# From the build folder, which is not in the PATH.
"$TUTTI" new first-net >new.out
grep -q '^  cd first-net$' new.out || { cat new.out; fail "does not say what comes next"; }
[ "$(ls -A first-net | LC_ALL=C sort | tr '\n' ' ')" = ".gitignore CMakeLists.txt README.md first-net.c " ] || fail "made $(ls -A first-net)"
! grep -rn '@[A-Z]' first-net || fail "something was not filled in"
trains first-net

# Own images, by the README's command for them: here copies of one image.
if "$TUTTI" --version | tail -n 1 | grep -w png >/dev/null; then
    mkdir -p first-net/photos/{train,test}/{cat,dog}
    for folder in first-net/photos/*/*; do
        for i in 1 2; do cp "$SOURCE_DIR/docs/images/report.png" "$folder/$i.png"; done
    done
    commands first-net/README.md | grep 'data-dir photos' | sed 's/$/ --epochs 1 --batch-size 2 --progress quiet/' >own
    (cd first-net && timeout 300 bash -e ../own) >own.out 2>&1 || { cat own.out; fail "images of one's own: exit code $?"; }
    [ "$(field first-net/runs/photos/summary.json status)" = completed ] || fail "images of one's own: not completed"
fi

# The printed commands are quoted for a shell.
mkdir -- "it's here" -dash
for dir in "it's here" -dash; do
    "$TUTTI" new quoted --dir="$dir" >new.out
    (eval "$(grep '^  cd ' new.out)" && [ "$PWD" = "$work/$dir/quoted" ]) || { cat new.out; fail "cd does not lead there"; }
done

# From an installed copy in the PATH: the commands are short, and CMake needs no hint.
prefix="$work/a prefix"
cmake --install "$BUILD_DIR" --prefix "$prefix" >install.out 2>&1 || { cat install.out; fail "cmake --install"; }
(PATH="$prefix/bin:$PATH" && mkdir "with space" && tutti new second --dir "with space" >new.out && cd "with space" && trains second)
grep -q '^tutti run -n 2 build/second$' "with space/second/README.md" || fail "README.md does not call the command as the PATH has it"
ldd "with space/second/build/second" >second.ldd
grep -q "libtutti.so.0.1 => $prefix/" second.ldd || { cat second.ldd; fail "second runs with another library than the installed one"; }

# Moved to a place without Tutti: CMake needs -D tutti_DIR.
sed -i 's|HINTS ".*"|HINTS "/nonexistent"|' first-net/CMakeLists.txt
cmake -S first-net -B other -D tutti_DIR="$BUILD_DIR" >cmake.out 2>&1 || { cat cmake.out; fail "-D tutti_DIR=BUILD"; }
echo "two programs made, built, trained and evaluated"
