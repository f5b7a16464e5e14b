"""What mkdocs has to be told about the pages of docs/ (mkdocs.yml): links to sources outside of docs/ lead to copies of them, a fence
with a file's name gets a caption, the site begins with the guide, and very long lines of output are wrapped."""
import os, re
from html import escape, unescape
from pathlib import Path

from mkdocs.structure.files import File

TOP = Path(__file__).resolve().parent.parent
LINK = re.compile(r"(?<!\!)\[([^\]]*)\]\((?!https?:|#)([^)#\s]+)(#[^)\s]*)?\)")
LONG = 150  # characters: a line of a program that is longer is wrapped


def outside(page_path, target):
    """The path below the top of what a page links to outside of docs/, or None."""
    path = os.path.normpath(os.path.join("docs", os.path.dirname(page_path), target))
    return None if path.startswith("docs" + os.sep) else path


def linked(pages):
    found = set()
    for page in pages:
        for match in LINK.finditer((TOP / "docs" / page).read_text()):
            path = outside(page, match[2])
            if path and (TOP / path).is_file():
                found.add(path)
    return sorted(found)


def on_files(files, config):
    copies = TOP / "build/site-sources"
    for path in linked([f.src_path for f in files if f.src_path.endswith(".md")]):
        copy = copies / "source" / (path + ".txt")
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes((TOP / path).read_bytes())
        files.append(File(f"source/{path}.txt", str(copies), config["site_dir"], False))
    return files


def on_page_markdown(markdown, page, config, files):
    here = page.file.src_path

    def link(match):
        path = outside(here, match[2])
        if not path:
            return match[0]
        if not (TOP / path).is_file():
            return match[1]
        return f"[{match[1]}]({os.path.relpath(f'source/{path}.txt', os.path.dirname(here) or '.')})"

    markdown = LINK.sub(link, markdown)
    return re.sub(r"^```(\w+) ([\w.]+)$", r'<p class="file"><code>\2</code></p>\n\n```\1', markdown, flags=re.M)


def unbroken(html):
    """Flags and other short words with hyphens are not broken at those."""
    parts = re.split(r"(<[^>]*>)", html)
    # Tags lie at the odd places.
    parts[::2] = [re.sub(r"\S*-\S*", lambda m: f'<span class="word">{m[0]}</span>' if len(m[0]) < 36 else m[0], text) for text in parts[::2]]
    return "".join(parts)


def wrap(block):
    """Commands and sentences that they print are wrapped; programs and rows of tables scroll."""
    lines, goes_on, console = [], False, "$ " in re.sub(r"<[^>]*>", "", block[2])[:2]
    for line in block[2].split("\n"):
        words = unescape(re.sub(r"<[^>]*>", "", line))
        command = goes_on or words.startswith("$ ")
        goes_on = command and words.endswith("\\")
        if console and not command: # whatever it looks like
            line = f'<span class="go">{escape(words)}</span>'
        wrapped = command or len(words) > LONG or console and words and not re.search(r"\S  +\S", words)
        lines.append(f'<span class="long">{unbroken(line)}</span>' if wrapped else line + "\n")
    return block[1] + "".join(lines).rstrip("\n") + block[3]


def table(match):
    """It scrolls, after long names in it were broken between their words."""
    cells = re.sub(r"<code>[^<]*</code>", lambda m: re.sub(r"(?<=\w)([_.=(])(?=\w)", r"\1<wbr>", m[0]), match[1])
    return f'<div class="wide"><table class="docutils">{cells}</div>'


def on_page_content(html, page, config, files):
    html = re.sub(r"<table>(.*?</table>)", table, html, flags=re.S)
    html = re.sub(r"(<pre[^>]*>(?:<span></span>)?<code[^>]*>)(.*?)(</code></pre>)", wrap, html, flags=re.S)
    return re.sub(r"<code>(?:[^<]|<wbr>)*</code>", lambda m: unbroken(m[0]), html)


def on_post_build(config):
    (Path(config["site_dir"]) / "index.html").write_text(
        '<!doctype html><meta charset="utf-8"><title>Tutti</title><meta http-equiv="refresh" content="0; url=guide/index.html">'
        '<a href="guide/index.html">The guide</a>\n')
