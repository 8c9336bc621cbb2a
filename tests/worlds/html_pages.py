"""Reads pages that the tool writes: whole, nothing from outside, no string that left its place."""

from __future__ import annotations

import re
from collections import Counter
from html.parser import HTMLParser

HOSTILE = (
    "\"'><script>alert(1)</script><img src=//evil.example/x>&lt;\x1b[31m\x00\u202e\ud800</td></pre></svg>"
)


class Page(HTMLParser):
    """Reads a page and notes what is wrong with it."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: Counter[str] = Counter()
        self.ids: Counter[str] = Counter()
        self.attributes: list[tuple[str, str, str]] = []
        self.words: list[str] = []
        self.wrong: list[str] = []
        self.feed(text)
        self.close()
        self.text = " ".join(" ".join(self.words).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        if tag not in {"meta", "br"}:
            self.open.append(tag)
        for name, value in attrs:
            self.attributes.append((tag, name, value or ""))
            if name == "id":
                self.ids[value or ""] += 1

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.wrong.append(f"</{tag}> at {self.getpos()}")

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.words.append(data)


def read_page(text: str) -> Page:
    """Read a page and require what holds for every page."""
    text.encode("utf-8")
    page = Page(text)
    assert (page.open, page.wrong) == ([], [])
    assert [name for name, count in page.ids.items() if count > 1] == []
    assert not {"script", "img", "link", "iframe", "object", "base", "form"} & page.tags.keys()
    for tag, name, value in page.attributes:
        assert not name.startswith("on"), (tag, name)
        if name in {"href", "src", "action", "xlink:href", "style", "aria-labelledby"}:
            assert name in {"href", "aria-labelledby"}, (tag, name)
            assert value.removeprefix("#") in page.ids, value
    assert not re.search("[\x00-\x08\x0b-\x1f\u202e]", text)
    return page
