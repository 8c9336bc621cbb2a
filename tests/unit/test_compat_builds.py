"""torch × ROCm × GPU: builds, what goes with them, known issues, images."""

from __future__ import annotations

from itertools import product

import pytest
from packaging.version import Version

from rocm_wheels.core import errors
from rocm_wheels.models import gfx, package_indexes, torch_builds


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("2.13", "2.13.1", True),
        ("7.2", "7.2.4", True),
        ("2.13.0", "2.13.1", False),
        ("7.2", "7.14", False),
        ("7.1", "7.14", False),
        ("2.12.0+rocm7.14.0", "2.12", True),
        ("10", "10.1.0", True),
    ],
)
def test_a_series_stands_for_its_releases(one: str, other: str, same: bool):
    assert (
        torch_builds.is_same_release(Version(one), Version(other))
        is torch_builds.is_same_release(Version(other), Version(one))
        is same
    )


@pytest.mark.parametrize(
    ("torch", "index", "platform", "name"),
    [
        ("2.9.1", "pytorch-rocm6.4", "linux", "pytorch-triton-rocm"),
        ("2.10.0", "pytorch-rocm7.1", "linux", "triton-rocm"),
        ("2.15.0.dev20260901+rocm7.2", "pytorch-nightly-rocm7.2", "linux", "triton-rocm"),
        ("2.10.0.dev20250929", "pytorch-nightly-rocm7.2", "linux", "triton-rocm"),
        ("2.13.0+rocm10.0.0", "amd-stable", "linux", "triton"),
        ("2.13.0", "amd-stable", "windows", ""),
        ("2.13.0", "pytorch-cu130", "linux", "triton"),
        ("2.9.0", "pytorch-cu128", "windows", "triton-windows"),
        ("2.9.0", "pytorch-xpu", "linux", "pytorch-triton-xpu"),
        ("2.12.0", "pytorch-xpu", "windows", "triton-xpu"),
        ("2.13.0", "pytorch-cpu", "linux", ""),
    ],
)
def test_the_triton_that_goes_with_torch(torch: str, index: str, platform: str, name: str):
    assert torch_builds.get_triton_name(torch, index, platform=platform) == torch_builds.get_triton_name(
        Version(torch), package_indexes.get_index(index), platform=platform
    )
    assert torch_builds.get_triton_name(torch, index, platform=platform) == name
    separate = torch_builds.find_separate_triton(torch, index, platform=platform)
    assert separate == ("triton-windows==3.5.*" if name == "triton-windows" else "")


def test_companions_are_those_of_the_release_line():
    line = torch_builds.find_companions("2.13.1+rocm7.2")
    assert {name: str(version) for name, version in line.items()}["torchvision"] == "0.28"
    assert torch_builds.find_companions("1.13") == {}
    with pytest.raises(errors.DataError, match="is not a version"):
        torch_builds.find_companions("latest")


def test_known_issues_fit_versions_gpus_and_platforms():
    def threads(*wanted: str | Version | None) -> set[str | None]:
        return {one.issue for one in torch_builds.find_issues(*wanted)}  # type: ignore[arg-type]

    torch, rocm = Version("2.12.0"), Version("7.14.0")
    assert "ROCm/TheRock#7081" in threads(torch, rocm, "gfx90a:xnack+", "linux")
    assert "ROCm/TheRock#7081" not in threads(torch, rocm, "gfx942", "linux")
    assert "ROCm/TheRock#7081" not in threads(torch, Version("7.14.1"), "gfx90a", "linux")
    assert "ROCm/TheRock#6561" in threads(
        Version("2.14.0a0+rocm7.15.0a20260713"), Version("7.15.0a20260713"), "gfx1151", "linux"
    )
    assert threads() == {one.issue for one in torch_builds.get_issues()}
    assert all(torch_builds.get_issue_url(one).startswith("https://") for one in torch_builds.get_issues())


def test_images_say_what_is_in_them():
    name = "rocm/pytorch:rocm10.1.0_ubuntu24.04_py3.12_pytorch_release_2.14.0"
    (image,) = (one for one in torch_builds.list_images() if one.name == name)
    assert (image.use, image.torch, image.python) == ("run", Version("2.14.0"), "3.12")
    assert "gfx110X-all" in {
        one.family for one in torch_builds.list_images() if one.rocm.release[:2] == (7, 13)
    }
    assert all(one.torch is None for one in torch_builds.list_images() if one.use == "build")
    assert [one.rocm for one in torch_builds.list_images()] == sorted(
        (one.rocm for one in torch_builds.list_images()), reverse=True
    )


def test_an_index_is_found_for_whom_it_serves():
    order = [index.name for index in package_indexes.list_indexes()]
    for target, platform, channel in product(
        gfx.get_gfx_targets(), ("linux", "windows"), package_indexes.INDEX_CHANNELS
    ):
        indexes = package_indexes.find_indexes(target, platform=platform, channel=channel)
        assert [index.name for index in indexes] == sorted((index.name for index in indexes), key=order.index)
        for index in indexes:
            assert target in index.list_targets(platform)
            assert index.channel == channel
            assert index.reason
            for python in index.list_pythons(platform, target):
                served = package_indexes.find_indexes(
                    target, platform=platform, channel=channel, python=python
                )
                assert index.name in {served_index.name for served_index in served}
