"""``rocm-wheels evidence``: what was found out about a staged set: written down, listed, shown."""

from __future__ import annotations

import getpass
import json
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from rocm_wheels import log
from rocm_wheels.cli.boundary import read_environment
from rocm_wheels.cli.paths import GivenPath
from rocm_wheels.cli.store_options import layout_option
from rocm_wheels.errors import UsageError
from rocm_wheels.words import format_count

if TYPE_CHECKING:
    from rocm_wheels.release.evidence import Evidence
    from rocm_wheels.release.evidence_given import EvidenceSubmission
    from rocm_wheels.release.evidence_store import StoredEvidence
    from rocm_wheels.release.layout import StoreLayout
    from rocm_wheels.release.sets import SetDocument
    from rocm_wheels.stores.store import Store

F = TypeVar("F", bound=Callable[..., Any])
_HELP = """What was found out about the wheels of a set, by whom, when and on what machine.

Evidence lies beside the set in its STORE. It is tied to the sha256 of the wheels, is only ever added, and
`rocm-wheels gate` judges a set by it.
"""


@click.group("evidence", help=_HELP)
def group() -> None:
    """Hold the commands about evidence."""


@dataclass(frozen=True)
class ChosenSet:
    """Which set is meant, as options say it."""

    store: str
    set_id: str
    family: str | None
    layout: Path | None

    def open_set(self) -> tuple[Store, StoreLayout, SetDocument]:
        """Open the store and return it, its layout, and the set. Raises ReleaseError when there is none."""
        from rocm_wheels.release.layout import load_layout
        from rocm_wheels.release.sets import find_set
        from rocm_wheels.stores import open_existing_store

        store, layout = open_existing_store(self.store, read_environment()), load_layout(self.layout)
        return store, layout, find_set(store, self.set_id, family=self.family, layout=layout)


def set_options(function: F) -> F:
    """Add what says which set is meant: it comes as the first argument, a ``ChosenSet``."""

    @wraps(function)
    def with_set(
        store: str, set_id: str, family: str | None, layout: Path | None, **others: object
    ) -> object:
        return function(ChosenSet(store, set_id, family, layout), **others)

    family = "Family of the set, where several have its id."
    layout_option(with_set, "layout")
    for option in (
        click.option("--family", metavar="F", help=family),
        click.option("--set", "set_id", required=True, metavar="ID", help="The set, or how its id begins."),
        click.argument("store", metavar="STORE"),
    ):
        option(with_set)
    return cast(F, with_set)


def current_time() -> datetime:
    """Return the time, in UTC and whole seconds."""
    return datetime.now(timezone.utc).replace(microsecond=0)


def describe_origin(command: str) -> dict[str, str]:
    """Return what results say of themselves: by which command and version, and when (now, UTC)."""
    from rocm_wheels import __version__

    return {"tool": f"rocm-wheels {__version__} {command}", "when": current_time().isoformat()}


@group.command("add")
@set_options
@click.option(
    "--from",
    "results",
    type=GivenPath(),
    multiple=True,
    required=True,
    metavar="FILE",
    help="Results: of verify, resolve-check (--json), smoke-tests, torch-tests (a folder), or JUnit XML.",
)
@click.option(
    "--wheels",
    type=GivenPath(),
    multiple=True,
    metavar="PATH",
    help="Wheels that were tested (files or folders), for results that do not name them by hash.",
)
@click.option("--gfx", metavar="GFX", help="GPU target that tests ran on, where results do not say; or none.")
@click.option("--reports", type=click.IntRange(1), metavar="N", help="How many JUnit files there must be.")
@click.option("--host", metavar="NAME", help="Machine they ran on [default: the results', else this one].")
@click.option(
    "--host-kind",
    default="any",
    metavar="KIND",
    help="Which machines are alike: a failure on one is made good by passes on one of its kind.",
)
@click.option("--by", metavar="NAME", help="Who hands it in [default: GITHUB_ACTOR, else the user].")
@click.option("--when", metavar="TIME", help="When it was found [default: what results say, else the file].")
@click.option("--log", "log_url", default="", metavar="URL", help="Where its log is.")
@click.option("--sign-with", type=GivenPath(file_okay=True), metavar="KEY", help="Sign it: Ed25519 SSH key.")
@click.option("--json", "as_json", is_flag=True, help="Print what was written as JSON.")
def add(
    chosen: ChosenSet,
    results: tuple[Path, ...],
    wheels: tuple[Path, ...],
    sign_with: Path | None,
    as_json: bool,
    **said: Any,
) -> None:
    """Write results down beside their set, for good.

    A result must be about the wheels of the set, by their sha256. Failures are evidence, too: add them. JUnit
    reports that are truncated, empty or fewer than --reports are written down as what they are, no pass.
    The same result twice is one.
    """
    from rocm_wheels.release.evidence_sources import hash_wheels, read_results
    from rocm_wheels.release.evidence_store import add_evidence, add_failures_beside, require_own_evidence
    from rocm_wheels.release.signing import sign_evidence

    target, when = _parse_target(said["gfx"]), _parse_time(said["when"]) if said["when"] else None
    store, layout, document = chosen.open_set()
    origin = _make_origin(document, hash_wheels(wheels), said)
    entries = read_results(results, replace(origin, gfx=target, when=when))
    for entry in entries:
        require_own_evidence(document, entry)
    env = read_environment()
    sign = (
        (lambda entry: entry) if sign_with is None else (lambda entry: sign_evidence(entry, sign_with, env))
    )
    entries = add_failures_beside(store, layout, document, entries, sign)
    rows = [(entry, add_evidence(store, layout, document, entry)) for entry in entries]
    _warn_of_other_targets(document, entries)
    if as_json:
        listing = [{"id": entry.id, "new": new, **json.loads(entry.to_json())} for entry, new in rows]
        click.echo(json.dumps(listing, indent=1))
        return
    for entry, new in rows:
        _print_added(entry, new=new)


@group.command("list")
@set_options
@click.option("--policy", type=GivenPath(), help="Policy whose signers are looked for [default: our own].")
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
def list_(chosen: ChosenSet, policy: Path | None, as_json: bool) -> None:
    """List what is known of a set, oldest first."""
    document, entries = _read_evidence(chosen, policy)
    if as_json:
        click.echo(json.dumps([evidence_as_json(entry) for entry in entries], indent=1))
        return
    for entry in entries:
        click.echo(f"{entry.id}  {_describe_evidence(entry)}")
    if not entries:
        click.echo(f"nothing is known of {document.id}")


@group.command("show")
@set_options
@click.option("--policy", type=GivenPath(), help="Policy whose signers are looked for [default: our own].")
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
@click.argument("evidence", metavar="EVIDENCE")
def show(chosen: ChosenSet, policy: Path | None, as_json: bool, evidence: str) -> None:
    """Show one evidence, by its id or a part of it that only one has."""
    document, entries = _read_evidence(chosen, policy)
    matches = [entry for entry in entries if evidence in entry.id]
    if len(matches) != 1:
        count_text = f"{len(matches)} have" if matches else "none has"
        tip = f"`rocm-wheels evidence list {chosen.store} --set {document.id}` lists them"
        raise UsageError(
            f"of {len(entries)} evidence of {document.id} {count_text} {evidence} in its id", tip=tip
        )
    entry = matches[0]
    if as_json:
        click.echo(json.dumps(evidence_as_json(entry), indent=1))
        return
    names = {file.sha256: file.name for file in document.files}
    click.echo(f"{entry.id}\n  {_describe_evidence(entry)}")
    click.echo(f"  found by {entry.evidence.tool}, added {entry.evidence.added:%Y-%m-%d %H:%M} UTC")
    for line in filter(None, [entry.evidence.detail, entry.evidence.log]):
        click.echo(f"  {line}")
    for name in entry.evidence.failed:
        click.echo(f"  failed: {name}")
    for sha256 in entry.evidence.hashes:
        click.echo(f"  {sha256}  {names.get(sha256, 'not in the set')}")


def _warn_of_other_targets(document: SetDocument, entries: Sequence[Evidence]) -> None:
    """Say which results are of a GPU that the set is not for: ``--gfx`` may have been mistyped."""
    from rocm_wheels.release.gate.needed import list_set_targets

    set_targets = list_set_targets(document)
    for gfx in sorted({entry.gfx for entry in entries if entry.gfx} - set(set_targets)):
        log.log_warning(f"{document.id} is for {', '.join(set_targets)}: no rule asks for results on {gfx}")


def _read_evidence(chosen: ChosenSet, policy: Path | None) -> tuple[SetDocument, list[StoredEvidence]]:
    from rocm_wheels.release.evidence_store import read_all_evidence
    from rocm_wheels.release.gate.policy import load_policy

    signers = load_policy(policy).signers
    store, layout, document = chosen.open_set()
    return document, read_all_evidence(store, layout, document, signers=signers, env=read_environment())


def _make_origin(
    document: SetDocument, wheels: Mapping[str, str], options: Mapping[str, Any]
) -> EvidenceSubmission:
    from rocm_wheels.release.evidence_given import EvidenceSubmission

    return EvidenceSubmission(
        document=document,
        by=options["by"] or _find_submitter(),
        added=current_time(),
        here=platform.node() or "unknown",
        wheels=wheels,
        host=options["host"] or "",
        host_kind=options["host_kind"],
        log=options["log_url"],
        reports=options["reports"],
    )


def _describe_evidence(entry: StoredEvidence) -> str:
    from rocm_wheels.release.evidence import describe_evidence

    who = f", signed by {entry.signer}" if entry.signer else ""
    if entry.evidence.signature is not None and not entry.signer:
        who = f", signed: {entry.trouble or 'by nobody whom the policy lists'}"
    return f"{describe_evidence(entry.evidence)}, by {entry.evidence.by}{who}"


def evidence_as_json(entry: StoredEvidence) -> dict[str, object]:
    """Return an evidence as JSON shows it: what its file says, its id, who signed it, what is wrong."""
    document = json.loads(entry.evidence.to_json())
    return {"id": entry.id, "signer": entry.signer, "trouble": entry.trouble, **document}


def _print_added(evidence: Evidence, *, new: bool) -> None:
    from rocm_wheels.release.evidence import describe_evidence

    state = "" if new else " (was there already)"
    click.echo(
        f"{evidence.id}{state}  {describe_evidence(evidence)}, of {format_count(len(evidence.hashes), 'wheel')}"
    )
    for line in filter(None, [evidence.detail if not evidence.passed else "", *evidence.failed[:3]]):
        click.echo(f"  {line}")


def _parse_target(text: str | None) -> str | None:
    """Return a target as it is said. Raises UsageError for one that there is not."""
    from rocm_wheels.model.gfx import get_gfx_targets
    from rocm_wheels.records import suggest_name
    from rocm_wheels.release.evidence_given import NO_GPU_WORD

    if text is None or text == NO_GPU_WORD or text in get_gfx_targets():
        return text
    raise UsageError(
        f"--gfx: {text} is no GPU target{suggest_name(text, get_gfx_targets())}",
        tip="name one, as gfx942, or none",
    )


def _parse_time(text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise UsageError(f"--when: {text} is no time with its zone", tip="for example: 2026-11-21T18:00:00Z")
    return moment


def _find_submitter() -> str:
    env = read_environment()
    if env.get("GITHUB_ACTOR"):
        return env["GITHUB_ACTOR"]
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError) as cause:  # a user without a name, as in containers
        raise UsageError("nobody says who hands it in", tip="say it: --by NAME") from cause
