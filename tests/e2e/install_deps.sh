# The errors of scripts/install-deps: the cause and the remedy, with exit code 4. Stand-ins replace
# apt-get, dpkg-query, id and sudo: nothing is installed.
# SPDX-License-Identifier: MIT
. "${SOURCE_DIR:?is set by ctest}/tests/harness/expect.sh"
mkdir "$work/bin"
for program in sh dirname cat grep sed wc fold tr env mktemp date rm sleep; do
    ln -s "$(command -v $program)" "$work/bin/"
done
stand_in() { # NAME BODY
    printf '#!/bin/sh\n%s\n' "$2" >"$work/bin/$1"
    chmod +x "$work/bin/$1"
}
cannot() { # MESSAGE
    run 4 env -i PATH="$work/bin" sh "$SOURCE_DIR/scripts/install-deps" --build
    grep -q "$1" "$work/err" || { fail "install-deps does not say: $1"; cat "$work/err"; }
}

stand_in dpkg-query 'exit 1'
cannot 'this is not Debian or Ubuntu'
stand_in apt-get 'echo "E: Could not resolve deb.debian.org"; exit 100'
stand_in id 'echo 0'
cannot 'Could not resolve'
cannot 'is the network reachable'
stand_in id 'echo 1000'
cannot 'neither root nor sudo. As root run: apt-get install gcc '
stand_in sudo 'echo "sudo: a password is required" >&2; exit 1'
cannot 'sudo: a password is required'
cannot 'sudo failed, see above. As root run: apt-get install gcc '
finish
