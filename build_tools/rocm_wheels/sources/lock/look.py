"""What is in a commit that nobody has checked out: its tree, a few of its files, its submodules.

It is read where it is at hand: in a checkout, in a mirror. Else the commit alone is fetched into a
repository that is thrown away, without the content of its files but for tiny ones (a version, a pin), and
then those of the few that are read which did not come. A server that cannot leave content out sends all of
it; one that gives out branches only is asked for those.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from rocm_wheels.errors import DataError, SourceError
from rocm_wheels.shell import hide_credentials
from rocm_wheels.sources.git import Git
from rocm_wheels.sources.network import gitmodules, remote
from rocm_wheels.sources.network.mirrors import mirror_has_commit, locate_mirror
from rocm_wheels.sources.network.transport import Transport, attempt_with_retries
from rocm_wheels.sources.trees import (
    GITLINK,
    TreeEntry,
    read_blob_texts,
    list_tree,
    has_object,
    is_populated,
    has_whole_commit,
)

_ONLY_BRANCHES = re.compile(r"unadvertised object", re.IGNORECASE)
_TINY, _NO_CONTENT = "blob:limit=100", "blob:none"  # bytes; what a server allows (uploadpackfilter.*)
_NO_SUCH_FILTER = re.compile(r"filter '[^']*' not supported")  # git's upload-pack.c


@dataclass(frozen=True)
class SubmoduleCommit:
    """A submodule: its path in its parent, where it comes from, its commit."""

    path: str
    origin: str
    commit: str


@dataclass(frozen=True)
class CommitFiles:
    """A commit's tree, the texts that were asked for (by path), and its submodules."""

    title: str
    commit: str
    tree: str
    texts: Mapping[str, str]
    submodules: tuple[SubmoduleCommit, ...]

    def read_text(self, path: str) -> str | None:
        """Return what a file holds, ``None`` when there is none. Raises DataError when it is not UTF-8."""
        text = self.texts.get(path)
        try:
            return None if text is None else text.encode("utf-8").decode("utf-8-sig")
        except UnicodeEncodeError as cause:
            raise DataError(f"{self.label(path)} is not UTF-8 text") from cause

    def label(self, path: str = "") -> str:
        """Return what a file is called in messages."""
        return f"{self.title}:{path}" if path else self.title


@dataclass(frozen=True)
class CommitLocation:
    """Where a commit is: ``source`` is the ref that it was found by, ``checkout`` a folder that may have it.

    ``local``: submodules may come from this machine, as the repository itself does. ``path``: where a
    submodule is in its parent; empty for a project.
    """

    origin: str
    commit: str
    source: str = ""
    checkout: Path | None = None
    local: bool = False
    path: str = ""


class CommitReader:
    """Opens commits, wherever they are; ``scratch`` is a folder that lives as long as it is used."""

    def __init__(self, scratch: Path, *, env: Mapping[str, str], transport: Transport) -> None:
        self._scratch, self._env, self._transport = scratch, env, transport
        self._numbers = count()

    def resolve_ref(self, origin: str, ref: str, *, options: tuple[str, str]) -> tuple[str, str]:
        """Return the commit that a ref is now, and what to fetch (see ``remote.resolve``)."""
        remote.check_ref(ref)
        git = Git(self._scratch, self._env)
        return remote.resolve_ref(git, origin, ref, transport=self._transport, options=options)

    def read_commit(
        self, location: CommitLocation, *, title: str, files: Collection[str] = ()
    ) -> CommitFiles:
        """Read a commit: its tree, the ``files`` that it has of those named, its submodules.

        Raises SourceError when it is nowhere, or its ``.gitmodules`` is none.
        """
        git = self._find_local(location) or self._fetch_commit(location)
        by_path = {entry.path: entry for entry in list_tree(git, location.commit)}
        object_ids = {
            path: by_path[path].object for path in files if path in by_path and by_path[path].mode != GITLINK
        }
        if _is_plain_file(by_path, gitmodules.GITMODULES_FILE):
            object_ids[gitmodules.GITMODULES_FILE] = by_path[gitmodules.GITMODULES_FILE].object
        git, tree = self._complete_content(git, location, sorted(set(object_ids.values())))
        contents = read_blob_texts(git, object_ids.values())
        return CommitFiles(
            title,
            location.commit,
            tree,
            {path: contents[oid] for path, oid in object_ids.items()},
            tuple(
                _list_submodules(git, location, title, object_ids.get(gitmodules.GITMODULES_FILE), by_path)
            ),
        )

    def _find_local(self, location: CommitLocation) -> Git | None:
        """Return a repository of this machine that has the commit whole."""
        if location.checkout is not None and is_populated(location.checkout):
            git = Git(location.checkout, self._env)
            if _has_reachable_commit(git, location.commit):
                return git
        if self._transport.mirrors is not None:
            mirror = locate_mirror(location.origin, self._transport.mirrors, self._env)
            if (mirror.folder / "HEAD").is_file() and mirror_has_commit(mirror, location.commit):
                return mirror.git
        return None

    def _fetch_commit(self, location: CommitLocation, *, content: bool = False) -> Git:
        """Fetch the commit into a repository of its own; most servers leave the files' ``content`` out."""
        git = Git(self._make_repository(), self._env, ("core.fsync=none",))  # it is thrown away
        try:
            self._fetch_words(git, location, "--depth=1", location.commit, content=content)
        except SourceError as refused:
            if not _ONLY_BRANCHES.search(str(refused)):
                raise
            sources = {"refs/heads/*", "refs/tags/*"}
            if location.source and not remote.is_commit(location.source):
                sources.add(location.source)
            refspecs = [f"+{source}:refs/found/{source}" for source in sorted(sources)]
            self._fetch_words(git, location, *refspecs, content=content)
            if not has_object(git, location.commit):
                raise SourceError(
                    f"{hide_credentials(location.origin)} has no branch or tag with commit {location.commit}",
                    tip="it gives out nothing else; name a branch that holds the commit",
                ) from refused
        return git

    def _make_repository(self) -> Path:
        """Return a new bare repository: what gitrepository-layout(5) says that one cannot do without."""
        folder = self._scratch / str(next(self._numbers))
        for name in ("objects", "refs"):
            (folder / name).mkdir(parents=True)
        (folder / "HEAD").write_text("ref: refs/heads/main\n", encoding="ascii")
        return folder

    def _complete_content(self, git: Git, location: CommitLocation, oids: list[str]) -> tuple[Git, str]:
        """Return a repository with the content of files, and the commit's tree.

        What is missing is fetched, all at once.
        """
        fetched = git.directory.parent == self._scratch
        queries = [f"{location.commit}^{{tree}}", *(oids if fetched else ())]
        answers = git.text(
            "cat-file", "--batch-check", stdin="".join(f"{name}\n" for name in queries).encode()
        )
        tree, *others = (line.split(" ")[0] for line in answers.splitlines() if not line.endswith(" missing"))
        missing = [oid for oid in oids if oid not in others] if fetched else []
        try:
            if missing:
                self._fetch_words(git, location, *missing)
        except SourceError as refused:
            if not _ONLY_BRANCHES.search(str(refused)):
                raise
            # it leaves content out, and gives it to nobody
            return self._fetch_commit(location, content=True), tree
        return git, tree

    def _fetch_words(self, git: Git, location: CommitLocation, *words: str, content: bool = False) -> None:
        try:
            self._run_transfer(git, location, words, "" if content else _TINY)
        except SourceError as refused:
            if content or not _NO_SUCH_FILTER.search(str(refused)):
                raise
            self._run_transfer(git, location, words, _NO_CONTENT)

    def _run_transfer(self, git: Git, location: CommitLocation, words: Sequence[str], content: str) -> None:
        """Fetch into a repository; ``content``: git's filter of what comes (all of it where it is empty)."""
        origin = hide_credentials(location.origin)
        partial = ("remote.origin.promisor=true", f"remote.origin.partialclonefilter={content}")
        asking = git.with_settings(f"remote.origin.url={location.origin}", *self._transport.settings)
        asking = asking.with_settings(*partial) if content else asking
        if location.local:
            asking = asking.with_settings("protocol.file.allow=always")
        elif location.path and not remote.is_server(location.origin):  # the user did not name it
            asking = asking.with_variables(GIT_PROTOCOL_FROM_USER="0")
        options = [word for word in words if word.startswith("-")]
        sources = [word for word in words if not word.startswith("-")]
        arguments = [
            "fetch",
            "--progress",
            "--no-tags",
            "--no-recurse-submodules",
            *options,
            "origin",
            *sources,
        ]
        activity = f"reading {location.commit[:12]} of {origin}" + (
            f" (submodule {location.path})" if location.path else ""
        )

        def attempt() -> None:
            with self._transport.hold_slot():
                asking.run_network(*arguments, activity=activity, silence=self._transport.timeout)

        attempt_with_retries(attempt, transport=self._transport, activity=activity)


def _is_plain_file(by_path: Mapping[str, TreeEntry], path: str) -> bool:
    return path in by_path and by_path[path].mode.startswith("100")  # git follows no link to .gitmodules


def _is_utf8(text: str) -> bool:
    """Tell whether a path that git printed is text (``process.capture`` keeps other bytes as surrogates)."""
    return not any("\ud800" <= letter <= "\udfff" for letter in text)


def _has_reachable_commit(git: Git, commit: str) -> bool:
    """Tell whether a commit is there with all that it needs: what is checked out, or a ref, has it."""
    if not has_object(git, commit):
        return False
    return git.succeeds("merge-base", "--is-ancestor", commit, "HEAD") or has_whole_commit(git, commit)


def _list_submodules(
    git: Git, location: CommitLocation, title: str, blob: str | None, by_path: Mapping[str, TreeEntry]
) -> Iterator[SubmoduleCommit]:
    """Yield the submodules of a commit. Raises SourceError for one whose repository is not said."""
    name = f"{title}:{gitmodules.GITMODULES_FILE}"
    listed = git.text("config", "--blob", blob, "-z", "--list", activity=f"reading {name}") if blob else ""
    modules = gitmodules.parse_gitmodules(listed, name=name)
    for entry in by_path.values():
        if entry.mode != GITLINK:
            continue
        module = modules.get(entry.path)
        if module is None or (module.url is None and module.enabled):
            raise SourceError(
                f"{title}: {entry.path} is a submodule, and {name} does not say of which repository",
                tip="git cannot check it out either: choose another commit",
            )
        if not _is_utf8(entry.path):
            raise SourceError(f"{title}: the path of a submodule is not UTF-8: {entry.path!a}")
        if module.enabled and module.url is not None:
            yield SubmoduleCommit(
                entry.path, gitmodules.resolve_submodule_url(location.origin, module.url), entry.object
            )
