"""Tell which CPythons a wheel is for, and which tags a CPython takes: as installers do, by ``packaging``.

A CPython is called ``3.12``, and ``3.13t`` without a GIL, or by its ABI tag: ``cp312``, ``cp313t``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache

from packaging.tags import Tag, compatible_tags, cpython_tags

from rocm_wheels.core import errors

_PYTHON = re.compile(r"(?:cp3|3\.)(?P<minor>\d+)(?P<threads>t?)")
_INTERPRETER_TAG = re.compile(r"cp3(?P<minor>0|[1-9][0-9]?)")


def get_python_version(python: str) -> str:
    """Return the version of a CPython: ``cp313t`` → ``3.13``. DataError for anything but CPython 3."""
    return f"3.{_match_python(python)['minor']}"


def list_accepted_tags(python: str, platforms: Sequence[str]) -> tuple[Tag, ...]:
    """Return the tags that a CPython takes on platforms (``linux_x86_64``), best first. Raises as above."""
    match = _match_python(python)
    version, interpreter = (3, int(match["minor"])), f"cp3{match['minor']}"
    cpython = cpython_tags(version, [interpreter + match["threads"]], platforms)
    return tuple(dict.fromkeys((*cpython, *compatible_tags(version, interpreter, platforms))))


@lru_cache(maxsize=4096)
def accepts_python(tags: frozenset[Tag], python: str) -> bool:
    """Tell whether a CPython takes a wheel with these tags, of whatever platform. Raises as above."""
    return not tags.isdisjoint(list_accepted_tags(python, sorted({tag.platform for tag in tags})))


def list_pythons(tags: Iterable[Tag]) -> frozenset[str]:
    """Return the CPythons that tags name (``3.13t``); none: they are for every one (``py3``, ``abi3``)."""
    return frozenset(
        f"3.{match['minor']}{'t' if tag.abi.endswith('t') else ''}"
        for tag in tags
        if tag.abi != "abi3" and (match := _INTERPRETER_TAG.fullmatch(tag.interpreter))
    )


def find_single_python(tags: Iterable[Tag]) -> str | None:
    """Return the one CPython that tags are for, None where they are for several."""
    pythons = list_pythons(tags)
    return next(iter(pythons)) if len(pythons) == 1 else None


def _match_python(python: str) -> re.Match[str]:
    match = _PYTHON.fullmatch(python)
    if match is None:
        raise errors.DataError(f"{python!r} is not the ABI tag of a CPython 3, such as cp312 or cp313t")
    return match
