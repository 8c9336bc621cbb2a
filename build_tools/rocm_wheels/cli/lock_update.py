"""``rocm-wheels lock update`` and ``rocm-wheels lock manifest``: what becomes of a lock that is there."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rocm_wheels import log
from rocm_wheels.cli import checkout_options, network, patches
from rocm_wheels.cli.boundary import read_environment
from rocm_wheels.cli.lock import find_checkouts, check_output_path
from rocm_wheels.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rocm_wheels.model.lock import Lock
    from rocm_wheels.sources.lock.manifest import ManifestEntry

_LOCK_FILE = click.Path(path_type=Path)
_MOST_COMMITS = 20  # commits of a project that are listed
_THEROCK = "https://github.com/ROCm/TheRock"
_UPDATE_HELP = """Resolve the refs of some projects of a lock again, and say what changed.

A project whose commit torch pins takes the pin of the lock's torch; one that was locked by a branch or
tag takes what that is now. The others stay as they are.
"""


def _make_update_command() -> click.Command:
    return click.Command(
        "update",
        params=[
            click.Argument(["file"], type=_LOCK_FILE, metavar="FILE"),
            click.Argument(["projects"], metavar="[PROJECT]…", nargs=-1),
            click.Option(["--all", "everything"], is_flag=True, help="All that are in the lock."),
            patches.patch_folder_option(),
            checkout_options.repo_option(),
            *network.network_options(fills_mirrors=False),
        ],
        callback=_run_update,
        help=_UPDATE_HELP,
    )


def _run_update(**given: Any) -> None:
    from rocm_wheels.sources.lock.file import read_lock, write_lock
    from rocm_wheels.sources.lock.update import update_lock

    file: Path = given["file"]
    lock = read_lock(file)
    if all(project.tree is None for project in lock.projects.values()):
        raise UsageError(
            f"{file} is a manifest, not a lock", tip="make a lock with `rocm-wheels lock -o FILE`"
        )
    transport = network.make_transport(given)
    updated = update_lock(
        lock,
        _choose_names(given, lock),
        torch=checkout_options.TORCH,
        checkouts=find_checkouts(given),
        patches=patches.find_patch_folder(given),
        env=read_environment(),
        transport=transport,
    )
    if write_lock(file, updated.lock):
        _print_changes(lock, updated.lock, given)
    for drift in updated.drifts:
        log.log_warning(
            f"{drift.name}: torch now pins {drift.pin.ref[:12]}, the lock has {drift.locked[:12]}"
        )
    if updated.drifts:
        names = " ".join(drift.name for drift in updated.drifts)
        log.log_note(f"`rocm-wheels lock update {file} {names}` takes those pins")


def _choose_names(options: Mapping[str, Any], lock: Lock) -> list[str]:
    from rocm_wheels.cli.checkout import find_project_name

    if bool(options["projects"]) == options["everything"]:
        raise UsageError(
            "--all and names of projects exclude each other"
            if options["everything"]
            else "name the projects to update, or give --all",
            tip=f"in the lock: {', '.join(lock.projects)}",
        )
    return (
        list(lock.projects)
        if options["everything"]
        else [*dict.fromkeys(map(find_project_name, options["projects"]))]
    )


def _print_changes(old: Lock, new: Lock, options: Mapping[str, Any]) -> None:
    """Print what changed, with the commits between where they can be had."""
    from rocm_wheels.sources.lock.diff import compare_locks
    from rocm_wheels.sources.lock.diff_report import format_diff_report
    from rocm_wheels.sources.lock.history import read_histories

    diff = compare_locks(old, new)
    history = read_histories(
        diff,
        repos=find_checkouts(options),
        submodules=False,
        transport=network.make_transport(options),
        env=read_environment(),
    )
    click.echo("\n".join(format_diff_report(diff, history, limit=_MOST_COMMITS)))


@click.command("manifest")
@click.argument("file", type=_LOCK_FILE, metavar="LOCK")
@click.option("-o", "--output", type=_LOCK_FILE, metavar="FILE", help="File to write; - is stdout.")
@click.option("--therock-commit", metavar="SHA", help="Commit of TheRock that the ROCm packages are of.")
@click.option("--therock-repo", metavar="URL", help=f"Its repository [default: {_THEROCK}].")
@click.option("--therock-branch", metavar="NAME", help="Its branch.")
def manifest_command(file: Path, output: Path | None, **therock: str | None) -> None:
    """Write a lock as a manifest of TheRock's scripts (schema version 1).

    Versions carry the suffix of the lock's ROCm version; trees, submodules and patches are not said there.
    """
    from rocm_wheels.sources.lock.file import read_lock, write_if_changed
    from rocm_wheels.sources.lock.manifest import format_manifest

    target = check_output_path(output)
    text = format_manifest(read_lock(file), _make_manifest_entry(therock))
    if target is None:
        click.echo(text, nl=False)
    else:
        write_if_changed(target, text)


def _make_manifest_entry(therock: Mapping[str, str | None]) -> ManifestEntry | None:
    from rocm_wheels.sources.lock.manifest import ManifestEntry
    from rocm_wheels.sources.network.remote import check_ref, is_commit, parse_origin

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
    return ManifestEntry(repo=parse_origin(repo or _THEROCK, Path.cwd())[0], commit=commit, branch=branch)


update_command = _make_update_command()
