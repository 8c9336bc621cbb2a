"""Run git in one working tree, started so that a tree comes out the same for everybody.

The user's own configuration (proxies, credentials, `insteadOf`) stays in force; only what
could change content, sign, run hooks or ask questions is set aside, for our commands alone.
Failures that git reports in its own words get the tip that helps.
"""

from __future__ import annotations

import functools
import os
import re
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

from rocm_wheels.core import errors, files, log, process, progress, shell

_DISK_FULL = 2**18  # bytes
# What git says (seen of 2.39; the words are older and have stayed).
_ADVICE = (
    (
        re.compile(r"\.lock': File exists|could not lock config file"),
        "another git is at work in that repository: wait for it to end; if none is, remove the .lock file",
    ),
    (
        re.compile(
            r"(?i)could ?n[o']t (resolve|connect)|failed to connect|network is unreachable|no route to host"
            r"|name or service not known|temporary failure in name resolution"
        ),
        "check the address and the network; what was fetched is kept",
    ),
    (
        re.compile(r"bad (numeric |boolean )?config"),
        "correct git's configuration there (`git config --show-origin --list` names the files)",
    ),
    (
        re.compile(r"Permission denied(?! \()|Read-only file system"),  # ssh says why in brackets
        "have it readable and writable for you, or choose another folder",
    ),
)
_DAMAGE = re.compile(
    r"\bis corrupt\b|bad object (HEAD|refs/)|unable to (unpack|read) |index file (smaller|corrupt)"
    r"|bad index file|bad signature|not a git repository|invalid gitfile|does not match index"
)


def find_advice(output: str, damaged: str = "") -> str | None:
    """Return what to do about a failure, where git's words tell; those of a server say nothing of us.

    ``damaged``: what it is that words about broken files are about (empty: nothing of ours).
    """
    local_output = "\n".join(
        line for line in output.splitlines() if not line.lstrip(" |").startswith("remote:")
    )
    if damaged and _DAMAGE.search(local_output):
        return (
            f"{damaged} is damaged; `git fsck` says more. Move it away, "
            "or check out into another folder with --source-dir"
        )
    return next((tip for words, tip in _ADVICE if words.search(local_output)), None)


@contextmanager
def add_advice(folder: Path, damaged: str = "") -> Iterator[None]:
    """Give a failure of git the tip that its words call for, where there is one (see ``find_advice``).

    When the disk of ``folder`` is full, that is the tip: git does not always say so.
    """
    try:
        yield
    except errors.SourceError as failure:
        if folder.exists() and files.measure_free_space(folder) < _DISK_FULL:
            failure.tip = "free some space, then run the same command again"
        else:
            failure.tip = find_advice(failure.message, damaged) or failure.tip
        raise


OLDEST_GIT = (2, 28)  # for `git init --initial-branch`; run here: 2.39
OUR_NAME = "rocm-wheels"
OUR_EMAIL = "rocm-wheels@noreply.invalid"
FETCH_SECONDS = 12 * 3600.0  # of a transfer that moves; one that stands still is cut by ``silence``
LOCAL_SECONDS = 1800.0

# What follows is work on this machine, and of that git shows only a part.
_TRANSFER_DONE = re.compile(r"(Receiving|Unpacking) objects: 100%")

_CHECKED_PATHS: set[str | None] = set()  # values of PATH whose git will do; None is no PATH at all
_CHECK_LOCK = threading.Lock()

# Each of these, set by a user or an administrator, would change trees or commits, or stop for a
# question. `core.excludesFile` stays: what a user ignores is no change of theirs.
_NEUTRAL = {
    "advice.addEmbeddedRepo": "false",
    "advice.detachedHead": "false",
    "commit.gpgSign": "false",
    "core.attributesFile": "",
    "core.autocrlf": "false",
    "core.eol": "lf",
    "core.fsmonitor": "false",
    "core.hooksPath": os.devnull,
    "core.safecrlf": "false",
    "gc.auto": "0",
    "i18n.commitEncoding": "UTF-8",
    "init.templateDir": "",
    "maintenance.auto": "false",
    "submodule.recurse": "false",
    "tag.gpgSign": "false",
}
# From `git rev-parse --local-env-vars`: they would point our commands at another repository
# (a run from inside a git hook has them). The variables that carry configuration stay.
_LOCAL_VARIABLES = (
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_COMMON_DIR",
    "GIT_DIR",
    "GIT_GRAFT_FILE",
    "GIT_IMPLICIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_NAMESPACE",
    "GIT_NO_REPLACE_OBJECTS",
    "GIT_OBJECT_DIRECTORY",
    "GIT_PREFIX",
    "GIT_REPLACE_REF_BASE",
    "GIT_SHALLOW_FILE",
    "GIT_WORK_TREE",
)


@dataclass(frozen=True)
class Git:
    """git commands in ``directory``; ``settings`` are further ``key=value`` configuration."""

    directory: Path
    env: Mapping[str, str]
    settings: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)

    def in_directory(self, directory: Path) -> Git:
        """Return the same git in another working tree."""
        return replace(self, directory=directory, variables={})

    def with_variables(self, **variables: str) -> Git:
        """Return the same git with environment variables of its own."""
        return replace(self, variables={**self.variables, **variables})

    def with_settings(self, *settings: str) -> Git:
        """Return the same git with more configuration (``key=value``)."""
        return replace(self, settings=(*self.settings, *settings))

    def text(
        self, *arguments: str, stdin: bytes | None = None, activity: str | None = None, tip: str | None = None
    ) -> str:
        """Return what a local command printed. Raises SourceError with git's own words."""
        with add_advice(self.directory, f"the repository of {self.directory}"):
            return process.capture_output(
                self.command(arguments),
                env=self.environment(),
                cwd=self.directory,
                stdin=stdin,
                timeout=LOCAL_SECONDS,
                check=errors.SourceError,
                description=activity or self.describe(arguments),
                tip=tip,
            )

    def fields(self, *arguments: str, stdin: bytes | None = None) -> list[str]:
        """Return the NUL-terminated fields that a command with ``-z`` printed."""
        return self.text(*arguments, stdin=stdin).split("\0")[:-1]

    def succeeds(self, *arguments: str) -> bool:
        """Tell whether a command that answers by its exit code says yes."""
        done = process.run_command(
            self.command(arguments),
            env=self.environment(),
            cwd=self.directory,
            timeout=LOCAL_SECONDS,
            check=None,
            description=self.describe(arguments),
        )
        return done.returncode == 0

    def run_network(
        self,
        *arguments: str,
        activity: str,
        silence: float | None = None,
        tip: str | None = None,
    ) -> None:
        """Run a command that talks to a server; it is cut when nothing comes for ``silence`` seconds.

        Give it ``--progress``, or it says nothing. Raises SourceError.
        """
        with add_advice(self.directory, f"the repository of {self.directory}, or its origin,"):
            process.run_command(
                self.command(arguments),
                env=self.environment(),
                cwd=self.directory,
                on_line=lambda line: progress.show_live_line(f"{activity}: {line}"),
                timeout=FETCH_SECONDS,
                silence=silence,
                ends_silence=lambda line: bool(_TRANSFER_DONE.search(line)),
                check=errors.SourceError,
                description=activity,
                tip=tip,
            )
        progress.show_live_line("")

    def command(self, arguments: Sequence[str]) -> list[str]:
        """Return the whole command line. Raises SourceError when there is no git, or none that will do."""
        require_git(self.env)
        pairs = [f"{key}={value}" for key, value in _NEUTRAL.items()] + list(self.settings)
        return ["git", *(word for pair in pairs for word in ("-c", pair)), *arguments]

    def environment(self) -> dict[str, str]:
        """Return the environment of our git: no question, no foreign repository, English words."""
        inherited = strip_repository_variables(self.env)
        fixed = {
            # never a repository further up: a broken one here must not send us into somebody else's
            "GIT_CEILING_DIRECTORIES": _resolve_folder(str(self.directory.parent)),
            "GIT_COMMITTER_EMAIL": OUR_EMAIL,  # for reflogs: people without user.name are served too
            "GIT_COMMITTER_NAME": OUR_NAME,
            "GIT_DEFAULT_HASH": "sha1",
            # what only looks (`git status`, which `git add` starts in submodules) locks no index: ended with
            # a killed run it would leave the lock behind, though nothing was under way
            "GIT_OPTIONAL_LOCKS": "0",
            "GIT_TERMINAL_PROMPT": "0",
            "LC_ALL": "C",
        }
        return {**inherited, **fixed, **self.variables}

    def describe(self, arguments: Sequence[str]) -> str:
        """Name a command in a message, without our configuration."""
        return f"`{shell.format_command(['git', *arguments], cwd=self.directory)}`"


@functools.cache
def _resolve_folder(folder: str) -> str:
    return os.path.realpath(folder)


def strip_repository_variables(env: Mapping[str, str]) -> dict[str, str]:
    """Return an environment without what would point git, and builds that ask it, at another repository."""
    return {name: value for name, value in env.items() if name not in _LOCAL_VARIABLES}


def require_git(env: Mapping[str, str]) -> None:
    """Raise SourceError when the PATH finds no git, or one that lacks what we ask of it."""
    path = env.get("PATH")
    with _CHECK_LOCK:
        if path not in _CHECKED_PATHS:
            _require_git_version(env)
            _CHECKED_PATHS.add(path)


def _require_git_version(env: Mapping[str, str]) -> None:
    needed = ".".join(map(str, OLDEST_GIT))
    tip = f"have git {needed} or newer on the PATH"
    try:
        output = process.capture_output(
            ["git", "version"], env=env, timeout=60, check=errors.SourceError, description="git"
        )
    except errors.SourceError as cause:
        raise errors.SourceError("there is no git that can be started", tip=tip) from cause
    version = re.match(r"git version (\d+)\.(\d+)", output)
    if version is None:
        raise errors.SourceError(f"`git version` says {output[:100]!r}, which is no version", tip=tip)
    if (int(version[1]), int(version[2])) < OLDEST_GIT:
        raise errors.SourceError(f"git {version[1]}.{version[2]} is too old: {needed} is needed", tip=tip)


def find_git_directory(git: Git) -> Path:
    """Return the folder that holds a tree's repository (``.git``, or a submodule's own place).

    Git is asked where that is not plain to see; what is wrong with a repository it says itself.
    """
    folder = git.directory / ".git"
    if folder.is_file():
        folder = read_git_pointer(folder)
    if "GIT_DIR" not in git.variables and all(
        (folder / name).exists() for name in ("HEAD", "objects", "refs")
    ):
        return Path(os.path.realpath(folder))
    return Path(git.text("rev-parse", "--absolute-git-dir"))


def is_linked(git_dir: Path) -> bool:
    """Tell whether a repository is of a linked working tree: most is elsewhere (gitrepository-layout(5))."""
    return (git_dir / "commondir").exists()


def read_git_pointer(pointer: Path) -> Path:
    """Return the repository that a ``.git`` file names, as a submodule has one (gitrepository-layout(5))."""
    named = pointer.read_text(encoding="utf-8", errors="surrogateescape").removeprefix("gitdir:").strip()
    return pointer.parent / named


def find_objects_folder(git: Git) -> Path:
    """Return the folder of a repository's objects."""
    git_dir = Path(git.directory, git.variables.get("GIT_DIR", ".git"))
    elsewhere = "GIT_OBJECT_DIRECTORY" in git.variables
    if git_dir.is_file():
        git_dir = read_git_pointer(git_dir)
    if git_dir.is_dir() and not elsewhere and not is_linked(git_dir):
        return git_dir / "objects"
    return Path(git.directory, git.text("rev-parse", "--git-path", "objects"))


def is_inside_tree(path: str) -> bool:
    """Tell whether a relative path with / stays below its root, and out of the repository itself."""
    pure = PurePosixPath(path)
    parts = {part.lower() for part in pure.parts}
    return bool(parts) and not pure.is_absolute() and not parts & {"..", ".git"} and "\0" not in path


def disable_private_filters(git: Git) -> Git:
    """Switch off the content filters that the user's configuration defines.

    A tree must not depend on whose machine wrote it. Git LFS stays: it gives everybody the same.
    """
    return disable_filters(git, read_configuration(git))


def disable_filters(git: Git, keys: Iterable[str]) -> Git:
    """Switch off the content filters, but for Git LFS, that the ``keys`` of a configuration name."""
    names = {key.split(".", 1)[1].rsplit(".", 1)[0] for key in keys if key.startswith("filter.")}
    off = [
        setting
        for name in sorted(names - {"lfs"})
        for setting in (
            f"filter.{name}.clean=",
            f"filter.{name}.smudge=",
            f"filter.{name}.process=",
            f"filter.{name}.required=false",
        )
    ]
    return git.with_settings(*off)


ORIGIN_KEY = "remote.origin.url"


def read_configuration(git: Git) -> dict[str, str]:
    """Return git's configuration in a repository; what is set last counts.

    Keys are in lower letters but for their middle. The origin has its credentials in it.
    """
    records = (record.partition("\n") for record in git.fields("config", "-z", "--list"))
    return {key: value for key, _, value in records}


def add_origin(git_dir: Path, origin: str) -> None:
    """Note the origin in a new repository, and what lets the user's own git see the files as ours does."""
    url = origin.replace("\\", "\\\\").replace('"', '\\"')
    text = f"""\
[core]
	autocrlf = false
	eol = lf
[remote "origin"]
	url = "{url}"
	fetch = +refs/heads/*:refs/remotes/origin/*
"""
    config = git_dir / "config"
    files.write_atomically(config, config.read_bytes() + text.encode("utf-8", "surrogateescape"))


def change_origin(git: Git, current: str, origin: str) -> None:
    """Have the origin of a repository of ours, which has another one, or none any more."""
    if not current:
        git.text("remote", "add", "origin", origin)
    elif current != origin:
        log.log_note(f"origin was {shell.hide_credentials(current)}")
        git.text("config", "--replace-all", ORIGIN_KEY, origin)
