"""``sources``: look at source trees, hipify and patch them."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rocm_wheels.cli import boundary, catalogue, checkout_options, command
from rocm_wheels.cli.output import print_result
from rocm_wheels.core import errors, log, shell, tables, workspace
from rocm_wheels.models import project_names

if TYPE_CHECKING:
    from rocm_wheels.sources import export, patches, tree_status

_MOST_CHANGES = 12
_PROJECTS = click.argument(
    "projects", nargs=-1, metavar="[PROJECT]…", shell_complete=command.complete_with("list_projects")
)


def _choose_trees(names: Sequence[str], repo: Path | None) -> dict[str, Path]:
    """Return the trees that are named, else all that are there. Raises UsageError and SourceError."""
    from rocm_wheels.cli import checkout

    folder = checkout_options.find_checkouts_folder(repo).absolute()
    named = dict.fromkeys(map(checkout.find_project_name, names))
    projects = named or project_names.list_project_names()
    trees = {name: folder / name for name in projects if names or (folder / name / ".git").exists()}
    if not trees:
        raise errors.SourceError(
            f"there are no source trees in {folder}", tip="name their folder with --source-dir"
        )
    return trees


@command.command("sources status")
@_PROJECTS
@checkout_options.REPO
@catalogue.JSON
def status_command(projects: tuple[str, ...], repo: Path | None, as_json: bool) -> None:
    """Show which source trees are patched, hipified or changed by you.

    \b
    Examples:
      rocm-wheels sources status
      rocm-wheels sources status torch --json
      rocm-wheels sources status torch --source-dir ~
    """
    trees = _choose_trees(projects, repo)
    statuses = {name: _read_status(name, directory) for name, directory in trees.items()}
    document = [_status_as_json(name, status) for name, status in statuses.items()]
    lines = [line for name, status in statuses.items() for line in _describe_tree(name, status)]
    print_result(document, lines, as_json=as_json)


@command.command("sources hipify")
@_PROJECTS
@checkout_options.REPO
@checkout_options.COMMIT_HIPIFY
@catalogue.JSON
def hipify_command(projects: tuple[str, ...], repo: Path | None, commit_hipify: bool, as_json: bool) -> None:
    """Hipify source trees again, after an edit; only files whose content changes get a new time.

    All trees, or those of the PROJECTs.

    \b
    Examples:
      rocm-wheels sources hipify torch
      rocm-wheels sources hipify torch --source-dir ~
    """
    trees = _choose_trees(projects, repo)
    for name, directory in trees.items():
        hipify_tree(name, directory, commit=commit_hipify)
    if as_json:
        statuses = {name: _read_status(name, directory) for name, directory in trees.items()}
        document = [_status_as_json(name, status) for name, status in statuses.items()]
        print_result(document, (), as_json=True)


def hipify_tree(project: str, tree: Path, *, commit: bool) -> None:
    """Hipify a source tree again. Raises SourceError."""
    from rocm_wheels.models.project import load_project
    from rocm_wheels.sources import hipify

    hipify.hipify_checkout(
        load_project(project),
        tree,
        commit=commit,
        env=boundary.read_environment(),
        python=Path(sys.executable),
    )


@command.command("sources save-patches")
@click.argument("project", metavar="PROJECT", shell_complete=command.complete_with("list_projects"))
@checkout_options.REPO
@checkout_options.SAVED_PATCHSET
@catalogue.JSON
def save_patches_command(project: str, repo: Path | None, as_json: bool, **options: Any) -> None:
    """Write the commits on top of a tree's diffbase tags to a patch set, which checkout applies.

    \b
    Examples:
      rocm-wheels sources save-patches torch --patchset release-2.9
    """
    [(name, tree)] = _choose_trees([project], repo).items()
    saved = save_tree_patches(name, tree, options)
    document = {"folder": saved.folder, "written": list(saved.written), "removed": list(saved.removed)}
    print_result(document, (), as_json=as_json)


@command.command("sources export")
@_PROJECTS
@checkout_options.REPO
@command.option(
    "--branch",
    required=True,
    metavar="NAME",
    help="Branch to make, in the tree and in submodules with your commits.",
)
@catalogue.JSON
def export_command(projects: tuple[str, ...], repo: Path | None, branch: str, as_json: bool) -> None:
    """Write your commits in a source tree as a branch on upstream's commit, without what hipify wrote.

    Commits with nothing else are left out, and named. Authors, dates and messages stay. Files, index and HEAD
    are not changed; an existing branch with other commits is refused.

    \b
    Examples:
      rocm-wheels sources export torch --branch my-kernels-upstream
      git -C pytorch push me my-kernels-upstream
    """
    from rocm_wheels.sources import export

    trees = _choose_trees(projects, repo)
    if len(trees) != 1:
        raise errors.UsageError(
            f"name one project to export: {', '.join(trees)} are there", tip="each has a branch of its own"
        )
    [directory] = trees.values()
    exports = export.export_commits(directory, branch, env=boundary.read_environment())
    lines = [line for exported in exports for line in _list_export_lines(exported, branch)]
    print_result(
        [asdict(exported) for exported in exports],
        [line.encode("utf-8", "backslashreplace").decode() for line in lines],
        as_json=as_json,
    )


def _list_export_lines(exported: export.ExportedBranch, branch: str) -> list[str]:
    """Return what a person reads of a branch, and of what is not on it."""
    lines = [f"{exported.directory}: nothing for {branch}"]
    if exported.commits:
        made = "" if exported.changed else ", as it was"
        count = tables.format_count(len(exported.commits), "commit")
        lines = [f"{exported.directory}: {branch} is {count} on {exported.upstream[:12]}{made}"]
    for head, names in (
        ("commit", exported.commits),
        ("left out, only what hipify wrote: commit", exported.left_out),
        ("not on it, hipify makes that file: your edit of", exported.edited_outputs),
        ("look at it, hipify translates that file in place:", exported.translated),
    ):
        lines += [f"  {head} {name}" for name in names]
    return lines


def save_tree_patches(project: str, directory: Path, options: Mapping[str, Any]) -> patches.SavedPatches:
    """Write the commits on a tree to a patch set; say what changed. Raises UsageError, SourceError."""
    from rocm_wheels.models.project import load_project
    from rocm_wheels.sources import patches

    named = checkout_options.name_patch_folder(options)
    if named is None and not workspace.is_clone():
        raise errors.UsageError(
            "there is no clone whose patches/ could be written",
            tip=f"name a folder: {checkout_options.PATCH_VARIABLE}",
        )
    made_with, ref = patches.read_patch_origin(directory, env=boundary.read_environment())
    folder = patches.choose_patch_folder(
        project,
        named or workspace.get_project_home() / "patches",
        name=options["patchset"],
        made_with=made_with,
        ref=ref,
    )
    saved = patches.save_patches(
        load_project(project),
        directory,
        folder,
        env=boundary.read_environment(),
    )
    for name in saved.written:
        log.log_note(f"wrote {saved.folder / name}")
    for name in saved.removed:
        log.log_note(f"removed {saved.folder / name}")
    log.log_note(
        f"{saved.folder} has {tables.format_count(len(saved.patches), 'patch', 'patches')}, "
        f"{len(saved.written)} written now"
    )
    return saved


def print_tree_status(project: str, directory: Path, *, as_json: bool) -> None:
    """Print what one source tree is. Raises SourceError."""
    status = _read_status(project, directory)
    print_result(_status_as_json(project, status), _describe_tree(project, status), as_json=as_json)


def _read_status(project: str, directory: Path) -> tree_status.TreeStatus:
    from rocm_wheels.models.project import load_project
    from rocm_wheels.sources import tree_status

    return tree_status.read_tree_status(load_project(project), directory, env=boundary.read_environment())


def _status_as_json(project: str, status: tree_status.TreeStatus) -> dict[str, Any]:
    return {"project": project, "words": status.labels, **asdict(status)}


def _describe_tree(project: str, status: tree_status.TreeStatus) -> list[str]:
    """Return what a person reads, line by line; names of files may have any bytes and line ends."""
    lines = _list_tree_lines(project, status)
    return [line.replace("\n", "\\n").encode("utf-8", "backslashreplace").decode() for line in lines]


def _describe_hipify(status: tree_status.TreeStatus) -> str:
    if status.hipify_lost:
        return "; it was, and then something else was checked out: `sources hipify` translates it"
    if status.changed_since_hipify:
        return "; files changed since: `build` translates them"
    return ""


def _list_tree_lines(project: str, status: tree_status.TreeStatus) -> list[str]:
    origin = f" ({status.ref} of {status.origin})" if status.ref else ""
    lines = [
        f"{project}: {', '.join(status.labels)}",
        f"  tree      {status.directory}",
        f"  upstream  {status.upstream}{origin}",
        f"  HEAD      {status.head}",
        f"  hipify    {status.hipify}{_describe_hipify(status)}",
    ]
    if status.missing:
        update = shell.format_command(
            ["git", "-C", status.directory, "submodule", "update", "--init", "--recursive"]
        )
        lines.append(f"  missing   {', '.join(status.missing)}: `{update}`")
    if status.interrupted:
        lines.append(f"  interrupted: {status.interrupted}; run it again, it continues")
    for repository in status.repositories:
        where = repository.path or "the root"
        if repository.base or repository.hipified:
            lines.append(f"  patches in {where}: {repository.base} base, {repository.hipified} hipified")
        if repository.commits or repository.files:
            lines.append(
                f"  changed by you in {where}: {tables.format_count(len(repository.commits), 'commit')}, "
                f"{tables.format_count(len(repository.files), 'file')} not committed"
            )
            changes = [f"commit {commit}" for commit in repository.commits] + [
                f"{word} {path}" for word, path in repository.files
            ]
            lines += [f"    {line}" for line in changes[:_MOST_CHANGES]]
            lines += (
                [f"    … and {len(changes) - _MOST_CHANGES} more"] if len(changes) > _MOST_CHANGES else []
            )
    return lines
