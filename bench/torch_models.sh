#!/bin/bash
# torch_models.sh: steps and tokens of PyTorch models with backend tutti beside Gloo, in one run: milliseconds.
#
#   PYTHON=venv/bin/python bench/torch_models.sh                  2 and 4 ranks, medians of ROUNDS=3 turns A B A B ...
#   RANKS=2 MODELS="ddp_mini_resnet" bench/torch_models.sh        bench/peer/pytorch_models.py lists the models
#
# PYTHON has PyTorch and python/ installed. The table is Markdown, for RECORDS.md. One thread a rank.
. "$(dirname "$0")/lib.sh"
ROUNDS=${ROUNDS:-3} RANKS=${RANKS:-2 4} PYTHON=${PYTHON:-python3}
MODELS=${MODELS:-ddp_mini_resnet ddp_gpt2 fsdp2_gpt2 tp_llama}
export OMP_NUM_THREADS=1

"$PYTHON" -c 'import torch.distributed, tutti_torch' || { echo "torch_models.sh: PYTHON=$PYTHON has no torch or no tutti_torch" >&2; exit 2; }
printf '| model | ranks | Gloo ms | tutti ms | Gloo / tutti |\n|---|---|---|---|---|\n'
for ranks in $RANKS; do
    for name in gloo tutti; do : >"$work/$name.all"; done
    for _ in $(seq "$ROUNDS"); do
        for name in gloo tutti; do
            # shellcheck disable=SC2086 # one argument a model
            timeout 580 "$TUTTI" run -n "$ranks" "$PYTHON" bench/peer/pytorch_models.py $name $MODELS 2>"$work/$name.log" |
                sed 's/^\[[^]]*\] *//' | grep -E '^[a-z0-9_]+ [0-9.]+$' >>"$work/$name.all" || tail -n 3 "$work/$name.log" >&2
        done
    done
    for model in $MODELS; do
        g=$(sed -n "s/^$model //p" "$work/gloo.all" | median) t=$(sed -n "s/^$model //p" "$work/tutti.all" | median)
        printf '| %s | %s | %s | %s | %s |\n' "$model" "$ranks" "$g" "$t" "$(ratio "$g" "$t")"
    done
done
