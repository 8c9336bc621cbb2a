"""``results.json`` of torch's own tests: of what, on what, what came of each file, whether that is all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from rocm_wheels.errors import DataError
from rocm_wheels.records import Record, read_json, say
from rocm_wheels.testing.torch_tests.outcomes import Verdict
from rocm_wheels.workspace import write_json

Counted = Literal["passed", "failed", "crashed", "timeout", "skipped", "missing", "known", "left_out"]
FILE = "results.json"
_NAMED = 200
_NONE = "is no record of torch's tests"


class Tested(Record):
    """What is tested: torch, the Python it is in, and the sources of the tests; "" is what nobody says."""

    __test__ = False  # pytest takes classes of this name for tests

    torch: str
    python: str
    commit: str
    sources: str
    doubt: str = ""


class Chosen(Record):
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


class PartResult(Record):
    """What came of a file. ``complete``: there is no more to run; ``fault``: how it ended, where not well.

    ``report`` is its JUnit file, beside, with its sha256; none before it is complete. ``devices`` are the
    targets of the GPUs that torch used, as it names them.
    """

    name: str
    complete: bool = False
    fault: str = ""
    seconds: float = Field(default=0, ge=0)
    counts: Mapping[Counted, int] = {}
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
    of: Tested
    gfx: str | None
    files: Mapping[str, str]
    chosen: Chosen
    parts: tuple[PartResult, ...]
    left_out: Mapping[str, str] = {}

    @property
    def complete(self) -> bool:
        """Tell whether every file was run to its end."""
        return all(part.complete for part in self.parts)

    @property
    def counts(self) -> dict[Counted, int]:
        """Return how many tests came out in which way, over all files."""
        total = Counter[Counted]()
        for part in self.parts:
            total.update(part.counts)
        return dict(total)

    @property
    def good(self) -> bool:
        """Tell whether all were run, and none is bad that nobody knew of."""
        return self.complete and not any(part.bad or part.fault for part in self.parts)


def part_result(
    name: str,
    verdicts: Sequence[Verdict],
    left_out: Iterable[str],
    *,
    complete: bool,
    fault: str,
    unchosen: int,
    devices: Sequence[str] = (),
) -> PartResult:
    """Return what came of a file, by its tests."""
    counts = Counter[Counted]()
    for one in verdicts:
        failed_as_known = one.known and one.test.outcome == "failed"
        counts["known" if failed_as_known else one.test.outcome] += 1
    counts["left_out"] = len(list(left_out))
    return PartResult(
        name=name,
        complete=complete,
        fault=fault,
        seconds=round(sum(one.test.seconds for one in verdicts), 3),
        counts={key: number for key, number in counts.items() if number},
        unchosen=unchosen,
        devices=tuple(devices),
        bad=_bad([one for one in verdicts if one.is_new]),
        known=tuple(
            BadTest(name=one.test.name, outcome="failed", reason=one.known)
            for one in verdicts
            if one.known and one.test.outcome == "failed"
        ),
        again=tuple(one.test.name for one in verdicts if one.passes_again),
    )


def write_record(folder: Path, results: TorchResults) -> None:
    """Write ``results.json`` into a folder, whole or not at all."""
    shown = results.model_dump(mode="json", by_alias=True, exclude_defaults=False)
    write_json(folder / FILE, {**shown, "complete": results.complete, "counts": results.counts})


def read_record(folder: Path) -> TorchResults | None:
    """Read ``results.json`` of a folder, None where there is none. DataError for what is none of ours."""
    path = folder / FILE
    if not path.is_file():
        return None
    tip = "name another folder, or begin anew: --fresh"
    said = read_json(path, none=_NONE, tip=tip)
    try:
        own = {key: value for key, value in said.items() if key not in ("complete", "counts")}
        return TorchResults.model_validate(own)
    except ValidationError as cause:
        raise DataError(f"{path} {_NONE}: {say(cause, TorchResults)}", tip=tip) from None
    except AttributeError:  # no table
        raise DataError(f"{path} {_NONE}", tip=tip) from None


def _bad(verdicts: Sequence[Verdict]) -> tuple[BadTest, ...]:
    return tuple(
        BadTest(name=one.test.name, outcome=one.test.outcome, reason=one.test.reason)
        for one in verdicts[:_NAMED]
    )
