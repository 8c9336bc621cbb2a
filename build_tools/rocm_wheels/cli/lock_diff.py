"""``rocm-wheels lock diff``: what changed between two locks, with the commits between."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rocm_wheels import log
from rocm_wheels.cli import network
from rocm_wheels.cli.boundary import read_environment
from rocm_wheels.cli.checkout_options import find_checkouts_folder, repo_option

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rocm_wheels.errors import SourceError
    from rocm_wheels.sources.lock.history import CommitRange, ProjectPath

_DIFF_HELP = """Show what changed between two locks: projects, submodules, ROCm, targets, and the commits between.

A and B are locks, or manifests of TheRock's scripts. Commits are looked up in a checkout (--repo) or a mirror
(--mirror-dir) that has them; else they are fetched, without files, from the repository that the lock names. A
repository that cannot be asked is a warning, and its commits stay without subjects.
"""

_HISTORY_TIP = "a checkout (--repo) or a mirror (--mirror-dir) that has both commits is read whole"


def _make_diff_command() -> click.Command:
    file = click.Path(path_type=Path)
    return click.Command(
        "diff",
        params=[
            click.Argument(["a"], type=file, metavar="A"),
            click.Argument(["b"], type=file, metavar="B"),
            repo_option(),
            click.Option(
                ["--submodules/--no-submodules"],
                default=False,
                show_default=True,
                help="List the commits inside submodules too; without, where they moved from and to.",
            ),
            click.Option(
                ["--max-commits"],
                type=click.IntRange(min=0),
                default=20,
                show_default=True,
                metavar="N",
                help="Commits to list of a repository and direction; the rest is counted.",
            ),
            click.Option(
                ["--history/--no-history"],
                default=True,
                show_default=True,
                help="Look the commits up; without, no repository is asked.",
            ),
            click.Option(
                ["--require-history"], is_flag=True, help="Fail when commits between could not be found."
            ),
            click.Option(["--json", "as_json"], is_flag=True, help="Print the differences as JSON."),
            *network.network_options(fills_mirrors=False),
        ],
        callback=_run_diff,
        help=_DIFF_HELP,
    )


def _run_diff(**given: Any) -> None:
    import json

    from rocm_wheels.errors import SourceError, UsageError
    from rocm_wheels.sources.lock import diff_report
    from rocm_wheels.sources.lock.diff import compare_locks
    from rocm_wheels.sources.lock.file import read_lock
    from rocm_wheels.sources.lock.history import read_histories

    if given["repo"] is not None and not given["repo"].is_dir():
        raise UsageError(
            f"--repo {given['repo']} is not a folder", tip="name the folder that holds the checkouts"
        )
    if given["require_history"] and not given["history"]:
        raise UsageError("--require-history and --no-history exclude each other")
    transport = network.make_transport(given)
    locks = [read_lock(given[name]) for name in ("a", "b")]
    if given["a"].resolve() == given["b"].resolve():
        log.log_warning(f"{given['a']} is compared with itself")
    diff = compare_locks(*locks)
    history: dict[ProjectPath, CommitRange | SourceError] = {}
    if given["history"]:
        history = read_histories(
            diff,
            repos=find_checkouts_folder(given["repo"]),
            submodules=given["submodules"],
            transport=transport,
            env=read_environment(),
        )
    if given["as_json"]:
        click.echo(
            json.dumps(diff_report.format_diff_json(diff, history, limit=given["max_commits"]), indent=1)
        )
    else:
        click.echo("\n".join(diff_report.format_diff_report(diff, history, limit=given["max_commits"])))
    missing = _warn_of_missing(history)
    if missing and given["require_history"]:
        raise SourceError(
            f"the commits between are not known of: {', '.join(missing)}",
            tip=f"the warnings say why; {_HISTORY_TIP}",
        )


def _warn_of_missing(history: Mapping[ProjectPath, CommitRange | SourceError]) -> list[str]:
    """Say of every repository without a history why; return their names."""
    from rocm_wheels.errors import SourceError
    from rocm_wheels.sources.lock.history import HISTORY_DEPTHS, CommitRange, make_readable, explain_failure

    missing = []
    for where, between in history.items():
        name = make_readable("/".join(part for part in where if part))
        if isinstance(between, SourceError):
            log.log_warning(f"{name}: what lies between is not known: {explain_failure(between)}")
        elif isinstance(between, CommitRange) and not between.complete:
            log.log_warning(
                f"{name}: what lies between is longer than {HISTORY_DEPTHS[-1]} commits, and no more are fetched; "
                + _HISTORY_TIP
            )
        else:
            continue
        missing.append(name)
    return missing


diff_command = _make_diff_command()
