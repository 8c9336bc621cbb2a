"""What a run takes for the end of a step's process."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocm_wheels.core import files
from rocm_wheels.pipeline import run_step

FULL = {"message": "No space left on device (x)", "tip": "free some space"}


@pytest.mark.parametrize(
    ("printed", "told"),
    [
        ("", {}),
        ("compiling\nwarning: error: no", {}),
        ("error: No space left on device (x)\ntip: free some space", FULL),
        ("error: of a compiler\nmore\nerror: No space left on device (x)\ntip: free some space", FULL),
        ("::error::No space left on device (x)%0Atip: free some space", FULL),
        ("error: one\n  because two", {"message": "one\n  because two", "tip": None}),
    ],
)
def test_what_it_printed_counts_where_it_could_not_tell(
    printed: str, told: dict[str, object], tmp_path: Path
) -> None:
    assert run_step.read_result(tmp_path, "build-x", printed.splitlines()) == told
    run_step.result_path(tmp_path, "build-x").write_text('{"mess')
    assert run_step.read_result(tmp_path, "build-x", printed.splitlines()) == told
    assert not run_step.result_path(tmp_path, "build-x").exists()
    files.write_json_file(
        run_step.result_path(tmp_path, "build-x"), {"cpu_seconds": 1.5}
    )  # it met a full disk in its work
    assert run_step.read_result(tmp_path, "build-x", printed.splitlines()) == {**told, "cpu_seconds": 1.5}
    files.write_json_file(run_step.result_path(tmp_path, "build-x"), {"again": True})
    assert run_step.read_result(tmp_path, "build-x", printed.splitlines()) == {"again": True}
