"""Looks whether every link inside of the documentation leads somewhere: to a file that is there, and to a heading of it.

Usage: links.py PAGE…

The guide is also a book: its pages link only to each other, and its summary lists each of them once.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).parents[2]
GUIDE = ROOT / "docs/guide"
LINK = re.compile(r"!?\[(?:[^\[\]]|\[[^\]]*\])*\]\(([^)\s]+)\)|(?:src|href|srcset)=\"([^\"]+)\"")


def prose(text):
    return re.sub(r"`[^`\n]*`", "``", re.sub(r"^```.*?^```$", "", text, flags=re.S | re.M))


def anchors(text):
    """Anchors of the headings, as GitHub and mdBook make them."""
    seen = {}
    for heading in re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```$", "", text, flags=re.S | re.M), re.M):
        name = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
        name = re.sub(r"\s", "-", re.sub(r"[^\w\s-]", "", name))
        count = seen.get(name, 0)
        seen[name] = count + 1
        yield f"{name}-{count}" if count else name


def check(page):
    """Links of a page that lead nowhere."""
    links = 0
    for found in LINK.finditer(prose(page.read_text())):
        target = found[1] or found[2]
        if re.match(r"[a-z]+:", target):
            continue
        links += 1
        path, _, anchor = target.partition("#")
        leads_to = (page.parent / path).resolve() if path else page
        assert leads_to.exists(), f"{page}: {target} is not there"
        assert not anchor or anchor in anchors(leads_to.read_text()), f"{page}: {target} has no such heading"
        in_book = GUIDE in page.parents
        assert not in_book or GUIDE in leads_to.parents, f"{page}: {target} is not in the book"
    return links


def main(*pages):
    pages = [pathlib.Path(page).resolve() for page in pages]
    links = sum(check(page) for page in pages)
    summary = [match for match in re.findall(r"\]\(([^)]+)\)", (GUIDE / "SUMMARY.md").read_text())]
    there = sorted(page.name for page in GUIDE.glob("*.md") if page.name != "SUMMARY.md")
    assert sorted(summary) == there, f"the summary lists {summary}, and there are {there}"
    print(f"{links} links in {len(pages)} pages, none of them dead")


if __name__ == "__main__":
    main(*sys.argv[1:])
