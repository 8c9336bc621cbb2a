"""Read YAML files of people into typed records: every scalar is text until a model says what it is.

A mistake is reported with file, line and column, and with the name that was probably meant; all of them
are told, in the order of the file. ``3.10`` stays ``3.10``; a key given twice or not known is an error.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError
from pydantic_core import PydanticCustomError

from rocm_wheels.core.errors import DataError
from rocm_wheels.core.record_faults import (
    MOST_ERRORS,
    PLACED_ERROR,
    SPELLING_ERROR,
    format_omitted,
    list_record_faults,
    list_required_keys,
)
from rocm_wheels.core.wording import format_size
from rocm_wheels.core.yaml_reader import KeyPath, Mark, YamlTree, read_yaml_tree

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
