"""Pages of the documentation: blocks of commands, what they need, and commands named in sentences."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path

import click

from rocm_wheels.cli.main import cli

CLONE = Path(__file__).resolve().parents[1]
DOCS = CLONE / "docs"
PAGES = (CLONE / "README.md", *sorted((DOCS / "pages").rglob("*.md")))
# fmt: off
NEEDS = (
    "bucket", "bundle", "candidate", "github", "gpu", "network", "other-wheels", "podman", "pytorch", "rocm",
    "slurm", "snakemake", "two-sets", "windows",
)
# fmt: on
_SHELLS = {"sh", "bash", "shell", "zsh", "powershell", "shell-session", "cmd", "bat"}
_COMMENT = re.compile(r"<!-- (needs|run by|exit code): (.+?) -->")
_SPAN = re.compile(r"(?<!`)`((?:rocm-wheels|build_tools/\w+\.py|repos/\w+\.py) [^`]+)`(?!`)")
_STARTS = re.compile(r'_script\.run\("([\w.]+):(\w+)"((?:, "\w+")*)\)')


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


def list_named_commands(page: Path) -> Iterator[tuple[str, str]]:
    """Yield place and words of each command of ours that a page names, in blocks and in sentences."""
    for block in list_blocks(page):
        for command, _ in block.commands:
            yield block.place, command
    outside = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    for span in _SPAN.finditer(outside):
        yield str(page.relative_to(CLONE)), " ".join(span.group(1).split())


def find_faults(line: str) -> list[str]:
    """Return what a line names that the command line has not: commands and options."""
    words = shlex.split(line.replace("…", "X"), comments=False)
    faults = []
    for start, word in enumerate(words):
        command = load_program(word.removeprefix("$(").removeprefix("("))
        if command is not None:
            faults += _check_words(word, command, words[start + 1 :])
            break
    return faults


@cache
def load_program(word: str) -> click.Command | None:
    """Return the click command behind ``rocm-wheels`` or a script of the clone; ``None`` for others."""
    if word == "rocm-wheels" or word.endswith("/rocm-wheels"):
        return cli
    script = CLONE / word
    if not re.fullmatch(r"(build_tools|repos)/\w+\.py", word):
        return None
    assert script.is_file(), f"there is no {word}"
    starts = _STARTS.search(script.read_text(encoding="utf-8"))
    if starts is None:
        return None
    attribute = getattr(import_module(starts[1]), starts[2])
    if isinstance(attribute, click.Command):
        return attribute
    made = attribute(*re.findall(r'"(\w+)"', starts[3]))
    assert isinstance(made, click.Command)
    return made


def _check_words(name: str, command: click.Command, words: list[str]) -> list[str]:
    context = click.Context(command, info_name=name)
    faults = []
    for word in words:
        if word in {"--", "|", "&&", ">", ";"} or word.endswith(")"):
            break
        if word.startswith("-") and not re.fullmatch(r"-\d+", word):
            if not is_option(command, context, word.partition("=")[0]):
                faults.append(f"{context.command_path} has no option {word}")
        elif isinstance(command, click.Group) and (below := command.get_command(context, word)) is not None:
            if below.hidden:
                faults.append(f"{context.command_path} {word} is an old name")
            command, context = below, click.Context(below, info_name=word, parent=context)
        elif isinstance(command, click.Group) and not command.invoke_without_command:
            faults.append(f"{context.command_path} has no command {word}")
            break
    return faults


def is_option(command: click.Command, context: click.Context, word: str) -> bool:
    """Tell whether a command has an option that its help shows."""
    shown = [
        option
        for option in command.get_params(context)
        if isinstance(option, click.Option) and not option.hidden
    ]
    names = {name for option in shown for name in (*option.opts, *option.secondary_opts)}
    short = {name for name in names if len(name) == 2}
    return word in names or (not word.startswith("--") and word[:2] in short)
