"""Submodules of a commit: read from ``.gitmodules``, and fetched; git writes their working trees.

All commits are fetched before a file of the tree is touched, several at a time. They come into git's own
places (``modules/<name>`` of the parent's repository, or the repository that a submodule has), so that what
is left for ``git submodule update`` needs no server. A network that fails leaves the tree as it was, with
what has come kept for the next run. ``.gitmodules`` is read by git's own rules (git 2.39:
submodule-config.c, and relative_url in remote.c).

One that is at its commit already, with all below it, is not looked at again. Names that differ only in case
are two files of a commit and one file on some file systems: they are refused.
"""

from __future__ import annotations

import re
import shutil
import tempfile
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import NamedTuple

from rocm_wheels.core import errors, parallel, progress, shell
from rocm_wheels.core.files import write_atomically
from rocm_wheels.sources import checkout_state, mirrors, network, trees
from rocm_wheels.sources.git import Git, GitConfiguration, is_inside_tree, read_configuration

GITMODULES_FILE = ".gitmodules"
_REMOTE = re.compile(r"[^/]*:")  # a scheme, or host:path as for ssh
_HOST = re.compile(r"[a-zA-Z][\w+.-]*://[^/]*")
_UPDATE_KEY = re.compile(rb"\bupdate\b", re.IGNORECASE)  # git-config(1), submodule.<name>.update
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
        for field, text in (("name", section), ("path", path)):
            if not is_inside_tree(text):
                raise errors.SourceError(
                    f"{name}: the {field} of a submodule, {text!r}, does not stay in the tree"
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


class SubmoduleFetch(NamedTuple):
    """``links``: the root's submodules. ``parts``: all that git updates, by path, as they will be.

    ``redirected``: a repository's configuration names another URL for one than its commit does.
    ``only_moved``: those that are not at their commit yet need `git checkout` there, and no more.
    """

    links: Sequence[trees.TreeEntry] = ()
    parts: Mapping[str, trees.TreePart] = MappingProxyType({})
    redirected: bool = False
    only_moved: bool = False


def find_moved_submodules(
    parts: Mapping[str, trees.TreePart], root_change: trees.CommitComparison, config: GitConfiguration
) -> SubmoduleFetch | None:
    """Follow a tree without changes to a commit whose submodules only move to commits that are here.

    ``parts``: its repositories, by path; ``root_change``: what the commit changes in the root. ``None`` where
    anything else may have to be done: a submodule comes, goes, is not checked out, or comes from elsewhere.
    """
    if _ignores_case(config) or any(
        key.startswith("submodule.") and key.endswith(".update") for key in config.values
    ):
        return None
    if any(part.path_from_root(link.path) not in parts for part in parts.values() for link in part.links):
        return None
    new_parts, moved = dict(parts), [(parts[""], parts[""].head, root_change)]
    while moved:
        targets: list[tuple[trees.TreePart, str]] = []
        for part, commit, (tree, changes) in moved:
            if part.links and _names_update_mode(part):
                return None
            links = {link.path: link for link in part.links}
            for change in changes:
                if change.path == GITMODULES_FILE:
                    return None
                if change.of_submodule:
                    if change.before[0] != change.after[0]:
                        return None
                    links[change.path] = trees.TreeEntry(change.path, *change.after)
                    targets.append((parts[part.path_from_root(change.path)], change.after[1]))
            new_parts[part.path] = replace(
                part, link=commit if part.path else "", head=commit, tree=tree, links=tuple(links.values())
            )
        moved = []
        if targets:
            # each in its own repository: another one may have a commit that is missing there
            if not all(
                trees.run_side_by_side(
                    lambda target: trees.has_whole_commit(target[0].git, target[1]), targets
                )
            ):
                return None
            git = trees.borrow_objects(parts[""].git, [part for part, _ in targets])
            comparisons = trees.compare_commits(git, [(part.head, commit) for part, commit in targets])
            moved = [(*target, change) for target, change in zip(targets, comparisons, strict=True)]
    root = new_parts.pop("")
    return SubmoduleFetch(root.links, new_parts, only_moved=True)


def _names_update_mode(part: trees.TreePart) -> bool:
    """Tell whether a repository may want submodules merged, or left alone: where in doubt, it may."""
    files = [part.git_dir / "config", part.git.directory / GITMODULES_FILE]
    return any(_UPDATE_KEY.search(file.read_bytes()) for file in files if file.is_file())


def fetch_submodules(
    root: RepositoryCommit,
    parts: Mapping[str, trees.TreePart],
    config: GitConfiguration,
    *,
    enabled: bool,
    whole: bool,
    depth: int | None,
    transport: network.Transport,
) -> SubmoduleFetch:
    """Have the commits of all submodules, recursively, if they are ``enabled``. No file is touched.

    For somebody who holds the tree. ``parts``: the repositories of the submodules that are in it; ``whole``:
    each has the commit that is checked out there, and its index is of that commit. ``config``: the root's
    configuration. Raises SourceError: a server, a submodule without URL, names that clash on this disk
    (looked for in the root alone when submodules are not wanted).
    """
    if not enabled and not _ignores_case(config):
        return SubmoduleFetch()
    files = trees.list_tree(root.git, root.commit)
    if not enabled:
        refuse_case_clash((entry.path for entry in files), root.description)
        return SubmoduleFetch()
    prefetch = _Prefetch(root, parts, config, whole=whole, depth=depth, transport=transport)
    with network.mark_under_way(root.folder):
        prefetch.run(files)
    links = tuple(entry for entry in files if entry.mode == trees.GITLINK)
    return SubmoduleFetch(links, prefetch.new_parts, prefetch.redirected)


class _Prefetch:
    """Fetches the submodules of one tree."""

    def __init__(
        self,
        root: RepositoryCommit,
        parts: Mapping[str, trees.TreePart],
        config: GitConfiguration,
        *,
        whole: bool,
        depth: int | None,
        transport: network.Transport,
    ) -> None:
        self.root, self.parts, self.config, self.whole = root, parts, config, whole
        self.depth, self.ignore_case, self.transport = depth, _ignores_case(config), transport
        self.new_parts: dict[str, trees.TreePart] = {}
        self.redirected = False

    def run(self, files: Sequence[trees.TreeEntry]) -> None:
        """Have every submodule's commit, recursively, from the root's ``files`` on. Raises SourceError."""
        first = self.list_links(self.root, files)
        if not first:
            return
        with tempfile.TemporaryDirectory(
            prefix=network.NEW_FOLDER_PREFIX, dir=self.root.folder / checkout_state.OWN_FOLDER
        ) as folder:
            self.blank, self.blank_lock = Path(folder, "blank"), threading.Lock()
            parallel.run_growing_work(self._fetch_submodule, first, jobs=self.transport.jobs)
        progress.show_live_line("")

    def list_links(
        self, repository: RepositoryCommit, listed: Sequence[trees.TreeEntry]
    ) -> list[_SubmoduleLink]:
        """List the submodules of a repository's commit (``listed``) that git would update.

        Raises SourceError for one without URL, and for names that clash where case does not count.
        """
        if self.ignore_case:
            refuse_case_clash((entry.path for entry in listed), repository.description)
        gitlinks = [entry for entry in listed if entry.mode == trees.GITLINK]
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
                raise errors.SourceError(
                    (
                        f"{_make_printable(link.path)} is a submodule in {repository.description}, and "
                        f"{GITMODULES_FILE} has no URL for it"
                    ),
                    tip="leave submodules out with --no-submodules, or name a commit that says where it is",
                )
            if _is_updated(module, values) and module.url is not None:
                url = resolve_submodule_url(repository.origin, module.url)
                links.append(_SubmoduleLink(repository, module, link.object, url))
                if values.get(f"submodule.{module.name}.url", url) != url:
                    self.redirected = True
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
        if self.whole and self._is_current(link.path, link.commit):
            return None, []
        part = self.parts.get(link.path)
        folder = part.git_dir if part is not None else link.parent.folder / "modules" / link.module.name
        fresh = not (folder / "HEAD").is_file()
        if fresh:
            self._make_repository(folder, link)
        root = self.root.git
        # its own working tree may not be there yet, or be gone: git would refuse to start
        git = root.with_variables(GIT_DIR=str(folder), GIT_WORK_TREE=str(root.directory))
        tree = ""
        if fresh or not trees.has_whole_commit(git, link.commit):
            trusted = network.is_server(link.url)
            request = network.CommitRequest(link.url, link.commit, _make_printable(link.path), trusted)
            depth = self._choose_depth(git, folder, link.module)
            tree = mirrors.obtain_commit(
                git, request, link.commit, depth=depth, transport=self.transport
            ).tree
        if fresh or _is_unborn(git, folder):
            # cut before its files are written, git would find no revision to go on from
            write_atomically(folder / "HEAD", f"{link.commit}\n")
        files = trees.list_tree(git, link.commit)
        self.new_parts[link.path] = trees.TreePart(
            link.path,
            root.in_directory(root.directory / link.path),
            link.commit,
            folder,
            link.commit,
            tree or git.text("rev-parse", f"{link.commit}^{{tree}}"),
            links=tuple(entry for entry in files if entry.mode == trees.GITLINK),
        )
        return None, self.list_links(RepositoryCommit(link.path, git, folder, link.url, link.commit), files)

    def _is_current(self, path: str, commit: str) -> bool:
        """Tell whether a submodule, with all below it, is at its commit already; note theirs if so."""
        part = self.parts.get(path)
        if part is None or part.head != commit:
            return False
        current = all(self._is_current(part.path_from_root(link.path), link.object) for link in part.links)
        if current:
            self.new_parts[path] = part
        return current

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
                raise errors.SourceError(
                    f"the submodule {link.module.name!r} would lie inside the repository {above}"
                )
        with self.blank_lock:
            if not self.blank.exists():
                blank_git = self.root.git.with_variables(GIT_DIR=str(self.blank))
                blank_git.text("init", "--quiet", "--bare", "--template=")
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


def _is_unborn(git: Git, folder: Path) -> bool:
    """Tell whether HEAD names a branch that has no commit."""
    if not (folder / "HEAD").read_text(encoding="utf-8", errors="surrogateescape").startswith("ref:"):
        return False
    return not git.succeeds("rev-parse", "--quiet", "--verify", "HEAD^{commit}")


def _remove_beginning(folder: Path) -> None:
    """Remove the beginning of a repository; never a folder that others' repositories are in."""
    names = {entry.name for entry in folder.iterdir()}
    if names and not names & {"objects", "refs", "config", "config.lock"}:
        raise errors.SourceError(
            f"{folder} is to be a submodule's repository, and others are in it already: {sorted(names)[0]}",
            tip="check out into another folder with --source-dir",
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
                raise errors.SourceError(
                    f"{repository.description} has submodules named {name[:number]!r} and {name!r}: "
                    "the repository of one would lie inside the other's"
                )


def _make_printable(path: str) -> str:
    return path if path.isprintable() else ascii(path)
