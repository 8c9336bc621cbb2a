"""Patch sets: chosen, read, applied before and after hipify, and saved from the commits of a checkout.

A set is a folder ``patches/<project>/<line>/`` with ``base/`` (on upstream's commit) and
``hipified/`` (on what hipify made of it). Files of a submodule lie under its path in there. They are what
`git am` takes, and `git format-patch` writes. Committer and date of a commit are ours and its author's, so a
patch on the same commit is the same commit, made by anybody.

A set is planned as commits first, and files are written after: by the steps of `git am` (`mailinfo`, `apply`,
`commit-tree`) in an index of its own. `am` itself needs the working tree, stops at a commit that changes
nothing (before git 2.35), and takes a mail without a date for one of today. Submodules go before the
repository that holds them: it then names their new commits.
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rocm_wheels.core import errors, files, log
from rocm_wheels.models.project import Project
from rocm_wheels.sources import checkout_state, commits, own_changes, trees
from rocm_wheels.sources.git import OUR_EMAIL, OUR_NAME, Git, disable_private_filters, find_git_directory

LINKS_MESSAGE = "DO NOT SUBMIT: SUBMODULES OF PATCHES"  # our commit that names patched submodules
_STAGES = ("base", "hipified")
_SET_NAME = re.compile(r"\w[\w.+-]*\Z")
_LINE_VERSION = re.compile(r"v?(\d+\.\d+)(?:[.-].*)?\Z")


class PatchRefusedError(errors.SourceError):
    """A patch cannot be applied; the message names it and what it was made for."""


@dataclass(frozen=True)
class Patch:
    """One file: its name from the set's folder (with /), and its bytes."""

    name: str
    data: bytes

    @property
    def module(self) -> str:
        """The path of the submodule that it is for (``""``: the root)."""
        return self.name.partition("/")[2].rpartition("/")[0]


PatchSeries = Mapping[str, Sequence[Patch]]


@dataclass(frozen=True)
class PatchSet:
    """A set as it was read; ``patches`` are in the order of their names, and of application."""

    folder: Path
    patches: tuple[Patch, ...]

    def get_series(self, stage: str) -> PatchSeries:
        """Return the patches of ``base`` or ``hipified`` by the paths of submodules (``""``: the root)."""
        series: dict[str, list[Patch]] = {}
        for patch in self.patches:
            if patch.name.startswith(f"{stage}/"):
                series.setdefault(patch.module, []).append(patch)
        return series

    @property
    def digest(self) -> str:
        """Return a SHA-256 over names and content; empty for a set without patches."""
        whole = hashlib.sha256()
        for patch in self.patches:
            name = patch.name.encode("utf-8", "surrogateescape")
            whole.update(b"%d %s%d " % (len(name), name, len(patch.data)) + patch.data)
        return whole.hexdigest() if self.patches else ""


def read_patch_set(folder: Path) -> PatchSet:
    """Read a set; an empty one where there is no folder.

    Raises DataError for anything in it that would not be applied (a wrong folder, a file of
    another kind): a patch that is left out by mistake must not go unseen. README files and
    names with a leading dot are nobody's patches.
    """
    patches = []
    for path in folder.rglob("*") if folder.is_dir() else ():
        name, data = path.relative_to(folder).as_posix(), b""
        if path.is_dir() or path.name.startswith((".", "README")):
            continue
        fault, tip = "", "rename or correct it, or remove it from the set"
        if "/" not in name or name.partition("/")[0] not in _STAGES:
            fault, tip = "is neither in base/ nor in hipified/ of its set", "move it there"
        elif path.suffix != ".patch":
            fault = "would not be applied: its name does not end in .patch"
        else:
            try:
                data = path.read_bytes()
            except OSError as cause:
                fault = f"cannot be read: {cause.strerror}"
        if fault:
            raise errors.DataError(f"{path} {fault}", tip=tip)
        patches.append(Patch(name, data))
    return PatchSet(folder, tuple(sorted(patches, key=lambda patch: patch.name)))


def list_lines(project: str, folder: Path) -> list[str]:
    """List the lines that have a set of a project in ``folder``."""
    return sorted(path.name for path in (folder / project).glob("[!.]*") if path.is_dir())


def match_line(ref: str, lines: list[str]) -> str | None:
    """Return the line, of those ``lines``, that a ref belongs to.

    ``release/2.9`` and ``v2.9.1-rc2`` are ``2.9``; other refs are lines of their own name.
    """
    short = re.sub(r"\Arefs/(heads|tags|remotes/origin)/", "", ref)
    last = short.rsplit("/", 1)[-1] if short.startswith("release/") else short
    version = _LINE_VERSION.match(last)
    candidates = [short, short.replace("/", "-"), last, *([version[1]] if version else [])]
    return next((name for name in candidates if name in lines), None)


def choose_patch_set(
    project: str, ref: str, folder: Path, *, name: str | None = None, line: str | None = None
) -> PatchSet | None:
    """Choose the set of a checkout: the one named, else the one of the line, else of the ref's line.

    ``folder`` holds a folder a project. ``None``: no set; that is said where the project has
    sets, but none for this line. Raises UsageError for a name that no set has.
    """
    lines = list_lines(project, folder)
    names = ", ".join(lines) or "none"
    if name is not None and name not in lines:
        raise errors.UsageError(
            f"{folder / project} has no patch set {name!r}",
            tip=f"it has: {names}; an empty folder as ROCM_WHEELS_PATCH_DIR has none",
        )
    chosen = name or match_line(line or ref, lines)
    if chosen is None and lines:
        log.log_note(f"no patches: {folder / project} has sets for {names}, none for {line or ref}")
    return None if chosen is None else read_patch_set(folder / project / chosen)


def choose_patch_folder(project: str, folder: Path, *, name: str | None, made_with: str, ref: str) -> Path:
    """Return the folder of the set that a checkout's commits go to.

    The one named, else the one it was made with, else the ref's line (a commit has none). Raises
    UsageError where there is none, or the name is none of a folder.
    """
    chosen = made_with or match_line(ref, list_lines(project, folder)) or ""
    if not chosen and not re.fullmatch("[0-9a-f]{40}", ref):
        chosen = re.sub(r"\Arefs/(heads|tags)/", "", ref).removeprefix("release/").replace("/", "-")
    chosen = chosen if name is None else name
    if not chosen:
        raise errors.UsageError(
            "there is no name for the patch set: the tree was not checked out from a branch or tag",
            tip="name it with --patchset, by the release line as a rule",
        )
    check_set_name(chosen)
    return folder / project / chosen


def check_set_name(name: str) -> None:
    """Raise UsageError for what is not the name of a patch set."""
    if not _SET_NAME.match(name):
        raise errors.UsageError(
            f"{name!r} is not a name for a patch set", tip="use letters, digits, and . _ + - after the first"
        )


_DATE = re.compile(r"(?:\w{3}, )?\d{1,2} \w{3} \d{4} \d\d:\d\d:\d\d [+-]\d{4}\Z")
_BASE = re.compile(rb"^base-commit: ([0-9a-f]{40})$", re.MULTILINE)
_HUNK = re.compile(rb"^(@@ -\d+(?:,\d+)? \+\d+(?:,\d+)? @@).*$", re.MULTILINE)
_DIFF = re.compile(rb"^diff --git ", re.MULTILINE)


def commit_series(git: Git, start: str, patches: Sequence[Patch], *, where: str) -> list[str]:
    """Store a commit for each patch, on top of ``start``; return them.

    No file and no ref is touched. ``where`` says in messages what ``start`` is. Raises PatchRefusedError with
    the patch's name.
    """
    series = [start]
    with (
        trees.temporary_index(git, None, keep=True) as index_git,
        tempfile.TemporaryDirectory(prefix="rocm-wheels-patch-") as folder,
    ):
        index_git.text("read-tree", start)
        strict = index_git.with_settings("apply.ignoreWhitespace=no", "apply.whitespace=nowarn")
        for patch in patches:
            if not patch.data.strip():
                raise PatchRefusedError(f"{patch.name} is empty", tip="remove it, or write it again")
            body, diff = Path(folder, "body"), Path(folder, "diff")
            words = ("-b", "--encoding=UTF-8", "--no-scissors", str(body), str(diff))
            mail = git.text("mailinfo", *words, stdin=patch.data, activity=f"reading {patch.name}")
            head = dict(line.split(": ", 1) for line in mail.splitlines() if ": " in line)
            author, email, date = (head.get(name, "") for name in ("Author", "Email", "Date"))
            changes = diff.read_bytes()
            fault = "" if author and email and _DATE.match(date) else "has no author and date"
            if b"\n@@ -" in changes and not _DIFF.search(changes):
                fault = "is not a git diff"
            if fault:
                tip = "commit the change and make the file with `save-patches`"
                raise PatchRefusedError(f"{patch.name} {fault}", tip=tip)
            if _DIFF.search(changes):
                try:
                    strict.text("apply", "--cached", "--binary", "-", stdin=changes, activity="git apply")
                except errors.SourceError as cause:
                    base = _BASE.search(patch.data)
                    needs = (
                        f"needs commit {base[1].decode()}" if base else "does not say which commit it needs"
                    )
                    raise PatchRefusedError(
                        f"{patch.name} does not apply to {where}: it {needs}",
                        tip="check that commit out with this patch set, move the patch to the new one "
                        "(`git rebase`) and use `save-patches`; or remove it from the set, or name an "
                        "empty folder as ROCM_WHEELS_PATCH_DIR",
                    ) from cause
            message = head.get("Subject", "").encode("utf-8", "surrogateescape") + b"\n\n"
            message += body.read_bytes().strip(b"\n")
            committing = index_git.with_variables(
                GIT_AUTHOR_NAME=author, GIT_AUTHOR_EMAIL=email, GIT_AUTHOR_DATE=date,
                GIT_COMMITTER_NAME=OUR_NAME, GIT_COMMITTER_EMAIL=OUR_EMAIL, GIT_COMMITTER_DATE=date,
            )  # fmt: skip
            tree, activity = index_git.text("write-tree"), f"the commit of {patch.name}"
            commit = ("commit-tree", tree, "-p", series[-1])
            series.append(committing.text(*commit, stdin=message.rstrip() + b"\n", activity=activity))
    return series[1:]


# Whatever a user may have configured (format.*, diff.*), a file comes out the same. No renames: which
# git finds depends on its version. No names of functions after @@: so do they.
# fmt: off
_FORMAT_OPTIONS = (
    "--always", "--binary", "--encode-email-headers", "--full-index", "--ignore-submodules=all",
    "--indent-heuristic", "--inter-hunk-context=0", "--diff-algorithm=myers", "--unified=3",
    "--src-prefix=a/", "--dst-prefix=b/", "--no-attach", "--no-base", "--no-color", "--no-cover-letter",
    "--no-ext-diff", "--no-from", "--no-notes", "--no-numbered", "--no-relative", "--no-renames",
    "--no-signature", "--no-signoff", "--no-stat", "--no-textconv", "--no-thread", "--no-to", "--no-cc",
    "--no-add-header", "--subject-prefix=PATCH", "--suffix=.patch", "--zero-commit",
)
_FORMAT_SETTINGS = (
    "core.abbrev=40", "core.compression=9", "core.quotePath=true", f"diff.orderFile={os.devnull}",
    "diff.suppressBlankEmpty=false", "format.filenameMaxLength=64", "format.forceInBodyFrom=false",
    "format.mboxrd=false", "i18n.logOutputEncoding=UTF-8", "log.showSignature=false",
)
# fmt: on


def format_patch(git: Git, commit: str, number: int, upstream: str) -> Patch:
    """Return a commit as a patch file that says it needs ``upstream``; submodules' commits are left out."""
    with tempfile.TemporaryDirectory(prefix="rocm-wheels-patch-") as folder:
        quiet = git.with_settings(*_FORMAT_SETTINGS)
        quiet.text("format-patch", *_FORMAT_OPTIONS, f"--start-number={number}", "-o", folder, "-1", commit)
        (file,) = Path(folder).iterdir()
        data = file.read_bytes()
    match = _DIFF.search(data)
    head, diff = (data[: match.start()], data[match.start() :]) if match else (data, b"")
    head = head.rstrip(b"\n")
    base = b"\n" if b"\n\n" in head else b"\n\n"  # a line without text ends the headers
    base += f"---\nbase-commit: {upstream}\n".encode("ascii")
    return Patch(file.name, head + base + (b"\n" + _HUNK.sub(rb"\1", diff) if diff else b""))


def is_our_commit(email: str, subject: str) -> bool:
    """Tell whether a commit between the tags is no patch: hipify's, or the one that names submodules.

    Hipify's is known by its message alone: TheRock's scripts commit it in the user's name.
    """
    return subject == checkout_state.HIPIFY_MESSAGE or (email, subject) == (OUR_EMAIL, LINKS_MESSAGE)


def check_patch_request(patches: PatchSet | None, *, hipify: bool, commit: bool, submodules: bool) -> None:
    """Raise PatchRefusedError where a set cannot be applied the way the tree is wanted."""
    if patches is None:
        return
    hipified = patches.folder / "hipified"
    base_series, hipified_series = map(patches.get_series, _STAGES)
    fault, option = "", ""
    below = sorted({*base_series, *(hipified_series if hipify else ())} - {""})
    if hipified_series and hipify and not commit:
        fault = f"{hipified} has patches, which go on top of the commit that hipify makes"
        option = "--no-commit-hipify"
    elif below and not submodules:
        fault = f"{patches.folder} has patches for submodules ({', '.join(below)}), and there are to be none"
        option = "--no-submodules"
    if fault:
        raise PatchRefusedError(
            fault, tip=f"leave out {option}, or name an empty folder as ROCM_WHEELS_PATCH_DIR"
        )
    log.log_note(f"patches: {len(patches.patches)} in {patches.folder}")
    if hipified_series and not hipify:
        log.log_note(f"{hipified} is left out: the tree is not hipified")


def apply_stage(
    parts: Sequence[trees.TreePart],
    git_dir: Path,
    state: checkout_state.CheckoutState,
    patches: PatchSet,
    stage: str,
) -> checkout_state.CheckoutState:
    """Apply the patches of a stage (``base`` or ``hipified``); return the state of the tree then.

    ``parts`` are the tree's repositories; their commits are what ``state`` says. Files that do not differ
    keep their times. What is to be left is on the disk before the first file is written, so that a run after
    a crash knows it as ours. Raises PatchRefusedError, before a file is written, also for a file in the way
    that git ignores.
    """
    series = patches.get_series(stage)
    if not series:
        return state
    new = replace(state, left=plan_stage(parts, state.left, series, stage))
    checkout_state.write_state(git_dir, replace(new, operation="checkout"))
    for part in reversed(parts):
        if new.left[part.path].head != state.left[part.path].head:
            try:
                own_changes.switch_to_commit(part.git, new.left[part.path].head)
            except errors.SourceError as cause:
                raise PatchRefusedError("the patches cannot be applied", tip=cause.tip) from cause
    log.log_note(f"{sum(map(len, series.values()))} {stage} patches applied")
    return new


def plan_stage(
    tree: Sequence[trees.TreePart],
    states: Mapping[str, checkout_state.RepositoryState],
    series: PatchSeries,
    stage: str,
) -> dict[str, checkout_state.RepositoryState]:
    """Store the commits of a stage on top of what lies in the tree; return what is to lie there.

    Raises PatchRefusedError: a patch that does not apply, one for a submodule that is not there,
    one that moves a submodule. No file and no ref is touched.
    """
    parts = {part.path: part for part in tree}
    if missing := sorted(set(series) - set(parts)):
        submodules = ", ".join(filter(None, parts)) or "none"
        raise PatchRefusedError(
            f"{series[missing[0]][0].name} is for a submodule {missing[0]}, "
            f"which is not in {tree[0].git.directory}",
            tip=f"its submodules: {submodules}; move it, or name an empty folder as ROCM_WHEELS_PATCH_DIR",
        )
    new: dict[str, checkout_state.RepositoryState] = {}
    for path in reversed(parts):
        git, state, head = parts[path].git, states[path], states[path].head
        links = {
            below.removeprefix(f"{path}/"): left.head
            for below, left in new.items()
            if left.head != states[below].head and trees.find_holder(below, parts) == path
        }
        if links:
            named = commits.build_tree(git, head, {}, links)
            head = commits.write_commit(git, named, [head], LINKS_MESSAGE, dated_like=state.upstream)
        if patches := series.get(path, ()):
            base = "upstream's" if stage == "base" else "what hipify made of upstream's"
            where = f"{base} {state.upstream[:12]}" + (f" in {path}" if path else "")
            before, head = head, commit_series(git, head, patches, where=where)[-1]
            changes = trees.list_differences(git, "diff-tree", "-r", before, head)
            if moved := next((change.path for change in changes if change.of_submodule), ""):
                raise PatchRefusedError(
                    f"the patches in {stage}/{path} add, remove or move the submodule {moved}",
                    tip="patch what is in it: the folder of its path takes the patches",
                )
        tree_id = state.tree if head == state.head else git.text("rev-parse", f"{head}^{{tree}}")
        new[path] = replace(state, head=head, tree=tree_id)
    return dict(reversed(new.items()))


@dataclass(frozen=True)
class SavedPatches:
    """``patches``: what the set holds now, by name; ``written`` and ``removed``: what changed on the disk."""

    folder: Path
    patches: tuple[str, ...]
    written: tuple[str, ...]
    removed: tuple[str, ...]


def save_patches(project: Project, directory: Path, folder: Path, *, env: Mapping[str, str]) -> SavedPatches:
    """Write the commits of ``directory`` to the set in ``folder``: base and, where hipified, hipified.

    What hipify makes of them need not be there: `checkout` hipifies what patches change.
    Raises SourceError, with nothing written: no tags, changes that are not committed, history with a merge
    or not on top of the tags, a commit that no patch can give back, a set that this tree was not made with.
    """
    git = disable_private_filters(_open_checkout(directory, env))
    git_dir = find_git_directory(git)
    with files.lock_folder(git_dir / checkout_state.OWN_FOLDER, purpose=f"save-patches of {project.name}"):
        state = checkout_state.read_state(git_dir)
        parts = trees.list_repositories(git)
        _require_settled_tree(git, parts, state)
        tags = {part.path: commits.require_tags(part) for part in parts if part.head}
        old, saved = read_patch_set(folder), list[Patch]()
        for part in (part for part in parts if part.head):
            upstream, hipified = tags[part.path]
            if hipified:
                commits.require_below(part, checkout_state.HIPIFY_TAG, hipified)
            boundary = hipified or part.head
            saved += _make_series(part, "base", upstream, upstream, boundary)
            if tags[""][1]:
                saved += _make_series(part, "hipified", upstream, boundary, part.head)
        kept = [] if tags[""][1] else [p for p in old.patches if p.name.startswith("hipified/")]
        if kept:
            log.log_note(f"{folder / 'hipified'} stays as it is: the tree is not hipified")
        new = PatchSet(folder, tuple(sorted([*saved, *kept], key=lambda patch: patch.name)))
        known_digests = ("", state.patches, state.saved) if state is not None else ("",)
        if new.digest != old.digest and old.digest not in known_digests:
            raise errors.SourceError(
                f"{folder} has patches that {directory} was not made with; they would be lost",
                tip="check out with that set first (--patchset), or save under another name",
            )
        names = tuple(patch.name for patch in new.patches)
        written = tuple(patch.name for patch in new.patches if patch not in old.patches)
        for patch in new.patches:
            if patch.name in written:
                files.write_atomically(folder / patch.name, patch.data)
        removed = tuple(patch.name for patch in old.patches if patch.name not in names)
        commits.remove_files(folder, removed)
        if state is not None:
            checkout_state.write_state(git_dir, replace(state, saved=new.digest))
    return SavedPatches(folder, names, written, removed)


def _open_checkout(directory: Path, env: Mapping[str, str]) -> Git:
    if not (directory / ".git").exists():
        raise errors.SourceError(f"{directory} is not a git checkout", tip=trees.CHECKOUT_TIP)
    return Git(directory.absolute(), env)


def read_patch_origin(directory: Path, *, env: Mapping[str, str]) -> tuple[str, str]:
    """Return the name of the set that a tree was made with, and its ref; empty where that is not known."""
    state = checkout_state.read_state(find_git_directory(_open_checkout(directory, env)))
    return (state.patch_set, state.ref) if state is not None else ("", "")


def _require_settled_tree(
    git: Git, parts: Sequence[trees.TreePart], state: checkout_state.CheckoutState | None
) -> None:
    """Raise SourceError where what lies in a tree is not all in commits that can be told from hipify's."""
    checkout_state.refuse_interrupted(git.directory, state)
    own_changes.refuse_unfinished_operations(parts)
    changed = []
    for part in parts:
        recorded = state.left.get(part.path) if state is not None and state.hipify == "uncommitted" else None
        tag = f"refs/tags/{checkout_state.HIPIFY_TAG}"
        # with that tag below, what hipify first wrote is committed, and the rest is in commits of its own
        if (
            recorded is not None
            and recorded.uncommitted
            and part.head != recorded.head
            and not part.git.succeeds("merge-base", "--is-ancestor", tag, "HEAD")
        ):
            raise errors.SourceError(
                f"{part.git.directory} has commits made while what hipify wrote was not committed; "
                "the two cannot be told apart",
                tip="check out with --commit-hipify (or --no-hipify) and commit there",
            )
        changed += [part.path_from_root(path) for _, path in own_changes.list_own_changes(part, state)]
    if changed:
        more = f" and {len(changed) - 5} more" if len(changed) > 5 else ""
        raise errors.SourceError(
            f"{git.directory} has changes that are not committed: {', '.join(changed[:5])}{more}",
            tip="commit them, one commit a patch, or put them away with `git stash -u`",
        )


def _make_series(part: trees.TreePart, stage: str, upstream: str, start: str, end: str) -> list[Patch]:
    """Return the patches of a stage in one repository. Raises SourceError for a commit that none can hold."""
    git, head, patches = part.git, start, list[Patch]()
    for number, commit in enumerate(_list_commits(git, start, end, hipified=stage == "hipified"), 1):
        patch = format_patch(git, commit, number, upstream)
        try:  # whether it comes back as it was
            [head] = commit_series(git, head, [patch], where=f"{head[:12]}, in a trial")
            same = format_patch(git, head, number, upstream) == patch
        except PatchRefusedError:
            same = False
        if not same:
            raise errors.SourceError(
                f"commit {commit[:12]} of {git.directory} ({patch.name}) cannot be saved: it would come "
                "back as another one, for its message or author has something that a mail cannot hold",
                tip="reword it: no line that begins with `---`, `diff -` or `From:`, no [PATCH] in front",
            )
        patches.append(Patch("/".join(filter(None, (stage, part.path, patch.name))), patch.data))
    return patches


def _list_commits(git: Git, start: str, end: str, *, hipified: bool) -> list[str]:
    """List the commits to save, oldest first: not ours, not those that only move submodules.

    ``hipified``: what hipify made of them belongs to them. A commit is listed with it where another one
    follows, which may change that further.
    """
    wanted: list[str] = []
    translated = ""
    form = "--format=%H%x09%P%x09%ce%x09%s"
    for line in git.fields("log", "-z", "--reverse", "--topo-order", form, f"{start}..{end}", "--"):
        commit, parent, email, subject = line.split("\t", 3)
        if " " in parent:
            raise errors.SourceError(
                f"commit {commit[:12]} of {git.directory} is a merge ({subject}), which no patch can hold",
                tip="`git rebase` your work onto the tag",
            )
        if is_our_commit(email, subject):
            translated = commit if hipified and subject == checkout_state.HIPIFY_MESSAGE else translated
            continue
        changes = trees.list_differences(git, "diff-tree", "-r", parent, commit)
        if changes and all(change.of_submodule for change in changes):
            continue
        if wanted and translated:  # the one before, with what hipify made of it
            tree = git.text("rev-parse", f"{translated}^{{tree}}")
            again = re.sub(r"\Atree \w+", f"tree {tree}", git.text("cat-file", "commit", wanted[-1]))
            data = f"{again}\n".encode("utf-8", "surrogateescape")
            wanted[-1] = git.text("hash-object", "-t", "commit", "-w", "--stdin", stdin=data)
        wanted.append(commit)
        translated = ""
    return wanted
