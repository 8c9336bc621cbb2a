"""Variables: what hides GPUs, what lets them pose as others, and what states them in place of a look."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from machines import CPU, MACHINES, gpu, look, machine, pci

from rocm_wheels.gpus import rocm, variables
from rocm_wheels.gpus.gpu import Gpu

FOUR = [CPU, *(gpu(90402, 0x74A1, bus) for bus in (0x10, 0x11, 0x20, 0x21))]
UUID = "GPU-abba0000000000"  # and the bus


@pytest.mark.parametrize(
    ("env", "left", "said"),
    [
        ({}, [0, 1, 2, 3], ""),
        # the runtime's list: numbers as C reads them, UUIDs and their beginnings, blanks around
        ({"ROCR_VISIBLE_DEVICES": "2, 0"}, [0, 2], ""),
        ({"ROCR_VISIBLE_DEVICES": ""}, [], ""),
        ({"ROCR_VISIBLE_DEVICES": "-1"}, [], ""),
        ({"ROCR_VISIBLE_DEVICES": "0x1,02"}, [1, 2], ""),
        ({"ROCR_VISIBLE_DEVICES": f"{UUID}20, gpu-abba000000000011"}, [1, 2], ""),
        ({"ROCR_VISIBLE_DEVICES": "GPU-ABBA0000000000"}, [], "is none of"),  # the beginning of four
        ({"ROCR_VISIBLE_DEVICES": "1,9,0"}, [1],
         "'9' is none of the 4 GPUs left, 0 to 3: the list ends there"),
        ({"ROCR_VISIBLE_DEVICES": "1,1,0"}, [1], "'1' names a GPU a second time"),
        ({"ROCR_VISIBLE_DEVICES": "0,,1"}, [0], "'' is none of"),
        ({"ROCR_VISIBLE_DEVICES": "0,1,2,3,9"}, [0, 1, 2, 3], ""),  # it reads no more entries than GPUs
        # HIP's list: plain numbers only, of what the first list left
        ({"HIP_VISIBLE_DEVICES": "3,1"}, [1, 3], ""),
        ({"HIP_VISIBLE_DEVICES": "1,1,0"}, [0, 1], ""),
        ({"HIP_VISIBLE_DEVICES": "0, 1"}, [0], "' 1' is none of"),
        ({"HIP_VISIBLE_DEVICES": "0,"}, [0], ""),
        ({"ROCR_VISIBLE_DEVICES": "0,"}, [0], ""),
        ({"HIP_VISIBLE_DEVICES": "01"}, [], "'01' is none of"),
        ({"HIP_VISIBLE_DEVICES": "-1"}, [], ""),
        ({"HIP_VISIBLE_DEVICES": ""}, [0, 1, 2, 3], "set and empty: HIP takes that for not set"),
        ({"HIP_VISIBLE_DEVICES": "", "CUDA_VISIBLE_DEVICES": "2"}, [2], "set and empty"),
        ({"HIP_VISIBLE_DEVICES": "1", "CUDA_VISIBLE_DEVICES": "2"}, [1], ""),
        ({"CUDA_VISIBLE_DEVICES": ""}, [0, 1, 2, 3], ""),
        ({"HIP_VISIBLE_DEVICES": f"{UUID}21"}, [3], ""),
        ({"HIP_VISIBLE_DEVICES": f"{UUID.upper()}21"}, [], "is none of"),  # it compares letters as they are
        ({"ROCR_VISIBLE_DEVICES": "3,2", "HIP_VISIBLE_DEVICES": "0"}, [3], ""),
        ({"ROCR_VISIBLE_DEVICES": "2", "HIP_VISIBLE_DEVICES": "1"}, [], "'1' is none of the one GPU left, 0"),
        ({"ROCR_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": "0"}, [], ""),
        ({"GPU_DEVICE_ORDINAL": "0"}, [0, 1, 2, 3], "is for OpenCL; HIP does not read it"),
    ],
)  # fmt: skip
def test_what_hides_gpus(tmp_path: Path, env: dict[str, str], left: list[int], said: str) -> None:
    found = look(machine(tmp_path, *FOUR), env)
    assert sorted(one.index for one in found.usable if one.index is not None) == left
    assert len(found.gpus) == 4 and all(one.hidden_by in env for one in found.gpus if not one.visible)
    assert (said in found.faults[0]) if said else found.faults == ()


LISTS = st.lists(
    st.sampled_from(["0", "1", "3", "4", "-1", "", " 2", "0x1", "GPU-", f"{UUID}20", "é", "2"]), max_size=5
).map(",".join)


@given(rocr=st.none() | LISTS, hip=st.none() | LISTS)
def test_any_list_leaves_some_of_the_gpus_and_hides_the_others_by_name(
    rocr: str | None, hip: str | None
) -> None:
    cards = [Gpu("amd", "gfx942", uuid=f"{UUID}{n + 20}", index=n) for n in range(4)]
    given_ = {"ROCR_VISIBLE_DEVICES": rocr, "HIP_VISIBLE_DEVICES": hip}
    env = {name: text for name, text in given_.items() if text is not None}
    marked, _ = variables.mark_visible_gpus(cards, env)
    assert [one.index for one in marked] == [0, 1, 2, 3]
    assert all(one.visible == (one.hidden_by == "") and one.hidden_by in {"", *env} for one in marked)
    counted = sorted(one.hip_index for one in marked if one.hip_index is not None)
    assert counted == list(range(len(counted))) and (rocr is not None or len(counted) == 4)
    assert all(one.visible for one in marked if one.hip_index is not None) or hip


def test_hip_counts_in_the_order_of_the_runtimes_list(tmp_path: Path) -> None:
    env = {"ROCR_VISIBLE_DEVICES": "3,1,2", "HIP_VISIBLE_DEVICES": "0,1"}
    found = look(machine(tmp_path, *FOUR), env)
    counted = sorted((one.index or 0, one.hip_index, one.visible) for one in found.gpus)
    assert counted == [(0, None, False), (1, 1, True), (2, 2, False), (3, 0, True)]


def test_graphics_of_another_maker_have_no_number(tmp_path: Path) -> None:
    """One AMD card beside Intel's graphics is device 0: torchruntime says 1, and hides the card."""
    root = pci(machine(tmp_path, CPU, gpu(110000, 0x744C, 3)), ("0000:00:02.0", "8086:4680", 0x300))
    assert look(root, {"HIP_VISIBLE_DEVICES": "0"}).usable[0].gfx == "gfx1100"


@pytest.mark.parametrize(
    ("env", "targets"),
    [
        ({"HSA_OVERRIDE_GFX_VERSION": "11.0.0"}, ["gfx1100", "gfx1100"]),
        ({"HSA_OVERRIDE_GFX_VERSION": "9.0.10"}, ["gfx90a", "gfx90a"]),
        ({"HSA_OVERRIDE_GFX_VERSION_1": "10.3.0"}, ["gfx1100", "gfx1030"]),  # node 0 is the processor
        ({"HSA_OVERRIDE_GFX_VERSION_0": "10.3.0"}, ["gfx1100", "gfx1036"]),
        ({"HSA_OVERRIDE_GFX_VERSION_1": "10.3.0", "HSA_OVERRIDE_GFX_VERSION": "12.0.1"},
         ["gfx1201", "gfx1030"]),
        ({"HSA_OVERRIDE_GFX_VERSION": " "}, ["gfx1100", "gfx1036"]),
        ({"HSA_OVERRIDE_GFX_VERSION_OLLAMA": "10.3.0"}, ["gfx1100", "gfx1036"]),
    ],
)  # fmt: skip
def test_posing_as_another_target(tmp_path: Path, env: dict[str, str], targets: list[str]) -> None:
    found = look(machine(tmp_path, *MACHINES["mixed"]), env)
    assert [one.gfx for one in found.gpus] == targets
    assert [one.native for one in found.gpus] == ["gfx1100", "gfx1036"]
    assert ("refuses to start" in "".join(found.faults)) == (" " in env.values())
    said = "HSA_OVERRIDE_GFX_VERSION_0 is of no GPU: their nodes are 1, 2"
    assert (said in found.faults) == ("HSA_OVERRIDE_GFX_VERSION_0" in env)


@pytest.mark.parametrize(
    ("env", "values"),
    [
        ({"ROCM_VARIANT_PROVIDER_FORCE_GFX_ARCH": "gfx90a:xnack+, gfx803"}, ("gfx90a", "gfx803")),
        ({"ROCM_VARIANT_PROVIDER_FORCE_GFX_ARCH": "gfx1100,gfx942"},
         ("gfx1100", "gfx942", "gfx11_generic", "gfx9_4_generic")),
        ({"ROCM_BOOTSTRAP_FORCE_GFX_ARCH": "gfx942,gfx942"}, ("gfx942", "gfx9_4_generic")),
        ({"ROCM_BOOTSTRAP_FORCE_GFX_ARCH": "gfx1250-strict"}, ("gfx1250", "gfx12_5_generic")),
        ({"UV_AMD_GPU_ARCHITECTURE": "GFX1151"}, ("gfx1151", "gfx11_generic")),
        ({"ROCM_VARIANT_PROVIDER_FORCE_GFX_ARCH": "gfx942;gfx942", "UV_AMD_GPU_ARCHITECTURE": "gfx942"},
         ("gfx942", "gfx9_4_generic")),
        ({"ROCM_VARIANT_PROVIDER_FORCE_GFX_ARCH": "none"}, ()),
        ({"ROCM_VARIANT_PROVIDER_FORCE_GFX_ARCH": " "},
         ("gfx1100", "gfx11_generic", "gfx1036", "gfx10_3_generic")),
        ({"ROCM_BOOTSTRAP_DISABLE_DETECTION": "1"}, ()),
        ({"ROCM_BOOTSTRAP_DISABLE_DETECTION": "1", "ROCM_BOOTSTRAP_FORCE_GFX_ARCH": "gfx942"}, ()),
        ({"ROCM_BOOTSTRAP_DISABLE_DETECTION": "0"},
         ("gfx1100", "gfx11_generic", "gfx1036", "gfx10_3_generic")),
        # what is stated is stated: nothing hides it or poses
        ({"ROCM_VARIANT_PROVIDER_FORCE_GFX_ARCH": "gfx942", "HIP_VISIBLE_DEVICES": "-1",
         "HSA_OVERRIDE_GFX_VERSION": "11.0.0"}, ("gfx942", "gfx9_4_generic")),
        ({"ROCM_VARIANT_PROVIDER_FORCE_GFX_ARCH": "new:gfx1399"}, ("gfx1399",)),
        (  # the variables of other tools have no word for it
            {"ROCM_VARIANT_PROVIDER_FORCE_GFX_ARCH": "new:gfx1399", "UV_AMD_GPU_ARCHITECTURE": "gfx1399"},
            ("gfx1399",),
        ),
    ],
)  # fmt: skip
def test_stated_gpus(tmp_path: Path, env: dict[str, str], values: tuple[str, ...]) -> None:
    found = look(machine(tmp_path, *MACHINES["mixed"]), env)
    assert variables.list_supported_features(found).get("gfx_arch", ()) == values


@pytest.mark.parametrize(("text", "said"), [("true", "=true disables nothing: only 1 does"), ("0", "")])
def test_a_variable_without_effect_is_said(tmp_path: Path, text: str, said: str) -> None:
    variable = "ROCM_BOOTSTRAP_DISABLE_DETECTION"
    found = look(machine(tmp_path, *MACHINES["apu"]), {variable: text})
    assert len(found.usable) == 1
    assert found.faults[0].startswith(variable + said) if said else found.faults == ()


FORCE, UV = "ROCM_VARIANT_PROVIDER_FORCE_GFX_ARCH", "UV_AMD_GPU_ARCHITECTURE"
FORCE_ROCM, POSE = "ROCM_VARIANT_PROVIDER_FORCE_ROCM_VERSION", "HSA_OVERRIDE_GFX_VERSION"
WRONG = [
    *((FORCE, name, f"{name} is no GPU target") for name in ("MI300", "gfx94X", "gfx9-5-generic")),
    (FORCE, "gfx942,gfx", "gfx is no GPU target"),
    (FORCE, " , ", "',' names no GPU; none says that there is none"),
    (UV, "gfx11-generic", "gfx11-generic is code for several GPUs"),
    (UV, "gfx1399", "gfx1399 is no GPU target (new:gfx1399 states one that is newer"),
    (UV, "gfx110", "did you mean gfx1100, gfx1101, gfx1102 or gfx1103?"),
    (UV, "1100", "1100 is no GPU target"),
    ("ROCM_BOOTSTRAP_FORCE_GFX_ARCH", "native", "native is no GPU target"),
    *((FORCE_ROCM, text, f"'{text}' is not a version such as 7.2") for text in ("7", "seven")),
    *((POSE, text, f"'{text}' is not a version such as 11.0.0")
      for text in ("gfx1100", "11.0", "11.0.0 ", "11.0.16")),
    (f"{POSE}_1", "64.0.0", "'64.0.0' is not a version such as 11.0.0"),
]  # fmt: skip


@pytest.mark.parametrize(("variable", "text", "message"), WRONG)
def test_a_variable_that_cannot_be_read_is_named(
    tmp_path: Path, variable: str, text: str, message: str
) -> None:
    with pytest.raises(ValueError, match=r"is not|is no GPU|is code for|names no") as failure:
        look(tmp_path, {variable: text})
    assert str(failure.value).startswith(f"{variable}: ") and message in str(failure.value)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("ROCM_VARIANT_PROVIDER_FORCE_GFX_ARCH=none", "ROCM_BOOTSTRAP_FORCE_GFX_ARCH=gfx942"),
        ("ROCM_VARIANT_PROVIDER_FORCE_GFX_ARCH=gfx942,gfx1100", "UV_AMD_GPU_ARCHITECTURE=gfx942"),
        ("ROCM_BOOTSTRAP_FORCE_GFX_ARCH=gfx942,gfx1100", "UV_AMD_GPU_ARCHITECTURE=gfx1100,gfx942"),
        ("ROCM_BOOTSTRAP_DISABLE_DETECTION=1", "ROCM_VARIANT_PROVIDER_FORCE_GFX_ARCH=gfx942"),
    ],
)
def test_variables_that_contradict_each_other_are_both_named(tmp_path: Path, first: str, second: str) -> None:
    env = dict(pair.split("=", 1) for pair in (first, second))
    with pytest.raises(ValueError, match="contradict each other") as failure:
        look(tmp_path, env)
    assert str(failure.value) == f"{first} and {second} contradict each other: unset one of them"


def written(root: Path, **files: str) -> Path:
    for name, text in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


HEADER = "#define ROCM_VERSION_MAJOR 6\n#define ROCM_VERSION_MINOR   4\n#define ROCM_VERSION_PATCH 1\n"


def test_every_rocm_is_found_the_one_that_counts_first(tmp_path: Path) -> None:
    site, opt = tmp_path / "site", tmp_path / "opt"
    for name in ("rocm_sdk_core-7.14.0", "rocm-7.14.0", "rocm_bootstrap-0.3.0"):
        (site / f"{name}.dist-info").mkdir(parents=True)
    (site / "_rocm_sdk_core").mkdir()
    written(opt, **{"rocm__.info__version": "7.2.0-43\n"})
    written(opt, **{"rocm-6.4.1__include__rocm-core__rocm_version.h": HEADER})
    (opt / "rocm-7.2.0").symlink_to(opt / "rocm")

    def find(**env: str) -> tuple[list[tuple[str | None, str]], tuple[str, ...]]:
        packages = [] if "ROCM_PATH" in env or "HIP_PATH" in env else [site, tmp_path / "missing"]
        found, faults = rocm.find_rocm_installations(env, root=tmp_path, site_packages=packages)
        return [(one.version, one.source) for one in found], faults

    in_opt = [("7.2.0-43", "info"), ("6.4.1", "header")]
    assert find() == ([("7.14.0", "pip"), *in_opt], ())
    assert find(ROCM_PATH=str(opt / "rocm-6.4.1")) == (in_opt[1:], ())
    assert find(HIP_PATH="/opt/rocm/hip") == (in_opt, ())  # of the days of ROCm 4
    assert find(ROCM_PATH="/nowhere") == ([], ("ROCM_PATH=/nowhere: no ROCm is there",))
    assert find(**{FORCE_ROCM: "10.1.3"}) == ([("10.1.3", "forced")], ())
    (forced,), _ = rocm.find_rocm_installations({FORCE_ROCM: "10.1.3"}, root=tmp_path)
    assert forced.path == FORCE_ROCM
    assert find(**{FORCE_ROCM: "None"}) == ([], ())


@pytest.mark.parametrize(
    ("text", "minor"),
    [
        *(("7.10.0rc20250801", "7.10"), ("7.0.2-56\n", "7.0"), ("10.1", "10.1"), ("7.2.0a20260916", "7.2")),
        *(("seven", None), ("7", None), ("", None), ("7.x", None)),
    ],
)
def test_versions_as_they_are_written(tmp_path: Path, text: str, minor: str | None) -> None:
    written(tmp_path, **{"opt__rocm__.info__version": text})
    hardware = look(tmp_path)
    assert variables.list_supported_features(hardware).get("rocm_version") == ((minor,) if minor else None)
    assert bool(hardware.faults) == (minor is None and bool(text))


def test_rocm_of_windows_and_packages_that_do_not_agree(tmp_path: Path) -> None:
    header = "#define HIP_VERSION_MAJOR 6\n#define HIP_VERSION_MINOR 2\n#define HIP_VERSION_PATCH 41512\n"
    written(tmp_path, **{"Program Files__AMD__ROCm__6.2__include__hip__hip_version.h": header})
    found, _ = rocm.find_rocm_installations({}, root=tmp_path, platform="win32")
    assert [(one.version, one.source) for one in found] == [("6.2.41512", "header")]
    written(
        tmp_path,
        **{
            "debian__usr__include__hip__hip_version.h": header,
            "core___rocm_sdk_core__.info__version": "7.9.0rc1",
        },
    )
    found, _ = rocm.find_rocm_installations({}, root=tmp_path / "debian", site_packages=[tmp_path / "core"])
    assert [(one.version, one.source) for one in found] == [("7.9.0rc1", "pip"), ("6.2.41512", "header")]
    for name in ("rocm_sdk_core-7.14.0.dist-info", "rocm-7.9.0rc1.dist-info"):
        (tmp_path / "site" / name).mkdir(parents=True)
    found, faults = rocm.find_rocm_installations({}, root=tmp_path / "no", site_packages=[tmp_path / "site"])
    assert "several versions" in faults[0] and found[0].version == "7.14.0"
