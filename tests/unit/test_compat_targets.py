"""Facts about GPU targets, held against rocm-bootstrap and against each other."""

from __future__ import annotations

import pytest

from rocm_wheels.core import errors, records
from rocm_wheels.models import gfx
from rocm_wheels.models.facts import list_facts


def test_what_matters_of_a_target_is_known_with_its_source():
    mi300, mi350, navi31, navi48 = (
        gfx.get_gfx_targets()[name] for name in ("gfx942", "gfx950", "gfx1100", "gfx1201")
    )
    assert (mi300.fp8, mi300.mx, mi300.wave, mi300.excluded) == ("fnuz", False, 64, {})
    assert (mi350.fp8, mi350.mx, mi350.wave) == ("ocp", True, 64)
    assert (navi31.fp8, navi31.wave, "Radeon RX 7900 XTX" in navi31.products) == ("none", 32, True)
    assert navi48.fp8 == "ocp"
    assert gfx.get_gfx_targets()["gfx1103"].excluded["rccl"] == "https://github.com/ROCm/TheRock/issues/150"
    assert gfx.get_gfx_targets()["gfx1103"].excluded["rccl-tests"] == ""  # no issue is named
    fact, source = gfx.get_attribute_fact("gfx1250", "fp8")
    assert (fact.kind, bool(fact.note)) == ("believed", True)
    assert source.url.startswith("https://")
    assert gfx.get_attribute_fact("gfx942", "fp8")[0].kind == "documented"


def test_every_fact_has_a_source_and_what_is_believed_says_why():
    facts = list_facts(gfx._read_gfx_table())
    assert len(facts) > 30
    for fact in facts:
        assert fact.note or fact.kind != "believed"


def test_products_lead_to_targets():
    assert gfx.find_targets("7900 xt") == ("gfx1100",)
    assert gfx.find_targets("MI300") == ("gfx942",)
    assert gfx.find_targets("gfx110X-all") == ("gfx1100", "gfx1101", "gfx1102", "gfx1103")
    assert gfx.find_targets("voodoo") == gfx.find_targets(" ") == ()


def test_rocm_bootstrap_knows_our_targets_and_no_family_crosses_one_of_its():
    bootstrap = pytest.importorskip("rocm_bootstrap.targets")
    groups = {name: bootstrap.packaging_chain(name)[1].key for name in gfx.get_gfx_targets()}
    for family, members in gfx.get_gfx_families().items():
        if family.startswith("gfx"):
            assert len({groups[member] for member in members}) == 1, family


TABLE = """
sources: {{s: {{url: "https://example.com/", retrieved: 2026-11-21}}}}
known:
{known}
kinds: []
targets:
  {name}: {{product: p, products: [p], families: [f], wave: {wave}, fp8: {fp8}}}
"""
KNOWN = "\n".join(
    f"  {one}: {{source: s, kind: documented}}"
    for one in ("products", "families", "excluded", "aotriton", "readiness", "wave", "fp8")
)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": "gfx11-generic"}, "gfx11-generic is not the name of a GPU target"),
        ({"wave": "48"}, "a wavefront has 32 or 64 threads"),
        ({"fp8": "yes"}, "fp8: Input should be 'fnuz', 'ocp' or 'none'"),
        ({"known": "  fp8: {source: s, kind: documented}"}, "does not say how these are known: aotriton"),
        ({"known": KNOWN.replace("source: s", "source: t")}, "source 't' is not among the table's sources"),
    ],
)
def test_a_wrong_table_is_refused(change: dict[str, str], message: str):
    text = TABLE.format(**({"name": "gfx942", "wave": "64", "fp8": "fnuz", "known": KNOWN} | change))
    with pytest.raises(errors.DataError, match=message):
        records.parse_record(text, gfx._GfxTable, name="table.yaml")
