"""Options of patches, and the commands `save-patches` and `status` of the source trees."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rocm_wheels.cli.boundary import environment
from rocm_wheels.cli.paths import GivenPath
from rocm_wheels.words import counted

if TYPE_CHECKING:
    from rocm_wheels.sources.patches.sets import PatchSet
    from rocm_wheels.sources.status import TreeStatus

Place = Callable[[str, "Path | None", "str | None", "Path | None"], Path]
_SHOWN = 12


def checkout_options() -> list[click.Parameter]:
    """Return the options of checkout that choose patches."""
    return [
        *several_options(),
        _set_option("Patch set to apply [default: the one of the ref's line, where there is one]."),
    ]


def several_options() -> list[click.Parameter]:
    """Return those of them that mean the same for several projects."""
    return [
        click.Option(["--patch/--no-patch"], default=True, show_default=True, help="Apply the patch set."),
        folder_option(),
    ]


def chosen(project: str, ref: str, given: Mapping[str, Any]) -> PatchSet | None:
    """Return the patch set that the options of a checkout choose. Raises UsageError, DataError."""
    from rocm_wheels.errors import UsageError
    from rocm_wheels.sources.patches.sets import choose_set

    name = given.get("patchset")
    if name is not None and not given["patch"]:
        raise UsageError("--no-patch and --patchset contradict each other", tip="leave one out")
    folder = folder_of(given)
    if not given["patch"]:
        return None
    return choose_set(project, ref, folder, name=name, line=given.get("line"))


def folder_of(given: Mapping[str, Any]) -> Path:
    """Return the folder of the patch sets; ``--patch-dir`` must be one. Raises UsageError."""
    from rocm_wheels.errors import UsageError

    if given["patch_dir"] is not None and not given.get("patch", True):
        raise UsageError("--no-patch and --patch-dir contradict each other", tip="leave one out")
    folder = _folder(given["patch_dir"])
    if given["patch_dir"] is not None and not folder.is_dir():
        raise UsageError(f"--patch-dir {folder} is not a folder", tip="it holds a folder a project")
    return folder


def commands(project: str, options: Sequence[click.Parameter], place: Place) -> list[click.Command]:
    """Return `save-patches` and `status`; ``options`` and ``place`` say where the checkout is."""
    return [
        click.Command(
            "save-patches",
            params=[
                *options,
                _set_option("Patch set to write [default: the tree's own, else the ref's line]."),
                folder_option(),
                click.Option(
                    ["--replace"], is_flag=True, help="Also over patches that the tree was made without."
                ),
            ],
            callback=lambda **values: _save(project, place, **values),
            help="Write the commits on top of the diffbase tags to a patch set, for checkout to apply.",
        ),
        click.Command(
            "status",
            params=[*options, click.Option(["--json", "as_json"], is_flag=True, help="For programs.")],
            callback=lambda **values: _status(project, place, **values),
            help="Say what the tree is: upstream, patched, hipified, changed by you, and by how much.",
        ),
    ]


def _set_option(what: str) -> click.Parameter:
    return click.Option(["--patchset"], metavar="NAME", help=what)


def folder_option() -> click.Parameter:
    """Return the option that says where the patch sets are."""
    return click.Option(
        ["--patch-dir"],
        type=GivenPath(),
        help="Folder of the patch sets (the clone's patches/).",
    )


def _folder(given: Path | None) -> Path:
    if given is not None:
        return given
    from rocm_wheels.workspace import home

    return home() / "patches"


def _save(project: str, place: Place, **given: Any) -> None:
    from rocm_wheels import log
    from rocm_wheels.errors import UsageError
    from rocm_wheels.model.project import load_project
    from rocm_wheels.sources.patches.save import origin_of_tree, save_patches
    from rocm_wheels.sources.patches.sets import set_to_save
    from rocm_wheels.workspace import in_clone

    if given["patch_dir"] is None and not in_clone():
        raise UsageError(
            "there is no clone whose patches/ could be written", tip="name a folder with --patch-dir"
        )
    directory = place(project, given["repo"], given["repo_name"], given["checkout_dir"])
    made_with, ref = origin_of_tree(directory, env=environment())
    folder = set_to_save(
        project, _folder(given["patch_dir"]), name=given["patchset"], made_with=made_with, ref=ref
    )
    saved = save_patches(
        load_project(project), directory, folder, replace_others=given["replace"], env=environment()
    )
    for name in saved.written:
        log.note(f"wrote {saved.folder / name}")
    for name in saved.removed:
        log.note(f"removed {saved.folder / name}")
    log.note(f"{saved.folder} has {len(saved.patches)} patches, {len(saved.written)} of them written now")


def _status(project: str, place: Place, **given: Any) -> None:
    from rocm_wheels.model.project import load_project
    from rocm_wheels.sources.status import tree_status

    directory = place(project, given["repo"], given["repo_name"], given["checkout_dir"])
    status = tree_status(load_project(project), directory, env=environment())
    if given["as_json"]:
        from dataclasses import asdict

        click.echo(json.dumps({"project": project, "words": status.words, **asdict(status)}, indent=1))
        return
    for line in _lines(project, status):
        click.echo(line.replace("\n", "\\n").encode("utf-8", "backslashreplace"))


def _lines(project: str, status: TreeStatus) -> list[str]:
    """Return what a person reads."""
    origin = f" ({status.ref} of {status.origin})" if status.ref else ""
    lines = [
        f"{project}: {', '.join(status.words)}",
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
    for one in status.repositories:
        where = one.path or "the root"
        if one.base or one.hipified:
            lines.append(f"  patches in {where}: {one.base} base, {one.hipified} hipified")
        if one.commits or one.files:
            lines.append(
                f"  changed by you in {where}: {counted(len(one.commits), 'commit')}, "
                f"{counted(len(one.files), 'file')} not committed, +{one.added} -{one.removed} lines"
            )
            said = [f"commit {commit}" for commit in one.commits] + [
                f"{word} {path}" for word, path in one.files
            ]
            lines += [f"    {line}" for line in said[:_SHOWN]]
            lines += [f"    … and {len(said) - _SHOWN} more"] if len(said) > _SHOWN else []
    return lines
