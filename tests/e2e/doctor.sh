# doctor.sh -- `tutti doctor` on this machine, and on one that is broken on purpose.   SPDX-License-Identifier: MIT
# timeout: 120   run: waiting
. "${SOURCE_DIR:?}/tests/harness/expect.sh" || exit 1
cd "${work:?}" || exit 1 # else the following would write to /
set -u
unset TUTTI_SECRET_FILE TUTTI_SOCKET_IFNAME TUTTI_KERNELS

doctor() { # CODE ARGUMENTS...
    local code=$1
    shift
    run "$code" "$TUTTI" doctor "$@"
}
# The line of a finding, and for problems the remedy on the next.
found() { # MARK PATTERN [REMEDY]
    out_has "^  $1 +$2"
    [ $# = 2 ] || grep -E -A1 -- "^  $1 +$2" "$work/out" | grep -qE "^ +remedy: .*$3" || fail "no remedy \"$3\" after \"$2\""
}

# ---- The whole page, and the same as JSON. The exit code depends on this machine.
timeout 180 "$TUTTI" doctor --json "$work/all.json" >"$work/out" 2>"$work/err"
code=$?
out_has '^Tutti [0-9.]+ on '
out_has '^[0-9]+ problems?, [0-9]+ warnings? in [0-9.]+ s$'
problems=$(sed -n 's/^\([0-9]*\) problem.*/\1/p' "$work/out")
equal "exit code" "$code" $((problems > 0))
counted=$(grep -o 'Tutti counts [0-9]*' "$work/out")
bound=$(OMP_PROC_BIND=true OMP_PLACES=threads timeout 180 "$TUTTI" doctor processor | grep -o 'Tutti counts [0-9]*')
equal "cores where OpenMP binds" "$bound" "$counted"
for title in Processor Memory Network Storage GPU Environment; do out_has "^$title$"; done
awk '/^  (warning|problem)/ { if (open) exit 1; open = 1; next } { if (open && !/^ +remedy: ./) exit 1; open = 0 } END { exit open }' "$work/out" ||
    fail "a warning or problem without a remedy on the next line"
grep -qvE '^$|^[A-Z0-9]|^  (ok|note|warning|problem) +[^:]+: .|^           remedy: .' "$work/out" && fail "lines of another form"
grep -q $'\033' "$work/out" && fail "colours without a terminal"
if command -v python3 >/dev/null; then
    python3 - "$work/all.json" "$problems" <<'END' || fail "the JSON"
import json, sys
page = json.load(open(sys.argv[1]))
found = page["findings"]
assert page["problems"] == int(sys.argv[2]) == sum(f["mark"] == "problem" for f in found)
assert page["warnings"] == sum(f["mark"] == "warning" for f in found)
assert all(f["mark"] in ("ok", "note", "warning", "problem") for f in found)
assert all(f["remedy"] for f in found if f["mark"] in ("warning", "problem"))
groups = {"processor", "memory", "system", "network", "storage", "gpu", "cluster", "environment", "ranks"}
assert {f["group"] for f in found} == groups, {f["group"] for f in found}
END
    timeout 60 "$TUTTI" doctor --json - storage environment | python3 -c 'import json, sys; json.load(sys.stdin)' ||
        fail "--json - prints more than JSON"
fi
[ -z "$(ls -A "$work" | grep -vE '^(out|err|all.json|\.tmp)$')" ] || fail "it left something: $(ls -A "$work")"

# ---- Two ranks work here, or no other test would.
doctor 0 ranks
found ok 'over shared memory: met in [0-9.]+ ms'
found ok 'over TCP \(loopback\): met in'
TUTTI_COLOR=always doctor 0 ranks
grep -q $'\033\[32mok' "$work/out" || fail "no colours though asked for"
SLURM_PROCID=3 RANK=1 WORLD_SIZE=9 MASTER_ADDR=192.0.2.1 doctor 0 ranks # a job's environment changes nothing
if command -v taskset >/dev/null; then # also on one core beside a busy program of a better priority
    core=$(taskset -cp $$ | sed 's/.*: \([0-9]*\).*/\1/')
    taskset -c "$core" sh -c 'while :; do :; done' &
    run 0 taskset -c "$core" nice -n 10 "$TUTTI" doctor ranks
    kill $!
fi

# ---- Command line
doctor 0 --help
for group in processor memory system network storage gpu cluster environment ranks; do out_has "^  $group "; done
doctor 2 --jsn x
err_has 'no flag "--jsn" \(did you mean "--json"\?\); see tutti doctor --help'
doctor 2 memry
err_has 'no group "memry" \(did you mean "memory"\?\)'
doctor 2 -n 0
err_has '-n is "0", expected a number of workers'
doctor 2 --json
err_has '--json needs a value'
doctor 1 --json /proc/none/x ranks
err_has 'cannot write /proc/none/x'
equal "groups of a page for one" "$(timeout 60 "$TUTTI" doctor gpu | grep -cE '^[A-Z][A-Za-z ]+$')" 1

# ---- Limits
run 1 bash -c 'ulimit -n 16; exec "$TUTTI" doctor system ranks'
found problem 'open files: 16 \(hard limit 16\)' 'ulimit -n 1024'
found note 'over shared memory: not tried'
run 1 bash -c 'ulimit -n 1000; exec "$TUTTI" doctor -n 4000 system'
found problem 'open files: .* each of 4000 ranks' 'ulimit -n [0-9]+'
run 0 bash -c 'ulimit -f 100000; exec "$TUTTI" doctor system'
found warning 'file size: ' 'ulimit -f unlimited'
run 0 bash -c 'ulimit -f 100; exec "$TUTTI" doctor memory'
found warning 'shared memory: growing shared memory \(ulimit -f\)' 'ulimit -f'

# ---- Environment, secret, names of interfaces
TUTTI_TIMEOUT=5 TUTTI_SECRET=0123456789abcdef TUTTI_LOG=error NCCL_DEBUG=INFO doctor 0 environment
found warning 'TUTTI_TIMEOUT: .*ignored' 'did you mean TUTTI_TIMEOUT_S\?'
found note 'NCCL_DEBUG: INFO'
grep -q 0123456789abcdef "$work/out" && fail "it shows the secret"
env -u TORCHELASTIC_RUN_ID RANK=0 WORLD_SIZE=2 "$TUTTI" doctor environment >"$work/out"
found warning 'launcher: .*RANK is 0 and WORLD_SIZE is 2' 'unset RANK'
TUTTI_SOCKET_IFNAME=nosuch doctor 1 network
found problem 'chosen interface: TUTTI_SOCKET_IFNAME is "nosuch"' 'unset TUTTI_SOCKET_IFNAME'
TUTTI_KERNELS=fast doctor 1 processor
found problem 'kernels: TUTTI_KERNELS is "fast"' 'unset TUTTI_KERNELS'
mkdir -p "$work/home/.config/tutti" && echo 0123456789abcdef0123 >"$work/home/.config/tutti/secret"
chmod 644 "$work/home/.config/tutti/secret"
XDG_CONFIG_HOME='' HOME=$work/home doctor 1 storage
found problem 'secret: .*mode 0644' 'chmod 600 '
chmod 600 "$work/home/.config/tutti/secret"
XDG_CONFIG_HOME='' HOME=$work/home doctor 0 storage
found ok 'secret: .*mode 0600'
XDG_CONFIG_HOME=$work/home/.config HOME=$work/nobody doctor 0 storage
found ok "secret: $work/home/.config/tutti/secret, mode 0600"
mkdir "$work/gone" && (cd "$work/gone" && rmdir "$work/gone" && run 1 "$TUTTI" doctor storage && found problem 'this folder: ' 'cd to') ||
    fail "a folder that is gone"

# ---- Hanging programs are killed
mkdir "$work/bin"
for name in sinfo srun mpirun; do printf '#!/bin/sh\nexec sleep %s\n' "$marker" >"$work/bin/$name"; done
chmod +x "$work/bin/"*
PATH=$work/bin:$PATH doctor 0 cluster
found warning 'Slurm: .*no answer within 3 s' 'scontrol ping'
faster_than 15
nobody_left

# ---- A machine with broken parts: in namespaces
if [ "$(id -u)" != 0 ] || ! unshare -mn true 2>/dev/null; then
    echo "not tried: /dev/shm, ports and loopback (they need root and namespaces)"
    finish
fi
broken() { # CODE COMMANDS ARGUMENTS...: commands first, in a mount and network namespace
    local code=$1 commands=$2
    shift 2
    run "$code" unshare -mn bash -c "ip link set lo up 2>/dev/null; $commands; exec \"\$TUTTI\" doctor $*"
}
broken 0 'mount -t tmpfs -o size=256k tmpfs /dev/shm' memory
found warning '/dev/shm: .*No space left' 'size=1G'
broken 0 'mount -t tmpfs -o size=16m tmpfs /dev/shm' memory
found warning '/dev/shm: writable, but only 16' 'shm-size'
broken 0 'mount -t tmpfs -o ro tmpfs /dev/shm' memory
found warning '/dev/shm: .*Read-only' 'read-write'
run 1 unshare -n "$TUTTI" doctor network
found problem 'loopback: ' 'ip link set lo up'
mkfifo "$work/fifo" # reading it blocks
broken 1 "mount --bind $work/fifo /proc/sys/net/ipv4/ip_local_port_range" network
found problem 'port_range: unknown: no answer within' '.'
found ok 'loopback: '
faster_than 15
if command -v perl >/dev/null; then
    cat >"$work/taken" <<'END'
ip link set lo up
perl -MIO::Socket::INET -e '$| = 1; $s = IO::Socket::INET->new(LocalPort => 29500, Listen => 1) or die; print "up"; sleep 300' >up &
until grep -q up up; do sleep 0.01; done
"$TUTTI" doctor network
code=$?
kill %1
exit $code
END
    run 0 unshare -n bash "$work/taken"
    found warning "port: 29500 .*is taken by process [0-9]+ \(perl\) of user 0" 'another port'
    found ok 'port: 29400 '
fi

# ---- A mock GPU: its device, and the driver's library
cat >"$work/cuda.c" <<'END'
#include <stdlib.h>
#include <string.h>
int cuInit(unsigned flags) { if (getenv("CUDA_CRASH")) abort(); return getenv("CUDA_NONE") ? 100 : (int)flags; }
int cuDeviceGetCount(int *n) { *n = 2; return 0; }
int cuDriverGetVersion(int *v) { *v = 12040; return 0; }
int cuDeviceGetName(char *text, int bytes, int i) { strncpy(text, i ? "Second" : "First", bytes); return 0; }
int cuDeviceTotalMem_v2(size_t *bytes, int i) { *bytes = (size_t)(i + 1) << 34; return 0; }
END
if cc -shared -fPIC -o "$work/libcuda.so.1" "$work/cuda.c" 2>/dev/null && mkdir "$work/dev" && mknod "$work/dev/null" c 1 3 &&
    mknod "$work/dev/nvidia0" c 1 3; then
    with_gpu() { # CODE VARIABLE...
        local code=$1
        shift
        run "$code" unshare -m bash -c "mount --bind $work/dev /dev && exec env LD_LIBRARY_PATH=$work $* \"\$TUTTI\" doctor gpu"
    }
    with_gpu 0
    found ok 'CUDA: the driver supports up to 12\.4; 2 GPUs'
    found ok 'GPU 1: Second, 32\.0 GiB'
    with_gpu 0 CUDA_NONE=1
    found warning "CUDA: the driver's library finds no GPU \(cuInit: error 100\)" 'gpus all'
    with_gpu 0 CUDA_CRASH=1
    found warning 'gpus: unknown: the check was killed by signal 6' 'dmesg'
    # By a stand-in of NVIDIA's management library; reports in the kernel's log.
    nvml="LD_LIBRARY_PATH=$work:$BUILD_DIR/standin/nvml"
    printf '%s\n' '4,1,0,-;NVRM: Xid (PCI:0000:65:00): 79, pid=12, GPU has fallen off the bus.' '4,2,0,-;other' \
        '4,3,0,-;NVRM: Xid (PCI:0000:65:00): 79, pid=13' '4,4,0,-;NVRM: Xid (PCI:0000:66:00): 31, pid=13' >"$work/dev/kmsg"
    with_gpu 0 "$nvml"
    found ok 'driver version: 580\.82\.07'
    found ok 'NVML 0: Stand-in 0, 00000000:10:00\.0, compute capability 9\.0, 250 B of 1000 B used, 61 C, 123 of 700 W, ECC on, 4 NVLinks'
    found warning 'NVML 1: compute capability 7\.0: .* needs 8\.0' 'CUDA_VISIBLE_DEVICES'
    found ok 'peer access: between all pairs'
    found warning 'Xid 79: 0000:65:00, 2 times since .*fallen off the bus' 'dmesg'
    found warning 'Xid 31: 0000:66:00, 1 time since .*page fault' 'dmesg'
    with_gpu 1 "$nvml" STANDIN_NVML=lost STANDIN_ECC=1
    found problem 'NVML 1: the driver cannot reach it' 'reboot'
    found warning 'NVML 0: 3 uncorrectable ECC memory errors' 'reset'
    with_gpu 0 "$nvml" STANDIN_NVML=bare
    found note 'peer access: 1 of 1 pairs of GPUs have none'
    with_gpu 0 "LD_LIBRARY_PATH=$work:$BUILD_DIR/standin/nvml_old"
    found ok 'NVML 1: \?, '
    rm "$work/libcuda.so.1" "$work/dev/kmsg"
    with_gpu 0
    found warning 'CUDA: libcuda.so.1 cannot be loaded' 'libcuda1'
fi
finish
