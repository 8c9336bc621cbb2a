"""Release lines: a strict table, facts that say where they come from, and what the command prints of them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner
from packaging.version import Version

from rocm_wheels.cli import compat
from rocm_wheels.core import errors, records
from rocm_wheels.models import project, release_lines
from rocm_wheels.models.facts import get_python_key

SMALL = """\
toolsets:
  - {name: current, tools: []}
lines:
  - name: "2.10"
    torch: "2.10"
    toolset: current
    pythons: {values: ["3.9", "3.10"], kind: read, source: PyPI METADATA torch 2.10.0}
    free_threaded: {values: [3.13t], kind: believed, source: told}
    platforms: {values: [linux], kind: believed, source: told}
    rocm:
      pytorch_org: {values: [7.1, 7.14], kind: documented, source: "https://pytorch.org"}
      amd: {kind: unknown, source: looked nowhere}
    projects:
      pytorch:
        checkout: {origin: "https://example.com/a.git", ref: release/2.10, kind: believed, source: told}
      apex:
        version: {value: "1.10", kind: believed, source: told}
        checkout: {kind: unknown, source: looked nowhere}
"""


def facts(record: records.Record) -> list[release_lines.LineFact]:
    found = [record] if isinstance(record, release_lines.LineFact) else []
    for name in type(record).model_fields:
        value = getattr(record, name)
        children = value.values() if isinstance(value, dict) else [value]
        for child in children:
            found += facts(child) if isinstance(child, records.Record) else []
    return found


def test_the_lines_are_there_whole() -> None:
    names = [line.name for line in release_lines.get_release_lines()]
    assert len({*names}) == len(names)
    assert {"main", "nightly", *(f"2.{minor}" for minor in range(7, 16))} <= set(names)
    for line in release_lines.get_release_lines():
        assert list(line.projects) and set(line.projects) == {
            recipe.name for recipe in project.list_usual_projects()
        }, line.name
        assert line.get_checkout(project.load_project("pytorch"), "linux") is not None, line.name
        assert line.pythons.values, line.name
        if line.torch is not None:
            assert re.fullmatch(r"[0-9]+\.[0-9]+", line.torch)
            assert release_lines.get_line_tools(f"{line.torch}.0").torch == line.name
    assert release_lines.get_newest_line_tools().torch == max(
        (n for n in names if n[0] == "2"), key=lambda n: int(n[2:])
    )


def test_scalars_are_text_and_versions_are_compared_as_versions() -> None:
    line = release_lines.get_release_line("2.10")
    assert line.pythons.values == ("3.10", "3.11", "3.12", "3.13", "3.14")
    assert line.rocm.list_versions() == ("7.0", "7.1", "7.12", "7.13", "7.14")
    triton = line.get_checkout(project.load_project("triton"), "linux")
    assert triton is not None
    assert (triton.origin, triton.ref) == ("https://github.com/ROCm/triton.git", "release/internal/3.6.x")
    assert line.get_checkout(project.load_project("triton"), "windows") is None
    assert release_lines.get_release_line("2.15").get_checkout(project.load_project("apex"), "linux") is None


def test_every_fact_says_how_it_is_known() -> None:
    every = [fact for line in release_lines.get_release_lines() for fact in facts(line)]
    assert len(every) > 12 * len(release_lines.get_release_lines())
    kinds = {fact.kind for fact in every}
    assert kinds == {"read", "documented", "believed", "unknown"}
    shortened = [f.source for f in every if re.search(r"@[0-9a-f]{7,39}\b", f.source)]
    assert shortened == []


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("2.99", "there is no release line '2.99'"),
        ("nigthly", "there is no release line 'nigthly'; did you mean nightly?"),
        ("release/2.9", "did you mean 2.9?"),
        ("2.1", "there is no release line '2.1'; did you mean"),
        ("", "there is no release line ''"),
        ("Main", "did you mean main?"),
    ],
)
def test_an_unknown_line_is_an_error(name: str, message: str) -> None:
    with pytest.raises(errors.DataError) as fault:
        release_lines.get_release_line(name)
    assert message in str(fault.value)


# what is changed in a good table → place and message
WRONG = [
    ("toolset: current", "tolset: current", "lines.0.tolset: Extra inputs are not permitted; did you mean"),
    ('["3.9", "3.10"]', '["3.9", "python3"]', "7:31: lines.0.pythons.values.1: 'python3' is not a Python"),
    ("[3.13t]", "[3.13x]", "8:30: lines.0.free_threaded.values.0: '3.13x' is not a Python"),
    ("[linux]", "[linux, macos]", "9:33: lines.0.platforms.values.1: Input should be 'linux'"),
    ("[7.1, 7.14]", "[rocm7]", "11:30: lines.0.rocm.pytorch_org.values.0: 'rocm7' is not a"),
    ("      amd: {kind: unknown, source: looked nowhere}\n", "", "10:5: lines.0.rocm.amd: Field required"),
    ("kind: believed, source: told}\n      apex", "kind: guessed, source: told}\n      apex",
     "15:76: lines.0.projects.pytorch"),
    ("https://pytorch.org", "pytorch.org", "11:7: lines.0.rocm.pytorch_org: kind documented needs a source"),
    ("PyPI METADATA torch 2.10.0", '""', "7:52: lines.0.pythons.source: String should have at least 1"),
    ("ref: release/2.10", "ref: --upload-pack",
     "lines.0.projects.pytorch.checkout.ref: it must be the name of a branch or tag (found '--upload"),
    ("ref: release/2.10", "ref: two words", "checkout.ref: it must be the name of a branch"),
    ('origin: "https://example.com/a.git", ', "", "checkout: `origin` is missing"),
    ('value: "1.10", ', "", "17:9: lines.0.projects.apex.version: `value` is missing"),
    ("checkout: {kind: unknown", "checkout: {origin: x, kind: unknown",
     "18:9: lines.0.projects.apex.checkout: what is unknown has no value"),
    ("  - name:", '  - name: "2.10"\n    name:', "5:5: name is given twice"),
    ("kind: read", "kind: read, kind: read", "7:52: kind is given twice"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "message"), WRONG, ids=[message for *_, message in WRONG])
def test_a_wrong_table_says_where(tmp_path: Path, old: str, new: str, message: str) -> None:
    path = tmp_path / "lines.yaml"
    path.write_text(SMALL)
    assert records.load_record(path, release_lines.LineTable).lines[0].name == "2.10"
    assert SMALL.count(old) >= 1
    path.write_text(SMALL.replace(old, new, 1))
    with pytest.raises(errors.DataError) as fault:
        records.load_record(path, release_lines.LineTable)
    first = str(fault.value).splitlines()[0]
    assert first.startswith(f"{path}:")
    assert message in str(fault.value)
    assert all(len(row) < 300 for row in str(fault.value).splitlines())


@pytest.mark.contract
def test_the_command_says_everything_of_a_line() -> None:
    text = CliRunner().invoke(compat.show, ["lines", "2.14"]).stdout
    facts = [line.split(None, 1)[1] for line in text.splitlines() if "pytorch_audio.checkout" in line]
    assert facts[:3] == ["https://github.com/ROCm/audio.git", "release/2.11.0.3", "read"]
    assert facts[3].startswith("related_commits of AMD's release/2.14")
    assert "unknown" in CliRunner().invoke(compat.show, ["lines", "2.15"]).stdout
    data = json.loads(CliRunner().invoke(compat.show, ["lines", "--json"]).stdout)
    assert [line["name"] for line in data["lines"]] == [
        line.name for line in release_lines.get_release_lines()
    ]
    one = json.loads(CliRunner().invoke(compat.show, ["lines", "2.9", "--json"]).stdout)["lines"][0]
    assert one["pythons"]["values"][0] == "3.10"
    assert one["projects"]["apex"]["checkout"]["ref"] == "release/1.9.0"


def test_values_of_the_table_stand_oldest_first() -> None:
    for line in release_lines.get_release_lines():
        for versions in (line.rocm.pytorch_org, line.rocm.amd):
            assert sorted({*versions.values}, key=Version) == list(versions.values), line.name
        for pythons in (line.pythons, line.free_threaded):
            assert sorted({*pythons.values}, key=get_python_key) == list(pythons.values), line.name
        for several in (line.rocm.pytorch_org, line.rocm.amd, line.pythons, line.free_threaded):
            assert several.kind != "unknown" or not several.values, line.name
