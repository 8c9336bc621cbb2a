"""Checkout: a project's sources at one upstream commit, tagged, hipified, as often as wanted.

The order makes a run that was killed repeatable: fetch (touches no file), note what is
under way, write the files, tag, hipify, note what was left.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from rocm_wheels import log, shell
from rocm_wheels.errors import SourceError
from rocm_wheels.model.project import Project
from rocm_wheels.sources import build_env, protect, undo
from rocm_wheels.sources.commits import is_tagged
from rocm_wheels.sources.configuration import Configuration, configuration, configure
from rocm_wheels.sources.files import load_times, restore_times, save_times
from rocm_wheels.sources.git import Git, git_directory, without_filters, without_private_filters
from rocm_wheels.sources.hipify import settled, translate
from rocm_wheels.sources.identity import as_it_lies
from rocm_wheels.sources.materialize import list_all, tag_all, write_files, written_by_us
from rocm_wheels.sources.network import remote
from rocm_wheels.sources.network.fetch import Wanted, is_shallow, under_way, was_cut
from rocm_wheels.sources.network.mirrors import obtain, refuse_inside
from rocm_wheels.sources.network.prefetch import Here, fetch_submodules
from rocm_wheels.sources.network.transport import Transport
from rocm_wheels.sources.patches.apply import check_request, refuse_early, stage, standing
from rocm_wheels.sources.patches.mail import PatchRefused
from rocm_wheels.sources.patches.sets import PatchSet
from rocm_wheels.sources.pins.choose import Pin
from rocm_wheels.sources.place import REPOSITORY, is_fresh, make_place, nearest, take_back
from rocm_wheels.sources.recover import MARK, clear_leftovers, rescue_all
from rocm_wheels.sources.state import FETCHED_REF, OWN_FOLDER, TIMES, State, read_state, write_state
from rocm_wheels.sources.trees import Part, has_commit, is_whole, repositories
from rocm_wheels.sources.unfinished import refuse_unfinished
from rocm_wheels.workspace import exclusive


@dataclass(frozen=True)
class CheckoutRequest:
    """What to check out where, and how its server is reached; ``depth`` as git has it, ``None``: whole.

    ``local_origin``: the user named an origin on this machine, so that submodules may come
    from there as well (git's ``protocol.file.allow``).
    """

    project: Project
    directory: Path
    pin: Pin
    depth: int | None = None
    submodules: bool = True
    hipify: bool = True
    commit_hipify: bool = True
    local_origin: bool = False
    patches: PatchSet | None = None
    transport: Transport = field(default_factory=Transport)

    @property
    def hipify_way(self) -> str:
        """How the tree is left: ``no``, ``committed`` or ``uncommitted``, as in the state."""
        return "no" if not self.hipify else "committed" if self.commit_hipify else "uncommitted"

    @property
    def patched_with(self) -> str:
        """The digest of the patch set, as in the state."""
        return self.patches.digest if self.patches is not None else ""


@dataclass(frozen=True)
class CheckoutResult:
    """``upstream`` names its commit; ``head`` is what is checked out; ``changed``: anything was done."""

    directory: Path
    upstream: Pin
    head: str
    changed: bool


def checkout(request: CheckoutRequest, *, env: Mapping[str, str], python: Path) -> CheckoutResult:
    """Check a project out; a tree that is there already is brought to the wanted commit.

    ``python`` runs the project's hipify script. Does nothing when all is as wanted. Raises
    SourceError: no such ref, no network, somebody's own work in the tree, a folder of
    something else; then no file was touched.
    """
    directory = request.directory.absolute()
    request = replace(request, directory=directory)
    pin = request.pin
    remote.check_ref(pin.ref)
    refuse_inside(request.transport.mirrors, directory)
    check_request(
        request.patches, hipify=request.hipify, commit=request.commit_hipify, submodules=request.submodules
    )
    fresh = is_fresh(directory)
    place = directory / ".git" if fresh else git_directory(Git(directory, env))
    env = {**env, MARK: str(place)}
    shown = shell.hide_credentials(pin.origin)
    wanted = f"{pin.ref} at {pin.commit[:12]}" if pin.commit not in ("", pin.ref) else pin.ref
    log.note(log.named(request.project.name, f"{wanted} of {shown} ({pin.why}) → {directory}"))
    asking, ref = Git(nearest(directory), env), pin.commit or pin.ref
    commit, source = remote.resolve(asking, pin.origin, ref, transport=request.transport)
    state = None if fresh else read_state(place)
    if state is not None and _is_as_wanted(request, state, commit, place, env):
        log.note(f"{directory} is at {commit[:12]} already; nothing to do")
        return CheckoutResult(directory, replace(pin, commit=commit), state.left[""].head, False)
    made = make_place(place) if fresh else []
    try:
        with exclusive(place / OWN_FOLDER, what=f"checkout of {request.project.name}"):
            before = read_state(place)
            if (before is not None and before.operation is not None) or was_cut(place):
                clear_leftovers(place, env)
            with under_way(place):
                ready = _prepare(request, place, before, commit, source, env=env)
            commit = ready.commit
            made = []  # from here on there is something to keep
            head = _bring(request, place, before, ready, env=env, python=python)
    finally:
        take_back(made, directory)
    log.note(f"{directory} is at {commit[:12]}" + (f", HEAD {head[:12]}" if head != commit else ""))
    return CheckoutResult(directory, replace(pin, commit=commit), head, True)


@dataclass(frozen=True)
class _Ready:
    """A repository with the wanted commit in it, and its configuration; ``made`` by this run."""

    commit: str
    known: Configuration
    made: bool


def _is_as_wanted(
    request: CheckoutRequest, state: State, commit: str, place: Path, env: Mapping[str, str]
) -> bool:
    if state.operation is not None or state.upstream != commit:
        return False
    git = Git(request.directory, env)
    if not _is_from(git, request.pin.origin, state):
        return False
    if (state.hipify, state.submodules) != (request.hipify_way, request.submodules):
        return False
    if state.patches != request.patched_with:
        return False
    committed = state.hipify == "committed"
    if not is_tagged(git, commit, hipified=committed):
        return False
    if not build_env.is_settled(request.project, request.directory, place, wanted=request.hipify):
        return False
    return as_it_lies(without_private_filters(git), state) == (state.left[""].head, state.identity)


def _is_from(git: Git, origin: str, state: State) -> bool:
    """Tell whether a tree is from an origin; credentials that are named are those that its git has."""
    plain = remote.without_credentials(origin)
    return plain == state.origin and (plain == origin or undo.configured_origin(git) == origin)


def _prepare(
    request: CheckoutRequest,
    place: Path,
    state: State | None,
    commit: str,
    source: str,
    *,
    env: Mapping[str, str],
) -> _Ready:
    """Have a repository with the wanted commit in it; no file of the tree is touched."""
    pin, plain = request.pin, Git(request.directory, env)
    linked = (place / "commondir").exists()  # a worktree of a repository that is elsewhere
    there = {name for name in REPOSITORY if (place / name).exists()}
    fresh, made = not linked and there != REPOSITORY, not linked and not there
    if fresh or (state is not None and state.operation is not None):
        blank = State(
            remote.without_credentials(pin.origin),
            pin.ref,
            commit,
            submodules=request.submodules,
            operation="checkout",
        )
        write_state(place, state or blank)
        plain.text("init", "--quiet", "--initial-branch=main", "--template=")
    known = configuration(plain)
    if known.values.get("extensions.objectformat", "sha1") != "sha1":
        raise remote.no_sha256(f"the repository in {request.directory}")
    origin = known.origin
    if origin != pin.origin and state is None and not fresh:
        what = f"a clone of {shell.hide_credentials(origin)}, not" if origin else "no clone"
        raise SourceError(
            f"{request.directory} is {what} of {shell.hide_credentials(pin.origin)}",
            tip="name another folder with --checkout-dir"
            + (", or give that origin with --gitrepo-origin" if origin else ""),
        )
    if made or not is_whole(plain, commit):
        depth = request.depth
        if depth is not None and has_commit(plain) and not is_shallow(plain):
            log.note("the checkout has its whole history already; --depth is not needed")
            depth = None
        wanted = Wanted(pin.origin, source)
        commit = obtain(plain, wanted, commit, depth=depth, transport=request.transport)
    return _Ready(commit, known, made)


def _bring(
    request: CheckoutRequest,
    place: Path,
    state: State | None,
    ready: _Ready,
    *,
    env: Mapping[str, str],
    python: Path,
) -> str:
    """Bring the tree to the wanted commit, patch and hipify it; return HEAD."""
    commit, known = ready.commit, ready.known
    git = without_filters(Git(request.directory, env), known.values)
    refuse_early(git, commit, request.patches)
    if state is not None and state.operation is not None:
        refuse_unfinished(repositories(git), locks=False)  # a killed git of ours left those
        rescue_all(git, state, commit)
        parts = repositories(git)
    else:
        parts = [Part("", git, "", place, "", "")] if ready.made else repositories(git)
        protect.refuse_own_work(parts, state)
    ours = written_by_us(parts, state)
    protect.refuse_in_the_way(git, commit, ours)
    allowed = git.setting("protocol.file.allow=always") if request.local_origin else git
    root = Here("", allowed, place, request.pin.origin, commit)
    there = {part.path: part.place for part in parts if part.path}
    links = fetch_submodules(
        root, there, known, wanted=request.submodules, depth=request.depth, transport=request.transport
    )
    way_back = undo.remember(parts, state, ours) if request.patched_with else None
    with under_way(place):  # killed here, git leaves locks, and no operation is noted yet
        configure(
            git, place, known, request.pin.origin, made=ready.made
        )  # refused, it stays; relative submodules need it from here on
        protect.keep_commits(parts, state, commit)
    before = {**list_all(parts, request.project, state), **load_times(place / OWN_FOLDER / TIMES)}
    save_times(place / OWN_FOLDER / TIMES, before)
    new = State(
        remote.without_credentials(request.pin.origin),
        request.pin.ref,
        commit,
        submodules=request.submodules,
        patches=request.patched_with,
        patch_set=request.patches.folder.name if request.patches is not None else "",
    )
    begun = replace(state or new, operation="checkout")
    write_state(place, begun)
    moved = bool(there) or known.knows_submodules
    parts = write_files(parts, place, commit, ours, links=links, moved=moved)
    new = replace(new, left=tag_all(parts))
    write_state(place, replace(new, operation="checkout"))
    try:
        new = _make_ours(request, parts, place, new, python)
    except PatchRefused:
        undo.put_back(git, place, way_back, request.project, before)
        raise
    if before:
        restore_times(git, before, list_all(parts, request.project, new))
    build_env.settle(git, place, request.project, wanted=request.hipify)
    git.text("update-ref", "-d", FETCHED_REF)
    write_state(place, settled(git, new))
    (place / OWN_FOLDER / TIMES).unlink()
    return new.left[""].head


def _make_ours(
    request: CheckoutRequest, parts: Sequence[Part], place: Path, state: State, python: Path
) -> State:
    """Apply base patches, hipify, apply hipified patches; return the state of what lies there then."""
    patches = request.patches
    if patches is not None:
        state = stage(parts, place, state, patches.base, "base")
    if request.hipify:
        state = translate(
            standing(parts, state.left),
            request.project,
            state,
            commit=request.commit_hipify,
            python=python,
            untagged=True,  # by `tag_all`
        )[0]
        write_state(place, replace(state, operation="checkout"))
        if patches is not None:
            state = stage(parts, place, state, patches.hipified, "hipified")
    return state
