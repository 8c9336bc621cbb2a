"""What came of a search: the first bad set, the last good one, and what differs between them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rocm_wheels.errors import RocmWheelsError, explain
from rocm_wheels.release.bisect.question import Line
from rocm_wheels.release.bisect.search import Between
from rocm_wheels.release.bisect.state import Probe, State
from rocm_wheels.release.sets import SetDocument
from rocm_wheels.shell import shell_line
from rocm_wheels.sources.lock.diff import LockDiff, compare
from rocm_wheels.sources.lock.diff_report import as_json, report_lines
from rocm_wheels.sources.lock.file import read_lock


@dataclass(frozen=True)
class Answer:
    """``skipped`` are sets between the two that could not be tested: any of them may be the first bad one.

    ``versions`` are those of projects that differ, as (project, old, new); ``locks`` the files of the two
    locks, ``diff`` is ``None`` where they cannot be compared, and ``why_not`` says why.
    """

    good: SetDocument
    bad: SetDocument
    skipped: tuple[Probe, ...]
    probes: tuple[Probe, ...]
    versions: tuple[tuple[str, str, str], ...]
    locks: tuple[Path, Path]
    diff: LockDiff | None
    why_not: str = ""


def answer_of(line: Line, between: Between, state: State) -> Answer:
    """Return the answer; the two locks are copied into the folder of the question."""
    good, bad = line.document(between.good), line.document(between.bad)
    locks = tuple(state.folder / "locks" / f"{one.id}.lock.json" for one in (good, bad))
    diff, why_not = None, ""
    try:
        for one, path in zip((good, bad), locks, strict=True):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink(missing_ok=True)
            newest = one.sources[-1].path  # of several locks, that of the newest ROCm
            line.store.fetch(f"{line.places.set_folder(one.id)}/{newest}", path)
        diff = compare(read_lock(locks[0]), read_lock(locks[1]))
    except RocmWheelsError as failure:  # the search took long: it is answered all the same
        why_not = explain(failure).splitlines()[0]
    probes = {one.set: one for one in state.probes}
    skipped = tuple(probes[line.ids[number]] for number in between.skipped)
    versions = tuple(_versions(good, bad))
    return Answer(good, bad, skipped, tuple(state.probes), versions, (locks[0], locks[1]), diff, why_not)


def answer_lines(answer: Answer) -> Iterator[str]:
    """Yield what a person reads."""
    if answer.skipped:
        yield "the first bad set is one of these; those that cannot be tested hide which:"
        for one in answer.skipped:
            yield f"  {one.set}: {one.why}"
        yield f"  {_titled(answer.bad)}"
    else:
        yield f"the first bad set is {_titled(answer.bad)}"
    yield f"the last good set is {_titled(answer.good)}"
    yield "what differs:"
    for project, old, new in answer.versions:
        yield f"  {project}  {old} → {new}"
    if answer.good.rocms != answer.bad.rocms:
        yield f"  ROCm  {answer.good.rocm_in_words or 'unknown'} → {answer.bad.rocm_in_words or 'unknown'}"
    if answer.diff is None:
        yield f"  the locks cannot be compared: {answer.why_not}"
        return
    yield from (f"  {text}".rstrip() for text in report_lines(answer.diff, {}, most=0))
    if not answer.diff.same:
        yield f"the commits between: {_diff_command(answer)}"


def answer_as_json(answer: Answer) -> dict[str, Any]:
    """Return what ``bisect --help`` says."""
    return {
        "first_bad": answer.bad.id,
        "last_good": answer.good.id,
        "certain": not answer.skipped,
        "skipped": [{"set": one.set, "why": one.why} for one in answer.skipped],
        "probes": [one.model_dump(mode="json") for one in answer.probes],
        "differs": {
            "versions": {project: {"old": old, "new": new} for project, old, new in answer.versions},
            "rocm": {"old": answer.good.rocm_in_words or None, "new": answer.bad.rocm_in_words or None},
            "lock": None if answer.diff is None else as_json(answer.diff, {}, most=0),
            "lock_diff": None if answer.diff is None else _diff_command(answer),
            "why_not": answer.why_not or None,
        },
    }


def _titled(document: SetDocument) -> str:
    return f"{document.id}  ROCm {document.rocm_in_words or 'unknown'}  {document.created}"


def _diff_command(answer: Answer) -> str:
    return shell_line(["rocm-wheels", "lock", "diff", *map(str, answer.locks)])


def _versions(good: SetDocument, bad: SetDocument) -> Iterator[tuple[str, str, str]]:
    """Yield projects that differ with their versions; "none" where a set has none."""
    old, new = ({file.project: file.version for file in one.files} for one in (good, bad))
    for project in sorted({*old, *new}):
        pair = old.get(project, "none"), new.get(project, "none")
        if pair[0] != pair[1]:
            yield project, *pair
