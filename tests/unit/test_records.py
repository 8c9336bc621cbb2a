"""Files that people write: what is wrong with them is told with its place."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Annotated, Literal

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import Field, TypeAdapter, ValidationError, field_validator, model_validator

from rocm_wheels.core import errors, records, toml_reader, yaml_reader
from rocm_wheels.models import ci, project, project_names
from rocm_wheels.release import policy

LOADERS = [yaml.BaseLoader, *([yaml.CBaseLoader] if hasattr(yaml, "CBaseLoader") else [])]


class Card(records.Record):
    """A card. ``gfx`` is its target; ``memory`` in GiB, ``bought`` when it was.

    More is not to be said.
    """

    gfx: Annotated[str, records.require_pattern("gfx[0-9]+", "a GPU target such as gfx942")]
    memory: int = Field(default=1, ge=1, lt=1000)
    bought: date | None = None
    share: float = Field(default=1, gt=0)
    use: Literal["desktop", "server", ""] = ""


class Part(records.Record):
    """A part: ``maker`` is who made it."""

    size: int
    maker: str


class Whole(Part):
    """What is made of parts, whose maker is not its own."""

    parts: Mapping[str, Part]
    one: Part
    on: date


class Machine(records.Record):
    """A machine."""

    name: str = Field(min_length=1, max_length=8)
    os: Literal["linux", "windows"]
    cards: tuple[Card, ...] = Field(default=(), max_length=3)
    labels: Mapping[Literal["room", "rack"], str] = {}
    tags: Mapping[str, tuple[str, ...]] = Field(default={}, min_length=2)
    shared: bool = False
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
                raise records.make_record_error(
                    f"{card.gfx} serves, and the machine is not shared", "cards", number, "use"
                )
        return self


NAMED = "name: a\nos: linux\n"
ONE = "{size: 1, maker: me}"
WRONG = [
    ("# nothing\n", "1:1: it is empty, and needs name, os"),
    ("[a]", "1:1: … (found a list)"),
    ("\nword", "2:1: … (found 'word')"),
    ("name: a", "1:1: os: Field required"),
    (f"{NAMED}parts: {{a: {{maker: me}}}}", "3:9: parts.a.size: Field required"),
    (f"{NAMED}whole: {{size: 1, maker: me, one: {ONE}, on: 2026-11-21}}", "3:1: whole.parts: Field required"),
    ("name: {a: b}\nos: linux", "1:1: name: … (found a mapping)"),
    ("name: a\nos: Linux", "2:1: os: … (found 'Linux'); did you mean linux?"),
    ("name: a\nos:", "2:1: os: … (found nothing)"),
    (f"{NAMED}nmae: b", "3:1: nmae: Extra inputs are not permitted; did you mean name?"),
    (f"{NAMED}'a b': b", "3:1: 'a b': Extra inputs are not permitted; there may be name, os, cards, labels"),
    (f"{NAMED}from: nowhere", "3:1: from: it must be somewhere (found 'nowhere')"),
    (f"{NAMED}cards: [{{}}]", "3:9: cards.0.gfx: Field required"),
    (f"{NAMED}cards:\n- gfx: amd\n", "4:3: cards.0.gfx: it must be a GPU target such as gfx942 (found"),
    (f"{NAMED}cards: [{{gfx: gfx1, memory: {'9' * 5000}}}]", f"memory: … (found '{'9' * 79}…)"),
    (f"{NAMED}cards: [{{gfx: gfx1, share: .nan}}]", "cards.0.share: … (found '.nan')"),
    (f"{NAMED}cards: [&c {{gfx: gfx1}}, *c, *c, *c]", "3:1: cards: …"),
    (f"{NAMED}labels: {{rom: x}}", "labels.rom: … (found 'rom'); did you mean room?"),
    (f"{NAMED}tags: {{a: b, c: []}}", "3:8: tags.a: … (found 'b')"),
    (f"{NAMED}one: x", "3:1: one: … (found 'x')"),
    ("name: a\nos: windows\ncards: [{gfx: gfx1}, {gfx: gfx2}]", "1:1: windows takes one card"),
    (
        f"{NAMED}cards:\n- gfx: gfx1\n- gfx: gfx2\n  use: server\n",
        "6:3: cards.1.use: gfx2 serves, and the machine is not shared",
    ),
    ("name: a\nname: b\nos: linux", "2:1: name is given twice, in line 1 too: leave one"),
    ("name: &one a\nos: *oen", "2:5: nothing above is called &oen; did you mean one?; put a text in quotes"),
    ("name: a\nos: linux\ntags: &t {a: [], b: [*t]}", "3:22: *t would hold itself"),
    ("name: a\nos: linux\ncards: [{{ x }}]", "3:10: a key must be plain text; a value that begins with {"),
    ("name: a\nos: linux\n<<: {shared: yes}", "3:1: << merges nothing here: write the keys out"),
    ("name: !x a\nos: linux", "1:7: ! begins a tag, which means nothing here: put the value in quotes"),
    ("[" * 100_000, "1:101: not more than 100 lists and keys may lie in each other"),
    ("{a: " * 100_000, "1:401: not more than 100 lists and keys"),
]
BROKEN = [  # with the line, and the column where both loaders say the same
    ("a:\n\tb: 1\n", "2:1"),
    ("a: @x", "1:4"),
    ("a: b: c", "1:5"),
    ("a: 1\nb: [1, 2\nc: 3", "3:2"),
    ("a: [\n", "2:1"),
    ('{"a": 1}}', "1:9"),
    ('a: 1\nb: "x\nc: 3', "3:5"),
    ("a:\n  b: 1\n c: 2", "3:2"),
    ('a: "\\d"', "1:"),
    ("a: 1\n---\nb: 2", "2:1"),
    ("a: 1\nb: \x00", "2:4"),
    ("%YAML 3.0\n---\na: 1", "1:1"),
]


@pytest.fixture(params=LOADERS, ids=lambda loader: loader.__name__)
def loader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yaml_reader, "_BaseLoader", request.param)


@pytest.mark.usefixtures("loader")
@pytest.mark.parametrize(("text", "says"), WRONG, ids=[text[:40] for text, _ in WRONG])
def test_a_wrong_value_is_told_with_its_place(text: str, says: str) -> None:
    """``…`` stands for what pydantic says."""
    with pytest.raises(errors.DataError) as wrong:
        records.parse_record(text, Machine, name="machine.yaml")
    pattern = re.escape(says).replace("…", "[^(]+")
    place = r"machine\.yaml:" if says[0].isdigit() else r"machine\.yaml:\d+:\d+: (.*\.)?"
    assert re.match(f"{place}{pattern}", wrong.value.message)
    assert "\n" not in wrong.value.message


@pytest.mark.usefixtures("loader")
@pytest.mark.parametrize(("text", "place"), BROKEN, ids=[text[:40] for text, _ in BROKEN])
def test_what_is_no_yaml_is_told_with_its_place(text: str, place: str) -> None:
    with pytest.raises(errors.DataError) as wrong:
        records.parse_record(text, Machine, name="f")
    assert re.match(rf"f:{place}[0-9]*: not valid YAML: \w", wrong.value.message)
    assert "\n" not in wrong.value.message


@pytest.mark.usefixtures("loader")
def test_all_faults_are_told_in_the_order_of_the_file() -> None:
    text = "os: plan9\ncards:\n- {memory: 0}\n- {gfx: x, gfx: y}\nos: linux\nnmae: {{ a }}\nshared: 3\n"
    with pytest.raises(errors.DataError) as wrong:
        records.parse_record(text, Machine, name="f")
    assert wrong.value.message.split("\n") == [
        "f:1:1: name: Field required",
        "f:1:1: os: Input should be 'linux' or 'windows' (found 'plan9')",
        "f:3:3: cards.0.gfx: Field required",
        "f:3:4: cards.0.memory: Input should be greater than or equal to 1 (found '0')",
        "f:4:4: cards.1.gfx: it must be a GPU target such as gfx942 (found 'x')",
        "f:4:12: gfx is given twice, in line 4 too: leave one",
        "f:5:1: os is given twice, in line 1 too: leave one",
        "f:6:8: a key must be plain text; a value that begins with { or [ needs quotes",
        "f:7:1: shared: Input should be a valid boolean, unable to interpret input (found '3')",
    ]


def test_of_very_many_faults_the_first_are_told_and_the_others_counted() -> None:
    with pytest.raises(errors.DataError) as wrong:
        records.parse_record(f"{NAMED}one: x\ncards: [{'1, ' * 5_000}]", Machine, name="f")
    first, *others = wrong.value.message.split("\n")
    assert re.fullmatch(r"f:3:1: one: .*integer.*, or Input should be '' \(found 'x'\)", first)
    assert len(others) == 100 and others[-2].startswith("f:4:") and others[-1] == "and 4,901 more"
    with pytest.raises(errors.DataError) as wrong:
        records.parse_record(NAMED + "a: 1\n" * 150, Machine, name="f")
    last = "f:102:1: a is given twice, in line 3 too: leave one"
    assert wrong.value.message.split("\n")[-2:] == [last, "and 50 more"]


@pytest.mark.usefixtures("loader")
def test_values_stay_text_and_names_stand_for_values() -> None:
    text = "name: 3.10\nos: !!str linux\ntags: {a: &a [on, 1_0], b: *a, c: [~, null]}\none: '7'\n"
    machine = records.parse_record(text, Machine, name="f")
    assert machine.name == "3.10"
    assert machine.tags == {"a": ("on", "1_0"), "b": ("on", "1_0"), "c": ("~", "null")}
    assert machine.one == 7


@pytest.mark.usefixtures("loader")
def test_names_of_names_of_names_cost_nothing() -> None:
    levels = [f"k{n}: &k{n} [{', '.join([f'*k{n - 1}'] * 9) if n else 'x'}]" for n in range(40)]
    begun = time.monotonic()
    with pytest.raises(errors.DataError, match="k0: Extra inputs"):
        records.parse_record("\n".join([*levels, NAMED, "cards: *k39"]), Machine, name="f")
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
    with pytest.raises(errors.DataError, match=says) as wrong:
        records.load_record(path, Machine)
    assert str(path) in wrong.value.message and wrong.value.tip


def test_a_recipe_that_cannot_be_read_takes_no_options_away(tmp_path: Path) -> None:
    """Which options there are is read from bytes: what is wrong with a recipe is said when it is needed."""
    (tmp_path / "wrong.yaml").write_bytes(b"name: caf\xe9\nbuild:\n  installed_for_others: true\n")
    assert project_names.list_shared_projects(tmp_path) == ["wrong"]
    with pytest.raises(errors.DataError, match=r"wrong\.yaml is not UTF-8 text"):
        project.load_project("wrong", tmp_path)
    (tmp_path / "folder.yaml").mkdir()
    with pytest.raises(errors.DataError, match=r"cannot read .*folder\.yaml"):
        project.load_project("folder", tmp_path)
    with pytest.raises(errors.DataError, match=r"there is no project foldr; did you mean folder\?"):
        project.load_project("foldr", tmp_path)


def test_a_huge_file_is_not_read_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "huge"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(errors.DataError, match=r"has more than 4\.0 MiB"):
        records.read_text_file(path)
    with pytest.raises(errors.DataError, match="cannot read"):
        records.read_text_file(tmp_path)


def test_a_byte_order_mark_and_other_line_ends_do_not_matter(tmp_path: Path) -> None:
    path = tmp_path / "f.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + NAMED.replace("\n", "\r\n").encode())
    assert records.load_record(path, Machine).os == "linux"


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
    with pytest.raises(errors.DataError, match=says) as wrong:
        records.read_json_file(tmp_path / "f", complaint="is no plan", tip="make one")
    assert wrong.value.tip == "make one" and "Recursion" not in str(wrong.value.__cause__)


def test_documents_of_programs_are_told_in_a_line() -> None:
    def said(content: str) -> str:
        with pytest.raises(ValidationError) as wrong:
            Machine.model_validate_json(content)
        return records.summarize_faults(wrong.value, Machine)

    told = r"name: .* string \(found 1\); os: .*'linux' or 'windows' \(found nothing\)"
    assert re.fullmatch(told, said('{"name": 1, "os": null}'))
    assert said("{") == "Invalid JSON: EOF while parsing an object at line 1 column 1"
    many = ", ".join(f'"k{n}": 1' for n in range(9))
    assert said(f'{{"name": "a", "os": "linux", {many}}}').endswith("; and 4 more")
    with pytest.raises(ValidationError) as wrong:
        TypeAdapter(tuple[Card, ...]).validate_python([{"gx": 1}])
    assert records.summarize_faults(wrong.value, tuple[Card, ...]) == (
        "0.gfx: Field required; 0.gx: Extra inputs are not permitted; did you mean gfx?"
    )


class Words(records.Record):
    """A value that is a word, or several, or several of these."""

    words: str | tuple[str, ...] = ""
    lines: Mapping[str, tuple[str | tuple[str, ...], ...]] = {}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("words: {a: b}", "1:1: words: … string, or … tuple (found a mapping)"),
        ("words: [[a]]", "1:1: words: … string (found a list)"),
        ("lines: {a: [b, {c: d}]}", "1:16: lines.a.1: … string, or … tuple (found a mapping)"),
    ],
)
def test_a_key_is_named_without_the_kinds_that_its_value_may_have(text: str, told: str) -> None:
    with pytest.raises(errors.DataError) as wrong:
        records.parse_record(text, Words, name="f")
    assert wrong.value.message.replace("Input should be a valid", "…") == f"f:{told}"


# --- the tables and recipes of the project ---------------------------------------------------------------

FILES: list[tuple[Path, type[records.Record]]] = [
    (project_names.get_data_folder() / "release_policy.yaml", policy.Policy),
    (project_names.get_data_folder() / "ci.yaml", ci.CiTable),
    (project_names.get_recipes_folder() / "pytorch.yaml", project.Project),
]


@pytest.mark.parametrize(("path", "model"), FILES, ids=[path.stem for path, _ in FILES])
@settings(max_examples=40)
@given(data=st.data())
def test_a_file_with_any_change_is_read_or_refused_with_its_place(
    path: Path, model: type[records.Record], data: st.DataObject
) -> None:
    """Some letters go and others come; or one value, with all below it, becomes another."""
    text = path.read_text(encoding="utf-8")
    if data.draw(st.booleans()):
        at, gone = data.draw(st.integers(0, len(text))), data.draw(st.integers(0, 40))
        signs = st.text(st.sampled_from("\t\n :-[]{}\"'#&*!|>%@`,?~x0\x00\x85\u2028é"), max_size=4)
        text = text[:at] + data.draw(signs) + text[at + gone :]
    else:
        tree = yaml_reader.read_yaml_tree(text, name=path.name)
        *above, last = data.draw(st.sampled_from([place for place in tree.marks if place]))
        value = tree.value
        for key in above:
            value = value[key]
        value[last] = data.draw(st.sampled_from(["", "x y", "-1", [], [""], {}, {"odd": ""}]))
        text = json.dumps(tree.value)
    try:
        records.parse_record(text, model, name=path.name)
    except errors.DataError as wrong:
        for line in wrong.message.split("\n"):
            assert re.match(rf"{path.name}:\d+:\d+: \S|and [\d,]+ more", line)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("a = 1\nb =\n", "f:2:"),
        ("a = " + "[" * 20_000, "f: "),
        ("a = 1" + "0" * 5000, "f: "),
        ("a = 1\na = 2\n", "f:2:"),
    ],
)
def test_toml_that_is_none_is_an_error_with_its_place(text: str, place: str) -> None:
    with pytest.raises(errors.DataError, match=f"^{place}.*not valid TOML"):
        toml_reader.parse_toml(text, name="f")
