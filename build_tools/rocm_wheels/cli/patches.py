"""Options of patches, and the commands `save-patches` and `status` of the source trees."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rocm_wheels.cli.boundary import read_environment
from rocm_wheels.cli.paths import GivenPath
from rocm_wheels.words import format_count

if TYPE_CHECKING:
    from rocm_wheels.sources.patches.sets import PatchSet
    from rocm_wheels.sources.status import TreeStatus

DirectoryFinder = Callable[[str, "Path | None", "str | None", "Path | None"], Path]
_MOST_CHANGES = 12


def patch_options() -> list[click.Parameter]:
    """Return the options of checkout that choose patches."""
    return [
        *shared_patch_options(),
        _patchset_option("Patch set to apply [default: the one of the ref's line, where there is one]."),
    ]


def shared_patch_options() -> list[click.Parameter]:
    """Return those of them that mean the same for several projects."""
    return [
        click.Option(["--patch/--no-patch"], default=True, show_default=True, help="Apply the patch set."),
        patch_folder_option(),
    ]


def choose_patch_set(project: str, ref: str, options: Mapping[str, Any]) -> PatchSet | None:
    """Return the patch set that the options of a checkout choose. Raises UsageError, DataError."""
    from rocm_wheels.errors import UsageError
    from rocm_wheels.sources.patches.sets import choose_patch_set

    name = options.get("patchset")
    if name is not None and not options["patch"]:
        raise UsageError("--no-patch and --patchset contradict each other", tip="leave one out")
    folder = find_patch_folder(options)
    if not options["patch"]:
        return None
    return choose_patch_set(project, ref, folder, name=name, line=options.get("line"))


def find_patch_folder(options: Mapping[str, Any]) -> Path:
    """Return the folder of the patch sets; ``--patch-dir`` must be one. Raises UsageError."""
    from rocm_wheels.errors import UsageError

    if options["patch_dir"] is not None and not options.get("patch", True):
        raise UsageError("--no-patch and --patch-dir contradict each other", tip="leave one out")
    folder = _resolve_patch_folder(options["patch_dir"])
    if options["patch_dir"] is not None and not folder.is_dir():
        raise UsageError(f"--patch-dir {folder} is not a folder", tip="it holds a folder a project")
    return folder


def make_patch_commands(
    project: str, options: Sequence[click.Parameter], place: DirectoryFinder
) -> list[click.Command]:
    """Return `save-patches` and `status`; ``options`` and ``place`` say where the checkout is."""
    return [
        click.Command(
            "save-patches",
            params=[
                *options,
                _patchset_option("Patch set to write [default: the tree's own, else the ref's line]."),
                patch_folder_option(),
                click.Option(
                    ["--replace"], is_flag=True, help="Also over patches that the tree was made without."
                ),
            ],
            callback=lambda **values: _save_tree_patches(project, place, **values),
            help="Write the commits on top of the diffbase tags to a patch set, for checkout to apply.",
        ),
        click.Command(
            "status",
            params=[*options, click.Option(["--json", "as_json"], is_flag=True, help="For programs.")],
            callback=lambda **values: _print_tree_status(project, place, **values),
            help="Say what the tree is: upstream, patched, hipified, changed by you, and by how much.",
        ),
    ]


def _patchset_option(help_text: str) -> click.Parameter:
    return click.Option(["--patchset"], metavar="NAME", help=help_text)


def patch_folder_option() -> click.Parameter:
    """Return the option that says where the patch sets are."""
    return click.Option(
        ["--patch-dir"],
        type=GivenPath(),
        help="Folder of the patch sets (the clone's patches/).",
    )


def _resolve_patch_folder(folder: Path | None) -> Path:
    if folder is not None:
        return folder
    from rocm_wheels.workspace import get_project_home

    return get_project_home() / "patches"


def _save_tree_patches(project: str, place: DirectoryFinder, **options: Any) -> None:
    from rocm_wheels import log
    from rocm_wheels.errors import UsageError
    from rocm_wheels.model.project import load_project
    from rocm_wheels.sources.patches.save import read_patch_origin, save_patches
    from rocm_wheels.sources.patches.sets import choose_patch_folder
    from rocm_wheels.workspace import is_clone

    if options["patch_dir"] is None and not is_clone():
        raise UsageError(
            "there is no clone whose patches/ could be written", tip="name a folder with --patch-dir"
        )
    directory = place(project, options["repo"], options["repo_name"], options["checkout_dir"])
    made_with, ref = read_patch_origin(directory, env=read_environment())
    folder = choose_patch_folder(
        project,
        _resolve_patch_folder(options["patch_dir"]),
        name=options["patchset"],
        made_with=made_with,
        ref=ref,
    )
    saved = save_patches(
        load_project(project), directory, folder, replace_others=options["replace"], env=read_environment()
    )
    for name in saved.written:
        log.log_note(f"wrote {saved.folder / name}")
    for name in saved.removed:
        log.log_note(f"removed {saved.folder / name}")
    log.log_note(f"{saved.folder} has {len(saved.patches)} patches, {len(saved.written)} of them written now")


def _print_tree_status(project: str, place: DirectoryFinder, **options: Any) -> None:
    from rocm_wheels.model.project import load_project
    from rocm_wheels.sources.status import read_tree_status

    directory = place(project, options["repo"], options["repo_name"], options["checkout_dir"])
    status = read_tree_status(load_project(project), directory, env=read_environment())
    if options["as_json"]:
        from dataclasses import asdict

        click.echo(json.dumps({"project": project, "words": status.labels, **asdict(status)}, indent=1))
        return
    for line in _describe_tree(project, status):
        click.echo(line.replace("\n", "\\n").encode("utf-8", "backslashreplace"))


def _describe_tree(project: str, status: TreeStatus) -> list[str]:
    """Return what a person reads."""
    origin = f" ({status.ref} of {status.origin})" if status.ref else ""
    lines = [
        f"{project}: {', '.join(status.labels)}",
        f"  tree      {status.directory}",
        f"  upstream  {status.upstream}{origin}",
        f"  HEAD      {status.head}",
        f"  hipify    {status.hipify}"
        + (
            "; files changed since: `hipify` or `build` translates them"
            if status.changed_since_hipify
            else ""
        ),
    ]
    if status.interrupted:
        lines.append(f"  interrupted: {status.interrupted}; run it again, it carries on")
    for repository in status.repositories:
        where = repository.path or "the root"
        if repository.base or repository.hipified:
            lines.append(f"  patches in {where}: {repository.base} base, {repository.hipified} hipified")
        if repository.commits or repository.files:
            lines.append(
                f"  changed by you in {where}: {format_count(len(repository.commits), 'commit')}, "
                f"{format_count(len(repository.files), 'file')} not committed, +{repository.added} -{repository.removed} lines"
            )
            changes = [f"commit {commit}" for commit in repository.commits] + [
                f"{word} {path}" for word, path in repository.files
            ]
            lines += [f"    {line}" for line in changes[:_MOST_CHANGES]]
            lines += (
                [f"    … and {len(changes) - _MOST_CHANGES} more"] if len(changes) > _MOST_CHANGES else []
            )
    return lines
