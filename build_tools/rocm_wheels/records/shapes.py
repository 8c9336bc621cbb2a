"""What a model, or a type made of models, has at a place."""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel
from pydantic.fields import FieldInfo

FieldPath = tuple[str | int, ...]
KEY_MARK = "[key]"  # what pydantic calls the key of an entry, at the end of a place


def list_keys_at(model: Any, place: FieldPath) -> list[str]:
    """Return the keys that records at a place may have, as they are written in files."""
    return [key for record in list_records_at(model, place) for key in _get_fields(record)]


def strip_pydantic_parts(model: Any, place: FieldPath) -> FieldPath:
    """Return a place without what pydantic adds to it: the kinds that one value may have, and for keys."""
    annotations: list[Any] = [model]
    for number, part in enumerate(place):
        if place[number:] == (KEY_MARK,):
            return place[:-1]
        inner = [
            inner_type for annotation in annotations for inner_type in list_inner_types(annotation, part)
        ]
        if (
            not inner
            and len([kind for annotation in annotations for kind in list_value_types(annotation)]) > 1
        ):
            return place[:number]
        annotations = inner
    return place


def list_records_at(model: Any, place: FieldPath) -> Iterator[type[Any]]:
    """Yield the records that may be at a place."""
    for annotation in _list_types_at(model, place):
        yield from (kind for kind in list_value_types(annotation) if is_record_type(kind))


def list_required_keys(record: type[Any]) -> list[str]:
    """Return the keys that a record cannot do without."""
    fields = getattr(record, "model_fields", {})
    return [field.alias or name for name, field in fields.items() if field.is_required()]


def _list_types_at(model: Any, place: FieldPath) -> list[Any]:
    annotations: list[Any] = [model]
    for part in place:
        annotations = [inner for annotation in annotations for inner in list_inner_types(annotation, part)]
    return annotations


def list_inner_types(annotation: Any, part: str | int) -> Iterator[Any]:
    """Yield what a value of a type has at a key or a number."""
    for kind in list_value_types(annotation):
        arguments = get_args(kind)
        if is_record_type(kind):
            yield from _list_field_types(kind, part)
        elif not isinstance(origin := get_origin(kind), type) or not arguments:
            continue
        elif issubclass(origin, Mapping) and isinstance(part, str):
            yield arguments[1]
        elif issubclass(origin, (Sequence, frozenset, set)) and isinstance(part, int):
            fixed = len(arguments) > part and Ellipsis not in arguments and issubclass(origin, tuple)
            yield arguments[part if fixed else 0]


def _list_field_types(record: type[Any], part: str | int) -> Iterator[Any]:
    fields = _get_fields(record)
    if part in fields:
        yield fields[str(part)]
    elif getattr(record, "model_config", {}).get("extra") == "allow":
        extra = get_type_hints(record).get("__pydantic_extra__")
        yield (get_args(extra) or (str, Any))[1]


def _get_fields(record: type[Any]) -> dict[str, Any]:
    if not issubclass(record, BaseModel):
        return get_type_hints(record)
    return {field.alias or name: _get_annotation(field) for name, field in record.model_fields.items()}


def _get_annotation(field: FieldInfo) -> Any:
    return Annotated[(field.annotation, *field.metadata)] if field.metadata else field.annotation


def list_value_types(annotation: Any) -> Iterator[Any]:
    """Yield the types that a value may have."""
    origin = get_origin(annotation)
    if origin is Annotated:
        yield from list_value_types(get_args(annotation)[0])
    elif origin in (Union, types.UnionType):
        for alternative in get_args(annotation):
            yield from list_value_types(alternative)
    else:
        yield annotation


def is_record_type(kind: Any) -> bool:
    """Tell whether a type has keys of its own."""
    return (
        isinstance(kind, type)
        and get_origin(kind) is None
        and (issubclass(kind, BaseModel) or is_dataclass(kind))
    )
