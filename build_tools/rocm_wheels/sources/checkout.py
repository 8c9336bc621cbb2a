"""Check a project's sources out at one upstream commit, tagged, patched, hipified, as often as asked.

The order makes a run that was killed repeatable: fetch (touches no file), note what is
under way, write the files, tag, hipify, note what was left. Several projects are checked out side by side:
one that fails stops none of the others.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from rocm_wheels.core import errors, extras, files, log, parallel, shell, tables
from rocm_wheels.models.project import Project
from rocm_wheels.sources import (
    checkout_state,
    commits,
    hipify_record,
    local_changes,
    mirrors,
    network,
    pins,
    tree_writer,
    trees,
)
from rocm_wheels.sources.git import (
    Git,
    GitConfiguration,
    disable_filters,
    disable_private_filters,
    find_git_directory,
    is_linked,
    read_configuration,
    write_configuration,
)
from rocm_wheels.sources.hipify import (
    check_hipify,
    hipify_checkout,
    hipify_repositories,
    is_build_env_current,
    settle_state,
    skip_hipify,
    write_build_env,
)
from rocm_wheels.sources.patches import (
    PatchRefusedError,
    PatchSet,
    apply_stage,
    check_patch_request,
    require_base_applies,
)
from rocm_wheels.sources.submodules import (
    RepositoryCommit,
    SubmoduleFetch,
    fetch_submodules,
    find_moved_submodules,
)


@dataclass(frozen=True)
class CheckoutRequest:
    """What to check out where, and how its server is reached; ``depth`` as git has it, ``None``: whole.

    ``local_origin``: the user named an origin on this machine, so that submodules may come
    from there as well (git's ``protocol.file.allow``).
    """

    project: Project
    directory: Path
    pin: pins.Pin
    depth: int | None = None
    submodules: bool = True
    hipify: bool = True
    commit_hipify: bool = True
    local_origin: bool = False
    patches: PatchSet | None = None
    transport: network.Transport = field(default_factory=network.Transport)
    option_names: pins.OptionNames = pins.ONE_PROJECT_OPTIONS
    branch: str = ""  # the local branch that work goes on, the hipify commit included; none: no branch

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
    """``upstream`` names its commit; ``state`` is what was left; ``changed``: anything was done.

    ``tree``: of the upstream commit, where it was looked at.
    """

    directory: Path
    upstream: pins.Pin
    state: checkout_state.CheckoutState
    changed: bool
    tree: str | None = None

    @property
    def head(self) -> str:
        """The commit that is checked out."""
        return self.state.left[""].head


@dataclass(frozen=True)
class PreparedRepository:
    """A repository with the wanted commit in it, and its configuration; ``created`` by this run.

    ``noted``: the state that says so on the disk, where this run has written one. ``tree``: the commit's,
    where the repository was made.
    """

    commit: str
    config: GitConfiguration
    created: bool
    noted: checkout_state.CheckoutState | None
    tree: str


def prepare_repository(
    request: CheckoutRequest,
    git_dir: Path,
    state: checkout_state.CheckoutState | None,
    commit: str,
    source: str,
    *,
    env: Mapping[str, str],
) -> PreparedRepository:
    """Have a repository with the wanted commit in it; no file of the tree is touched."""
    pin, plain = request.pin, Git(request.directory, env)
    linked = is_linked(git_dir)
    present = {name for name in checkout_state.REPOSITORY_NAMES if (git_dir / name).exists()}
    noted, fresh, created = (
        None,
        not linked and present != checkout_state.REPOSITORY_NAMES,
        not linked and not present,
    )
    if fresh or (state is not None and state.operation is not None):
        blank = checkout_state.CheckoutState(
            network.strip_credentials(pin.origin),
            pin.ref,
            commit,
            submodules=request.submodules,
            operation="checkout",
        )
        noted = state or blank
        checkout_state.write_state(git_dir, noted)
        plain.text("init", "--quiet", "--initial-branch=main", "--template=")
    config = read_configuration(plain)
    if config.values.get("extensions.objectformat", "sha1") != "sha1":
        raise network.make_sha256_error(f"the repository in {request.directory}")
    origin = config.origin
    if origin != pin.origin and state is None and not fresh:
        kind = f"a clone of {shell.hide_credentials(origin)}, not" if origin else "no clone"
        origin_option = request.option_names.origin
        raise errors.SourceError(
            f"{request.directory} is {kind} of {shell.hide_credentials(pin.origin)}",
            tip=f"name another folder with {request.option_names.folder}"
            + (f", or give that origin with {origin_option}" if origin and origin_option else ""),
        )
    tree = ""
    if created or not trees.has_whole_commit(plain, commit):
        depth = request.depth
        if depth is not None and trees.has_head_commit(plain) and not network.is_shallow(plain):
            log.log_note("the checkout has its whole history already; --depth is not needed")
            depth = None
        commit_request = network.CommitRequest(pin.origin, source)
        commit, tree = mirrors.obtain_commit(
            plain, commit_request, commit, depth=depth, transport=request.transport
        )
    elif source == commit:  # asked for by its id, which may be that of a tag
        commit = plain.text("rev-parse", f"{commit}^{{commit}}")
    if created and not tree:
        tree = plain.text("rev-parse", f"{commit}^{{tree}}")
    return PreparedRepository(commit, config, created, noted, tree if created else "")


def bring_to_commit(
    request: CheckoutRequest,
    git_dir: Path,
    state: checkout_state.CheckoutState | None,
    ready: PreparedRepository,
    *,
    env: Mapping[str, str],
    python: Path,
) -> tuple[checkout_state.CheckoutState, str]:
    """Bring the tree to the wanted commit, patch and hipify it; return what was left, and upstream's tree."""
    commit, config, project = ready.commit, ready.config, request.project
    git = disable_filters(Git(request.directory, env), config.values)
    require_base_applies(git, commit, request.patches)
    parts, clean = _secure_own_work(git, git_dir, state, ready)
    ours = tree_writer.list_our_files(parts, state, clean=clean)
    change = trees.compare_commits(git, [(parts[0].head, commit)])[0] if clean and parts[0].head else None
    local_changes.refuse_blocking_files(git, commit, ours, change.changes if change is not None else None)
    modules = _fetch_submodules(request, parts, ready, change)
    snapshot = tree_writer.take_snapshot(parts, state, ours) if request.patched_with else None
    with network.mark_under_way(git_dir):  # killed here, git leaves locks, and no operation is noted yet
        # refused, it stays; relative submodules need it from here on
        write_configuration(git, git_dir, config, request.pin.origin, created=ready.created)
        local_changes.keep_commits(parts, state, commit)
    # with these, no others come or go, and the tree of the commit is known
    tree = change.tree if change is not None and tree_writer.is_switch(parts, modules) else ready.tree
    same_submodules = change is not None and bool(tree)
    switch = same_submodules and _needs_no_writing(request, state)
    times = (
        {} if switch else _note_times(git_dir, tree_writer.list_all_files(parts, project, state, clean=clean))
    )
    new = _plan_state(request, commit)
    noted_state = replace(state or new, operation="checkout")
    if noted_state != ready.noted:
        checkout_state.write_state(git_dir, noted_state)
    if switch:
        parts, touched = tree_writer.switch_files(parts, commit, tree, modules)
    else:
        moved = any(part.path for part in parts) or config.knows_submodules
        parts = touched = tree_writer.write_commit_files(
            parts,
            git_dir,
            commit,
            ours,
            modules=modules,
            moved=modules.redirected if same_submodules else moved,
            tree=tree,
        )
    # nothing was changed before, and the user's configuration merges nothing: all is as the commits have it
    as_planned = same_submodules and all(part.head == modules.parts[part.path].head for part in parts[1:])
    tree, final = parts[0].tree, request.patches is None
    records: Mapping[str, hipify_record.HipifyRecord] = {}
    hipified = _stays_plain(request) and request.commit_hipify
    tagged = {part.path for part in parts} - {part.path for part in touched}
    new = replace(
        new, left=tree_writer.tag_upstream_commits(parts, hipified=hipified, fetched=final, tagged=tagged)
    )
    if not _stays_plain(request):  # else nothing comes that would write another file
        checkout_state.write_state(git_dir, replace(new, operation="checkout"))
    try:
        new, records = _patch_and_hipify(request, parts, git_dir, new, python)
    except PatchRefusedError:
        tree_writer.restore_tree(git, git_dir, snapshot, project, times)
        raise
    if times:
        commits.restore_times(git, times, tree_writer.list_all_files(parts, project, new, clean=clean))
    write_build_env(git, git_dir, project, hipified=request.hipify)
    if not final:  # until now the tree could be put back, without the tags
        git.text("update-ref", "-d", checkout_state.FETCHED_REF)
    parts = trees.update_heads(parts, new.left)
    new = settle_state(replace(new, operation="checkout"), parts, clean=as_planned)
    hipify_record.write_hipify_records(parts, records, new.identity)
    checkout_state.write_state(git_dir, new)
    (git_dir / checkout_state.OWN_FOLDER / checkout_state.TIMES_FILE).unlink(missing_ok=True)
    return new, tree


def _secure_own_work(
    git: Git, git_dir: Path, state: checkout_state.CheckoutState | None, ready: PreparedRepository
) -> tuple[Sequence[trees.TreePart], bool]:
    """Return the repositories of a tree once nothing in them is at risk: own work is refused, or rescued.

    And whether all is as the commits in them have it.
    """
    if state is not None and state.operation is not None:
        local_changes.refuse_unfinished_operations(
            trees.list_repositories(git), locks=False
        )  # a killed git of ours left those
        local_changes.rescue_all(git, state, ready.commit)
        return trees.list_repositories(git), False
    if ready.created:
        return [trees.TreePart("", git, "", git_dir, "", "")], False
    parts = trees.list_repositories(git, state)
    return parts, local_changes.refuse_own_work(parts, state)


def _fetch_submodules(
    request: CheckoutRequest,
    parts: Sequence[trees.TreePart],
    ready: PreparedRepository,
    change: trees.CommitComparison | None,
) -> SubmoduleFetch:
    """Fetch the commits of all submodules; ``change``: what the commit changes in a tree without changes."""
    if change is not None and request.submodules and ready.config.origin == request.pin.origin:
        by_path = {part.path: part for part in parts}
        if (moved := find_moved_submodules(by_path, change, ready.config)) is not None:
            return moved
    root = parts[0]
    submodule_git = root.git.with_settings("protocol.file.allow=always") if request.local_origin else root.git
    return fetch_submodules(
        RepositoryCommit("", submodule_git, root.git_dir, request.pin.origin, ready.commit),
        {part.path: part for part in parts if part.path},
        ready.config,
        enabled=request.submodules,
        whole=change is not None,
        depth=request.depth,
        transport=request.transport,
    )


def _note_times(git_dir: Path, now: commits.FileListing) -> commits.FileListing:
    """Note the files that are there ``now``, and return them; after a killed run, those that it had noted."""
    path = git_dir / checkout_state.OWN_FOLDER / checkout_state.TIMES_FILE
    before = {**now, **commits.load_times(path)}
    if before:
        commits.save_times(path, before)
    return before


def _plan_state(request: CheckoutRequest, commit: str) -> checkout_state.CheckoutState:
    """Return the state of a tree that has nothing of ours yet."""
    return checkout_state.CheckoutState(
        network.strip_credentials(request.pin.origin),
        request.pin.ref,
        commit,
        submodules=request.submodules,
        patches=request.patched_with,
        patch_set=request.patches.folder.name if request.patches is not None else "",
    )


def _needs_no_writing(request: CheckoutRequest, state: checkout_state.CheckoutState | None) -> bool:
    """Tell whether we wrote nothing into a tree, and shall not: what is there is git's alone."""
    if state is None or state.patches or request.patches is not None or state.hipify != request.hipify_way:
        return False
    return not request.hipify or _stays_plain(request)


def _stays_plain(request: CheckoutRequest) -> bool:
    """Tell whether hipify and patches leave the tree as upstream has it."""
    return request.patches is None and request.hipify and not request.project.hipify.script


def _patch_and_hipify(
    request: CheckoutRequest,
    parts: Sequence[trees.TreePart],
    git_dir: Path,
    state: checkout_state.CheckoutState,
    python: Path,
) -> tuple[checkout_state.CheckoutState, Mapping[str, hipify_record.HipifyRecord]]:
    """Apply base patches, hipify, apply hipified patches; return the state, and what hipify did."""
    patches, project = request.patches, request.project
    if _stays_plain(request):
        return skip_hipify(project, state, commit=request.commit_hipify), {}
    if patches is not None:
        state = apply_stage(parts, git_dir, state, patches.base, "base")
    if not request.hipify:
        return state, {}
    current_parts = trees.update_heads(parts, state.left)
    state, _, records = hipify_repositories(
        current_parts, project, state, commit=request.commit_hipify, python=python
    )
    checkout_state.write_state(git_dir, replace(state, operation="checkout"))
    if patches is not None and patches.hipified and project.hipify.script:
        before, state = state, apply_stage(parts, git_dir, state, patches.hipified, "hipified")
        current_parts = trees.update_heads(parts, state.left)
        records = {
            part.path: hipify_record.accept_rewritten_files(part, records[part.path])
            for part in current_parts
        }
        if any(_touches_sources(part, before, records[part.path]) for part in current_parts):
            previous_records = dict(records)
            state, _, records = hipify_repositories(
                current_parts,
                project,
                state,
                commit=True,
                python=python,
                known_records=previous_records,
                keep_edited=True,
            )
            checkout_state.write_state(git_dir, replace(state, operation="checkout"))
    elif patches is not None:
        state = apply_stage(parts, git_dir, state, patches.hipified, "hipified")
    return state, records


def _touches_sources(
    part: trees.TreePart, before: checkout_state.CheckoutState, record: hipify_record.HipifyRecord
) -> bool:
    """Tell whether patches changed a file that hipify may have translated to another one."""
    changes = trees.list_differences(part.git, "diff-tree", "-r", before.left[part.path].head, part.head)
    return any(
        not change.of_submodule and change.path not in record.made and change.path not in record.rewritten
        for change in changes
    )


def checkout_project(request: CheckoutRequest, *, env: Mapping[str, str], python: Path) -> CheckoutResult:
    """Check a project out; a tree that is there already is brought to the wanted commit.

    ``python`` runs the project's hipify script. Does nothing when all is as wanted. Raises
    SourceError: no such ref, no network, somebody's own work in the tree, a folder of
    something else; then no file was touched.
    """
    extras.require_extras("a checkout", "build")
    directory, pin = request.directory.absolute(), request.pin
    network.check_ref(pin.ref)
    _check_branch_name(request, env)
    mirrors.refuse_mirrors_inside(request.transport.mirrors, directory)
    check_patch_request(
        request.patches, hipify=request.hipify, commit=request.commit_hipify, submodules=request.submodules
    )
    checkout_state.is_fresh_folder(directory, request.option_names.folder)  # or refused
    description = f"{pin.ref} at {pin.commit[:12]}" if pin.commit not in ("", pin.ref) else pin.ref
    description += f" of {shell.hide_credentials(pin.origin)} ({pin.why})"
    log.log_note(log.name_log_line(request.project.name, f"{description} → {directory}"))
    with checkout_state.hold_new_folder(directory, purpose=f"checkout of {request.project.name}") as folder:
        result = _checkout_into(replace(request, directory=folder), env, python)
    result = replace(result, directory=directory, changed=result.changed or folder != directory)
    commit = result.upstream.commit
    if result.changed:
        hipified = f", HEAD {result.head[:12]}" if result.head != commit else ""
        log.log_note(f"{directory} is at {commit[:12]}{hipified}")
    else:
        log.log_note(f"{directory} is at {commit[:12]} already; nothing to do")
    return result


def _checkout_into(request: CheckoutRequest, env: Mapping[str, str], python: Path) -> CheckoutResult:
    directory, pin = request.directory, request.pin
    fresh = checkout_state.is_fresh_folder(directory, request.option_names.folder)
    git_dir = directory / ".git" if fresh else find_git_directory(Git(directory, env))
    env = {**env, local_changes.TREE_VARIABLE: str(git_dir)}
    commit, source = network.resolve_ref(
        Git(checkout_state.find_existing_folder(directory), env),
        pin.origin,
        pin.commit or pin.ref,
        transport=request.transport,
        options=(request.option_names.origin, request.option_names.ref),
    )
    state = None if fresh else checkout_state.read_state(git_dir)
    tip = _find_branch(Git(directory, env), request.branch) if request.branch and not fresh else ""
    if tip and _may_continue(request, Git(directory, env), tip, commit):
        return _continue_branch(request, git_dir, state, tip, commit, env=env, python=python)
    if state is not None and _is_up_to_date(request, state, commit, git_dir, env):
        _attach_branch(request, Git(directory, env))
        return CheckoutResult(directory, replace(pin, commit=commit), state, False)
    begun = git_dir if directory.exists() else directory
    with files.lock_folder(
        git_dir / checkout_state.OWN_FOLDER, purpose=f"checkout of {request.project.name}"
    ):
        before = checkout_state.read_state(git_dir)
        if (before is not None and before.operation is not None) or network.was_interrupted(git_dir):
            local_changes.clear_leftovers(git_dir, env)
        try:
            with network.mark_under_way(git_dir):
                ready = prepare_repository(request, git_dir, before, commit, source, env=env)
        except BaseException:
            if fresh:  # nothing is in it to keep
                shutil.rmtree(begun)
            raise
        commit = ready.commit
        new_state, tree = bring_to_commit(request, git_dir, before, ready, env=env, python=python)
        _attach_branch(request, Git(directory, env))
    return CheckoutResult(directory, replace(pin, commit=commit), new_state, True, tree)


def _check_branch_name(request: CheckoutRequest, env: Mapping[str, str]) -> None:
    """Raise UsageError for a name that no local branch may have."""
    git = Git(checkout_state.find_existing_folder(request.directory.absolute()), env)
    branch = request.branch or ""
    if branch.startswith("-") or (branch and not git.succeeds("check-ref-format", "--branch", branch)):
        raise errors.UsageError(
            f"--branch {request.branch!r} is no name of a branch", tip="such as my-kernels"
        )


def _find_branch(git: Git, branch: str) -> str:
    """Return the commit of a local branch; empty where there is no such branch."""
    return git.text("for-each-ref", "--format=%(objectname)", f"refs/heads/{branch}")


def _may_continue(request: CheckoutRequest, git: Git, tip: str, commit: str) -> bool:
    """Tell whether a branch goes on as it is: it has commits of somebody's own, on top of the wanted commit.

    Without any it is made anew. Raises SourceError where they lie on another commit: it has diverged.
    """
    has_wanted = git.succeeds("merge-base", "--is-ancestor", commit, tip)
    excluded = (commit, checkout_state.UPSTREAM_TAG, "--remotes", f"--glob={network.SERVED_REFS}")
    own = commits.list_foreign_commits(git, *excluded, tip=f"refs/heads/{request.branch}")
    if not own or has_wanted:
        return bool(own)
    end = git.text("rev-parse", f"{own[-1].split(' ', 1)[0]}^")
    raise errors.SourceError(
        f"branch {request.branch} of {request.directory} has "
        f"{tables.format_count(len(own), 'commit')} of yours, "
        f"and does not have {commit[:12]}, which {request.pin.ref} is now",
        tip=f"check out into another branch (--branch {request.branch}-new), then take them there: "
        f"`git rebase --onto {request.branch}-new {end[:12]} {request.branch}`",
    )


def _continue_branch(
    request: CheckoutRequest,
    git_dir: Path,
    state: checkout_state.CheckoutState | None,
    tip: str,
    commit: str,
    *,
    env: Mapping[str, str],
    python: Path,
) -> CheckoutResult:
    """Go to a branch with somebody's own commits, and hipify it where it is not. No commit of it changes."""
    directory, git = request.directory, disable_private_filters(Git(request.directory, env))
    if state is not None and state.operation is not None:
        raise errors.SourceError(
            f"the {state.operation} in {directory} was interrupted",
            tip="run `checkout` again without --branch; it continues",
        )
    name, moved = f"refs/heads/{request.branch}", False
    if git.text("rev-parse", "--symbolic-full-name", "HEAD") != name:
        with files.lock_folder(
            git_dir / checkout_state.OWN_FOLDER, purpose=f"checkout of {request.project.name}"
        ):
            local_changes.refuse_own_work(trees.list_repositories(git, state), state)
            git.text("switch", "--quiet", request.branch)
            if request.submodules:
                tree_writer.update_submodules(git)
        moved = True
    log.log_note(f"{directory} is on branch {request.branch}, with your commits")
    head = tip
    if request.hipify and request.project.hipify.script and check_hipify(request.project, git) != "current":
        commit_hipify = request.commit_hipify
        result = hipify_checkout(request.project, directory, commit=commit_hipify, env=env, python=python)
        head, moved = result.head, moved or bool(result.changed)
    new = checkout_state.read_state(git_dir) or _plan_state(request, commit)
    if "" not in new.left:
        new = replace(
            new,
            left={
                "": checkout_state.RepositoryState(head, commit, git.text("rev-parse", f"{head}^{{tree}}"))
            },
        )
    return CheckoutResult(directory, replace(request.pin, commit=commit), new, moved)


def _attach_branch(request: CheckoutRequest, git: Git) -> None:
    """Have HEAD on the branch, which is made, or moved there; nothing of somebody's own is on it."""
    name = f"refs/heads/{request.branch}"
    if not request.branch or (git.text("rev-parse", "--symbolic-full-name", "HEAD") == name):
        return
    git.text("switch", "--quiet", "--no-track", "--force-create", request.branch)
    log.log_note(f"{request.project.name} is on branch {request.branch}")


def _is_up_to_date(
    request: CheckoutRequest,
    state: checkout_state.CheckoutState,
    commit: str,
    git_dir: Path,
    env: Mapping[str, str],
) -> bool:
    if state.operation is not None or state.upstream != commit:
        return False
    git = Git(request.directory, env)
    if not _is_from_origin(git, request.pin.origin, state):
        return False
    if (state.hipify, state.submodules) != (request.hipify_way, request.submodules):
        return False
    if state.patches != request.patched_with:
        return False
    committed = state.hipify == "committed"
    if not commits.is_tagged(git, commit, hipified=committed):
        return False
    if not is_build_env_current(request.project, request.directory, git_dir, hipified=request.hipify):
        return False
    return trees.read_current_tree(disable_private_filters(git), state) == (
        state.left[""].head,
        state.identity,
    )


def _is_from_origin(git: Git, origin: str, state: checkout_state.CheckoutState) -> bool:
    """Tell whether a tree is from an origin; credentials that are named are those that its git has."""
    plain = network.strip_credentials(origin)
    return plain == state.origin and (plain == origin or tree_writer.read_configured_origin(git) == origin)


@dataclass(frozen=True)
class CheckoutTask:
    """A project to check out. ``request`` is called when its turn comes; it may read other trees.

    ``after``: the project whose tree it reads; without that one there, this one is not begun.
    ``check`` raises when the tree that was made is not the wanted one.
    """

    project: str
    request: Callable[[], CheckoutRequest]
    after: str | None = None
    check: Callable[[CheckoutRequest, CheckoutResult], None] | None = None


@dataclass(frozen=True)
class CheckoutOutcome:
    """What became of a project: a result, or a failure, or neither when ``missing`` had failed before."""

    project: str
    result: CheckoutResult | None = None
    failure: errors.RocmWheelsError | OSError | None = None
    missing: str = ""


def checkout_projects(
    tasks: Sequence[CheckoutTask], folder: Path, *, env: Mapping[str, str], python: Path
) -> list[CheckoutOutcome]:
    """Check out projects below ``folder``, each after the one that it reads; return what became of each.

    Every line that is printed meanwhile names its project. An interruption ends them all. Raises
    nothing of what a project's own checkout raises, but for what is a bug.
    """
    names = {task.project for task in tasks}

    def work(task: CheckoutTask) -> tuple[list[CheckoutOutcome], list[CheckoutTask]]:
        followers = [follower for follower in tasks if follower.after == task.project]
        with log.prefix_log_lines(task.project):
            try:
                request = task.request()
                result = checkout_project(request, env=env, python=python)
                if task.check is not None:
                    task.check(request, result)
            except (errors.RocmWheelsError, OSError) as failure:
                missing = [CheckoutOutcome(follower.project, missing=task.project) for follower in followers]
                return [CheckoutOutcome(task.project, failure=failure), *missing], []
        return [CheckoutOutcome(task.project, result)], followers

    first = [task for task in tasks if task.after not in names]
    with checkout_state.ensure_folder(folder):
        outcomes = {
            outcome.project: outcome
            for batch in parallel.run_growing_work(work, first, jobs=len(tasks))
            for outcome in batch
        }
    return [outcomes[task.project] for task in tasks]
