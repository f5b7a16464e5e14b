# report.sh -- `tutti report`: the page of real runs, with malicious names, truncated and missing files, many lines; the merged trace.
# SPDX-License-Identifier: MIT
. "${SOURCE_DIR:?is set by ctest}/tests/harness/train.sh"

report() { "$TUTTI" report "$@" >report.out 2>report.err || { cat report.out report.err; fail "exit code $? from: tutti report $*"; }; }
page_has() { grep -qF -e "$2" "$1" || fail "no \"$2\" in the page $1"; }
page_lacks() { ! grep -qF -e "$2" "$1" || fail "\"$2\" is in the page $1"; }

# An independent reader of HTML and JSON: elements are closed in order, nothing is fetched, no run has added an
# element to the page. Prints "RUN KEY VALUE" of summaries and "RUN NAME N" of curves.
cat >reader.py <<'END'
import html.parser, json, sys
VOID = {"meta", "link", "input", "br"}
class Reader(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.open, self.data, self.counts, self.text = [], "", {}, []
    def handle_starttag(self, tag, attributes):
        self.counts[tag] = self.counts.get(tag, 0) + 1
        for name, value in attributes:
            assert name not in ("src", "onerror", "onload"), (tag, name)
            assert name != "href" or value == "data:,", value
        if tag not in VOID:
            self.open.append((tag, dict(attributes).get("id")))
    def handle_endtag(self, tag):
        last = self.open.pop()[0]
        assert last == tag, "%s is closed where %s is open" % (tag, last)
    def handle_data(self, data):
        if self.open and self.open[-1] == ("script", "data"):
            self.data += data
        elif self.open and self.open[-1][0] in ("td", "th", "li", "h1", "title"):
            self.text.append(data.strip())
page = Reader()
page.feed(open(sys.argv[1], encoding="utf-8").read())
page.close()
assert not page.open, page.open
assert page.counts["script"] == 2 and "img" not in page.counts, page.counts
for i, run in enumerate(json.loads(page.data)):
    print(i, "label", json.dumps(run["label"]))
    for key, value in (run["summary"] or {}).items():
        print(i, key, json.dumps(value))
    for kind in "steps", "evals":
        for name, column in run[kind]["columns"].items():
            print(i, kind, json.dumps(name), len(column["mean"]), column.get("max", column["mean"])[-1])
for text in page.text:
    print("text", text)
END
# Writes the page's contents to page.txt; not without Python.
read_page() {
    command -v python3 >/dev/null || return 1
    python3 reader.py "$1" >page.txt || fail "the page $1 is malformed"
}

mkdir one two
train one/same -n 2 --model mlp --epochs 2 --log-every 3 --profile 3:6
train two/same --model mlp --epochs 1 --lr 0.05

# One run: beside its files, with their figures.
report one/same
[ "$(cat report.out)" = one/same/report.html ] || fail "does not say where the page is"
page_has one/same/report.html "$(digest one/same)"
for outside in 'http://' 'https://' '@import' 'src='; do page_lacks one/same/report.html "$outside"; done
if read_page one/same/report.html; then
    for key in steps val_accuracy parameters images_per_s; do
        grep -qxF "0 $key $(field one/same/summary.json $key)" page.txt || fail "$key is not the summary's"
    done
    lines=$(grep -c '"loss"' one/same/metrics.jsonl)
    grep -q "^0 steps \"compute_ms\" $lines " page.txt || fail "not as many points as lines"
    grep -q '^0 evals "val_accuracy" 2 ' page.txt || fail "no evaluations"
    grep -q '^0 time {.*"waited_for_s": \[' page.txt || fail "no times of ranks"
    grep -q "^text $(digest one/same)" page.txt || fail "no table of results for those without scripts"
fi

# Several: folders of the same name are distinguished, also the same folder twice.
report one/same two/same one/same --out several.html
if read_page several.html; then
    [ "$(sed -n 's/^[0-9] label //p' page.txt | tr '\n' ' ')" = '"one/same" "two/same" "one/same (2)" ' ] || fail "labels: $(cat page.txt)"
fi
report one/same --out - >/dev/null
grep -q '^</html>' report.out || fail "the page does not go to standard output"
(cd one && "$TUTTI" report same ../two/same >/dev/null && [ -s report.html ]) || fail "no report.html of several runs"

# Names, keys and texts that look like markup.
evil=$'<script>alert(1)</script><!--DATA-->\n&"'\''\xff'
mkdir evil
evil=${evil//\//|}
mkdir "evil/$evil"
printf '{"status": "failed", "reason": "</script><img src=x onerror=alert(1)>\\u001b[31m", "val_accuracy": 0.25}' >"evil/$evil/summary.json"
printf '{"model": "<b>", "data": "]]>", "<i>": {"a": ["</script>"]}}' >"evil/$evil/config.json"
printf '{"step": 1, "loss": 2, "</script><script>": 3, "more": {"inner": 4, "text": "x"}}\n' >"evil/$evil/metrics.jsonl"
report "evil/$evil" two/same --out evil.html
page_lacks evil.html '<img'
page_lacks evil.html "$evil"
if read_page evil.html; then
    grep -qF '0 steps "</script><script>" 1 3' page.txt || fail "a curve with a strange name is lost"
    grep -qF '0 steps "more.inner" 1 4' page.txt || fail "a figure inside a figure is lost"
    grep -qF 'text </script><img src=x onerror=alert(1)>' page.txt || fail "the reason is not in the table"
fi

# A run that was killed in the middle of a line; one with only metrics.jsonl; damaged files; a pipe where a file is expected.
mkdir torn pipe
printf '{"step": 1, "loss": 2.0}\n{"step": 2, "loss": 1.5}\nnot JSON\n[1]\n{"step": 3, "loss": 1.0}\n{"step": 4, "lo' >torn/metrics.jsonl
: >torn/summary.json
printf '{"model": ' >torn/config.json
report torn
for word in 'half a line' '2 lines that cannot be read' 'the first is line 3' 'summary.json is empty' 'config.json is damaged'; do
    page_has torn/report.html "$word"
    grep -qF "$word" report.err || fail "missing in the output: $word"
done
read_page torn/report.html && { grep -q '^0 steps "loss" 3 1$' page.txt || fail "complete lines are lost"; }
mkfifo pipe/metrics.jsonl
cp one/same/summary.json pipe
report pipe
page_has pipe/report.html 'metrics.jsonl is not a regular file'

# Control characters in names and texts are escaped; a last line that is complete but invalid is not called truncated.
mkdir escapes
printf '{"a": \033[2J}' >escapes/config.json
printf '{"step": 1, "loss": 1}\nnot JSON\n' >escapes/metrics.jsonl
report escapes
grep -qF 'near '"'"'\x1b' report.err || fail "no damaged config.json: $(cat -v report.err)"
! grep -q $'\033' report.err || fail "an escape reaches the terminal"
! grep -q 'half a line' report.err || fail "a complete line is reported as incomplete"

# Many lines, one of them very long: bounded points, extremes kept.
mkdir many
awk 'BEGIN { for (i = 1; i <= 40000; i++) printf "{\"step\": %d, \"loss\": %s}\n", i, i == 12345 ? "99.5" : "0.5"
             printf "{\"step\": 7, \"x\": \""; for (i = 0; i < 60000; i++) printf "xxxxxxxxxx"; print "\"}" }' >many/metrics.jsonl
report many
page_has many/report.html '99.5'
[ "$(wc -c <many/report.html)" -lt 120000 ] || fail "the page of many lines is large"
read_page many/report.html && { grep -qE '^0 steps "step" (6|7|8|9|10)[0-9]{2} 40000$' page.txt || fail "points: $(grep '^0 steps' page.txt)"; }

# All ranks' traces in one file.
report --trace all.json one/same
for rank in 0 1; do grep -q "\"pid\":$rank," all.json || fail "rank $rank is not in the merged trace"; done
if command -v python3 >/dev/null; then
    python3 -c '
import json
one = [json.load(open("one/same/trace/rank-%d.json" % r)) for r in (0, 1)]
both = json.load(open("all.json"))
assert len(both["traceEvents"]) == sum(len(t["traceEvents"]) for t in one)
assert [o["rank"] for o in both["otherData"]] == [0, 1]' || fail "the merged trace is not the sum of both"
fi

# Errors.
refused 2 'of which runs?' "$TUTTI" report
refused 2 'did you mean "--out"' "$TUTTI" report --ouT x one/same
refused 2 '--out needs' "$TUTTI" report one/same --out
refused 2 'takes one run' "$TUTTI" report --trace t.json one/same two/same
refused 1 'nowhere' "$TUTTI" report nowhere
refused 1 'holds no run' "$TUTTI" report evil
refused 2 'is not a folder' "$TUTTI" report reader.py
refused 1 'holds no trace' "$TUTTI" report --trace t.json two/same
mkdir -p escapes/trace && echo '{}' >escapes/trace/rank-0.json
refused 1 'has no array traceEvents' "$TUTTI" report --trace t.json escapes
rm escapes/trace/rank-0.json && mkfifo escapes/trace/rank-0.json
refused 1 'is not a regular file' timeout 60 "$TUTTI" report --trace t.json escapes
refused 1 'cannot write' "$TUTTI" report one/same --out nowhere/x.html
exit 0
