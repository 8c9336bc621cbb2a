"""``build_env.json``: variables that a checkout leaves in the tree for the project's build.

git does not see the file (``info/exclude`` of the repository): HEAD stays the upstream
commit, which is in Triton's version, and the tree counts as unchanged. What we wrote last is
noted inside the repository, so that a file of somebody's own is told apart and kept.
"""

from __future__ import annotations

import json
from pathlib import Path

from rocm_wheels import log
from rocm_wheels.model.project import Project
from rocm_wheels.sources.git import Git, is_linked
from rocm_wheels.sources.state import OWN_FOLDER
from rocm_wheels.workspace import write_whole

FILE_NAME = "build_env.json"


def is_settled(project: Project, directory: Path, place: Path, *, wanted: bool) -> bool:
    """Tell whether the file is as a checkout leaves it; ``place`` is the git directory.

    ``wanted``: the checkout hipifies, which for such a project is to leave the file.
    """
    there, noted, _ = _look(directory, place)
    return (there is not None and there != noted) or there == _content(project, wanted)


def is_somebodys(directory: Path, place: Path) -> bool:
    """Tell whether the file is there and not as a checkout of ours left it."""
    there, noted, _ = _look(directory, place)
    return there is not None and there != noted


def settle(git: Git, place: Path, project: Project, *, wanted: bool) -> None:
    """Write, renew or remove the file; one that we did not write stays, and that is said."""
    directory = git.directory
    there, noted, note = _look(directory, place)
    content = _content(project, wanted)
    if project.hipify.by != "variables" and noted is None:
        return
    if there is not None and there not in (noted, content):
        log.warn(f"{directory / FILE_NAME} is not ours; it is left as it is, and the build reads it")
    elif content is None:
        (directory / FILE_NAME).unlink(missing_ok=True)
        note.unlink(missing_ok=True)
    else:
        _exclude(git, place)
        write_whole(note, content)
        if there != content:
            write_whole(directory / FILE_NAME, content)
            log.note(f"variables for the build of {project.name}: {directory / FILE_NAME}")


def _look(directory: Path, place: Path) -> tuple[str | None, str | None, Path]:
    """Return the file's content, what we wrote last, and where that is noted (``None``: no file)."""
    note = place / OWN_FOLDER / FILE_NAME
    found = [
        path.read_text(encoding="utf-8", errors="surrogateescape") if path.is_file() else None
        for path in (directory / FILE_NAME, note)
    ]
    return found[0], found[1], note


def _content(project: Project, wanted: bool) -> str | None:
    if not wanted or project.hipify.variables is None:
        return None
    return json.dumps(dict(project.hipify.variables), indent=2, sort_keys=True) + "\n"


def _exclude(git: Git, place: Path) -> None:
    """Have git ignore the file in this repository."""
    path = place / "info" / "exclude"
    if is_linked(place):
        path = git.directory / git.text("rev-parse", "--git-path", "info/exclude")
    before = path.read_text(encoding="utf-8", errors="surrogateescape") if path.is_file() else ""
    lines = [f"/{FILE_NAME}", f"/.{FILE_NAME}.*.part"]  # the second: while it is being written
    missing = [line for line in lines if line not in before.splitlines()]
    if missing:
        start = before if before.endswith("\n") or not before else f"{before}\n"
        text = start + "".join(f"{line}\n" for line in missing)
        write_whole(path, text.encode("utf-8", "surrogateescape"))
