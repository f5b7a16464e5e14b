# docs_site.sh -- the site of docs/: mkdocs builds it without a warning, all pages are in it and in the search, nothing is fetched from
# other sites, every link works.
# SPDX-License-Identifier: MIT
. "${SOURCE_DIR:?is set by ctest}/tests/harness/expect.sh"
command -v mkdocs >/dev/null || { echo "skipped: needs mkdocs (scripts/install-deps --ci)" && exit 77; }
cd "$work" || exit 1
seconds_at_most=50 run 0 mkdocs build --strict --quiet --config-file "$SOURCE_DIR/mkdocs.yml" --site-dir "$work/site"
[ ! -s "$work/err" ] || { fail "mkdocs prints warnings:" && cat "$work/err"; }
for page in $(cd "$SOURCE_DIR/docs" && find . -name '*.md'); do
    grep -q ": ${page#./}\$" "$SOURCE_DIR/mkdocs.yml" || fail "$page is not in the nav of mkdocs.yml"
    html=$work/site/${page%.md}.html
    [ -s "$html" ] || { fail "no $html"; continue; }
    grep -q "\"${page#./}\"\|\"$(echo "${page#./}" | sed 's/\.md$/.html/')" "$work/site/search/search_index.json" || fail "$page is not in the search"
done
grep -rhoE '<(script|link|img|iframe)[^>]*(src|href)="(https?:)?//[^"]*"' "$work/site" --include='*.html' >"$work/out"
[ ! -s "$work/out" ] || { fail "fetched from elsewhere:" && sort -u "$work/out" | head; }
[ -s "$work/site/source/examples/own_model.c.txt" ] || fail "no copy of examples/own_model.c"
grep -q 'href="../source/ARCHITECTURE.html"' "$work/site/guide/index.html" || fail "no link to the page of ARCHITECTURE.md"
cat >links.py <<'END'
"""Every link, picture and script of every page leads to something, and every anchor is one of its page."""
import re, sys
from pathlib import Path

top, anchors = Path(sys.argv[1]).resolve(), {}
for page in [p for p in top.rglob("*.html") if p.name != "404.html"]:
    for link in re.findall(r'<(?!link\b)[^>]*\b(?:href|src)="([^"]+)"', page.read_text()):
        file, _, anchor = link.partition("#")
        target = (page.parent / file.partition("?")[0]).resolve() if file else page
        if re.match(r"[a-z]+:", link):
            continue
        if target not in anchors and target.is_file():
            anchors[target] = set(re.findall(r'\bid="([^"]+)"', target.read_text(errors="replace")))
        if target not in anchors or anchor and target.suffix == ".html" and anchor not in anchors[target]:
            print(f"{page.relative_to(top)} links to {link}: there is none")
END
python3 links.py "$work/site" >links.out
[ ! -s links.out ] || { fail "dangling links:" && cat links.out; }
grep -q 'url=guide/index.html' "$work/site/index.html" || fail "the site does not begin with the guide"
finish
