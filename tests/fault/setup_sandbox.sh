# setup_sandbox.sh -- sandboxes: refused system calls, no /proc, no loopback interface, SIGCHLD ignored. Ranks train to the same
# weights without what they can do without, and report the rest at once.   SPDX-License-Identifier: MIT
. "${SOURCE_DIR:?is set by ctest}/tests/harness/expect.sh"
if grep -q '^TUTTI_SANITIZE:[A-Z]*=.' "$BUILD_DIR/CMakeCache.txt"; then
    echo "skipped: sanitizers need the system calls that are refused here, and /proc"
    exit 77
fi
cd "$work" || exit 1
refuse=$BUILD_DIR/tests/program/refuse
"$refuse" statx 38 true || exit 77
seconds_at_most=30

linear=(train -n 2 --data digits --model linear --max-steps 3 --threads 1)
digest() { sed -n 's/.*"parameter_digest": "\([^"]*\)".*/\1/p' "$1/summary.json"; }
run 0 "$TUTTI" "${linear[@]}" --run-dir all
expected=$(digest all)
[ -n "$expected" ] || fail "no digest"

# ---- Refused calls: by EPERM (1), as by a profile older than the call, or ENOSYS (38), as by another kernel.
without() { # CALL ERRNO
    rm -rf run
    run 0 "$refuse" $1 $2 "$TUTTI" "${linear[@]}" --run-dir run
    equal "the weights without $1" "$(digest run)" "$expected"
}
for call in close_range copy_file_range fadvise64 fallocate flock getcpu getrusage linkat madvise mbind memfd_create mremap \
    pidfd_open prctl prlimit64 process_vm_readv renameat2 rseq sched_getaffinity sched_setaffinity setpriority statx \
    sync_file_range sysinfo; do
    without $call 1
done
without memfd_create 38
without sched_getaffinity 38
without process_vm_readv 38
run 0 "$refuse" renameat2 1 "$TUTTI" "${linear[@]}" --resume no --run-dir run
[ -s run/earlier-1/summary.json ] || fail "the earlier run was not moved aside"
run 4 "$refuse" pipe2 1 "$TUTTI" "${linear[@]}" --run-dir none
err_has 'no pipe to the agent: Operation not permitted'
run 1 "$refuse" getrandom 1 "$TUTTI" "${linear[@]}" --run-dir none
err_has "no random bytes for the job's secret: Operation not permitted"

# ---- Children whose exit status is lost unless the signal's default is restored.
"$TUTTI" doctor processor >expected 2>&1
expected_code=$?
run $expected_code env --ignore-signal=CHLD "$TUTTI" doctor processor
equal "checks with SIGCHLD ignored" "$(grep -c '^  ok' out)" "$(grep -c '^  ok' expected)"
run 0 env --ignore-signal=CHLD "$TUTTI" "${linear[@]}" --run-dir ignored

# ---- Without /proc, and without a loopback interface
if unshare -rmn true 2>unshare.err; then
    bare=(unshare -rm sh -c 'mount -t tmpfs none /proc && exec "$@"' sh)
    if "${bare[@]}" true 2>unshare.err; then
        run 1 "${bare[@]}" "$TUTTI" "${linear[@]}" --run-dir none
        err_has 'mount -t proc proc /proc'
        run 0 "${bare[@]}" "$TUTTI" run -n 2 "$TUTTI" bench barrier --iterations 1
    fi

    # CPU quotas: of a container (version 2), and of a group above this process's (version 1), whose controllers include others
    # with that beginning, and whose period is not the usual one
    two=(unshare -rm sh -c 'mount -t tmpfs none /sys/fs/cgroup && cd /sys/fs/cgroup && touch cgroup.controllers &&
        echo "50000 100000" >cpu.max && exec "$@"' sh)
    one=(unshare -rm sh -c 'mount -t tmpfs none /sys/fs/cgroup && cd /sys/fs/cgroup && mkdir -p cpu/job/step cpuset &&
        echo 150000 >cpu/job/cpu.cfs_quota_us && echo 300000 >cpu/job/cpu.cfs_period_us && echo -1 | tee cpu/job/step/cpu.cfs_quota_us >cpu/cpu.cfs_quota_us &&
        printf "3:cpuset:/\\n2:cpuacct,cpu:/job/step\\n" >mine && mount --bind mine /proc/$$/cgroup && exec "$@"' sh)
    for quota in two one; do
        declare -n wrapper=$quota
        "${wrapper[@]}" true 2>unshare.err || continue
        run 0 "${wrapper[@]}" "$TUTTI" run -n 2 true
        err_has '2 workers share 1 core: '
    done
    # Memory: of nested groups the smallest limit, and what the group that has it uses; the doctor's processes are in the upper one
    nested=(unshare -rm sh -c 'mount -t tmpfs none /sys/fs/cgroup && cd /sys/fs/cgroup && mkdir -p job/step && touch cgroup.controllers &&
        limit() { echo $2 >$1/memory.max && echo $3 >$1/memory.current; } && limit . 268435456 209715200 && limit job 134217728 100663296 &&
        limit job/step max 4096 && echo 0::/job/step >mine && mount --bind mine /proc/$$/cgroup && cd "$0" && exec "$@"' "$PWD")
    if "${nested[@]}" true 2>unshare.err; then
        run 0 "${nested[@]}" "$TUTTI" train --data digits --model linear --max-steps 3 --run-dir nested --system-metrics
        grep -q '"memory_bytes": 100663296, "memory_percent": 75.0,' nested/metrics.jsonl || fail "memory of nested groups: $(cat nested/metrics.jsonl)"
        "${nested[@]}" "$TUTTI" doctor memory >out 2>&1
        out_has 'the cgroup allows 256 MiB, of which 200 MiB are in use'
    fi
    run 1 unshare -rn "$TUTTI" "${linear[@]}" --run-dir none
    err_has 'Network is unreachable; is the loopback interface up \(ip link set lo up\)'
fi
finish
