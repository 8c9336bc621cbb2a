"""Results of torch's own tests as ``torch-tests`` writes them: a folder with ``results.json`` and JUnit.

What the record says is compared with its reports, and with the files of its suite. A run that was ended, that
is one shard of several, of chosen tests, of a suite that does not stand for all, or of tests of another torch
is written down as what it is: none of them stands for the whole.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, BaseModel, Field

from rocm_wheels.errors import DataError, UsageError
from rocm_wheels.model.gfx import base_target
from rocm_wheels.model.lock import Sha256
from rocm_wheels.model.torch_tests import torch_tests
from rocm_wheels.release.evidence import Counts, Evidence, Outcome
from rocm_wheels.release.evidence_given import NO_GPU, Given
from rocm_wheels.release.evidence_results import read_as, tested_hashes
from rocm_wheels.release.evidence_smoke import choosing
from rocm_wheels.release.junit_file import Report, read_report
from rocm_wheels.shell import shell_line
from rocm_wheels.wheels.members import digest_of_file

RECORD = "results.json"
_FIRST = 3
_SHARE = re.compile(r"(.+) ([0-9]{1,4})/([0-9]{1,4})")  # of a file: "test_ops 2/3"
_Counted = Literal["passed", "failed", "crashed", "timeout", "skipped", "missing", "known", "left_out"]
_BAD: tuple[_Counted, ...] = ("failed", "crashed", "timeout", "missing")
_WITH_WHEELS = "run torch's tests where the wheels of the set are installed, and name them: --wheels DIR"
_Number = Annotated[int, Field(ge=0)]


class _Bad(BaseModel):
    name: str


class _Part(BaseModel):
    name: str
    complete: bool
    fault: str = ""
    counts: Mapping[_Counted, _Number] = {}
    unchosen: int = 0
    devices: tuple[str, ...] = ()
    report: str = ""
    sha256: str = ""
    bad: tuple[_Bad, ...] = ()


class _Chosen(BaseModel):
    suite: str
    files: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    shard: int = Field(ge=1)
    shards: int = Field(ge=1)
    pytest_args: tuple[str, ...] = ()
    variables: Mapping[str, str] = {}
    changes: tuple[str, ...] = ()


class _Tested(BaseModel):
    torch: str
    python: str
    commit: str = ""
    doubt: str = ""


class _Run(BaseModel):
    schema_version: int = Field(alias="schema")
    tool: str
    when: AwareDatetime
    host: str
    of: _Tested
    gfx: str | None
    files: Mapping[str, Sha256]
    chosen: _Chosen
    parts: tuple[_Part, ...] = Field(min_length=1)
    counts: Mapping[str, int]


def is_of_torch(value: Any) -> bool:
    """Tell whether JSON is a record of torch's own tests."""
    return isinstance(value, dict) and "parts" in value and "chosen" in value


def records_in(folder: Path) -> list[Path]:
    """Return the records in a folder: its own, or those of the folders in it (one for each GPU)."""
    own = folder / RECORD
    return [own] if own.is_file() else sorted(folder.glob(f"*/{RECORD}"))


def evidence_of_torch(found: Sequence[tuple[Path, Any]], given: Given) -> list[Evidence]:
    """Return what torch's tests found: shards of one run are one result, each GPU target another.

    Raises DataError for records that their reports contradict, or that are of no wheel of the set.
    """
    groups: dict[tuple[object, ...], list[tuple[Path, _Run]]] = {}
    shards = Counter[object]()
    for path, value in found:
        one = read_as(_Run, value, path)
        reports = [part.report for part in one.parts if part.complete]
        if len(reports) != len(set(reports)):
            tip = "run again, and do not change it"
            raise DataError(f"{path} names a report for two files of tests", tip=tip)
        chosen = one.chosen.model_dump(exclude={"shard"})
        key = (one.gfx, one.of.torch, one.of.python, one.of.commit, repr(chosen), *sorted(one.files.items()))
        again = shards[key, one.chosen.shard]  # another GPU of the same kind: a run of its own
        shards[key, one.chosen.shard] += 1
        groups.setdefault((again, *key), []).append((path, one))
    return [_together(runs, given) for runs in groups.values()]


def _together(runs: Sequence[tuple[Path, _Run]], given: Given) -> Evidence:
    path, first = runs[0]
    there = {one.chosen.shard for _, one in runs}
    counts, parts = Counter[str](), [(file, part) for file, one in runs for part in one.parts]
    for file, part in parts:
        _refuse_other_reports(file, part)
        counts.update(part.counts)
    known, faults = counts.pop("known", 0), list(_faults(parts))
    lacking = sorted(set(range(1, first.chosen.shards + 1)) - there)
    if lacking:
        faults.append(f"shards {', '.join(map(str, lacking))} of {first.chosen.shards} are not there")
    faults += _not_tested([one for _, one in runs])
    left = counts.pop("left_out", 0)
    whole = Counts(**{**counts, "skipped": counts["skipped"] + known})
    detail = [
        f"suite {first.chosen.suite}",
        f"tests of {first.of.commit[:12]}" if first.of.commit else "",
        *faults,
    ]
    detail += [
        f"{known} failures were known" if known else "",
        f"{left} known to hang or crash" if left else "",
    ]
    return given.make(
        "tests",
        whole,
        tested_hashes(first.files, path, given, tip=_WITH_WHEELS),
        source=path,
        tool=first.tool,
        when=min(one.when for _, one in runs),
        host=first.host,
        gfx=_target(path, first, given),
        outcome=_outcome(whole, faults),
        detail="; ".join(filter(None, detail)),
        failed=[bad.name for _, part in parts for bad in part.bad],
        selected=_selected([one for _, one in runs]),
        digest=_digest(file for file, _ in runs),
    )


def _refuse_other_reports(record: Path, part: _Part) -> None:
    """Raise DataError where a report is not there, was changed, or counts other tests than the record."""
    if not part.complete:
        return
    file = record.parent / part.report
    if not part.report or not file.is_file() or not file.resolve().is_relative_to(record.parent.resolve()):
        raise DataError(f"{record}: the report of {part.name} is not there", tip="hand in the whole folder")
    report: Report = read_report(file)
    bad = sum(part.counts.get(one, 0) for one in _BAD)
    skipped = part.counts.get("skipped", 0) + part.counts.get("known", 0)
    said = (part.counts.get("passed", 0), bad, skipped)
    own = (report.passed, report.failed + report.crashed + report.timeout, report.skipped)
    # a report without tests is one that is not whole, elsewhere
    if report.digest != part.sha256 or said != own or (report.fault and any(own)):
        why = (
            report.fault
            or f"{own[0]} passed and {own[1]} did not, and {record.name} says {said[0]} and {said[1]}"
        )
        raise DataError(f"{file} is not what {record} speaks of: {why}", tip="run again, and change neither")


def _faults(parts: Iterable[tuple[Path, _Part]]) -> Iterable[str]:
    waiting = [part.name for _, part in parts if not part.complete]
    if waiting:
        yield f"{len(waiting)} files were not run to their end: {', '.join(waiting[:_FIRST])}"
    yield from (f"{part.name}: {part.fault.partition(chr(10))[0]}" for _, part in parts if part.fault)


def _not_tested(runs: Sequence[_Run]) -> Iterable[str]:
    """Say what all shards together lack: files of the suite, shares of a file, the GPU that they are of."""
    first = runs[0]
    parts = [part for run in runs for part in run.parts]
    shares: dict[str, set[int]] = defaultdict(set)
    of: dict[str, int] = {}
    for name in (name for name, times in Counter(part.name for part in parts).items() if times > 1):
        yield f"{name} is there twice"
    for part in parts:
        file, number, total = found.groups() if (found := _SHARE.fullmatch(part.name)) else (part.name, 1, 1)
        shares[file].add(int(number))
        of[file] = max(of.get(file, 1), int(total))
    for file, there in shares.items():
        if lacking := sorted({*range(1, of[file] + 1)} - there):
            yield f"{file} {lacking[0]}/{of[file]} is not there"
    suite = torch_tests().suites.get(first.chosen.suite)
    passed = {part.name for part in parts if part.counts.get("passed")}
    for file in suite.named if suite is not None and not (first.chosen.files or first.chosen.exclude) else ():
        if file not in passed:
            yield f"{file}: none of its tests passed" if file in shares else f"{file} was not run"
    if first.gfx is not None:
        used = {base_target(one) for part in parts for one in part.devices}
        may_be_none = suite is None or not suite.whole  # distributed tests have other processes use it
        if used != {base_target(first.gfx)} and (used or not may_be_none):
            yield f"the tests used {', '.join(sorted(used)) or 'no GPU'}, not the {first.gfx}"


def _outcome(counts: Counts, faults: Sequence[str]) -> Outcome:
    outcome = counts.outcome()
    return "missing" if faults and outcome == "pass" else outcome


def _selected(runs: Sequence[_Run]) -> str:
    """Return how tests were chosen; "" for a whole suite of the tests that are torch's own."""
    chosen = runs[0].chosen
    words, suite = choosing(chosen.pytest_args), torch_tests().suites.get(chosen.suite)
    said = ["" if suite is not None and suite.whole else f"only the suite {chosen.suite}"]
    said += [shell_line(words) if words else "", *chosen.changes]
    said += [f"{name}={value}" for name, value in sorted(chosen.variables.items())]
    said += [f"only {', '.join(chosen.files)}" if chosen.files else ""]
    said += [f"without {', '.join(chosen.exclude)}" if chosen.exclude else ""]
    unchosen = sum(part.unchosen for run in runs for part in run.parts)
    said += [f"{unchosen} tests left out" if unchosen else "", *(run.of.doubt for run in runs)]
    return "; ".join(dict.fromkeys(filter(None, said)))


def _target(path: Path, found: _Run, given: Given) -> str | None:
    own = None if found.gfx is None else base_target(found.gfx)
    if given.gfx in {None, own} or (given.gfx == NO_GPU and own is None):
        return own
    raise UsageError(f"{path} {f'ran on {own}' if own else 'saw no GPU'}, not on {given.gfx}")


def _digest(files: Iterable[Path]) -> str:
    digests = sorted(digest_of_file(file) for file in files)
    return digests[0] if len(digests) == 1 else hashlib.sha256("\n".join(digests).encode()).hexdigest()
