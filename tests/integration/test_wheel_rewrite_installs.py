"""Rewritten wheels as pip and uv see them; a registry wheel of thousands of files; one over 4 GiB."""

from __future__ import annotations

import csv
import hashlib
import io
import os
import shutil
import signal
import subprocess
import sys
import zipfile
from pathlib import Path
from struct import pack

import pytest

from rocm_wheels.wheels import dist_info, rewrite, zip_format
from rocm_wheels.wheels.archive import MemberContent, WheelArchive
from rocm_wheels.wheels.edit import WheelEdit
from rocm_wheels.wheels.scan import scan_wheel

pytestmark = [pytest.mark.slow]

PIP = [sys.executable, "-m", "pip"]
SYMPY = "sympy-1.14.0-py3-none-any.whl"
GIB = 1 << 30
# 4 GiB and a little of zero bytes, their CRC and their SHA-256, which take 5 s: a wheel that needs ZIP64
ZEROS = 4 * GIB + (1 << 24) + 5
ZEROS_CRC = 0xADDED417
ZEROS_SHA256 = bytes.fromhex("7b19c38b0626ad58b1e410cd5c413c3faf2324701d75c4e13701e883f38074ac")


def uv_program() -> str:
    """uv of this environment."""
    import uv

    return uv.find_uv_bin()


def install(installer: str, wheel: Path, to: Path) -> Path:
    """Install a wheel into an environment of its own; return its site-packages."""
    subprocess.run([uv_program(), "venv", "-q", "--python", sys.executable, str(to)], check=True)
    python = to / "bin" / "python"
    if installer == "uv":
        words = [uv_program(), "pip", "install", "-q", "--python", str(python)]
    else:
        words = [*PIP, "--python", str(python), "install", "-q", "--disable-pip-version-check"]
        words.append("--no-compile")
    subprocess.run([*words, "--no-index", "--no-deps", str(wheel)], check=True)
    return next(to.glob("lib/python*/site-packages"))


def installed_record(site: Path, name: str) -> dict[str, tuple[str, str]]:
    """RECORD of an installed project."""
    text = next(site.glob(f"{name}-*.dist-info/RECORD")).read_text(encoding="utf-8")
    return {row[0]: (row[1], row[2]) for row in csv.reader(io.StringIO(text, newline=""))}


def verify_installed(site: Path, name: str) -> int:
    """Compare every installed file with its line in RECORD; return how many have a digest."""
    seen = 0
    for path, (digest, size) in installed_record(site, name).items():
        if digest:
            content = (site / path).read_bytes()
            assert (dist_info.encode_record_digest(hashlib.sha256(content).digest()), str(len(content))) == (
                digest,
                size,
            ), path
            seen += 1
    return seen


def a_wheel(folder: Path) -> Path:
    """A wheel with quoted paths in RECORD, a script in a data folder and an executable."""
    info = "demo-1.0.dist-info"
    files = {
        "demo/__init__.py": (b"x = 1\n", 0o644),
        'demo/a, "b".txt': (b"quoted", 0o644),
        "demo/grün.txt": (b"green", 0o644),
        "demo/tool": (b"#!/bin/sh\necho it runs\n", 0o755),
        "demo-1.0.data/scripts/demo-run": (b"#!python\nimport demo; print(demo.x)\n", 0o755),
        f"{info}/METADATA": (
            b"Metadata-Version: 2.1\nName: demo\nVersion: 1.0\nRequires-Dist: six\n\nText\n",
            0o644,
        ),
        f"{info}/WHEEL": (
            b"Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
            0o644,
        ),
    }
    lines = io.StringIO()
    rows = csv.writer(lines, lineterminator="\n")
    rows.writerows(
        (n, dist_info.encode_record_digest(hashlib.sha256(c).digest()), len(c)) for n, (c, _) in files.items()
    )
    rows.writerow((f"{info}/RECORD", "", ""))
    path = folder / "demo-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, (content, mode) in {**files, f"{info}/RECORD": (lines.getvalue().encode(), 0o644)}.items():
            member = zipfile.ZipInfo(name, (2026, 1, 2, 3, 4, 6))
            member.compress_type, member.external_attr = zipfile.ZIP_DEFLATED, (0o100000 | mode) << 16
            archive.writestr(member, content)
    return path


@pytest.mark.contract
@pytest.mark.parametrize("installer", ["uv", pytest.param("pip", marks=pytest.mark.network)])
def test_installers_take_what_was_rewritten(tmp_path: Path, installer: str) -> None:
    edit = WheelEdit(
        version="1.1+rocm7.2",
        build="3",
        requirements=lambda old: [*old, "rocm==7.2.0"],
        put={"sboms/from, where.json": b"{}"},
    )
    done = rewrite.rewrite_wheel(a_wheel(tmp_path), tmp_path / "out", edit)
    site = install(installer, done, tmp_path / "venv")
    metadata = (site / "demo-1.1+rocm7.2.dist-info" / "METADATA").read_text()
    assert "Requires-Dist: six\nRequires-Dist: rocm==7.2.0\n" in metadata
    assert verify_installed(site, "demo") >= 7
    assert (site / 'demo/a, "b".txt').read_bytes() == b"quoted"
    assert (site / "demo-1.1+rocm7.2.dist-info" / "sboms" / "from, where.json").read_bytes() == b"{}"
    run = subprocess.run([tmp_path / "venv" / "bin" / "demo-run"], capture_output=True, text=True, check=True)
    assert run.stdout == "1\n"
    assert os.access(site / "demo" / "tool", os.X_OK)


@pytest.mark.contract
def test_a_variant_label_is_taken_off_for_installers(tmp_path: Path) -> None:
    labelled = rewrite.rewrite_wheel(
        a_wheel(tmp_path), tmp_path / "v", WheelEdit(label="rocm7.2", put={"variant.json": b"{}"})
    )
    plain = rewrite.rewrite_wheel(labelled, tmp_path / "p", WheelEdit(label=""))
    assert plain.name == "demo-1.0-py3-none-any.whl"
    assert verify_installed(install("uv", plain, tmp_path / "venv"), "demo") >= 7


@pytest.mark.contract_slow
@pytest.mark.network
def test_a_registry_wheel_of_thousands_of_files(tmp_path: Path) -> None:
    subprocess.run([*PIP, "download", "-q", "--no-deps", "-d", str(tmp_path), "sympy==1.14.0"], check=True)
    edit = WheelEdit(local="rocm7.2", put={"variant.json": b"{}" * 100})
    done = rewrite.rewrite_wheel(tmp_path / SYMPY, tmp_path / "out", edit)
    scan = scan_wheel(done)
    assert scan.faults == scan.repairable == ()
    assert len(scan.members) > 1500
    with zipfile.ZipFile(tmp_path / SYMPY) as old, zipfile.ZipFile(done) as new:
        assert {i.filename: i.CRC for i in old.infolist() if "dist-info" not in i.filename} == {
            i.filename.replace("+rocm7.2.data", ".data"): i.CRC
            for i in new.infolist()
            if "dist-info" not in i.filename
        }
    for installer in ("uv", "pip"):
        assert verify_installed(install(installer, done, tmp_path / installer), "sympy") > 1500


KILLED = """
import os, pathlib, signal, sys
from rocm_wheels.wheels.rewrite import RangeCopier, rewrite_wheel
from rocm_wheels.wheels.edit import WheelEdit
write = RangeCopier.write
def last(self, content):
    write(self, content[: len(content) // 2])
    os.kill(os.getpid(), signal.SIGKILL)
RangeCopier.write = last
rewrite_wheel(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), WheelEdit(label="x"))
"""


@pytest.mark.contract
def test_a_killed_rewriting_leaves_nothing_that_harms(tmp_path: Path) -> None:
    source, out = a_wheel(tmp_path), tmp_path / "out"
    ended = subprocess.run([sys.executable, "-c", KILLED, str(source), str(out)], check=False)
    assert ended.returncode == -signal.SIGKILL
    left = [path.name for path in out.iterdir()]
    assert not [name for name in left if not (name.startswith(".") and name.endswith(".part"))]
    done = rewrite.rewrite_wheel(source, out, WheelEdit(label="x"))
    assert scan_wheel(done).faults == ()
    assert [path.name for path in out.iterdir()] == [done.name]


def sparse_wheel(path: Path) -> None:
    """Write a wheel with a stored member of ``ZEROS`` zero bytes, as a hole, and some that follow it."""
    info = "huge-1.0.dist-info"
    metadata = b"Metadata-Version: 2.1\nName: huge\nVersion: 1.0\n"
    wheel = b"Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    after = {"huge/__init__.py": b"x = 1\n", f"{info}/METADATA": metadata, f"{info}/WHEEL": wheel}
    rows = [
        f"{n},{dist_info.encode_record_digest(hashlib.sha256(c).digest())},{len(c)}\n"
        for n, c in after.items()
    ]
    row = f"huge/zeros.bin,{dist_info.encode_record_digest(ZEROS_SHA256)},{ZEROS}\n"
    rows += [row, f"{info}/RECORD,,\n"]
    after[f"{info}/RECORD"] = "".join(rows).encode()
    zero = zip_format.make_zip_entry("huge/zeros.bin", b"", date=33, time=0)[0]
    sizes = {"size": ZEROS, "compressed": ZEROS}
    hole = zero._replace(method=zip_format.METHOD_STORED, crc=ZEROS_CRC, **sizes)
    directory: list[tuple[zip_format.ZipEntry, int]] = []
    with open(path, "wb") as file:
        directory.append((hole, 0))
        file.write(zip_format.pack_local_header(hole))
        file.truncate(file.seek(ZEROS, os.SEEK_CUR))
        for name, content in after.items():
            entry, data = zip_format.make_zip_entry(name, content, date=33, time=0)
            directory.append((entry, file.tell()))
            file.write(zip_format.pack_local_header(entry) + data)
        place = file.tell()
        listing = b"".join(zip_format.pack_central_entry(entry, at) for entry, at in directory)
        file.write(listing + zip_format.pack_end_records(len(directory), len(listing), place))


def hash_member(archive: WheelArchive, entry: zip_format.ZipEntry) -> MemberContent[object]:
    """Say what a reading of a whole wheel says; of 4 GiB of zeros that is known, and takes 15 s to find."""
    digest = ZEROS_SHA256 if entry.size == ZEROS else hashlib.sha256(archive.read(entry)).digest()
    return MemberContent(entry.name, entry.size, sha256=digest)


@pytest.mark.contract_slow
def test_a_wheel_over_4_gib(tmp_path: Path) -> None:
    source = tmp_path / "huge-1.0-py3-none-any.whl"
    sparse_wheel(source)
    if source.stat().st_blocks * 512 > GIB or shutil.disk_usage(tmp_path).free < ZEROS + GIB:
        pytest.skip(f"the file system of {tmp_path} keeps no holes, or has no room for {ZEROS} bytes")
    with WheelArchive.open(source) as begun:
        begun.hashed = [hash_member(begun, entry) for entry in begun.members]
        edit = WheelEdit(local="rocm7.2", put={"variant.json": b"{}"})
        done = rewrite.rewrite_wheel(begun, tmp_path / "out", edit)
    assert done.stat().st_blocks * 512 < GIB
    with WheelArchive.open(done) as archive:
        assert archive.faults == ()
        zeros, *rest = archive.members
    assert (zeros.size, zeros.compressed) == (ZEROS, ZEROS)
    assert all(entry.header > 4 * GIB for entry in rest)
    with zipfile.ZipFile(done) as other:
        infos = {i.filename: i for i in other.infolist()}
        assert infos["huge/zeros.bin"].file_size == ZEROS
        assert other.read("huge-1.0+rocm7.2.dist-info/variant.json") == b"{}"
        wide = [name for name, i in infos.items() if pack("<H", 1) == i.extra[:2]]
        assert sorted(wide) == sorted(infos)  # all but the first lie behind 4 GiB; the first is that long
    small = rewrite.rewrite_wheel(a_wheel(tmp_path), tmp_path / "out", WheelEdit(label="x"))
    with zipfile.ZipFile(small) as other:
        assert not any(i.extra for i in other.infolist())
    assert b"PK\6\6" not in small.read_bytes()
