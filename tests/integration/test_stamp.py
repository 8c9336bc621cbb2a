"""``rocm-wheels wheel stamp``, ``unstamp`` and ``restamp`` on real wheels, with uv and variantlib as the judges."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from variantlib.variant_dist_info import VariantDistInfo
from variantlib.variants_json import VariantsJson

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "unit"))
from audit_wheels import Draft, library

from rocm_wheels.cli.boundary import run_command
from rocm_wheels.cli.stamp import restamp, stamp, unstamp
from rocm_wheels.variants import (
    SCHEMA,
    SCHEMA_WITHOUT_PROVIDERS,
    VARIANT_FILE_NAME,
    merge_documents,
    parse_wheel_document,
)
from rocm_wheels.wheels import WheelParts, format_sbom, parse_wheel_name, read_dist_info_files, scan_wheel

STATIC = ["--provider", "static", "--static-targets", "gfx942,gfx1100", "--rocm-versions", "7.2,7.1"]


def draft(*targets: str, rocm: str = "7.2.0", name: str = "demo", requires: tuple[str, ...] = ()) -> Draft:
    """A project whose one library has code for targets; without ``rocm`` its CPU build."""
    return Draft(
        name,
        f"2.9.0+rocm{rocm}" if rocm else "2.9.0+cpu",
        "py3-none-any",
        members={
            f"{name}/__init__.py": f"targets = {targets}\nrocm = {rocm!r}\n".encode(),
            **({f"{name}/lib.so": library(*targets)} if targets else {}),
        },
        requires=list(requires),
    )


def release(folder: Path, *options: str, generic: tuple[str, ...] = ()) -> Path:
    """Stamp two ROCm versions, two targets and a null wheel into a folder; return it."""
    out = folder / "out"
    for n, (targets, rocm) in enumerate(
        [(("gfx942",), "7.2.0"), (("gfx1100",), "7.2.0"), (("gfx942",), "7.1.0")]
    ):
        (place := folder / str(n)).mkdir(parents=True)
        wheel = draft(*targets, *generic, rocm=rocm).write(place)
        assert run(stamp, wheel, "--output-dir", out, *options) == 0
    assert run(stamp, draft(rocm="").write(folder), "--null", "--output-dir", out, *options) == 0
    write_index(out)
    return out


def write_index(folder: Path) -> Path:
    """Write the index document of the variant wheels in a folder."""
    documents = [
        (wheel.name, read(wheel)) for wheel in folder.glob("*.whl") if parse_wheel_name(wheel.name).label
    ]
    (name,) = {"-".join(wheel.split("-")[:2]) for wheel, _ in documents}
    path = folder / f"{name}-variants.json"
    path.write_bytes(merge_documents(documents).to_json())
    return path


def read(wheel: Path) -> object:
    label = parse_wheel_name(wheel.name).label or ""
    return parse_wheel_document(read_dist_info_files(wheel)[VARIANT_FILE_NAME], name=wheel.name, label=label)


def run(command: object, *words: object) -> int:
    return run_command(command, [str(word) for word in words])  # type: ignore[arg-type]


def uv(folder: Path, *words: object, variants: bool = True) -> None:
    """Install from a folder into its folder ``site``."""
    preview = ["--preview-features", "wheel-variants"] if variants else []
    found = subprocess.run(
        [
            *(
                "uv",
                "pip",
                "install",
                *preview,
                "--python",
                sys.executable,
                "--no-config",
                "--no-cache",
                "-v",
            ),
            *(
                "--target",
                folder / "site",
                "--no-index",
                "--find-links",
                folder,
            ),
            *map(str, words),
        ],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"},
    )
    assert found.returncode == 0, found.stderr


def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_a_release_is_stamped_and_uv_takes_the_right_wheel(tmp_path: Path) -> None:
    out = release(tmp_path, *STATIC)
    assert sorted(path.name for path in out.glob("*.whl")) == [
        "demo-2.9.0-py3-none-any-null.whl",
        "demo-2.9.0-py3-none-any-rocm7.1_gfx942.whl",
        "demo-2.9.0-py3-none-any-rocm7.2_gfx1100.whl",
        "demo-2.9.0-py3-none-any-rocm7.2_gfx942.whl",
    ]
    for wheel in out.glob("*.whl"):
        assert scan_wheel(wheel).faults == ()
        label = parse_wheel_name(wheel.name).label
        assert VariantDistInfo(read_dist_info_files(wheel)[VARIANT_FILE_NAME], label).variant_label == label
    uv(out, "demo")
    chosen = (out / "site" / "demo" / "__init__.py").read_text()
    assert chosen == "targets = ('gfx942',)\nrocm = '7.2.0'\n"


def test_uv_takes_null_where_no_provider_answers_and_plain_without_the_preview(tmp_path: Path) -> None:
    out = release(tmp_path)
    plain = tmp_path / "plain"
    plain.mkdir()
    shutil.copy(run_unstamped(out, plain), out)
    uv(out, "demo")
    assert "rocm = ''" in (out / "site" / "demo" / "__init__.py").read_text()
    shutil.rmtree(out / "site")
    uv(out, "demo", variants=False)
    assert "rocm = '7.1.0'" in (out / "site" / "demo" / "__init__.py").read_text()


def run_unstamped(out: Path, folder: Path) -> Path:
    """Make a plain wheel of the variant for ROCm 7.1."""
    assert run(unstamp, out / "demo-2.9.0-py3-none-any-rocm7.1_gfx942.whl", "--output-dir", folder) == 0
    (plain,) = folder.glob("*.whl")
    return plain


@pytest.mark.parametrize(
    ("machine", "labels"),
    [
        ("gfx942", ["rocm7.2_gfx942", "rocm7.1_gfx942", "null"]),
        ("gfx1100", ["rocm7.2_gfx1100", "null"]),
        ("gfx1100,gfx942", ["rocm7.2_gfx1100", "rocm7.2_gfx942", "rocm7.1_gfx942", "null"]),
        ("gfx1201", ["null"]),
    ],
)
def test_amds_provider_and_variantlib_rank_what_we_stamp(
    tmp_path: Path, machine: str, labels: list[str]
) -> None:
    index = release(tmp_path) / "demo-2.9.0-variants.json"
    program = (  # a process of its own: variantlib asks each plugin once, and remembers
        "import json, sys; from variantlib.api import get_variants_by_priority as rank\n"
        "found = rank(variants_json=json.load(open(sys.argv[1])), venv_python_executable=sys.executable)\n"
        "print(*(one.label for one in found))"
    )
    ranked = subprocess.run(
        [sys.executable, "-c", program, index],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "ROCM_BOOTSTRAP_FORCE_GFX_ARCH": machine},
    )
    assert ranked.stdout.split() == labels


def test_the_same_wheel_gives_the_same_bytes_and_stays_itself(tmp_path: Path) -> None:
    wheel = draft("gfx942", requires=("demo-kernels==1.0+rocm7.2.0", "rocm[libraries]==7.2.0")).write(
        tmp_path
    )
    before = wheel.read_bytes()
    for folder in ("a", "b"):
        assert run(stamp, wheel, "--output-dir", tmp_path / folder) == 0
    (one,), (two,) = (tmp_path / "a").iterdir(), (tmp_path / "b").iterdir()
    assert one.read_bytes() == two.read_bytes()
    assert wheel.read_bytes() == before
    metadata = read_dist_info_files(one)["METADATA"].decode()
    assert "Version: 2.9.0\n" in metadata
    assert "Requires-Dist: demo-kernels==1.0\n" in metadata
    assert "Requires-Dist: rocm[libraries]==7.2.0\n" in metadata


@pytest.mark.parametrize(
    ("targets", "devices", "extras"),
    [
        (("gfx942",), ("gfx1100", "gfx942"), "[device-gfx942,libraries]"),
        (("gfx90a",), ("gfx1100", "gfx942"), "[libraries]"),
        (("gfx942",), (), "[libraries]"),
        (("gfx1100", "gfx942"), ("gfx1100", "gfx942"), "[libraries]"),
    ],
)
def test_a_wheel_for_one_gpu_requires_what_its_rocm_has_for_it(
    tmp_path: Path, targets: tuple[str, ...], devices: tuple[str, ...], extras: str
) -> None:
    """Where ROCm is in device packages, as the bill of materials of the build tells; pip reads it, too."""
    made = draft(*targets, requires=("rocm[libraries]==7.2.0", "numpy>=1; python_version >= '3'"))
    bill = format_sbom(WheelParts("1", targets, "7.2.0", devices=devices), made.distribution, made.version)
    made.members[f"demo-{made.version}.dist-info/sboms/rocm-wheels.cdx.json"] = bill
    for more in ([], ["--keep-local-version"]):
        assert run(stamp, made.write(tmp_path), *more, "--output-dir", tmp_path / "out", "--replace") == 0
        for variant in (tmp_path / "out").iterdir():
            requires = scan_wheel(variant).metadata.requires_dist
            assert requires[0] == f"rocm{extras}==7.2.0" and requires[1].startswith("numpy>=1")


def test_a_bill_of_materials_that_is_none_is_named(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    made = draft("gfx942")
    made.members[f"demo-{made.version}.dist-info/sboms/rocm-wheels.cdx.json"] = b"[]"
    assert run(stamp, made.write(tmp_path), "--output-dir", tmp_path / "out") == 2
    assert "rocm-wheels.cdx.json is not as rocm-wheels writes it" in capfd.readouterr().err
    assert not (tmp_path / "out").exists()


def test_unstamp_gives_back_what_was_stamped(tmp_path: Path) -> None:
    wheel = draft("gfx942").write(tmp_path)
    assert run(stamp, wheel, "--keep-local-version", "--output-dir", tmp_path / "a") == 0
    (variant,) = (tmp_path / "a").iterdir()
    assert variant.name == "demo-2.9.0+rocm7.2.0-py3-none-any-rocm7.2_gfx942.whl"
    assert run(unstamp, variant, "--output-dir", tmp_path / "b") == 0
    assert contents(tmp_path / "b" / wheel.name) == contents(wheel)
    assert run(stamp, wheel, "--output-dir", tmp_path / "c") == 0
    (variant,) = (tmp_path / "c").iterdir()
    assert run(unstamp, variant, "--local-version", "rocm7.2.0", "--output-dir", tmp_path / "d") == 0
    assert contents(tmp_path / "d" / wheel.name) == contents(wheel)


def test_variants_do_not_become_one_plain_wheel(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    for rocm in ("7.1.0", "7.2.0"):
        assert run(stamp, draft("gfx942", rocm=rocm).write(tmp_path), "--output-dir", out) == 0
    wheels = sorted(out.iterdir())
    for more in ([], ["--replace"]):
        assert run(unstamp, *wheels, *more, "--output-dir", tmp_path / "plain") == 2
        assert "would both become" in capfd.readouterr().err
    assert not (tmp_path / "plain").exists()
    (tmp_path / "old").mkdir()
    old = shutil.copy(wheels[0], tmp_path / "old")
    assert run(restamp, wheels[0], old, "--output-dir", tmp_path / "plain") == 2
    assert "would both become" in capfd.readouterr().err
    assert not (tmp_path / "plain").exists()


def test_a_wheel_joins_the_release_of_another_vendor(tmp_path: Path) -> None:
    theirs = {
        "$schema": "https://variants-schema.wheelnext.dev/v0.2.0.json",
        "default-priorities": {"namespace": ["nvidia"]},
        "providers": {"nvidia": {"requires": ["nvidia-variant-provider"]}},
        "variants": {"cuda12.8": {"nvidia": {"sm_arch": ["90_real"]}}},
    }
    index = tmp_path / "demo-2.9.0-variants.json"
    index.write_text(json.dumps(theirs))
    out = tmp_path / "out"
    assert run(stamp, draft("gfx942").write(tmp_path), "--join", index, "--output-dir", out) == 0
    (wheel,) = out.iterdir()
    document = json.loads(read_dist_info_files(wheel)[VARIANT_FILE_NAME])
    assert document["default-priorities"]["namespace"] == ["nvidia", "amd", "rocm"]
    assert document["providers"]["nvidia"] == theirs["providers"]["nvidia"]  # type: ignore[index]


@pytest.mark.parametrize(
    ("targets", "words", "message"),
    [
        (("gfx942",), ["--targets", "gfx90a,gfx942"], "--gfx claims gfx90a, and the wheel holds gfx942"),
        (("gfx942", "gfx1100"), ["--targets", "gfx942"], "--gfx leaves out gfx1100"),
        (("gfx942",), ["--null"], "--gfx leaves out gfx942"),
        ((), [], "holds no device code, so it does not tell its targets"),
        (("gfx942",), ["--rocm", "7.1"], "its version +rocm7.2.0 says 7.2"),
        (("gfx942",), ["--rocm-property", "host"], "rocm-bootstrap does not report the ROCm version"),
        (("gfx942",), ["--provider", "own"], "--provider own names rocm-variant-provider"),
        (("gfx942",), ["--label", "ROCm-7"], "--label ROCm-7: a-z, 0-9, _ and . are allowed"),
        (("gfx942",), ["--label", "null"], "--label null stands for no properties"),
        (
            (),
            ["--null", "--label", "cpu"],
            "--null states no properties at all, so it does not go with --label",
        ),
        (("gfx942",), ["--static-targets", "gfx942"], "--static-targets goes with --provider static only"),
        (("gfx942",), ["--rocm-versions", "x"], "--rocm-versions: 'x' is not a version like 7.2"),
        (
            ("gfx942",),
            ["--provider", "static", "--static-targets", "gfx1100"],
            "the release lists gfx1100 as amd",
        ),
        (("gfx942",), ["--rocm-versions", "7.1"], "the release lists 7.1 as rocm :: version, and not 7.2"),
        (("gfx942",), ["--join", "{wheel}"], "has no variant.json"),
        (("gfx942",), ["--join", "{plain}"], "names no providers, and a stamp names one for each namespace"),
        (("gfx942",), ["--join", "{theirs}"], "as the provider of amd, this stamp"),
        (("gfx942",), ["--join", "{theirs}", "--provider", "static"], "as the provider of amd, this stamp"),
        (("gfx942",), ["{wheel}"], "would become the same variant, rocm7.2_gfx942"),
    ],
)
def test_a_stamp_that_cannot_be_leaves_the_disk_as_it_was(
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    targets: tuple[str, ...],
    words: list[str],
    message: str,
) -> None:
    wheel = draft(*targets).write(tmp_path)
    (other := tmp_path / "other").mkdir()
    second = draft(*targets).write(other)
    plain = {
        "$schema": SCHEMA_WITHOUT_PROVIDERS,
        "default-priorities": {"namespace": ["amd"]},
        "variants": {"null": {}},
    }
    (first := tmp_path / "plain.json").write_text(json.dumps(plain))
    theirs = {**plain, "$schema": SCHEMA, "providers": {"amd": {"requires": ["another-provider"]}}}
    (other := tmp_path / "theirs.json").write_text(json.dumps(theirs))
    asked = [word.format(wheel=second, plain=first, theirs=other) for word in words]
    before = sorted(tmp_path.rglob("*"))
    assert run(stamp, wheel, *asked) == 2
    assert message in capfd.readouterr().err
    assert sorted(tmp_path.rglob("*")) == before


def test_a_stamp_is_not_put_on_a_stamp_without_asking(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    wheel = draft("gfx942", requires=("rocm==7.2.0",)).write(tmp_path)
    assert run(stamp, wheel) == 0
    (variant,) = tmp_path.glob("*gfx942.whl")
    assert run(stamp, variant) == 2
    assert (
        "is a variant wheel already: rocm7.2_gfx942\ntip: rocm-wheels wheel restamp" in capfd.readouterr().err
    )
    assert run(stamp, variant, "--label", "mine", "--replace") == 0
    assert (tmp_path / "demo-2.9.0-py3-none-any-mine.whl").is_file()
    assert run(unstamp, wheel) == 2
    assert "is not a variant wheel" in capfd.readouterr().err


# --- repairs ---

OLD_STAMP = {
    "providers": {
        "amd": {"install-time": True, "plugin-api": "a.plugin:A", "requires": ["amd-variant-provider >= 1.0"]}
    },
    "default-priorities": {"namespace": ["amd"], "property": {"amd": {"gfx_arch": ["gfx942", "gfx1100"]}}},
    "variants": {"gfx942": {"amd": {"gfx_arch": ["gfx942"]}}},
}


def old_variant(
    folder: Path, *, label: str = "mi300", targets: tuple[str, ...] = ("gfx942",), stamp: Any = None
) -> Path:
    """A wheel as a kernel splitter writes it: an entry a target, hex digests, variant markers."""
    made = draft(*targets, rocm="")
    made.version = "2.9.0"
    made.file_name = f"demo-2.9.0-py3-none-any-{label}.whl"
    made.requires = [
        'demo-kernels-gfx942==2.9.0; "amd :: gfx_arch :: gfx942" in variant_properties',
        'demo-cuda; "nvidia" in variant_namespaces',
        "numpy>=1; python_version >= '3'",
    ]
    made.members[f"{made.folder}/{VARIANT_FILE_NAME}"] = json.dumps(stamp or OLD_STAMP).encode()
    plain = made.write(folder)
    listing = contents(plain)
    record = f"{made.folder}/RECORD"
    listing[record] = re.sub(rb"sha256=([\w-]+)", _hex, listing[record])
    with zipfile.ZipFile(plain, "w") as archive:
        for name, data in listing.items():
            archive.writestr(name, data)
    return plain


def _hex(found: re.Match[bytes]) -> bytes:
    import base64

    return b"sha256=" + base64.urlsafe_b64decode(found[1] + b"=").hex().encode()


def test_a_wheel_that_no_installer_reads_is_repaired(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    wheel = old_variant(tmp_path)
    assert any("in hex" in fault for fault in scan_wheel(wheel).faults)
    assert run(restamp, wheel, "--output-dir", tmp_path / "out") == 0
    told = capfd.readouterr().err
    for part in (
        "amd-variant-provider >= 1.0, which is not registered",
        "became 'demo-kernels-gfx942==2.9.0'",
    ):
        assert part in told
    (repaired,) = (tmp_path / "out").iterdir()
    found = scan_wheel(repaired)
    assert found.faults == ()
    assert found.metadata is not None
    assert found.metadata.requires_dist == ("demo-kernels-gfx942==2.9.0", "numpy>=1; python_version >= '3'")
    document = read_dist_info_files(repaired)[VARIANT_FILE_NAME]
    assert VariantDistInfo(document, "mi300").variant_label == "mi300"
    assert json.loads(document)["providers"]["amd"]["requires"] == ["rocm-bootstrap>=0.3,<1"]
    assert run(restamp, repaired, "--replace") == 0
    assert read_dist_info_files(repaired)[VARIANT_FILE_NAME] == document, "what is right stays as it is"


def test_a_repair_does_not_repeat_what_is_not_so(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for n, (targets, message) in enumerate(
        [(("gfx1100",), "claims gfx942"), (("gfx942", "gfx1100"), "leaves out gfx1100")]
    ):
        (folder := tmp_path / str(n)).mkdir()
        assert run(restamp, old_variant(folder, targets=targets), "--output-dir", folder / "out") == 2
        assert message in capfd.readouterr().err
        assert not (folder / "out").exists()
    wheel = old_variant(tmp_path)
    assert run(restamp, wheel) == 2
    assert "a repaired file has the name of the old one" in capfd.readouterr().err


def test_the_first_name_of_a_wheel_without_properties_becomes_null(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    stated = {**OLD_STAMP, "variants": {"00000000": {}}}
    wheel = old_variant(tmp_path, label="00000000", targets=(), stamp=stated)
    index = tmp_path / "demo-2.9.0-variants.json"
    index.write_text(json.dumps(stated))
    assert run(restamp, wheel, index, "--output-dir", tmp_path / "out") == 0
    assert "the label 00000000 became null" in capfd.readouterr().err
    (repaired,) = (tmp_path / "out").glob("*.whl")
    assert repaired.name.endswith("-null.whl")
    document = read_dist_info_files(repaired)[VARIANT_FILE_NAME]
    assert json.loads(document)["variants"] == {"null": {}}
    assert json.loads((tmp_path / "out" / index.name).read_bytes())["variants"] == {"null": {}}


def test_an_index_of_2025_is_repaired(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    index = tmp_path / "torch-2.9.0-variants.json"
    old = {
        "$schema": "https://variants-schema.wheelnext.dev/v0.0.3.json",
        "default-priorities": {"namespace": ["nvidia", "amd"], "feature": {"nvidia": ["sm_arch"]}},
        "providers": {
            **OLD_STAMP["providers"],
            "nvidia": {
                "requires": ["nvidia-variant-provider>=0.0.1"],
                "enable-if": "platform_system == 'Linux'",
            },
        },
        "variants": {
            "cuda12.8": {"nvidia": {"sm_arch": ["90_real", "100_real"]}},
            "null": {},
            "rocm7.1": {"amd": {"gfx_arch": ["gfx942", "gfx90a"], "rocm_version": ["7.1"]}},
        },
    }
    index.write_text(json.dumps(old))
    assert run(restamp, index, "--output-dir", tmp_path / "out") == 2
    assert "needs amd :: rocm_version, which rocm-bootstrap does not report" in capfd.readouterr().err
    assert run(restamp, index, "--output-dir", tmp_path / "out", "--rocm-property", "bundled") == 0
    found = json.loads((tmp_path / "out" / index.name).read_bytes())
    assert found["default-priorities"] == {"namespace": ["nvidia", "amd", "rocm"]}
    assert found["variants"]["rocm7.1"] == {
        "amd": {"gfx_arch": ["gfx90a", "gfx942"]},
        "rocm": {"version": ["7.1"]},
    }
    VariantsJson(found)
    own = ["--provider", "own", "--i-own-the-name"]
    assert run(restamp, index, "--output-dir", tmp_path / "host", *own) == 0
    found = json.loads((tmp_path / "host" / index.name).read_bytes())
    assert found["variants"]["rocm7.1"]["amd"]["rocm_version"] == ["7.1"]
    assert found["providers"] == {
        "amd": {"plugin-api": "rocm_variant_provider", "requires": ["rocm-variant-provider>=0.1,<1"]},
        "nvidia": {"requires": ["nvidia-variant-provider>=0.0.1"]},
    }
    wheel, there = old_variant(tmp_path), tmp_path / "out" / index.name
    assert run(restamp, wheel, index, "--output-dir", tmp_path / "out", *own) == 2
    assert f"{there} exists with another content" in capfd.readouterr().err
    assert [one.name for one in (tmp_path / "out").iterdir()] == [index.name]
    assert run(restamp, index, there, "--output-dir", tmp_path / "both", *own) == 2
    assert "would both become" in capfd.readouterr().err
