"""``store``: whether all that a store of releases holds is what it was, and what is removed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rocm_wheels.cli import boundary, catalogue, command, evidence
from rocm_wheels.cli.output import print_result
from rocm_wheels.core import errors, log, progress, tables

if TYPE_CHECKING:
    from rocm_wheels.release import fsck, prune

_MOST_ROWS = 40  # of the table; --json has all
_DIGEST_FOLDER = re.compile(r"/[0-9a-f]{64}/")
_MOST_ANNOTATIONS = 10  # GitHub shows so many of a step


@command.command("store fsck")
@click.argument("store", metavar="STORE")
@command.option("--hash", "hash_wheels", is_flag=True, help="Read every wheel and compare its SHA-256.")
@command.option("--repair", "is_repair", is_flag=True, help="Write wrong pages again.")
@catalogue.JSON
def fsck_command(store: str, hash_wheels: bool, is_repair: bool, as_json: bool) -> None:
    """Compare everything in STORE with its documents (exit code 15: damage).

    It checks that every file named by a document is there and right, and that every page follows from the
    documents; unknown files are named. Without --hash no wheel is read: it finds missing and truncated
    wheels, but not other bytes of the same size. To restore wheels, run `set stage` with the same wheels;
    `set refresh` makes pages of channels again.

    \b
    Examples:
      rocm-wheels store fsck s3://wheels
      rocm-wheels store fsck s3://wheels --hash --repair
    """
    from rocm_wheels.release import fsck, queries
    from rocm_wheels.stores.store import open_existing_store, require_conditional_writes

    opened = open_existing_store(store, boundary.read_environment())
    queries.require_families(opened)
    begun = evidence.describe_origin("store fsck")
    try:
        report = fsck.check_store(opened, hash_wheels=hash_wheels, on_hash=_show_progress)
        repaired: list[fsck.StoreFinding] = []
        if is_repair:
            require_conditional_writes(opened)
            repaired = fsck.repair_pages(opened, report)
    finally:
        progress.show_live_line("")
    document = {
        **begun,
        "store": opened.url,
        "families": list(report.families),
        "sets": report.sets,
        "files": report.files,
        "bytes": report.size,
        "hashed": report.hashed if hash_wheels else None,
        "damaged": bool(report.errors),
        "findings": convert_findings(report.findings),
        "repaired": convert_findings(repaired),
    }
    counts = (
        tables.format_count(report.sets, "set"),
        tables.format_count(report.files, "file"),
        tables.format_size(report.size),
    )
    read = f"{tables.format_size(report.hashed)} of wheels read" if hash_wheels else "no wheel read (--hash)"
    result = tables.format_count(len(report.errors), "damage", "damages") if report.errors else "no damage"
    lines = [*list_finding_lines(repaired, "repaired"), *list_finding_lines(report.findings)]
    print_result(document, [*lines, f"{result}; {', '.join(counts)}; {read}"], as_json=as_json)
    if report.errors:
        if log.is_log_on_github():  # shown beside the job
            for finding in report.errors[:_MOST_ANNOTATIONS]:
                log.log_error(f"{finding.check}: {finding.path}: {finding.message}")
        raise make_damage_error(report, store)


def make_damage_error(report: fsck.StoreReport, store: str) -> errors.ReleaseError:
    """Return the error of a store that is damaged, with what mends it first."""
    count = tables.format_count(len(report.errors), "place")
    if all(finding.content is not None for finding in report.errors):
        tip = f"`rocm-wheels store fsck {store} --repair` writes the pages again"
    else:
        tip = "`rocm-wheels set stage` with the same wheels sends what is gone; documents come from a copy"
    return errors.ReleaseError(f"{store} is damaged in {count}", tip=tip)


def list_finding_lines(findings: Sequence[fsck.StoreFinding], word: str = "") -> list[str]:
    """Return a line a finding, as far as they are not too many; ``word``: what it is, in place of damage."""
    lines = []
    for finding in findings[:_MOST_ROWS]:
        path = _DIGEST_FOLDER.sub("/", finding.path)  # people need not see by what a folder is called
        kind = word or ("damage" if finding.is_error else "note")
        lines.append(f"{kind}: {finding.check}: {path}: {finding.message}")
    if len(findings) > _MOST_ROWS:
        lines.append(f"… and {len(findings) - _MOST_ROWS} more: --json lists all")
    return lines


def _show_progress(done: int, total: int) -> None:
    progress.show_live_line(f"hashing wheels: {tables.format_size(done)} of {tables.format_size(total)} …")


def convert_findings(findings: Sequence[fsck.StoreFinding]) -> list[dict[str, object]]:
    """Return findings as ``--json`` prints them. Keys are added in later versions, never renamed."""
    return [
        {
            "check": finding.check,
            "severity": "error" if finding.is_error else "info",
            "path": finding.path,
            "what": finding.message,
        }
        for finding in findings
    ]


@command.command("store prune")
@click.argument("store", metavar="STORE")
@catalogue.POLICY.but(help="Policy whose `retention` says what stays [default: data/release_policy.yaml].")
@catalogue.takes(catalogue.DRY_RUN, catalogue.JSON)
def prune_command(store: str, policy: Path | None, dry_run: bool, as_json: bool) -> None:
    """Remove from STORE the sets that neither a channel nor the policy needs, and files that no set names.

    A set that a channel or view shows stays, and so do the results of removed sets. Files that no set names
    go once they are older than staging may take (`unfinished_for` of the policy). After a kill, run the same
    command again.

    \b
    Examples:
      rocm-wheels store prune s3://wheels --dry-run
      rocm-wheels store prune s3://wheels --policy release-policy.yaml
    """
    from rocm_wheels.release import prune, queries
    from rocm_wheels.release.policy import load_policy
    from rocm_wheels.stores.store import open_existing_store, require_conditional_writes

    retention = load_policy(policy).retention
    opened = open_existing_store(store, boundary.read_environment())
    families = queries.require_families(opened)
    if not dry_run:
        require_conditional_writes(opened)
    pruner = prune.Pruner(opened, retention, evidence.current_time())
    begun = evidence.describe_origin("store prune")
    plans = [pruner.plan(name) if dry_run else pruner.prune(name) for name in families]
    document = {
        **begun,
        "store": opened.url,
        "dry_run": dry_run,
        "retention": retention.describe(),
        "freed": sum(plan.size for plan in plans),
        "families": [
            {
                "family": plan.family,
                "sets": [
                    {"set": document.id, "created": document.created, "freed": plan.freed[document.id]}
                    for document in plan.sets
                ],
                "kept": [{"set": set_id, "why": reason} for set_id, reason in plan.kept.items()],
                "files": list(plan.files),
            }
            for plan in plans
        ],
    }
    print_result(document, _format_plans(plans, dry_run=dry_run), as_json=as_json)


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
        for document in plan.sets
    ]
    if rows:
        header = ("family", "set", "line", "platform", "created", "frees")
        yield tables.format_table(header, rows, width=tables.get_output_width())
    kept = sum(len(plan.kept) for plan in plans)
    unnamed = tables.format_count(sum(len(plan.files) for plan in plans), "file")
    verb = "would go" if dry_run else "pruned"
    yield (
        f"{tables.format_count(len(rows), 'set')} {verb}, {tables.format_size(sum(p.size for p in plans))} of"
        f" wheels, and {unnamed} of no set; {tables.format_count(kept, 'set')} kept (--json says why)"
    )
