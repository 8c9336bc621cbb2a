"""Installing wheels of ours into a build environment, for others to be built against."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from rocm_wheels.errors import BuildError
from rocm_wheels.pipeline.facts.installed import read_install_time, installed_note_path, read_installed_note
from rocm_wheels.pipeline.facts.ready import ReadyEnvironment
from rocm_wheels.sdk.install import install_wheel, uninstall_distribution
from rocm_wheels.workspace import Workspace, lock_folder, write_json_file

_INSTALL_WAIT_SECONDS = 24 * 3600.0  # another step installs something, or imports a wheel


@contextmanager
def hold_environment(ready: ReadyEnvironment, workspace: Workspace, *, purpose: str) -> Iterator[bool]:
    """Hold an environment to change what is installed in it; other steps wait.

    Yields whether the last change has no end: an installer that was killed takes packages for installed
    that are there by half.
    """
    locked_folder = workspace.environments / ".locks" / f"{ready.environment.prefix.name}.packages"
    unfinished = locked_folder / "unfinished"
    with lock_folder(locked_folder, purpose=purpose, patience=_INSTALL_WAIT_SECONDS):
        was_interrupted = unfinished.exists()
        unfinished.touch()
        yield was_interrupted
        unfinished.unlink()


def install_built_wheel(
    ready: ReadyEnvironment, wheel: Path, content: str, *, distribution: str, env: Mapping[str, str]
) -> None:
    """Bring a wheel that we built into the environment, unless that very ``content`` is there already."""
    note = installed_note_path(ready)
    entries = read_installed_note(note)
    mark = [content, read_install_time(ready, distribution)]
    if entries.get(distribution) == mark and mark[1]:
        return
    if entries.pop(distribution, None) is not None:
        write_json_file(note, entries)  # half installed must not count as installed
    install_wheel(ready.environment, wheel, env=env)
    install_time = read_install_time(ready, distribution)
    if not install_time:
        raise BuildError(f"{wheel.name} was installed, but {ready.site_packages} has no {distribution}")
    write_json_file(note, {**entries, distribution: [content, install_time]})


def uninstall_built_wheel(ready: ReadyEnvironment, *, distribution: str, env: Mapping[str, str]) -> None:
    """Take a wheel out of the environment again: nothing must be built against one that failed."""
    note = installed_note_path(ready)
    entries = read_installed_note(note)
    entries.pop(distribution, None)
    write_json_file(note, entries)
    uninstall_distribution(ready.environment, distribution, env=env)
