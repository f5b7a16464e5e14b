# diff.sh -- for scripts that compare runs, after train.sh.   SPDX-License-Identifier: MIT
#
# What `tutti diff` says, on both streams, is in diff.out, for says.
compared() { # CODE ARGUMENTS...
    local code=$1 got=0
    shift
    timeout 120 "$TUTTI" diff "$@" >diff.out 2>&1 || got=$?
    [ $got = "$code" ] || { cat diff.out && fail "exit code $got, expected $code: tutti diff $*"; }
}
equal() { compared 0 "$@"; }
differ() { compared 1 "$@"; }
