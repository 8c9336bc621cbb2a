"""Whether installers would pick the newest build from an index and new wheels."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import quote

from rocm_wheels import log
from rocm_wheels.errors import DataError, UsageError
from rocm_wheels.index.entries import name_parts
from rocm_wheels.index.expecting import Asked, Expected, Wheel, expectation, older_releases
from rocm_wheels.index.installers import (
    PLATFORMS,
    TOOLS,
    Place,
    Taken,
    ask,
    python_version,
    requirement_name,
    tags_of,
)
from rocm_wheels.index.reach import ACCEPT, Reach, UnreachableError, base_url, local_path
from rocm_wheels.index.reading import file_name, read_page
from rocm_wheels.index.server import serving
from rocm_wheels.index.spelling import first_that_sorts, why_above
from rocm_wheels.parallel import each
from rocm_wheels.wheels.names import parse_wheel_name


@dataclass(frozen=True)
class Check:
    """What one tool picked for one requirement and Python; ``fault`` is "" when it is what was expected."""

    requirement: str
    python: str
    tool: str
    picked: str = ""
    expected: str = ""
    why: str = ""
    fault: str = ""
    tip: str = ""


Question = tuple[Check, "Expected | None", "list[Wheel]"]


def check_picks(index: str, asked: Asked, env: Mapping[str, str]) -> list[Check]:
    """Ask pip and uv for every requirement and Python, and compare with what is expected.

    Without a platform, it is that of the new wheels.

    By default each new distribution is asked for, without a version; and as ``name==version`` for new
    wheels of an older version than the newest. UsageError when it cannot be told what is expected.
    """
    base = base_url(index)
    new = _without_variants(asked.new)
    asked = replace(asked, new=new, platform=asked.platform or _platform(new))
    projects = sorted({name_parts(path.name)[0] for path in asked.new})
    wanted = list(asked.requirements) or projects
    names = {requirement: requirement_name(requirement) for requirement in wanted}
    pythons = list(asked.pythons) or _pythons(asked.new)
    for python in pythons:
        python_version(python)
    reach = Reach()
    known = {name: candidates(base, name, asked.new, reach) for name in sorted({*projects, *names.values()})}
    with _served(base) as url, _gathered(asked.new) as folder:
        place = Place(url, folder, asked.platform, asked.pre, asked.deps)
        questions: list[Question] = []
        for python in pythons:
            tags = tags_of(python, asked.platform)
            for requirement, name in {**names, **older_releases(known, asked, names)}.items():
                usable = [wheel for wheel in known[name] if wheel.tags & tags]
                expected = expectation(requirement, usable, asked)
                version, why = (str(expected.version), expected.why) if expected else ("", "")
                for tool in TOOLS:
                    asking = Check(requirement, python, tool, expected=version, why=why)
                    questions.append((asking, expected, usable))

        def answers(group: Sequence[Question]) -> list[tuple[Question, Check]]:
            first = group[0][0]
            taken = ask(first.tool, [one.requirement for one, *_ in group], first.python, place, env)
            if taken.failure and len(group) > 1:  # one of them is not to be had: which?
                return [pair for one in group for pair in answers([one])]
            return [(one, _compare(one[0], taken, *one[1:])) for one in group]

        groups = each(answers, _together(questions, deps=asked.deps), jobs=os.cpu_count() or 1)
        found = {id(question): check for group in groups for question, check in group}
        return [found[id(question)] for question in questions]


def _together(questions: Sequence[Question], *, deps: bool) -> list[list[Question]]:
    """Return what a tool can be asked at once: without ``deps``, other projects do not matter to one.

    Most of the time of pip is its start.
    """
    groups: dict[tuple[str, str, int], list[Question]] = {}
    seen: dict[tuple[str, str, str], int] = {}
    for question in questions:
        one = question[0]
        key = (one.tool, one.python, "" if deps else requirement_name(one.requirement))
        seen[key] = seen.get(key, 0) + 1
        groups.setdefault((one.tool, one.python, seen[key]), []).append(question)
    return list(groups.values())


def _without_variants(new: Sequence[Path]) -> list[Path]:
    """Leave variant wheels out: pip does not read them, uv ranks them otherwise; UsageError when all are."""
    plain = [path for path in new if name_parts(path.name)[2] is None]
    if not plain:
        raise UsageError(
            f"{new[0].name} is a variant wheel: those are chosen by properties, not by version alone",
            tip="name the plain wheels of the release",
        )
    if left := [path.name for path in new if path not in plain]:
        log.note(f"left out, as variants are chosen by properties: {', '.join(left)}")
    return plain


def candidates(base: str, project: str, new: Sequence[Path], reach: Reach) -> list[Wheel]:
    """Return the wheels of a project in an index (none that is yanked) and among new files."""
    found = [wheel for path in new if (wheel := _wheel(path.name, new=True, project=project))]
    url = f"{base}{project}/"
    try:
        answer = reach.get(url, accept=ACCEPT)
    except UnreachableError as cause:
        raise UsageError(f"{url} cannot be reached: {cause}") from None
    if answer.status == 404:
        return found
    if answer.status != 200:
        raise UsageError(f"{url} answers {answer.status}", tip=f"`rocm-wheels index verify {base}` says more")
    for link in read_page(answer.content, answer.kind, url).links:
        name = file_name(link)
        if link.yanked is None and name.endswith(".whl"):
            wheel = _wheel(name, new=False, project=project)
            found += [wheel] if wheel else []
    return found


def _wheel(name: str, *, new: bool, project: str) -> Wheel | None:
    try:
        parsed = parse_wheel_name(name)
    except DataError:
        if new:
            raise
        return None  # no installer reads it either
    if parsed.name != project or parsed.label is not None:
        return None  # variants are chosen by other rules, and only where a tool knows them
    return Wheel(name, parsed.version, parsed.tags, new)


def _compare(asked: Check, taken: Taken, expected: Expected | None, wheels: Sequence[Wheel]) -> Check:
    """Return a check with what was picked, and what is wrong with it."""
    tool, name = asked.tool, requirement_name(asked.requirement)
    picked = taken.versions.get(name)
    if picked is None:
        return replace(asked, fault=taken.failure or f"{tool} took no {name}")
    if expected is None or picked == expected.version:
        return replace(asked, picked=str(picked), expected=asked.expected or str(picked))
    fault = f"{tool} takes {picked}, not {expected.version} ({expected.why})"
    if picked > expected.version:
        fault += f": {why_above(picked, expected.version)}"
    better = first_that_sorts(expected.version, [wheel.version for wheel in wheels])
    tip = (
        f"spelled {better.version} it would be taken ({better.scheme}; see --version-scheme)"
        if better
        else ""
    )
    return replace(asked, picked=str(picked), fault=fault, tip=tip)


def _pythons(new: Sequence[Path]) -> list[str]:
    """Return the Pythons that new wheels are for; this one for wheels for any."""
    tags = {tag.interpreter for path in new for tag in parse_wheel_name(path.name).tags}
    found = sorted(int(tag[3:]) for tag in tags if tag.startswith("cp3") and tag[3:].isdigit())
    return [f"3.{minor}" for minor in found] or [f"3.{sys.version_info.minor}"]


def _platform(new: Sequence[Path]) -> str:
    """Return the platform that new wheels are for; linux for wheels for any. UsageError for several."""
    tags = {tag.platform for path in new for tag in parse_wheel_name(path.name).tags}
    found = [name for name, known in PLATFORMS.items() if tags.intersection(known)]
    if len(found) > 1:
        raise UsageError(f"the new wheels are for {' and '.join(found)}", tip="one at a time: --platform")
    return (found or ["linux"])[0]


@contextmanager
def _served(base: str) -> Iterator[str]:
    """Give the URL of an index; one in a folder is served while the block runs, with what it links to."""
    path = local_path(base)
    if path is None:
        yield base
        return
    top = _holding(path)
    with serving(top) as server:
        below = path.relative_to(top).as_posix()
        yield server.url if below == "." else f"{server.url}{quote(below)}/"


def _holding(index: Path) -> Path:
    """Return the folder of an index and of all that it links to: sets of a store have their files beside."""
    top = index
    for page in index.glob("*/index.html"):
        url = f"{page.parent.as_uri()}/"
        places = [local_path(link.url) for link in read_page(page.read_bytes(), "text/html", url).links]
        top = Path(os.path.commonpath([top, *(place for place in places if place is not None)]))
    if top == Path(top.anchor):
        raise UsageError(
            f"{index} links to files that have no folder in common", tip="give its URL on a server"
        )
    return top


@contextmanager
def _gathered(new: Sequence[Path]) -> Iterator[Path]:
    """Give a folder with the new wheels and nothing else."""
    with tempfile.TemporaryDirectory(prefix="rocm-wheels-") as name:
        for path in new:
            target = Path(name) / path.name
            if target.exists():
                raise UsageError(f"two new wheels are called {path.name}")
            try:
                target.symlink_to(path.resolve())
            except OSError:  # Windows, without the right to
                shutil.copyfile(path, target)
        yield Path(name)
