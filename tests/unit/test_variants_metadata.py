"""Variant documents: what is read, what is refused and how it is said, how those of a release join."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from variantlib.variants_json import VariantsJson

from rocm_wheels.core import DataError
from rocm_wheels.variants import (
    SCHEMA,
    SCHEMA_WITHOUT_PROVIDERS,
    Provider,
    VariantMetadata,
    list_static_support,
    make_properties,
    merge_documents,
    order_labels,
    parse_document,
    parse_wheel_document,
)

PLUGIN = {"requires": ["rocm-bootstrap>=0.3,<1"], "plugin-api": "rocm_bootstrap.variant_provider:Plugin"}


def document() -> dict[str, Any]:
    return {
        "$schema": SCHEMA,
        "default-priorities": {"namespace": ["amd", "rocm"]},
        "providers": {"amd": dict(PLUGIN), "rocm": {"static-properties": {"version": ["7.2", "7.1"]}}},
        "variants": {
            "null": {},
            "rocm7.1_gfx942": {"amd": {"gfx_arch": ["gfx942"]}, "rocm": {"version": ["7.1"]}},
            "rocm7.2_gfx9": {"amd": {"gfx_arch": ["gfx90a", "gfx942"]}, "rocm": {"version": ["7.2"]}},
        },
    }


def read(value: object) -> VariantMetadata:
    return parse_document(json.dumps(value).encode(), name="variant.json")


def test_a_document_is_read_and_written_back_as_it_was() -> None:
    found = read(document())
    assert found.namespaces == ("amd", "rocm")
    assert found.variants["rocm7.2_gfx9"] == {
        "amd": {"gfx_arch": ("gfx90a", "gfx942")},
        "rocm": {"version": ("7.2",)},
    }
    assert found.providers["amd"].plugin_api == "rocm_bootstrap.variant_provider:Plugin"
    assert json.loads(found.to_json()) == document()
    assert parse_document(found.to_json(), name="again") == found


def test_the_format_without_providers_is_read_and_stays_without() -> None:
    plain = document()
    del plain["providers"]
    plain["$schema"] = SCHEMA_WITHOUT_PROVIDERS
    assert json.loads(read(plain).to_json()) == plain


Change = Callable[[dict[str, Any]], object]
WRONG: list[tuple[Change, str]] = [
    (lambda d: d.pop("$schema"), "variant.json: $schema: is missing"),
    (
        lambda d: d.update({"$schema": "https://x/1.0.json"}),
        "$schema: 'https://x/1.0.json' is an unknown format",
    ),
    (lambda d: d.update({"$schema": SCHEMA_WITHOUT_PROVIDERS}), "providers: is not a key of the format"),
    (lambda d: d.pop("providers"), "providers: is missing"),
    (lambda d: d.update(variant={}), "variant: is not a known key; did you mean variants?"),
    (lambda d: d.pop("default-priorities"), "default-priorities: is missing"),
    (lambda d: d["default-priorities"].update(feature={}), "default-priorities.feature: is not a known key"),
    (
        lambda d: d["default-priorities"].update(namespace=[]),
        "default-priorities.namespace: is not a list with",
    ),
    (lambda d: d["default-priorities"].pop("namespace"), "default-priorities.namespace: is missing"),
    (lambda d: d["default-priorities"].update(namespace=["amd"] * 2), "namespace: amd is given twice"),
    (lambda d: d["default-priorities"].update(namespace=["amd", "ROCm"]), "namespace[1]: 'ROCm' has other"),
    (lambda d: d["default-priorities"].update(namespace=["amd", 1]), "namespace[1]: 1 is not a text"),
    (
        lambda d: d["default-priorities"].update(namespace=["amd"]),
        "rocm is not in default-priorities.namespace",
    ),
    (
        lambda d: d["default-priorities"].update(namespace=["amd", "rocm", "x"]),
        "providers: is for amd, rocm;",
    ),
    (lambda d: d.update(variants=[]), "variants: is not an object of JSON"),
    (lambda d: d["variants"].update({"ROCm-7": {}}), "variants.ROCm-7: 'ROCm-7' is not a variant label"),
    (lambda d: d["variants"].update(cpu={}), "variants.cpu: has no properties: its label must be null"),
    (lambda d: d["variants"].update(null={"amd": {"gfx_arch": ["gfx942"]}}), "variants.null: stands for no"),
    (lambda d: d["variants"].update(x={"amd": {"gfx_arch": ["gfx90a:xnack+"]}}), "'gfx90a:xnack+' has other"),
    (lambda d: d["variants"].update(x={"amd": {"gfx-arch": ["gfx942"]}}), "variants.x.amd: 'gfx-arch' has"),
    (lambda d: d["variants"].update(x={"amd": {"gfx_arch": []}}), "variants.x.amd.gfx_arch: is not a list"),
    (lambda d: d["variants"].update(x={"amd": {"gfx_arch": "gfx942"}}), "variants.x.amd.gfx_arch: is not a"),
    (lambda d: d["variants"].update(x={"amd": {"a": ["2", "1"]}}), "variants.x.amd.a: 2, 1 are not sorted"),
    (lambda d: d["variants"].update(x={"amd": {"a": ["1", "1"]}}), "variants.x.amd.a: 1 is given twice"),
    (lambda d: d["variants"].update(x={"amd": {"a": ["1\n"]}}), "variants.x.amd.a[0]: '1\\n' has other"),
    (
        lambda d: d["providers"]["amd"].pop("requires"),
        "providers.amd: must have exactly one of requires, sta",
    ),
    (lambda d: d["providers"]["amd"].update(builtin="abi_dependency"), "has requires and builtin"),
    (
        lambda d: d["providers"]["amd"].update(requires=["a b c"]),
        "providers.amd.requires: 'a b c' is not a req",
    ),
    (
        lambda d: d["providers"]["amd"].update({"install-time": True}),
        "providers.amd.install-time: is not a kn",
    ),
    (
        lambda d: d["providers"]["amd"].update({"build-requires": ["x"]}),
        "providers.amd.build-requires: is not",
    ),
    (lambda d: d["providers"]["amd"].update({"plugin-api": "a-b"}), "providers.amd.plugin-api: 'a-b' is not"),
    (lambda d: d["providers"]["amd"].update(optional="no"), "providers.amd.optional: 'no' is neither true"),
    (
        lambda d: d["providers"]["rocm"].update({"plugin-api": "a"}),
        "providers.rocm.plugin-api: goes with requ",
    ),
    (
        lambda d: d["providers"]["amd"].update({"feature-order": ["a"]}),
        "feature-order: goes with static-prop",
    ),
    (lambda d: d["providers"]["rocm"]["static-properties"].update(a=["1"]), "feature-order: is missing: it"),
    (
        lambda d: d["providers"]["rocm"].update({"feature-order": ["a"]}),
        "ranks a; static-properties has version",
    ),
    (
        lambda d: d["providers"]["rocm"].update({"static-properties": {}}),
        "static-properties: lists no feature",
    ),
    (lambda d: d["providers"].update(rocm={"builtin": "gpu"}), "providers.rocm.builtin: 'gpu' is not one of"),
    (lambda d: d["providers"].update(rocm=None), "providers.rocm: is not an object of JSON"),
]


@pytest.mark.parametrize(("change", "message"), WRONG)
def test_what_breaks_a_rule_is_refused_with_file_and_key(change: Change, message: str) -> None:
    value = document()
    change(value)
    with pytest.raises(DataError) as failure:
        read(value)
    assert message in str(failure.value)
    assert str(failure.value).startswith("variant.json: ")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "x.json is not JSON"),
        (b"\xff\xfe", "x.json is not JSON"),
        (b"[" * 100_000, "x.json is not JSON"),
        (b"[]", "x.json: is not an object of JSON"),
        (b'{"variants": {}, "variants": {}}', "x.json: variants: is given twice"),
    ],
)
def test_what_is_no_document_is_refused(content: bytes, message: str) -> None:
    with pytest.raises(DataError) as failure:
        parse_document(content, name="x.json")
    assert message in str(failure.value)


def test_a_wheel_states_its_own_variant_and_no_other() -> None:
    value = document()
    with pytest.raises(
        DataError, match=r"the file name says null, here is null, rocm7.1_gfx942, rocm7.2_gfx9"
    ):
        parse_wheel_document(json.dumps(value).encode(), name="x.whl", label="null")
    value["variants"] = {"null": {}}
    assert parse_wheel_document(json.dumps(value).encode(), name="x.whl", label="null").variants == {
        "null": {}
    }


# --- joining ---


def variant(label: str, *, namespaces: tuple[str, ...] = ("amd",), **values: str) -> VariantMetadata:
    providers = {"amd": Provider(requires=("rocm-bootstrap",)), "rocm": Provider(requires=("rocm-x",))}
    providers["nvidia"] = Provider(requires=("nvidia-variant-provider",))
    properties = make_properties((ns, "arch", value.split()) for ns, value in values.items())
    return VariantMetadata(namespaces, {label: properties}, {one: providers[one] for one in namespaces})


def test_several_vendors_join_in_one_release_whatever_the_order() -> None:
    wheels = [
        ("a.whl", variant("gfx942", amd="gfx942")),
        ("b.whl", variant("rocm7", namespaces=("amd", "rocm"), rocm="7")),
        ("c.whl", variant("cuda", namespaces=("amd", "rocm", "nvidia"), nvidia="sm_90")),
        ("d.whl", variant("null")),
        ("e.whl", variant("gfx942", amd="gfx942")),
    ]
    joined = {merge_documents(order).to_json() for order in itertools.permutations(wheels)}
    assert len(joined) == 1
    found = parse_document(joined.pop(), name="x-1-variants.json")
    assert found.namespaces == ("amd", "rocm", "nvidia")
    assert list(found.variants) == ["cuda", "gfx942", "null", "rocm7"]


@pytest.mark.parametrize(
    ("one", "other", "message"),
    [
        (
            variant("x", amd="gfx942"),
            variant("x", amd="gfx90a"),
            "a.whl and b.whl have the label x with differ",
        ),
        (
            variant("x", amd="1"),
            variant("y", namespaces=("rocm",), rocm="1"),
            "rank the namespaces differently",
        ),
        (
            variant("x", amd="1"),
            VariantMetadata(("amd",), {"null": {}}, {"amd": Provider(requires=("mine",))}),
            "a.whl and b.whl name different providers of amd",
        ),
        (
            variant("x", amd="1"),
            VariantMetadata(("amd", "rocm"), {"null": {}}),
            "b.whl names no provider of rocm, a.whl names its own",
        ),
    ],
)
def test_a_conflict_names_both_wheels(one: VariantMetadata, other: VariantMetadata, message: str) -> None:
    for documents in ([("a.whl", one), ("b.whl", other)], [("b.whl", other), ("a.whl", one)]):
        with pytest.raises(DataError) as failure:
            merge_documents(documents)
        assert message in str(failure.value)
        assert {"a.whl", "b.whl"} <= set(str(failure.value).split())


# --- order ---


def test_order_is_by_namespace_then_value_then_label_and_null_is_last() -> None:
    found = read(document())
    support: dict[str, Any] = {"amd": {"gfx_arch": ["gfx942", "gfx90a"]}, **list_static_support(found)}
    assert order_labels(found, support) == ["rocm7.2_gfx9", "rocm7.1_gfx942", "null"]
    support["amd"]["gfx_arch"] = ["gfx90a"]
    assert order_labels(found, support) == ["rocm7.2_gfx9", "null"]
    assert order_labels(found, {}) == ["null"]


def test_the_longer_of_two_lists_with_a_common_beginning_is_better() -> None:
    one, two = variant("a", amd="1"), variant("b", namespaces=("amd", "rocm"), amd="1 2", rocm="7")
    both = merge_documents([("a", one), ("b", two)])
    assert order_labels(both, {"amd": {"arch": ["1"]}, "rocm": {"arch": ["7"]}}) == ["b", "a"]
    assert order_labels(both, {"amd": {"arch": ["1"]}}) == ["a"]


words = st.text(alphabet="ab", min_size=1, max_size=1)
values = st.lists(st.sampled_from(["1", "2", "3.4"]), min_size=1, max_size=3, unique=True)
features = st.dictionaries(st.sampled_from(["f", "g"]), values, min_size=1)
sets = st.dictionaries(st.sampled_from(["p", "q"]), features, min_size=1)
statics = st.fixed_dictionaries({"p": features, "q": features})


@settings(max_examples=40, deadline=None)
@given(priorities=st.permutations(["p", "q"]), static=statics, variants=st.lists(sets, max_size=5))
def test_order_and_joining_agree_with_variantlib(
    priorities: list[str], static: dict[str, dict[str, list[str]]], variants: list[dict[str, Any]]
) -> None:
    """The reference implementation, as an oracle: what it reads, joins and ranks, we do too."""
    from variantlib.api import get_variants_by_priority

    providers = {
        ns: {"static-properties": found, "feature-order": sorted(found)} for ns, found in static.items()
    }
    labelled = {
        f"v{n}": {ns: {f: sorted(v) for f, v in found.items()} for ns, found in one.items()}
        for n, one in enumerate(variants)
    }
    value = {
        "$schema": SCHEMA,
        "default-priorities": {"namespace": priorities},
        "providers": providers,
        "variants": {**labelled, "null": {}},
    }
    ours = read(value)
    assert json.loads(VariantsJson(json.loads(ours.to_json())).to_str())["variants"] == value["variants"]
    ranked = order_labels(ours, list_static_support(ours))
    assert ranked == [one.label for one in get_variants_by_priority(variants_json=value)]  # type: ignore[arg-type]
