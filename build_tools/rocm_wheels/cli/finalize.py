"""``rocm-wheels finalize``: a staged set with pre-release versions becomes one with final versions."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rocm_wheels import log
from rocm_wheels.cli.boundary import read_environment
from rocm_wheels.cli.evidence import ChosenSet, set_options
from rocm_wheels.cli.index_change import read_source_date
from rocm_wheels.cli.paths import GivenPath
from rocm_wheels.cli.stage import describe_staged
from rocm_wheels.cli.store_options import unconditional_option
from rocm_wheels.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rocm_wheels.release.finalizing.plan import FinalPlan
    from rocm_wheels.release.layout import FamilyPaths
    from rocm_wheels.stores import Store


@click.command("finalize")
@set_options
@click.option(
    "--to", multiple=True, metavar="PROJECT=V", help="The whole new version, where the rule is not meant."
)
@click.option("--keep", multiple=True, metavar="PROJECT", help="Have its wheels in the new set as they are.")
@click.option(
    "--rocm-version",
    "rocm",
    multiple=True,
    metavar="[OLD=]V",
    help="What the set's ROCm is called now (7.1.0 for 7.1.0rc1): labels and pins follow.",
)
@click.option(
    "--build-tag",
    "build",
    default="",
    metavar="TAG",
    help="Build tag of the new wheels, where an earlier set of the same version has their names: 1.",
)
@click.option(
    "--keep-targets",
    "--multi-arch-targets",
    "targets",
    default="",
    metavar="GFX,…",
    help="Leave out wheels for other GPUs alone, their extras, and requirements on them.",
)
@click.option(
    "--skip-version-promotion",
    "same_versions",
    is_flag=True,
    help="Keep all versions: only --keep-targets has an effect, and --build-tag names what is written anew.",
)
@click.option(
    "--output-dir",
    "output",
    type=GivenPath(file_okay=False),
    help="Copy the wheels of the new set there, to verify them [default: they are in the store alone].",
)
@click.option(
    "--work-dir",
    type=GivenPath(),
    help="Folder in which wheels are fetched and written; one for the set is made in it, and removed at the "
    "end [default: here].",
)
@unconditional_option
@click.option("--dry-run", is_flag=True, help="Print what becomes of each wheel, and write nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def finalize_command(  # noqa: PLR0917 - click passes them by name
    chosen: ChosenSet,
    to: tuple[str, ...],
    keep: tuple[str, ...],
    rocm: tuple[str, ...],
    build: str,
    targets: str,
    same_versions: bool,
    output: Path | None,
    work_dir: Path | None,
    unconditional: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Make a set with final versions out of a staged one with pre-releases.

    Every wheel of the set is written anew, or named with --keep: version, file name, folders, RECORD, pins
    between the wheels, and the versions that its Python files state. All else is copied as it is, and
    compared. The new set names the old one, has no evidence (its bytes are others), and goes through the gate
    like any other. A run that was killed is carried on by the same command.
    """
    from rocm_wheels.release.finalizing.finishing import finalize_set
    from rocm_wheels.release.finalizing.keeping import read_keep_list
    from rocm_wheels.release.finalizing.plan import plan_finalize
    from rocm_wheels.release.finalizing.versions import parse_finalize_request
    from rocm_wheels.release.layout import FamilyPaths
    from rocm_wheels.stores.probe import require_conditional_writes

    store, layout, document = chosen.open_set()
    places = FamilyPaths(layout, document.family)
    wishes = parse_finalize_request(document, to, keep, rocm, build)
    if targets.strip():
        wishes = replace(wishes, targets=read_keep_list(targets, document))
    if same_versions and (not wishes.targets or to or keep or rocm):
        raise UsageError(
            "--skip-version-promotion goes with --keep-targets, and with no option about versions",
            tip="leave --to, --keep and --rocm-version out",
        )
    plan = plan_finalize(store, places, document, replace(wishes, same_versions=same_versions))
    _warn_of_prerelease(plan)
    if dry_run:
        _print_final(plan, as_json, _list_changed_members(store, places, plan), {"dry_run": True})
        return
    require_conditional_writes(store, unconditional=unconditional)
    folder = (work_dir or Path.cwd()) / f"finalize-{document.id}"
    done = finalize_set(store, places, plan, folder, now=read_source_date(read_environment()), output=output)
    summary = {
        "set": done.plan.document.id,
        "version": done.plan.document.version,
        "index": store.url_of(done.plan.index),
        "new": done.staged.new,
        "sent": done.staged.sent,
        "had": done.staged.already_there,
        "bytes": done.staged.sent_bytes,
    }
    _print_final(plan, as_json, {wheel.change.file.name: wheel.members for wheel in done.wheels}, summary)


def _warn_of_prerelease(plan: FinalPlan) -> None:
    from packaging.version import Version

    for rocm in sorted(set(plan.renamed.values())):
        if Version(rocm).is_prerelease:
            log.log_warning(
                f"ROCm stays {rocm}, a pre-release; --rocm-version gives labels and pins its final name"
            )


def _list_changed_members(store: Store, places: FamilyPaths, plan: FinalPlan) -> Mapping[str, Sequence[str]]:
    """Return the members that change, where wheels are on this machine."""
    from rocm_wheels.release.finalizing.rewriting import list_changed_members

    if store.folder is None:
        return {}
    return {
        change.file.name: tuple(
            list_changed_members(
                store.folder / places.wheel_file(change.file.sha256, change.file.name), change
            )
        )
        for change in plan.changes
    }


def _print_final(
    plan: FinalPlan, as_json: bool, members: Mapping[str, Sequence[str]], summary: Mapping[str, Any]
) -> None:
    document = plan.document
    if as_json:
        wheels = [
            {
                "old": change.file.name,
                "new": change.name,
                "versions": [change.file.version, change.version],
                "requires": [list(pair) for pair in change.requires],
                "members": list(members[change.file.name]) if change.file.name in members else None,
                "kept": change.stays,
            }
            for change in plan.changes
        ]
        left_out = {"left_out": [file.name for file in plan.left_out]} if plan.left_out else {}
        click.echo(
            json.dumps(
                {"origin": document.id, "family": document.family, **summary, "wheels": wheels, **left_out},
                indent=1,
            )
        )
        return
    for file in plan.left_out:
        click.echo(f"{file.name} is left out")
    for change in plan.changes:
        click.echo(f"{change.file.name} {'stays' if change.stays else f'-> {change.name}'}")
        for old, new in change.requires:
            click.echo(f"  requires {old} -> {new}" if new else f"  no longer requires {old}")
        for name in members.get(change.file.name, ()):
            click.echo(f"  {name}")
    if summary.get("dry_run"):
        if not members:
            click.echo("which Python files state a version is seen when the wheels are fetched")
        click.echo(f"dry run: nothing was written; the new set would have {len(plan.changes)} wheels")
        return
    done, sent = describe_staged(summary)
    click.echo(f"{summary['set']} {done} in {document.family}, from {document.id}: {sent}")
    click.echo(f"index: {summary['index']}")
    click.echo("its bytes are others: what is known of the old set does not count, and the gate asks anew")
