"""``rocm-wheels bisect``: which set broke it."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rocm_wheels import log
from rocm_wheels.cli.boundary import environment
from rocm_wheels.cli.paths import GivenPath
from rocm_wheels.cli.store_options import layout_option
from rocm_wheels.errors import UsageError

if TYPE_CHECKING:
    from rocm_wheels.release.bisect.probing import Prober
    from rocm_wheels.release.bisect.question import Asked, Line
    from rocm_wheels.release.bisect.state import State

_HELP = """Find the first set of STORE that COMMAND fails with, between a good one and a bad one.

Sets of one family are tried that were made between the two: those for their platform and, where both are of
one torch line (as their locks say, else 2.13 by their torch), of that line alone.

Each set that is tried is installed into an environment of its own, by uv and from its own index, and COMMAND
is run with that Python first on PATH; ROCM_WHEELS_SET and ROCM_WHEELS_INDEX say which set it is. What COMMAND
exits with counts as for `git bisect run`: 0 is good, 125 cannot be tested, 1 to 127 is bad, 128 and more
stops. Sets that cannot be installed are skipped. What is found is noted at once: a run that was killed is
carried on by the same command, also where more sets were staged after the bad one.

What the sets require comes from them first, then from --extra-index, then from PyPI or UV_DEFAULT_INDEX, and
from --find-links beside these.

\b
Example:
  rocm-wheels bisect s3://wheels --good 2.9.1-93bf --bad 2.9.1-51aa --gfx gfx942 \\
    --extra-index https://example.org/rocm -- python -c 'import torch; torch.ones(1).cuda()'

\b
JSON (keys are added, never renamed):
  first_bad, last_good, certain, skipped: [set, why],
  probes: [set, outcome: good|bad|skip, why, exit, seconds],
  differs: {versions, rocm, lock (as of lock diff), lock_diff, why_not}
with --plan:
  sets, between, ends, probes_at_most, first, known: [as probes]
"""


@click.command("bisect", help=_HELP)
@click.argument("store", metavar="STORE")
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="-- COMMAND...")
@click.option("--good", required=True, metavar="ID", help="A set that works, or how its id begins.")
@click.option("--bad", required=True, metavar="ID", help="A later set that does not.")
@click.option("--family", metavar="NAME", help="Family of the sets, where several have their ids.")
@click.option(
    "--channel", metavar="CHANNEL", help="Only sets that this channel ever showed [default: all staged sets]."
)
@click.option(
    "--gfx",
    metavar="LIST",
    help="GPU targets that a set must be for, one at least [default: those of this machine].",
)
@click.option("--python", metavar="PY", help="Python to try them with: a path or 3.12 [default: this one].")
@click.option(
    "--project",
    "projects",
    multiple=True,
    metavar="NAME",
    help="Project to install; may be repeated [default: torch, or all of sets without it].",
)
@click.option(
    "--extra-index", multiple=True, metavar="URL", help="Another index, as that of ROCm's packages."
)
@click.option("--find-links", multiple=True, metavar="URL|DIR", help="Folder or page of other wheels.")
@click.option("--pre", is_flag=True, help="Take pre-releases of what the sets require, too.")
@click.option(
    "--store-url",
    metavar="URL",
    help="Where STORE is served to installers [default: a folder is read; of others, sets are copied].",
)
@click.option("--trust-ends", is_flag=True, help="Believe that the good set is good and the bad one is bad.")
@click.option(
    "--plan",
    is_flag=True,
    help="Print which sets there are and how many would be tried; of COMMAND, what is known already.",
)
@click.option(
    "--work-dir", type=GivenPath(file_okay=False), help="Where it works [default: the cache folder]."
)
@click.option("--keep", is_flag=True, help="Keep the environments.")
@layout_option
@click.option("--json", "as_json", is_flag=True, help="Print the answer as JSON.")
def command(store: str, command: tuple[str, ...], as_json: bool, **given: Any) -> None:
    """Ask, search, answer."""
    from rocm_wheels.errors import ReleaseError
    from rocm_wheels.release.bisect.answer import answer_as_json, answer_lines, answer_of
    from rocm_wheels.release.bisect.bisecting import bisect
    from rocm_wheels.release.bisect.probing import Prober
    from rocm_wheels.release.bisect.question import key_of, line_between
    from rocm_wheels.release.bisect.state import State
    from rocm_wheels.release.layout import load_layout
    from rocm_wheels.stores import open_existing
    from rocm_wheels.workspace import exclusive

    env = environment()
    opened, layout = open_existing(store, env), load_layout(given["store_layout"])
    if not command and not given["plan"]:
        raise UsageError("there is no COMMAND to try sets with", tip="behind --; or see the sets: --plan")
    ends = {name: given[name] for name in ("good", "bad")}
    line = line_between(opened, layout, **ends, family=given["family"], channel=given["channel"])
    asked = _asked(line, command, given, env)
    key = key_of(line, asked)
    folder = (given["work_dir"] or _work_dir(env)).absolute() / key
    prober = Prober(line, asked, folder, env, keep=given["keep"])
    if given["plan"]:
        _print_plan(prober, State(folder, key, str(asked)), trusted=given["trust_ends"], as_json=as_json)
        return
    tip = "wait for it to end: it asks the same"
    with exclusive(folder, what="a search", tip=tip, error=ReleaseError):
        state = State(folder, key, str(asked))
        between = bisect(prober, state, trust_ends=given["trust_ends"], tell=log.note)
        answer = answer_of(line, between, state)
        if as_json:
            click.echo(json.dumps(answer_as_json(answer), indent=1))
        else:
            click.echo("\n".join(answer_lines(answer)))
        state.finish()
    log.note(f"what was printed: {folder / 'logs'}")
    if given["keep"]:
        log.note(f"environments: {folder / 'environments'}")


def _asked(line: Line, words: tuple[str, ...], given: Mapping[str, Any], env: Mapping[str, str]) -> Asked:
    from packaging.utils import canonicalize_name

    from rocm_wheels.model.gfx import base_target, parse_targets
    from rocm_wheels.release.bisect.question import Asked
    from rocm_wheels.release.views.public import checked_url, read_public
    from rocm_wheels.sdk.interpreters import find_interpreters

    targets = _here(env) if given["gfx"] is None else parse_targets(given["gfx"], what="--gfx")
    (python,) = find_interpreters([given["python"] or sys.executable], env)
    projects = _projects(line, tuple(canonicalize_name(one) for one in given["projects"]))
    return Asked(
        command=words,
        cwd=Path.cwd(),
        projects=projects,
        python=python.path,
        python_version=f"{python.tag[2]}.{python.tag[3:]}",
        targets=tuple(dict.fromkeys(base_target(one) for one in targets)),
        extra_indexes=given["extra_index"] or read_public(line.store, line.layout).other_indexes,
        find_links=tuple(_place(one) for one in given["find_links"]),
        served=checked_url(given["store_url"]) if given["store_url"] is not None else "",
        pre=given["pre"],
    )


def _projects(line: Line, named: tuple[str, ...]) -> tuple[str, ...]:
    """Return the projects to install. Raises UsageError for one that no set has."""
    from rocm_wheels.records import did_you_mean

    known = {project for row in line.rows for project in row.projects}
    for one in named:
        if one not in known:
            what = f"--project: none of the {len(line.rows)} sets has {one}{did_you_mean(one, known)}"
            raise UsageError(what, tip=f"they have {', '.join(sorted(known))}")
    if named:
        return tuple(dict.fromkeys(named))
    return ("torch",) if "torch" in known else line.rows[0].projects


def _place(text: str) -> str:
    """Return a page or folder of wheels as it is found from anywhere. Raises UsageError for no folder."""
    if "://" in text:
        return text
    if not Path(text).is_dir():
        raise UsageError(f"--find-links {text} is not a folder", tip="name a folder of wheels, or a URL")
    return str(Path(text).absolute())


def _here(env: Mapping[str, str]) -> tuple[str, ...]:
    from rocm_wheels.gpus.look import look

    hardware = look(env, vendors=("amd",))
    for fault in hardware.faults:
        log.warn(fault)
    found = tuple(dict.fromkeys(one.gfx for one in hardware.usable if one.gfx))
    if not found:
        log.note("no GPU was found here: sets for any are tried; --gfx says for which")
    return found


def _work_dir(env: Mapping[str, str]) -> Path:
    from rocm_wheels.hosts.install.cache import cache_folder

    return cache_folder(env, sys.platform) / "bisect"


def _print_plan(prober: Prober, state: State, *, trusted: bool, as_json: bool) -> None:
    from rocm_wheels.release.bisect.bisecting import known
    from rocm_wheels.release.bisect.search import probes_at_most

    between, rows = known(prober, state), prober.line.rows
    tried = {one.set for one in state.probes}
    ends = 0 if trusted else sum(row.id not in tried for row in (rows[0], rows[-1]))
    first = rows[between.next].id if between.next is not None else None
    most = probes_at_most(between.untested)
    if as_json:
        said = {
            "sets": list(prober.line.ids),
            "between": between.untested,
            "ends": ends,
            "probes_at_most": most,
            "first": first,
            "known": [one.model_dump(mode="json") for one in state.probes],
        }
        click.echo(json.dumps(said, indent=1))
        return
    for number, row in enumerate(rows):
        probe = state.of(row.id)
        word = (
            probe.outcome
            if probe
            else {0: "said to be good", len(rows) - 1: "said to be bad"}.get(number, "")
        )
        mark = "->" if row.id == first else "  "
        click.echo(f"{mark} {row.id}  ROCm {row.rocm or 'unknown'}  {row.created}  {word}".rstrip())
    both = f" and {ends} {'end' if ends == 1 else 'ends'}" if ends else ""
    what = f"{between.untested} of {len(rows)} sets are between: at most {most} are tried{both}"
    click.echo(f"{what}, as long as each can be tested")
