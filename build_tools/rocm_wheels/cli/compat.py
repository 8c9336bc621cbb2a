"""``compat``: what goes with what, by tables of sourced facts, and what is stated about a GPU."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from rocm_wheels.cli import catalogue, lines, output
from rocm_wheels.cli.command import command, group
from rocm_wheels.core import installation, tables

if TYPE_CHECKING:
    from rocm_wheels.gpus import pci
    from rocm_wheels.models import gpu_cards


def _complete_table(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    from rocm_wheels.models import fact_tables

    if param.name == "table":
        words = list(fact_tables.list_tables())
    else:  # names of rows, else what stands first in them
        sections = fact_tables.list_sections(fact_tables.read_table(ctx.params["table"]))
        rows = [row for _, content in sections for row in fact_tables.list_rows(content)]
        words = [name or next(iter(fact_tables.flatten_row(row).values()), "") for name, row in rows]
    return [word for word in dict.fromkeys(words) if word.startswith(incomplete)]


@command("compat show")
@click.argument("table", required=False, metavar="[TABLE]", shell_complete=_complete_table)
@click.argument("row", required=False, metavar="[ROW]", shell_complete=_complete_table)
@catalogue.JSON
def show(table: str | None, row: str | None, as_json: bool) -> None:
    """List the tables of facts, or print TABLE with the source of every row.

    ROW is the name of rows, or a value in them: the alias of a dtype (half), a GPU (gfx1151), a line (2.13).

    \b
    Examples:
      rocm-wheels compat show dtypes half
      rocm-wheels compat show lines 2.13
    """
    from rocm_wheels.models import fact_tables

    if table is None:
        heads = [head for head, _ in fact_tables.list_tables().values()]
        rows = [(head.name, f"{head.about}\nread by {head.read_by}; ends: {head.ends}") for head in heads]
        text = tables.format_table(("table", "what"), rows, width=tables.get_output_width())
        output.print_result({"tables": heads}, [text], as_json=as_json)
        return
    content = fact_tables.read_table(table, row)
    if as_json:
        output.print_result(content, (), as_json=True)
    elif table == "lines" and row is None:  # as a grid: a column a project
        lines.print_lines()
    else:
        click.echo(format_fact_table(content, tables.get_output_width()))


def format_fact_table(content: dict[str, Any], width: int | None = None) -> str:
    """Return a table, or some of its rows, for people: what it is, its sections, then the sources by number.

    A column is left out where no row has it; so are sources that no row names.
    """
    from rocm_wheels.models import fact_tables

    head, sources = content["table"], content.get("sources", {})
    numbers: dict[str, int] = {}
    parts = [f"{head['about']}\nread by {head['read_by']}; ends: {head['ends']}"]
    for section, rows in fact_tables.list_sections(content):
        cells = []
        for name, row in fact_tables.list_rows(rows):
            flat = fact_tables.flatten_row(row)
            for column, text in flat.items():
                if column.rpartition(".")[2] == "source" and text in sources:
                    flat[column] = f"[{numbers.setdefault(text, len(numbers) + 1)}]"
            cells.append({section: name, **flat} if name else flat)
        columns = list(dict.fromkeys(column for flat in cells for column in flat))
        columns = [column for column in columns if any(flat.get(column) for flat in cells)]
        if not columns:
            continue
        grid = [tuple(flat.get(column, "") for column in columns) for flat in cells]
        title = "" if columns[0] == section else f"{section}:\n"
        parts.append(title + tables.format_table(columns, grid, width=width))
    listed = []
    for key, number in numbers.items():
        state = ", ".join(filter(None, (sources[key].get("at", ""), f"read {sources[key]['retrieved']}")))
        listed.append(f"[{number}] {sources[key]['url']} ({state})")
    return "\n\n".join([*parts, *(["\n".join(listed)] if listed else [])])


COMMANDS = {
    "show": ("compat:show", "List the tables of facts, or print one, or some of its rows."),
    "gpu": ("compat:gpu", "Show facts about a GPU, by name, target or PCI id."),
}


@group("compat", lazy=COMMANDS)
def compat_group() -> None:
    """Look up what works together: GPU targets, ROCm, torch, dtypes, libraries, indexes, images.

    Every fact has a source, the day it was read, and a kind: documented (somebody states it), packaged (read
    from published files), tested (somebody ran it), believed (nobody states it; a note says why).
    """


_MOST_CARDS = 40  # more cards than that tell people nothing; --json prints all
_MOST_INDEXES = 4  # of a platform, the best first
_SYSTEMS = ("linux", "windows")
_CARD_KINDS = {True: "integrated", False: "discrete", None: ""}


@command("compat gpu")
@click.argument("words", nargs=-1, required=True, metavar="NAME|GFX|PCI-ID...")
@catalogue.JSON
def gpu(words: tuple[str, ...], as_json: bool) -> None:
    """Show facts about a GPU, with sources: target, families, what supports it.

    Name it by words of its name (RX 7900 XTX, mi300x, 780M), by target (gfx942), or by PCI id as lspci -nn
    prints it (1002:74a1; 74a1 is one of AMD).

    \b
    Examples:
      rocm-wheels compat gpu RX 7900 XTX
      rocm-wheels compat gpu 1002:74a1
    """
    from rocm_wheels.models import gpu_cards

    matches = gpu_cards.find_gpu_cards(" ".join(words))
    if as_json:
        output.print_result(cards_as_json(matches), (), as_json=True)
    else:
        click.echo(installation.adapt_commands(describe_cards(matches)))


def cards_as_json(matches: gpu_cards.FoundCards) -> dict[str, Any]:
    """Return what ``--json`` prints. Keys are added in later versions, never renamed.

    ``{"query", "asked_by": "id"|"target"|"name"|"product", "cards": [{"id", "vendor", "name", "products",
    "gfx", "capability", "card", "kind", "sources": [{"key", "at", "date", "where"}], "note"}], "targets":
    [{"vendor", "target", "product", "generic", "facts": [{"what", "value", "kind", "source"}], "indexes":
    [{"platform", "name", "url", "layout", "reason"}], "install": {"linux", "windows"}}]}``. ``card`` is
    ``discrete``, ``integrated`` or null.
    """
    from rocm_wheels.gpus import pci

    columns = ("id", "vendor", "name", "products", "gfx", "capability", "kind", "note")
    cards: list[dict[str, Any]] = []
    for entry in matches.cards:
        sources = pci.list_pci_sources(entry.vendor)
        card = {column: getattr(entry, column) for column in columns}
        card["card"] = _CARD_KINDS[entry.integrated] or None
        card["sources"] = [{"key": key, **vars(sources[key])} for key in entry.sources]
        cards.append(card)
    targets = [
        {
            **facts.model_dump(mode="json"),
            "install": {
                system: command and installation.adapt_commands(command)
                for system, command in make_install_commands(facts).items()
            },
        }
        for facts in matches.targets
    ]
    return {"query": matches.query, "asked_by": matches.query_kind, "cards": cards, "targets": targets}


def describe_cards(matches: gpu_cards.FoundCards) -> str:
    """Return a block a target and a line a card, where the facts are from, and the command that installs."""
    from rocm_wheels.gpus import pci

    lines: list[str] = []
    for facts in matches.targets:
        lines += [*_describe_target(facts), ""]
    listed = matches.cards[:_MOST_CARDS]
    rows = []
    for entry in listed:
        capability = f"compute {entry.capability}" if entry.capability else ""
        if entry.vendor == "intel":
            capability = "before Xe" if entry.capability else "-"
        kind = _CARD_KINDS[entry.integrated] or "?"
        rows.append((entry.id, entry.gfx or capability or "?", kind, entry.kind, entry.name))
    indent = " " * (max((len(entry.id) for entry in listed), default=0) + 2)
    sources: dict[str, pci.PciSource] = {}
    for entry, line in zip(listed, tables.align_rows(rows), strict=True):
        also = [f"{indent}also: {', '.join(entry.products)}"] if entry.products else []
        note = f": {entry.note}" if entry.note else ""
        lines += [line, *also, f"{indent}{', '.join(entry.sources)}{note}"]
        sources |= {key: pci.list_pci_sources(entry.vendor)[key] for key in entry.sources}
    if len(matches.cards) > _MOST_CARDS:
        more = len(matches.cards) - _MOST_CARDS
        lines.append(f"… and {more} more (--json prints all; more words find fewer)")
    if not listed:
        lines.append("no card with it has a PCI id in the tables yet")
    if sources:
        source_rows = []
        for key, source in sorted(sources.items()):
            state = ", ".join(part for part in (source.at[:12].strip("-"), source.date) if part)
            source_rows.append((key, f"{source.where}{f' ({state})' if state else ''}"))
        lines += ["", "sources", *(f"  {line}" for line in tables.align_rows(source_rows))]
    installs = []
    for facts in matches.targets:
        prefix = f"{facts.target}: " if facts.target and len(matches.targets) > 1 else ""
        installs += [f"  {prefix}{row}" for row in _describe_install(facts)]
    return "\n".join([*lines, *(["", "install"] if installs else []), *installs])


def _describe_install(facts: gpu_cards.TargetFacts) -> list[str]:
    """Return the command that installs torch for a GPU, for each system where they differ; or why none."""
    from rocm_wheels.user import install_options

    commands = make_install_commands(facts)
    different = set(commands.values())
    if different == {None}:
        why = install_options.explain_no_torch(facts.target) if facts.target else ["nothing tells its target"]
        return list(why)
    if len(different) == 1:
        return [str(different.pop())]
    return [f"{system}: {command or 'no torch has kernels for it'}" for system, command in commands.items()]


def make_install_commands(facts: gpu_cards.TargetFacts) -> dict[str, str | None]:
    """Return by platform the command that installs torch for a GPU; None where no index has one.

    It is for the Python that runs this. GPUs of other vendors are found when it runs.
    """
    from rocm_wheels.core import shell
    from rocm_wheels.user import install_options

    place = ["--venv", install_options.NEW_VENV]
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    if facts.vendor != "amd":
        return dict.fromkeys(_SYSTEMS, shell.format_command(["rocm-wheels", "install", *place]))
    gfx = facts.target or ""
    commands: dict[str, str | None] = {}
    for platform in _SYSTEMS:
        options = install_options.list_install_options(gfx, platform=platform) if gfx else []
        option = install_options.pick_option(options, python)
        commands[platform] = option.format_install(python, gfx=gfx, place=place) if option else None
    return commands


def _describe_target(facts: gpu_cards.TargetFacts) -> list[str]:
    shown: dict[str, Any] = {
        fact.what: f"{fact.value}{'?' * (fact.kind == 'believed')}" for fact in facts.facts
    }
    if facts.generic:
        shown["runs also"] = f"code for {facts.generic}"
    for platform in _SYSTEMS:
        urls = [index.url for index in facts.indexes if index.platform == platform]
        more = [f"and {len(urls) - _MOST_INDEXES} more"] if len(urls) > _MOST_INDEXES else []
        shown[platform] = [*urls[:_MOST_INDEXES], *more]
    if not facts.indexes:
        shown["indexes"] = "none of the stable channel serves it"
    name = facts.target or "not known"
    if facts.vendor != "amd":
        intel = "Intel, before Xe" if facts.target else "Intel"
        name = intel if facts.vendor == "intel" else f"NVIDIA, compute capability {name}"
    lines = output.format_facts(shown)
    return [f"{name}  {facts.product}".rstrip(), *(f"  {line}" for line in lines)]
