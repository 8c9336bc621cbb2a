"""Imports of real wheels in real environments: what is found, what crashes, what hangs."""

from __future__ import annotations

import subprocess
import sys
import venv
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from packaging.tags import sys_tags
from wheels import Draft, torch_draft

from rocm_wheels.audit import audited_wheel, import_check, verify
from rocm_wheels.audit.definition import Skip
from rocm_wheels.core import errors
from rocm_wheels.models import project

pytestmark = [
    pytest.mark.contract,
    pytest.mark.skipif(sys.platform != "linux", reason="the wheels of this test are for Linux"),
]

GOOD = """
import os, sys
leaks = sorted(name for name in os.environ if name.startswith(("PYTHONPATH", "LD_", "ROCM_", "VIRTUAL_ENV")))
assert not leaks, leaks
assert not os.listdir(), os.getcwd()
print("noise on stdout")
from . import _rocm_init, version
from .version import __version__
class _C:
    _cuda_getArchFlags = staticmethod(lambda: "gfx942 gfx1100")
"""
DIRTY = {"PYTHONPATH": "/nowhere", "LD_LIBRARY_PATH": "/nowhere", "ROCM_PATH": "/x", "VIRTUAL_ENV": "/x"}


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False, symlinks=True)
    return folder / "bin" / "python"


def make(folder: Path, init: str = GOOD, **changes: object) -> Path:
    draft = torch_draft()
    draft.tag = str(next(sys_tags()))
    draft.members["torch/__init__.py"] = init.encode()
    for name, value in changes.items():
        setattr(draft, name, value)
    return draft.write(folder)


def expectation(**changes: object) -> audited_wheel.WheelExpectation:
    known = audited_wheel.WheelExpectation(
        project.load_project("pytorch"), "linux", version="2.9.0+rocm7.1.0", targets=("gfx942", "gfx1100")
    )
    return replace(known, **changes)  # type: ignore[arg-type]


def said(findings: Iterable[errors.Finding]) -> str:
    return "\n".join(finding.message for finding in findings)


def test_a_wheel_is_imported_without_being_installed(tmp_path: Path, python: Path) -> None:
    before = sorted(python.parents[1].rglob("*"))
    log = tmp_path / "import.log"
    place = import_check.ImportEnvironment(python, DIRTY, log=log)
    report = verify.verify_wheel(make(tmp_path), expectation(), environment=place)
    assert report.findings == ()
    assert "import" in report.ran
    assert sorted(python.parents[1].rglob("*")) == before
    assert "noise on stdout" in log.read_text()


def test_an_installed_wheel_is_imported_where_it_is(tmp_path: Path) -> None:
    import uv

    venv.create(tmp_path / "env", with_pip=False, symlinks=True)
    python = tmp_path / "env" / "bin" / "python"
    wheel = make(tmp_path)
    install = [uv.find_uv_bin(), "pip", "install", "-q", "--no-deps", "--no-index", "--python", python, wheel]
    subprocess.run(install, check=True)
    place = import_check.ImportEnvironment(python, installed=True)
    assert list(import_check.import_here(wheel, expectation(), place)) == []
    # another torch that is found first is not the wheel
    other = tmp_path / "other"
    (other / "torch").mkdir(parents=True)
    (other / "torch" / "__init__.py").write_text(
        "class version:\n    hip = '7'\n__version__ = '2.9.0+rocm7.1.0'"
    )
    packages = next((tmp_path / "env" / "lib").glob("python*/site-packages"))
    (packages / "a.pth").write_text(f"import sys; sys.path.insert(0, {str(other)!r})")
    text = said(import_check.import_here(wheel, expectation(), place))
    assert f"`import torch` took {other}/torch/__init__.py, not the wheel's" in text


CASES = [
    ("old", GOOD + "__version__ = '2.8.0'", "`torch.__version__` is 2.8.0, not 2.9.0+rocm7.1.0"),
    ("public", GOOD + "__version__ = '2.9.0'", "`torch.__version__` is 2.9.0, not 2.9.0+rocm7.1.0"),
    ("cpu", GOOD + "version.hip = None", "`torch.version.hip` is None: a CPU-only build"),
    ("targets", GOOD.replace(" gfx1100", ""), "says it was compiled for gfx942, not for gfx1100"),
    ("missing", "import librccl_is_not_there", "No module named 'librccl_is_not_there'"),
    ("segfault", "import ctypes; ctypes.string_at(0)", "`import torch` crashed with SIGSEGV"),
    ("abort", "import os; os.abort()", "`import torch` crashed with SIGABRT"),
    ("at-exit", GOOD + "import atexit; atexit.register(os.abort)", "`import torch` crashed with SIGABRT"),
    ("exit", "import sys; sys.exit(3)", "`import torch` failed with exit code 3"),
    ("hang", "import time; time.sleep(60)", "`import torch` was stopped after 3 s without an end"),
]


@pytest.mark.parametrize(("init", "what"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_what_an_import_brings_to_light(tmp_path: Path, python: Path, init: str, what: str) -> None:
    timeout = 3 if "sleep" in init else 60
    place = import_check.ImportEnvironment(python, DIRTY, timeout=timeout)
    [finding] = import_check.import_here(make(tmp_path, init), expectation(), place)
    assert what in finding.message


def test_a_silent_exit_is_no_success(tmp_path: Path, python: Path) -> None:
    findings = import_check.import_here(
        make(tmp_path, "import os; os._exit(0)"), expectation(), import_check.ImportEnvironment(python)
    )
    assert "ended before it was done" in said(findings)


def test_a_wheel_for_another_python_cannot_be_installed(tmp_path: Path, python: Path) -> None:
    wheel = make(tmp_path, tag="cp39-cp39-linux_x86_64")
    findings = import_check.import_here(wheel, expectation(), import_check.ImportEnvironment(python))
    assert said(findings).startswith("installing it into a throw-away folder failed with exit code")


def test_no_interpreter_is_a_finding(tmp_path: Path) -> None:
    findings = import_check.import_here(
        make(tmp_path), expectation(), import_check.ImportEnvironment(tmp_path / "python", installed=True)
    )
    assert "`import torch` could not be started" in said(findings)


def test_what_users_must_set_is_set_and_a_gpu_that_is_asked_for_is_there(
    tmp_path: Path, python: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    init = (
        "import os\nassert os.environ['FLASH_ATTENTION_TRITON_AMD_ENABLE'] == 'TRUE'\n__version__ = '2.8.4'"
    )
    members = {"flash_attn/__init__.py": init.encode()}
    wheel = Draft("flash_attn", "2.8.4", tag="py3-none-any", members=members).write(tmp_path)
    expected = audited_wheel.WheelExpectation(
        project.load_project("flash_attention"), "linux", version="2.8.4"
    )
    place = import_check.ImportEnvironment(python)
    monkeypatch.setattr(import_check, "_KFD", tmp_path)
    assert list(import_check.import_here(wheel, expected, place)) == []
    monkeypatch.setattr(import_check, "_KFD", tmp_path / "gone")
    with pytest.raises(Skip, match="it asks for a GPU"):
        list(import_check.import_here(wheel, expected, place))


def test_triton_states_only_the_public_part_of_its_version(tmp_path: Path, python: Path) -> None:
    members = {"triton/__init__.py": b"__version__ = '3.5.0'"}
    wheel = Draft("triton", "3.5.0+rocm7.1.0", tag="py3-none-any", members=members).write(tmp_path)
    expected = audited_wheel.WheelExpectation(
        project.load_project("triton"), "linux", version="3.5.0+rocm7.1.0"
    )
    assert list(import_check.import_here(wheel, expected, import_check.ImportEnvironment(python))) == []


def test_a_wheel_for_windows_is_not_imported_and_says_so(tmp_path: Path, python: Path) -> None:
    report = verify.verify_wheel(
        make(tmp_path, tag="cp311-cp311-win_amd64"),
        expectation(platform="windows"),
        environment=import_check.ImportEnvironment(python),
    )
    assert {skip.check: skip.reason for skip in report.skipped}["import"] == (
        "not imported: it is for windows, and this machine runs linux"
    )


def test_what_a_wheel_requires_comes_from_a_folder_beside_the_environment(
    tmp_path: Path, python: Path
) -> None:
    (tmp_path / "additions").mkdir()
    (tmp_path / "additions" / "pillow_of_a_test.py").write_text("")
    wheel = make(tmp_path, f"import pillow_of_a_test\n{GOOD}")
    place = import_check.ImportEnvironment(python, additions=tmp_path / "additions")
    assert list(import_check.import_here(wheel, expectation(), place)) == []
    # nowhere to be had: not checked, and that is said; the wheel's own faults stay faults
    place = import_check.ImportEnvironment(python, lacking=("pillow",))
    with pytest.raises(Skip, match="requires pillow"):
        list(import_check.import_here(wheel, expectation(), place))
    for init in ("import torch.gone", "from . import gone", "raise SystemError"):
        assert list(import_check.import_here(make(tmp_path, init), expectation(), place)), init
