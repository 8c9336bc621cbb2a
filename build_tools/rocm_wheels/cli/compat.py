"""``compat``: what goes with what, by tables of sourced facts, and what is stated about a GPU."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

from rocm_wheels.cli import catalogue, lines
from rocm_wheels.cli.command import command, group
from rocm_wheels.core import errors, tables

if TYPE_CHECKING:
    from rocm_wheels.gpus import pci
    from rocm_wheels.models import gpu_cards


def format_sourced_table(
    header: Sequence[str], rows: Iterable[Sequence[str]], width: int | None = None
) -> str:
    """Return a table with sources as numbers, listed below; empty columns are left out."""
    table_rows = [list(row) for row in rows]
    places: dict[str, int] = {}
    if header and header[-1] == "source":
        for row in table_rows:
            row[-1] = f"[{places.setdefault(row[-1], len(places) + 1)}]" if row[-1] else ""
    columns = [i for i in range(len(header)) if any(row[i] for row in table_rows)] or list(range(len(header)))
    words = [header[i] for i in columns]
    cells = [[row[i] for i in columns] for row in table_rows]
    sources = [f"[{number}] {place}" for place, number in places.items()]
    return "\n".join([tables.format_table(words, cells, width=width), *sources])


def rows_as_json(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[dict[str, str]]:
    """Return each row with the header's words as keys."""
    keys = [word.replace(" ", "_") for word in header]
    return [dict(zip(keys, row, strict=True)) for row in rows]


Rows = tuple[tuple[str, ...], list[tuple[str, ...]]]
# name: (module:function under rocm_wheels.models, what the table has)
TABLES = {
    "lines": ("", "release lines: what belongs to each torch"),
    "targets": (
        "gfx:tabulate_targets",
        "GPU targets: products, families, fp8, wavefront, what is not built for them",
    ),
    "releases": ("package_indexes:tabulate_releases", "releases of ROCm, and the indexes that have them"),
    "indexes": ("package_indexes:tabulate_indexes", "package indexes that torch comes from, best first"),
    "images": (
        "torch_builds:tabulate_images",
        "container images: those of `container run` by name, and others with a torch",
    ),
    "known": ("torch_builds:tabulate_issues", "known issues of finished builds"),
    "dtypes": ("dtypes:tabulate_dtypes", "data types of torch on each GPU"),
    "libraries": (
        "libraries:tabulate_rocm_libraries",
        "libraries of ROCm, and what of torch stands on them",
    ),
    "domains": (
        "libraries:tabulate_domain_libraries",
        "torchvision, torchaudio and other libraries around torch",
    ),
    "features": ("torch_features:tabulate_features", "features of torch on ROCm, and since when"),
}


def _complete_table(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    names = TABLES if param.name == "table" else [row[0] for row in _load_rows(ctx.params["table"])[1]]
    return [name for name in dict.fromkeys(names) if name.startswith(incomplete)]


@command("compat show")
@click.argument("table", required=False, metavar="[TABLE]", shell_complete=_complete_table)
@click.argument("row", required=False, metavar="[ROW]", shell_complete=_complete_table)
@catalogue.JSON
def show(table: str | None, row: str | None, as_json: bool) -> None:
    """List the compatibility tables, or print TABLE with the source of every row.

    ROW is a value of the first column, or of `name`: of those rows only. Of a release line (lines 2.13, lines
    nightly): every fact, how it is known and where it was found.

    \b
    Examples:
      rocm-wheels compat show targets
      rocm-wheels compat show lines 2.13
    """
    if table is None:
        table_rows = [(name, str(len(_load_rows(name)[1])), words) for name, (_, words) in TABLES.items()]
        _print_rows(("table", "rows", "what it has"), table_rows, as_json, "tables")
        return
    if table not in TABLES:
        raise errors.UsageError(
            f"there is no table {table!r}{tables.suggest_name(table, TABLES)}",
            tip=f"tables: {', '.join(TABLES)}",
        )
    if table == "lines":
        lines.print_lines(row, as_json=as_json)
        return
    header, rows = _load_rows(table)
    columns = [number for number, word in enumerate(header) if number == 0 or word == "name"]
    chosen = rows if row is None else [cells for cells in rows if row in (cells[n] for n in columns)]
    if not chosen:
        names = list(dict.fromkeys(cells[n] for n in columns for cells in rows))
        raise errors.UsageError(
            f"there is no {header[0]} {row!r} in the table{tables.suggest_name(str(row), names)}",
            tip=f"`rocm-wheels compat show {table}` has all",
        )
    _print_rows(header, chosen, as_json, table)


def _load_rows(name: str) -> Rows:
    if name == "lines":
        return lines.tabulate_lines()
    module, _, function = TABLES[name][0].partition(":")
    rows: Callable[[], Rows] = getattr(import_module(f"rocm_wheels.models.{module}"), function)
    return rows()


def _print_rows(header: Sequence[str], rows: Sequence[tuple[str, ...]], as_json: bool, name: str) -> None:
    if as_json:
        import json

        document: dict[str, Any] = {name: rows_as_json(header, rows)}
        click.echo(json.dumps(document, indent=1))
    else:
        click.echo(format_sourced_table(header, rows, tables.get_output_width()))


COMMANDS = {
    "show": ("compat:show", "List the compatibility tables, or print one, or one row."),
    "gpu": ("compat:gpu", "Show facts about a GPU, by name, target or PCI id."),
}


@group("compat", lazy=COMMANDS)
def compat_group() -> None:
    """Ask what goes with what: GPU targets, ROCm, torch, dtypes, libraries, indexes, images.

    Every fact has a source, the day it was read, and a kind: documented (somebody states it), packaged (read
    out of what is published), tested (somebody ran it), believed (nobody states it; a note says why).
    """


_MOST_CARDS = 40  # more cards than that tell people nothing; --json prints all
_MOST_INDEXES = 4  # of a platform, the best first


@command("compat gpu")
@click.argument("words", nargs=-1, required=True, metavar="NAME|GFX|PCI-ID...")
@catalogue.JSON
def gpu(words: tuple[str, ...], as_json: bool) -> None:
    """Show facts about a GPU: target, families, what serves it, who says so.

    By words of its name (RX 7900 XTX, mi300x, 780M), by target (gfx942), or by PCI id as lspci -nn prints it
    (1002:74a1; 74a1 is one of AMD).

    \b
    Examples:
      rocm-wheels compat gpu RX 7900 XTX
      rocm-wheels compat gpu 1002:74a1
    """
    from rocm_wheels.models import gpu_cards

    matches = gpu_cards.find_gpu_cards(" ".join(words))
    if as_json:
        import json

        click.echo(json.dumps(cards_as_json(matches), indent=1))
    else:
        click.echo(describe_cards(matches))


def cards_as_json(matches: gpu_cards.FoundCards) -> dict[str, Any]:
    """Return what ``--json`` prints. Keys are added in later versions, never renamed.

    ``{"query", "asked_by": "id"|"target"|"name"|"product", "cards": [{"id", "vendor", "name", "products",
    "gfx", "capability", "card", "kind", "sources": [{"key", "at", "date", "where"}], "note"}], "targets":
    [{"vendor", "target", "product", "generic", "facts": [{"what", "value", "kind", "source"}], "indexes":
    [{"platform", "name", "url", "layout", "reason"}], "install": {"linux", "windows"}}]}``. ``card`` is
    ``discrete``, ``integrated`` or null.
    """
    from rocm_wheels.gpus import pci
    from rocm_wheels.models import gpu_cards

    def card(entry: pci.PciEntry) -> dict[str, Any]:
        named = pci.list_pci_sources(entry.vendor)
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
        "targets": [
            {**gpu_cards.make_facts_json(facts), "install": make_install_commands(facts)}
            for facts in matches.targets
        ],
    }


def describe_cards(matches: gpu_cards.FoundCards) -> str:
    """Return a block a target and a line a card, then where the facts are from."""
    from rocm_wheels.gpus import pci

    lines: list[str] = []
    for facts in matches.targets:
        lines += [*_describe_target(facts), ""]
    listed = matches.cards[:_MOST_CARDS]
    rows = [
        (e.id, e.gfx or _describe_capability(e) or "?", _card_kind(e) or "?", e.kind, e.name) for e in listed
    ]
    indent = " " * (max((len(entry.id) for entry in listed), default=0) + 2)
    for entry, line in zip(listed, tables.align_rows(rows), strict=True):
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
        (entry.vendor, key): pci.list_pci_sources(entry.vendor)[key]
        for entry in listed
        for key in entry.sources
    }
    if used:
        lines += ["", "sources"]
        source_rows = []
        for (_, key), source in dict(sorted(used.items())).items():
            state = ", ".join(part for part in (source.at[:12].strip("-"), source.date) if part)
            source_rows.append((key, f"{source.where}{f' ({state})' if state else ''}"))
        lines += [f"  {line}" for line in tables.align_rows(source_rows)]
    several = len(matches.targets) > 1
    installs = [
        f"{facts.target}: {row}" if several and facts.target else row
        for facts in matches.targets
        for row in _describe_install(facts)
    ]
    return "\n".join([*lines, *(["", "install"] if installs else []), *(f"  {row}" for row in installs)])


def _describe_install(facts: gpu_cards.TargetFacts) -> list[str]:
    """Return the command that installs torch for a GPU, for each system where they differ; or why none."""
    commands = make_install_commands(facts)
    different = list(dict.fromkeys(commands.values()))
    if different == [None]:
        from rocm_wheels.user import install_options

        return (
            [*install_options.explain_no_torch(facts.target)]
            if facts.target
            else ["nothing tells its target"]
        )
    if len(different) == 1:
        return [str(different[0])]
    return [f"{system}: {command or 'no torch has kernels for it'}" for system, command in commands.items()]


def make_install_commands(facts: gpu_cards.TargetFacts) -> dict[str, str | None]:
    """Return by platform the command that installs torch for a GPU; None where no index has one.

    It is for the Python that runs this. GPUs of other vendors are found when it runs.
    """
    from rocm_wheels.core import shell
    from rocm_wheels.user import install_options

    place = ["--venv", ".venv"]
    commands: dict[str, str | None] = {}
    for platform in ("linux", "windows"):
        commands[platform] = shell.format_command(["rocm-wheels", "install", *place])
        if facts.vendor == "amd":
            python = f"{sys.version_info.major}.{sys.version_info.minor}"
            gfx = facts.target or ""
            option = (
                install_options.pick_option(
                    install_options.list_install_options(gfx, platform=platform), python
                )
                if gfx
                else None
            )
            commands[platform] = option.format_install(python, gfx=gfx, place=place) if option else None
    return commands


def _describe_target(facts: gpu_cards.TargetFacts) -> list[str]:
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
        intel = "Intel, before Xe" if facts.target else "Intel"
        name = intel if facts.vendor == "intel" else f"NVIDIA, compute capability {name}"
    return [f"{name}  {facts.product}".rstrip(), *(f"  {line}" for line in tables.align_rows(cells))]


def _mark_believed(kind: str) -> str:
    return "?" if kind == "believed" else ""


def _card_kind(entry: pci.PciEntry) -> str:
    return {True: "integrated", False: "discrete", None: ""}[entry.integrated]


def _describe_capability(entry: pci.PciEntry) -> str:
    if entry.vendor == "intel":
        return "before Xe" if entry.capability else "-"
    return f"compute {entry.capability}" if entry.capability else ""
