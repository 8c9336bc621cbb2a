"""``Record``: frozen pydantic models, read from YAML and JSON; their faults with file:line:col.

A mistake is reported with file, line and column, and with the name that was probably meant; all of them
are told, in the order of the file. ``3.10`` stays ``3.10``; a key given twice or not known is an error.

A sentence names the path of the key, what there must be, what was found, and the word that was meant.
What a missing key is for is taken from docstrings, else from its type.
"""

from __future__ import annotations

import inspect
import json
import re
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from datetime import date
from itertools import groupby
from pathlib import Path
from typing import (
    Annotated,
    Any,
    Literal,
    NamedTuple,
    NoReturn,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError

from rocm_wheels.core.errors import DataError
from rocm_wheels.core.tables import format_count, format_size, join_choices, suggest_name
from rocm_wheels.core.yaml_reader import KeyPath, Mark, YamlTree, read_yaml_tree

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


_MOST_LETTERS = 80  # letters of a value that is repeated in a message
SPELLING_ERROR, PLACED_ERROR = "spelled", "placed"  # what `reading.spelled` and `reading.fault` raise
MOST_ERRORS, _IN_A_LINE = 10_000, 5  # errors that are looked at, sentences that are told of a document
_PLAIN_KEY = re.compile(r"[\w.+/@*$-]{1,80}")  # keys that are shown as they are
_QUOTED = re.compile(r"'((?:[^'\\]|\\.)*)'")
_EMPTY = "must not be empty"
_KEYS = f"it must be {MAPPING_WORDS}"
_LIST = f"it must be {LIST_WORDS}"
_TEXT = "it must be text"
_FLAG = f"it must be {FLAG_WORDS}"
_NUMBER = f"it must be {NUMBER_WORDS}"
_WHOLE = f"it must be {WHOLE_NUMBER_WORDS}"
_DATE = f"it must be {DATE_WORDS}"
_MOMENT = "it must be a time with its zone, such as 2026-11-21T18:00:00Z"
_SPAN = "it must be a length of time"


class RecordFault(NamedTuple):
    """Something wrong: the keys and numbers that lead to it, what is wrong there, and what was found.

    ``purpose`` is that of a missing key. ``of_kind``: so it is for one of the kinds that a value may have.
    """

    place: FieldPath
    message: str
    found_text: str = ""
    purpose: str = ""
    of_kind: bool = False

    def __str__(self) -> str:
        """Return the sentence: ``lines.0.name: it must be text (found a list)``."""
        after = " " if self.message.startswith("is ") else ": "
        return f"{format_key_path(self.place)}{after if self.place else ''}{self.message}{self.found_text}"


def _describe_choices(limits: Mapping[str, Any]) -> str:
    return f"it must be {_QUOTED.sub(lambda word: word[1] or word[0], limits['expected'])}"


def _make_size_sentence(most: str, least: str, noun: str) -> Callable[[Mapping[str, Any]], str]:
    """Return what says how many there must be of ``noun``, by ``most`` or ``least`` of the limits."""

    def describe_size(limits: Mapping[str, Any]) -> str:
        if most in limits:
            return f"it must have at most {format_count(limits[most], noun)}"
        return f"it {_EMPTY}" if limits[least] == 1 else f"it must have {limits[least]} {noun}s or more"

    return describe_size


# by pydantic's type of an error; braces take what pydantic says of the limit
FAULT_SENTENCES: Mapping[str, str | Callable[[Mapping[str, Any]], str]] = {
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
    "too_short": _make_size_sentence("", "min_length", "value"),
    "too_long": _make_size_sentence("max_length", "", "value"),
    "string_type": _TEXT,
    "string_unicode": _TEXT,
    "string_too_short": _make_size_sentence("", "min_length", "letter"),
    "string_too_long": _make_size_sentence("max_length", "", "letter"),
    "string_pattern_mismatch": "it must match {pattern}",
    "literal_error": _describe_choices,
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


def list_record_faults(error: ValidationError, model: Any) -> list[RecordFault]:
    """Return what is wrong with values for a model, or a type: a sentence for each place, in its order.

    The first ``MOST_ERRORS`` are looked at. Of an error that has no sentence here, pydantic's own words are
    shown.
    """
    return list(
        _join_alternatives(
            _make_fault(details, model) for details in error.errors(include_url=False)[:MOST_ERRORS]
        )
    )


def summarize_faults(error: ValidationError, model: Any) -> str:
    """Return the same in a line, for documents in which no person would look for line and column."""
    sentences = [str(fault) for fault in list_record_faults(error, model)]
    left_out = len(sentences) - _IN_A_LINE + max(0, error.error_count() - MOST_ERRORS)
    return "; ".join(sentences[:_IN_A_LINE] + format_omitted(left_out))


def format_omitted(number: int) -> list[str]:
    """Return what ends a list of faults that leaves so many out; nothing where it leaves none out."""
    return [f"and {number:,} more"] if number > 0 else []


def format_key_path(place: FieldPath) -> str:
    """Return a place as it is written in messages: ``lines.0.name``."""
    return ".".join(key if _PLAIN_KEY.fullmatch(key) else _shorten_value(key) for key in map(str, place))


def _join_alternatives(faults: Iterator[RecordFault]) -> Iterator[RecordFault]:
    """Join what is wrong for each kind that a value may have: it is of none."""
    for (place, of_kind), alternatives in groupby(faults, key=lambda fault: (fault.place, fault.of_kind)):
        if not of_kind:
            yield from alternatives
        else:
            first, *others = alternatives
            messages = dict.fromkeys(fault.message for fault in (first, *others))
            yield RecordFault(place, ", or ".join(messages), first.found_text)


def _make_fault(details: Mapping[str, Any], model: Any) -> RecordFault:
    full_path: FieldPath = tuple(details["loc"])
    if details["type"] == "missing":
        return RecordFault(full_path, "is missing", purpose=describe_key(model, full_path))
    if details["type"] == "extra_forbidden":
        return RecordFault(full_path, f"is not a known key{_suggest_key(model, full_path)}")
    if details["type"] == PLACED_ERROR:
        return RecordFault((*full_path, *details["ctx"]["place"]), _describe_error(details))
    key_path, message = strip_pydantic_parts(model, full_path), _describe_error(details)
    of_key = full_path[-1:] == (KEY_MARK,)
    if of_key and message.startswith("it "):
        message = f"the key {message[3:]}"
    return RecordFault(
        key_path,
        message,
        _describe_value(details, message) + _suggest_literal(details),
        of_kind=key_path != full_path and not of_key,
    )


def _describe_error(details: Mapping[str, Any]) -> str:
    from pydantic_core.core_schema import ErrorType

    template, limits = FAULT_SENTENCES.get(details["type"]), details.get("ctx", {})
    if template is None:
        is_ours = details["type"] not in get_args(ErrorType)  # a validator of ours has said it
        return str(details["msg"]) if is_ours else f"pydantic says: {details['msg']}"
    if callable(template):
        return template(limits)
    return template.format(**{name: _simplify_limit(value) for name, value in limits.items()})


def _simplify_limit(value: object) -> object:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _describe_value(details: Mapping[str, Any], message: str) -> str:
    """Return what was found, where the sentence does not say it; whole records are not repeated."""
    value = details["input"]
    if isinstance(value, (Mapping, list, tuple)):
        kind = "keys with values" if isinstance(value, Mapping) else "a list"
        return f" (found {kind})" if details["type"].endswith(("_type", "literal_error")) else ""
    is_ours = details["type"] not in {*FAULT_SENTENCES, SPELLING_ERROR} or details["type"] == "value_error"
    repeated = is_ours and re.search(rf"(?<!\w){re.escape(str(value))}(?!\w)", message)
    if details["type"] == "json_invalid" or (repeated and value != "") or message.endswith(_EMPTY):
        return ""
    return f" (found {_shorten_value(value) if value not in ('', None) else 'nothing'})"


def _shorten_value(value: object) -> str:
    text = {True: "true", False: "false"}[value] if isinstance(value, bool) else repr(value)
    return text if len(text) <= _MOST_LETTERS else f"{text[:_MOST_LETTERS]}…"


def _suggest_literal(details: Mapping[str, Any]) -> str:
    if details["type"] != "literal_error" or not isinstance(details["input"], str):
        return ""
    return suggest_name(details["input"], _QUOTED.findall(details["ctx"]["expected"]))


def _suggest_key(model: Any, place: FieldPath) -> str:
    keys: Sequence[str] = list_keys_at(model, place[:-1])
    if suggestion := suggest_name(str(place[-1]), keys):
        return suggestion
    return f"; there may be {', '.join(keys)}" if keys else "; there may be none here"


_MOST_SHOWN = 100  # faults of a file
_LARGEST_FILE = 4 << 20  # bytes: the largest lock of all projects is far below one of them
_OTHER_ENCODINGS = {b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16"}


class Record(BaseModel):
    """Base of all records that are read from YAML: frozen, and strict about keys; numbers are finite."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


RecordT = TypeVar("RecordT", bound=Record)


def require_pattern(pattern: str, words: str) -> AfterValidator:
    """Return what holds a text, whole, to a regular expression; people read *it must be* and ``words``."""
    compiled = re.compile(pattern)

    def check_value(value: str) -> str:
        if compiled.fullmatch(value) is None:
            raise PydanticCustomError(SPELLING_ERROR, "it must be {words}", {"words": words})
        return value

    check_value.words = words  # type: ignore[attr-defined]  # for those who left it out
    return AfterValidator(check_value)


def make_record_error(message: str, *place: str | int) -> PydanticCustomError:
    """Return what a validator raises of something at a place inside its own value, by keys and numbers."""
    return PydanticCustomError(PLACED_ERROR, "{said}", {"said": message, "place": place})


def load_record(path: Path, model: type[RecordT]) -> RecordT:
    """Read a YAML file into ``model``.

    Raises DataError with ``file:line:column`` for a missing or unreadable file, broken
    YAML, duplicate or unknown keys and wrong values.
    """
    return parse_record(read_text_file(path), model, name=str(path))


def read_text_file(path: Path, *, tip: str = "name another file", missing_tip: str | None = None) -> str:
    """Read a file that people write. Raises DataError for one that is no UTF-8 text, or far too large.

    ``missing_tip``: the tip where there is no such file, if it is another one.
    """
    try:
        with path.open("rb") as file:
            content = file.read(_LARGEST_FILE + 1)
    except FileNotFoundError as cause:
        raise DataError(f"cannot read {path}: {cause.strerror}", tip=missing_tip or tip) from cause
    except OSError as cause:
        raise DataError(f"cannot read {path}: {cause.strerror}", tip=tip) from cause
    if len(content) > _LARGEST_FILE:
        raise DataError(f"{path} has more than {format_size(_LARGEST_FILE)}: is it the right one?", tip=tip)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as cause:
        encoding = _OTHER_ENCODINGS.get(content[:2])
        line = content.count(b"\n", 0, cause.start) + 1
        problem = (
            f"it is {encoding}" if encoding else f"the byte 0x{content[cause.start]:02x} is in line {line}"
        )
        raise DataError(f"{path} is not UTF-8 text ({problem})", tip="save it as UTF-8") from None


def read_json_file(path: Path, *, complaint: str, tip: str | None = None) -> Any:
    """Read a document of a program; ``complaint`` says what it is not when it is broken: *is no plan*.

    Raises DataError with line and column for what is no JSON. NaN and infinity are none, nor is what lies
    deeper in brackets than Python goes.
    """
    try:
        return json.loads(path.read_bytes(), parse_constant=_refuse_constant)
    except OSError as cause:
        raise DataError(f"cannot read {path}: {cause.strerror}", tip=tip) from cause
    except json.JSONDecodeError as cause:
        problem = f"line {cause.lineno}, column {cause.colno}: {cause.msg[:1].lower()}{cause.msg[1:]}"
    except RecursionError:
        problem = "nested too deep"
    except ValueError as cause:  # also what is not UTF-8
        problem = str(cause)
    raise DataError(f"{path} {complaint}: it is not JSON ({problem})", tip=tip)


def _refuse_constant(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no number there")


def parse_record(text: str, model: type[RecordT], *, name: str) -> RecordT:
    """Read YAML text into ``model``; ``name`` stands for the file in messages (see ``load_record``)."""
    tree = read_yaml_tree(text, name=name)
    if tree.value is None and (needed := list_required_keys(model)):
        raise DataError(f"{name}:1:1: it is empty, and needs {', '.join(needed)}")
    faults, number = list(tree.faults), len(tree.faults)
    try:
        record = model.model_validate({} if tree.value is None else tree.value)
    except ValidationError as cause:
        value_faults = _list_marked_faults(cause, tree, model)
        faults, number = (
            faults + value_faults,
            number + len(value_faults) + max(0, cause.error_count() - MOST_ERRORS),
        )
    if not faults:
        return record
    faults.sort(key=lambda marked_fault: marked_fault[0])
    shown = [f"{name}:{line}:{column}: {message}" for (line, column), message in faults[:_MOST_SHOWN]]
    raise DataError("\n".join(shown + format_omitted(number - len(shown))))


def _list_marked_faults(
    error: ValidationError, tree: YamlTree, model: type[Record]
) -> list[tuple[Mark, str]]:
    faults = list_record_faults(error, model)
    reportable = [
        fault
        for fault in faults
        if not any(fault.place[:n] in tree.spoilt for n in range(len(fault.place) + 1))
    ]
    sentences = [": ".join(filter(None, (str(fault), fault.purpose))) for fault in reportable]
    return [(_find_mark(fault.place, tree), line) for fault, line in zip(reportable, sentences, strict=True)]


def _find_mark(place: KeyPath, tree: YamlTree) -> Mark:
    while place and place not in tree.marks:
        place = place[:-1]
    return tree.marks.get(place, (1, 1))
