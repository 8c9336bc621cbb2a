"""What a check is: a function with ``@check``, where the rule is; ``checks`` has them all.

The first line of its docstring is what it looks for. Ids are for good: a check that goes leaves a gap, and a
new one takes the next number. ``severity`` is the gravest that its findings have. **error**: it breaks on a
machine that the tags promise, or an index refuses it; **warning**: untidy, and works; **info**: worth
knowing. Of wheels that are held to a recipe, which are our own, some warnings are errors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, cast

from rocm_wheels.core import errors

CheckKind = Literal["wheel", "set", "drift"]
CheckT = TypeVar("CheckT", bound=Callable[[Any], Any])


@dataclass(frozen=True)
class AuditCheck:
    """A check of a wheel, of a set of wheels, or of a wheel against an older one (``drift``).

    ``run_check`` returns what is wrong ([] when nothing is), or a ``SkippedCheck``; a finding without a tip
    of its own has ``fix``. It is None for the import, which needs an environment, and for what is said of
    exceptions. ``needs_recipe``: it compares the wheel with what a recipe says.
    """

    id: str
    name: str
    severity: errors.Severity
    looks_for: str
    why: str
    fix: str
    kind: CheckKind = "wheel"
    needs_recipe: bool = False
    run_check: Callable[[Any], Sequence[errors.Finding] | Any] | None = None

    def to_json(self) -> dict[str, object]:
        """Return what it is about as plain JSON values."""
        words = {"looks_for": self.looks_for, "why": self.why, "fix": self.fix}
        needs = {"needs_recipe": self.needs_recipe, "needs_set": self.kind == "set"}
        return {"id": self.id, "name": self.name, "severity": self.severity, **words, **needs}

    @property
    def tip(self) -> str:
        """What is advised with a finding that has no tip of its own."""
        return f"{self.fix[:1].lower()}{self.fix[1:]}".rstrip(".")


DEFINED: list[AuditCheck] = []
"""The checks of the modules that were imported, in no order."""


def check(
    head: str, *, why: str, fix: str, kind: CheckKind = "wheel", needs_recipe: bool = False
) -> Callable[[CheckT], CheckT]:
    """Make a check of a function; the first line of its docstring says what it looks for.

    ``head`` is as it is shown: ``RW012 elf-tag-too-old (error)``.
    """
    identity, name, severity = head.split()

    def define(function: CheckT) -> CheckT:
        first = (function.__doc__ or "").partition("\n")[0].rstrip(".")
        looks_for = first if first[:2].isupper() else first[:1].lower() + first[1:]
        gravest = cast("errors.Severity", severity.strip("()"))
        DEFINED.append(AuditCheck(identity, name, gravest, looks_for, why, fix, kind, needs_recipe, function))
        return function

    return define
