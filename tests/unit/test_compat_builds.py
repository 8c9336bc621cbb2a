"""torch × ROCm × GPU: builds, what goes with them, known issues."""

from __future__ import annotations

from datetime import date
from itertools import product

import pytest
from packaging.version import Version

from rocm_wheels.core import errors
from rocm_wheels.models import gfx, package_indexes, torch_builds


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
    (row,) = (row for row in package_indexes.list_indexes() if row.name == index)
    assert torch_builds.get_triton_name(torch, row, platform=platform) == name
    assert torch_builds.get_triton_name(Version(torch), row, platform=platform) == name
    separate = torch_builds.find_separate_triton(torch, row, platform=platform)
    assert separate == ("triton-windows==3.5.*" if name == "triton-windows" else "")


def test_companions_are_those_of_the_release_line():
    line = torch_builds.find_companions("2.13.1+rocm7.2")
    assert {name: str(version) for name, version in line.items()}["torchvision"] == "0.28"
    assert torch_builds.find_companions("1.13") == {}
    with pytest.raises(errors.DataError, match="is not a version"):
        torch_builds.find_companions("latest")


def test_known_issues_fit_versions_gpus_and_platforms_until_their_day():
    def threads(torch: str, rocm: str, *gpu: str, today: date = date(2026, 12, 1)) -> set[str | None]:
        issues = torch_builds.find_issues(Version(torch), Version(rocm), *gpu, today=today)
        assert all(torch_builds.get_issue_url(issue).startswith("https://") for issue in issues)
        return {issue.issue for issue in issues}

    assert "pytorch/pytorch#194498" in threads("2.12.0", "7.14.0", "gfx1100:xnack-", "linux")
    assert "pytorch/pytorch#194498" not in threads("2.12.0", "7.14.0", "gfx942", "linux")
    assert "pytorch/pytorch#194498" not in threads("2.12.0", "7.14.1", "gfx1100", "linux")
    assert "ROCm/TheRock#7315" in threads("2.12.0", "10.1.0a20260810", "gfx1200", "windows")
    assert "ROCm/TheRock#7315" not in threads("2.12.0", "10.1.0a20260810", "gfx1200", "linux")
    nightly = ("2.14.0a0+rocm7.15.0a20260713", "7.15.0a20260713", "gfx1151")
    assert "ROCm/TheRock#6561" in threads(*nightly)
    assert "ROCm/TheRock#6561" not in threads(*nightly, today=date(2028, 1, 1)), "its day is over"


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
