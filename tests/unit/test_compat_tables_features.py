"""Domain libraries and features of torch, held against the pages' lists and against each other.

LIBRARIES and FEATURES are lists of "PyTorch compatibility", copied by hand: the libraries of ROCm 7.0, and of
ROCm 6.3.3 the features by group with "since ROCm" (- where the page has a cross or leaves the feature out).
"""

from __future__ import annotations

import re
from collections import Counter

import pytest
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from rocm_wheels.core import errors, records
from rocm_wheels.models import gfx, libraries, project_names, torch_features
from rocm_wheels.models.facts import list_facts

LIBRARIES = "torchaudio torchtune torchvision torchtext torchdata torchrec torchserve torchrl tensordict"
FEATURES = {
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
DOMAINS = (project_names.get_data_folder() / "domain_libraries.yaml").read_text(encoding="utf-8")
TEXT = (project_names.get_data_folder() / "torch_features.yaml").read_text(encoding="utf-8")


def test_the_libraries_of_the_page_and_their_states():
    found = libraries.get_domain_libraries()
    assert [name for name, one in found.items() if one.page] == LIBRARIES.split()
    assert {name: one.state.now for name, one in found.items()} == {
        "torchaudio": "maintenance",
        "torchtune": "frozen",
        "torchvision": "active",
        "torchtext": "retired",
        "torchdata": "maintenance",
        "torchrec": "active",
        "torchserve": "retired",
        "torchrl": "active",
        "tensordict": "active",
        "torchao": "active",
    }
    for name, one in found.items():
        assert isinstance(one.release.version, Version) and one.release.kind == "packaged", name
        assert all(isinstance(needed, SpecifierSet) for needed in one.release.needs.values()), name


@pytest.mark.parametrize(
    ("project", "torch", "python", "reasons"),
    [
        ("torchvision", "2.14.0+rocm7.14", "3.12", []),
        (
            "torchvision",
            "2.13.0+rocm7.2",
            "3.12",
            ["torchvision 0.29.2 needs torch>=2.14.0, not 2.13.0+rocm7.2"],
        ),
        ("torchvision", None, "3.14.1", ["torchvision 0.29.2 needs Python !=3.14.1,>=3.10, not 3.14.1"]),
        ("tensordict", "2.11.0a0", None, []),
        ("tensordict", "2.9.1", None, ["tensordict 0.15.3 needs torch>=2.11.0a0, not 2.9.1"]),
        ("torchrl", "2.10.0", "3.10", []),
        ("torchao", "2.15.0", "3.14", []),
        ("torchserve", None, None, ["torchserve is retired: not maintained since 2025"]),
        (
            "torchtune",
            "2.13.0",
            "3.8",
            ["torchtune is frozen", "torchtune 0.6.1 needs Python >=3.9, not 3.8"],
        ),
    ],
)
def test_what_stands_against_a_library(project, torch, python, reasons):
    found = libraries.find_obstacles(
        project, torch=Version(torch) if torch else None, python=Version(python) if python else None
    )
    assert len(found) == len(reasons)
    for said, expected in zip(found, reasons, strict=True):
        assert said.startswith(expected)


def test_a_library_that_is_none():
    with pytest.raises(errors.UsageError, match="torchvison; did you mean torchvision"):
        libraries.find_obstacles("torchvison")


def test_the_features_of_the_page_are_all_there():
    for group, versions in FEATURES.items():
        found = [one.rocm for one in torch_features.get_features().values() if one.group == group]
        assert [str(one) if one else "-" for one in found] == versions.split(), group
    assert sum(len(one.split()) for one in FEATURES.values()) == 41
    later = Counter(one.group for one in torch_features.get_features().values() if one.group not in FEATURES)
    # things in the lists of key features; two items of 7.0's list are two things each
    assert later == {
        "torch 2.9 with ROCm 7.2.1": 6,
        "torch 2.9 with ROCm 7.1.1": 10,
        "torch 2.8 with ROCm 7.1": 3,
        "torch 2.7 with ROCm 7.0": 13 + 2,
        "added since": 3,
    }
    for one in torch_features.get_features().values():
        if match := re.fullmatch(r"torch (\S+) with ROCm (\S+)", one.group):
            assert (str(one.since), str(one.rocm)) == match.groups()


def test_targets_of_features():
    assert torch_features.list_feature_targets("CUDAGraph") == tuple(gfx.get_gfx_targets())
    assert torch_features.list_feature_targets("matmul.allow_tf32") == ("gfx942", "gfx950")
    assert "gfx1030" not in torch_features.list_feature_targets("enable_flash_sdp")


@pytest.mark.parametrize(
    ("tabulate", "table"),
    [
        (libraries.tabulate_domain_libraries, libraries.load_domain_table),
        (torch_features.tabulate_features, torch_features.load_feature_table),
    ],
)
def test_rows_and_facts(tabulate, table):
    header, rows = tabulate()
    assert {len(row) for row in rows} == {len(header)}
    facts = list_facts(table())
    assert {fact.source for fact in facts} == set(table().sources)
    assert [fact for fact in facts if fact.kind == "believed" and not fact.note] == []


def test_rows_say_what_holds_today():
    header, rows = torch_features.tabulate_features()
    shown = {row[0]: dict(zip(header, row, strict=True)) for row in rows}
    assert shown["NVTX"]["ROCm"] == "no"
    assert (shown["enable_flash_sdp"]["since"], shown["enable_flash_sdp"]["kind"]) == ("2.3", "believed")
    assert shown["Products of MX blocks"]["targets"] == "gfx950"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("since: 1.10.0, rocm: 5.3", "since: 1.10.x, rocm: 5.3", "'1.10.x' is not a version"),
        ("rocm: 5.3, api", "rocm: 5.x, api", "'5.x' is not a version"),
        (
            "targets: [gfx1200, gfx1201]",
            "targets: [gfx1200, gfx1202]",
            "gfx1202 is no GPU target; did you mean",
        ),
        (
            "targets: [gfx942, gfx950], source: tf32",
            "targets: [mi300], source: tf32",
            "mi300 is no GPU target",
        ),
        ("{never: true, source", "{never: true, since: 2.0, rocm: 6.0, source", "or never"),
        ("{never: true, source", "{source", "since which torch and ROCm, or never"),
        ("api: torch.cuda.CUDAGraph", "api: cuda.CUDAGraph", "api: it must be a name in torch: torch.cuda."),
        ("source: flash-gpus", "source: flash-gpu", "source 'flash-gpu' is not among"),
        ("  Gloo:", "  TensorPipe:", "TensorPipe is given twice"),
        ("group: torch.amp", "grup: torch.amp", "grup: Extra inputs are not permitted; did you mean group?"),
    ],
)
def test_wrong_tables_of_features(old, new, message):
    assert old in TEXT
    with pytest.raises(errors.DataError, match=re.escape(message)):
        records.parse_record(
            TEXT.replace(old, new, 1), torch_features.FeatureTable, name="torch_features.yaml"
        )


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "now: frozen",
            "now: asleep",
            "or 'retired' (found 'asleep')",
        ),
        ("version: 0.29.2", "version: newest", "'newest' is not a version"),
        ('python: ">=3.9"', 'python: "3.9 and newer"', "not a version specifier"),
        ('tensordict: "<0.15.0', 'tensordct: "<0.15.0', "tensordct, which the table does not have; did you"),
        ("    files: cuda\n", "", "code is compiled, and its wheel's compiled code is none"),
        ("code: pure", "code: pure\n    files: cpu", "code is pure, and its wheel's compiled code is cpu"),
        (
            "probe: torchaudio.transforms",
            "probe: import torchaudio.transforms",
            "probe: it must be a name in a module: torchaudio.transforms.Vol (found 'import torchaudio.",
        ),
        ("source: tune,", "source: tunes,", "source 'tunes' is not among"),
        ("{text: PyPI, source: page", "{text: PyPI, sourc: page", "sourc: Extra inputs are not permitted"),
    ],
)
def test_wrong_tables_of_libraries(old, new, message):
    assert old in DOMAINS
    with pytest.raises(errors.DataError, match=re.escape(message)):
        records.parse_record(
            DOMAINS.replace(old, new, 1), libraries.DomainTable, name="domain_libraries.yaml"
        )
