"""The commands that make new wheels out of wheels, all by one table: what they have in common.

The same bytes twice, whatever the clock and the times of files say; nothing written by `--dry-run`; a file of
that name with other content is never replaced; a wheel that is named twice made once.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from binaries import HOST, bundle, compress, elf, hip
from binaries import wheel as write_wheel
from commands import call
from wheels import Draft, files, library

from rocm_wheels.cli import boundary, main

pytestmark = pytest.mark.contract

CODE = elf({".hip_fatbin": compress(bundle(HOST, hip("gfx90a"), hip("gfx942")), 3, "zstd")})
INIT = b'import rocm_sdk\nrocm_sdk.initialize_process(preload_shortnames=["rocblas"])\n'
Report = Callable[..., tuple[int, Any]]


def make_torch(folder: Path) -> Path:
    """A torch with device code that requires its ROCm."""
    members = {
        "torch/__init__.py": b"from . import _rocm_init\n",
        "torch/_rocm_init.py": INIT,
        "torch/lib/libtorch_hip.so": CODE,
    }
    return Draft(members=members, requires=["rocm[libraries]==7.1.0"]).write(folder)


def make_plain(folder: Path) -> Path:
    """A wheel with one host library, which needs no symbol of any version."""
    if sys.platform != "linux" or shutil.which("cc") is None:
        pytest.skip("links an ELF library")
    words = ["cc", "-shared", "-nostdlib", "-x", "c", "-", "-o", "x.so"]
    subprocess.run(words, input=b"", cwd=folder, check=True)
    return Draft("plain", "1.0", members={"plain/x.so": (folder / "x.so").read_bytes()}).write(folder)


def make_variant(folder: Path) -> Path:
    """A torch that was stamped."""
    (folder / "plain").mkdir()
    words = ["wheel", "stamp", str(make_torch(folder / "plain")), "-o", str(folder)]
    assert boundary.run_command(main.cli, words) == 0
    (variant,) = folder.glob("*.whl")
    return variant


def make_rocm(folder: Path) -> Path:
    """A folder with the wheel of ROCm that `make_torch` requires."""
    members = {"_rocm_sdk_core/.info/version": b"7.1.0\n", "_rocm_sdk_core/lib/librocblas.so.5": CODE}
    Draft("rocm_sdk_core", "7.1.0", "py3-none-linux_x86_64", members=members).write(folder)
    return folder


# command: what makes its wheel, options
COMMANDS: dict[str, tuple[Callable[[Path], Path], list[str]]] = {
    "repair": (make_plain, []),
    "fat": (make_torch, ["--find-links", "{rocm}", "--gfx", "gfx942"]),
    "prune": (make_torch, ["--gfx", "gfx942"]),
    "stamp": (make_torch, []),
    "retag": (make_torch, ["--build-tag", "1"]),
    "retag --label=": (make_variant, ["--local-version", "rocm7.1.0"]),
}


@pytest.fixture(params=COMMANDS)
def report(
    request: pytest.FixtureRequest, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> tuple[Path, Report]:
    """A wheel, and what runs a command on it and returns exit code and the result as JSON."""
    make, options = COMMANDS[request.param]
    for name in ("source", "rocm"):
        (tmp_path / name).mkdir()
    wheel = make(tmp_path / "source")
    words = [word.format(rocm=make_rocm(tmp_path / "rocm")) for word in options]

    def run(*more: str | Path) -> tuple[int, Any]:
        capfd.readouterr()
        argv = ["wheel", *request.param.split(), str(wheel), *words, *map(str, more), "--json"]
        code = boundary.run_command(main.cli, argv)
        out = capfd.readouterr().out
        return code, json.loads(out) if out else None

    return wheel, run


def read_wheels(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_same_bytes_twice(
    report: tuple[Path, Report], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel, run = report
    assert run("-o", tmp_path / "first")[0] == 0
    os.utime(wheel, (1_700_000_000, 1_700_000_000))
    monkeypatch.setattr("time.time", lambda: 1_800_000_000.0)
    assert run(wheel, "--output-dir", tmp_path / "second")[0] == 0  # named twice: made once
    first, second = (read_wheels(tmp_path / name) for name in ("first", "second"))
    assert len(first) == 1
    assert first == second


def test_dry_run_writes_nothing(report: tuple[Path, Report], tmp_path: Path) -> None:
    _, run = report
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    code, planned = run("--dry-run", "-o", tmp_path / "new")
    assert code == 0
    assert planned
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before
    _, done = run("-o", tmp_path / "new")
    plans, wheels = (value["wheels"] if isinstance(value, dict) else value for value in (planned, done))
    for plan, wheel in zip(plans, wheels, strict=True):
        if isinstance(plan, dict):
            decided = plan.keys() - {"written", "size"}  # which are None before
            assert {key: plan[key] for key in decided} == {key: wheel[key] for key in decided}
        else:
            assert plan == wheel


def test_other_content_is_not_replaced(report: tuple[Path, Report], tmp_path: Path) -> None:
    _, run = report
    new = tmp_path / "new"
    assert run("-o", new)[0] == 0
    (name,) = read_wheels(new)
    (new / name).write_bytes(b"somebody else's")
    assert run("-o", new)[0] == 2
    assert read_wheels(new) == {name: b"somebody else's"}


def test_beside_the_wheel_unless_said_otherwise(report: tuple[Path, Report], tmp_path: Path) -> None:
    """A wheel never takes the place of the one that it is made of."""
    wheel, run = report
    content = wheel.read_bytes()
    assert run("-o", tmp_path / "new")[0] == 0
    ((name, expected),) = read_wheels(tmp_path / "new").items()
    code, _ = run()
    assert (code, wheel.read_bytes()) == (2 if name == wheel.name else 0, content)
    assert name == wheel.name or (wheel.parent / name).read_bytes() == expected


@pytest.fixture
def pair(report: tuple[Path, Report], tmp_path: Path) -> tuple[Path, list[str], Path]:
    """Another wheel beside the one of `report`, and what both become in a folder."""
    wheel, run = report
    second = wheel.with_name(wheel.name.replace("cp311-cp311", "cp312-cp312"))
    shutil.copy(wheel, second)
    assert run(second, "-o", tmp_path / "done")[0] == 0
    names = sorted(read_wheels(tmp_path / "done"))
    assert len(names) == 2
    return second, names, tmp_path / "done"


def test_several_wheels_are_there_all_or_none(
    report: tuple[Path, Report], pair: tuple[Path, list[str], Path], tmp_path: Path
) -> None:
    """The second cannot be: another file, or a folder, has its name."""
    (_, run), (second, (_, name), done) = report, pair
    new = tmp_path / "new"
    new.mkdir()
    (new / name).write_bytes(b"somebody else's")
    assert run(second, "-o", new)[0] == 2
    assert read_wheels(new) == {name: b"somebody else's"}
    (new / name).unlink()
    (new / name).mkdir()
    assert run(second, "-o", new)[0] == 2
    assert [path.name for path in new.iterdir()] == [name]
    (new / name).rmdir()
    assert run(second, "-o", new)[0] == 0
    assert read_wheels(new) == read_wheels(done)


def test_a_name_that_cannot_be_given_takes_the_others_back(
    report: tuple[Path, Report],
    pair: tuple[Path, list[str], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (_, run), (second, names, done) = report, pair
    new = tmp_path / "new"
    replace = Path.replace

    def fail(path: Path, target: str | os.PathLike[str]) -> Path:
        if Path(target) == new / names[1]:
            raise OSError(28, "No space left on device", str(target))
        return replace(path, target)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", fail)
        assert run(second, "-o", new)[0] != 0
    assert not new.exists() or not read_wheels(new)
    # killed on the way: one has its name, and a hidden folder is left
    new.mkdir(exist_ok=True)
    shutil.copy(done / names[0], new)
    (new / ".rocm-wheels-killed.part").mkdir()
    (new / ".rocm-wheels-killed.part" / names[1]).write_bytes(b"half")
    assert run(second, "-o", new)[0] == 0
    assert read_wheels(new) == read_wheels(done)


def test_the_light_install_stamps_alike(tmp_path: Path) -> None:
    """Without isal, which comes with the extra `build`, members are inflated by zlib."""
    source = write_wheel(tmp_path, {"demo/a.so": CODE, "demo/b.bin": bytes(3 << 20)})
    words = ["wheel", "stamp", str(source), "--rocm", "7.1"]
    assert boundary.run_command(main.cli, [*words, "-o", str(tmp_path / "isal")]) == 0
    code = "import sys; sys.modules['isal'] = None; from rocm_wheels.cli.main import main; main()"
    subprocess.run([sys.executable, "-c", code, *words, "-o", str(tmp_path / "zlib")], check=True)
    assert read_wheels(tmp_path / "isal") == read_wheels(tmp_path / "zlib")
    assert "gfx90a" in "".join(read_wheels(tmp_path / "zlib"))


def test_rocms_own_packages_beside_wheels_are_not_split(tmp_path: Path) -> None:
    members = {"_rocm_sdk_libraries/lib/librocblas.so.4": library("gfx942")}
    Draft("rocm_sdk_libraries", "7.1.0", "py3-none-linux_x86_64", members=members).write(tmp_path)
    before = files(tmp_path)
    made = call("set", "package", tmp_path, "--packaging", "split", "--json").json
    assert (made["written"], files(tmp_path)) == ([], before)
