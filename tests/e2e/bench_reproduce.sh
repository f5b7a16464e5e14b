# bench_reproduce.sh -- `tutti bench reproduce`: a record's command is run, and its ratios are compared; the README's tables.
# SPDX-License-Identifier: MIT
. "${SOURCE_DIR:?is set by ctest}/tests/harness/expect.sh"

says() { # TEXT: in either output
    cat "$work/out" "$work/err" | grep -qF -- "$1" || { fail "no \"$1\" in the output:"; head -20 "$work/out" "$work/err"; }
}

mkdir -p "$work/clone/bench"
records=$work/clone/bench/records.json
record() { # BETTER OURS PEER COMMAND [ASKED]
    cat >"$records" <<END
{"speed": {"title": "a figure", "peer": "Other", "command": "$4", "needs": "nothing", "measured": "one day",
  "figures": [{"what": "speed", "unit": "s", "better": "$1", "ours": $2, "peer": $3, ${5:+"\"asked\": $5,"}
    "our_cell": ["tutti", "time, s"], "peer_cell": ["other", "time, s"]}]}}
END
}
tables='printf "| a | b |\\n|---|---|\\n| tutti | 9 |\\n\\n| | kind | time, s |\\n|---|---|---|\\n| tutti | x | 2.0 (1 to 3) |\\n| the other | y | 6 |\\n"'
command=${tables//\\/\\\\} && command=${command//\"/\\\"}

record lower 4 12 "$command" 2 # three times better then, and now
run 0 "$TUTTI" bench reproduce speed --records "$records"
says "| speed | 2 s | 6 s | 3.00 | 3.00 | agrees, as asked |"
says "speed: this machine agrees with the record"
record lower 4 48 "$command" 5
run 1 "$TUTTI" bench reproduce speed --records "$records"
says "| 3.00 | 12.00 | worse, less than asked |"
says "does not agree"
run 0 "$TUTTI" bench reproduce speed --records "$records" --within 4
record higher 1 8 "$command" # as a rate it is 0.33
run 0 "$TUTTI" bench reproduce speed --records="$records"
says "| 0.33 | 0.12 | better |"
run 0 "$TUTTI" bench reproduce --records "$records"
says "needs nothing"
run 0 "$TUTTI" bench reproduce speed --records "$records" --table
equal "the row" "$(cat "$work/out")" "| speed | 1 s | 8 s | **0.12x** |"

# The command runs in the repository, with this executable, and may fail or print no figure of the peer.
record lower 1 2 'pwd; echo is $TUTTI'
run 1 "$TUTTI" bench reproduce speed --records "$records"
says "$(realpath "$work/clone")"
says "is $(realpath "$TUTTI")"
says "not measured: it needs nothing"
says "this machine was not compared with all of the record"
record lower 1 2 'printf \"| a | time, s |\\n|---|---|\\n| tutti | 2 |\\n\"' # the peer is not there
run 1 "$TUTTI" bench reproduce speed --records "$records"
says "| speed | 2 s | - | - | 2.00 | not measured: it needs nothing |"
record lower 1 2 'exit 7'
run 1 "$TUTTI" bench reproduce speed --records "$records"
says "exit 7 failed (exit code 7)"

record lower 1 2 true
run 2 "$TUTTI" bench reproduce sped --records "$records"
says "speed"
run 2 "$TUTTI" bench reproduce speed other --records "$records"
run 2 "$TUTTI" bench reproduce speed --records "$records" --within 0.5
says "factor of at least 1"
run 2 "$TUTTI" bench reproduce speed --records "$records" --tabel
says "--table"
run 2 "$TUTTI" bench reproduce --table --records "$records"
run 2 "$TUTTI" bench reproduce --records "$work/none.json"
says "No such file"
sed -i 's/"lower"/"less"/' "$records"
run 2 "$TUTTI" bench reproduce --records "$records"
says 'record speed, figure 1: "better" is "less"'
sed -i 's/"ours": 1/"ours": "1"/; s/"less"/"lower"/' "$records"
run 2 "$TUTTI" bench reproduce --records "$records"
says '"ours" is missing, or no number above 0'
echo '{' >"$records"
run 2 "$TUTTI" bench reproduce --records "$records"
says "line"

"$SOURCE_DIR/tools/make-records" --check || fail "README.md is old"
run 0 "$TUTTI" bench reproduce --help
says "usage: tutti bench reproduce"
finish
