# slurm.sh -- a Slurm of its own for the script that sources it.   SPDX-License-Identifier: MIT
#
# slurm_hosts N, before anything else: the script goes on in namespaces of its own, where the nodes of slurm_start are N hosts
# n0, n1, ... on a bridge, each with its own network and name, and where nothing outlives the script. Needs root and iproute2.
# slurm_start: starts it, and srun works; or says why not and skips (exit 77). It ends with slurm_stop; call that on EXIT.
# Needs $work and TUTTI. Without slurm_hosts there is one node, on loopback.
slurm_pids=""
slurm_nodes=""

slurm_stop() {
    [ -z "$slurm_pids" ] || kill $slurm_pids 2>/dev/null
    wait $slurm_pids 2>/dev/null
    slurm_pids=""
}
slurm_skip() {
    echo "skipped: $1"
    exit 77
}
slurm_free_port() { "$TUTTI" run -n 1 sh -c 'echo $MASTER_PORT'; }
slurm_programs() {
    PATH=$PATH:/usr/sbin:/sbin
    for program in slurmctld slurmd srun sinfo; do
        command -v $program >/dev/null || slurm_skip "no $program (slurmctld, slurmd and slurm-client of Debian)"
    done
}

slurm_hosts() {
    local new="unshare --net --mount --uts --ipc --pid --fork --kill-child --mount-proc"
    slurm_programs
    if [ -z "${SLURM_TEST_INSIDE:-}" ]; then
        [ "$(id -u)" = 0 ] || slurm_skip "hosts of one's own need root"
        command -v ip >/dev/null || slurm_skip "no ip (iproute2 of Debian)"
        $new true 2>/dev/null || slurm_skip "namespaces of one's own are forbidden here"
        SLURM_TEST_INSIDE=yes exec $new bash "$0"
    fi
    slurm_nodes=$1
}
# The hub's side: a bridge; names for all.
slurm_hub() {
    hostname hub
    ip link set lo up
    { ip link add hub type bridge && ip addr add 10.88.0.254/24 dev hub && ip link set hub up; } 2>/dev/null ||
        slurm_skip "no bridge between namespaces here"
    echo "127.0.0.1 localhost" >"$work/hosts"
    echo "10.88.0.254 hub" >>"$work/hosts"
    for ((i = 0; i < slurm_nodes; i++)); do echo "10.88.0.$((i + 1)) n$i" >>"$work/hosts"; done
    mount --bind "$work/hosts" /etc/hosts
}
# slurm_host I COMMAND...: in the background on a host of its own; its process is $!.
slurm_host() {
    local i=$1
    shift
    unshare --net --uts bash -c '
        hostname "n$0"
        ip link set lo up
        for _ in $(seq 500); do
            ip link show eth0 >/dev/null 2>&1 && break
            sleep 0.01
        done
        ip addr add "10.88.0.$(($0 + 1))/24" dev eth0 && ip link set eth0 up && exec "$@"' "$i" "$@" &
    local pid=$!
    for _ in $(seq 500); do
        [ "$(readlink /proc/$pid/ns/net)" = "$(readlink /proc/self/ns/net)" ] || break
        sleep 0.01
    done
    ip link add "port$i" type veth peer name eth0 netns $pid
    ip link set "port$i" master hub up
}
slurm_configuration() { # DIR: what all clusters have
    cat <<END
ClusterName=test
AuthType=auth/none
CredType=cred/none
SlurmUser=$(id -un)
SlurmdUser=$(id -un)
StateSaveLocation=$1/state
SlurmdSpoolDir=$1/spool-%n
SlurmctldPidFile=$1/slurmctld.pid
SlurmdPidFile=$1/slurmd-%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
SchedulerParameters=batch_sched_delay=0,sched_interval=1
MpiDefault=none
ReturnToService=2
JobRequeue=1
KillWait=${SLURM_KILL_WAIT:-5}
END
}
slurm_start() {
    local dir=$work/slurm host n=${slurm_nodes:-1}
    slurm_programs
    mkdir -p "$dir/state"
    slurm_configuration "$dir" >"$dir/slurm.conf"
    export SLURM_CONF=$dir/slurm.conf
    if [ -n "$slurm_nodes" ]; then
        slurm_hub
        cat >>"$SLURM_CONF" <<END
SlurmctldHost=hub(10.88.0.254)
SlurmctldPort=6817
SlurmdPort=6818
NodeName=n[0-$((n - 1))] CPUs=4 State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
END
    else
        host=$(uname -n)
        host=${host%%.*}
        cat >>"$SLURM_CONF" <<END
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$(slurm_free_port)
SlurmdPort=$(slurm_free_port)
NodeName=$host NodeAddr=127.0.0.1 CPUs=$(nproc) State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:8
END
    fi
    slurmctld -D -c >"$dir/slurmctld.out" 2>&1 &
    slurm_pids=$!
    for ((i = 0; i < n; i++)); do
        if [ -n "$slurm_nodes" ]; then
            slurm_host $i slurmd -D -c -N "n$i" >"$dir/slurmd-n$i.out" 2>&1
        else
            slurmd -D -c >"$dir/slurmd.out" 2>&1 &
        fi
        slurm_pids="$slurm_pids $!"
    done
    for _ in $(seq 150); do
        [ "$(sinfo -h -t idle -o %D 2>/dev/null)" = "$n" ] && return
        kill -0 $slurm_pids 2>/dev/null || break
        sleep 0.1
    done
    slurm_skip "a Slurm of $n nodes does not come up: $(tail -qn1 "$dir"/*.out | tr '\n' ' ')"
}
