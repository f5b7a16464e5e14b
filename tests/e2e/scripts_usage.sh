# The scripts before they do anything: --help, and what is refused; make help. Stand-ins take the place of what would install or build.
# SPDX-License-Identifier: MIT
. "${SOURCE_DIR:?is set by ctest}/tests/harness/expect.sh"
mkdir -p "$work/tree/src/train/config" "$work/bin"
cp -r "$SOURCE_DIR/scripts" "$SOURCE_DIR/tools" "$SOURCE_DIR/Makefile" "$work/tree"
cp "$SOURCE_DIR/src/train/config/config.def" "$work/tree/src/train/config"
for program in apt-get dpkg-query sudo cmake; do
    printf '#!/bin/sh\necho "%s $*" >>"%s"\nexit 1\n' $program "$work/called" >"$work/bin/$program"
done
chmod +x "$work"/bin/*
cd "$work/tree" || exit 1
PATH=$work/bin:$PATH

for script in arm64-sysroot build chaos demo install-deps test mpi/run ssh/run; do
    for flag in --help -h; do
        run 0 scripts/$script $flag
        out_has "^${script##*/}: "
        (cd / && exec "$work/tree/scripts/$script" $flag) >"$work/elsewhere" 2>&1 && cmp -s "$work/out" "$work/elsewhere" ||
            fail "scripts/$script $flag is not the same from another folder"
    done
    run 2 scripts/$script --xyzzy
    err_has '--xyzzy'
    equal "lines of scripts/$script --xyzzy" "$(wc -l <"$work/err")" 1
done
for script in demo chaos; do
    run 2 scripts/$script --epochs 1 --epoch=3
    err_has 'tutti train has no key --epoch=3; scripts/'
    run 2 scripts/$script 3
    err_has 'unexpected argument 3'
done
run 2 scripts/test -L unit --output-on-fail
err_has 'ctest has no flag --output-on-fail'
for tool in check format make-metrics-docs make-records make-operations-doc make-train-docs; do
    run 0 tools/$tool --help
    out_has "^$tool: "
    run 2 tools/$tool --chek
    err_has "^$tool: unexpected argument --chek \(expected "
done
run 2 scripts/demo --epochs 3 --no-augmentation
[ ! -e "$work/called" ] || fail "a process was started: $(cat "$work/called")"

# What is right goes on to the packages.
run 4 scripts/demo --epochs 3 --batch-size=16 --no-augment --label_smoothing 0.1 -n 4
out_has '1 of 3: system packages'
[ -e "$work/called" ] || fail "scripts/demo does not begin with keys that there are"

# tools/structure: two files that include and call each other, one of them from a room to a later one.
if command -v python3 >/dev/null; then
    mkdir -p "$work/small/src/launch/message" "$work/small/src/launch/agent"
    printf '#include "launch/agent/b.h"\nint tutti__a(void)\n{\n    return tutti__b(); /* tutti__c */\n}\n' >"$work/small/src/launch/message/a.c"
    printf '#include "launch/agent/b.h"\nint tutti__b(void)\n{\n    return tutti__a();\n}\n' >"$work/small/src/launch/agent/b.c"
    printf 'struct tutti__large {\n    int a, b;\n    void (*f)(int, int);\n};\n' >"$work/small/src/launch/message/a.h"
    printf '#include "launch/message/a.h"\n' >"$work/small/src/launch/agent/b.h"
    run 0 tools/structure launch --tree "$work/small" --list
    out_has '^launch: 4 files, 15 lines'
    out_has 'in circles of includes +2 '
    out_has 'mutual calls, pairs +1$'
    out_has 'back to a later room +1 '
    out_has '^ +message/a -> agent/b: tutti__b$'
    out_has 'largest struct +3 +members: tutti__large \(message/a.h\), named in 1 files'
fi

# The scripts of Slurm: which exit codes put a job back into its queue, and how often.
printf '#!/bin/sh\nexit $CODE\n' >"$work/bin/srun"
printf '#!/bin/sh\necho "$1" >>"%s"\necho "   JobState=$STATE Reason=None"\n' "$work/scontrol" >"$work/bin/scontrol"
chmod +x "$work"/bin/*
export SLURM_JOB_ID=7 STATE=RUNNING CODE
for script in srun run; do
    requeued() { # TIMES CODES...: as one job that ends with one code after the other
        local times=$1
        shift
        rm -rf runs && : >"$work/scontrol"
        for CODE in "$@"; do
            run "$CODE" bash scripts/slurm/$script.sbatch --data digits
        done
        equal "$script.sbatch: requeues after the codes $*" "$(grep -c requeue "$work/scontrol")" "$times"
    }
    requeued 5 143 138 143 138 143
    requeued 3 137 3 137 3 137
    requeued 6 143 3 143 3 143 3
    MAX_REQUEUES=1 requeued 1 3 137
    MAX_REQUEUES=0 requeued 0 3
    for CODE in 0 1 2 4 130; do
        requeued 0 $CODE
    done
    STATE=COMPLETING requeued 0 143 3
done

make help >"$work/out" || fail "make help"
for target in $(sed -n 's/^\.PHONY: //p' Makefile); do
    case $target in help | all | installable | prefix) ;; *) out_has "make $target( |\$|,)" ;; esac
done
finish
