"""Draws the README's picture: a terminal with what the commands below really print.

Usage: picture.py BINARY SVG [--check]

It is the same at every run: ids and ages are replaced, and nothing else that is shown depends on the time. `cargo xtask docs` runs it.
"""

import html
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

LOG = "".join(f"Compiling part-{number}\n" for number in range(1, 81)) + "error: there is no crate ledger"
CONTEXT = {"userGoal": "move billing to cents", "decisions": ["amounts are integers"], "buildLog": LOG}
# What is typed, and which of the lines it prints are shown.
COMMANDS = [
    ("waystone checkpoint save billing context.json", slice(None)),
    ("waystone checkpoint view --latest billing --tokens 60", slice(None)),
    ("waystone segment put --file build.log --type log --stash", slice(1, 2)),
    ("waystone segment search 'why did the build fail?'", slice(None)),
]
COLUMNS, WIDTH, HEIGHT, MARGIN, BAR = 86, 8.4, 19, 18, 34
STYLE = """
  .card { fill: #f6f8fa; stroke: #d0d7de }
  text { font: 14px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; fill: #24292f; white-space: pre }
  .typed { fill: #0550ae; font-weight: 600 } .faint { fill: #6e7781 } .good { fill: #116329 } .bad { fill: #a40e26 }
  @media (prefers-color-scheme: dark) {
    .card { fill: #161b22; stroke: #30363d }
    text { fill: #e6edf3 }
    .typed { fill: #79c0ff } .faint { fill: #8b949e } .good { fill: #7ee787 } .bad { fill: #ffa198 }
  }
"""


def lines(binary):
    """Lines of the terminal, each with how it looks."""
    with tempfile.TemporaryDirectory() as home:
        folder = os.path.join(home, "work")
        os.makedirs(folder)
        os.symlink(os.path.abspath(binary), os.path.join(home, "waystone"))
        pathlib.Path(folder, "context.json").write_text(json.dumps(CONTEXT))
        pathlib.Path(folder, "build.log").write_text(LOG)
        path = home + os.pathsep + os.environ["PATH"]
        env = {"HOME": home, "PATH": path, "WAYSTONE_DATA_DIR": os.path.join(home, "data")}
        for command, shown in COMMANDS:
            done = subprocess.run(["bash", "-c", command], cwd=folder, env=env, capture_output=True, text=True)
            assert done.returncode == 0, f"{command}: {done.stderr}"
            yield "typed", f"$ {command}"
            for line in done.stdout.rstrip().splitlines()[shown]:
                yield from wrapped(line)
            yield "", ""


def wrapped(line):
    line = re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "01a1eb98-bac9-…", line)
    line = re.sub(r"\d+ m?s old", "2 s old", line)
    for start in range(0, max(len(line), 1), COLUMNS):
        yield look(line), line[start : start + COLUMNS]


def look(line):
    if re.match(r"(saved|stashed|\d+ new)\b", line):
        return "good"
    if "error:" in line:
        return "bad"
    if re.match(r"(KEY |checkpoint |the rest|\d+ of \d+ tokens|\d+ shown)", line):
        return "faint"
    return ""


def picture(shown):
    while shown and not shown[-1][1]:
        shown.pop()
    width, height = COLUMNS * WIDTH + 2 * MARGIN, len(shown) * HEIGHT + BAR + 2 * MARGIN
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" width="{width:.0f}" height="{height}" role="img">'
    yield head
    yield "<title>A terminal: a context is saved, seen in 60 tokens, a log stashed and found again</title>"
    yield f"<style>{STYLE}</style>"
    yield f'<rect class="card" x="0.5" y="0.5" width="{width - 1:.0f}" height="{height - 1}" rx="10"/>'
    for number, color in enumerate(["#ff5f57", "#febc2e", "#28c840"]):
        yield f'<circle cx="{MARGIN + 6 + number * 20}" cy="{BAR / 2 + 4:.0f}" r="6" fill="{color}"/>'
    for number, (kind, line) in enumerate(shown):
        if line:
            y = BAR + MARGIN + (number + 0.5) * HEIGHT
            mark = f' class="{kind}"' if kind else ""
            # The width is given, as fonts differ.
            length = f'textLength="{len(line) * WIDTH:.1f}" lengthAdjust="spacingAndGlyphs"'
            yield f'<text{mark} x="{MARGIN}" y="{y:.1f}" {length} xml:space="preserve">{html.escape(line, quote=False)}</text>'
    yield "</svg>\n"


def main(binary, svg, *options):
    drawn = "\n".join(picture(list(lines(binary))))
    svg = pathlib.Path(svg)
    if "--check" in options:
        assert svg.read_text() == drawn, f"{svg} is not current; `cargo xtask docs` makes it anew"
    else:
        svg.write_text(drawn)


if __name__ == "__main__":
    main(*sys.argv[1:])
