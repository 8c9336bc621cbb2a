"""Results as JSON: one encoder for whatever a command found."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import pytest
from packaging.version import Version

from rocm_wheels.cli import output
from rocm_wheels.core import records


class Size(NamedTuple):
    content: int
    archive: int


class Row(records.Record):
    name: str
    versions: tuple[str, ...] = ()


@dataclass(frozen=True)
class Result:
    wheel: Path
    size: Size
    rows: Mapping[str, Row]
    targets: frozenset[str]
    version: Version
    note: str | None = None
    content: bytes = field(default=b"", repr=False)


def test_a_result_is_its_fields_but_for_those_that_it_does_not_show() -> None:
    result = Result(
        wheel=Path("a.whl"),
        size=Size(2, 1),
        rows={"x": Row(name="x", versions=("1", "2"))},
        targets=frozenset(("gfx942", "gfx1100")),
        version=Version("2.9.0+rocm7.1"),
        content=b"not shown",
    )
    assert output.to_plain([result]) == [
        {
            "wheel": "a.whl",
            "size": {"content": 2, "archive": 1},
            "rows": {"x": {"name": "x", "versions": ["1", "2"]}},
            "targets": ["gfx1100", "gfx942"],
            "version": "2.9.0+rocm7.1",
            "note": None,
        }
    ]


def test_a_document_or_lines_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_result({PurePosixPath("a"): (1, 2.5, True)}, ["for people"], as_json=True)
    assert json.loads(capsys.readouterr().out) == {"a": [1, 2.5, True]}
    output.print_result({}, ["for people", Path("a.whl")], as_json=False)
    assert capsys.readouterr().out == "for people\na.whl\n"


def test_facts_for_people_are_as_json_has_them_but_for_texts() -> None:
    facts = {"signed": True, "count": 3, "note": None, "names": ["a b", None, False, {"x": 1}]}
    assert [line.removeprefix("names").strip() for line in output.format_facts(facts)] == [
        "signed  true",
        "count   3",
        "a b",
        "null",
        "false",
        '{"x": 1}',
    ]


def test_credentials_are_hidden_in_each_text_by_itself(capsys: pytest.CaptureFixture[str]) -> None:
    plain = "see https://x.org\nme@y.org"
    tidy = 'https://me:secret"word@y.org/x'
    output.print_result({"https://a:b@x.org": [plain, {"url": tidy}, 1]}, [], as_json=True)
    assert json.loads(capsys.readouterr().out) == {
        "https://***@x.org": [plain, {"url": "https://***@y.org/x"}, 1]
    }
    output.print_result({}, ["https://a:b@x.org"], as_json=False)
    assert capsys.readouterr().out == "https://***@x.org\n"
