"""Sets and evidence as tests of the gate need them: two Pythons, two targets, and a clock that stands."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from datetime import datetime, timedelta, timezone
from typing import Any

from rocm_wheels.core import records
from rocm_wheels.index.folder import METADATA_SUFFIX
from rocm_wheels.release import gate, store_paths, wheel_set
from rocm_wheels.release.evidence.evidence import Evidence, EvidenceHost, OutcomeCounts
from rocm_wheels.release.evidence.store import StoredEvidence
from rocm_wheels.release.policy import Policy
from rocm_wheels.release.verdict import Verdict
from rocm_wheels.stores.store import Store, create_or_read

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=timezone.utc)
FAMILY = "gfx103X-all"
TARGETS = ("gfx1030", "gfx1031")
METADATA = b"Metadata-Version: 2.1\nName: a-wheel\nVersion: 1\n"
LOCK = hashlib.sha256(b"lock").hexdigest()
ONE = (
    "channels: {nightly: {signed: false,"
    " rules: {audit: {fresh: 14d}, smoke: {fresh: 7d, targets: one, pythons: one}}}}"
)
EVERY = (
    "channels: {stable: {passes_after_failure: 2, signed: false,"
    " rules: {audit: {fresh: 14d}, smoke: {fresh: 7d}}}}"
)


def metadata_of(project: str) -> bytes:
    """The METADATA of a wheel: torchvision needs the torch of its set."""
    return METADATA + (b"Requires-Dist: torch==2.9.1+rocm7.1.0\n" if project == "torchvision" else b"")


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def wheel(
    project: str, python: str = "312", targets: Iterable[str] = TARGETS, **more: Any
) -> wheel_set.SetFile:
    name = f"{project.replace('-', '_')}-2.9.1+rocm7.1.0-cp{python}-cp{python}-linux_x86_64.whl"
    found = {"name": name, "project": project, "version": "2.9.1+rocm7.1.0", "sha256": sha(name)}
    return wheel_set.SetFile.model_validate(
        {
            **found,
            "size": len(name),
            "metadata_sha256": sha(metadata_of(project).decode()),
            "targets": tuple(targets),
            **more,
        },
        strict=False,
    )


def a_set(*files: wheel_set.SetFile, **more: Any) -> wheel_set.SetDocument:
    files = files or tuple(wheel(p, v) for p in ("torch", "torchvision") for v in ("311", "312"))
    version = "2.9.1+rocm7.1.0"
    planned = tuple(
        wheel_set.SetCell(project=f.project, python=f"3.{f.name.split('-cp3')[1][:2]}", target=t)
        for f in files
        for t in f.targets
    )
    found = {
        "schema": 1,
        "id": wheel_set.make_set_id(
            version, more.get("family", FAMILY), ((f.name, f.sha256) for f in files), LOCK
        ),
        "created": "2026-11-20T00:00:00Z",
        "version": version,
        "family": FAMILY,
        "layout": "per-family",
        "files": files,
        "locks": (wheel_set.SetLock(digest=LOCK),),
        "planned": planned,
    }
    return wheel_set.SetDocument.model_validate({**found, **more})


SET = a_set()


def said(
    kind: str = "smoke",
    outcome: str = "pass",
    *,
    gfx: str | None = "gfx1030",
    python: str = "",
    hours: float = 1,
    document: wheel_set.SetDocument = SET,
    machine: str = "any",
    **more: Any,
) -> StoredEvidence:
    """An evidence that was found so many hours ago and written down at once; of a Python's wheels, or all.

    It counts as signed by ``signer`` when it is judged; its file is signed by nobody.
    """
    when = NOW - timedelta(hours=hours)
    files = [file for file in document.files if not python or f"-cp{python}-" in file.name]
    number = {"pass": "passed", "fail": "failed", "crash": "crashed", "timeout": "timeout"}.get(outcome)
    found = {
        "kind": kind,
        "set": document.id,
        "hashes": tuple(sorted(file.sha256 for file in files)),
        "gfx": gfx if kind in {"smoke", "tests"} else None,
        "outcome": outcome,
        "counts": OutcomeCounts(**({number: 3} if number else {})),
        "tool": "a tool",
        "host": EvidenceHost(name="runner-1", kind=machine),
        "by": "ann",
        "when": when,
        "added": when,
    }
    signer, trouble = more.pop("signer", "ann"), more.pop("trouble", "")
    evidence = Evidence.model_validate({**found, **more})
    return StoredEvidence(evidence.id, evidence, signer, trouble)


def put_set(store: Store, document: wheel_set.SetDocument) -> None:
    """Write the wheels, their METADATA and the document of a set into a store, as staging does.

    The bytes of a wheel are its name, where it is one of ``wheel``, and those of its lock ``lock``.
    """
    paths = store_paths.FamilyPaths(document.family)
    for file in document.files:
        path = paths.pool_file(file.sha256, file.name)
        if file.sha256 == sha(file.name):
            create_or_read(store, path, file.name.encode())
        create_or_read(store, path + METADATA_SUFFIX, metadata_of(file.project))
    for lock in document.locks:
        if lock.digest == LOCK:
            create_or_read(store, paths.lock_file(lock.digest), b"lock")
    create_or_read(store, paths.set_document(document.id), document.to_json())


def policy(text: str) -> Policy:
    return records.parse_record(text, Policy, name="policy.yaml")


def judged(
    text: str,
    *known: StoredEvidence,
    document: wheel_set.SetDocument = SET,
    now: datetime = NOW,
    channel: str = "",
) -> Verdict:
    """What a policy (of one channel, unless it is named) says to evidence."""
    rules = policy(text)
    name = channel or next(iter(rules.channels))
    return gate.judge_set(rules, name, document, known, now)


def outcomes(verdict: Verdict) -> dict[str, str]:
    """What came of each rule."""
    return {one.title: one.outcome for one in verdict.rules}


# ---- results in JUnit's form, as pytest writes them

# JUnit: attributes of the suite, what is in it; outcome, passed, failed, what is said
CASE = '<testcase classname="TestNN" name="test_conv"/>'

BAD = '<testcase classname="TestNN" name="test_bad"><failure message="x">no</failure></testcase>'

ERROR = '<testcase classname="TestNN" name="test_err"><error message="x">no</error></testcase>'

SKIP = '<testcase classname="TestNN" name="test_skip"><skipped message="x"/></testcase>'


def junit(*cases: str, **attributes: object) -> str:
    said = " ".join(f'{name}="{value}"' for name, value in attributes.items())
    return f"<testsuites><testsuite {said}>{''.join(cases)}</testsuite></testsuites>"


WHOLE = junit(
    CASE, SKIP, tests=2, failures=0, errors=0, hostname="runner-7", timestamp="2026-11-21T10:00:00+02:00"
)
