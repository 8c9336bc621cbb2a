"""Evidence of files that hold results, whatever they are of: what is in them tells."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from rocm_wheels.errors import DataError, UsageError
from rocm_wheels.release.evidence import Evidence
from rocm_wheels.release.evidence_given import NO_GPU_WORD, EvidenceSubmission
from rocm_wheels.release.evidence_junit import read_junit_run, list_report_files
from rocm_wheels.release.evidence_results import make_resolver_evidence, make_verify_evidence
from rocm_wheels.release.evidence_smoke import make_smoke_evidence
from rocm_wheels.release.evidence_torch import make_torch_evidence, is_torch_record, list_torch_records
from rocm_wheels.release.gate.needed import list_wheel_pythons
from rocm_wheels.wheels.members import hash_file


def read_results(paths: Sequence[Path], submission: EvidenceSubmission) -> list[Evidence]:
    """Return the evidence in files: each JSON file by itself, all JUnit files (and folders) as one run.

    A folder that ``torch-tests`` wrote is the records in it.

    Raises UsageError, DataError or ReleaseError for a file that is not there, is nothing that we know, is
    not whole (JUnit reports that are not whole make a failure), or speaks of other wheels.
    """
    if absent := [path for path in paths if not path.exists()]:
        raise UsageError(
            f"there is no {absent[0]}", tip="no results are no evidence; look why none were written"
        )
    paths = [file for path in paths for file in (list_torch_records(path) if path.is_dir() else []) or [path]]
    reports = [path for path in paths if path.is_dir() or path.suffix.lower() == ".xml"]
    read = [(path, _load_json(path)) for path in paths if path not in reports]
    evidence = [
        item
        for path, value in read
        if not is_torch_record(value)
        for item in _make_json_evidence(path, value, submission)
    ]
    if records := [(path, value) for path, value in read if is_torch_record(value)]:
        evidence += make_torch_evidence(records, submission)
    if reports:
        evidence.append(_make_junit_evidence(reports, submission))
    elif submission.reports is not None:
        raise UsageError("--reports counts JUnit files (*.xml), and there is none among the results")
    if not evidence:
        raise UsageError("no results were named", tip="name a file: --from results.json")
    return evidence


def hash_wheels(paths: Iterable[Path]) -> dict[str, str]:
    """Return the sha256 of wheels by name, those in folders included. UsageError for a path without any."""
    sha256_by_name: dict[str, str] = {}
    for path in paths:
        files = sorted(path.glob("*.whl")) if path.is_dir() else [path]
        if not files or not all(file.is_file() for file in files):
            raise UsageError(f"there is no wheel {path}" if not path.is_dir() else f"no wheels are in {path}")
        for file in files:
            sha256 = hash_file(file)
            if sha256_by_name.setdefault(file.name, sha256) != sha256:
                raise UsageError(f"two files are called {file.name}, with different bytes")
    return sha256_by_name


def _load_json(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except (ValueError, RecursionError) as broken:  # also what is no UTF-8, or nested without end
        tip = "an empty or truncated result is none: look why it is, and run again"
        raise DataError(f"{path} is truncated or no JSON ({broken})", tip=tip) from None


def _make_json_evidence(path: Path, value: Any, submission: EvidenceSubmission) -> list[Evidence]:
    if isinstance(value, list):
        return make_verify_evidence(value, path, submission)
    if isinstance(value, dict) and "checks" in value:
        return make_resolver_evidence(value, path, submission)
    if isinstance(value, dict) and "tests" in value:
        return make_smoke_evidence(value, path, submission)
    raise DataError(
        f"{path} holds no results that we know",
        tip="we know those of verify and resolve-check --json, smoke-tests and torch-tests, and JUnit XML",
    )


def _make_junit_evidence(paths: Sequence[Path], submission: EvidenceSubmission) -> Evidence:
    source = paths[0]
    if submission.gfx is None:
        raise UsageError(
            "JUnit reports do not say which GPU the tests ran on",
            tip=f"say it: --gfx gfx942, or --gfx {NO_GPU_WORD}",
        )
    hashes = submission.require_given_hashes(source, "a JUnit report")
    several = {python for name in submission.wheels for python in list_wheel_pythons(name)}
    if len(several) > 1:
        raise UsageError(
            f"tests run with one Python, and the wheels are for {', '.join(sorted(several))}",
            tip="name the wheels that were installed: --wheels FILE",
        )
    run = read_junit_run(list_report_files(paths, submission.reports), submission.reports)
    return submission.make_evidence(
        "tests",
        run.counts,
        hashes,
        source=source,
        tool="JUnit",
        when=run.when,
        host=", ".join(run.hosts),
        gfx=None if submission.gfx == NO_GPU_WORD else submission.gfx,
        outcome=run.outcome,
        detail="; ".join(run.faults),
        failed=run.failed,
        digest=_join_digests(run.digests) if run.when else "",
    )


def _join_digests(files: Sequence[str]) -> str:
    """Return the sha256 of one file, or of several together."""
    return files[0] if len(files) == 1 else hashlib.sha256("\n".join(files).encode()).hexdigest()
