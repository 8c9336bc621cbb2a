"""What a second run of ``build`` takes for current, and what not: after the demo, on the same trees."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from test_demo import Demo, demo

from rocm_wheels.workspace import exclusive

pytestmark = [pytest.mark.slow, pytest.mark.network]
__all__ = ["demo"]


def test_a_source_tree_is_built_by_one_run_at_a_time(demo: Demo, tmp_path: Path) -> None:
    packages = str(demo.folder / "rocm-packages" / "dist")
    other = ["--install-rocm", "--find-links", packages, "--work-dir", str(demo.folder / "other-work")]
    place = demo.torch / ".git" / "rocm-wheels"
    with exclusive(place, what="a build with its own work directory"):
        ended = demo.build(*other, "--no-build-pytorch-audio", output="other")
    assert ended.code == 2, ended.err
    assert f"{place} is in use by process" in ended.err
    assert "(a build with its own work directory)" in ended.err
    assert "tip: wait for it to end, then run this again, or build from another checkout" in ended.err
    assert not list((demo.folder / "other").glob("*.whl"))
    shutil.rmtree(demo.folder / "other-work")
