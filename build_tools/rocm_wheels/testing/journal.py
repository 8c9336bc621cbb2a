"""The journal of a file of tests: what the recorder in pytest and the runner write down, a line of JSON each.

Whatever ends a process, what was written before counts: a test that was begun has a name, and a planned one
without an outcome is missing, which is no pass.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rocm_wheels.models.test_results import TestOutcome, TestResult

LONGEST_TEXT = 4000  # characters, as results take them


@dataclass
class Journal:
    """What is known of a file. ``results`` are the tests that have an outcome, by name.

    ``planned`` are names that pytest was about to run, over all processes, ``left_out`` those that it was
    told not to, ``unchosen`` how many tests ``-k`` and the like took away. ``begun`` is the test of the last
    process that has no end, since ``begun_at`` (seconds since 1970), and may take ``limit`` seconds;
    ``finished``: that process said that it was through; ``poisoned`` says why it stopped before: its GPU did
    not calculate any more. ``end`` says how the file ended ("": well), None before. ``devices`` are the GPUs
    that torch used, ``seconds`` is how long its processes took, ``alone`` names what was tried again.
    """

    results: dict[str, TestResult] = field(default_factory=dict)
    planned: dict[str, None] = field(default_factory=dict)
    left_out: dict[str, None] = field(default_factory=dict)
    unchosen: int = 0
    begun: str = ""
    begun_at: float | None = None
    limit: float = 0.0
    finished: bool = False
    poisoned: str = ""
    end: str | None = None
    devices: dict[str, None] = field(default_factory=dict)
    seconds: float = 0.0
    alone: dict[str, None] = field(default_factory=dict)

    @property
    def missing(self) -> list[str]:
        """The tests that were planned and have no outcome."""
        return [name for name in self.planned if name not in self.results]


def read_journal(path: Path) -> Journal:
    """Read what was written so far; a last line that is not whole was not written.

    Of two outcomes of a test the later counts: a run that was resumed began it anew, or run_test.py tried it
    again; one that passes then is flaky.
    """
    journal, has_planned = Journal(), False
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    for line in text[: text.rfind("\n") + 1].splitlines():
        try:
            entry: dict[str, Any] = json.loads(line)
        except ValueError:
            continue  # two processes wrote at once as one was ended: what it says is missing, not passed
        if not isinstance(entry, dict):
            continue
        if "planned" in entry:
            if journal.begun:  # run_test.py went on after it
                why = "its process ended in it, and run_test.py began another one"
                journal.results[journal.begun] = make_test(journal.begun, "crashed", why)
                journal.begun = ""
            journal.planned.update(dict.fromkeys(entry["planned"]))
            journal.left_out.update(dict.fromkeys(entry["left_out"]))
            if not has_planned:  # a later one of run_test.py tries one test again
                journal.unchosen = entry["unchosen"]
            has_planned = True
        elif "process" in entry:
            journal.begun, journal.end, journal.poisoned = "", None, ""
            journal.finished = has_planned = False
        elif "devices" in entry:
            journal.devices.update(dict.fromkeys(entry["devices"]))
        elif "finished" in entry:
            journal.finished = has_planned  # one that was ended before it had read its tests knows of none
        elif "poisoned" in entry:
            journal.poisoned = entry["poisoned"]
        elif "begun" in entry:
            journal.begun, journal.begun_at = entry["begun"], entry.get("at")
            journal.limit = entry.get("limit", 0.0)
        elif "took" in entry:
            journal.seconds += entry["took"]
        elif "over" in entry:
            journal.end = entry["over"]
        elif "alone" in entry:
            journal.alone[entry["alone"]] = None
            failed = journal.results.get(entry["alone"])
            if entry["passed"] and failed is not None:
                journal.results[failed.name] = make_flaky(failed, "failed, then passed alone")
        elif "name" in entry:
            result, earlier = TestResult.model_validate(entry), journal.results.get(entry["name"])
            if earlier and earlier.outcome in {"failed", "crashed"} and result.outcome == "passed":
                result = make_flaky(earlier, f"{earlier.outcome}, then passed in another process")
            journal.results[result.name] = result
            journal.begun = "" if journal.begun == entry["name"] else journal.begun
    # one that was killed took some, too
    seconds = sum(result.seconds or 0.0 for result in journal.results.values())
    journal.seconds = max(journal.seconds, seconds)
    return journal


def make_test(name: str, outcome: TestOutcome, detail: str, seconds: float | None = None) -> TestResult:
    """Return what came of a test that could not say so itself."""
    rounded = None if seconds is None else round(max(seconds, 0.0), 3)
    return TestResult(name=name, outcome=outcome, detail=detail[:LONGEST_TEXT], seconds=rounded)


def make_flaky(failed: TestResult, how: str) -> TestResult:
    """Return a test that failed and passed when it was tried again."""
    detail = f"{how}: {failed.detail}"[:LONGEST_TEXT]
    return failed.model_copy(update={"outcome": "passed", "tries": failed.tries + 1, "detail": detail})


def note(path: Path, **line: object) -> None:
    """Write a line: ``process``, ``took``, ``over`` or ``alone``. What a killed process tore is cut off."""
    with path.open("a+b") as journal:
        journal.seek(0)
        content = journal.read()
        if not content.endswith(b"\n"):  # in place: whoever ends this process loses no line before
            journal.truncate(content.rfind(b"\n") + 1)
        journal.write(json.dumps(line).encode() + b"\n")


def note_test(path: Path, test: TestResult) -> None:
    """Write down what came of a test that could not do so itself."""
    note(path, **test.model_dump(mode="json", exclude_defaults=True))
