"""What a model, or a type made of models, has at a place."""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel
from pydantic.fields import FieldInfo

Place = tuple[str | int, ...]
KEY = "[key]"  # what pydantic calls the key of an entry, at the end of a place


def keys_at(model: Any, place: Place) -> list[str]:
    """Return the keys that records at a place may have, as they are written in files."""
    return [key for record in records_at(model, place) for key in _fields(record)]


def known_part(model: Any, place: Place) -> Place:
    """Return a place without what pydantic adds to it: the kinds that one value may have, and for keys."""
    here: list[Any] = [model]
    for number, part in enumerate(place):
        if place[number:] == (KEY,):
            return place[:-1]
        inner = [found for one in here for found in inside(one, part)]
        if not inner and len([kind for one in here for kind in kinds(one)]) > 1:
            return place[:number]
        here = inner
    return place


def records_at(model: Any, place: Place) -> Iterator[type[Any]]:
    """Yield the records that may be at a place."""
    for one in _at(model, place):
        yield from (kind for kind in kinds(one) if is_record(kind))


def required(record: type[Any]) -> list[str]:
    """Return the keys that a record cannot do without."""
    fields = getattr(record, "model_fields", {})
    return [one.alias or name for name, one in fields.items() if one.is_required()]


def _at(model: Any, place: Place) -> list[Any]:
    here: list[Any] = [model]
    for part in place:
        here = [inner for one in here for inner in inside(one, part)]
    return here


def inside(annotation: Any, part: str | int) -> Iterator[Any]:
    """Yield what a value of a type has at a key or a number."""
    for kind in kinds(annotation):
        arguments = get_args(kind)
        if is_record(kind):
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
    return {field.alias or name: _annotation(field) for name, field in record.model_fields.items()}


def _annotation(field: FieldInfo) -> Any:
    return Annotated[(field.annotation, *field.metadata)] if field.metadata else field.annotation


def kinds(annotation: Any) -> Iterator[Any]:
    """Yield the types that a value may have."""
    origin = get_origin(annotation)
    if origin is Annotated:
        yield from kinds(get_args(annotation)[0])
    elif origin in (Union, types.UnionType):
        for one in get_args(annotation):
            yield from kinds(one)
    else:
        yield annotation


def is_record(kind: Any) -> bool:
    """Tell whether a type has keys of its own."""
    return (
        isinstance(kind, type)
        and get_origin(kind) is None
        and (issubclass(kind, BaseModel) or is_dataclass(kind))
    )
