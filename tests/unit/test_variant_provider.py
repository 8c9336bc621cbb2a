"""The provider that we publish, on machines made of files as the kernel driver writes them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import rocm_bootstrap.detect
import rocm_bootstrap.variant_provider
from machines import CPU, MACHINES, gpu, machine, programs
from rocm_bootstrap.targets import ALL_TARGETS
from rocm_bootstrap.variant_provider import AMDVariantPlugin

from rocm_wheels import gpus
from rocm_wheels.gpus import detect, variables
from rocm_wheels.gpus.gpu import GENERIC_TARGETS
from rocm_wheels.models import gfx
from rocm_wheels.variants import document

SOURCE = Path(__file__).resolve().parents[2] / "build_tools" / "rocm_variant_provider" / "src"
sys.path.insert(0, str(SOURCE))
sys.modules["rocm_variant_provider.gpus"] = gpus  # the build copies the room to this name
import rocm_variant_provider as provider  # noqa: E402 - beside the project, not in it

pytestmark = pytest.mark.contract


def test_the_plugin_reports_what_the_machine_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = machine(tmp_path, *MACHINES["unreadable"], rocm="7.2.0-43")
    monkeypatch.setattr(
        provider, "detect_hardware", lambda env, **more: detect.detect_hardware({}, root=root, **more)
    )
    here = provider.get_supported_configs()
    assert [(one.name, one.values, one.multi_value) for one in here] == [
        ("gfx_arch", ["gfx1100", "gfx942", "gfx11_generic", "gfx9_4_generic"], True),
        ("rocm_version", ["7.2"], False),
    ]
    assert "node 1 of the amdgpu driver is a GPU with gfx_target_version 999999999" in capsys.readouterr().err
    everything = {one.name: one.values for one in provider.get_all_configs()}
    assert all(set(one.values) <= set(everything[one.name]) for one in here)
    assert capsys.readouterr().err == "", "once is enough"


def test_a_variable_that_cannot_be_read_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROCM_VARIANT_PROVIDER_FORCE_GFX_ARCH", "MI300")
    for ask in (provider.get_supported_configs, provider.get_all_configs):
        with pytest.raises(
            ValueError, match=r"^ROCM_VARIANT_PROVIDER_FORCE_GFX_ARCH: MI300 is no GPU target"
        ):
            ask()


@pytest.mark.parametrize("target", ALL_TARGETS, ids=lambda target: target.name)
def test_amds_own_provider_says_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: rocm_bootstrap.GfxTarget
) -> None:
    """Wheels stamped for one provider must mean the same to the other, for every chip that AMD's knows."""
    root = machine(tmp_path, CPU, gpu(target.gfx_target_version, 0xFFFE, 3))
    kernel = root / "sys/class/kfd/kfd/topology/nodes"
    monkeypatch.setattr(rocm_bootstrap.detect._platform, "KFD_TOPOLOGY", kernel)
    ours = variables.list_supported_features(detect.detect_hardware({}, root=root, run=programs()))[
        "gfx_arch"
    ]
    (theirs,) = AMDVariantPlugin.get_supported_configs()
    assert [value for value in ours if value not in GENERIC_TARGETS] == theirs.values
    forced = {"ROCM_BOOTSTRAP_FORCE_GFX_ARCH": target.name}  # gfx1250-strict has no number of its own
    monkeypatch.setattr(rocm_bootstrap.detect._platform, "get_env", forced.get)
    (theirs,) = AMDVariantPlugin.get_supported_configs()
    assert (
        variables.list_supported_features(detect.detect_hardware(forced, root=root, run=programs()))[
            "gfx_arch"
        ][0]
        == theirs.values[0]
    )


def test_amds_own_provider_has_no_name_that_is_not_known_here() -> None:
    theirs = {value for config in AMDVariantPlugin.get_all_configs() for value in config.values}
    assert len(ALL_TARGETS) == 34 and theirs <= set(variables.list_known_features({})["gfx_arch"])
    assert set(gfx.get_gfx_targets()) <= set(variables.list_known_features({})["gfx_arch"])


def test_what_stamps_name_is_what_the_provider_is_called() -> None:
    assert document.make_own_provider().plugin_api == provider.__name__
