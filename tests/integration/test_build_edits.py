"""The loop of a developer: edit, build, reinstall; and wheels of other builds in the same folder."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from tiny_projects import World, made_world, world

pytestmark = [pytest.mark.slow, pytest.mark.network]
__all__ = ["made_world", "world"]
ONLY_TORCH = ("--project", "pytorch")
USAGE = 2


def list_versions(world: World) -> list[str]:
    return sorted(path.name.split("-")[1] for path in world.output.glob("torch-*.whl"))


def test_edits_have_names_and_are_reinstalled(world: World, tmp_path: Path) -> None:
    source = world.sources / "pytorch" / "source.txt"
    try:
        assert world.build(*ONLY_TORCH).code == 0
        assert list_versions(world) == ["2.9.0+rocm7.1.0"]
        source.write_text("edited")
        assert world.build(*ONLY_TORCH).code == 0
        (edited,) = list_versions(world)
        assert re.fullmatch(r"2\.9\.0\+rocm7\.1\.0\.gfx942\.dirty[0-9a-f]{8}", edited)
        other = world.build(*ONLY_TORCH, "--release-type", "dev")
        assert (other.code, "gfx942 (nightly)" in other.err) == (USAGE, True), other.err
        assert "--per-target" in other.err and list_versions(world) == [edited]
        world.calls()

        venv = tmp_path / "venv"
        subprocess.run([sys.executable, "-m", "uv", "venv", "-q", str(venv)], check=True)
        for text in ("first", "second"):
            source.write_text(text)
            built = world.build(*ONLY_TORCH, "--version-suffix", "+mine")
            assert built.code == 0 and list_versions(world) == ["2.9.0+mine"], built.err
            (line,) = (line for line in built.err.splitlines() if line.startswith("reinstall: "))
            words = shlex.split(line.removeprefix("reinstall: "))
            start = words.index("pip")
            command = [sys.executable, "-m", "uv", *words[start:], "-q", "--python", str(venv)]
            subprocess.run(command, check=True)
            (installed,) = venv.glob("lib/python*/site-packages/torch/source.txt")
            assert installed.read_text() == text
    finally:
        source.write_text("one")


def test_a_wheel_whose_times_alone_changed_is_hashed_once(world: World) -> None:
    assert world.build(*ONLY_TORCH).code == 0
    step = next(path.stem for path in (world.work / "steps").glob("build-pytorch-*.json"))
    wheel = Path(world.stamp(step)["outputs"][0]["path"])
    os.utime(wheel, ns=(1, 1))
    world.calls()
    assert "nothing to do" in world.build(*ONLY_TORCH).err
    assert world.calls() == []
    (output,) = world.stamp(step)["outputs"]
    state = wheel.stat()
    assert [output["mtime_ns"], output["ctime_ns"]] == [state.st_mtime_ns, state.st_ctime_ns]  # as it is now
    with wheel.open("ab") as file:
        file.write(b"other bytes")
    assert world.build(*ONLY_TORCH).code == 0
    assert world.calls() == ["pytorch begun", "pytorch done"]
