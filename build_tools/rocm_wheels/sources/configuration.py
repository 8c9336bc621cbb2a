"""git's configuration in a repository, read once: what counts, and what the repository itself says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rocm_wheels import log, shell
from rocm_wheels.sources.git import Git
from rocm_wheels.workspace import write_atomically

_ORIGIN_KEY = "remote.origin.url"


@dataclass(frozen=True)
class GitConfiguration:
    """Keys (in lower letters but for their middle) and values; ``local``: of the repository's file alone."""

    values: Mapping[str, str]
    local: Mapping[str, str]

    @property
    def origin(self) -> str:
        """The origin, with the credentials in it; empty where there is none."""
        return self.values.get(_ORIGIN_KEY, "")

    @property
    def knows_submodules(self) -> bool:
        """Tell whether something was said of a submodule."""
        return any(key.startswith("submodule.") for key in self.local)


def read_configuration(git: Git) -> GitConfiguration:
    """Read git's configuration in a repository; what is set last counts."""
    fields = git.fields("config", "-z", "--show-scope", "--list")
    values, local = {}, {}
    for scope, record in zip(fields[::2], fields[1::2], strict=True):
        key, _, value = record.partition("\n")
        values[key] = value
        if scope in ("local", "worktree"):
            local[key] = value
    return GitConfiguration(values, local)


def write_configuration(
    git: Git, git_dir: Path, current: GitConfiguration, origin: str, *, created: bool
) -> None:
    """Note the origin, and what lets the user's own git see the files as ours does.

    ``current`` is the configuration as it is. ``created``: this run has just made the repository in
    ``git_dir``, so that nobody else writes its file.
    """
    if current.origin == origin:
        return
    if created and not {"core.autocrlf", "core.eol"} & current.local.keys():
        config = git_dir / "config"
        mode, url = config.stat().st_mode, origin.replace("\\", "\\\\").replace('"', '\\"')
        lines = '[core]\n\tautocrlf = false\n\teol = lf\n[remote "origin"]\n'
        lines += f'\turl = "{url}"\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n'
        write_atomically(config, config.read_bytes() + lines.encode("utf-8", "surrogateescape"))
        config.chmod(mode)
        return
    if current.origin:
        log.log_note(f"origin was {shell.hide_credentials(current.origin)}")
    for key, value in (
        ("remote.origin.fetch", "+refs/heads/*:refs/remotes/origin/*"),
        ("core.autocrlf", "false"),
        ("core.eol", "lf"),
        (_ORIGIN_KEY, origin),  # the last: with it, all are there
    ):
        if current.local.get(key) != value:
            git.text("config", "--replace-all", key, value)
