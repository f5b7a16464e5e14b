# slurm.sh -- a Slurm of one node for the script that sources it; needs $work and TUTTI.   SPDX-License-Identifier: MIT
#
# slurm_start: starts it, and srun works; or says why not and skips (exit 77). It ends with slurm_stop; call that on EXIT.
slurm_pids=""

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
slurm_start() {
    local dir=$work/slurm host
    host=$(uname -n)
    host=${host%%.*}
    PATH=$PATH:/usr/sbin:/sbin
    for program in slurmctld slurmd srun sinfo; do
        command -v $program >/dev/null || slurm_skip "no $program (slurmctld, slurmd and slurm-client of Debian)"
    done
    mkdir -p "$dir/state" "$dir/spool"
    cat >"$dir/slurm.conf" <<END
ClusterName=test
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$(slurm_free_port)
SlurmdPort=$(slurm_free_port)
AuthType=auth/none
CredType=cred/none
SlurmUser=$(id -un)
SlurmdUser=$(id -un)
StateSaveLocation=$dir/state
SlurmdSpoolDir=$dir/spool
SlurmctldPidFile=$dir/slurmctld.pid
SlurmdPidFile=$dir/slurmd.pid
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
ReturnToService=2
NodeName=$host NodeAddr=127.0.0.1 CPUs=$(nproc) State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:8
END
    export SLURM_CONF=$dir/slurm.conf
    slurmctld -D -c >"$dir/slurmctld.out" 2>&1 &
    slurm_pids=$!
    slurmd -D -c >"$dir/slurmd.out" 2>&1 &
    slurm_pids="$slurm_pids $!"
    for _ in $(seq 100); do
        sinfo -h -t idle -o %D 2>/dev/null | grep -x 1 >/dev/null && return
        sleep 0.1
    done
    slurm_skip "a Slurm of one node does not come up: $(tail -qn1 "$dir"/*.out | tr '\n' ' ')"
}
