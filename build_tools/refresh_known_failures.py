#!/usr/bin/env python3
"""Write data/therock_known_tests.yaml anew: the tests of torch that TheRock's skip_tests name, as facts.

refresh_known_failures.py --commit COMMIT [--checkout DIR] [--retrieved DAY] [--days 180] [--output FILE]

The lists are read from a clone of ROCm/TheRock (--checkout, bare or not), else from GitHub. Each name becomes
an exact test with its owner, where it is tracked, and the day up to which it counts. A name stands under a
module: ``cuda`` is test_cuda.py, ``inductor`` every file of that folder. Whether it hangs or ends its process
is told by the words beside it. Names that are patterns are left out, and printed.
Upkeep of the repository, not a part of the product.
"""

from __future__ import annotations

if __name__ == "__main__":  # before imports that the Python which runs this may lack
    import _script

    _script.run("refresh_known_failures:refresh_known_failures")

import ast
import io
import json
import os
import re
import tokenize
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from pathlib import Path

import click

from rocm_wheels.cli import command
from rocm_wheels.core import errors, process
from rocm_wheels.core.files import write_atomically
from rocm_wheels.index import reader
from rocm_wheels.models import gfx

_OWNER = "ROCm/TheRock"
_FOLDER = "external-builds/pytorch/skip_tests"
_OUTPUT = Path(__file__).parent / "rocm_wheels" / "data" / "therock_known_tests.yaml"
# modules of TheRock's lists that are folders of pytorch's test/; each other one is a file test_MODULE.py
_FOLDERS = ("distributed", "distributions", "dynamo", "export", "functorch", "inductor", "profiler")
_HANGS = re.compile(r"\bhang|pytest-timeout", re.IGNORECASE)
_CRASHES = re.compile(r"SIGSEGV|\bcrash(?!es if)|fatal exception|raised from ~", re.IGNORECASE)
_PYTHON = re.compile(r"\bPython (3\.\d+)(?:,|:| \(not)|\bpy(3\.\d+)\b")
_TARGET = re.compile(r"failure on (gfx[0-9a-f]+)\b")
_ISSUE = re.compile(r"https://github\.com/[\w.-]+/[\w.-]+/(?:issues|pull)/\d+")
_LONGEST_REASON = 160
_HEAD = """\
# Tests of torch that TheRock skips on AMD GPUs, each as a fact with its source: `known` of torch_tests.yaml goes on here.
# Written by build_tools/refresh_known_failures.py; a row of torch_tests.yaml about the same test goes before one of here.
# TheRock's names are parts of names for `pytest -k`; here they are exact, and of the files that they stand under alone.
# owner is who keeps the list. issue is what stands beside a name, else its line in the list. From the day after expires a
# row does not count any more: write the file anew.
"""  # noqa: E501 - lines of the file


@dataclass(frozen=True)
class SkippedTest:
    """A name in a list of TheRock: its section and module there, its line, and the words beside it."""

    name: str
    section: str
    module: str
    line: int
    words: tuple[str, ...]
    beside: str


def read_skipped_tests(text: str, name: str) -> list[SkippedTest]:
    """Return what a file of skip_tests names. Two names that lack a comma between them are two.

    Raises DataError where it is not written as all of them are.
    """
    try:
        statements = ast.parse(text).body
    except SyntaxError as cause:
        raise errors.DataError(f"{name} is no Python: {cause}") from None
    assignment = next((node for node in statements if isinstance(node, ast.Assign)), None)
    if assignment is None or not isinstance(assignment.value, ast.Dict):
        raise errors.DataError(f"{name} has no table skip_tests = {{...}}")
    comments, strings = _read_tokens(text)
    tests: list[SkippedTest] = []
    for section, modules in zip(assignment.value.keys, assignment.value.values, strict=True):
        if not isinstance(modules, ast.Dict):
            raise errors.DataError(f"{name}:{modules.lineno}: a section is no table of modules")
        for module, listed in zip(modules.keys, modules.values, strict=True):
            assert section is not None and module is not None  # no **other_table
            if not isinstance(listed, ast.List | ast.Set):
                raise errors.DataError(f"{name}:{listed.lineno}: a module has no list of names")
            where = str(ast.literal_eval(section)), str(ast.literal_eval(module))
            tests += _list_names(listed, where, comments, strings)
    return tests


_Place = tuple[int, int]  # line and column


def _list_names(
    listed: ast.List | ast.Set,
    where: tuple[str, str],
    comments: Mapping[int, str],
    strings: Mapping[_Place, str],
) -> Iterator[SkippedTest]:
    """Yield the names of a list, each with the comments above it, or above the one before it."""
    begin, end = (listed.lineno, listed.col_offset), (listed.end_lineno or 0, listed.end_col_offset or 0)
    words: tuple[str, ...] = ()
    last_line = listed.lineno
    for place, name in strings.items():
        if begin < place < end:
            line = place[0]
            above = [comments[number] for number in range(last_line + 1, line) if number in comments]
            words, last_line = tuple(above) or words, line
            yield SkippedTest(name, *where, line, words, comments.get(line, ""))


def _read_tokens(text: str) -> tuple[dict[int, str], dict[_Place, str]]:
    """Return the comments of a file by line, and its strings by place."""
    comments: dict[int, str] = {}
    strings: dict[_Place, str] = {}
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            comments[token.start[0]] = token.string.lstrip("# ").rstrip()
        elif token.type == tokenize.STRING:
            strings[token.start] = str(ast.literal_eval(token.string))
    return comments, strings


def make_row(test: SkippedTest, torch: str, url: str, targets: list[str], expires: date) -> dict[str, object]:
    """Return what the table says of a name, but for the name and its source."""
    words = " ".join(_select_words(test.words))
    issue = _ISSUE.search(" ".join(test.words))
    row: dict[str, object] = {
        "effect": "hangs" if _HANGS.search(words) else "crashes" if _CRASHES.search(words) else "fails",
        "reason": words[:_LONGEST_REASON].rstrip() or "TheRock says nothing of it",
        "torch": torch,
        "targets": targets or _TARGET.findall(words),
        "platforms": [test.section] if test.section in {"linux", "windows"} else [],
        "pythons": sorted({"".join(digits) for digits in _PYTHON.findall(words)}),
        "owner": _OWNER,
        "issue": issue[0] if issue else f"{url}#L{test.line}",
        "expires": expires.isoformat(),
    }
    return {key: value for key, value in row.items() if value}


def _select_words(words: tuple[str, ...]) -> Iterator[str]:
    """Yield the comments that say something: no lines, no names that were taken out, no addresses."""
    for line in words:
        plain = _ISSUE.sub("", line.replace("*", "")).strip()
        if re.search(r"[A-Za-z]", plain) and not plain.startswith('"'):
            yield plain


def format_table(sources: dict[str, dict[str, str]], rows: list[dict[str, object]]) -> str:
    """Return the file: the rows in their order, one key a line."""
    lines = [_HEAD + "sources:"]
    for name, source in sources.items():
        lines += [f"  {name}:", *(f"    {key}: {value}" for key, value in source.items())]
    lines += ["", "known:"]
    for row in rows:
        tests = row["tests"]
        assert isinstance(tests, list)
        items = [f"{key}: {_format_value(value)}" for key, value in row.items() if key != "tests"]
        lines += [f"  - {items[0]}", *(f"    {item}" for item in items[1:]), "    tests:"]
        lines += [f"      - {test}" for test in tests]
    return "\n".join(lines) + "\n"


def _format_value(value: object) -> str:
    plain = isinstance(value, str) and re.fullmatch(r"[\w./:-]+(#[\w]+)?", value)
    return str(value) if plain else json.dumps(value)


def list_targets(section: str) -> list[str]:
    """Return the GPU targets whose names hold that of a section, as TheRock compares them; [] for all."""
    if section in {"common", "linux", "windows"}:
        return []
    targets = [target for target in gfx.get_gfx_targets() if section in target]
    if not targets:
        raise errors.DataError(f"the section {section} is of no GPU target of gfx_families.yaml")
    return targets


def make_table(
    files: dict[str, str], commit: str, retrieved: date, days: int
) -> tuple[str, int, list[SkippedTest]]:
    """Return the file, how many names are in it, and what is left out."""
    sources: dict[str, dict[str, str]] = {}
    rows: dict[str, dict[str, object]] = {}
    left_out: list[SkippedTest] = []
    names: set[str] = set()
    for name, text in files.items():
        url = f"https://github.com/{_OWNER}/blob/{commit}/{_FOLDER}/{name}"
        version = re.fullmatch(r"pytorch_(\d+\.\d+)\.py", name)
        source = f"therock-{version[1]}" if version else "therock-generic"
        sources[source] = {"url": url, "at": commit, "retrieved": retrieved.isoformat()}
        for test in read_skipped_tests(text, name):
            if "pattern" in test.beside.lower():
                left_out.append(test)
                continue
            torch = f"=={version[1]}.*" if version else ""
            row = make_row(test, torch, url, list_targets(test.section), retrieved + timedelta(days))
            row |= {"source": source, "kind": "tested"}
            same = json.dumps(
                {**row, "issue": row["issue"] if "blob" not in str(row["issue"]) else test.words}
            )
            folder = f"{test.module}/*" if test.module in _FOLDERS else f"test_{test.module}"
            tests = rows.setdefault(same, {**row, "tests": []})["tests"]
            assert isinstance(tests, list)
            tests.append(f"{folder}.py::{test.name}")
            names.add(test.name)
    return format_table(sources, list(rows.values())), len(names), left_out


def _read_checkout(folder: Path, commit: str) -> dict[str, str]:
    def ask_git(*words: str) -> str:
        return process.capture_output(["git", "-C", folder, *words], env=os.environ)

    paths = ask_git("ls-tree", "--name-only", f"{commit}:{_FOLDER}").split()
    return {name: ask_git("show", f"{commit}:{_FOLDER}/{name}") for name in _select_lists(paths)}


def _fetch_lists(commit: str) -> dict[str, str]:
    listing = _fetch(f"https://api.github.com/repos/{_OWNER}/contents/{_FOLDER}?ref={commit}")
    names = _select_lists([item["name"] for item in json.loads(listing)])
    base = f"https://raw.githubusercontent.com/{_OWNER}/{commit}/{_FOLDER}"
    return {name: _fetch(f"{base}/{name}").decode() for name in names}


def _fetch(url: str) -> bytes:
    try:
        answer = reader.IndexReader().get(url)
    except reader.UnreachableError as cause:
        raise errors.HostError(f"{url} does not answer", tip="name a clone: --checkout DIR") from cause
    if answer.status != 200:
        raise errors.HostError(f"{url} answers {answer.status}", tip="name a clone: --checkout DIR")
    return answer.content


def _select_lists(names: Sequence[str]) -> list[str]:
    return [name for name in sorted(names) if re.fullmatch(r"(generic|pytorch_\d+\.\d+)\.py", name)]


@command.command("refresh_known_failures")
@command.option("--commit", required=True, metavar="COMMIT", help="The commit of TheRock: its 40 digits.")
@command.option(
    "--checkout",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    metavar="DIR",
    help="Read the lists from this clone of ROCm/TheRock.  [default: from GitHub]",
)
@command.option("--retrieved", metavar="DAY", help="Day of the reading: 2026-11-26.  [default: today]")
@command.option(
    "--days", type=click.IntRange(1, 366), default=180, show_default=True, help="Until rows expire."
)
@command.option(
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    default=_OUTPUT,
    show_default="the table of this clone",
    metavar="FILE",
    help="File to write.",
)
def refresh_known_failures(
    commit: str, checkout: Path | None, retrieved: str | None, days: int, output: Path
) -> None:
    """Write the table of what TheRock knows of torch's tests anew."""
    if not re.fullmatch(r"[0-9a-f]{40}", commit):
        raise errors.UsageError(f"--commit {commit} is no whole commit", tip="name its 40 digits")
    try:
        day = date.fromisoformat(retrieved) if retrieved else datetime.now(timezone.utc).date()
    except ValueError:
        raise errors.UsageError(f"--retrieved {retrieved} is no day", tip="such as 2026-11-26") from None
    files = _read_checkout(checkout, commit) if checkout is not None else _fetch_lists(commit)
    if not files:
        raise errors.DataError(f"there are no lists in {_FOLDER} of {commit}")
    text, count, left_out = make_table(files, commit, day, days)
    write_atomically(output, text.encode())
    click.echo(f"{output}: {count} names of {', '.join(files)}")
    for test in left_out:
        click.echo(f"left out, a pattern: {test.section}/{test.module} {test.name}")
