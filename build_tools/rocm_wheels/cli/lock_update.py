"""``rocm-wheels lock update`` and ``rocm-wheels lock manifest``: what becomes of a lock that is there."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rocm_wheels import log
from rocm_wheels.cli import checkout_options, network, patches
from rocm_wheels.cli.boundary import environment
from rocm_wheels.cli.lock import checkouts_of, output_of
from rocm_wheels.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rocm_wheels.model.lock import Lock
    from rocm_wheels.sources.lock.manifest import Entry

_FILE = click.Path(path_type=Path)
_MOST = 20  # commits of a project that are listed
_THEROCK = "https://github.com/ROCm/TheRock"
_HELP = """Resolve the refs of some projects of a lock again, and say what changed.

A project whose commit torch pins takes the pin of the lock's torch; one that was locked by a branch or
tag takes what that is now. The others stay as they are.
"""


def _command() -> click.Command:
    return click.Command(
        "update",
        params=[
            click.Argument(["file"], type=_FILE, metavar="FILE"),
            click.Argument(["projects"], metavar="[PROJECT]…", nargs=-1),
            click.Option(["--all", "everything"], is_flag=True, help="All that are in the lock."),
            patches.folder_option(),
            checkout_options.repo_option(),
            *network.options(fills_mirrors=False),
        ],
        callback=_run,
        help=_HELP,
    )


def _run(**given: Any) -> None:
    from rocm_wheels.sources.lock.file import read_lock, write_lock
    from rocm_wheels.sources.lock.update import update_lock

    file: Path = given["file"]
    lock = read_lock(file)
    if all(project.tree is None for project in lock.projects.values()):
        raise UsageError(
            f"{file} is a manifest, not a lock", tip="make a lock with `rocm-wheels lock -o FILE`"
        )
    transport = network.transport_of(given)
    updated = update_lock(
        lock,
        _names(given, lock),
        torch=checkout_options.TORCH,
        checkouts=checkouts_of(given),
        patches=patches.folder_of(given),
        env=environment(),
        transport=transport,
    )
    if write_lock(file, updated.lock):
        _show_changes(lock, updated.lock, given)
    for drift in updated.drifts:
        log.warn(f"{drift.name}: torch now pins {drift.pin.ref[:12]}, the lock has {drift.locked[:12]}")
    if updated.drifts:
        names = " ".join(drift.name for drift in updated.drifts)
        log.note(f"`rocm-wheels lock update {file} {names}` takes those pins")


def _names(given: Mapping[str, Any], lock: Lock) -> list[str]:
    from rocm_wheels.cli.checkout import project_named

    if bool(given["projects"]) == given["everything"]:
        raise UsageError(
            "--all and names of projects exclude each other"
            if given["everything"]
            else "name the projects to update, or give --all",
            tip=f"in the lock: {', '.join(lock.projects)}",
        )
    return (
        list(lock.projects)
        if given["everything"]
        else [*dict.fromkeys(map(project_named, given["projects"]))]
    )


def _show_changes(old: Lock, new: Lock, given: Mapping[str, Any]) -> None:
    """Print what changed, with the commits between where they can be had."""
    from rocm_wheels.sources.lock.diff import compare
    from rocm_wheels.sources.lock.diff_report import report_lines
    from rocm_wheels.sources.lock.history import histories

    diff = compare(old, new)
    found = histories(
        diff,
        repos=checkouts_of(given),
        submodules=False,
        transport=network.transport_of(given),
        env=environment(),
    )
    click.echo("\n".join(report_lines(diff, found, most=_MOST)))


@click.command("manifest")
@click.argument("file", type=_FILE, metavar="LOCK")
@click.option("-o", "--output", type=_FILE, metavar="FILE", help="File to write; - is stdout.")
@click.option("--therock-commit", metavar="SHA", help="Commit of TheRock that the ROCm packages are of.")
@click.option("--therock-repo", metavar="URL", help=f"Its repository [default: {_THEROCK}].")
@click.option("--therock-branch", metavar="NAME", help="Its branch.")
def manifest(file: Path, output: Path | None, **therock: str | None) -> None:
    """Write a lock as a manifest of TheRock's scripts (schema version 1).

    Versions carry the suffix of the lock's ROCm version; trees, submodules and patches are not said there.
    """
    from rocm_wheels.sources.lock.file import read_lock, write_if_other
    from rocm_wheels.sources.lock.manifest import manifest_text

    target = output_of(output)
    text = manifest_text(read_lock(file), _entry(therock))
    if target is None:
        click.echo(text, nl=False)
    else:
        write_if_other(target, text)


def _entry(therock: Mapping[str, str | None]) -> Entry | None:
    from rocm_wheels.sources.lock.manifest import Entry
    from rocm_wheels.sources.network.remote import check_ref, is_commit, origin_of

    commit, repo, branch = (therock[f"therock_{name}"] for name in ("commit", "repo", "branch"))
    if commit is None:
        for name, value in (("repo", repo), ("branch", branch)):
            if value is not None:
                raise UsageError(f"--therock-{name} says nothing without --therock-commit", tip="give both")
        return None
    if not is_commit(commit):
        raise UsageError(f"--therock-commit {commit!r} is not a commit", tip="give all 40 digits")
    if branch is not None:
        check_ref(branch)
    return Entry(repo=origin_of(repo or _THEROCK, Path.cwd())[0], commit=commit, branch=branch)


command = _command()
