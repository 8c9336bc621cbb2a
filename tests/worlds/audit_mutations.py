"""Mutations of wheels, a row each: its name, what must be found, what is done to the wheel, and words of it.

What must be found is an id with a severity (``RW021 warning``), and nothing beside it; "" is nothing at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pytest
from wheels import Draft

from rocm_wheels.audit import checks
from rocm_wheels.core.errors import Finding

Mutation = Callable[[Draft], object]
Row = tuple[str, str, Mutation, str]


def put(name: str, content: bytes | str) -> Mutation:
    """Return what gives a member a content."""
    data = content.encode() if isinstance(content, str) else content
    return lambda draft: draft.members.update({name: data})


def drop(*names: str) -> Mutation:
    """Return what takes members out."""
    return lambda draft: [draft.members.pop(name) for name in names]


def become(members: Mapping[str, bytes] | None = None, /, **changes: object) -> Mutation:
    """Return what adds members, and sets attributes of a draft."""

    def change(draft: Draft) -> None:
        draft.members |= members or {}
        for name, value in changes.items():
            setattr(draft, name, value)

    return change


def say(*lines: str) -> Mutation:
    """Return what adds lines to METADATA."""
    return lambda draft: draft.fields.extend(lines)


def require(*lines: str, instead: str = "") -> Mutation:
    """Return what adds requirements, in the place of one if any."""

    def change(draft: Draft) -> None:
        if instead:
            draft.requires.remove(instead)
        draft.requires.extend(lines)

    return change


def name_rows(rows: Iterable[tuple[Any, ...]]) -> list[Any]:
    """Return rows as parameters of a test, without their names, which stand in the id behind the check's."""
    params = []
    for case, named, *others in rows:
        check = checks.find_check(named.split()[0]).name if named else "nothing"
        params.append(pytest.param(named, *others, id=f"{check}-{case}"))
    return params


def assert_named(findings: Sequence[Finding], named: str, words: str) -> None:
    """Assert that one check alone speaks, with one severity, and says these words."""
    told = {f"{checks.get_check_id(finding.check)} {finding.severity}" for finding in findings}
    assert told == ({named} if named else set()), findings
    assert not named or any(words in f"{each.subject} {each.message}" for each in findings), findings
