"""Command lines, what they print, and the files that show it."""

from __future__ import annotations

import contextlib
import difflib
import io
import json
import os
import platform
import re
import shlex
import shutil
import subprocess
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from html.parser import HTMLParser
from importlib import import_module
from itertools import dropwhile
from pathlib import Path
from typing import Any

import click
import pytest
from click.core import ParameterSource

from rocm_wheels.cli import boundary, main
from rocm_wheels.cli.command import Group, Option
from rocm_wheels.core import errors

# ---- Programs as a user starts them, and how they ended.


@dataclass(frozen=True)
class Ended:
    """How a program ended: its exit code, and what it wrote on stdout and on stderr."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The document that it wrote on stdout."""
        return json.loads(self.out)


def call(*words: object, code: int | Collection[int] | None = 0) -> Ended:
    """Run a command of ours in this process; it must end with ``code``, or one of them (``None``: with any).

    An exception is a bug, and raised.
    """
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        ended = boundary.run_command(main.cli, list(map(str, words)))
    texts = []
    for stream in (out, err):
        stream.flush()
        texts.append(stream.buffer.getvalue().decode("utf-8", "replace"))  # type: ignore[attr-defined]
    assert code is None or ended in ((code,) if isinstance(code, int) else code), (words, ended, *texts)
    return Ended(ended, *texts)


def choose_projects(usual: Iterable[str], words: Sequence[str]) -> list[str]:
    """Return words of `build` or `plan` with PROJECTs in place of ``--build-X`` and ``--no-build-X``.

    ``usual``: what is built where ``words`` say nothing of it. Where they name projects, they stay.
    """
    if words and not words[0].startswith("-"):
        return list(words)
    chosen, others = dict.fromkeys(usual), list[str]()
    for word in words:
        switch, _, name = word.rpartition("build-")
        if switch == "--no-":
            chosen.pop(name.replace("-", "_"), None)
        elif switch == "--" and name != "number":
            chosen[name.replace("-", "_")] = None
        else:
            others.append(word)
    return [",".join(chosen), *others]


def run_program(
    words: Sequence[str | Path], *, cwd: Path, env: Mapping[str, str], timeout: float = 120
) -> Ended:
    """Run a program; no traceback may come of it."""
    done = subprocess.run(
        list(map(str, words)),
        cwd=cwd,
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return Ended(done.returncode, done.stdout, done.stderr)


needs_ssh_keygen = pytest.mark.skipif(
    shutil.which("ssh-keygen") is None, reason="OpenSSH's client is not installed"
)


def make_key(path: Path, *, kind: str = "ed25519", phrase: str = "") -> Path:
    """Make a key to sign with, its public half beside it."""
    argv = ["ssh-keygen", "-q", "-t", kind, "-N", phrase, "-C", "somebody", "-f", str(path)]
    subprocess.run(argv, check=True)
    return path


# ---- Command lines of ours in pages, help and workflows, parsed by the commands themselves, which do not
# run.
#
# Names, options, values and what is missing are judged as in a call. The disk is not looked at: a path is
# any
# text, and a value with ``$`` or ``…`` in it is one that only whoever runs the line knows.


CLONE = Path(__file__).resolve().parents[2]
_STARTS = re.compile(r'_script\.run\("([\w.]+):(\w+)"((?:, "\w+")*)\)')
_STARTERS = ("python3", "uvx")
_INNER = re.compile(r"\$\(([^()]*)\)")


def find_faults(line: str, *, names: bool = False) -> list[str]:
    """Return what our commands in a line of a shell would refuse before they begin.

    ``names``: the line may be no more than the name of a command, as in a sentence.
    """
    return [fault for words in split_line(line) for fault in _find_command_faults(words, names)]


def split_line(line: str) -> Iterator[list[str]]:
    """Yield the words of each command of a line, of those inside ``$(…)`` too, without redirections."""
    line = line.partition(" #")[0]
    for inner in _INNER.findall(line):
        yield from split_line(inner)
    lexer = shlex.shlex(_INNER.sub("$X", line), posix=True, punctuation_chars="|&;<>")
    lexer.whitespace_split, lexer.commenters = True, ""
    words: list[str] = []
    for word in lexer:
        if not re.fullmatch("[|&;<>]+", word):
            words.append(word)
        elif "<" in word or ">" in word:
            next(lexer)
        else:
            yield words
            words = []
    yield words


def _find_command_faults(words: Sequence[str], names: bool) -> list[str]:
    started = list(dropwhile(lambda word: "=" in word, words))
    place = next((n for n, word in enumerate(started) if load_program(word)), None)
    asks_completion = any(word.startswith("_ROCM_WHEELS_COMPLETE=") for word in words)  # click answers that
    if place is None or asks_completion or (place and started[0] not in _STARTERS):
        return []
    word, rest = started[place], [other for other in started[place + 1 :] if other != "…"]
    behind = rest[rest.index("--") + 1 :] if "--" in rest else []  # a command in a container, say
    program = load_program(word)
    assert program is not None
    faults = [] if names and _is_name(program, rest) else parse_words(program, rest, word)
    return [*faults, *_find_command_faults(behind, names)]


def _is_name(program: click.Command | None, words: Sequence[str]) -> bool:
    """Tell whether words are the name of a command or group, and nothing else."""
    for word in words:
        if not isinstance(program, click.Group):
            return False
        aliases = program.aliases if isinstance(program, Group) else {}
        program = None if word in aliases else program.get_command(click.Context(program), word)
    return program is not None and not program.hidden


@cache
def load_program(word: str) -> click.Command | None:
    """Return the click command behind ``rocm-wheels`` or a script of the clone; ``None`` for others."""
    if word == "rocm-wheels" or word.endswith("/rocm-wheels"):
        return main.cli
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


def parse_words(
    program: click.Command, words: Sequence[str], name: str = "", *, older_names: bool = False
) -> list[str]:
    """Parse the words of a call, without one; return why it is refused, in one text, or nothing.

    Names that are read and not shown are refused as well, unless ``older_names``.
    """
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(io.StringIO()):
        patch.setattr(click.Command, "invoke", _take_all if older_names else _refuse_older_names)
        if not older_names:
            patch.setattr(Option, "add_to_parser", click.Option.add_to_parser)
        cast = click.Parameter.type_cast_value
        patch.setattr(
            click.Parameter,
            "type_cast_value",
            lambda param, ctx, value: value if re.search("[$…]", str(value)) else cast(param, ctx, value),
        )
        for kind in _list_path_types(click.Path):
            patch.setattr(kind, "convert", lambda path, value, *_: path.coerce_path_result(value))
        try:
            program.main([*words], prog_name=name or program.name, standalone_mode=False)
        except click.UsageError as refused:
            path = refused.ctx.command_path if refused.ctx else name
            return [f"{path}: {refused.format_message()}"]
        except errors.RocmWheelsError as refused:
            return [f"{name}: {refused}"]
    return []


def _list_path_types(kind: type[click.Path]) -> Iterator[type[click.Path]]:
    yield kind
    for below in kind.__subclasses__():
        yield from _list_path_types(below)


def _take_all(command: click.Command, ctx: click.Context) -> None:
    """Do nothing, in the place of a command."""


def _refuse_older_names(command: click.Command, ctx: click.Context) -> None:
    parent = ctx.parent.command if ctx.parent else None
    if command.hidden or (isinstance(parent, Group) and str(ctx.info_name) in parent.aliases):
        ctx.fail(f"{ctx.info_name} is an older name")
    for param in command.get_params(ctx):
        hidden = isinstance(param, click.Option) and param.hidden
        if hidden and ctx.get_parameter_source(str(param.name)) is ParameterSource.COMMANDLINE:
            ctx.fail(f"{param.opts[0]} is not shown")


# ---- Files of what commands say, one a command group, and what all failures have in common.
#
# An entry begins with ``$ `` and a command line, or ``# `` and a title or a test; below is what was
# printed,
# stdout before stderr, and the exit code where it is not 0. ``ROCM_WHEELS_WRITE_MESSAGES=1`` has entries
# written anew.


FOLDER = CLONE / "tests" / "data" / "messages"
WRITES = bool(os.environ.get("ROCM_WHEELS_WRITE_MESSAGES"))

OTHERWISE_EACH_TIME = {
    r"((?:^Usage: |^Try '))(?:python -m pytest|pytest|-c)(?= )": r"\1PROGRAM",  # a command that tests call
    r"(\d{8}T\d{6}Z)-[0-9a-f]{12}": r"\1-ID",  # of evidence, which names this machine
    r"(\$BASE/\w+?)\d+\b": r"\1N",  # folders that fixtures share
    r"(?<=char )\d+|(?<=column )\d{3,}|(?<=table at )\d+|(?<=\()\d{3,}(?= bytes\))": "N",  # places in files
}


def read_entries(group: str) -> dict[str, str]:
    """Return the texts of a group's file by what they begin with."""
    entries: dict[str, str] = {}
    file = FOLDER / f"{group}.txt"
    for part in re.split(
        r"^(?=[$#] )", file.read_text(encoding="utf-8") if file.exists() else "", flags=re.M
    ):
        if part:
            title, _, text = part.partition("\n")
            assert title not in entries, f"{file} has two entries {title}"
            entries[title] = text.strip("\n")
    return entries


def write_entries(group: str, entries: Mapping[str, str]) -> None:
    text = "\n".join(f"{title}\n{text}\n" if text else f"{title}\n" for title, text in entries.items())
    (FOLDER / f"{group}.txt").write_text(text, encoding="utf-8")


def require_entries(group: str, printed: Mapping[str, str]) -> None:
    """Require that a group's file has these texts, or write them."""
    entries = read_entries(group)
    if WRITES:
        write_entries(group, entries | printed)
        return
    known = {title: entries.get(title, "") for title in printed}
    changes = difflib.unified_diff(
        _list_lines(known), _list_lines(printed), f"{group}.txt", "now", lineterm=""
    )
    assert known == printed, "\n".join(changes)


_taken: list[tuple[Sequence[object], int, str]] = []  # in the test that runs


def take_down(words: Sequence[object], code: int, printed: str) -> None:
    """Have a command and what it printed be in the transcript of this test."""
    _taken.append((words, code, printed))


@contextmanager
def refused(kind: type[errors.RocmWheelsError] | tuple[type[errors.RocmWheelsError], ...]) -> Iterator[Any]:
    """Require that what is done raises an error of this kind, and take down what a user would read."""
    with pytest.raises(kind) as caught:
        yield caught
    take_down([type(caught.value).__name__], caught.value.exit_code, errors.explain_error(caught.value))


@pytest.fixture(autouse=True)
def transcript(
    request: pytest.FixtureRequest, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[None]:
    """Compare what a test took down with the entry of its name, in the file of its module's MESSAGES."""
    _taken.clear()
    yield
    places = {"TMP": str(tmp_path), "BASE": str(tmp_path_factory.getbasetemp()), "HOST": platform.node()}
    lines: list[str] = []
    for words, code, printed in _taken:
        text = generalize(printed, code, places)
        lines += [f"> {generalize(shlex.join(map(str, words)), 0, places)}", *text.splitlines()]
    if lines:
        require_entries(request.module.MESSAGES, {f"# {request.node.name}": "\n".join(lines)})


def _list_lines(entries: Mapping[str, str]) -> list[str]:
    return [line for title, text in entries.items() for line in (title, *text.splitlines())]


def generalize(printed: str, code: int, places: Mapping[str, str]) -> str:
    """Put names for places, take out what other versions of git say in other words, and add the exit code."""
    for name, place in sorted({**places, "CLONE": str(CLONE)}.items(), key=lambda item: -len(item[1])):
        printed = re.sub(rf"(?<!\w){re.escape(place)}(?!\w)", f"${name}", printed)
    for pattern, text in OTHERWISE_EACH_TIME.items():
        printed = re.sub(pattern, text, printed, flags=re.MULTILINE)
    printed = re.sub(r"(^ *\| ).*\n(?:^ *\| .*\n)*", r"\1…\n", printed, flags=re.MULTILINE)
    return f"{printed.rstrip()}\nexit code: {code}".lstrip() if code else printed.strip("\n")


def require_good_failure(line: str, printed: str) -> None:
    """Require what all failures have in common: an error, a tip, no traceback."""
    for pattern in ("^(?:error|Error): ", "^ *tip: |^Try '"):
        assert re.search(pattern, printed, re.MULTILINE), (line, printed)
    assert "Traceback" not in printed, (line, printed)


# ---- Reads pages that the tool writes: whole, nothing from outside, no string that left its place.


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
