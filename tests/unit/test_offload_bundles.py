"""Device code in bundles and containers: what is read, and what is said of damage."""

from __future__ import annotations

import random
import struct
import tracemalloc
from collections.abc import Callable

import pytest
from binaries import HOST, ar, bundle, code_object, coff, compress, elf, hip, pad
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rocm_wheels.core import errors
from rocm_wheels.device_code import code_objects

pytestmark = pytest.mark.contract

TWO = bundle(HOST, hip("gfx942"), hip("gfx1100"))
ALL_PACKINGS = [(v, m) for v in (1, 2, 3) for m in ("zlib", "zstd")]


@pytest.mark.parametrize(("version", "method"), ALL_PACKINGS)
def test_a_compressed_bundle_reads_like_the_plain_one(version: int, method: str) -> None:
    plain = code_objects.read_code_objects(TWO, "x")
    packed = code_objects.read_code_objects(compress(TWO, version, method), "x")
    assert code_objects.list_code_targets(packed) == ["gfx942", "gfx1100"]
    assert [(o.target, o.offset, o.size, o.machine) for o in packed] == [
        (o.target, o.offset, o.size, o.machine) for o in plain
    ]
    assert {o.packing for o in packed} == {f"{method} v{version}"}


def test_bundles_of_all_kinds_stand_one_after_another() -> None:
    """One a translation unit, aligned or not, with and without padding before and behind."""
    one = bundle(HOST, hip("gfx906:sramecc+:xnack-"))
    parts = [bytes(4096), TWO, pad(one)] + [pad(compress(one, v, m)) for v, m in ALL_PACKINGS]
    parts += [compress(TWO, v, m) for v, m in ALL_PACKINGS] + [bytes(100)]
    found = code_objects.read_code_objects(elf({".text": b"x", ".hip_fatbin": b"".join(parts)}), "x.so")
    assert len(found) == 2 + 1 + 6 + 12
    assert sorted({o.bundle for o in found}) == list(range(14))
    assert code_objects.list_code_targets(found) == ["gfx906:sramecc+:xnack-", "gfx942", "gfx1100"]


CONTAINERS: dict[str, bytes] = {
    "lib.so": elf({".text": b"abc", ".hip_fatbin": TWO, ".data": b"z"}),
    "many_sections.so": elf({".hip_fatbin": TWO}, extended=True),
    "lib.dll": coff({".text": b"abc", ".hip_fatbin": TWO}, image=True),
    "object.obj": coff({".hip_fatbin": TWO}, image=False),
    "gnu.a": ar(
        {"a_long_name_of_an_object.o": elf({".hip_fatbin": TWO}), "plain.o": elf({".text": b""})}, style="gnu"
    ),
    "bsd.a": ar({"one.o": elf({".hip_fatbin": TWO})}, style="bsd"),
    "windows.lib": ar({"one.obj": coff({".hip_fatbin": TWO}, image=False)}, style="gnu"),
    "kernels.dat": TWO,
    "kernels.co": compress(TWO, 3, "zstd"),
    "rdc.o": elf(
        {f"__CLANG_OFFLOAD_BUNDLE__{name}": content for name, content in (hip("gfx942"), hip("gfx1100"))}
    ),
}


@pytest.mark.parametrize("name", CONTAINERS)
def test_every_container_is_read(name: str) -> None:
    found = code_objects.read_code_objects(CONTAINERS[name], name)
    assert code_objects.list_code_targets(found) == ["gfx942", "gfx1100"]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("empty", b""),
        ("text.py", b"MZ = 1\n" * 30),
        ("lib.so", elf({".text": b"x"})),
        ("zeros.so", elf({".hip_fatbin": bytes(10_000)})),
        ("lib.dll", coff({".text": b"x"}, image=True)),
        ("elf32.so", b"\x7fELF\x01\x01" + bytes(100)),
        ("sycl.so", elf({"__CLANG_OFFLOAD_BUNDLE__sycl-spir64": b"x" * 99})),
        ("host_only", bundle(HOST)),
        ("nvidia", bundle(HOST, ("openmp-nvptx64-nvidia-cuda--sm_80", b"x"))),
    ],
)
def test_a_file_of_another_kind_holds_none(name: str, content: bytes) -> None:
    assert code_objects.read_code_objects(content, name) == []


def test_a_bare_code_object_states_its_own_target() -> None:
    [found] = code_objects.read_code_objects(code_object("gfx90a", xnack="-", sramecc="+"), "kernel.hsaco")
    assert (str(found.target), found.kind, found.machine) == ("gfx90a:sramecc+:xnack-", "bare", "gfx90a")
    [unknown] = code_objects.read_code_objects(code_object(0x7E), "kernel.hsaco")
    assert (str(unknown.target), unknown.machine) == ("unknown-0x7e", None)


def test_entries_without_an_elf_header_are_told_by_their_form() -> None:
    spirv = ("hip-spirv64-amd-amdhsa--amdgcnspirv", b"\x03\x02\x23\x07" + bytes(60))
    bitcode = hip("gfx942", b"BC\xc0\xde" + bytes(80), kind="hip")
    found = code_objects.read_code_objects(bundle(HOST, bitcode, spirv, hip("gfx906", b"")), "x")
    assert [(str(o.target), o.form, o.machine) for o in found] == [
        ("gfx942", "bitcode", None),
        ("amdgcnspirv", "spirv", None),
        ("gfx906", "empty", None),
    ]
    assert code_objects.list_code_targets(found) == ["amdgcnspirv", "gfx942"]


def test_old_and_generic_ids_are_read() -> None:
    old = ("hip-amdgcn-amd-amdhsa-gfx906", code_object("gfx906", abi=1))
    made = bundle(old, hip("gfx9-4-generic"), hip("gfx1100", code_object(0x7E)))
    found = code_objects.read_code_objects(made, "x")
    assert code_objects.list_code_targets(found) == ["gfx906", "gfx9-4-generic", "gfx1100"]


def _corrupt(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :]


PACKED = compress(TWO, 3, "zstd")
MAX = b"\xff" * 8
NUMBER = "18446744073709551615"
DAMAGE: list[tuple[str, Callable[[], bytes], str]] = [
    ("id and e_flags", lambda: bundle(hip("gfx942", code_object("gfx1100"))),
     "its ID says gfx942, its e_flags (0x541) say gfx1100"),
    ("feature", lambda: bundle(hip("gfx942:xnack+", code_object("gfx942", xnack="-"))),
     "its ID says xnack+, its e_flags (0x64c) say xnack -"),
    ("other machine", lambda: bundle(hip("gfx942", elf({}))),
     "its ID says gfx942, its ELF machine is 62, not 224"),
    ("no elf", lambda: bundle(hip("gfx942", b"garbage" * 30)),
     "entry hipv4-amdgcn-amd-amdhsa--gfx942: not an ELF file"),
    ("no id", lambda: bundle(("gfx942", code_object("gfx942"))),
     "bundle 0: entry gfx942: 'gfx942' is not the ID of a bundle entry"),
    ("no target", lambda: bundle(("hip-amdgcn-amd-amdhsa-", code_object("gfx942"))), "'' is not a target ID"),
    ("kind", lambda: bundle(("hipp-amdgcn-amd-amdhsa--gfx942", code_object("gfx942"))),
     "offload kind hipp is not known"),
    ("triple", lambda: bundle(("hip-amdgxx-amd-amdhsa--gfx942", code_object("gfx942"))),
     "not a triple of AMD device code"),
    ("cut plain", lambda: TWO[:-10], "reaches past the end"),
    ("cut table", lambda: TWO[:70], "reaches past the end"),
    ("cut header", lambda: TWO[:26], "the number of entries at 24 with 8 bytes reaches past the end"),
    ("count", lambda: TWO[:24] + MAX + TWO[32:], f"{NUMBER} entries are more than a bundle can have"),
    ("id length", lambda: TWO[:48] + MAX + TWO[56:], f"entry 0 has an ID of {NUMBER} bytes"),
    ("overlap", lambda: bundle(("a" * 9000, b"x")).replace(struct.pack("<Q", 12288), struct.pack("<Q", 64)),
     "ID of 9000 bytes"),
    ("junk behind", lambda: pad(TWO) + b"junk",
     "after 1 bundles, neither a bundle nor padding at 12288: 6a 75 6e 6b"),
    ("version", lambda: PACKED[:4] + b"\x09\x00" + PACKED[6:],
     "bundle 0 at 0: compressed bundle of version 9; known are 1, 2 and 3"),
    ("method", lambda: PACKED[:6] + b"\x07\x00" + PACKED[8:], "compressed with method 7"),
    ("cut packed", lambda: PACKED[:-5], "cut short: declares"),
    ("cut packed header", lambda: PACKED[:20],
     "the header of a compressed bundle at 8 with 24 bytes reaches past"),
    ("cut v1 zlib", lambda: compress(TWO, 1, "zlib")[:-20], "cut short"),
    ("cut v1 zstd", lambda: compress(TWO, 1, "zstd")[:-20], "cut short"),
    ("too small", lambda: compress(TWO, 2, "zstd", declared=len(TWO) - 1), "reaches past the end"),
    ("too large", lambda: compress(TWO, 2, "zlib", declared=len(TWO) + 1),
     f"ends after {len(TWO)} of {len(TWO) + 1} bytes"),
    ("absurd size", lambda: compress(TWO, 3, "zstd", declared=1 << 60), "more than any library can hold"),
    ("bad zlib", lambda: _corrupt(compress(TWO, 2, "zlib"), 24), "bad zlib stream"),
    ("bad zstd", lambda: _corrupt(compress(TWO, 3, "zstd"), 32), "bad zstd stream"),
    ("wrong hash", lambda: _corrupt(PACKED, 24), "do not have the hash"),
    ("no bundle inside", lambda: compress(b"x" * 500, 3, "zstd"),
     "the inflated bytes are not an offload bundle"),
    ("bomb", lambda: compress(TWO + bytes(50_000_000), 3, "zstd", declared=len(TWO)),
     f"inflates to more than the {len(TWO)} bytes"),
]  # fmt: skip


@pytest.mark.parametrize(("build", "message"), [row[1:] for row in DAMAGE], ids=[row[0] for row in DAMAGE])
def test_damage_is_named_with_its_place(build: Callable[[], bytes], message: str) -> None:
    with pytest.raises(errors.DataError) as caught:
        code_objects.read_code_objects(elf({".hip_fatbin": build()}), "w.whl: torch/lib/x.so")
    assert str(caught.value).startswith("w.whl: torch/lib/x.so: section .hip_fatbin: ")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (elf({".hip_fatbin": TWO})[:-30], "x.dll: cut short: the section table at"),
        (elf({".hip_fatbin": TWO})[:40], "the ELF header at 0 with 64 bytes reaches past the end"),
        (elf({})[:40] + bytes(24), "no section table, so its device code cannot be found"),
        (elf({".a": b""})[:62] + bytes(2) + elf({".a": b""})[64:], "the section table has no names"),
        (elf({".llvm.offloading": b"x"}),
         "section .llvm.offloading holds device code that is not linked yet"),
        (coff({".hip_fatbin": TWO}, image=True)[:160],
         "the section table at 152 with 40 bytes reaches past the end"),
        (coff({".hip_fatbin": TWO}, image=True)[:100], "begins like a Windows library, but has no PE header"),
        (coff({".hip_fatbin": TWO}, image=True)[:-600], "section .hip_fat at"),
        (b"!<thin>\nx", "a thin archive"),
        (ar({"a.o": TWO}, style="gnu")[:-9], "member /0 at"),
        (b"!<arch>\n" + b"x" * 60, "the member header at 8 is broken"),
        (ar({"a.o": b""}, style="bsd").replace(b"#1/4 ", b"#1/99"), "has a name longer than the member"),
        (code_object("gfx942")[:50], "the ELF header at 0 with 64 bytes reaches past the end"),
    ],
)  # fmt: skip
def test_damaged_containers_are_named(content: bytes, message: str) -> None:
    with pytest.raises(errors.DataError) as caught:
        code_objects.read_code_objects(content, "x.dll")
    assert message in str(caught.value)


def test_overlapping_entries_are_refused() -> None:
    made = bytearray(bundle(hip("gfx942"), hip("gfx1100")))
    first, second = 32, 32 + 24 + len("hipv4-amdgcn-amd-amdhsa--gfx942")
    made[second : second + 8] = made[first : first + 8]
    for packed in (bytes(made), compress(bytes(made), 3, "zstd"), compress(bytes(made), 2, "zlib")):
        with pytest.raises(errors.DataError, match=r"entry 1 \(hipv4-.*gfx1100\) at 4096 overlaps"):
            code_objects.read_code_objects(packed, "x")


def test_sections_on_top_of_each_other_are_not_read_again_and_again() -> None:
    library = bytearray(elf({".hip_fatbin": TWO, ".hip_fat": b""}))
    (table,) = struct.unpack_from("<Q", library, 40)
    library[table + 128 + 24 : table + 128 + 40] = library[table + 64 + 24 : table + 64 + 40]
    with pytest.raises(errors.DataError, match=r"x.so: section .hip_fat: lies on top of other sections"):
        code_objects.read_code_objects(bytes(library), "x.so")


@pytest.mark.parametrize("method", ["zlib", "zstd"])
def test_memory_does_not_grow_with_a_bundle(method: str) -> None:
    code = code_object("gfx942") + random.Random(1).randbytes(1 << 18) + bytes(48 << 20)
    large = compress(bundle(HOST, hip("gfx942", code), hip("gfx1100")), 2, method)
    tracemalloc.start()
    found = code_objects.read_code_objects(large, "x")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert code_objects.list_code_targets(found) == ["gfx942", "gfx1100"]
    assert peak < 4 << 20


SEEDS = [*CONTAINERS.values(), *(compress(TWO, v, m) for v, m in ALL_PACKINGS), code_object("gfx942")]


@settings(max_examples=400, deadline=None)
@given(
    seed=st.sampled_from(SEEDS),
    changes=st.lists(
        st.tuples(st.floats(0, 1, exclude_max=True), st.binary(min_size=1, max_size=8)), max_size=4
    ),
    near_front=st.booleans(),
    keep=st.one_of(st.just(1.0), st.floats(0, 1)),
    name=st.sampled_from(["x.so", "x.dll", "x.o", "x"]),
)
@example(seed=SEEDS[0], changes=[(0.0, b"CCOB")], near_front=True, keep=1.0, name="x")
def test_any_mutation_is_read_or_refused(
    seed: bytes, changes: list[tuple[float, bytes]], near_front: bool, keep: float, name: str
) -> None:
    data = bytearray(seed[: int(len(seed) * keep)])
    for place, patch in changes:
        at = int(place * min(len(data), 200 if near_front else len(data)))
        data[at : at + len(patch)] = patch
    try:
        code_objects.read_code_objects(bytes(data), name)
    except errors.DataError as fault:
        assert str(fault).startswith(name)


def test_plain_zeros_of_an_old_stripped_library_are_skipped_fast() -> None:
    assert code_objects.read_code_objects(elf({".hip_fatbin": bytes(20 << 20)}), "x.so") == []
