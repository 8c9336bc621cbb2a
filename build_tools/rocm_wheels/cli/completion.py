"""The values that options and arguments can have, as click's completion in a shell lists them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path


def list_projects() -> Iterable[str]:
    """Return the projects that recipes are of."""
    from rocm_wheels.models import project_names

    return project_names.list_project_names()


def list_lines() -> Iterable[str]:
    """Return the release lines."""
    from rocm_wheels.models import release_lines

    return [line.name for line in release_lines.get_release_lines()]


def list_families() -> Iterable[str]:
    """Return the families of GPU targets."""
    from rocm_wheels.models import gfx

    return list(gfx.get_gfx_families())


def list_targets() -> Iterable[str]:
    """Return the GPU targets and their families."""
    from rocm_wheels.models import gfx

    return [*gfx.get_gfx_targets(), *list_families()]


def list_steps() -> Iterable[str]:
    """Return the steps of the newest run where the source trees are; none without a run."""
    import json

    from rocm_wheels.cli import build_options
    from rocm_wheels.core.workspace import Workspace
    from rocm_wheels.pipeline import run_record

    _, work = build_options.resolve_folders({"work_dir": None})
    run = run_record.read_newest_run(Workspace(work).runs)
    if run is None or not run.begun.text("plan"):
        return []
    plan = Path(run.begun.text("plan"))
    return (
        [step["id"] for step in json.loads(plan.read_text(encoding="utf-8"))["steps"]]
        if plan.is_file()
        else []
    )
