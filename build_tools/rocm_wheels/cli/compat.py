"""``compat``: what goes with what, by tables of sourced facts, and what is stated about a GPU."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

from rocm_wheels.cli.command import command, group, option
from rocm_wheels.cli.options import PythonVersions
from rocm_wheels.core import (
    AuditError,
    UsageError,
    align_rows,
    find_errors,
    format_count,
    format_finding,
    format_table,
    get_output_width,
    log_note,
    suggest_name,
)

if TYPE_CHECKING:
    from packaging.version import Version

    from rocm_wheels.gpus import PciEntry
    from rocm_wheels.models import Explanation, FoundCards, Statement, TargetFacts, TorchBuild


def read_version(text: str, option: str) -> Version:
    """Return a version that was given. Raises UsageError for what is none; 2.13 and 7.2 are series."""
    from rocm_wheels.models import parse_version

    try:
        return parse_version(text)
    except ValueError as fault:
        raise UsageError(f"{option}: {fault}", tip="such as 2.13, 2.13.1 or 7.14") from None


def find_version(text: str, option: str, versions: Sequence[Version]) -> Version:
    """Return a version that the tables have. Raises UsageError with the one that was probably meant."""
    from rocm_wheels.core import suggest_name
    from rocm_wheels.models import is_same_release

    version = read_version(text, option)
    if not any(is_same_release(version, candidate) for candidate in versions):
        words = list(map(str, versions))
        raise UsageError(
            f"{option}: no table has {version}{suggest_name(text, words)}", tip=f"known: {', '.join(words)}"
        )
    return version


def read_gpu(text: str, option: str = "--gfx") -> str:
    """Return the target that is named: a target with or without features, or a product of exactly one target.

    Raises UsageError otherwise, with the name that was probably meant.
    """
    from rocm_wheels.core import suggest_name
    from rocm_wheels.models import (
        find_targets,
        get_gfx_targets,
        list_near_targets,
        parse_targets,
        strip_features,
    )

    if strip_features(text) in get_gfx_targets():
        return strip_features(parse_targets(text, input_name=option)[0])
    targets = find_targets(text)
    if len(targets) == 1:
        return targets[0]
    if targets:
        raise UsageError(f"{option}: {text!r} can mean {', '.join(targets)}", tip="name one of them")
    products = [word for target in get_gfx_targets().values() for word in target.products]
    hint = suggest_name(text, [*list_near_targets(text, list(get_gfx_targets())), *products])
    raise UsageError(
        f"{option}: {text!r} is no GPU target or product{hint}",
        tip="`rocm-wheels compat show targets` lists them; `rocm-wheels compat gpu` knows more names",
    )


def read_python(text: str, option: str = "--python") -> str:
    """Return a Python as the tables write it, ``3.12`` or ``3.14t``. Raises UsageError."""
    from rocm_wheels.models import get_python_key

    try:
        get_python_key(text)
    except ValueError as fault:
        raise UsageError(f"{option}: {fault}", tip="such as 3.12, or 3.14t for free threading") from None
    return text


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
    return "\n".join([format_table(words, cells, width=width), *sources])


def rows_as_json(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[dict[str, str]]:
    """Return each row with the header's words as keys."""
    keys = [word.replace(" ", "_") for word in header]
    return [dict(zip(keys, row, strict=True)) for row in rows]


Rows = tuple[tuple[str, ...], list[tuple[str, ...]]]
# name: (module:function under rocm_wheels.models, what the table has)
TABLES = {
    "targets": (
        "gfx:tabulate_targets",
        "GPU targets: products, families, fp8, wavefront, what is not built for them",
    ),
    "releases": ("package_indexes:tabulate_releases", "releases of ROCm, and the indexes that have them"),
    "indexes": ("package_indexes:tabulate_indexes", "package indexes that torch comes from, best first"),
    "builds": ("torch_builds:tabulate_builds", "torch by ROCm and index: targets and Pythons"),
    "images": ("torch_builds:tabulate_images", "container images with a torch, and to build wheels in"),
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


@command("compat show")
@click.argument("table", required=False, metavar="[TABLE]")
@option("--json", "as_json", is_flag=True, help="Print the rows as JSON.")
def show(table: str | None, as_json: bool) -> None:
    """List the compatibility tables, or print TABLE with the source of every row.

    \b
    Examples:
      rocm-wheels compat show targets
    """
    if table is None:
        table_rows = [(name, str(len(_load_rows(name)[1])), words) for name, (_, words) in TABLES.items()]
        _print_rows(("table", "rows", "what it has"), table_rows, as_json, "tables")
        return
    if table not in TABLES:
        raise UsageError(
            f"there is no table {table!r}{suggest_name(table, TABLES)}", tip=f"tables: {', '.join(TABLES)}"
        )
    header, rows = _load_rows(table)
    _print_rows(header, rows, as_json, table)


@command("compat matrix")
@option("--torch", metavar="VERSION", help="Only this torch: a release or a series (2.13).")
@option("--rocm", metavar="VERSION", help="Only this ROCm: a release or a series (7.14).")
@option("--gfx", "gpu", metavar="TARGET", help="Only what has code for this GPU: gfx1100, or a product.")
@option(
    "--python",
    type=PythonVersions(),
    metavar="VERSION",
    help="Only what is there for this Python (3.12, 3.14t).",
)
@option("--platform", type=click.Choice(["linux", "windows"]), help="Only this platform.")
@option(
    "--channel",
    type=click.Choice(["stable", "prerelease", "nightly", "dev", "all"]),
    default="stable",
    show_default=True,
    help="Releases, or builds of another kind.",
)
@option("--json", "as_json", is_flag=True, help="Print the rows as JSON.")
def matrix(
    *,
    torch: str | None,
    rocm: str | None,
    gpu: str | None,
    python: str | None,
    platform: str | None,
    channel: str,
    as_json: bool,
) -> None:
    """Show which torch exists for which ROCm, GPU, Python and platform, and how that is known.

    A build that nobody says anything of is not there; `compat explain` says what is not known.

    \b
    Examples:
      rocm-wheels compat matrix --gfx gfx1100 --python 3.12
    """
    from rocm_wheels.models import find_builds, list_rocm_versions, list_torch_versions

    target = None if gpu is None else read_gpu(gpu)
    builds = find_builds(
        None if torch is None else find_version(torch, "--torch", list_torch_versions()),
        None if rocm is None else find_version(rocm, "--rocm", list_rocm_versions()),
        target=target,
        python=None if python is None else read_python(python),
        platform=platform,
        channel=None if channel == "all" else channel,
    )
    header, rows = builds_as_rows(builds, target, platform)
    if not rows and not as_json:
        click.echo("no build of the tables fits; `rocm-wheels compat explain` says what is known")
        return
    _print_rows(header, rows, as_json, "builds")


def builds_as_rows(builds: tuple[TorchBuild, ...], target: str | None, platform: str | None) -> Rows:
    """Return header and rows: a build and platform a row; ``kind`` is of the target when one was given."""
    rows: list[tuple[str, ...]] = []
    for build in builds:
        for place, targets in build.targets.items():
            if platform not in {None, place} or (target and (place, target) not in build.kinds):
                continue
            rows.append(
                (
                    str(build.torch),
                    str(build.rocm),
                    place,
                    target or " ".join(targets),
                    " ".join(build.pythons),
                    build.index.name,
                    build.index.layout,
                    build.kinds[place, target] if target else build.kind,
                    build.index.url,
                    build.source.retrieved.isoformat(),
                    build.source.url,
                )
            )
    names = (
        "torch",
        "rocm",
        "platform",
        "gpu" if target else "targets",
        "pythons",
        "index",
        "layout",
        "kind",
    )
    return (*names, "url", "read", "source"), rows


def _load_rows(name: str) -> Rows:
    module, _, function = TABLES[name][0].partition(":")
    rows: Callable[[], Rows] = getattr(import_module(f"rocm_wheels.models.{module}"), function)
    return rows()


def _print_rows(header: Sequence[str], rows: Sequence[tuple[str, ...]], as_json: bool, name: str) -> None:
    if as_json:
        import json

        document: dict[str, Any] = {name: rows_as_json(header, rows)}
        click.echo(json.dumps(document, indent=1))
    else:
        click.echo(format_sourced_table(header, rows, get_output_width()))


_MARKS = {"yes": "+", "no": "-", "unknown": "?", "": " "}


@command("compat explain")
@option("--torch", required=True, metavar="VERSION", help="A torch: a release or a series (2.13).")
@option("--rocm", required=True, metavar="VERSION", help="A ROCm: a release or a series (7.14).")
@option("--gfx", "gpu", required=True, metavar="TARGET", help="A GPU: gfx1100, or a product (RX 7900 XTX).")
@option("--python", type=PythonVersions(), metavar="VERSION", help="A Python (3.12, 3.14t).")
@option(
    "--platform",
    type=click.Choice(["linux", "windows"]),
    default="linux",
    show_default=True,
    help="Platform of the wheels.",
)
@option("--json", "as_json", is_flag=True, help="Print the answer and every fact as JSON.")
def explain_command(
    *, torch: str, rocm: str, gpu: str, python: str | None, platform: str, as_json: bool
) -> None:
    """Say whether a torch with a ROCm serves a GPU, and who says so.

    Each fact is for (+), against (-) or leaves it open (?), with kind, day of reading and source.

    \b
    Examples:
      rocm-wheels compat explain --torch 2.9 --rocm 7.2 --gfx 'RX 7900 XTX'
    """
    from rocm_wheels.models import explain_compatibility

    target, version = read_gpu(gpu), read_version(torch, "--torch")
    explanation = explain_compatibility(
        version,
        read_version(rocm, "--rocm"),
        target,
        None if python is None else read_python(python),
        platform,
    )
    if as_json:
        import json

        click.echo(json.dumps(explanation_as_json(explanation, version, platform), indent=1))
    else:
        click.echo(describe_explanation(explanation, version, platform))


def describe_explanation(explanation: Explanation, torch: Version, platform: str) -> str:
    """Return the answer, the facts, the known issues, and where to install it from."""
    from rocm_wheels.models import make_issue_statement

    lines = [f"{explanation.answer}: {explanation.summary}"]
    lines += [_describe_statement(fact) for fact in explanation.statements]
    if explanation.issues:
        lines.append("known issues:")
        lines += [_describe_statement(make_issue_statement(fact), "!") for fact in explanation.issues]
    for row in _builds_as_json(explanation, torch, platform):
        with_ = ", ".join(f"{name} {version}" for name, version in row["companions"].items())
        triton = f"; triton is called {row['triton']}" if row["triton"] else ""
        lines.append(f"from {row['url']}" + (f" with {with_}" if with_ else "") + triton)
    return "\n".join(lines)


def explanation_as_json(explanation: Explanation, torch: Version, platform: str) -> dict[str, Any]:
    """Return what ``--json`` prints. Keys are added in later versions, never renamed.

    ``{"answer", "summary", "facts": [{"says", "text", "kind", "source", "retrieved", "note"}],
    "issues": [...the same], "builds": [{"index", "url", "torch", "rocm", "companions", "triton"}]}``.
    """
    from rocm_wheels.models import make_issue_statement

    return {
        "answer": explanation.answer,
        "summary": explanation.summary,
        "facts": [_statement_as_json(fact) for fact in explanation.statements],
        "issues": [_statement_as_json(make_issue_statement(fact)) for fact in explanation.issues],
        "builds": _builds_as_json(explanation, torch, platform),
    }


def _builds_as_json(explanation: Explanation, torch: Version, platform: str) -> list[dict[str, Any]]:
    from rocm_wheels.models import get_triton_name

    return [
        {
            "index": build.index.name,
            "url": build.index.url,
            "torch": str(build.torch),
            "rocm": str(build.rocm),
            "companions": {name: str(version) for name, version in build.companions.items()},
            "triton": get_triton_name(torch, build.index, platform=platform),
        }
        for build in explanation.builds
    ]


def _statement_as_json(statement: Statement) -> dict[str, Any]:
    return {
        "says": statement.answer or None,
        "text": statement.text,
        "kind": statement.kind,
        "source": statement.source,
        "retrieved": statement.retrieved.isoformat(),
        "note": statement.note,
    }


def _describe_statement(statement: Statement, mark: str | None = None) -> str:
    note = f" ({statement.note})" if statement.note else ""
    return (
        f"  {mark or _MARKS[statement.answer]} {statement.text}{note}\n      {statement.kind}, "
        f"{statement.retrieved}: {statement.source}"
    )


@command("compat lint")
@option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
def lint_command(as_json: bool) -> None:
    """Look for contradictions, unknown names, rows that nothing reaches and facts without a source.

    rocm-bootstrap is asked whether it agrees, where it is installed. Errors end with exit code 14.

    \b
    Examples:
      rocm-wheels compat lint
    """
    from rocm_wheels.models import import_bootstrap, lint_tables

    findings = lint_tables()
    errors = len(find_errors(findings))
    bootstrap_asked = import_bootstrap() is not None
    if as_json:
        import json

        rows = [
            {"level": row.severity, "table": row.group, "where": row.subject, "message": row.message}
            for row in findings
        ]
        click.echo(json.dumps({"findings": rows, "rocm_bootstrap": bootstrap_asked}, indent=1))
    else:
        for finding in findings:
            click.echo(f"{finding.severity}: {format_finding(finding)}")
        if not errors:
            click.echo("the tables fit together" + (", and rocm-bootstrap agrees" if bootstrap_asked else ""))
    if not bootstrap_asked:
        log_note("rocm-bootstrap is not installed and was not asked (pip install rocm-bootstrap)")
    if errors:
        raise AuditError(f"{format_count(errors, 'error')} in the compatibility tables")


COMMANDS = {
    "show": ("compat:show", "List the compatibility tables, or print one."),
    "matrix": ("compat:matrix", "Show which torch exists for which ROCm, GPU, Python and platform."),
    "explain": ("compat:explain_command", "Say whether a torch with a ROCm serves a GPU, and who says so."),
    "lint": ("compat:lint_command", "Look for contradictions and mistakes in the tables."),
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
@option("--json", "as_json", is_flag=True, help="Print everything as JSON, each fact with its source.")
def gpu(words: tuple[str, ...], as_json: bool) -> None:
    """Show facts about a GPU: target, families, what serves it, who says so.

    By words of its name (RX 7900 XTX, mi300x, 780M), by target (gfx942), or by PCI id as lspci -nn prints it
    (1002:74a1; 74a1 is one of AMD).

    \b
    Examples:
      rocm-wheels compat gpu RX 7900 XTX
      rocm-wheels compat gpu 1002:74a1
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
    [{"platform", "name", "url", "layout", "reason"}], "install": {"linux", "windows"}}]}``. ``card`` is
    ``discrete``, ``integrated`` or null.
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
        "targets": [
            {**make_facts_json(facts), "install": make_install_commands(facts)} for facts in matches.targets
        ],
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
    installs = [row for facts in matches.targets for row in _describe_install(facts)]
    return "\n".join([*lines, *(["", "install"] if installs else []), *(f"  {row}" for row in installs)])


def _describe_install(facts: TargetFacts) -> list[str]:
    """Return the command that installs torch for a GPU, for each system where they differ; or why none."""
    commands = make_install_commands(facts)
    different = list(dict.fromkeys(commands.values()))
    if different == [None]:
        from rocm_wheels.hosts import explain_no_torch

        return [*explain_no_torch(facts.target)] if facts.target else ["nothing tells its target"]
    if len(different) == 1:
        return [str(different[0])]
    return [f"{system}: {command or 'no torch has kernels for it'}" for system, command in commands.items()]


def make_install_commands(facts: TargetFacts) -> dict[str, str | None]:
    """Return by platform the command that installs torch for a GPU; None where no index has one.

    It is for the Python that runs this. GPUs of other vendors are found when it runs.
    """
    from rocm_wheels.core import format_command
    from rocm_wheels.hosts import list_install_options, pick_option

    place = ["--venv", ".venv"]
    commands: dict[str, str | None] = {}
    for platform in ("linux", "windows"):
        commands[platform] = format_command(["rocm-wheels", "install", *place])
        if facts.vendor == "amd":
            python = f"{sys.version_info.major}.{sys.version_info.minor}"
            gfx = facts.target or ""
            option = pick_option(list_install_options(gfx, platform=platform), python) if gfx else None
            commands[platform] = option.format_install(python, gfx=gfx, place=place) if option else None
    return commands


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
        intel = "Intel, before Xe" if facts.target else "Intel"
        name = intel if facts.vendor == "intel" else f"NVIDIA, compute capability {name}"
    return [f"{name}  {facts.product}".rstrip(), *(f"  {line}" for line in align_rows(cells))]


def _mark_believed(kind: str) -> str:
    return "?" if kind == "believed" else ""


def _card_kind(entry: PciEntry) -> str:
    return {True: "integrated", False: "discrete", None: ""}[entry.integrated]


def _describe_capability(entry: PciEntry) -> str:
    if entry.vendor == "intel":
        return "before Xe" if entry.capability else "-"
    return f"compute {entry.capability}" if entry.capability else ""
