"""Names of device wheels are those of rocm-bootstrap, AMD's own table."""

from __future__ import annotations

import pytest
import rocm_bootstrap
from rocm_bootstrap.targets import ALL_TARGETS, all_bundles

from rocm_wheels.models import gfx
from rocm_wheels.variants import device_names

pytestmark = pytest.mark.contract


def test_packages_and_parents_of_every_target_agree_with_rocm_bootstrap() -> None:
    for target in ALL_TARGETS:
        chain = tuple(bundle.key for bundle in rocm_bootstrap.packaging_chain(target.name))
        assert device_names.get_package_chain(target.name) == chain
        assert device_names.find_package_key(target.name) == chain[0]
    for name in gfx.get_gfx_targets():
        assert device_names.get_package_chain(name)[0] == name


def test_distributions_agree_with_rocm_bootstrap() -> None:
    for bundle in all_bundles():
        name = rocm_bootstrap.device_dist_name("amd-torch-device", bundle)
        assert device_names.make_device_name("torch", bundle.key) == name


def test_generic_code_is_where_all_its_chips_look() -> None:
    """Theirs has gfx9-4-generic at gfx9_4, which gfx950 does not require: its code is one level up."""
    for bundle in all_bundles():
        if bundle.llvm_generic and bundle.llvm_generic != "gfx9-4-generic":
            assert device_names.find_package_key(bundle.llvm_generic) == bundle.key
    assert device_names.find_package_key("gfx9-4-generic") == "gfx9"


def test_labels_of_families_are_their_packages() -> None:
    labels = {"gfx11xx": "gfx11", "gfx110x": "gfx110x", "gfx115x": "gfx115x", "gfx120x": "gfx12_0"}
    assert {label: device_names.find_package_key(label) for label in labels} == labels
