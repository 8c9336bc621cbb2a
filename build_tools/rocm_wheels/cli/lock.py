"""``rocm-wheels lock``: every repository of a set in one file; what is done with such files."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from rocm_wheels.cli import checkout_options, lock_manifest, network, patches
from rocm_wheels.cli.boundary import environment
from rocm_wheels.cli.lazy import LazyGroup
from rocm_wheels.errors import UsageError
from rocm_wheels.model.names import option_name, project_names

if TYPE_CHECKING:
    from rocm_wheels.model.line_facts import Line
    from rocm_wheels.model.lock import Lock
    from rocm_wheels.model.project import Platform, Project
    from rocm_wheels.sources.lock.make import LockRequest, Wish

_FILE = click.Path(path_type=Path)
_COMMANDS = {
    "diff": ("lock_diff:command", "Show what changed between two locks, with the commits between."),
    "update": ("lock_update:command", "Resolve the refs of some projects again."),
    "manifest": ("lock_update:manifest", "Write a lock as a manifest of TheRock's scripts."),
}
_HELP = """Pin every repository of a set in one file.

Each ref is resolved once, submodules included, without checking anything out. Which commit of a project:
its option, else the pin in torch's commit, else the release line, else the recipe's default. A commit
that a checkout or a mirror has is read there; nothing is added to them.

\b
Example:
  rocm-wheels lock --line 2.9 --rocm-version 7.10.0 --pytorch-rocm-arch gfx942 -o set.lock
"""


def _source_options() -> list[click.Option]:
    """Return the options of each project: which ref, of which repository."""
    said = (("ref", "REF", "Ref"), ("origin", "URL", "Repository"))
    return [
        click.Option(
            [f"--{option_name(name)}-{what}", f"{name}_{what}"], metavar=word, help=f"{title} of {name}."
        )
        for name in project_names()
        for what, word, title in said
    ]


def _version_options() -> list[click.Option]:
    """Return the options of what versions have before the one of ROCm."""
    return [
        click.Option(
            ["--local-version"],
            metavar="TEXT",
            help="Part of all versions before +rocm…, to tell builds of one version apart; {date} is"
            " today's (UTC): nightly{date}.17 for 2.13.0+nightly20261122.17.rocm10.1.",
        ),
        click.Option(
            ["--name-torch"],
            is_flag=True,
            help="Have the version of torch in those of all others, so that one index can have sets of"
            " several torches.",
        ),
    ]


def _command() -> click.Group:
    return LazyGroup(
        "lock",
        lazy=_COMMANDS,
        params=[
            click.Option(["-o", "--output"], type=_FILE, metavar="FILE", help="File to write; - is stdout."),
            click.Option(["--line"], metavar="NAME", help="Release line to take (see `rocm-wheels lines`)."),
            click.Option(
                ["--project", "projects"],
                multiple=True,
                metavar="NAME",
                help="Project to lock; may be repeated [default: all that line and platform have].",
            ),
            *_source_options(),
            *lock_manifest.options(),
            click.Option(["--rocm-version"], metavar="V", help="Version of the ROCm packages."),
            click.Option(["--pytorch-rocm-arch"], metavar="LIST", help="gfx targets or families, by commas."),
            click.Option(
                ["--python", "pythons"],
                metavar="LIST",
                help="Pythons to build for, by commas [default: the line's].",
            ),
            *_version_options(),
            click.Option(
                ["--platform"],
                type=click.Choice(["linux", "windows"]),
                default=checkout_options.platform(),
                show_default="this one",
            ),
            *patches.several_options(),
            checkout_options.repo_option(),
            *network.options(fills_mirrors=False),
        ],
        callback=_run,
        help=_HELP,
        invoke_without_command=True,
    )


def _run(**given: Any) -> None:
    ctx = click.get_current_context()
    if ctx.invoked_subcommand is not None:
        for parameter in ctx.command.params:
            if ctx.get_parameter_source(str(parameter.name)) is ParameterSource.COMMANDLINE:
                raise UsageError(
                    f"{parameter.opts[-1]} does not belong before {ctx.invoked_subcommand}",
                    tip=f"see `rocm-wheels lock {ctx.invoked_subcommand} --help` for its own options",
                )
        return
    from rocm_wheels.sources.lock.file import lock_text, write_lock
    from rocm_wheels.sources.lock.make import make_lock

    output = output_of(given["output"])
    lock = make_lock(_request(given), env=environment(), transport=network.transport_of(given))
    if output is None:
        click.echo(lock_text(lock), nl=False)
        return
    write_lock(output, lock)
    click.echo(table(lock))


def output_of(path: Path | None) -> Path | None:
    """Return the file to write, ``None`` for stdout; found wanting now, not after everything was asked."""
    if path is None:
        raise UsageError("it is not said which file to write", tip="name it with -o FILE")
    if str(path) == "-":
        return None
    if path.is_dir():
        raise UsageError(f"-o {path} is a folder", tip="name a file")
    above = next((folder for folder in path.absolute().parents if folder.exists()), None)
    if above is None or not above.is_dir():
        raise UsageError(f"-o {path}: {above} is not a folder", tip="choose another file")
    if not os.access(above, os.W_OK | os.X_OK):
        raise UsageError(f"-o {path}: {above} is not writable", tip="make it so, or choose another file")
    return path


def table(lock: Lock) -> str:
    """Return a line a project: ref, commit, version, submodules."""
    from rocm_wheels.model.project import build_order, load_project

    rows = []
    for project in build_order(load_project(name) for name in lock.projects):
        one = lock.projects[project.name]
        ref = "(pinned)" if one.ref == one.commit and one.pinned else one.ref[:40]
        count = "" if one.submodules is None else f"{len(one.submodules)} submodules"
        patched = f"patches {one.patches.name}" if one.patches is not None else ""
        shown = "" if ref == one.commit else ref
        rows.append([project.name, shown, one.commit[:12], one.version or "", count, patched])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True) if width).rstrip()
        for row in rows
    )


def patch_folder(given: Mapping[str, Any]) -> Path | None:
    """Return the folder of the patch sets, ``None`` with ``--no-patch``. Raises UsageError."""
    folder = patches.folder_of(given)
    return folder if given["patch"] else None


def checkouts_of(given: Mapping[str, Any]) -> Path:
    """Return the folder of checkouts that may have the commits. Raises UsageError."""
    if given["repo"] is not None and not given["repo"].is_dir():
        raise UsageError(f"--repo {given['repo']} is not a folder", tip="it holds the checkouts")
    return checkout_options.folder_of(given["repo"]).absolute()


def _request(given: Mapping[str, Any]) -> LockRequest:
    from rocm_wheels.model.gfx import parse_targets
    from rocm_wheels.model.project import load_project
    from rocm_wheels.sources.lock.make import LockRequest, Wish

    manifest = lock_manifest.manifest_of(given)
    platform: Platform = given["platform"]
    if manifest is not None and not _is_given("platform"):
        platform = manifest.platform
    line = checkout_options.line_of(given)
    wished = {name for name in project_names() if given[f"{name}_ref"] or given[f"{name}_origin"]}
    if manifest is not None:
        projects = [load_project(name) for name in manifest.projects]
        wishes = {
            name: Wish(locked.ref, locked.origin, locked.commit, locked.why)
            for name, locked in manifest.projects.items()
        }
    else:
        projects = _projects(given["projects"], platform, line, wished)
        wishes = _wishes(given, {project.name for project in projects})
    arch = given["pytorch_rocm_arch"]
    return LockRequest(
        projects=tuple(projects),
        torch=load_project(checkout_options.TORCH),
        wishes=wishes,
        platform=platform,
        line=line,
        rocm=given["rocm_version"] or (manifest.rocm if manifest is not None else None),
        targets=parse_targets(arch) if arch is not None else (),
        pythons=_pythons(given["pythons"]),
        local_version=_local_version(given["local_version"]),
        names_torch=given["name_torch"],
        checkouts=checkouts_of(given),
        patches=patch_folder(given),
    )


def _is_given(option: str) -> bool:
    return click.get_current_context().get_parameter_source(option) is ParameterSource.COMMANDLINE


def _projects(
    names: tuple[str, ...], platform: Platform, line: Line | None, wished: Collection[str]
) -> list[Project]:
    from rocm_wheels.cli.checkout import project_named
    from rocm_wheels.model.project import load_project

    if not names:
        recipes = [load_project(name) for name in project_names()]
        return checkout_options.of_line(recipes, line, platform, wished)
    chosen = [load_project(name) for name in dict.fromkeys(map(project_named, names))]
    for recipe in chosen:
        if platform not in recipe.build.platforms:
            raise UsageError(f"{recipe.name} is not built on {platform}", tip="leave it out")
    return chosen


def _wishes(given: Mapping[str, Any], chosen: set[str]) -> dict[str, Wish]:
    """Return what the options say of each project; every one of them must have an effect."""
    from rocm_wheels.sources.lock.make import Wish
    from rocm_wheels.sources.network.remote import check_ref, origin_of

    wishes = {}
    for name in project_names():
        ref, origin = given[f"{name}_ref"], given[f"{name}_origin"]
        if ref is None and origin is None:
            continue
        if name not in chosen and name != checkout_options.TORCH:
            option = f"--{option_name(name)}-{'ref' if ref is not None else 'origin'}"
            raise UsageError(f"{option} would have no effect: {name} is not locked", tip="leave it out")
        if ref is not None:
            check_ref(ref)
        wishes[name] = Wish(ref, None if origin is None else origin_of(origin, Path.cwd())[0])
    return wishes


def _local_version(text: str | None) -> str | None:
    """Return what is to be in all versions; of nothing, nothing: workflows have an empty one by default."""
    from rocm_wheels.cli.index_change import now
    from rocm_wheels.sources.lock.rules import wrong_local

    if not text:
        return None
    said = text.replace("{date}", now(environment())[:10].replace("-", ""))
    if wrong := wrong_local(said):
        raise UsageError(f"--local-version {text!r}: {wrong}", tip="for example: nightly{date}.17")
    return said


def _pythons(text: str | None) -> tuple[str, ...]:
    from rocm_wheels.sources.lock.rules import is_python

    if text is None:
        return ()
    found = tuple(dict.fromkeys(text.replace(",", " ").split()))
    for python in found:
        if not is_python(python):
            raise UsageError(f"--python: {python!r} is not a Python", tip="for example: 3.12,3.14t")
    if not found:
        raise UsageError("--python names no Python", tip="for example: 3.12,3.14t")
    return found


command = _command()
