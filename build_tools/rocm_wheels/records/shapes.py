"""What a model, or a type made of models, has at a place: its keys, and what docstrings say of a key."""

from __future__ import annotations

import inspect
import re
import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel

from rocm_wheels.words import listed

Place = tuple[str | int, ...]
KEY = "[key]"  # what pydantic calls the key of an entry, at the end of a place


def keys_at(model: Any, place: Place) -> list[str]:
    """Return the keys that records at a place may have, as they are written in files."""
    return [key for record in _records(_at(model, place)) for key in _fields(record)]


def known_part(model: Any, place: Place) -> Place:
    """Return a place without what pydantic adds to it: the kinds that one value may have, and for keys."""
    here: list[Any] = [model]
    for number, part in enumerate(place):
        if place[number:] == (KEY,):
            return place[:-1]
        inner = [inside for one in here for inside in _inside(one, part)]
        if not inner and len([kind for one in here for kind in _kinds(one)]) > 1:
            return place[:number]
        here = inner
    return place


def purpose(model: Any, place: Place) -> str:
    """Return what its record's docstring says of a key, else the values that it may have, or nothing."""
    key = str(place[-1])
    for record in _records(_at(model, place[:-1])):
        said = _said_of(key, record)
        choices = [word for one in _inside(record, key) for word in _words(one)]
        if said or choices:
            return said or f"it must be {listed(choices)}"
    return ""


def _said_of(key: str, record: type[Any]) -> str:
    """Return the sentence of a docstring that begins with a key, or else with another one of its keys."""
    page = " ".join(inspect.cleandoc(record.__doc__ or "").split())
    sentences = [one.rstrip(".:;") for one in re.split(r"(?<=[.;])\s+(?=[A-Z`])", page)]
    about = [one for one in sentences if one.startswith("``") and f"``{key}``" in one]
    about.sort(key=lambda one: not one.startswith(f"``{key}``"))
    return about[0].replace("``", "`") if about else ""


def _at(model: Any, place: Place) -> list[Any]:
    here: list[Any] = [model]
    for part in place:
        here = [inner for one in here for inner in _inside(one, part)]
    return here


def _inside(annotation: Any, part: str | int) -> Iterator[Any]:
    """Yield what a value of a type has at a key or a number."""
    for kind in _kinds(annotation):
        arguments = get_args(kind)
        if _is_record(kind):
            yield from _of_record(kind, part)
        elif not isinstance(origin := get_origin(kind), type) or not arguments:
            continue
        elif issubclass(origin, Mapping) and isinstance(part, str):
            yield arguments[1]
        elif issubclass(origin, (Sequence, frozenset, set)) and isinstance(part, int):
            fixed = len(arguments) > part and Ellipsis not in arguments and issubclass(origin, tuple)
            yield arguments[part if fixed else 0]


def _of_record(record: type[Any], part: str | int) -> Iterator[Any]:
    fields = _fields(record)
    if part in fields:
        yield fields[str(part)]
    elif getattr(record, "model_config", {}).get("extra") == "allow":
        extra = get_type_hints(record).get("__pydantic_extra__")
        yield (get_args(extra) or (str, Any))[1]


def _fields(record: type[Any]) -> dict[str, Any]:
    if not issubclass(record, BaseModel):
        return get_type_hints(record)
    return {field.alias or name: field.annotation for name, field in record.model_fields.items()}


def _kinds(annotation: Any) -> Iterator[Any]:
    """Yield the types that a value may have."""
    origin = get_origin(annotation)
    if origin is Annotated:
        yield from _kinds(get_args(annotation)[0])
    elif origin in (Union, types.UnionType):
        for one in get_args(annotation):
            yield from _kinds(one)
    else:
        yield annotation


def _records(annotations: Sequence[Any]) -> Iterator[type[Any]]:
    for one in annotations:
        yield from (kind for kind in _kinds(one) if _is_record(kind))


def _words(annotation: Any) -> Iterator[str]:
    for kind in _kinds(annotation):
        if get_origin(kind) is Literal:
            yield from (str(word) for word in get_args(kind) if word != "")


def _is_record(kind: Any) -> bool:
    return (
        isinstance(kind, type)
        and get_origin(kind) is None
        and (issubclass(kind, BaseModel) or is_dataclass(kind))
    )
