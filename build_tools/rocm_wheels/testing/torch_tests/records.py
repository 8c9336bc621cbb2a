"""``results.json`` of torch's own tests: of what, on what, what came of each file, whether that is all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from rocm_wheels.errors import DataError
from rocm_wheels.records import Record, read_json_file, summarize_faults
from rocm_wheels.testing.torch_tests.outcomes import OutcomeVerdict
from rocm_wheels.workspace import write_json_file

CountedOutcome = Literal["passed", "failed", "crashed", "timeout", "skipped", "missing", "known", "left_out"]
RESULTS_FILE = "results.json"
_MAX_BAD_TESTS = 200
_NO_RECORD = "is no record of torch's tests"


class TorchUnderTest(Record):
    """What is tested: torch, the Python it is in, and the sources of the tests; "" is what nobody says."""

    __test__ = False  # pytest takes classes of this name for tests

    torch: str
    python: str
    commit: str
    sources: str
    doubt: str = ""


class ChosenTests(Record):
    """Which tests: the suite, and what people chose of it. ``files`` are named instead of its own.

    ``variables`` of the environment may choose among tests, too; ``changes`` are options that do.
    """

    suite: str
    files: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    shard: int = 1
    shards: int = 1
    pytest_args: tuple[str, ...] = ()
    variables: Mapping[str, str] = {}
    changes: tuple[str, ...] = ()


class BadTest(Record):
    """A test that is not as it should be."""

    name: str
    outcome: str
    reason: str = ""


class FileResult(Record):
    """What came of a file. ``complete``: there is no more to run; ``fault``: how it ended, where not well.

    ``report`` is its JUnit file, beside, with its sha256; none before it is complete. ``devices`` are the
    targets of the GPUs that torch used, as it names them.
    """

    name: str
    complete: bool = False
    fault: str = ""
    seconds: float = Field(default=0, ge=0)
    counts: Mapping[CountedOutcome, int] = {}
    unchosen: int = 0
    devices: tuple[str, ...] = ()
    report: str = ""
    sha256: str = ""
    bad: tuple[BadTest, ...] = ()
    known: tuple[BadTest, ...] = ()
    again: tuple[str, ...] = ()


class TorchResults(Record):
    """The whole file. ``inputs`` is the same for runs that may carry each other on.

    ``gfx`` is the target of the GPU, None where there was none; ``files`` are the wheels that were installed,
    by sha256; ``parts`` are all that are planned, ``left_out`` those of the suite that its table leaves out.
    """

    schema_: Literal[1] = Field(default=1, alias="schema")
    tool: str
    when: str
    host: str
    inputs: str
    of: TorchUnderTest
    gfx: str | None
    files: Mapping[str, str]
    chosen: ChosenTests
    parts: tuple[FileResult, ...]
    left_out: Mapping[str, str] = {}

    @property
    def complete(self) -> bool:
        """Tell whether every file was run to its end."""
        return all(part.complete for part in self.parts)

    @property
    def counts(self) -> dict[CountedOutcome, int]:
        """Return how many tests came out in which way, over all files."""
        total = Counter[CountedOutcome]()
        for part in self.parts:
            total.update(part.counts)
        return dict(total)

    @property
    def good(self) -> bool:
        """Tell whether all were run, and none is bad that nobody knew of."""
        return self.complete and not any(part.bad or part.fault for part in self.parts)


def make_file_result(
    name: str,
    verdicts: Sequence[OutcomeVerdict],
    left_out: Iterable[str],
    *,
    complete: bool,
    fault: str,
    unchosen: int,
    devices: Sequence[str] = (),
) -> FileResult:
    """Return what came of a file, by its tests."""
    counts = Counter[CountedOutcome]()
    for verdict in verdicts:
        failed_as_known = verdict.known_reason and verdict.test.outcome == "failed"
        counts["known" if failed_as_known else verdict.test.outcome] += 1
    counts["left_out"] = len(list(left_out))
    return FileResult(
        name=name,
        complete=complete,
        fault=fault,
        seconds=round(sum(verdict.test.seconds for verdict in verdicts), 3),
        counts={key: number for key, number in counts.items() if number},
        unchosen=unchosen,
        devices=tuple(devices),
        bad=_list_bad_tests([verdict for verdict in verdicts if verdict.is_new]),
        known=tuple(
            BadTest(name=verdict.test.name, outcome="failed", reason=verdict.known_reason)
            for verdict in verdicts
            if verdict.known_reason and verdict.test.outcome == "failed"
        ),
        again=tuple(verdict.test.name for verdict in verdicts if verdict.passes_again),
    )


def write_torch_results(folder: Path, results: TorchResults) -> None:
    """Write ``results.json`` into a folder, whole or not at all."""
    values = results.model_dump(mode="json", by_alias=True, exclude_defaults=False)
    write_json_file(folder / RESULTS_FILE, {**values, "complete": results.complete, "counts": results.counts})


def read_torch_results(folder: Path) -> TorchResults | None:
    """Read ``results.json`` of a folder, None where there is none. DataError for what is none of ours."""
    path = folder / RESULTS_FILE
    if not path.is_file():
        return None
    tip = "name another folder, or begin anew: --fresh"
    data = read_json_file(path, complaint=_NO_RECORD, tip=tip)
    try:
        fields = {key: value for key, value in data.items() if key not in ("complete", "counts")}
        return TorchResults.model_validate(fields)
    except ValidationError as cause:
        raise DataError(f"{path} {_NO_RECORD}: {summarize_faults(cause, TorchResults)}", tip=tip) from None
    except AttributeError:  # no table
        raise DataError(f"{path} {_NO_RECORD}", tip=tip) from None


def _list_bad_tests(verdicts: Sequence[OutcomeVerdict]) -> tuple[BadTest, ...]:
    return tuple(
        BadTest(name=verdict.test.name, outcome=verdict.test.outcome, reason=verdict.test.reason)
        for verdict in verdicts[:_MAX_BAD_TESTS]
    )
