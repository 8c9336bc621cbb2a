"""What a check is: a function with ``@check``, where its rule is; ``checks`` has the tables of all.

Its docstring says what it looks for, why, and what to do about it, as people are shown it. Ids are for
good: a check that goes leaves a gap, and a new one takes the next number. ``severity`` is the gravest that
its findings have. **error**: it breaks on a machine that the tags promise, or an index refuses it;
**warning**: untidy, and works; **info**: worth knowing. Of wheels that are held to a recipe, which are our
own, some warnings are errors.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar, cast

from rocm_wheels.core import shell
from rocm_wheels.core.errors import Finding, Severity

CheckKind = Literal["wheel", "set", "drift"]
Findings = Iterator[Finding]
CheckT = TypeVar("CheckT", bound=Callable[[Any], Iterator[Finding]])
_MOST_NAMED = 4


class Skip(Exception):
    """Raised by a check, or by what it asks of a wheel, where it cannot look; says why."""


@dataclass(frozen=True)
class SkippedCheck:
    """A check that did not run, and why."""

    reason: str
    check: str = ""


@dataclass(frozen=True)
class AuditCheck:
    """A check of a wheel, of a set of wheels, or of a wheel against an older one (``drift``).

    ``find`` yields what is wrong, and raises ``Skip`` where it cannot look. It is None for what is said of
    exceptions. ``needs_recipe``: it compares the wheel with what a recipe says.
    """

    id: str
    name: str
    severity: Severity
    looks_for: str
    why: str
    fix: str
    kind: CheckKind = "wheel"
    needs_recipe: bool = False
    find: Callable[[Any], Iterable[Finding]] | None = None

    def run(self, subject: Any) -> tuple[Finding, ...] | SkippedCheck:
        """Return what is wrong with a wheel or a set, or why that cannot be told."""
        if self.needs_recipe and not subject.has_recipe:
            return SkippedCheck("needs a recipe", self.name)
        assert self.find is not None, self.name
        return self.collect(lambda: self.find(subject))  # type: ignore[misc] # asserted

    def collect(self, find: Callable[[], Iterable[Finding]]) -> tuple[Finding, ...] | SkippedCheck:
        """Return findings as those of this check; one without a tip of its own has ``fix``.

        What was found before a ``Skip`` stays, with a note of what could not be looked at. Credentials in
        URLs are hidden, for findings repeat what wheels say and go into reports, which are for others.
        """
        tip = f"{self.fix[:1].lower()}{self.fix[1:]}".rstrip(".")
        hide = shell.hide_credentials
        findings: dict[Finding, None] = {}  # each once: much holds for several Pythons
        try:
            for finding in find():
                findings[finding] = None
        except Skip as skip:
            if not findings:
                return SkippedCheck(hide(str(skip)), self.name)
            findings[note(f"not all was looked at: {skip}", tip="audit it again without these findings")] = (
                None
            )
        return tuple(
            replace(finding, message=hide(finding.message), check=self.name, tip=hide(finding.tip or tip))
            for finding in findings
        )

    def to_json(self) -> dict[str, object]:
        """Return what it is about as plain JSON values."""
        words = {"looks_for": self.looks_for, "why": self.why, "fix": self.fix}
        needs = {"needs_recipe": self.needs_recipe, "needs_set": self.kind == "set"}
        return {"id": self.id, "name": self.name, "severity": self.severity, **words, **needs}


DEFINED: list[AuditCheck] = []
"""The checks of the modules that were imported, in no order."""


def check(head: str, *, kind: CheckKind = "wheel", needs_recipe: bool = False) -> Callable[[CheckT], CheckT]:
    """Make a check of a function; ``head`` is as it is shown: ``RW012 elf-tag-too-old (error)``.

    What it looks for, why and what to do are said in the docstring: its first line, ``Why:`` and ``Fix:``.
    """
    identity, name, severity = head.split()

    def define(function: CheckT) -> CheckT:
        first, *paragraphs = (inspect.getdoc(function) or "").split("\n\n")
        looks_for = first.rstrip(".") if first[:2].isupper() else first[:1].lower() + first[1:].rstrip(".")
        why, _, fix = " ".join(paragraphs[0].split()).partition(" Fix: ") if paragraphs else ("", "", "")
        about = (looks_for, why.removeprefix("Why: "), fix)
        gravest = cast("Severity", severity.strip("()"))
        DEFINED.append(AuditCheck(identity, name, gravest, *about, kind, needs_recipe, function))
        return function

    return define


def error(message: str, subject: str = "", tip: str = "") -> Finding:
    """Return an error; ``subject`` is a member of a wheel or a file of a set, "" for the whole."""
    return Finding("error", message, tip, subject)


def warning(message: str, subject: str = "", tip: str = "") -> Finding:
    """Return a warning, as ``error`` does."""
    return Finding("warning", message, tip, subject)


def note(message: str, subject: str = "", tip: str = "") -> Finding:
    """Return what is worth knowing, as ``error`` does."""
    return Finding("info", message, tip, subject)


def join_names(names: Iterable[str]) -> str:
    """Return the first names, and how many more there are."""
    listed = list(names)
    more = f" and {len(listed) - _MOST_NAMED} more" if len(listed) > _MOST_NAMED else ""
    return ", ".join(listed[:_MOST_NAMED]) + more
