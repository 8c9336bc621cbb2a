"""Documents of 2025 and of other producers, and requirements with variant markers."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.requirements import Requirement

from rocm_wheels.core import errors
from rocm_wheels.variants import markers
from rocm_wheels.variants.document import (
    ROCM_BOOTSTRAP_PROVIDER,
    make_properties,
    read_any_format,
    read_wheel_document,
)
from rocm_wheels.wheels import dist_info

# format 0.0.3, as torch's experimental indexes of 2025 had it
OLD: dict[str, Any] = {
    "$schema": "https://variants-schema.wheelnext.dev/v0.0.3.json",
    "default-priorities": {
        "namespace": ["nvidia", "amd", "priority"],
        "feature": {"nvidia": ["cuda_version_lower_bound"]},
        "property": {"amd": {"rocm_version": ["7.1"]}},
    },
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
    "variants": {
        "cuda12.8": {"nvidia": {"sm_arch": ["90_real", "100_real"]}, "priority": {"order": ["1"]}},
        "null": {},
        "rocm7.1": {"amd": {"gfx_arch": ["gfx942", "gfx90a"], "rocm_version": ["7.1"]}},
    },
}
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


@pytest.mark.contract
def test_a_document_of_2025_is_read_and_what_is_left_out_is_named() -> None:
    found = read(OLD)
    assert found.namespaces == ("nvidia", "amd", "priority")
    assert found.variants["rocm7.1"] == {"amd": {"gfx_arch": ("gfx90a", "gfx942"), "rocm_version": ("7.1",)}}
    assert found.providers.keys() == {"nvidia", "priority"}, "a provider that nobody owns is not kept"
    assert found.providers["priority"].static_properties == {"order": ("1", "2")}
    said = "\n".join(found.notes)
    for part in (
        "v0.0.3",
        "priorities.feature",
        "priorities.property",
        "amd.enable-if",
        "is not registered",
    ):
        assert part in said


@pytest.mark.contract
def test_an_entry_for_each_target_becomes_the_label_of_the_wheel() -> None:
    found = read(SPLIT, label="gfx9_dc")
    assert found.variants == {"gfx9_dc": {"amd": {"gfx_arch": ("gfx90a", "gfx942")}}}
    assert "variants had gfx90a, gfx942 instead of gfx9_dc" in found.notes
    assert read(SPLIT, label="gfx942").variants == {"gfx942": {"amd": {"gfx_arch": ("gfx942",)}}}


@pytest.mark.contract
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"variants": {"x": {"amd": {"gfx_arch": ["gfx90a:xnack+"]}}}},
            "variants.x.amd.gfx_arch[0]: 'gfx90a:x",
        ),
        ({"default-priorities": {"order": []}}, "default-priorities.order: is not a known key"),
        ({"default-priorities": {}}, "default-priorities.namespace: is missing"),
        ({"providers": {"amd": {"needs": []}}}, "providers.amd.needs: is not a known key"),
        ({"wheel": 1}, "wheel: is not a known key"),
    ],
)
def test_what_no_format_allows_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(errors.DataError) as failure:
        read({**OLD, **change})
    assert message in str(failure.value)


@pytest.mark.contract
def test_a_wheel_of_any_form_is_read_as_one_of_today() -> None:
    document, notes = read_wheel_document(json.dumps(SPLIT).encode(), name="split", label="gfx9_dc")
    assert notes
    assert document.variants == {"gfx9_dc": {"amd": {"gfx_arch": ("gfx90a", "gfx942")}}}
    assert document.providers["amd"].requires == ROCM_BOOTSTRAP_PROVIDER.requires, "one that somebody owns"
    same, none = read_wheel_document(document.to_json(), name="today", label="gfx9_dc")
    assert (same, none) == (document, ())
    with pytest.raises(errors.DataError, match=r"format 2\.0 is newer"):
        read_any_format(json.dumps({**OLD, "$schema": "https://x/v2.0.0.json"}).encode(), name="new.json")


# --- markers ---

ONE = make_properties([("amd", "gfx_arch", ["gfx942"]), ("rocm", "version", ["7.2"])])
TWO = make_properties([("amd", "gfx_arch", ["gfx942", "gfx1100"])])
ARCH = '"amd :: gfx_arch :: gfx942" in variant_properties'


@pytest.mark.parametrize(
    ("requirement", "decided"),
    [
        (f"kernels-gfx942==1.0; {ARCH}", "kernels-gfx942==1.0"),
        (f"x ; not_real == 'a' or {ARCH}", "x"),
        ("x; 'amd :: gfx_arch :: gfx1201' in variant_properties", None),
        ("x; 'nvidia' in variant_namespaces", None),
        ("x; 'nvidia' not in variant_namespaces", "x"),
        ("x; 'amd :: gfx_arch' in variant_features and 'rocm :: other' not in variant_features", "x"),
        ("x[extra]>=1; variant_label == 'one'", "x[extra]>=1"),
        ("x; 'two' == variant_label or variant_label != 'one'", None),
        (f"x; {ARCH} and platform_system == 'Linux'", "x ; platform_system == 'Linux'"),
        (
            f"x; ({ARCH} and python_version < '3.12') or platform_system == 'Linux'",
            "x ; python_version < '3.12' or platform_system == 'Linux'",
        ),
        (
            f"x; (python_version < '3.12' or os_name == 'nt') and {ARCH} and extra == 'e'",
            "x ; (python_version < '3.12' or os_name == 'nt') and extra == 'e'",
        ),
    ],
)
def test_a_marker_that_the_wheel_decides_is_decided(requirement: str, decided: str | None) -> None:
    assert markers.decide_requirement(requirement, "one", ONE) == decided
    if decided:
        Requirement(decided)


@pytest.mark.parametrize(
    ("requirement", "message"),
    [
        ("x; variant_label in 'one'", "in with variant_label has no meaning here"),
        ("x; 'amd' == variant_namespaces", "'amd' == variant_namespaces has no meaning here"),
        (
            "x; 'amd :: gfx_arch' in variant_namespaces",
            "'amd :: gfx_arch' is not what variant_namespaces holds",
        ),
        ("x; amd in variant_namespaces", "amd is not a text in quotes"),
        ("x; ('amd' in variant_namespaces", "its marker ends too early"),
        ("x; 'amd' in variant_namespaces) ", ") is not expected there"),
        ("x; 'amd' in variant_namespaces ?", "'?' is no marker"),
    ],
)
def test_a_marker_that_the_wheel_does_not_decide_is_refused_with_the_reason(
    requirement: str, message: str
) -> None:
    with pytest.raises(errors.DataError) as failure:
        markers.decide_requirement(requirement, "one", TWO)
    assert message in str(failure.value)
    assert dist_info.has_variant_marker(requirement)


plain = st.sampled_from(["python_version < '3'", "python_version >= '3'", "os_name == 'none'"])
ours = st.sampled_from(["'amd' in variant_namespaces", "'x' in variant_namespaces", "variant_label == 'one'"])
trees = st.recursive(
    plain | ours,
    lambda inner: st.builds(
        lambda a, how, b: f"({a} {how} {b})", inner, st.sampled_from(["and", "or"]), inner
    ),
)


STANDS_FOR = {
    "'amd' in variant_namespaces": "os_name != 'none'",
    "variant_label == 'one'": "os_name != 'none'",
    "'x' in variant_namespaces": "os_name == 'none'",
}


@given(trees)
def test_deciding_keeps_the_meaning_of_the_rest(tree: str) -> None:
    known = tree
    for marker, plain_marker in STANDS_FOR.items():
        known = known.replace(marker, plain_marker)
    wanted = Requirement(f"x; {known}").marker
    decided = markers.decide_requirement(f"x; {tree}", "one", ONE)
    left = Requirement(decided).marker if decided else None
    assert wanted is not None
    assert (decided is not None and (left is None or left.evaluate())) == wanted.evaluate()
