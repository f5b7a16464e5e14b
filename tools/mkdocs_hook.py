"""What mkdocs has to be told about the pages of docs/ (mkdocs.yml): links to files outside of docs/ lead to copies of them, a fence
with a file's name gets a caption, the site begins with the guide, very long lines of output are wrapped, and what the theme lacks is made good."""
import os, re
from html import escape, unescape
from pathlib import Path

from mkdocs.structure.files import File

TOP = Path(__file__).resolve().parent.parent
LINK = re.compile(r"(?<!\!)\[([^\]]*)\]\((?!https?:|#)([^)#\s]+)(#[^)\s]*)?\)")
LONG = 150  # characters: a longer line of a program is wrapped


def place(page):
    """Where in the repository a page of the site is from."""
    return page.removeprefix("source/") if page.startswith("source/") else "docs/" + page


def target(page, link):
    """The file in the repository that a page of the site links to, or None: there is none."""
    path = os.path.normpath(os.path.join(os.path.dirname(place(page)), link))
    return path if (TOP / path).is_file() else None


def copy_of(path):
    """Where the site has a file of the repository: pages are pages there too, sources are text."""
    return path.removeprefix("docs/") if path.startswith("docs/") else "source/" + path + ("" if path.endswith(".md") else ".txt")


def linked(pages):
    """The files outside of docs/ to which the pages link, and those of them that are pages."""
    found, pages = set(), list(pages)
    for page in pages:
        for match in LINK.finditer((TOP / place(page)).read_text()):
            path = target(page, match[2])
            if path and not path.startswith("docs/") and path not in found:
                found.add(path)
                if path.endswith(".md"):
                    pages.append(copy_of(path))
    return sorted(found)


def on_files(files, config):
    copies = TOP / "build/site-sources"
    for path in linked([f.src_path for f in files if f.src_path.endswith(".md")]):
        copy = copies / copy_of(path)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes((TOP / path).read_bytes())
        files.append(File(copy_of(path), str(copies), config["site_dir"], False))
    return files


def on_page_markdown(markdown, page, config, files):
    here = page.file.src_path

    def relative(path):
        return os.path.relpath(copy_of(path), os.path.dirname(here) or ".")

    def link(match):
        path = target(here, match[2])
        return f"[{match[1]}]({relative(path)}{match[3] or ''})" if path else match[1]

    def picture(match):
        path = target(here, match[2])
        return f"{match[1]}({relative(path)})" if path else match[0]

    markdown = re.sub(r"(!\[[^\]]*\])\((?!https?:)([^)\s]+)\)", picture, LINK.sub(link, markdown))
    return re.sub(r"^```(\w+) ([\w./-]+)$", r'<p class="file"><code>\2</code></p>\n\n```\1', markdown, flags=re.M)


def unbroken(html):
    """Flags and other short words with hyphens are not broken at those."""
    parts = re.split(r"(<[^>]*>)", html)
    # Tags are at the odd indices.
    parts[::2] = [re.sub(r"\S*-\S*", lambda m: f'<span class="word">{m[0]}</span>' if len(m[0]) < 36 else m[0], text) for text in parts[::2]]
    return "".join(parts)


def wrap(block):
    """Commands and sentences that they print are wrapped; programs and rows of tables scroll."""
    lines, goes_on, console = [], False, "$ " in re.sub(r"<[^>]*>", "", block[2])[:2]
    for line in block[2].split("\n"):
        words = unescape(re.sub(r"<[^>]*>", "", line))
        command = goes_on or words.startswith("$ ")
        goes_on = command and words.endswith("\\")
        if console and not command: # output, even if it looks like a command
            line = f'<span class="go">{escape(words)}</span>'
        wrapped = command or len(words) > LONG or console and words and not re.search(r"\S  +\S", words)
        lines.append(f'<span class="long">{unbroken(line)}</span>' if wrapped else line + "\n")
    return block[1] + "".join(lines).rstrip("\n") + block[3]


def table(match):
    """It scrolls, after long names in it were broken between their words."""
    cells = re.sub(r"<code>[^<]*</code>", lambda m: re.sub(r"(?<=\w)([_.=(/])(?=\w)", r"\1<wbr>", m[0]), match[1])
    return f'<div class="wide"><table class="docutils">{cells}</div>'


def on_page_content(html, page, config, files):
    html = re.sub(r"<table>(.*?</table>)", table, html, flags=re.S)
    html = re.sub(r"(<pre[^>]*>(?:<span></span>)?<code[^>]*>)(.*?)(</code></pre>)", wrap, html, flags=re.S)
    return re.sub(r"<code>(?:[^<]|<wbr>)*</code>", lambda m: unbroken(m[0]), html)


def mended(html, config):
    """The theme links to folders, which only a server opens. Debian 12's asks for other versions of its scripts than it has: without
    jQuery the menu of a phone does not open."""
    folders = [Path(folder) / "js" for folder in config["theme"].dirs]

    def script(match):
        name = match[1]
        if any((folder / name).exists() for folder in folders):
            return match[0]
        others = [path.name for folder in folders for path in folder.glob(name.split("-")[0] + "-*.js")]
        return match[0].replace(name, others[0]) if others else ""

    html = re.sub(r'href="((?:\./|\.\./)*\.\.?)"', r'href="\1/index.html"', html)
    return re.sub(r'<script src="[^"]*\bjs/([^"/]+)"[^>]*></script>', script, html)


def on_post_page(html, page, config):
    return mended(html, config)


def on_post_template(html, template_name, config):
    return mended(html, config) if template_name.endswith(".html") else html


def on_post_build(config):
    (Path(config["site_dir"]) / "index.html").write_text(
        '<!doctype html><meta charset="utf-8"><title>Tutti</title><meta http-equiv="refresh" content="0; url=guide/index.html">'
        '<a href="guide/index.html">The guide</a>\n')
