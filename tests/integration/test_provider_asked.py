"""The provider as its own distribution: built, installed alone, and asked by variantlib for our stamps."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import time
import zipfile
from pathlib import Path

import pytest
from commands import call
from machines import MACHINES, machine, pci, text
from wheels import Draft, library

from rocm_wheels.gpus import detect, programs
from rocm_wheels.variants.document import VARIANT_FILE_NAME, merge_documents, parse_document
from rocm_wheels.wheels import rewrite

PROJECT = Path(__file__).resolve().parents[2] / "build_tools" / "rocm_variant_provider"
RANK = (
    "import json, sys; from variantlib.api import get_variants_by_priority as rank\n"
    "found = rank(variants_json=json.load(open(sys.argv[1])), venv_python_executable=sys.executable)\n"
    "print(*(one.label for one in found))"
)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel and the source distribution, built from this checkout."""
    folder = tmp_path_factory.mktemp("provider")
    build(PROJECT, folder, "wheel", "sdist")
    return folder


@pytest.fixture(scope="module")
def installed(built: Path) -> Path:
    """A folder with nothing but the provider, unpacked from its wheel."""
    (wheel,) = built.glob("rocm_variant_provider-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(built / "site")
        metadata = archive.read(next(name for name in archive.namelist() if name.endswith("/METADATA")))
    assert b"Requires-Dist" not in metadata and b"Requires-Python: >=3.10" in metadata
    return built / "site"


def build(project: Path, folder: Path, *kinds: str) -> None:
    """Build with the backend itself, as a front end would call it."""
    words = [word for kind in kinds for word in ("-t", kind)]
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", *words, "-d", folder], cwd=project, check=True
    )


def started(installed: Path, *words: object, **variables: str) -> subprocess.CompletedProcess[str]:
    forced = {f"ROCM_VARIANT_PROVIDER_FORCE_{key}": value for key, value in variables.items()}
    env = {**os.environ, **forced, "PYTHONPATH": str(installed)}
    return subprocess.run(
        [sys.executable, *map(str, words)], check=False, capture_output=True, text=True, env=env
    )


def python(installed: Path, *words: object, **variables: str) -> str:
    answer = started(installed, *words, **variables)
    assert answer.returncode == 0, answer.stderr
    return answer.stdout.strip()


@pytest.mark.contract
def test_the_source_distribution_makes_the_same_wheel(built: Path, tmp_path: Path) -> None:
    (source,) = built.glob("*.tar.gz")
    (wheel,) = built.glob("*.whl")
    with tarfile.open(source) as archive:
        archive.extractall(tmp_path, filter="data") if sys.version_info >= (3, 12) else archive.extractall(
            tmp_path
        )
    (unpacked,) = tmp_path.iterdir()
    build(unpacked, tmp_path / "again", "wheel")
    assert (tmp_path / "again" / wheel.name).read_bytes() == wheel.read_bytes()
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    room = PROJECT.parent / "rocm_wheels" / "gpus"
    assert {f"rocm_variant_provider/gpus/{path.name}" for path in room.glob("*.*")} <= names


@pytest.mark.contract
def test_it_looks_at_machines_by_itself(installed: Path, tmp_path: Path) -> None:
    """The room in its second place, on the machines of the unit tests, without site-packages."""
    root = machine(tmp_path, *MACHINES["mixed"], rocm="7.2.0-43")
    asked = (
        "import sys; from pathlib import Path; from rocm_variant_provider.gpus import detect, variables\n"
        "found = detect.detect_hardware({}, root=Path(sys.argv[1]), vendors=('amd',))\n"
        "print(variables.list_supported_features(found), found.faults)\n"
        "print({'subprocess', 'json', 'shutil', 'packaging', 'rocm_wheels'} & set(sys.modules))"
    )
    said, heavy = python(installed, "-S", "-c", asked, root).splitlines()
    assert said == (
        "{'gfx_arch': ('gfx1100', 'gfx11_generic', 'gfx1036', 'gfx10_3_generic'), 'rocm_version': ('7.2',)} ()"
    )
    assert heavy == "set()"  # the driver answered: nothing was imported that starts programs


@pytest.mark.contract
def test_a_variable_that_cannot_be_read_is_said_without_a_trace(installed: Path, tmp_path: Path) -> None:
    message = "ROCM_VARIANT_PROVIDER_FORCE_GFX_ARCH: MI300 is no GPU target"
    answer = started(installed, "-S", "-m", "rocm_variant_provider", GFX_ARCH="MI300")
    assert (answer.returncode, answer.stdout, answer.stderr) == (1, "", f"error: {message}\n")
    index = tmp_path / "index.json"
    provider = {"requires": ["rocm-variant-provider"], "plugin-api": "rocm_variant_provider"}
    document = {
        "$schema": "https://variants-schema.wheelnext.dev/v0.2.0.json",
        "default-priorities": {"namespace": ["amd"]},
        "providers": {"amd": provider},
        "variants": {"x": {"amd": {"gfx_arch": ["gfx942"]}}, "null": {}},
    }
    index.write_text(json.dumps(document))
    asked = started(installed, "-c", RANK, index, GFX_ARCH="MI300")
    assert asked.returncode != 0 and asked.stderr.rstrip().endswith(f"ValueError: {message}")


@pytest.mark.contract
def test_programs_that_hang_fail_or_speak_utf16(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    env = {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    code = "import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']); time.sleep(60)"
    began = time.monotonic()
    assert programs.run_program((sys.executable, "-c", code), env, 0.5).fault.endswith(
        "did not answer within 0.5 seconds"
    )
    assert time.monotonic() - began < 50
    failed = programs.run_program(
        (sys.executable, "-c", "import sys; print('part'); sys.exit('no driver')"), env, 30
    )
    assert failed.out.strip() == "part" and failed.fault.endswith("failed with exit code 1: no driver")
    wide = programs.run_program(
        (sys.executable, "-c", "import sys; sys.stdout.buffer.write('PCI\\\\VEN'.encode('utf-16'))"), env, 30
    )
    assert (wide.out, wide.fault) == ("PCI\\VEN", "")
    (tmp_path / "rocminfo").write_text(
        f"#!/bin/sh\ncat <<'END'\n{text('rocminfo_no_driver.txt')}END\nexit 1\n"
    )
    (tmp_path / "rocminfo").chmod(0o755)
    found = detect.detect_hardware(
        env, root=pci(tmp_path / "m", ("0000:05:00.0", "1002:74a1", 0x1200)), vendors=("amd",)
    )
    assert found.faults == (
        "rocminfo failed with exit code 1: ROCk module is NOT loaded, possibly no GPU devices",
    )
    assert [(one.gfx, one.confidence) for one in found.usable] == [("gfx942", "derived")]
    (tmp_path / "rocminfo").write_text("")
    (tmp_path / "rocminfo").chmod(0o755)
    assert not programs.run_program(("no-such-program",), env, 1).installed
    assert programs.run_program(("rocminfo",), env, 5).fault.startswith("rocminfo cannot be started")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "missing"))
    assert "cannot be started: No such file" in programs.run_program(("rocminfo",), env, 5).fault


@pytest.mark.contract
def test_it_says_what_it_reports(installed: Path) -> None:
    asked = ("-S", "-m", "rocm_variant_provider")  # without site-packages: it stands alone
    assert json.loads(python(installed, *asked, GFX_ARCH="gfx1103", ROCM_VERSION="7.2.1")) == {
        "gfx_arch": ["gfx1103", "gfx11_generic"],
        "rocm_version": ["7.2"],
    }
    assert json.loads(python(installed, *asked, GFX_ARCH="none", ROCM_VERSION="none")) == {}


@pytest.mark.contract_slow
@pytest.mark.parametrize(
    ("chips", "rocm", "labels"),
    [
        ("gfx942", "7.2", "hostrocm7.2_gfx942 hostrocm7.2_gfx9_4_generic null"),
        ("gfx950", "7.2", "hostrocm7.2_gfx9_4_generic null"),
        ("gfx950", "7.1", "null"),
        ("new:gfx1399", "7.2", "null"),
        ("none", "none", "null"),
    ],
)
def test_variantlib_asks_it_about_wheels_that_need_the_machines_rocm(
    installed: Path, tmp_path: Path, chips: str, rocm: str, labels: str
) -> None:
    own = ["--provider", "own", "--rocm-property", "host", "--output-dir", str(tmp_path / "out")]
    for n, (members, words) in enumerate(
        [
            ({"demo/a.so": library("gfx942")}, ["--rocm", "7.2"]),
            ({}, ["--rocm", "7.2", "--gfx", "gfx9-4-generic"]),
        ]
    ):
        (place := tmp_path / str(n)).mkdir()
        wheel = Draft("demo", "1.0", "py3-none-any", members=members).write(place)
        call("wheel", "stamp", wheel, *words, *own)
    (place := tmp_path / "null").mkdir()
    wheel = Draft("demo", "1.0", "py3-none-any").write(place)
    call("wheel", "stamp", wheel, "--null", *own[:2], "--output-dir", tmp_path / "out")
    documents = [
        (one.name, parse_document(rewrite.read_dist_info_files(one)[VARIANT_FILE_NAME], name=one.name))
        for one in (tmp_path / "out").iterdir()
    ]
    index = tmp_path / "demo-1.0-variants.json"
    index.write_bytes(merge_documents(documents).to_json())
    assert python(installed, "-c", RANK, index, GFX_ARCH=chips, ROCM_VERSION=rocm) == labels
