"""Checkouts of several projects side by side: one that fails stops none of the others."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rocm_wheels import log
from rocm_wheels.errors import RocmWheelsError, SourceError
from rocm_wheels.parallel import spread
from rocm_wheels.sources.checkout import checkout
from rocm_wheels.sources.request import CheckoutRequest, CheckoutResult


@dataclass(frozen=True)
class Task:
    """A project to check out. ``request`` is called when its turn comes; it may read other trees.

    ``after``: the project whose tree it reads; without that one there, this one is not begun.
    ``check`` raises when the tree that was made is not the wanted one.
    """

    project: str
    request: Callable[[], CheckoutRequest]
    after: str | None = None
    check: Callable[[CheckoutRequest, CheckoutResult], None] | None = None


@dataclass(frozen=True)
class Outcome:
    """What became of a project: a result, or a failure, or neither when ``missing`` had failed before."""

    project: str
    result: CheckoutResult | None = None
    failure: RocmWheelsError | OSError | None = None
    missing: str = ""


def checkout_several(
    tasks: Sequence[Task], folder: Path, *, env: Mapping[str, str], python: Path
) -> list[Outcome]:
    """Check out projects below ``folder``, each after the one that it reads; return what became of each.

    Every line that is printed meanwhile names its project. An interruption ends them all. Raises
    nothing of what a project's own checkout raises, but for what is a bug.
    """
    names = {task.project for task in tasks}

    def work(task: Task) -> tuple[list[Outcome], list[Task]]:
        followers = [one for one in tasks if one.after == task.project]
        with log.prefixed(task.project):
            try:
                request = task.request()
                result = checkout(request, env=env, python=python)
                if task.check is not None:
                    task.check(request, result)
            except (RocmWheelsError, OSError) as failure:
                missing = [Outcome(one.project, missing=task.project) for one in followers]
                return [Outcome(task.project, failure=failure), *missing], []
        return [Outcome(task.project, result)], followers

    first = [task for task in tasks if task.after not in names]
    with _there(folder):
        found = {one.project: one for many in spread(work, first, jobs=len(tasks)) for one in many}
    return [found[task.project] for task in tasks]


@contextmanager
def _there(folder: Path) -> Iterator[None]:
    """Have a folder, and take it back when nothing has come into it.

    Those who work in it side by side must not find it gone because one of them failed.
    """
    made = [one for one in (folder, *folder.parents) if not one.exists()]
    above = made[-1].parent if made else folder
    for one in (*made, above):
        if os.path.lexists(one) and not one.is_dir():
            raise SourceError(f"{one} is not a folder", tip="name another one with --repo")
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield
    finally:
        while made and not any(made[0].iterdir()):
            made.pop(0).rmdir()
