# slurm.sh -- a private Slurm cluster for the script that sources it.   SPDX-License-Identifier: MIT
#
# slurm_start: starts it, so that srun works; or prints why not and skips (exit 77). Call slurm_stop on EXIT.
# Needs $work and TUTTI. After hosts_enter and hosts_up (hosts.sh) each host is a node; else there is one, on loopback.
. "${SOURCE_DIR:?is set by ctest}/tests/harness/hosts.sh"
slurm_pids=""

slurm_stop() {
    [ -n "$slurm_pids" ] || return 0
    kill $slurm_pids 2>/dev/null || true
    for _ in $(seq 50); do # slurmctld may wait long for a node that ended before it
        kill -0 $slurm_pids 2>/dev/null || break
        sleep 0.1
    done
    kill -KILL $slurm_pids 2>/dev/null || true
    wait $slurm_pids 2>/dev/null || true
    slurm_pids=""
}
slurm_free_port() { "$TUTTI" run -n 1 sh -c 'echo $MASTER_PORT'; }
# Call it before hosts_enter.
slurm_needed() {
    PATH=$PATH:/usr/sbin:/sbin
    for program in slurmctld slurmd srun sinfo; do
        command -v $program >/dev/null || skip_test "no $program (slurmctld, slurmd and slurm-client of Debian)"
    done
}
# DIR: what all such clusters have
slurm_configuration() {
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
    local dir=$work/slurm host i n=${#host_pids[@]}
    slurm_needed
    mkdir -p "$dir/state"
    slurm_configuration "$dir" >"$dir/slurm.conf"
    export SLURM_CONF=$dir/slurm.conf
    if [ "$n" -gt 0 ]; then
        cat >>"$SLURM_CONF" <<END
SlurmctldHost=hub(10.88.0.254)
SlurmctldPort=6817
SlurmdPort=6818
NodeName=$(IFS=, && echo "${host_names[*]}") CPUs=4 State=UNKNOWN
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP PriorityTier=1 GraceTime=10
PartitionName=urgent Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=9
END
    else
        host=$(uname -n)
        host=${host%%.*}
        cat >>"$SLURM_CONF" <<END
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$(slurm_free_port)
SlurmdPort=$(slurm_free_port)
NodeName=$host NodeAddr=127.0.0.1 CPUs=$(($(nproc) > 4 ? $(nproc) : 4)) State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:8
END
    fi
    slurmctld -D -c >"$dir/slurmctld.out" 2>&1 &
    slurm_pids=$!
    if [ "$n" = 0 ]; then
        slurmd -D -c >"$dir/slurmd.out" 2>&1 &
        slurm_pids="$slurm_pids $!"
        n=1
    else
        for i in "${!host_pids[@]}"; do
            on_host "$i" slurmd -D -c >"$dir/slurmd-$i.out" 2>&1 &
            slurm_pids="$slurm_pids $!"
        done
    fi
    for _ in $(seq 450); do
        [ "$(sinfo -h -t idle -o %D 2>/dev/null)" = "$n" ] && return
        kill -0 $slurm_pids 2>/dev/null || break
        sleep 0.1
    done
    skip_test "a Slurm of $n nodes does not come up: $(tail -qn1 "$dir"/*.out | tr '\n' ' ')"
}
