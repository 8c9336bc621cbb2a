"""The keys of records, as people read them: for `help recipe`, and for the pages of the reference."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Any


def list_records(model: type[Any]) -> list[type[Any]]:
    """Return a record and all records inside it, each once, in the order of their fields."""
    records = [model]
    for record in records:
        for field in _get_fields(record).values():
            records += [inner for inner in _list_inner_records(field.annotation) if inner not in records]
    return records


def list_keys(record: type[Any]) -> Iterator[tuple[str, str, str]]:
    """Yield the keys of a record: the key, what its value is, and what it is where it is left out."""
    for name, field in _get_fields(record).items():
        yield str(field.alias or name), _describe_type(field.annotation), _describe_default(field)


def format_keys(model: type[Any]) -> str:
    """Return the keys of a record and of all records inside it, as text."""
    from rocm_wheels.core import tables

    blocks = []
    for record in list_records(model):
        about = (inspect.getdoc(record) or "").partition("\n\n")[0].replace("``", "`")
        rows = [tuple(text.replace("`", "").strip("*") for text in row) for row in list_keys(record)]
        table = tables.format_table(("key", "value", "default"), rows, width=tables.get_output_width())
        blocks.append(f"{record.__name__.lstrip('_')}: {about}\n{table}")
    return "\n\n".join(blocks)


def _get_fields(record: type[Any]) -> Mapping[str, Any]:
    """Return the fields of a pydantic model or dataclass."""
    return getattr(record, "model_fields", None) or getattr(record, "__pydantic_fields__", {})


def _list_inner_records(annotation: Any) -> Iterator[type[Any]]:
    """Yield the records that an annotation names."""
    if isinstance(annotation, type) and _get_fields(annotation):
        yield annotation
    for argument in typing.get_args(annotation):
        yield from _list_inner_records(argument)


_PLAIN = {str: "text", int: "number", float: "number", bool: "`true` or `false`", Any: "anything"}


def _describe_type(annotation: Any) -> str:
    """Return a type as people read it: ``text``, ``list of text``, ``one of a, b``; a record by its name."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return _describe_type(arguments[0])
    if origin is typing.Literal:
        return "one of " + ", ".join(f"`{value}`" for value in arguments)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(_describe_type(kind) for kind in arguments if kind is not type(None))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return f"mapping of {_describe_type(arguments[0])} to {_describe_type(arguments[1])}"
    if origin is not None:
        return f"list of {_describe_type(arguments[0])}" if arguments else "list"
    name = getattr(annotation, "__name__", str(annotation)).lstrip("_")
    return _PLAIN.get(annotation) or (name if _get_fields(annotation) else f"`{name}`")


def _describe_default(field: Any) -> str:
    if field.is_required():
        return "**required**"
    default = field.get_default(
        call_default_factory=not getattr(field, "default_factory_takes_validated_data", False)
    )
    if default in (None, (), [], {}, "") or isinstance(default, Mapping):
        return "none"
    shown = str(default).lower() if isinstance(default, bool) else default
    return f"`{shown}`" if isinstance(shown, (str, int, float, PurePath)) else "see below"
