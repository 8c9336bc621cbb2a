"""``rocm-wheels stage``: wheels become a set in a store."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rocm_wheels import log
from rocm_wheels.cli.boundary import read_environment
from rocm_wheels.cli.index_change import read_source_date
from rocm_wheels.cli.store_options import layout_option, unconditional_option

if TYPE_CHECKING:
    from rocm_wheels.release.sets import SetLayout
    from rocm_wheels.release.staging.plan import StagePlan
    from rocm_wheels.stores import Store

_FILE = click.Path(path_type=Path, exists=True, dir_okay=False)
_LAYOUT_NAMES = ("per-family", "multi-arch", "variants")
_MOST_CELLS = 10


@click.command("stage")
@click.argument("store", metavar="STORE")
@click.argument("wheels", nargs=-1, required=True, type=_FILE, metavar="WHEEL...")
@click.option(
    "--lock",
    "lock_files",
    required=True,
    multiple=True,
    type=_FILE,
    help="The lock that they were built from; for variants there may be several.",
)
@click.option(
    "--family",
    required=True,
    metavar="NAME",
    help="The GPU family that they are for, or multi-arch: wheels for all families (--layout multi-arch).",
)
@click.option(
    "--layout",
    type=click.Choice(_LAYOUT_NAMES),
    default="per-family",
    show_default=True,
    help="What kind of wheels they are: for one family, for all GPUs, or variants with labels.",
)
@click.option("--version", metavar="V", help="The version of the set, where no torch is in it.")
@click.option("--origin", metavar="ID", help="The set that these wheels were rewritten from.")
@layout_option
@unconditional_option
@click.option("--dry-run", is_flag=True, help="Read and check all, say what would be sent, and send nothing.")
@click.option(
    "--outputs",
    is_flag=True,
    help="Set `set` and `index` as outputs of the step of a workflow (GITHUB_OUTPUT): the index as it is seen"
    " from outside, if `refresh --public-url` said so.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def stage_command(  # noqa: PLR0917 - click passes them by name
    store: str,
    wheels: tuple[Path, ...],
    lock_files: tuple[Path, ...],
    family: str,
    layout: SetLayout,
    version: str | None,
    origin: str | None,
    store_layout: Path | None,
    unconditional: bool,
    dry_run: bool,
    outputs: bool,
    as_json: bool,
) -> None:
    """Make a set of WHEELs in STORE, a folder or URL (s3://bucket/prefix).

    The wheels are checked first: names, RECORD, targets of device code, the lock inside against --lock, and
    that requirements can be met. Variants that were built from several locks, one for each ROCm, are one set
    with several --lock; each wheel is of the one inside it. The set is visible when all of it is there and
    was compared; a run that was killed is carried on by the same command. A name that other bytes have is
    refused.
    """
    from rocm_wheels.release.layout import FamilyPaths, load_layout
    from rocm_wheels.release.overview import update_listing
    from rocm_wheels.release.sets import find_set
    from rocm_wheels.release.staging.plan import plan_stage
    from rocm_wheels.release.staging.sending import stage_set
    from rocm_wheels.sources.lock.file import read_lock
    from rocm_wheels.stores import open_store
    from rocm_wheels.stores.probe import require_conditional_writes

    if outputs and dry_run:
        raise click.UsageError(
            "--outputs and --dry-run exclude each other: nothing is staged that they could name"
        )
    env = read_environment()
    opened, locks = open_store(store, env), [read_lock(path) for path in lock_files]
    places = FamilyPaths(load_layout(store_layout), family)
    if origin is not None:
        origin = find_set(opened, origin, layout=places.layout).id
    plan = plan_stage(wheels, locks, paths=places, layout=layout, version=version, origin=origin)
    if dry_run:
        _print_staged(opened, plan, as_json, **_measure_unsent(opened, plan))
        return
    require_conditional_writes(opened, unconditional=unconditional)
    staged = stage_set(opened, plan, now=read_source_date(env))
    update_listing(opened, places)
    if outputs:
        _set_outputs(env, opened, plan)
    _print_staged(
        opened,
        plan,
        as_json,
        new=staged.new,
        sent=staged.sent,
        had=staged.already_there,
        bytes=staged.sent_bytes,
    )


def _measure_unsent(store: Store, plan: StagePlan) -> dict[str, Any]:
    from rocm_wheels.release.staging.sending import find_missing_files

    missing = find_missing_files(store, plan)
    return {
        "dry_run": True,
        "to_send": len(missing.files),
        "had": missing.already_there,
        "bytes": missing.size,
    }


def _set_outputs(env: Mapping[str, str], store: Store, plan: StagePlan) -> None:
    """Tell a workflow which set it is, and where people find it."""
    from rocm_wheels.ci.outputs import set_outputs
    from rocm_wheels.release.views.public import read_public

    index = read_public(store, plan.paths.layout).address_of(store, plan.index)
    set_outputs(env, {"set": plan.document.id, "index": index})


def _print_staged(store: Store, plan: StagePlan, as_json: bool, **figures: Any) -> None:
    document = plan.document
    if as_json:
        summary = {
            "set": document.id,
            "family": document.family,
            "version": document.version,
            "index": store.url_of(plan.index),
            "wheels": len(document.files),
            "planned": len(document.planned),
            "missing": [cell.model_dump() for cell in document.missing],
            "rocm": list(document.rocms),
            "without_lock": [wheel.file.name for wheel in plan.wheels if wheel.lock is None],
            **figures,
        }
        click.echo(json.dumps(summary, indent=1))
        return
    _warn_of_missing(plan)
    if figures.get("dry_run"):
        click.echo(
            f"would stage {document.id}: {figures['to_send']} files to send ({figures['bytes']:,} bytes)"
        )
        return
    done, sent = describe_staged(figures)
    click.echo(f"{document.id} {done} in {document.family}: {len(document.files)} wheels, {sent}")
    click.echo(f"index: {store.url_of(plan.index)}")


def describe_staged(figures: Mapping[str, Any]) -> tuple[str, str]:
    """Return whether a set was new to the store, and what was sent of it, in words."""
    done = "staged" if figures["new"] else "is staged already"
    return done, f"{figures['sent']} files sent ({figures['bytes']:,} bytes), {figures['had']} were there"


def _warn_of_missing(plan: StagePlan) -> None:
    document = plan.document
    if missing := document.missing:
        cells = "; ".join(map(str, missing[:_MOST_CELLS]))
        more = f"; and {len(missing) - _MOST_CELLS} more" if len(missing) > _MOST_CELLS else ""
        log.log_warning(f"{len(missing)} of {len(document.planned)} planned cells are missing: {cells}{more}")
    if unknown := [wheel.file.name for wheel in plan.wheels if wheel.lock is None]:
        which = "this lock" if len(document.sources) == 1 else "the only one that fits them"
        log.log_warning(f"{len(unknown)} wheels have no lock inside: that they are of {which} is your word")
