# cli_usage.sh -- `tutti` itself: help, version, unknown and future commands.   SPDX-License-Identifier: MIT
set -u
failures=0
expect() { # DESCRIPTION CODE PATTERN COMMAND...: the exit code and a line of the output
    local what=$1 code=$2 pattern=$3 got output
    shift 3
    output=$(timeout 10 "$@" 2>&1)
    got=$?
    if [ "$got" != "$code" ] || ! grep -qE -- "$pattern" <<<"$output"; then
        echo "FAILED: $what: code $got (expected $code), output:"
        echo "$output"
        failures=$((failures + 1))
    fi
}

expect "help lists what works" 0 '^  run  ' "$TUTTI" --help
expect "help is also a command" 0 '^  train  ' "$TUTTI" help
expect "version" 0 '^tutti [0-9]+\.[0-9]+\.[0-9]+$' "$TUTTI" --version
expect "no command shows the usage" 2 '^usage: tutti' "$TUTTI"
expect "a misspelt command names the nearest" 2 'did you mean "train"' "$TUTTI" trian
expect "a misspelt flag names the nearest" 2 'no flag "--verson"; did you mean "--version"?' "$TUTTI" --verson
expect "a far word names none" 2 'no command "xyzzyxyzzy"\. See' "$TUTTI" xyzzyxyzzy
for later in checkpoint report doctor; do
    "$TUTTI" --help | grep -q "^  $later " && continue # it has come
    expect "$later is refused" 2 'is not in this version' "$TUTTI" "$later"
done
for command in $("$TUTTI" --help | sed -n 's/^  \([a-z]*\)  .*/\1/p'); do
    expect "$command --help" 0 'usage: ' "$TUTTI" "$command" --help
    expect "help $command" 0 'usage: ' "$TUTTI" help "$command"
    expect "$command with a misspelt flag" 2 "tutti $command: " "$TUTTI" "$command" --hlep
done
exit $((failures > 0))
