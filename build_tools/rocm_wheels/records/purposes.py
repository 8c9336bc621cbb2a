"""What a key is for, to those who left it out: what docstrings say of it, else what its value may be."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import BaseModel

from rocm_wheels.records.shapes import (
    FieldPath,
    list_inner_types,
    is_record_type,
    list_value_types,
    list_records_at,
    list_required_keys,
)
from rocm_wheels.words import join_choices

MAPPING_WORDS, LIST_WORDS, FLAG_WORDS, WHOLE_NUMBER_WORDS, NUMBER_WORDS = (
    "keys with values",
    "a list",
    "true or false",
    "a whole number",
    "a number",
)
DATE_WORDS = "a date, such as 2026-11-21"
_TYPE_WORDS = {bool: FLAG_WORDS, int: WHOLE_NUMBER_WORDS, float: NUMBER_WORDS, date: DATE_WORDS}


def describe_key(model: Any, place: FieldPath) -> str:
    """Return what a docstring says of a key, else what its value must be; or nothing."""
    key = str(place[-1])
    for record in list_records_at(model, place[:-1]):
        if sentence := next(
            filter(None, (_find_key_sentence(key, page) for page in _list_docstrings(record))), ""
        ):
            return sentence
        if wished := list(
            dict.fromkeys(
                word for annotation in list_inner_types(record, key) for word in _describe_type(annotation)
            )
        ):
            return f"it must be {join_choices(wished)}"
    return ""


def _list_docstrings(record: type[Any]) -> Iterator[str]:
    """Yield the docstrings of a record and of those that it is made of."""
    for base in record.__mro__:
        if base is not BaseModel and is_record_type(base) and base.__doc__:
            yield " ".join(inspect.cleandoc(base.__doc__).split())


def _find_key_sentence(key: str, page: str) -> str:
    """Return the sentence about a key: it begins with it, or goes through several of which it is one."""
    sentences = [sentence.rstrip(".:;") for sentence in re.split(r"(?<=[.;:])\s+(?=[A-Z`])", page)]
    begins_with_key = re.compile(rf"``{re.escape(key)}``")
    names_key = re.compile(rf"``[^`]+``.*(, | and )``{re.escape(key)}``")
    matching = [sentence for sentence in sentences if begins_with_key.match(sentence)] or [
        sentence for sentence in sentences if names_key.match(sentence)
    ]
    return matching[0].replace("``", "`") if matching else ""


def _describe_type(annotation: Any) -> Iterator[str]:
    """Yield what a value of a type is called; nothing for text, which says nothing."""
    if get_origin(annotation) is Annotated:
        kind, *checks = get_args(annotation)
        words = [getattr(getattr(check, "func", None), "words", "") for check in checks]
        yield from list(filter(None, words)) or _describe_type(kind)
        return
    for kind in list_value_types(annotation):
        origin = get_origin(kind)
        if origin is Literal:
            yield from (str(word) for word in get_args(kind) if word != "")
        elif is_record_type(kind):
            yield (
                f"{MAPPING_WORDS} ({', '.join(needed)})"
                if (needed := list_required_keys(kind))
                else MAPPING_WORDS
            )
        elif isinstance(origin, type):
            yield (
                MAPPING_WORDS
                if issubclass(origin, Mapping)
                else LIST_WORDS
                if issubclass(origin, Sequence)
                else "a value"
            )
        elif kind in _TYPE_WORDS:
            yield _TYPE_WORDS[kind]
