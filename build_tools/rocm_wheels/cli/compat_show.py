"""``rocm-wheels compat show`` and ``matrix``: the tables, and which torch exists for whom."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

from rocm_wheels.cli.compat_words import (
    find_version,
    read_gpu,
    read_python,
    rows_as_json,
    format_table,
    terminal_width,
)
from rocm_wheels.errors import UsageError
from rocm_wheels.records import suggest_name

if TYPE_CHECKING:
    from rocm_wheels.model.compat.builds import TorchBuild

Rows = tuple[tuple[str, ...], list[tuple[str, ...]]]
# name: (module:function under rocm_wheels.model.compat, what the table has)
TABLES = {
    "targets": (
        "targets:show_rows",
        "GPU targets: products, families, fp8, wavefront, what is not built for them",
    ),
    "releases": ("release_rows:show_releases", "releases of ROCm, and the indexes that have them"),
    "indexes": ("release_rows:show_indexes", "package indexes that torch comes from, best first"),
    "builds": ("builds:show_rows", "torch by ROCm and index: targets and Pythons"),
    "images": ("images:show_rows", "container images with a torch, and to build wheels in"),
    "known": ("known:show_rows", "known issues of finished builds"),
    "dtypes": ("dtypes:show_rows", "data types of torch on each GPU"),
    "libraries": ("libraries:show_rows", "libraries of ROCm, and what of torch stands on them"),
    "domains": ("domains:show_rows", "torchvision, torchaudio and other libraries around torch"),
    "features": ("features:show_rows", "features of torch on ROCm, and since when"),
}


@click.command("show")
@click.argument("table", required=False, metavar="[TABLE]")
@click.option("--json", "as_json", is_flag=True, help="Print the rows as JSON.")
def show(table: str | None, as_json: bool) -> None:
    """List the compatibility tables, or print TABLE with the source of every row."""
    if table is None:
        table_rows = [(name, str(len(_load_rows(name)[1])), words) for name, (_, words) in TABLES.items()]
        _print_rows(("table", "rows", "what it has"), table_rows, as_json, "tables")
        return
    if table not in TABLES:
        raise UsageError(
            f"there is no table {table!r}{suggest_name(table, TABLES)}", tip=f"tables: {', '.join(TABLES)}"
        )
    header, rows = _load_rows(table)
    _print_rows(header, rows, as_json, table)


@click.command("matrix")
@click.option("--torch", metavar="VERSION", help="Only this torch: a release or a series (2.13).")
@click.option("--rocm", metavar="VERSION", help="Only this ROCm: a release or a series (7.14).")
@click.option(
    "--gfx", "gpu", metavar="TARGET", help="Only what has code for this GPU: gfx1100, or a product."
)
@click.option("--python", metavar="VERSION", help="Only what is there for this Python (3.12, 3.14t).")
@click.option("--platform", type=click.Choice(["linux", "windows"]), help="Only this platform.")
@click.option(
    "--channel",
    type=click.Choice(["stable", "prerelease", "nightly", "dev", "all"]),
    default="stable",
    show_default=True,
    help="Releases, or builds of another kind.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the rows as JSON.")
def matrix(
    *,
    torch: str | None,
    rocm: str | None,
    gpu: str | None,
    python: str | None,
    platform: str | None,
    channel: str,
    as_json: bool,
) -> None:
    """Show which torch exists for which ROCm, GPU, Python and platform, and how that is known.

    A build that nobody says anything of is not there; `compat explain` says what is not known.
    """
    from rocm_wheels.model.compat.builds import find_builds, list_rocm_versions, list_torch_versions

    target = None if gpu is None else read_gpu(gpu)
    builds = find_builds(
        None if torch is None else find_version(torch, "--torch", list_torch_versions()),
        None if rocm is None else find_version(rocm, "--rocm", list_rocm_versions()),
        target=target,
        python=None if python is None else read_python(python),
        platform=platform,
        channel=None if channel == "all" else channel,
    )
    header, rows = builds_as_rows(builds, target, platform)
    if not rows and not as_json:
        click.echo("no build of the tables fits; `rocm-wheels compat explain` says what is known")
        return
    _print_rows(header, rows, as_json, "builds")


def builds_as_rows(builds: tuple[TorchBuild, ...], target: str | None, platform: str | None) -> Rows:
    """Return header and rows: a build and platform a row; ``kind`` is of the target when one was given."""
    rows: list[tuple[str, ...]] = []
    for build in builds:
        for place, targets in build.targets.items():
            if platform not in {None, place} or (target and (place, target) not in build.kinds):
                continue
            rows.append(
                (
                    str(build.torch),
                    str(build.rocm),
                    place,
                    target or " ".join(targets),
                    " ".join(build.pythons),
                    build.index.name,
                    build.index.layout,
                    build.kinds[place, target] if target else build.kind,
                    build.index.url,
                    build.source.retrieved.isoformat(),
                    build.source.url,
                )
            )
    names = (
        "torch",
        "rocm",
        "platform",
        "gpu" if target else "targets",
        "pythons",
        "index",
        "layout",
        "kind",
    )
    return (*names, "url", "read", "source"), rows


def _load_rows(name: str) -> Rows:
    module, _, function = TABLES[name][0].partition(":")
    rows: Callable[[], Rows] = getattr(import_module(f"rocm_wheels.model.compat.{module}"), function)
    return rows()


def _print_rows(header: Sequence[str], rows: Sequence[tuple[str, ...]], as_json: bool, name: str) -> None:
    if as_json:
        import json

        document: dict[str, Any] = {name: rows_as_json(header, rows)}
        click.echo(json.dumps(document, indent=1))
    else:
        click.echo(format_table(header, rows, terminal_width()))
