"""``compat gpu``: what the tables hold of a GPU, and who says so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from rocm_wheels.core import align_rows

if TYPE_CHECKING:
    from rocm_wheels.gpus import PciEntry
    from rocm_wheels.models import FoundCards, TargetFacts

_MOST_CARDS = 40  # more cards than that tell people nothing; --json prints all
_MOST_INDEXES = 4  # of a platform, the best first


@click.command("gpu")
@click.argument("words", nargs=-1, required=True, metavar="NAME|GFX|PCI-ID...")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON, each fact with its source.")
def gpu(words: tuple[str, ...], as_json: bool) -> None:
    """Show facts about a GPU: target, families, what serves it, who says so.

    By words of its name (RX 7900 XTX, mi300x, 780M), by target (gfx942), or by PCI id as lspci -nn prints it
    (1002:74a1; 74a1 is one of AMD).
    """
    from rocm_wheels.models import find_gpu_cards

    matches = find_gpu_cards(" ".join(words))
    if as_json:
        import json

        click.echo(json.dumps(cards_as_json(matches), indent=1))
    else:
        click.echo(describe_cards(matches))


def cards_as_json(matches: FoundCards) -> dict[str, Any]:
    """Return what ``--json`` prints. Keys are added in later versions, never renamed.

    ``{"query", "asked_by": "id"|"target"|"name"|"product", "cards": [{"id", "vendor", "name", "products",
    "gfx", "capability", "card", "kind", "sources": [{"key", "at", "date", "where"}], "note"}], "targets":
    [{"vendor", "target", "product", "generic", "facts": [{"what", "value", "kind", "source"}], "indexes":
    [{"platform", "name", "url", "layout", "reason"}]}]}``. ``card`` is ``discrete``, ``integrated`` or null.
    """
    from rocm_wheels.gpus import list_pci_sources
    from rocm_wheels.models import make_facts_json

    def card(entry: PciEntry) -> dict[str, Any]:
        named = list_pci_sources(entry.vendor)
        return {
            "id": entry.id,
            "vendor": entry.vendor,
            "name": entry.name,
            "products": list(entry.products),
            "gfx": entry.gfx,
            "capability": entry.capability,
            "card": _card_kind(entry) or None,
            "kind": entry.kind,
            "sources": [{"key": key, **vars(named[key])} for key in entry.sources],
            "note": entry.note,
        }

    return {
        "query": matches.query,
        "asked_by": matches.query_kind,
        "cards": [card(entry) for entry in matches.cards],
        "targets": [make_facts_json(facts) for facts in matches.targets],
    }


def describe_cards(matches: FoundCards) -> str:
    """Return a block a target and a line a card, then where the facts are from."""
    from rocm_wheels.gpus import list_pci_sources

    lines: list[str] = []
    for facts in matches.targets:
        lines += [*_describe_target(facts), ""]
    listed = matches.cards[:_MOST_CARDS]
    rows = [
        (e.id, e.gfx or _describe_capability(e) or "?", _card_kind(e) or "?", e.kind, e.name) for e in listed
    ]
    indent = " " * (max((len(entry.id) for entry in listed), default=0) + 2)
    for entry, line in zip(listed, align_rows(rows), strict=True):
        lines.append(line)
        if entry.products:
            lines.append(f"{indent}also: {', '.join(entry.products)}")
        lines.append(f"{indent}{', '.join(entry.sources)}{f': {entry.note}' if entry.note else ''}")
    if len(matches.cards) > _MOST_CARDS:
        lines.append(
            f"… and {len(matches.cards) - _MOST_CARDS} more (--json prints all; more words find fewer)"
        )
    if not listed:
        lines.append("no card with it has a PCI id in the tables yet")
    used = {
        (entry.vendor, key): list_pci_sources(entry.vendor)[key] for entry in listed for key in entry.sources
    }
    if used:
        lines += ["", "sources"]
        source_rows = []
        for (_, key), source in dict(sorted(used.items())).items():
            state = ", ".join(part for part in (source.at[:12].strip("-"), source.date) if part)
            source_rows.append((key, f"{source.where}{f' ({state})' if state else ''}"))
        lines += [f"  {line}" for line in align_rows(source_rows)]
    return "\n".join(lines)


def _describe_target(facts: TargetFacts) -> list[str]:
    cells = [(fact.attribute, f"{fact.value}{_mark_believed(fact.kind)}") for fact in facts.facts]
    if facts.generic:
        cells.append(("runs also", f"code for {facts.generic}"))
    for platform in dict.fromkeys(platform for platform, _ in facts.indexes):
        of_platform = [index for index_platform, index in facts.indexes if index_platform == platform]
        urls = [index.url for index in of_platform[:_MOST_INDEXES]]
        more = [f"and {len(of_platform) - _MOST_INDEXES} more"] if len(of_platform) > _MOST_INDEXES else []
        cells += zip([platform, *[""] * _MOST_INDEXES], urls + more, strict=False)
    if not facts.indexes:
        cells.append(("indexes", "none of the stable channel serves it"))
    name = facts.target or "not known"
    if facts.vendor != "amd":
        name = "Intel" if facts.vendor == "intel" else f"NVIDIA, compute capability {name}"
    return [f"{name}  {facts.product}".rstrip(), *(f"  {line}" for line in align_rows(cells))]


def _mark_believed(kind: str) -> str:
    return "?" if kind == "believed" else ""


def _card_kind(entry: PciEntry) -> str:
    return {True: "integrated", False: "discrete", None: ""}[entry.integrated]


def _describe_capability(entry: PciEntry) -> str:
    return f"compute {entry.capability}" if entry.capability else "-" if entry.vendor == "intel" else ""
