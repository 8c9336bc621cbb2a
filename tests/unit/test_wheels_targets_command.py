"""The command `targets` on small files: table, JSON, refusals."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from binaries import HOST, bundle, code_object, compress, elf, hip, kpack_reference, wheel
from click.testing import CliRunner

from rocm_wheels.cli import boundary
from rocm_wheels.cli.wheel import read_targets, targets_as_json, targets_as_table, targets_command

pytestmark = pytest.mark.contract

LIBRARY = elf({".hip_fatbin": compress(bundle(HOST, hip("gfx942:xnack-"), hip("gfx1100")), 3, "zstd")})


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, ...]:
    """A wheel with two libraries, a code object and a file without device code."""
    (tmp_path / "kernel.hsaco").write_bytes(code_object("gfx90a", size=4096))
    (tmp_path / "plain.so").write_bytes(elf({".text": b"x"}))
    made = wheel(tmp_path, {"demo/a.so": LIBRARY, "demo/longer.so": LIBRARY, "demo/x.py": b""})
    return (made, tmp_path / "kernel.hsaco", tmp_path / "plain.so")


def table(files: tuple[Path, ...]) -> str:
    found, unread = read_targets(files)
    shown = targets_as_table(targets_as_json(found))
    assert shown == targets_as_table(targets_as_json(read_targets(files, whole=True)[0]))
    assert unread == []
    return shown


def test_the_table_has_a_line_a_library(files: tuple[Path, ...]) -> None:
    lines = table(files).splitlines()
    total = "total: 5 code objects, 5,120 bytes, 3 targets: gfx90a gfx942:xnack- gfx1100"
    assert [" ".join(line.split()) for line in lines] == [
        "file objects packing bytes targets",
        f"{files[0]}:",
        "demo/a.so 2 zstd v3 512 gfx942:xnack- gfx1100",
        "demo/longer.so 2 zstd v3 512 gfx942:xnack- gfx1100",
        f"{files[1]} 1 plain 4,096 gfx90a",
        f"{files[2]} no device code",
        total,
    ]
    assert len({line.index("gfx") for line in lines[2:5]}) == 1
    assert table(files[2:]).endswith("total: 0 code objects, 0 bytes, 0 targets")


def test_json_keeps_its_form(files: tuple[Path, ...]) -> None:
    printed = CliRunner().invoke(targets_command, [*map(str, files), "--json", "--details"])
    assert printed.exit_code == 0
    result = json.loads(printed.stdout)
    assert result == targets_as_json(read_targets(files, whole=True)[0])
    targets = ["gfx90a", "gfx942:xnack-", "gfx1100"]
    assert result["total"] == {"targets": targets, "code_objects": 5, "bytes": 5120}
    in_wheel, alone, none = result["files"]
    assert [code["member"] for code in in_wheel["code"]] == ["demo/a.so", "demo/longer.so"]
    assert in_wheel["code"][0]["code_objects"][0] == {
        "target": "gfx942:xnack-",
        "processor": "gfx942",
        "features": {"xnack": "-"},
        "kind": "hipv4",
        "form": "elf",
        "machine": "gfx942",
        "section": ".hip_fatbin",
        "bundle": 0,
        "packing": "zstd v3",
        "offset": 4096,
        "size": 256,
    }
    assert alone["code"][0]["member"] is None
    assert none == {"file": str(files[2]), "targets": [], "code": [], "elsewhere": []}
    printed = CliRunner().invoke(targets_command, [*map(str, files), "--json"])
    in_wheel["code"][0]["code_objects"][0] |= {"form": None, "machine": None}  # not in the table
    tables = json.loads(printed.stdout)
    assert tables["total"] == result["total"]
    assert tables["files"][0]["code"][0]["code_objects"][0] == in_wheel["code"][0]["code_objects"][0]
    assert tables["files"][1:] == result["files"][1:]


def test_only_details_look_behind_the_tables(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Code of another processor than the table says: the runtime would load it, the GPU would not run it."""
    wrong = bundle(HOST, hip("gfx942", code_object("gfx90a")), hip("gfx1100"))
    made = wheel(tmp_path, {"demo/a.so": elf({".hip_fatbin": compress(wrong, 3, "zstd")})})
    assert boundary.run_command(targets_command, [str(made)]) == 0
    assert "gfx942 gfx1100" in capsys.readouterr().out
    assert boundary.run_command(targets_command, [str(made), "--details"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "demo/a.so: section .hip_fatbin: bundle 0: entry hipv4-amdgcn-amd-amdhsa--gfx942" in err


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("gone.so", None, "cannot read {path}: No such file or directory"),
        ("", None, "{path} is a folder\ntip: name files: {path}/*.whl"),
        ("cut.so", LIBRARY[:-9], "{path}: cut short: the section table"),
        ("page.whl", b"<html>", "{path} is not a readable wheel: cut short or damaged"),
    ],
)
def test_what_cannot_be_read_ends_with_code_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, content: bytes | None, message: str
) -> None:
    path = tmp_path / name if name else tmp_path
    if content is not None:
        path.write_bytes(content)
    assert boundary.run_command(targets_command, [str(path), "--json"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert message.format(path=path) in err


def test_libraries_that_were_split_say_where_their_code_is(tmp_path: Path) -> None:
    split = elf({".rocm_kpack_ref": kpack_reference("../.kpack/demo_@GFXARCH@.kpack")})
    (tmp_path / "split.so").write_bytes(split)
    made = wheel(tmp_path, {"demo/a.so": LIBRARY, "demo/split.so": split})
    files = (tmp_path / "split.so", made)
    said = "device code is in ../.kpack/demo_@GFXARCH@.kpack"
    lines = [line.split(maxsplit=1) for line in table(files).splitlines()]
    assert [str(files[0]), said] in lines
    assert ["demo/split.so", said] in lines
    alone, in_wheel = targets_as_json(read_targets(files)[0])["files"]
    assert alone["elsewhere"] == [{"member": None, "archives": ["../.kpack/demo_@GFXARCH@.kpack"]}]
    assert in_wheel["elsewhere"][0]["member"] == "demo/split.so"
    assert in_wheel["targets"] == ["gfx942:xnack-", "gfx1100"]


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_damaged_files_do_not_hide_the_others(
    files: tuple[Path, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str]
) -> None:
    (tmp_path / "cut.so").write_bytes(LIBRARY[:-9])
    mixed = [tmp_path / "cut.so", files[0], tmp_path / "gone.so", files[1]]
    assert boundary.run_command(targets_command, [*map(str, mixed), *options]) == 2
    out, err = capsys.readouterr()
    assert all(str(path) in out for path in files[:2])
    assert "gfx90a" in out
    assert f"{tmp_path}/cut.so: cut short" in err
    assert f"cannot read {tmp_path}/gone.so" in err
    assert "2 of 4 files could not be read" in err


def test_a_file_must_be_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert boundary.run_command(targets_command, []) == 2
    assert "Missing argument 'FILE...'" in capsys.readouterr().err
