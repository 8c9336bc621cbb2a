"""What views list in place of neutral selectors, for which targets, and where it lies."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from documents import FAMILY, a_set, wheel
from pydantic import ValidationError

from rocm_wheels.models.gfx import get_gfx_targets
from rocm_wheels.package.device_selector import make_selector, read_targets
from rocm_wheels.release import pages, wheel_set
from rocm_wheels.release.store_paths import FamilyPaths
from rocm_wheels.release.view_selectors import make_earlier_files, make_selector_files

PATHS, VERSION, PLATFORM = FamilyPaths(FAMILY), "2.9.1+rocm7.1.0", "linux_x86_64"


def split(project: str, targets: Sequence[str], python: str = "312") -> list[wheel_set.SetFile]:
    """Return host wheel, selector and device wheels."""
    devices = [wheel(f"amd-{project}-device-{gfx}", python, [gfx]) for gfx in targets]
    return [wheel(project, python, ()), wheel(f"amd-{project}-device", python, ()), *devices]


def listed(document: wheel_set.SetDocument, *targets: str, project: str = "torch") -> list[str]:
    """Return the selectors that a view lists: their build tags and ABIs."""
    made = pages.make_index_pages("f/by-gfx/x/nightly", PATHS, [document], targets)
    page = json.loads(made[f"f/by-gfx/x/nightly/amd-{project}-device/index.json"])
    names = [file["filename"] for file in page["files"]]
    return [name.removeprefix(f"amd_{project}_device-{VERSION}-").split("-cp")[0] for name in names]


TORCH = a_set(*split("torch", ["gfx1100", "gfx942"]), *split("torch", ["gfx942"], "311"))


@pytest.mark.parametrize(
    ("targets", "tags"),
    [
        ((), ["cp311", "cp312"]),  # the index of the set, and that of a channel
        (("gfx942",), ["1gfx942", "1gfx942"]),
        (("gfx1100",), ["1gfx1100", "cp311"]),  # no device wheel for that Python
        (("gfx942", "gfx1100"), ["1gfx1100.942", "1gfx942"]),
        (("gfx90a",), ["cp311", "cp312"]),
    ],
)
def test_a_selector_names_what_its_host_has_device_wheels_for(
    targets: tuple[str, ...], tags: list[str]
) -> None:
    assert listed(TORCH, *targets) == tags


def test_each_host_has_its_own_and_a_host_of_another_splitter_none() -> None:
    document = a_set(*split("torch", ["gfx942"]), *split("torchvision", ["gfx1100"]))
    assert listed(document, "gfx942", "gfx1100") == ["1gfx942"]
    assert listed(document, "gfx942", "gfx1100", project="torchvision") == ["1gfx1100"]
    generic = a_set(*split("torch", ["gfx11-generic", "gfx1100"]))
    assert listed(generic, "gfx11-generic") == ["cp312"] and listed(generic, "gfx1100") == ["1gfx1100"]
    assert listed(generic, "gfx1101", "gfx942") == ["1gfx1101"]  # by its code for all of gfx11
    host, _, *devices = split("torch", ["gfx942"])
    therock = a_set(host, *devices, wheel("torchvision"))
    plain = pages.make_index_pages("f/i", PATHS, [therock])
    assert pages.make_index_pages("f/i", PATHS, [therock], ["gfx942"]) == plain


def test_pages_link_to_what_lies_with_the_set_and_its_bytes_follow_from_its_name() -> None:
    files = make_selector_files(PATHS, [TORCH], ["gfx942"])
    folder = PATHS.selectors_folder(TORCH.id)
    name = f"{folder}/amd_torch_device-{VERSION}-1gfx942-cp312-cp312-{PLATFORM}.whl"
    assert len(files) == 4 and f"Requires-Dist: torch[device-gfx942] == {VERSION}\n" in (
        files[f"{name}.metadata"].decode()
    )
    page = pages.make_index_pages(f"{PATHS.family}/by-gfx/gfx942/n", PATHS, [TORCH], ["gfx942"])
    text = page[f"{PATHS.family}/by-gfx/gfx942/n/amd-torch-device/index.html"].decode()
    assert f"../../../../sets/{TORCH.id}/selectors/amd_torch_device-" in text
    assert make_earlier_files(PATHS, TORCH, [name]) == {
        path: files[path] for path in (name, f"{name}.metadata")
    }
    odd = (
        "x.whl",
        f"amd_torch_device-{VERSION}-1gfx9-cp312-cp312-{PLATFORM}.whl",
        "amd_torch_device.metadata",
    )
    assert make_earlier_files(PATHS, TORCH, [f"{folder}/{one}" for one in odd]) == {}


@pytest.mark.parametrize("stated", [">=3.9\nRequires-Dist: evil", ">=3.9 ", "<4,\r>=3.9", "any", "\u2028"])
def test_no_document_adds_a_requirement_to_a_selector(stated: str) -> None:
    """Its METADATA is made of what the set's document says, which nobody can have made from a wheel."""
    with pytest.raises(ValidationError, match="requires_python"):
        wheel("amd-torch-device", requires_python=stated)
    host, _, device = split("torch", ["gfx942"])
    selector = wheel("amd-torch-device", targets=(), requires_python="<4,>=3.9")
    document = a_set(host, selector, device)
    (metadata,) = [
        text
        for path, text in make_selector_files(PATHS, [document], ["gfx942"]).items()
        if "metadata" in path
    ]
    assert metadata.decode().splitlines()[-2:] == [
        "Requires-Python: <4,>=3.9",
        f"Requires-Dist: torch[device-gfx942] == {VERSION}",
    ]


def test_earlier_selectors_of_a_list_are_told_each_for_itself() -> None:
    """Hosts that have device wheels for fewer of its targets have others, and nobody misses the rest."""
    both = make_selector_files(PATHS, [TORCH], ["gfx942", "gfx1100"])
    assert make_earlier_files(PATHS, TORCH, both) == both
    assert make_earlier_files(PATHS, TORCH, [path for path in both if path.endswith(".whl")]) == both


def test_a_selector_of_all_targets_has_a_name_that_files_can_have() -> None:
    targets = sorted(get_gfx_targets())
    wheel_name = "torchvision-0.28.1+rocm10.15.0rc20261130-cp313-cp313t-manylinux_2_28_x86_64.whl"
    selector = make_selector("torchvision", wheel_name, "", targets)
    assert len(f"{selector.file}.metadata") <= 255
    assert read_targets(selector.file) == tuple(targets)
    assert read_targets(wheel_name) == ()
