"""Submodules of a commit: read from ``.gitmodules``, and fetched; git writes their working trees.

All commits are fetched before a file of the tree is touched, several at a time, by the same way as the root's
(mirrors, retries, depth). They come into git's own places (``modules/<name>`` of the parent's repository, or
the repository that a submodule has), so that what is left for ``git submodule update`` needs no server.
``.gitmodules`` is read by git's own rules (git 2.39: submodule-config.c, and relative_url in remote.c).

Names that differ only in case are two files of a commit and one file on some file systems: they are refused.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from rocm_wheels.core import errors, parallel, progress, shell
from rocm_wheels.core.files import write_atomically
from rocm_wheels.sources import checkout_state, mirrors, network, trees
from rocm_wheels.sources.git import Git, add_origin, is_inside_tree, read_configuration

GITMODULES_FILE = ".gitmodules"
_REMOTE = re.compile(r"[^/]*:")  # a scheme, or host:path as for ssh
_HOST = re.compile(r"[a-zA-Z][\w+.-]*://[^/]*")
_UNSAFE = re.compile(r"[\x00-\x1f\x7f]|\A-")


@dataclass(frozen=True)
class Submodule:
    """What ``.gitmodules`` says of one: ``url`` may be relative to the parent's; ``None``: none is given.

    ``enabled``: ``update = none`` is not said, with which git leaves a submodule alone. ``shallow``: its
    history need not be fetched.
    """

    name: str
    path: str
    url: str | None
    enabled: bool = True
    shallow: bool = False


def parse_gitmodules(listed: str, *, name: str) -> dict[str, Submodule]:
    """Return path → submodule; ``name`` stands for the file in messages.

    A key given twice counts the first time, as for git. A section without path says nothing and is
    left out. Raises SourceError for what git itself refuses (a name or a path that leaves the tree, a
    URL that looks like an option) and for two sections of one path.
    """
    sections: dict[str, dict[str, str | None]] = {}
    for record in listed.split("\0")[:-1]:
        key, separator, value = record.partition("\n")
        kind, _, rest = key.partition(".")
        section, _, variable = rest.rpartition(".")
        if kind == "submodule" and section:
            sections.setdefault(section, {}).setdefault(variable, value if separator else None)
    submodules: dict[str, Submodule] = {}
    for section, values in sections.items():
        path, url = values.get("path"), values.get("url")
        if path is None:
            continue
        path = path.rstrip("/")
        for part, text in (("name", section), ("path", path)):
            if not is_inside_tree(text):
                raise errors.SourceError(
                    f"{name}: the {part} of a submodule, {text!r}, does not stay in the tree"
                )
        if url is not None and _UNSAFE.search(url):
            raise errors.SourceError(f"{name}: submodule {section}: {url!r} is not a repository")
        if path in submodules:
            raise errors.SourceError(
                f"{name}: {path} is the path of {submodules[path].name} and of {section}"
            )
        shallow = (values.get("shallow") or "").lower() in {"true", "yes", "on", "1"}
        enabled = values.get("update") != "none"
        submodules[path] = Submodule(section, path, url or None, enabled, shallow)
    return submodules


def read_gitmodules(
    git: Git, files: Sequence[trees.TreeEntry], commit: str
) -> list[tuple[trees.TreeEntry, Submodule]]:
    """Return the submodules among the files of a commit (in words), with what .gitmodules says of each.

    Raises SourceError for one without URL that git would update.
    """
    gitlinks = [entry for entry in files if entry.mode == trees.GITLINK]
    modules: Mapping[str, Submodule] = {}
    # a link instead of a file is one that git does not follow
    blobs = [e.object for e in files if e.path == GITMODULES_FILE and e.mode.startswith("100")]
    if gitlinks and blobs:
        name = f"{GITMODULES_FILE} of {commit}"
        text = git.text("config", "--blob", blobs[0], "-z", "--list", activity=f"reading {name}")
        modules = parse_gitmodules(text, name=name)
    for entry in gitlinks:
        module = modules.get(entry.path)
        if module is None or (module.url is None and module.enabled):
            raise errors.SourceError(
                f"{_make_printable(entry.path)} is a submodule in {commit}, and {GITMODULES_FILE} has no URL "
                "for it",
                tip="name a commit that says where it is; a checkout can leave it out with --no-submodules",
            )
    return [(entry, modules[entry.path]) for entry in gitlinks]


def resolve_submodule_url(parent: str, url: str) -> str:
    """Return a submodule's repository; one that begins with ``./`` or ``../`` is relative to the parent's.

    ``parent`` is where the parent repository itself comes from. Raises SourceError when it has
    too few folders to go up.
    """
    if not url.startswith(("./", "../")):
        return url
    root = _HOST.match(parent)
    least = root.end() if root else 0  # what cannot be taken away: scheme and host
    base, rest, separator = parent.rstrip("/"), url, "/"
    while rest.startswith(("./", "../")):
        up, _, rest = rest.partition("/")
        rest = rest.lstrip("/")
        if up == ".":
            continue
        cut = base.rfind("/")
        if cut < 0 and _REMOTE.match(base):
            cut, separator = base.rfind(":"), ":"
        if cut < least:
            raise errors.SourceError(
                f"{url} goes further up than {shell.hide_credentials(parent)} has folders"
            )
        base = base[:cut]
    return f"{base}{separator}{rest}".rstrip("/")


def find_case_clash(paths: Iterable[str]) -> tuple[str, str] | None:
    """Return two paths that are one where case does not count; a file may clash with a folder."""
    files: dict[str, str] = {}
    folders: dict[str, str] = {}
    for path in paths:
        folded = path.casefold()
        if (other := files.setdefault(folded, path)) != path:
            return other, path
        for parent in PurePosixPath(path).parents:
            if parent.parts:
                folders.setdefault(str(parent).casefold(), path)
    for folded in files.keys() & folders.keys():
        return files[folded], folders[folded]
    return None


def refuse_case_clash(paths: Iterable[str], subject: str) -> None:
    """Raise SourceError when ``subject`` (a commit, in words) cannot be written without losing a file."""
    if (pair := find_case_clash(paths)) is not None:
        raise errors.SourceError(
            (
                f"{subject} has {pair[0]!r} and {pair[1]!r}, which are one file where "
                "case does not count, as here"
            ),
            tip="check out on a file system that tells them apart",
        )


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


@dataclass
class WantedTree:
    """A commit with its submodules, recursively, by path: those that git updates, and those that it leaves.

    ``fetched``: some were asked for. ``moved``: some come from elsewhere than git has noted.
    """

    repositories: dict[str, RepositoryCommit]
    left_out: list[str] = field(default_factory=list)
    fetched: bool = False
    moved: bool = False

    def has_commit(self, path: str, commit: str) -> bool:
        """Tell whether a repository is to be at a commit."""
        return path in self.repositories and self.repositories[path].commit == commit

    def keeps(self, path: str) -> bool:
        """Tell whether a repository has its place in the tree."""
        return path in self.repositories or any(f"{path}/".startswith(f"{other}/") for other in self.left_out)


def fetch_submodules(
    root: RepositoryCommit,
    parts: Mapping[str, trees.TreePart],
    values: Mapping[str, str],
    *,
    settled: bool,
    enabled: bool,
    depth: int | None,
    transport: network.Transport,
) -> WantedTree:
    """Have the commits of all submodules, recursively, if they are ``enabled``. No file is touched.

    For somebody who holds the tree. ``parts``: the repositories in it, ``settled`` where no run was cut;
    ``values``: the root's configuration. Raises SourceError: a server, a submodule without URL, names that
    clash on this disk (looked for in the root alone when submodules are not wanted).
    """
    ignore_case = values.get("core.ignorecase", "").lower() in _TRUE_WORDS
    wanted = WantedTree({"": root})

    def list_links(repository: RepositoryCommit) -> list[_SubmoduleLink]:
        files = trees.list_tree(repository.git, repository.commit)
        if ignore_case:
            refuse_case_clash((entry.path for entry in files), repository.description)
        if not enabled:
            return []
        return _select_links(repository, files, values, wanted)

    def fetch(link: _SubmoduleLink) -> tuple[None, list[_SubmoduleLink]]:
        part = parts.get(link.path)
        folder = part.git_dir if part is not None else link.parent.folder / "modules" / link.module.name
        # its own working tree may not be there yet, or be gone: git would refuse to start
        git = root.git.with_variables(GIT_DIR=str(folder), GIT_WORK_TREE=str(root.git.directory))
        fresh = not (folder / "HEAD").is_file()
        if fresh:
            _make_repository(root, folder, link)
        in_place = settled and part is not None and part.head == link.commit
        if fresh or not (in_place or trees.has_whole_commit(git, link.commit)):
            wanted.fetched = True
            trusted = network.is_server(link.url)
            request = network.CommitRequest(link.url, link.commit, _make_printable(link.path), trusted)
            link_depth = depth
            if depth is None and link.module.shallow and transport.mirrors is None:
                link_depth = 1
            known = "" if fresh else (part and part.head) or git.text("for-each-ref", "--count=1")
            if known and not (folder / "shallow").exists():
                link_depth = None  # a repository that has whole histories keeps them so
            mirrors.obtain_commit(git, request, link.commit, depth=link_depth, transport=transport)
        head = (folder / "HEAD").read_text(encoding="utf-8", errors="surrogateescape")
        if head.startswith("ref:") and (fresh or not trees.has_head_commit(git)):
            # cut before its files are written, git would find no revision to go on from
            write_atomically(folder / "HEAD", f"{link.commit}\n")
        wanted.repositories[link.path] = RepositoryCommit(link.path, git, folder, link.url, link.commit)
        if part is not None and in_place and not part.links:
            return None, []
        return None, list_links(wanted.repositories[link.path])

    if enabled or ignore_case:
        with network.mark_under_way(root.folder):
            parallel.run_growing_work(fetch, list_links(root), jobs=transport.jobs)
        progress.show_live_line("")
    return wanted


def _select_links(
    repository: RepositoryCommit,
    files: Sequence[trees.TreeEntry],
    values: Mapping[str, str],
    wanted: WantedTree,
) -> list[_SubmoduleLink]:
    """Return the submodules of a commit that git would update; the others are noted in ``wanted``.

    ``values``: the configuration of the root's. Raises SourceError for one without URL, and for one whose
    repository would lie in another's, which git refuses as well.
    """
    modules = read_gitmodules(repository.git, files, repository.description)
    if not modules:
        return []
    if repository.path:
        values = read_configuration(repository.git)
    links = []
    for entry, module in modules:
        # what the user's configuration says of it goes first (git-submodule(1), gitsubmodules(7))
        key = f"submodule.{module.name}"
        updated = values[f"{key}.update"] != "none" if f"{key}.update" in values else module.enabled
        if module.url is None or not updated or values.get(f"{key}.active", "true").lower() in _FALSE_WORDS:
            wanted.left_out.append(f"{repository.path}/{entry.path}".lstrip("/"))
            continue
        url = resolve_submodule_url(repository.origin, module.url)
        if values.get(f"{key}.url", url) != url:
            wanted.moved = True
        links.append(_SubmoduleLink(repository, module, entry.object, url))
    names = {link.module.name for link in links}
    for name in sorted(names):
        outer = [str(parent) for parent in PurePosixPath(name).parents if str(parent) in names]
        if outer:
            raise errors.SourceError(
                f"{repository.description} has submodules named {outer[0]!r} and {name!r}: "
                "the repository of one would lie inside the other's"
            )
    return links


def _make_repository(root: RepositoryCommit, folder: Path, link: _SubmoduleLink) -> None:
    """Make a submodule's repository as ``git submodule update`` would: all at once, or not at all."""
    for above in folder.parents:
        if above == link.parent.folder:
            break
        if (above / "HEAD").is_file():
            raise errors.SourceError(
                f"the submodule {link.module.name!r} would lie inside the repository {above}"
            )
    with tempfile.TemporaryDirectory(
        prefix=network.NEW_FOLDER_PREFIX, dir=root.folder / checkout_state.OWN_FOLDER
    ) as holder:
        root.git.text("init", "--quiet", "--initial-branch=main", "--template=", holder)
        new = Path(holder, ".git")
        add_origin(new, link.url)
        folder.parent.mkdir(parents=True, exist_ok=True)
        if folder.exists():  # the beginning of a clone that was killed; never one that others are in
            names = {entry.name for entry in folder.iterdir()}
            if names and not names & {"objects", "refs", "config", "config.lock"}:
                raise errors.SourceError(
                    f"{folder} is to be a submodule's repository, and others are in it already: {min(names)}",
                    tip="check out into another folder with --source-dir",
                )
            shutil.rmtree(folder)
        new.rename(folder)


def _make_printable(path: str) -> str:
    return path if path.isprintable() else ascii(path)
