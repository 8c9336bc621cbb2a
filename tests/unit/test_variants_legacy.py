"""Documents of 2025 and of other producers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rocm_wheels.core import errors
from rocm_wheels.variants.document import make_bootstrap_provider, read_any_format, read_wheel_document

pytestmark = pytest.mark.contract

# format 0.0.3, as torch's experimental indexes of 2025 had it
OLD: dict[str, Any] = {
    "$schema": "https://variants-schema.wheelnext.dev/v0.0.3.json",
    "default-priorities": {"namespace": ["nvidia", "amd", "priority"],
     "feature": {"nvidia": ["cuda_version_lower_bound"]}, "property": {"amd": {"rocm_version": ["7.1"]}}},
    "providers": {
        "amd": {
            "requires": ["amd-variant-provider>=0.0.2,<1"],
            "plugin-api": "amd_variant_provider.plugin:AMDVariantPlugin",
            "enable-if": "platform_system == 'Linux'",
        },
        "nvidia": {"requires": ["nvidia-variant-provider>=0.0.1,<1.0.0"], "install-time": True},
        "priority": {"requires": ["p>=1"], "install-time": False, "plugin-use": "build"},
    },
    "static-properties": {"priority": {"order": ["1", "2"]}},
    "variants": {"cuda12.8": {"nvidia": {"sm_arch": ["90_real", "100_real"]}, "priority": {"order": ["1"]}},
     "null": {}, "rocm7.1": {"amd": {"gfx_arch": ["gfx942", "gfx90a"], "rocm_version": ["7.1"]}}},
}  # fmt: skip
# what a kernel splitter writes into a wheel: one entry a target, no label, no schema
SPLIT: dict[str, Any] = {
    "providers": {
        "amd": {"install-time": True, "plugin-api": "a:B", "requires": ["amd-variant-provider >= 1.0"]}
    },
    "default-priorities": {"namespace": ["amd"], "property": {"amd": {"gfx_arch": ["gfx942", "gfx90a"]}}},
    "variants": {"gfx90a": {"amd": {"gfx_arch": ["gfx90a"]}}, "gfx942": {"amd": {"gfx_arch": ["gfx942"]}}},
}


def read(value: object, label: str | None = None) -> Any:
    return read_any_format(json.dumps(value).encode(), name="old.json", label=label)


def test_a_document_of_2025_is_read_and_what_is_left_out_is_named() -> None:
    found = read(OLD)
    assert found.namespaces == ("nvidia", "amd", "priority")
    assert found.variants["rocm7.1"] == {"amd": {"gfx_arch": ("gfx90a", "gfx942"), "rocm_version": ("7.1",)}}
    assert found.providers.keys() == {"nvidia", "amd", "priority"}
    assert found.providers["amd"] == make_bootstrap_provider(), "one that nobody owns is not kept"
    assert found.providers["priority"].static_properties == {"order": ("1", "2")}
    said = "\n".join(found.notes)
    for part in ("v0.0.3", "priorities.feature", "priorities.property", "amd.enable-if", "is not registered"):
        assert part in said


def test_an_entry_for_each_target_becomes_the_label_of_the_wheel() -> None:
    found = read(SPLIT, label="gfx9_dc")
    assert found.variants == {"gfx9_dc": {"amd": {"gfx_arch": ("gfx90a", "gfx942")}}}
    assert "variants had gfx90a, gfx942 instead of gfx9_dc" in found.notes
    assert read(SPLIT, label="gfx942").variants == {"gfx942": {"amd": {"gfx_arch": ("gfx942",)}}}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"variants": {"x": {"amd": {"gfx_arch": ["gfx90a:xnack+"]}}}},
            "variants.x.amd.gfx_arch.0: it must be of the characters a-z, 0-9, _ and . (found 'gfx90a:x",
        ),
        ({"default-priorities": {"order": []}}, "default-priorities.order: Extra inputs are not permitted"),
        ({"default-priorities": {}}, "default-priorities.namespace: Field required"),
        ({"providers": {"amd": {"needs": []}}}, "providers.amd.needs: Extra inputs are not permitted"),
        ({"wheel": 1}, "wheel: Extra inputs are not permitted"),
    ],
)
def test_what_no_format_allows_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(errors.DataError) as failure:
        read({**OLD, **change})
    assert message in str(failure.value)


def test_a_wheel_of_any_form_is_read_as_one_of_today() -> None:
    document, notes = read_wheel_document(json.dumps(SPLIT).encode(), name="split", label="gfx9_dc")
    assert notes
    assert document.variants == {"gfx9_dc": {"amd": {"gfx_arch": ("gfx90a", "gfx942")}}}
    assert document.providers["amd"].requires == make_bootstrap_provider().requires, "one that somebody owns"
    same, none = read_wheel_document(document.to_json(), name="today", label="gfx9_dc")
    assert (same, none) == (document, ())
    with pytest.raises(errors.DataError, match=r"format 2\.0 is newer"):
        read_any_format(json.dumps({**OLD, "$schema": "https://x/v2.0.0.json"}).encode(), name="new.json")
