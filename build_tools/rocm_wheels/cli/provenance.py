"""``provenance``: the statements beside wheels, which say how they were made, verified and signed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rocm_wheels.cli import boundary, catalogue, command, options, output
from rocm_wheels.core import errors, parallel, tables

if TYPE_CHECKING:
    from rocm_wheels.package import provenance
    from rocm_wheels.wheels.statement import ProvenanceStatement

_FILE = options.RegularFile()
_JOBS = 4


@command.command("provenance verify")
@click.argument("wheels", nargs=-1, required=True, type=_FILE, metavar="WHEEL...")
@command.option(
    "--signed-by",
    "keys",
    multiple=True,
    type=options.GivenPath(),
    metavar="KEY.pub",
    help="One of these public keys (Ed25519, SSH) must have signed; may be given several times.",
)
@catalogue.JSON
def verify(wheels: tuple[Path, ...], keys: tuple[Path, ...], as_json: bool) -> None:
    """Show how WHEELs were made, by the statements beside them (WHEEL.intoto.json), and check these.

    It prints who built each, from what, and what was done since. A fault, or a wheel without a statement, is
    exit code 13.

    It checks the digest of the file, the form of the statement, its signature, and the statements of earlier
    wheels inside it; then that the lock and the bill of materials inside the wheel agree with it. It needs no
    network. An unsigned statement reveals damage and mistakes, but no forgery: name the keys that you trust.

    \b
    Examples:
      rocm-wheels provenance verify dist/*.whl --signed-by builder.pub
    """
    from rocm_wheels.package import provenance

    env = boundary.read_environment()
    signers = options.read_signers(keys, env) or None
    reports = parallel.run_in_parallel(
        lambda wheel: provenance.verify_provenance(wheel, env, signers), wheels, jobs=_JOBS
    )
    lines = []
    for report in reports:
        lines += [f"error: {errors.format_finding(finding)}" for finding in report.findings]
        lines += [] if report.findings else [_describe_verified(report)]
        lines += [line for item in report.statements for line in _describe_statement(item)]
    output.print_result([*map(_convert_report, reports)], lines, as_json=as_json)
    failed = [report for report in reports if not report.passed]
    if failed:
        tips = [finding.tip for report in failed for finding in report.findings if finding.tip]
        raise errors.PackageError(
            f"{len(failed)} of {tables.format_count(len(reports), 'wheel')} failed"
            if len(reports) > 1
            else "the wheel failed",
            tip=tips[0] if tips else None,
        )


@command.command("provenance sign")
@click.argument("wheels", nargs=-1, required=True, type=_FILE, metavar="WHEEL...")
@catalogue.SIGN_WITH.but(
    name="key",
    required=True,
    help="Private key (Ed25519, SSH), or the public half of one that an agent holds.",
)
@catalogue.JSON
def sign(wheels: tuple[Path, ...], key: Path, as_json: bool) -> None:
    """Sign the statements beside WHEELs (WHEEL.intoto.json.sig), as `ssh-keygen -Y sign` does.

    A statement about other bytes than the wheel's is not signed. Your signature says that the wheel was made
    that way.

    \b
    Examples:
      rocm-wheels provenance sign dist/*.whl --sign-with builder
    """
    from rocm_wheels.package import provenance

    env, signed = boundary.read_environment(), []
    for wheel in wheels:
        signature = provenance.sign_statement(wheel, key, env)
        signed.append({"file": str(wheel), "key": signature.public_key})
    output.print_result(signed, [f"signed {item['file']}" for item in signed], as_json=as_json)


def _describe_verified(report: provenance.ProvenanceReport) -> str:
    build = report.build
    assert build is not None  # else there is a fault
    steps = f", then {', '.join(report.steps)}" if report.steps else ""
    signed = "unsigned"
    if report.public_key:
        signed = f"signed by {report.signer or f'{report.public_key}, which was not asked for'}"
    return f"{report.wheel.name}: built by {build.builder}{steps}; {signed}"


def _convert_report(report: provenance.ProvenanceReport) -> dict[str, Any]:
    """Return what ``--json`` prints. Keys are added in later versions, never renamed."""
    return {
        "file": str(report.wheel),
        "passed": report.passed,
        "sha256": report.statement.sha256 if report.statement else None,
        "builder": report.build.builder if report.build else None,
        "steps": list(report.steps),
        "key": report.public_key or None,
        "signer": report.signer or None,
        "statements": [json.loads(item.content) for item in report.statements],
        "findings": [
            {"fault": finding.check, "what": finding.message, "tip": finding.tip or None}
            for finding in report.findings
        ],
    }


def _describe_statement(statement: ProvenanceStatement) -> list[str]:
    facts = {"sha256": statement.sha256, "builder": statement.builder}
    facts |= {**statement.predicate["runDetails"].get("metadata", {}), **statement.parameters}
    sources = []
    for dependency in statement.dependencies:
        digest = ", ".join(f"{name} {value}" for name, value in dependency.get("digest", {}).items())
        sources.append(f"{dependency.get('uri') or dependency.get('name', '')}  {digest}".rstrip())
    lines = output.format_facts({**facts, "from": sources})
    return [f"  the statement of {statement.name}", *(f"    {line}" for line in lines)]
