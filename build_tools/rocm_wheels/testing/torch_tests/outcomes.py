"""What is on the disk of one file of tests: outcomes as lines, and what they come to."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rocm_wheels.model.torch_tests import KnownTests
from rocm_wheels.testing.results import TestOutcome, TestResult

BAD_TORCH_OUTCOMES = ("failed", "crashed", "timeout", "missing")


@dataclass(frozen=True)
class OutcomeVerdict:
    """A test, and whether it is ``known_reason`` not to pass here ("" is: no; else why)."""

    test: TestResult
    known_reason: str = ""

    @property
    def is_new(self) -> bool:
        """Tell whether it is bad, and nobody knew."""
        return self.test.outcome in BAD_TORCH_OUTCOMES and not (
            self.known_reason and self.test.outcome == "failed"
        )

    @property
    def passes_again(self) -> bool:
        """Tell whether it passes although it is known to fail."""
        return self.test.outcome == "passed" and bool(self.known_reason)


@dataclass(frozen=True)
class FileOutcomes:
    """What is known of a file: ``begun`` is the test that has no end; ``file_end``, how the last process ended.
    ``finished``: pytest itself said that it was through.

    ``planned`` are names that pytest was about to run, over all processes, ``left_out`` those that it was
    told not to, ``unchosen`` how many tests ``-k`` and the like took away. ``devices`` are
    the GPUs that torch used.
    """

    results: tuple[TestResult, ...] = ()
    planned: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    unchosen: int = 0
    begun: str = ""
    file_end: str | None = None
    finished: bool = False
    devices: tuple[str, ...] = ()

    @property
    def done(self) -> list[str]:
        """Return the names of tests with an outcome."""
        return [result.name for result in self.results]

    def list_all_results(self, why_missing: str) -> tuple[TestResult, ...]:
        """Return all results, those of tests that were planned and not run included."""
        done_names = set(self.done)
        lost = [name for name in dict.fromkeys(self.planned) if name not in done_names]
        return (*self.results, *(_make_result(name, "missing", why_missing) for name in lost))


def read_outcomes(path: Path) -> FileOutcomes:
    """Read what was written so far; a last line that is not whole was not written.

    Of two outcomes of a test the later counts: a run that was resumed began it anew.
    """
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    results: dict[str, TestResult] = {}
    planned: dict[str, None] = {}
    left_out: tuple[str, ...] = ()
    devices: dict[str, None] = {}
    begun, file_end, unchosen, finished, read = "", None, 0, False, False
    for line in text[: text.rfind("\n") + 1].splitlines():
        entry: dict[str, Any] = _parse_line(line)
        if "planned" in entry:
            planned.update(dict.fromkeys(entry["planned"]))
            left_out, unchosen, read = tuple(entry["left_out"]), entry["unchosen"], True
        elif "process" in entry:
            begun, file_end, finished, read = "", None, False, False
        elif "devices" in entry:
            devices.update(dict.fromkeys(entry["devices"]))
        elif "finished" in entry:
            finished = read  # one that was ended before it had read its tests knows of none
        elif "begun" in entry:
            begun = entry["begun"]
        elif "over" in entry:
            file_end = entry["over"]
        elif "name" in entry:
            results[entry["name"]] = TestResult.model_validate(entry)
            begun = "" if begun == entry["name"] else begun
    names = tuple(results.values()), tuple(planned), left_out
    return FileOutcomes(*names, unchosen, begun, file_end, finished, tuple(devices))


def note_outcome(path: Path, name: str, outcome: TestOutcome, reason: str) -> None:
    """Write down what came of a test that could not do so itself."""
    _append_line(path, _make_result(name, outcome, reason).model_dump(mode="json"))


def note_process(path: Path) -> None:
    """Write down that a process begins: what one before it was at is no concern of its."""
    _append_line(path, {"process": True})


def note_end(path: Path, how: str) -> None:
    """Write down that there is no more to do with the file, and how it ended ("" is: well)."""
    _append_line(path, {"over": how})


def cut_torn_line(path: Path) -> None:
    """Cut off a last line that is not whole, so that what is appended stands by itself."""
    if path.is_file():
        content = path.read_bytes()
        if not content.endswith(b"\n"):
            path.write_bytes(content[: content.rfind(b"\n") + 1])


def judge_results(results: Sequence[TestResult], known_here: KnownTests) -> list[OutcomeVerdict]:
    """Return results with what is known of each."""
    rows = ((result, known_here.find_test(result.name)) for result in results)
    return [
        OutcomeVerdict(result, f"{row.effect}: {row.reason}" if row is not None else "")
        for result, row in rows
    ]


def _append_line(path: Path, line: dict[str, Any]) -> None:
    cut_torn_line(path)
    with path.open("a", encoding="utf-8") as sink:
        sink.write(json.dumps(line) + "\n")


def _parse_line(line: str) -> dict[str, Any]:
    try:
        entry = json.loads(line)
    except ValueError:
        return {}  # two processes wrote at once as one was ended: what it said is missing, not passed
    return entry if isinstance(entry, dict) else {}


def _make_result(name: str, outcome: TestOutcome, reason: str) -> TestResult:
    return TestResult(name=name, outcome=outcome, seconds=0, reason=reason)
