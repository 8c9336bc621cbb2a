"""Disks that are full or read-only: one clear error, nothing half made, and the same command goes on."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from projects import TAG, World

pytestmark = [
    pytest.mark.slow,
    pytest.mark.network,
    pytest.mark.skipif(sys.platform != "linux", reason="mounts a tmpfs"),
    pytest.mark.skipif(hasattr(os, "geteuid") and os.geteuid() != 0, reason="only root may mount a tmpfs"),
]

TWO = ("--no-build-pytorch-audio",)
FREE_SPACE = "tip: free some space and run the same command again; what is finished is kept"
# a front end in whose time the disk fills up, and that says more than what is left of a page of its log
FILL = """
with open({filler!r}, "wb", buffering=0) as file:
    for size in (1 << 20, 1 << 12):
        try:
            while file.write(bytes(size)): pass
        except OSError: continue
print("x" * (1 << 14), flush=True)
"""
Mount = Callable[[Path], None]


@pytest.fixture
def mount(world: World) -> Iterator[Mount]:
    """Return a function that puts a disk of 80 MiB over a folder. Where root cannot, that is a failure."""
    mounted: list[Path] = []

    def put(folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=80m", "tmpfs", str(folder)], check=True)
        mounted.append(folder)

    yield put
    for folder in mounted:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def remount(folder: Path, how: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{how}", str(folder)], check=True)


@pytest.mark.contract_slow
@pytest.mark.parametrize(
    "place",
    [
        *("wheels", "work/runs"),  # what people get, and what the run says of itself
        *(pytest.param(place, marks=pytest.mark.exhaustive) for place in ("work/steps", "work/fresh")),
    ],
)
def test_a_disk_that_fills_up_costs_no_more_than_the_step(place: str, world: World, mount: Mount) -> None:
    folder = world.folder / place
    mount(folder)
    filler = folder / "filler"
    if place == "work/runs":
        filler.touch()
    world.disturb("pytorch", FILL.format(filler=str(filler)))
    ended = world.build(*TWO)
    assert ended.code in (2, 12), ended
    assert ended.err.count("No space left on device") >= 1
    errors = [line for line in ended.err.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1, ended.err
    assert FREE_SPACE in ended.err or "tip: the disk is full: free space, then run again" in ended.err
    assert [name for name in world.wheels() if name != "filler"] == [triton(world)]
    run = world.runs()[-1]
    assert run.steps[f"build-triton-{TAG}"].state == "done"
    # what is left of the record's page may be room enough for its end, or not
    assert run.state in ("failed", "killed" if place == "work/runs" else "failed")
    filler.unlink()
    world.disturb("pytorch")
    world.calls()
    ended = world.build(*TWO)
    assert ended.code == 0, ended.err
    assert {call.split()[0] for call in world.calls()} <= {"pytorch"}
    assert sorted(world.wheels()) == [torch(world), triton(world)]


def test_a_disk_without_room_for_a_record_begins_no_run(world: World, mount: Mount) -> None:
    """Neither for the plan; nor, a few pages later, for what the first step says of itself."""
    runs = world.work / "runs"
    mount(runs)
    for free in (0, 4):
        (runs / "filler").write_bytes(bytes(((80 << 10) - 4 * free) << 10))
        ended = world.build(*TWO)
        assert (ended.code, world.calls()) == (2, []), ended.err
        assert "error: No space left on device (" in ended.err
        assert ended.err.endswith(f"{FREE_SPACE}\n")
        assert [run.state for run in world.runs()] == ["failed"] * (free > 0)
        (runs / "filler").unlink()
    assert world.build(*TWO).code == 0


@pytest.mark.contract_slow
def test_an_output_that_becomes_read_only(world: World, mount: Mount) -> None:
    mount(world.output)
    command = ["mount", "-o", "remount,ro", str(world.output)]
    world.disturb("pytorch", f"subprocess.run({command!r}, check=True)")
    ended = world.build(*TWO)
    assert ended.code == 2, ended.err
    assert f"error: Read-only file system ({world.output}" in ended.err
    assert "tip: make it writable, or choose another folder" in ended.err
    assert list(world.wheels()) == [triton(world)]
    world.disturb("pytorch")
    again = world.build(*TWO)
    assert (again.code, world.output.name in again.err) == (2, True), again.err
    remount(world.output, "rw")
    world.calls()
    assert world.build(*TWO).code == 0
    assert world.calls() == [], "it was built, and is delivered now"
    assert sorted(world.wheels()) == [torch(world), triton(world)]


def test_a_work_directory_that_is_read_only(world: World, mount: Mount) -> None:
    mount(world.folder / "closed")
    remount(world.folder / "closed", "ro")
    ended = world.build("--work-dir", str(world.folder / "closed" / "work"))
    assert ended.code == 2
    assert "Read-only file system" in ended.err
    assert world.calls() == []


def triton(world: World) -> str:
    return f"triton-3.5.0+rocm7.1.0-{TAG}-{TAG}-linux_x86_64.whl"


def torch(world: World) -> str:
    return f"torch-2.9.0+rocm7.1.0-{TAG}-{TAG}-manylinux_2_5_x86_64.manylinux1_x86_64.whl"
