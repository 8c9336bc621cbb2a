"""Check sources out: ``checkout``, and the script of each recipe."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rocm_wheels.cli import boundary, catalogue, checkout_options, sources
from rocm_wheels.cli.command import Group, command, complete_with
from rocm_wheels.cli.options import GivenPath
from rocm_wheels.cli.output import print_result
from rocm_wheels.core import errors, log, tables
from rocm_wheels.models import project_names

if TYPE_CHECKING:
    from rocm_wheels.models import release_lines
    from rocm_wheels.models.project import Project
    from rocm_wheels.sources import pins
    from rocm_wheels.sources.checkout import CheckoutOutcome, CheckoutRequest, CheckoutTask
    from rocm_wheels.sources.lock import LockFile

_CHECKOUT_HELP = """Check out projects side by side: one commit of each, tagged, patched, hipified.

A PROJECT has the name of its recipe or of its wheel (torch for pytorch). torch is checked out first, because
its tree pins the commits of others. A failed project stops only those that need it. With --lock and no names:
every project of the lock. Run it again to move a tree to another commit; your changes are never discarded.

\b
Examples:
  rocm-wheels checkout torch --ref release/2.9 --origin https://github.com/ROCm/pytorch
  rocm-wheels checkout --all --line 2.9
  rocm-wheels checkout --lock set.lock --source-dir /build/src
"""
_ONE_PROJECT = {
    "ref": "--ref",
    "origin": "--origin",
    "branch": "--branch",
    "patchset": "--patchset",
}


def _refuse_options_of_one(options: Mapping[str, Any], projects: Sequence[str]) -> None:
    """Raise UsageError for options that can hold for one project only, where several are checked out."""
    meant = [name for key, name in _ONE_PROJECT.items() if options[key]]
    if meant and len(projects) != 1:
        raise errors.UsageError(
            f"{' and '.join(meant)} can be of one project only, not of {', '.join(projects) or 'all'}",
            tip="check that project out by itself; `rocm-wheels lock make` has options for each project",
        )


@command("checkout", help=_CHECKOUT_HELP)
@click.argument("projects", metavar="[PROJECT]…", nargs=-1, shell_complete=complete_with("list_projects"))
@catalogue.takes(
    catalogue.ALL.but(help="All projects of the line and platform."),
    checkout_options.REPO,
    *checkout_options.PIN_OPTIONS,
    catalogue.LINE,
    *checkout_options.TREE_OPTIONS,
    checkout_options.LOCK,
    checkout_options.PATCHSET,
    catalogue.JSON,
)
def checkout_command(**given: Any) -> None:
    """Check the projects out, by a lock or by what options say of them."""
    env, lock = boundary.read_environment(), checkout_options.open_given_lock(given)
    _refuse_options_of_one(given, given["projects"])
    if lock is None:
        recipes = choose_recipes(given["projects"], everything=given["everything"])
        if given["everything"]:
            line = checkout_options.parse_line_option(given)
            recipes = checkout_options.select_line_projects(recipes, line, checkout_options.detect_platform())
        tasks = _make_tasks(recipes, given)
    else:
        tasks = make_locked_tasks(lock, given, env)
    run_tasks(tasks, given, env)


def run_tasks(tasks: Sequence[CheckoutTask], options: Mapping[str, Any], env: Mapping[str, str]) -> None:
    """Check projects out side by side, say what came of each, and leave with the code of a failure."""
    from rocm_wheels.sources.checkout import checkout_projects

    folder = checkout_options.find_checkouts_folder(options["repo"]).absolute()
    _refuse_mirrors_inside(options, [folder / task.project for task in tasks])
    outcomes = checkout_projects(tasks, folder, env=env, python=Path(sys.executable))
    if options["as_json"]:
        print_result([_outcome_as_json(outcome, folder) for outcome in outcomes], (), as_json=True)
    if code := report_outcomes(outcomes, quietly=options["as_json"]):
        click.get_current_context().exit(code)


def _refuse_mirrors_inside(options: Mapping[str, Any], checkouts: Sequence[Path]) -> None:
    """Raise UsageError when the mirrors would be in one of the checkouts: the others would put them there."""
    from rocm_wheels.sources.mirrors import refuse_mirrors_inside

    mirrors = checkout_options.make_transport(options).mirrors
    for checkout in checkouts:
        refuse_mirrors_inside(mirrors, checkout)


def choose_recipes(names: Sequence[str], *, everything: bool) -> list[Project]:
    """Return the recipes of the projects named (``everything``: all there are), each once.

    Raises UsageError for an unknown name, or when it is not said what to check out.
    """
    from rocm_wheels.models.project import list_usual_projects, load_project

    if bool(names) == everything:
        raise errors.UsageError(
            "name projects, or give --all, or a --lock"
            if not names
            else "--all and names of projects exclude each other",
            tip=f"projects: {', '.join(project_names.list_project_names())}",
        )
    if everything:
        return sorted(list_usual_projects(), key=lambda recipe: recipe.name)
    return [load_project(name) for name in dict.fromkeys(map(find_project_name, names))]


def find_project_name(text: str) -> str:
    """Return the project of that name; the names of wheels count. Raises UsageError."""
    from rocm_wheels.models.project import load_project

    projects = project_names.list_project_names()
    if (name := text.replace("-", "_")) in projects:
        return name
    wheels = {load_project(project).distribution: project for project in projects}
    if text not in wheels:
        raise errors.UsageError(
            f"there is no project {text!r}{tables.suggest_name(text, [*projects, *wheels])}",
            tip=f"projects: {', '.join(projects)}",
        )
    return wheels[text]


def _make_tasks(recipes: Sequence[Project], options: Mapping[str, Any]) -> list[CheckoutTask]:
    """Return what is to be done; refuse at once what is wrong for all. Raises UsageError, DataError."""
    from rocm_wheels.sources.checkout import CheckoutTask

    line, torch_dir = (
        checkout_options.parse_line_option(options),
        checkout_options.find_torch_checkout(options),
    )
    checkout_options.find_patch_folder(options)
    pinned = [recipe.name for recipe in recipes if _is_pinned(recipe)]
    return [
        CheckoutTask(
            recipe.name,
            partial(_make_project_request, recipe, line, torch_dir, options),
            checkout_options.TORCH if recipe.name in pinned else None,
        )
        for recipe in recipes
    ]


def make_locked_tasks(
    lock: LockFile, options: Mapping[str, Any], env: Mapping[str, str]
) -> list[CheckoutTask]:
    """Return what is to be done by a lock: no project waits for another. Raises UsageError."""
    from rocm_wheels.sources.checkout import CheckoutTask
    from rocm_wheels.sources.lock import check_checkout

    if options["everything"]:
        raise errors.UsageError(
            "--all and --lock exclude each other", tip="--lock alone checks out every project in the lock"
        )
    recipes = choose_recipes(options["projects"] or list(lock.lock.projects), everything=False)
    origin, _ = _parse_origin_option(options)
    for recipe in recipes:
        lock.project(recipe.name)
    checkout_options.find_patch_folder(options)
    folder = checkout_options.find_checkouts_folder(options["repo"])
    return [
        CheckoutTask(
            recipe.name,
            partial(
                checkout_options.make_locked_request,
                recipe,
                lock,
                folder / recipe.name,
                options,
                origin=origin,
            ),
            check=partial(check_checkout, lock, env=env),
        )
        for recipe in recipes
    ]


def _is_pinned(recipe: Project) -> bool:
    source = recipe.source.get_platform_source(checkout_options.detect_platform())
    return source.related_commits is not None or bool(source.pin_files)


def _make_project_request(
    recipe: Project, line: release_lines.TorchLine | None, torch_dir: Path, options: Mapping[str, Any]
) -> CheckoutRequest:
    from rocm_wheels.sources import pins

    origin, local = _parse_origin_option(options)
    pin = pins.choose_pin(
        recipe,
        platform=checkout_options.detect_platform(),
        origin=origin,
        ref=options["ref"],
        torch_dir=torch_dir,
        line=line,
        option_names=pins.SEVERAL_PROJECTS_OPTIONS,
    )
    directory = checkout_options.find_checkouts_folder(options["repo"]) / recipe.name
    patch_set = checkout_options.choose_patch_set(recipe.name, pin.ref, options)
    return checkout_options.make_checkout_request(
        recipe, pin, directory, options, patch_set=patch_set, local_origin=local
    )


def _parse_origin_option(options: Mapping[str, Any]) -> tuple[str | None, bool]:
    """Return the repository that ``--origin`` names, if any, and whether it is a local one."""
    from rocm_wheels.sources import network

    return (None, False) if options["origin"] is None else network.parse_origin(options["origin"], Path.cwd())


def _outcome_as_json(outcome: CheckoutOutcome, folder: Path) -> dict[str, Any]:
    """Return what ``--json`` prints of a project. Keys are added later, never renamed."""
    result = outcome.result
    pin = result.upstream if result is not None else None
    return {
        "project": outcome.project,
        "tree": folder / outcome.project,
        "state": "failed" if result is None else "changed" if result.changed else "unchanged",
        "origin": pin.origin if pin else None,
        "ref": pin.ref if pin else None,
        "commit": pin.commit if pin else None,
    }


def report_outcomes(outcomes: Sequence[CheckoutOutcome], *, quietly: bool = False) -> int:
    """Print a line a project, then every failure; return the exit code: 0, or that of the first failure.

    ``quietly``: failures only.
    """
    rows = [] if quietly else [(outcome.project, _describe_outcome(outcome)) for outcome in outcomes]
    for line in tables.align_rows(rows):
        click.echo(line)
    code = 0
    for outcome in outcomes:
        if outcome.failure is not None:
            error = (
                outcome.failure
                if isinstance(outcome.failure, errors.RocmWheelsError)
                else boundary.convert_disk_error(outcome.failure)
            )
            if error is None:
                raise outcome.failure
            log.log_error(f"{outcome.project}: {errors.explain_error(error)}")
            code = code or error.exit_code
    return code


def _describe_outcome(outcome: CheckoutOutcome) -> str:
    if outcome.result is None:
        return (
            "failed" if outcome.failure is not None else f"not begun: its commit is read in {outcome.missing}"
        )
    pin = outcome.result.upstream
    of = "" if pin.ref == pin.commit else f" ({pin.ref})"
    return f"{'checked out' if outcome.result.changed else 'as it was'} at {pin.commit[:12]}{of}"


def make_recipe_group(project: str, *features: str) -> click.Group:
    """Return the command group of a recipe, by its file name; the recipe is read on use.

    ``features``: ``release`` for a recipe that names release branches.
    """
    place = (
        checkout_options.REPO,
        catalogue.Entry("--repo-name", metavar="NAME", help=f"Folder under --source-dir ({project})."),
        catalogue.Entry("--checkout-dir", type=GivenPath(), help="The whole path of the checkout; wins."),
    )
    options = [
        *checkout_options.PIN_OPTIONS,
        catalogue.LINE,
        *checkout_options.TREE_OPTIONS,
        checkout_options.LOCK,
        checkout_options.JOBS,
        checkout_options.PATCH_DIR,
        checkout_options.PATCHSET,
    ]
    if project != checkout_options.TORCH:
        options += checkout_options.TORCH_OPTIONS
    if "release" in features:
        release = "Take the release branch of the version that the torch checkout names, not its pin."
        switch = "--release/--no-release"
        options.append(catalogue.Entry(switch, default=False, show_default=True, help=release))
    group = Group(name=project, help=f"Sources of {project}: check out, patch, hipify, inspect.")

    @group.command("checkout")
    @catalogue.takes(*place, *options)
    def checkout(**given: Any) -> None:
        """Check out one commit, tag it, hipify. Again: brings the tree to the requested commit."""
        _checkout_recipe(project, **given)

    @group.command("sources hipify")
    @catalogue.takes(*place, checkout_options.COMMIT_HIPIFY)
    def hipify(commit_hipify: bool, **given: Any) -> None:
        """Hipify a checkout again; only files whose content changes get a new time."""
        sources.hipify_tree(project, _find_directory(project, given), commit=commit_hipify)

    @group.command("sources save-patches")
    @catalogue.takes(*place, checkout_options.SAVED_PATCHSET, checkout_options.PATCH_DIR)
    def save_patches(**given: Any) -> None:
        """Write the commits on top of the diffbase tags to a patch set, which checkout applies."""
        sources.save_tree_patches(project, _find_directory(project, given), given)

    @group.command("sources status")
    @catalogue.takes(*place, catalogue.JSON)
    def status(as_json: bool, **given: Any) -> None:
        """Show whether the tree is patched, hipified or changed by you."""
        sources.print_tree_status(project, _find_directory(project, given), as_json=as_json)

    return group


def _find_directory(project: str, options: Mapping[str, Any]) -> Path:
    """Return the folder of a checkout, by the options of a recipe's script. Raises UsageError."""
    if options["checkout_dir"] is not None:
        directory: Path = options["checkout_dir"]
        return directory
    name = options["repo_name"]
    if name is not None and (not name or Path(name).name != name or name in ("..", ".git")):
        raise errors.UsageError(
            f"--repo-name {name!r} is not the name of a folder",
            tip="it is under --source-dir; --checkout-dir takes a whole path",
        )
    return checkout_options.find_checkouts_folder(options["repo"]) / (name or project)


def _checkout_recipe(project: str, **options: Any) -> None:
    from rocm_wheels.models.project import load_project
    from rocm_wheels.sources.checkout import checkout_project

    recipe, (origin, local) = load_project(project), _parse_origin_option(options)
    directory = _find_directory(project, options)
    env, lock = boundary.read_environment(), checkout_options.open_given_lock(options)
    if lock is not None:
        from rocm_wheels.sources.lock import check_checkout

        request = checkout_options.make_locked_request(recipe, lock, directory, options, origin=origin)
        check_checkout(
            lock, request, checkout_project(request, env=env, python=Path(sys.executable)), env=env
        )
        return
    pin = _choose_recipe_pin(recipe, origin, options)
    patch_set = checkout_options.choose_patch_set(project, pin.ref, options)
    request = checkout_options.make_checkout_request(
        recipe, pin, directory, options, patch_set=patch_set, local_origin=local
    )
    checkout_project(request, env=env, python=Path(sys.executable))


def _choose_recipe_pin(recipe: Project, origin: str | None, options: Mapping[str, Any]) -> pins.Pin:
    from rocm_wheels.sources import pins

    return pins.choose_pin(
        recipe,
        platform=checkout_options.detect_platform(),
        origin=origin,
        ref=options["ref"],
        torch_dir=checkout_options.find_torch_checkout(options),
        release=options.get("release", False),
        line=checkout_options.parse_line_option(options),
        require_related_commit=options.get("require_related_commit", False),
    )
