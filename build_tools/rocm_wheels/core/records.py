"""``Record``: frozen pydantic models, read from YAML and JSON; their faults with file:line:col.

A mistake is reported with file, line and column, and with the name that was probably meant; all of them
are told, in the order of the file. ``3.10`` stays ``3.10``; a key given twice or not known is an error.

A sentence names the path of the key, says what is wrong in pydantic's words or a validator's, what was
found, and the word that was probably meant.
"""

from __future__ import annotations

import json
import re
import types
from collections.abc import Mapping
from dataclasses import is_dataclass
from datetime import datetime, timedelta, timezone
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any, NamedTuple, NoReturn, TypeVar, Union, get_args, get_origin, get_type_hints

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    PlainSerializer,
    ValidationError,
)
from pydantic_core import PydanticCustomError
from pydantic_core.core_schema import ErrorType

from rocm_wheels.core import errors, tables, yaml_reader

FieldPath = tuple[str | int, ...]
_KEY_MARK = "[key]"  # what pydantic calls the key of an entry, at the end of a place
_MOST_LETTERS = 80  # letters of a value that is repeated in a message
_SPELLING_ERROR, _PLACED_ERROR = "spelled", "placed"  # of `require_pattern` and `make_record_error`
_RAISED_ERRORS = {"value_error", "assertion_error"}  # by validators: the sentence is theirs
_FOREIGN_ERRORS = {*get_args(ErrorType), _SPELLING_ERROR} - _RAISED_ERRORS  # do not say what was found
_MOST_ERRORS, _IN_A_LINE = 10_000, 5  # errors that are looked at, sentences that are told of a document
_PLAIN_KEY = re.compile(r"[\w.+/@*$-]{1,80}")  # keys that are shown as they are
_CLASS_NAME = re.compile(r" or (an )?instance of \w+$")  # of ours: nobody writes one into a file
_QUOTED = re.compile(r"'((?:[^'\\]|\\.)*)'")


def _list_types_at(annotation: Any, place: FieldPath) -> list[Any]:
    """Return the types that a value may have at a place below one of this type; none for no such place."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _list_types_at(arguments[0], place)
    if origin in (Union, types.UnionType):
        return [kind for alternative in arguments for kind in _list_types_at(alternative, place)]
    if not place:
        return [annotation]
    part, rest = place[0], place[1:]
    if fields := _get_fields(annotation):
        if part not in fields and getattr(annotation, "model_config", {}).get("extra") == "allow":
            extra = get_type_hints(annotation).get("__pydantic_extra__", Any)
            return _list_types_at(get_args(extra)[1] if get_args(extra) else extra, rest)
        return _list_types_at(fields[str(part)], rest) if part in fields else []
    if not isinstance(origin, type) or not arguments:
        return []
    if issubclass(origin, Mapping):
        return _list_types_at(arguments[1], rest)
    if not isinstance(part, int):
        return []  # the name of a kind, which pydantic adds
    is_fixed = issubclass(origin, tuple) and Ellipsis not in arguments
    return _list_types_at(arguments[part if is_fixed else 0], rest)


def _get_fields(kind: Any) -> dict[str, Any]:
    """Return the keys that a record has in files, with their types; none for other types."""
    if not isinstance(kind, type) or get_origin(kind) is not None:
        return {}
    if issubclass(kind, BaseModel):
        return {field.alias or name: field.annotation for name, field in kind.model_fields.items()}
    return get_type_hints(kind) if is_dataclass(kind) else {}


class _Fault(NamedTuple):
    """Something wrong: the keys and numbers that lead to it, what is wrong there, and what was found.

    ``of_kind``: so it is for one of the kinds that a value may have.
    """

    place: FieldPath
    message: str
    found_text: str = ""
    of_kind: bool = False

    def __str__(self) -> str:
        """Return the sentence: ``lines.0.name: Input should be a valid string (found a list)``."""
        keys = (key if _PLAIN_KEY.fullmatch(key) else _shorten_value(key) for key in map(str, self.place))
        return ": ".join(filter(None, (".".join(keys), f"{self.message}{self.found_text}")))


def _list_faults(error: ValidationError, model: Any) -> list[_Fault]:
    """Return what is wrong with values for a model, or a type: a sentence for each place, in its order.

    What is wrong for each of the kinds that a value may have is one sentence: it is of none.
    """
    faults = [_make_fault(item, model) for item in error.errors(include_url=False)[:_MOST_ERRORS]]
    joined: list[_Fault] = []
    for (_, of_kind), group in groupby(faults, key=lambda fault: (fault.place, fault.of_kind)):
        alternatives = list(group)
        if of_kind:
            message = ", or ".join(dict.fromkeys(fault.message for fault in alternatives))
            alternatives = [alternatives[0]._replace(message=message)]
        joined += alternatives
    return joined


def summarize_faults(error: ValidationError, model: Any) -> str:
    """Return the same in a line, for documents in which no person would look for line and column."""
    sentences = [str(fault) for fault in _list_faults(error, model)]
    left_out = len(sentences) - _IN_A_LINE + max(0, error.error_count() - _MOST_ERRORS)
    return "; ".join(sentences[:_IN_A_LINE] + _format_omitted(left_out))


def _format_omitted(number: int) -> list[str]:
    """Return what ends a list of faults that leaves so many out; nothing where it leaves none out."""
    return [f"and {number:,} more"] if number > 0 else []


def _make_fault(details: Mapping[str, Any], model: Any) -> _Fault:
    place: FieldPath = tuple(details["loc"])
    kind, context = details["type"], details.get("ctx", {})
    message = _CLASS_NAME.sub("", str(details["msg"]))
    if kind == "missing":
        return _Fault(place, message)
    if kind == "extra_forbidden":
        keys = [key for record in _list_types_at(model, place[:-1]) for key in _get_fields(record)]
        others = f"; there may be {', '.join(keys)}" if keys else "; there may be none here"
        return _Fault(place, message + (tables.suggest_name(str(place[-1]), keys) or others))
    if kind == _PLACED_ERROR:
        return _Fault((*place, *context["place"]), message)
    if kind in _RAISED_ERRORS:
        message = str(context["error"])
    of_key = place[-1:] == (_KEY_MARK,)
    value_place = place[:-1] if of_key else place  # without the names of kinds, which pydantic adds
    while value_place and not _list_types_at(model, value_place):
        value_place = value_place[:-1]
    found_text = _describe_value(details, message)
    if of_key and kind in _FOREIGN_ERRORS:
        message = f"in this key: {message}"
    return _Fault(value_place, message, found_text, of_kind=value_place != place and not of_key)


def _describe_value(details: Mapping[str, Any], message: str) -> str:
    """Return what was found, where the sentence does not say it; whole records are not repeated."""
    value, kind = details["input"], details["type"]
    if isinstance(value, (Mapping, list, tuple)):
        noun = "a mapping" if isinstance(value, Mapping) else "a list"
        return f" (found {noun})" if kind.endswith(("_type", "literal_error")) else ""
    if kind == "json_invalid":
        return ""
    repeated = re.search(rf"(?<!\w){re.escape(str(value))}(?!\w)", message)
    if repeated and value != "" and kind not in _FOREIGN_ERRORS:
        return ""
    text = f" (found {_shorten_value(value) if value not in ('', None) else 'nothing'})"
    if kind == "literal_error" and isinstance(value, str):
        text += tables.suggest_name(value, _QUOTED.findall(details["ctx"]["expected"]))
    return text


def _shorten_value(value: object) -> str:
    text = str(value).lower() if isinstance(value, bool) else repr(value)
    return text if len(text) <= _MOST_LETTERS else f"{text[:_MOST_LETTERS]}…"


_MOST_SHOWN = 100  # faults of a file
_LARGEST_FILE = 4 << 20  # bytes: the largest lock of all projects is far below one of them
_OTHER_ENCODINGS = {b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16"}


class Record(BaseModel):
    """Base of all records that are read from YAML: frozen, and strict about keys; numbers are finite."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, defer_build=True)


RecordT = TypeVar("RecordT", bound=Record)


def require_pattern(pattern: str, words: str) -> AfterValidator:
    """Return what holds a text, whole, to a regular expression; people read *it must be* and ``words``."""
    compiled = re.compile(pattern)

    def check_value(value: str) -> str:
        if compiled.fullmatch(value) is None:
            raise PydanticCustomError(_SPELLING_ERROR, "it must be {words}", {"words": words})
        return value

    return AfterValidator(check_value)


_AGE_UNITS = {"h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1)}


def _parse_age(value: object) -> object:
    if isinstance(value, timedelta):
        return value
    match = re.fullmatch(r"([1-9][0-9]{0,3})([hdw])", str(value).strip())
    if match is None:
        words = "a number of hours, days or weeks: 36h, 14d, 2w"
        raise PydanticCustomError(_SPELLING_ERROR, "it must be {words}", {"words": words})
    return int(match[1]) * _AGE_UNITS[match[2]]


_MOMENT_FORM = "%Y-%m-%dT%H:%M:%SZ"


def format_moment(moment: datetime) -> str:
    """Return a moment as documents have it, in UTC: ``2026-11-21T12:00:00Z``."""
    return moment.astimezone(timezone.utc).strftime(_MOMENT_FORM)


def parse_moment(text: str) -> datetime:
    """Return the moment that a document says. Raises ValueError for any other form."""
    moment = datetime.strptime(text, _MOMENT_FORM).replace(tzinfo=timezone.utc)
    if format_moment(moment) != text:
        raise ValueError("it must be a time such as 2026-11-21T12:00:00Z")
    return moment


def _check_moment(text: str) -> str:
    parse_moment(text)
    return text


MomentText = Annotated[str, AfterValidator(_check_moment)]


def format_age(age: timedelta) -> str:
    """Return an age as files have it: ``36h``, ``14d``."""
    hours = int(age.total_seconds() // 3600)
    return f"{hours // 24}d" if hours % 24 == 0 else f"{hours}h"


Age = Annotated[
    timedelta, BeforeValidator(_parse_age), PlainSerializer(format_age, return_type=str, when_used="json")
]


def make_record_error(message: str, *place: str | int) -> PydanticCustomError:
    """Return what a validator raises of something at a place inside its own value, by keys and numbers."""
    return PydanticCustomError(_PLACED_ERROR, "{message}", {"message": message, "place": place})


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
    except OSError as cause:
        tip = missing_tip or tip if isinstance(cause, FileNotFoundError) else tip
        raise errors.DataError(f"cannot read {path}: {cause.strerror}", tip=tip) from cause
    if len(content) > _LARGEST_FILE:
        raise errors.DataError(
            f"{path} has more than {tables.format_size(_LARGEST_FILE)}: is it the right one?", tip=tip
        )
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as cause:
        encoding = _OTHER_ENCODINGS.get(content[:2])
        line = content.count(b"\n", 0, cause.start) + 1
        problem = (
            f"it is {encoding}" if encoding else f"the byte 0x{content[cause.start]:02x} is in line {line}"
        )
        raise errors.DataError(f"{path} is not UTF-8 text ({problem})", tip="save it as UTF-8") from None


def read_json_file(path: Path, *, complaint: str, tip: str | None = None) -> Any:
    """Read a document of a program; ``complaint`` says what it is not when it is broken: *is no plan*.

    Raises DataError with line and column for what is no JSON. NaN and infinity are none, nor is what lies
    deeper in brackets than Python goes.
    """
    try:
        return json.loads(path.read_bytes(), parse_constant=_refuse_constant)
    except OSError as cause:
        raise errors.DataError(f"cannot read {path}: {cause.strerror}", tip=tip) from cause
    except json.JSONDecodeError as cause:
        problem = f"line {cause.lineno}, column {cause.colno}: {cause.msg[:1].lower()}{cause.msg[1:]}"
    except RecursionError:
        problem = "nested too deep"
    except ValueError as cause:  # also what is not UTF-8
        problem = str(cause)
    raise errors.DataError(f"{path} {complaint}: it is not JSON ({problem})", tip=tip)


def _refuse_constant(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no number there")


def parse_record(text: str, model: type[RecordT], *, name: str) -> RecordT:
    """Read YAML text into ``model``; ``name`` stands for the file in messages (see ``load_record``)."""
    tree = yaml_reader.read_yaml_tree(text, name=name)
    if tree.value is None:
        needed = [field.alias or key for key, field in model.model_fields.items() if field.is_required()]
        if needed:
            raise errors.DataError(f"{name}:1:1: it is empty, and needs {', '.join(needed)}")
    faults, unread = list(tree.faults), 0
    try:
        record = model.model_validate({} if tree.value is None else tree.value)
    except ValidationError as cause:
        unread = max(0, cause.error_count() - _MOST_ERRORS)
        for fault in _list_faults(cause, model):
            if not any(fault.place[:length] in tree.spoilt for length in range(len(fault.place) + 1)):
                faults.append((_find_mark(fault.place, tree), str(fault)))
    if not faults:
        return record
    faults.sort(key=lambda marked_fault: marked_fault[0])
    lines = [f"{name}:{line}:{column}: {message}" for (line, column), message in faults[:_MOST_SHOWN]]
    raise errors.DataError("\n".join(lines + _format_omitted(len(faults) + unread - len(lines))))


def _find_mark(place: yaml_reader.KeyPath, tree: yaml_reader.YamlTree) -> yaml_reader.Mark:
    while place and place not in tree.marks:
        place = place[:-1]
    return tree.marks.get(place, (1, 1))
