"""The tables of facts fit together, say where each fact is from, and have what AMD's pages list.

Records check what code reads of a row; this is the one place where names that lead from table to table are
checked, columns that only people read, and lists of pages that were copied by hand.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, get_args

import pytest
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from rocm_wheels.core import errors, records, yaml_reader
from rocm_wheels.gpus import gpu
from rocm_wheels.models import (
    dtypes,
    fact_tables,
    facts,
    gfx,
    libraries,
    package_indexes,
    project_names,
    release_lines,
    torch_builds,
)

TARGETS = gfx.get_gfx_targets()
TABLES = {name: fact_tables.read_table(name) for name in fact_tables.list_tables()}
DTYPES, LIBRARIES, DOMAINS, FEATURES = (
    TABLES[name] for name in ("dtypes", "libraries", "domains", "features")
)


def list_dicts(value: Any) -> Iterator[dict[str, Any]]:
    """Every mapping inside of a value, however deep."""
    if isinstance(value, dict):
        yield value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from list_dicts(inner)


def list_cells(page: str) -> list[str]:
    """What stands between bars and ends of lines of a page that was copied."""
    return [cell.strip() for cell in re.split(r"[|\n]", page) if cell.strip()]


# --- sources and columns ---


@pytest.mark.parametrize("name", [name for name in TABLES if "sources" in TABLES[name]])
def test_every_fact_names_a_source_and_what_is_believed_says_why(name: str):
    sources = TABLES[name]["sources"]
    for source in sources.values():
        facts.FactSource.model_validate(source)
    rows = [row for _, content in fact_tables.list_sections(TABLES[name]) for row in list_dicts(content)]
    found = [row for row in rows if "kind" in row and "source" in row]
    notes = "\n".join(f"{row.get('note', '')}{row.get('care', '')}" for row in found)
    named = re.findall(r"[\w-]+", " ".join(re.findall(r"\bsources? ([\w, -]+)", notes)))
    assert found or name == "artifacts", "which has a source a section"
    assert {row["source"] for row in found} <= sources.keys()
    assert sources.keys() <= {*(row["source"] for row in found), *named, *list_comment_words(name)}
    assert {row["kind"] for row in found} <= {"documented", "packaged", "tested", "believed"}
    believed = [row for row in found if row["kind"] == "believed"]
    assert [row for row in believed if not (row.get("note") or row.get("care"))] == []


def list_comment_words(name: str) -> list[str]:
    """The words of a table's comments, which name some sources."""
    lines = fact_tables.list_tables()[name][1].read_text(encoding="utf-8").splitlines()
    return re.findall(r"[\w-]+", "\n".join(line for line in lines if line.lstrip().startswith("#")))


FACT = {"source", "kind", "note"}
COLUMNS = {  # of rows of which code reads some: a word that is mistyped would be missing there
    ("dtypes", "architectures"): {"targets"},
    ("dtypes", "operations"): {"call", "before", "library"},
    ("dtypes", "dtypes"): {"format", "bits", "torch", "aliases", "elements", "scale", "block", "hip", "page"}
    | {"since_torch", "since_rocm", "operations", "product"},
    ("dtypes", "support"): {"on", "level", "matrix", "since_rocm"},
    ("libraries", "types"): {"hip"},
    ("libraries", "libraries"): {"use", "apis", "without", "switch", "therock", "more", "types", "lost",
     "probe"},
    ("domains", "libraries"): {"state", "release", "code", "files", "from", "probe", "page"},
    ("features", "features"): {"group", "project", "since", "rocm", "api", "targets", "correction"},
    ("issues", "issues"): {"title", "effect", "torch", "rocm", "targets", "platforms", "layouts",
     "workaround"} | {"ends", "issue"},
}  # fmt: skip


@pytest.mark.parametrize(("table", "section"), COLUMNS)
def test_rows_have_the_columns_of_their_table(table: str, section: str):
    rows = [row for _, row in fact_tables.list_rows(TABLES[table][section])]
    assert set().union(*rows) <= COLUMNS[table, section] | FACT


def test_each_known_test_of_therock_names_its_source():
    path = project_names.get_data_folder() / "therock_known_tests.yaml"
    table = yaml_reader.read_yaml_tree(path.read_text(encoding="utf-8"), name=path.name).value
    assert {row["source"] for row in table["groups"]} == table["sources"].keys()


# --- targets ---


def test_every_target_and_family_that_a_table_names_is_one():
    rows = [row for table in TABLES.values() for row in list_dicts(table)]
    lists = [row["targets"] for row in rows if isinstance(row.get("targets"), list)]
    named = {name for names in lists for name in names}
    named |= {target for row in INDEXES.values() for fact in row.serves for target in fact.targets}
    assert named <= TARGETS.keys()
    overrides = gfx.load_overrides()
    cards = (*overrides.cards.items(), *overrides.refused.items())
    named = {name for card, options in cards for name in (card, *(option.target for option in options))}
    assert named <= {*TARGETS, *gpu.KNOWN_TARGETS}


def test_targets_are_named_and_all_is_said_of_how_they_are_known():
    table = gfx.load_gfx_table()
    assert {*TABLES["targets"]["known"]} == {*get_args(gfx.TargetAttribute)}, table
    for name, target in TARGETS.items():
        assert re.fullmatch(r"gfx[0-9]+[0-9a-f]{2}", name) and target.wave in {32, 64}, name


def test_cards_pose_as_another_target_of_their_major_version():
    for card, options in gfx.load_overrides().cards.items():
        for option in options:
            major = gpu.format_override_version(card).partition(".")[0]
            assert option.target != card and option.version.startswith(f"{major}."), card


def test_what_matters_of_a_target_is_known_with_its_source():
    mi300, mi350, navi31, navi48 = (TARGETS[name] for name in ("gfx942", "gfx950", "gfx1100", "gfx1201"))
    assert (mi300.fp8, mi300.mx, mi300.wave, mi300.excluded) == ("fnuz", False, 64, {})
    assert (mi350.fp8, mi350.mx, mi350.wave) == ("ocp", True, 64)
    assert (navi31.fp8, navi31.wave, "Radeon RX 7900 XTX" in navi31.products) == ("none", 32, True)
    assert navi48.fp8 == "ocp"
    assert TARGETS["gfx1103"].excluded["rccl"] == "https://github.com/ROCm/TheRock/issues/150"
    assert TARGETS["gfx1103"].excluded["rccl-tests"] == ""  # no issue is named
    fact, source = gfx.get_attribute_fact("gfx1250", "fp8")
    assert (fact.kind, bool(fact.note), source.url[:8]) == ("believed", True, "https://")
    assert gfx.get_attribute_fact("gfx942", "fp8")[0].kind == "documented"


def test_products_lead_to_targets():
    assert gfx.find_targets("7900 xt") == ("gfx1100",)
    assert gfx.find_targets("MI300") == ("gfx942",)
    assert gfx.find_targets("gfx110X-all") == ("gfx1100", "gfx1101", "gfx1102", "gfx1103")
    assert gfx.find_targets("voodoo") == gfx.find_targets(" ") == ()


def test_rocm_bootstrap_knows_our_targets_and_no_family_crosses_one_of_its():
    bootstrap = pytest.importorskip("rocm_bootstrap.targets")
    groups = {name: bootstrap.packaging_chain(name)[1].key for name in TARGETS}
    for family, members in gfx.get_gfx_families().items():
        if family.startswith("gfx"):
            assert len({groups[member] for member in members}) == 1, family


# --- indexes, builds, issues ---

INDEXES = {row.name: row for row in package_indexes.load_release_table().indexes}
LINES = [line for line in release_lines.get_release_lines() if line.torch]
STABLE = {name for name, row in INDEXES.items() if row.channel == "stable"}


def test_what_an_index_serves_fits_it_and_the_release_lines():
    for index in INDEXES.values():
        for row in index.serves:
            assert set(row.rocm) <= set(index.rocm) and set(row.platforms) <= set(index.platforms), index.name
            assert set(row.pythons) <= set(index.pythons), index.name
            # what pytorch.org builds is in the release lines: their Pythons, by channel and ROCm
        lines = [line for line in LINES if index.channel in (line.name, "stable")]
        built = {
            python
            for line in lines
            if bool(line.torch) == (index.channel == "stable")
            and set(map(facts.parse_version, line.rocm.pytorch_org.values)) & set(index.rocm)
            for python in (*line.pythons.values, *line.free_threaded.values)
        }
        assert index.layout != "fat" or index.vendor != "amd" or built <= set(index.pythons), index.name


def test_indexes_are_told_apart_reached_and_of_a_release():
    table = package_indexes.load_release_table()
    assert len({row.url.rstrip("/") for row in INDEXES.values()}) == len(table.indexes) == len(INDEXES)
    releases = [release.version for release in table.releases]
    for row in INDEXES.values():
        assert row.vendor != "amd" or row.serves, row
        for rocm in row.rocm:
            assert any(facts.is_in_series(rocm, one) or facts.is_in_series(one, rocm) for one in releases), (
                row
            )
    fat = {rocm for row in INDEXES.values() if row.layout == "fat" for rocm in row.rocm}
    assert {facts.parse_version(text) for line in LINES for text in line.rocm.pytorch_org.values} <= fat


def test_what_is_ready_for_releases_is_in_a_stable_index():
    served = {(p, t) for name in STABLE for f in INDEXES[name].serves for p in f.platforms for t in f.targets}
    targets = TARGETS.items()
    ready = {(p, name) for name, one in targets for p, state in one.readiness.items() if state == "release"}
    assert ready <= served


# --- known issues ---


def test_some_version_is_one_that_an_issue_is_told_of():
    for issue in torch_builds.load_issue_table().issues:
        for versions in (issue.torch, issue.rocm):  # <10.1.0 takes no pre-release of 10.1.0 (PEP 440)
            bounds = ["0", *(bound.version.removesuffix(".*") for bound in versions)]
            assert any(versions.contains(bound, prereleases=True) for bound in bounds), issue.title


# --- data types ---

# "PyTorch compatibility" of ROCm 6.3.3: name, since torch, since ROCm
PAGE = """
float8_e4m3fn 2.3 5.5 | float8_e5m2 2.3 5.5 | float16 0.1.6 2.0 | bfloat16 1.6 2.6 | float32 0.1.12-2 2.0
float64 0.1.12-2 2.0 | complex32 1.6 2.0 | complex64 1.6 2.0 | complex128 1.6 2.0 | uint8 0.1.12-2 2.0
uint16 2.3 - | uint32 2.3 - | uint64 2.3 - | int8 1.12 5.0 | int16 0.1.12-2 2.0 | int32 0.1.12-2 2.0
int64 0.1.12-2 2.0 | bool 1.2 2.0 | quint8 1.8 5.0 | qint8 1.8 5.0 | qint32 1.8 5.0 | quint4x2 1.8 5.0
"""
ALIASES = "half float double chalf cfloat cdouble short int long"  # of the page, in its order


def test_the_page_of_dtypes_is_all_there():
    page = [row.split() for row in list_cells(PAGE)]
    ours = {name: row for name, row in DTYPES["dtypes"].items() if row.get("page")}
    assert [
        (name, row["torch"], Version(row["since_torch"]), row.get("since_rocm", "-"), row["kind"])
        for name, row in ours.items()
    ] == [(name, f"torch.{name}", Version(torch), rocm, "documented") for name, torch, rocm in page]
    assert [alias for row in ours.values() for alias in row.get("aliases", ())] == [
        f"torch.{alias}" for alias in ALIASES.split()
    ]
    untaken = [name for name, row in ours.items() if "not natively supported" in row.get("note", "")]
    assert untaken == [name for name, _, rocm in page if rocm == "-"] == ["uint16", "uint32", "uint64"]
    added = {"float8_e4m3fnuz", "float8_e5m2fnuz", "mxfp8_e4m3", "mxfp6_e2m3", "mxfp4_e2m1", "tf32"}
    assert added < DTYPES["dtypes"].keys() - ours.keys()


def test_every_name_of_the_table_of_dtypes_leads_somewhere():
    architectures, operations = DTYPES["architectures"], DTYPES["operations"]
    assert Counter(name for row in architectures.values() for name in row["targets"]) == Counter([*TARGETS])
    projects = {library.project for library in libraries.get_rocm_libraries().values()}
    assert {row["library"] for row in operations.values() if "library" in row} <= projects
    assert DTYPES["support"].keys() == DTYPES["dtypes"].keys() >= DTYPES["tolerances"].keys()
    for name, rows in DTYPES["support"].items():
        places = Counter(place for row in rows for place in row["on"])
        assert places.keys() <= {*architectures, dtypes.OTHER_ARCHITECTURES} and set(places.values()) == {1}
        assert dtypes.OTHER_ARCHITECTURES in places or places.keys() == architectures.keys(), name
    for name, dtype in dtypes.load_dtype_table().dtypes.items():
        how, tolerances = DTYPES["formats"][dtype.format], DTYPES["tolerances"].get(name, {})
        names = set(how["operations"] if dtype.operations is None else dtype.operations)
        assert names <= operations.keys(), name
        if how["compared"] == "close" and names:
            assert tolerances, name
            assert "accumulated" in tolerances or not {"sum", "matmul", "scaled_mm"} & names, name
        assert dtype.product or "product" in how or "scaled_mm" not in names, name


def test_tolerances_are_those_of_torch_testing_and_half_a_step_of_8_bits():
    single, double = (1.3e-6, 1e-5), (1e-7, 1e-7)
    defaults = {"float16": (1e-3, 1e-5), "bfloat16": (1.6e-2, 1e-5), "complex32": (1e-3, 1e-5)}
    defaults |= {"float32": single, "complex64": single, "float64": double, "complex128": double}
    bias = {"float8_e4m3fn": 7, "float8_e4m3fnuz": 8, "float8_e5m2": 15, "float8_e5m2fnuz": 16}
    for name, exponent in bias.items():
        digits = int(name[len("float8_e4m")])
        defaults[name] = (2.0 ** -(digits + 1), 2.0 ** (1 - exponent - digits) / 2)
    for name, wanted in defaults.items():
        row = dtypes.load_dtype_table().tolerances[name].elementwise
        assert row and (row.rtol, row.atol) == wanted, name


def test_the_table_of_targets_agrees_about_8_bit_floats():
    page = {name for name, row in DTYPES["dtypes"].items() if row.get("page")}
    for target, record in TARGETS.items():
        rows = dtypes.list_target_dtypes(target)
        matrix = {row.dtype.format for row in rows if row.level == "matrix"}
        assert ("fp8-fnuz" in matrix, "fp8-ocp" in matrix) == (record.fp8 == "fnuz", record.fp8 == "ocp")
        assert ("mx" in matrix) == record.mx, target
        assert {row.level for row in rows} <= {"full", "matrix", "storage"}
        assert page <= {row.name for row in rows}


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


def test_versions_of_torch_are_versions():
    names = {row.name for row in dtypes.list_target_dtypes("gfx950", torch=Version("2.10"))}
    assert {"float8_e8m0fnu", "float4_e2m1fn_x2", "mxfp4_e2m1"} <= names  # 2.7 and 2.8 are older than 2.10
    older = {row.name for row in dtypes.list_target_dtypes("gfx950", torch=Version("2.1"))}
    assert names - older >= {"float8_e4m3fn", "float8_e4m3fnuz", "tf32", "mxfp8_e4m3"}
    with pytest.raises(ValueError, match=r"2\.10 and 2\.1 are the same number"):
        dtypes.Dtype(format="int", bits=8, since_torch=2.10)


# --- libraries ---

# "PyTorch compatibility" of ROCm 7.0, column "Used in": the APIs that it names as code
USED_IN = """
Composable Kernel: permute Tensor.view matmul mm bmm nn.Conv2d nn.Conv3d nn.MultiheadAttention
hipBLAS: | hipBLASLt: matmul mm | hipCUB: sum cumsum sort topk | hipFFT: fft | hipRAND: rand randn nn.Dropout
hipSOLVER: linalg.solve linalg.eig linalg.svd | hipSPARSE: sparse | hipSPARSELt: sparse | hipTensor:
MIOpen: nn.Conv2d nn.ReLU nn.LSTM | MIGraphX: nn.Conv2d nn.ReLU nn.LSTM | MIVisionX: utils.data
rocAL: utils.data | RCCL: nn.parallel.DistributedDataParallel | rocDecode: utils.data distributed
rocJPEG: utils.data | RPP: utils.data | rocThrust: | rocWMMA: nn.Linear nn.Conv2d matmul bmm
"""
API = re.compile(r"torch(vision)?(\.[A-Za-z_][A-Za-z0-9_]*)*")


def test_the_page_of_libraries_is_all_there():
    page = dict(row.split(":") for row in list_cells(USED_IN))
    assert list(LIBRARIES["libraries"]) == list(page)
    projects = [row["therock"]["project"] for row in LIBRARIES["libraries"].values() if "therock" in row]
    assert set(Counter((*projects, *LIBRARIES["unused"])).values()) == {1}
    hip = {row.get("hip", "") for row in DTYPES["dtypes"].values()}
    assert {name for row in LIBRARIES["types"].values() for name in row["hip"]} <= hip
    for name, row in LIBRARIES["libraries"].items():
        assert {f"torch.{api}" for api in page[name].split()} <= set(row["apis"]), name
        apis = {*row["apis"], *row.get("more", {}).get("apis", ())}
        assert all(map(API.fullmatch, apis)), name
        probed = {row["probe"]["api"]} if "probe" in row else set()
        assert {*row.get("lost", ()), *probed} <= apis, name
        # each library that torch uses can be tested, and none raises without one that it does not link
        assert ("probe" in row) == (row["use"] != "beside"), name
        assert ("lost" in row) <= (row["use"] == "linked"), name
        built = row.get("therock", {})
        assert ("file" in built) == ("package" in built), name
        assert row["use"] != "linked" or built["file"].startswith("lib"), name
        types = [kind for key, names in row.get("types", {}).items() if key not in FACT for kind in names]
        assert set(types) <= LIBRARIES["types"].keys() and len(types) == len(set(types)), name
        options = row.get("switch", {}).get("options", ())
        assert all(re.fullmatch(r"USE_[A-Z_]+", option) for option in options)
    untold = [name for name, row in LIBRARIES["libraries"].items() if "types" not in row]
    assert untold == ["MIVisionX", "rocAL", "rocDecode", "rocJPEG", "RPP"]


def test_every_exclusion_of_a_target_is_a_known_project():
    projects = {row.project for row in libraries.get_rocm_libraries().values()} | {*LIBRARIES["unused"]}
    assert {project for target in TARGETS for project in libraries.get_exclusions(target)} <= projects


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
    assert [row.name for row in libraries.list_missing_libraries(target)] == missing


def test_what_is_left_without_a_library():
    found = {row.name: row for row in libraries.list_missing_libraries("gfx1030")}
    product = found["hipBLASLt"]
    assert product.issue == "https://github.com/ROCm/TheRock/issues/1062"
    lost = product.library.lost
    assert lost == ("torch.nn.functional.scaled_mm", "torch._scaled_mm", "torch._int_mm")
    assert "rocBLAS" in product.library.without.text
    assert found["hipTensor"].library.lost == ()
    # the operations that dtypes lose with it are the APIs that raise
    operations = dtypes.load_dtype_table().operations.values()
    assert {row.call for row in operations if row.library == "hipBLASLt"} <= set(lost)


@pytest.mark.parametrize(
    "call", [libraries.get_exclusions, libraries.list_missing_libraries, dtypes.find_architecture]
)
@pytest.mark.parametrize("target", ["gfx1031x", "navi", "", "gfx94"])
def test_targets_that_are_none(call, target):
    with pytest.raises(errors.UsageError, match=r"is no GPU target|nothing is known about data types"):
        call(target)


# --- libraries around torch ---

PAGE_LIBRARIES = "torchaudio torchtune torchvision torchtext torchdata torchrec torchserve torchrl tensordict"
STATES = """
torchaudio maintenance | torchtune frozen | torchvision active | torchtext retired | torchdata maintenance
torchrec active | torchserve retired | torchrl active | tensordict active | torchao active
"""
ONLY_OFFICIAL = "torchtune torchtext torchrl tensordict"  # "Only official release exists", says the page
NO_KERNELS = "torchtext torchrec"  # "does not implement ROCm-specific kernels"


def test_the_libraries_of_the_page_their_states_and_notes():
    page = [name for name, row in DOMAINS["libraries"].items() if row.get("page")]
    assert page == PAGE_LIBRARIES.split()
    states = {name: row.state.now for name, row in libraries.get_domain_libraries().items()}
    assert states == dict(map(str.split, list_cells(STATES)))
    notes = {name: row.get("note", "") for name, row in DOMAINS["libraries"].items()}
    assert [name for name in page if "only official releases" in notes[name]] == ONLY_OFFICIAL.split()
    assert [name for name in page if "no ROCm kernels of its own" in notes[name]] == NO_KERNELS.split()
    assert ".to('cuda')" in notes["torchaudio"]
    for name, row in DOMAINS["libraries"].items():
        release = libraries.get_domain_libraries()[name].release
        assert isinstance(release.version, Version) and row["release"]["kind"] == "packaged", name
        assert release.needs.keys() <= {*DOMAINS["libraries"], "torch", "fbgemm-gpu"}, name
        assert all(isinstance(needed, SpecifierSet) for needed in release.needs.values()), name
        assert (row["code"] == "pure") == (row.get("files", "none") == "none"), name
        assert re.fullmatch(r"[a-z_]+(\.[A-Za-z_]+)+", row["probe"]), name


@pytest.mark.parametrize(
    ("project", "torch", "reasons"),
    [
        ("torchvision", "2.14.0+rocm7.14", []),
        ("torchvision", "2.13.0+rocm7.2", ["torchvision 0.29.2 needs torch>=2.14.0, not 2.13.0+rocm7.2"]),
        ("tensordict", "2.11.0a0", []),
        ("tensordict", "2.9.1", ["tensordict 0.15.3 needs torch>=2.11.0a0, not 2.9.1"]),
        ("torchao", "2.15.0", []),
        ("torchserve", None, ["torchserve is retired: not maintained since 2025"]),
        ("torchtune", "2.13.0", ["torchtune is frozen"]),
    ],
)
def test_what_stands_against_a_library(project, torch, reasons):
    found = libraries.find_obstacles(project, torch=Version(torch) if torch else None)
    assert len(found) == len(reasons)
    for said, expected in zip(found, reasons, strict=True):
        assert said.startswith(expected)


def test_a_library_that_is_none():
    with pytest.raises(errors.UsageError, match="torchvison; did you mean torchvision"):
        libraries.find_obstacles("torchvison")


# --- features ---

# "PyTorch compatibility" of ROCm 6.3.3: "since ROCm" by group; - where it has a cross or no such feature
GROUPS = {
    "torch.cuda": "3.8 3.8 3.8 1.9.2 4.0 5.0 5.3 5.4 - - 5.2",
    "torch.backends.cuda": "5.0 - - - - - - -",
    "torch.backends.cudnn": "- 6.0",
    "torch.amp": "2.5 2.5 2.5",
    "torch.distributed": "5.4 2.0",
    "torch.compiler": "5.3 5.3",
    "torchaudio": "4.5 4.5 4.5 4.5",
    "torchvision": "4.0 3.3 2.0 6.3",
    "not on ROCm": "- - - - -",
}


def test_the_features_of_the_page_are_all_there():
    rows = FEATURES["features"].values()
    for group, versions in GROUPS.items():
        assert [row.get("rocm", "-") for row in rows if row["group"] == group] == versions.split(), group
    assert sum(len(versions.split()) for versions in GROUPS.values()) == 41
    # things in the lists of key features; two items of 7.0's list are two things each
    assert Counter(row["group"] for row in rows if row["group"] not in GROUPS) == {
        "torch 2.9 with ROCm 7.2.1": 6,
        "torch 2.9 with ROCm 7.1.1": 10,
        "torch 2.8 with ROCm 7.1": 3,
        "torch 2.7 and 2.8 with ROCm 7.0": 13 + 2,
        "added since": 3,
    }
    for row in rows:
        if match := re.fullmatch(r"torch (\S+)( and \S+)? with ROCm (\S+)", row["group"]):
            assert (row["since"], row["rocm"]) == (match[1], match[3])
        assert re.fullmatch(r"(torch[a-z]*(\.[A-Za-z_][A-Za-z0-9_]*)*)?", row.get("api", "")), row
        for place in (row, correction := row.get("correction", {})):
            assert all(Version(place[key]) for key in ("since", "rocm") if key in place)
        both = "since" in correction and "rocm" in correction
        assert not correction or ("never" in correction) != both, row


# --- a row that is wrong in itself is refused with its place ---

SOURCES = 'sources: {s: {url: "https://example.com/", retrieved: 2026-11-21}}\n'
INDEXES_OF = SOURCES + "until: 2027-05-31\nreleases: []\nindexes:\n  - "
ROW = (
    "{name: i, vendor: amd, url: 'https://x/', channel: stable, layout: fat, platforms: [linux], "
    "rocm: [%s], pythons: [%s], source: s, kind: documented}"
)
KNOWN = (
    SOURCES + "issues:\n  - {title: t, effect: hang, torch: '%s', rocm: '', ends: %s, issue: %s, "
    "source: s, kind: tested}"
)
GFX = """
sources: {{s: {{url: "https://example.com/", retrieved: 2026-11-21}}}}
known:
{known}
kinds: []
targets:
  {name}: {{product: p, products: [p], families: [f], wave: {wave}, fp8: {fp8}}}
"""
FLAT = "\n".join(
    f"  {one}: {{source: s, kind: documented}}"
    for one in ("products", "families", "excluded", "aotriton", "readiness", "wave", "fp8")
)


def _target(**change: str) -> str:
    return GFX.format(**({"name": "gfx942", "wave": "64", "fp8": "fnuz", "known": FLAT} | change))


@pytest.mark.parametrize(
    ("model", "text", "message"),
    [
        (package_indexes.RocmReleaseTable, INDEXES_OF + ROW % ("seven", "'3.12'"),
         "'seven' is not a version"),
        (package_indexes.RocmReleaseTable, INDEXES_OF + ROW % ("'7.2'", "cp312"), "'cp312' is not a Python"),
        (torch_builds.IssueTable, KNOWN % ("2.13", "2027-01-31", "a/b#1"),
         "'2.13' is not a version specifier"),
        (torch_builds.IssueTable, KNOWN % ("==2.13", "soon", "a/b#1"), "ends: Input should be a valid date"),
        (torch_builds.IssueTable, KNOWN % ("==2.13", "2027-01-31", "TheRock#12"),
         "it must be written owner/repository#number"),
        (
            package_indexes.RocmReleaseTable,
            SOURCES
            + "until: 2027-05-31\nindexes: []\nreleases:\n  - "
            + "{version: 7.x, channel: stable, source: s, kind: documented}",
            "'7.x' is not a version",
        ),
        (gfx.GfxTable, _target(fp8="yes"), "fp8: Input should be 'fnuz', 'ocp' or 'none'"),
    ],
)  # fmt: skip
def test_a_wrong_row_is_refused_with_its_place(model: type[records.Record], text: str, message: str):
    with pytest.raises(errors.DataError, match=r"table.yaml:\d+:\d+: ") as refused:
        records.parse_record(text, model, name="table.yaml")
    assert message in str(refused.value)
