"""The files that a branch has changed, as git tells."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from rocm_wheels import log
from rocm_wheels.errors import UsageError


def check_named_files(repository: Path, names: Iterable[str]) -> list[str]:
    """Return files that a user names, as git prints paths; warn of those that are not there.

    Whole paths may lie in the repository; others count from its top. Raises UsageError for what lies outside.
    """
    paths = []
    for name in names:
        path = Path(os.path.normpath(repository / name))
        if not path.is_relative_to(repository) or path == repository:
            raise UsageError(f"--changed {name} is no file of {repository}", tip="name it from there")
        if path.is_dir() and not path.is_symlink():
            raise UsageError(f"--changed {name} is a folder", tip="name the files in it that have changed")
        if not os.path.lexists(path):
            log.log_warning(f"--changed: there is no {path}; it counts as a file that was removed")
        paths.append(path.relative_to(repository).as_posix())
    return paths


def list_changed_since(repository: Path, ref: str) -> list[str]:
    """Return the paths that differ between where a branch left ``ref`` and the files as they are now.

    Files that git does not know yet count, renamed ones under both names. Since zeros, which is what GitHub
    says of a branch that was not there before a push, all have changed. Raises UsageError for no repository
    or no such commit.
    """
    from git import Repo
    from git.exc import BadName, GitCommandError, InvalidGitRepositoryError, NoSuchPathError

    everything = set(ref) == {"0"}
    try:
        repo = Repo(repository)
        base = repo.merge_base("HEAD" if everything else ref, "HEAD")
    except (InvalidGitRepositoryError, NoSuchPathError) as cause:
        raise UsageError(f"{repository} is no git repository", tip="name the files with --changed") from cause
    except (GitCommandError, BadName, ValueError) as cause:
        tip = "a shallow clone may not have it: git fetch origin REF, with --deepen where it ends before it"
        raise UsageError(f"there is no commit {ref or repr(ref)} in {repository}", tip=tip) from cause
    if not base:
        raise UsageError(f"{ref} and HEAD have no commit in common in {repository}", tip="git fetch --deepen")
    if everything:
        output = repo.git.ls_files("-z")
    else:
        output = repo.git.diff("--name-only", "--no-renames", "-z", base[0].hexsha)
    return sorted({*filter(None, output.split("\0")), *repo.untracked_files})
