"""A step of a plan, and the plan: plain values, to be printed, kept in a file and compared.

An input that an earlier step has yet to produce is ``KnownAfter`` that step; it is never guessed. A step
is settled once all its inputs are known: then it has a fingerprint, and it is said whether it runs and
why.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from rocm_wheels.core import UsageError, suggest_name
from rocm_wheels.pipeline.estimates import Estimate

StepKind = Literal[
    "install-rocm", "install-tools", "probe-targets", "check-cache", "configure", "build", "variant"
]
StepVerdict = Literal["run", "skip", "known later", "left out"]
# kinds of which one that was done for more inputs serves for fewer: what is installed for others stays
KINDS_SERVING_FEWER: frozenset[StepKind] = frozenset({"install-tools"})


@dataclass(frozen=True)
class KnownAfter:
    """An input that comes out of a step which is yet to run."""

    step: str

    def __str__(self) -> str:
        return f"known after {self.step}"


StepInput = str | KnownAfter


@dataclass(frozen=True)
class BuildCell:
    """One configuration of a run: the ABI tag of a Python (``cp313t``), and the name of a target set."""

    tag: str
    target_set: str = ""

    @property
    def suffix(self) -> str:
        """How the configuration is spelled in the ids of steps."""
        return f"{self.tag}-{self.target_set}" if self.target_set else self.tag


@dataclass(frozen=True)
class Step:
    """One step. ``after``: steps that must have succeeded; ``behind``: steps that must only have ended,
    because they work in the same tree or environment.

    ``brought``: it runs only to bring the wheel that is there to where it is wanted. ``command`` is what
    the step itself starts, ready for a shell; ``environment`` are the variables that it changes (``None``:
    removed). ``why`` says why it runs, or why that is not known yet.
    """

    id: str
    kind: StepKind
    cell: BuildCell
    project: str | None = None
    after: tuple[str, ...] = ()
    behind: tuple[str, ...] = ()
    inputs: Mapping[str, StepInput] = field(default_factory=dict)
    command: str = ""
    environment: Mapping[str, str | None] = field(default_factory=dict)
    verdict: StepVerdict = "known later"
    why: str = ""
    brought: bool = False
    estimate: Estimate | None = None

    @property
    def fingerprint(self) -> str | None:
        """A digest of the inputs; ``None`` while one of them is not known."""
        inputs = self.known_inputs
        return fingerprint_inputs(inputs) if len(inputs) == len(self.inputs) else None

    @property
    def known_inputs(self) -> dict[str, str]:
        """The inputs that are known already."""
        return {name: value for name, value in self.inputs.items() if isinstance(value, str)}

    @property
    def may_run(self) -> bool:
        """Whether it runs, as far as is known."""
        return self.verdict in ("run", "known later")

    @property
    def waits_for(self) -> KnownAfter | None:
        """The first step that an input comes from, if there is one."""
        return next((value for value in self.inputs.values() if isinstance(value, KnownAfter)), None)


@dataclass(frozen=True)
class BuiltAgainst:
    """A wheel that steps are built against and none of them builds. ``source``: an option, or ``installed``.

    ``python``: the ABI tag of the Python that it is for; ``place``: the file, or the folder of packages;
    ``targets``: those that it has code for, by spaces.
    """

    project: str
    python: str
    version: str
    source: str
    place: str
    content: str
    targets: str = ""


@dataclass(frozen=True)
class Plan:
    """All steps of a run, in an order in which they could run one by one."""

    steps: Mapping[str, Step]
    targets: tuple[str, ...]
    against: tuple[BuiltAgainst, ...] = ()

    def __iter__(self) -> Iterator[Step]:
        return iter(self.steps.values())

    def find_step(self, name: str) -> Step:
        """Return a step. Raises UsageError for an id that the plan does not have."""
        if name not in self.steps:
            raise UsageError(
                f"the plan has no step {name}{suggest_name(name, self.steps)}",
                tip=f"its steps: {', '.join(self.steps)}",
            )
        return self.steps[name]


def fingerprint_inputs(inputs: Mapping[str, str]) -> str:
    """Return a digest of inputs by name: 16 hexadecimal digits."""
    text = json.dumps(dict(inputs), sort_keys=True)
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:16]
