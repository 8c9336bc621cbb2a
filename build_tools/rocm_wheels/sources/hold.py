"""One run at a time in a source tree, whatever its work directory and whatever it does there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from rocm_wheels.sources.git import Git, find_git_directory
from rocm_wheels.sources.state import OWN_FOLDER
from rocm_wheels.workspace import WAIT_TIP, lock_folder


@contextmanager
def hold_checkout(directory: Path, *, activity: str, env: Mapping[str, str]) -> Iterator[None]:
    """Hold a checkout: no build, checkout or hipify of another run works in it meanwhile.

    Raises UsageError that names the holder. A folder that is no checkout is not held: the step
    that asks for its identity refuses it.
    """
    if not (directory / ".git").exists():
        yield
        return
    folder = find_git_directory(Git(directory, env)) / OWN_FOLDER
    with lock_folder(folder, purpose=activity, tip=f"{WAIT_TIP}, or build from another checkout"):
        yield
