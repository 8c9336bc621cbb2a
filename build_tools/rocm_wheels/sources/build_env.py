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
from rocm_wheels.workspace import write_atomically

BUILD_ENV_FILE = "build_env.json"


def is_build_env_current(project: Project, directory: Path, git_dir: Path, *, hipified: bool) -> bool:
    """Tell whether the file is as a checkout leaves it; ``git_dir`` is the git directory.

    ``hipified``: the checkout hipifies, which for such a project is to leave the file.
    """
    current, noted, _ = _read_build_env(directory, git_dir)
    return (current is not None and current != noted) or current == _format_build_env(project, hipified)


def is_foreign_build_env(directory: Path, git_dir: Path) -> bool:
    """Tell whether the file is there and not as a checkout of ours left it."""
    current, noted, _ = _read_build_env(directory, git_dir)
    return current is not None and current != noted


def write_build_env(git: Git, git_dir: Path, project: Project, *, hipified: bool) -> None:
    """Write, renew or remove the file; one that we did not write stays, and that is said."""
    directory = git.directory
    current, noted, note = _read_build_env(directory, git_dir)
    content = _format_build_env(project, hipified)
    if project.hipify.by != "variables" and noted is None:
        return
    if current is not None and current not in (noted, content):
        log.log_warning(
            f"{directory / BUILD_ENV_FILE} is not ours; it is left as it is, and the build reads it"
        )
    elif content is None:
        (directory / BUILD_ENV_FILE).unlink(missing_ok=True)
        note.unlink(missing_ok=True)
    else:
        _exclude_from_git(git, git_dir)
        write_atomically(note, content)
        if current != content:
            write_atomically(directory / BUILD_ENV_FILE, content)
            log.log_note(f"variables for the build of {project.name}: {directory / BUILD_ENV_FILE}")


def _read_build_env(directory: Path, git_dir: Path) -> tuple[str | None, str | None, Path]:
    """Return the file's content, what we wrote last, and where that is noted (``None``: no file)."""
    note = git_dir / OWN_FOLDER / BUILD_ENV_FILE
    contents = [
        path.read_text(encoding="utf-8", errors="surrogateescape") if path.is_file() else None
        for path in (directory / BUILD_ENV_FILE, note)
    ]
    return contents[0], contents[1], note


def _format_build_env(project: Project, hipified: bool) -> str | None:
    if not hipified or project.hipify.variables is None:
        return None
    return json.dumps(dict(project.hipify.variables), indent=2, sort_keys=True) + "\n"


def _exclude_from_git(git: Git, git_dir: Path) -> None:
    """Have git ignore the file in this repository."""
    path = git_dir / "info" / "exclude"
    if is_linked(git_dir):
        path = git.directory / git.text("rev-parse", "--git-path", "info/exclude")
    before = path.read_text(encoding="utf-8", errors="surrogateescape") if path.is_file() else ""
    lines = [f"/{BUILD_ENV_FILE}", f"/.{BUILD_ENV_FILE}.*.part"]  # the second: while it is being written
    missing = [line for line in lines if line not in before.splitlines()]
    if missing:
        start = before if before.endswith("\n") or not before else f"{before}\n"
        text = start + "".join(f"{line}\n" for line in missing)
        write_atomically(path, text.encode("utf-8", "surrogateescape"))
