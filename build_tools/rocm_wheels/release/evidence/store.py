"""Write evidence into a store and read it back, signed.

What cannot be read could be a failure, so reading fails then. Nothing here removes or replaces a file:
files of evidence are only ever created, and their names hold the hash of what they say.

Evidence is signed with SSH keys (``core/ssh_signature.py``), or attested by a workflow (Sigstore).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ValidationError

from rocm_wheels.core import errors, files, parallel, records, ssh_signature, tables
from rocm_wheels.core.log import log_warning
from rocm_wheels.release import sigstore_bundle, wheel_set
from rocm_wheels.release.evidence.evidence import (
    CLOCK_SKEW,
    SIGSTORE_KEY,
    Evidence,
    Signature,
    describe_evidence,
    name_subject,
    parse_evidence,
)
from rocm_wheels.release.store_paths import FamilyPaths
from rocm_wheels.stores.store import Store, create_or_read

if TYPE_CHECKING:
    from datetime import datetime

Signers = Mapping[str, str | sigstore_bundle.WorkflowIdentity]  # public keys and workflows by name
_EVIDENCE_SUFFIX = ".json"
_SIGNATURE_JOBS = 4
SIGNATURE_NAMESPACE = "evidence@rocm-wheels"


@dataclass(frozen=True)
class StoredEvidence:
    """An evidence as it was read. ``signer`` is who signed it, "" for nobody that is known.

    ``trouble`` says why it cannot speak for a set, "" when it can; against a set it speaks all the same.
    """

    id: str
    evidence: Evidence
    signer: str = ""
    trouble: str = ""


def add_evidence(store: Store, document: wheel_set.SetDocument, evidence: Evidence) -> bool:
    """Write an evidence down beside its set; tell whether it is new: said twice, it is one.

    Raises as ``require_own_evidence`` does.
    """
    require_own_evidence(document, evidence)
    path = f"{FamilyPaths(document.family).evidence_folder(document.id)}/{evidence.id}{_EVIDENCE_SUFFIX}"
    present = create_or_read(store, path, evidence.to_json())
    if present is not None:
        written = parse_evidence(present, where=store.url_of(path), name=evidence.id)
        if written.payload != evidence.payload:  # 12 hex digits that agree by chance
            raise errors.ReleaseError(f"{path} says something else: {describe_evidence(written)}")
    return present is None


def require_own_evidence(document: wheel_set.SetDocument, evidence: Evidence) -> None:
    """Raise ReleaseError for an evidence that is of another set, or speaks of wheels that are not its own.

    UsageError for one from the future.
    """
    if evidence.set != document.id:
        raise errors.ReleaseError(f"the evidence is of {evidence.set}, not of {document.id}")
    if other_hashes := sorted(set(evidence.hashes) - document.hashes):
        raise errors.ReleaseError(
            f"the evidence speaks of {tables.format_count(len(other_hashes), 'wheel')} outside "
            f"{document.id}: sha256 {other_hashes[0]}",
            tip="test the wheels of the set: its own index has nothing else",
        )
    if evidence.when - evidence.added > CLOCK_SKEW:
        raise errors.UsageError(
            f"the result is from the future: {evidence.when:%Y-%m-%d %H:%M} UTC; here it is "
            f"{evidence.added:%Y-%m-%d %H:%M} UTC",
            tip=f"set the clock of {evidence.host.name} or of this machine, and run it again",
        )


def refuse_reused_results(
    store: Store, document: wheel_set.SetDocument, new_evidence: Sequence[Evidence]
) -> None:
    """Raise ReleaseError for a pass by results that were handed in before as those of another run."""
    present: list[Evidence] = []
    for name, content in _read_files(store, document):
        try:
            present.append(parse_evidence(content, where=name, name=name))
        except errors.DataError:
            continue  # the gate tells what is wrong with it
    for evidence in new_evidence:
        counts = evidence.source and evidence.passed and evidence.kind in {"smoke", "tests"}
        for earlier in present if counts else ():
            other = earlier.gfx != evidence.gfx or not set(earlier.hashes) & set(evidence.hashes)
            other = other or earlier.outcome != evidence.outcome  # as of more reports, and now as of fewer
            if earlier.source == evidence.source and earlier.kind == evidence.kind and other:
                raise errors.ReleaseError(
                    "these results were handed in before, for other wheels, another GPU or more reports: "
                    f"{earlier.id} is {describe_evidence(earlier)}",
                    tip="one run is of one GPU and one Python; run the tests there, too",
                )
        present.append(evidence)


def read_evidence(
    store: Store, document: wheel_set.SetDocument, *, signers: Signers, env: Mapping[str, str]
) -> list[StoredEvidence]:
    """Return all that is known of a set, oldest first, with who signed it (``signers`` by name).

    Raises as ``read_all_evidence`` does.
    """
    stored = [StoredEvidence(evidence.id, evidence) for evidence in read_all_evidence(store, document)]
    return parallel.run_in_parallel(
        lambda item: _check_signature(item, signers, env), stored, jobs=_SIGNATURE_JOBS
    )


def read_all_evidence(store: Store, document: wheel_set.SetDocument) -> list[Evidence]:
    """Return all that anybody said of a set, oldest first; no signature is looked at.

    Raises DataError for a file that cannot be read, or that was changed.
    """
    folder = FamilyPaths(document.family).evidence_folder(document.id)
    return [
        parse_evidence(content, where=store.url_of(f"{folder}/{name}.json"), name=name)
        for name, content in _read_files(store, document)
    ]


def _read_files(store: Store, document: wheel_set.SetDocument) -> list[tuple[str, bytes]]:
    """Return the files of evidence by name, the oldest first: names begin with the time."""
    paths = [
        listed.path for listed in store.listing(FamilyPaths(document.family).evidence_folder(document.id))
    ]
    contents = parallel.run_in_parallel(lambda path: store.read(path).content, paths)
    names = [path.rpartition("/")[2].removesuffix(_EVIDENCE_SUFFIX) for path in paths]
    return sorted(zip(names, contents, strict=True))


def summarize_results(store: Store, family: str) -> dict[str, list[str]]:
    """Return, for each set with results, the last of each kind on each target: ``smoke on gfx942: pass``.

    One that cannot be read says so: it could be a failure. Whether signatures are those of people who count
    is up to the gate.
    """
    folder = FamilyPaths(family).evidence_folder()
    paths = sorted(listed.path for listed in store.listing(folder))
    contents = parallel.run_in_parallel(lambda path: store.read(path).content, paths)
    last: dict[str, dict[str, str]] = {}
    for path, content in zip(paths, contents, strict=True):
        set_id, _, name = path.removeprefix(f"{folder}/").partition("/")
        lines = last.setdefault(set_id, {})
        try:
            evidence = parse_evidence(content, where=path, name=name.removesuffix(_EVIDENCE_SUFFIX))
        except errors.DataError:
            lines[path] = f"{name} cannot be read"
        else:
            label = name_subject(evidence)
            lines[label] = f"{label}: {evidence.outcome}"
    return {set_id: list(lines.values()) for set_id, lines in last.items()}


def warn_of_wrong_clocks(stored_evidence: Sequence[StoredEvidence], now: datetime) -> None:
    """Say when evidence was written down after now: this machine's clock, or the other's, is wrong."""
    ahead = [stored for stored in stored_evidence if stored.evidence.added - now > CLOCK_SKEW]
    if ahead:
        last = max(ahead, key=lambda stored: stored.evidence.added).evidence
        log_warning(
            f"{tables.format_count(len(ahead), 'result')} dated in the future, after now "
            f"({now:%Y-%m-%d %H:%M} UTC), the last by "
            f"{last.by} at {last.added:%Y-%m-%d %H:%M} UTC: a clock is wrong, this one or theirs"
        )


def _check_signature(stored: StoredEvidence, signers: Signers, env: Mapping[str, str]) -> StoredEvidence:
    evidence = stored.evidence
    if evidence.signature is None:
        return stored
    if evidence.signature.is_bundle:
        workflows = {name: signer for name, signer in signers.items() if not isinstance(signer, str)}
        if not workflows:  # it could be nobody's
            return stored
        try:
            signer = sigstore_bundle.find_attester(evidence.signature.value, evidence.payload, workflows)
        except errors.DataError as fault:
            return replace(stored, trouble=fault.message)
        return replace(stored, signer=signer)
    if not is_valid_signature(evidence, env):
        return replace(stored, trouble="its signature is not of what it says")
    keys = {name: signer for name, signer in signers.items() if isinstance(signer, str)}
    return replace(stored, signer=ssh_signature.find_signer(evidence.signature.key, keys))


def sign_evidence(evidence: Evidence, key: Path, env: Mapping[str, str]) -> Evidence:
    """Return an evidence with a signature by the private key in a file, or by an agent that holds it.

    Raises UsageError as ``sign_content`` does.
    """
    signature = ssh_signature.sign_content(evidence.payload, key, SIGNATURE_NAMESPACE, env)
    return evidence.model_copy(
        update={"signature": Signature(key=signature.public_key, value=signature.text)}
    )


def is_valid_signature(evidence: Evidence, env: Mapping[str, str]) -> bool:
    """Tell whether the signature of an evidence is by the key that it names, and of what it says.

    Whose key that is, and whether it is trusted, is another question. Raises UsageError without ssh-keygen.
    """
    if evidence.signature is None:
        return False
    signature = ssh_signature.SshSignature(evidence.signature.key, evidence.signature.value)
    return ssh_signature.is_signature_of(signature, evidence.payload, SIGNATURE_NAMESPACE, env)


def write_payloads(evidence: Sequence[Evidence], folder: Path) -> list[Path]:
    """Write what an attestation of each evidence must be about into files of a folder; nothing is added."""
    paths = [folder / f"{entry.id}{_EVIDENCE_SUFFIX}" for entry in evidence]
    folder.mkdir(parents=True, exist_ok=True)
    for entry, path in zip(evidence, paths, strict=True):
        files.write_atomically(path, entry.payload)
    return paths


def read_attested(paths: Sequence[Path], bundle: Path, added: datetime) -> list[Evidence]:
    """Return evidence that ``write_payloads`` wrote, with the attestation that is about them.

    Raises DataError for a file that is none, UsageError where there is none.
    """
    payloads: list[Path] = []
    for path in paths:
        payloads += sorted(path.glob(f"*{_EVIDENCE_SUFFIX}")) if path.is_dir() else [path]
    if not payloads:
        raise errors.UsageError(f"there is no payload in {paths[0]}", tip="write them: --write-payloads DIR")
    signature = Signature(key=SIGSTORE_KEY, value=bundle.read_text(encoding="utf-8").strip())
    evidence: list[Evidence] = []
    for file in payloads:
        content = file.read_bytes()
        try:
            entry = Evidence.model_validate_json(
                content[:-1] + f', "added": "{added.isoformat()}"}}'.encode()
            )
        except ValidationError as cause:
            raise errors.DataError(
                f"{file} is no payload: {records.summarize_faults(cause, Evidence)}"
            ) from None
        if entry.payload != content:
            raise errors.DataError(f"{file} was changed after it was written")
        evidence.append(entry.model_copy(update={"signature": signature}))
    return evidence
