"""Device code outside of its library: `.kpack` archives, and the libraries that refer to them."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from binaries import HOST, bundle, code_object, coff, elf, hip, kpack, kpack_reference, messagepack, wheel
from hypothesis import given, settings
from hypothesis import strategies as st

from rocm_wheels.binaries.elf import BinarySpan
from rocm_wheels.core import errors
from rocm_wheels.device_code import code_objects
from rocm_wheels.device_code.kpack import unpack_messagepack
from rocm_wheels.wheels import wheel_code
from rocm_wheels.wheels.scan import scan_wheel

pytestmark = pytest.mark.contract

KERNELS = {
    ("lib/liba.so#0", "gfx942:xnack+"): code_object("gfx942", xnack="+", size=9000),
    ("lib/liba.so#0", "gfx942"): code_object("gfx942", size=4096),
    ("lib/liba.so#1", "gfx942"): code_object("gfx942", size=512),
}
PLACES = ("../.kpack/demo_@GFXARCH@.kpack",)
LEFT_OVER = b"\x01the end of a bundle that was cut out"
SPLIT = {
    "libdemo.so": elf({".text": b"x", ".rocm_kpack_ref": kpack_reference(*PLACES)}),
    "small.so": elf(
        {".hip_fatbin": bundle(HOST, hip("gfx942")), ".rocm_kpack_ref": kpack_reference(*PLACES)}
    ),
    "demo.dll": coff({".hip_fat": LEFT_OVER, ".kpackrf": kpack_reference(*PLACES)}, image=True),
}


@pytest.mark.parametrize(("scheme", "packing"), [("none", "plain"), ("zstd-per-kernel", "zstd")])
def test_kernels_of_an_archive_are_listed(scheme: str, packing: str) -> None:
    found = code_objects.read_code_objects(kpack(KERNELS, scheme), "demo_gfx942.kpack")
    assert [(o.section, str(o.target), o.size) for o in found] == [(*k, len(c)) for k, c in KERNELS.items()]
    assert {(o.kind, o.form, o.machine, o.packing) for o in found} == {("kpack", "elf", "gfx942", packing)}
    assert [o.bundle for o in found] == [0, 1, 2]
    assert code_objects.list_code_targets(found) == ["gfx942", "gfx942:xnack+"]


@pytest.mark.parametrize("name", SPLIT)
def test_a_library_that_was_split_holds_nothing_and_names_its_archives(name: str) -> None:
    assert code_objects.may_hold_code(name, SPLIT[name][:4096])
    assert code_objects.read_code_objects(SPLIT[name], name) == []
    assert code_objects.list_named_archives(SPLIT[name], name) == PLACES


def test_a_wheel_says_where_its_code_is(tmp_path: Path) -> None:
    files = {f"demo/lib/{name}": content for name, content in SPLIT.items()}
    path = wheel(tmp_path, {**files, "demo/.kpack/demo_gfx942.kpack": kpack(KERNELS)})
    scan = scan_wheel(path)
    assert scan.faults == ()
    assert dict(scan.moved_code) == dict.fromkeys(files, PLACES)
    assert list(scan.device_code) == ["demo/.kpack/demo_gfx942.kpack"]
    found = wheel_code.read_device_code(path)
    assert (found.moved_code, list(found.code)) == (scan.moved_code, list(scan.device_code))
    (tmp_path / "libdemo.so").write_bytes(SPLIT["libdemo.so"])
    assert wheel_code.read_device_code(tmp_path / "libdemo.so") == wheel_code.FoundDeviceCode(
        {"": []}, {"": PLACES}
    )


def entry(**changes: object) -> dict[str, object]:
    return {"toc": {"liba.so": {"gfx942": {"type": "hsaco", "ordinal": 0, "original_size": 64, **changes}}}}


GOOD = kpack(KERNELS)
DAMAGED = [
    (b"code for gfx942", "reaches past the end"),
    (b"code for gfx942, and then some more", "is called .kpack, but does not begin with KPAK"),
    (GOOD[:10], "the header of a .kpack archive"),
    (GOOD[:200], "its table is said to be at"),
    (GOOD[:-3], "table: a value"),
    (GOOD[:4] + b"\2" + GOOD[5:], ".kpack archive of version 2; known is 1"),
    (GOOD[:8] + struct.pack("<Q", 16) + GOOD[16:], "the table is no map"),
    (kpack(KERNELS, compression_scheme="lz4"), "compressed by 'lz4'"),
    (kpack(KERNELS, toc=[]), "toc is no map"),
    (kpack(KERNELS, toc={"liba.so": 1}), "liba.so is no map"),
    (kpack(KERNELS, "none", blobs=None), "its table lists no blobs"),
    (kpack(KERNELS, zstd_size=1 << 40), "kernels at 64 with 1099511627776 bytes reaches past the end"),
    (kpack(KERNELS, **entry(ordinal=3)), "liba.so for gfx942: kernel 3 of 3"),
    (kpack(KERNELS, **entry(ordinal=True)), "ordinal is no number"),
    (kpack(KERNELS, **entry(type="ptx")), "a kernel of type 'ptx'; known is 'hsaco'"),
    (kpack({("liba.so", "gfx942"): code_object("gfx1100")}), "its ID says gfx942, its e_flags"),
    (kpack({("liba.so", "gfx942"): b"KERNEL" * 20}), "liba.so for gfx942: not an ELF file"),
    (kpack({("liba.so", "942"): code_object("gfx942")}), "'942' is not a target ID"),
]


@pytest.mark.parametrize(("content", "said"), DAMAGED, ids=[row[1][:30] for row in DAMAGED])
def test_a_damaged_archive_is_named_with_its_fault(content: bytes, said: str) -> None:
    with pytest.raises(errors.DataError) as fault:
        code_objects.read_code_objects(content, "demo_gfx942.kpack")
    assert said in str(fault.value)
    assert str(fault.value).startswith("demo_gfx942.kpack: ")


@pytest.mark.parametrize("marker", [b"", b"\x80", messagepack({"kpack_search_paths": [1]}), b"\xc1"])
def test_a_reference_that_names_nothing_is_damage(marker: bytes) -> None:
    with pytest.raises(errors.DataError, match=r"liba.so: section .rocm_kpack_ref: "):
        code_objects.list_named_archives(elf({".rocm_kpack_ref": marker}), "liba.so")


@pytest.mark.parametrize(
    ("packed", "value"),
    [
        (b"\xc2", False),
        (b"\xff", -1),
        (b"\xcd\x01\x00", 256),
        (b"\xd3" + b"\xff" * 8, -1),
        (b"\xcb" + struct.pack(">d", 1.5), 1.5),
        (b"\xc4\x02ab", b"ab"),
        (b"\xda\x00\x02ab", "ab"),
        (b"\xdd\x00\x00\x00\x01\xc0", [None]),
        (b"\xdf\x00\x00\x00\x01\xa1a\x01", {"a": 1}),
    ],
)
def test_messagepack_is_read_as_specified(packed: bytes, value: object) -> None:
    assert unpack_messagepack(BinarySpan(memoryview(packed), "x")) == value


@pytest.mark.parametrize("hostile", [b"\x91" * 5000, b"\xdd\xff\xff\xff\xff", b"\xdf\x00\x00\x00\x05\xa1a"])
def test_hostile_messagepack_is_refused_before_it_costs_anything(hostile: bytes) -> None:
    with pytest.raises(
        errors.DataError, match=r"nested deeper than 32|reaches past the end|values in a table"
    ):
        unpack_messagepack(BinarySpan(memoryview(hostile), "x"))


@settings(max_examples=200, deadline=None)
@given(place=st.integers(0, len(GOOD) - 1), patch=st.binary(min_size=1, max_size=8), cut=st.integers(0, 400))
def test_any_mutation_of_an_archive_is_read_or_refused(place: int, patch: bytes, cut: int) -> None:
    data = bytearray(GOOD)
    data[place : place + len(patch)] = patch
    try:
        code_objects.read_code_objects(bytes(data[: len(data) - cut]), "demo.kpack")
    except errors.DataError as fault:
        assert str(fault).startswith("demo.kpack")
