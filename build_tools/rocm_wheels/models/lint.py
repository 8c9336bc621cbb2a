"""Check that the compatibility tables fit together: contradictions, unknown names, rows that nothing
reaches.

What one table alone can see is an error on loading it; this looks across tables, and asks
rocm-bootstrap where it is installed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from packaging.version import Version

from rocm_wheels.core import DataError, Finding, explain_error, suggest_name
from rocm_wheels.gpus import KNOWN_TARGETS
from rocm_wheels.models.facts import Fact, FactTable, is_in_series, list_facts, parse_version
from rocm_wheels.models.gfx import (
    OVERRIDES_TABLE,
    OverrideTable,
    compare_with_bootstrap,
    get_gfx_families,
    get_gfx_targets,
    import_bootstrap,
    load_gfx_table,
    load_overrides,
)
from rocm_wheels.models.package_indexes import (
    BUILDS_TABLE,
    RELEASES_TABLE,
    BuildRow,
    RocmReleaseTable,
    TorchBuildTable,
    load_build_table,
    load_release_table,
)
from rocm_wheels.models.release_lines import TorchLine, get_release_lines
from rocm_wheels.models.torch_builds import (
    IMAGES_TABLE,
    ISSUES_TABLE,
    ImageTable,
    IssueTable,
    get_line_companions,
    is_same_release,
    load_image_table,
    load_issue_table,
    make_images,
)


@dataclass(frozen=True)
class CompatTables:
    """All tables that are held against each other; ``others`` by the names of their files."""

    targets: FactTable
    releases: RocmReleaseTable
    builds: TorchBuildTable
    images: ImageTable
    issues: IssueTable
    lines: tuple[TorchLine, ...]
    others: Mapping[str, FactTable]


def load_compat_tables() -> CompatTables:
    """Load every table. Raises DataError of the first that is wrong in itself."""
    from rocm_wheels.models.dtypes import DTYPES_TABLE, load_dtype_table
    from rocm_wheels.models.libraries import (
        DOMAIN_LIBRARIES_TABLE,
        LIBRARIES_TABLE,
        load_domain_table,
        load_library_table,
    )
    from rocm_wheels.models.torch_features import FEATURES_TABLE, load_feature_table

    return CompatTables(
        targets=load_gfx_table(),
        releases=load_release_table(),
        builds=load_build_table(),
        images=load_image_table(),
        issues=load_issue_table(),
        lines=get_release_lines(),
        others={
            DTYPES_TABLE: load_dtype_table(),
            LIBRARIES_TABLE: load_library_table(),
            DOMAIN_LIBRARIES_TABLE: load_domain_table(),
            FEATURES_TABLE: load_feature_table(),
            OVERRIDES_TABLE: load_overrides(),
        },
    )


def lint_tables(tables: CompatTables | None = None) -> tuple[Finding, ...]:
    """Return what is wrong, errors first. A table that cannot be loaded is a finding of its own."""
    try:
        compat_tables = tables or load_compat_tables()
    except DataError as fault:
        return (_make_load_finding(fault),)
    findings: list[Finding] = []
    for check in TABLE_CHECKS:
        try:
            findings += check(compat_tables)
        except DataError as fault:
            findings.append(_make_load_finding(fault))
    return tuple(sorted(findings, key=lambda finding: finding.severity))


def _make_load_finding(fault: DataError) -> Finding:
    return Finding("error", explain_error(fault))


def _check_names(compat_tables: CompatTables) -> Iterator[Finding]:
    targets, families = get_gfx_targets(), get_gfx_families()
    named_targets: list[tuple[str, str, Iterable[str]]] = [
        (BUILDS_TABLE, f"set {name}", members) for name, members in compat_tables.builds.sets.items()
    ]
    named_targets += [
        (RELEASES_TABLE, row.name, serves.targets)
        for row in compat_tables.releases.indexes
        for serves in row.serves
    ]
    named_targets += [(ISSUES_TABLE, row.title, row.targets) for row in compat_tables.issues.issues]
    for table, where, members in named_targets:
        for name in members:
            if name not in targets:
                yield Finding(
                    "error",
                    f"{name} is no GPU target{suggest_name(name, targets)}",
                    subject=where,
                    group=table,
                )
    for row in compat_tables.releases.indexes:
        if row.family and row.family not in families:
            hint = suggest_name(row.family, families)
            yield Finding(
                "error", f"{row.family} is no GPU family{hint}", subject=row.name, group=RELEASES_TABLE
            )
    for image in make_images(compat_tables.images):
        if image.family and image.family not in families:
            yield Finding("error", f"{image.family} is no GPU family", subject=image.name, group=IMAGES_TABLE)


def _check_builds(compat_tables: CompatTables) -> Iterator[Finding]:
    indexes = {row.name: row for row in compat_tables.releases.indexes}
    for row in compat_tables.builds.builds:
        where = f"torch {row.torch} ROCm {row.rocm} in {row.index}"
        index = indexes.get(row.index)
        if index is None:
            yield Finding(
                "error",
                f"no index {row.index}{suggest_name(row.index, indexes)}",
                subject=where,
                group=BUILDS_TABLE,
            )
            continue
        if index.rocm and row.rocm not in index.rocm:
            yield Finding(
                "error",
                f"the index is said to have ROCm {_join_versions(index.rocm)}",
                subject=where,
                group=BUILDS_TABLE,
            )
        for platform in row.targets:
            if platform not in index.platforms:
                yield Finding("error", f"the index is not for {platform}", subject=where, group=BUILDS_TABLE)
        yield from _compare_with_line(row, where, compat_tables.lines)


def _compare_with_line(row: BuildRow, where: str, lines: tuple[TorchLine, ...]) -> Iterator[Finding]:
    line = next(
        (
            candidate
            for candidate in lines
            if candidate.torch and is_in_series(row.torch, Version(candidate.torch))
        ),
        None,
    )
    if line is None:
        return
    unknown_pythons = set(row.pythons) - {*line.pythons.values, *line.free_threaded.values}
    if unknown_pythons:
        yield Finding(
            "warning",
            f"line {line.name} has no Python {', '.join(sorted(unknown_pythons))}",
            subject=where,
            group=BUILDS_TABLE,
        )
    for name, series in get_line_companions(line).items():
        companion_version = row.companions.get(name)
        if companion_version and not is_in_series(companion_version, series):
            message = f"{name} {companion_version} contradicts line {line.name}, which has {series}"
            yield Finding("error", message, subject=where, group=BUILDS_TABLE)


def _check_indexes(compat_tables: CompatTables) -> Iterator[Finding]:
    rows = compat_tables.releases.indexes
    for field in ("name", "url"):
        values = [getattr(row, field).rstrip("/") for row in rows]
        for value in sorted({item for item in values if values.count(item) > 1}):
            yield Finding("error", f"two indexes have this {field}", subject=value, group=RELEASES_TABLE)
    versions = [item.version for item in compat_tables.releases.releases]
    with_targets = {row.index for row in compat_tables.builds.builds if row.targets}
    for row in rows:
        for rocm in row.rocm:
            if not any(is_same_release(rocm, item) for item in versions):
                yield Finding(
                    "error", f"ROCm {rocm} is not among the releases", subject=row.name, group=RELEASES_TABLE
                )
        reached = row.serves or row.family or row.name in with_targets
        if row.vendor == "amd" and not reached:
            yield Finding(
                "error",
                "unreachable: nobody says which GPUs it serves",
                subject=row.name,
                group=RELEASES_TABLE,
            )
        limits = row.capability
        if limits and limits.most is not None and limits.most < limits.least:
            yield Finding(
                "error", "unreachable: no capability is in its range", subject=row.name, group=RELEASES_TABLE
            )
    fat_versions = {rocm for row in rows if row.layout == "fat" for rocm in row.rocm}
    for line in compat_tables.lines:
        for text in line.rocm.pytorch_org.values:
            if parse_version(text) not in fat_versions:
                message = f"pytorch.org has torch {line.name} with ROCm {text}, and there is no index of that"
                yield Finding("error", message, subject=f"rocm{text}", group=RELEASES_TABLE)


def _check_readiness(compat_tables: CompatTables) -> Iterator[Finding]:
    """Compare what is ready for releases with what the stable indexes serve: it should be in one of them."""
    served: set[tuple[str, str]] = set()
    stable = [row for row in compat_tables.releases.indexes if row.channel == "stable"]
    for row in stable:
        served |= {(p, target) for fact in row.serves for p in fact.platforms for target in fact.targets}
    names = {row.name for row in stable}
    for build in compat_tables.builds.builds:
        for platform, name in build.targets.items() if build.index in names else ():
            served |= {(platform, target) for target in compat_tables.builds.sets[name]}
    for target, facts in get_gfx_targets().items():
        for platform, readiness in facts.readiness.items():
            if readiness == "release" and (platform, target) not in served:
                message = (
                    f"ready for releases on {platform}, and no stable index of {RELEASES_TABLE} serves it"
                )
                yield Finding("error", message, subject=target, group="gfx_families.yaml")


def _check_issues(compat_tables: CompatTables) -> Iterator[Finding]:
    pairs = [(row.torch, row.rocm) for row in compat_tables.builds.builds]
    pairs += [
        (Version(line.torch), parse_version(rocm))
        for line in compat_tables.lines
        if line.torch
        for rocm in line.rocm.list_versions()
    ]
    pairs += [(image.torch, image.rocm) for image in make_images(compat_tables.images) if image.torch]
    for row in compat_tables.issues.issues:
        if (row.state == "fixed") != bool(row.fixed):
            yield Finding(
                "error",
                "`fixed` says in which release, of what is fixed alone",
                subject=row.title,
                group=ISSUES_TABLE,
            )
        nightly = any(
            Version(specifier.version.rstrip(".*")).is_prerelease for specifier in (*row.torch, *row.rocm)
        )
        if not nightly and not any(
            row.torch.contains(torch, prereleases=True) and row.rocm.contains(rocm, prereleases=True)
            for torch, rocm in pairs
        ):
            yield Finding(
                "warning",
                "unreachable: no torch and ROCm of any table fit",
                subject=row.title,
                group=ISSUES_TABLE,
            )


def _check_images(compat_tables: CompatTables) -> Iterator[Finding]:
    versions = [version.version for version in compat_tables.releases.releases]
    for image in make_images(compat_tables.images):
        if not any(is_same_release(image.rocm, version) for version in versions):
            yield Finding(
                "error",
                f"ROCm {image.rocm} is not among the releases",
                subject=image.name,
                group=IMAGES_TABLE,
            )


def _check_sources(compat_tables: CompatTables) -> Iterator[Finding]:
    tables: Mapping[str, FactTable] = {
        "gfx_families.yaml": compat_tables.targets,
        RELEASES_TABLE: compat_tables.releases,
        BUILDS_TABLE: compat_tables.builds,
        IMAGES_TABLE: compat_tables.images,
        ISSUES_TABLE: compat_tables.issues,
        **compat_tables.others,
    }
    for name, table in tables.items():
        facts = list_facts(table)
        named_sources = re.findall(
            r"\bsources? ([\w, -]+)",
            "\n".join(row_fact.note + getattr(row_fact, "care", "") for row_fact in facts),
        )
        used_sources = {row_fact.source for row_fact in facts} | set(
            re.findall(r"[\w-]+", " ".join(named_sources))
        )
        for unused in sorted(table.sources.keys() - used_sources):
            yield Finding("warning", "no fact is from this source", subject=unused, group=name)
        for fact in facts:
            if fact.kind == "believed" and not fact.note:
                yield Finding(
                    "error", "believed, and no note says why", subject=_locate_fact(fact), group=name
                )
    sets = {name for row in compat_tables.builds.builds for name in row.targets.values()}
    for unused in compat_tables.builds.sets.keys() - sets:
        yield Finding(
            "warning", "unreachable: no build has these targets", subject=f"set {unused}", group=BUILDS_TABLE
        )


def _check_other_tables(compat_tables: CompatTables) -> Iterator[Finding]:
    from rocm_wheels.models.dtypes import DTYPES_TABLE, find_dtype_disagreements
    from rocm_wheels.models.libraries import (
        DOMAIN_LIBRARIES_TABLE,
        LIBRARIES_TABLE,
        find_conflicts,
        list_unknown_exclusions,
    )

    for target, project in list_unknown_exclusions():
        message = f"{target} is without it, and the table has nothing on it"
        yield Finding("error", message, subject=project, group=LIBRARIES_TABLE)
    for target, problem in find_dtype_disagreements():
        yield Finding(
            "error", f"gfx_families.yaml says otherwise: {problem}", subject=target, group=DTYPES_TABLE
        )
    for problem in find_conflicts():
        yield Finding("warning", problem, group=DOMAIN_LIBRARIES_TABLE)
    targets, table = (
        (*get_gfx_targets(), *KNOWN_TARGETS),
        compat_tables.others[OVERRIDES_TABLE],
    )
    assert isinstance(table, OverrideTable)
    for card, options in (*table.cards.items(), *table.refused.items()):
        for name in (card, *(override.target for override in options)):
            if name not in targets:
                message = f"{name} is no GPU target{suggest_name(name, targets)}"
                yield Finding("error", message, subject=card, group=OVERRIDES_TABLE)


def _check_bootstrap(_compat_tables: CompatTables) -> Iterator[Finding]:
    module = import_bootstrap()
    for fault in compare_with_bootstrap(module) if module else ():
        yield Finding("error", fault, group="gfx_families.yaml")


TABLE_CHECKS: tuple[Callable[[CompatTables], Iterator[Finding]], ...] = (
    _check_names,
    _check_builds,
    _check_indexes,
    _check_readiness,
    _check_issues,
    _check_images,
    _check_sources,
    _check_other_tables,
    _check_bootstrap,
)


def _join_versions(versions: Iterable[Version]) -> str:
    return ", ".join(map(str, versions))


def _locate_fact(fact: Fact) -> str:
    return next(
        (str(getattr(fact, name)) for name in ("name", "version", "title") if hasattr(fact, name)),
        fact.source,
    )
