"""Evidence of files that hold results, whatever they are of: what is in them tells."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from rocm_wheels.errors import DataError, UsageError
from rocm_wheels.release.evidence import Evidence
from rocm_wheels.release.evidence_given import NO_GPU, Given
from rocm_wheels.release.evidence_junit import read_reports, report_files
from rocm_wheels.release.evidence_results import evidence_of_resolver, evidence_of_verify
from rocm_wheels.release.evidence_smoke import evidence_of_smoke
from rocm_wheels.release.evidence_torch import evidence_of_torch, is_of_torch, records_in
from rocm_wheels.release.gate.needed import pythons_of
from rocm_wheels.wheels.members import digest_of_file


def read_results(paths: Sequence[Path], given: Given) -> list[Evidence]:
    """Return the evidence in files: each JSON file by itself, all JUnit files (and folders) as one run.

    A folder that ``torch-tests`` wrote is the records in it.

    Raises UsageError, DataError or ReleaseError for a file that is not there, is nothing that we know, is
    not whole (JUnit reports that are not whole make a failure), or speaks of other wheels.
    """
    if absent := [path for path in paths if not path.exists()]:
        raise UsageError(
            f"there is no {absent[0]}", tip="no results are no evidence; look why none were written"
        )
    paths = [own for path in paths for own in (records_in(path) if path.is_dir() else []) or [path]]
    reports = [path for path in paths if path.is_dir() or path.suffix.lower() == ".xml"]
    read = [(path, _json(path)) for path in paths if path not in reports]
    found = [one for path, value in read if not is_of_torch(value) for one in _of_json(path, value, given)]
    if records := [(path, value) for path, value in read if is_of_torch(value)]:
        found += evidence_of_torch(records, given)
    if reports:
        found.append(_of_reports(reports, given))
    elif given.reports is not None:
        raise UsageError("--reports counts JUnit files (*.xml), and there is none among the results")
    if not found:
        raise UsageError("no results were named", tip="name a file: --from results.json")
    return found


def hashed(paths: Iterable[Path]) -> dict[str, str]:
    """Return the sha256 of wheels by name, those in folders included. UsageError for a path without any."""
    found: dict[str, str] = {}
    for path in paths:
        files = sorted(path.glob("*.whl")) if path.is_dir() else [path]
        if not files or not all(file.is_file() for file in files):
            raise UsageError(f"there is no wheel {path}" if not path.is_dir() else f"no wheels are in {path}")
        for file in files:
            sha256 = digest_of_file(file)
            if found.setdefault(file.name, sha256) != sha256:
                raise UsageError(f"two files are called {file.name}, with different bytes")
    return found


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except (ValueError, RecursionError) as broken:  # also what is no UTF-8, or nested without end
        tip = "an empty or truncated result is none: look why it is, and run again"
        raise DataError(f"{path} is truncated or no JSON ({broken})", tip=tip) from None


def _of_json(path: Path, value: Any, given: Given) -> list[Evidence]:
    if isinstance(value, list):
        return evidence_of_verify(value, path, given)
    if isinstance(value, dict) and "checks" in value:
        return evidence_of_resolver(value, path, given)
    if isinstance(value, dict) and "tests" in value:
        return evidence_of_smoke(value, path, given)
    raise DataError(
        f"{path} holds no results that we know",
        tip="we know those of verify and resolve-check --json, smoke-tests and torch-tests, and JUnit XML",
    )


def _of_reports(paths: Sequence[Path], given: Given) -> Evidence:
    source = paths[0]
    if given.gfx is None:
        raise UsageError(
            "JUnit reports do not say which GPU the tests ran on",
            tip=f"say it: --gfx gfx942, or --gfx {NO_GPU}",
        )
    hashes = given.hashed_here(source, "a JUnit report")
    several = {python for name in given.wheels for python in pythons_of(name)}
    if len(several) > 1:
        raise UsageError(
            f"tests run with one Python, and the wheels are for {', '.join(sorted(several))}",
            tip="name the wheels that were installed: --wheels FILE",
        )
    found = read_reports(report_files(paths, given.reports), given.reports)
    return given.make(
        "tests",
        found.counts,
        hashes,
        source=source,
        tool="JUnit",
        when=found.when,
        host=", ".join(found.hosts),
        gfx=None if given.gfx == NO_GPU else given.gfx,
        outcome=found.outcome,
        detail="; ".join(found.faults),
        failed=found.failed,
        digest=_digest(found.digests) if found.when else "",
    )


def _digest(files: Sequence[str]) -> str:
    """Return the sha256 of one file, or of several together."""
    return files[0] if len(files) == 1 else hashlib.sha256("\n".join(files).encode()).hexdigest()
