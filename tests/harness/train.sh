# train.sh -- shared by the scripts that run `tutti train`; sourced.   SPDX-License-Identifier: MIT
set -euo pipefail
work=$(mktemp -d)
cd -P "$work"
work=$PWD
# end_all: kills what still runs in the work folder, so that a test that fails leaves no training behind, not even a stopped one.
end_all() {
    local running
    while running=$(cd / && find /proc/[0-9]* -maxdepth 1 -name cwd -lname "$work*" ! -path "/proc/$$/*" -printf '%h ' 2>/dev/null || true) && [ -n "$running" ]; do
        kill -KILL ${running//\/proc\//} 2>/dev/null || true
    done
}
trap '[ $BASHPID != $$ ] || { end_all; rm -rf "$work"; }' EXIT # not in a child that is killed between fork and exec
export TUTTI_COLOR=never LC_ALL=C.UTF-8
unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT NO_COLOR OMP_NUM_THREADS

exec {nothing}<> <(:)
pause() { # MILLISECONDS, without a process. Between the looks of a loop that waits: one without a pause takes a core from what it waits for.
    local seconds
    printf -v seconds '%d.%03d' $(($1 / 1000)) $(($1 % 1000))
    read -r -t "$seconds" -u "$nothing" || true
}
fail() {
    echo "FAILED: $*"
    exit 1
}
# train DIR ARGUMENTS...: a run into DIR that must succeed.
train() {
    local dir=$1
    shift
    local code=0
    timeout 360 "$TUTTI" train --run-dir "$dir" "$@" >"$dir.out" 2>&1 || code=$?
    [ $code = 0 ] || { cat "$dir.out"; fail "exit code $code from: tutti train --run-dir $dir $*"; }
}
# refused CODE TEXT COMMAND...: COMMAND itself must exit with CODE and print TEXT (a fixed string), within seconds.
refused() {
    local code=$1 text=$2 got=0
    shift 2
    timeout 180 "$@" >refused.out 2>&1 || got=$?
    [ "$got" = "$code" ] || { cat refused.out; fail "exit code $got, expected $code: $*"; }
    grep -qF -e "$text" refused.out || { cat refused.out; fail "does not say \"$text\": $*"; }
}
# The process of a rank (or $rank_variable: SLURM_PROCID) among those whose command line has a pattern.
process_of() { # RANK PATTERN
    local pid
    for pid in $(pgrep -f -- "$2"); do
        grep -zqsx "${rank_variable:-RANK}=$1" "/proc/$pid/environ" && echo "$pid" && return
    done
}
killed_is_named() { # RANK ARGUMENTS...: a run, into "killed", of which that rank is killed: the others name it
    local rank=$1 run code=0
    shift
    "$TUTTI" train --run-dir killed "$@" --max-steps 1000000 --epochs 1000000 --eval-steps 0 --eval-every 0 >killed.out 2>&1 &
    run=$!
    until grep -q '"step": 3,' killed/metrics.jsonl 2>/dev/null; do kill -0 $run || { cat killed.out && fail "it ended early"; }; pause 5; done
    kill -KILL "$(process_of "$rank" "run-dir killed")"
    wait $run || code=$?
    [ $code != 0 ] || fail "a killed rank was not noticed"
    says killed "rank $rank.*(was lost|killed)"
}
says() { grep -qE -e "$2" "$1.out" || { cat "$1.out" && fail "$1 does not say \"$2\""; }; } # DIR REGEX
mute() { ! grep -qE -e "$2" "$1.out" || { cat "$1.out" && fail "$1 says \"$2\""; }; }
field() { sed -n "s/^.*\"$2\": \"\{0,1\}\([^,\"}]*\).*$/\1/p" "$1" | tail -1; } # FILE KEY
digest() { field "$1/summary.json" parameter_digest; }
losses() { sed -n 's/.*"loss": \([^,]*\),.*/\1/p' "$1/metrics.jsonl"; }
# The tensors of a checkpoint with their digests, whether they are in one file or in parts; and whether two have the same.
saved() { # CHECKPOINT
    local file
    for file in "$1"/{model,optimizer}.safetensors; do
        [ -e "$file" ] || file=$file.index.json
        "$TUTTI" checkpoint show --digest "$file" | sed '1,/^  name /d; s/  */ /g' | sort
    done
}
same_saved() { [ -n "$(saved "$1")" ] && diff <(saved "$1") <(saved "$2"); } # CHECKPOINT CHECKPOINT
same() { [ "$(digest "$1")" = "$(digest "$2")" ] || fail "digests of $1 and $2 differ"; }
# Of each logged step: number, loss, norm of the gradients.
figures() { sed -n 's/.*"step": \([0-9]*\),.*"loss": \([^,]*\),.*"grad_norm": \([^,]*\),.*/\1 \2 \3/p' "$1/metrics.jsonl"; }
alike() { # A B: the same run: digests, figures and results
    same "$1" "$2"
    diff <(figures "$1") <(figures "$2") || fail "losses or norms of $1 and $2 differ"
    for field in val_loss val_accuracy parameters train_loss; do
        [ "$(field "$1/summary.json" $field)" = "$(field "$2/summary.json" $field)" ] || fail "$field of $1 and $2 differ"
    done
}
# The F32 numbers of a safetensors file, one a line.
numbers() {
    local header
    header=$(od -An -tu8 -N8 "$1" | tr -d ' ')
    od -An -v -tf4 -w4 -j $((8 + header)) "$1"
}
# close A B TOLERANCE: two columns of numbers that agree to TOLERANCE * max(1, |a|).
close() {
    paste "$1" "$2" | awk -v tolerance="$3" '
        NF != 2 { print "line " NR ": one side is missing"; bad = 1; exit }
        { d = $1 - $2; d = d < 0 ? -d : d; m = $1 < 0 ? -$1 : $1; if (m < 1) m = 1
          if (!(d <= tolerance * m)) { print "line " NR ": " $1 " and " $2; bad = 1; exit } }
        END { if (NR == 0) print "nothing to compare"; exit bad || NR == 0 }' || fail "$1 and $2 differ by more than $3"
}
freeze() { # PID: returns when its threads stand still, too: one in a system call ends that first
    kill -STOP "$1"
    while grep -h '^State:' "/proc/$1/task/"*/status 2>freeze.err | grep -qv '[Tt] ('; do pause 1; done
}
# launched DIR LAUNCHER... -- ARGUMENTS...: a run in folder DIR, whose ranks LAUNCHER starts
launched() {
    local dir=$1 launcher=()
    shift
    while [ "$1" != -- ]; do
        launcher+=("$1")
        shift
    done
    shift
    local code=0
    "${launcher[@]}" "$TUTTI" train --run-dir "$dir" "$@" >"$dir.out" 2>&1 || code=$?
    [ $code = 0 ] || { cat "$dir.out"; fail "exit code $code from: ${launcher[*]} tutti train $*"; }
}
# tokenizer_json [MERGE]...: a tokenizer of the 256 bytes, in their order, of what these merges make ("LEFT RIGHT", as GPT-2 writes bytes), and of
# <|endoftext|>.
tokenizer_json() {
    local n i text character separator= characters=()
    for ((i = n = 0; i < 256; i++)); do
        character=$i
        ((i > 32 && i < 127)) || ((i > 160 && i < 173)) || ((i > 173)) || character=$((256 + n++))
        characters+=("$(printf '\\u%04x' $character)")
    done
    printf '{"added_tokens": [{"id": %d, "content": "<|endoftext|>", "special": true}],\n' $((256 + $#))
    printf '"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "use_regex": true},\n'
    printf '"model": {"type": "BPE", "vocab": {\n'
    n=0
    for text in "${characters[@]}" "$@"; do
        printf '"%s": %d,\n' "${text// /}" $((n++))
    done
    printf '"<|endoftext|>": %d}, "merges": [' $n
    for text in "$@"; do
        printf '%s"%s"' "$separator" "$text"
        separator=', '
    done
    printf ']}}\n'
}
