"""The tables of facts fit together, and a row that is wrong in itself is refused with its place."""

from __future__ import annotations

import re

import pytest

from rocm_wheels.core import errors, records
from rocm_wheels.gpus import gpu
from rocm_wheels.models import (
    dtypes,
    facts,
    gfx,
    libraries,
    package_indexes,
    release_lines,
    torch_builds,
    torch_features,
)

TARGETS = gfx.get_gfx_targets()
INDEXES = {row.name: row for row in package_indexes.load_release_table().indexes}
LINES = [line for line in release_lines.get_release_lines() if line.torch]
STABLE = {name for name, row in INDEXES.items() if row.channel == "stable"}
TABLES = (
    gfx.load_gfx_table,
    package_indexes.load_release_table,
    torch_builds.load_build_table,
    torch_builds.load_image_table,
    torch_builds.load_issue_table,
    dtypes.load_dtype_table,
    libraries.load_library_table,
    libraries.load_domain_table,
    torch_features.load_feature_table,
    gfx.load_overrides,
)


@pytest.mark.parametrize("table", [load() for load in TABLES], ids=lambda table: type(table).__name__)
def test_every_source_is_used_and_what_is_believed_says_why(table: facts.FactTable):
    rows = facts.list_facts(table)
    notes = "\n".join(f"{fact.note}{getattr(fact, 'care', '')}" for fact in rows)
    named = re.findall(r"[\w-]+", " ".join(re.findall(r"\bsources? ([\w, -]+)", notes)))
    assert table.sources.keys() <= {*(fact.source for fact in rows), *named}
    assert [fact for fact in rows if fact.kind == "believed" and not fact.note] == []


def test_every_target_and_family_that_a_table_names_is_one():
    served = [target for row in INDEXES.values() for fact in row.serves for target in fact.targets]
    named = {
        *served,
        *(t for i in torch_builds.get_issues() for t in i.targets),
    }
    assert named <= TARGETS.keys()
    families = {image.family for image in torch_builds.list_images() if image.family}
    assert families <= gfx.get_gfx_families().keys()
    overrides = gfx.load_overrides()
    cards = (*overrides.cards.items(), *overrides.refused.items())
    named = {name for card, options in cards for name in (card, *(option.target for option in options))}
    assert named <= {*TARGETS, *gpu.KNOWN_TARGETS}


def test_what_an_index_serves_fits_it_and_the_release_lines():
    for index in INDEXES.values():
        for row in index.serves:
            assert set(row.rocm) <= set(index.rocm) and set(row.platforms) <= set(index.platforms), index.name
            assert set(row.pythons) <= set(index.pythons), index.name
            # what pytorch.org builds is in the release lines: their Pythons, by channel and ROCm
        lines = [line for line in LINES if index.channel in (line.name, "stable")]
        built = {
            python
            for line in lines
            if bool(line.torch) == (index.channel == "stable")
            and set(map(facts.parse_version, line.rocm.pytorch_org.values)) & set(index.rocm)
            for python in (*line.pythons.values, *line.free_threaded.values)
        }
        assert index.layout != "fat" or index.vendor != "amd" or built <= set(index.pythons), index.name


def test_indexes_are_told_apart_reached_and_of_a_release():
    assert (
        len({row.url.rstrip("/") for row in INDEXES.values()})
        == len(package_indexes.load_release_table().indexes)
        == len(INDEXES)
    )
    releases = [release.version for release in package_indexes.load_release_table().releases]
    for row in INDEXES.values():
        assert row.vendor != "amd" or row.serves, row
        assert all(
            any(torch_builds.is_same_release(rocm, release) for release in releases) for rocm in row.rocm
        ), row
    assert all(
        any(torch_builds.is_same_release(image.rocm, release) for release in releases)
        for image in torch_builds.list_images()
    )
    fat = {rocm for row in INDEXES.values() if row.layout == "fat" for rocm in row.rocm}
    assert {facts.parse_version(text) for line in LINES for text in line.rocm.pytorch_org.values} <= fat


def test_what_is_ready_for_releases_is_in_a_stable_index():
    served = {(p, t) for name in STABLE for f in INDEXES[name].serves for p in f.platforms for t in f.targets}
    ready = {
        (p, name)
        for name, target in TARGETS.items()
        for p, state in target.readiness.items()
        if state == "release"
    }
    assert ready <= served


def test_known_issues_say_in_which_release_they_were_fixed():
    for issue in torch_builds.get_issues():
        assert (issue.state == "fixed") == bool(issue.fixed), issue


SOURCES = 'sources: {s: {url: "https://example.com/", retrieved: 2026-11-21}}\n'
INDEXES_OF = SOURCES + "until: 2027-05-31\nreleases: []\nindexes:\n  - "
ROW = (
    "{name: i, vendor: amd, url: 'https://x/', channel: stable, layout: fat, platforms: [linux], "
    "rocm: [%s], pythons: [%s], source: %s, kind: documented}"
)
KNOWN = (
    SOURCES + "issues:\n  - {title: t, effect: hang, torch: '%s', rocm: '', state: open, issue: %s, "
    "source: s, kind: tested}"
)


@pytest.mark.parametrize(
    ("model", "text", "message"),
    [
        (
            package_indexes.RocmReleaseTable,
            INDEXES_OF + ROW % ("seven", "'3.12'", "s"),
            "'seven' is not a version",
        ),
        (package_indexes.RocmReleaseTable, INDEXES_OF + ROW % ("'7.2'", "cp312", "s"), "'cp312' is not a"),
        (package_indexes.RocmReleaseTable, INDEXES_OF + ROW % ("'7.2'", "'3.12'", "t"), "source 't'"),
        (torch_builds.IssueTable, KNOWN % ("2.13", "a/b#1"), "'2.13' is not a version specifier"),
        (
            torch_builds.IssueTable,
            KNOWN % ("==2.13", "TheRock#12"),
            "an issue is written owner/repository#number",
        ),
        (
            torch_builds.ImageTable,
            SOURCES
            + "images: [{image: rocm/pytorch, use: run, tags: [latest], source: s, kind: documented}]",
            "latest is not a tag such as",
        ),
        (
            package_indexes.RocmReleaseTable,
            SOURCES + "indexes: []\nreleases: [{version: 7.x, channel: stable, source: s, kind: documented}]",
            "'7.x' is not a version",
        ),
    ],
)
def test_a_wrong_row_is_refused_with_its_place(model: type[records.Record], text: str, message: str):
    with pytest.raises(errors.DataError, match=r"table.yaml:\d+:\d+: ") as refused:
        records.parse_record(text, model, name="table.yaml")
    assert message in str(refused.value)
