"""Wheel file names and target IDs."""

from __future__ import annotations

import pytest

from rocm_wheels.core import errors
from rocm_wheels.device_code import code_objects
from rocm_wheels.wheels import dist_info

LONG = "9" * 5000  # more digits than Python reads


@pytest.mark.contract
@pytest.mark.parametrize(
    ("file_name", "version", "build", "label"),
    [
        ("torch-2.9.1+rocm7.1.0-cp311-cp311-linux_x86_64.whl", "2.9.1+rocm7.1.0", (), None),
        ("torch-2.9.1-1abc-cp311-cp311-linux_x86_64.whl", "2.9.1", (1, "abc"), None),
        ("torch-2.13.0-cp313-cp313-manylinux_2_28_x86_64-rocm7.2_gfx942.whl", "2.13.0", (), "rocm7.2_gfx942"),
        ("torch-2.13.0-7-cp313-cp313-manylinux_2_28_x86_64-null.whl", "2.13.0", (7, ""), "null"),
        ("torch-2.13.0-cp313-cp313-win_amd64-0123abcd.whl", "2.13.0", (), "0123abcd"),
    ],
)
def test_names_are_taken_apart(
    file_name: str, version: str, build: tuple[object, ...], label: str | None
) -> None:
    found = dist_info.parse_wheel_name(file_name)
    assert (found.name, str(found.version), found.build, found.label) == ("torch", version, build, label)


@pytest.mark.contract
def test_a_compressed_tag_set_stands_for_all_its_tags() -> None:
    found = dist_info.parse_wheel_name("Flash_Attn-1.0-py2.py3-none-any.whl")
    assert {str(tag) for tag in found.tags} == {"py2-none-any", "py3-none-any"}
    assert (found.name, found.distribution) == ("flash-attn", "Flash_Attn")


@pytest.mark.contract
@pytest.mark.parametrize(
    ("file_name", "reason"),
    [
        ("torch-2.9.1.tar.gz", "does not end with .whl"),
        ("torch-2.9.1-cp311.whl", "3 fields between dashes"),
        ("torch-2.9.1-1-cp311-cp311-linux_x86_64-a-b.whl", "8 fields between dashes"),
        ("torch-2.9.1-cp311-cp311-linux_x86_64-ROCm.whl", "'ROCm' is not a variant label"),
        ("torch-2.9.1-cp311-cp311-linux_x86_64-.whl", "'' is not a variant label"),
        ("torch-nightly-cp311-cp311-linux_x86_64.whl", "Invalid wheel filename"),
        ("tor ch-1-cp311-cp311-any.whl", "is not the name of a wheel"),
        ("torch-2.9.1-1\\..\\x-cp311-cp311-any.whl", r"it has '\\'"),
        ("torch-2.9.1-1\x1b[31m-cp311-cp311-any.whl", r"it has '\x1b'"),
        ("torch-2.9.1-x1-cp311-cp311-linux_x86_64-null.whl", "is not the name of a wheel"),
        (f"torch-{LONG}-cp311-cp311-linux_x86_64.whl", "a number of 1000 digits or more"),
        (f"torch-2.9.1-{LONG}-cp311-cp311-linux_x86_64.whl", "a number of 1000 digits or more"),
        (f"torch-2.9.1-cp{LONG}-cp311-linux_x86_64.whl", "a number of 1000 digits or more"),
    ],
)
def test_wrong_names_are_refused_with_the_reason(file_name: str, reason: str) -> None:
    with pytest.raises(errors.DataError) as caught:
        dist_info.parse_wheel_name(file_name)
    assert reason in errors.explain_error(caught.value)


def test_a_folder_whose_version_is_longer_than_numbers_is_a_fault() -> None:
    name = dist_info.parse_wheel_name("torch-2.9.1-cp311-cp311-linux_x86_64.whl")
    metadata = dist_info.parse_metadata(b"Name: torch\nVersion: 2.9.1\n", name="METADATA")
    folder = f"torch-{LONG}.dist-info"
    assert dist_info.compare_names(name, folder, metadata) == [f"the folder {folder} has no valid version"]


def test_target_ids_keep_their_features_in_canonical_order() -> None:
    target = code_objects.TargetId.parse("gfx942:xnack-:sramecc+")
    assert (target.processor, target.features) == ("gfx942", (("sramecc", "+"), ("xnack", "-")))
    assert str(target) == "gfx942:sramecc+:xnack-"


@pytest.mark.parametrize(
    "text", ["", "gfx942:", "gfx942:xnack", "gfx942:xnack+:xnack-", "gfx942 ", "9", "gfx942:+"]
)
def test_what_is_no_target_id_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"target ID|twice"):
        code_objects.TargetId.parse(text)


def test_targets_sort_by_number() -> None:
    names = "gfx1100 gfx9-generic gfx90a gfx908 gfx1030 gfx942:xnack+ gfx942 gfx12-generic"
    targets = map(code_objects.TargetId.parse, names.split())
    ordered = " ".join(map(str, sorted(targets, key=code_objects.TargetId.get_sort_key)))
    assert ordered == "gfx908 gfx90a gfx942 gfx942:xnack+ gfx9-generic gfx1030 gfx1100 gfx12-generic"


@pytest.mark.parametrize("name", code_objects.ELF_MACHINES.values())
def test_every_machine_of_the_table_is_a_target_id_in_every_spelling_of_an_entry(name: str) -> None:
    assert str(code_objects.TargetId.parse(name)) == name
    for text in (f"hipv4-amdgcn-amd-amdhsa--{name}", f"hip-amdgcn-amd-amdhsa-{name}"):
        assert code_objects.BundleEntryId.parse(text).target == name
    assert len(set(code_objects.ELF_MACHINES.values())) == len(code_objects.ELF_MACHINES)


def test_the_host_entry_has_no_target() -> None:
    assert code_objects.BundleEntryId.parse("host-x86_64-unknown-linux-gnu-").target == ""
    assert code_objects.BundleEntryId.parse("host-x86_64-unknown-linux-gnu").kind == "host"
    assert code_objects.BundleEntryId.parse("host-x86_64-pc-windows-msvc--").kind == "host"
