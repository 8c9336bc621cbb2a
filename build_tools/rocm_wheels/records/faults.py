"""What pydantic finds wrong with values, in sentences of our own: one table, by the type of an error.

A sentence names the path of the key, what there must be, what was found, and the word that was meant.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple, get_args

from pydantic import ValidationError

from rocm_wheels.records import purposes, shapes
from rocm_wheels.records.shapes import Place
from rocm_wheels.words import counted, did_you_mean

_SHOWN = 80  # letters of a value that is repeated in a message
SPELLED, PLACED = "spelled", "placed"  # what `reading.spelled` and `reading.fault` raise
MOST, _IN_A_LINE = 10_000, 5  # errors that are looked at, sentences that are told of a document
_PLAIN = re.compile(r"[\w.+/@*$-]{1,80}")  # keys that are shown as they are
_QUOTED = re.compile(r"'((?:[^'\\]|\\.)*)'")
_EMPTY = "must not be empty"
_KEYS = f"it must be {purposes.KEYS}"
_LIST = f"it must be {purposes.LIST}"
_TEXT = "it must be text"
_FLAG = f"it must be {purposes.FLAG}"
_NUMBER = f"it must be {purposes.NUMBER}"
_WHOLE = f"it must be {purposes.WHOLE}"
_DATE = f"it must be {purposes.DATE}"
_MOMENT = "it must be a time with its zone, such as 2026-11-21T18:00:00Z"
_SPAN = "it must be a length of time"


class Fault(NamedTuple):
    """Something wrong: the keys and numbers that lead to it, what is wrong there, and what was found.

    ``purpose`` is that of a missing key. ``of_kind``: so it is for one of the kinds that a value may have.
    """

    place: Place
    said: str
    found: str = ""
    purpose: str = ""
    of_kind: bool = False

    def __str__(self) -> str:
        """Return the sentence: ``lines.0.name: it must be text (found a list)``."""
        after = " " if self.said.startswith("is ") else ": "
        return f"{dotted(self.place)}{after if self.place else ''}{self.said}{self.found}"


def _choices(about: Mapping[str, Any]) -> str:
    return f"it must be {_QUOTED.sub(lambda word: word[1] or word[0], about['expected'])}"


def _size(most: str, least: str, one: str) -> Callable[[Mapping[str, Any]], str]:
    """Return what says how many there must be of ``one``, by ``most`` or ``least`` of the limits."""

    def said(about: Mapping[str, Any]) -> str:
        if most in about:
            return f"it must have at most {counted(about[most], one)}"
        return f"it {_EMPTY}" if about[least] == 1 else f"it must have {about[least]} {one}s or more"

    return said


# by pydantic's type of an error; braces take what pydantic says of the limit
SENTENCES: Mapping[str, str | Callable[[Mapping[str, Any]], str]] = {
    "model_type": _KEYS,
    "dataclass_type": _KEYS,
    "dict_type": _KEYS,
    "mapping_type": _KEYS,
    "invalid_key": "its keys must be text",
    "tuple_type": _LIST,
    "list_type": _LIST,
    "set_type": _LIST,
    "frozen_set_type": _LIST,
    "iterable_type": _LIST,
    "iteration_error": _LIST,
    "too_short": _size("", "min_length", "value"),
    "too_long": _size("max_length", "", "value"),
    "string_type": _TEXT,
    "string_unicode": _TEXT,
    "string_too_short": _size("", "min_length", "letter"),
    "string_too_long": _size("max_length", "", "letter"),
    "string_pattern_mismatch": "it must match {pattern}",
    "literal_error": _choices,
    "bool_type": _FLAG,
    "bool_parsing": _FLAG,
    "int_type": _WHOLE,
    "int_parsing": _WHOLE,
    "int_parsing_size": "it must be a whole number of fewer digits",
    "int_from_float": _WHOLE,
    "float_type": _NUMBER,
    "float_parsing": _NUMBER,
    "finite_number": "it must be a finite number",
    "greater_than": "it must be more than {gt}",
    "greater_than_equal": "it must be {ge} or more",
    "less_than": "it must be less than {lt}",
    "less_than_equal": "it must be {le} or less",
    "multiple_of": "it must be a multiple of {multiple_of}",
    "date_type": _DATE,
    "date_parsing": _DATE,
    "date_from_datetime_parsing": _DATE,
    "date_from_datetime_inexact": "it must be a date without a time, such as 2026-11-21",
    "datetime_type": _MOMENT,
    "datetime_parsing": _MOMENT,
    "datetime_object_invalid": _MOMENT,
    "datetime_from_date_parsing": _MOMENT,
    "timezone_aware": _MOMENT,
    "time_delta_type": _SPAN,
    "time_delta_parsing": _SPAN,
    "none_required": "it must not be there",
    "recursion_loop": "it must not hold itself",
    "json_invalid": "it must be JSON ({error})",
    "json_type": "it must be JSON",
    "assertion_error": "{error}",
    "value_error": "{error}",
}


def faults_of(error: ValidationError, model: Any) -> list[Fault]:
    """Return what is wrong with values for a model, or a type: a sentence for each place, in its order.

    The first ``MOST`` are looked at. Of an error that has no sentence here, pydantic's own words are shown.
    """
    return list(_together(_fault(one, model) for one in error.errors(include_url=False)[:MOST]))


def say(error: ValidationError, model: Any) -> str:
    """Return the same in a line, for documents in which no person would look for line and column."""
    said = [str(fault) for fault in faults_of(error, model)]
    left_out = len(said) - _IN_A_LINE + max(0, error.error_count() - MOST)
    return "; ".join(said[:_IN_A_LINE] + and_more(left_out))


def and_more(number: int) -> list[str]:
    """Return what ends a list of faults that leaves so many out; nothing where it leaves none out."""
    return [f"and {number:,} more"] if number > 0 else []


def dotted(place: Place) -> str:
    """Return a place as it is written in messages: ``lines.0.name``."""
    return ".".join(key if _PLAIN.fullmatch(key) else _short(key) for key in map(str, place))


def _together(faults: Iterator[Fault]) -> Iterator[Fault]:
    """Join what is wrong for each kind that a value may have: it is of none."""
    for (place, of_kind), several in groupby(faults, key=lambda fault: (fault.place, fault.of_kind)):
        if not of_kind:
            yield from several
        else:
            first, *others = several
            said = dict.fromkeys(fault.said for fault in (first, *others))
            yield Fault(place, ", or ".join(said), first.found)


def _fault(one: Mapping[str, Any], model: Any) -> Fault:
    whole: Place = tuple(one["loc"])
    if one["type"] == "missing":
        return Fault(whole, "is missing", purpose=purposes.purpose(model, whole))
    if one["type"] == "extra_forbidden":
        return Fault(whole, f"is not a known key{_instead(model, whole)}")
    if one["type"] == PLACED:
        return Fault((*whole, *one["ctx"]["place"]), _sentence(one))
    place, said = shapes.known_part(model, whole), _sentence(one)
    of_key = whole[-1:] == (shapes.KEY,)
    if of_key and said.startswith("it "):
        said = f"the key {said[3:]}"
    return Fault(place, said, _found(one, said) + _meant(one), of_kind=place != whole and not of_key)


def _sentence(one: Mapping[str, Any]) -> str:
    from pydantic_core.core_schema import ErrorType

    template, about = SENTENCES.get(one["type"]), one.get("ctx", {})
    if template is None:
        own = one["type"] not in get_args(ErrorType)  # a validator of ours has said it
        return str(one["msg"]) if own else f"pydantic says: {one['msg']}"
    if callable(template):
        return template(about)
    return template.format(**{name: _limit(value) for name, value in about.items()})


def _limit(value: object) -> object:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _found(one: Mapping[str, Any], said: str) -> str:
    """Return what was found, where the sentence does not say it; whole records are not repeated."""
    value = one["input"]
    if isinstance(value, (Mapping, list, tuple)):
        kind = "keys with values" if isinstance(value, Mapping) else "a list"
        return f" (found {kind})" if one["type"].endswith(("_type", "literal_error")) else ""
    own = one["type"] not in {*SENTENCES, SPELLED} or one["type"] == "value_error"
    repeated = own and re.search(rf"(?<!\w){re.escape(str(value))}(?!\w)", said)
    if one["type"] == "json_invalid" or (repeated and value != "") or said.endswith(_EMPTY):
        return ""
    return f" (found {_short(value) if value not in ('', None) else 'nothing'})"


def _short(value: object) -> str:
    shown = {True: "true", False: "false"}[value] if isinstance(value, bool) else repr(value)
    return shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}…"


def _meant(one: Mapping[str, Any]) -> str:
    if one["type"] != "literal_error" or not isinstance(one["input"], str):
        return ""
    return did_you_mean(one["input"], _QUOTED.findall(one["ctx"]["expected"]))


def _instead(model: Any, place: Place) -> str:
    known: Sequence[str] = shapes.keys_at(model, place[:-1])
    if near := did_you_mean(str(place[-1]), known):
        return near
    return f"; there may be {', '.join(known)}" if known else "; there may be none here"
