"""``stage``: wheels become a set in a store."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from rocm_wheels.cli import boundary, catalogue, command, options, output
from rocm_wheels.cli.index import read_source_date
from rocm_wheels.core import errors, log, tables

if TYPE_CHECKING:
    from rocm_wheels.release import stage, wheel_set

_LAYOUT_NAMES = ("per-family", "multi-arch", "variants")


@command.command("set stage")
@click.argument("store", metavar="STORE")
@click.argument("wheels", nargs=-1, required=True, type=options.RegularFile(), metavar="WHEEL...")
@catalogue.LOCK.but(
    name="lock_files",
    required=True,
    multiple=True,
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="The lock that the wheels were built from; several for variants.",
)
@catalogue.FAMILY.but(
    required=True,
    help="The wheels' GPU family, or multi-arch: wheels for all families.",
)
@catalogue.LAYOUT.but(
    type=click.Choice(_LAYOUT_NAMES),
    help="The kind of wheels: for one family, for all GPUs, or variants with labels."
    "  [default: --family, where it is multi-arch or variants, else per-family]",
)
@catalogue.takes(catalogue.DRY_RUN)
@catalogue.JSON
def stage_command(  # noqa: PLR0917 - click passes them by name
    store: str,
    wheels: tuple[Path, ...],
    lock_files: tuple[Path, ...],
    family: str,
    layout: wheel_set.SetLayout | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Make a set of WHEELs in STORE, a folder or URL (s3://bucket/prefix).

    The wheels are checked first: names, RECORD, targets of device code, whether the lock inside is --lock,
    and whether requirements can be met. A set without torch may need one, which the channel is to have.
    Variants built from several locks, one for each ROCm, are one set: repeat --lock. The set becomes visible
    when all of it is stored and compared. After a kill, run the same command again. What `set promote` would
    refuse at present (a name that belongs to other bytes, wheels that installers would mix) is a warning.

    \b
    Examples:
      rocm-wheels set stage s3://wheels dist/*.whl --lock set.lock --family gfx110X-all
    """
    from rocm_wheels.ci import matrix_report
    from rocm_wheels.release import channel as channels
    from rocm_wheels.release import next_step, stage, support
    from rocm_wheels.release.store_paths import FamilyPaths
    from rocm_wheels.sources import lock
    from rocm_wheels.stores.folder import find_private_mode
    from rocm_wheels.stores.store import open_store, require_conditional_writes, size_of_content

    env = boundary.read_environment()
    opened, locks = open_store(store, env), [lock.read_lock(path) for path in lock_files]
    plan = stage.plan_stage(
        wheels,
        locks,
        paths=FamilyPaths(family),
        layout=layout or stage.find_usual_layout(family),
    )
    document = plan.document
    facts: dict[str, object] = {
        "set": document.id,
        "family": document.family,
        "version": document.version,
        "index": opened.url_of(plan.index),
        "wheels": len(document.files),
        "planned": len(document.planned),
        "missing": document.missing,
        "rocm": document.rocms,
        "without_lock": plan.list_unlocked(),
        "needs": plan.list_needs(),
    }
    if dry_run:
        unsent = stage.find_missing_files(opened, plan)
        size, had = sum(map(size_of_content, unsent.values())), len(plan.list_files()) - len(unsent)
        facts |= {"dry_run": True, "to_send": len(unsent), "had": had, "bytes": size}
        done, sent, last = "would be staged", f"{tables.format_count(len(unsent), 'file')} to send", []
    else:
        matrix_report.require_output_file(env)
        require_conditional_writes(opened)
        staged = stage.stage_set(opened, plan, now=read_source_date(env))
        refusing: dict[str, list[str]] = {}
        public = support.read_public(opened)
        refused = channels.find_refusals(opened, staged.document, other_indexes=public.other_indexes)
        for name, refusals in refused.items():
            for message, tip in map(errors.split_explanation, refusals[:1]):  # as promoting says
                refusing.setdefault(f"{message}; {tip}" if tip else message, []).append(name)
        for reason, names in refusing.items():
            log.log_warning(
                f"`set promote` to {', '.join(names)} will refuse this set as things are: {reason}"
            )
        if opened.folder is not None and (mode := find_private_mode(opened.folder)):
            log.log_warning(
                f"{opened.folder} is for its owner alone (mode {mode}): a web server of another user cannot"
                f" read it\ntip: chmod -R go+rX {opened.folder}; what is made in it later follows"
            )
        index = public.address_of(opened, plan.index)
        matrix_report.set_outputs(env, {"set": document.id, "index": index})
        step = next_step.CommandWords(store).format_line("set check", document.id)
        facts |= {"new": staged.new, "sent": staged.sent, "had": staged.already_there}
        facts |= {"bytes": staged.sent_bytes, "next": step}
        size, had, sent = staged.sent_bytes, staged.already_there, tables.format_count(staged.sent, "file")
        done, sent = "staged" if staged.new else "already staged", f"{sent} sent"
        last = [f"index: {opened.url_of(plan.index)}", f"next: {step}"]
    if not as_json:
        _warn_of_missing(plan)
    counts = f"{tables.format_count(len(document.files), 'wheel')}, {sent} ({tables.format_size(size)})"
    line = f"{document.id} {done} in {document.family}: {counts}, {had} already there"
    needs = [f"needs: {', '.join(needed)}, of another set"] if (needed := plan.list_needs()) else []
    output.print_result(facts, [line, *needs, *last], as_json=as_json)


def _warn_of_missing(plan: stage.StagePlan) -> None:
    from rocm_wheels.release import verdict, verdict_text

    document = plan.document
    if cells := tuple(map(str, document.missing)):
        missing = verdict.reason("missing-cells", cells=cells, planned=len(document.planned))
        log.log_warning(verdict_text.describe_reason(missing))  # as the gate will say
    if unknown := plan.list_unlocked():
        which = "this lock" if len(document.locks) == 1 else "the only one that fits them"
        log.log_warning(
            f"{tables.format_count(len(unknown), 'wheel')} without a lock inside: "
            f"recorded as built from {which} on your word"
        )
