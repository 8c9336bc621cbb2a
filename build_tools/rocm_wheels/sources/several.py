"""Checkouts of several projects side by side: one that fails stops none of the others."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rocm_wheels import log
from rocm_wheels.errors import RocmWheelsError, SourceError
from rocm_wheels.parallel import run_growing_work
from rocm_wheels.sources.checkout import checkout_project
from rocm_wheels.sources.request import CheckoutRequest, CheckoutResult


@dataclass(frozen=True)
class CheckoutTask:
    """A project to check out. ``request`` is called when its turn comes; it may read other trees.

    ``after``: the project whose tree it reads; without that one there, this one is not begun.
    ``check`` raises when the tree that was made is not the wanted one.
    """

    project: str
    request: Callable[[], CheckoutRequest]
    after: str | None = None
    check: Callable[[CheckoutRequest, CheckoutResult], None] | None = None


@dataclass(frozen=True)
class CheckoutOutcome:
    """What became of a project: a result, or a failure, or neither when ``missing`` had failed before."""

    project: str
    result: CheckoutResult | None = None
    failure: RocmWheelsError | OSError | None = None
    missing: str = ""


def checkout_projects(
    tasks: Sequence[CheckoutTask], folder: Path, *, env: Mapping[str, str], python: Path
) -> list[CheckoutOutcome]:
    """Check out projects below ``folder``, each after the one that it reads; return what became of each.

    Every line that is printed meanwhile names its project. An interruption ends them all. Raises
    nothing of what a project's own checkout raises, but for what is a bug.
    """
    names = {task.project for task in tasks}

    def work(task: CheckoutTask) -> tuple[list[CheckoutOutcome], list[CheckoutTask]]:
        followers = [follower for follower in tasks if follower.after == task.project]
        with log.prefix_log_lines(task.project):
            try:
                request = task.request()
                result = checkout_project(request, env=env, python=python)
                if task.check is not None:
                    task.check(request, result)
            except (RocmWheelsError, OSError) as failure:
                missing = [CheckoutOutcome(follower.project, missing=task.project) for follower in followers]
                return [CheckoutOutcome(task.project, failure=failure), *missing], []
        return [CheckoutOutcome(task.project, result)], followers

    first = [task for task in tasks if task.after not in names]
    with _ensure_folder(folder):
        outcomes = {
            outcome.project: outcome
            for batch in run_growing_work(work, first, jobs=len(tasks))
            for outcome in batch
        }
    return [outcomes[task.project] for task in tasks]


@contextmanager
def _ensure_folder(folder: Path) -> Iterator[None]:
    """Have a folder, and take it back when nothing has come into it.

    Those who work in it side by side must not find it gone because one of them failed.
    """
    created = [path for path in (folder, *folder.parents) if not path.exists()]
    above = created[-1].parent if created else folder
    for path in (*created, above):
        if os.path.lexists(path) and not path.is_dir():
            raise SourceError(f"{path} is not a folder", tip="name another one with --repo")
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield
    finally:
        while created and not any(created[0].iterdir()):
            created.pop(0).rmdir()
