# A run that fails before its first step is done says why once, and leaves everything as it was.   timeout: 120
# SPDX-License-Identifier: MIT
. "${SOURCE_DIR:?is set by ctest}/tests/harness/train.sh"
mlp="--model mlp --augment off --threads 1 --max-steps 2 --timeout-s 20"
ways=("" "-n 2" "-n 2 --shards 2")

# leaves_nothing CODE TEXT KEYS...: refused in each way, with one line that says TEXT, for a folder in folders that do not exist
leaves_nothing() {
    local code=$1 text=$2 way
    shift 2
    for way in "${ways[@]}"; do
        refused $code "$text" "$TUTTI" train $way $mlp --run-dir new/a/run "$@"
        [ "$(grep -cF -e "$text" refused.out)" = 1 ] || { cat refused.out; fail "not said once: $way $*"; }
        ! grep -q 'replacement' refused.out || { cat refused.out; fail "a worker is replaced by one with the same failure: $way $*"; }
        [ ! -e new ] || fail "left behind by $way $*: $(find new)"
        refused $code "$text" "$TUTTI" train $way $mlp "$@"
        [ ! -e runs ] || fail "left behind by $way $*: $(find runs)"
    done
}
leaves_nothing 1 'nowhere.safetensors' --init nowhere.safetensors
leaves_nothing 1 'nowhere' --resume nowhere
train other --model linear --augment off --threads 1 --max-steps 2
leaves_nothing 1 'does not hold the weights of this model' --init other/model.safetensors
leaves_nothing 2 'model' --resume other/checkpoints/latest

# A mistake in a model that shows in its first forward pass.
c=$(command -v "${CC:-cc}" || command -v gcc || command -v clang || true)
if [ -n "$c" ]; then
    cat >bad.c <<'END'
#include <tutti/tutti.h>
typedef struct {
    tutti_module base;
    tutti_linear fc;
} bad;
static void init(tutti_module *m, const tutti_model_opts *opts)
{
    tutti_linear_init(&((bad *)m)->fc, m, "fc", 63, opts->classes);
}
static tutti_tensor *forward(tutti_module *m, tutti_tensor *x)
{
    return tutti_linear_forward(&((bad *)m)->fc, tutti_flatten(x));
}
const tutti_model_kind bad_kind = {.name = "bad", .bytes = sizeof(bad), .init = init, .forward = forward};
TUTTI_SHARED_MODEL(bad_kind);
END
    "$c" -shared -fPIC -I"$SOURCE_DIR/include" bad.c -o bad.so
    mlp="${mlp/--model mlp/--model ./bad.so}" leaves_nothing 2 'x is [32,64] but weight is [10,63]'
    refused 2 'all 3 ranks failed for the same reason: exit code 2' "$TUTTI" run -n 3 "$TUTTI" train --model ./bad.so --threads 1 --run-dir new
    [ "$(grep -c 'but weight is' refused.out)" = 1 ] || { cat refused.out; fail "said more than once under tutti run"; }
    # An earlier run stays, also if the run had begun; one that continues it records its failure.
    sed -e 's/63/64/; s/bad_kind/fails_kind/g; s/"bad"/"fails"/' -e '/return/{s/return/x =/;a\    return getenv("FAILS") ? tutti_linear_forward(\&((bad *)m)->fc, x) : x;
}' -e '1i#include <stdlib.h>' bad.c >fails.c
    "$c" -shared -fPIC -I"$SOURCE_DIR/include" fails.c -o fails.so
    fails="--model ./fails.so --augment off --threads 1 --schedule constant --checkpoint-every 1"
    train done $fails --max-steps 2
    (cd done && find . -type f ! -name .lock -exec md5sum {} + | sort) >before
    for again in "--max-steps 2" "-n 2 --max-steps 2" "-n 2 --shards 2 --max-steps 2"; do
        FAILS=1 refused 2 'but weight is' "$TUTTI" train $fails $again --run-dir done
        ! grep -q 'now in done/earlier-1' refused.out || grep -q 'the earlier run is in done again' refused.out || { cat refused.out; fail "does not say where the earlier run is"; }
        (cd done && find . -type f ! -name .lock -exec md5sum {} + | sort) | diff before - || fail "the earlier run is not what it was: $again"
        [ ! -e done/earlier-1 ] || fail "an empty folder is left behind: $again"
    done
    FAILS=1 refused 2 'but weight is' "$TUTTI" train $fails --max-steps 3 --run-dir done --resume auto
    [ "$(field done/summary.json status)" = failed ] || fail "a continued run has no summary that it failed"
    # A log of the run keeps its failure, and with it the folder; so does a folder with other files.
    mkdir with_files
    echo "mine" >with_files/notes.txt
    for keeps in "logged --tensorboard" "shown --prometheus shown/metrics.prom" "with_files"; do
        refused 2 'but weight is' "$TUTTI" train --model ./bad.so --threads 1 --run-dir $keeps
        grep -q '"reason": ".*but weight is' "${keeps%% *}/summary.json" || fail "the failure of a run is not recorded: $keeps"
    done
    [ "$(cat with_files/notes.txt)" = mine ] || fail "a failed run changed another file"
else
    echo "skipped: models of shared objects: there is no C compiler"
fi

# What was there before stays: files, an empty folder, an earlier run.
mkdir -p mine/empty
echo '{"model": "mlp"}' >mine/config.json
find mine other -type f ! -name .lock -exec md5sum {} + | sort >before
for dir in mine mine/empty other; do
    refused 1 'nowhere' "$TUTTI" train $mlp --run-dir "$dir" --init nowhere
    refused 1 'nowhere' "$TUTTI" train -n 2 --shards 2 $mlp --run-dir "$dir" --resume nowhere
done
[ -z "$(ls -A mine/empty)" ] || fail "left behind in an empty folder: $(ls -A mine/empty)"
[ ! -e mine/.lock ] || fail "a lock is left behind"
find mine other -type f ! -name .lock -exec md5sum {} + | sort | diff before - || fail "a refused run changed what was there"

# Two at once in a new folder: the one that fails takes nothing from the other, which need not be told that the folder went.
for i in 1 2 3 4 5; do
    "$TUTTI" train $mlp --run-dir both/run --init nowhere >fails.out 2>&1 &
    "$TUTTI" train $mlp --run-dir both/run --progress quiet >works.out 2>&1 || { cat works.out; fail "the other run: exit code $?"; }
    wait
    [ "$(field both/run/summary.json status)" = completed ] || fail "the other run's files: $(ls -A both/run)"
    rm -r both
done

# No room on the disk, for the files of the run or for the first of them.
cat >small_disk.sh <<'END'
. "$SOURCE_DIR/tests/harness/train.sh" # in its own folder
mkdir disk && mount -t tmpfs -o size=200k none disk || exit 77
trap 'end_all; umount disk; rm -rf "$work"' EXIT
for way in "" "-n 2" "-n 2 --shards 2"; do
    for full in false true; do
        ! $full || head -c 1M /dev/zero >disk/hog 2>/dev/null || true
        refused 4 'disk/a/run' "$TUTTI" train $way --model mlp --threads 1 --max-steps 2 --run-dir disk/a/run
        [ "$(grep -c 'disk/a/run' refused.out)" = 1 ] || { cat refused.out; fail "not said once: $way"; }
        [ ! -e disk/a ] || fail "left behind: $(find disk)"
        rm -f disk/hog
    done
done
END
got=0
unshare -rm bash small_disk.sh >small_disk.out 2>&1 || got=$?
case $got in
0) ;;
77 | 1) grep -q FAILED small_disk.out && { cat small_disk.out; exit 1; } || echo "skipped: a small disk cannot be mounted: $(tail -1 small_disk.out)" ;;
*) cat small_disk.out; exit 1 ;;
esac
echo "nothing is left behind"
