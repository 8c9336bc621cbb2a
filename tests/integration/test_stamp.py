"""``rocm-wheels wheel stamp`` and ``retag --label ''`` on real wheels, with uv and variantlib as the judges."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from commands import Ended, call
from variantlib.variant_dist_info import VariantDistInfo
from wheels import Draft, library, read_members

from rocm_wheels.variants.document import (
    SCHEMA,
    SCHEMA_WITHOUT_PROVIDERS,
    VARIANT_FILE_NAME,
    merge_documents,
    parse_wheel_document,
)
from rocm_wheels.wheels import dist_info, rewrite, sbom, scan, wheel_code

pytestmark = pytest.mark.contract


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
    wheels = []
    for n, (targets, rocm) in enumerate(
        [(("gfx942",), "7.2.0"), (("gfx1100",), "7.2.0"), (("gfx942",), "7.1.0")]
    ):
        (place := folder / str(n)).mkdir(parents=True)
        wheels.append(draft(*targets, *generic, rocm=rocm).write(place))
    stamp(*wheels, "--output-dir", out, *options)
    first = next(out.glob("*.whl"))
    words = ("--null", "--join", first, "--output-dir", out)
    stamp(draft(rocm="").write(folder), *words, *options)
    write_index(out)
    return out


def write_index(folder: Path) -> Path:
    """Write the index document of the variant wheels in a folder."""
    documents = [
        (wheel.name, read(wheel))
        for wheel in folder.glob("*.whl")
        if dist_info.parse_wheel_name(wheel.name).label
    ]
    (name,) = {"-".join(wheel.split("-")[:2]) for wheel, _ in documents}
    path = folder / f"{name}-variants.json"
    path.write_bytes(merge_documents(documents).to_json())
    return path


def read(wheel: Path) -> object:
    label = dist_info.parse_wheel_name(wheel.name).label or ""
    return parse_wheel_document(
        rewrite.read_dist_info_files(wheel)[VARIANT_FILE_NAME], name=wheel.name, label=label
    )


def stamp(*words: object, code: int = 0) -> Ended:
    return call("wheel", "stamp", *words, code=code)


def unstamp(*words: object, code: int = 0) -> Ended:
    return call("wheel", "retag", "--label", "", *words, code=code)


def uv(folder: Path, *words: object, variants: bool = True) -> None:
    """Install from a folder into its folder ``site``."""
    preview = ["--preview-features", "wheel-variants"] if variants else []
    argv = ["uv", "pip", "install", *preview, "--python", sys.executable, "--no-config", "--no-cache", "-v"]
    argv += ["--target", folder / "site", "--no-index", "--find-links", folder, *words]
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    ended = subprocess.run(list(map(str, argv)), capture_output=True, text=True, check=False, env=env)
    assert ended.returncode == 0, ended.stderr


def test_a_release_is_stamped_and_uv_takes_the_right_wheel(tmp_path: Path) -> None:
    out = release(tmp_path, "--provider", "static")
    assert sorted(path.name for path in out.glob("*.whl")) == [
        "demo-2.9.0-py3-none-any-null.whl",
        "demo-2.9.0-py3-none-any-rocm7.1_gfx942.whl",
        "demo-2.9.0-py3-none-any-rocm7.2_gfx1100.whl",
        "demo-2.9.0-py3-none-any-rocm7.2_gfx942.whl",
    ]
    for wheel in out.glob("*.whl"):
        assert scan.scan_wheel(wheel).faults == ()
        label = dist_info.parse_wheel_name(wheel.name).label
        assert (
            VariantDistInfo(rewrite.read_dist_info_files(wheel)[VARIANT_FILE_NAME], label).variant_label
            == label
        )
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
    unstamp(out / "demo-2.9.0-py3-none-any-rocm7.1_gfx942.whl", "--output-dir", folder)
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
        stamp(wheel, "--output-dir", tmp_path / folder)
    (one,), (two,) = (tmp_path / "a").iterdir(), (tmp_path / "b").iterdir()
    assert one.read_bytes() == two.read_bytes()
    assert wheel.read_bytes() == before
    metadata = rewrite.read_dist_info_files(one)["METADATA"].decode()
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
    bill = sbom.format_sbom(
        sbom.WheelParts("1", targets, "7.2.0", devices=devices), made.distribution, made.version
    )
    made.members[f"demo-{made.version}.dist-info/sboms/rocm-wheels.cdx.json"] = bill
    stamp(made.write(tmp_path), "--output-dir", tmp_path / "out")
    (variant,) = (tmp_path / "out").iterdir()
    requires = scan.scan_wheel(variant).metadata.requires_dist
    assert requires[0] == f"rocm{extras}==7.2.0" and requires[1].startswith("numpy>=1")


def test_a_bill_of_materials_that_is_none_is_named(tmp_path: Path) -> None:
    made = draft("gfx942")
    made.members[f"demo-{made.version}.dist-info/sboms/rocm-wheels.cdx.json"] = b"[]"
    assert (
        "rocm-wheels.cdx.json is not as rocm-wheels writes it"
        in stamp(made.write(tmp_path), "--output-dir", tmp_path / "out", code=2).err
    )
    assert not (tmp_path / "out").exists()


def test_a_label_taken_away_gives_back_what_was_stamped(tmp_path: Path) -> None:
    wheel = draft("gfx942").write(tmp_path)
    stamp(wheel, "--output-dir", tmp_path / "c")
    (variant,) = (tmp_path / "c").iterdir()
    unstamp(variant, "--local-version", "rocm7.2.0", "--output-dir", tmp_path / "d")
    assert read_members(tmp_path / "d" / wheel.name) == read_members(wheel)


def test_variants_do_not_become_one_plain_wheel(tmp_path: Path) -> None:
    out = tmp_path / "out"
    for rocm in ("7.1.0", "7.2.0"):
        stamp(draft("gfx942", rocm=rocm).write(tmp_path), "--output-dir", out)
    wheels = sorted(out.iterdir())
    assert "would both become" in unstamp(*wheels, "--output-dir", tmp_path / "plain", code=2).err
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
    stamp(draft("gfx942").write(tmp_path), "--join", index, "--output-dir", out)
    (wheel,) = out.iterdir()
    document = json.loads(rewrite.read_dist_info_files(wheel)[VARIANT_FILE_NAME])
    assert document["default-priorities"]["namespace"] == ["nvidia", "amd", "rocm"]
    assert document["providers"]["nvidia"] == theirs["providers"]["nvidia"]  # type: ignore[index]


@pytest.mark.parametrize(
    ("targets", "words", "message"),
    [
        (("gfx942",), ["--gfx", "gfx90a,gfx942"], "--gfx claims gfx90a, and the wheel holds gfx942"),
        (("gfx942", "gfx1100"), ["--gfx", "gfx942"], "--gfx leaves out gfx1100"),
        (("gfx942",), ["--null"], "--gfx leaves out gfx942"),
        ((), [], "holds no device code, so it does not tell its targets"),
        (("gfx942",), ["--rocm", "7.1"], "its version +rocm7.2.0 says 7.2"),
        (("gfx942",), ["--rocm-property", "host"], "rocm-bootstrap does not report the ROCm version"),
        (("gfx942",), ["--label", "ROCm-7"], "--label ROCm-7: a-z, 0-9, _ and . are allowed"),
        (("gfx942",), ["--label", "null"], "--label null stands for no properties"),
        (
            (),
            ["--null", "--label", "cpu"],
            "--null states no properties at all, so it does not go with --label",
        ),
        (("gfx942",), ["--provider", "static", "--join", "{static}"], "the release lists gfx1100 as amd"),
        (("gfx942",), ["--join", "{static}", "--provider", "own"], "as the provider of amd, this stamp"),
        (("gfx942",), ["--join", "{wheel}"], "has no variant.json"),
        (("gfx942",), ["--join", "{plain}"], "names no providers, and a stamp names one for each namespace"),
        (("gfx942",), ["--join", "{theirs}"], "as the provider of amd, this stamp"),
        (("gfx942",), ["--join", "{theirs}", "--provider", "static"], "as the provider of amd, this stamp"),
        (("gfx942",), ["{wheel}"], "would become the same variant, rocm7.2_gfx942"),
    ],
)
def test_a_stamp_that_cannot_be_leaves_the_disk_as_it_was(
    tmp_path: Path, targets: tuple[str, ...], words: list[str], message: str
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
    listed = {**theirs, "providers": {"amd": {"static-properties": {"gfx_arch": ["gfx1100"]}}}}
    (static := tmp_path / "static.json").write_text(json.dumps(listed))
    asked = [word.format(wheel=second, plain=first, theirs=other, static=static) for word in words]
    before = sorted(tmp_path.rglob("*"))
    assert message in stamp(wheel, *asked, code=2).err
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--null", "--gfx", "gfx942"], "--null states no properties at all"),
        (["--rocm", "seven"], "--rocm: 'seven' is not a version like 7.2"),
        (["--rocm-property", "host"], "rocm-bootstrap does not report the ROCm version"),
        (["--join", "{wheel}"], "has no variant.json"),
    ],
)
def test_words_that_contradict_themselves_are_refused_before_a_wheel_is_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], message: str
) -> None:
    wheel = draft("gfx942").write(tmp_path)
    monkeypatch.setattr(wheel_code, "begin_copies", lambda *_: pytest.fail("begins to copy"))
    assert message in stamp(wheel, *(word.format(wheel=wheel) for word in words), code=2).err


def test_a_stamp_is_not_put_on_a_stamp(tmp_path: Path) -> None:
    wheel = draft("gfx942", requires=("rocm==7.2.0",)).write(tmp_path)
    stamp(wheel)
    (variant,) = tmp_path.glob("*gfx942.whl")
    said = stamp(variant, code=2).err
    assert "is a variant wheel already: rocm7.2_gfx942\ntip: " in said and "retag --label ''" in said
    assert "is not a variant wheel" in unstamp(wheel, code=2).err


def test_a_wheel_of_2025_gets_a_stamp_of_today(tmp_path: Path) -> None:
    provider = {"install-time": True, "plugin-api": "a:A", "requires": ["amd-variant-provider >= 1.0"]}
    stated = {
        "providers": {"amd": provider},
        "default-priorities": {"namespace": ["amd"], "property": {"amd": {"gfx_arch": ["gfx942"]}}},
        "variants": {"gfx942": {"amd": {"gfx_arch": ["gfx942"]}}},
    }
    made = draft("gfx942", rocm="")
    made.version, made.file_name = "2.9.0", "demo-2.9.0-py3-none-any-mi300.whl"
    made.members[f"{made.folder}/{VARIANT_FILE_NAME}"] = json.dumps(stated).encode()
    wheel = made.write(tmp_path)
    unstamp(wheel, "--output-dir", tmp_path / "plain")
    (plain,) = (tmp_path / "plain").iterdir()
    words = ("--rocm", "7.2", "--label", "mi300", "--output-dir", tmp_path / "out")
    stamp(plain, *words)
    (stamped,) = (tmp_path / "out").iterdir()
    assert stamped.name == wheel.name
    document = rewrite.read_dist_info_files(stamped)[VARIANT_FILE_NAME]
    assert VariantDistInfo(document, "mi300").variant_label == "mi300"
    assert json.loads(document)["providers"]["amd"]["requires"] == ["rocm-bootstrap>=0.3,<1"]
