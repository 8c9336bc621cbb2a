"""What becomes of versions, requirements and the versions in Python files when a set is finalized."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.requirements import Requirement
from packaging.version import Version

from rocm_wheels.core import errors
from rocm_wheels.models.project import load_project
from rocm_wheels.package import finalize, version_edit

RC = "7.1.0rc1"


def candidates(*wheels: str, rocm: str = RC) -> list[finalize.CandidateWheel]:
    """Return wheels, each ``project version``."""
    found = []
    for number, (project, version) in enumerate(one.split() for one in wheels):
        path = Path(f"{project}-{version}-cp31{number}-cp31{number}-linux_x86_64.whl")
        found.append(finalize.CandidateWheel(path, project, Version(version), rocm, ()))
    return found


@pytest.mark.parametrize(
    ("version", "rocm", "becomes"),
    [
        ("2.9.0rc1", None, "2.9.0"),
        ("2.9.0rc1+rocm7.1.0rc1", None, "2.9.0+rocm7.1.0rc1"),
        ("2.9.0rc1+rocm7.1.0rc1", (RC, "7.1.0"), "2.9.0+rocm7.1.0"),
        ("2.9.0rc1+rocm7.1.0rc1.asan", (RC, "7.1.0"), "2.9.0+rocm7.1.0.asan"),
        ("2.9.0rc1+rocm7.1.0rc10", ("7.1.0rc10", "7.1.0"), "2.9.0+rocm7.1.0"),
        ("2.13.0a0+git1a2b3c4d.rocm7.13.0a20260501", ("7.13.0a20260501", "7.13.0"),
         "2.13.0+git1a2b3c4d.rocm7.13.0"),
        ("3.5.0+git93ee3894.rocm7.1.0rc1.mini", ("7.1.0rc1+mini", "7.1.0+mini"),
         "3.5.0+git93ee3894.rocm7.1.0.mini"),
        ("1!2.9.0.post2.dev3", None, "1!2.9.0.post2"),
        ("0.24.0.dev20251124", None, "0.24.0"),
        ("2.9.0", None, "2.9.0"),
    ],
)  # fmt: skip
def test_the_pre_release_goes_by_rule(version: str, rocm: tuple[str, str] | None, becomes: str) -> None:
    assert finalize.make_final_version(Version(version), rocm) == becomes


TORCH_ALONE = ["torch 2.9.0rc1"]
REFUSED: list[tuple[list[str], dict[str, list[str]], str]] = [
    (["triton 3.5.0+rocm7.1.0"], {},
     r"triton 3\.5\.0\+rocm7\.1\.0 is no pre-release: say --keep triton .*--to triton="),
    (["torch 2.9.0rc1.post1"], {}, r"after a pre-release.*: say --to torch=VERSION"),
    (["torch 2.9.0rc1+cu130"], {"rocm": ["7.1.0"]},
     r"the label \+cu130 does not say ROCm 7\.1\.0rc1: say --to torch"),
    (TORCH_ALONE, {"rocm": ["7.1.1"]}, r"ROCm 7\.1\.0rc1 cannot become 7\.1\.1: that is another ROCm"),
    (TORCH_ALONE, {"rocm": ["7.1.0rc2"]}, r"7\.1\.0rc2 is a pre-release"),
    (TORCH_ALONE, {"rocm": ["7.2.0rc1=7.2.0"]}, r"no wheel is for ROCm 7\.2\.0rc1; did you mean 7\.1\.0rc1"),
    (TORCH_ALONE, {"rocm": ["new"]}, r"'new' is not a version"),
    (TORCH_ALONE, {"to": ["torch"]}, r"--to torch: one version for each project"),
    (TORCH_ALONE, {"to": ["torch=2.9.0", "torch=2.9.0"]}, r"one version for each project"),
    (TORCH_ALONE, {"to": ["torhc=2.9.0"]}, r"no wheel is of torhc; did you mean torch"),
    (TORCH_ALONE, {"keep": ["triton"]}, r"--keep triton: no wheel is of triton"),
    (TORCH_ALONE, {"to": ["torch=2.9.0"], "keep": ["torch"]}, r"torch cannot be kept and get another"),
    (TORCH_ALONE, {"to": ["torch=2.10.0"]}, r"torch 2\.9\.0rc1 cannot become 2\.10\.0: that is another"),
    (TORCH_ALONE, {"to": ["torch=2.9.0rc2"]}, r"to become 2\.9\.0rc2, a pre-release"),
    (["torch 2.9.0rc1+rocm7"], {"to": ["torch=2.9.0"]},
     r"lose its label: .* such as --to torch=2\.9\.0\+rocm7"),
    (["torch 2.9.0"], {"to": ["torch=2.9.0"]}, r"torch is 2\.9\.0 already: say --keep torch"),
    (["apex 1.0rc1", "apex 1.0rc2"], {}, r"two versions of apex would become 1\.0"),
]  # fmt: skip


@pytest.mark.parametrize(("wheels", "words", "said"), REFUSED)
def test_what_is_not_clear_is_asked(wheels: list[str], words: dict[str, list[str]], said: str) -> None:
    found = candidates(*wheels)
    with pytest.raises(errors.RocmWheelsError, match=said):
        finalize.plan_final_wheels(found, finalize.FinalVersions.parse(found, **words))


def test_a_label_of_rocm_is_not_lost() -> None:
    found = candidates("torch 2.9.0rc1", rocm="7.1.0rc1+mini")
    with pytest.raises(errors.UsageError, match=r"ROCm 7\.1\.0rc1\+mini would lose its label"):
        finalize.FinalVersions.parse(found, rocm=["7.1.0"])
    with pytest.raises(errors.UsageError, match=r"the wheels are for a ROCm that none of them names"):
        finalize.FinalVersions.parse(candidates("torch 2.9.0rc1", rocm=""), rocm=["7.1.0"])


def test_all_that_is_not_clear_is_said_at_once_and_parts_follow_their_whole() -> None:
    found = candidates("torch 2.9.0rc1", "torch-device-gfx942 2.9.0rc1", "triton 3.5.0", "apex 1.0")
    with pytest.raises(errors.ReleaseError) as told:
        finalize.plan_final_wheels(found, finalize.FinalVersions.parse(found))
    assert len(str(told.value).splitlines()) == 2
    versions = finalize.FinalVersions.parse(found, ["Torch=2.9.0.post1"], ["triton", "apex"], ["7.1.0"])
    told = [versions.find_version(wheel) for wheel in found]
    assert told == ["2.9.0.post1", "2.9.0.post1", "3.5.0", "1.0"]


OLD, NEW = "2.9.0rc1+rocm7.1.0rc1", "2.9.0+rocm7.1.0"
MOVED = {"torch": {Version(OLD): Version(NEW)}, "triton": {Version("3.5.0"): Version("3.5.0")}}
ROCM = {Version(RC): Version("7.1.0")}


@pytest.mark.parametrize(
    ("text", "becomes"),
    [
        (f"torch=={OLD}", f"torch=={NEW}"),
        (f"Torch[opt, more] (=={OLD}) ; extra == 'a==2.9.0rc1'",
         f"Torch[opt, more] (=={NEW}) ; extra == 'a==2.9.0rc1'"),
        ('torch ==2.9.0rc1,!=2.9.0 ; platform_system == "Linux"', None),
        ("torch ===2.9.0rc1+rocm7.1.0rc1", f"torch ==={NEW}"),
        ("torch==2.9.0rc1", "torch==2.9.0"),
        ("torch==2.9.0rc10", "torch==2.9.0rc10"),
        ("torch>=2.9.0rc1,<2.10", "torch>=2.9.0rc1,<2.10"),
        ("torch<=2.9.0rc5", None),
        ("torch", "torch"),
        ("triton==3.5.0", "triton==3.5.0"),
        ("numpy==2.9.0rc1", "numpy==2.9.0rc1"),
        (f"rocm[libraries]=={RC}", "rocm[libraries]==7.1.0"),
        (f"rocm-sdk-device-gfx942=={RC}; extra == 'device-gfx942'",
         "rocm-sdk-device-gfx942==7.1.0; extra == 'device-gfx942'"),
        ("rocm[libraries]==7.1.0rc10", "rocm[libraries]==7.1.0rc10"),
    ],
)  # fmt: skip
def test_pins_follow_and_all_else_stays_as_it_is_written(text: str, becomes: str | None) -> None:
    if becomes is None:
        said = r"it requires torch.*, which 2\.9\.0\+rocm7\.1\.0 is not"
        with pytest.raises(errors.ReleaseError, match=said):
            version_edit.rewrite_requirement(text, MOVED, ROCM)
    else:
        assert version_edit.rewrite_requirement(text, MOVED, ROCM) == becomes


_space = st.sampled_from(["", " ", "  "])
_extras = st.sampled_from(["", "[a]", "[a,b-c]"])
_marker = st.sampled_from(
    ["", ";extra == '==2.9.0rc1'", " ; python_version>='3.10' and (os_name == \"posix\")"]
)


_pin = st.tuples(st.sampled_from(["==", "==="]), _space).map("".join)


@given(_extras, _space, _pin, _marker, st.booleans())
def test_any_pin_is_moved_and_its_name_extras_and_marker_are_the_same(
    extras: str, before: str, pin: str, marker: str, brackets: bool
) -> None:
    bounds = f"({pin}{OLD})" if brackets else f"{pin}{OLD}"
    old = f"torch{extras}{before}{bounds}{' ' if marker else ''}{marker}"
    new = version_edit.rewrite_requirement(old, MOVED, {})
    assert new == old.replace(OLD, NEW)
    one, other = Requirement(old), Requirement(new)
    assert (one.name, one.extras, one.marker) == (other.name, other.extras, other.marker)


TORCH = {
    "torch/version.py": (
        b"# 2.9.0rc1+rocm7.1.0rc1\nfrom typing import Optional\n"
        b'__version__: str = "2.9.0rc1+rocm7.1.0rc1"  # \xc3\xa4\n'
        b"git_version = 'abc'\nhip: Optional[str] = '7.1.0rc1'\n"
    ),
    "torch/__init__.py": b"__version__ = TorchVersion(internal_version)\n",
    "torch/_rocm_init.py": b"def initialize():\n    rocm_sdk.initialize_process(check_version='7.1.0rc1')\n",
}


def rewritten(
    files: dict[str, bytes], versions: tuple[str, str], rocm: tuple[str, str] | None, project: str = "pytorch"
) -> dict[str, bytes]:
    return version_edit.rewrite_version_files(files, load_project(project), versions, rocm)


def test_files_say_the_new_version_and_hip_what_it_said() -> None:
    file, hip = "torch/version.py", (RC, "7.1.0")
    found = rewritten(TORCH, (OLD, NEW), hip)
    assert found == {
        file: TORCH[file].replace(b'"2.9.0rc1+rocm7.1.0rc1"', b'"2.9.0+rocm7.1.0"'),
        "torch/_rocm_init.py": TORCH["torch/_rocm_init.py"].replace(b"rc1", b""),
    }
    assert set(rewritten(TORCH, (OLD, NEW), None)) == {file}
    # a variant has no label in its version, and its files have the one that it was built with
    assert rewritten(TORCH, ("2.9.0rc1", "2.9.0"), hip) == found
    assert b'"2.9.0+rocm7.1.0rc1"' in rewritten(TORCH, ("2.9.0rc1", "2.9.0"), None)[file]
    triton = {"triton/__init__.py": b"__version__ = '3.5.0rc1'\n"}
    final = {"triton/__init__.py": b"__version__ = '3.5.0'\n"}
    assert rewritten(triton, ("3.5.0rc1+git1", "3.5.0+git1"), None, "triton") == final


def test_a_version_that_was_never_right_stays_and_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    strange = {"torch/version.py": b"__version__ = '2.8.0'\n"}
    assert rewritten(strange, (OLD, NEW), None) == {}
    assert "torch/version.py says '2.8.0', which is not the version of its wheel" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("torch/version.py", b"__version__ = ", "torch/version.py is not Python"),
        ("torch/version.py", b"__version__ = '2.9.0' 'rc1+rocm7.1.0rc1'\n", "version.py:1: .* be rewritten"),
        ("torch/_rocm_init.py", b"f(check_version='7.1.0rc2')\n", r"does not ask for ROCm 7\.1\.0rc1"),
        ("torch/_rocm_init.py", b"f()\n", r"does not ask for ROCm 7\.1\.0rc1"),
    ],
)
def test_files_that_cannot_be_rewritten_are_named(name: str, content: bytes, said: str) -> None:
    with pytest.raises(errors.ReleaseError, match=said):
        rewritten({name: content}, (OLD, NEW), (RC, "7.1.0"))
