"""``rocm-wheels verify``, which is ``audit --by-recipe``: what it prints, and which exit code it has."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from commands import Ended, call
from wheels import Draft, library, torch_draft

from rocm_wheels.audit import checks
from rocm_wheels.core import files

pytestmark = pytest.mark.contract


def verify(*arguments: str | Path, code: int | tuple[int, ...] = 0) -> Ended:
    return call("verify", *arguments, code=code)


def flatten(text: str) -> str:
    """Return printed findings with a blank between their lines."""
    return " ".join(text.split())


def test_a_good_wheel_passes(tmp_path: Path) -> None:
    path = torch_draft().write(tmp_path)
    told = verify(path, "--gfx", "gfx942;gfx1100", "--rocm", "7.1.0").out
    assert told.startswith(f"passed {path.name}: nothing found (")
    assert "skipped: python: the interpreter it is for was not stated" in told
    assert "skipped: import: not imported: no environment to import it in" in told


def test_a_wheel_with_findings_leaves_with_14(tmp_path: Path) -> None:
    path = torch_draft().write(tmp_path)
    told = verify(path, "--gfx", "gfx942,gfx1100,gfx1201", "--rocm", "7.2", code=14)
    assert "error RW017 device-code torch/lib/libtorch_hip.so lacks gfx1201" in flatten(told.out)
    assert "does not require rocm[libraries]==7.2, but rocm[libraries]==7.1.0" in told.out
    assert "checks for ROCm 7.1.0, but was built with 7.2" in told.out
    assert "error: the wheel failed" in told.err


def test_warnings_do_not_fail_a_wheel(tmp_path: Path) -> None:
    draft = torch_draft()
    draft.members["torch/lib/libc10.so"] = library(run_path="/opt/rocm/lib")
    told = verify(draft.write(tmp_path)).out
    assert "warning RW021 run-paths torch/lib/libc10.so looks for libraries in /opt/rocm/lib" in flatten(told)


# what a compiler of a newer system than manylinux_2_28 leaves in a library: of glibc, of libstdc++
NEWER_SYMBOLS = {
    "GLIBC_2.34": ("c", "#include <dlfcn.h>\nvoid *f(void) { return dlsym(0, 0); }"),
    "GLIBCXX_3.4.30": ("c++", "#include <vector>\nint f(std::vector<int> &v, int i) { return v[i]; }"),
}


@pytest.mark.skipif(shutil.which("c++") is None or sys.platform != "linux", reason="needs c++ on Linux")
@pytest.mark.parametrize("version", NEWER_SYMBOLS)
def test_a_wheel_of_a_newer_system_than_its_tag_is_refused(tmp_path: Path, version: str) -> None:
    """A tag of Linux alone counts as that of our build image: installers take it everywhere."""
    language, source = NEWER_SYMBOLS[version]
    compiled = tmp_path / "library.so"
    command = ["c++", "-shared", "-fPIC", "-O1", "-D_GLIBCXX_ASSERTIONS", "-x", language, "-", "-o", compiled]
    subprocess.run(command, input=source, text=True, check=True)
    if version.encode() not in compiled.read_bytes():
        pytest.skip(f"this compiler needs no {version}")
    seen = {}
    for tag in ("manylinux_2_28_x86_64", "manylinux_2_39_x86_64", "linux_x86_64"):
        draft = torch_draft()
        draft.tag = f"cp311-cp311-{tag}"
        draft.members["torch/lib/libc10.so"] = compiled.read_bytes()
        ended = verify("--json", draft.write(tmp_path), code=(0, 14))
        seen[tag], (report,) = ended.code, ended.json["wheels"]
        errors = {(found["check"], found["severity"]) for found in report["findings"]}
        assert errors == ({("elf-tag-too-old", "error")} if seen[tag] else set()), report["findings"]
        assert not seen[tag] or f"{version} in torch/lib/libc10.so" in report["findings"][0]["what"]
    assert seen == {"manylinux_2_28_x86_64": 14, "manylinux_2_39_x86_64": 0, "linux_x86_64": 14}


def test_json_holds_every_wheel_also_one_that_cannot_be_read(tmp_path: Path) -> None:
    good = torch_draft().write(tmp_path)
    triton = Draft("triton", "3.5.0", members={"triton/__init__.py": b""}).write(tmp_path)
    cut = tmp_path / "torch-2.8.0-py3-none-any.whl"
    cut.write_bytes(good.read_bytes()[:-100])
    told = verify("--json", good, cut, triton, code=14)
    document = told.json
    reports = document["wheels"]
    assert [report["passed"] for report in reports] == [True, False, True]
    assert document["tool"].split()[-1] == "audit" and document["when"]
    assert [report["recipe"] for report in reports] == ["pytorch", "pytorch", "triton"]
    assert reports[0]["targets"] == ["gfx1100", "gfx942"]
    [damage] = reports[1]["findings"]
    assert damage["check"] == "archive" and "is not a readable wheel" in damage["what"]
    assert reports[1]["sha256"] == files.hash_file(cut)
    named = {*reports[2]["ran"], *reports[2]["skipped"]}
    assert named == {check.name for check in checks.CHECKS} - {"exceptions"}
    assert "1 of 3 wheels failed" in told.err


@pytest.mark.skipif(sys.platform != "linux", reason="a recipe's wheel is imported where its platform is")
def test_an_interpreter_imports_the_wheel(tmp_path: Path) -> None:
    members = {"triton/__init__.py": b"raise ImportError('no libtriton')"}
    path = Draft("triton", "3.5.0", tag="py3-none-any", members=members).write(tmp_path)
    told = verify(path, "--python", sys.executable, code=14).out
    assert "error RW022 import `import triton` failed with exit code 1" in flatten(told)
    assert "| ImportError: no libtriton" in told


def test_the_checks_can_be_listed() -> None:
    lines = verify("--explain").out.splitlines()
    assert [line.split()[:2] for line in lines] == [[check.id, check.name] for check in checks.ALL_CHECKS]


def test_one_recipe_holds_every_wheel_whatever_it_is_called(tmp_path: Path) -> None:
    torch = torch_draft().write(tmp_path)
    triton = Draft("triton", "3.5.0", members={"triton/__init__.py": b""}).write(tmp_path)
    reports = verify("--json", torch, triton, "--project", "pytorch", code=14).json["wheels"]
    assert [(report["recipe"], report["passed"]) for report in reports] == [
        ("pytorch", True),
        ("pytorch", False),
    ]
    assert {"file-name", "files"} <= {finding["check"] for finding in reports[1]["findings"]}
    verify(torch, triton, "--recipe", "pytorch", "--recipe", "triton", code=2)


def test_what_a_configuration_file_says_of_builds_makes_no_wheel_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = Draft("numpy", "1.0", tag="py3-none-any", members={"numpy/__init__.py": b""}).write(tmp_path)
    (tmp_path / "rocm-wheels.toml").write_text('gfx = "gfx942"\npython = "3.99"\nrocm = "7.1.0"\n')
    monkeypatch.chdir(tmp_path)
    call("audit", path)
    call("audit", path, "--gfx", "gfx942", code=2)
    verify(path, code=2)


def test_a_package_of_rocm_for_one_gpu_is_no_device_wheel(tmp_path: Path) -> None:
    """It is a wheel that no recipe builds, beside torch, too: not a part of one that is not named."""
    rocm = Draft("rocm_sdk_device_gfx942", "7.1.0", "py3-none-linux_x86_64").write(tmp_path)
    call("audit", rocm)
    for wheels in ([rocm], [rocm, torch_draft().write(tmp_path)]):
        assert f"{rocm.name}: no recipe builds rocm_sdk_device_gfx942" in verify(*wheels, code=2).err
