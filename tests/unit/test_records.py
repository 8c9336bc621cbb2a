"""Files that people write: what is wrong with them is said in sentences of ours, with its place."""

from __future__ import annotations

import importlib
import pkgutil
import re
import time
from collections.abc import Iterator, Mapping
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Literal, get_args
from uuid import UUID

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field, TypeAdapter, ValidationError, field_validator, model_validator
from pydantic_core.core_schema import ErrorType

import rocm_wheels
from rocm_wheels.core import (
    FAULT_SENTENCES,
    DataError,
    Record,
    load_record,
    make_record_error,
    parse_record,
    read_json_file,
    read_text_file,
    read_yaml_tree,
    require_pattern,
    summarize_faults,
    yaml_reader,
)
from rocm_wheels.models import get_data_folder, get_recipes_folder, list_shared_projects, load_project
from rocm_wheels.release import Policy

LOADERS = [yaml.BaseLoader, *([yaml.CBaseLoader] if hasattr(yaml, "CBaseLoader") else [])]
PYDANTIC = re.compile(
    r"Input should|should (have|match|be)|not permitted|Field required|unable to parse|Value error|pydantic"
    r"|\[type=|\[key\]|constrained-|function-"
)


class Card(Record):
    """A card. ``gfx`` is its target; ``memory`` in GiB, ``bought`` when it was.

    More is not to be said.
    """

    gfx: Annotated[str, require_pattern("gfx[0-9]+", "a GPU target such as gfx942")]
    memory: int = Field(default=1, ge=1, lt=1000)
    bought: date | None = None
    share: float = Field(default=1, gt=0)
    use: Literal["desktop", "server", ""] = ""


class Part(Record):
    """A part: ``maker`` is who made it."""

    size: int
    maker: str


class Whole(Part):
    """What is made of parts, whose maker is not its own."""

    parts: Mapping[str, Part]
    one: Part
    on: date


class Machine(Record):
    """A machine."""

    name: str = Field(min_length=1, max_length=8)
    os: Literal["linux", "windows"]
    cards: tuple[Card, ...] = Field(default=(), max_length=3)
    labels: Mapping[Literal["room", "rack"], str] = {}
    tags: Mapping[str, tuple[str, ...]] = Field(default={}, min_length=2)
    shared: bool = False
    code: Annotated[str, Field(pattern="^a+$")] = "a"
    uuid: UUID | None = None
    of: str = Field(default="", alias="from")
    one: int | Literal[""] = ""
    parts: Mapping[str, Part | None] = {}
    whole: Whole | None = None

    @field_validator("of")
    @classmethod
    def _somewhere(cls, value: str) -> str:
        if value == "nowhere":
            raise ValueError("it must be somewhere")
        return value

    @model_validator(mode="after")
    def _fits(self) -> Machine:
        if self.os == "windows" and len(self.cards) > 1:
            raise ValueError("windows takes one card")
        for number, card in enumerate(self.cards):
            if card.use == "server" and not self.shared:
                raise make_record_error(
                    f"{card.gfx} serves, and the machine is not shared", "cards", number, "use"
                )
        return self


NAMED = "name: a\nos: linux\n"
ONE = "{size: 1, maker: me}"
WRONG = [
    ("", "1:1: it is empty, and needs name, os"),
    ("# nothing\n", "1:1: it is empty, and needs name, os"),
    ("[a]", "1:1: it must be keys with values (found a list)"),
    ("\nword", "2:1: it must be keys with values (found 'word')"),
    ("name: a", "1:1: os is missing: it must be linux or windows"),
    (f"{NAMED}parts: {{a: {{maker: me}}}}", "3:9: parts.a.size is missing: it must be a whole number"),
    (f"{NAMED}parts: {{a: {{size: 1}}}}", "3:9: parts.a.maker is missing: `maker` is who made it"),
    (
        f"{NAMED}whole: {{size: 1, maker: me, one: {ONE}, on: 2026-11-21}}",
        "3:1: whole.parts is missing: it must be keys with values",
    ),
    (
        f"{NAMED}whole: {{size: 1, maker: me, parts: {{}}, on: 2026-11-21}}",
        "3:1: whole.one is missing: it must be keys with values (size, maker)",
    ),
    (
        f"{NAMED}whole: {{size: 1, parts: {{}}, one: {ONE}, on: 2026-11-21}}",
        "3:1: whole.maker is missing: `maker` is who made it",
    ),
    (
        f"{NAMED}whole: {{size: 1, maker: me, parts: {{}}, one: {ONE}}}",
        "3:1: whole.on is missing: it must be a date, such as 2026-11-21",
    ),
    ("name:\nos: linux", "1:1: name: it must not be empty"),
    ("name: {a: b}\nos: linux", "1:1: name: it must be text (found keys with values)"),
    ("name: ninesigns\nos: linux", "1:1: name: it must have at most 8 letters (found 'ninesigns')"),
    (
        "name: a\nos: Linux",
        "2:1: os: it must be linux or windows (found 'Linux'); did you mean linux?",
    ),
    ("name: a\nos: plan9", "2:1: os: it must be linux or windows (found 'plan9')"),
    ("name: a\nos:", "2:1: os: it must be linux or windows (found nothing)"),
    (f"{NAMED}nmae: b", "3:1: nmae is not a known key; did you mean name?"),
    (
        f"{NAMED}x.y: b",
        "3:1: x.y is not a known key; there may be name, os, cards, labels, tags, shared, code, uuid, from,",
    ),
    (f"{NAMED}'a b': b", "3:1: 'a b' is not a known key; there may be name"),
    (f"{NAMED}of: b", "3:1: of is not a known key; there may be name"),
    (f"{NAMED}from: nowhere", "3:1: from: it must be somewhere (found 'nowhere')"),
    (f"{NAMED}cards: gfx942", "3:1: cards: it must be a list (found 'gfx942')"),
    (f"{NAMED}cards:", "3:1: cards: it must be a list (found nothing)"),
    (f"{NAMED}cards: {{gfx: a}}", "3:1: cards: it must be a list (found keys with values)"),
    (f"{NAMED}cards: [[]]", "3:9: cards.0: it must be keys with values (found a list)"),
    (f"{NAMED}cards: [a]", "3:9: cards.0: it must be keys with values (found 'a')"),
    (f"{NAMED}cards: [{{}}]", "3:9: cards.0.gfx is missing: `gfx` is its target"),
    (
        f"{NAMED}cards:\n- gfx: amd\n",
        "4:3: cards.0.gfx: it must be a GPU target such as gfx942 (found 'amd')",
    ),
    (f"{NAMED}cards: [{{gfx: gfx1, memory: much}}]", "memory: it must be a whole number (found 'much')"),
    (f"{NAMED}cards: [{{gfx: gfx1, memory: 1.5}}]", "memory: it must be a whole number (found '1.5')"),
    (f"{NAMED}cards: [{{gfx: gfx1, memory: 0}}]", "3:21: cards.0.memory: it must be 1 or more (found '0')"),
    (f"{NAMED}cards: [{{gfx: gfx1, memory: 1000}}]", "memory: it must be less than 1000 (found '1000')"),
    (
        f"{NAMED}cards: [{{gfx: gfx1, memory: {'9' * 5000}}}]",
        f"memory: it must be a whole number of fewer digits (found '{'9' * 79}…)",
    ),
    (f"{NAMED}cards: [{{gfx: gfx1, share: .nan}}]", "cards.0.share: it must be a number (found '.nan')"),
    (f"{NAMED}cards: [{{gfx: gfx1, share: NaN}}]", "cards.0.share: it must be a finite number (found 'NaN')"),
    (f"{NAMED}cards: [{{gfx: gfx1, share: -inf}}]", "share: it must be a finite number (found '-inf')"),
    (f"{NAMED}cards: [{{gfx: gfx1, share: 1e999}}]", "share: it must be a finite number (found '1e999')"),
    (f"{NAMED}cards: [{{gfx: gfx1, share: 0}}]", "cards.0.share: it must be more than 0 (found '0')"),
    (
        f"{NAMED}cards: [{{gfx: gfx1, bought: May}}]",
        "cards.0.bought: it must be a date, such as 2026-11-21 (found 'May')",
    ),
    (
        f"{NAMED}cards: [{{gfx: gfx1, bought: 2026-11-21T10:00:00}}]",
        "bought: it must be a date without a time, such as 2026-11-21 (found '2026-11-21T10:00:00')",
    ),
    (
        f"{NAMED}cards: [{{gfx: gfx1, use: servr}}]",
        "use: it must be desktop, server or '' (found 'servr'); did you mean server?",
    ),
    (f"{NAMED}cards: [&c {{gfx: gfx1}}, *c, *c, *c]", "3:1: cards: it must have at most 3 values"),
    (
        f"{NAMED}labels: {{rom: x}}",
        "labels.rom: the key must be room or rack (found 'rom'); did you mean room?",
    ),
    (f"{NAMED}tags: {{a: []}}", "3:1: tags: it must have 2 values or more"),
    (f"{NAMED}tags: {{a: b, c: []}}", "3:8: tags.a: it must be a list (found 'b')"),
    (f"{NAMED}shared: maybe", "3:1: shared: it must be true or false (found 'maybe')"),
    (f"{NAMED}code: b", "3:1: code: it must match ^a+$ (found 'b')"),
    (f"{NAMED}one: x", "3:1: one: it must be a whole number, or it must be '' (found 'x')"),
    (
        "name: a\nos: windows\ncards: [{gfx: gfx1}, {gfx: gfx2}]",
        "1:1: windows takes one card",
    ),
    (
        f"{NAMED}cards:\n- gfx: gfx1\n- gfx: gfx2\n  use: server\n",
        "6:3: cards.1.use: gfx2 serves, and the machine is not shared",
    ),
    (
        f"{NAMED}cards: [{{gfx: gfx1, use: [desktop]}}]",
        "use: it must be desktop, server or '' (found a list)",
    ),
    ("name: a\nname: b\nos: linux", "2:1: name is given twice, in line 1 too: leave one"),
    ("name: *other\nos: linux", "1:7: nothing above is called &other; put a text in quotes"),
    ("name: &one a\nos: *oen", "2:5: nothing above is called &oen; did you mean one?; put a text in quotes"),
    ("name: a\nos: linux\ntags: &t {a: [], b: [*t]}", "3:22: *t would hold itself"),
    ("name: a\nos: linux\ncards: [{{ x }}]", "3:10: a key must be plain text; a value that begins with {"),
    ("name: a\nos: linux\n<<: {shared: yes}", "3:1: << merges nothing here: write the keys out"),
    ("name: !x a\nos: linux", "1:7: ! begins a tag, which means nothing here: put the value in quotes"),
    ("name: !!python/name:os.system a\nos: linux", "1:7: ! begins a tag"),
    ("[" * 100_000, "1:101: not more than 100 lists and keys may lie in each other"),
    ("{a: " * 100_000, "1:401: not more than 100 lists and keys"),
    ("- " * 100_000, "1:201: not more than 100 lists and keys"),
]
BROKEN = [
    ("a:\n\tb: 1\n", "2:1: a tab is not for indentation: use spaces"),
    ("a:\n  b: 1\n\tc: 2\n", "3:1: a tab is not for indentation: use spaces"),
    ("a: @x", "1:4: a value cannot begin with @: put it in quotes"),
    ("a: `x`", "1:4: a value cannot begin with `: put it in quotes"),
    ("a: *.py", "1:4: a value cannot begin with *: put it in quotes"),
    (
        "a: b: c",
        "1:5: no key can be here (`: ` makes one): put a value that holds a colon in quotes, or indent",
    ),
    ("a: 1\n  b: 2", "2:4: no key can be here"),
    ("a: - b", "1:4: a list cannot begin here: each - begins a line"),
    ("a: 1\nb: [1, 2\nc: 3", "3:2: here must be , or ] (the list began in line 2)"),
    ("a: [\n", "2:1: here a value is missing, or what [ or { opened above is not closed"),
    ("a: {b: [1,\n", "2:1: here a value is missing, or what [ or { opened above is not closed"),
    ("a: [1, ,2]", "1:8: here a value is missing, or what [ or { opened above is not closed"),
    ("a: {x: 1\nb: 3", "2:2: here must be , or } (what { opens began in line 1)"),
    ('{"a": 1 "b": 2}', "1:12: here must be , or } (what { opens began in line 1)"),
    ('{"a": 1}}', "1:9: nothing can follow here: what began in the first line is complete"),
    ('a: 1\nb: "x\nc: 3', "2:4: the quotes that begin here are not closed"),
    ("a: 'x\n---\nb: 3", "1:4: the quotes that begin here are not closed"),
    ("a:\n  b: 1\n c: 2", "3:2: here must be a key below those that begin in line 1, column 1: indent it"),
    ("a: 1\n- b", "2:1: here must be a key below those that begin in line 1, column 1"),
    ("- b\na: 1", "2:1: here must be an item (- ) below those that begin in line 1, column 1"),
    ("a: 1\nb\nc: 2", "2:1: this is no `key: value`: the colon is missing, or the space after it, or the"),
    ("a:\n- x\n-y\n", "3:1: this is no `key: value`"),
    ('a: "\\d"', "there is no such escape in double quotes: write \\\\ for a backslash, or use single"),
    ('a: "\\xzz"', "1:7: there is no such escape in double quotes"),
    ("a: !foo!x y", "1:4: ! begins a tag, which means nothing here: put the value in quotes"),
    ("a: |z\n x", "1:5: after | or > the text begins on the next line"),
    ("a: 1\n---\nb: 2", "2:1: a second document begins here (---): there must be one"),
    ("a: 1\nb: \x00", "2:4: a text cannot hold the character U+0000: is this file a text?"),
    (
        "a: 1\n<<<<<<< HEAD\nb: 1\n=======\nb: 2\n>>>>>>> other\n",
        "2:1: a merge is not resolved here: put right",
    ),
    ("%YAML 3.0\n---\na: 1", "found incompatible YAML document"),  # their words, where there are none of ours
]


@pytest.fixture(params=LOADERS, ids=lambda loader: loader.__name__)
def loader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yaml_reader, "_BaseLoader", request.param)


@pytest.mark.usefixtures("loader")
@pytest.mark.parametrize(("text", "says"), WRONG, ids=[text[:40] for text, _ in WRONG])
def test_a_wrong_value_is_said_in_a_sentence(text: str, says: str) -> None:
    with pytest.raises(DataError) as wrong:
        parse_record(text, Machine, name="machine.yaml")
    said = wrong.value.message
    place, _, _ = says.partition(": ")
    assert said.startswith(f"machine.yaml:{place}: " if re.fullmatch(r"\d+:\d+", place) else "machine.yaml:")
    assert says in said and "\n" not in said and not PYDANTIC.search(said)


@pytest.mark.usefixtures("loader")
@pytest.mark.parametrize(("text", "says"), BROKEN, ids=[text[:40] for text, _ in BROKEN])
def test_what_is_no_yaml_says_what_to_do(text: str, says: str) -> None:
    with pytest.raises(DataError) as wrong:
        parse_record(text, Machine, name="f")
    place, _, sentence = says.partition(": ") if says[0].isdigit() else ("", "", says)
    assert re.match(rf"f:{place or '[0-9]+:[0-9]+'}: not valid YAML: ", wrong.value.message)
    assert sentence in wrong.value.message and "\n" not in wrong.value.message


@pytest.mark.usefixtures("loader")
def test_all_faults_are_told_in_the_order_of_the_file() -> None:
    text = "os: plan9\ncards:\n- {memory: 0}\n- {gfx: x, gfx: y}\nos: linux\nnmae: {{ a }}\nshared: 3\n"
    with pytest.raises(DataError) as wrong:
        parse_record(text, Machine, name="f")
    assert wrong.value.message.split("\n") == [
        "f:1:1: name is missing",
        "f:1:1: os: it must be linux or windows (found 'plan9')",
        "f:3:3: cards.0.gfx is missing: `gfx` is its target",
        "f:3:4: cards.0.memory: it must be 1 or more (found '0')",
        "f:4:4: cards.1.gfx: it must be a GPU target such as gfx942 (found 'x')",
        "f:4:12: gfx is given twice, in line 4 too: leave one",
        "f:5:1: os is given twice, in line 1 too: leave one",
        "f:6:8: a key must be plain text; a value that begins with { or [ needs quotes",
        "f:7:1: shared: it must be true or false (found '3')",
    ]


def test_of_very_many_faults_the_first_are_told_and_the_others_counted() -> None:
    with pytest.raises(DataError) as wrong:
        parse_record(f"{NAMED}one: x\ncards: [{'1, ' * 5_000}]", Machine, name="f")
    first, *others = wrong.value.message.split("\n")
    assert first == "f:3:1: one: it must be a whole number, or it must be '' (found 'x')"
    assert len(others) == 100 and others[-2].startswith("f:4:") and others[-1] == "and 4,901 more"
    with pytest.raises(DataError) as wrong:
        parse_record(NAMED + "a: 1\n" * 150, Machine, name="f")
    assert wrong.value.message.split("\n")[-2:] == [
        "f:102:1: a is given twice, in line 3 too: leave one",
        "and 50 more",
    ]


@pytest.mark.usefixtures("loader")
def test_values_stay_text_and_names_stand_for_values() -> None:
    text = "name: 3.10\nos: !!str linux\ntags: {a: &a [on, 1_0], b: *a, c: [~, null]}\none: '7'\n"
    machine = parse_record(text, Machine, name="f")
    assert machine.name == "3.10"
    assert machine.tags == {"a": ("on", "1_0"), "b": ("on", "1_0"), "c": ("~", "null")}
    assert machine.one == 7


@pytest.mark.usefixtures("loader")
def test_names_of_names_of_names_cost_nothing() -> None:
    levels = [f"k{n}: &k{n} [{', '.join([f'*k{n - 1}'] * 9) if n else 'x'}]" for n in range(40)]
    begun = time.monotonic()
    with pytest.raises(DataError, match="k0 is not a known key"):
        parse_record("\n".join([*levels, NAMED, "cards: *k39"]), Machine, name="f")
    assert time.monotonic() - begun < 5


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"name: \xff", r"is not UTF-8 text \(the byte 0xff is in line 1\)"),
        (b"a: 1\nname: caf\xe9", r"is not UTF-8 text \(the byte 0xe9 is in line 2\)"),
        ("name: a".encode("utf-16"), r"is not UTF-8 text \(it is UTF-16\)"),
        (None, r"cannot read"),
    ],
)
def test_files_that_are_no_text(tmp_path: Path, content: bytes | None, says: str) -> None:
    path = tmp_path / "f.yaml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(DataError, match=says) as wrong:
        load_record(path, Machine)
    assert str(path) in wrong.value.message and wrong.value.tip


def test_a_recipe_that_cannot_be_read_takes_no_options_away(tmp_path: Path) -> None:
    """Which options there are is read from bytes: what is wrong with a recipe is said when it is needed."""
    (tmp_path / "wrong.yaml").write_bytes(b"name: caf\xe9\nbuild:\n  installed_for_others: true\n")
    assert list_shared_projects(tmp_path) == ["wrong"]
    with pytest.raises(DataError, match=r"wrong\.yaml is not UTF-8 text"):
        load_project("wrong", tmp_path)
    (tmp_path / "folder.yaml").mkdir()
    with pytest.raises(DataError, match=r"cannot read .*folder\.yaml"):
        load_project("folder", tmp_path)
    with pytest.raises(DataError, match=r"there is no project foldr; did you mean folder\?"):
        load_project("foldr", tmp_path)


def test_a_huge_file_is_not_read_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "huge"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(DataError, match=r"has more than 4\.0 MiB"):
        read_text_file(path)
    with pytest.raises(DataError, match="cannot read"):
        read_text_file(tmp_path)


def test_a_byte_order_mark_and_other_line_ends_do_not_matter(tmp_path: Path) -> None:
    path = tmp_path / "f.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + NAMED.replace("\n", "\r\n").encode())
    assert load_record(path, Machine).os == "linux"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", r"f is no plan: it is not JSON \(line 1, column 1: expecting value\)"),
        (b'{"a": 1,\n}', r"f is no plan: it is not JSON \(line 2, column 1: "),
        (b'{"a": NaN}', r"f is no plan: it is not JSON \(NaN is no number there\)"),
        (b'{"a": -Infinity}', r"f is no plan: it is not JSON \(-Infinity is no number there\)"),
        (b"1" * 5000, "f is no plan: it is not JSON "),
        (b"\xff\xfe", "f is no plan: it is not JSON "),
        (b"[" * 200_000, r"f is no plan: it is not JSON \(nested too deep\)"),
        (None, "cannot read"),
    ],
    ids=["nothing", "torn", "NaN", "infinity", "long", "no text", "deep", "none"],
)
def test_a_document_that_is_no_json(tmp_path: Path, content: bytes | None, says: str) -> None:
    if content is not None:
        (tmp_path / "f").write_bytes(content)
    with pytest.raises(DataError, match=says) as wrong:
        read_json_file(tmp_path / "f", complaint="is no plan", tip="make one")
    assert wrong.value.tip == "make one" and "Recursion" not in str(wrong.value.__cause__)


def test_an_error_without_a_sentence_shows_that_it_is_not_ours() -> None:
    with pytest.raises(DataError, match=r"f:3:1: uuid: pydantic says: Input should be a valid UUID.*x"):
        parse_record(f"{NAMED}uuid: x", Machine, name="f")


def test_documents_of_programs_are_told_in_a_line() -> None:
    def said(content: str) -> str:
        with pytest.raises(ValidationError) as wrong:
            Machine.model_validate_json(content)
        return summarize_faults(wrong.value, Machine)

    assert said('{"name": 1, "os": null}') == (
        "name: it must be text (found 1); os: it must be linux or windows (found nothing)"
    )
    assert said("{") == "it must be JSON (EOF while parsing an object at line 1 column 1)"
    assert said('{"name": "a", "os": "linux", "cards": [{"gfx": "gfx1", "share": NaN}]}') == (
        "cards.0.share: it must be a finite number (found nan)"
    )
    many = ", ".join(f'"k{n}": 1' for n in range(9))
    assert said(f'{{"name": "a", "os": "linux", {many}}}').endswith("; and 4 more")
    with pytest.raises(ValidationError) as wrong:
        TypeAdapter(tuple[Card, ...]).validate_python([{"gx": 1}])
    assert summarize_faults(wrong.value, tuple[Card, ...]) == (
        "0.gfx is missing; 0.gx is not a known key; did you mean gfx?"
    )


# --- every record of the project -------------------------------------------------------------------------

# what pydantic can find wrong with a value of each kind of schema, and with each limit
KINDS: dict[str, set[str]] = {
    "any": set(),
    "bool": {"bool_type", "bool_parsing"},
    "date": {"date_type", "date_parsing", "date_from_datetime_parsing", "date_from_datetime_inexact"},
    "datetime": {
        "datetime_type",
        "datetime_parsing",
        "datetime_object_invalid",
        "datetime_from_date_parsing",
    },
    "dict": {"dict_type", "mapping_type", "iteration_error"},
    "float": {"float_type", "float_parsing", "finite_number"},
    "int": {"int_type", "int_parsing", "int_parsing_size", "int_from_float", "finite_number"},
    "literal": {"literal_error"},
    "model": {"model_type"},
    "model-fields": {"missing", "extra_forbidden", "invalid_key", "recursion_loop"},
    "none": {"none_required"},
    "str": {"string_type", "string_unicode"},
    "timedelta": {"time_delta_type", "time_delta_parsing"},
    "tuple": {"tuple_type", "iteration_error"},
    **{
        f"function-{when}": {"value_error", "assertion_error"}
        for when in ("before", "after", "plain", "wrap")
    },
    **{kind: set() for kind in ("default", "definitions", "definition-ref", "model-field", "no-info")},
    **{kind: set() for kind in ("nullable", "union")},
}
LIMITS = {
    "ge": {"greater_than_equal"},
    "gt": {"greater_than"},
    "le": {"less_than_equal"},
    "lt": {"less_than"},
    "multiple_of": {"multiple_of"},
    "pattern": {"string_pattern_mismatch"},
    "tz_constraint": {"timezone_aware"},
}
SAID_OTHERWISE = {"missing", "extra_forbidden"}  # with what there may be, and what it is for


def _schemas(schema: Any) -> Iterator[dict[str, Any]]:
    if isinstance(schema, dict):
        if isinstance(schema.get("type"), str):
            yield schema
        for key, value in schema.items():
            if key not in {"serialization", "metadata"}:
                yield from _schemas(value)
    elif isinstance(schema, (list, tuple)):
        for one in schema:
            yield from _schemas(one)


def _errors(schema: Mapping[str, Any]) -> set[str]:
    found = set(KINDS[schema["type"]])
    text = schema["type"] == "str"
    for key in schema:
        found |= LIMITS.get(key, set())
        if key in {"min_length", "max_length"}:
            short = "short" if key == "min_length" else "long"
            found.add(f"string_too_{short}" if text else f"too_{short}")
    return found


def _records() -> Iterator[type[BaseModel]]:
    for module in pkgutil.walk_packages(rocm_wheels.__path__, "rocm_wheels."):
        if ".templates" not in module.name and not module.name.endswith(("__main__", "recorder")):
            importlib.import_module(module.name)
    waiting: list[type[BaseModel]] = [BaseModel]
    while waiting:
        for one in waiting.pop().__subclasses__():
            waiting.append(one)
            if one.__module__.startswith("rocm_wheels."):
                yield one


def test_whatever_a_record_can_find_wrong_has_a_sentence() -> None:
    """A field of a new kind needs its line in ``KINDS`` here, and its sentences in ``records.faults``."""
    records = list(_records())
    assert len(records) > 150
    silent = {
        (record.__name__, error)
        for record in records
        for schema in _schemas(record.__pydantic_core_schema__)
        for error in _errors(schema) - {*FAULT_SENTENCES, *SAID_OTHERWISE}
    }
    assert silent == set()


def test_the_table_holds_nothing_that_pydantic_does_not_know() -> None:
    known = set(get_args(ErrorType))
    assert set(FAULT_SENTENCES) | SAID_OTHERWISE | set().union(*KINDS.values(), *LIMITS.values()) <= known


TABLES = {
    "ci": "models.ci:CiTable",
    "container_images": "models.torch_builds:ImageTable",
    "containers": "models.ci:ContainerTable",
    "doctor_variables": "hosts.doctor_machine:VariableHarms",
    "domain_libraries": "models.libraries:DomainTable",
    "dtypes": "models.dtypes:DtypeTable",
    "estimates": "models.estimates:_EstimateTable",
    "gfx_families": "models.gfx:_GfxTable",
    "isa_overrides": "models.gfx:OverrideTable",
    "known_issues": "models.torch_builds:IssueTable",
    "preload_libraries": "compile.sdk_tree:_PreloadTable",
    "release_layout": "release.layout:StoreLayout",
    "release_lines": "models.release_lines:LineTable",
    "release_policy": "release.policy:Policy",
    "rocm_artifacts": "models.libraries:ArtifactTable",
    "rocm_libraries": "models.libraries:LibraryTable",
    "rocm_releases": "models.package_indexes:RocmReleaseTable",
    "torch_builds": "models.package_indexes:TorchBuildTable",
    "torch_features": "models.torch_features:FeatureTable",
    "torch_tests": "models.torch_tests:TorchTestTable",
}
ODD: list[Any] = ["", "x y", "-1", [], [""], {}, {"odd": ""}, None]


def _model(place: str) -> type[Record]:
    module, _, name = place.partition(":")
    found = getattr(importlib.import_module(f"rocm_wheels.{module}"), name)
    assert issubclass(found, Record)
    return found


FILES = [(get_data_folder() / f"{name}.yaml", place) for name, place in TABLES.items()]
FILES += [(path, "models.project:Project") for path in sorted(get_recipes_folder().glob("*.yaml"))]


def _spoilt(value: Any, seen: set[tuple[object, ...]], place: tuple[object, ...] = ()) -> Iterator[Any]:
    """Yield a document with one value after another replaced: one of each key and kind."""
    kind = (place[-1:] if place and isinstance(place[-1], str) else place[-2:], type(value))
    if kind not in seen:
        seen.add(kind)
        yield from (odd for odd in ODD if odd is not None)
        if isinstance(value, dict):
            yield from ({k: v for k, v in value.items() if k != gone} for gone in value)
            yield {**value, "odd": ""}
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in inner:
        for other in _spoilt(one, seen, (*place, key)):
            yield (
                {**value, key: other} if isinstance(value, dict) else [*value[:key], other, *value[key + 1 :]]
            )


def test_the_tables_are_all_here() -> None:
    assert {path.stem for path in get_data_folder().glob("*.yaml")} == set(TABLES)


@pytest.mark.parametrize(("path", "place"), FILES, ids=[path.stem for path, _ in FILES])
def test_no_mistake_in_a_file_of_ours_is_told_in_pydantics_words(path: Path, place: str) -> None:
    model = _model(place)
    value = read_yaml_tree(path.read_text(encoding="utf-8"), name=path.name).value
    wrong = 0
    for spoilt in _spoilt(value, set()):
        try:
            model.model_validate(spoilt)
        except ValidationError as error:
            said = summarize_faults(error, model)
            wrong += 1
            assert not PYDANTIC.search(said), said
    assert wrong > 20


@given(st.data())
def test_a_policy_with_any_change_is_read_or_refused_with_its_place(data: st.DataObject) -> None:
    text = (get_data_folder() / "release_policy.yaml").read_text(encoding="utf-8")
    at = data.draw(st.integers(0, len(text)))
    gone = data.draw(st.integers(0, 40))
    signs = st.text(st.sampled_from("\t\n :-[]{}\"'#&*!|>%@`,?~x0\x00\x85\u2028é"), max_size=4)
    changed = text[:at] + data.draw(signs) + text[at + gone :]
    try:
        parse_record(changed, Policy, name="policy.yaml")
    except DataError as wrong:
        for line in wrong.message.split("\n"):
            assert re.match(r"policy\.yaml:\d+:\d+: \S", line)
            assert not PYDANTIC.search(line), line
