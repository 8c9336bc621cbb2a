"""``clean``: delete what builds left in a work directory."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rocm_wheels.cli.boundary import read_environment
from rocm_wheels.cli.build_options import find_default_root, find_workspace, work_options
from rocm_wheels.cli.command import command, option
from rocm_wheels.cli.options import ByteSize, Duration
from rocm_wheels.core import UsageError, align_rows, format_count, log_note
from rocm_wheels.models import list_project_names

if TYPE_CHECKING:
    from rocm_wheels.pipeline import Leftover, LeftoverKind

_KIND_NAMES = ("trees", "environments", "runs", "rejected", "fresh", "steps", "set-aside")


@command("clean")
@work_options
@option("--older-than", type=Duration(), metavar="TIME", help="What was not used for so long: 7d, 12h.")
@option(
    "--max-size",
    type=ByteSize(),
    metavar="SIZE",
    help="What was used longest ago, until all has at most this size: 50G.",
)
@option(
    "--step",
    "steps",
    multiple=True,
    metavar="ID",
    help="What a step left, such as build-pytorch-cp311; may be repeated.",
)
@option(
    "--kind", "what", multiple=True, type=click.Choice(_KIND_NAMES), help="Only this kind; may be repeated."
)
@option("--dry-run", is_flag=True, help="Print what would go, and delete nothing.")
@option("--json", "as_json", is_flag=True, help="Print what goes as JSON on stdout.")
def clean_command(**options: Any) -> None:
    """Delete what builds left in a work directory, and build trees that wait in its checkouts.

    \b
    trees         build trees waiting to be continued
    environments  build environments, with ROCm in them
    runs          records and logs of runs that have ended
    rejected      wheels that failed their checks
    fresh         wheels left behind before they were checked
    steps         what each step last did: without it, it is done again
    set-aside     somebody else's build trees that --clean set aside

    The last two go only when they are named, by --what or (steps) by --step. Wheels in an output folder,
    checkouts, and the build tree that is in place in one, are not touched. With --work-dir alone, trees that
    wait in checkouts stay.

    \b
    Example:
      rocm-wheels clean --older-than 30d --dry-run
      rocm-wheels clean --what runs --what rejected --older-than 30d
    """
    from rocm_wheels.pipeline import (
        LeftoverSelection,
        find_leftovers,
        hold_for_cleaning,
        remove_leftover,
        select_leftovers,
    )

    choice = LeftoverSelection(options["older_than"], options["max_size"], options["steps"])
    if not (options["dry_run"] or options["what"] or choice != LeftoverSelection()):
        raise UsageError(
            "nothing selected to delete: give --older-than, --max-size, --step or --what",
            tip="--dry-run alone lists everything that there is",
        )
    env, workspace = read_environment(), find_workspace(options)
    sources, kinds = _find_sources(options), _choose_kinds(options)
    if options["dry_run"]:
        pieces = find_leftovers(workspace, kinds, sources=sources, env=env)
        _print_pieces(
            select_leftovers(pieces, choice, now=time.time()), done=False, as_json=options["as_json"]
        )
        return
    removed: list[Leftover] = []
    with hold_for_cleaning(workspace, [source for source in sources.values() if source.is_dir()], env):
        pieces = find_leftovers(workspace, kinds, sources=sources, env=env)
        for piece in select_leftovers(pieces, choice, now=time.time()):
            remove_leftover(piece)
            removed.append(piece)
    _print_pieces(removed, done=True, as_json=options["as_json"])


def _choose_kinds(options: Mapping[str, Any]) -> tuple[LeftoverKind, ...]:
    from rocm_wheels.pipeline import DEFAULT_LEFTOVER_KINDS

    if options["what"]:
        return (*options["what"], "remains")
    return (*DEFAULT_LEFTOVER_KINDS, "steps") if options["steps"] else DEFAULT_LEFTOVER_KINDS


def _find_sources(options: Mapping[str, Any]) -> dict[str, Path]:
    """Return the checkouts whose waiting trees are meant: none with a --work-dir alone."""
    if options["work_dir"] is not None and options["root_checkout_dir"] is None:
        return {}
    root = (options["root_checkout_dir"] or find_default_root()).absolute()
    return {name: root / name for name in list_project_names()}


def _print_pieces(pieces: list[Leftover], *, done: bool, as_json: bool) -> None:
    from rocm_wheels.core import format_duration, format_size

    total = sum(piece.size for piece in pieces)
    if as_json:
        value = {"deleted": done, "size": total, "pieces": [piece.as_json() for piece in pieces]}
        click.echo(json.dumps(value, indent=1))
    else:
        rows = []
        for piece in pieces:
            age = max(time.time() - piece.used, 0)
            rows.append((piece.kind, format_size(piece.size), format_duration(age), str(piece.path)))
        for line in align_rows(rows, right=(1, 2)):
            click.echo(line)
    how = "deleted" if done else "would be deleted"
    log_note(
        f"{format_count(len(pieces), 'item')} {how}, {format_size(total)}" if pieces else "nothing to delete"
    )
