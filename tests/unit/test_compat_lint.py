"""The tables fit together, and a table that does not is told from one that does."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from rocm_wheels.core import DataError, Record, parse_record
from rocm_wheels.models import (
    OVERRIDES_TABLE,
    ImageTable,
    IssueTable,
    RocmReleaseTable,
    TorchBuildTable,
    dtypes,
    find_conflicts,
    libraries,
    lint_tables,
    load_compat_tables,
    load_overrides,
)


def test_the_tables_fit_together():
    found = lint_tables()
    assert [one for one in found if one.severity == "error"] == []
    # what its makers have published does not fit together: that is no fault of the table
    assert [one.message for one in found] == list(find_conflicts())


def test_what_a_table_says_of_itself_is_a_finding(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(dtypes, "find_dtype_disagreements", lambda: (("gfx942", "fp8-ocp: only here"),))
    monkeypatch.setattr(libraries, "list_unknown_exclusions", lambda: (("gfx900", "rocFoo"),))
    monkeypatch.setattr(libraries, "find_conflicts", lambda: ("a needs b",))
    table = load_overrides()
    held = load_compat_tables()
    odd = changed(table, cards={"gfx90b": table.cards["gfx1031"]})
    found = lint_tables(replace(held, others={**held.others, OVERRIDES_TABLE: odd}))
    assert [
        (one.severity, one.group, one.subject, one.message) for one in found if "source" not in one.message
    ] == [
        ("error", "rocm_libraries.yaml", "rocFoo", "gfx900 is without it, and the table has nothing on it"),
        ("error", "dtypes.yaml", "gfx942", "gfx_families.yaml says otherwise: fp8-ocp: only here"),
        ("error", "isa_overrides.yaml", "gfx90b", "gfx90b is no GPU target; did you mean gfx950?"),
        ("warning", "domain_libraries.yaml", "", "a needs b"),
    ]


def changed(record: Record, **values: Any) -> Record:
    return record.model_copy(update=values)


def with_row(field: str, rows: str, row: Record) -> dict[str, Any]:
    """Return the tables with the first of ``rows`` changed to ``row``."""
    held = load_compat_tables()
    table = getattr(held, field)
    return {field: changed(table, **{rows: (row, *getattr(table, rows)[1:])})}


def first(field: str, rows: str) -> Any:
    return getattr(getattr(load_compat_tables(), field), rows)[0]


BUILD, INDEX, ISSUE, IMAGE = (
    ("builds", "builds"),
    ("releases", "indexes"),
    ("issues", "issues"),
    ("images", "images"),
)


@pytest.mark.parametrize(
    ("place", "change", "message"),
    [
        (BUILD, {"index": "amd-stabel"}, "no index amd-stabel; did you mean amd-stable"),
        (BUILD, {"rocm": Version("7.2")}, "the index is said to have ROCm 10.0.0, 10.1.0"),
        (BUILD, {"targets": {"macos": "gfx94X"}}, "the index is not for macos"),
        (BUILD, {"pythons": ("3.12", "3.9")}, "line 2.14 has no Python 3.9"),
        (
            BUILD,
            {"companions": {"torchvision": Version("0.28.0")}},
            "torchvision 0.28.0 contradicts line 2.14",
        ),
        (INDEX, {"name": "pytorch-cpu"}, "two indexes have this name"),
        (INDEX, {"url": "https://download.pytorch.org/whl/cpu/"}, "two indexes have this url"),
        (INDEX, {"rocm": (Version("9.9"),)}, "ROCm 9.9 is not among the releases"),
        (INDEX, {"family": "gfx94X-dgpu"}, "gfx94X-dgpu is no GPU family; did you mean gfx94X-dcgpu"),
        (INDEX, {"name": "new-index", "serves": ()}, "unreachable: nobody says which GPUs it serves"),
        (INDEX, {"source": "nobody", "kind": "believed"}, "believed, and no note says why"),
        (ISSUE, {"targets": ("gfx943",)}, "gfx943 is no GPU target; did you mean gfx942"),
        (ISSUE, {"state": "fixed"}, "`fixed` says in which release"),
        (
            ISSUE,
            {"rocm": SpecifierSet("==3.1")},
            "no torch and ROCm of any table fit",
        ),
        (IMAGE, {"tags": ("rocm9.9",)}, "ROCm 9.9 is not among the releases"),
    ],
)
def test_a_mistake_is_found(place: tuple[str, str], change: dict[str, Any], message: str):
    tables = replace(load_compat_tables(), **with_row(*place, changed(first(*place), **change)))
    assert any(message in one.message for one in lint_tables(tables)), lint_tables(tables)


def test_a_target_that_is_ready_and_in_no_index_is_found():
    held = load_compat_tables()
    without = tuple(
        changed(row, serves=()) if row.name == "amd-stable" else row for row in held.releases.indexes
    )
    found = lint_tables(replace(held, releases=changed(held.releases, indexes=without)))
    said = {one.subject: one.message for one in found if one.severity == "error"}
    assert said["gfx1031"] == (  # a Radeon RX 6700 XT
        "ready for releases on windows, and no stable index of rocm_releases.yaml serves it"
    )


def test_sets_and_sources_that_nothing_uses_are_found():
    held = load_compat_tables()
    sets = held.builds.sets | {"more": ("gfx1301",)}
    found = lint_tables(replace(held, builds=changed(held.builds, sets=sets)))[:-1]
    assert [(one.severity, one.message) for one in found] == [
        ("error", "gfx1301 is no GPU target; did you mean gfx1201?"),
        ("warning", "unreachable: no build has these targets"),
    ]
    sources = held.issues.sources | {"more": held.issues.sources["github"]}
    found = lint_tables(replace(held, issues=changed(held.issues, sources=sources)))[:-1]
    assert [one.message for one in found] == ["no fact is from this source"]


def test_a_release_of_pytorch_org_without_an_index_is_found():
    held = load_compat_tables()
    rows = tuple(one for one in held.releases.indexes if one.name != "pytorch-rocm6.3")
    found = lint_tables(replace(held, releases=changed(held.releases, indexes=rows)))[:-1]
    assert {one.message for one in found} == {
        f"pytorch.org has torch {line} with ROCm 6.3, and there is no index of that"
        for line in ("2.7", "2.8", "2.9")
    }


def test_a_table_that_cannot_be_read_is_the_finding(monkeypatch: pytest.MonkeyPatch):
    def broken() -> None:
        raise DataError("table.yaml:1:1: torn")

    monkeypatch.setattr("rocm_wheels.models.lint.load_compat_tables", broken)
    assert [(one.severity, one.message) for one in lint_tables()] == [("error", "table.yaml:1:1: torn")]


SOURCES = 'sources: {s: {url: "https://example.com/", retrieved: 2026-11-21}}\n'
BUILDS = SOURCES + "triton: []\nsets: {a: [gfx942]}\nbuilds:\n  - "
ROW = "{index: i, torch: %s, rocm: %s, pythons: [%s], source: s, kind: documented}"
KNOWN = (
    SOURCES + "issues:\n  - {title: t, effect: hang, torch: '%s', rocm: '', state: open, issue: %s, "
    "source: s, kind: tested}"
)


@pytest.mark.parametrize(
    ("model", "text", "message"),
    [
        (TorchBuildTable, BUILDS + ROW % ("newest", "7.2", "'3.12'"), "'newest' is not a version"),
        (TorchBuildTable, BUILDS + ROW % ("2.13", "seven", "'3.12'"), "'seven' is not a version"),
        (TorchBuildTable, BUILDS + ROW % ("2.13", "7.2", "cp312"), "'cp312' is not a Python"),
        (
            TorchBuildTable,
            BUILDS + (ROW % ("2.13", "7.2", "'3.12'"))[:-1] + ", targets: {linux: b}}",
            "b is no set of targets",
        ),
        (
            TorchBuildTable,
            BUILDS + (ROW % ("2.13", "7.2", "'3.12'")).replace("source: s", "source: t"),
            "source 't'",
        ),
        (IssueTable, KNOWN % ("2.13", "a/b#1"), "'2.13' is not a version specifier"),
        (IssueTable, KNOWN % ("==2.13", "TheRock#12"), "an issue is written owner/repository#number"),
        (
            ImageTable,
            SOURCES
            + "images: [{image: rocm/pytorch, use: run, tags: [latest], source: s, kind: documented}]",
            "latest is not a tag such as",
        ),
        (
            RocmReleaseTable,
            SOURCES + "indexes: []\nreleases: [{version: 7.x, channel: stable, source: s, kind: documented}]",
            "'7.x' is not a version",
        ),
    ],
)
def test_a_wrong_row_is_refused_with_its_place(model: type[Record], text: str, message: str):
    with pytest.raises(DataError, match=r"table.yaml:\d+:\d+: ") as refused:
        parse_record(text, model, name="table.yaml")
    assert message in str(refused.value)
