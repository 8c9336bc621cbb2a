"""The provider that we publish: what it reports of machines, made of files as the kernel driver writes them."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
import rocm_bootstrap.detect
from hypothesis import given
from hypothesis import strategies as st
from rocm_bootstrap.targets import ALL_TARGETS
from rocm_bootstrap.variant_provider import AMDVariantPlugin

SOURCE = Path(__file__).resolve().parents[2] / "build_tools" / "rocm_variant_provider" / "src"
sys.path.insert(0, str(SOURCE))
from rocm_variant_provider.detect import Machine, detect  # noqa: E402
from rocm_variant_provider.names import GENERICS, ROCM_VERSIONS, chip_of  # noqa: E402

import rocm_variant_provider as provider  # noqa: E402 - beside the project, not in it
from rocm_wheels.model.gfx import gfx_targets  # noqa: E402
from rocm_wheels.variants import targets  # noqa: E402
from rocm_wheels.variants.providers import LADDER, OWN  # noqa: E402

CPU = {"cpu_cores_count": 16, "simd_count": 0, "gfx_target_version": 0}


def machine(root: Path, *nodes: Mapping[str, object], rocm: str | None = None) -> Path:
    """Files of a machine with these nodes, numbered from 0, and with ROCm in /opt when ``rocm`` is given."""
    for number, node in enumerate(nodes):
        folder = root / "sys/class/kfd/kfd/topology/nodes" / str(number)
        folder.mkdir(parents=True)
        (folder / "properties").write_text("".join(f"{key} {value}\n" for key, value in node.items()))
    if rocm is not None:
        (root / "opt/rocm/.info").mkdir(parents=True)
        (root / "opt/rocm/.info/version").write_text(rocm)
    return root


def gpu(version: int, simds: int = 1216, **more: object) -> dict[str, object]:
    return {"cpu_cores_count": 0, "simd_count": simds, "gfx_target_version": version, **more}


@pytest.mark.parametrize(
    ("nodes", "chips"),
    [
        ([CPU], ()),
        ([CPU, gpu(90402), gpu(90402)], ("gfx942",)),
        ([CPU, gpu(90010)], ("gfx90a",)),
        ([CPU, gpu(100306, 4), gpu(110000, 192)], ("gfx1100", "gfx1036")),  # graphics in the CPU come first
        ([CPU, *[gpu(110003, 24)] * 9, gpu(120001, 128)], ("gfx1201", "gfx1103")),  # node 10 after node 9
        ([CPU, gpu(130102)], ("gfx1312",)),  # not known to anybody yet
        ([CPU, gpu(80003)], ("gfx803",)),
        ([CPU, gpu(90402, 0)], ()),  # a GPU without units, as a partition can be
        ([CPU, {"simd_count": "many", "gfx_target_version": "?"}, {"broken": ""}], ()),
        ([gpu(999999999), gpu(90402)], ("gfx942",)),
    ],
)
def test_gpus_are_named_the_biggest_first(
    tmp_path: Path, nodes: list[dict[str, object]], chips: tuple[str, ...]
) -> None:
    assert detect({}, machine(tmp_path, *nodes)) == Machine(chips)


def test_a_machine_without_a_driver_or_with_a_node_that_is_closed(tmp_path: Path) -> None:
    assert detect({}, tmp_path) == Machine()
    root = machine(tmp_path, CPU, gpu(90402), gpu(110000))
    (root / "sys/class/kfd/kfd/topology/nodes/1/properties").unlink()
    (root / "sys/class/kfd/kfd/topology/nodes/notes").mkdir()
    assert detect({}, root).chips == ("gfx1100",)


@pytest.mark.parametrize(
    ("env", "found"),
    [
        (
            {"ROCM_VARIANT_PROVIDER_FORCE_GFX_ARCH": "gfx90a:xnack+, gfx11-generic"},
            (("gfx90a", "gfx11_generic"), "7.2"),
        ),
        ({"ROCM_VARIANT_PROVIDER_FORCE_GFX_ARCH": "none"}, ((), "7.2")),
        ({"ROCM_VARIANT_PROVIDER_FORCE_GFX_ARCH": " "}, (("gfx942",), "7.2")),
        ({"ROCM_VARIANT_PROVIDER_FORCE_ROCM_VERSION": "10.1.3"}, (("gfx942",), "10.1")),
        ({"ROCM_VARIANT_PROVIDER_FORCE_ROCM_VERSION": "none"}, (("gfx942",), None)),
        ({"HSA_OVERRIDE_GFX_VERSION": "11.0.0"}, (("gfx1100",), "7.2")),
        ({"ROCM_PATH": "/nowhere"}, (("gfx942",), None)),
        ({"HIP_VISIBLE_DEVICES": "", "ROCR_VISIBLE_DEVICES": ""}, (("gfx942",), "7.2")),
    ],
)
def test_variables_say_what_to_report(
    tmp_path: Path, env: dict[str, str], found: tuple[tuple[str, ...], str]
) -> None:
    assert detect(env, machine(tmp_path, CPU, gpu(90402), rocm="7.2.0-43")) == Machine(*found)


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("ROCM_VARIANT_PROVIDER_FORCE_GFX_ARCH", "MI300", "'MI300' is not the name of a GPU"),
        ("ROCM_VARIANT_PROVIDER_FORCE_GFX_ARCH", "gfx942,gfx", "'gfx' is not the name of a GPU"),
        ("ROCM_VARIANT_PROVIDER_FORCE_ROCM_VERSION", "7", "'7' is not a version such as 7.2"),
        ("HSA_OVERRIDE_GFX_VERSION", "gfx1100", "'gfx1100' is not a version such as 11.0.0"),
    ],
)
def test_a_variable_that_cannot_be_read_is_named(
    tmp_path: Path, variable: str, value: str, message: str
) -> None:
    with pytest.raises(ValueError, match="is not") as failure:
        detect({variable: value}, machine(tmp_path, gpu(90402)))
    assert str(failure.value) == f"{variable}: {message}" + (" such as gfx942" if "GPU" in message else "")


@pytest.mark.parametrize(
    ("text", "version"),
    [("7.10.0rc20250801", "7.10"), ("7.0.2-56\n", "7.0"), ("10.1", "10.1"), ("seven", None), ("", None)],
)
def test_rocm_is_told_by_its_own_file(tmp_path: Path, text: str, version: str | None) -> None:
    assert detect({}, machine(tmp_path, rocm=text)).rocm_version == version


def configs(env: dict[str, str], root: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    monkeypatch.setattr(provider, "detect", lambda *_: detect(env, root))
    found = {config.name: config.values for config in provider.get_supported_configs()}
    known = {config.name: config.values for config in provider.get_all_configs()}
    assert all(set(values) <= set(known[name]) for name, values in found.items()), (
        "supported is a part of all"
    )
    return found


def test_generic_targets_come_after_the_exact_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = machine(tmp_path, CPU, gpu(110003, 24), gpu(90402), gpu(130102, 8), rocm="9.42.0")
    assert configs({}, root, monkeypatch) == {
        "gfx_arch": ["gfx942", "gfx1103", "gfx1312", "gfx9_4_generic", "gfx11_generic"],
        "rocm_version": ["9.42"],
    }
    assert configs({}, tmp_path / "no", monkeypatch) == {}


def test_amds_own_provider_has_the_same_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wheels stamped for one provider must mean the same to the other, for every chip that AMD's knows."""
    theirs = {value for config in AMDVariantPlugin.get_all_configs() for value in config.values}
    ours = {config.name: set(config.values) for config in provider.get_all_configs()}
    assert theirs <= ours["gfx_arch"]
    assert set(gfx_targets()) <= ours["gfx_arch"]
    for target in ALL_TARGETS:
        here = detect({}, machine(tmp_path / target.name, CPU, gpu(target.gfx_target_version)))
        monkeypatch.setattr(rocm_bootstrap.variant_provider, "detect_gfx_targets", lambda one=target: [one])
        (config,) = AMDVariantPlugin.get_supported_configs()
        assert list(here.chips) == config.values


def test_the_product_and_the_provider_have_the_same_tables() -> None:
    assert {name.replace("-", "_"): chips for name, chips in targets.GENERICS.items()} == GENERICS
    assert tuple(ROCM_VERSIONS) == LADDER
    assert OWN.plugin_api == provider.__name__


@given(st.integers(min_value=0, max_value=10**7))
def test_every_number_has_a_name_that_is_a_value_or_none(version: int) -> None:
    name = chip_of(version)
    assert name is None or name.removeprefix("gfx").isalnum()
