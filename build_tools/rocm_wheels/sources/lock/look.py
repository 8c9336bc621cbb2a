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
from rocm_wheels.sources.network.mirrors import holds, mirror_of
from rocm_wheels.sources.network.transport import Transport, tried
from rocm_wheels.sources.trees import GITLINK, Entry, blobs, entries, has_object, is_populated, is_whole

_ONLY_BRANCHES = re.compile(r"unadvertised object", re.IGNORECASE)
_TINY, _NO_CONTENT = "blob:limit=100", "blob:none"  # bytes; what a server allows (uploadpackfilter.*)
_NO_SUCH_FILTER = re.compile(r"filter '[^']*' not supported")  # git's upload-pack.c


@dataclass(frozen=True)
class Child:
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
    submodules: tuple[Child, ...]

    def text(self, path: str) -> str | None:
        """Return what a file holds, ``None`` when there is none. Raises DataError when it is not UTF-8."""
        text = self.texts.get(path)
        try:
            return None if text is None else text.encode("utf-8").decode("utf-8-sig")
        except UnicodeEncodeError as cause:
            raise DataError(f"{self.name(path)} is not UTF-8 text") from cause

    def name(self, path: str = "") -> str:
        """Return what a file is called in messages."""
        return f"{self.title}:{path}" if path else self.title


@dataclass(frozen=True)
class Place:
    """Where a commit is: ``source`` is the ref that it was found by, ``beside`` a folder that may have it.

    ``local``: submodules may come from this machine, as the repository itself does. ``path``: where a
    submodule is in its parent; empty for a project.
    """

    origin: str
    commit: str
    source: str = ""
    beside: Path | None = None
    local: bool = False
    path: str = ""


class Library:
    """Opens commits, wherever they are; ``scratch`` is a folder that lives as long as it is used."""

    def __init__(self, scratch: Path, *, env: Mapping[str, str], transport: Transport) -> None:
        self._scratch, self._env, self._transport = scratch, env, transport
        self._numbers = count()

    def resolve(self, origin: str, ref: str, *, options: tuple[str, str]) -> tuple[str, str]:
        """Return the commit that a ref is now, and what to fetch (see ``remote.resolve``)."""
        remote.check_ref(ref)
        git = Git(self._scratch, self._env)
        return remote.resolve(git, origin, ref, transport=self._transport, options=options)

    def open(self, place: Place, *, title: str, files: Collection[str] = ()) -> CommitFiles:
        """Read a commit: its tree, the ``files`` that it has of those named, its submodules.

        Raises SourceError when it is nowhere, or its ``.gitmodules`` is none.
        """
        git = self._at_hand(place) or self._fetched(place)
        found = {entry.path: entry for entry in entries(git, place.commit)}
        wanted = {path: found[path].object for path in files if path in found and found[path].mode != GITLINK}
        if _is_plain(found, gitmodules.FILE_NAME):
            wanted[gitmodules.FILE_NAME] = found[gitmodules.FILE_NAME].object
        git, tree = self._with_content(git, place, sorted(set(wanted.values())))
        contents = blobs(git, wanted.values())
        return CommitFiles(
            title,
            place.commit,
            tree,
            {path: contents[oid] for path, oid in wanted.items()},
            tuple(_children(git, place, title, wanted.get(gitmodules.FILE_NAME), found)),
        )

    def _at_hand(self, place: Place) -> Git | None:
        """Return a repository of this machine that has the commit whole."""
        if place.beside is not None and is_populated(place.beside):
            git = Git(place.beside, self._env)
            if _is_held(git, place.commit):
                return git
        if self._transport.mirrors is not None:
            mirror = mirror_of(place.origin, self._transport.mirrors, self._env)
            if (mirror.folder / "HEAD").is_file() and holds(mirror, place.commit):
                return mirror.git
        return None

    def _fetched(self, place: Place, *, content: bool = False) -> Git:
        """Fetch the commit into a repository of its own; most servers leave the files' ``content`` out."""
        git = Git(self._blank(), self._env, ("core.fsync=none",))  # it is thrown away
        try:
            self._fetch(git, place, "--depth=1", place.commit, content=content)
        except SourceError as refused:
            if not _ONLY_BRANCHES.search(str(refused)):
                raise
            sources = {"refs/heads/*", "refs/tags/*"}
            if place.source and not remote.is_commit(place.source):
                sources.add(place.source)
            refspecs = [f"+{source}:refs/found/{source}" for source in sorted(sources)]
            self._fetch(git, place, *refspecs, content=content)
            if not has_object(git, place.commit):
                raise SourceError(
                    f"{hide_credentials(place.origin)} has no branch or tag with commit {place.commit}",
                    tip="it gives out nothing else; name a branch that holds the commit",
                ) from refused
        return git

    def _blank(self) -> Path:
        """Return a new bare repository: what gitrepository-layout(5) says that one cannot do without."""
        folder = self._scratch / str(next(self._numbers))
        for name in ("objects", "refs"):
            (folder / name).mkdir(parents=True)
        (folder / "HEAD").write_text("ref: refs/heads/main\n", encoding="ascii")
        return folder

    def _with_content(self, git: Git, place: Place, oids: list[str]) -> tuple[Git, str]:
        """Return a repository with the content of files, and the commit's tree.

        What is missing is fetched, all at once.
        """
        fetched = git.directory.parent == self._scratch
        asked = [f"{place.commit}^{{tree}}", *(oids if fetched else ())]
        known = git.text("cat-file", "--batch-check", stdin="".join(f"{name}\n" for name in asked).encode())
        tree, *others = (line.split(" ")[0] for line in known.splitlines() if not line.endswith(" missing"))
        missing = [oid for oid in oids if oid not in others] if fetched else []
        try:
            if missing:
                self._fetch(git, place, *missing)
        except SourceError as refused:
            if not _ONLY_BRANCHES.search(str(refused)):
                raise
            # it leaves content out, and gives it to nobody
            return self._fetched(place, content=True), tree
        return git, tree

    def _fetch(self, git: Git, place: Place, *words: str, content: bool = False) -> None:
        try:
            self._transfer(git, place, words, "" if content else _TINY)
        except SourceError as refused:
            if content or not _NO_SUCH_FILTER.search(str(refused)):
                raise
            self._transfer(git, place, words, _NO_CONTENT)

    def _transfer(self, git: Git, place: Place, words: Sequence[str], content: str) -> None:
        """Fetch into a repository; ``content``: git's filter of what comes (all of it where it is empty)."""
        shown = hide_credentials(place.origin)
        partial = ("remote.origin.promisor=true", f"remote.origin.partialclonefilter={content}")
        own = git.setting(f"remote.origin.url={place.origin}", *self._transport.settings)
        own = own.setting(*partial) if content else own
        if place.local:
            own = own.setting("protocol.file.allow=always")
        elif place.path and not remote.is_server(place.origin):  # the user did not name it
            own = own.using(GIT_PROTOCOL_FROM_USER="0")
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
        what = f"reading {place.commit[:12]} of {shown}" + (
            f" (submodule {place.path})" if place.path else ""
        )

        def attempt() -> None:
            with self._transport.turn():
                own.network(*arguments, what=what, silence=self._transport.timeout)

        tried(attempt, transport=self._transport, what=what)


def _is_plain(found: Mapping[str, Entry], path: str) -> bool:
    return path in found and found[path].mode.startswith("100")  # git follows no link to .gitmodules


def _is_utf8(text: str) -> bool:
    """Tell whether a path that git printed is text (``process.capture`` keeps other bytes as surrogates)."""
    return not any("\ud800" <= letter <= "\udfff" for letter in text)


def _is_held(git: Git, commit: str) -> bool:
    """Tell whether a commit is there with all that it needs: what is checked out, or a ref, has it."""
    if not has_object(git, commit):
        return False
    return git.succeeds("merge-base", "--is-ancestor", commit, "HEAD") or is_whole(git, commit)


def _children(
    git: Git, place: Place, title: str, blob: str | None, found: Mapping[str, Entry]
) -> Iterator[Child]:
    """Yield the submodules of a commit. Raises SourceError for one whose repository is not said."""
    name = f"{title}:{gitmodules.FILE_NAME}"
    listed = git.text("config", "--blob", blob, "-z", "--list", what=f"reading {name}") if blob else ""
    said = gitmodules.parse(listed, name=name)
    for entry in found.values():
        if entry.mode != GITLINK:
            continue
        module = said.get(entry.path)
        if module is None or (module.url is None and module.wanted):
            raise SourceError(
                f"{title}: {entry.path} is a submodule, and {name} does not say of which repository",
                tip="git cannot check it out either: choose another commit",
            )
        if not _is_utf8(entry.path):
            raise SourceError(f"{title}: the path of a submodule is not UTF-8: {entry.path!a}")
        if module.wanted and module.url is not None:
            yield Child(entry.path, gitmodules.resolve_url(place.origin, module.url), entry.object)
