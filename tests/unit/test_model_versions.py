"""Version rules: suffixes, dev builds, what torch requires, release lines, flash attention."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.requirements import Requirement
from packaging.version import Version

from rocm_wheels.core import errors
from rocm_wheels.models import gfx, project, release_lines, torch_features, versions

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.mark.parametrize(
    ("rocm", "suffix", "whole"),
    [
        ("7.10.0", "+rocm7.10.0", "2.9.0+rocm7.10.0"),
        ("7.10.0rc1", "+rocm7.10.0rc1", "2.9.0+rocm7.10.0rc1"),
        ("7.10.0a20251124", "+rocm7.10.0a20251124", "2.9.0+rocm7.10.0a20251124"),
        ("10.1.0a20260811+bkc.20260813", "+rocm10.1.0a20260811-bkc.20260813",
         "2.9.0+rocm10.1.0a20260811.bkc.20260813"),
        ("7.10.0.dev0+efed3c", "+devrocm7.10.0.dev0-efed3c", "2.9.0+devrocm7.10.0.dev0.efed3c"),
        ("7.1.0+miniature", "+rocm7.1.0-miniature", "2.9.0+rocm7.1.0.miniature"),
    ],
)  # fmt: skip
def test_every_kind_of_rocm_version_has_its_suffix(rocm: str, suffix: str, whole: str) -> None:
    assert versions.make_version_suffix(rocm) == suffix
    assert versions.make_wheel_version("2.9.0", suffix) == whole
    assert versions.get_local_part(suffix) == whole.split("+")[1]
    requirement = Requirement(versions.make_rocm_requirement(rocm))
    assert requirement.extras == {"libraries"}
    assert requirement.specifier.contains(rocm, prereleases=True)
    assert not requirement.specifier.contains("7.9.9", prereleases=True)


def test_dev_builds_carry_their_commit() -> None:
    def dev(**more: object) -> str:
        return versions.make_wheel_version("2.9.0a0", "+devrocm7.10.0.dev0-ab", release_type="dev", **more)  # type: ignore[arg-type]

    assert dev(commit=COMMIT) == "2.9.0a0+git01234567.devrocm7.10.0.dev0.ab"
    assert dev(git_tag=False) == "2.9.0a0+devrocm7.10.0.dev0.ab"
    assert (
        versions.make_wheel_version("2.9.0", "", release_type="dev-bkc", commit=COMMIT) == "2.9.0+git01234567"
    )
    assert (
        versions.make_wheel_version("2.9.0", "+rocm7.1", release_type="ci", commit=COMMIT) == "2.9.0+rocm7.1"
    )
    with pytest.raises(errors.SourceError, match="carries its commit"):
        dev(commit=None)
    with pytest.raises(errors.SourceError, match="found 'fatal: not a git"):
        dev(commit="fatal: not a git repository")


def test_projects_follow_their_recipes() -> None:
    recipes = {name: project.load_project(name).version for name in ("pytorch", "apex", "triton")}
    made = {
        name: versions.make_wheel_version(
            "1.2.0a0", "+rocm7.1", release_type="dev", commit=COMMIT, git_tag=recipe.git_tag
        )
        for name, recipe in recipes.items()
        if recipe.file
    }
    assert made == {"pytorch": "1.2.0a0+git01234567.rocm7.1", "apex": "1.2.0a0+rocm7.1"}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot read the version"),
        (b"", "is empty"),
        (b" \n", "is empty"),
        (b"two.nine", "'two.nine' is not a version"),
        (b"2.9.0\n2.9.1", "is not a version"),
        (b"2.9.0+git123", "has a local part"),
        (b"\xff\xfe2", "cannot read the version"),
    ],
)
def test_a_wrong_version_file_is_named(tmp_path: Path, content: bytes | None, message: str) -> None:
    if content is not None:
        (tmp_path / "version.txt").write_bytes(content)
    with pytest.raises(errors.DataError) as fault:
        versions.read_base_version(tmp_path)
    assert message in str(fault.value)
    assert str(tmp_path / "version.txt") in str(fault.value)


def wheel_version(base: str, suffix: str, release_type: str) -> str:
    return versions.make_wheel_version(base, suffix, release_type=release_type, commit=COMMIT)


SDK, USAGE, DATA = errors.SdkError, errors.UsageError, errors.DataError
WRONG = [
    (versions.make_version_suffix, ("",), SDK, "the version of the ROCm SDK: '' is not a version"),
    (versions.make_version_suffix, ("WARNING: pip",), SDK, "is not a version"),
    (versions.make_version_suffix, ("7.1", "+a+b"), USAGE, "--version-suffix +a+b"),
    (versions.make_version_suffix, ("7.1", "rocm 7"), USAGE, "--version-suffix rocm 7"),
    (wheel_version, ("2.9.0", "+", "nightly"), USAGE, "is not a version"),
    (wheel_version, ("2.9.0", "", "weekly"), USAGE, "weekly is none of ci, dev"),
    (wheel_version, ("2.9.0", ".post1", "dev"), USAGE, "--version-suffix .post1 leaves no place for +git"),
    (versions.make_rocm_requirement, ("x",), SDK, "'x' is not a version"),
    (versions.check_exact_requirement, ("triton>=3",), USAGE, "does not require one exact version"),
    (versions.check_exact_requirement, ("triton==3.*",), USAGE, "does not require one exact version"),
    (versions.check_exact_requirement, ("triton=3",), USAGE, "is not a requirement"),
    (release_lines.get_line_tools, ("nightly",), DATA, "'nightly' is not a version of torch"),
    (release_lines.get_line_tools, ("1.13",), DATA, "torch 1.13 is not among the release lines"),
]


@pytest.mark.parametrize(("call", "words", "error", "message"), WRONG)
def test_wrong_versions_are_refused(
    call: Callable[..., object], words: tuple[str, ...], error: type[errors.RocmWheelsError], message: str
) -> None:
    with pytest.raises(error) as fault:
        call(*words)
    assert message in str(fault.value)


_NUMBERS = st.integers(0, 40)
_ROCM = st.builds(
    lambda x, y, z, kind: f"{x}.{y}.{z}{kind}",
    _NUMBERS,
    _NUMBERS,
    _NUMBERS,
    st.sampled_from(["", "rc1", "a20260811", "a20260811+bkc.20260813", ".dev0+efed3c", "+mini"]),
)


@given(_ROCM, st.sampled_from(["2.9.0", "2.13.0a0", "1.11.0.dev3"]), st.booleans())
def test_versions_are_pep_440_and_keep_their_parts(rocm: str, base: str, dev: bool) -> None:
    whole = versions.make_wheel_version(
        base, versions.make_version_suffix(rocm), release_type="dev" if dev else "nightly", commit=COMMIT
    )
    version = Version(whole)
    assert str(version) == whole
    assert version.public == str(Version(base))
    local = version.local or ""
    assert local.startswith("git01234567.") is dev
    assert local.endswith(f"rocm{rocm.replace('+', '.')}")
    assert f".{local}".endswith(f".{versions.get_local_part(versions.make_version_suffix(rocm))}")
    assert ("devrocm" in local) is ("dev" in rocm)


def test_lines_bring_tools_by_platform() -> None:
    line = release_lines.get_line_tools("2.13.0a0+rocm7.1.0")
    assert (line.torch, line.exact) == ("2.13", True)
    assert "cmake>=3.27,<5" in line.list_requirements("linux")
    assert any(tool.startswith("ninja") for tool in line.list_requirements("linux"))
    assert not any(tool.startswith("ninja") for tool in line.list_requirements("windows"))
    assert "cmake>=3.27,<4" in release_lines.get_line_tools("2.7.1").list_requirements("linux")
    newer = release_lines.get_line_tools("2.99.0")
    newest = max((line.torch for line in release_lines.get_release_lines() if line.torch), key=Version)
    assert (newer.torch, newer.exact) == (newest, False)


@pytest.mark.parametrize(
    ("option", "platform", "triton", "targets", "aotriton", "on", "reason"),
    [
        (None, "linux", True, ["gfx942", "gfx1030"], None, True, "aotriton has kernels for gfx942"),
        (None, "linux", True, ["gfx1030"], None, False, "no kernels for any of the targets"),
        (None, "linux", False, ["gfx942"], None, False, "triton is not built"),
        (None, "windows", False, ["gfx1151"], None, True, "kernels for gfx1151"),
        (None, "linux", True, ["gfx1152"], "0.11b", False, "aotriton 0.11b has no kernels"),
        (None, "linux", True, ["gfx1152"], "0.11.210b", True, "aotriton 0.11.210b has kernels"),
        (None, "linux", True, ["gfx942:xnack+"], "0.13b", True, "gfx942:xnack+"),
        (True, "linux", True, ["gfx1030"], None, True, "--enable-pytorch-flash-attention was given"),
        (False, "linux", True, ["gfx942"], None, False, "--no-enable-pytorch-flash-attention was given"),
        (True, "windows", False, ["gfx942"], None, True, "was given"),
    ],
)
def test_flash_attention(  # type: ignore[no-untyped-def]  # noqa: PLR0917
    option, platform, triton, targets, aotriton, on: bool, reason: str
) -> None:
    decision = torch_features.decide_flash_attention(
        option, platform=platform, with_triton=triton, targets=targets, aotriton=aotriton
    )
    assert decision.on is on
    assert reason in decision.reason


def test_flash_attention_asked_for_without_triton_is_an_error() -> None:
    with pytest.raises(errors.UsageError, match="needs triton on Linux") as refused:
        torch_features.decide_flash_attention(True, platform="linux", with_triton=False, targets=["gfx942"])
    assert "PROJECTs" in refused.value.tip and "--triton-wheel" in refused.value.tip  # `plan` has both


def test_aotriton_is_known_by_target_and_not_by_prefix() -> None:
    served = {name for name in gfx.get_gfx_targets() if torch_features.has_aotriton_kernels(name)}
    assert {"gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1153", "gfx1201", "gfx1250"} <= served
    assert not served & {"gfx900", "gfx906", "gfx908", "gfx1010", "gfx1030"}
    assert not torch_features.has_aotriton_kernels("gfx1252")
    assert not torch_features.has_aotriton_kernels("gfx1103", "0.11b")


def test_the_release_of_aotriton_is_read_from_the_sources(tmp_path: Path) -> None:
    assert torch_features.read_aotriton_release(tmp_path) is None
    pin = tmp_path / "cmake" / "External" / "aotriton.cmake"
    pin.parent.mkdir(parents=True)
    pin.write_text('  # set(nothing)\n  set(__AOTRITON_VER "0.13b")\n')
    assert torch_features.read_aotriton_release(tmp_path) == "0.13b"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("'''doc'''\n__version__ = '3.0.0'\n", "3.0.0"),
        ('__version__="3.7.0"  # so\r\nx = 1\n', "3.7.0"),
        ("__version__ = '3.0'\n__version__ = '3.0'\n", "3.0"),
    ],
)
def test_a_version_that_a_python_file_states(text: str, found: str) -> None:
    assert versions.read_stated_version(text, "__version__", name="f") == found


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "f: a version must be assigned to __version__ once, here are 0"),
        ("  __version__ = '1'", "here are 0"),
        ("__version__ = version('triton')", "here are 0"),
        ("__version__ = '1'\n__version__ = '2'", "here are 2"),
        ("__version__ = ''", "f is empty"),
        ("__version__ = 'new'", "f: 'new' is not a version"),
        ("__version__ = '1+x'", "has a local part"),
    ],
)
def test_a_version_that_a_python_file_does_not_state(text: str, message: str) -> None:
    with pytest.raises(errors.DataError, match=message.replace("+", r"\+")):
        versions.read_stated_version(text, "__version__", name="f")


@pytest.mark.parametrize(
    ("suffix", "parts", "whole"),
    [
        ("+rocm10.1", (), "+rocm10.1"),
        ("+rocm10.1", ("nightly20261122.17", "torch2.13.0"), "+nightly20261122.17.torch2.13.0.rocm10.1"),
        ("", ("a",), "+a"),
        (".post1", (), ".post1"),
    ],
)
def test_parts_stand_before_what_a_suffix_says(suffix: str, parts: tuple[str, ...], whole: str) -> None:
    assert versions.add_version_parts(suffix, *parts) == whole
    if parts:
        with pytest.raises(errors.UsageError, match="leaves no place"):
            versions.add_version_parts(".post1", *parts)


def test_a_later_night_is_a_later_version_and_the_number_of_a_run_counts() -> None:
    """Within one day by number, not by letters; dates have the same length."""
    parts = ["nightly20261121.9.1", "nightly20261122.9.1", "nightly20261122.10.1", "nightly20261122.10.2"]
    nights = [Version(f"2.13.0{versions.add_version_parts('+rocm10.1', part)}") for part in parts]
    assert nights == sorted(nights) and len({*nights}) == 4


def test_a_developers_build_is_told_apart_and_sorts_behind_its_rocm() -> None:
    """The plain wheel first, then its edits; a newer ROCm goes before all of them."""
    marks = [
        {},
        {"targets": ["gfx1151"]},
        {"targets": ["gfx1151"], "debug": "debug"},
        {"targets": ["gfx1151"], "debug": "debug", "commit": COMMIT},
        {"targets": ["gfx1151"], "debug": "debug", "commit": COMMIT, "changes": "9876543210"},
    ]
    suffixes = [versions.add_version_marks("+rocm7.2.4", **mark) for mark in marks]
    assert suffixes[0] == "+rocm7.2.4"
    assert suffixes[-1] == "+rocm7.2.4.gfx1151.debug.git01234567.dirty98765432"
    built = [Version(f"2.9.0{suffix}") for suffix in suffixes]
    assert built == sorted(built) and len({*built}) == len(built)
    assert max(built) < Version("2.9.0+rocm7.2.5")
    assert str(built[-1]).endswith(suffixes[-1])  # nothing of it is a number
    assert versions.strip_version_marks(str(built[-1])) == "2.9.0+rocm7.2.4"
    xnack = {versions.add_version_marks("", targets=[f"gfx90a:xnack{sign}"]) for sign in "+-"}
    assert {versions.make_wheel_version("2.9.0", suffix) for suffix in xnack} == {
        "2.9.0+gfx90a.xnack.on",
        "2.9.0+gfx90a.xnack.off",
    }
    assert {versions.strip_version_marks(f"2.9.0+rocm7.{suffix[1:]}") for suffix in xnack} == {"2.9.0+rocm7"}
    many = versions.add_version_marks("+rocm7.2.4", targets=[f"gfx{number}" for number in range(1100, 1120)])
    assert len(many) < 40


@pytest.mark.parametrize(
    "version", ["", "no version", "1.0", "1.0+basan", "9" * 5000, f"1+{'9' * 5000}.asan"]
)
def test_what_does_not_say_so_has_no_asan(version: str) -> None:
    assert not versions.is_asan_version(version)
    assert versions.is_asan_version("2.9.0+rocm7.2.4.asan") and versions.is_asan_version("2.9.0+asan.5")
