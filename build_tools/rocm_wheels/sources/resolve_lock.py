"""Make a lock or bring one up to date: each ref asked once, every submodule found, all of it side by side.

torch comes first where others read their pins in its commit; no file of a tree is written. A commit that
nobody has checked out is read where it is at hand: in a checkout, in a mirror. Else the commit alone is
fetched into a repository that is thrown away, without the content of its files but for tiny ones (a version,
a pin), and then those of the few that are read which did not come. A server that cannot leave content out
sends all of it; one that gives out branches only is asked for those.
"""

from __future__ import annotations

import posixpath
import re
import tempfile
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
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
from rocm_wheels.sources.network import resolve_ref
from rocm_wheels.sources.patches import PatchSet, choose_patch_set
from rocm_wheels.sources.submodules import GITMODULES_FILE, parse_gitmodules, resolve_submodule_url

if TYPE_CHECKING:
    from rocm_wheels.models import release_lines

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
            raise errors.DataError(f"{self.label(path)} is not UTF-8 text") from cause

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

    def __init__(self, scratch: Path, *, env: Mapping[str, str], transport: network.Transport) -> None:
        self._scratch, self._env, self._transport = scratch, env, transport
        self._numbers = count()

    def resolve_ref(self, origin: str, ref: str, *, options: tuple[str, str]) -> tuple[str, str]:
        """Return the commit that a ref is now, and what to fetch (see ``network.resolve_ref``)."""
        network.check_ref(ref)
        git = Git(self._scratch, self._env)
        return resolve_ref(git, origin, ref, transport=self._transport, options=options)

    def read_commit(
        self, location: CommitLocation, *, title: str, files: Collection[str] = ()
    ) -> CommitFiles:
        """Read a commit: its tree, the ``files`` that it has of those named, its submodules.

        Raises SourceError when it is nowhere, or its ``.gitmodules`` is none.
        """
        git = self._find_local(location) or self._fetch_commit(location)
        by_path = {entry.path: entry for entry in trees.list_tree(git, location.commit)}
        object_ids = {
            path: by_path[path].object
            for path in files
            if path in by_path and by_path[path].mode != trees.GITLINK
        }
        if _is_plain_file(by_path, GITMODULES_FILE):
            object_ids[GITMODULES_FILE] = by_path[GITMODULES_FILE].object
        git, tree = self._complete_content(git, location, sorted(set(object_ids.values())))
        contents = trees.read_blob_texts(git, object_ids.values())
        return CommitFiles(
            title,
            location.commit,
            tree,
            {path: contents[oid] for path, oid in object_ids.items()},
            tuple(_list_submodules(git, location, title, object_ids.get(GITMODULES_FILE), by_path)),
        )

    def _find_local(self, location: CommitLocation) -> Git | None:
        """Return a repository of this machine that has the commit whole."""
        if location.checkout is not None and trees.is_populated(location.checkout):
            git = Git(location.checkout, self._env)
            if _has_reachable_commit(git, location.commit):
                return git
        if self._transport.mirrors is not None:
            mirror = mirrors.locate_mirror(location.origin, self._transport.mirrors, self._env)
            if (mirror.folder / "HEAD").is_file() and mirrors.mirror_has_commit(mirror, location.commit):
                return mirror.git
        return None

    def _fetch_commit(self, location: CommitLocation, *, content: bool = False) -> Git:
        """Fetch the commit into a repository of its own; most servers leave the files' ``content`` out."""
        git = Git(self._make_repository(), self._env, ("core.fsync=none",))  # it is thrown away
        try:
            self._fetch_words(git, location, "--depth=1", location.commit, content=content)
        except errors.SourceError as refused:
            if not _ONLY_BRANCHES.search(str(refused)):
                raise
            sources = {"refs/heads/*", "refs/tags/*"}
            if location.source and not network.is_commit(location.source):
                sources.add(location.source)
            refspecs = [f"+{source}:refs/found/{source}" for source in sorted(sources)]
            self._fetch_words(git, location, *refspecs, content=content)
            if not trees.has_object(git, location.commit):
                raise errors.SourceError(
                    f"{shell.hide_credentials(location.origin)} has no branch or tag with commit "
                    f"{location.commit}",
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
        except errors.SourceError as refused:
            if not _ONLY_BRANCHES.search(str(refused)):
                raise
            # it leaves content out, and gives it to nobody
            return self._fetch_commit(location, content=True), tree
        return git, tree

    def _fetch_words(self, git: Git, location: CommitLocation, *words: str, content: bool = False) -> None:
        try:
            self._run_transfer(git, location, words, "" if content else _TINY)
        except errors.SourceError as refused:
            if content or not _NO_SUCH_FILTER.search(str(refused)):
                raise
            self._run_transfer(git, location, words, _NO_CONTENT)

    def _run_transfer(self, git: Git, location: CommitLocation, words: Sequence[str], content: str) -> None:
        """Fetch into a repository; ``content``: git's filter of what comes (all of it where it is empty)."""
        origin = shell.hide_credentials(location.origin)
        partial = ("remote.origin.promisor=true", f"remote.origin.partialclonefilter={content}")
        asking = git.with_settings(f"remote.origin.url={location.origin}", *self._transport.settings)
        asking = asking.with_settings(*partial) if content else asking
        if location.local:
            asking = asking.with_settings("protocol.file.allow=always")
        elif location.path and not network.is_server(location.origin):  # the user did not name it
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
        tip = "the server may not have this commit (any more): lock a branch or tag that holds it"

        def attempt() -> None:
            with self._transport.hold_slot():
                asking.run_network(*arguments, activity=activity, silence=self._transport.timeout, tip=tip)

        network.attempt_with_retries(attempt, transport=self._transport, activity=activity)


def _is_plain_file(by_path: Mapping[str, trees.TreeEntry], path: str) -> bool:
    return path in by_path and by_path[path].mode.startswith("100")  # git follows no link to .gitmodules


def _is_utf8(text: str) -> bool:
    """Tell whether a path that git printed is text (``capture_output`` keeps other bytes as surrogates)."""
    return not any("\ud800" <= letter <= "\udfff" for letter in text)


def _has_reachable_commit(git: Git, commit: str) -> bool:
    """Tell whether a commit is there with all that it needs: what is checked out, or a ref, has it."""
    if not trees.has_object(git, commit):
        return False
    return git.succeeds("merge-base", "--is-ancestor", commit, "HEAD") or trees.has_whole_commit(git, commit)


def _list_submodules(
    git: Git, location: CommitLocation, title: str, blob: str | None, by_path: Mapping[str, trees.TreeEntry]
) -> Iterator[SubmoduleCommit]:
    """Yield the submodules of a commit. Raises SourceError for one whose repository is not said."""
    name = f"{title}:{GITMODULES_FILE}"
    listed = git.text("config", "--blob", blob, "-z", "--list", activity=f"reading {name}") if blob else ""
    modules = parse_gitmodules(listed, name=name)
    for entry in by_path.values():
        if entry.mode != trees.GITLINK:
            continue
        module = modules.get(entry.path)
        if module is None or (module.url is None and module.enabled):
            raise errors.SourceError(
                f"{title}: {entry.path} is a submodule, and {name} does not say of which repository",
                tip="git cannot check it out either: choose another commit",
            )
        if not _is_utf8(entry.path):
            raise errors.SourceError(f"{title}: the path of a submodule is not UTF-8: {entry.path!a}")
        if module.enabled and module.url is not None:
            yield SubmoduleCommit(
                entry.path, resolve_submodule_url(location.origin, module.url), entry.object
            )


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
    with tempfile.TemporaryDirectory(prefix="rocm-wheels-lock-") as scratch:
        reader = CommitReader(Path(scratch), env=env, transport=transport)
        for name, paths in names.items():
            locked = file.project(name)
            location = CommitLocation(
                locked.origin,
                locked.commit,
                locked.ref,
                None if checkouts is None else checkouts / name,
                network.parse_origin(locked.origin, Path("/"))[1],
            )
            patch_set = read_locked_patches(file, name, patches) if locked.patches is not None else None
            with log.prefix_log_lines(name):
                pending, written = list(paths), set[str]()
                while pending:
                    title = f"{name}@{locked.commit[:12]}"
                    files = reader.read_commit(location, title=title, files=pending)
                    included = _write_patched_files(files, pending, folder / name, patch_set, env)
                    written |= set(pending)
                    pending = [
                        path for path in _list_included(included, list_included) if path not in written
                    ]
    progress.show_live_line("")


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
    _apply_patches(folder, paths, patch_set, env)
    return {path: (folder / path).read_text("utf-8") for path in paths if (folder / path).is_file()}


def _list_included(texts: Mapping[str, str], list_included: Callable[[str], Sequence[str]]) -> list[str]:
    """Return the paths of the files that texts include, those that stay in the tree."""
    paths = [
        posixpath.normpath(posixpath.join(posixpath.dirname(path), other))
        for path, text in texts.items()
        for other in list_included(text)
    ]
    return [path for path in dict.fromkeys(paths) if is_inside_tree(path)]


def _apply_patches(
    folder: Path, paths: Collection[str], patch_set: PatchSet | None, env: Mapping[str, str]
) -> None:
    """Apply to files in a folder what a patch set changes in them."""
    if patch_set is None:
        return
    includes = [f"--include={path}" for path in paths]
    for stage in (patch_set.base, patch_set.hipified):
        for patch in stage.get("", ()):
            git = Git(folder, {**env, "GIT_CEILING_DIRECTORIES": str(folder.parent)})
            git.text("apply", *includes, "-", stdin=patch.data, activity=f"applying {patch.name}")


_VERSION_FILE = "version.txt"  # by which torch says its line

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


@dataclass(frozen=True)
class ResolvedProjects:
    """The locked projects by name, and torch's commit when it was read."""

    projects: Mapping[str, LockedProject]
    torch: CommitFiles | None


def may_read_torch(project: Project, platform: project_names.Platform) -> bool:
    """Tell whether torch's tree may pin a project."""
    return bool(pins.list_pin_files(project.source.get_platform_source(platform)))


def resolve_projects(
    items: Sequence[ProjectToLock],
    torch: ProjectToLock,
    *,
    platform: project_names.Platform,
    checkouts: Path | None,
    env: Mapping[str, str],
    transport: network.Transport,
) -> ResolvedProjects:
    """Find the commit, tree, version and submodules of every project.

    ``torch`` is read where one needs it, and locked only when it is among ``items``. ``checkouts``: a
    folder in which existing checkouts save the network. Raises SourceError and DataError.
    """
    with tempfile.TemporaryDirectory(prefix="rocm-wheels-lock-") as scratch:
        run = _LockRun(items, CommitReader(Path(scratch), env=env, transport=transport), checkouts, platform)
        parallel.run_growing_work(lambda job: (None, job()), run.list_first_jobs(torch), jobs=transport.jobs)
    progress.show_live_line("")
    opened = run.resolved.get(torch.project.name)
    return ResolvedProjects(
        {item.project.name: run.make_locked_project(item) for item in items}, opened and opened[1]
    )


class _LockRun:
    def __init__(
        self,
        items: Sequence[ProjectToLock],
        library: CommitReader,
        checkouts: Path | None,
        platform: project_names.Platform,
    ) -> None:
        self.resolved: dict[str, tuple[pins.Pin, CommitFiles]] = {}
        self._items, self._library, self._checkouts = items, library, checkouts
        self._modules: dict[tuple[str, str], CommitFiles | None] = {}
        self._gate = threading.Lock()
        recipes = map(load_project, project_names.list_project_names())
        self._pins = {
            file
            for recipe in recipes
            for file in pins.list_pin_files(recipe.source.get_platform_source(platform))
        }

    def list_first_jobs(self, torch: ProjectToLock) -> list[_Job]:
        """Return the first jobs; each returns those that it makes possible."""
        readers = [item for item in self._items if item.reads_torch]
        others = [item for item in self._items if not item.reads_torch and item is not torch]
        jobs: list[_Job] = [partial(self._resolve_project, item, None) for item in others]
        if readers or torch in self._items:
            jobs.insert(0, partial(self._resolve_project, torch, None, readers))
        return jobs

    def _resolve_project(
        self, item: ProjectToLock, torch: CommitFiles | None, readers: Sequence[ProjectToLock] = ()
    ) -> list[_Job]:
        name = item.project.name
        with log.prefix_log_lines(name):
            pin = item.choose(torch)
            log.log_note(f"{pin.ref} of {shell.hide_credentials(pin.origin)} ({pin.why})")
            option = project_names.get_option_name(name)
            options = f"--{option}-origin", f"--{option}-ref"
            commit, source = self._library.resolve_ref(pin.origin, pin.commit or pin.ref, options=options)
            checkout = None if self._checkouts is None else self._checkouts / name
            local = network.parse_origin(pin.origin, Path("/"))[1]
            location = CommitLocation(pin.origin, commit, source, checkout, local)
            file_names = {_VERSION_FILE, *_list_version_files(item.project), *self._pins}
            files = self._library.read_commit(location, title=f"{name}@{commit[:12]}", files=file_names)
        self.resolved[name] = replace(pin, commit=commit), files
        jobs: list[_Job] = [partial(self._resolve_project, reader, files) for reader in readers]
        return jobs + (self._list_submodule_jobs(name, files, location) if item in self._items else [])

    def _list_submodule_jobs(self, name: str, files: CommitFiles, location: CommitLocation) -> list[_Job]:
        """Return the jobs of the submodules that nobody has looked at."""
        jobs: list[_Job] = []
        for child in files.submodules:
            with self._gate:
                is_known = (child.origin, child.commit) in self._modules
                self._modules.setdefault((child.origin, child.commit), None)
            if not is_known:
                jobs.append(partial(self._resolve_submodule, name, child, location))
        return jobs

    def _resolve_submodule(self, name: str, child: SubmoduleCommit, parent: CommitLocation) -> list[_Job]:
        checkout = None if parent.checkout is None else parent.checkout / child.path
        location = CommitLocation(child.origin, child.commit, "", checkout, parent.local, child.path)
        with log.prefix_log_lines(name):
            files = self._library.read_commit(location, title=f"{child.path}@{child.commit[:12]}")
        self._modules[child.origin, child.commit] = files
        return self._list_submodule_jobs(name, files, location)

    def make_locked_project(self, item: ProjectToLock) -> LockedProject:
        """Return what was found of a project, as a lock holds it."""
        project = item.project
        pin, files = self.resolved[project.name]
        with log.prefix_log_lines(project.name):
            patches = item.patches(pin.ref)
        return LockedProject(
            origin=pin.origin,
            ref=pin.ref,
            why=pin.why,
            pinned=pin.pinned,
            commit=pin.commit,
            tree=files.tree,
            version=_read_base_version(project, files),
            patches=LockedPatches(name=patches.folder.name, digest=patches.digest)
            if patches is not None and patches.digest
            else None,
            submodules=dict(sorted(self._list_locked_submodules("", files))),
        )

    def _list_locked_submodules(
        self, above: str, files: CommitFiles
    ) -> Iterator[tuple[str, LockedSubmodule]]:
        for child in files.submodules:
            opened = self._modules[child.origin, child.commit]
            assert opened is not None
            path = f"{above}{child.path}"
            yield path, LockedSubmodule(origin=child.origin, commit=child.commit, tree=opened.tree)
            yield from self._list_locked_submodules(f"{path}/", opened)


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
    pythons = request.pythons
    if request.rocm is not None:
        check_rocm_version(request.rocm, request.line)
    if request.line is not None:
        released = (*request.line.pythons.values, *request.line.free_threaded.values)
        others = [python for python in pythons if released and python not in released]
        if others:
            log.log_warning(
                f"release line {request.line.name} was not released for Python {', '.join(others)}, "
                f"but for {', '.join(released)}"
            )
        pythons = pythons or released
    if request.names_torch and request.torch not in request.projects:
        raise errors.UsageError(
            f"--name-torch: {request.torch.name} is not among the projects",
            tip="lock it, too, or leave this out",
        )
    items = [_plan_project(project, request) for project in request.projects]
    torch_item = next((item for item in items if item.project.name == request.torch.name), None)
    if torch_item is None:
        torch_item = _plan_project(request.torch, request)
        if request.torch.name in request.options and not any(item.reads_torch for item in items):
            raise errors.UsageError(
                f"{name_options(request.torch.name).ref} would have no effect: "
                f"{request.torch.name} is not among "
                "the projects, and none of them needs its pins",
                tip="leave it out",
            )
    resolved = resolve_projects(
        items,
        torch_item,
        platform=request.platform,
        checkouts=request.checkouts,
        env=env,
        transport=transport,
    )
    return Lock(
        platform=request.platform,
        line=request.line.name if request.line is not None else None,
        rocm=request.rocm,
        targets=request.targets,
        pythons=pythons,
        local_version=request.local_version,
        named_torch=resolved.projects[request.torch.name].version if request.names_torch else None,
        projects=resolved.projects,
    )


def name_options(project: str) -> pins.OptionNames:
    """Return what the options about a project are called."""
    option = project_names.get_option_name(project)
    return pins.OptionNames(
        f"--{option}-ref", f"--{option}-origin", torch="name a torch that pins it (see --pytorch-ref, --line)"
    )


def check_rocm_version(rocm: str, line: release_lines.TorchLine | None) -> None:
    """Warn of a version of ROCm that a line was not released with. Raises UsageError for what is none."""
    try:
        version = Version(rocm)
    except InvalidVersion:
        raise errors.UsageError(
            f"--rocm {rocm!r} is not a version (PEP 440)", tip="for example: 7.10.0a20260501"
        ) from None
    if line is None or not line.rocm.list_versions():
        return
    released = line.rocm.list_versions()
    if (version.major, version.minor) not in {(v.major, v.minor) for v in map(Version, released)}:
        log.log_warning(
            f"release line {line.name} was released with ROCm {', '.join(released)}, not with {rocm}"
        )


def _plan_project(project: Project, request: LockRequest) -> ProjectToLock:
    options = request.options.get(project.name, ProjectOptions())
    patches = partial(_choose_project_patches, project, request)
    if options.commit is not None:
        pin = pins.Pin(options.origin or "", options.ref or options.commit, options.why, options.commit)
        return ProjectToLock(project, lambda _torch: pin, False, patches)
    complete = options.ref is not None and options.origin is not None
    return ProjectToLock(
        project,
        lambda torch: pins.choose_pin(
            project,
            platform=request.platform,
            origin=options.origin,
            ref=options.ref,
            torch_dir=torch,
            line=None if complete else request.line,
            option_names=name_options(project.name),
        ),
        options.ref is None and may_read_torch(project, request.platform),
        patches,
    )


def _choose_project_patches(project: Project, request: LockRequest, ref: str) -> PatchSet | None:
    if request.patches is None:
        return None
    line = request.line.name if request.line is not None else None
    return choose_patch_set(project.name, ref, request.patches, line=line)


_OTHER_ORIGIN = "; origin: --"  # in `why`, where an option named the repository of a pinned commit


@dataclass(frozen=True)
class PinDrift:
    """A project whose pin in torch's new commit (``pin``) is another commit than the lock has."""

    name: str
    locked: str
    pin: pins.Pin


@dataclass(frozen=True)
class UpdatedLock:
    """The new lock, and what torch's new commit pins otherwise than it."""

    lock: Lock
    drifts: tuple[PinDrift, ...]


def update_lock(
    lock: Lock,
    names: Sequence[str],
    *,
    torch: str,
    checkouts: Path | None,
    patches: Path,
    env: Mapping[str, str],
    transport: network.Transport,
) -> UpdatedLock:
    """Resolve the refs of ``names`` again; ``torch`` is the project that pins others.

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
    items = [_plan_update(lock.projects[name], load_project(name), lock.platform, patches) for name in names]
    torch_item = next((item for item in items if item.project.name == torch), None) or _plan_locked_torch(
        lock, torch
    )
    if torch_item is None:
        if unpinned := [item.project.name for item in items if item.reads_torch]:
            raise errors.UsageError(
                f"{' and '.join(unpinned)}: the lock has no {torch}, whose commit pinned them",
                tip=(
                    "make the lock again, with "
                    f"--{project_names.get_option_name(unpinned[0])}-ref for a ref of your own"
                ),
            )
        torch_item = items[0]
    resolved = resolve_projects(
        items,
        torch_item,
        platform=lock.platform,
        checkouts=checkouts,
        env=env,
        transport=transport,
    )
    projects = {**lock.projects, **resolved.projects}
    named = projects[torch].version if lock.named_torch is not None and torch in names else lock.named_torch
    new = lock.model_copy(update={"projects": projects, "named_torch": named})
    moved = torch in names and new.projects[torch].commit != lock.projects[torch].commit
    return UpdatedLock(
        new, _list_drifts(new, names, resolved.torch) if moved and resolved.torch is not None else ()
    )


def _plan_update(
    locked: LockedProject, project: Project, platform: project_names.Platform, patches: Path
) -> ProjectToLock:
    if not locked.pinned and network.is_commit(locked.ref):
        log.log_note(f"{project.name} is unchanged: pinned to a commit ({locked.why})")
    choose = partial(_choose_updated_pin, locked, project, platform)
    return ProjectToLock(project, choose, locked.pinned, partial(_reread_patch_set, locked, project, patches))


def _plan_locked_torch(lock: Lock, torch: str) -> ProjectToLock | None:
    """Return torch as it is in the lock, to read its pins."""
    locked = lock.projects.get(torch)
    if locked is None:
        return None
    pin = pins.Pin(locked.origin, locked.commit, "as locked")
    return ProjectToLock(load_project(torch), lambda _: pin, False, lambda _: None)


def _choose_updated_pin(
    locked: LockedProject, project: Project, platform: project_names.Platform, torch: pins.TreeFiles | None
) -> pins.Pin:
    if not locked.pinned:
        return pins.Pin(locked.origin, locked.ref, locked.why)
    option = f"--{project_names.get_option_name(project.name)}-ref"
    pin, missing = pins.find_pin(project.source.get_platform_source(platform), torch, option=option)
    if pin is None:
        raise errors.SourceError(
            f"{project.name} is pinned in the lock, but no longer by torch: {missing}",
            tip=f"make the lock again, with {option} for a ref of your own",
        )
    _, separator, suffix = locked.why.rpartition(_OTHER_ORIGIN)
    if separator:
        return pins.Pin(locked.origin, pin.ref, f"{pin.why}{separator}{suffix}", pinned=True)
    return pin


def _reread_patch_set(locked: LockedProject, project: Project, patches: Path, ref: str) -> PatchSet | None:
    if locked.patches is None:
        return None
    return choose_patch_set(project.name, ref, patches, name=locked.patches.name)


def _list_drifts(lock: Lock, names: Sequence[str], torch: CommitFiles) -> tuple[PinDrift, ...]:
    drifts = []
    for name, locked in lock.projects.items():
        if name not in names:
            pin, _ = pins.find_pin(load_project(name).source.get_platform_source(lock.platform), torch)
            if pin is not None and pin.ref != locked.commit:
                drifts.append(PinDrift(name, locked.commit, pin))
    return tuple(drifts)
