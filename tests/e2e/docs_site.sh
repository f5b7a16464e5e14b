# docs_site.sh -- the site of docs/: mkdocs makes it without a warning, all pages are in it and in the search, nothing is fetched from
# elsewhere, links out of docs/ lead to copies.
# SPDX-License-Identifier: MIT
. "${SOURCE_DIR:?is set by ctest}/tests/harness/expect.sh"
command -v mkdocs >/dev/null || { echo "skipped: needs mkdocs (scripts/install-deps --ci)" && exit 77; }
cd "$SOURCE_DIR" || exit 1
seconds_at_most=50 run 0 mkdocs build --strict --quiet --site-dir "$work/site"
[ ! -s "$work/err" ] || { fail "mkdocs has something to say:" && cat "$work/err"; }
for page in $(cd docs && find . -name '*.md'); do
    grep -q ": ${page#./}\$" mkdocs.yml || fail "$page is not in the nav of mkdocs.yml"
    html=$work/site/${page%.md}.html
    [ -s "$html" ] || { fail "no $html"; continue; }
    grep -q "\"${page#./}\"\|\"$(echo "${page#./}" | sed 's/\.md$/.html/')" "$work/site/search/search_index.json" || fail "$page is not in the search"
done
grep -rhoE '<(script|link|img|iframe)[^>]*(src|href)="(https?:)?//[^"]*"' "$work/site" --include='*.html' >"$work/out"
[ ! -s "$work/out" ] || { fail "fetched from elsewhere:" && sort -u "$work/out" | head; }
[ -s "$work/site/source/ARCHITECTURE.md.txt" ] || fail "no copy of ARCHITECTURE.md"
grep -q 'href="../../source/ARCHITECTURE.md.txt"\|href="../source/ARCHITECTURE.md.txt"' "$work/site/guide/index.html" || fail "no link to ARCHITECTURE.md"
grep -q 'url=guide/index.html' "$work/site/index.html" || fail "the site does not begin with the guide"
finish
