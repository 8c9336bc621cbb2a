"""Do the compatibility tables fit together: contradictions, unknown names, rows that nothing reaches.

What one table alone can see is an error on loading it; this looks across tables, and asks
rocm-bootstrap where it is installed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from packaging.version import Version

from rocm_wheels.errors import DataError, explain
from rocm_wheels.gpus import names as chips
from rocm_wheels.model.compat import build_rows, images, index_rows, known, overrides
from rocm_wheels.model.compat.builds import PROJECTS, same_release
from rocm_wheels.model.compat.facts import Fact, FactTable, every_fact
from rocm_wheels.model.compat.targets import against_bootstrap, bootstrap
from rocm_wheels.model.compat.versions import read_version, starts_with
from rocm_wheels.model.gfx import gfx_families, gfx_table, gfx_targets
from rocm_wheels.model.line_facts import Line
from rocm_wheels.model.lines import all_lines
from rocm_wheels.records import did_you_mean

Level = Literal["error", "warning"]


@dataclass(frozen=True)
class Finding:
    """Something that is wrong with a table: ``where`` is the row."""

    level: Level
    table: str
    where: str
    message: str


@dataclass(frozen=True)
class Tables:
    """All tables that are held against each other; ``others`` by the names of their files."""

    targets: FactTable
    releases: index_rows.ReleaseTable
    builds: build_rows.BuildTable
    images: images.ImageTable
    issues: known.IssueTable
    lines: tuple[Line, ...]
    others: Mapping[str, FactTable]


def load_tables() -> Tables:
    """Load every table. Raises DataError of the first that is wrong in itself."""
    from rocm_wheels.model.compat import domains, dtypes, features, libraries

    return Tables(
        targets=gfx_table(),
        releases=index_rows.release_table(),
        builds=build_rows.build_table(),
        images=images.image_table(),
        issues=known.issue_table(),
        lines=all_lines(),
        others={
            dtypes.TABLE: dtypes.dtype_table(),
            libraries.TABLE: libraries.library_table(),
            domains.TABLE: domains.domain_table(),
            features.TABLE: features.feature_table(),
            overrides.TABLE: overrides.overrides(),
        },
    )


def lint(tables: Tables | None = None) -> tuple[Finding, ...]:
    """Return what is wrong, errors first. A table that cannot be loaded is a finding of its own."""
    try:
        held = tables or load_tables()
    except DataError as fault:
        return (_torn(fault),)
    found: list[Finding] = []
    for check in CHECKS:
        try:
            found += check(held)
        except DataError as fault:
            found.append(_torn(fault))
    return tuple(sorted(found, key=lambda one: one.level))


def _torn(fault: DataError) -> Finding:
    return Finding("error", "", "", explain(fault))


def _names(held: Tables) -> Iterator[Finding]:
    targets, families = gfx_targets(), gfx_families()
    used: list[tuple[str, str, Iterable[str]]] = [
        (build_rows.TABLE, f"set {name}", members) for name, members in held.builds.sets.items()
    ]
    used += [
        (index_rows.TABLE, row.name, serves.targets) for row in held.releases.indexes for serves in row.serves
    ]
    used += [(known.TABLE, row.title, row.targets) for row in held.issues.issues]
    for table, where, members in used:
        for name in members:
            if name not in targets:
                yield Finding("error", table, where, f"{name} is no GPU target{did_you_mean(name, targets)}")
    for row in held.releases.indexes:
        if row.family and row.family not in families:
            hint = did_you_mean(row.family, families)
            yield Finding("error", index_rows.TABLE, row.name, f"{row.family} is no GPU family{hint}")
    for image in images.images_of(held.images):
        if image.family and image.family not in families:
            yield Finding("error", images.TABLE, image.name, f"{image.family} is no GPU family")


def _builds(held: Tables) -> Iterator[Finding]:
    indexes = {row.name: row for row in held.releases.indexes}
    for row in held.builds.builds:
        where = f"torch {row.torch} ROCm {row.rocm} in {row.index}"
        index = indexes.get(row.index)
        if index is None:
            yield Finding(
                "error", build_rows.TABLE, where, f"no index {row.index}{did_you_mean(row.index, indexes)}"
            )
            continue
        if index.rocm and row.rocm not in index.rocm:
            yield Finding(
                "error", build_rows.TABLE, where, f"the index is said to have ROCm {_list(index.rocm)}"
            )
        for platform in row.targets:
            if platform not in index.platforms:
                yield Finding("error", build_rows.TABLE, where, f"the index is not for {platform}")
        yield from _against_line(row, where, held.lines)


def _against_line(row: build_rows.BuildRow, where: str, lines: tuple[Line, ...]) -> Iterator[Finding]:
    line = next((one for one in lines if one.torch and starts_with(row.torch, Version(one.torch))), None)
    if line is None:
        return
    strange = set(row.pythons) - {*line.pythons.values, *line.free_threaded.values}
    if strange:
        yield Finding(
            "warning", build_rows.TABLE, where, f"line {line.name} has no Python {', '.join(sorted(strange))}"
        )
    for project, name in PROJECTS.items():
        value = line.projects[project].version if project in line.projects else None
        ours = row.companions.get(name)
        if ours and value and value.value and not starts_with(ours, read_version(value.value)):
            message = f"{name} {ours} contradicts line {line.name}, which has {value.value}"
            yield Finding("error", build_rows.TABLE, where, message)


def _indexes(held: Tables) -> Iterator[Finding]:
    rows = held.releases.indexes
    for what in ("name", "url"):
        words = [getattr(row, what).rstrip("/") for row in rows]
        for word in sorted({one for one in words if words.count(one) > 1}):
            yield Finding("error", index_rows.TABLE, word, f"two indexes have this {what}")
    versions = [one.version for one in held.releases.releases]
    with_targets = {row.index for row in held.builds.builds if row.targets}
    for row in rows:
        for rocm in row.rocm:
            if not any(same_release(rocm, one) for one in versions):
                yield Finding("error", index_rows.TABLE, row.name, f"ROCm {rocm} is not among the releases")
        reached = row.serves or row.family or row.name in with_targets
        if row.vendor == "amd" and not reached:
            yield Finding(
                "error", index_rows.TABLE, row.name, "unreachable: nobody says which GPUs it serves"
            )
        limits = row.capability
        if limits and limits.most is not None and limits.most < limits.least:
            yield Finding("error", index_rows.TABLE, row.name, "unreachable: no capability is in its range")
    has = {rocm for row in rows if row.layout == "fat" for rocm in row.rocm}
    for line in held.lines:
        for text in line.rocm.pytorch_org.values:
            if read_version(text) not in has:
                message = f"pytorch.org has torch {line.name} with ROCm {text}, and there is no index of that"
                yield Finding("error", index_rows.TABLE, f"rocm{text}", message)


def _issues(held: Tables) -> Iterator[Finding]:
    pairs = [(row.torch, row.rocm) for row in held.builds.builds]
    pairs += [
        (Version(line.torch), read_version(rocm))
        for line in held.lines
        if line.torch
        for rocm in line.rocm.all()
    ]
    pairs += [(image.torch, image.rocm) for image in images.images_of(held.images) if image.torch]
    for row in held.issues.issues:
        if (row.state == "fixed") != bool(row.fixed):
            yield Finding(
                "error", known.TABLE, row.title, "`fixed` says in which release, of what is fixed alone"
            )
        nightly = any(Version(one.version.rstrip(".*")).is_prerelease for one in (*row.torch, *row.rocm))
        if not nightly and not any(
            row.torch.contains(torch, prereleases=True) and row.rocm.contains(rocm, prereleases=True)
            for torch, rocm in pairs
        ):
            yield Finding(
                "warning", known.TABLE, row.title, "unreachable: no torch and ROCm of any table fit"
            )


def _images(held: Tables) -> Iterator[Finding]:
    versions = [one.version for one in held.releases.releases]
    for image in images.images_of(held.images):
        if not any(same_release(image.rocm, one) for one in versions):
            yield Finding("error", images.TABLE, image.name, f"ROCm {image.rocm} is not among the releases")


def _sources(held: Tables) -> Iterator[Finding]:
    tables: Mapping[str, FactTable] = {
        "gfx_families.yaml": held.targets,
        index_rows.TABLE: held.releases,
        build_rows.TABLE: held.builds,
        images.TABLE: held.images,
        known.TABLE: held.issues,
        **held.others,
    }
    for name, table in tables.items():
        facts = every_fact(table)
        named = re.findall(
            r"\bsources? ([\w, -]+)", "\n".join(one.note + getattr(one, "care", "") for one in facts)
        )
        used = {one.source for one in facts} | set(re.findall(r"[\w-]+", " ".join(named)))
        for unused in sorted(table.sources.keys() - used):
            yield Finding("warning", name, unused, "no fact is from this source")
        for fact in facts:
            if fact.kind == "believed" and not fact.note:
                yield Finding("error", name, _where(fact), "believed, and no note says why")
    sets = {name for row in held.builds.builds for name in row.targets.values()}
    for unused in held.builds.sets.keys() - sets:
        yield Finding("warning", build_rows.TABLE, f"set {unused}", "unreachable: no build has these targets")


def _other_tables(held: Tables) -> Iterator[Finding]:
    from rocm_wheels.model.compat import domains, dtypes, libraries

    for target, project in libraries.unknown_exclusions():
        message = f"{target} is without it, and the table has nothing on it"
        yield Finding("error", libraries.TABLE, project, message)
    for target, said in dtypes.disagreements():
        yield Finding("error", dtypes.TABLE, target, f"gfx_families.yaml says otherwise: {said}")
    for said in domains.conflicts():
        yield Finding("warning", domains.TABLE, "", said)
    targets, table = (*gfx_targets(), *chips.KNOWN), held.others[overrides.TABLE]
    assert isinstance(table, overrides.Overrides)
    for card, options in (*table.cards.items(), *table.refused.items()):
        for name in (card, *(one.target for one in options)):
            if name not in targets:
                message = f"{name} is no GPU target{did_you_mean(name, targets)}"
                yield Finding("error", overrides.TABLE, card, message)


def _bootstrap(_held: Tables) -> Iterator[Finding]:
    module = bootstrap()
    for fault in against_bootstrap(module) if module else ():
        yield Finding("error", "gfx_families.yaml", "", fault)


CHECKS: tuple[Callable[[Tables], Iterator[Finding]], ...] = (
    _names,
    _builds,
    _indexes,
    _issues,
    _images,
    _sources,
    _other_tables,
    _bootstrap,
)


def _list(versions: Iterable[Version]) -> str:
    return ", ".join(map(str, versions))


def _where(fact: Fact) -> str:
    return next(
        (str(getattr(fact, name)) for name in ("name", "version", "title") if hasattr(fact, name)),
        fact.source,
    )
