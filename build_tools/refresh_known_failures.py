#!/usr/bin/env python3
"""Write data/therock_known_tests.yaml anew: the tests of torch that TheRock's skip_tests name, as facts.

refresh_known_failures.py --commit COMMIT [--checkout DIR] [--retrieved DAY] [--days 180] [--output FILE]

The lists are read from a clone of ROCm/TheRock (--checkout, bare or not), else from GitHub. Each name becomes
an exact test with its owner, where it is tracked, and the day up to which it counts: a year from the day on
which its line was written there (git blame). A name stands under a module: ``cuda`` is test_cuda.py,
``inductor`` every file of that folder. Whether it hangs or ends its process is told by the words beside it.
``(TestNN and test_x)`` is that test of that class. Names that are patterns are left out, and printed.
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
import tempfile
import tokenize
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from pathlib import Path

import click
import yaml

from rocm_wheels.cli import command
from rocm_wheels.core import errors, files, process
from rocm_wheels.models import gfx

_OWNER = "ROCm/TheRock"
_FOLDER = "external-builds/pytorch/skip_tests"
_LISTS = re.compile(r"(generic|pytorch_(?P<version>\d+\.\d+))\.py")
_OUTPUT = Path(__file__).parent / "rocm_wheels" / "data" / "therock_known_tests.yaml"
# modules of TheRock's lists that are folders of pytorch's test/; each other one is a file test_MODULE.py
_FOLDERS = ("distributed", "distributions", "dynamo", "export", "functorch", "inductor", "profiler")
_HANGS = re.compile(r"\bhang|pytest-timeout", re.IGNORECASE)
_CRASHES = re.compile(r"SIGSEGV|\bcrash(?!es if)|fatal exception|raised from ~", re.IGNORECASE)
_PYTHON = re.compile(r"\bPython (3\.\d+)(?:,|:| \(not)|\bpy(3\.\d+)\b")
_PAST = re.compile(r"\((?:the )?prior [^)]*\)")  # what a test did before, and does not any more
_OF_CLASS = re.compile(r"\((\w+) and (\w+)\)")  # how `pytest -k` is told a class
_TARGET = re.compile(r"failure on (gfx[0-9a-f]+)\b")
_ISSUE = re.compile(r"https://github\.com/[\w.-]+/[\w.-]+/(?:issues|pull)/\d+")
_LONGEST_REASON = 160
_WIDTH = 120
_LIFE = timedelta(365)  # of a name, from the day on which its line was written
_BLAME_LINE = re.compile(r"[0-9a-f]{40} \d+ (\d+)")
_HEAD = """\
# Tests of torch that TheRock skips on AMD GPUs, each as a fact with its source: `known` of torch_tests.yaml goes on here.
# Written by build_tools/refresh_known_failures.py; a row of torch_tests.yaml about the same test goes before one of here.
# TheRock's names are parts of names for `pytest -k`; here they are exact, and of the files that they stand under alone.
# owner is who keeps the list; an entry is tracked by its issue, else by its line in the list. From the day after expires a
# group does not count any more: write the file anew. It is a year after its lines were written; what nothing is said of ends first.
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


@dataclass(frozen=True)
class SkipList:
    """A file of skip_tests: its text, and for each of its lines the day on which it was written, from 1."""

    text: str
    written: Mapping[int, date]


def read_skipped_tests(text: str, name: str) -> list[SkippedTest]:
    """Return what a file of skip_tests names, each with the comments above it, or above the one before it.

    Two names that lack a comma between them are two. Raises DataError where it is not written as all are.
    """
    lists: list[tuple[str, str, ast.expr]] = []
    try:
        table = next(node.value for node in ast.parse(text).body if isinstance(node, ast.Assign))
        for section, modules in zip(table.keys, table.values, strict=True):  # type: ignore[attr-defined]
            for module, listed in zip(modules.keys, modules.values, strict=True):
                lists.append((ast.literal_eval(section), ast.literal_eval(module), listed))
    except (SyntaxError, StopIteration, AttributeError, ValueError) as cause:
        message = f"{name} has no table skip_tests = {{section: {{module: [names]}}}}: {cause}"
        raise errors.DataError(message) from None
    tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    comments = {t.start[0]: t.string.lstrip("# ").rstrip() for t in tokens if t.type == tokenize.COMMENT}
    tests: list[SkippedTest] = []
    for section, module, listed in lists:
        words: tuple[str, ...] = ()
        last_line = listed.lineno
        begin, end = (listed.lineno, listed.col_offset), (listed.end_lineno, listed.end_col_offset)
        for token in tokens:
            if token.type == tokenize.STRING and begin < token.start < end:
                line = token.start[0]
                above = [comments[number] for number in range(last_line + 1, line) if number in comments]
                words, last_line = tuple(above) or words, line
                test = _OF_CLASS.sub(r"\1::\2", ast.literal_eval(token.string))
                tests.append(SkippedTest(test, section, module, line, words, comments.get(line, "")))
    return tests


def make_group(test: SkippedTest, version: str | None) -> dict[str, object]:
    """Return what the table says of all tests of a section of a list."""
    targets: list[str] = []
    if test.section not in {"common", "linux", "windows"}:  # part of the names of GPUs, as TheRock has it
        targets = [target for target in gfx.get_gfx_targets() if test.section in target]
        if not targets:
            raise errors.DataError(f"the section {test.section} is of no GPU target of gfx_families.yaml")
    group = {
        "source": f"therock-{version or 'generic'}",
        "kind": "tested",
        "torch": f"=={version}.*" if version else "",
        "targets": targets,
        "platforms": [test.section] if test.section in {"linux", "windows"} else [],
    }
    return {key: value for key, value in group.items() if value}


def make_entry(test: SkippedTest) -> dict[str, object]:
    """Return what the table says of a name, but for the name."""
    # comments that say something: no lines, no names that were taken out, no addresses
    plain = [_ISSUE.sub("", line.replace("*", "")).strip() for line in test.words]
    words = " ".join(line for line in plain if re.search(r"[A-Za-z]", line) and not line.startswith('"'))
    words = _PAST.sub("", words).strip()
    issue = _ISSUE.search(" ".join(test.words))
    entry: dict[str, object] = {
        "effect": "hangs" if _HANGS.search(words) else "crashes" if _CRASHES.search(words) else "",
        "reason": words[:_LONGEST_REASON].rstrip(),
        "targets": _TARGET.findall(words),
        "pythons": sorted({"".join(digits) for digits in _PYTHON.findall(words)}),
        "issue": issue[0] if issue else "",
        "line": "" if issue else test.line,
    }
    return {key: value for key, value in entry.items() if value}


def make_table(
    lists: Mapping[str, SkipList], commit: str, retrieved: date, days: int
) -> tuple[str, int, list[SkippedTest]]:
    """Return the file, how many names are in it, and what is left out.

    A name counts for a year from the day on which its line was written, and from the reading on for a third
    of so many ``days`` at least, and for no more than all of them. What nothing is said of has the least:
    somebody is to look at that first.
    """
    sources: dict[str, dict[str, str]] = {}
    groups: dict[str, dict[str, object]] = {}
    entries: dict[str, dict[str, dict[str, object]]] = {}
    left_out: list[SkippedTest] = []
    names: set[str] = set()
    soonest, latest = retrieved + timedelta(days // 3), retrieved + timedelta(days)
    for name, skips in lists.items():
        match = _LISTS.fullmatch(name)
        version = match["version"] if match else None
        url = f"https://github.com/{_OWNER}/blob/{commit}/{_FOLDER}/{name}"
        source = {"url": url, "at": commit, "retrieved": retrieved.isoformat()}
        sources[f"therock-{version or 'generic'}"] = source
        for test in read_skipped_tests(skips.text, name):
            if "pattern" in test.beside.lower():
                left_out.append(test)
                continue
            entry = make_entry(test)
            expires = soonest
            if "issue" in entry or "reason" in entry:
                expires = min(max(skips.written[test.line] + _LIFE, soonest), latest)
            group = {"expires": expires.isoformat(), **make_group(test, version)}
            groups.setdefault(same_group := json.dumps(group), group)
            # those that stand below the same words are one entry
            same = json.dumps({**entry, "line": test.words if "line" in entry else ""})
            row = entries.setdefault(same_group, {}).setdefault(same, {**entry, "tests": list[str]()})
            folder = f"{test.module}/*" if test.module in _FOLDERS else f"test_{test.module}"
            tests = row["tests"]
            assert isinstance(tests, list)
            tests.append(f"{folder}.py::{test.name}")
            names.add(test.name)
    lines = [_HEAD, _dump({"sources": sources, "owner": _OWNER}, flow=False), "groups:\n"]
    for same_group, group in groups.items():
        head = _dump(group, flow=False).splitlines()
        lines += [f"- {head[0]}\n", *(f"  {line}\n" for line in head[1:]), "  entries:\n"]
        for row in entries[same_group].values():
            first, *others = _dump(row, flow=True).splitlines()
            lines += [f"  - {first}\n", *(f"    {line}\n" for line in others)]
    return "".join(lines), len(names), left_out


def _dump(value: object, *, flow: bool) -> str:
    text = yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=_WIDTH, default_flow_style=flow)
    return str(text)


def _read_lists(clone: Path, commit: str, *, fetch: bool) -> dict[str, SkipList]:
    def ask_git(*words: str) -> str:
        tip, about = "name a clone: --checkout DIR", f"git {words[0]}"
        argv = ["git", "-C", str(clone), *words]
        return process.capture_output(
            argv, env=os.environ, check=errors.HostError, description=about, tip=tip
        )

    if fetch:  # the history without its files; git fetches those that it needs
        ask_git("init", "--quiet", "--bare")
        ask_git("config", "remote.origin.url", f"https://github.com/{_OWNER}")
        ask_git("fetch", "--quiet", "--filter=blob:none", "origin", commit)
    lists: dict[str, SkipList] = {}
    for name in sorted(ask_git("ls-tree", "--name-only", f"{commit}:{_FOLDER}").split()):
        if not _LISTS.fullmatch(name):
            continue
        written: dict[int, date] = {}
        number = 0
        for line in ask_git("blame", "--line-porcelain", commit, "--", f"{_FOLDER}/{name}").splitlines():
            if match := _BLAME_LINE.match(line):
                number = int(match[1])
            elif line.startswith("committer-time "):
                written[number] = datetime.fromtimestamp(int(line.split()[1]), timezone.utc).date()
        lists[name] = SkipList(ask_git("show", f"{commit}:{_FOLDER}/{name}"), written)
    return lists


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
    "--days",
    type=click.IntRange(1, 366),
    default=180,
    show_default=True,
    help="Days after which every row expires.",
)
@command.option(
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    default=_OUTPUT,
    metavar="FILE",
    show_default="the table of this clone",
    help="File to write.",
)
def refresh_known_failures(
    commit: str, checkout: Path | None, retrieved: str | None, days: int, output: Path
) -> None:
    """Update the table of TheRock's known failures of torch's tests."""
    if not re.fullmatch(r"[0-9a-f]{40}", commit):
        raise errors.UsageError(f"--commit {commit} is no whole commit", tip="name its 40 digits")
    try:
        day = date.fromisoformat(retrieved) if retrieved else datetime.now(timezone.utc).date()
    except ValueError:
        raise errors.UsageError(f"--retrieved {retrieved} is no day", tip="such as 2026-11-26") from None
    with tempfile.TemporaryDirectory(prefix="rocm-wheels-therock-") as folder:
        lists = _read_lists(checkout or Path(folder), commit, fetch=checkout is None)
    if not lists:
        raise errors.DataError(f"there are no lists in {_FOLDER} of {commit}")
    text, count, left_out = make_table(lists, commit, day, days)
    files.write_atomically(output, text.encode())
    click.echo(f"{output}: {count} names of {', '.join(lists)}")
    for test in left_out:
        click.echo(f"left out, a pattern: {test.section}/{test.module} {test.name}")
