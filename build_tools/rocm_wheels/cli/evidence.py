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
from rocm_wheels.cli.boundary import environment
from rocm_wheels.cli.paths import GivenPath
from rocm_wheels.cli.store_options import layout_option
from rocm_wheels.errors import UsageError
from rocm_wheels.words import counted

if TYPE_CHECKING:
    from rocm_wheels.release.evidence import Evidence
    from rocm_wheels.release.evidence_given import Given
    from rocm_wheels.release.evidence_store import Known
    from rocm_wheels.release.layout import Layout
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

    def find(self) -> tuple[Store, Layout, SetDocument]:
        """Open the store and return it, its layout, and the set. Raises ReleaseError when there is none."""
        from rocm_wheels.release.layout import load_layout
        from rocm_wheels.release.sets import find_set
        from rocm_wheels.stores import open_existing

        store, layout = open_existing(self.store, environment()), load_layout(self.layout)
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


def now() -> datetime:
    """Return the time, in UTC and whole seconds."""
    return datetime.now(timezone.utc).replace(microsecond=0)


def found_by(what: str) -> dict[str, str]:
    """Return what results say of themselves: by which command and version, and when (now, UTC)."""
    from rocm_wheels import __version__

    return {"tool": f"rocm-wheels {__version__} {what}", "when": now().isoformat()}


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
    from rocm_wheels.release.evidence_sources import hashed, read_results
    from rocm_wheels.release.evidence_store import add_evidence, beside_failures, refuse_strangers
    from rocm_wheels.release.signing import signed

    target, when = _target(said["gfx"]), _moment(said["when"]) if said["when"] else None
    store, layout, document = chosen.find()
    given = _given(document, hashed(wheels), said)
    made = read_results(results, replace(given, gfx=target, when=when))
    for one in made:
        refuse_strangers(document, one)
    env = environment()
    sign = (lambda one: one) if sign_with is None else (lambda one: signed(one, sign_with, env))
    made = beside_failures(store, layout, document, made, sign)
    rows = [(one, add_evidence(store, layout, document, one)) for one in made]
    _warn_of_other_targets(document, made)
    if as_json:
        shown = [{"id": one.id, "new": new, **json.loads(one.to_json())} for one, new in rows]
        click.echo(json.dumps(shown, indent=1))
        return
    for one, new in rows:
        _print_added(one, new=new)


@group.command("list")
@set_options
@click.option("--policy", type=GivenPath(), help="Policy whose signers are looked for [default: our own].")
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
def list_(chosen: ChosenSet, policy: Path | None, as_json: bool) -> None:
    """List what is known of a set, oldest first."""
    document, known = _known(chosen, policy)
    if as_json:
        click.echo(json.dumps([evidence_json(one) for one in known], indent=1))
        return
    for one in known:
        click.echo(f"{one.id}  {_in_a_line(one)}")
    if not known:
        click.echo(f"nothing is known of {document.id}")


@group.command("show")
@set_options
@click.option("--policy", type=GivenPath(), help="Policy whose signers are looked for [default: our own].")
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
@click.argument("evidence", metavar="EVIDENCE")
def show(chosen: ChosenSet, policy: Path | None, as_json: bool, evidence: str) -> None:
    """Show one evidence, by its id or a part of it that only one has."""
    document, known = _known(chosen, policy)
    found = [one for one in known if evidence in one.id]
    if len(found) != 1:
        what = f"{len(found)} have" if found else "none has"
        tip = f"`rocm-wheels evidence list {chosen.store} --set {document.id}` lists them"
        raise UsageError(f"of {len(known)} evidence of {document.id} {what} {evidence} in its id", tip=tip)
    one = found[0]
    if as_json:
        click.echo(json.dumps(evidence_json(one), indent=1))
        return
    names = {file.sha256: file.name for file in document.files}
    click.echo(f"{one.id}\n  {_in_a_line(one)}")
    click.echo(f"  found by {one.evidence.tool}, added {one.evidence.added:%Y-%m-%d %H:%M} UTC")
    for line in filter(None, [one.evidence.detail, one.evidence.log]):
        click.echo(f"  {line}")
    for name in one.evidence.failed:
        click.echo(f"  failed: {name}")
    for sha256 in one.evidence.hashes:
        click.echo(f"  {sha256}  {names.get(sha256, 'not in the set')}")


def _warn_of_other_targets(document: SetDocument, made: Sequence[Evidence]) -> None:
    """Say which results are of a GPU that the set is not for: ``--gfx`` may have been mistyped."""
    from rocm_wheels.release.gate.needed import targets_of

    own = targets_of(document)
    for gfx in sorted({one.gfx for one in made if one.gfx} - set(own)):
        log.warn(f"{document.id} is for {', '.join(own)}: no rule asks for results on {gfx}")


def _known(chosen: ChosenSet, policy: Path | None) -> tuple[SetDocument, list[Known]]:
    from rocm_wheels.release.evidence_store import evidence_anywhere
    from rocm_wheels.release.gate.policy import load_policy

    signers = load_policy(policy).signers
    store, layout, document = chosen.find()
    return document, evidence_anywhere(store, layout, document, signers=signers, env=environment())


def _given(document: SetDocument, wheels: Mapping[str, str], said: Mapping[str, Any]) -> Given:
    from rocm_wheels.release.evidence_given import Given

    return Given(
        document=document,
        by=said["by"] or _who(),
        added=now(),
        here=platform.node() or "unknown",
        wheels=wheels,
        host=said["host"] or "",
        host_kind=said["host_kind"],
        log=said["log_url"],
        reports=said["reports"],
    )


def _in_a_line(known: Known) -> str:
    from rocm_wheels.release.evidence import describe

    who = f", signed by {known.signer}" if known.signer else ""
    if known.evidence.signature is not None and not known.signer:
        who = f", signed: {known.trouble or 'by nobody whom the policy lists'}"
    return f"{describe(known.evidence)}, by {known.evidence.by}{who}"


def evidence_json(known: Known) -> dict[str, object]:
    """Return an evidence as JSON shows it: what its file says, its id, who signed it, what is wrong."""
    said = json.loads(known.evidence.to_json())
    return {"id": known.id, "signer": known.signer, "trouble": known.trouble, **said}


def _print_added(evidence: Evidence, *, new: bool) -> None:
    from rocm_wheels.release.evidence import describe

    state = "" if new else " (was there already)"
    click.echo(f"{evidence.id}{state}  {describe(evidence)}, of {counted(len(evidence.hashes), 'wheel')}")
    for line in filter(None, [evidence.detail if not evidence.passed else "", *evidence.failed[:3]]):
        click.echo(f"  {line}")


def _target(text: str | None) -> str | None:
    """Return a target as it is said. Raises UsageError for one that there is not."""
    from rocm_wheels.model.gfx import gfx_targets
    from rocm_wheels.records import did_you_mean
    from rocm_wheels.release.evidence_given import NO_GPU

    if text is None or text == NO_GPU or text in gfx_targets():
        return text
    raise UsageError(
        f"--gfx: {text} is no GPU target{did_you_mean(text, gfx_targets())}",
        tip="name one, as gfx942, or none",
    )


def _moment(text: str) -> datetime:
    try:
        found = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        found = None
    if found is None or found.tzinfo is None:
        raise UsageError(f"--when: {text} is no time with its zone", tip="for example: 2026-11-21T18:00:00Z")
    return found


def _who() -> str:
    env = environment()
    if env.get("GITHUB_ACTOR"):
        return env["GITHUB_ACTOR"]
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError) as cause:  # a user without a name, as in containers
        raise UsageError("nobody says who hands it in", tip="say it: --by NAME") from cause
