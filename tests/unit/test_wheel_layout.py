"""The strict reading of archives: every fault of the table on an archive made for it, byte by byte."""

from __future__ import annotations

import io
import re
import stat
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path
from struct import pack

import pytest
from binaries import wheel
from hypothesis import given, settings
from hypothesis import strategies as st
from wheels import Archive, Member, descriptor, extra

from rocm_wheels.core import errors
from rocm_wheels.wheels import edit, rewrite, zip_format
from rocm_wheels.wheels.archive import ContentError, WheelArchive, read_pieces
from rocm_wheels.wheels.scan import scan_wheel

pytestmark = pytest.mark.contract

Change = Callable[[Archive], object]
CONTENT = b"content " * 50


def base() -> Archive:
    """Three members without a fault: a deflated one, a stored one, one in a folder."""
    return Archive(
        [Member(b"demo/a.py", CONTENT), Member(b"demo/b.py", CONTENT, method=0), Member(b"demo/sub/c.py")]
    )


def read(data: bytes) -> zip_format.ArchiveLayout:
    """The layout of an archive in memory."""
    file = io.BytesIO(data)

    def at(offset: int, size: int) -> bytes:
        file.seek(offset)
        return file.read(size)

    return zip_format.read_archive_layout(at, len(data))


def set_name(name: bytes, *, flags: int = 0) -> Change:
    """Give the second member another name, in both its headers."""

    def change(archive: Archive) -> None:
        archive[1].name, archive[1].flags = name, flags

    return change


def local(**values: object) -> Change:
    return lambda archive: archive[1].local.update(values)


def central(**values: object) -> Change:
    return lambda archive: archive[1].central.update(values)


def both(**values: object) -> Change:
    return lambda archive: (archive[1].local.update(values), archive[1].central.update(values))


def described(**wrong: int) -> Change:
    """The second member gets a data descriptor, with wrong values when some are given."""

    def change(archive: Archive) -> None:
        archive[1].flags = 8
        archive[1].behind = descriptor(archive[1], **wrong)
        archive[1].local.update(crc=0, compressed=0, size=0)

    return change


def has(**values: object) -> Change:
    def change(archive: Archive) -> None:
        for name, value in values.items():
            setattr(archive, name, value)

    return change


def second(**values: object) -> Change:
    def change(archive: Archive) -> None:
        for name, value in values.items():
            setattr(archive[1], name, value)

    return change


INNER = base().bytes()
DEFLATED = base()[0].values()["data"]
# the name of the fault, what makes it, and what is said of it
TABLE: list[tuple[str, Change, str]] = [
    ("two-ends", has(comment=Archive([Member(b"evil.py")]).bytes()), "end records at"),
    ("two-ends", has(comment=pack("<4sHHHHLLH", b"PK\5\6", 0, 0, 0, 0, 0, 0, 0)), "end records at"),
    ("trailing-bytes", has(tail=b"\0"), "1 bytes behind its end record"),
    ("trailing-bytes", has(tail=b"#!/bin/sh\n" * 9), "90 bytes behind its end record"),
    ("no-end", has(end={"comment": 5}), "a comment of 5 bytes, 0 are there"),
    ("prefix", has(prefix=b"#!/usr/bin/python\n"), "18 bytes in front of it belong to no member"),
    ("several-disks", has(end={"disk": 1}), "several disks"),
    ("several-disks", has(end={"here": 2}), "several disks"),
    ("several-disks", has(wide={"disks": 2}), "on disk 0 of 2"),
    ("directory-place", has(end={"offset": 3}), "bytes are in front of the archive or between"),
    ("directory-place", has(after=INNER), "bytes are in front of the archive or between"),
    ("directory-place", has(end={"size": 5000}), "cut short by"),
    ("directory-size", has(wide={"size": 1 << 40}, end={"size": 0xFFFFFFFF}), "a directory of 109951162"),
    (
        "directory-size",
        has(wide={"here": 250_001, "count": 250_001}, end={"here": 0xFFFF, "count": 0xFFFF}),
        "for 250001 members",
    ),
    ("entry-count", has(end={"count": 2, "here": 2}), "more entries than the 2"),
    ("entry-count", has(end={"count": 9, "here": 9}), "3 entries, its end record says 9"),
    ("zip64-end", has(wide={"at": 7}), "said to lie at 7"),
    ("zip64-end", has(wide={"mark": b"PK\6\5"}), "no ZIP64 end record"),
    ("zip64-end", has(wide={"length": 60}), "no ZIP64 end record"),
    ("zip64-end-disagrees", has(wide={"count": 4, "here": 4}), "the one of ZIP64"),
    ("zip64-end-disagrees", has(wide={"offset": 0}), "the one of ZIP64"),
    ("hidden-bytes", second(before=Archive([Member(b"evil.py")]).bytes()), "belong to no member"),
    ("hidden-bytes", has(between=b"\0" * 7), "7 bytes in front of its directory belong to no member"),
    ("ratio", second(content=bytes(65 << 20), method=8), "68157846 bytes of content in"),
    ("name-empty", set_name(b""), "no name"),
    ("name-control", set_name(b"demo/b.py\0.txt"), "a control character in the name"),
    ("name-control", set_name(b"demo/b\x7f.py"), "a control character in the name"),
    ("name-encoding", set_name("demo/ä.py".encode()), "neither ASCII nor marked, valid UTF-8"),
    ("name-encoding", set_name(b"demo/\xff.py", flags=0x800), "neither ASCII nor marked, valid UTF-8"),
    ("name-unicode-extra", second(extra=extra(0x7075, b"\1\0\0\0\0demo/evil.py")), "gives it another name"),
    ("name-absolute", set_name(b"/etc/b.py"), "leads out of the folder it is unpacked to: absolute"),
    ("name-upward", set_name(b"demo/../../b.py"), "leads out of the folder it is unpacked to"),
    ("name-backslash", set_name(b"demo\\..\\b.py"), "a backslash"),
    ("name-drive", set_name(b"C:b.py"), "a drive"),
    ("name-long", set_name(b"a" * 1025), "a name of 1025 bytes"),
    ("name-dots", set_name(b"./demo/b.py"), "empty or '.'"),
    ("name-dots", set_name(b"demo//b.py"), "empty or '.'"),
    ("name-twice", set_name(b"demo/a.py"), "2 members of this name"),
    ("name-collides", set_name(b"./demo/a.py"), "the same file as demo/a.py"),
    ("file-and-folder", set_name(b"demo/sub"), "a file that is a folder"),
    ("file-and-folder", set_name(b"demo"), "a file that is a folder"),
    ("encrypted", second(flags=1), "encrypted"),
    ("encrypted", second(flags=0x41), "encrypted"),
    ("method", second(method=99), "compression method 99"),
    ("version", central(needed=255), "asks for a reader of version 25.5"),
    ("flags", second(flags=0x20), "patched data or a masked header"),
    ("flags", second(flags=0x2000), "patched data or a masked header"),
    ("file-type", second(mode=stat.S_IFCHR | 0o666), "neither file, folder nor link"),
    ("folder-content", set_name(b"demo/b/"), "a folder with 400 bytes of content"),
    ("extra-damaged", second(extra=b"\1\2\3"), "3 bytes behind the last field"),
    ("extra-damaged", second(extra=extra(0x5455, b"12345")[:-1]), "reaches past its end"),
    ("extra-damaged", second(extra=extra(0x7075, b"\1\0\0\0\0demo/b.py") * 2), "comes twice"),
    ("extra-damaged", local(extra=b"\1"), "in its header: its extra field is damaged"),
    ("zip64-extra", central(size=0xFFFFFFFF), "its ZIP64 values are missing"),
    ("zip64-extra", central(extra=extra(1, pack("<Q", 9))), "8 bytes of ZIP64 values for 0"),
    ("zip64-extra", local(size=0xFFFFFFFF), "in its header: its ZIP64 values are missing"),
    ("zip64-extra", local(extra=extra(1, pack("<QQ", 1, 2))), "sizes 400 and 400, and 1 and 2 in ZIP64"),
    ("zip64-extra", local(extra=extra(1, pack("<Q", 400))), "8 bytes of ZIP64 values instead of two sizes"),
    ("zip64-extra", central(disk=1), "said to begin on disk 1"),
    ("stored-size", both(size=401), "stored, 401 bytes and 400 bytes long"),
    ("bomb", both(size=2_000_000, method=8), "400 bytes cannot inflate to 2000000"),
    ("past-end", both(compressed=9_999, size=9_999), "reaches past the end of the members: cut short"),
    ("past-end", both(compressed=9_999, size=9_999, extra=extra(0x7075, b"\1\0\0\0\0evil.py")), "cut short"),
    ("overlap", lambda a: a[2].central.update(offset=0, name=b"demo/a.py"), "reaches into another member"),
    ("overlap", both(compressed=410, size=410), "reaches into another member"),
    ("local-missing", central(offset=3), "no member begins at 3"),
    ("local-missing", central(offset=0x7FFFFFFF), "no member begins at 2147483647"),
    ("local-name", local(name=b"demo/e.py"), "calls itself b'demo/e.py'"),
    ("local-flags", local(flags=0x800), "its header has the flags 0x0800, not 0x0000"),
    ("local-flags", local(flags=8), "its header has the flags 0x0008"),
    ("local-method", local(method=8), "its header has the method 8, not 0"),
    ("local-crc", local(crc=1), "its header has the CRC 00000001"),
    ("local-size", local(size=399), "the directory 400 and 400"),
    ("local-size", local(compressed=0, size=0), "its header says 0 and 0 bytes"),
    ("descriptor", described(crc=7), "missing or contradicts"),
    ("descriptor", described(size=7), "missing or contradicts"),
    ("data-descriptor", described(), "behind its content"),
    ("comment", has(comment=b"made by hand"), "a comment of 12 bytes"),
    ("comment", central(comment=b"PK\1\2"), "a comment of 4 bytes"),
    ("crc", both(crc=1), "does not have the CRC"),
    ("size", lambda a: (second(method=8)(a), both(size=401)(a)), "inflates to 400 bytes instead of 401"),
    ("deflate", second(method=8, packed=b"\xff" * 40), "bad deflate stream"),
    ("size", lambda a: (second(method=8)(a), both(size=399)(a)), "inflates to more than the 399 bytes"),
    ("deflate", second(method=8, packed=DEFLATED[:-2]), "cut short"),
    ("deflate-rest", second(method=8, packed=DEFLATED + b"evil"), "4 bytes behind the end"),
]


def faults(archive: Archive, folder: Path) -> list[tuple[str, str]]:
    """Every fault of an archive: of its layout, else of its contents."""
    try:
        layout = read(archive.bytes())
    except zip_format.UnreadableError as unreadable:
        return [(unreadable.fault.kind, unreadable.fault.text)]
    found = [(fault.kind, fault.text) for fault in layout.faults]
    if found:
        return found
    path = archive.write(folder)
    with open(path, "rb") as file:
        for entry in layout.entries:
            try:
                list(read_pieces(zip_format.make_reader(file), entry))
            except ContentError as wrong:
                found.append((wrong.fault.kind, wrong.fault.text))
    return found


@pytest.mark.parametrize(("kind", "change", "said"), TABLE, ids=[f"{i}-{r[0]}" for i, r in enumerate(TABLE)])
def test_each_fault_is_refused_by_its_name(tmp_path: Path, kind: str, change: Change, said: str) -> None:
    archive = base()
    change(archive)
    found = faults(archive, tmp_path)
    assert kind in [name for name, _ in found], found
    assert any(said in text for name, text in found if name == kind), found
    path = archive.write(tmp_path)
    with pytest.raises(errors.DataError) as caught:
        rewrite.rewrite_wheel(path, tmp_path / "out", edit.WheelEdit(label="x"))
    message = errors.explain_error(caught.value)
    assert str(path) in message
    if kind not in zip_format.REPAIRED_FAULTS | {"crc", "size", "deflate", "deflate-rest"}:
        assert said in message
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("streamed", [True, False])
def test_what_only_pypi_refuses_is_left_out_by_rewriting(tmp_path: Path, streamed: bool) -> None:
    path = tmp_path / "demo-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel(tmp_path, {"demo/a.py": CONTENT})) as archive:
        members = {info.filename: archive.read(info) for info in archive.infolist()}

    class Pipe(io.FileIO):
        def seekable(self) -> bool:
            return not streamed

        def seek(self, *where: int) -> int:
            if streamed:
                raise OSError("a pipe")
            return super().seek(*where)

    with Pipe(str(path), "w") as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
        archive.comment = b"" if streamed else b"made by hand"
    with WheelArchive.open(path) as before:
        assert {fault.kind for fault in before.faults} == {"data-descriptor" if streamed else "comment"}
    assert scan_wheel(path).faults == ()
    done = rewrite.rewrite_wheel(path, tmp_path / "out", edit.WheelEdit())
    with WheelArchive.open(done) as after:
        assert after.faults == ()
    with zipfile.ZipFile(done) as archive:
        assert {info.filename: archive.read(info) for info in archive.infolist()} == members
        assert {info.flag_bits for info in archive.infolist()} == {0}


def test_every_fault_of_the_table_has_a_row() -> None:
    beyond = {"no-end": b"<html>404</html>", "directory-damaged": INNER.replace(b"PK\1\2", b"PK\1\3")}
    for kind, data in beyond.items():
        with pytest.raises(zip_format.UnreadableError) as caught:
            read(data)
        assert caught.value.fault.kind == kind
    assert {row[0] for row in TABLE} | set(beyond) == zip_format.FAULT_KINDS
    assert len(zip_format.FAULT_KINDS) > 40


def test_an_archive_without_fault_is_told_as_it_is(tmp_path: Path) -> None:
    archive = base()
    layout = read(archive.bytes())
    assert layout.faults == ()
    listed = [(entry.name, entry.size, entry.method) for entry in layout.entries]
    assert listed == [("demo/a.py", 400, 8), ("demo/b.py", 400, 0), ("demo/sub/c.py", 6, 8)]
    ends = [0, *(entry.end for entry in layout.entries)]
    assert [entry.header for entry in layout.entries] == ends[:-1]
    assert ends[-1] == archive.bytes().index(zip_format.CENTRAL_MARK)


def test_an_archive_without_members_is_no_wheel(tmp_path: Path) -> None:
    empty = Archive([])
    assert read(empty.bytes()).entries == read(empty.bytes()).faults == ()
    with pytest.raises(errors.DataError, match="cannot be edited"):
        rewrite.rewrite_wheel(empty.write(tmp_path), tmp_path / "out", edit.WheelEdit(label="x"))
    lost = base()
    for member in lost.members:
        member.central["offset"] = 5
    assert [fault.kind for fault in read(lost.bytes()).faults] == ["local-missing"] * 3


@pytest.mark.parametrize("wide", [{}, {"disks": 1}])
def test_zip64_records_that_agree_are_no_fault(wide: dict[str, int]) -> None:
    archive = base()
    archive.wide = dict(wide)
    assert read(archive.bytes()).faults == ()
    every = {"here": 0xFFFF, "count": 0xFFFF, "size": 0xFFFFFFFF, "offset": 0xFFFFFFFF}
    archive.end = dict(every)
    assert len(read(archive.bytes()).entries) == 3
    sizes = extra(1, pack("<QQ", 400, 400))
    archive[1].central.update(size=0xFFFFFFFF, compressed=0xFFFFFFFF, extra=sizes)
    archive[1].local.update(size=0xFFFFFFFF, compressed=0xFFFFFFFF, extra=sizes)
    assert read(archive.bytes()).faults == ()


@pytest.mark.parametrize("platform", ["manylinux_2_28_x86_64", "win32", "any"])
@pytest.mark.parametrize("twin", ["Demo/A.py", "demo/e\u0301.py"])
def test_names_that_are_one_to_some_file_systems_are_refused(
    tmp_path: Path, twin: str, platform: str
) -> None:
    archive = base()
    set_name(twin.encode(), flags=0 if twin.isascii() else 0x800)(archive)
    archive.members.append(Member("demo/\u00e9.py".encode(), flags=0x800))
    path = archive.write(tmp_path, f"demo-1.0-py3-none-{platform}.whl")
    with WheelArchive.open(path, as_it_is=True) as wheel:
        assert wheel.faults == ()
    with pytest.raises(
        errors.DataError, match=r"is the same as .* where case and Unicode forms do not count"
    ):
        rewrite.rewrite_wheel(path, tmp_path / "out", edit.WheelEdit(label="x"))


def test_a_name_of_thousands_of_parts_costs_no_more_than_its_bytes() -> None:
    archive = base()
    set_name(b"a/" * 32_000 + b"x")(archive)
    archive.members.append(Member(b"a/a/a", b""))
    tracemalloc.start()
    found = read(archive.bytes()).faults
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [fault.kind for fault in found] == ["name-long", "file-and-folder"]
    assert peak < 8 << 20


def test_a_fault_of_names_does_not_keep_a_scan_from_the_rest(tmp_path: Path) -> None:
    archive = base()
    set_name(b"/etc/b.py")(archive)
    archive.tail = b"tail"
    archive[2].local["crc"] = 1
    scan = scan_wheel(archive.write(tmp_path))
    said = "\n".join(scan.faults)
    assert re.search(r"any.whl: 4 bytes behind its end record", said)
    assert re.search(r"any.whl: /etc/b.py: this name leads out", said)
    assert re.search(r"any.whl: demo/sub/c.py: its header has the CRC", said)
    assert scan.damaged_members == {"/etc/b.py", "demo/sub/c.py"}
    assert {member.name for member in scan.members} == {"demo/a.py", "/etc/b.py"}


GOOD = base().bytes()


@settings(max_examples=400, deadline=None)
@given(
    changes=st.lists(
        st.tuples(st.integers(0, len(GOOD) - 1), st.binary(min_size=1, max_size=8)), min_size=1, max_size=3
    ),
    tail=st.binary(max_size=3),
)
def test_what_has_no_fault_is_read_by_zipfile_alike(changes: list[tuple[int, bytes]], tail: bytes) -> None:
    """Whatever is done to an archive: no fault means that another reader sees the same."""
    data = bytearray(GOOD)
    for place, patch in changes:
        data[place : place + len(patch)] = patch
    data += tail
    try:
        layout = read(bytes(data))
    except zip_format.UnreadableError:
        return
    if layout.faults:
        return
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        other = [(i.filename, i.file_size, i.CRC, i.header_offset) for i in archive.infolist()]
    assert [(e.name, e.size, e.crc, e.header) for e in layout.entries] == other


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        ("METADATA", b"Name: demo\n\n" + b"\n" * (4 << 20), "4194316 bytes are too many"),
        ("WHEEL", b"Tag: py3-none-any\n" * 60_000, "1080000 bytes are too many"),
        ("RECORD", b"a,,\n" * 20_000, "has 20000 lines and 80000 bytes, for a wheel of 6 files"),
        ("RECORD", b"," * (2 << 20), "has 0 lines and 2097152 bytes"),
    ],
)
def test_texts_that_would_fill_the_memory_are_not_read(
    tmp_path: Path, file: str, content: bytes, said: str
) -> None:
    """Content of 60 MB fits into an archive of 60 KB, and takes a hundred times that when it is parsed."""
    archive = base()
    texts = {
        "METADATA": b"Metadata-Version: 2.1\nName: demo\nVersion: 1.0\n",
        "WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        "RECORD": b"",
    }
    for name, text in {**texts, file: content}.items():
        archive.members.append(Member(b"demo-1.0.dist-info/" + name.encode(), text))
    path = archive.write(tmp_path)
    assert said in "\n".join(scan_wheel(path).faults)
    with pytest.raises(errors.DataError) as caught:
        rewrite.rewrite_wheel(path, tmp_path / "out", edit.WheelEdit(label="x", local="y"))
    assert said in errors.explain_error(caught.value)
