"""``lock make|update|diff|manifest``: pin every repository of a set in one file, and work with it."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from rocm_wheels.cli import boundary, catalogue, checkout_options, command
from rocm_wheels.cli.checkout_options import TORCH
from rocm_wheels.cli.output import print_result
from rocm_wheels.core import errors, log, shell, tables
from rocm_wheels.models import project_names

if TYPE_CHECKING:
    from rocm_wheels.models import release_lines
    from rocm_wheels.models.lock import Lock
    from rocm_wheels.models.project import Project
    from rocm_wheels.sources import resolve_lock


def read_manifest(place: str, names: tuple[str, ...] = (), *, torch_ref: str | None = None) -> Lock:
    """Return a manifest of TheRock's scripts: of a file, or of the URL of one.

    ``names``: the projects that are wanted of it, by any of their names (none: all). ``torch_ref``: the
    branch of torch that it must name. Raises UsageError, SourceError for a server, and DataError with
    ``file:line:column``.
    """
    from rocm_wheels.cli import checkout

    lock, name = _fetch_manifest(place)
    if any(project.submodules is not None for project in lock.projects.values()):
        raise errors.UsageError(
            f"{name} is a lock, not a manifest", tip="`rocm-wheels lock update` renews a lock"
        )
    torch = lock.projects.get(TORCH)
    if torch_ref and (torch is None or torch.ref != torch_ref):
        branch = "no branch" if torch is None or torch.ref == torch.commit else f"the branch {torch.ref}"
        raise errors.UsageError(
            f"{name} names {branch} of {TORCH}, not {torch_ref}", tip="name another one, or its branch"
        )
    chosen = [checkout.find_project_name(word) for word in names] or list(lock.projects)
    for project in chosen:
        if project not in lock.projects:
            raise errors.UsageError(f"{name} has no {project}", tip=f"it has {', '.join(lock.projects)}")
    projects = {project: locked for project, locked in lock.projects.items() if project in chosen}
    return lock.model_copy(update={"projects": projects})


def _fetch_manifest(place: str) -> tuple[Lock, str]:
    """Return a manifest, and its name: of a file, or of a server where ``place`` is a URL."""
    from rocm_wheels.index import reader
    from rocm_wheels.sources.lock import parse_lock, read_lock

    if not re.match(r"(?:https?|file)://", place):
        return read_lock(Path(place)), place
    safe_url = shell.hide_credentials(place)
    try:
        answer = reader.IndexReader().get(place)
        text = answer.content.decode("utf-8")
    except reader.UnreachableError as cause:
        raise errors.SourceError(f"{safe_url} cannot be reached", tip="try again later") from cause
    except UnicodeDecodeError as cause:
        raise errors.SourceError(f"{safe_url} is not text in UTF-8", tip="correct --manifest") from cause
    if answer.status != 200:
        raise errors.SourceError(f"{safe_url}: the server answers {answer.status}", tip="correct --manifest")
    return parse_lock(text, name=safe_url), safe_url


_FILE = click.Path(path_type=Path)
_TOOLS = "tools"  # named among the projects of an update


def _resolve_tools(path: Path, lock: Lock, options: Mapping[str, Any], patches: Path) -> Lock:
    """Return a lock with the tools for its Pythons."""
    from rocm_wheels.pipeline.tools import ToolsRequest, resolve_lock_tools
    from rocm_wheels.sdk import build_environment
    from rocm_wheels.sources.lock import LockFile

    pythons = lock.pythons or tuple(lock.tools)
    if not pythons:
        raise errors.UsageError(
            f"{path} names no Python to have tools for", tip="make it with --python 3.12,3.13"
        )
    links = options["find_links"]
    if links and "://" not in links and not Path(links).is_dir():
        raise errors.UsageError(f"--find-links: there is no folder {links}", tip="name a folder of wheels")
    extras = options["rocm_extras"]
    present = [tools.rocm_extras for tools in lock.tools.values()]
    sdk = build_environment.EnvironmentSpec(
        Path(sys.executable),
        extras=tuple(word.strip() for word in extras.split(",") if word.strip())
        if extras is not None
        else next(iter(present), ()),
        index_url=options["index_url"],
        find_links=links,
        pre=True,
    ).with_absolute_paths()
    return resolve_lock_tools(
        LockFile(path, lock),
        ToolsRequest(pythons, sdk, find_checkouts(options), patches),
        boundary.read_environment(),
        checkout_options.make_transport(options),
    )


@command.command("lock make")
@catalogue.OUTPUT.but(type=_FILE, help="File to write; - is stdout.")
@catalogue.LINE
@catalogue.PROJECT.but(
    name="projects",
    multiple=True,
    metavar="NAME",
    help="Project to lock; may be repeated [default: all of the line and platform].",
)
@command.option("--pytorch-ref", metavar="REF", help="Ref of pytorch.")
@command.option("--pytorch-origin", metavar="URL", help="Repository of pytorch.")
@command.option("--triton-ref", metavar="REF", help="Ref of triton.")
@command.option("--triton-origin", metavar="URL", help="Repository of triton; no pin names one.")
@catalogue.MANIFEST
@catalogue.ROCM.but(name="rocm_version", metavar="V", help="Version of the ROCm packages.")
@catalogue.GFX.but(name="pytorch_rocm_arch", metavar="LIST", help="gfx targets or families, by commas.")
@catalogue.PYTHON_VERSIONS.but(
    metavar="LIST",
    help="Pythons to build for, by commas [default: the line's].",
)
@catalogue.LOCAL_VERSION.but(
    help="Part of all versions before +rocm…, to distinguish builds of one version; {date} is today (UTC):"
    " nightly{date}.17 gives 2.13.0+nightly20261122.17.rocm10.1.",
)
@command.option(
    "--name-torch",
    is_flag=True,
    help="Put torch's version into those of all others, so that one index can hold sets of several torches.",
)
@catalogue.PLATFORM.but(
    default=checkout_options.detect_platform(), show_default="this one", help="Platform that is built on."
)
@checkout_options.REPO
@catalogue.JSON
def make_command(**given: Any) -> None:
    """Pin every repository of a set in one file.

    Each ref is resolved once, submodules included, without checking anything out. A project's commit comes
    from options or the variables ROCM_WHEELS_<PROJECT>_REF and _ORIGIN, else the pin in torch's commit, else
    the release line, else the recipe. Commits of a checkout or mirror are read there, without changing it.

    \b
    Example:
      rocm-wheels lock make --line 2.9 --rocm 7.10.0 --gfx gfx942 -o set.lock
    """
    from rocm_wheels.sources import resolve_lock
    from rocm_wheels.sources.lock import format_lock, write_lock

    output = check_output_path(given["output"])
    lock = resolve_lock.make_lock(
        _make_lock_request(given),
        env=boundary.read_environment(),
        transport=checkout_options.make_transport(given),
    )
    if output is None:
        if given["as_json"]:
            raise errors.UsageError("-o - and --json both print on stdout", tip="name a file for the lock")
        click.echo(format_lock(lock), nl=False)
        return
    write_lock(output, lock)
    print_result(_lock_as_json(output, lock), [describe_lock(lock)], as_json=given["as_json"])


def _lock_as_json(path: Path, lock: Lock) -> dict[str, Any]:
    """Return what ``--json`` prints of a lock that was written. Keys are added later, never renamed."""
    keys = ("origin", "ref", "commit", "version", "pinned")
    projects = {name: {key: getattr(locked, key) for key in keys} for name, locked in lock.projects.items()}
    return {"file": path, "projects": projects, "tools": lock.tools}


def check_output_path(path: Path | None, option_name: str = "-o") -> Path | None:
    """Return the file to write, ``None`` for stdout; found wanting now, not after everything was asked."""
    if path is None:
        raise errors.UsageError("no output file given", tip=f"name it with {option_name} FILE")
    if str(path) == "-":
        return None
    if path.is_dir():
        raise errors.UsageError(f"{option_name} {path} is a folder", tip="name a file")
    above = next((folder for folder in path.absolute().parents if folder.exists()), None)
    if above is None or not above.is_dir():
        raise errors.UsageError(f"{option_name} {path}: {above} is not a folder", tip="choose another file")
    if not os.access(above, os.W_OK | os.X_OK):
        raise errors.UsageError(
            f"{option_name} {path}: {above} is not writable", tip="make it so, or choose another file"
        )
    return path


def describe_lock(lock: Lock) -> str:
    """Return a line a project: ref, commit, version, submodules."""
    from rocm_wheels.models.project import load_project, sort_projects

    rows = []
    for project in sort_projects(load_project(name) for name in lock.projects):
        locked = lock.projects[project.name]
        ref = "(pinned)" if locked.ref == locked.commit and locked.pinned else locked.ref[:40]
        count = "" if locked.submodules is None else tables.format_count(len(locked.submodules), "submodule")
        patched = f"patches {locked.patches.name}" if locked.patches is not None else ""
        ref_text = "" if ref == locked.commit else ref
        rows.append([project.name, ref_text, locked.commit[:12], locked.version or "", count, patched])
    lines = tables.align_rows(rows)
    for python, tools in lock.tools.items():
        names = {name for group in tools.projects.values() for name in group}
        rocm = tables.format_count(len(tools.rocm), "package")
        lines.append(f"Python {python}: {tables.format_count(len(names), 'tool')}, {rocm} for ROCm")
    return "\n".join(lines)


def find_checkouts(options: Mapping[str, Any]) -> Path:
    """Return the folder of checkouts that may have the commits. Raises UsageError."""
    if options["repo"] is not None and not options["repo"].is_dir():
        raise errors.UsageError(
            f"--source-dir {options['repo']} is not a folder", tip="it holds the checkouts"
        )
    return checkout_options.find_checkouts_folder(options["repo"]).absolute()


def _make_lock_request(options: Mapping[str, Any]) -> resolve_lock.LockRequest:
    from rocm_wheels.models import gfx
    from rocm_wheels.models.project import load_project
    from rocm_wheels.sources import resolve_lock

    line, platform = checkout_options.parse_line_option(options), options["platform"]
    wishes, manifest = _read_wishes(options), None
    if options["manifest"] is not None:
        for name, wish in wishes.items():
            variable = resolve_lock.name_options(name)
            raise errors.UsageError(
                f"{variable.ref if wish.ref else variable.origin} and a manifest say two things",
                tip="leave one of them out",
            )
        manifest = read_manifest(options["manifest"], options["projects"])
        if not _is_on_command_line("platform"):
            platform = manifest.platform
        projects = [load_project(name) for name in manifest.projects]
        wishes = {
            name: resolve_lock.ProjectOptions(locked.ref, locked.origin, locked.commit, locked.why)
            for name, locked in manifest.projects.items()
        }
    else:
        projects = _choose_projects(options["projects"], platform, line, wishes)
        for name in wishes.keys() - {TORCH, *(project.name for project in projects)}:
            names = resolve_lock.name_options(name)
            option = names.ref if wishes[name].ref else names.origin
            raise errors.UsageError(
                f"{option} would have no effect: {name} is not locked",
                tip=f"lock {name}, too, or {'leave it out' if option.startswith('--') else 'unset it'}",
            )
    arch = options["pytorch_rocm_arch"]
    return resolve_lock.LockRequest(
        projects=tuple(projects),
        torch=load_project(TORCH),
        options=wishes,
        platform=platform,
        line=line,
        rocm=options["rocm_version"] or (manifest.rocm if manifest is not None else None),
        targets=gfx.parse_targets(arch) if arch is not None else (),
        pythons=_parse_pythons(options["pythons"]),
        local_version=_expand_local_version(options["local_version"]),
        names_torch=options["name_torch"],
        checkouts=find_checkouts(options),
        patches=checkout_options.find_patch_folder(options),
    )


def _is_on_command_line(option: str) -> bool:
    return click.get_current_context().get_parameter_source(option) is ParameterSource.COMMANDLINE


def _choose_projects(
    names: tuple[str, ...],
    platform: project_names.Platform,
    line: release_lines.TorchLine | None,
    wished: Collection[str],
) -> list[Project]:
    from rocm_wheels.cli import checkout
    from rocm_wheels.models.project import list_usual_projects, load_project

    if not names:
        usual = {recipe.name for recipe in list_usual_projects()}
        recipes = [load_project(name) for name in sorted({*usual, *wished})]
        return checkout_options.select_line_projects(recipes, line, platform, wished)
    chosen = [load_project(name) for name in dict.fromkeys(map(checkout.find_project_name, names))]
    for recipe in chosen:
        if platform not in recipe.build.platforms:
            raise errors.UsageError(f"{recipe.name} is not built on {platform}", tip="leave it out")
    return chosen


def _read_wishes(options: Mapping[str, Any]) -> dict[str, resolve_lock.ProjectOptions]:
    """Return what options say of single projects, else variables, of which empty ones say nothing."""
    from rocm_wheels.sources import network, resolve_lock

    env, wishes = boundary.read_environment(), {}
    for name in project_names.list_project_names():
        keys = [f"{name}_{kind}" for kind in ("ref", "origin")]
        variables = [env.get(f"ROCM_WHEELS_{key}".upper()) or None for key in keys]
        ref, origin = (
            variable if options.get(key) is None else options[key]
            for key, variable in zip(keys, variables, strict=True)
        )
        if ref is not None:
            network.check_ref(ref)
        if origin is not None:
            origin = network.parse_origin(origin, Path.cwd())[0]
        if ref is not None or origin is not None:
            wishes[name] = resolve_lock.ProjectOptions(ref, origin)
    return wishes


def _expand_local_version(text: str | None) -> str | None:
    """Return what is to be in all versions; of nothing, nothing: workflows have an empty one by default."""
    from rocm_wheels.cli import index
    from rocm_wheels.sources.lock import describe_local_fault

    if not text:
        return None
    version = text.replace(
        "{date}", index.read_source_date(boundary.read_environment())[:10].replace("-", "")
    )
    if wrong := describe_local_fault(version):
        raise errors.UsageError(f"--local-version {text!r}: {wrong}", tip="for example: nightly{date}.17")
    return version


def _parse_pythons(text: str | None) -> tuple[str, ...]:
    if text == "":
        raise errors.UsageError("--python names no Python", tip="for example: 3.12,3.14t")
    return tuple(dict.fromkeys(text.split(","))) if text else ()


@command.command("lock update")
@click.argument("file", type=_FILE, metavar="FILE")
@click.argument("projects", metavar="[PROJECT|tools]…", nargs=-1)
@catalogue.ROCM_INDEX
@catalogue.FIND_LINKS.but(metavar="DIR|URL")
@catalogue.ROCM_EXTRAS.but(
    help="More extras of rocm, such as device-gfx942 [default: those of the lock].",
)
@checkout_options.REPO
@catalogue.JSON
def update_command(**given: Any) -> None:
    """Resolve the refs of the projects of a lock again, or of those named, and say what changed.

    A project that torch pins gets the pin of the lock's torch; one that was locked by a branch or tag gets
    its current commit. Other projects stay as they are. The word tools means what all of them are built with:
    build tools and ROCm's packages, with digests, for the Pythons of the lock.

    \b
    Examples:
      rocm-wheels lock update set.lock torch
      rocm-wheels lock update set.lock tools --rocm-index URL --rocm-extras device-gfx942
      rocm-wheels lock update set.lock
    """
    from rocm_wheels.sources import lock_diff, resolve_lock
    from rocm_wheels.sources.lock import read_lock, write_lock

    file: Path = given["file"]
    lock = read_lock(file)
    if all(project.tree is None for project in lock.projects.values()):
        raise errors.UsageError(
            f"{file} is a manifest, not a lock", tip="make a lock with `rocm-wheels lock make -o FILE`"
        )
    transport, chosen = checkout_options.make_transport(given), _choose_names(given, lock)
    updates_tools = _TOOLS in chosen
    names = {"index_url": "--rocm-index", "find_links": "--find-links", "rocm_extras": "--rocm-extras"}
    useless = [] if updates_tools else [option for name, option in names.items() if given[name] is not None]
    if useless:
        raise errors.UsageError(
            f"{', '.join(useless)}: no tools are resolved", tip=f"`lock update {file} {_TOOLS}` resolves them"
        )
    updated, drifts = lock, dict[str, Any]()
    if projects := [name for name in chosen if name != _TOOLS]:
        updated, drifts = resolve_lock.update_lock(
            lock,
            projects,
            torch=TORCH,
            checkouts=find_checkouts(given),
            patches=checkout_options.find_patch_folder(given),
            env=boundary.read_environment(),
            transport=transport,
        )
    if updates_tools:
        updated = _resolve_tools(file, updated, given, checkout_options.find_patch_folder(given))
    if write_lock(file, updated) and not given["as_json"]:
        changes = lock_diff.format_diff_report(_compare_locks(lock, updated, given))
        click.echo("\n".join(changes))
    if given["as_json"]:
        print_result(_lock_as_json(file, updated), (), as_json=True)
    for name, pin in drifts.items():
        locked = lock.projects[name].commit
        log.log_warning(f"{name}: torch now pins {pin.ref[:12]}, the lock has {locked[:12]}")
    if drifts:
        log.log_note(f"`rocm-wheels lock update {file} {' '.join(drifts)}` takes those pins")


def _choose_names(options: Mapping[str, Any], lock: Lock) -> list[str]:
    from rocm_wheels.cli import checkout

    if not options["projects"]:
        return [*lock.projects, *([_TOOLS] if lock.tools else [])]
    words = (word if word == _TOOLS else checkout.find_project_name(word) for word in options["projects"])
    return list(dict.fromkeys(words))


def _compare_locks(old: Lock, new: Lock, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return what differs, with the commits between where a checkout or a mirror has them."""
    from rocm_wheels.sources import lock_diff

    env, diff = boundary.read_environment(), lock_diff.compare_locks(old, new)
    mirrors = checkout_options.find_mirrors(env)
    lock_diff.add_histories(diff, repos=find_checkouts(options), mirrors=mirrors, env=env)
    return diff


@command.command("lock diff")
@click.argument("a", type=_FILE, metavar="A")
@click.argument("b", type=_FILE, metavar="B")
@checkout_options.REPO
@catalogue.JSON
def diff_command(**given: Any) -> None:
    """Show what changed between two locks: projects, submodules, ROCm, targets, and the commits between.

    A and B are locks, or manifests of TheRock's scripts. Commits are listed if a checkout (--source-dir) or a
    mirror (ROCM_WHEELS_MIRROR_DIR) has both ends; otherwise the compare URL of GitHub, GitLab or another host
    is printed. No server is asked.

    \b
    Examples:
      rocm-wheels lock diff last.lock set.lock --source-dir src
    """
    from rocm_wheels.sources import lock_diff
    from rocm_wheels.sources.lock import read_lock

    diff = _compare_locks(read_lock(given["a"]), read_lock(given["b"]), given)
    if given["a"].resolve() == given["b"].resolve():
        log.log_warning(f"{given['a']} is compared with itself")
    print_result(diff, lock_diff.format_diff_report(diff), as_json=given["as_json"])
