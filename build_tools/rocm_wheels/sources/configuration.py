"""git's configuration in a repository, read once: what counts, and what the repository itself says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rocm_wheels import log, shell
from rocm_wheels.sources.git import Git
from rocm_wheels.workspace import write_whole

_ORIGIN = "remote.origin.url"


@dataclass(frozen=True)
class Configuration:
    """Keys (in lower letters but for their middle) and values; ``own``: of the repository's file alone."""

    values: Mapping[str, str]
    own: Mapping[str, str]

    @property
    def origin(self) -> str:
        """The origin, with the credentials in it; empty where there is none."""
        return self.values.get(_ORIGIN, "")

    @property
    def knows_submodules(self) -> bool:
        """Tell whether something was said of a submodule."""
        return any(key.startswith("submodule.") for key in self.own)


def configuration(git: Git) -> Configuration:
    """Read git's configuration in a repository; what is set last counts."""
    fields = git.fields("config", "-z", "--show-scope", "--list")
    values, own = {}, {}
    for scope, record in zip(fields[::2], fields[1::2], strict=True):
        key, _, value = record.partition("\n")
        values[key] = value
        if scope in ("local", "worktree"):
            own[key] = value
    return Configuration(values, own)


def configure(git: Git, place: Path, known: Configuration, origin: str, *, made: bool) -> None:
    """Note the origin, and what lets the user's own git see the files as ours does.

    ``known`` is the configuration as it is. ``made``: this run has just made the repository in
    ``place``, so that nobody else writes its file.
    """
    if known.origin == origin:
        return
    if made and not {"core.autocrlf", "core.eol"} & known.own.keys():
        config = place / "config"
        mode, url = config.stat().st_mode, origin.replace("\\", "\\\\").replace('"', '\\"')
        lines = '[core]\n\tautocrlf = false\n\teol = lf\n[remote "origin"]\n'
        lines += f'\turl = "{url}"\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n'
        write_whole(config, config.read_bytes() + lines.encode("utf-8", "surrogateescape"))
        config.chmod(mode)
        return
    if known.origin:
        log.note(f"origin was {shell.hide_credentials(known.origin)}")
    for key, value in (
        ("remote.origin.fetch", "+refs/heads/*:refs/remotes/origin/*"),
        ("core.autocrlf", "false"),
        ("core.eol", "lf"),
        (_ORIGIN, origin),  # the last: with it, all are there
    ):
        if known.own.get(key) != value:
            git.text("config", "--replace-all", key, value)
