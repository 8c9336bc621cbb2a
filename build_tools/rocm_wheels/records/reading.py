"""Reading a file of people into a record: all its mistakes are told, in the order of the file.

Those of YAML are found by ``tree``, those of values by pydantic, and said by ``faults``.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError
from pydantic_core import PydanticCustomError

from rocm_wheels.errors import DataError
from rocm_wheels.records.faults import MOST, PLACED, SPELLED, and_more, faults_of
from rocm_wheels.records.shapes import required
from rocm_wheels.records.tree import Mark, Place, Tree, read_tree

_TOLD = 100  # faults of a file
_LARGEST = 4 << 20  # bytes: the largest lock of all projects is far below one of them
_OTHER_ENCODINGS = {b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16"}


class Record(BaseModel):
    """Base of all records that are read from YAML: frozen, and strict about keys; numbers are finite."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


R = TypeVar("R", bound=Record)


def spelled(pattern: str, words: str) -> AfterValidator:
    """Return what holds a text, whole, to a regular expression; people read *it must be* and ``words``."""
    wanted = re.compile(pattern)

    def check(value: str) -> str:
        if wanted.fullmatch(value) is None:
            raise PydanticCustomError(SPELLED, "it must be {words}", {"words": words})
        return value

    check.words = words  # type: ignore[attr-defined]  # for those who left it out
    return AfterValidator(check)


def fault(said: str, *place: str | int) -> PydanticCustomError:
    """Return what a validator raises of something at a place inside its own value, by keys and numbers."""
    return PydanticCustomError(PLACED, "{said}", {"said": said, "place": place})


def load(path: Path, model: type[R]) -> R:
    """Read a YAML file into ``model``.

    Raises DataError with ``file:line:column`` for a missing or unreadable file, broken
    YAML, duplicate or unknown keys and wrong values.
    """
    return parse(read_text(path), model, name=str(path))


def read_text(path: Path, *, tip: str = "name another file") -> str:
    """Read a file that people write. Raises DataError for one that is no UTF-8 text, or far too large."""
    try:
        with path.open("rb") as file:
            content = file.read(_LARGEST + 1)
    except OSError as cause:
        raise DataError(f"cannot read {path}", tip=tip) from cause
    if len(content) > _LARGEST:
        raise DataError(f"{path} has more than {_LARGEST >> 20} MiB: is it the right one?", tip=tip)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as cause:
        other = _OTHER_ENCODINGS.get(content[:2])
        line = content.count(b"\n", 0, cause.start) + 1
        what = f"it is {other}" if other else f"the byte 0x{content[cause.start]:02x} is in line {line}"
        raise DataError(f"{path} is not UTF-8 text ({what})", tip="save it as UTF-8") from None


def read_json(path: Path, *, none: str, tip: str | None = None) -> Any:
    """Read a document of a program; ``none`` says what it is not when it is broken: *is no plan*.

    Raises DataError with line and column for what is no JSON. NaN and infinity are none, nor is what lies
    deeper in brackets than Python goes.
    """
    try:
        return json.loads(path.read_bytes(), parse_constant=_no_number)
    except OSError as cause:
        raise DataError(f"cannot read {path}", tip=tip) from cause
    except json.JSONDecodeError as cause:
        said = f"line {cause.lineno}, column {cause.colno}: {cause.msg[:1].lower()}{cause.msg[1:]}"
    except RecursionError:
        said = "nested too deep"
    except ValueError as cause:  # also what is not UTF-8
        said = str(cause)
    raise DataError(f"{path} {none}: it is not JSON ({said})", tip=tip)


def _no_number(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no number there")


def parse(text: str, model: type[R], *, name: str) -> R:
    """Read YAML text into ``model``; ``name`` stands for the file in messages (see ``load``)."""
    tree = read_tree(text, name=name)
    if tree.value is None and (needed := required(model)):
        raise DataError(f"{name}:1:1: it is empty, and needs {', '.join(needed)}")
    wrong, number = list(tree.faults), len(tree.faults)
    try:
        record = model.model_validate({} if tree.value is None else tree.value)
    except ValidationError as cause:
        own = _faults(cause, tree, model)
        wrong, number = wrong + own, number + len(own) + max(0, cause.error_count() - MOST)
    if not wrong:
        return record
    wrong.sort(key=lambda one: one[0])
    told = [f"{name}:{line}:{column}: {said}" for (line, column), said in wrong[:_TOLD]]
    raise DataError("\n".join(told + and_more(number - len(told))))


def _faults(error: ValidationError, tree: Tree, model: type[Record]) -> list[tuple[Mark, str]]:
    found = faults_of(error, model)
    whole = [one for one in found if not any(one.place[:n] in tree.spoilt for n in range(len(one.place) + 1))]
    said = [": ".join(filter(None, (str(one), one.purpose))) for one in whole]
    return [(_mark_of(one.place, tree), line) for one, line in zip(whole, said, strict=True)]


def _mark_of(place: Place, tree: Tree) -> Mark:
    while place and place not in tree.marks:
        place = place[:-1]
    return tree.marks.get(place, (1, 1))
