"""The ordering of variants: 3,000 random releases and machines, each ranked as variantlib ranks it."""

from __future__ import annotations

import importlib.metadata
import itertools
import random
from typing import Any

import pytest
from variantlib.models.variant import VariantDescription, VariantProperty
from variantlib.resolver.lib import sort_and_filter_supported_variants

from rocm_wheels.variants import document, order

pytestmark = pytest.mark.contract

CASES = 3_000
SEED = 825
VALUES = {
    ("amd", "gfx_arch"): ("gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1103", "gfx1151", "gfx11_generic"),
    ("amd", "rocm_version"): ("6.4", "7.0", "7.1", "7.2", "10.1"),
    ("rocm", "version"): ("7.0", "7.1", "7.2", "7.14", "10.1"),
    ("priority", "order"): ("1", "2", "3"),
    ("nvidia", "sm_arch"): ("sm_90", "sm_100"),
    ("nvidia", "cuda"): ("12", "13"),
}
Case = tuple[document.VariantMetadata, dict[str, dict[str, tuple[str, ...]]]]


def random_case(chance: random.Random) -> Case:
    """A release of up to 12 variants, and a machine that supports some of what they want, in some order."""
    namespaces = chance.sample(["amd", "rocm", "priority", "nvidia"], chance.randint(1, 4))
    known = [key for key in VALUES if key[0] in namespaces]
    variants = {}
    for number in range(chance.randint(0, 12)):
        chosen = chance.sample(known, chance.randint(1, min(4, len(known))))
        parts = [(ns, f, chance.sample(VALUES[ns, f], chance.randint(1, 2))) for ns, f in chosen]
        variants[f"{chance.choice('abc')}{number}"] = document.make_properties(parts)
    if chance.random() < 0.7:
        variants["null"] = {}
    supported: dict[str, dict[str, tuple[str, ...]]] = {}
    for ns, feature in chance.sample(known, len(known)):
        several = VALUES[ns, feature]
        if chance.random() < 0.9:
            least = 1 + len(several) // 2
            got = tuple(chance.sample(several, chance.randint(least, len(several))))
            supported.setdefault(ns, {})[feature] = got
    return document.VariantMetadata(tuple(namespaces), variants), supported


@pytest.fixture
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out what takes most of variantlib's time and is not its order: what is installed, types of values."""
    monkeypatch.setattr(importlib.metadata, "distributions", lambda: iter(()))
    monkeypatch.setattr("variantlib.validators.base._validate_type", lambda *_: None)


def list_values(properties: Any) -> list[VariantProperty]:
    return [
        VariantProperty(ns, feature, value)
        for ns, features in properties.items()
        for feature, values in features.items()
        for value in values
    ]


def by_variantlib(case: Case) -> list[str]:
    """Rank as variantlib does; it adds a null variant where a release has none."""
    metadata, supported = case
    variants = metadata.variants.items()
    ranked = sort_and_filter_supported_variants(
        [VariantDescription(list_values(properties), label=label) for label, properties in variants],
        list_values(supported),
        namespace_priorities=list(metadata.namespaces),
        feature_priorities={ns: list(features) for ns, features in supported.items()},
        property_priorities={
            ns: {f: list(v) for f, v in features.items()} for ns, features in supported.items()
        },
        filter_values=True,
    )
    return [one.label for one in ranked if one.label in metadata.variants]


@pytest.mark.usefixtures("_quick")
def test_3000_random_releases_are_ranked_as_by_variantlib() -> None:
    chance = random.Random(SEED)
    lengths = []
    for number in range(CASES):
        case = random_case(chance)
        ours = order.order_labels(*case)
        assert ours == by_variantlib(case), f"case {number} of seed {SEED}: {case}"
        assert all(order.explain_order(one, other, *case) for one, other in itertools.pairwise(ours))
        lengths.append(len(ours))
    assert sum(length >= 3 for length in lengths) > CASES / 3  # most say something about order


RELEASE = document.VariantMetadata(
    ("amd", "rocm"),
    {
        "b": {"amd": {"gfx_arch": ("gfx942",)}, "rocm": {"version": ("7.2",)}},
        "a": {"amd": {"gfx_arch": ("gfx942",)}, "rocm": {"version": ("7.2",)}},
        "old": {"amd": {"gfx_arch": ("gfx942", "gfx950")}, "rocm": {"version": ("7.1",)}},
        "fat": {"amd": {"gfx_arch": ("gfx90a", "gfx942")}},
        "generic": {"amd": {"gfx_arch": ("gfx9_4_generic",)}, "rocm": {"version": ("7.2",)}},
        "any": {"rocm": {"version": ("7.2",)}},
        "other": {"amd": {"gfx_arch": ("gfx1100",)}},
        "null": {},
    },
    {
        "amd": document.Provider(requires=("rocm-bootstrap>=0.3",)),
        "rocm": document.Provider(static_properties={"version": ("7.2", "7.1")}),
    },
)
PLUGINS = {"amd": {"gfx_arch": ("gfx942", "gfx9_4_generic"), "rocm_version": ("7.2",)}}


def test_each_rank_has_its_reason() -> None:
    supported = {ns: answer.features for ns, answer in order.find_support(RELEASE, PLUGINS).items()}
    ranked = order.order_labels(RELEASE, supported)
    assert [
        (worse, order.explain_order(better, worse, RELEASE, supported))
        for better, worse in itertools.pairwise(ranked)
    ] == [
        ("b", "the same for this machine as a, whose label comes first"),
        ("old", "rocm :: version :: 7.1 is ranked after 7.2"),
        ("fat", "it says nothing of rocm :: version, as old does"),
        ("generic", "amd :: gfx_arch :: gfx9_4_generic is ranked after gfx942"),
        ("any", "it says nothing of amd :: gfx_arch, as generic does"),
        ("null", "null comes after all variants that fit"),
    ]
    places = order.rank_properties(RELEASE.variants["old"], RELEASE.namespaces, supported)
    assert [*map(str, places)] == ["amd :: gfx_arch :: gfx942", "rocm :: version :: 7.1"]


BOTH = ("gfx942", "gfx9_4_generic")


@pytest.mark.parametrize(
    ("fields", "supports", "source"),
    [
        (None, BOTH, "this machine"),
        ({"requires": ("Rocm.Bootstrap>=0.3",)}, BOTH, "this machine, for rocm-bootstrap"),
        ({"requires": ("amd_variant_provider",)}, BOTH, "this machine, for amd-variant-provider"),
        ({"requires": ("rocm-bootstrap",), "optional": True}, None,
         "its provider is optional, and not enabled"),
        ({"requires": ("rocm-bootstrapp",)}, None,
         "its provider rocm-bootstrapp is not known here, and is not run"),
        ({"static_properties": {"gfx_arch": ("gfx1100", "gfx9_4_generic", "gfx942")}}, [*BOTH],
         "this machine, of what the document lists for every machine"),
        ({"static_properties": {"level": ("2", "1")}}, None,
         "listed in the document, the same for every machine"),
        ({"static_properties": {"gfx_arch": ("gfx90a",)}, "optional": True}, None,
         "its provider is optional, and not enabled"),
        ({"builtin": "abi_dependency"}, None, "no other project is here to go with"),
    ],
)  # fmt: skip
def test_who_answers_for_a_namespace(fields: dict[str, Any] | None, supports: Any, source: str) -> None:
    providers = {"amd": document.Provider(**fields)} if fields else {}
    found = order.find_support(document.VariantMetadata(("amd",), {}, providers), PLUGINS)["amd"]
    assert (found.features.get("gfx_arch"), found.source) == (supports, source)


def test_a_namespace_that_nobody_answers_for_supports_nothing() -> None:
    assert order.find_support(document.VariantMetadata(("abc",), {}), PLUGINS)["abc"].features == {}
