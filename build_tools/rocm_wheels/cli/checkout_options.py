"""Options of the commands that check sources out: mirrors, patches, commits; and the request they make."""

from __future__ import annotations

import functools
import sys
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rocm_wheels.cli import boundary, catalogue
from rocm_wheels.cli.options import GivenPath
from rocm_wheels.core import log
from rocm_wheels.models import project_names

if TYPE_CHECKING:
    from rocm_wheels.models import release_lines
    from rocm_wheels.models.project import Project
    from rocm_wheels.sources import checkout, lock, network, patches, pins

MIRROR_VARIABLE = "ROCM_WHEELS_MIRROR_DIR"
PATCH_VARIABLE = "ROCM_WHEELS_PATCH_DIR"
_DEFAULT_JOBS = 8
_DEFAULT_RETRIES = 4  # attempts after a failure of the network that may pass
_DEFAULT_TIMEOUT = 120  # seconds in which nothing moves, then a transfer is cut


def find_mirrors(env: Mapping[str, str]) -> Path | None:
    """Return the folder of bare repositories that all checkouts share. Raises UsageError for what is none."""
    from rocm_wheels.core import errors

    if not (folder := env.get(MIRROR_VARIABLE, "").strip()):
        return None
    mirrors = Path(folder).expanduser().absolute()
    if mirrors.exists() and not mirrors.is_dir():
        raise errors.UsageError(f"{MIRROR_VARIABLE}: {mirrors} is not a folder", tip="name another one")
    return mirrors


def make_transport(options: Mapping[str, Any], *, jobs: int | None = None) -> network.Transport:
    """Return how servers are reached: ROCM_WHEELS_RETRIES, _TIMEOUT, _MIRROR_DIR.

    ``jobs``: how many transfers at a time where ``--jobs`` is not given (a recipe's ``fetch_jobs``). Raises
    UsageError for a variable that is no number, or too large a one.
    """
    from rocm_wheels.core import environment_numbers
    from rocm_wheels.sources import network

    env = boundary.read_environment()
    jobs = options.get("jobs") or environment_numbers.read_number(env, "ROCM_WHEELS_JOBS") or jobs
    retries = environment_numbers.read_number(env, "ROCM_WHEELS_RETRIES", _DEFAULT_RETRIES)
    timeout = environment_numbers.read_number(env, "ROCM_WHEELS_TIMEOUT", _DEFAULT_TIMEOUT)
    return _cached_transport(network.Transport, retries, timeout, find_mirrors(env), jobs or _DEFAULT_JOBS)


@functools.cache
def _cached_transport(
    kind: type[network.Transport], retries: int, timeout: float, mirrors: Path | None, jobs: int
) -> network.Transport:
    """Make one record for equal options: its places count for all projects of a command together."""
    return kind(retries, timeout, mirrors, jobs)


def choose_patch_set(project: str, ref: str, options: Mapping[str, Any]) -> patches.PatchSet | None:
    """Return the patch set that the options of a checkout choose. Raises UsageError, DataError."""
    from rocm_wheels.sources.patches import choose_patch_set

    folder, name = find_patch_folder(options), options.get("patchset")
    return choose_patch_set(project, ref, folder, name=name, line=options.get("line"))


def name_patch_folder(options: Mapping[str, Any]) -> Path | None:
    """Return the folder of patch sets that a script's option or the variable names, None for neither."""
    named = options.get("patch_dir") or boundary.read_environment().get(PATCH_VARIABLE)
    return Path(named).expanduser() if named else None


def find_patch_folder(options: Mapping[str, Any]) -> Path:
    """Return the folder of the patch sets: as named, else the clone's. Raises UsageError."""
    from rocm_wheels.core import errors, workspace

    if (folder := name_patch_folder(options)) is None:
        return workspace.get_project_home() / "patches"
    if not folder.is_dir():
        origin = "--patch-dir" if options.get("patch_dir") else PATCH_VARIABLE
        raise errors.UsageError(
            f"{folder} is not a folder of patch sets ({origin})", tip="it holds a folder a project"
        )
    return folder


TORCH = "pytorch"  # the project that others' commits are pinned in
_SET_BY_LOCK = {
    "ref": "--ref",
    "line": "--line",
    "release": "--release",
    "torch_dir": "--pytorch-dir",
    "require_related_commit": "--require-related-commit",
    "patchset": "--patchset",
}

REPO = catalogue.SOURCE_DIR.but(
    name="repo", help="Folder of the source trees [default: the clone's repos/, or here]."
)
# which commit of which repository one project is at
PIN_OPTIONS = (
    catalogue.Entry("--ref", metavar="REF", help="Branch, tag, refs/pull/N/head or commit of one project."),
    catalogue.Entry("--origin", metavar="URL", help="Repository of one project."),
    catalogue.Entry(
        "--branch",
        metavar="NAME",
        help="Local branch to work on, of one project; made if it does not exist.",
    ),
)
COMMIT_HIPIFY = catalogue.Entry(
    "--commit-hipify/--no-commit-hipify",
    default=True,
    show_default=True,
    help="Commit what hipify wrote; otherwise HEAD stays at the upstream commit.",
)
# what means the same for one project and for several, and whatever says which commit
TREE_OPTIONS = (
    catalogue.Entry(
        "--depth",
        type=click.IntRange(min=1, max=2**31 - 1),  # what git can count
        help="Commits of history to fetch (all; a shallow history stays shallow).",
    ),
    catalogue.Entry(
        "--submodules/--no-submodules", default=True, show_default=True, help="Fetch submodules too."
    ),
    catalogue.Entry("--hipify/--no-hipify", default=None, help="Hipify [default: as the recipe says]."),
    COMMIT_HIPIFY,
)
LOCK = catalogue.LOCK.but(help="Take commits and patch sets from a lock (see `rocm-wheels lock`).")
PATCHSET = catalogue.Entry(
    "--patchset",
    metavar="NAME",
    help="Patch set to apply [default: that of the ref's line, if any].",
)
SAVED_PATCHSET = PATCHSET.but(help="Patch set to write [default: the tree's own, else the ref's line].")
# of the scripts of single projects alone
JOBS = catalogue.JOBS.but(
    help=f"Repositories to fetch at a time [default: as the recipe says, or {_DEFAULT_JOBS}]."
)
PATCH_DIR = catalogue.Entry(
    "--patch-dir",
    type=GivenPath(),
    help=f"Folder of the patch sets ({PATCH_VARIABLE}, or the clone's patches/); an empty one for none.",
)
# about the torch checkout that pins a project
TORCH_OPTIONS = (
    catalogue.PYTORCH_DIR.but(
        name="torch_dir",
        type=GivenPath(),
        help=f"Torch checkout that pins the others ({TORCH} under --source-dir).",
    ),
    catalogue.Entry(
        "--require-related-commit/--no-require-related-commit",
        default=False,
        help="Fail when there is no such pin.",
    ),
)


def find_checkouts_folder(repo: Path | None) -> Path:
    """Return the folder of the source trees: ``--source-dir``, the clone's ``repos/``, else here."""
    if repo is not None:
        return repo
    from rocm_wheels.core import workspace

    return project_names.get_recipes_folder() if workspace.is_clone() else Path.cwd()


def detect_platform() -> project_names.Platform:
    """Return the platform that we run on."""
    return "windows" if sys.platform == "win32" else "linux"


def parse_line_option(options: Mapping[str, Any]) -> release_lines.TorchLine | None:
    """Return the release line that ``--line`` names, if any: workflows have an empty one by default.

    Raises DataError.
    """
    if not options["line"]:
        return None
    from rocm_wheels.models import release_lines

    return release_lines.get_release_line(options["line"])


def select_line_projects(
    recipes: Iterable[Project],
    line: release_lines.TorchLine | None,
    platform: project_names.Platform,
    wished: Collection[str] = (),
) -> list[Project]:
    """Return what is built of a line on a platform; say what the line has on other platforms only.

    ``wished``: projects that an option says something of, which are taken all the same.
    """
    buildable = [recipe for recipe in recipes if platform in recipe.build.platforms]
    if line is None:
        return buildable
    without = [
        recipe.name for recipe in buildable if recipe.name not in wished and line.leaves_out(recipe, platform)
    ]
    for name in without:
        log.log_note(f"without {name}: release line {line.name} has none for {platform}")
    return [recipe for recipe in buildable if recipe.name not in without]


def find_torch_checkout(options: Mapping[str, Any]) -> Path:
    """Return the folder of the torch checkout that pins are read in. Raises UsageError."""
    from rocm_wheels.core import errors

    torch_dir: Path | None = options.get("torch_dir")
    if torch_dir is not None and not torch_dir.is_dir():
        raise errors.UsageError(f"--pytorch-dir {torch_dir} is not a folder", tip="check out torch first")
    return torch_dir or find_checkouts_folder(options["repo"]) / TORCH


def open_given_lock(options: Mapping[str, Any]) -> lock.LockFile | None:
    """Return the lock that ``--lock`` names, if any. Raises UsageError, DataError.

    Options that say something else than the lock are refused.
    """
    if options["lock"] is None:
        return None
    from rocm_wheels.core import errors
    from rocm_wheels.sources import lock

    others = [option for key, option in _SET_BY_LOCK.items() if options.get(key) not in (None, False)]
    if others:
        raise errors.UsageError(
            f"--lock says which commits and patches, and so {'does' if len(others) == 1 else 'do'} "
            + ", ".join(others),
            tip="leave one of them out; `rocm-wheels lock update` changes a lock",
        )
    return lock.open_lock(options["lock"], detect_platform())


def make_locked_request(
    recipe: Project,
    file: lock.LockFile,
    directory: Path,
    options: Mapping[str, Any],
    *,
    origin: str | None = None,
) -> checkout.CheckoutRequest:
    """Return the request of a checkout of what a lock says; ``origin`` is another place for it.

    Raises UsageError and SourceError for a project or a patch set that is not there as locked.
    """
    from rocm_wheels.sources import lock, network

    pin = lock.read_locked_pin(file, recipe.name, origin=origin)
    patch_set = lock.read_locked_patches(file, recipe.name, find_patch_folder(options))
    local = network.parse_origin(pin.origin, Path.cwd())[1]
    return make_checkout_request(recipe, pin, directory, options, patch_set=patch_set, local_origin=local)


def make_checkout_request(
    recipe: Project,
    pin: pins.Pin,
    directory: Path,
    options: Mapping[str, Any],
    *,
    patch_set: patches.PatchSet | None,
    local_origin: bool = False,
) -> checkout.CheckoutRequest:
    """Return the request of a checkout of one project; ``patch_set`` is its patch set."""
    from rocm_wheels.sources import checkout

    system = detect_platform()
    return checkout.CheckoutRequest(
        project=recipe,
        directory=directory,
        pin=pin,
        depth=options["depth"],
        submodules=options["submodules"],
        hipify=system in recipe.hipify.platforms if options["hipify"] is None else options["hipify"],
        commit_hipify=options["commit_hipify"],
        local_origin=local_origin,
        patches=patch_set,
        transport=make_transport(options, jobs=recipe.source.get_platform_source(system).fetch_jobs),
        option_names=_name_options(options),
        branch=options.get("branch") or "",
    )


def _name_options(options: Mapping[str, Any]) -> pins.OptionNames:
    """Return what the options of this command are called: of a project's script, or of ``checkout``."""
    from rocm_wheels.sources import pins

    if "projects" not in options:
        return pins.ONE_PROJECT_OPTIONS
    return pins.LOCKED_PROJECTS_OPTIONS if options["lock"] else pins.SEVERAL_PROJECTS_OPTIONS
