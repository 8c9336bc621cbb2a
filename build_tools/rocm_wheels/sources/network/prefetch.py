"""Submodules' commits, all fetched before a file of the tree is touched: several at a time.

They come into git's own places (``modules/<name>`` of the parent's repository, or the repository that a
submodule has), so that what is left for ``git submodule update`` needs no server. A network that fails
leaves the tree as it was, with what has come kept for the next run.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from rocm_wheels import log, parallel
from rocm_wheels.errors import SourceError
from rocm_wheels.sources.case import refuse_case_clash
from rocm_wheels.sources.configuration import GitConfiguration, read_configuration
from rocm_wheels.sources.git import Git
from rocm_wheels.sources.network.fetch import NEW_FOLDER_PREFIX, CommitRequest, mark_under_way
from rocm_wheels.sources.network.gitmodules import (
    GITMODULES_FILE,
    Submodule,
    parse_gitmodules,
    resolve_submodule_url,
)
from rocm_wheels.sources.network.mirrors import obtain_commit
from rocm_wheels.sources.network.remote import is_server
from rocm_wheels.sources.network.transport import Transport
from rocm_wheels.sources.state import OWN_FOLDER
from rocm_wheels.sources.trees import GITLINK, TreeEntry, list_tree, has_whole_commit
from rocm_wheels.workspace import write_atomically

_FALSE_WORDS = {"false", "no", "off", "0"}
_TRUE_WORDS = {"true", "yes", "on", "1"}


@dataclass(frozen=True)
class RepositoryCommit:
    """A repository at a commit: its path from the root, its own folder, where it comes from."""

    path: str
    git: Git
    folder: Path
    origin: str
    commit: str

    @property
    def description(self) -> str:
        """Name it in a message."""
        return f"{self.commit[:12]} of {_make_printable(self.path) if self.path else self.git.directory}"


@dataclass(frozen=True)
class _SubmoduleLink:
    """A submodule to be had: what .gitmodules says, the commit of its gitlink, its whole URL."""

    parent: RepositoryCommit
    module: Submodule
    commit: str
    url: str

    @property
    def path(self) -> str:
        return f"{self.parent.path}/{self.module.path}" if self.parent.path else self.module.path


class FetchedSubmodule(NamedTuple):
    """A submodule whose commit has come: its path, and its parent's, from the root.

    ``tree``: the commit's, empty where nobody looked. ``folder`` is its own repository.
    """

    path: str
    parent: str
    name: str
    url: str
    commit: str
    tree: str
    folder: Path


class SubmoduleFetch(NamedTuple):
    """``paths`` of the root's submodules, and ``new``: all that were fetched, to any depth.

    ``new`` is ``None`` when git has a choice, by what is there or by what is said of one.
    """

    paths: set[str]
    new: Sequence[FetchedSubmodule] | None = None


def fetch_submodules(
    root: RepositoryCommit,
    folders: Mapping[str, Path],
    config: GitConfiguration,
    *,
    enabled: bool,
    depth: int | None,
    transport: Transport,
) -> SubmoduleFetch:
    """Have the commits of all submodules, recursively, if they are ``enabled``. No file is touched.

    For somebody who holds the tree. ``folders``: the repositories of the
    submodules that are in it; ``config``: the root's configuration. Raises SourceError: a server, a
    submodule without URL, names that clash on this disk (looked for in the root alone when submodules are
    not wanted).
    """
    if not enabled and not _ignores_case(config):
        return SubmoduleFetch(set())
    files = list_tree(root.git, root.commit)
    if not enabled:
        refuse_case_clash((entry.path for entry in files), root.description)
        return SubmoduleFetch(set())
    with mark_under_way(root.folder):
        run = _Prefetch(root, folders, config, depth=depth, transport=transport)
        run.run(files)
    return SubmoduleFetch(
        {entry.path for entry in files if entry.mode == GITLINK}, run.arrived if run.plain else None
    )


class _Prefetch:
    """Fetches the submodules of one tree."""

    def __init__(
        self,
        root: RepositoryCommit,
        folders: Mapping[str, Path],
        config: GitConfiguration,
        *,
        depth: int | None,
        transport: Transport,
    ) -> None:
        self.root, self.folders, self.config = root, folders, config
        self.depth, self.ignore_case, self.transport = depth, _ignores_case(config), transport
        self.arrived: list[FetchedSubmodule] = []
        self.plain = not any(_is_choice(key) for key in config.values)

    def run(self, files: Sequence[TreeEntry]) -> None:
        """Have every submodule's commit, recursively, from the root's ``files`` on. Raises SourceError."""
        first = self.list_links(self.root, files)
        if not first:
            return
        with tempfile.TemporaryDirectory(
            prefix=NEW_FOLDER_PREFIX, dir=self.root.folder / OWN_FOLDER
        ) as folder:
            self.blank = Path(folder, "blank")
            self.root.git.with_variables(GIT_DIR=str(self.blank)).text(
                "init", "--quiet", "--bare", "--template="
            )
            parallel.run_growing_work(self._fetch_submodule, first, jobs=self.transport.jobs)
        log.show_live_line("")

    def list_links(self, repository: RepositoryCommit, listed: Sequence[TreeEntry]) -> list[_SubmoduleLink]:
        """List the submodules of a repository's commit (``listed``) that git would update.

        Raises SourceError for one without URL, and for names that clash where case does not count.
        """
        if self.ignore_case:
            refuse_case_clash((entry.path for entry in listed), repository.description)
        gitlinks = [entry for entry in listed if entry.mode == GITLINK]
        if not gitlinks:
            return []
        submodules = self._read_gitmodules(
            repository, has_file=any(e.path == GITMODULES_FILE and e.mode[:3] == "100" for e in listed)
        )
        values = (self.config if repository is self.root else read_configuration(repository.git)).values
        links = []
        for link in gitlinks:
            module = submodules.get(link.path)
            if module is None or (module.url is None and module.enabled):
                raise SourceError(
                    f"{_make_printable(link.path)} is a submodule in {repository.description}, and {GITMODULES_FILE} has no URL for it",
                    tip="leave submodules out with --no-submodules, or name a commit that says where it is",
                )
            if _is_updated(module, values) and module.url is not None:
                url = resolve_submodule_url(repository.origin, module.url)
                links.append(_SubmoduleLink(repository, module, link.object, url))
                self.plain &= module.plain and f"{module.path}{module.name}{url}".isprintable()
            else:
                self.plain = False
        _refuse_nested([link.module.name for link in links], repository)
        return links

    def _read_gitmodules(self, repository: RepositoryCommit, *, has_file: bool) -> Mapping[str, Submodule]:
        if not has_file:  # a link instead of a file is one that git does not follow
            return {}
        blob = f"{repository.commit}:{GITMODULES_FILE}"
        text = repository.git.text(
            "config",
            "--blob",
            blob,
            "-z",
            "--list",
            activity=f"reading {GITMODULES_FILE} of {repository.description}",
        )
        return parse_gitmodules(text, name=f"{GITMODULES_FILE} of {repository.description}")

    def _fetch_submodule(self, link: _SubmoduleLink) -> tuple[None, list[_SubmoduleLink]]:
        """Have one submodule's commit; return what it has for submodules itself."""
        folder = self.folders.get(link.path) or link.parent.folder / "modules" / link.module.name
        fresh = not (folder / "HEAD").is_file()
        if fresh:
            self._make_repository(folder, link)
        root = self.root.git
        # its own working tree may not be there yet, or be gone: git would refuse to start
        git = root.with_variables(GIT_DIR=str(folder), GIT_WORK_TREE=str(root.directory))
        tree = ""
        if fresh or not has_whole_commit(git, link.commit):
            trusted = is_server(link.url)
            request = CommitRequest(link.url, link.commit, _make_printable(link.path), trusted)
            depth = self._choose_depth(git, folder, link.module)
            tree = obtain_commit(git, request, link.commit, depth=depth, transport=self.transport).tree
        if fresh or _is_unborn(git, folder):
            # cut before its files are written, git would find no revision to go on from
            write_atomically(folder / "HEAD", f"{link.commit}\n")
        self.plain &= fresh
        new = FetchedSubmodule(
            link.path, link.parent.path, link.module.name, link.url, link.commit, tree, folder
        )
        self.arrived.append(new)
        repository = RepositoryCommit(link.path, git, folder, link.url, link.commit)
        return None, self.list_links(repository, list_tree(git, link.commit))

    def _choose_depth(self, git: Git, folder: Path, module: Submodule) -> int | None:
        """Return how deep to fetch: a repository that has whole histories keeps them so."""
        depth = self.depth
        if depth is None and module.shallow and self.transport.mirrors is None:
            depth = 1
        if depth is None or (folder / "shallow").exists() or not git.text("for-each-ref", "--count=1"):
            return depth
        return None

    def _make_repository(self, folder: Path, link: _SubmoduleLink) -> None:
        """Make a submodule's repository as ``git submodule update`` would: all at once, or not at all."""
        for above in folder.parents:
            if above == link.parent.folder:
                break
            if (above / "HEAD").is_file():
                raise SourceError(
                    f"the submodule {link.module.name!r} would lie inside the repository {above}"
                )
        new = Path(tempfile.mkdtemp(prefix="module-", dir=self.blank.parent))
        with (self.blank / "config").open(encoding="utf-8") as file:
            lines = [line for line in file if line.strip() != "bare = true"]
        url = link.url.replace("\\", "\\\\").replace('"', '\\"')
        lines += ["\tbare = false\n\tlogallrefupdates = true\n", f'[remote "origin"]\n\turl = "{url}"\n']
        lines += ["\tfetch = +refs/heads/*:refs/remotes/origin/*\n"]
        (new / "config").write_text("".join(lines), encoding="utf-8", errors="surrogateescape")
        (new / "HEAD").write_text((self.blank / "HEAD").read_text(encoding="ascii"), encoding="ascii")
        for name in ("objects/info", "objects/pack", "refs/heads", "refs/tags", "info"):
            (new / name).mkdir(parents=True)
        new.chmod(self.blank.stat().st_mode)
        folder.parent.mkdir(parents=True, exist_ok=True)
        if folder.exists():  # the beginning of a clone that was killed
            _remove_beginning(folder)
        new.rename(folder)


def _is_choice(key: str) -> bool:
    """Tell whether a key of the configuration says something of a submodule, or which are active."""
    return key.startswith("submodule.") and (key.count(".") > 1 or key == "submodule.active")


def _is_unborn(git: Git, folder: Path) -> bool:
    """Tell whether HEAD names a branch that has no commit."""
    if not (folder / "HEAD").read_text(encoding="utf-8", errors="surrogateescape").startswith("ref:"):
        return False
    return not git.succeeds("rev-parse", "--quiet", "--verify", "HEAD^{commit}")


def _remove_beginning(folder: Path) -> None:
    """Remove the beginning of a repository; never a folder that others' repositories are in."""
    names = {entry.name for entry in folder.iterdir()}
    if names and not names & {"objects", "refs", "config", "config.lock"}:
        raise SourceError(
            f"{folder} is to be a submodule's repository, and others are in it already: {sorted(names)[0]}",
            tip="check out into another folder with --checkout-dir",
        )
    shutil.rmtree(folder)


def _ignores_case(config: GitConfiguration) -> bool:
    """Tell whether the disk does, as git found when it made the repository."""
    return config.values.get("core.ignorecase", "").lower() in _TRUE_WORDS


def _is_updated(module: Submodule, values: Mapping[str, str]) -> bool:
    """Tell whether ``git submodule update`` touches a submodule (git-submodule(1), gitsubmodules(7))."""
    key = f"submodule.{module.name}"
    if values.get(f"{key}.active", "").lower() in _FALSE_WORDS and f"{key}.active" in values:
        return False
    return values[f"{key}.update"] != "none" if f"{key}.update" in values else module.enabled


def _refuse_nested(names: list[str], repository: RepositoryCommit) -> None:
    """Raise SourceError when one submodule's repository would lie in another's, which git refuses as well."""
    name_set = set(names)
    for name in names:
        for number, letter in enumerate(name):
            if letter == "/" and name[:number] in name_set:
                raise SourceError(
                    f"{repository.description} has submodules named {name[:number]!r} and {name!r}: "
                    "the repository of one would lie inside the other's"
                )


def _make_printable(path: str) -> str:
    return path if path.isprintable() else ascii(path)
