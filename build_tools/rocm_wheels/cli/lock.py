"""``rocm-wheels lock``: every repository of a set in one file; what is done with such files."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from rocm_wheels.cli import checkout_options, lock_manifest, network, patches
from rocm_wheels.cli.boundary import read_environment
from rocm_wheels.cli.lazy import LazyGroup
from rocm_wheels.errors import UsageError
from rocm_wheels.model.names import get_option_name, list_project_names

if TYPE_CHECKING:
    from rocm_wheels.model.line_facts import TorchLine
    from rocm_wheels.model.lock import Lock
    from rocm_wheels.model.project import Platform, Project
    from rocm_wheels.sources.lock.make import LockRequest, ProjectOptions

_FILE = click.Path(path_type=Path)
_LOCK_COMMANDS = {
    "diff": ("lock_diff:command", "Show what changed between two locks, with the commits between."),
    "update": ("lock_update:command", "Resolve the refs of some projects again."),
    "manifest": ("lock_update:manifest", "Write a lock as a manifest of TheRock's scripts."),
}
_LOCK_HELP = """Pin every repository of a set in one file.

Each ref is resolved once, submodules included, without checking anything out. Which commit of a project:
its option, else the pin in torch's commit, else the release line, else the recipe's default. A commit
that a checkout or a mirror has is read there; nothing is added to them.

\b
Example:
  rocm-wheels lock --line 2.9 --rocm-version 7.10.0 --pytorch-rocm-arch gfx942 -o set.lock
"""


def _source_options() -> list[click.Option]:
    """Return the options of each project: which ref, of which repository."""
    kinds = (("ref", "REF", "Ref"), ("origin", "URL", "Repository"))
    return [
        click.Option(
            [f"--{get_option_name(name)}-{kind}", f"{name}_{kind}"], metavar=word, help=f"{title} of {name}."
        )
        for name in list_project_names()
        for kind, word, title in kinds
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


def _make_lock_command() -> click.Group:
    return LazyGroup(
        "lock",
        lazy=_LOCK_COMMANDS,
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
            *lock_manifest.manifest_options(),
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
                default=checkout_options.detect_platform(),
                show_default="this one",
            ),
            *patches.shared_patch_options(),
            checkout_options.repo_option(),
            *network.network_options(fills_mirrors=False),
        ],
        callback=_run_lock,
        help=_LOCK_HELP,
        invoke_without_command=True,
    )


def _run_lock(**given: Any) -> None:
    ctx = click.get_current_context()
    if ctx.invoked_subcommand is not None:
        for parameter in ctx.command.params:
            if ctx.get_parameter_source(str(parameter.name)) is ParameterSource.COMMANDLINE:
                raise UsageError(
                    f"{parameter.opts[-1]} does not belong before {ctx.invoked_subcommand}",
                    tip=f"see `rocm-wheels lock {ctx.invoked_subcommand} --help` for its own options",
                )
        return
    from rocm_wheels.sources.lock.file import format_lock, write_lock
    from rocm_wheels.sources.lock.make import make_lock

    output = check_output_path(given["output"])
    lock = make_lock(
        _make_lock_request(given), env=read_environment(), transport=network.make_transport(given)
    )
    if output is None:
        click.echo(format_lock(lock), nl=False)
        return
    write_lock(output, lock)
    click.echo(describe_lock(lock))


def check_output_path(path: Path | None) -> Path | None:
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


def describe_lock(lock: Lock) -> str:
    """Return a line a project: ref, commit, version, submodules."""
    from rocm_wheels.model.project import sort_projects, load_project

    rows = []
    for project in sort_projects(load_project(name) for name in lock.projects):
        locked = lock.projects[project.name]
        ref = "(pinned)" if locked.ref == locked.commit and locked.pinned else locked.ref[:40]
        count = "" if locked.submodules is None else f"{len(locked.submodules)} submodules"
        patched = f"patches {locked.patches.name}" if locked.patches is not None else ""
        ref_text = "" if ref == locked.commit else ref
        rows.append([project.name, ref_text, locked.commit[:12], locked.version or "", count, patched])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True) if width).rstrip()
        for row in rows
    )


def choose_patch_folder(options: Mapping[str, Any]) -> Path | None:
    """Return the folder of the patch sets, ``None`` with ``--no-patch``. Raises UsageError."""
    folder = patches.find_patch_folder(options)
    return folder if options["patch"] else None


def find_checkouts(options: Mapping[str, Any]) -> Path:
    """Return the folder of checkouts that may have the commits. Raises UsageError."""
    if options["repo"] is not None and not options["repo"].is_dir():
        raise UsageError(f"--repo {options['repo']} is not a folder", tip="it holds the checkouts")
    return checkout_options.find_checkouts_folder(options["repo"]).absolute()


def _make_lock_request(options: Mapping[str, Any]) -> LockRequest:
    from rocm_wheels.model.gfx import parse_targets
    from rocm_wheels.model.project import load_project
    from rocm_wheels.sources.lock.make import LockRequest, ProjectOptions

    manifest = lock_manifest.read_manifest(options)
    platform: Platform = options["platform"]
    if manifest is not None and not _is_on_command_line("platform"):
        platform = manifest.platform
    line = checkout_options.parse_line_option(options)
    wished = {name for name in list_project_names() if options[f"{name}_ref"] or options[f"{name}_origin"]}
    if manifest is not None:
        projects = [load_project(name) for name in manifest.projects]
        wishes = {
            name: ProjectOptions(locked.ref, locked.origin, locked.commit, locked.why)
            for name, locked in manifest.projects.items()
        }
    else:
        projects = _choose_projects(options["projects"], platform, line, wished)
        wishes = _make_wishes(options, {project.name for project in projects})
    arch = options["pytorch_rocm_arch"]
    return LockRequest(
        projects=tuple(projects),
        torch=load_project(checkout_options.TORCH),
        options=wishes,
        platform=platform,
        line=line,
        rocm=options["rocm_version"] or (manifest.rocm if manifest is not None else None),
        targets=parse_targets(arch) if arch is not None else (),
        pythons=_parse_pythons(options["pythons"]),
        local_version=_expand_local_version(options["local_version"]),
        names_torch=options["name_torch"],
        checkouts=find_checkouts(options),
        patches=choose_patch_folder(options),
    )


def _is_on_command_line(option: str) -> bool:
    return click.get_current_context().get_parameter_source(option) is ParameterSource.COMMANDLINE


def _choose_projects(
    names: tuple[str, ...], platform: Platform, line: TorchLine | None, wished: Collection[str]
) -> list[Project]:
    from rocm_wheels.cli.checkout import find_project_name
    from rocm_wheels.model.project import load_project

    if not names:
        recipes = [load_project(name) for name in list_project_names()]
        return checkout_options.select_line_projects(recipes, line, platform, wished)
    chosen = [load_project(name) for name in dict.fromkeys(map(find_project_name, names))]
    for recipe in chosen:
        if platform not in recipe.build.platforms:
            raise UsageError(f"{recipe.name} is not built on {platform}", tip="leave it out")
    return chosen


def _make_wishes(options: Mapping[str, Any], chosen: set[str]) -> dict[str, ProjectOptions]:
    """Return what the options say of each project; every one of them must have an effect."""
    from rocm_wheels.sources.lock.make import ProjectOptions
    from rocm_wheels.sources.network.remote import check_ref, parse_origin

    wishes = {}
    for name in list_project_names():
        ref, origin = options[f"{name}_ref"], options[f"{name}_origin"]
        if ref is None and origin is None:
            continue
        if name not in chosen and name != checkout_options.TORCH:
            option = f"--{get_option_name(name)}-{'ref' if ref is not None else 'origin'}"
            raise UsageError(f"{option} would have no effect: {name} is not locked", tip="leave it out")
        if ref is not None:
            check_ref(ref)
        wishes[name] = ProjectOptions(ref, None if origin is None else parse_origin(origin, Path.cwd())[0])
    return wishes


def _expand_local_version(text: str | None) -> str | None:
    """Return what is to be in all versions; of nothing, nothing: workflows have an empty one by default."""
    from rocm_wheels.cli.index_change import read_source_date
    from rocm_wheels.sources.lock.rules import describe_local_fault

    if not text:
        return None
    version = text.replace("{date}", read_source_date(read_environment())[:10].replace("-", ""))
    if wrong := describe_local_fault(version):
        raise UsageError(f"--local-version {text!r}: {wrong}", tip="for example: nightly{date}.17")
    return version


def _parse_pythons(text: str | None) -> tuple[str, ...]:
    from rocm_wheels.sources.lock.rules import is_python_version

    if text is None:
        return ()
    pythons = tuple(dict.fromkeys(text.replace(",", " ").split()))
    for python in pythons:
        if not is_python_version(python):
            raise UsageError(f"--python: {python!r} is not a Python", tip="for example: 3.12,3.14t")
    if not pythons:
        raise UsageError("--python names no Python", tip="for example: 3.12,3.14t")
    return pythons


lock_command = _make_lock_command()
