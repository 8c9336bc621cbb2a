"""Data types by target, held against the page's list, the table of targets, and wrong tables.

PAGE is the list of "PyTorch compatibility" (ROCm 6.3.3), copied by hand: name, since torch, since ROCm.
"""

from __future__ import annotations

import re

import pytest
from packaging.version import Version

from rocm_wheels.core import errors, records
from rocm_wheels.models import dtypes, gfx, project_names
from rocm_wheels.models.facts import list_facts

PAGE = """
float8_e4m3fn 2.3 5.5 | float8_e5m2 2.3 5.5 | float16 0.1.6 2.0 | bfloat16 1.6 2.6 | float32 0.1.12-2 2.0
float64 0.1.12-2 2.0 | complex32 1.6 2.0 | complex64 1.6 2.0 | complex128 1.6 2.0 | uint8 0.1.12-2 2.0
uint16 2.3 - | uint32 2.3 - | uint64 2.3 - | int8 1.12 5.0 | int16 0.1.12-2 2.0 | int32 0.1.12-2 2.0
int64 0.1.12-2 2.0 | bool 1.2 2.0 | quint8 1.8 5.0 | qint8 1.8 5.0 | qint32 1.8 5.0 | quint4x2 1.8 5.0
"""
TEXT = (project_names.get_data_folder() / "dtypes.yaml").read_text(encoding="utf-8")


def test_the_page_is_all_there():
    page = [row.split() for row in re.split(r"[|\n]", PAGE) if row.strip()]
    ours = {name: dtype for name, dtype in dtypes.get_dtypes().items() if dtype.page}
    assert len(page) == 22
    assert [
        (name, dtype.torch, dtype.since_torch, dtype.since_rocm, dtype.kind) for name, dtype in ours.items()
    ] == [
        (name, f"torch.{name}", Version(torch), None if rocm == "-" else Version(rocm), "documented")
        for name, torch, rocm in page
    ]
    added = set(dtypes.get_dtypes()) - set(ours)
    assert {"float8_e4m3fnuz", "float8_e5m2fnuz", "mxfp8_e4m3", "mxfp6_e2m3", "mxfp4_e2m1", "tf32"} < added


def test_every_target_has_an_architecture_and_the_page():
    placed = [target for one in dtypes.get_architectures().values() for target in one.targets]
    assert sorted(placed) == sorted(gfx.get_gfx_targets())
    page = {name for name, dtype in dtypes.get_dtypes().items() if dtype.page}
    for target in gfx.get_gfx_targets():
        rows = dtypes.list_target_dtypes(target)
        assert page <= {row.name for row in rows}
        assert {row.level for row in rows} <= {"full", "matrix", "storage"}
        for row in rows:  # enough for a test of it
            if row.compared == "close" and row.operations:
                assert row.tolerances.elementwise or row.tolerances.accumulated, row.name
            if {"sum", "matmul", "scaled_mm"} & set(row.operations) and row.compared == "close":
                assert row.tolerances.accumulated, row.name
            assert {one for one in row.operations if one not in dtypes.get_operations()} == set()
            assert (row.product != "") >= ("scaled_mm" in row.operations)


def test_the_table_of_targets_agrees():
    for target, record in gfx.get_gfx_targets().items():
        matrix = {row.dtype.format for row in dtypes.list_target_dtypes(target) if row.level == "matrix"}
        assert ("fp8-fnuz" in matrix, "fp8-ocp" in matrix) == (record.fp8 == "fnuz", record.fp8 == "ocp"), (
            target
        )
        assert ("mx" in matrix) == record.mx, target


@pytest.mark.parametrize(
    ("target", "rocm", "name", "level", "operations"),
    [
        ("gfx942:sramecc+:xnack-", None, "float8_e4m3fnuz", "matrix", "cast scaled_mm"),
        ("gfx942", None, "float8_e4m3fn", "storage", "cast"),
        ("gfx942", None, "tf32", "matrix", "matmul"),
        ("gfx90a", None, "tf32", None, ""),
        ("gfx950", None, "float8_e5m2", "matrix", "cast scaled_mm"),
        ("gfx950", "7.2", "mxfp4_e2m1", "matrix", "scaled_mm"),
        ("gfx950", "6.4.3", "mxfp4_e2m1", None, ""),  # later than this ROCm
        ("gfx950", "6.4.3", "float8_e5m2", "storage", "cast"),
        ("gfx1250", "7.13", "mxfp8_e4m3", None, ""),
        ("gfx1250", "10.1.0", "mxfp8_e4m3", "matrix", "scaled_mm"),
        ("gfx1250", None, "mxfp6_e3m2", "matrix", ""),  # torch has no way to it
        ("gfx1201", "7.14", "float8_e4m3fn", "matrix", "cast scaled_mm"),
        ("gfx1201", None, "mxfp8_e4m3", None, ""),
        ("gfx1100", None, "float8_e4m3fn", "storage", "cast"),
        ("gfx1100", None, "int8", "full", "cast add mul sum int_mm"),
        ("gfx1030", None, "int8", "full", "cast add mul sum"),  # no hipBLASLt there
        ("gfx1030", None, "bfloat16", "full", "cast add mul sum matmul"),
        ("gfx900", None, "complex32", "full", "cast add mul"),
        ("gfx906", None, "quint4x2", "full", "quantize_channels dequantize"),
        ("gfx908", None, "uint16", "storage", "cast"),
    ],
)
def test_what_can_be_calculated_where(target, rocm, name, level, operations):
    rows = {row.name: row for row in dtypes.list_target_dtypes(target, rocm=Version(rocm) if rocm else None)}
    assert (rows[name].level if name in rows else None) == level
    assert (" ".join(rows[name].operations) if name in rows else "") == operations


def test_what_a_product_needs():
    rows = {row.name: row for row in dtypes.list_target_dtypes("gfx950")}
    assert (
        rows["mxfp4_e2m1"].dtype.elements,
        rows["mxfp4_e2m1"].dtype.scale,
        rows["mxfp4_e2m1"].dtype.block,
    ) == (
        "torch.float4_e2m1fn_x2",
        "torch.float8_e8m0fnu",
        32,
    )
    assert (rows["mxfp4_e2m1"].multiple, rows["mxfp4_e2m1"].product) == (128, "torch.bfloat16")
    assert (rows["float8_e5m2"].multiple, rows["float8_e5m2"].reference) == (16, "torch.float64")
    assert rows["int8"].product == "torch.int32"


def test_versions_of_torch_are_versions():
    names = {row.name for row in dtypes.list_target_dtypes("gfx950", torch=Version("2.10"))}
    assert {"float8_e8m0fnu", "float4_e2m1fn_x2", "mxfp4_e2m1"} <= names  # 2.7 and 2.8 are older than 2.10
    older = {row.name for row in dtypes.list_target_dtypes("gfx950", torch=Version("2.1"))}
    assert names - older >= {"float8_e4m3fn", "float8_e4m3fnuz", "tf32", "mxfp8_e4m3"}


def test_tolerances_are_those_of_torch_testing_and_half_a_step_of_8_bits():
    defaults = {  # torch.testing.assert_close
        "float16": (1e-3, 1e-5),
        "bfloat16": (1.6e-2, 1e-5),
        "float32": (1.3e-6, 1e-5),
        "float64": (1e-7, 1e-7),
        "complex32": (1e-3, 1e-5),
        "complex64": (1.3e-6, 1e-5),
        "complex128": (1e-7, 1e-7),
    }
    bias = {"float8_e4m3fn": 7, "float8_e4m3fnuz": 8, "float8_e5m2": 15, "float8_e5m2fnuz": 16}
    for name, exponent in bias.items():
        digits = int(name[len("float8_e4m")])
        smallest = 2.0 ** (1 - exponent - digits)
        defaults[name] = (2.0 ** -(digits + 1), smallest / 2)
    rows = {row.name: row for target in ("gfx942", "gfx950") for row in dtypes.list_target_dtypes(target)}
    for name, wanted in defaults.items():
        one = rows[name].tolerances.elementwise
        assert one and (one.rtol, one.atol) == wanted, name


def test_every_fact_has_a_source_that_is_used_and_what_is_believed_says_why():
    facts = list_facts(dtypes.load_dtype_table())
    assert {fact.source for fact in facts} == set(dtypes.load_dtype_table().sources)
    assert [fact for fact in facts if fact.kind == "believed" and not fact.note] == []


def test_rows_for_people():
    header, rows = dtypes.tabulate_dtypes()
    assert {len(row) for row in rows} == {len(header)}
    shown = dict(zip(header, rows[0], strict=True))
    assert shown["dtype"] == "torch.float8_e4m3fn"
    assert shown["calculated on"] == "cdna4 gfx125x rdna4"
    assert [row[header.index("held on")] for row in rows if row[0] == "torch.float64"] == [""]


@pytest.mark.parametrize("target", ["gfx1300", "gfx94", "", "rdna3"])
def test_targets_that_are_none(target):
    with pytest.raises(errors.UsageError, match="nothing is known about data types of"):
        dtypes.list_target_dtypes(target)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "page: true, since_torch: 2.3, since_rocm: 5.5, source: since",
            "source: nowhere",
            "source 'nowhere' is not among",
        ),
        ("since_torch: 2.3", "since_torch: 2.x", "'2.x' is not a version"),
        ("since_torch: 2.3", "since_torch: [2, 3]", "a version is text"),
        ("targets: [gfx908]", "targets: [gfx909]", "gfx909 is no GPU target"),
        ("targets: [gfx908]", "targets: [gfx908, gfx90a]", "gfx90a is in two architectures"),
        ("targets: [gfx908]", "targets: []", "targets: Tuple should have at least 1"),
        (
            "on: [cdna3], level: matrix, matrix: true, since_rocm",
            "on: [cdna33], level: matrix, since_rocm",
            "no architecture cdna33; did you mean cdna3?",
        ),
        (
            "on: [gfx125x], level: full, matrix: true",
            "on: [cdna4], level: full, matrix: true",
            "float32: cdna4 is named twice",
        ),
        (
            "    - {on: [gcn5, rdna1], level: full, source: page",
            "    - {on: [gcn5], level: full, source: page",
            "float16: nothing is said of rdna1",
        ),
        (
            "level: storage",
            "level: some",
            "level: Input should be 'full', 'matrix',",
        ),
        ("format: bool, bits: 8", "format: boolean, bits: 8", "tf32' (found 'boolean'); did you mean bool?"),
        (
            "format: bool, bits: 8",
            "format: bool, bits: 0",
            "bits: Input should be greater than 0",
        ),
        (
            "operations: [cast, add, mul], source",
            "operations: [cast, divide], source",
            "complex32: no operation divide",
        ),
        (
            "library: hipBLASLt, source: torch",
            "library: hipBLASLT, source: torch",
            "int_mm: no library hipBLASLT; did you mean hipBLASLt?",
        ),
        ("  bool: *everywhere\n", "", "bool: no support says where it is"),
        ("  tf32: {accumulated", "  tf23: {accumulated", "tf23 is no dtype; did you mean tf32?"),
        (
            "  complex32: {elementwise: {rtol: 1e-3, atol: 1e-5, source: torch, kind: tested}}\n",
            "",
            "complex32 is compared as close, and no tolerance",
        ),
        ("rtol: 1.6e-2, atol: 1e-5", "rtol: 16, atol: 1e-5", "less than 1"),
        (
            "torch: torch.bool,",
            "torch: numpy.bool,",
            "torch: it must be a dtype such as torch.float16, or empty (found 'numpy.bool')",
        ),
        (
            "kind: documented,\n     note",
            "kind: rumoured,\n     note",
            "kind: Input should be 'documented', 'packaged', 'tested' or 'believed' (found 'rumoured')",
        ),
        ("  bool:\n", "  int8:\n", "int8 is given twice"),
        (
            "{torch: torch.bool,",
            "{torch: torch.bool, bit: 8,",
            "not permitted; did you mean bits?",
        ),
    ],
)
def test_wrong_tables(old, new, message):
    assert old in TEXT
    with pytest.raises(errors.DataError, match=re.escape(message)):
        records.parse_record(TEXT.replace(old, new, 1), dtypes.DtypeTable, name="dtypes.yaml")


def test_a_version_is_no_number():
    with pytest.raises(ValueError, match=r"2\.10 and 2\.1 are the same number"):
        dtypes.Dtype(format="int", bits=8, source="page", kind="documented", since_torch=2.10)
