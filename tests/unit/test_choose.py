"""Which wheel a machine gets: variant indexes of today and of 2025, per-family, multi-arch and plain ones."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest
from servers import PROVIDERS, RELEASE, Shelf, gfx, host, machine

from rocm_wheels.core import errors
from rocm_wheels.gpus import variables
from rocm_wheels.gpus.gpu import Gpu, Hardware
from rocm_wheels.index import reader
from rocm_wheels.user import candidates, choose
from rocm_wheels.user.host import StatedMachine, TargetHost, make_host


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    """An index that is empty yet."""
    return Shelf(tmp_path / "index")


def labels(choice: candidates.WheelChoice) -> list[str | None]:
    """Return the labels that are ranked, best first."""
    return [one.label for one in choice.candidates if one.rank is not None]


def reasons(choice: candidates.WheelChoice) -> dict[str, str]:
    """Return why each wheel is out, by its label or version."""
    return {one.label or one.version: one.reason for one in choice.candidates if one.rank is None}


def taken(choice: candidates.WheelChoice) -> tuple[str, str | None]:
    """Return the version and the label of what is picked."""
    assert choice.picked is not None
    return choice.picked.version, choice.picked.label


def choose_torch(index: Path | str, on: TargetHost, requirement: str = "torch") -> candidates.WheelChoice:
    (choice,) = choose.choose_wheels([requirement], str(index), on, reader.IndexReader())
    return choice


# --- variants of today ---


@pytest.mark.parametrize(
    ("targets", "ranked"),
    [
        (("gfx942",), ["rocm7.2_gfx9", "rocm7.0_gfx9", "null"]),
        (("gfx1100",), ["rocm7.2_gfx110x", "null"]),
        (("gfx1201",), ["rocm7.2_gfx12", "null"]),  # by its generic target
        (("gfx1100", "gfx90a"), ["rocm7.2_gfx110x", "rocm7.2_gfx9", "rocm7.0_gfx9", "null"]),
        (("gfx1399",), ["null"]),
        ((), ["null"]),
    ],
)
def test_variants_are_ranked_for_the_machine(
    shelf: Shelf, targets: tuple[str, ...], ranked: list[str]
) -> None:
    shelf.release(RELEASE)
    choice = shelf.choose(on=machine(*targets))
    assert labels(choice) == ranked
    assert taken(choice) == ("2.9.0", ranked[0])
    assert (choice.layout, choice.requires) == ("variants", ("torch==2.9.0",))
    assert len(choice.candidates) == len(RELEASE)


def test_every_wheel_says_why_it_stands_where_it_does(shelf: Shelf) -> None:
    shelf.release(RELEASE)
    shelf.wheel("2.8.0")
    shelf.wheel("2.9.0")
    shelf.wheel("2.10.0rc1", "null", document={})
    shelf.wheel("2.9.0", "rocm7.2_gfx9", tag="cp313-cp313-linux_x86_64")
    shelf.wheel("2.9.0", "rocm7.2_gfx9", tag="cp312-cp312-win_amd64")
    choice = shelf.choose()
    said = [f"{one.rank or '-'} {one.label or '.'} {one.version}: {one.reason}" for one in choice.candidates]
    has = "this machine has gfx942, gfx9_4_generic"
    assert said == [
        "1 rocm7.2_gfx9 2.9.0: best for this machine: amd :: gfx_arch :: gfx942, rocm :: version :: 7.2",
        "2 rocm7.0_gfx9 2.9.0: rocm :: version :: 7.0 is ranked after 7.2",
        "3 null 2.9.0: null comes after all variants that fit",
        "4 . 2.9.0: no variant: after all variants that fit",
        "- null 2.10.0rc1: a pre-release, and there is a release",
        f"- rocm7.2_gfx110x 2.9.0: amd :: gfx_arch is gfx1100, gfx1101, gfx1102; {has}",
        f"- rocm7.2_gfx12 2.9.0: amd :: gfx_arch is gfx12_generic; {has}",
        "- rocm7.2_gfx9 2.9.0: for win_amd64, this is linux on x86_64",
        "- rocm7.2_gfx9 2.9.0: for cp313-cp313, this is Python 3.12",
        "- . 2.8.0: older than 2.9.0",
    ]
    assert [(one.feature, one.values, one.source) for one in choice.known] == [
        ("gfx_arch", ("gfx942", "gfx9_4_generic"), "this machine, for rocm-bootstrap"),
        ("version", ("7.2", "7.1", "7.0"), "listed in the document, the same for every machine"),
    ]


def test_a_newer_version_without_a_wheel_for_the_machine_is_passed_over_and_named(shelf: Shelf) -> None:
    shelf.release(RELEASE, "2.9.0")
    shelf.release({"rocm7.2_gfx110x": RELEASE["rocm7.2_gfx110x"]}, "2.10.0")
    choice = shelf.choose()
    assert taken(choice) == ("2.9.0", "rocm7.2_gfx9")
    assert choice.notes[0].startswith("2.10.0 is newer and has nothing for this machine: torch-2.10.0-cp312")


HOST_ROCM = {**RELEASE, "hostrocm7.2_gfx942": {"amd": {"gfx_arch": ["gfx942"], "rocm_version": ["7.2"]}}}


UNNAMED = host(Hardware(gpus=(Gpu("amd", name="Arcturus"),)))


@pytest.mark.parametrize(
    ("on", "label", "note"),
    [
        (machine("gfx942", rocm="7.2.1"), "hostrocm7.2_gfx942", ""),
        (machine("gfx942", rocm="7.1.0"), "null", "amd :: rocm_version is 7.2; this machine has 7.1"),
        (machine("gfx942"), "null", "amd :: rocm_version is 7.2; no ROCm was found on this machine"),
        (machine("gfx1151", rocm="7.2"), "null", "is gfx942; this machine has gfx1151, gfx11_generic"),
        (machine(rocm="7.2"), "null", "there is no AMD GPU here"),
        (UNNAMED, "null", "the target of the AMD GPU is unknown"),
    ],
)
def test_without_a_variant_that_fits_it_is_the_cpu_wheel_said_plainly(
    shelf: Shelf, on: TargetHost, label: str, note: str
) -> None:
    shelf.release({name: HOST_ROCM[name] for name in ("null", "hostrocm7.2_gfx942")})
    choice = shelf.choose(on=on)
    assert taken(choice)[1] == label
    said = [one for one in choice.notes if "is the wheel for the CPU" in one]
    assert (note in said[0]) if note else not said


OPTIONAL = {**PROVIDERS["amd"], "optional": True}
STATIC = {"static-properties": {"gfx_arch": ["gfx1100", "gfx942"]}}


@pytest.mark.parametrize(
    ("provider", "ranked", "note"),
    [
        ({"requires": ["evil"]}, ["null"], "its provider evil is not known here, and is not run"),
        (OPTIONAL, ["null"], "its provider is optional, and not enabled"),
        ({"requires": ["rocm-variant-provider>=0.1"]}, ["gfx942", "null"], ""),
        (STATIC, ["gfx942", "null"], ""),
        ({"builtin": "abi_dependency"}, ["null"], "no other project is here to go with"),
    ],
)
def test_providers(shelf: Shelf, provider: dict[str, object], ranked: list[str], note: str) -> None:
    variants = {"null": {}, "gfx942": gfx("gfx942"), "gfx1100": gfx("gfx1100")}
    shelf.release(variants, providers={"amd": provider})
    choice = shelf.choose(on=machine("gfx942"))
    assert labels(choice) == ranked
    assert any(note in one for one in choice.notes) or not note


def test_a_provider_of_another_vendor_is_answered_for_by_nobody(shelf: Shelf) -> None:
    providers = {
        "nvidia": {"requires": ["nvidia-variant-provider>=0.1"]},
        "amd": PROVIDERS["amd"],
        "x86_64": {"requires": ["provider-variant-x86-64>=0.0.1"]},
    }
    variants = {
        "null": {},
        "cuda12": {"nvidia": {"sm_arch": ["90_real"]}},
        "gfx942": gfx("gfx942"),
        "baseline": {"x86_64": {"level": ["v1"]}},
    }
    shelf.release(variants, providers=providers)
    assert labels(shelf.choose(on=machine("gfx942"))) == ["gfx942", "null"]
    nvidia = shelf.choose(on=host(Hardware((Gpu("nvidia", capability="9.0"),), (), cuda="13.1")))
    assert labels(nvidia) == ["null"]
    assert "its provider nvidia-variant-provider is not known here" in reasons(nvidia)["cuda12"]


def test_a_wheel_is_chosen_by_the_torch_that_it_goes_with(shelf: Shelf) -> None:
    providers = {"abi_dependency": {"builtin": "abi_dependency"}}
    shelf.release(
        {"abi2.8": {"abi_dependency": {"torch": ["2.8"]}}, "abi2.9": {"abi_dependency": {"torch": ["2.9"]}}},
        providers=providers,
    )
    beside = replace(machine(), versions={"torch": "2.9.1+rocm7.2"})
    assert labels(shelf.choose(on=beside)) == ["abi2.9"]
    with pytest.raises(errors.HostError) as failure:
        shelf.choose(on=machine())
    assert "abi_dependency :: torch is 2.9" in errors.explain_error(failure.value)


@pytest.mark.parametrize(
    "content", [b"{", b'{"$schema": "https://packaging.python.org/variants/v2.0.0.json"}', None]
)
def test_a_document_that_cannot_be_read_costs_the_variants_and_not_the_plain_wheel(
    shelf: Shelf, content: bytes | None
) -> None:
    shelf.release(RELEASE, listed=False)
    shelf.add("torch", "torch-2.9.0-variants.json", content or b"{}")
    if content is None:  # its page lists it, and the server answers 404
        (shelf.root / "torch" / "torch-2.9.0-variants.json").unlink()
    with pytest.raises((errors.DataError, errors.HostError), match=r"torch-2\.9\.0-variants\.json"):
        shelf.choose()
    shelf.wheel("2.9.0")
    choice = shelf.choose()
    assert labels(choice) == [None]
    url = (shelf.root / "torch" / "torch-2.9.0-variants.json").as_uri()
    assert [note for note in choice.notes if note.startswith("WARNING") and url in note]
    assert set(reasons(choice)) == set(RELEASE)


def test_a_label_that_the_document_does_not_list_is_not_taken(shelf: Shelf) -> None:
    shelf.release(RELEASE)
    shelf.release({"rocm7.1_gfx9": gfx("gfx942", rocm="7.1")}, listed=False)
    choice = shelf.choose()
    assert labels(choice) == ["rocm7.2_gfx9", "rocm7.0_gfx9", "null"]
    assert reasons(choice)["rocm7.1_gfx9"] == "the document of the variants does not list its label"


def test_labels_without_a_wheel_are_not_taken_and_a_folder_of_wheels_will_do(shelf: Shelf) -> None:
    shelf.release(RELEASE)
    gone = next((shelf.root / "torch").glob("*-rocm7.2_gfx9.whl"))
    shelf.pages["torch"] = [line for line in shelf.pages["torch"] if gone.name not in line]
    assert taken(shelf.choose())[1] == "rocm7.0_gfx9"
    page = (shelf.root / "torch" / "index.html").as_uri()
    for index in (shelf.root / "torch", page):  # they have no pages of projects
        assert taken(choose_torch(index, machine("gfx1100")))[1] == "rocm7.2_gfx110x"


# --- documents of 2025 ---


OLD = {
    "$schema": "https://variants-schema.wheelnext.dev/v0.0.3.json",
    "default-priorities": {"feature": {"amd": ["gfx_arch"]}, "namespace": ["amd"],
     "property": {"amd": {"gfx_arch": ["gfx942"]}}},
    "providers": {
        "amd": {
            "enable-if": "platform_system == 'Linux'",
            "plugin-api": "amd_variant_provider.plugin:AMDVariantPlugin",
            "requires": ["amd-variant-provider>=0.0.1,<1"],
        }
    },
    "static-properties": {},
    "variants": {"null": {}, "rocm7.0": {"amd": {"rocm_version": ["7.0"], "gfx_arch": ["gfx942", "gfx1100"]}},
     "rocm6.4": {"amd": {"rocm_version": ["6.4"], "gfx_arch": ["gfx90a", "gfx942"]}}},
}  # fmt: skip


@pytest.mark.parametrize(
    ("on", "ranked"),
    [
        (machine("gfx942", rocm="7.0.2"), ["rocm7.0", "null"]),
        (machine("gfx942", rocm="6.4.3"), ["rocm6.4", "null"]),
        (machine("gfx942", rocm="7.1.0"), ["null"]),
        (machine("gfx1151", rocm="7.0.2"), ["null"]),
    ],
)
def test_indexes_of_2025_are_chosen_from(shelf: Shelf, on: TargetHost, ranked: list[str]) -> None:
    for label in ("null", "rocm7.0", "rocm6.4"):
        shelf.wheel("2.9.0", label)
    shelf.document(OLD)
    choice = shelf.choose(on=on)
    assert labels(choice) == ranked
    assert choice.known[0].source == "this machine, for rocm-bootstrap", "not for the one that nobody owns"


# --- plain wheels, and builds for one vendor ---

WITH_ASAN = host(replace(machine("gfx942").hardware, sanitizer="address"))


@pytest.mark.parametrize(
    ("requirement", "on", "version"),
    [
        ("torch", machine("gfx942"), "2.9.0+rocm7.1.0"),
        ("torch", machine(), "2.10.0+cpu"),
        ("torch", machine("x", vendor="nvidia"), "2.10.0+cu128"),
        ("torch", machine("x", vendor="intel"), "2.10.0+cpu"),
        ("torch", machine("x", vendor="apple"), "2.10.0+cpu"),
        ("torch==2.10.0", machine("gfx942"), "2.10.0+cpu"),
        ("torch==2.9.0", machine(), "2.9.0+rocm7.1.0"),
        ("torch==2.10.0+cu128", machine("gfx942"), "2.10.0+cu128"),  # asked for by name
        ("torch<2.9", machine("gfx942"), "2.8.0+devrocm7.0"),
        ("torch==2.11.0+rocm7.1.0.asan", machine(), "2.11.0+rocm7.1.0.asan"),
        ("torch", WITH_ASAN, "2.11.0+rocm7.1.0.asan"),  # whose user preloads its runtime
    ],
)
def test_a_build_for_another_vendor_never_wins(
    shelf: Shelf, requirement: str, on: TargetHost, version: str
) -> None:
    for one in ("2.8.0+devrocm7.0", "2.9.0+rocm7.1.0", "2.10.0+cu128", "2.10.0+cpu", "2.11.0+rocm7.1.0.asan"):
        shelf.wheel(one)
    choice = shelf.choose(requirement, on=on)
    assert taken(choice)[0] == version
    if version.endswith("+cpu"):
        assert "is the wheel for the CPU" in choice.notes[0]


def test_a_build_of_the_same_version_is_neither_older_nor_newer(shelf: Shelf) -> None:
    for version in ("2.8.0+cpu", "2.9.1+cpu", "2.9.1+rocm7.2", "2.9.1+cu128", "2.9.1+rocm7.10"):
        shelf.wheel(version)
    choice = shelf.choose()
    found = {entry.version: entry.reason for entry in choice.candidates}
    assert taken(choice)[0] == "2.9.1+rocm7.10"
    assert found["2.9.1+cpu"] == "a build for the CPU: one for the GPU here comes first"
    assert found["2.8.0+cpu"] == "older than 2.9.1+rocm7.10"
    for requirement, vendor in (("torch==2.9.1+cpu", "amd"), ("torch<2.9.1.1", "intel")):
        choice = shelf.choose(requirement, on=machine("gfx942", vendor=vendor))
        assert taken(choice)[0] == "2.9.1+cpu"
        assert not any("is newer" in note for note in choice.notes), choice.notes


def test_the_index_of_nvidia_and_intel_is_named(shelf: Shelf) -> None:
    shelf.wheel("2.9.0+cpu")
    for vendor, name in (("nvidia", "cu"), ("intel", "xpu")):
        notes = shelf.choose(on=machine("x", vendor=vendor)).notes
        assert any(f"download.pytorch.org/whl/{name}" in note for note in notes), notes


# --- families and kernels in wheels of their own ---


def families(tmp_path: Path) -> Path:
    """Indexes of two families, and one for everybody."""
    for family, version in (("gfx94X-dcgpu", "2.9.0+rocm7.2"), ("gfx110X-all", "2.8.0+rocm7.1")):
        shelf = Shelf(tmp_path / "v2" / family)
        shelf.wheel(version)
        shelf.write()
    return tmp_path / "v2"


@pytest.mark.parametrize(
    ("targets", "version", "line"),
    [
        (("gfx942",), "2.9.0+rocm7.2", None),
        (("gfx1102",), "2.8.0+rocm7.1", None),
        (("gfx942", "gfx1100"), "2.9.0+rocm7.2", "HIP_VISIBLE_DEVICES=0"),
        (("gfx1100", "gfx942", "gfx1101"), "2.8.0+rocm7.1", "HIP_VISIBLE_DEVICES=0,2"),
    ],
)
def test_the_index_of_the_family(
    tmp_path: Path, targets: tuple[str, ...], version: str, line: str | None
) -> None:
    root = families(tmp_path)
    for index in (f"{root}/{{family}}", f"{root.as_uri()}/{{family}}/", str(root)):
        choice = choose_torch(index, machine(*targets))
        assert taken(choice)[0] == version
        assert (choice.layout, choice.visible_line) == ("per-family", line)
    if line:
        assert any("GPUs are served" in note for note in choice.notes)
    named = choose_torch(root / "gfx94X-dcgpu", machine(*targets))
    assert named.layout == "per-family"
    assert [is_served for _, is_served in named.served] == [chip == "gfx942" for chip in targets]


@pytest.mark.parametrize("family", ["gfx1399", "gfx139X-all"])
def test_the_family_of_a_gpu_that_the_tables_lack(tmp_path: Path, family: str) -> None:
    root = families(tmp_path)
    shelf = Shelf(root / family)
    shelf.wheel("2.10.0+rocm11.0")
    shelf.write()
    for index in (f"{root}/{{family}}", str(root), str(root / family)):
        choice = choose_torch(index, machine("gfx1399", "gfx942"))
        assert choice.layout == "per-family"
        served = {gpu.gfx: is_served for gpu, is_served in choice.served}
        # what the tables know comes first: they say more than a name
        assert served == {"gfx1399": index.endswith(family), "gfx942": not index.endswith(family)}
        choice = choose_torch(index, machine("gfx1399"))
        assert taken(choice)[0] == "2.10.0+rocm11.0"
        assert [is_served for _, is_served in choice.served] == [True]
    with pytest.raises(errors.HostError, match="has no project torch"):
        choose_torch(f"{root}/{{family}}", machine("gfx1411"))


def multi_arch(shelf: Shelf, *there: str, version: str = "2.9.0+rocm7.13") -> None:
    """A host wheel with extras for four targets, of which the wheels of some are there.

    Its METADATA is written as that of TheRock's torch 2.8.0+rocm7.13.0a20260505, which their tests hold.
    """
    targets = ("gfx942", "gfx1100", "gfx1201", "gfx1036")
    extras = [f"Provides-Extra: device-{one}" for one in (*targets, "all", "gfx103X-all")]
    requires = [f'amd-torch-device-{one} == {version}; extra == "device-{one}"' for one in targets]
    requires += [f'amd-torch-device-{one} == {version}; extra == "device-all"' for one in targets[:3]]
    requires += [f'amd-torch-device-gfx103x-all == {version}; extra == "device-gfx103x-all"', "numpy"]
    shelf.wheel(version, fields=extras, requires=requires)
    for one in there:
        shelf.wheel(version, project=f"amd-torch-device-{one}", tag="py3-none-linux_x86_64")


@pytest.mark.parametrize(
    ("targets", "there", "requirement", "expected"),
    [
        (("gfx942",), ("gfx942",), "torch", ("torch[device-gfx942]", None)),
        (("gfx1100", "gfx942"), ("gfx942", "gfx1100"), "torch",
         ("torch[device-gfx1100,device-gfx942]", None)),
        (("gfx1100", "gfx942"), ("gfx942",), "torch", ("torch[device-gfx942]", "HIP_VISIBLE_DEVICES=1")),
        (("gfx942", "gfx1151"), ("gfx942",), "torch", ("torch[device-gfx942]", "HIP_VISIBLE_DEVICES=0")),
        (("gfx1030",), ("gfx103x-all",), "torch", ("torch[device-gfx103x-all]", None)),
        ((), ("gfx942",), "torch", ("torch", None)),
        (("gfx1151",), ("gfx942",), "torch", ("torch", None)),
        (("gfx942",), ("gfx942", "gfx1100"), "torch[device-gfx1100]", ("torch[device-gfx1100]", None)),
        (("gfx942",), ("gfx942", "gfx1100", "gfx1201"), "torch[device-all]", ("torch[device-all]", None)),
    ],
)  # fmt: skip
def test_extras_of_a_multi_arch_index(
    shelf: Shelf,
    targets: tuple[str, ...],
    there: tuple[str, ...],
    requirement: str,
    expected: tuple[str, str | None],
) -> None:
    multi_arch(shelf, *there)
    choice = shelf.choose(requirement, on=machine(*targets))
    assert (choice.requires, choice.visible_line) == ((f"{expected[0]}==2.9.0+rocm7.13",), expected[1])
    if targets:
        assert choice.layout == "multi-arch"


@pytest.mark.parametrize("stated", ["gfx1201,gfx1036", "gfx1036,gfx1201"])
def test_a_card_comes_before_graphics_inside_the_processor(shelf: Shelf, stated: str) -> None:
    shelf.release({label: gfx(label) for label in ("gfx1036", "gfx10_3_generic", "gfx12_generic")})
    on = machine(*stated.split(","))
    choice = shelf.choose(on=on)
    assert taken(choice)[1] == "gfx12_generic"
    assert choice.visible_line == f"HIP_VISIBLE_DEVICES={stated.split(',').index('gfx1201')}"
    host = make_host({}, StatedMachine(gfx=(stated,), python="3.12"))
    assert host.supported == on.supported
    multi_arch(shelf, "gfx1201", "gfx1036", version="2.10.0")
    assert shelf.choose(on=on).requires == ("torch[device-gfx1201]==2.10.0",)
    both = shelf.choose("torch[device-gfx1201,device-gfx1036]", on=on)
    assert both.requires == ("torch[device-gfx1036,device-gfx1201]==2.10.0",)
    assert shelf.choose(on=machine("gfx1036")).requires == ("torch[device-gfx1036]==2.10.0",)
    assert shelf.choose(on=machine("gfx1100", "gfx1036")).requires == ("torch[device-gfx1036]==2.10.0",)


def test_what_has_no_kernels_is_said(shelf: Shelf) -> None:
    multi_arch(shelf, "gfx942")
    choice = shelf.choose(on=machine("gfx1100", "gfx1151"))
    assert choice.notes == (
        "no kernels for gfx1100: device-gfx1100 needs amd-torch-device-gfx1100==2.9.0+rocm7.13, "
        "which the index does not have",
        "torch-2.9.0+rocm7.13-cp312-cp312-linux_x86_64.whl has no kernels for gfx1100, gfx1151: "
        "it computes on the CPU at best",
    )


def test_an_older_host_wheel_is_taken_that_has_the_kernels_which_the_newest_has_no_more(shelf: Shelf) -> None:
    """As an index that drops targets has it: gfx908 is in ROCm 10.0 and not in 10.1."""
    multi_arch(shelf, "gfx942", "gfx1100", version="2.13.0+rocm10.0.0")
    multi_arch(shelf, "gfx942", version="2.14.0+rocm10.1.0")
    assert shelf.choose(on=machine("gfx942")).requires == ("torch[device-gfx942]==2.14.0+rocm10.1.0",)
    choice = shelf.choose(on=machine("gfx1100"))
    assert choice.requires == ("torch[device-gfx1100]==2.13.0+rocm10.0.0",)
    assert "2.14.0+rocm10.1.0 is newer and has nothing for this machine" in choice.notes[0]
    assert "it has no kernels for gfx1100" in choice.notes[0]
    unserved = shelf.choose(on=machine("gfx1201"))
    assert taken(unserved)[0] == "2.14.0+rocm10.1.0"
    assert [is_served for _, is_served in unserved.served] == [False]


def test_a_folder_has_the_wheels_of_devices_too(shelf: Shelf) -> None:
    multi_arch(shelf, "gfx942")
    choice = choose_torch(shelf.root / "made", machine("gfx942", "gfx942", "gfx1100"))
    assert choice.requires == ("torch[device-gfx942]==2.9.0+rocm7.13",)
    assert "2 of 3 GPUs are served: gfx942; not gfx1100" in choice.notes


def test_metadata_beside_the_wheel_is_taken_when_the_index_offers_it(shelf: Shelf) -> None:
    wheel = shelf.wheel("2.9.0", core_metadata="true")
    text = b"Metadata-Version: 2.1\nName: torch\nVersion: 2.9.0\nProvides-Extra: device-gfx942\n"
    wheel.with_name(wheel.name + ".metadata").write_bytes(text)
    assert shelf.choose().requires == ("torch[device-gfx942]==2.9.0",)


def test_gpus_that_are_hidden_are_not_counted(shelf: Shelf) -> None:
    shelf.release(RELEASE)
    names = ("gfx1201", "gfx942", "gfx942", "gfx1100")
    cards = [Gpu("amd", gfx=name, index=n) for n, name in enumerate(names)]

    def ask(*gpus: Gpu) -> candidates.WheelChoice:
        return shelf.choose(on=host(Hardware(gpus=gpus)))

    for rocr, hip, line in (
        ("1,2,3", "", "HIP_VISIBLE_DEVICES=0,1"),
        ("3,2,1", "", "HIP_VISIBLE_DEVICES=1,2"),  # HIP counts in the order of the runtime's list
        ("3,2,1", "1,2", None),
    ):
        env = {"ROCR_VISIBLE_DEVICES": rocr, **({"HIP_VISIBLE_DEVICES": hip} if hip else {})}
        assert ask(*variables.mark_visible_gpus(cards, env)[0]).visible_line == line
    for by, said in (
        ("ROCR_VISIBLE_DEVICES", "is the wheel for the CPU: ROCR_VISIBLE_DEVICES hides the AMD GPU"),
        ("kfd, which does not list it", "CPU: the AMD GPU is not for this process, by kfd, which does"),
    ):
        notes = ask(replace(cards[0], visible=False, hidden_by=by)).notes
        assert any(said in note for note in notes), notes


def test_all_devices_are_not_every_gpu(shelf: Shelf) -> None:
    multi_arch(shelf, "gfx942", "gfx1100", "gfx1201")
    choice = shelf.choose("torch[device-all]", on=machine("gfx1151", "gfx1201"))
    assert [is_served for _, is_served in choice.served] == [False, True]
    assert choice.visible_line == "HIP_VISIBLE_DEVICES=1"


def test_of_a_plain_wheel_beside_variants_its_files_tell_what_it_is_for(shelf: Shelf) -> None:
    shelf.release({"rocm7.2_gfx9": RELEASE["rocm7.2_gfx9"]})
    shelf.wheel("2.9.0")
    choice = shelf.choose(on=machine("gfx1100"))
    assert taken(choice) == ("2.9.0", None)
    assert "is no variant, and its name tells nothing: no variant fits this machine" in choice.notes[0]
    assert choice.served == ()  # which GPUs it has code for is not known


def test_a_null_without_others_is_for_every_machine_and_not_the_cpu(shelf: Shelf) -> None:
    shelf.release({"null": {}})
    shelf.wheel("2.9.0")
    choice = shelf.choose()
    assert choice.picked and choice.picked.label == "null"
    assert choice.picked.reason == "the only variant: null is for every machine"
    assert (choice.notes, choice.served) == ((), ())


def test_a_damaged_document_of_an_older_version_is_not_in_the_way(shelf: Shelf) -> None:
    shelf.release({"b": RELEASE["rocm7.2_gfx110x"]}, "2.10.0")
    shelf.release(RELEASE, "2.9.0")
    shelf.wheel("2.8.0", "null")
    shelf.add("torch", "torch-2.8.0-variants.json", b"{")
    assert taken(shelf.choose())[0] == "2.9.0"
    with pytest.raises(errors.DataError, match=r"torch-2.8.0-variants.json is not JSON"):
        shelf.choose("torch<2.9")


def make_random_index(shelf: Shelf, chance: random.Random) -> None:
    """Variants, builds for several vendors and host wheels in some versions, for some machines."""
    targets = ("gfx942", "gfx1100", "gfx1201")
    tags = ("cp312-cp312-linux_x86_64", "cp312-abi3-linux_x86_64", "cp313-cp313-linux_x86_64", "py3-none-any")
    for version in chance.sample(["2.7.0", "2.8.0", "2.9.0", "2.10.0rc1"], 3):
        named = {f"of_{target}": gfx(target) for target in targets if chance.random() < 0.3}
        if named:
            shelf.release({**named, "null": {}}, version, listed=chance.random() < 0.8)
        for local in chance.sample(["", "+rocm7.2", "+cpu", "+cu128"], 2):
            extras = [target for target in targets if chance.random() < 0.3]
            wheels = [
                f'amd-torch-device-{target}=={version}{local}; extra == "device-{target}"'
                for target in extras
            ]
            attributes = {"yanked": "bad"} if chance.random() < 0.2 else {}
            fields = [f"Provides-Extra: device-{target}" for target in extras]
            shelf.wheel(
                version + local, tag=chance.choice(tags), fields=fields, requires=wheels, **attributes
            )
            for target in (target for target in extras if chance.random() < 0.7):
                shelf.wheel(version + local, project=f"amd-torch-device-{target}", tag="py3-none-any")


@pytest.mark.parametrize("seed", range(12))
def test_of_any_index_every_wheel_is_ranked_once_or_out_with_a_reason(shelf: Shelf, seed: int) -> None:
    make_random_index(shelf, random.Random(seed))
    for here in (machine(), machine("gfx942"), machine("gfx1100", "gfx1201"), machine("gfx1151")):
        for requirement in ("torch", "torch>=2.8", "torch==2.9.0"):
            try:
                choice = shelf.choose(requirement, on=here)
            except errors.HostError as failure:
                assert "fits this machine" in str(failure) and failure.__cause__ is not None
                continue
            names = sorted(path.name for path in (shelf.root / "torch").glob("*.whl"))
            assert sorted(entry.name for entry in choice.candidates) == names
            ranks = [entry.rank for entry in choice.candidates if entry.rank is not None]
            assert ranks == list(range(1, len(ranks) + 1)) and all(
                entry.reason for entry in choice.candidates
            )
            assert choice.picked == choice.candidates[0]
            assert choice.requires[0].endswith(f"=={choice.picked.version}")
            ranked = [entry for entry in choice.candidates if entry.rank]
            kinds = {candidates.get_build_kind(entry.wheel.version) for entry in ranked}
            assert "cuda" not in kinds or not here.hardware.amd
            assert all((shelf.root / "made" / wheel.name).is_file() for wheel in choice.devices)


# --- what cannot be chosen ---

USAGE, HOST, DATA = errors.UsageError, errors.HostError, errors.DataError
NEEDS = "needs amd-torch-device-gfx1100==2.9.0+rocm7.13, which the index does not"
ERRORS = [
    # requirement, GPU here, error, what it says
    ("", None, USAGE, "'' is not a requirement"),
    ("torch==", None, USAGE, "'torch==' is not a requirement"),
    ("torch @ https://x/torch.whl", None, USAGE, "names a file: there is nothing to choose"),
    ("torch; python_version > '3'", None, USAGE, "has a marker"),
    ("torhc", None, HOST, "no project torhc; did you mean torch?\ntip: is the name right, and the index?"),
    ("torch>=3", None, HOST, "linux_x86_64.whl: 2.9.0+rocm7.13 is not >=3"),
    ("torch[device-gfx943]", None, HOST, "has no extra device-gfx943; did you mean device-gfx942?"),
    ("torch[device-gfx1100]", None, HOST, NEEDS),
    ("torch[device-all]", None, HOST, f"[device-all] {NEEDS}"),
    ("vision", "gfx1151", HOST, "amd :: gfx_arch is gfx1100, gfx1101, gfx1102; this machine has gfx1151"),
    ("vision", None, HOST, "this machine has no AMD GPU whose target is known"),
    ("audio", None, HOST, "for cp311-cp311, this is Python 3.12"),
    ("vision[device-gfx942]", "gfx942", HOST, "no extra device-gfx942\ntip: it has none of that kind: ask"),
    ("text", None, HOST, "wants Python >=3.13, this is 3.12.4"),
    ("data", None, HOST, "yanked: bad kernels\ntip: a yanked version must be requested exactly"),
    ("only", "gfx942", HOST, "a build for NVIDIA GPUs (+cu128); this machine has AMD GPUs"),
    ("sdist", None, HOST, "has no wheels of sdist"),
    ("early", None, HOST, "has no wheels of early"),
    ("damaged", None, DATA, "damaged-1.0-variants.json is not JSON"),
    ("forged", None, DATA, "forged-1.0-variants.json is not what its page says (sha256 0000"),
    ("lost", None, DATA, "lost-1.0-variants.json answers 404"),
]


@pytest.mark.parametrize(("requirement", "target", "kind", "message"), ERRORS)
def test_what_cannot_be_chosen_is_said(
    tmp_path: Path, requirement: str, target: str | None, kind: type[errors.RocmWheelsError], message: str
) -> None:
    index = wrong_index(tmp_path / "index")
    with pytest.raises(kind) as failure:
        choose_torch(index, machine(*filter(None, (target,))), requirement)
    assert message in errors.explain_error(failure.value)


def test_numbers_that_python_does_not_read_ask_for_nothing(tmp_path: Path) -> None:
    long = "9" * 5000
    shelf = Shelf(tmp_path)
    shelf.wheel("1.0", project="text", requires_python=f">={long}")
    page = shelf.pages["text"]
    page += [f'<a href="{file}">{file}</a>' for file in (f"text-{long}-variants.json", f"text-{long}.tar.gz")]
    assert taken(choose_torch(shelf.write(), machine(), "text")) == ("1.0", None)


def wrong_index(root: Path) -> Path:
    """An index with a project for each thing that can be wrong."""
    shelf = Shelf(root)
    multi_arch(shelf, "gfx942")
    common = {"$schema": "https://variants-schema.wheelnext.dev/peps/850/v0.2.0.json", "providers": PROVIDERS}
    common["default-priorities"] = {"namespace": ["amd", "rocm"]}
    only = {"a": gfx("gfx942"), "b": gfx("gfx1100", "gfx1101", "gfx1102")}
    for label, properties in only.items():
        shelf.wheel("1.0", label, project="vision", document={**common, "variants": {label: properties}})
    shelf.wheel("1.0", project="audio", tag="cp311-cp311-linux_x86_64")
    shelf.wheel("1.0", project="text", requires_python=">=3.13")
    shelf.wheel("1.0", project="data", yanked="bad kernels")
    shelf.wheel("1.0+cu128", project="only")
    for name in ("sdist-1.0.tar.gz", "sdist-1.1.zip"):
        shelf.add("sdist", name, b"")
    shelf.add("early", "early-1.0-py2.py3-none-any.exe", b"")
    for project in ("damaged", "forged", "lost"):
        shelf.wheel("1.0", "null", project=project)
        shelf.add(project, f"{project}-1.0-variants.json", b"{" if project == "damaged" else b"{}")
    page = shelf.pages["forged"]
    page[-1] = page[-1].replace(page[-1].partition("sha256=")[2][:8], "00000000")
    (root / "lost" / "lost-1.0-variants.json").unlink()
    return shelf.write()


@pytest.mark.parametrize(
    ("index", "on", "message"),
    [
        ("nowhere/at/all", machine(), "nowhere/at/all is neither a folder nor the URL of an index"),
        (
            "https://x.invalid/{family}/",
            machine(),
            "is for one GPU family each, and there is no AMD GPU here",
        ),
    ],
)
def test_indexes_that_cannot_be_chosen_from(index: str, on: TargetHost, message: str) -> None:
    with pytest.raises(errors.RocmWheelsError, match=message.replace("{", r"\{")):
        choose.choose_wheels(["torch"], index, on, reader.IndexReader())


def test_nothing_is_asked_for() -> None:
    with pytest.raises(errors.UsageError, match="no requirement is given"):
        choose.choose_wheels([], "x", machine(), reader.IndexReader())
