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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from typing import (
    Annotated,
    Any,
    NamedTuple,
    NoReturn,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from pydantic import AfterValidator, BaseModel, ConfigDict, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError

from rocm_wheels.core import errors, files, tables, yaml_reader

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
    annotated = (field.annotation, *field.metadata)
    return Annotated[annotated] if field.metadata else field.annotation


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


_MOST_LETTERS = 80  # letters of a value that is repeated in a message
SPELLING_ERROR, PLACED_ERROR = "spelled", "placed"  # of `require_pattern` and `make_record_error`
MOST_ERRORS, _IN_A_LINE = 10_000, 5  # errors that are looked at, sentences that are told of a document
_PLAIN_KEY = re.compile(r"[\w.+/@*$-]{1,80}")  # keys that are shown as they are
_CLASS_NAME = re.compile(r" or (an )?instance of \w+$")  # of ours: nobody writes one into a file
_QUOTED = re.compile(r"'((?:[^'\\]|\\.)*)'")


class RecordFault(NamedTuple):
    """Something wrong: the keys and numbers that lead to it, what is wrong there, and what was found.

    ``of_kind``: so it is for one of the kinds that a value may have.
    """

    place: FieldPath
    message: str
    found_text: str = ""
    of_kind: bool = False

    def __str__(self) -> str:
        """Return the sentence: ``lines.0.name: Input should be a valid string (found a list)``."""
        return ": ".join(filter(None, (format_key_path(self.place), f"{self.message}{self.found_text}")))


def list_record_faults(error: ValidationError, model: Any) -> list[RecordFault]:
    """Return what is wrong with values for a model, or a type: a sentence for each place, in its order.

    The first ``MOST_ERRORS`` are looked at.
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
    kind, context = details["type"], details.get("ctx", {})
    message = _CLASS_NAME.sub("", str(details["msg"]))
    if kind == "missing":
        return RecordFault(full_path, message)
    if kind == "extra_forbidden":
        return RecordFault(full_path, f"{message}{_suggest_key(model, full_path)}")
    if kind == PLACED_ERROR:
        return RecordFault((*full_path, *context["place"]), message)
    if kind in ("value_error", "assertion_error"):  # of a validator of ours
        message = str(context["error"])
    key_path = strip_pydantic_parts(model, full_path)
    of_key = full_path[-1:] == (KEY_MARK,)
    found_text = _describe_value(details, message) + _suggest_literal(details)
    message = f"in this key: {message}" if of_key and not _is_own_error(kind) else message
    return RecordFault(key_path, message, found_text, of_kind=key_path != full_path and not of_key)


def _describe_value(details: Mapping[str, Any], message: str) -> str:
    """Return what was found, where the sentence does not say it; whole records are not repeated."""
    value = details["input"]
    if isinstance(value, (Mapping, list, tuple)):
        kind = "a mapping" if isinstance(value, Mapping) else "a list"
        return f" (found {kind})" if details["type"].endswith(("_type", "literal_error")) else ""
    if details["type"] == "json_invalid":
        return ""
    repeated = re.search(rf"(?<!\w){re.escape(str(value))}(?!\w)", message)
    if repeated and value != "" and _is_own_error(details["type"]):
        return ""
    return f" (found {_shorten_value(value) if value not in ('', None) else 'nothing'})"


@lru_cache
def _is_own_error(kind: str) -> bool:
    """Tell whether a validator of ours has raised an error, in a sentence of its own."""
    from pydantic_core.core_schema import ErrorType

    own_kinds = ("value_error", "assertion_error")
    return kind in own_kinds or kind not in {*get_args(ErrorType), SPELLING_ERROR}


def _shorten_value(value: object) -> str:
    text = {True: "true", False: "false"}[value] if isinstance(value, bool) else repr(value)
    return text if len(text) <= _MOST_LETTERS else f"{text[:_MOST_LETTERS]}…"


def _suggest_literal(details: Mapping[str, Any]) -> str:
    if details["type"] != "literal_error" or not isinstance(details["input"], str):
        return ""
    return tables.suggest_name(details["input"], _QUOTED.findall(details["ctx"]["expected"]))


def _suggest_key(model: Any, place: FieldPath) -> str:
    keys: Sequence[str] = list_keys_at(model, place[:-1])
    if suggestion := tables.suggest_name(str(place[-1]), keys):
        return suggestion
    return f"; there may be {', '.join(keys)}" if keys else "; there may be none here"


_MOST_SHOWN = 100  # faults of a file
_LARGEST_FILE = 4 << 20  # bytes: the largest lock of all projects is far below one of them
_OTHER_ENCODINGS = {b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16"}


class Record(BaseModel):
    """Base of all records that are read from YAML: frozen, and strict about keys; numbers are finite."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, defer_build=True)


RecordT = TypeVar("RecordT", bound=Record)
ValueT = TypeVar("ValueT")


def require_pattern(pattern: str, words: str) -> AfterValidator:
    """Return what holds a text, whole, to a regular expression; people read *it must be* and ``words``."""
    compiled = re.compile(pattern)

    def check_value(value: str) -> str:
        if compiled.fullmatch(value) is None:
            raise PydanticCustomError(SPELLING_ERROR, "it must be {words}", {"words": words})
        return value

    return AfterValidator(check_value)


def make_record_error(message: str, *place: str | int) -> PydanticCustomError:
    """Return what a validator raises of something at a place inside its own value, by keys and numbers."""
    return PydanticCustomError(PLACED_ERROR, "{message}", {"message": message, "place": place})


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
        raise errors.DataError(f"cannot read {path}: {cause.strerror}", tip=missing_tip or tip) from cause
    except OSError as cause:
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


def read_cached(path: Path, kind: type[ValueT]) -> ValueT | None:
    """Return what a file of our own holds that can be made again, a dataclass as ``write_cached`` wrote it.

    ``None`` where it is not there, torn, or of another form: one of an earlier version.
    """
    try:
        value: ValueT = _make_adapter(kind).validate_python(json.loads(path.read_bytes()))
    except (FileNotFoundError, ValueError, RecursionError):
        return None
    return value


def write_cached(path: Path, value: object) -> None:
    """Write a dataclass, whole or not at all. Raises OSError."""
    files.write_json_file(path, _make_adapter(type(value)).dump_python(value, mode="json"))


_adapters: dict[Any, TypeAdapter[Any]] = {}


def _make_adapter(kind: Any) -> TypeAdapter[Any]:
    if kind not in _adapters:
        _adapters[kind] = TypeAdapter(kind)
    return _adapters[kind]


def _refuse_constant(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no number there")


def parse_record(text: str, model: type[RecordT], *, name: str) -> RecordT:
    """Read YAML text into ``model``; ``name`` stands for the file in messages (see ``load_record``)."""
    tree = yaml_reader.read_yaml_tree(text, name=name)
    if tree.value is None and (needed := list_required_keys(model)):
        raise errors.DataError(f"{name}:1:1: it is empty, and needs {', '.join(needed)}")
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
    lines = [f"{name}:{line}:{column}: {message}" for (line, column), message in faults[:_MOST_SHOWN]]
    raise errors.DataError("\n".join(lines + format_omitted(number - len(lines))))


def _list_marked_faults(
    error: ValidationError, tree: yaml_reader.YamlTree, model: type[Record]
) -> list[tuple[yaml_reader.Mark, str]]:
    faults = list_record_faults(error, model)
    reportable = [
        fault
        for fault in faults
        if not any(fault.place[:n] in tree.spoilt for n in range(len(fault.place) + 1))
    ]
    return [(_find_mark(fault.place, tree), str(fault)) for fault in reportable]


def _find_mark(place: yaml_reader.KeyPath, tree: yaml_reader.YamlTree) -> yaml_reader.Mark:
    while place and place not in tree.marks:
        place = place[:-1]
    return tree.marks.get(place, (1, 1))
