"""Results: what ran where, and what came of each test, in one form for all that tests wheels.

Smoke tests, torch's own tests, an audit and a check of resolvers say it alike. ``results.json`` is such a
document; ``release.evidence`` makes evidence of it, and the gate sees no difference.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Annotated, Literal, get_args

from pydantic import AwareDatetime, Field, StringConstraints, model_validator

from rocm_wheels.core import records
from rocm_wheels.models import lock, tested_machine

ResultKind = Literal["audit", "reproduced", "resolver", "smoke", "tests"]
RESULT_KINDS: tuple[ResultKind, ...] = get_args(ResultKind)
TestOutcome = Literal["passed", "failed", "crashed", "timeout", "skipped", "missing"]
Verdict = Literal[
    "passed", "failed", "crashed", "timeout", "missing", "flaky", "known", "skipped", "left out"
]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
MOST_SHARDS = 1000  # of a suite: who puts them together counts to it
_Text = Annotated[str, StringConstraints(max_length=4000)]


class TestResult(records.Record):
    """What came of a test. ``seconds`` are those of the last try, None where nobody measured.

    ``tries``: how often it ran; one that passed after another try is flaky. ``known``: why its failure is
    expected, by whom and until when, "" where it is not; one that is known to hang or crash is skipped.
    ``detail`` says in a line what failed. ``wheels`` are the file names of the wheels that it is about; none:
    all of them. ``measurements`` are finite numbers that a test took, by name: those of pytest's
    ``record_property("tflops:gemm f16", 431.5)``.
    """

    __test__ = False  # pytest takes classes of this name for tests

    name: _Text
    outcome: TestOutcome
    seconds: float | None = Field(default=None, ge=0)
    tries: int = Field(default=1, ge=1)
    known: _Text = ""
    detail: _Text = ""
    wheels: tuple[_Text, ...] = ()
    measurements: Mapping[_Text, Annotated[float, Field(allow_inf_nan=False)]] = {}

    @property
    def is_bad(self) -> bool:
        """Whether it failed, crashed or was stopped, and nobody expected that."""
        return self.outcome in {"failed", "crashed", "timeout"} and not self.known

    @property
    def verdict(self) -> Verdict:
        """How tables count it: ``known`` is an expected failure, ``left out`` what was not run for that."""
        if self.known and self.outcome in {"failed", "skipped"}:
            return "known" if self.outcome == "failed" else "left out"
        return "flaky" if self.outcome == "passed" and self.tries > 1 else self.outcome


class Suite(records.Record):
    """A suite of torch's own tests, or one ``shard`` of ``shards`` of it; ``plan`` says who has what."""

    name: _Text
    shard: int = Field(default=1, ge=1, le=MOST_SHARDS)
    shards: int = Field(default=1, ge=1, le=MOST_SHARDS)
    plan: _Text = ""


class Results(records.Record):
    """The document. ``wheels`` are the sha256 of those that were tested, by file name.

    ``gfx`` is the GPU target, None where no GPU had a part in it. ``lost_gpu`` says how a GPU got lost in the
    run so that it could not go on, "" when none did. ``selected`` says by what the tests were chosen, where
    not all of them were run. ``subject`` is what they are of (``torch 2.9.1``), ``remarks`` what else is to
    be known. ``files``: how long each file of tests took that was run to its end, in seconds.
    """

    schema_version: Literal[1] = Field(default=1, alias="schema")
    kind: ResultKind
    tool: _Text
    when: AwareDatetime
    host: _Text
    wheels: Mapping[str, lock.Sha256Digest]
    gfx: str | None = None
    machine: tested_machine.TestedMachine | None = None
    tests: tuple[TestResult, ...]
    lost_gpu: _Text = ""
    suite: Suite | None = None
    selected: _Text = ""
    subject: _Text = ""
    remarks: tuple[_Text, ...] = ()
    files: Mapping[_Text, Annotated[float, Field(ge=0)]] = {}

    @model_validator(mode="after")
    def _check_wheels(self) -> Results:
        for test in self.tests:
            if unknown := [name for name in test.wheels if name not in self.wheels]:
                raise ValueError(f"{test.name} is about {unknown[0]}, which was not tested")
        return self

    @property
    def counts(self) -> dict[Verdict, int]:
        """How many tests came out in which way, in the order of tables."""
        numbers = Counter(test.verdict for test in self.tests)
        return {verdict: numbers[verdict] for verdict in VERDICTS if numbers[verdict]}

    @property
    def good(self) -> bool:
        """Whether all was run, and nothing is bad that nobody expected."""
        return not self.lost_gpu and not any(test.is_bad or test.outcome == "missing" for test in self.tests)

    def summarize(self) -> str:
        """Count them for people: ``30123 passed, 2 failed, 5 known``."""
        return ", ".join(f"{number} {verdict}" for verdict, number in self.counts.items()) or "no tests"

    def to_json(self) -> bytes:
        """Return its file."""
        return (self.model_dump_json(by_alias=True, indent=1, exclude_defaults=True) + "\n").encode()
