"""The work directory as options name it, and the runs that it holds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import click

from rocm_wheels.cli.build_request import resolve_folders
from rocm_wheels.cli.option_lists import combine_options
from rocm_wheels.cli.paths import GivenPath
from rocm_wheels.errors import UsageError
from rocm_wheels.workspace import Workspace

if TYPE_CHECKING:
    from rocm_wheels.pipeline.record.reading import RecordedRun

_OptionFunction = TypeVar("_OptionFunction", bound=Callable[..., Any])
_WORK_FOLDER = GivenPath(file_okay=False)
_RUNS_LOOKED_AT = 20  # of the newest runs, for one at work


root_option = click.option(
    "--root-checkout-dir",
    "--repo",
    "root_checkout_dir",
    type=_WORK_FOLDER,
    help="Folder of the source trees [default: repos/ in a clone, else the current folder].",
)
# which work directory is meant, with the defaults of `build`
work_options = combine_options(
    root_option,
    click.option(
        "--work-dir",
        type=_WORK_FOLDER,
        help="Work directory of the build [default: .rocm-wheels in the root checkout folder].",
    ),
)


def find_workspace(options: Mapping[str, Any]) -> Workspace:
    """Return the work directory that is meant. Raises UsageError where there is none."""
    _, work = resolve_folders(options)
    if not work.is_dir():
        raise UsageError(
            f"there is no work directory {work}",
            tip="name the --work-dir, or the --root-checkout-dir, that build was given",
        )
    return Workspace(work)


def find_run(workspace: Workspace, name: str | None, *, at_work: bool = False) -> RecordedRun:
    """Read a run by its id, or the newest. Raises UsageError, which names those with nearly that id.

    ``at_work``: rather than the newest, the newest that has not ended: a `run-step` may have come and gone.
    """
    from rocm_wheels.pipeline.record.reading import list_runs, read_newest_run, read_run, list_run_ids

    if name is None and at_work:
        for run in list_runs(workspace.runs, limit=_RUNS_LOOKED_AT):
            if run.state == "running":
                return run
    if name is None:
        if (latest := read_newest_run(workspace.runs)) is None:
            raise UsageError(f"there are no runs in {workspace.runs}", tip="`rocm-wheels build` begins one")
        return latest
    ids = list_run_ids(workspace.runs)
    if name in ids:
        return read_run(workspace.runs / name)
    if not ids:
        raise UsageError(f"there is no run {name}: {workspace.runs} has none")
    raise UsageError(
        f"there is no run {name} in {workspace.runs}; the nearest are {', '.join(_find_nearest_ids(name, ids))}",
        tip="`rocm-wheels runs` lists them",
    )


def _find_nearest_ids(name: str, ids: list[str]) -> list[str]:
    """Return up to three ids that are spelled most alike; of equals the newest."""
    import difflib

    return difflib.get_close_matches(name, ids, n=3, cutoff=0.0)
