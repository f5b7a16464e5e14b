# expect.sh -- for test scripts: counted expectations, a work folder that is removed, processes found by a marker.
# SPDX-License-Identifier: MIT
#
# . "${SOURCE_DIR:?is set by ctest}/tests/harness/expect.sh"; ... ; finish
set -u
failures=0
work=$(mktemp -d)
mkdir "$work/.tmp"
unset NO_COLOR OMP_NUM_THREADS # a continuous integration may set them
export LC_ALL=C.UTF-8 # numbers have a point, and no shell warns of a locale that is not installed
export TMPDIR=$work/.tmp # a launcher leaves a folder here if both its processes are killed at once
printf -v marker '9%07d' $(($$ % 10000000)) # seconds for `sleep`: no other process sleeps as long, and none a beginning of it
# A child that is killed between fork and exec has this trap, too.
trap '[ $BASHPID != $$ ] || { pkill -KILL -f "sleep $marker" 2>/dev/null; rm -rf "$work"; }' EXIT

details() { :; } # prints more about a failure
fail() {
    echo "FAILED: $1"
    failures=$((failures + 1))
    details
}

# run CODE COMMAND...: in at most 60 seconds (or $seconds_at_most) with this exit code; its output in $out, $err (files) and $seconds taken
run() {
    local code=$1 got begin
    shift
    begin=$(date +%s%N)
    timeout -k 2 "${seconds_at_most:-60}" "$@" >"$work/out" 2>"$work/err"
    got=$?
    seconds=$(awk "BEGIN { print ($(date +%s%N) - $begin) / 1e9 }")
    [ "$got" = "$code" ] && return
    fail "exit code $got, expected $code: $*"
    sed 's/^/    out: /' "$work/out" | head -20
    sed 's/^/    err: /' "$work/err" | head -20
}
out_has() {
    grep -qE -- "$1" "$work/out" || { fail "no \"$1\" in the output:"; head -20 "$work/out"; }
}
err_has() {
    grep -qE -- "$1" "$work/err" || { fail "no \"$1\" in the error output:"; head -20 "$work/err"; }
}
equal() { # WHAT GOT EXPECTED
    [ "$2" = "$3" ] || fail "$1: \"$2\", expected \"$3\""
}
faster_than() { # SECONDS: the last run
    awk "BEGIN { exit !($seconds < $1) }" || fail "took $seconds s, expected less than $1 s"
}
wait_until() { # WHAT COMMAND...: polled for at most 60 seconds
    local what=$1 end=$((SECONDS + 60))
    shift
    while ((SECONDS < end)); do
        "$@" >/dev/null 2>&1 && return 0
        sleep 0.01
    done
    fail "never: $what"
    return 1
}
sleepers() { # N: exactly N processes with our marker
    [ "$(pgrep -fc "^sleep $marker")" = "$1" ]
}
nobody_left() {
    wait_until "all processes gone" sleepers 0 || pgrep -af "^sleep $marker"
}
finish() {
    exit $((failures > 0))
}
