"""Rewritten wheels: what changes, what stays byte for byte, and what is refused."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from binaries import digest_of, wheel
from wheels import read_members, read_packed

from rocm_wheels.core import errors
from rocm_wheels.wheels import dist_info, rewrite
from rocm_wheels.wheels.edit import WheelEdit, plan_wheel_edit
from rocm_wheels.wheels.scan import scan_wheel

pytestmark = pytest.mark.contract

INFO = "demo-1.0.dist-info"
METADATA = """Metadata-Version: 2.4
Name: demo
Version: 1.0
Requires-Dist: triton==3.5
Requires-Dist: a>=1
Keywords: one,
  two
Author: Zoë
Requires-Dist: b; extra == 'x'
Provides-Extra: x

Version: 1.0 is text here

Requires-Dist: so is this\r
"""
CHANGED = "Requires-Dist: a>=1\nRequires-Dist: b; extra == 'x'\nRequires-Dist: rocm[libraries]==7.2.0\n"
FILES = {
    "demo/__init__.py": b"x = 1\n",
    "demo/a, b.txt": b"comma",
    "demo/große.txt": "Größe".encode(),
    "demo/big.bin": bytes(100_000),
    "demo-1.0.data/scripts/run": b"#!python\n",
    f"{INFO}/licenses/LICENSE": b"MIT",
    f"{INFO}/entry_points.txt": b"[console_scripts]\n",
}


def made(folder: Path, **how: object) -> Path:
    """A wheel of these files."""
    folder.mkdir(exist_ok=True, parents=True)
    return wheel(folder, FILES, **{"metadata": METADATA, **how})  # type: ignore[arg-type]


def write(folder: Path, **edit: Any) -> rewrite.RewrittenWheel:
    """That wheel, edited so into the folder ``out``."""
    return rewrite.rewrite_wheel(made(folder), folder / "out", WheelEdit(**edit))


SAME = "demo-1.0-py3-none-any.whl"
OF_PLATFORMS = (
    b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: false\n"
    b"Tag: py3-none-manylinux_2_28_x86_64\nTag: py3-none-linux_x86_64\n"
)
REQUIRING = (
    METADATA.replace("Requires-Dist: b; extra == 'x'\n", "")
    .replace("Requires-Dist: a>=1\n", "")
    .replace("Requires-Dist: triton==3.5\n", CHANGED)
)
PUT = {"variant.json": b"{}\n", "sboms/a.json": b"[]", "entry_points.txt": b""}
MEMBERS = {"demo/__init__.py": b"x = 2\n", "demo-1.0.data/scripts/run": b"#!python3\n"}


def require(old: Sequence[str]) -> list[str]:
    return [*(text for text in old if "triton" not in text), "rocm[libraries]==7.2.0"]


# the edit, the file name that it leads to, the files with other content (None: it is gone)
EDITS: dict[str, tuple[WheelEdit, str, dict[str, bytes | None]]] = {
    "label": (WheelEdit(label="rocm7.2_gfx942"), "demo-1.0-py3-none-any-rocm7.2_gfx942.whl", {}),
    "build": (
        WheelEdit(build="7local"),
        "demo-1.0-7local-py3-none-any.whl",
        {f"{INFO}/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
         b"Build: 7local\n"},
    ),
    "platforms": (
        WheelEdit(platforms=("manylinux_2_28_x86_64", "linux_x86_64")),
        "demo-1.0-py3-none-manylinux_2_28_x86_64.linux_x86_64.whl",
        {f"{INFO}/WHEEL": OF_PLATFORMS},
    ),
    "requirements": (WheelEdit(requirements=require), SAME, {f"{INFO}/METADATA": REQUIRING.encode()}),
    "put": (WheelEdit(put=PUT), SAME, {f"{INFO}/{name}": content for name, content in PUT.items()}),
    "drop": (WheelEdit(drop=frozenset({"entry_points.txt"})), SAME, {f"{INFO}/entry_points.txt": None}),
    "members": (WheelEdit(members=MEMBERS), SAME, {**MEMBERS}),
    "nothing": (WheelEdit(), SAME, {}),
}  # fmt: skip


@pytest.mark.parametrize("case", EDITS)
def test_an_edit_changes_what_it_says_and_nothing_else(tmp_path: Path, case: str) -> None:
    edit, file_name, changes = EDITS[case]
    source = made(tmp_path)
    before = read_members(source)
    expected = {name: content for name, content in {**before, **changes}.items() if content is not None}
    done = rewrite.rewrite_wheel(source, tmp_path / "out", edit)
    assert done == tmp_path / "out" / file_name
    found = read_members(done)
    assert list(found)[-1] == f"{INFO}/RECORD"
    record = found.pop(f"{INFO}/RECORD")
    expected.pop(f"{INFO}/RECORD")
    assert found == expected
    assert scan_wheel(done).faults == ()
    for name, content in before.items():
        if found.get(name) == content:
            assert read_packed(done, name) == read_packed(source, name)
    assert len(record.splitlines()) == len(found) + 1
    rows = dist_info.parse_wheel_record(record, name="RECORD")
    assert {e.path: (e.digest, e.size) for e in rows if e.digest} == {
        name: (digest_of(content), len(content)) for name, content in found.items()
    }


@pytest.mark.parametrize(
    ("edit", "version"),
    [
        (WheelEdit(version="2.0.0-RC1"), "2.0.0rc1"),
        (WheelEdit(local="rocm7.2.0"), "1.0+rocm7.2.0"),
        (WheelEdit(version="3", local="Gfx-942"), "3+gfx.942"),
        (WheelEdit(version="3+cpu", local=""), "3"),
    ],
)
def test_a_version_is_followed_everywhere(tmp_path: Path, edit: WheelEdit, version: str) -> None:
    done = rewrite.rewrite_wheel(made(tmp_path), tmp_path / "out", edit)
    assert done.name == f"demo-{version}-py3-none-any.whl"
    found = read_members(done)
    info = f"demo-{version}.dist-info"
    expected = {
        name.replace(INFO, info).replace("demo-1.0.data", f"demo-{version}.data"): content
        for name, content in read_members(tmp_path / "demo-1.0-py3-none-any.whl").items()
    }
    expected[f"{info}/METADATA"] = METADATA.replace("Version: 1.0\n", f"Version: {version}\n", 1).encode()
    del found[f"{info}/RECORD"], expected[f"{info}/RECORD"]
    assert found == expected
    scan = scan_wheel(done)
    assert scan.faults == ()
    assert scan.metadata and str(scan.metadata.version) == version


def test_what_is_new_has_the_date_of_wheel_and_mode_0644(tmp_path: Path) -> None:
    source = made(tmp_path)
    done = rewrite.rewrite_wheel(source, tmp_path / "out", WheelEdit(put={"variant.json": b"{}"}))
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(done) as new:
        date = old.getinfo(f"{INFO}/WHEEL").date_time
        assert new.getinfo(f"{INFO}/variant.json").date_time == date
        assert new.getinfo(f"{INFO}/RECORD").date_time == date
        assert new.getinfo(f"{INFO}/variant.json").external_attr >> 16 == stat.S_IFREG | 0o644
        kept = [archive.getinfo("demo/big.bin") for archive in (old, new)]
    assert len({(info.date_time, info.external_attr, info.CRC) for info in kept}) == 1


def test_lines_of_record_that_stay_are_not_written_anew(tmp_path: Path) -> None:
    rows = [f'"{name}",{digest_of(content)},{len(content)}\r\n' for name, content in FILES.items()]
    about = {f"{INFO}/METADATA": METADATA.encode()}
    with zipfile.ZipFile(made(tmp_path)) as archive:
        about[f"{INFO}/WHEEL"] = archive.read(f"{INFO}/WHEEL")
    hexed = [
        f"{name},sha256={hashlib.sha256(text).hexdigest()},{len(text)}\n" for name, text in about.items()
    ]
    padded = rows[0].replace(digest_of(FILES["demo/__init__.py"]), digest_of(FILES["demo/__init__.py"]) + "=")
    record = f"{INFO}/RECORD,,\n" + padded + "".join([*rows[1:], *hexed])
    source = made(tmp_path, record=record)
    found = read_members(rewrite.rewrite_wheel(source, tmp_path / "out", WheelEdit(put={"x, y": b"z"})))
    lines = found[f"{INFO}/RECORD"].decode().splitlines(keepends=True)
    assert lines[0] == f"demo/__init__.py,{digest_of(FILES['demo/__init__.py'])},6\n"
    assert lines[1 : len(rows)] == rows[1:]
    assert lines[len(rows) :] == [
        *(f"{name},{digest_of(text)},{len(text)}\n" for name, text in about.items()),
        f'"{INFO}/x, y",{digest_of(b"z")},1\n',
        f"{INFO}/RECORD,,\n",
    ]


def test_signatures_of_another_record_are_left_out_and_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    signed = {**FILES, f"{INFO}/RECORD.jws": b"{}", f"{INFO}/RECORD.p7s": b"x"}
    (tmp_path / "a").mkdir()
    source = wheel(tmp_path / "a", signed, metadata=METADATA)
    with zipfile.ZipFile(source) as archive:
        record = archive.read(f"{INFO}/RECORD").decode()
    exempt = [line for line in record.splitlines(keepends=True) if "RECORD." not in line]
    source = wheel(tmp_path / "a", signed, metadata=METADATA, record="".join(exempt))
    kept = rewrite.rewrite_wheel(source, tmp_path / "kept", WheelEdit(label="x"))
    assert f"{INFO}/RECORD.jws" in read_members(kept)
    done = rewrite.rewrite_wheel(source, tmp_path / "done", WheelEdit(put={"variant.json": b"{}"}))
    assert not {f"{INFO}/RECORD.jws", f"{INFO}/RECORD.p7s"} & read_members(done).keys()
    assert "left out demo-1.0.dist-info/RECORD.jws" in capsys.readouterr().err
    assert scan_wheel(done).faults == ()


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (WheelEdit(version="one"), "the new version is none"),
        (WheelEdit(version="9" * 5000), "the new version is none"),
        (WheelEdit(local="a b"), "the new version is none"),
        (WheelEdit(build="x"), "'x' is not a build tag"),
        (WheelEdit(label="ROCm"), "'ROCm' is not a variant label"),
        (WheelEdit(label="a-b"), "not the name of a wheel"),
        (WheelEdit(requirements=lambda _: ["torch =="]), "'torch ==' is not a requirement"),
        (WheelEdit(requirements=lambda _: ["torch\nName: x"]), "is not a requirement"),
        (WheelEdit(put={"../x": b""}), "'../x' is not the name of a file in a dist-info folder"),
        (WheelEdit(put={"RECORD": b""}), "RECORD is written by the edit"),
        (WheelEdit(put={"METADATA": b""}), "METADATA is written by the edit"),
        (WheelEdit(drop=frozenset({"gone"})), f"has no {INFO}/gone to leave out"),
        (WheelEdit(put={"x": b""}, drop=frozenset({"x"})), "is to be put and to be left"),
        (WheelEdit(members={"demo/gone.py": b""}), f"has no demo/gone.py outside {INFO}"),
        (WheelEdit(members={f"{INFO}/WHEEL": b""}), f"has no {INFO}/WHEEL outside {INFO}"),
        (WheelEdit(put={"Entry_Points.txt": b""}), "which has demo-1.0.dist-info/entry_points.txt"),
        (WheelEdit(put={"licenses": b""}), "which has demo-1.0.dist-info/licenses/LICENSE"),
        (WheelEdit(put={"entry_points.txt/x": b""}), "which has demo-1.0.dist-info/entry_points.txt"),
    ],
)
def test_edits_that_make_no_wheel_are_refused(tmp_path: Path, edit: WheelEdit, message: str) -> None:
    with pytest.raises(errors.RocmWheelsError) as caught:
        rewrite.rewrite_wheel(made(tmp_path), tmp_path / "out", edit)
    assert message in errors.explain_error(caught.value)
    assert isinstance(caught.value, errors.UsageError) or edit.build is None, "it is no fault of the wheel"
    assert not (tmp_path / "out").exists()


def test_only_a_whole_version_repairs_a_wheel_of_two(tmp_path: Path) -> None:
    source = made(tmp_path, metadata=METADATA.replace("Version: 1.0\n", "Version: 1.1\n", 1))
    for edit in (WheelEdit(local="rocm7"), WheelEdit(label="x")):
        with pytest.raises(errors.DataError) as caught:
            rewrite.rewrite_wheel(source, tmp_path / "out", edit)
        assert "METADATA says version 1.1, the file name 1.0" in errors.explain_error(caught.value)
    repaired = rewrite.rewrite_wheel(source, tmp_path / "out", WheelEdit(version="1.0"))
    assert scan_wheel(repaired).faults == ()


def test_other_bytes_are_not_replaced_unasked(tmp_path: Path) -> None:
    source, out = made(tmp_path), tmp_path / "out"
    first = rewrite.rewrite_wheel(source, out, WheelEdit(label="x"))
    stamp = first.stat().st_ino
    assert rewrite.rewrite_wheel(source, out, WheelEdit(label="x")).stat().st_ino == stamp
    assert rewrite.rewrite_wheel(source, out, WheelEdit(label="x"), replace=True).stat().st_ino == stamp
    with pytest.raises(errors.DataError, match="exists with other bytes") as refusal:
        rewrite.rewrite_wheel(source, out, WheelEdit(label="x", put={"variant.json": b"{}"}))
    assert refusal.value.tip == "name another folder, or remove it first"
    assert first.stat().st_ino == stamp
    again = rewrite.rewrite_wheel(
        source, out, WheelEdit(label="x", put={"variant.json": b"{}"}), replace=True
    )
    assert f"{INFO}/variant.json" in read_members(again)
    assert [p.name for p in out.iterdir()] == [first.name]
    in_place = rewrite.rewrite_wheel(source, tmp_path, WheelEdit(put={"variant.json": b"{}"}), replace=True)
    assert in_place == source
    assert scan_wheel(source).faults == ()


def failing(number: int) -> Callable[..., int]:
    """Return a function that the system refuses so."""

    def refuse(*_: object, **__: object) -> int:
        raise OSError(number, os.strerror(number))

    return refuse


def test_a_full_disk_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("copy_file_range", "write"):
        monkeypatch.setattr(rewrite.os, name, failing(errno.ENOSPC), raising=False)
    with pytest.raises(OSError, match="No space left") as caught:
        write(tmp_path, label="x")
    assert str(caught.value.filename).endswith("-x.whl")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("number", [errno.EXDEV, errno.EOPNOTSUPP, errno.ENOSYS])
def test_what_the_kernel_cannot_copy_is_read_and_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setattr(rewrite.os, "copy_file_range", failing(number), raising=False)
    done = write(tmp_path, label="x")
    assert read_members(done) == read_members(made(tmp_path))


@pytest.mark.parametrize("links", [True, False])
def test_other_bytes_stay_with_and_without_hard_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: bool
) -> None:
    if not links:
        monkeypatch.setattr(os, "link", failing(errno.EPERM))
    source = made(tmp_path)
    first = rewrite.rewrite_wheel(source, tmp_path / "out", WheelEdit(label="x"))
    content = first.read_bytes()
    with pytest.raises(errors.DataError, match="exists with other bytes"):
        rewrite.rewrite_wheel(source, tmp_path / "out", WheelEdit(label="x", put={"a": b""}))
    assert first.read_bytes() == content
    assert [one.name for one in (tmp_path / "out").iterdir()] == [first.name]


def test_two_runs_that_make_the_same_wheel_both_succeed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, out, link = made(tmp_path), tmp_path / "out", os.link
    content = rewrite.rewrite_wheel(source, tmp_path / "first", WheelEdit(label="x")).read_bytes()

    def later(name: object, target: str | Path, **more: Any) -> None:
        if Path(target).suffix == ".whl":  # the other run is a moment earlier
            Path(target).write_bytes(content)
        link(name, target, **more)

    monkeypatch.setattr(os, "link", later)
    assert rewrite.rewrite_wheel(source, out, WheelEdit(label="x")).read_bytes() == content
    assert len(list(out.iterdir())) == 1


def test_a_name_may_be_as_long_as_names_can_be(tmp_path: Path) -> None:
    source, out = made(tmp_path), tmp_path / "new" / "out"
    length = 255 - len(source.name) - 1
    assert len(rewrite.rewrite_wheel(source, out, WheelEdit(label="x" * length)).name) == 255
    with pytest.raises(OSError, match="too long"):
        rewrite.rewrite_wheel(source, tmp_path / "a" / "b", WheelEdit(label="x" * (length + 1)))
    assert not (tmp_path / "a").exists()


def test_short_copies_are_carried_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, calls = rewrite.RangeCopier._read_and_write, []

    def short(self: rewrite.RangeCopier, begin: int, size: int) -> int:
        calls.append(begin)
        return whole(self, begin, min(size, 7))

    monkeypatch.setattr(rewrite.RangeCopier, "_copy_file_range", short)
    done = write(tmp_path, put={"a": b""})
    assert scan_wheel(done).faults == ()
    assert len(calls) > 20


def test_neighbours_are_copied_in_one_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ranges: list[tuple[int, int]] = []
    copy = rewrite.RangeCopier.copy_range

    def seen(self: rewrite.RangeCopier, begin: int, end: int) -> None:
        ranges.append((begin, end))
        copy(self, begin, end)

    monkeypatch.setattr(rewrite.RangeCopier, "copy_range", seen)
    (tmp_path / "many").mkdir()
    files = {f"demo/{i}.txt": b"%d" % i for i in range(500)}
    rewrite.rewrite_wheel(
        wheel(tmp_path / "many", files), tmp_path / "out", WheelEdit(put={"variant.json": b"{}"})
    )
    (begin, middle), (further, end) = ranges  # up to the dist-info folder while the plan is made, then on
    assert (begin, middle) == (0, further)
    assert further <= end


def test_a_wheel_that_is_written_to_meanwhile_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = made(tmp_path)
    plan = plan_wheel_edit

    def meddle(*given: object, **named: object) -> object:
        with open(source, "ab") as file:
            file.write(b"x")
        return plan(*given, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(rewrite, "plan_wheel_edit", meddle)
    with pytest.raises(errors.DataError, match="changed while it was read"):
        rewrite.rewrite_wheel(source, tmp_path / "out", WheelEdit(label="x"))
    assert not (tmp_path / "out").exists()


def test_modes_and_folders_stay(tmp_path: Path) -> None:
    source = made(tmp_path)
    with zipfile.ZipFile(source) as archive:
        members = {i.filename: archive.read(i) for i in archive.infolist()}
    with zipfile.ZipFile(source, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.mkdir("demo") if hasattr(archive, "mkdir") else archive.writestr("demo/", b"")
        for name, content in members.items():
            info = zipfile.ZipInfo(name, (2021, 5, 6, 7, 8, 10))
            info.external_attr = (stat.S_IFREG | (0o755 if name.endswith("run") else 0o600)) << 16
            archive.writestr(info, content)
    done = rewrite.rewrite_wheel(source, tmp_path / "out", WheelEdit(version="2"))
    with zipfile.ZipFile(done) as archive:
        modes = {i.filename: i.external_attr >> 16 for i in archive.infolist()}
        assert "demo/" in modes
    assert modes["demo-2.data/scripts/run"] == stat.S_IFREG | 0o755
    assert modes["demo/__init__.py"] == stat.S_IFREG | 0o600
    assert scan_wheel(done).faults == ()


def test_reading_dist_info_inflates_nothing_else(tmp_path: Path) -> None:
    source = made(tmp_path)
    data = bytearray(source.read_bytes())
    with zipfile.ZipFile(source) as archive:
        at = archive.getinfo("demo/big.bin").header_offset + 30 + len("demo/big.bin")
    data[at + 5] ^= 0xFF
    source.write_bytes(data)
    found = rewrite.read_dist_info_files(source)
    assert found["METADATA"] == METADATA.encode()
    assert found["licenses/LICENSE"] == b"MIT"
    assert sorted(found) == ["METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE"]


def test_a_dist_info_folder_has_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rewrite, "_LARGEST_DIST_INFO", 1000)
    with pytest.raises(errors.DataError, match=f"{INFO} has [0-9]+ bytes: too many"):
        rewrite.read_dist_info_files(made(tmp_path))
