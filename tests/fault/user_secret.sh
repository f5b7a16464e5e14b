# user_secret.sh -- ranks without a launcher's secret use their user's: generated once, unreadable to others, and required of every process
# that connects to their job.   SPDX-License-Identifier: MIT
. "${SOURCE_DIR:?is set by ctest}/tests/harness/expect.sh"
unset RANK WORLD_SIZE LOCAL_RANK MASTER_ADDR MASTER_PORT TUTTI_SECRET TUTTI_SECRET_FILE TUTTI_STORE XDG_CONFIG_HOME
export HOME=$work/home TUTTI_TIMEOUT_S=15
mkdir "$HOME"
secret=$HOME/.config/tutti/secret
port=$("$TUTTI" run -n 1 sh -c 'echo $MASTER_PORT')
[ -e "$HOME/.config" ] && fail "tutti run, which makes a secret for each job, made the user's"

# rank R SIZE COMMAND...: as a rank that was started by hand; its messages are in $work/R.err
rank() {
    local r=$1 size=$2
    shift 2
    RANK=$r LOCAL_RANK=$r WORLD_SIZE=$size LOCAL_WORLD_SIZE=$size MASTER_ADDR=127.0.0.1 MASTER_PORT=$port \
        timeout -k 2 90 "$@" >"$work/$r.out" 2>"$work/$r.err"
}
says() { grep -qE -- "$2" "$work/$1.err" || { fail "rank $1 does not print \"$2\":"; cat "$work/$1.err"; }; }
bench="$TUTTI bench barrier --iterations 1"

# Seven ranks find no secret, and generate one.
pids=""
for r in 0 1 2 3 4 5 6; do
    rank $r 7 $bench & pids="$pids $!"
done
for pid in $pids; do
    wait $pid || fail "a rank of seven: $(cat "$work"/?.err)"
done
equal "words of seven ranks" "$(cat "$work"/?.err)" ""
equal "mode and size of the secret" "$(stat -c %a/%s "$secret")" 600/65
equal "the folder's mode" "$(stat -c %a "$HOME/.config/tutti")" 700
equal "files beside it" "$(ls "$HOME/.config/tutti")" secret
before=$(cat "$secret")
XDG_CONFIG_HOME=$work/xdg run 0 env RANK=0 LOCAL_RANK=0 WORLD_SIZE=1 $bench
[ -e "$work/xdg" ] && fail "a group of one needs no secret, but one was made"

# Homes that differ, as when hosts do not share them: both sides say what to do.
mkdir "$work/other"
rank 0 2 $bench & first=$!
HOME=$work/other rank 1 2 $bench
equal "exit code beside another secret" $? 1
says 1 "has another secret: .* its host has another $work/other/.config/tutti/secret than this one .* TUTTI_SECRET_FILE"
wait_until "rank 0 says whom it turned away" grep -q 'rejects 127.0.0.1:[0-9]*: it rejects our authentication' "$work/0.err"
# The right one connects, and the job continues.
rank 1 2 $bench || fail "the right rank was turned away: $(cat "$work/1.err")"
wait $first || fail "rank 0: $(cat "$work/0.err")"
equal "the secret afterwards" "$(cat "$secret")" "$before"

# A secret that others could read or write, that is too short, or that cannot be read is reported.
chmod 644 "$secret"
rank 0 2 $bench
equal "exit code beside a secret for all to read" $? 2
says 0 "mode 0644; expected user $(id -u) and 0600"
printf short >"$secret" && chmod 600 "$secret"
rank 0 2 $bench
says 0 'holds 5 characters, expected at least 32'
rm "$secret" && mkfifo -m 600 "$secret" # a FIFO without a writer: must not block
rank 0 2 $bench
equal "exit code beside a pipe" $? 2
says 0 'is not a regular file'
TUTTI_SECRET_FILE=$secret rank 0 2 $bench
equal "exit code with a pipe as TUTTI_SECRET_FILE" $? 2
says 0 'TUTTI_SECRET_FILE. is not a regular file'
TUTTI_SECRET_FILE=$secret run 2 "$TUTTI" run --nnodes 2 --node-rank 0 --master-addr 127.0.0.1 --master-port $port true
rm "$secret"
echo "$before" >"$secret" && chmod 600 "$secret"
rank 0 2 $bench & first=$!
HOME=/nonexistent rank 1 2 $bench
says 1 'expects a secret while this rank has none \(/nonexistent does not exist\)'
env -u HOME RANK=1 LOCAL_RANK=1 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port $bench >/dev/null 2>"$work/1.err"
says 1 'expects a secret while this rank has none \(HOME is not set\)'
rank 1 2 $bench
wait $first || fail "rank 0: $(cat "$work/0.err")"

# Without a secret, on loopback, the kernel tells the peer's user; another user is rejected on both sides.
nobody="runuser -u nobody --"
if [ "$(id -u)" = 0 ] && $nobody true 2>/dev/null && $nobody "$TUTTI" --version >/dev/null 2>&1; then
    export HOME=/nonexistent
    rank 0 2 $bench & first=$!
    rank 1 2 $nobody $bench
    equal "exit code of another user" $? 1
    says 1 'belongs to another user, and without a secret'
    wait_until "rank 0 says so too" grep -q 'rejects .*: it \(belongs to another user\|rejects\)' "$work/0.err"
    rank 1 2 $bench || fail "the same user without a secret: $(cat "$work/1.err")"
    wait $first || fail "rank 0 without a secret: $(cat "$work/0.err")"
    # A rank does not join a store that another user hosts at its port either.
    rank 0 2 $nobody $bench & first=$!
    rank 1 2 $bench
    equal "exit code at another user's store" $? 1
    says 1 'belongs to another user'
    rank 1 2 $nobody $bench || fail "two ranks of the user nobody: $(cat "$work/1.err")"
    wait $first || fail "two ranks of the user nobody: $(cat "$work/0.err")"
    # With a secret the kernel is not asked.
    export HOME=$work/home
    rank 0 2 $bench & first=$!
    rank 1 2 $nobody $bench
    says 1 'expects a secret while this rank has none'
    wait_until "rank 0 says so" grep -q 'rejects .*: it has no secret' "$work/0.err"
    rank 1 2 $bench
    wait $first || fail "rank 0 after it rejected a rank of another user: $(cat "$work/0.err")"
    # No file is written into a home that belongs to another user.
    mkdir "$work/theirs" && chown nobody "$work/theirs"
    rank 0 2 env HOME="$work/theirs" $bench & first=$!
    rank 1 2 env HOME="$work/theirs" $bench
    wait $first
    [ -e "$work/theirs/.config" ] && fail "a file of root's in another user's home"
else
    echo "other users were left out: this needs root, runuser, and a build that nobody can run"
fi
finish
