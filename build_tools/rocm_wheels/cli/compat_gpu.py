"""``compat gpu`` and ``compat refresh-pci``: what is known of a card, and keeping the tables up to date."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rocm_wheels.core import DataError, HostError, UsageError

if TYPE_CHECKING:
    from rocm_wheels.gpus import PciEntry
    from rocm_wheels.models import FoundCards, PciDifference, PciIds, TargetFacts

_MOST_CARDS = 40  # more cards than that tell people nothing; --json prints all
_MOST_INDEXES = 4  # of a platform, the best first
_PLACES = (Path("/usr/share/misc/pci.ids"), Path("/usr/share/hwdata/pci.ids"))


@click.command("gpu")
@click.argument("words", nargs=-1, required=True, metavar="NAME|GFX|PCI-ID...")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON, each fact with its source.")
def gpu(words: tuple[str, ...], as_json: bool) -> None:
    """Show what is known of a GPU: target, families, what serves it, who says so.

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


@click.command("refresh-pci")
@click.option(
    "--pci-ids",
    "file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The pci.ids to compare with [default: the system's, in /usr/share/misc or /usr/share/hwdata].",
)
@click.option("--url", metavar="URL", help="Fetch the pci.ids from there.")
@click.option(
    "--tables",
    "folder",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Folder of the tables [default: this program's own, of a clone].",
)
@click.option("--write", is_flag=True, help="Write names and new GPUs into the tables; the rest stays.")
@click.option("--check", is_flag=True, help="Fail (exit code 17) when anything differs.")
@click.option("--json", "as_json", is_flag=True, help="Print the differences as JSON.")
def refresh_pci(
    *, file: Path | None, url: str | None, folder: Path | None, write: bool, check: bool, as_json: bool
) -> None:
    """Compare the tables of PCI ids with pci.ids: GPUs that are new, renamed or gone.

    A new AMD GPU gets no target: that is for people to find out. What they wrote stays.
    """
    from rocm_wheels.core import write_atomically
    from rocm_wheels.models import find_pci_differences, read_pci_ids, read_pci_table, refresh_pci_table

    if write and check:
        raise UsageError("--write and --check exclude each other")
    if file and url:
        raise UsageError("--pci-ids and --url exclude each other")
    paths = _find_tables(folder, write)
    tables = {vendor: read_pci_table(path, vendor) for vendor, path in paths.items()}
    where, content = _fetch_pci_ids(url) if url else _read_pci_ids(file)
    try:
        ids = read_pci_ids(content.decode("utf-8"), where)
    except UnicodeDecodeError as cause:
        raise DataError(f"{where} is no pci.ids: it is no text") from cause
    differing = {vendor: find_pci_differences(table, ids) for vendor, table in tables.items()}
    click.echo(_drift_as_json(ids, where, differing) if as_json else _drift_as_text(ids, where, differing))
    counts = _count_kinds([difference for those in differing.values() for difference in those])
    if write:
        texts = {
            paths[vendor]: refresh_pci_table(table, ids).format_text() for vendor, table in tables.items()
        }
        for path, text in texts.items():
            write_atomically(path, text)
    elif check and counts:
        raise HostError(
            f"the tables of PCI ids differ from pci.ids {ids.version}: {counts}",
            tip="rocm-wheels compat refresh-pci --write, then find out the targets of what is new",
        )


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
    widths = [max((len(row[i]) for row in rows), default=0) for i in range(4)]
    for entry, row in zip(listed, rows, strict=True):
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
        lines.append("  ".join([*cells, entry.name]))
        indent = " " * (widths[0] + 2)
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
        width = max(len(key) for _, key in used)
        for (_, key), source in dict(sorted(used.items())).items():
            state = ", ".join(part for part in (source.at[:12].strip("-"), source.date) if part)
            lines.append(f"  {key:{width}}  {source.where}{f' ({state})' if state else ''}")
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
    width = max(len(label) for label, _ in cells)
    return [f"{name}  {facts.product}".rstrip(), *(f"  {label:{width}}  {value}" for label, value in cells)]


def _mark_believed(kind: str) -> str:
    return "?" if kind == "believed" else ""


def _card_kind(entry: PciEntry) -> str:
    return {True: "integrated", False: "discrete", None: ""}[entry.integrated]


def _describe_capability(entry: PciEntry) -> str:
    return f"compute {entry.capability}" if entry.capability else "-" if entry.vendor == "intel" else ""


def _find_tables(folder: Path | None, write: bool) -> dict[str, Path]:
    from rocm_wheels.core import is_clone
    from rocm_wheels.gpus import PCI_TABLES, pci_ids

    if folder is None and write and not is_clone():
        raise UsageError(
            "the tables of an installed rocm-wheels are not written",
            tip="do it in a clone of the project, or name a folder of copies: --tables DIR",
        )
    where = folder or Path(pci_ids.__file__).parent
    return {vendor: where / name for vendor, name in PCI_TABLES.items()}


def _read_pci_ids(file: Path | None) -> tuple[str, bytes]:
    path = file or next((place for place in _PLACES if place.is_file()), None)
    if path is None:
        from rocm_wheels.gpus import PCI_IDS_URL

        raise UsageError(
            f"there is no pci.ids at {' or '.join(map(str, _PLACES))}",
            tip=f"install the package pci.ids or hwdata, name a file with --pci-ids, or --url {PCI_IDS_URL}",
        )
    try:
        return str(path), path.read_bytes()
    except OSError as cause:
        raise UsageError(f"{path} cannot be read") from cause


def _fetch_pci_ids(url: str) -> tuple[str, bytes]:
    from urllib.parse import urlsplit

    from rocm_wheels.index import IndexReader, UnreachableError

    if urlsplit(url).scheme not in ("http", "https"):
        raise UsageError(f"{url} is no http or https URL")
    try:
        answer = IndexReader().get(url)
    except UnreachableError as cause:
        raise HostError(f"{url} does not answer", tip="name a file with --pci-ids") from cause
    if answer.status != 200:
        raise HostError(f"{url} answers {answer.status}", tip="name a file with --pci-ids")
    return url, answer.content


def _count_kinds(differing: list[PciDifference]) -> str:
    kinds = [difference.kind for difference in differing]
    return ", ".join(f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(sorted(kinds, key=_ORDER.index)))


_ORDER = ("gone", "renamed", "new")


def _drift_as_text(ids: PciIds, where: str, differing: dict[str, tuple[PciDifference, ...]]) -> str:
    lines = [f"pci.ids {ids.version} ({where})"]
    for vendor, those in differing.items():
        lines.append(f"{vendor}: {_count_kinds(list(those)) or 'nothing differs'}")
        for kind in _ORDER:
            for difference in those:
                if difference.kind == kind:
                    change = " -> ".join(filter(None, (difference.before, difference.now)))
                    lines.append(f"  {kind:7}  {difference.id}  {change}")
    return "\n".join(lines)


def _drift_as_json(ids: PciIds, where: str, differing: dict[str, tuple[PciDifference, ...]]) -> str:
    import json

    return json.dumps(
        {
            "pci_ids": {"version": ids.version, "date": ids.date, "where": where},
            "tables": {
                vendor: [
                    {
                        "what": difference.kind,
                        "id": difference.id,
                        "before": difference.before,
                        "now": difference.now,
                    }
                    for difference in those
                ]
                for vendor, those in differing.items()
            },
        },
        indent=1,
    )
