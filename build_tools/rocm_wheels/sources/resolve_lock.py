"""Make a lock or bring one up to date: each ref asked once, every submodule found, all of it side by side.

torch comes first where others read their pins in its commit; no file of a tree is written. A commit that
nobody has checked out is read where it is at hand: in a checkout, in a mirror. Else the commit alone is
fetched into a repository that is thrown away, without the content of its files, and then the few that are
read. A server that cannot leave content out sends all of it; one that gives out branches only is asked for
those.
"""

from __future__ import annotations

import posixpath
import re
import tempfile
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.version import InvalidVersion, Version

from rocm_wheels.core import errors, log, parallel, progress, shell, tables
from rocm_wheels.models import project_names, versions
from rocm_wheels.models.lock import Lock, LockedPatches, LockedProject, LockedSubmodule
from rocm_wheels.models.project import Project, load_project
from rocm_wheels.sources import mirrors, network, pins, trees
from rocm_wheels.sources.git import Git, is_inside_tree
from rocm_wheels.sources.lock import LockFile, read_locked_patches
from rocm_wheels.sources.patches import PatchSet, choose_patch_set
from rocm_wheels.sources.submodules import GITMODULES_FILE, parse_gitmodules, resolve_submodule_url

if TYPE_CHECKING:
    from rocm_wheels.models import release_lines

_VERSION_FILE = "version.txt"  # by which torch says its line
_NO_SUCH_FILTER = re.compile(r"filter '[^']*' not supported")  # git's upload-pack.c


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


@dataclass(frozen=True)
class CommitFiles:
    """A commit's tree, the texts that were asked for (by path), and its submodules."""

    title: str
    commit: str
    tree: str
    texts: Mapping[str, str]
    submodules: tuple[CommitLocation, ...]

    def read_text(self, path: str) -> str | None:
        """Return what a file holds, ``None`` when there is none. Raises DataError when it is not UTF-8."""
        text = self.texts.get(path)
        try:
            return None if text is None else text.encode("utf-8").decode("utf-8-sig")
        except UnicodeEncodeError as cause:
            raise errors.DataError(f"{self.label(path)} is not UTF-8 text") from cause

    def label(self, path: str = "") -> str:
        """Return what a file is called in messages."""
        return f"{self.title}:{path}" if path else self.title


@contextmanager
def open_reader(
    checkouts: Path | None, env: Mapping[str, str], transport: network.Transport
) -> Iterator[CommitReader]:
    """Give a reader of commits, also of those that a folder of ``checkouts`` has."""
    with tempfile.TemporaryDirectory(prefix="rocm-wheels-lock-") as scratch:
        yield CommitReader(Path(scratch), checkouts, env, transport)
    progress.show_live_line("")


class CommitReader:
    """Reads commits, wherever they are; ``scratch`` is a folder that lives as long as it is used."""

    def __init__(
        self, scratch: Path, checkouts: Path | None, env: Mapping[str, str], transport: network.Transport
    ) -> None:
        self.transport = transport
        self._scratch, self._checkouts, self._env, self._numbers = scratch, checkouts, env, count()

    def locate(self, name: str, origin: str, commit: str, source: str) -> CommitLocation:
        """Return where the commit of a project is."""
        checkout = None if self._checkouts is None else self._checkouts / name
        local = network.parse_origin(origin, Path("/"))[1]
        return CommitLocation(origin, commit, source, checkout, local)

    def resolve_ref(self, origin: str, ref: str, *, options: tuple[str, str]) -> tuple[str, str]:
        """Return the commit that a ref is now, and what to fetch (see ``network.resolve_ref``)."""
        network.check_ref(ref)
        git = Git(self._scratch, self._env)
        return network.resolve_ref(git, origin, ref, transport=self.transport, options=options)

    def read_commit(
        self, location: CommitLocation, *, title: str, files: Collection[str] = ()
    ) -> CommitFiles:
        """Read a commit: its tree, the ``files`` that it has of those named, its submodules.

        Raises SourceError when it is nowhere, or its ``.gitmodules`` is none.
        """
        read = partial(self._read_files, location, title, files)
        if (git := self._find_local(location)) is not None:
            return read(git)
        try:
            git = self._fetch(location, "--depth=1", "--filter=blob:none", location.commit)
            return read(git, fetched=True)
        except errors.SourceError as refused:
            if not network.BY_NAME_ONLY.search(str(refused)) and not _NO_SUCH_FILTER.search(str(refused)):
                raise
            by_name = refused
        names = {"refs/heads/*", "refs/tags/*"}
        if location.source and not network.is_commit(location.source):
            names.add(location.source)
        git = self._fetch(location, *(f"+{name}:refs/found/{name}" for name in sorted(names)))
        if not trees.has_object(git, location.commit):
            raise errors.SourceError(
                f"no branch or tag of {shell.hide_credentials(location.origin)} holds {location.commit}",
                tip="it gives out nothing else; name a branch that holds the commit",
            ) from by_name
        return read(git)

    def _find_local(self, location: CommitLocation) -> Git | None:
        """Return a repository of this machine that has the commit whole."""
        if location.checkout is not None and trees.is_populated(location.checkout):
            git = Git(location.checkout, self._env)
            if trees.has_whole_commit(git, location.commit):
                return git
        if self.transport.mirrors is not None:
            mirror = mirrors.locate_mirror(location.origin, self.transport.mirrors, self._env)
            if (mirror.folder / "HEAD").is_file() and mirrors.mirror_has_commit(mirror, location.commit):
                return mirror.git
        return None

    def _fetch(self, location: CommitLocation, *words: str, git: Git | None = None) -> Git:
        """Fetch into a repository, by default into a new one of its own, which is returned."""
        if git is None:
            git = Git(self._scratch / str(next(self._numbers)), self._env, ("core.fsync=none",))
            git.directory.mkdir()
            git.text("init", "--quiet", "--bare", "--template=")
        allowed = git.with_settings("protocol.file.allow=always") if location.local else git
        # what the user did not name may only come from a server, as for git itself
        trusted = location.local or not location.path or network.is_server(location.origin)
        request = network.CommitRequest(location.origin, location.commit, location.path, trusted)
        network.transfer(allowed, request, words, self.transport)
        return git

    def _read_files(
        self,
        location: CommitLocation,
        title: str,
        files: Collection[str],
        git: Git,
        *,
        fetched: bool = False,
    ) -> CommitFiles:
        entries = trees.list_tree(git, location.commit)
        wanted = {
            entry.path: entry.object
            for entry in entries
            if (entry.path in files and entry.mode != trees.GITLINK)
            or (entry.path == GITMODULES_FILE and entry.mode.startswith("100"))  # git follows no link there
        }
        if fetched:
            # a server that cannot leave content out has sent all of it
            listed = git.text("rev-list", "-1", "--objects", "--missing=print", location.commit).split("\n")
            if missing := set(wanted.values()) & {line[1:] for line in listed if line.startswith("?")}:
                self._fetch(location, "--filter=blob:none", *sorted(missing), git=git)
        contents = trees.read_blob_texts(git, wanted.values())
        tree = git.text("rev-parse", f"{location.commit}^{{tree}}")
        submodules = _list_submodules(git, location, title, wanted.get(GITMODULES_FILE), entries)
        texts = {path: contents[oid] for path, oid in wanted.items()}
        return CommitFiles(title, location.commit, tree, texts, tuple(submodules))


def _list_submodules(
    git: Git, location: CommitLocation, title: str, blob: str | None, entries: Sequence[trees.TreeEntry]
) -> Iterator[CommitLocation]:
    """Yield the submodules of a commit. Raises SourceError for one whose repository is not said."""
    name = f"{title}:{GITMODULES_FILE}"
    listed = git.text("config", "--blob", blob, "-z", "--list", activity=f"reading {name}") if blob else ""
    modules = parse_gitmodules(listed, name=name)
    for entry in entries:
        if entry.mode != trees.GITLINK:
            continue
        module = modules.get(entry.path)
        if module is None or (module.url is None and module.enabled):
            raise errors.SourceError(
                f"{title}: {entry.path} is a submodule, and {name} does not say of which repository",
                tip="git cannot check it out either: choose another commit",
            )
        if any("\ud800" <= letter <= "\udfff" for letter in entry.path):  # of bytes that are no text
            raise errors.SourceError(f"{title}: the path of a submodule is not UTF-8: {entry.path!a}")
        if module.enabled and module.url is not None:
            origin = resolve_submodule_url(location.origin, module.url)
            checkout = None if location.checkout is None else location.checkout / entry.path
            yield CommitLocation(origin, entry.object, "", checkout, location.local, entry.path)


def write_locked_files(
    file: LockFile,
    names: Mapping[str, Collection[str]],
    folder: Path,
    *,
    list_included: Callable[[str], Sequence[str]],
    checkouts: Path | None,
    patches: Path,
    env: Mapping[str, str],
    transport: network.Transport,
) -> None:
    """Write files of locked projects, patched as their checkouts are, below a folder for each project.

    ``names``: the files of each project; one that its commit has not is left out. ``list_included`` returns
    those that a text includes, relative to its folder: they are written as well. ``patches``: folder of the
    patch sets. Raises SourceError, and DataError for a file that is not UTF-8.
    """
    with open_reader(checkouts, env, transport) as reader:
        for name, paths in names.items():
            locked = file.project(name)
            location = reader.locate(name, locked.origin, locked.commit, locked.ref)
            patch_set = read_locked_patches(file, name, patches) if locked.patches is not None else None
            with log.prefix_log_lines(name):
                pending, written = list(paths), set[str]()
                while pending:
                    files = reader.read_commit(location, title=f"{name}@{locked.commit[:12]}", files=pending)
                    texts = _write_patched_files(files, pending, folder / name, patch_set, env)
                    written |= set(pending)
                    included = (
                        posixpath.normpath(posixpath.join(posixpath.dirname(path), other))
                        for path, text in texts.items()
                        for other in list_included(text)
                    )
                    pending = [
                        path
                        for path in dict.fromkeys(included)
                        if is_inside_tree(path) and path not in written
                    ]


def _write_patched_files(
    files: CommitFiles,
    paths: Sequence[str],
    folder: Path,
    patch_set: PatchSet | None,
    env: Mapping[str, str],
) -> dict[str, str]:
    """Write those files that a commit and the patches have; return their texts by path."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in paths:
        if (text := files.read_text(path)) is not None:
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text, encoding="utf-8")
    git = Git(folder, {**env, "GIT_CEILING_DIRECTORIES": str(folder.parent)})
    for stage in ("base", "hipified") if patch_set is not None else ():
        for patch in patch_set.get_series(stage).get("", ()):
            words = [f"--include={path}" for path in paths]
            git.text("apply", *words, "-", stdin=patch.data, activity=f"applying {patch.name}")
    return {path: (folder / path).read_text("utf-8") for path in paths if (folder / path).is_file()}


_Job = Callable[[], list["_Job"]]


@dataclass(frozen=True)
class ProjectToLock:
    """A project to lock: ``choose`` returns its pin, from torch's commit where it ``reads_torch``.

    ``patches`` returns the patch set for a ref.
    """

    project: Project
    choose: Callable[[pins.TreeFiles | None], pins.Pin]
    reads_torch: bool
    patches: Callable[[str], PatchSet | None]


def _resolve_projects(
    reader: CommitReader,
    items: Sequence[ProjectToLock],
    torch: ProjectToLock,
    platform: project_names.Platform,
) -> tuple[dict[str, LockedProject], CommitFiles | None]:
    """Return the commit, tree, version and submodules of every project, and torch's commit if it was read.

    ``torch`` is read where one needs it, and locked only when it is among ``items``. Raises SourceError and
    DataError.
    """
    resolved: dict[str, tuple[pins.Pin, CommitFiles]] = {}
    modules: dict[tuple[str, str], CommitFiles | None] = {}  # None: somebody is at it
    gate = threading.Lock()
    recipes = [load_project(name) for name in project_names.list_project_names()]
    pin_files = {file for recipe in recipes for file in _list_pin_files(recipe, platform)}

    def resolve_project(
        item: ProjectToLock, torch_files: CommitFiles | None, readers: Sequence[ProjectToLock] = ()
    ) -> list[_Job]:
        """Return the jobs that this one makes possible."""
        name = item.project.name
        with log.prefix_log_lines(name):
            pin = item.choose(torch_files)
            log.log_note(f"{pin.ref} of {shell.hide_credentials(pin.origin)} ({pin.why})")
            options = name_options(name)
            commit, source = reader.resolve_ref(
                pin.origin, pin.commit or pin.ref, options=(options.origin, options.ref)
            )
            location = reader.locate(name, pin.origin, commit, source)
            names = {_VERSION_FILE, *_list_version_files(item.project), *pin_files}
            files = reader.read_commit(location, title=f"{name}@{commit[:12]}", files=names)
        resolved[name] = replace(pin, commit=commit), files
        jobs: list[_Job] = [partial(resolve_project, follower, files) for follower in readers]
        return jobs + (list_submodule_jobs(name, files) if item in items else [])

    def resolve_submodule(name: str, location: CommitLocation) -> list[_Job]:
        with log.prefix_log_lines(name):
            files = reader.read_commit(location, title=f"{location.path}@{location.commit[:12]}")
        modules[location.origin, location.commit] = files
        return list_submodule_jobs(name, files)

    def list_submodule_jobs(name: str, files: CommitFiles) -> list[_Job]:
        with gate:
            new = [child for child in files.submodules if (child.origin, child.commit) not in modules]
            modules.update({(child.origin, child.commit): None for child in new})
        return [partial(resolve_submodule, name, child) for child in new]

    followers = [item for item in items if item.reads_torch]
    first: list[_Job] = (
        [partial(resolve_project, torch, None, followers)] if followers or torch in items else []
    )
    others = [item for item in items if not item.reads_torch and item is not torch]
    first += [partial(resolve_project, item, None) for item in others]
    parallel.run_growing_work(lambda job: (None, job()), first, jobs=reader.transport.jobs)

    def list_locked_submodules(above: str, files: CommitFiles) -> Iterator[tuple[str, LockedSubmodule]]:
        for child in files.submodules:
            opened = modules[child.origin, child.commit]
            assert opened is not None
            path = f"{above}{child.path}"
            yield path, LockedSubmodule(origin=child.origin, commit=child.commit, tree=opened.tree)
            yield from list_locked_submodules(f"{path}/", opened)

    locked = {}
    for item in items:
        pin, files = resolved[item.project.name]
        with log.prefix_log_lines(item.project.name):
            patches = item.patches(pin.ref)
        named = None
        if patches is not None and patches.digest:
            named = LockedPatches(name=patches.folder.name, digest=patches.digest)
        locked[item.project.name] = LockedProject(
            origin=pin.origin,
            ref=pin.ref,
            why=pin.why,
            pinned=pin.pinned,
            commit=pin.commit,
            tree=files.tree,
            version=_read_base_version(item.project, files),
            patches=named,
            submodules=dict(sorted(list_locked_submodules("", files))),
        )
    return locked, resolved[torch.project.name][1] if torch.project.name in resolved else None


def _list_pin_files(project: Project, platform: project_names.Platform) -> list[str]:
    return pins.list_pin_files(project.source.get_platform_source(platform))


def _list_version_files(project: Project) -> Collection[str]:
    version = project.version
    return [file for file in (version.file, version.stated and version.stated.file) if file]


def _read_base_version(project: Project, files: CommitFiles) -> str | None:
    """Return the base version in the tree; ``None`` where the recipe names no file of it."""
    for file in _list_version_files(project):
        text = files.read_text(file)
        if text is None:
            raise errors.DataError(
                f"cannot read the version of {project.name}: there is no {files.label(file)}",
                tip="is that commit of this project? its recipe names the file",
            )
        if project.version.stated is not None:
            return versions.read_stated_version(text, project.version.stated.variable, name=files.label(file))
        return versions.parse_base_version(text, name=files.label(file))
    return None


@dataclass(frozen=True)
class ProjectOptions:
    """What the options say of a project: a ref, a repository (``None``: nothing).

    ``commit`` is what the ref stands for where ``why`` (a manifest) says so; both others are said then, too.
    """

    ref: str | None = None
    origin: str | None = None
    commit: str | None = None
    why: str = ""


@dataclass(frozen=True)
class LockRequest:
    """A lock to make of ``projects``; ``torch`` is the recipe of the one that pins the others.

    ``checkouts``: folder of checkouts that may have the commits. ``patches``: folder of the patch
    sets, ``None`` for a lock without patches. ``options`` are by project.
    """

    projects: tuple[Project, ...]
    torch: Project
    options: Mapping[str, ProjectOptions]
    platform: project_names.Platform
    line: release_lines.TorchLine | None = None
    rocm: str | None = None
    targets: tuple[str, ...] = ()
    pythons: tuple[str, ...] = ()
    local_version: str | None = None
    names_torch: bool = False
    checkouts: Path | None = None
    patches: Path | None = None


def make_lock(request: LockRequest, *, env: Mapping[str, str], transport: network.Transport) -> Lock:
    """Resolve every ref of a request, once. Raises UsageError, DataError, SourceError."""
    line, torch, pythons = request.line, request.torch, request.pythons
    if request.rocm is not None:
        _check_rocm_version(request.rocm, line)
    if line is not None:
        released = (*line.pythons.values, *line.free_threaded.values)
        others = [python for python in pythons if released and python not in released]
        if others:
            log.log_warning(
                f"release line {line.name} was not released for Python {', '.join(others)}, "
                f"but for {', '.join(released)}"
            )
        pythons = pythons or released
    if request.names_torch and torch not in request.projects:
        raise errors.UsageError(
            f"--name-torch: {torch.name} is not among the projects", tip="lock it, too, or leave this out"
        )
    items = {project.name: _plan_project(project, request) for project in (*request.projects, torch)}
    torch_item = items[torch.name]
    if torch not in request.projects:
        del items[torch.name]
        if torch.name in request.options and not any(item.reads_torch for item in items.values()):
            raise errors.UsageError(
                f"{name_options(torch.name).ref} would have no effect: {torch.name} is not among "
                "the projects, and none of them needs its pins",
                tip="leave it out",
            )
    with open_reader(request.checkouts, env, transport) as reader:
        projects, _ = _resolve_projects(reader, list(items.values()), torch_item, request.platform)
    return Lock(
        platform=request.platform,
        line=line.name if line is not None else None,
        rocm=request.rocm,
        targets=request.targets,
        pythons=pythons,
        local_version=request.local_version,
        named_torch=projects[torch.name].version if request.names_torch else None,
        projects=projects,
    )


def name_options(project: str) -> pins.OptionNames:
    """Return what the options about a project are called."""
    option = project_names.get_option_name(project)
    return pins.OptionNames(
        f"--{option}-ref", f"--{option}-origin", torch="name a torch that pins it (see --pytorch-ref, --line)"
    )


def _check_rocm_version(rocm: str, line: release_lines.TorchLine | None) -> None:
    """Warn of a version of ROCm that a line was not released with. Raises UsageError for what is none."""
    try:
        version = Version(rocm)
    except InvalidVersion:
        raise errors.UsageError(
            f"--rocm {rocm!r} is not a version (PEP 440)", tip="for example: 7.10.0a20260501"
        ) from None
    released = line.rocm.list_versions() if line is not None else ()
    if (
        line is not None
        and released
        and version.release[:2] not in {Version(v).release[:2] for v in released}
    ):
        log.log_warning(
            f"release line {line.name} was released with ROCm {', '.join(released)}, not with {rocm}"
        )


def _plan_project(project: Project, request: LockRequest) -> ProjectToLock:
    options, line = request.options.get(project.name, ProjectOptions()), request.line

    def choose_patches(ref: str) -> PatchSet | None:
        if request.patches is None:
            return None
        return choose_patch_set(project.name, ref, request.patches, line=line.name if line else None)

    def choose(torch: pins.TreeFiles | None) -> pins.Pin:
        if options.commit is not None:
            return pins.Pin(options.origin or "", options.ref or options.commit, options.why, options.commit)
        complete = options.ref is not None and options.origin is not None
        return pins.choose_pin(
            project,
            platform=request.platform,
            origin=options.origin,
            ref=options.ref,
            torch_dir=torch,
            line=None if complete else line,
            option_names=name_options(project.name),
        )

    has_commit = options.ref is not None or options.commit is not None
    reads_torch = not has_commit and bool(_list_pin_files(project, request.platform))
    return ProjectToLock(project, choose, reads_torch, choose_patches)


_OTHER_ORIGIN = "; origin: --"  # in `why`, where an option named the repository of a pinned commit


def update_lock(
    lock: Lock,
    names: Sequence[str],
    *,
    torch: str,
    checkouts: Path | None,
    patches: Path,
    env: Mapping[str, str],
    transport: network.Transport,
) -> tuple[Lock, dict[str, pins.Pin]]:
    """Resolve the refs of ``names`` again; ``torch`` is the project that pins others.

    Returns the new lock, and what torch's new commit pins otherwise than it, by project.

    A project that was pinned takes what the lock's torch pins, one that was locked by a ref what that
    ref is now. A patch set is read again from ``patches`` by its name. Raises UsageError for a project
    that is not in the lock, SourceError for a pin that is gone.
    """
    for name in names:
        if name not in lock.projects:
            raise errors.UsageError(
                f"{name} is not in the lock{tables.suggest_name(name, lock.projects)}",
                tip=f"it has: {', '.join(lock.projects)}",
            )
    items = {name: _plan_update(lock.projects[name], load_project(name), lock, patches) for name in names}
    torch_item = items.get(torch)
    if torch_item is None and torch in lock.projects:  # as it is in the lock, to read its pins
        locked = lock.projects[torch]
        pin = pins.Pin(locked.origin, locked.commit, "as locked")
        torch_item = ProjectToLock(load_project(torch), lambda _: pin, False, lambda _: None)
    if torch_item is None:
        if unpinned := [name for name, item in items.items() if item.reads_torch]:
            raise errors.UsageError(
                f"{' and '.join(unpinned)}: the lock has no {torch}, whose commit pinned them",
                tip=f"make the lock again, with {name_options(unpinned[0]).ref} for a ref of your own",
            )
        torch_item = items[names[0]]
    with open_reader(checkouts, env, transport) as reader:
        projects, torch_files = _resolve_projects(reader, list(items.values()), torch_item, lock.platform)
    projects = {**lock.projects, **projects}
    named = projects[torch].version if lock.named_torch is not None and torch in names else lock.named_torch
    drifts = {}
    if torch in names and projects[torch].commit != lock.projects[torch].commit:
        for name in [name for name in lock.projects if name not in names]:
            source = load_project(name).source.get_platform_source(lock.platform)
            drift, _ = pins.find_pin(source, torch_files)
            if drift is not None and drift.ref != lock.projects[name].commit:
                drifts[name] = drift
    return lock.model_copy(update={"projects": projects, "named_torch": named}), drifts


def _plan_update(locked: LockedProject, project: Project, lock: Lock, patches: Path) -> ProjectToLock:
    if not locked.pinned and network.is_commit(locked.ref):
        log.log_note(f"{project.name} is unchanged: pinned to a commit ({locked.why})")

    def choose(torch: pins.TreeFiles | None) -> pins.Pin:
        if not locked.pinned:
            return pins.Pin(locked.origin, locked.ref, locked.why)
        option = name_options(project.name).ref
        source = project.source.get_platform_source(lock.platform)
        pin, missing = pins.find_pin(source, torch, option=option)
        if pin is None:
            raise errors.SourceError(
                f"{project.name} is pinned in the lock, but no longer by torch: {missing}",
                tip=f"make the lock again, with {option} for a ref of your own",
            )
        _, separator, suffix = locked.why.rpartition(_OTHER_ORIGIN)
        if separator:
            return pins.Pin(locked.origin, pin.ref, f"{pin.why}{separator}{suffix}", pinned=True)
        return pin

    def read_patches(ref: str) -> PatchSet | None:
        if locked.patches is None:
            return None
        return choose_patch_set(project.name, ref, patches, name=locked.patches.name)

    return ProjectToLock(project, choose, locked.pinned, read_patches)
