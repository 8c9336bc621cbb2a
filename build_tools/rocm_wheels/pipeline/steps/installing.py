"""Installing wheels of ours into a build environment, for others to be built against."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from rocm_wheels.errors import BuildError
from rocm_wheels.pipeline.facts.installed import installed_when, note_of, read_note
from rocm_wheels.pipeline.facts.ready import Ready
from rocm_wheels.sdk.install import install_wheel, uninstall
from rocm_wheels.workspace import Workspace, exclusive, write_json

_PATIENCE_SECONDS = 24 * 3600.0  # another step installs something, or imports a wheel


@contextmanager
def changing(ready: Ready, workspace: Workspace, *, what: str) -> Iterator[bool]:
    """Hold an environment to change what is installed in it; other steps wait.

    Yields whether the last change has no end: an installer that was killed takes packages for installed
    that are there by half.
    """
    place = workspace.environments / ".locks" / f"{ready.environment.prefix.name}.packages"
    unfinished = place / "unfinished"
    with exclusive(place, what=what, patience=_PATIENCE_SECONDS):
        cut = unfinished.exists()
        unfinished.touch()
        yield cut
        unfinished.unlink()


def install_built(
    ready: Ready, wheel: Path, content: str, *, distribution: str, env: Mapping[str, str]
) -> None:
    """Bring a wheel that we built into the environment, unless that very ``content`` is there already."""
    note = note_of(ready)
    known = read_note(note)
    mark = [content, installed_when(ready, distribution)]
    if known.get(distribution) == mark and mark[1]:
        return
    if known.pop(distribution, None) is not None:
        write_json(note, known)  # half installed must not count as installed
    install_wheel(ready.environment, wheel, env=env)
    when = installed_when(ready, distribution)
    if not when:
        raise BuildError(f"{wheel.name} was installed, but {ready.site_packages} has no {distribution}")
    write_json(note, {**known, distribution: [content, when]})


def forget_built(ready: Ready, *, distribution: str, env: Mapping[str, str]) -> None:
    """Take a wheel out of the environment again: nothing must be built against one that failed."""
    note = note_of(ready)
    known = read_note(note)
    known.pop(distribution, None)
    write_json(note, known)
    uninstall(ready.environment, distribution, env=env)
