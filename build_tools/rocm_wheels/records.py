"""YAML tables as typed records: every scalar is text until a model says what it is.

A mistake is reported with file, line and column, and with the name that was probably
meant. ``3.10`` stays ``3.10``; a key given twice or not known is an error.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from rocm_wheels.errors import DataError

_BaseLoader: Any = getattr(yaml, "CBaseLoader", yaml.BaseLoader)


class Record(BaseModel):
    """Base of all records that are read from YAML: frozen, and strict about keys."""

    model_config = ConfigDict(frozen=True, extra="forbid")


R = TypeVar("R", bound=Record)
_Place = tuple[str | int, ...]


def load(path: Path, model: type[R]) -> R:
    """Read a YAML file into ``model``.

    Raises DataError with ``file:line:column`` for a missing or unreadable file, broken
    YAML, duplicate or unknown keys and wrong values.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as cause:
        raise DataError(f"cannot read {path}") from cause
    except UnicodeDecodeError as cause:
        raise DataError(f"{path} is not UTF-8 text") from cause
    return parse(text, model, name=str(path))


def parse(text: str, model: type[R], *, name: str) -> R:
    """Read YAML text into ``model``; ``name`` stands for the file in messages (see ``load``)."""
    try:
        root = yaml.compose(text, Loader=_BaseLoader)
    except yaml.MarkedYAMLError as cause:
        mark = cause.problem_mark
        where = f"{name}:{mark.line + 1}:{mark.column + 1}" if mark else name
        raise DataError(f"{where}: not valid YAML: {cause.problem}") from None  # which says it twice
    except yaml.YAMLError as cause:
        raise DataError(f"{name}: not valid YAML: {cause}") from cause
    marks: dict[_Place, tuple[int, int]] = {}
    value = _construct(root, (), marks, name) if root is not None else {}
    try:
        return model.model_validate(value)
    except ValidationError as cause:
        raise DataError(_describe(cause, marks, name, model)) from None


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return ``"; did you mean X?"`` for the known word nearest to ``word``, or nothing."""
    near = difflib.get_close_matches(word, list(known), n=1)
    return f"; did you mean {near[0]}?" if near else ""


def _construct(node: Any, place: _Place, marks: dict[_Place, tuple[int, int]], name: str) -> Any:
    marks[place] = (node.start_mark.line + 1, node.start_mark.column + 1)
    if isinstance(node, yaml.MappingNode):
        result: dict[str, Any] = {}
        for key_node, value_node in node.value:
            where = f"{name}:{key_node.start_mark.line + 1}:{key_node.start_mark.column + 1}"
            if not isinstance(key_node, yaml.ScalarNode):
                raise DataError(f"{where}: a key must be plain text")
            key = str(key_node.value)
            if key in result:
                raise DataError(f"{where}: {key} is given twice")
            result[key] = _construct(value_node, (*place, key), marks, name)
            marks[(*place, key)] = (key_node.start_mark.line + 1, key_node.start_mark.column + 1)
        return result
    if isinstance(node, yaml.SequenceNode):
        return [_construct(child, (*place, i), marks, name) for i, child in enumerate(node.value)]
    return str(node.value)


def _describe(
    error: ValidationError, marks: dict[_Place, tuple[int, int]], name: str, model: type[Record]
) -> str:
    lines = []
    for fault in error.errors():
        place = tuple(fault["loc"])
        known = place
        while known and known not in marks:
            known = known[:-1]
        line, column = marks.get(known, (1, 1))
        dotted = ".".join(str(part) for part in place)
        if fault["type"] == "extra_forbidden":
            hint = did_you_mean(str(place[-1]), _fields_at(model, place[:-1]))
            said = f"{dotted} is not a known key{hint}"
        elif fault["type"] == "missing":
            said = f"{dotted} is missing"
        else:
            # what a whole record holds is not repeated: the place says which one it is
            found = "" if isinstance(fault["input"], (dict, list)) else f" (found {fault['input']!r})"
            what = "must be keys with values" if fault["type"] == "model_type" else fault["msg"]
            said = f"{dotted}: {what}{found}" if dotted else f"{what}{found}"
        lines.append(f"{name}:{line}:{column}: {said}")
    return "\n".join(lines)


def _fields_at(model: type[Record], place: _Place) -> list[str]:
    """Names of the fields of the (possibly nested) record at ``place``."""
    current: Any = model
    for part in place:
        candidates = (
            _models_in(current.model_fields[part].annotation)
            if (isinstance(part, str) and hasattr(current, "model_fields") and part in current.model_fields)
            else ([current] if hasattr(current, "model_fields") else [])
        )
        if not candidates:
            return []
        current = candidates[0]
    return list(getattr(current, "model_fields", {}))


def _models_in(annotation: Any) -> list[Any]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    found: list[Any] = []
    for inner in getattr(annotation, "__args__", ()):
        found.extend(_models_in(inner))
    return found
