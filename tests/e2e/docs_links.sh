# docs_links.sh -- links, anchors and names in README and docs/ are valid, and the files and paths of ARCHITECTURE.md; the check
# itself finds errors.
# SPDX-License-Identifier: MIT
. "${SOURCE_DIR:?is set by ctest}/tests/harness/expect.sh"
command -v python3 >/dev/null || { echo "skipped: needs python3" && exit 77; }
run 0 python3 "$SOURCE_DIR/tools/check-docs" "$TUTTI"
cat "$work/out"

cp -r --parents "$SOURCE_DIR"/{README.md,ARCHITECTURE.md,docs,examples,include,tools,scripts,bench,configs,tests,src,cmake,CMakeLists.txt,Makefile} "$work"
copy=$work$SOURCE_DIR
[ ! -e "$SOURCE_DIR/LICENSE" ] || cp "$SOURCE_DIR/LICENSE" "$copy"
cat >>"$copy/docs/guide/index.md" <<'END'
[gone](gone.md) [no heading](data.md#no-such-heading) `tutti_no_such_function` `--no-such-flag` `scripts/no-such-script` `TUTTI_NO_SUCH`
END
sed -i 's|→ `message_server.c`|→ `rounds.c`|; s|reducer/step.c |reducer/no_step.c |; s|^\(   - .*: `\)shard_queue.c|\1no_queue.c|' "$copy/ARCHITECTURE.md"
run 1 python3 "$copy/tools/check-docs" "$TUTTI"
for what in gone.md data.md#no-such-heading tutti_no_such_function --no-such-flag scripts/no-such-script TUTTI_NO_SUCH; do
    out_has "docs/guide/index.md .*$what"
done
for what in 'leads to src/launch/message/rounds.c' 'names keep_alive' 'names reducer/no_step.c' 'names no_queue.c'; do
    out_has "ARCHITECTURE.md .*$what"
done
equal "number of findings" "$(grep -c . "$work/out")" 10
finish
