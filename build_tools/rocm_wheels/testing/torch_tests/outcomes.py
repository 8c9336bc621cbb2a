"""What is on the disk of one file of tests: outcomes as lines, and what they come to."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rocm_wheels.model.torch_tests import KnownHere
from rocm_wheels.testing.results import TestOutcome, TestResult

BAD = ("failed", "crashed", "timeout", "missing")


@dataclass(frozen=True)
class Verdict:
    """A test, and whether it is ``known`` not to pass here ("" is: no; else why)."""

    test: TestResult
    known: str = ""

    @property
    def is_new(self) -> bool:
        """Tell whether it is bad, and nobody knew."""
        return self.test.outcome in BAD and not (self.known and self.test.outcome == "failed")

    @property
    def passes_again(self) -> bool:
        """Tell whether it passes although it is known to fail."""
        return self.test.outcome == "passed" and bool(self.known)


@dataclass(frozen=True)
class Outcomes:
    """What is known of a file: ``begun`` is the test that has no end; ``over``, how the last process ended.
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
    over: str | None = None
    finished: bool = False
    devices: tuple[str, ...] = ()

    @property
    def done(self) -> list[str]:
        """Return the names of tests with an outcome."""
        return [one.name for one in self.results]

    def all(self, why_missing: str) -> tuple[TestResult, ...]:
        """Return all results, those of tests that were planned and not run included."""
        there = set(self.done)
        lost = [name for name in dict.fromkeys(self.planned) if name not in there]
        return (*self.results, *(_result(name, "missing", why_missing) for name in lost))


def read_outcomes(path: Path) -> Outcomes:
    """Read what was written so far; a last line that is not whole was not written.

    Of two outcomes of a test the later counts: a run that was resumed began it anew.
    """
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    found: dict[str, TestResult] = {}
    planned: dict[str, None] = {}
    left: tuple[str, ...] = ()
    devices: dict[str, None] = {}
    begun, over, unchosen, finished, read = "", None, 0, False, False
    for line in text[: text.rfind("\n") + 1].splitlines():
        said: dict[str, Any] = _parsed(line)
        if "planned" in said:
            planned.update(dict.fromkeys(said["planned"]))
            left, unchosen, read = tuple(said["left_out"]), said["unchosen"], True
        elif "process" in said:
            begun, over, finished, read = "", None, False, False
        elif "devices" in said:
            devices.update(dict.fromkeys(said["devices"]))
        elif "finished" in said:
            finished = read  # one that was ended before it had read its tests knows of none
        elif "begun" in said:
            begun = said["begun"]
        elif "over" in said:
            over = said["over"]
        elif "name" in said:
            found[said["name"]] = TestResult.model_validate(said)
            begun = "" if begun == said["name"] else begun
    names = tuple(found.values()), tuple(planned), left
    return Outcomes(*names, unchosen, begun, over, finished, tuple(devices))


def note(path: Path, name: str, outcome: TestOutcome, reason: str) -> None:
    """Write down what came of a test that could not do so itself."""
    _append(path, _result(name, outcome, reason).model_dump(mode="json"))


def note_process(path: Path) -> None:
    """Write down that a process begins: what one before it was at is no concern of its."""
    _append(path, {"process": True})


def note_over(path: Path, how: str) -> None:
    """Write down that there is no more to do with the file, and how it ended ("" is: well)."""
    _append(path, {"over": how})


def mend(path: Path) -> None:
    """Cut off a last line that is not whole, so that what is appended stands by itself."""
    if path.is_file():
        content = path.read_bytes()
        if not content.endswith(b"\n"):
            path.write_bytes(content[: content.rfind(b"\n") + 1])


def judged(results: Sequence[TestResult], known: KnownHere) -> list[Verdict]:
    """Return results with what is known of each."""
    rows = ((one, known.of(one.name)) for one in results)
    return [Verdict(one, f"{row.effect}: {row.reason}" if row is not None else "") for one, row in rows]


def _append(path: Path, line: dict[str, Any]) -> None:
    mend(path)
    with path.open("a", encoding="utf-8") as sink:
        sink.write(json.dumps(line) + "\n")


def _parsed(line: str) -> dict[str, Any]:
    try:
        said = json.loads(line)
    except ValueError:
        return {}  # two processes wrote at once as one was ended: what it said is missing, not passed
    return said if isinstance(said, dict) else {}


def _result(name: str, outcome: TestOutcome, reason: str) -> TestResult:
    return TestResult(name=name, outcome=outcome, seconds=0, reason=reason)
