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

# Invalid environment, and lost output.
expect "a wrong TUTTI_COLOR" 2 'TUTTI_COLOR is "blue", expected auto, always or never' env TUTTI_COLOR=blue "$TUTTI" run true
expect "an unknown variable" 0 'TUTTI_TIMEOUT is not a variable of Tutti and is ignored; did you mean TUTTI_TIMEOUT_S\?' \
    env TUTTI_TIMEOUT=5 "$TUTTI" run true
expect "its value is not shown, nor the job stopped" 0 '^ok$' env TUTTI_FOO=5 "$TUTTI" run echo ok
if [ -c /dev/full ]; then
    expect "help on a full disk" 4 'cannot write all of the output' sh -c '"$TUTTI" --help >/dev/full'
    expect "a benchmark on a full disk" 4 'cannot write' sh -c '"$TUTTI" bench barrier >/dev/full'
    expect "workers on a full disk" 4 'cannot write' sh -c '"$TUTTI" bench barrier -n 2 >/dev/full'
fi
exit $((failures > 0))
