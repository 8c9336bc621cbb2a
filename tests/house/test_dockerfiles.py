"""The Dockerfiles by hadolint's rules, and the launcher that they put into images."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

CLONE = Path(__file__).resolve().parents[2]
FOLDER = CLONE / "dockerfiles"

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="hadolint comes with its wheel for Linux")


def hadolint(*words: str) -> subprocess.CompletedProcess[str]:
    program = Path(sys.executable).with_name("hadolint")
    argv = [str(program), "--no-color", "--failure-threshold", "style", *words]
    return subprocess.run(argv, capture_output=True, text=True, check=False)


def test_hadolint_finds_nothing(tmp_path: Path) -> None:
    ended = hadolint(*(str(one) for one in sorted(FOLDER.glob("*.Dockerfile"))))
    assert (ended.returncode, ended.stdout) == (0, ""), ended.stderr
    planted = tmp_path / "planted.Dockerfile"
    planted.write_text("FROM ubuntu\nRUN apt-get update && apt-get install g++\nUSER root\n")
    ended = hadolint(str(planted))
    assert ended.returncode == 1
    assert "DL3006" in ended.stdout


def test_only_what_images_copy_is_sent_to_the_engine() -> None:
    lines = (CLONE / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert [one for one in lines if not one.startswith("#")] == [
        "*",
        "!dockerfiles",
        "!build_tools/requirements.lock",
    ]


def test_the_launcher_of_an_image_starts_the_mounted_checkout(tmp_path: Path) -> None:
    launcher = tmp_path / "rocm-wheels"
    first, _, rest = (FOLDER / "rocm-wheels").read_text(encoding="utf-8").partition("\n")
    assert first == "#!/usr/local/lib/rocm-wheels/venv/bin/python3"
    launcher.write_text(rest)
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    argv = [sys.executable, str(launcher), "compat", "--help"]
    for checkout, code, said in ((str(CLONE), 0, "Usage: rocm-wheels compat"), ("", 1, "is no checkout")):
        ended = subprocess.run(
            argv, env={**env, "ROCM_WHEELS_CHECKOUT": checkout}, capture_output=True, text=True, check=False
        )
        assert ended.returncode == code, ended.stderr
        assert said in ended.stdout + ended.stderr
