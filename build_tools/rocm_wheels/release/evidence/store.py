"""Write evidence into a store and read it back, signed; copy it to where the set was released.

What cannot be read could be a failure, so reading fails then. Nothing here removes or replaces a file:
files of evidence are only ever created, and their names hold the hash of what they say.

Evidence is signed with SSH keys (``core/ssh_signature.py``).
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ValidationError

from rocm_wheels.core import errors, parallel, records, sigstore_bundle, tables
from rocm_wheels.core.files import write_atomically
from rocm_wheels.core.log import log_warning
from rocm_wheels.core.ssh_signature import SshSignature, find_signer, is_signature_of, sign_content
from rocm_wheels.release import set_log, wheel_set
from rocm_wheels.release.evidence.evidence import (
    CLOCK_SKEW,
    SIGSTORE_KEY,
    Evidence,
    Signature,
    describe_evidence,
    name_result,
    parse_evidence,
)
from rocm_wheels.release.layout import Area, FamilyPaths, StoreLayout
from rocm_wheels.stores.store import AlreadyInStoreError, Store, create_or_read

if TYPE_CHECKING:
    from datetime import datetime

Signers = Mapping[str, str | sigstore_bundle.WorkflowIdentity]  # public keys and workflows by name
_EVIDENCE_SUFFIX = ".json"
_READ_JOBS = 8
_SIGNATURE_JOBS = 4


@dataclass(frozen=True)
class StoredEvidence:
    """An evidence as it was read. ``signer`` is who signed it, "" for nobody that is known.

    ``trouble`` says why it cannot speak for a set, "" when it can; against a set it speaks all the same.
    ``digest`` is the sha256 of its file.
    """

    id: str
    evidence: Evidence
    signer: str = ""
    trouble: str = ""
    digest: str = ""


def add_evidence(
    store: Store, layout: StoreLayout, document: wheel_set.SetDocument, evidence: Evidence
) -> bool:
    """Write an evidence down beside its set, and in its log; tell whether it is new: said twice, it is one.

    The log is last: of a run that was killed before, a failure counts, and a pass does not until the same
    results are added once more.

    Raises UsageError for one from the future, ReleaseError for one about other wheels than the set's, and
    for a set whose log is damaged or not there.
    """
    require_own_evidence(document, evidence)
    paths = FamilyPaths(layout, document.family)
    set_log.require_usable_log(set_log.read_set_log(store, paths, document.id), document.id)
    path = f"{paths.evidence_folder(document.id)}/{evidence.id}{_EVIDENCE_SUFFIX}"
    present = create_or_read(store, path, evidence.to_json())
    written = evidence
    if present is not None:
        written = parse_evidence(present, where=store.url_of(path), name=evidence.id)
        if written.payload != evidence.payload:  # 12 hex digits that agree by chance
            raise errors.ReleaseError(f"{path} says something else: {describe_evidence(written)}")
    digest = hashlib.sha256(present or evidence.to_json()).hexdigest()
    result = set_log.LoggedResult(written.id, digest, name_result(written))
    set_log.append_to_log(store, paths, document.id, result)
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
            f"{document.id}: "
            f"sha256 {other_hashes[0]}",
            tip="test the wheels of the set: its own index has nothing else",
        )
    if evidence.when > evidence.added + CLOCK_SKEW:
        raise errors.UsageError(
            f"the result is from the future: {evidence.when:%Y-%m-%d %H:%M} UTC; here it is "
            f"{evidence.added:%Y-%m-%d %H:%M} UTC",
            tip=f"set the clock of {evidence.host.name} or of this machine; or say --when it was found",
        )


def add_failures_beside(
    store: Store,
    layout: StoreLayout,
    document: wheel_set.SetDocument,
    new_evidence: Sequence[Evidence],
    sign: Callable[[Evidence], Evidence] = lambda evidence: evidence,
) -> list[Evidence]:
    """Return evidence that names the failures which are known of the set (its ``failure_ids``), signed.

    What was written down before, by the same person, is named as it was then. Raises ReleaseError for test
    results that were handed in before for something else, and what ``sign`` raises.
    """
    folder = FamilyPaths(layout, document.family).evidence_folder(document.id)

    def read(path: str) -> tuple[str, Evidence | None]:
        name = path.rpartition("/")[2].removesuffix(_EVIDENCE_SUFFIX)
        try:
            return name, parse_evidence(store.read(path).content, where=store.url_of(path), name=name)
        except errors.DataError:
            return name, None  # it could be a failure; the gate tells what is wrong with it

    present_by_id = dict(
        parallel.run_in_parallel(read, [listed.path for listed in store.listing(folder)], jobs=_READ_JOBS)
    )
    completed: list[Evidence] = []
    for evidence in new_evidence:
        present = [other for other in chain(present_by_id.values(), completed) if other is not None]
        _refuse_reused_results(evidence, present)
        same_statement = next((other for other in present if other.statement == evidence.statement), None)
        if same_statement is None:
            failures = {name for name, other in present_by_id.items() if other is None or not other.passed}
            failures |= {other.id for other in completed if not other.passed}
            failure_ids = tuple(sorted(failures))
        else:
            failure_ids = same_statement.beside
        completed.append(sign(evidence.model_copy(update={"beside": failure_ids})))
    return completed


def _refuse_reused_results(evidence: Evidence, present: Sequence[Evidence]) -> None:
    """Raise ReleaseError for a pass by results that were handed in before as those of another run."""
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


def read_evidence(
    store: Store,
    layout: StoreLayout,
    document: wheel_set.SetDocument,
    *,
    signers: Signers,
    env: Mapping[str, str],
    area: Area = "staging",
) -> list[StoredEvidence]:
    """Return all that is known of a set, oldest first, with who signed it (``signers`` by name).

    Raises DataError for a file that cannot be read, or that was changed.
    """
    folder = FamilyPaths(layout, document.family, area).evidence_folder(document.id)

    def read(path: str) -> StoredEvidence:
        name, content = path.rpartition("/")[2].removesuffix(_EVIDENCE_SUFFIX), store.read(path).content
        evidence = parse_evidence(content, where=store.url_of(path), name=name)
        return StoredEvidence(name, evidence, digest=hashlib.sha256(content).hexdigest())

    stored = parallel.run_in_parallel(
        read, [listed.path for listed in store.listing(folder)], jobs=_READ_JOBS
    )
    return parallel.run_in_parallel(
        lambda item: _check_signature(item, signers, env), stored, jobs=_SIGNATURE_JOBS
    )


def read_all_evidence(
    store: Store,
    layout: StoreLayout,
    document: wheel_set.SetDocument,
    *,
    signers: Signers,
    env: Mapping[str, str],
) -> tuple[list[StoredEvidence], set_log.SetLog]:
    """Return what is known of a set where it is staged, and where it was copied to when it was released.

    Oldest first, and the log that names all of it. What somebody removed from one place still counts. Raises
    as ``read_evidence``.
    """
    paths, release = FamilyPaths(layout, document.family), FamilyPaths(layout, document.family, "release")
    cleared = store.head(paths.set_document(document.id)) is None
    log = set_log.join_set_logs(  # before the results: each that it names is there
        set_log.read_set_log(store, paths, document.id),
        set_log.read_set_log(store, release, document.id),
        staging_cleared=cleared,
    )
    staged = read_evidence(store, layout, document, signers=signers, env=env)
    released = read_evidence(store, layout, document, signers=signers, env=env, area="release")
    evidence_by_id = {stored.id: stored for stored in (*released, *staged)}
    return mark_unlogged([evidence_by_id[name] for name in sorted(evidence_by_id)], log), log


def read_released_evidence(
    store: Store,
    layout: StoreLayout,
    document: wheel_set.SetDocument,
    *,
    signers: Signers,
    env: Mapping[str, str],
) -> tuple[list[StoredEvidence], set_log.SetLog]:
    """Return what is known of a set where it was released, and the log that names it."""
    log = set_log.read_set_log(store, FamilyPaths(layout, document.family, "release"), document.id)
    evidence = read_evidence(store, layout, document, signers=signers, env=env, area="release")
    return mark_unlogged(evidence, log), log


def mark_unlogged(evidence: Sequence[StoredEvidence], log: set_log.SetLog) -> list[StoredEvidence]:
    """Return evidence, with trouble where the log, if there is one, does not name it: its file alone says it.

    Whoever can write to a store can put a file there. What failed counts all the same.
    """
    if not log.entries:
        return list(evidence)
    unlogged = "it is not in the log of the set: add the same results once more"
    return [
        stored if stored.id in log.results or stored.trouble else replace(stored, trouble=unlogged)
        for stored in evidence
    ]


def find_doubt(evidence: Sequence[StoredEvidence], log: set_log.SetLog) -> str:
    """Return why what is known of a set cannot be believed, by its log; "" where it can, or there is none."""
    return "; ".join(log.faults) or find_lost_result(evidence, log)


def find_lost_result(evidence: Sequence[StoredEvidence], log: set_log.SetLog) -> str:
    """Return what the log of a set names and is gone, or is not what was written down; "": nothing."""
    by_id = {stored.id: stored for stored in evidence}
    for entry in log.results.values():
        present = by_id.get(entry.evidence)
        if present is None:
            return f"{entry.evidence} is gone ({entry.about}), entry {entry.number} of the log"
        if (present.digest, name_result(present.evidence)) != (entry.digest, entry.about):
            return f"{entry.evidence} is not what entry {entry.number} of the log states ({entry.about})"
    return ""


def warn_of_wrong_clocks(stored_evidence: Sequence[StoredEvidence], now: datetime) -> None:
    """Say when evidence was written down after now: this machine's clock, or the other's, is wrong."""
    ahead = [stored for stored in stored_evidence if stored.evidence.added > now + CLOCK_SKEW]
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
    return replace(stored, signer=find_signer(evidence.signature.key, keys))


_COPY_JOBS = 8


def list_evidence_ids(store: Store, paths: FamilyPaths) -> dict[str, set[str]]:
    """Return the ids of all evidence in an area, by set: one listing."""
    folder = f"{paths.family_folder}/{paths.layout.evidence}/"
    ids_by_set: dict[str, set[str]] = {}
    for listed in store.listing(folder.rstrip("/")):
        set_id, _, name = listed.path.removeprefix(folder).partition("/")
        if name.endswith(_EVIDENCE_SUFFIX):
            ids_by_set.setdefault(set_id, set()).add(name.removesuffix(_EVIDENCE_SUFFIX))
    return ids_by_set


def copy_evidence(
    store: Store,
    staging: FamilyPaths,
    release: FamilyPaths,
    present: Mapping[str, Container[str]],
    needed: Mapping[str, set[str]],
) -> int:
    """Copy what is ``needed`` and not ``present`` (ids, by set), and return how much that was.

    All is read before anything is copied: DataError for evidence that was changed, or cannot be read.
    """
    new = [
        (
            f"{staging.evidence_folder(set_id)}/{name}{_EVIDENCE_SUFFIX}",
            f"{release.evidence_folder(set_id)}/{name}{_EVIDENCE_SUFFIX}",
            name,
        )
        for set_id in sorted(needed)
        for name in sorted(needed[set_id])
        if name not in present.get(set_id, ())
    ]

    def read(pair: tuple[str, str, str]) -> None:
        parse_evidence(store.read(pair[0]).content, where=store.url_of(pair[0]), name=pair[2])

    def copy(pair: tuple[str, str, str]) -> None:
        with contextlib.suppress(AlreadyInStoreError):  # somebody else does the same
            store.copy(pair[0], pair[1])

    parallel.run_in_parallel(read, new, jobs=_COPY_JOBS)
    parallel.run_in_parallel(copy, new, jobs=_COPY_JOBS)
    return len(new)


SIGNATURE_NAMESPACE = "evidence@rocm-wheels"


def sign_evidence(evidence: Evidence, key: Path, env: Mapping[str, str]) -> Evidence:
    """Return an evidence with a signature by the private key in a file, or by an agent that holds it.

    Raises UsageError as ``sign_content`` does.
    """
    signature = sign_content(evidence.payload, key, SIGNATURE_NAMESPACE, env)
    return evidence.model_copy(
        update={"signature": Signature(key=signature.public_key, value=signature.text)}
    )


def write_payloads(evidence: Sequence[Evidence], folder: Path) -> list[Path]:
    """Write what an attestation of each evidence must be about into files of a folder; nothing is added."""
    paths = [folder / f"{entry.id}{_EVIDENCE_SUFFIX}" for entry in evidence]
    folder.mkdir(parents=True, exist_ok=True)
    for entry, path in zip(evidence, paths, strict=True):
        write_atomically(path, entry.payload)
    return paths


def read_attested(paths: Sequence[Path], bundle: Path, added: datetime) -> list[Evidence]:
    """Return evidence that ``write_payloads`` wrote, with the attestation that is about them.

    Raises DataError for a file that is none, UsageError where there is none.
    """
    files: list[Path] = []
    for path in paths:
        files += sorted(path.glob(f"*{_EVIDENCE_SUFFIX}")) if path.is_dir() else [path]
    if not files:
        raise errors.UsageError(f"there is no payload in {paths[0]}", tip="write them: --write-payloads DIR")
    signature = Signature(key=SIGSTORE_KEY, value=bundle.read_text(encoding="utf-8").strip())
    evidence: list[Evidence] = []
    for file in files:
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


def is_valid_signature(evidence: Evidence, env: Mapping[str, str]) -> bool:
    """Tell whether the signature of an evidence is by the key that it names, and of what it says.

    Whose key that is, and whether it is trusted, is another question. Raises UsageError without ssh-keygen.
    """
    signature = evidence.signature
    if signature is None:
        return False
    ssh_signature = SshSignature(signature.key, signature.value)
    return is_signature_of(ssh_signature, evidence.payload, SIGNATURE_NAMESPACE, env)
