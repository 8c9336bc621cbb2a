"""``evidence`` and ``gate``: results of a staged set recorded and listed, and the set judged by them."""

from __future__ import annotations

import contextlib
import json
import platform
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rocm_wheels.cli import boundary, catalogue
from rocm_wheels.cli.command import command, group, option
from rocm_wheels.cli.options import GivenPath
from rocm_wheels.cli.output import format_facts, print_result
from rocm_wheels.core import errors, tables, user_folders
from rocm_wheels.core.log import log_warning

if TYPE_CHECKING:
    from rocm_wheels.release import verdict, wheel_set
    from rocm_wheels.release.evidence.evidence import Evidence, EvidenceSubmission
    from rocm_wheels.release.evidence.store import StoredEvidence
    from rocm_wheels.release.policy import Policy
    from rocm_wheels.stores.store import Store


_MOST_RESULTS = 4  # results, and failed tests of each, that are shown


@group("set evidence")
def evidence_group() -> None:
    """Add results about the wheels of a set: by whom, when and on what machine.

    Evidence is stored beside the set, is about the sha256 of its wheels, and is only ever added. `rocm-wheels
    set gate` judges a set by it; `rocm-wheels set show` lists it.
    """


set_options = catalogue.takes(click.argument("store", metavar="STORE"), catalogue.SET.but(required=True))


def open_set(place: str, set_id: str) -> tuple[Store, wheel_set.SetDocument]:
    """Open a store and return it with a set. Raises ReleaseError when there is none."""
    from rocm_wheels.release import wheel_set
    from rocm_wheels.stores.store import open_existing_store

    store = open_existing_store(place, boundary.read_environment())
    return store, wheel_set.find_set(store, set_id)


def current_time() -> datetime:
    """Return the time, in UTC and whole seconds."""
    return datetime.now(timezone.utc).replace(microsecond=0)


def name_user_and_host() -> str:
    """Return who changes a channel, as it will say: the user, and the machine."""
    return f"{user_folders.find_user_name(boundary.read_environment())}@{platform.node() or 'unknown'}"


def describe_origin(command: str) -> dict[str, str]:
    """Return what results say of themselves: by which command and version, and when (now, UTC)."""
    from rocm_wheels import __version__

    return {"tool": f"rocm-wheels {__version__} {command}", "when": current_time().isoformat()}


def try_key(sign_with: Path | None) -> None:
    """Sign something with the key, so that one that cannot sign ends a command before its work is done."""
    from rocm_wheels.core import ssh_signature
    from rocm_wheels.release.evidence import store

    if sign_with is not None:
        env = boundary.read_environment()
        ssh_signature.sign_content(b"can it sign?\n", sign_with, store.SIGNATURE_NAMESPACE, env)


def submit(
    store: Store,
    document: wheel_set.SetDocument,
    entries: Sequence[Evidence],
    sign_with: Path | None,
    *,
    as_json: bool,
    faults: bool = True,
) -> None:
    """Sign evidence and write it down beside its set; say what was done, and (``faults``) what failed."""
    from rocm_wheels.release import wheel_set
    from rocm_wheels.release.evidence import evidence
    from rocm_wheels.release.evidence import store as evidence_store

    entries = _prepare(store, document, entries, sign_with)
    rows = [(entry, evidence_store.add_evidence(store, document, entry)) for entry in entries]
    set_targets = wheel_set.list_set_targets(document)
    for gfx in sorted({entry.gfx for entry in entries if entry.gfx} - set(set_targets)):  # mistyped, perhaps
        log_warning(f"{document.id} is for {', '.join(set_targets)}: no rule asks for results on {gfx}")
    listing = [{"id": entry.id, "new": new, **json.loads(entry.to_json())} for entry, new in rows]
    lines = []
    for entry, new in rows:
        count = tables.format_count(len(entry.hashes), "wheel")
        state = "" if new else " (was there already)"
        lines.append(f"{entry.id}{state}  {evidence.describe_evidence(entry)}, of {count}")
        failed = (entry.detail if not entry.passed else "", *entry.failed[:_MOST_RESULTS])
        lines += [f"  {line}" for line in failed if line and faults]
    print_result(listing, lines, as_json=as_json)


def _prepare(
    store: Store, document: wheel_set.SetDocument, entries: Sequence[Evidence], sign_with: Path | None
) -> Sequence[Evidence]:
    """Return evidence signed. Raises where it may not be added."""
    from rocm_wheels.release.evidence import store as evidence_store

    for entry in entries:
        evidence_store.require_own_evidence(document, entry)
    if any(entry.signature is None for entry in entries):
        evidence_store.refuse_reused_results(store, document, entries)
    if sign_with is None:
        return entries
    env = boundary.read_environment()
    return [evidence_store.sign_evidence(entry, sign_with, env) for entry in entries]


@evidence_group.command("set evidence add", apart=[("--sign-with", "--write-payloads", "--attestation")])
@set_options
@option(
    "--from",
    "results",
    type=GivenPath(),
    multiple=True,
    required=True,
    metavar="FILE",
    help="Results: of `test smoke` or `test torch` (a file, or their folder), of `set check`, or JUnit XML.",
)
@catalogue.WHEELS.but(help="Tested wheels (files or folders), for results that do not name them by hash.")
@catalogue.GFX.but(
    name="gfx", metavar="GFX", help="GPU target that tests ran on, if results do not say; or none."
)
@option("--reports", type=click.IntRange(1), metavar="N", help="How many JUnit files there must be.")
@catalogue.SUITE.but(
    type=click.Choice(["default", "full", "distributed", "inductor"]),
    help="Suite of torch's tests of the JUnit files.  [default: none named, which counts as default]",
)
@option(
    "--host-kind",
    default="any",
    metavar="KIND",
    help="A name for machines of one kind: passes on one of them cancel a failure on another.",
)
@option(
    "--attestation",
    type=GivenPath(file_okay=True),
    metavar="BUNDLE",
    help="A Sigstore bundle about the payloads that --from names: GitHub's artifact attestation.",
)
@catalogue.SIGN_WITH
@option(
    "--write-payloads",
    type=GivenPath(),
    metavar="DIR",
    help="Add nothing: write payloads for an attestation into DIR, a file for each result.",
)
@catalogue.JSON
def add(  # noqa: PLR0917 - click passes them by name
    store: str,
    set_id: str,
    results: tuple[Path, ...],
    wheels: tuple[Path, ...],
    gfx: str | None,
    suite: str | None,
    attestation: Path | None,
    sign_with: Path | None,
    write_payloads: Path | None,
    as_json: bool,
    **said: Any,
) -> None:
    """Store results beside their set, permanently.

    A result must be about the wheels of the set, by their sha256. Failures are evidence too: add them. JUnit
    reports that are truncated, empty or fewer than --reports are stored, but are no pass. Adding a result
    twice changes nothing.

    \b
    Examples:
      rocm-wheels set evidence add s3://wheels --set 2.9.1-93bf --from results --gfx gfx942
    """
    from rocm_wheels.models.gfx import parse_single_target
    from rocm_wheels.release.evidence import store as evidence_store
    from rocm_wheels.release.evidence.evidence import NO_GPU_WORD
    from rocm_wheels.release.evidence.results import hash_wheels, read_results

    target = gfx if gfx in (None, NO_GPU_WORD) else parse_single_target(gfx)
    opened, document = open_set(store, set_id)
    if attestation is not None:
        attested = evidence_store.read_attested(results, attestation, current_time())
        submit(opened, document, attested, None, as_json=as_json)
        return
    submission = replace(
        make_submission(document),
        wheels=hash_wheels(wheels),
        gfx=target,
        suite=suite or "",
        **said,
    )
    entries = read_results(results, submission)
    if write_payloads is None:
        submit(opened, document, entries, sign_with, as_json=as_json)
        return
    for path in evidence_store.write_payloads(_prepare(opened, document, entries, None), write_payloads):
        click.echo(str(path))


@command("set show")
@set_options
@click.argument("evidence", metavar="[EVIDENCE]", default="")
@catalogue.POLICY.but(help="Policy with the signers to look for [default: ours].")
@catalogue.JSON
def show_set(store: str, set_id: str, evidence: str, policy: Path | None, as_json: bool) -> None:
    """Show a staged set: its sources, index, wheels and evidence, oldest first.

    With EVIDENCE (an id or a unique part of one), show that in full. In a workflow, it also sets the outputs
    `set`, `family`, `index`, `layout`, `line`, `platform`, `pythons` and `rocm`.

    \b
    Examples:
      rocm-wheels set show s3://wheels --set 2.9.1-93bf
      rocm-wheels set show s3://wheels --set 2.9.1-93bf 1f3c
    """
    from rocm_wheels.ci import matrix_report
    from rocm_wheels.models import tested_machine
    from rocm_wheels.release.evidence.store import read_evidence
    from rocm_wheels.release.policy import load_policy

    opened, document = open_set(store, set_id)
    env = boundary.read_environment()
    entries = read_evidence(opened, document, signers=load_policy(policy).signers, env=env)
    if evidence:
        entry = _find_evidence(store, document, entries, evidence)
        shown = evidence_as_json(entry)
        names = {file.sha256: file.name for file in document.files}
        hashes = [f"{sha256}  {names.get(sha256, 'not in the set')}" for sha256 in entry.evidence.hashes]
        tested = entry.evidence.machine
        machine_lines = tested_machine.describe_machine(tested) if tested else []
        told = {**shown, "hashes": hashes, "machine": machine_lines}
        print_result(shown, format_facts(told), as_json=as_json)
        return
    facts: dict[str, Any] = _list_facts(opened, document)
    matrix_report.set_outputs(env, {name: text for name, text in facts.items() if text is not None})
    facts |= {"line": facts["line"] or "", "created": document.created}
    wheels = [{"name": file.name, "sha256": file.sha256, "size": file.size} for file in document.files]
    shown = {name: text or "unknown" for name, text in facts.items()}
    shown["wheels"] = [file.name for file in document.files]
    shown["evidence"] = [f"{entry.id}  {_describe_evidence(entry)}" for entry in entries] or "none"
    listed = [evidence_as_json(entry) for entry in entries]
    print_result({**facts, "wheels": wheels, "evidence": listed}, format_facts(shown), as_json=as_json)


def _list_facts(store: Store, document: wheel_set.SetDocument) -> dict[str, str | None]:
    """Return what a set is of. A lock that cannot be read is a warning, and its line None."""
    from rocm_wheels.release import support, wheel_set
    from rocm_wheels.release.store_paths import FamilyPaths

    try:
        line = wheel_set.read_set_lock(store, document, document.locks[0]).line or ""
    except (errors.DataError, errors.ReleaseError) as unreadable:
        log_warning(str(unreadable))
        line = None
    pythons = {python for file in document.files for python in wheel_set.list_wheel_pythons(file.name)}
    return {
        "set": document.id,
        "family": document.family,
        "index": support.read_public(store).address_of(
            store, f"{FamilyPaths(document.family).set_index(document.id)}/"
        ),
        "layout": document.layout,
        "line": line,
        "platform": wheel_set.find_set_platform(document),
        "pythons": " ".join(sorted(pythons, key=lambda python: int(python[2:].rstrip("t")))),
        "rocm": document.rocms[0] if document.rocms else "",
    }


def _find_evidence(
    store: str, document: wheel_set.SetDocument, entries: Sequence[StoredEvidence], part: str
) -> StoredEvidence:
    matches = [entry for entry in entries if part in entry.id]
    if len(matches) != 1:
        found = "no result has" if not matches else f"{len(matches)} results have"
        tip = f"`rocm-wheels set show {store} --set {document.id}` lists them"
        raise errors.UsageError(f"{document.id}: {found} {part} in the id", tip=tip)
    return matches[0]


def make_submission(document: wheel_set.SetDocument) -> EvidenceSubmission:
    """Return what is said beside results that are handed in now, here, by GITHUB_ACTOR or the user."""
    from rocm_wheels.release.evidence.evidence import EvidenceSubmission

    env = boundary.read_environment()
    return EvidenceSubmission(
        document=document,
        by=env.get("GITHUB_ACTOR") or user_folders.find_user_name(env),
        added=current_time(),
        here=platform.node() or "unknown",
    )


def _describe_evidence(entry: StoredEvidence) -> str:
    """Return an evidence in a line: what came of what, when, where, and who says so."""
    from rocm_wheels.release.evidence.evidence import describe_evidence

    who = f", signed by {entry.signer}" if entry.signer else ""
    if entry.evidence.signature is not None and not entry.signer:
        who = f", signed: {entry.trouble or 'by no signer that the policy lists'}"
    return f"{describe_evidence(entry.evidence)}, by {entry.evidence.by}{who}"


def evidence_as_json(entry: StoredEvidence) -> dict[str, object]:
    """Return an evidence as JSON shows it: what its file says, its id, who signed it, what is wrong."""
    document = json.loads(entry.evidence.to_json())
    return {"id": entry.id, "signer": entry.signer, "trouble": entry.trouble, **document}


@command("set gate")
@set_options
@catalogue.CHANNEL.but(required=True)
@catalogue.POLICY
@option(
    "--explain",
    is_flag=True,
    help="Print every rule with its evidence, what the channel would refuse, and the next command.",
)
@option(
    "--outputs",
    is_flag=True,
    help="Set the output `passed` (GITHUB_OUTPUT) to true or false; a blocked set is then no failure.",
)
@catalogue.JSON
def gate_command(  # noqa: PLR0917 - click passes them by name
    store: str,
    set_id: str,
    channel: str,
    policy: Path | None,
    explain: bool,
    outputs: bool,
    as_json: bool,
) -> None:
    """Judge by its evidence whether a staged set may go to a channel.

    It prints first what blocks the set. --explain also shows what `set promote` would refuse: names with
    other bytes, wheels that installers would mix with those of other sets. The exit code is 15 if the set is
    blocked, with what to do next. Nothing is changed.

    \b
    Examples:
      rocm-wheels set gate s3://wheels --set 2.9.1-93bf --channel nightly --explain
    """
    from rocm_wheels.ci import matrix_report
    from rocm_wheels.release import gate, next_step, verdict_text
    from rocm_wheels.release.policy import load_policy

    env = boundary.read_environment()
    if outputs and not env.get(variable := matrix_report.OUTPUT_VARIABLE):
        raise errors.UsageError(f"--outputs: {variable} is not set", tip="this is no step of a workflow")
    if outputs:
        matrix_report.require_output_file(env)
    rules = load_policy(policy)
    opened, document = open_set(store, set_id)
    judged, evidence = gate.judge_staged_set(
        opened, document, channel, policy=rules, now=current_time(), env=env
    )
    shown, upgrades = _find_upgrade_faults(opened, document, channel)
    judged = replace(judged, notes=(*judged.notes, *upgrades))
    if explain:
        # first: what the channel refuses in each case need not be tested
        refused = gate.judge_channel(_list_refusals(opened, document, channel, rules))
        judged = replace(judged, rules=(refused, *judged.rules))
    words = next_step.CommandWords(store, str(policy) if policy else None)
    step = next_step.find_next_step(judged, words, is_shown=document.id in shown)
    listed = [evidence_as_json(entry) for entry in evidence]
    report = {**judged.as_json(), "policy": policy, "next": step, "evidence": listed}
    lines = _describe_verdict(store, judged, {entry.id: entry for entry in evidence}, explain=explain)
    print_result(report, [*lines, *([f"next: {step}"] if explain else [])], as_json=as_json)
    summary = verdict_text.format_markdown(judged, evidence, step)
    boundary.append_step_summary(boundary.read_environment(), summary)
    if outputs:
        matrix_report.set_outputs(env, {"passed": "true" if judged.passed else "false"})
    elif not judged.passed:
        many = "1 rule does" if len(judged.failures) == 1 else f"{len(judged.failures)} rules do"
        raise errors.ReleaseError(f"{judged.set} cannot go to {channel}: {many} not pass", tip=step or None)


def _find_upgrade_faults(
    store: Store, document: wheel_set.SetDocument, name: str
) -> tuple[Sequence[str], list[verdict.Reason]]:
    """Return which sets a channel shows, and what people run into who upgrade from these."""
    from rocm_wheels.release import channel as channels
    from rocm_wheels.release import verdict
    from rocm_wheels.release.store_paths import FamilyPaths

    paths = FamilyPaths(document.family)
    try:
        shown = channels.read_channel(store, paths, name).channel
        faults = channels.find_upgrade_faults(store, paths, document, shown)
    except (errors.ReleaseError, errors.DataError) as fault:  # the verdict is told all the same
        unknown = f"what upgrades do is not known: {errors.explain_error(fault).splitlines()[0]}"
        return (), [verdict.reason("upgrade", fault=unknown)]
    return shown.shown, [verdict.reason("upgrade", fault=fault) for fault in faults]


def _list_refusals(
    store: Store, document: wheel_set.SetDocument, name: str, policy: Policy
) -> list[errors.RocmWheelsError]:
    """Return what a promotion to a channel would refuse of a set, whatever the gate says."""
    from rocm_wheels.release import channel as channels
    from rocm_wheels.release import gate
    from rocm_wheels.release.store_paths import FamilyPaths

    refused = channels.find_refusals(store, document, (name,), other_indexes=policy.other_indexes)
    refusals: list[errors.RocmWheelsError] = [*refused[name]]
    with contextlib.suppress(errors.DataError):  # a channel that cannot be read is among the refusals
        shown = channels.read_channel(store, FamilyPaths(document.family), name).channel
        try:
            gate.require_own_policy(policy, shown)
        except errors.UsageError as refusal:
            refusals.append(refusal)
    return refusals


def _describe_verdict(
    store: str, judged: verdict.Verdict, evidence: dict[str, StoredEvidence], *, explain: bool
) -> list[str]:
    from rocm_wheels.release import next_step, verdict_text

    show = next_step.CommandWords(store).format_line("set show", judged.set)
    headline = verdict_text.format_headline(judged).replace(judged.set, f"{judged.set} of {judged.family}")
    headline += f" ({judged.state})"
    if judged.failures:
        headline += f": blocked by {tables.count_part(len(judged.failures), len(judged.rules), 'rule')}"
    lines = [headline]
    rules = judged.rules_by_outcome
    rows = [
        (
            "FAIL" if result.outcome == "fail" else result.outcome,
            result.title,
            verdict_text.describe_rule(result, tests=not explain),
        )
        for result in rules
    ]
    for result, line in zip(rules, tables.align_rows(rows), strict=True):
        lines.append(f"  {line}")
        if explain:
            for label, ids in (("", result.evidence), ("made good: ", result.overcome)):
                lines += _list_results(show, label, [evidence[evidence_id] for evidence_id in ids])
    lines += [f"  note: {verdict_text.describe_reason(note)}" for note in judged.notes]
    if explain:
        names_by_reason: dict[str, list[str]] = defaultdict(list)
        for name, why in judged.ignored:
            names_by_reason[verdict_text.describe_reason(why)].append(name)
        for text, names in names_by_reason.items():
            rest = f" and {len(names) - 2} more" if len(names) > 2 else ""
            lines.append(f"  does not count: {', '.join(names[:2])}{rest}: {text}")
        lines += [f"  users see: {line}" for line in verdict_text.list_shown_lines(judged)]
    return lines


def _list_results(show: str, label: str, entries: Sequence[StoredEvidence]) -> Iterator[str]:
    """Yield what a rule rests on, a line each, with tests that failed; the newest, where there are many."""
    for entry in entries[:_MOST_RESULTS]:
        yield f"      {label}{entry.id}  {_describe_evidence(entry)}"
        failed = entry.evidence.failed
        yield from (f"        failed: {test}" for test in failed[:_MOST_RESULTS])
        if len(failed) > _MOST_RESULTS:
            yield f"        all of them: {show} {entry.id}"
    if len(entries) > _MOST_RESULTS:
        yield f"      {label}and {len(entries) - _MOST_RESULTS} older: {show}"
