# first_hour_all.sh -- the guide's first hour as a reader follows it: the page's commands clone, run the demo and build; those of the
# rest of the page run in that checkout, with that build.
# tier: long
# timeout: 900
# SPDX-License-Identifier: MIT
. "${SOURCE_DIR:?is set by ctest}/tests/harness/expect.sh"
page=docs/guide/first-hour.md
for program in git python3; do
    command -v $program >/dev/null || { echo "skipped: needs $program" && exit 77; }
done
export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0='*' # a checkout of another user
git -C "$SOURCE_DIR" rev-parse --verify -q HEAD >/dev/null || { echo "skipped: $SOURCE_DIR is not a git checkout" && exit 77; }
unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT
cd "$work" || exit 1

mkdir bin # a test installs nothing
printf '#!/bin/sh\necho "$*" >>"%s"\nexit 100\n' "$work/wanted" | tee bin/apt-get >bin/sudo
chmod +x bin/*
commands=$(awk '/^```/ { if (inside) exit } inside { print substr($0, 3) } /^```console$/ { inside = 1 }' "$SOURCE_DIR/$page")
[ "$(grep -c . <<<"$commands")" = 3 ] || fail "the page's first commands: $commands"
PATH=$work/bin:$PATH bash -ec "${commands/URL/$SOURCE_DIR}; command -v tutti; pkg-config --modversion tutti" >out 2>err
code=$?
[ ! -e wanted ] || { echo "skipped: packages are missing, and a test installs none: $(cat wanted)" && exit 77; }
[ $code = 0 ] || { cat out err && fail "code $code"; }
cat out
out_has 'test accuracy +9[7-9]|test accuracy +100'
out_has "^$work/tutti/build/tutti\$"
cd tutti && python3 tools/make-guide --check --here $page || fail "the rest of the page, with what was built"
finish
