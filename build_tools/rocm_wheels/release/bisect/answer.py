"""What came of a search: the first bad set, the last good one, and what differs between them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rocm_wheels.errors import RocmWheelsError, explain_error
from rocm_wheels.release.bisect.question import SetLine
from rocm_wheels.release.bisect.search import BisectRange
from rocm_wheels.release.bisect.state import SetProbe, BisectState
from rocm_wheels.release.sets import SetDocument
from rocm_wheels.shell import format_command
from rocm_wheels.sources.lock.diff import LockDiff, compare_locks
from rocm_wheels.sources.lock.diff_report import format_diff_json, format_diff_report
from rocm_wheels.sources.lock.file import read_lock


@dataclass(frozen=True)
class BisectAnswer:
    """``skipped`` are sets between the two that could not be tested: any of them may be the first bad one.

    ``versions`` are those of projects that differ, as (project, old, new); ``locks`` the files of the two
    locks, ``diff`` is ``None`` where they cannot be compared, and ``why_not`` says why.
    """

    good: SetDocument
    bad: SetDocument
    skipped: tuple[SetProbe, ...]
    probes: tuple[SetProbe, ...]
    versions: tuple[tuple[str, str, str], ...]
    locks: tuple[Path, Path]
    diff: LockDiff | None
    why_not: str = ""


def make_bisect_answer(line: SetLine, between: BisectRange, state: BisectState) -> BisectAnswer:
    """Return the answer; the two locks are copied into the folder of the question."""
    good, bad = line.read_document(between.good), line.read_document(between.bad)
    locks = tuple(state.folder / "locks" / f"{item.id}.lock.json" for item in (good, bad))
    diff, why_not = None, ""
    try:
        for item, path in zip((good, bad), locks, strict=True):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink(missing_ok=True)
            newest = item.sources[-1].path  # of several locks, that of the newest ROCm
            line.store.fetch(f"{line.paths.set_folder(item.id)}/{newest}", path)
        diff = compare_locks(read_lock(locks[0]), read_lock(locks[1]))
    except RocmWheelsError as failure:  # the search took long: it is answered all the same
        why_not = explain_error(failure).splitlines()[0]
    probes = {item.set: item for item in state.probes}
    skipped = tuple(probes[line.ids[number]] for number in between.skipped)
    versions = tuple(_list_version_changes(good, bad))
    return BisectAnswer(
        good, bad, skipped, tuple(state.probes), versions, (locks[0], locks[1]), diff, why_not
    )


def format_bisect_answer(answer: BisectAnswer) -> Iterator[str]:
    """Yield what a person reads."""
    if answer.skipped:
        yield "the first bad set is one of these; those that cannot be tested hide which:"
        for probe in answer.skipped:
            yield f"  {probe.set}: {probe.why}"
        yield f"  {_describe_set(answer.bad)}"
    else:
        yield f"the first bad set is {_describe_set(answer.bad)}"
    yield f"the last good set is {_describe_set(answer.good)}"
    yield "what differs:"
    for project, old, new in answer.versions:
        yield f"  {project}  {old} → {new}"
    if answer.good.rocms != answer.bad.rocms:
        yield f"  ROCm  {answer.good.rocm_in_words or 'unknown'} → {answer.bad.rocm_in_words or 'unknown'}"
    if answer.diff is None:
        yield f"  the locks cannot be compared: {answer.why_not}"
        return
    yield from (f"  {text}".rstrip() for text in format_diff_report(answer.diff, {}, limit=0))
    if not answer.diff.same:
        yield f"the commits between: {_diff_command(answer)}"


def convert_bisect_answer_to_json(answer: BisectAnswer) -> dict[str, Any]:
    """Return what ``bisect --help`` says."""
    return {
        "first_bad": answer.bad.id,
        "last_good": answer.good.id,
        "certain": not answer.skipped,
        "skipped": [{"set": probe.set, "why": probe.why} for probe in answer.skipped],
        "probes": [probe.model_dump(mode="json") for probe in answer.probes],
        "differs": {
            "versions": {project: {"old": old, "new": new} for project, old, new in answer.versions},
            "rocm": {"old": answer.good.rocm_in_words or None, "new": answer.bad.rocm_in_words or None},
            "lock": None if answer.diff is None else format_diff_json(answer.diff, {}, limit=0),
            "lock_diff": None if answer.diff is None else _diff_command(answer),
            "why_not": answer.why_not or None,
        },
    }


def _describe_set(document: SetDocument) -> str:
    return f"{document.id}  ROCm {document.rocm_in_words or 'unknown'}  {document.created}"


def _diff_command(answer: BisectAnswer) -> str:
    return format_command(["rocm-wheels", "lock", "diff", *map(str, answer.locks)])


def _list_version_changes(good: SetDocument, bad: SetDocument) -> Iterator[tuple[str, str, str]]:
    """Yield projects that differ with their versions; "none" where a set has none."""
    old, new = ({file.project: file.version for file in document.files} for document in (good, bad))
    for project in sorted({*old, *new}):
        pair = old.get(project, "none"), new.get(project, "none")
        if pair[0] != pair[1]:
            yield project, *pair
