"""Check a project's sources out at one upstream commit, tagged, patched, hipified, as often as asked.

A checkout can be cut anywhere: what is under way is in the state before a file is touched, nothing builds
from such a tree, and the same command ends what was cut. The user's own work is refused before anything is
done, or kept on a branch (``own_changes``). Several projects are checked out side by side: one that fails
stops none of the others.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path

from rocm_wheels.core import errors, files, installation, log, parallel, shell, tables
from rocm_wheels.models.project import Project
from rocm_wheels.sources import (
    checkout_state,
    commits,
    hipify,
    hipify_record,
    mirrors,
    network,
    own_changes,
    patches,
    pins,
    submodules,
    trees,
)
from rocm_wheels.sources.git import (
    ORIGIN_KEY,
    Git,
    add_origin,
    change_origin,
    disable_filters,
    disable_private_filters,
    find_git_directory,
    is_linked,
    read_configuration,
)
from rocm_wheels.sources.patches import PatchSet


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
    """``upstream`` names its commit; ``state`` is what was left; ``changed``: anything was done."""

    directory: Path
    upstream: pins.Pin
    state: checkout_state.CheckoutState
    changed: bool

    @property
    def head(self) -> str:
        """The commit that is checked out."""
        return self.state.left[""].head


def checkout_project(request: CheckoutRequest, *, env: Mapping[str, str], python: Path) -> CheckoutResult:
    """Check a project out; a tree that is there already is brought to the wanted commit.

    ``python`` runs the project's hipify script. Does nothing when all is as wanted. Raises
    SourceError: no such ref, no network, somebody's own work in the tree, a folder of
    something else; then no file was touched. What fails later leaves a tree that says so in its state.
    """
    installation.require_extras("a checkout", "build")
    directory, pin = request.directory.absolute(), request.pin
    network.check_ref(pin.ref)
    git = Git(checkout_state.find_existing_folder(directory), env)
    if request.branch:
        commits.check_branch_name(git, request.branch)
    mirrors.refuse_mirrors_inside(request.transport.mirrors, directory)
    patches.check_patch_request(
        request.patches, hipify=request.hipify, commit=request.commit_hipify, submodules=request.submodules
    )
    checkout_state.is_fresh_folder(directory, request.option_names.folder)  # or refused
    description = f"{pin.ref} at {pin.commit[:12]}" if pin.commit not in ("", pin.ref) else pin.ref
    description += f" of {shell.hide_credentials(pin.origin)} ({pin.why})"
    log.log_note(log.name_log_line(request.project.name, f"{description} → {directory}"))
    result = _TreeCheckout(replace(request, directory=directory), env, python).run()
    commit = result.upstream.commit
    if result.changed:
        hipified = f", HEAD {result.head[:12]}" if result.head != commit else ""
        log.log_note(f"{directory} is at {commit[:12]}{hipified}")
    else:
        log.log_note(f"{directory} is at {commit[:12]} already; nothing to do")
    return result


class _TreeCheckout:
    """One checkout of one project; ``git``: without the content filters of the user's own configuration.

    ``parts``: the repositories as they are before a file is touched; ``changed``: those in which files differ
    from their commit, and all that does is ours. ``interrupted``: the last run was cut.
    """

    def __init__(self, request: CheckoutRequest, env: Mapping[str, str], python: Path) -> None:
        self.request, self.env, self.python = request, env, python
        self.git = self.plain = Git(request.directory, env)
        self.fresh = checkout_state.is_fresh_folder(request.directory, request.option_names.folder)
        self.git_dir = request.directory / ".git" if self.fresh else find_git_directory(self.plain)
        self.interrupted = False
        self.parts: list[trees.TreePart] = []
        self.changed: frozenset[str] = frozenset()

    def run(self) -> CheckoutResult:
        """Do what is missing."""
        request, directory, pin = self.request, self.request.directory, self.request.pin
        commit, source = network.resolve_ref(
            Git(checkout_state.find_existing_folder(directory), self.env),
            pin.origin,
            pin.commit or pin.ref,
            transport=request.transport,
            options=(request.option_names.origin, request.option_names.ref),
        )
        state = None if self.fresh else checkout_state.read_state(self.git_dir)
        if not self.fresh and request.branch and self._may_continue(commit):
            return self._continue_branch(state, commit)
        if state is not None and self._is_up_to_date(state, commit):
            self._attach_branch()
            return CheckoutResult(directory, replace(pin, commit=commit), state, False)
        new_folders = [folder for folder in (directory, *directory.parents) if not folder.exists()]
        with self._hold_tree():
            state = checkout_state.read_state(self.git_dir)
            names = checkout_state.REPOSITORY_NAMES  # another run may have made it meanwhile
            self.fresh = not is_linked(self.git_dir) and not all((self.git_dir / n).exists() for n in names)
            self.interrupted = state is not None and state.operation is not None
            if self.interrupted or network.was_interrupted(self.git_dir):
                own_changes.clear_leftovers(self.git_dir)
            try:
                with network.mark_under_way(self.git_dir):
                    commit, configuration, fetched = self._fetch_root(state, commit, source)
            except BaseException:
                if self.fresh:  # nothing is in it to keep; what others put beside it is theirs
                    shutil.rmtree(self.git_dir)
                    checkout_state.remove_empty_folders(new_folders)
                raise
            try:
                wanted = self._fetch_submodules(commit, configuration)
                if fetched or wanted.fetched:  # which takes its time
                    self._inspect_tree(state)
                new = self._bring_to_commit(state, commit, configuration.get(ORIGIN_KEY, ""), wanted)
            except BaseException:
                left = checkout_state.read_state(self.git_dir)
                if left is not None and left.operation is not None:
                    log.log_note(f"{directory} is half done, and says so; another checkout there ends it")
                raise
            self._attach_branch()
        return CheckoutResult(directory, replace(pin, commit=commit), new, True)

    def _hold_tree(self) -> AbstractContextManager[None]:
        """Hold the tree for this run alone; raises UsageError while another run is at work in it."""
        purpose = f"checkout of {self.request.project.name}"
        return files.lock_folder(self.git_dir / checkout_state.OWN_FOLDER, purpose=purpose)

    def _fetch_root(
        self, state: checkout_state.CheckoutState | None, commit: str, source: str
    ) -> tuple[str, Mapping[str, str], bool]:
        """Have a repository with the wanted commit in it; no file of the tree is touched.

        Returns the commit that came, the configuration as it was, and whether a server was asked.
        """
        request, pin, plain, fresh = self.request, self.request.pin, self.plain, self.fresh
        if fresh or self.interrupted:
            if state is None:
                checkout_state.write_state(self.git_dir, self._plan_state(commit))
            plain.text("init", "--quiet", "--initial-branch=main", "--template=")
            config = self.git_dir / "config"
            if config.exists() and b'[remote "origin"]' not in config.read_bytes():
                add_origin(self.git_dir, pin.origin)
        configuration = read_configuration(plain)
        if configuration.get("extensions.objectformat", "sha1") != "sha1":
            raise network.make_sha256_error(f"the repository in {request.directory}")
        origin, names = configuration.get(ORIGIN_KEY, ""), request.option_names
        if origin != pin.origin and (state is None or state.is_foreign) and not fresh:
            kind = f"a clone of {shell.hide_credentials(origin)}, not" if origin else "no clone"
            raise errors.SourceError(
                f"{request.directory} is {kind} of {shell.hide_credentials(pin.origin)}",
                tip=f"name another folder with {names.folder}"
                + (f", or give that origin with {names.origin}" if origin and names.origin else ""),
            )
        self.git = disable_filters(plain, configuration)
        self._inspect_tree(state)
        missing = fresh or not trees.has_whole_commit(plain, commit)
        if missing:
            depth = request.depth
            if depth is not None and trees.has_head_commit(plain) and not network.is_shallow(plain):
                log.log_note("the checkout has its whole history already; --depth is not needed")
                depth = None
            wanted = network.CommitRequest(pin.origin, source)
            commit = mirrors.obtain_commit(plain, wanted, commit, depth=depth, transport=request.transport)
        elif source == commit:  # asked for by its id, which may be that of a tag
            commit = plain.text("rev-parse", f"{commit}^{{commit}}")
        return commit, configuration, missing

    def _inspect_tree(self, state: checkout_state.CheckoutState | None) -> None:
        """List the repositories, and refuse somebody's own work; after a run that was cut that is rescued."""
        if self.fresh:
            self.parts = [trees.TreePart("", self.git, "", self.git_dir, "")]
            return
        self.parts = trees.list_repositories(self.git)
        if not self.interrupted:
            self.changed = own_changes.refuse_own_work(self.parts, state)

    def _fetch_submodules(self, commit: str, configuration: Mapping[str, str]) -> submodules.WantedTree:
        """Have the commits of all submodules; base patches that do not apply to them are refused."""
        request, git = self.request, self.git
        trusting = git.with_settings("protocol.file.allow=always") if request.local_origin else git
        root = submodules.RepositoryCommit("", trusting, self.git_dir, request.pin.origin, commit)
        base = request.patches.get_series("base") if request.patches is not None else {}
        self._try_patches({"": root}, {path: series for path, series in base.items() if not path})
        wanted = submodules.fetch_submodules(
            root,
            {part.path: part for part in self.parts},
            configuration,
            settled=not self.interrupted,
            enabled=request.submodules,
            depth=request.depth,
            transport=request.transport,
        )
        self._try_patches(wanted.repositories, base)
        return wanted

    @staticmethod
    def _try_patches(
        repositories: Mapping[str, submodules.RepositoryCommit], series: patches.PatchSeries
    ) -> None:
        """Refuse patches that do not apply to commits of repositories, by path. No file is touched."""
        parts, states = [], {}
        for path, module in repositories.items() if series else ():
            tree = module.git.text("rev-parse", f"{module.commit}^{{tree}}")
            states[path] = checkout_state.RepositoryState(module.commit, module.commit, tree)
            parts.append(trees.TreePart(path, module.git, module.commit, module.folder, module.commit, tree))
        if series:
            patches.plan_stage(parts, states, series, "base")

    def _bring_to_commit(
        self,
        state: checkout_state.CheckoutState | None,
        commit: str,
        origin: str,
        wanted: submodules.WantedTree,
    ) -> checkout_state.CheckoutState:
        """Bring the tree to commits that are there, patch and hipify it; return the state."""
        request, git, git_dir, project = self.request, self.git, self.git_dir, self.request.project
        # nobody's own work is in the tree from here on, but on branches and refs of its own
        if state is not None and self.interrupted:
            own_changes.rescue_all(git, state, commit)
            state = None if state.is_foreign else state  # its commits are the user's
            self.parts = trees.list_repositories(git)
            self.changed = frozenset(part.path for part in self.parts)
        parts = self.parts
        with network.mark_under_way(git_dir):  # killed here, git leaves locks, and no operation is noted yet
            # relative submodules need it from here
            change_origin(git, origin, request.pin.origin)
            own_changes.keep_commits(parts, state, commit)

        times_file = git_dir / checkout_state.OWN_FOLDER / checkout_state.TIMES_FILE
        # git alone writes no file that stays; what hipify or a patch wrote is written again
        plain = request.patches is None and not (request.hipify and project.hipify.script)
        listed = () if plain and not self.changed else parts
        times = commits.list_all_files(listed, project.build.trees, state)
        times |= commits.load_times(times_file)  # those that a run that was cut had noted are older
        if times:
            commits.save_times(times_file, times)
        new = self._plan_state(commit)
        checkout_state.write_state(git_dir, replace(state or new, operation="checkout"))
        parts = self._write_files(state, commit, wanted)
        skips = plain and request.hipify  # hipify has nothing to do there
        new = replace(new, left=commits.tag_upstream_commits(parts, hipified=skips and request.commit_hipify))
        checkout_state.write_state(git_dir, new)
        records: Mapping[str, hipify_record.HipifyRecord] = {}
        if skips:
            new = hipify.skip_hipify(project, new, commit=request.commit_hipify)
        else:
            new, records = self._patch_and_hipify(parts, new)
        parts = trees.move_parts(parts, new.left)
        if times:
            commits.restore_times(git, times, commits.list_all_files(parts, project.build.trees, new))
        hipify.write_build_env(git, git_dir, project, hipified=request.hipify)
        new, _ = hipify.settle_state(new, parts)
        hipify_record.write_hipify_records(parts, records, new.identity)
        checkout_state.write_state(git_dir, new)
        times_file.unlink(missing_ok=True)
        return new

    def _plan_state(self, commit: str) -> checkout_state.CheckoutState:
        """Return the state of a tree that is being made, and has nothing of ours yet."""
        request = self.request
        return checkout_state.CheckoutState(
            network.strip_credentials(request.pin.origin),
            request.pin.ref,
            commit,
            submodules=request.submodules,
            patches=request.patched_with,
            patch_set=request.patches.folder.name if request.patches is not None else "",
            operation="checkout",
        )

    def _write_files(
        self,
        state: checkout_state.CheckoutState | None,
        commit: str,
        wanted: submodules.WantedTree,
    ) -> list[trees.TreePart]:
        """Make the files of the tree those of ``commit``; no server is asked.

        What is not tracked, and not ours, stays. Returns the repositories then.
        """
        git, parts, cleared = self.git, self.parts, bool(self.changed)
        for part in parts:
            (part.git_dir / checkout_state.OWN_FOLDER / checkout_state.SIDE_INDEX).unlink(missing_ok=True)
            if part.path in self.changed and part.head:
                commits.remove_files(git.directory, _list_our_files(part, state))
                part.git.text("checkout", "--quiet", "--force", "--detach")
        if state is not None and state.generated:
            commits.remove_files(git.directory, state.generated)
            cleared = True
        gone = [part.path for part in reversed(parts) if part.path and not wanted.keeps(part.path)]
        for path in gone:
            _remove_submodule_folder(git, self.git_dir, path)
        try:
            own_changes.switch_to_commit(git, commit)
        except own_changes.FilesInTheWayError:
            if not cleared and not gone:  # all is as it was
                self._forget_operation(state)
            raise
        if gone:  # makes empty folders of those that are not wanted
            git.text("checkout", "--quiet", "--force", "--detach")
        moving = [
            part
            for part in parts
            if part.path
            and part.path in wanted.repositories
            and trees.is_populated(part.git.directory)
            and (not wanted.has_commit(part.path, part.head) or trees.is_on_branch(part))
        ]
        trees.run_side_by_side(
            lambda part: own_changes.switch_to_commit(part.git, wanted.repositories[part.path].commit),
            moving,
        )
        if wanted.moved:
            git.text("submodule", "--quiet", "sync", "--recursive")
        # Only those that are not there yet: a git that outlives a run that is killed moves no other one.
        missing: dict[str, list[str]] = {}
        for path in sorted(wanted.repositories):
            if not trees.is_populated(git.directory / path):
                holder = trees.find_holder(path, wanted.repositories)
                missing.setdefault(holder, []).append(path.removeprefix(f"{holder}/"))
        for holder in sorted(missing, key=lambda path: path.split("/")):
            _update_submodules(git.in_directory(git.directory / holder), "--", *missing[holder])
        return trees.list_repositories(git)

    def _forget_operation(self, state: checkout_state.CheckoutState | None) -> None:
        """Have the state that a tree had before, in which nothing was touched."""
        checkout_state.locate_state_file(self.git_dir).unlink()
        (self.git_dir / checkout_state.OWN_FOLDER / checkout_state.TIMES_FILE).unlink(missing_ok=True)
        if state is not None:
            checkout_state.write_state(self.git_dir, state)

    def _patch_and_hipify(
        self, parts: Sequence[trees.TreePart], state: checkout_state.CheckoutState
    ) -> tuple[checkout_state.CheckoutState, Mapping[str, hipify_record.HipifyRecord]]:
        """Apply base patches, hipify, apply hipified patches; return the state, and what hipify did."""
        request, git_dir, project = self.request, self.git_dir, self.request.project
        patch_set = request.patches
        if patch_set is not None:
            state = patches.apply_stage(parts, git_dir, state, patch_set, "base")
        if not request.hipify:
            return state, {}
        state, _, records = hipify.hipify_repositories(
            trees.move_parts(parts, state.left),
            project,
            state,
            commit=request.commit_hipify,
            python=self.python,
        )
        checkout_state.write_state(git_dir, replace(state, operation="checkout"))
        if patch_set is None or not patch_set.get_series("hipified"):
            return state, records
        parts = trees.move_parts(parts, state.left)
        before, state = state, patches.apply_stage(parts, git_dir, state, patch_set, "hipified")
        if not project.hipify.script:
            return state, records
        parts = trees.move_parts(parts, state.left)
        records = {
            part.path: hipify_record.accept_rewritten_files(part, records[part.path]) for part in parts
        }
        if any(_touches_sources(part, before, records[part.path]) for part in parts):
            state, _, records = hipify.hipify_repositories(
                parts,
                project,
                state,
                commit=True,
                python=self.python,
                known_records=dict(records),
                keep_edited=True,
            )
            checkout_state.write_state(git_dir, replace(state, operation="checkout"))
        return state, records

    def _is_up_to_date(self, state: checkout_state.CheckoutState, commit: str) -> bool:
        """Tell whether the tree is what is asked for, and nobody changed it."""
        request, git, origin = self.request, self.plain, self.request.pin.origin
        was = (state.operation, state.upstream, state.hipify, state.submodules, state.patches)
        if was != (None, commit, request.hipify_way, request.submodules, request.patched_with):
            return False
        # credentials that are named are those that its git has
        named = network.strip_credentials(origin)
        if named != state.origin or (named != origin and read_configuration(git).get(ORIGIN_KEY) != origin):
            return False
        if not commits.is_tagged(git, commit, hipified=state.hipify == "committed"):
            return False
        wanted = "ours" if request.hipify and request.project.hipify.variables is not None else ""
        whose = hipify.whose_build_env(request.project, request.directory)
        if whose not in ("theirs", wanted):
            return False
        now = trees.read_current_tree(disable_private_filters(git), state)
        if now != (state.left[""].head, state.identity):
            return False
        if whose == "theirs":
            hipify.warn_of_their_build_env(request.directory)
        return True

    def _may_continue(self, commit: str) -> bool:
        """Tell whether a branch goes on as it is: commits of somebody's own are on top of the wanted commit.

        Without any it is made anew. Raises SourceError where they lie on another commit: it has diverged.
        """
        git, branch = self.plain, self.request.branch
        if not git.text("for-each-ref", "--format=%(objectname)", f"refs/heads/{branch}"):
            return False
        excluded = (commit, checkout_state.UPSTREAM_TAG, "--remotes", f"--glob={network.SERVED_REFS}")
        own = commits.list_foreign_commits(git, *excluded, tip=f"refs/heads/{branch}")
        if not own or git.succeeds("merge-base", "--is-ancestor", commit, f"refs/heads/{branch}"):
            return bool(own)
        end = git.text("rev-parse", f"{own[-1].split(' ', 1)[0]}^")
        raise errors.SourceError(
            f"branch {branch} of {self.request.directory} has "
            f"{tables.format_count(len(own), 'commit')} of yours, "
            f"and does not have {commit[:12]}, which {self.request.pin.ref} is now",
            tip=f"check out into another branch (--branch {branch}-new), then take them there: "
            f"`git rebase --onto {branch}-new {end[:12]} {branch}`",
        )

    def _continue_branch(self, state: checkout_state.CheckoutState | None, commit: str) -> CheckoutResult:
        """Go to a branch with somebody's own commits, of which none changes; hipify it where it is not."""
        request, directory, git = self.request, self.request.directory, disable_private_filters(self.plain)
        checkout_state.refuse_interrupted(
            directory, state, tip="run `checkout` again without --branch; it continues"
        )
        moved = git.text("rev-parse", "--symbolic-full-name", "HEAD") != f"refs/heads/{request.branch}"
        if moved:
            with self._hold_tree():
                own_changes.refuse_own_work(trees.list_repositories(git), state)
                git.text("switch", "--quiet", "--no-overwrite-ignore", request.branch)
                if request.submodules and trees.inspect_repository("", git, "").links:
                    _update_submodules(git, "--recursive")
        log.log_note(f"{directory} is on branch {request.branch}, with your commits")
        if (
            request.hipify
            and request.project.hipify.script
            and hipify.check_hipify(request.project, git) != "current"
        ):
            result = hipify.hipify_checkout(
                request.project, directory, commit=request.commit_hipify, env=self.env, python=self.python
            )
            moved = moved or bool(result.changed)
        new = checkout_state.read_state(self.git_dir) or self._plan_state(commit)
        if "" not in new.left:
            root = trees.inspect_repository("", git, "")
            new = replace(new, left={"": checkout_state.RepositoryState(root.head, commit, root.tree)})
        return CheckoutResult(directory, replace(request.pin, commit=commit), new, moved)

    def _attach_branch(self) -> None:
        """Have HEAD on the branch, which is made, or moved there; nothing of somebody's own is on it."""
        branch, git = self.request.branch, self.plain
        if branch and git.text("rev-parse", "--symbolic-full-name", "HEAD") != f"refs/heads/{branch}":
            git.text("switch", "--quiet", "--no-track", "--force-create", branch)
            log.log_note(f"{self.request.project.name} is on branch {branch}")


def _list_our_files(part: trees.TreePart, state: checkout_state.CheckoutState | None) -> list[str]:
    """List the files of a repository, from the root, that we wrote and did not commit; they may go."""
    if state is None or not part.head:
        return []
    paths = hipify_record.list_new_outputs(part) if state.hipify == "committed" else []
    recorded = state.left.get(part.path)
    if recorded is not None and recorded.uncommitted and trees.has_object(part.git, recorded.head):
        committed = {entry.path for entry in trees.list_tree(part.git, recorded.head)}
        written = trees.list_tree(part.git, recorded.tree)
        paths += [entry.path for entry in written if entry.path not in committed]
    return [part.path_from_root(path) for path in paths]


def _update_submodules(git: Git, *options: str) -> None:
    """Put submodules at the commits that their parents name; none is fetched or forced."""
    near = git.with_settings("protocol.allow=never").with_variables(GIT_LITERAL_PATHSPECS="1")
    near.text("submodule", "--quiet", "update", "--init", "--no-fetch", *options)


def _remove_submodule_folder(git: Git, git_dir: Path, path: str) -> None:
    """Remove a submodule's folder; with ignored files in it, it is moved into the repository instead."""
    directory = git.directory / path
    options = ("-o", "-i", "-z", "--directory", "--exclude-standard")
    # one of an older git has its repository, with branches of anybody's, in it
    if (directory / ".git").is_dir() or git.in_directory(directory).fields("ls-files", *options):
        kept_folder = git_dir / checkout_state.OWN_FOLDER / "kept"
        kept_folder.mkdir(exist_ok=True)
        target = Path(tempfile.mkdtemp(prefix=f"{directory.name}-", dir=kept_folder)) / directory.name
        directory.rename(target)
        log.log_warning(
            f"{path} is no longer a submodule; its folder, with files that git ignores, is now {target}"
        )
    else:
        shutil.rmtree(directory)
    commits.remove_files(git.directory, [path])  # empty folders above it


def _touches_sources(
    part: trees.TreePart, before: checkout_state.CheckoutState, record: hipify_record.HipifyRecord
) -> bool:
    """Tell whether patches changed a file that hipify may have translated to another one."""
    changes = trees.list_differences(part.git, "diff-tree", "-r", before.left[part.path].head, part.head)
    return any(
        not change.of_submodule and change.path not in record.made and change.path not in record.rewritten
        for change in changes
    )


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
