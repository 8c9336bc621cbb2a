"""ROCm libraries by what they do for torch, held against the page's list and against TheRock's exclusions.

PAGE is the column "Used in" of "PyTorch compatibility", copied by hand: the APIs that it names as code.
"""

from __future__ import annotations

import re

import pytest

from rocm_wheels.core import errors, records
from rocm_wheels.models import dtypes, gfx, libraries, project_names
from rocm_wheels.models.facts import list_facts

PAGE = {
    "Composable Kernel": "permute Tensor.view matmul mm bmm nn.Conv2d nn.Conv3d nn.MultiheadAttention",
    "hipBLAS": "",
    "hipBLASLt": "matmul mm",
    "hipCUB": "sum cumsum sort topk",
    "hipFFT": "fft",
    "hipRAND": "rand randn nn.Dropout",
    "hipSOLVER": "linalg.solve linalg.eig linalg.svd",
    "hipSPARSE": "sparse",
    "hipSPARSELt": "sparse",
    "hipTensor": "",
    "MIOpen": "nn.Conv2d nn.ReLU nn.LSTM",
    "MIGraphX": "nn.Conv2d nn.ReLU nn.LSTM",
    "MIVisionX": "utils.data",
    "rocAL": "utils.data",
    "RCCL": "nn.parallel.DistributedDataParallel",
    "rocDecode": "utils.data distributed",
    "rocJPEG": "utils.data",
    "RPP": "utils.data",
    "rocThrust": "",
    "rocWMMA": "nn.Linear nn.Conv2d matmul bmm",
}
TEXT = (project_names.get_data_folder() / "rocm_libraries.yaml").read_text(encoding="utf-8")


def test_the_page_is_all_there():
    assert list(libraries.get_rocm_libraries()) == list(PAGE)
    for name, library in libraries.get_rocm_libraries().items():
        assert {f"torch.{api}" for api in PAGE[name].split()} <= set(library.apis), name
        assert library.kind == "documented"
    vision = [name for name, one in libraries.get_rocm_libraries().items() if "torchvision" in one.apis]
    assert vision == ["MIVisionX", "rocAL", "rocJPEG", "RPP"]


def test_each_library_that_torch_uses_can_be_tested():
    for name, library in libraries.get_rocm_libraries().items():
        assert (library.probe is None) == (library.use == "beside"), name
        assert bool(library.lost) <= (library.use == "linked"), name
        built = library.therock
        assert built is None or (built.file == "") == (built.package == ""), name
        assert library.use != "linked" or (built and built.file.startswith("lib")), name


def test_every_exclusion_of_a_target_is_known():
    known = {
        *libraries.load_library_table().unused,
        *(library.project for library in libraries.get_rocm_libraries().values()),
    }
    for target in gfx.get_gfx_targets():
        assert libraries.get_exclusions(target).keys() <= known, target


@pytest.mark.parametrize(
    ("target", "missing"),
    [
        ("gfx942", []),
        ("gfx950", []),
        ("gfx1250", []),
        ("gfx90a:sramecc+:xnack-", ["hipSPARSELt"]),
        ("gfx1100", ["hipSPARSELt"]),
        ("gfx1201", ["hipSPARSELt"]),
        ("gfx1103", ["hipSPARSELt", "RCCL"]),
        ("gfx1151", ["hipSPARSELt"]),
        ("gfx1030", ["Composable Kernel", "hipBLASLt", "hipSPARSELt", "hipTensor", "rocWMMA"]),
        ("gfx900", ["Composable Kernel", "hipBLASLt", "hipSPARSELt", "hipTensor", "rocWMMA"]),
    ],
)
def test_what_a_target_has_not_got(target, missing):
    """As TheRock's targets say, read by hand; what torch has nothing to do with is no answer."""
    assert [one.name for one in libraries.list_missing_libraries(target)] == missing


def test_what_is_left_without_a_library():
    found = {one.name: one for one in libraries.list_missing_libraries("gfx1030")}
    product = found["hipBLASLt"]
    assert product.issue == "https://github.com/ROCm/TheRock/issues/1062"
    lost = product.library.lost
    assert lost == ("torch.nn.functional.scaled_mm", "torch._scaled_mm", "torch._int_mm")
    assert "torch.matmul" in product.library.all_apis and "torch.matmul" not in lost
    assert "rocBLAS" in product.library.without.text
    assert found["hipTensor"].library.lost == found["hipTensor"].library.all_apis == ()
    # the operations that dtypes lose with it are the APIs that raise
    calls = {one.call for one in dtypes.get_operations().values() if one.library == "hipBLASLt"}
    assert calls <= set(lost)


def test_types_of_libraries_are_types_of_dtypes():
    known = {dtype.hip for dtype in dtypes.get_dtypes().values()}
    types = libraries.load_library_table().types
    assert {hip for row in types.values() for hip in row.hip} <= known
    untold = [name for name, one in libraries.get_rocm_libraries().items() if not one.types]
    assert untold == ["MIVisionX", "rocAL", "rocDecode", "rocJPEG", "RPP"]


def test_every_fact_has_a_source_that_is_used_and_what_is_believed_says_why():
    facts = list_facts(libraries.load_library_table())
    assert {fact.source for fact in facts} == set(libraries.load_library_table().sources)
    assert [fact for fact in facts if fact.kind == "believed" and not fact.note] == []


def test_rows_for_people():
    header, rows = libraries.tabulate_rocm_libraries()
    assert len(rows) == 20 and {len(row) for row in rows} == {len(header)}
    shown = {row[0]: dict(zip(header, row, strict=True)) for row in rows}
    assert shown["RCCL"]["not for"].split() == ["gfx1103", "gfx1150", "gfx1152", "gfx1153"]
    assert shown["hipFFT"]["file"] == "libhipfft.so"
    without = {name for name, one in gfx.get_gfx_targets().items() if "hipSPARSELt" in one.excluded}
    assert {*shown["hipSPARSELt"]["not for"].split()} == without and 0 < len(without) < len(
        gfx.get_gfx_targets()
    )


@pytest.mark.parametrize("call", [libraries.get_exclusions, libraries.list_missing_libraries])
@pytest.mark.parametrize(
    ("target", "message"), [("gfx1031x", "did you mean gfx1031"), ("navi", "is no GPU target"), ("", "is no")]
)
def test_targets_that_are_none(call, target, message):
    with pytest.raises(errors.UsageError, match=message):
        call(target)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("source: hipblaslt, kind", "source: hipblas, kind", "source 'hipblas' is not among"),
        (
            "use: compiled-in",
            "use: linkd",
            "Input should be 'linked', 'compiled-in' or 'beside' (found 'linkd'); did",
        ),
        (
            "apis: [torch.rand, torch.randn",
            "apis: [torch.rand, numpy.randn",
            "apis.1: it must be a name in torch or torch",
        ),
        (
            "lost: [torch.rand, torch.randn,",
            "lost: [torch.rand, torch.ranln,",
            "torch.ranln is not among its",
        ),
        ("api: torch.fft.rfft,", "api: torch.fft.rft,", "not among its APIs; did you mean torch.fft.rfft?"),
        ("package: core, file: librocjpeg.so,", "package: core,", "a file is in a package"),
        (
            "package: core,",
            "package: cor,",
            "Input should be '', 'core' or 'libraries' (found 'cor'); did",
        ),
        ("project: hipFFT,", "project: hipBLAS,", "two libraries are the project hipBLAS"),
        (
            "types: {full: [float32, float64], partly",
            "types: {full: [float23], partly",
            "no type float23; did",
        ),
        ("types: {full: [float32, float64], partly", "types: {full: [half], partly", "hipBLAS: no type half"),
        ("partly: [float16, bfloat16]", "partly: [float16, float32]", "hipBLAS: float32 is named twice"),
        ("unused: [rccl-tests", "unused: [rccl", "two libraries are the project rccl"),
        (
            'without: {text: "torch is not built", source',
            'without: {txt: "", source',
            "txt: Extra inputs are not permitted",
        ),
        ("  hipBLASLt:\n", "  hipBLAS:\n", "hipBLAS is given twice"),
        ("retrieved: 2026-11-21", "retrieved: last week", "sources.page.retrieved"),
    ],
)
def test_wrong_tables(old, new, message):
    assert old in TEXT
    with pytest.raises(errors.DataError, match=re.escape(message)):
        records.parse_record(TEXT.replace(old, new, 1), libraries.LibraryTable, name="rocm_libraries.yaml")
