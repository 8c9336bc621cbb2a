"""``import rocm_wheels`` in programs: what it costs, and what it installs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from pythons import make_environment, pypi, rocm_index, served_index

import rocm_wheels
from rocm_wheels.user.environment import name_uv

pytestmark = pytest.mark.contract


def test_importing_it_loads_nothing() -> None:
    code = "import sys; before = set(sys.modules); import rocm_wheels; print(*set(sys.modules) - before)"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert sorted(ended.stdout.split()) in (["rocm_wheels"], ["__future__", "rocm_wheels"])


def test_commands_and_installation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    target = make_environment(tmp_path / "target")
    with (
        served_index(tmp_path / "index", rocm_index(tmp_path / "rocm")) as index,
        served_index(tmp_path / "rest", pypi(tmp_path / "pypi")) as rest,
    ):
        monkeypatch.setenv("UV_DEFAULT_INDEX", rest.url)
        lines = rocm_wheels.get_install_commands(
            ["torch"], index=index.url, python=target.prefix, gfx=["gfx942"]
        )
        assert lines[-1].startswith(f"{name_uv()} pip install") and "torch-2.9.1%2Brocm7.2" in lines[-1]
        # a program means its own environment, as no command does
        for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setattr(sys, "prefix", str(target.prefix))
        monkeypatch.setattr(sys, "executable", str(target.python))
        assert rocm_wheels.get_install_commands(["torch"], index=index.url, gfx=["gfx942"]) == lines
        said = rocm_wheels.install(["torch"], index=index.url, python=target.prefix, gfx=["gfx942"])
        assert any("2.9.1+rocm7.2" in line for line in said)
