#!/bin/bash
# torch_collectives.sh: collectives of PyTorch on CPU tensors with backend tutti, beside Gloo, beside PyTorch's no-op backend (what
# torch.distributed itself costs) and beside the same collective inside the library, in one run.
#
#   PYTHON=venv/bin/python bench/torch_collectives.sh        2 and 4 ranks, medians of ROUNDS=5 turns A B C A B C ...
#   RANKS=2 ROUNDS=3 OPS="all_reduce" SIZES="4 65536" TUTTI_TORCH_IMPLEMENTATION=python bench/torch_collectives.sh
#   BACKENDS=mpi PYTHON=/usr/bin/python3 USE_LIBUV=0 bench/torch_collectives.sh     also PyTorch's MPI, where it is built in (Debian 13)
#
# PYTHON has PyTorch and python/ installed. Tensors are in ordinary memory, as a program has them. The tables are Markdown, for
# RECORDS.md. "send_recv" is a message there and one back.
. "$(dirname "$0")/lib.sh"
ROUNDS=${ROUNDS:-5} RANKS=${RANKS:-2 4} PYTHON=${PYTHON:-python3} BACKENDS=${BACKENDS:-}
SIZES=${SIZES:-4 4096 65536 1048576 26214400}
export OPS=${OPS:-all_reduce all_gather reduce_scatter all_to_all send_recv} OMP_NUM_THREADS=1

torch_check
inside() {
    for op in $OPS; do
        name=$op
        [ "$op" != send_recv ] || name=ping_pong
        ours "$name" "$ranks" "$SIZES" --memory plain | sed "s/^/$op /" >>"$work/inside.all"
    done
}
of() { grep "^$2 " "$work/$1.all" | cut -d' ' -f2- >"$work/$1.times"; median_of "$1" "$3"; } # NAME OP BYTES

for ranks in $RANKS; do
    for name in gloo tutti fake $BACKENDS inside; do : >"$work/$name.all"; done
    for _ in $(seq "$ROUNDS"); do
        # shellcheck disable=SC2086 # one argument a size
        for name in gloo tutti fake $BACKENDS; do through_torch pytorch_collectives.py 300 $name $SIZES; done
        inside
    done
    for op in $OPS; do
        printf '\n%s, %s ranks, F32, us: medians of %s turns\n\n' "$op" "$ranks" "$ROUNDS"
        title="" line=""
        for name in $BACKENDS; do title+=" $name |" line+="---|"; done
        printf '| bytes | Gloo | tutti | no-op | inside the library | Gloo / tutti | tutti - no-op |%s\n' "$title"
        printf '|---|---|---|---|---|---|---|%s\n' "$line"
        for b in $SIZES; do
            g=$(of gloo "$op" "$b") t=$(of tutti "$op" "$b") f=$(of fake "$op" "$b") i=$(of inside "$op" "$b")
            printf '| %s | %s | %s | %s | %s | %s | %s |' "$b" "$g" "$t" "$f" "$i" "$(ratio "$g" "$t")" \
                "$(awk -v a="$t" -v b="$f" 'BEGIN {print a == "-" || b == "-" ? "-" : a - b}')"
            for name in $BACKENDS; do printf ' %s |' "$(of "$name" "$op" "$b")"; done
            printf '\n'
        done
    done
done
