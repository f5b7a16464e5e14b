# docs_links.sh -- links, anchors and names in README and docs/ are valid; the check itself finds errors.
# SPDX-License-Identifier: MIT
. "${SOURCE_DIR:?is set by ctest}/tests/harness/expect.sh"
command -v python3 >/dev/null || { echo "skipped: needs python3" && exit 77; }
run 0 python3 "$SOURCE_DIR/tools/check-docs" "$TUTTI"
cat "$work/out"

cp -r --parents "$SOURCE_DIR"/{README.md,ARCHITECTURE.md,docs,examples,include,tools,scripts,bench,configs,tests,src,CMakeLists.txt,Makefile} "$work"
copy=$work$SOURCE_DIR
[ ! -e "$SOURCE_DIR/LICENSE" ] || cp "$SOURCE_DIR/LICENSE" "$copy"
cat >>"$copy/docs/guide/index.md" <<'END'
[gone](gone.md) [no heading](data.md#no-such-heading) `tutti_no_such_function` `--no-such-flag` `scripts/no-such-script` `TUTTI_NO_SUCH`
END
run 1 python3 "$copy/tools/check-docs" "$TUTTI"
for what in gone.md data.md#no-such-heading tutti_no_such_function --no-such-flag scripts/no-such-script TUTTI_NO_SUCH; do
    out_has "docs/guide/index.md .*$what"
done
equal "number of findings" "$(grep -c . "$work/out")" 6
finish
