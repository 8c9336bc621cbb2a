"""What a key is for, to those who left it out: what docstrings say of it, else what its value may be."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import BaseModel

from rocm_wheels.records.shapes import Place, inside, is_record, kinds, records_at, required
from rocm_wheels.words import listed

KEYS, LIST, FLAG, WHOLE, NUMBER = "keys with values", "a list", "true or false", "a whole number", "a number"
DATE = "a date, such as 2026-11-21"
_PLAIN = {bool: FLAG, int: WHOLE, float: NUMBER, date: DATE}


def purpose(model: Any, place: Place) -> str:
    """Return what a docstring says of a key, else what its value must be; or nothing."""
    key = str(place[-1])
    for record in records_at(model, place[:-1]):
        if said := next(filter(None, (_said_of(key, page) for page in _pages(record))), ""):
            return said
        if wished := list(dict.fromkeys(word for one in inside(record, key) for word in _wish(one))):
            return f"it must be {listed(wished)}"
    return ""


def _pages(record: type[Any]) -> Iterator[str]:
    """Yield the docstrings of a record and of those that it is made of."""
    for one in record.__mro__:
        if one is not BaseModel and is_record(one) and one.__doc__:
            yield " ".join(inspect.cleandoc(one.__doc__).split())


def _said_of(key: str, page: str) -> str:
    """Return the sentence about a key: it begins with it, or goes through several of which it is one."""
    sentences = [one.rstrip(".:;") for one in re.split(r"(?<=[.;:])\s+(?=[A-Z`])", page)]
    own = re.compile(rf"``{re.escape(key)}``")
    beside = re.compile(rf"``[^`]+``.*(, | and )``{re.escape(key)}``")
    about = [one for one in sentences if own.match(one)] or [one for one in sentences if beside.match(one)]
    return about[0].replace("``", "`") if about else ""


def _wish(annotation: Any) -> Iterator[str]:
    """Yield what a value of a type is called; nothing for text, which says nothing."""
    if get_origin(annotation) is Annotated:
        kind, *checks = get_args(annotation)
        words = [getattr(getattr(one, "func", None), "words", "") for one in checks]
        yield from list(filter(None, words)) or _wish(kind)
        return
    for kind in kinds(annotation):
        origin = get_origin(kind)
        if origin is Literal:
            yield from (str(word) for word in get_args(kind) if word != "")
        elif is_record(kind):
            yield f"{KEYS} ({', '.join(needed)})" if (needed := required(kind)) else KEYS
        elif isinstance(origin, type):
            yield KEYS if issubclass(origin, Mapping) else LIST if issubclass(origin, Sequence) else "a value"
        elif kind in _PLAIN:
            yield _PLAIN[kind]
