#!/bin/bash
# gpt.sh: training steps of GPT-2 beside PyTorch and llm.c, one process each, in turn: A B A B.
#
#   PYTHON=venv/bin/python bench/gpt.sh                         tokens/s, medians of ROUNDS=3, in Markdown
#   PYTHON=venv/bin/python bench/gpt.sh ../llm.c                also llm.c's train_gpt2, built in that checkout by its Makefile
#   CASES="124M:4:64" KINDS="f32 bf16" NT=2 bench/gpt.sh        sizes NAME:BATCH:CONTEXT, number formats, threads
#   RANKS=2 NT=1 CASES="124M:4:64" bench/gpt.sh                 ranks of one thread beside DDP over Gloo
#
# A step is forward, cross entropy of the next token, backward and AdamW, on one batch in memory: bench/ddp_gpt.c here,
# bench/peer/pytorch_gpt.py there, by whichever of eager and torch.compile was faster in the first round (COMPILE=0 leaves that out).
# "of peak" is the part of the cores' measured FMA peak in F32 that 6 FLOPs a parameter and token, and those of attention, are. CPU is
# the time of all threads, which depends less on other programs. Memory is the process's peak less what it had before the model was
# made. TUTTI_CPU_ISA=avx2 limits our own kernels; PyTorch is limited by ATEN_CPU_CAPABILITY=avx2 and MKL's and oneDNN's variables.
. "$(dirname "$0")/lib.sh"
ROUNDS=${ROUNDS:-3} PYTHON=${PYTHON:-python3} NT=${NT:-2} KINDS=${KINDS:-f32 bf16} SECONDS_EACH=${SECONDS_EACH:-8} RANKS=${RANKS:-1} ZERO=${ZERO:-0}
CASES=${CASES:-124M:4:64 124M:4:256 124M:1:1024 10M:64:256}
LLMC=${1:-}
OURS=$(dirname "$TUTTI")/bench/bench_ddp_gpt
[ -x "$OURS" ] || { echo "gpt.sh: there is no $OURS: cmake --build build --target bench_ddp_gpt" >&2 && exit 2; }
"$PYTHON" -c 'import torch' 2>/dev/null || { echo "gpt.sh: PYTHON=$PYTHON has no torch" >&2 && exit 2; }

sizes_of() { # CASE KIND: arguments of both programs
    local name batch context
    IFS=: read -r name batch context <<<"$1"
    case $name in
    124M) echo -n "L=12 H=12 C=768 V=50257" ;;
    10M) echo -n "L=6 H=6 C=384 V=65" ;;
    *) echo "gpt.sh: CASES: $name is not 124M or 10M" >&2 && exit 2 ;;
    esac
    echo " B=$batch T=$context NT=$NT SECONDS=$SECONDS_EACH AMP=$([ "$2" = bf16 ] && echo 1 || echo 0) ZERO=$ZERO"
}
steps() { # NAME ARGS...: a line of the program, as NAME.lines
    local file=$work/$1.lines
    shift
    if [ "$RANKS" = 1 ]; then
        "$@" 2>"$work/log" | grep ' tok/s' >>"$file" || { tail -n 3 "$work/log" >&2 && return 1; }
    else
        timeout 580 "$TUTTI" run -n "$RANKS" "$@" 2>"$work/log" | sed 's/^\[[^]]*\] *//' | grep ' tok/s' >>"$file" ||
            { tail -n 3 "$work/log" >&2 && return 1; }
    fi
}
figure() { # NAME PATTERN: the median of the number before (tok/s), or behind, the words
    sed -n "s/$2/\1/p" "$work/$1.lines" | median
}
rate() { figure "$1" '^\([0-9.]*\) tok.s.*'; }
cpu() { figure "$1" '.*CPU \([0-9.]*\) ms.*'; }
memory() { figure "$1" '.*memory \([0-9]*\) MiB.*'; }
theirs() { # CASE KIND COMPILE
    # shellcheck disable=SC2046 # one argument a size
    steps "torch$3" "$PYTHON" bench/peer/pytorch_gpt.py $(sizes_of "$1" "$2") COMPILE="$3"
}
peak() { sed -n 's/.*MiB, \([0-9.]*\) of [0-9]* GFLOP.*/\1/p' "$work/tutti.lines" | median; }

printf '| model:batch:context | ranks x threads | | Tutti tok/s | of peak | PyTorch tok/s | variant | ratio | ratio of CPU | Tutti MiB | PyTorch MiB | ratio |\n'
printf '|---|---|---|---|---|---|---|---|---|---|---|---|\n'
for case in $CASES; do
    for kind in $KINDS; do
        rm -f "$work"/*.lines
        best=0
        for round in $(seq "$ROUNDS"); do
            # shellcheck disable=SC2046 # one argument a size
            steps tutti "$OURS" $(sizes_of "$case" "$kind")
            if [ "$round" = 1 ]; then
                theirs "$case" "$kind" 0
                if [ "${COMPILE:-1}" != 0 ] && theirs "$case" "$kind" 1; then
                    best=$(awk -v a="$(rate torch0)" -v b="$(rate torch1)" 'BEGIN {print (b > a) ? 1 : 0}')
                fi
            else
                theirs "$case" "$kind" "$best"
            fi
        done
        a=$(rate tutti) b=$(rate "torch$best") ma=$(memory tutti) mb=$(memory "torch$best")
        printf '| %s | %s x %s | %s | %s | %s | %s | %s | %s | %s | %s | %s | %s |\n' "$case" "$RANKS" "$NT" "$kind" "$a" "$(peak)" "$b" \
            "$([ "$best" = 1 ] && echo compile || echo eager)" "$(ratio "$a" "$b")" "$(ratio "$(cpu "torch$best")" "$(cpu tutti)")" \
            "$ma" "$mb" "$(ratio "$ma" "$mb")"
    done
done

if [ -z "$LLMC" ] || [ ! -x "$LLMC/train_gpt2" ]; then
    echo "llm.c is left out: $([ -z "$LLMC" ] && echo "no checkout was given" || echo "there is no $LLMC/train_gpt2; run make train_gpt2 there")"
    exit 0
fi
"$PYTHON" bench/peer/llmc_inputs.py "$LLMC"
# shellcheck disable=SC2094 # a step's line ends the program, which would train 40 steps
for _ in $(seq "$ROUNDS"); do
    # shellcheck disable=SC2046 # one argument a size
    steps beside "$OURS" $(sizes_of 124M:4:64 f32)
    (cd "$LLMC" && OMP_NUM_THREADS=$NT stdbuf -oL timeout 200 ./train_gpt2 2>/dev/null || true) |
        sed -n 's/^step \([0-9]*\):.*took \([0-9.]*\) ms.*/\1 \2/p;/^step 8:/q' | awk '$1 > 1 {print $2}' | median >>"$work/llmc.ms"
done
ms=$(median <"$work/llmc.ms") a=$(rate beside) b=$(awk -v ms="$ms" 'BEGIN {printf "%.1f\n", 256e3 / ms}')
echo "124M:4:64 f32, 1 x $NT: Tutti $a tok/s, llm.c $b tok/s, ratio $(ratio "$a" "$b")"
