"""The provider as its own distribution: built, installed alone, and asked by variantlib for our stamps."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "unit"))
from audit_wheels import Draft, library

from rocm_wheels.cli.boundary import run_command
from rocm_wheels.cli.stamp import stamp
from rocm_wheels.variants.metadata import FILE_NAME, merge, parse
from rocm_wheels.wheels.archive.rewrite import read_dist_info_files

PROJECT = Path(__file__).resolve().parents[2] / "build_tools" / "rocm_variant_provider"
RANK = (
    "import json, sys; from variantlib.api import get_variants_by_priority as rank\n"
    "found = rank(variants_json=json.load(open(sys.argv[1])), venv_python_executable=sys.executable)\n"
    "print(*(one.label for one in found))"
)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with nothing but the provider, unpacked from its wheel."""
    folder = tmp_path_factory.mktemp("provider")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder], cwd=PROJECT, check=True
    )
    (wheel,) = folder.glob("rocm_variant_provider-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
        metadata = archive.read(next(name for name in archive.namelist() if name.endswith("/METADATA")))
    assert b"Requires-Dist" not in metadata
    return folder / "site"


def python(installed: Path, *words: object, **variables: str) -> str:
    forced = {f"ROCM_VARIANT_PROVIDER_FORCE_{key}": value for key, value in variables.items()}
    env = {**os.environ, **forced, "PYTHONPATH": str(installed)}
    return subprocess.run(
        [sys.executable, *map(str, words)], capture_output=True, text=True, check=True, env=env
    ).stdout.strip()


def test_it_says_what_it_reports(installed: Path) -> None:
    asked = ("-S", "-m", "rocm_variant_provider")  # without site-packages: it stands alone
    assert json.loads(python(installed, *asked, GFX_ARCH="gfx1103", ROCM_VERSION="7.2.1")) == {
        "gfx_arch": ["gfx1103", "gfx11_generic"],
        "rocm_version": ["7.2"],
    }
    assert json.loads(python(installed, *asked, GFX_ARCH="none", ROCM_VERSION="none")) == {}


@pytest.mark.parametrize(
    ("chips", "rocm", "labels"),
    [
        ("gfx942", "7.2", "hostrocm7.2_gfx942 hostrocm7.2_gfx9_4_generic null"),
        ("gfx950", "7.2", "hostrocm7.2_gfx9_4_generic null"),
        ("gfx950", "7.1", "null"),
        ("gfx1399", "7.2", "null"),
        ("none", "none", "null"),
    ],
)
def test_variantlib_asks_it_about_wheels_that_need_the_machines_rocm(
    installed: Path, tmp_path: Path, chips: str, rocm: str, labels: str
) -> None:
    own = [
        "--provider",
        "own",
        "--i-own-the-name",
        "--rocm-property",
        "host",
        "--output-dir",
        str(tmp_path / "out"),
    ]
    for n, (members, words) in enumerate(
        [
            ({"demo/a.so": library("gfx942")}, ["--rocm-version", "7.2"]),
            ({}, ["--rocm-version", "7.2", "--targets", "gfx9-4-generic", "--allow-claim"]),
        ]
    ):
        (place := tmp_path / str(n)).mkdir()
        wheel = Draft("demo", "1.0", "py3-none-any", members=members).write(place)
        assert run_command(stamp, [str(wheel), *words, *own]) == 0
    (place := tmp_path / "null").mkdir()
    wheel = Draft("demo", "1.0", "py3-none-any").write(place)
    assert run_command(stamp, [str(wheel), "--null", *own[:3], "--output-dir", str(tmp_path / "out")]) == 0
    documents = [
        (one.name, parse(read_dist_info_files(one)[FILE_NAME], name=one.name))
        for one in (tmp_path / "out").iterdir()
    ]
    index = tmp_path / "demo-1.0-variants.json"
    index.write_bytes(merge(documents).to_json())
    assert python(installed, "-c", RANK, index, GFX_ARCH=chips, ROCM_VERSION=rocm) == labels
