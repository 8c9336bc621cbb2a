"""``bisect``: find the set that broke a command."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rocm_wheels.cli import boundary, catalogue
from rocm_wheels.cli.command import command, option
from rocm_wheels.core import errors, log, tables

if TYPE_CHECKING:
    from rocm_wheels.release import bisect

_HELP = """Find the first set of STORE that COMMAND fails with, between a good one and a bad one.

Sets of one family are tried that were made between the two: those for their platform and, where both are of
one torch line (as their locks say, else 2.13 by their torch), of that line alone.

Each set that is tried is installed into an environment of its own, by uv and from its own index, and COMMAND
is run with that Python first on PATH; ROCM_WHEELS_SET and ROCM_WHEELS_INDEX say which set it is. What COMMAND
exits with counts as for `git bisect run`: 0 is good, 125 cannot be tested, 1 to 127 is bad, 128 and more
stops. Sets that cannot be installed are skipped. What is found is noted at once: a run that was killed is
carried on by the same command, also where more sets were staged after the bad one.

What the sets require comes from them first, then from --dependency-index, then from PyPI or
UV_DEFAULT_INDEX, and from --find-links beside these.

\b
Example:
  rocm-wheels set bisect s3://wheels --good 2.9.1-93bf --bad 2.9.1-51aa --gfx gfx942 \\
    --dependency-index https://example.org/rocm -- python -c 'import torch; torch.ones(1).cuda()'

\b
JSON (keys are added, never renamed):
  first_bad, last_good, certain, skipped: [set, why],
  probes: [set, outcome: good|bad|skip, why, exit, seconds],
  differs: {versions, rocm, lock (as of lock diff), lock_diff, why_not}
with --plan:
  sets, between, ends, probes_at_most, first, known: [as probes]
"""


@command("set bisect", help=_HELP)
@click.argument("store", metavar="STORE")
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="-- COMMAND...")
@option("--good", required=True, metavar="ID", help="A set that works, or how its id begins.")
@option("--bad", required=True, metavar="ID", help="A later set that does not.")
@catalogue.FAMILY.but(help="Family of the sets, where several have their ids.")
@catalogue.CHANNEL.but(help="Only sets that this channel ever showed [default: all staged sets].")
@catalogue.GFX.but(
    name="gfx", help="GPU targets that a set must be for, one at least [default: those of this machine]."
)
@catalogue.PYTHON_WORDS.but(help="Python to try them with: a path or 3.12 [default: this one].")
@catalogue.PROJECT.but(
    name="projects",
    multiple=True,
    help="Project to install; may be repeated [default: torch, or all of sets without it].",
)
@catalogue.DEPENDENCY_INDEX.but(
    name="extra_index", multiple=True, help="Another index, as that of ROCm's packages."
)
@catalogue.FIND_LINKS.but(multiple=True, metavar="URL|DIR", help="Folder or page of other wheels.")
@catalogue.PRE.but(help="Take pre-releases of what the sets require, too.")
@option(
    "--store-url",
    metavar="URL",
    help="Where STORE is served to installers [default: a folder is read; of others, sets are copied].",
)
@option("--trust-ends", is_flag=True, help="Believe that the good set is good and the bad one is bad.")
@catalogue.DRY_RUN.but(
    name="plan",
    help="Print which sets there are and how many would be tried; of COMMAND, what is known already.",
)
@catalogue.WORK_DIR.but(help="Where it works [default: the cache folder].")
@option("--keep", is_flag=True, help="Keep the environments.")
@catalogue.takes(catalogue.STORE_LAYOUT, catalogue.JSON)
def bisect_command(store: str, command: tuple[str, ...], as_json: bool, **given: Any) -> None:
    """Ask, search, answer."""
    from rocm_wheels.core import files
    from rocm_wheels.release import bisect
    from rocm_wheels.release.layout import load_layout
    from rocm_wheels.stores.store import open_existing_store

    env = boundary.read_environment()
    opened, layout = open_existing_store(store, env), load_layout(given["store_layout"])
    if not command and not given["plan"]:
        raise errors.UsageError(
            "there is no COMMAND to try sets with", tip="behind --; or see the sets: --plan"
        )
    ends = {name: given[name] for name in ("good", "bad")}
    line = bisect.find_line(opened, layout, **ends, family=given["family"], channel=given["channel"])
    question = _make_question(line, command, given, env)
    key = bisect.compute_bisect_key(line, question)
    folder = (given["work_dir"] or _default_work_dir(env)).absolute() / key
    prober = bisect.SetProber(line, question, folder, env, keep=given["keep"])
    if given["plan"]:
        _print_plan(
            prober,
            bisect.BisectState(folder, key, str(question)),
            trusted=given["trust_ends"],
            as_json=as_json,
        )
        return
    tip = "wait for it to end: it asks the same"
    with files.lock_folder(folder, purpose="a search", tip=tip, error=errors.ReleaseError):
        state = bisect.BisectState(folder, key, str(question))
        between = bisect.bisect_sets(prober, state, trust_ends=given["trust_ends"], report=log.log_note)
        answer = bisect.make_bisect_answer(line, between, state)
        if as_json:
            click.echo(json.dumps(bisect.convert_bisect_answer_to_json(answer), indent=1))
        else:
            click.echo("\n".join(bisect.format_bisect_answer(answer)))
        state.clear()
    log.log_note(f"what was printed: {folder / 'logs'}")
    if given["keep"]:
        log.log_note(f"environments: {folder / 'environments'}")


def _make_question(
    line: bisect.SetLine, words: tuple[str, ...], options: Mapping[str, Any], env: Mapping[str, str]
) -> bisect.ProbeRequest:
    from packaging.utils import canonicalize_name

    from rocm_wheels.models import gfx
    from rocm_wheels.release import bisect, views
    from rocm_wheels.sdk import interpreters

    targets = (
        _detect_targets(env)
        if options["gfx"] is None
        else gfx.parse_targets(options["gfx"], input_name="--gfx")
    )
    (python,) = interpreters.find_interpreters([options["python"] or sys.executable], env)
    projects = _choose_projects(line, tuple(canonicalize_name(text) for text in options["projects"]))
    return bisect.ProbeRequest(
        command=words,
        cwd=Path.cwd(),
        projects=projects,
        python=python.path,
        python_version=f"{python.tag[2]}.{python.tag[3:]}",
        targets=tuple(dict.fromkeys(gfx.strip_features(text) for text in targets)),
        extra_indexes=options["extra_index"] or views.read_public(line.store, line.layout).other_indexes,
        find_links=tuple(_resolve_find_links(text) for text in options["find_links"]),
        served=views.check_public_url(options["store_url"]) if options["store_url"] is not None else "",
        pre=options["pre"],
    )


def _choose_projects(line: bisect.SetLine, named: tuple[str, ...]) -> tuple[str, ...]:
    """Return the projects to install. Raises UsageError for one that no set has."""

    available = {project for row in line.rows for project in row.projects}
    for name in named:
        if name not in available:
            message = (
                f"--project: none of the {len(line.rows)} sets has "
                f"{name}{tables.suggest_name(name, available)}"
            )
            raise errors.UsageError(message, tip=f"they have {', '.join(sorted(available))}")
    if named:
        return tuple(dict.fromkeys(named))
    return ("torch",) if "torch" in available else line.rows[0].projects


def _resolve_find_links(text: str) -> str:
    """Return a page or folder of wheels as it is found from anywhere. Raises UsageError for no folder."""
    if "://" in text:
        return text
    if not Path(text).is_dir():
        raise errors.UsageError(
            f"--find-links {text} is not a folder", tip="name a folder of wheels, or a URL"
        )
    return str(Path(text).absolute())


def _detect_targets(env: Mapping[str, str]) -> tuple[str, ...]:
    from rocm_wheels.gpus import detect

    hardware = detect.detect_hardware(env, vendors=("amd",))
    for fault in hardware.faults:
        log.log_warning(fault)
    targets = tuple(dict.fromkeys(gpu.gfx for gpu in hardware.usable if gpu.gfx))
    if not targets:
        log.log_note("no GPU was found here: sets for any are tried; --gfx says for which")
    return targets


def _default_work_dir(env: Mapping[str, str]) -> Path:
    from rocm_wheels.core import user_folders

    return user_folders.find_cache_folder(env, sys.platform) / "bisect"


def _print_plan(prober: bisect.SetProber, state: bisect.BisectState, *, trusted: bool, as_json: bool) -> None:
    from rocm_wheels.release import bisect

    between, rows = bisect.find_range(prober, state), prober.line.rows
    tried = {entry.set for entry in state.probes}
    ends = 0 if trusted else sum(row.id not in tried for row in (rows[0], rows[-1]))
    first = rows[between.next].id if between.next is not None else None
    most = bisect.count_probes_at_most(between.untested)
    if as_json:
        document = {
            "sets": list(prober.line.ids),
            "between": between.untested,
            "ends": ends,
            "probes_at_most": most,
            "first": first,
            "known": [entry.model_dump(mode="json") for entry in state.probes],
        }
        click.echo(json.dumps(document, indent=1))
        return
    for number, row in enumerate(rows):
        probe = state.find_probe(row.id)
        word = probe.outcome if probe else {0: "given as good", len(rows) - 1: "given as bad"}.get(number, "")
        mark = "->" if row.id == first else "  "
        click.echo(f"{mark} {row.id}  ROCm {row.rocm or 'unknown'}  {row.created}  {word}".rstrip())
    both = f" and {tables.format_count(ends, 'end')}" if ends else ""
    summary = f"{between.untested} of {len(rows)} sets are between: at most {most} are tried{both}"
    click.echo(f"{summary}, as long as each can be tested")
