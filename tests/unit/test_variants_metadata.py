"""Variant documents: what is read, what is refused and how it is said, how those of a release join."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from typing import Any

import pytest
from commands import refused, transcript
from hypothesis import given, settings
from hypothesis import strategies as st
from variantlib.variants_json import VariantsJson

from rocm_wheels.core import errors
from rocm_wheels.variants import document as documents
from rocm_wheels.variants.document import SCHEMA, Provider, VariantMetadata, parse_document
from rocm_wheels.variants.order import find_support, order_labels

pytestmark = pytest.mark.contract

_ = transcript  # a fixture for every test here
MESSAGES = "variants"

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
    plain["$schema"] = documents.SCHEMA_WITHOUT_PROVIDERS
    assert json.loads(read(plain).to_json()) == plain


Change = Callable[[dict[str, Any]], object]
WRONG: list[Change] = [
    lambda d: d.pop("$schema"),
    lambda d: d.update({"$schema": "https://x/1.0.json"}),
    lambda d: d.update({"$schema": documents.SCHEMA_WITHOUT_PROVIDERS}),
    lambda d: d.pop("providers"),
    lambda d: d.update(variant={}),
    lambda d: d.pop("default-priorities"),
    lambda d: d["default-priorities"].update(feature={}),
    lambda d: d["default-priorities"].update(namespace=[]),
    lambda d: d["default-priorities"].pop("namespace"),
    lambda d: d["default-priorities"].update(namespace=["amd"] * 2),
    lambda d: d["default-priorities"].update(namespace=["amd", "ROCm"]),
    lambda d: d["default-priorities"].update(namespace=["amd", 1]),
    lambda d: d["default-priorities"].update(namespace=["amd"]),
    lambda d: d["default-priorities"].update(namespace=["amd", "rocm", "x"]),
    lambda d: d.update(variants=[]),
    lambda d: d["variants"].update({"ROCm-7": {}}),
    lambda d: d["variants"].update(cpu={}),
    lambda d: d["variants"].update(null={"amd": {"gfx_arch": ["gfx942"]}}),
    lambda d: d["variants"].update(x={"amd": {"gfx_arch": ["gfx90a:xnack+"]}}),
    lambda d: d["variants"].update(x={"amd": {"gfx-arch": ["gfx942"]}}),
    lambda d: d["variants"].update(x={"amd": {"gfx_arch": []}}),
    lambda d: d["variants"].update(x={"amd": {"gfx_arch": "gfx942"}}),
    lambda d: d["variants"].update(x={"amd": {"a": ["2", "1"]}}),
    lambda d: d["variants"].update(x={"amd": {"a": ["1", "1"]}}),
    lambda d: d["variants"].update(x={"amd": {"a": ["1\n"]}}),
    lambda d: d["providers"]["amd"].pop("requires"),
    lambda d: d["providers"]["amd"].update(builtin="abi_dependency"),
    lambda d: d["providers"]["amd"].update(requires=["a b c"]),
    lambda d: d["providers"]["amd"].update({"install-time": True}),
    lambda d: d["providers"]["amd"].update({"build-requires": ["x"]}),
    lambda d: d["providers"]["amd"].update({"plugin-api": "a-b"}),
    lambda d: d["providers"]["amd"].update(optional="no"),
    lambda d: d["providers"]["rocm"].update({"plugin-api": "a"}),
    lambda d: d["providers"]["amd"].update({"feature-order": ["a"]}),
    lambda d: d["providers"]["rocm"]["static-properties"].update(a=["1"]),
    lambda d: d["providers"]["rocm"].update({"feature-order": ["a"]}),
    lambda d: d["providers"]["rocm"].update({"static-properties": {}}),
    lambda d: d["providers"].update(rocm={"builtin": "gpu"}),
    lambda d: d["providers"].update(rocm=None),
]


@pytest.mark.parametrize("number", range(len(WRONG)))
def test_what_breaks_a_rule_is_refused_with_file_and_key(number: int) -> None:
    value = document()
    WRONG[number](value)
    with refused(errors.DataError) as failure:
        read(value)
    assert str(failure.value).startswith("variant.json: ")


@pytest.mark.parametrize(
    "content", [b"", b"\xff\xfe", b"[" * 100_000, b"[]", b'{"variants": {}, "variants": {}}']
)
def test_what_is_no_document_is_refused(content: bytes) -> None:
    with refused(errors.DataError):
        parse_document(content, name="x.json")


def test_a_wheel_states_its_own_variant_and_no_other() -> None:
    value = document()
    with refused(errors.DataError):
        documents.parse_wheel_document(json.dumps(value).encode(), name="x.whl", label="null")
    value["variants"] = {"null": {}}
    found = documents.parse_wheel_document(json.dumps(value).encode(), name="x.whl", label="null")
    assert found.variants == {"null": {}}


# --- joining ---


def variant(label: str, *, namespaces: tuple[str, ...] = ("amd",), **values: str) -> VariantMetadata:
    providers = {"amd": Provider(requires=("rocm-bootstrap",)), "rocm": Provider(requires=("rocm-x",))}
    providers["nvidia"] = Provider(requires=("nvidia-variant-provider",))
    properties = documents.make_properties((ns, "arch", value.split()) for ns, value in values.items())
    return VariantMetadata(namespaces, {label: properties}, {one: providers[one] for one in namespaces})


def test_several_vendors_join_in_one_release_whatever_the_order() -> None:
    wheels = [
        ("a.whl", variant("gfx942", amd="gfx942")),
        ("b.whl", variant("rocm7", namespaces=("amd", "rocm"), rocm="7")),
        ("c.whl", variant("cuda", namespaces=("amd", "rocm", "nvidia"), nvidia="sm_90")),
        ("d.whl", variant("null")),
        ("e.whl", variant("gfx942", amd="gfx942")),
    ]
    joined = {documents.merge_documents(order).to_json() for order in itertools.permutations(wheels)}
    assert len(joined) == 1
    found = parse_document(joined.pop(), name="x-1-variants.json")
    assert found.namespaces == ("amd", "rocm", "nvidia")
    assert list(found.variants) == ["cuda", "gfx942", "null", "rocm7"]


@pytest.mark.parametrize(
    ("one", "other", "message"),
    [
        (variant("x", amd="gfx942"), variant("x", amd="gfx90a"),
         "a.whl and b.whl have the label x with differ"),
        (variant("x", amd="1"), variant("y", namespaces=("rocm",), rocm="1"),
         "rank the namespaces differently"),
        (variant("x", amd="1"),
         VariantMetadata(("amd",), {"null": {}}, {"amd": Provider(requires=("mine",))}),
         "a.whl and b.whl name different providers of amd"),
        (variant("x", amd="1"), VariantMetadata(("amd", "rocm"), {"null": {}}),
         "b.whl names no provider of rocm, a.whl names its own"),
    ],
)  # fmt: skip
def test_a_conflict_names_both_wheels(one: VariantMetadata, other: VariantMetadata, message: str) -> None:
    wheels = [("a.whl", one), ("b.whl", other)]
    for ordered in (wheels, wheels[::-1]):
        with pytest.raises(errors.DataError) as failure:
            documents.merge_documents(ordered)
        assert message in str(failure.value)
        assert {"a.whl", "b.whl"} <= set(str(failure.value).split())


# --- order ---


def list_listed(metadata: VariantMetadata) -> dict[str, Any]:
    """What every machine supports by the document's own word."""
    answers = find_support(metadata, {})
    return {namespace: answer.features for namespace, answer in answers.items() if answer.features}


def test_order_is_by_namespace_then_value_then_label_and_null_is_last() -> None:
    found = read(document())
    support: dict[str, Any] = {"amd": {"gfx_arch": ["gfx942", "gfx90a"]}, **list_listed(found)}
    assert order_labels(found, support) == ["rocm7.2_gfx9", "rocm7.1_gfx942", "null"]
    support["amd"]["gfx_arch"] = ["gfx90a"]
    assert order_labels(found, support) == ["rocm7.2_gfx9", "null"]
    assert order_labels(found, {}) == ["null"]


def test_the_longer_of_two_lists_with_a_common_beginning_is_better() -> None:
    one, two = variant("a", amd="1"), variant("b", namespaces=("amd", "rocm"), amd="1 2", rocm="7")
    both = documents.merge_documents([("a", one), ("b", two)])
    assert order_labels(both, {"amd": {"arch": ["1"]}, "rocm": {"arch": ["7"]}}) == ["b", "a"]
    assert order_labels(both, {"amd": {"arch": ["1"]}}) == ["a"]


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
    ranked = order_labels(ours, list_listed(ours))
    assert ranked == [one.label for one in get_variants_by_priority(variants_json=value)]  # type: ignore[arg-type]
