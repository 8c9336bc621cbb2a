"""Verify the provenance of wheels: a statement against its file, its signature, and what is inside.

The statement beside a wheel (``wheels/statement.py``) is only as good as who wrote it: unsigned it shows
damage and mistakes, signed it also shows who answers for it. Each kind of break is a ``Finding`` with a name.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from packaging.version import Version

from rocm_wheels.core import errors, ssh_signature
from rocm_wheels.core.files import hash_file, write_atomically
from rocm_wheels.package.sbom import LOCK_MEMBER
from rocm_wheels.wheels import dist_info, rewrite
from rocm_wheels.wheels.archive import WheelArchive
from rocm_wheels.wheels.sbom import SBOM_MEMBER, make_package_url
from rocm_wheels.wheels.statement import (
    BUILD_TYPE,
    STATEMENT_NAMESPACE,
    STEP_TYPE,
    ProvenanceStatement,
    locate_statement,
    locate_statement_signature,
    parse_statement,
    read_statement,
    walk_statements,
)


@dataclass
class ProvenanceReport:
    """What came out: the statement, and those inside it, newest first; whose key signed it; the faults.

    ``public_key`` is "" where nothing is signed, ``signer`` where the key is none of those asked for.
    """

    wheel: Path
    statement: ProvenanceStatement | None = None
    earlier: tuple[ProvenanceStatement, ...] = ()
    public_key: str = ""
    signer: str = ""
    findings: list[errors.Finding] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        """Whether there is no fault."""
        return not self.findings

    @property
    def statements(self) -> tuple[ProvenanceStatement, ...]:
        """The statement, where there is one, and those inside it."""
        return () if self.statement is None else (self.statement, *self.earlier)

    @property
    def build(self) -> ProvenanceStatement | None:
        """The statement of the build that all began with, where one is known."""
        builds = [item for item in self.statements if item.build_type == BUILD_TYPE]
        return builds[-1] if builds else None

    @property
    def steps(self) -> tuple[str, ...]:
        """What was done to the wheel since, in that order."""
        done = [item for item in self.statements if item.build_type == STEP_TYPE]
        steps: dict[object, str] = {}  # by what it was done to: of a split there are several wheels
        for item in reversed(done):
            step, first = str(item.parameters.get("step", "")), item.dependencies[:1]
            steps[step, str([entry.get("digest") for entry in first])] = step
        return tuple(steps.values())

    def add_finding(self, fault: str, message: str, tip: str = "") -> None:
        """Note a fault by its name."""
        self.findings.append(errors.Finding("error", message, subject=self.wheel.name, check=fault, tip=tip))


def verify_provenance(
    wheel: Path,
    env: Mapping[str, str] | None = None,
    signers: Mapping[str, str] | None = None,
    *,
    sha256: str | None = None,
) -> ProvenanceReport:
    """Compare a wheel with the statement beside it; with ``signers`` (keys by name) one must have signed it.

    Without ``env`` signatures are not looked at. ``sha256`` (hex) is that of the wheel, where it is known.
    DataError for a file that is no wheel; UsageError without ssh-keygen where something is signed.
    """
    report = ProvenanceReport(wheel)
    try:
        report.statement = read_statement(wheel)
    except errors.DataError as damaged:
        report.add_finding("bad-statement", errors.explain_error(damaged))
        return report
    if report.statement is None:
        with WheelArchive.open(wheel):
            pass  # what is no wheel can have none
        tip = "`rocm-wheels build` writes one; what is done to a wheel without one has none either"
        report.add_finding("no-statement", f"there is no {locate_statement(wheel).name} beside it", tip)
        return report
    _check_subject(report, report.statement, sha256 or hash_file(wheel))
    if env is not None:
        _check_signature(report, report.statement, signers, env)
    _check_steps(report, report.statement)
    if not report.findings:  # else it is about something else
        _check_contents(report)
    return report


def check_signature(
    content: bytes, signature: bytes, signers: Mapping[str, str], env: Mapping[str, str]
) -> str:
    """Return who signed the bytes of a statement, "" for nobody of ``signers`` (keys by name)."""
    parsed = ssh_signature.parse_signature(signature.decode("ascii", "replace"))
    if parsed is None or not (signer := ssh_signature.find_signer(parsed.public_key, signers)):
        return ""
    return signer if ssh_signature.is_signature_of(parsed, content, STATEMENT_NAMESPACE, env) else ""


def sign_statement(wheel: Path, key: Path, env: Mapping[str, str]) -> ssh_signature.SshSignature:
    """Sign the statement beside a wheel with the private key in a file, or by an agent; write the signature.

    DataError without a statement, or for one about other bytes; UsageError as ``sign_content``.
    """
    statement = read_statement(wheel)
    if statement is None:
        raise errors.DataError(f"{wheel} has no statement beside it to sign")
    if (statement.name, statement.sha256) != (wheel.name, hash_file(wheel)):
        raise errors.DataError(f"{locate_statement(wheel)} is about other bytes than {wheel.name} has")
    signature = ssh_signature.sign_content(statement.content, key, STATEMENT_NAMESPACE, env)
    write_atomically(locate_statement_signature(wheel), signature.text)
    return signature


def _check_subject(report: ProvenanceReport, statement: ProvenanceStatement, sha256: str) -> None:
    if statement.sha256 != sha256:
        message = f"the wheel has sha256 {sha256}, the statement is about {statement.sha256}"
        report.add_finding("wrong-wheel", message, "one of the two was changed or replaced afterwards")
    elif statement.name != report.wheel.name:
        report.add_finding("wrong-wheel", f"the statement is about a file of the name {statement.name}")
    if statement.build_type not in {BUILD_TYPE, STEP_TYPE}:
        message = f"it is of {statement.build_type}, by {statement.builder}: what that means is not known"
        report.add_finding("bad-statement", message)


def _check_signature(
    report: ProvenanceReport,
    statement: ProvenanceStatement,
    signers: Mapping[str, str] | None,
    env: Mapping[str, str],
) -> None:
    path = locate_statement_signature(report.wheel)
    if not path.is_file():
        if signers is not None:
            report.add_finding("unsigned", f"there is no {path.name}")
        return
    signature = ssh_signature.parse_signature(path.read_bytes().decode("ascii", "replace"))
    if signature is None or not ssh_signature.is_signature_of(
        signature, statement.content, STATEMENT_NAMESPACE, env
    ):
        report.add_finding("wrong-signature", f"{path.name} is no signature of the statement as it is")
        return
    report.public_key = signature.public_key
    report.signer = ssh_signature.find_signer(signature.public_key, signers or {})
    if signers is not None and not report.signer:
        report.add_finding("unknown-signer", f"it is signed by {signature.public_key}")


def _check_steps(report: ProvenanceReport, statement: ProvenanceStatement) -> None:
    try:
        report.earlier = tuple(inner for inner, _ in walk_statements(statement))
    except errors.DataError as broken:
        report.add_finding("wrong-step", errors.explain_error(broken))
        return
    if report.build is None and statement.build_type == STEP_TYPE:
        report.add_finding("wrong-step", "no statement inside is that of a build")


def _check_contents(report: ProvenanceReport) -> None:
    """Compare the lock and the bill of materials inside the wheel with what the build says.

    A device wheel is a part of the wheel that was built: it has no lock, and a bill of its own.
    """
    files = rewrite.read_dist_info_files(report.wheel)
    builds = [item for item in report.statements if item.build_type == BUILD_TYPE]
    project = _find_project(report.wheel.name)
    is_part = all(_find_project(build.name) != project for build in builds)
    lock = files.get(LOCK_MEMBER)
    digest = "" if lock is None else hashlib.sha256(lock).hexdigest()
    stated = {str(build.parameters.get("lock", {}).get("sha256", "")) for build in builds}
    if digest not in stated and not (is_part and not digest):
        inside = f"sha256 {digest[:12]}…" if digest else "none"
        expected = " or ".join(sorted(f"{item[:12]}…" if item else "none" for item in stated))
        report.add_finding("wrong-lock", f"{LOCK_MEMBER} inside is {inside}, the statement says {expected}")
    sbom = files.get(SBOM_MEMBER)
    if sbom is None:
        report.add_finding("wrong-sbom", f"there is no {SBOM_MEMBER} inside")
        return
    try:
        faults = list(_compare_sbom(json.loads(sbom), report.wheel.name, builds, is_part=is_part))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        faults = ["it is not as rocm-wheels writes it"]
    if faults:
        report.add_finding("wrong-sbom", f"{SBOM_MEMBER}: {'; '.join(faults)}")


def _compare_sbom(
    document: Mapping[str, Any], wheel_name: str, builds: list[ProvenanceStatement], *, is_part: bool
) -> Iterator[str]:
    """Yield in what a bill of materials is not that of a wheel that was built so.

    ``is_part``: the wheel was split off from what was built; not all sources need be in it.
    """
    name = dist_info.parse_wheel_name(wheel_name)
    own = document["metadata"]["component"]  # its version is spelled as in METADATA, which need not be normal
    if own["purl"] != make_package_url(name.name, own["version"]) or Version(own["version"]) != name.version:
        yield f"it is of {own['purl']}"
    records: dict[str, str | None] = {}
    for dependency in (entry for build in builds for entry in build.dependencies):
        if uri := dependency.get("uri"):
            digest = dependency.get("digest", {})
            records[uri] = digest.get("rocm-wheels-record-sha256")
    components = {component["purl"]: component for component in document["components"]}
    for purl, component in components.items():
        inside = {entry["name"]: entry["value"] for entry in component.get("properties", [])}
        if purl not in records:
            yield f"the statement does not say {purl}"
        elif inside.get("rocm-wheels:record-sha256") != records[purl]:
            yield f"{purl} has other files than in the statement"
    lacking = [sorted(_list_sources(build) - components.keys()) for build in builds]
    if all(lacking) and not is_part:
        yield f"it lacks {lacking[0][0]}"


def _find_project(file_name: str) -> str:
    try:
        return str(dist_info.parse_wheel_name(file_name).name)
    except errors.DataError:
        return ""


def _list_sources(build: ProvenanceStatement) -> set[str]:
    return {str(entry["uri"]) for entry in build.dependencies if "gitCommit" in entry.get("digest", {})}


def parse_stored_statement(content: bytes, *, name: str, wheel: str, sha256: str) -> ProvenanceStatement:
    """Read a statement that must be about a wheel of this name and digest (hex). DataError else."""
    statement = parse_statement(content, name=name)
    if (statement.name, statement.sha256) != (wheel, sha256):
        raise errors.DataError(f"{name} is not about {wheel} with sha256 {sha256[:12]}…")
    return statement
