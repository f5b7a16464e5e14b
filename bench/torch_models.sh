#!/bin/bash
# torch_models.sh: steps and tokens of PyTorch models with backend tutti, also with buckets in the group's memory, beside Gloo, in
# one run: milliseconds.
#
#   PYTHON=venv/bin/python bench/torch_models.sh                  2 and 4 ranks, medians of ROUNDS=3 turns A B C A B C ...
#   RANKS=2 MODELS="ddp_mini_resnet" bench/torch_models.sh        bench/peer/pytorch_models.py lists the models
#
# PYTHON has PyTorch and python/ installed. The table is Markdown, for RECORDS.md. One thread a rank.
. "$(dirname "$0")/lib.sh"
ROUNDS=${ROUNDS:-3} RANKS=${RANKS:-2 4} PYTHON=${PYTHON:-python3}
MODELS=${MODELS:-ddp_mini_resnet ddp_gpt2 fsdp2_gpt2 tp_llama}
export OMP_NUM_THREADS=1

torch_check
printf '| model | ranks | Gloo ms | tutti ms | in group memory, ms | Gloo / tutti | Gloo / in group memory |\n|---|---|---|---|---|---|---|\n'
for ranks in $RANKS; do
    for name in gloo tutti tutti_memory; do : >"$work/$name.all"; done
    for _ in $(seq "$ROUNDS"); do
        # shellcheck disable=SC2086 # one argument a model
        for name in gloo tutti tutti_memory; do through_torch pytorch_models.py 580 $name $MODELS; done
    done
    for model in $MODELS; do
        g=$(sed -n "s/^$model //p" "$work/gloo.all" | median) t=$(sed -n "s/^$model //p" "$work/tutti.all" | median)
        m=$(sed -n "s/^$model //p" "$work/tutti_memory.all" | median)
        printf '| %s | %s | %s | %s | %s | %s | %s |\n' "$model" "$ranks" "$g" "$t" "$m" "$(ratio "$g" "$t")" "$(ratio "$g" "$m")"
    done
done
