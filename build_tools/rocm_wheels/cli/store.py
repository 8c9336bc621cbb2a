"""``store``: whether all that a store of releases holds is what it was, what repairs it, what is removed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rocm_wheels.cli import boundary, catalogue, command, evidence
from rocm_wheels.cli.options import (
    GivenPath,
    ReleaseKeys,
    open_memory,
    print_result,
)
from rocm_wheels.core import errors, log, progress, tables

if TYPE_CHECKING:
    from rocm_wheels.release import prune, store_check, store_repair
    from rocm_wheels.release.policy import RetentionPolicy

_MOST_ROWS = 40  # of the table; --json has all
_DIGEST_FOLDER = re.compile(r"/[0-9a-f]{2}/[0-9a-f]{64}/")
_MOST_ANNOTATIONS = 10  # GitHub shows so many of a step


@command.command("store fsck")
@click.argument("store", metavar="STORE", required=False)
@command.option("--hash", "hash_wheels", is_flag=True, help="Read every wheel and compare its SHA-256.")
@command.option("--repair", "is_repair", is_flag=True, help="Put right what can be; name what cannot.")
@command.option(
    "--from",
    "copies",
    type=GivenPath(file_okay=False),
    multiple=True,
    metavar="DIR",
    help="Folder with good wheels, for --repair. May be given several times.",
)
@catalogue.FAMILY
@catalogue.JOBS.but(default=4, show_default=True, help="Wheels read at a time.")
@catalogue.POLICY.but(
    help="What channels need, for --repair of what is known of sets [default: data/release_policy.yaml]."
)
@catalogue.takes(
    catalogue.take_release_keys,
    catalogue.LIST_CHECKS,
    catalogue.STORE_LAYOUT,
    catalogue.UNCONDITIONAL,
    catalogue.JSON,
)
def fsck_command(  # noqa: PLR0917 - click passes them by name
    store: str | None,
    hash_wheels: bool,
    is_repair: bool,
    copies: tuple[Path, ...],
    family: str | None,
    jobs: int,
    policy: Path | None,
    keys: ReleaseKeys,
    list_checks: bool,
    store_layout: Path | None,
    unconditional: bool,
    as_json: bool,
) -> None:
    """Compare all that STORE holds with its sets, and with what follows from them (exit code 15: damage).

    Files, pages, links, file names, documents of channels, evidence, support.json. Without --hash no wheel
    is read: one that is gone or cut short is found, not one with other bytes of the same size. --repair takes
    bytes from staging, the release area, another family or --from, only where their SHA-256 is right,
    and makes everything else anew. It never replaces a good file and removes nothing that it does not know.
    What is being staged or promoted meanwhile is a note, no damage.

    What channels show must be what was signed, by --released-by where that is named. Only with --sign-with is
    anything else made of it, and an old state that was put back is never signed.

    \b
    Examples:
      rocm-wheels store fsck s3://wheels
      rocm-wheels store fsck s3://wheels --hash --repair --from dist
    """
    from rocm_wheels.release import store_check, store_repair
    from rocm_wheels.release.layout import load_layout
    from rocm_wheels.release.policy import load_policy
    from rocm_wheels.stores.store import open_existing_store, require_conditional_writes

    if list_checks:
        print_result(
            store_check.STORE_CHECKS,
            tables.align_rows(list(store_check.STORE_CHECKS.items())),
            as_json=as_json,
        )
        return
    if store is None:
        raise errors.UsageError("no store was named", tip="for example: rocm-wheels store fsck s3://wheels")
    if copies and not is_repair:
        raise errors.UsageError("--from is for a repair", tip="add --repair")
    if missing := [str(folder) for folder in copies if not folder.is_dir()]:
        raise errors.UsageError(f"--from {missing[0]} is not a folder")
    env = boundary.read_environment()
    opened, layout = open_existing_store(store, env), load_layout(store_layout)
    check = store_check.StoreCheck(
        opened,
        layout,
        evidence.current_time(),
        hash_wheels=hash_wheels,
        jobs=jobs,
        families=None if family is None else (family,),
        on_hash=_show_progress,
        signers=keys.read_trusted(env),
        env=env,
        memory=open_memory(env),
    )
    begun = evidence.describe_origin("store fsck")
    try:
        if is_repair:
            require_conditional_writes(opened, unconditional=unconditional)
            signer = keys.make_signer(env, check.now)
            repairer = store_repair.StoreRepairer(
                check, load_policy(policy), evidence.name_user_and_host(), env, copies, signer
            )
            repair = repairer.repair()
        else:
            repair = store_repair.StoreRepair(check.run(), ())
    finally:
        progress.show_live_line("")
    if not repair.report.families:
        where = f"{opened.url} has no sets{f' of {family}' if family else ''}"
        raise errors.UsageError(where, tip="correct the address, --family or --store-layout")
    document = {**begun, "store": opened.url, **_convert_report(repair, hash_wheels=hash_wheels)}
    print_result(document, _format_report(repair, hash_wheels=hash_wheels), as_json=as_json)
    raise_damage(repair.report, store, is_repair=is_repair)


def raise_damage(report: store_check.StoreReport, store: str, *, is_repair: bool = False) -> None:
    """Raise ReleaseError where a store is damaged, and have GitHub show each damage beside the job."""
    if not report.errors:
        return
    if log.is_log_on_github():
        for finding in report.errors[:_MOST_ANNOTATIONS]:
            log.log_error(f"{finding.check}: {finding.subject}: {finding.message}")
    tips = [finding.tip for finding in report.errors if finding.tip]
    count = tables.format_count(len(report.errors), "damage stays", "damages stay")
    if is_repair:
        raise errors.ReleaseError(f"{count} in {store}", tip=tips[0] if tips else None)
    tip: str | None = f"`rocm-wheels store fsck {store} --repair` puts right what can be"
    if tips and not any(finding.remedy for finding in report.errors):
        tip = tips[0]
    raise errors.ReleaseError(
        f"{store} is damaged in {tables.format_count(len(report.errors), 'place')}", tip=tip
    )


def list_damage_lines(report: store_check.StoreReport) -> Iterator[str]:
    """Yield a line for each damage, as far as they are not too many."""
    for finding in report.errors[:_MOST_ROWS]:
        yield f"damage: {finding.check}: {_describe(finding)}"
    if len(report.errors) > _MOST_ROWS:
        yield f"… and {len(report.errors) - _MOST_ROWS} more: --json lists all"


def _show_progress(done: int, total: int) -> None:
    progress.show_live_line(f"hashing wheels: {tables.format_size(done)} of {tables.format_size(total)} …")


def _format_report(repair: store_repair.StoreRepair, *, hash_wheels: bool) -> Iterator[str]:
    report = repair.report
    rows = [(finding.check, "repaired", _describe(finding)) for finding in repair.repaired]
    rows += [
        (finding.check, "note" if finding.severity == "info" else "damage", _describe(finding))
        for finding in report.findings
    ]
    if rows:
        yield tables.format_table(("check", "is", "what"), rows[:_MOST_ROWS], width=tables.get_output_width())
    if len(rows) > _MOST_ROWS:
        yield f"… and {len(rows) - _MOST_ROWS} more: --json lists all"
    counts = (
        tables.format_count(report.sets, "set"),
        tables.format_count(report.files, "file"),
        tables.format_size(report.size),
    )
    read = f"{tables.format_size(report.hashed)} of wheels read" if hash_wheels else "no wheel read (--hash)"
    result = tables.format_count(len(report.errors), "damage", "damages") if report.errors else "no damage"
    yield f"{result}; {', '.join(counts)}; {read}"


def _describe(finding: store_check.StoreFinding) -> str:
    """Return where and what, for people: the folder that is called by a digest is left out."""
    return f"{_DIGEST_FOLDER.sub('/', finding.subject)}: {finding.message}"


def _convert_report(repair: store_repair.StoreRepair, *, hash_wheels: bool) -> dict[str, object]:
    """Return what ``--json`` prints. Keys are added in later versions, never renamed."""
    report = repair.report
    return {
        "families": list(report.families),
        "sets": report.sets,
        "files": report.files,
        "bytes": report.size,
        "hashed": report.hashed if hash_wheels else None,
        "damaged": bool(report.errors),
        "findings": convert_store_findings(report.findings),
        "repaired": convert_store_findings(repair.repaired),
    }


def convert_store_findings(findings: Sequence[store_check.StoreFinding]) -> list[dict[str, object]]:
    """Return findings as ``--json`` prints them."""
    return [
        {
            "check": finding.check,
            "severity": finding.severity,
            "path": finding.subject,
            "what": finding.message,
            "set": finding.set_id or None,
            "sha256": finding.sha256 or None,
            "tip": finding.tip or None,
        }
        for finding in findings
    ]


@command.command("store prune")
@click.argument("store", metavar="STORE")
@command.option(
    "--keep", type=click.IntRange(1), metavar="N", help="Keep the newest N sets of each torch line."
)
@command.option("--keep-for", metavar="AGE", help="Keep sets that are younger: 36h, 14d, 8w.")
@command.option(
    "--keep-passed-for", metavar="AGE", help="Keep sets that are younger and whose GPU tests passed."
)
@catalogue.FAMILY
@catalogue.POLICY.but(
    help="Whose `retention` counts where no option is given [default: data/release_policy.yaml]."
)
@catalogue.takes(catalogue.DRY_RUN, catalogue.STORE_LAYOUT, catalogue.UNCONDITIONAL, catalogue.JSON)
def prune_command(  # noqa: PLR0917 - click passes them by name
    store: str,
    keep: int | None,
    keep_for: str | None,
    keep_passed_for: str | None,
    family: str | None,
    policy: Path | None,
    dry_run: bool,
    store_layout: Path | None,
    unconditional: bool,
    as_json: bool,
) -> None:
    """Remove staged sets from STORE that neither a channel nor the policy needs.

    Nothing of the release area is touched, and no staged set that a channel shows, that a kept set was made
    from, or whose family has a set that is being staged (exit code 15). Of a set that goes stay its results,
    its log, the records of its file names, which are never given to other bytes, and a record of who pruned
    it when. A prune that was killed is finished by the same command.

    \b
    Examples:
      rocm-wheels store prune s3://wheels --dry-run
      rocm-wheels store prune s3://wheels --keep 3 --keep-for 7d --keep-passed-for 30d
    """
    from rocm_wheels.release import prune
    from rocm_wheels.release.layout import load_layout
    from rocm_wheels.release.policy import load_policy
    from rocm_wheels.stores.store import open_existing_store, require_conditional_writes

    chosen = {"keep": keep, "keep_for": keep_for, "keep_passed_for": keep_passed_for}
    retention = _choose_retention(load_policy(policy).retention, chosen)
    opened, layout = open_existing_store(store, boundary.read_environment()), load_layout(store_layout)
    pruner = prune.Pruner(opened, layout, retention, evidence.name_user_and_host(), evidence.current_time())
    families = [name for name in pruner.list_families() if family in {None, name}]
    if not families:
        where = f"{opened.url} has no staged sets{f' of {family}' if family else ''}"
        raise errors.UsageError(where, tip="correct the address, --family or --store-layout")
    if not dry_run:
        require_conditional_writes(opened, unconditional=unconditional)
    begun = evidence.describe_origin("store prune")
    plans = [pruner.plan(name) if dry_run else pruner.prune(name) for name in families]
    document = {**begun, "store": opened.url, "dry_run": dry_run, **_convert_plans(plans, pruner)}
    print_result(document, _format_plans(plans, dry_run=dry_run), as_json=as_json)
    blocked = [plan for plan in plans if plan.blocked]
    if blocked and not dry_run:
        raise errors.ReleaseError(
            f"nothing of {', '.join(plan.family for plan in blocked)} was pruned: {blocked[0].blocked}",
            tip="run it again when that is done; a set that was begun and given up counts for"
            f" `unfinished_for` ({pruner.retention.describe_unfinished()}) of the policy",
        )


def _choose_retention(retention: RetentionPolicy, chosen: Mapping[str, object]) -> RetentionPolicy:
    """Return what is kept: as options say, else the policy. Raises UsageError for no age."""
    from pydantic import ValidationError

    from rocm_wheels.release.policy import RetentionPolicy

    options = {name: value for name, value in chosen.items() if value is not None}
    try:
        checked = RetentionPolicy.model_validate(options)
    except ValidationError as wrong:
        error = wrong.errors()[0]
        name = str(error["loc"][0]).replace("_", "-")
        raise errors.UsageError(f"--{name} {error['input']}: {error['msg']}", tip="36h, 14d or 8w") from None
    return retention.model_copy(update={name: getattr(checked, name) for name in options})


def _format_plans(plans: Sequence[prune.PrunePlan], *, dry_run: bool) -> Iterator[str]:
    from rocm_wheels.release import prune, wheel_set

    rows = [
        (
            plan.family,
            document.id,
            prune.find_retention_line(document),
            wheel_set.find_set_platform(document),
            document.created[:10],
            tables.format_size(plan.freed[document.id]),
        )
        for plan in plans
        if not plan.blocked
        for document in plan.sets
    ]
    if rows:
        header = ("family", "set", "torch", "platform", "created", "frees")
        yield tables.format_table(header, rows, width=tables.get_output_width())
    for plan in plans:
        for set_id in plan.leftovers:
            yield f"{plan.family}: {set_id} was left by a prune that was killed"
        for set_id in plan.unfinished:
            yield f"{plan.family}: {set_id} is being staged"
        if plan.blocked and dry_run:
            yield f"{plan.family}: nothing would go now: {plan.blocked}"
    kept = sum(len(plan.kept) for plan in plans)
    freed = sum(plan.size for plan in plans if not plan.blocked)
    verb = "would go" if dry_run else "pruned"
    yield (
        f"{tables.format_count(len(rows), 'set')} {verb}, {tables.format_size(freed)} of wheels;"
        f" {tables.format_count(kept, 'set')} kept (--json says why)"
    )


def _convert_plans(plans: Sequence[prune.PrunePlan], pruner: prune.Pruner) -> dict[str, object]:
    """Return what ``--json`` prints. Keys are added in later versions, never renamed."""
    return {
        "retention": pruner.retention.describe(),
        "freed": sum(plan.size for plan in plans if not plan.blocked),
        "families": [
            {
                "family": plan.family,
                "blocked": plan.blocked,
                "sets": [
                    {"set": document.id, "created": document.created, "freed": plan.freed[document.id]}
                    for document in plan.sets
                ],
                "kept": [{"set": item.set_id, "why": item.reason} for item in plan.kept],
                "unfinished": list(plan.unfinished),
                "leftovers": list(plan.leftovers),
            }
            for plan in plans
        ],
    }
