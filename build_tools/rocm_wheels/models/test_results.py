"""Results: what ran where, and what came of each test, in one form for all that tests wheels.

Smoke tests, torch's own tests, an audit and a check of resolvers say it alike. ``results.json`` is such a
document; ``release.evidence`` makes evidence of it, and the gate sees no difference.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, get_args

from pydantic import AwareDatetime, Field, StringConstraints, model_validator

from rocm_wheels.core import records
from rocm_wheels.models import lock, tested_machine

ResultKind = Literal["audit", "resolver", "smoke", "tests"]
RESULT_KINDS: tuple[ResultKind, ...] = get_args(ResultKind)
TestOutcome = Literal["passed", "failed", "crashed", "timeout", "skipped", "missing"]
MOST_SHARDS = 1000  # of a suite: who puts them together counts to it
_Text = Annotated[str, StringConstraints(max_length=4000)]


class TestResult(records.Record):
    """What came of a test. ``seconds`` are those of the last try, None where nobody measured.

    ``tries``: how often it ran; one that passed after another try is flaky. ``known``: why its failure is
    expected, by whom and until when, "" where it is not. ``detail`` says in a line what failed. ``wheels``
    are the file names of the wheels that it is about; none: all of them. ``measurements`` are finite numbers
    that a test took, by name: those of pytest's ``record_property("tflops:gemm f16", 431.5)``.
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


class Suite(records.Record):
    """A suite of torch's own tests, or one ``shard`` of ``shards`` of it; ``plan`` says who has what."""

    name: _Text
    shard: int = Field(default=1, ge=1, le=MOST_SHARDS)
    shards: int = Field(default=1, ge=1, le=MOST_SHARDS)
    plan: _Text = ""


class Results(records.Record):
    """The document. ``wheels`` are the sha256 of those that were tested, by file name.

    ``gfx`` is the GPU target, None where no GPU had a part in it. ``lost_gpu`` says how a GPU got lost in the
    run, "" when none did. ``selected`` says by what the tests were chosen, where not all of them were run.
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

    @model_validator(mode="after")
    def _check_wheels(self) -> Results:
        for test in self.tests:
            if unknown := [name for name in test.wheels if name not in self.wheels]:
                raise ValueError(f"{test.name} is about {unknown[0]}, which was not tested")
        return self

    def to_json(self) -> bytes:
        """Return its file."""
        return (self.model_dump_json(by_alias=True, indent=1, exclude_defaults=True) + "\n").encode()
