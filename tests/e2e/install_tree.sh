# `make install` and `make uninstall`: exactly the listed files; DESTDIR; over an older version. The
# manual pages, and completion by bash and zsh.   timeout: 120
# SPDX-License-Identifier: MIT
. "${SOURCE_DIR:?is set by ctest}/tests/harness/train.sh"
command -v cmake >/dev/null || { echo "skipped: needs cmake"; exit 77; }
prefix="$work/a prefix"
skipped=""
unset DESTDIR

install() { cmake --install "$BUILD_DIR" --prefix "$1" >install.out 2>&1 || { cat install.out; fail "cmake --install --prefix $1"; }; }
uninstall() { cmake -D PREFIX="$1" -P "$SOURCE_DIR/cmake/Uninstall.cmake" >uninstall.out 2>&1 || { cat uninstall.out; fail "Uninstall.cmake of $1"; }; }
listed() { grep -v '/$' "$1/share/tutti/installed" | LC_ALL=C sort; }
there() { (cd "$1" && find . ! -type d | sed 's|^\./||' | LC_ALL=C sort); }

# A new prefix: it contains exactly the list's files, and all of them are removed.
install "$prefix"
grep -q 'export PATH=".*a prefix/bin:$PATH" PKG_CONFIG_PATH=".*a prefix/lib.*/pkgconfig"' install.out ||
    { cat install.out; fail "does not say what to put into the environment"; }
listed "$prefix" >list && there "$prefix" >tree && cmp list tree || fail "the list of what was installed differs from what is there"
for file in bin/tutti include/tutti/tutti.h share/doc/tutti/README.md share/doc/tutti/LICENSE share/doc/tutti/docs/train.md \
    share/doc/tutti/examples/linear_regression.c; do
    grep -qx "$file" tree || fail "$file is not installed"
done
uninstall "$prefix"
[ ! -e "$prefix" ] || { find "$prefix"; fail "something is left of a prefix that was made"; }
grep -q 'Set runtime path' install.out && { cat install.out; fail "prints lines that are of no use"; }
# The folders that it lies in go too where they were made for it, and stay where others made them, or have put something there.
mkdir deep
install "$work/deep/in/it/prefix"
uninstall "$work/deep/in/it/prefix"
[ -d deep ] && [ ! -e deep/in ] || { find deep; fail "what was made above the prefix is not what goes"; }
install "$work/deep/in/it/prefix"
touch deep/in/mine
uninstall "$work/deep/in/it/prefix"
[ -e deep/in/mine ] && [ ! -e deep/in/it ] || { find deep; fail "uninstall removed another file above the prefix, or left its own"; }
refused 1 'nothing to remove' cmake -D PREFIX="$prefix" -P "$SOURCE_DIR/cmake/Uninstall.cmake"

# Into a shared prefix, over an older version with a file that no longer exists; run from another folder.
mkdir -p "$prefix"/{lib,share/man/man1,include/tutti} && touch "$prefix/share/man/man1/other.1" "$prefix/include/tutti/mine.h"
(cd "$prefix" && find .) | LC_ALL=C sort >before
install "$prefix"
mkdir "$prefix/include/tutti/old" && touch "$prefix/include/tutti/old/old.h"
printf 'include/tutti/old/old.h\ninclude/tutti/old/\n' >>"$prefix/share/tutti/installed"
install "$prefix"
[ ! -e "$prefix/include/tutti/old" ] || fail "what only the older version had is still there"
uninstall "$prefix"
(cd "$prefix" && find .) | LC_ALL=C sort | cmp before - || fail "uninstalling changed what others have"
rm -rf "$prefix"

refused 1 'semicolon' cmake --install "$BUILD_DIR" --prefix "$work/a;b"
[ ! -e "$work/a;b" ] || fail "something was installed under a prefix that is refused"

# A list with a path outside of the prefix is rejected.
install "$prefix"
touch outside
echo ../outside >>"$prefix/share/tutti/installed"
refused 1 'outside of' cmake -D PREFIX="$prefix" -P "$SOURCE_DIR/cmake/Uninstall.cmake"
[ -e outside ] || fail "a file outside of the prefix was removed"

# DESTDIR: the files below it are those of the prefix; the linker's default folders need no hint.
export DESTDIR="$work/stage"
install /usr
[ "$(ls "$DESTDIR")" = usr ] || fail "DESTDIR has $(ls "$DESTDIR")"
! grep -rq rpath "$DESTDIR"/usr/lib*/pkgconfig || fail "tutti.pc under /usr names the linker's own folder to it"
[ ! -e "$DESTDIR/usr/share/tutti" ] || fail "DESTDIR has the list that only make uninstall reads, where a package manager keeps its own"
refused 1 'has no DESTDIR' cmake -D PREFIX=/usr -P "$SOURCE_DIR/cmake/Uninstall.cmake" # and not the /usr of this machine
unset DESTDIR

# If this user may not write there, it says so first, with both remedies.
as=""
[ "$(id -u)" != 0 ] || as="setpriv --reuid=65534 --regid=65534 --clear-groups"
if ! $as test -r "$BUILD_DIR/cmake_install.cmake" || $as test -w /usr/bin; then
    skipped="$skipped; not tried as a user who may not write there"
else
    refused 1 PREFIX= $as cmake --install "$BUILD_DIR" --prefix /usr
    # One line, from make
    refused 1 'PREFIX=' $as "$SOURCE_DIR/tools/cmake-plain" cmake --install "$BUILD_DIR" --prefix /usr
    [ "$(grep -cv "^-- " refused.out)" = 1 ] || { cat refused.out; fail "make install says more than one line"; }
fi
refused 2 'nothing to remove: `make install` leaves a list, and there is none' make -C "$SOURCE_DIR" --no-print-directory uninstall PREFIX="$work/never"
[ "$(grep -cv '^make' refused.out)" = 1 ] || { cat refused.out; fail "make uninstall says more than one line"; }

# ---- Manual pages ----------------------------------------------------------------------------------------------------
pages="$BUILD_DIR/manual/man1"
# Two builds that make them at once
"$SOURCE_DIR/tools/make-manual" "$work/manual" "$TUTTI" & other=$!
"$SOURCE_DIR/tools/make-manual" "$work/manual" "$TUTTI" && wait $other || fail "two builds at once"
diff -r -x made "$work/manual" "$BUILD_DIR/manual" || fail "two builds at once make another manual"
for command in $("$TUTTI" --help | sed -n 's/^  \([a-z]*\)  .*/\1/p'); do
    [ -e "$pages/tutti-$command.1" ] || fail "there is no tutti-$command(1)"
    sed 's/\\-/-/g' "$pages/tutti-$command.1" >page
    for flag in $("$TUTTI" "$command" --help | sed -nE 's/^ {2,6}(-.,? )?(--[a-z][a-z0-9-]*).*/\2/p'); do
        grep -qF -e "fB$flag\\fP" page || fail "tutti-$command(1) does not have $flag"
    done
done
for variable in $("$TUTTI" run --env | sed -n '/^Set for/q; s/^| `\(TUTTI_[A-Z_]*\)`.*/\1/p'); do
    grep -qx "\.B $variable" "$pages/tutti.1" || fail "tutti(1) does not have $variable"
done
if command -v groff >/dev/null; then
    for page in "$pages"/*.1; do
        groff -ww -man -Tutf8 -z "$page" >groff.out 2>&1 && [ ! -s groff.out ] || { cat groff.out; fail "groff warns of $page"; }
    done
else
    skipped="$skipped (groff is not here)"
fi
if command -v mandoc >/dev/null; then
    mandoc -T lint -W warning "$pages"/*.1 >mandoc.out 2>&1 || { cat mandoc.out; fail "mandoc warns"; }
fi

# ---- Completion ------------------------------------------------------------------------------------------------------
mkdir files && touch files/run.json files/rule.{so,c} && mkdir files/runs
cat >offer.bash <<'END'
. "$BUILD_DIR/manual/tutti.bash"
offer() { # WORDS...: completions of the last word
    COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMPREPLY=()
    _tutti
    printf '%s\n' "${COMPREPLY[@]}" | LC_ALL=C sort | tr '\n' ' ' | sed 's/ $//'
}
cd files
offer "$@"
END
offers() { # EXPECTED WORDS...
    local expected=$1 got
    shift
    got=$(bash -u offer.bash "$@" 2>&1)
    [ "$got" = "$expected" ] || fail "completion of \"$*\" is \"$got\", expected \"$expected\""
}
offers "train" tutti tr
offers "--version" tutti --v
offers "data diff doctor" tutti help d
offers "--optimizer" tutti train --op
offers "--no-augment" tutti train --no-au
offers "adagrad adam adamw lamb muon rmsprop sgd" tutti train --optimizer ""
offers "adagrad adam adamw" tutti train --optimizer = a
offers "adagrad adam adamw lamb muon rmsprop sgd" tutti train --optimizer =
offers "" tutti train --epochs ""
offers "false true" tutti train --augment ""
offers "runs" tutti train --data-dir r
offers "run.json runs" tutti train --config run
offers "pack show tokenize" tutti data ""
offers "--help -h" tutti data -
offers "--context --features --help --image-size --target --tokenizer -h" tutti data show -
offers "--help --out --raw --tokenizer --val -h" tutti data tokenize -
offers "--help --image-size --resize -h" tutti data pack -
offers "cifar100: cifar10: csv: digits:test digits:train folder: masks: mnist: npy: rule.so runs/ shakespeare:test shakespeare:train synthetic:test synthetic:train text: tokens:" tutti data show ""
offers "digits:test digits:train" tutti data show dig
offers "train" tutti data show digits : tr
offers "runs" tutti data show folder : ru
offers "runs/test runs/train" tutti data show folder : runs/
offers "" tutti data show digits : train ""
offers "runs" tutti data pack ""
offers "runs" tutti data pack runs ""
offers "" tutti data pack runs runs ""
offers "export show verify" tutti checkpoint ""
offers "run.json runs" tutti checkpoint show run
offers "" tutti checkpoint show runs ""
offers "--digest --help --json -h" tutti checkpoint show runs -
offers "--help -h" tutti checkpoint verify -
offers "--adapter --dtype --force --help --hf --max-shard-size --out --weights -h" tutti checkpoint export -
offers "bf16 f16 f32" tutti checkpoint export runs --dtype ""
offers "run.json runs" tutti checkpoint export runs --out run
offers "runs" tutti report runs ""
offers "memory" tutti doctor network me
offers "run.json runs" tutti eval run
offers "" tutti eval runs run
offers "test train" tutti eval runs --split ""
offers "" tutti new ""
offers "runs" tutti new x --dir ""
offers "" tutti train run
offers "" tutti bench all_reduce ""
offers "" tutti bench all_reduce --model
offers "--layers" tutti bench step --la
offers "--seconds" tutti bench loader --sec
offers "" tutti bench loader --si
offers "--sizes" tutti bench all_reduce --si
offers "all_gather all_gather_v all_reduce all_to_all all_to_all_v" tutti bench all_
offers "rule.so runs" tutti train --model ru
offers "rule.so runs" tutti train --data ru
offers "bf16 f16 f32 f64 i16 i32 i64 i8 u16 u32 u64 u8" tutti bench all_reduce --dtype ""
offers "mini_resnet" tutti eval runs/x --model mini
offers "c10d native static" tutti run --rdzv-backend ""
offers "--standalone" tutti run -n 2 --st
offers "--optimizer" tutti run -n 2 --standalone tutti train --op
offers "" tutti nonsense x

if command -v zsh >/dev/null; then
    cat >type.zsh <<'END'
zmodload zsh/zpty
zpty shell zsh -f -i
zpty -w shell "PS1=; unsetopt prompt_cr prompt_sp; fpath=($BUILD_DIR/manual \$fpath); autoload -U compinit; compinit -u -D; tutti() { print -r -- \"<\$*>\" }; cd files; print made ready"
zpty -r -m shell out $'*made ready\r*' || exit 1
zpty -w shell "$1"$'\t'
zpty -r -m shell out '*<*>*' || exit 1
print -r -- "$out"
END
    types() { # EXPECTED BEGUN: what the command gets after Tab and Return
        timeout 60 zsh -f type.zsh "$2" >type.out 2>&1 || { cat type.out; fail "zsh, of \"$2\""; }
        grep -qF "<$1" type.out || { cat type.out; fail "zsh completes \"$2\" to another than \"$1\""; }
    }
    types "train" "tutti tra"
    types "train --optimizer" "tutti train --opt"
    types "train --model mlp" "tutti train --model ml"
    types "train --model ./rule.so" "tutti train --model ./rul"
    types "run true" "tutti run tru"
    types "run ./run.json" "tutti run ./run."
    types "train --data-dir runs" "tutti train --data-dir ru"
    types "run --standalone tutti train --optimizer" "tutti run --standalone tutti train --opt"
    types "data show" "tutti data sh"
    types "data show digits:train" "tutti data show digits:tr"
    types "data show folder:runs" "tutti data show folder:ru"
    types "data show --image-size" "tutti data show --im"
    types "data pack --resize" "tutti data pack --res"
    types "data pack runs" "tutti data pack ru"
    types "checkpoint show ./run.json" "tutti checkpoint show ./run."
    types "checkpoint show --digest" "tutti checkpoint show --di"
    types "checkpoint verify --d" "tutti checkpoint verify --d"
    types "checkpoint export --dtype bf16" "tutti checkpoint export --dtype b"
    types "bench step --layers" "tutti bench step --lay"
    types "bench all_reduce --lay" "tutti bench all_reduce --lay"
    types "doctor memory network" "tutti doctor memory net"
    types "report runs" "tutti report ru"
else
    skipped="$skipped (zsh is not here)"
fi
echo "what is installed is complete, and goes without a trace$skipped"

# A path with brackets is not a pattern: other files in folders of the installation stay.
unset DESTDIR
odd="$work/a[1]b"
mkdir -p "$odd/share/tutti" "$odd/bin"
touch "$odd/bin/tutti" "$odd/bin/mine"
printf '%s\n' ./ bin/ bin/tutti share/ share/tutti/ share/tutti/installed >"$odd/share/tutti/installed"
uninstall "$odd"
[ "$(cd "$odd" && find . | sort | tr '\n' ' ')" = ". ./bin ./bin/mine " ] || { find "$odd"; fail "what is left of a prefix with brackets"; }
