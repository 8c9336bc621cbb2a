"""``build --lock`` with several Pythons: each of them must be one of the lock's."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from planned_runs import make_facts

from rocm_wheels.core import errors
from rocm_wheels.pipeline import source_checks
from rocm_wheels.sdk import build_environment
from rocm_wheels.sources.lock import LockFile


def test_every_python_must_be_in_the_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    versions = {Path("/a"): "3.12.1", Path("/b"): "3.13.0t"}
    monkeypatch.setattr(build_environment, "query_python_version", lambda python, env: versions[python])
    lock = SimpleNamespace(pythons=("3.12",), rocm=None, targets=(), projects={})
    monkeypatch.setattr("rocm_wheels.sources.lock.open_lock", lambda path, platform: LockFile(path, lock))  # type: ignore[arg-type]
    request = replace(make_facts(tmp_path).request, pythons=tuple(versions))
    with pytest.raises(errors.UsageError, match=r"/b is Python 3\.13\.0t, and x\.json is for 3\.12"):
        source_checks.apply_lock(request, Path("x.json"), [], {})
