# cli_usage.sh -- `tutti` itself: help, version, unknown and future commands.   SPDX-License-Identifier: MIT
set -u
failures=0
expect() { # DESCRIPTION CODE PATTERN COMMAND...: the exit code and a line of the output
    local what=$1 code=$2 pattern=$3 got output
    shift 3
    output=$(timeout 60 "$@" 2>&1)
    got=$?
    if [ "$got" != "$code" ] || ! grep -qE -- "$pattern" <<<"$output"; then
        echo "FAILED: $what: code $got (expected $code), output:"
        echo "$output"
        failures=$((failures + 1))
    fi
}

expect "help lists what works" 0 '^  run  ' "$TUTTI" --help
expect "help is also a command" 0 '^  train  ' "$TUTTI" help
for version in --version -V version; do
    expect "$version" 0 '^tutti [0-9]+\.[0-9]+\.[0-9]+$' "$TUTTI" $version
    expect "$version: how it was built" 0 '^(gcc|clang) [0-9.]+, [A-Za-z]+, with ' "$TUTTI" $version
done
expect "no command shows the usage" 2 '^usage: tutti' "$TUTTI"
expect "a misspelt command names the nearest" 2 'did you mean "train"' "$TUTTI" trian
expect "a misspelt flag names the nearest" 2 'no flag "--verson" .did you mean "--version"\?.; see tutti --help' "$TUTTI" --verson
expect "a far word names none" 2 'no command "xyzzyxyzzy"; see tutti --help' "$TUTTI" xyzzyxyzzy
for later in checkpoint report doctor; do
    "$TUTTI" --help | grep -q "^  $later " && continue # implemented by now
    expect "$later is refused" 2 'is not in this version' "$TUTTI" "$later"
done
for command in $("$TUTTI" --help | sed -n 's/^  \([a-z]*\)  .*/\1/p'); do
    expect "$command --help" 0 'usage: ' "$TUTTI" "$command" --help
    expect "help $command" 0 'usage: ' "$TUTTI" help "$command"
    expect "$command with a misspelt flag" 2 "tutti $command: " "$TUTTI" "$command" --hlep
done

# Singular for one.
expect "a step of one" 0 '1 image a rank.*1 bucket, .* 1 step,' sh -c '"$TUTTI" bench step --model linear --batch-size 1 --iterations 1 --warmup 1 | tr "\n" " "'

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
mkfifo fifo
touch file
mkdir folder

# Of a flag that is given twice, the last value counts.
expect "run, a flag twice" 0 '^1 worker$' "$TUTTI" run -n 3 -n 1 sh -c 'echo $WORLD_SIZE worker'
expect "train, a flag twice" 0 ' step 2/2 ' "$TUTTI" train --model linear --max-steps 7 --max-steps=2 --eval-every 0 --run-dir twice
expect "predict, a flag twice" 0 ' in 2.csv: ' "$TUTTI" predict twice --out 1.csv --out 2.csv
expect "bench, a flag twice" 0 '^ +8 ' "$TUTTI" bench broadcast --sizes 4 --sizes 8 --iterations 1
expect "checkpoint export, a flag twice" 0 ' in 2.pt$' "$TUTTI" checkpoint export twice --out 1.pt --out 2.pt
[ ! -e 1.csv ] && [ ! -e 1.pt ] || { echo "FAILED: the first value of a flag was used too" && failures=$((failures + 1)); }

# Values that are none, or of another kind.
expect "an empty path" 2 'the path is empty; expected a .safetensors or .pt file, a checkpoint or a run folder' "$TUTTI" eval ""
expect "an empty path to verify" 2 'the path is empty; expected' "$TUTTI" checkpoint verify ""
expect "an empty configuration" 2 '--config is empty; expected a file' "$TUTTI" train --config ""
expect "an empty checkpoint to resume from" 2 'resume: it is empty; expected auto, no, a checkpoint or a run folder' "$TUTTI" train --resume ""
for key in run-dir init init-only prometheus data-dir profile; do
    expect "an empty $key" 2 "${key/-/_}: it is empty; leave it out, or give a value" "$TUTTI" train "--$key" ""
done
echo '{"init": "nowhere.pt", "model": "linear", "max_steps": 1}' >init.json
expect "a file's init" 1 'init: cannot open nowhere.pt' "$TUTTI" train --config init.json --run-dir empty
expect "a file's init, taken away" 0 ' step 1/1 ' "$TUTTI" train --config init.json --run-dir empty --init ""
expect "a size of 0" 2 '"0" is not a size; .*; tutti bench barrier measures a call without data' "$TUTTI" bench broadcast --sizes 0
expect "a pipe that nobody writes" 2 '--config: fifo is not a JSON object' "$TUTTI" train --config fifo
expect "a file as the run folder" 2 'run_dir: file is a file; expected a folder' "$TUTTI" train --run-dir file
expect "a folder for a file" 2 'prometheus: folder is a folder; expected a file' "$TUTTI" train --prometheus folder
expect "an empty log folder" 2 '--log-dir is "", expected a folder' "$TUTTI" run --log-dir "" --tee 3 true
expect "a folder that is missing" 1 'cannot write none/x.csv: there is no folder none \(mkdir -p makes it\)' "$TUTTI" predict twice --out none/x.csv
expect "a flag with a value that takes none" 2 '--digest takes no value, but "1" was given: leave it out' "$TUTTI" checkpoint show twice --digest=1
for command in train eval predict "bench barrier"; do
    expect "$command with too many ranks" 2 "tutti ${command% *}: -n is \"65537\", expected a number of workers from 1 to 65536" "$TUTTI" $command -n 65537
done

# A folder of another user: not "nothing in it".
as=""
[ "$(id -u)" != 0 ] || as="setpriv --reuid=65534 --regid=65534 --clear-groups"
mkdir shut shut/train && chmod 755 . && chmod 0 shut
if [ -z "$as" ] || $as test -x "$TUTTI"; then
    expect "eval, a folder that may not be read" 1 'cannot read the folder shut: Permission denied' $as "$TUTTI" eval shut
    expect "verify, a folder that may not be read" 1 'cannot read the folder shut: Permission denied' $as "$TUTTI" checkpoint verify shut
    expect "report, a folder that may not be read" 1 'cannot read the run folder shut: Permission denied' $as "$TUTTI" report shut
    expect "resume, a folder that may not be read" 1 'resume: cannot read shut: Permission denied' $as "$TUTTI" train --resume shut
    expect "data, a folder that may not be read" 1 'data folder shut: Permission denied' $as "$TUTTI" data show folder:shut/train
else
    echo "not tried as a user who may not read a folder"
fi
chmod 755 shut

# resume auto has nowhere to look.
expect "resume auto without a folder, quiet" 0 'warn train: resume auto: without --run-dir it looks only in .* runs/digits-linear-.* is new, so' \
    "$TUTTI" train --model linear --max-steps 1 --eval-every 0 --progress quiet --resume auto
output=$("$TUTTI" train --model linear --max-steps 1 --eval-every 0 --progress quiet --resume auto --run-dir new 2>&1)
[ -z "$output" ] || { echo "FAILED: resume auto with a folder, quiet, says: $output" && failures=$((failures + 1)); }

# Names that would command a terminal are shown, not obeyed.
name=$'odd\e[31m name'
mkdir "$name.d"
safe() { # COMMAND...
    local output
    output=$(timeout 60 "$@" 2>&1)
    ! grep -q $'\e' <<<"$output" && grep -qF 'odd\x1b[31m name' <<<"$output" && return
    echo "FAILED: a name with a control character, of: ${*@Q}, output:" && cat -v <<<"$output"
    failures=$((failures + 1))
}
export TUTTI_COLOR=never
safe "$TUTTI" train --model linear --epochs 1 --max-steps 2 --run-dir "$name"
safe "$TUTTI" eval "$name"
safe "$TUTTI" predict "$name" --out "$name.csv"
safe "$TUTTI" report "$name"
safe "$TUTTI" checkpoint show "$name"
safe "$TUTTI" checkpoint verify "$name"
safe "$TUTTI" checkpoint export "$name" "$name.pt"
safe env TMPDIR="$name.d" "$TUTTI" run --redirects 3 true
for command in "" data "data show" checkpoint "checkpoint verify" run train "train --model" eval bench doctor new report help; do
    safe "$TUTTI" $command "$name.x"
done
unset TUTTI_COLOR

# Invalid environment, and lost output.
expect "a wrong TUTTI_COLOR" 2 'TUTTI_COLOR is "blue", expected auto, always or never' env TUTTI_COLOR=blue "$TUTTI" run true
expect "an unknown variable" 0 'TUTTI_TIMEOUT is not a variable of Tutti and is ignored; did you mean TUTTI_TIMEOUT_S\?' \
    env TUTTI_TIMEOUT=5 "$TUTTI" run true
expect "a variable of a binding" 1 '^0$' \
    sh -c 'TUTTI_EXT_RUST_POOL=5 TUTTI_TORCH_POOL_MB=5 "$TUTTI" run true 2>&1 | grep -c "not a variable"'
expect "its value is not shown, nor the job stopped" 0 '^ok$' env TUTTI_FOO=5 "$TUTTI" run echo ok
echo '{"config": "x"}' >flag.json
expect "a flag in a file" 2 'flag.json: "config" is a flag, which cannot be in a file' "$TUTTI" train --config flag.json
expect "an interval that no machine keeps" 2 'keep_alive_interval of --rdzv-conf is "0.001", expected seconds from 0.05' \
    "$TUTTI" run --nnodes 2 --rdzv-backend native --rdzv-endpoint 127.0.0.1:29400 --rdzv-conf keep_alive_interval=0.001 true
if [ -c /dev/full ]; then
    expect "help on a full disk" 4 'cannot write all of the output' sh -c '"$TUTTI" --help >/dev/full'
    expect "a description on a full disk" 4 'cannot write all of the description of digits:train' sh -c '"$TUTTI" data show digits:train >/dev/full'
    expect "a benchmark on a full disk" 4 'cannot write' sh -c '"$TUTTI" bench barrier >/dev/full'
    expect "workers on a full disk" 4 'cannot write' sh -c '"$TUTTI" bench barrier -n 2 >/dev/full'
fi
exit $((failures > 0))
