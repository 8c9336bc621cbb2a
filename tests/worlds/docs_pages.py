"""Pages of the documentation: blocks of commands, what they need, and commands named in sentences."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

CLONE = Path(__file__).resolve().parents[2]
DOCS = CLONE / "docs"
PAGES = (CLONE / "README.md", *sorted((DOCS / "pages").rglob("*.md")))
# fmt: off
NEEDS = (
    "bucket", "bundle", "candidate", "github", "gpu", "network", "podman", "pytorch", "rocm",
    "snakemake", "two-sets", "windows",
)
# fmt: on
_SHELLS = {"sh", "bash", "shell", "zsh", "powershell", "shell-session", "cmd", "bat"}
_COMMENT = re.compile(r"<!-- (needs|run by|exit code): (.+?) -->")
_SPAN = re.compile(r"(?<!`)`((?:rocm-wheels|build_tools/\w+\.py|repos/\w+\.py) [^`]+)`(?!`)")


@dataclass(frozen=True)
class DocsBlock:
    """A block of commands: each with the lines that it is shown to print, and the marks above it."""

    page: Path
    line: int
    commands: tuple[tuple[str, tuple[str, ...]], ...]
    marks: dict[str, str]

    @property
    def place(self) -> str:
        return f"{self.page.relative_to(CLONE)}:{self.line}"

    @property
    def is_run(self) -> bool:
        """Whether the test of the documentation runs it."""
        return not self.marks.keys() & {"needs", "run by"}


@dataclass(frozen=True)
class DocsFence:
    """A fenced block: its language, where it begins, and what is above and in it."""

    language: str
    line: int
    above: str
    lines: tuple[str, ...]


def list_fences(page: Path) -> Iterator[DocsFence]:
    """Yield the fenced blocks of a page."""
    language: str | None = None
    start, above, lines = 0, "", list[str]()
    previous = ""
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        if line.lstrip().startswith("```"):
            if language is None:
                language, start, above, lines = line.strip().strip("`").strip(), number, previous, []
            else:
                yield DocsFence(language, start, above, tuple(lines))
                language = None
        elif language is not None:
            lines.append(line)
        previous = line
    assert language is None, f"{page}:{start}: the block has no end"


def list_blocks(page: Path) -> list[DocsBlock]:
    """Return the blocks of commands of a page. Raises AssertionError for one that cannot be understood."""
    blocks = []
    for fence in list_fences(page):
        place = f"{page.relative_to(CLONE)}:{fence.line}"
        assert fence.language not in _SHELLS, f"{place}: commands are in blocks of `console`"
        if fence.language == "console":
            blocks.append(
                DocsBlock(page, fence.line, _read_commands(fence, place), _read_marks(fence, place))
            )
    return blocks


def _read_marks(fence: DocsFence, place: str) -> dict[str, str]:
    if not fence.above.startswith("<!--"):
        return {}
    found = _COMMENT.fullmatch(fence.above.strip())
    assert found, f"{place}: unknown mark {fence.above}"
    kind, value = found.groups()
    if kind == "needs":
        unknown = {word.strip() for word in value.split(",")} - set(NEEDS)
        assert not unknown, f"{place}: unknown needs {unknown}"
    if kind == "run by":
        assert (CLONE / value).is_file(), f"{place}: there is no {value}"
    return {kind: value}


def _read_commands(fence: DocsFence, place: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    commands: list[tuple[str, list[str]]] = []
    for line in fence.lines:
        if line.startswith("$ "):
            commands.append((line[2:], []))
        else:
            assert commands, f"{place}: a block of commands begins with `$ `"
            commands[-1][1].append(line)
    return tuple((command, tuple(lines)) for command, lines in commands)


def list_spans(page: Path) -> list[str]:
    """Return the commands of ours that sentences and tables of a page name."""
    outside = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    return [" ".join(span.group(1).split()) for span in _SPAN.finditer(outside)]
