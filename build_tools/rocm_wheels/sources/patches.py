"""Patch sets: chosen, read, applied before and after hipify, and saved from the commits of a checkout.

A set is a folder ``patches/<project>/<line>/`` with ``base/`` (on upstream's commit) and
``hipified/`` (on what hipify made of it). Files of a submodule lie under its path in there. They are what
`git am` takes, and `git format-patch` writes. Committer and date of a commit are ours and its author's, so a
patch on the same commit is the same commit, made by anybody.

A set is planned as commits first, and files are written after: by the steps of `git am` (`mailinfo`, `apply`,
`commit-tree`) in an index of its own, where `am` itself would need the working tree. Submodules go before the
repository that holds them: it then names their new commits. What is saved is applied before, in the
repository's objects: a commit that would come back as another one is refused, so that saving, checking out
and saving again changes no byte.
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rocm_wheels.core import errors, log
from rocm_wheels.core.files import lock_folder, write_atomically
from rocm_wheels.models.project import Project
from rocm_wheels.sources import checkout_state, own_changes, trees
from rocm_wheels.sources.commits import build_tree, remove_files, write_commit
from rocm_wheels.sources.git import OUR_EMAIL, OUR_NAME, Git, disable_private_filters, find_git_directory

PATCH_STAGES = ("base", "hipified")
_SET_NAME = re.compile(r"\w[\w.+-]*\Z")
_LINE_VERSION = re.compile(r"v?(\d+\.\d+)(?:[.-].*)?\Z")


@dataclass(frozen=True)
class Patch:
    """One file: its name from the set's folder (with /), and its bytes."""

    name: str
    data: bytes


PatchSeries = Mapping[str, Sequence[Patch]]


@dataclass(frozen=True)
class PatchSet:
    """A set as it was read: by submodule path (``""``: the root), in the order of application."""

    folder: Path
    base: Mapping[str, tuple[Patch, ...]]
    hipified: Mapping[str, tuple[Patch, ...]]

    @property
    def digest(self) -> str:
        """Return a SHA-256 over names and content; empty for a set without patches."""
        whole = hashlib.sha256()
        patches = self.list_patches()
        for patch in patches:
            name = patch.name.encode("utf-8", "surrogateescape")
            whole.update(b"%d %s%d " % (len(name), name, len(patch.data)) + patch.data)
        return whole.hexdigest() if patches else ""

    def list_patches(self) -> list[Patch]:
        """Return every patch, sorted by name."""
        groups = (*self.base.values(), *self.hipified.values())
        return sorted((patch for group in groups for patch in group), key=lambda patch: patch.name)


def read_patch_set(folder: Path) -> PatchSet:
    """Read a set; an empty one where there is no folder.

    Raises DataError for anything in it that would not be applied (a wrong folder, a file of
    another kind): a patch that is left out by mistake must not go unseen. README files and
    names with a leading dot are nobody's patches.
    """
    stages: dict[str, dict[str, list[Patch]]] = {stage: {} for stage in PATCH_STAGES}
    for path in folder.rglob("*") if folder.is_dir() else ():
        name = path.relative_to(folder).as_posix()
        stage, _, rest = name.partition("/")
        if path.is_dir() or path.name.startswith((".", "README")):
            continue
        if stage not in PATCH_STAGES or not rest:
            raise errors.DataError(
                f"{path} is neither in base/ nor in hipified/ of its set", tip="move it there"
            )
        if path.suffix != ".patch":
            raise errors.DataError(
                f"{path} would not be applied: its name does not end in .patch",
                tip="rename it, or remove it from the set",
            )
        try:
            patch = Patch(name, path.read_bytes())
        except OSError as cause:
            tip = "correct it, or remove it from the set"
            raise errors.DataError(f"{path} cannot be read", tip=tip) from cause
        stages[stage].setdefault(rest.rpartition("/")[0], []).append(patch)
    return _make_patch_set(folder, stages["base"], stages["hipified"])


def _make_patch_set(folder: Path, base: PatchSeries, hipified: PatchSeries) -> PatchSet:
    stages = (
        {module: tuple(sorted(group, key=lambda p: p.name)) for module, group in series.items() if group}
        for series in (base, hipified)
    )
    return PatchSet(folder, *stages)


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
    if name is not None and name not in lines:
        names = ", ".join(lines) or "none"
        raise errors.UsageError(
            f"{folder / project} has no patch set {name!r}", tip=f"it has: {names}; --no-patch does without"
        )
    chosen = name or match_line(line or ref, lines)
    if chosen is None and lines:
        log.log_note(
            f"no patches: {folder / project} has sets for {', '.join(lines)}, none for {line or ref}"
        )
    return None if chosen is None else read_patch_set(folder / project / chosen)


def choose_patch_folder(project: str, folder: Path, *, name: str | None, made_with: str, ref: str) -> Path:
    """Return the folder of the set that a checkout's commits go to.

    The one named, else the one it was made with, else the ref's line (a commit has none). Raises
    UsageError where there is none, or the name is none of a folder.
    """
    short = re.sub(r"\Arefs/(heads|tags)/", "", ref).removeprefix("release/").replace("/", "-")
    fallback = "" if re.fullmatch("[0-9a-f]{40}", ref) else short
    chosen = (
        name if name is not None else made_with or match_line(ref, list_lines(project, folder)) or fallback
    )
    if not chosen:
        raise errors.UsageError(
            "there is no name for the patch set: the tree was not checked out from a branch or tag",
            tip="name it with --patchset, by the release line as a rule",
        )
    if not _SET_NAME.match(chosen):
        raise errors.UsageError(
            f"{chosen!r} is not a name for a patch set",
            tip="use letters, digits, and . _ + - after the first",
        )
    return folder / project / chosen


_DATE = re.compile(r"(?:\w{3}, )?\d{1,2} \w{3} \d{4} \d\d:\d\d:\d\d [+-]\d{4}\Z")
_BASE = re.compile(rb"^base-commit: ([0-9a-f]{40})$", re.MULTILINE)
_FROM = re.compile(rb"\AFrom ([0-9a-f]{40}) ")
_HUNK = re.compile(rb"^(@@ -\d+(?:,\d+)? \+\d+(?:,\d+)? @@).*$", re.MULTILINE)
_DIFF = re.compile(rb"^diff --git ", re.MULTILINE)
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


class PatchRefusedError(errors.SourceError):
    """A patch cannot be applied; the message names it and what it was made for."""


def commit_series(git: Git, start: str, patches: Sequence[Patch], *, where: str) -> list[str]:
    """Store a commit for each patch, on top of ``start``; return them.

    No file and no ref is touched. ``where`` says in messages what ``start`` is. Raises PatchRefusedError with
    the patch's name.
    """
    commits: list[str] = []
    with trees.temporary_index(git, None, keep=True) as index_git:
        index_git.text("read-tree", start)
        for patch in patches:
            author, message, changes = _read_mail(git, patch)
            if _DIFF.search(changes):
                _apply_changes(index_git, patch, changes, where)
            elif b"\n@@ -" in changes:
                raise PatchRefusedError(f"{patch.name} is not a git diff", tip="make it with `save-patches`")
            tree, activity = index_git.text("write-tree"), f"the commit of {patch.name}"
            words = ("commit-tree", tree, "-p", commits[-1] if commits else start)
            commits.append(index_git.with_variables(**author).text(*words, stdin=message, activity=activity))
    return commits


def _read_mail(git: Git, patch: Patch) -> tuple[dict[str, str], bytes, bytes]:
    """Take a patch file apart as `git am` does: git's variables of the commit, its message, and the changes.

    Raises PatchRefusedError for one without author or date.
    """
    if not patch.data.strip():
        raise PatchRefusedError(f"{patch.name} is empty", tip="remove it from the set, or write it again")
    with tempfile.TemporaryDirectory(prefix="rocm-wheels-patch-") as folder:
        message, changes = Path(folder, "message"), Path(folder, "changes")
        words = ("-b", "--encoding=UTF-8", "--no-scissors", str(message), str(changes))
        output = git.text("mailinfo", *words, stdin=patch.data, activity=f"reading {patch.name}")
        facts = dict(line.split(": ", 1) for line in output.splitlines() if ": " in line)
        body, diff = message.read_bytes().strip(b"\n"), changes.read_bytes()
    if not facts.get("Author") or not facts.get("Email") or not _DATE.match(facts.get("Date", "")):
        raise PatchRefusedError(
            f"{patch.name} has no author and date",
            tip="commit the change and make the file with `save-patches`",
        )
    variables = {
        "GIT_AUTHOR_NAME": facts["Author"],
        "GIT_AUTHOR_EMAIL": facts["Email"],
        "GIT_AUTHOR_DATE": facts["Date"],
        "GIT_COMMITTER_NAME": OUR_NAME,
        "GIT_COMMITTER_EMAIL": OUR_EMAIL,
        "GIT_COMMITTER_DATE": facts["Date"],
    }
    subject = facts.get("Subject", "").encode("utf-8", "surrogateescape")
    return variables, (subject + b"\n\n" + body if body else subject).rstrip() + b"\n", diff


def _apply_changes(index_git: Git, patch: Patch, changes: bytes, where: str) -> None:
    strict = index_git.with_settings("apply.ignoreWhitespace=no", "apply.whitespace=nowarn")
    words = ("apply", "--cached", "--binary", "--whitespace=nowarn", "-")
    try:
        strict.text(*words, stdin=changes, activity="git apply")
    except errors.SourceError as cause:
        made_for = "it does not say which commit it needs (no base-commit line)"
        if base := _BASE.search(patch.data):
            made_for = f"it needs commit {base[1].decode()}"
            if made_for.split()[-1][:12] in where:
                made_for += ", which is there; a patch before it, or hipify, gives something else now"
        elif (parent := _FROM.match(patch.data)) and int(parent[1], 16):
            made_for = f"it was made from commit {parent[1].decode()}, and needs the one before"
        raise PatchRefusedError(
            f"{patch.name} does not apply to {where}: {made_for}",
            tip="check that commit out with this patch set, move the patch to the new one (`git rebase`) and "
            "use `save-patches`; or remove it from the set, or use --no-patch",
        ) from cause


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


LINKS_MESSAGE = "DO NOT SUBMIT: SUBMODULES OF PATCHES"  # our commit that names patched submodules


def is_our_commit(email: str, subject: str) -> bool:
    """Tell whether a commit between the tags is no patch: hipify's, or the one that names submodules.

    Hipify's is known by its message alone: TheRock's scripts commit it in the user's name.
    """
    return subject == checkout_state.HIPIFY_MESSAGE or (email, subject) == (OUR_EMAIL, LINKS_MESSAGE)


def check_patch_request(patches: PatchSet | None, *, hipify: bool, commit: bool, submodules: bool) -> None:
    """Raise PatchRefusedError where a set cannot be applied the way the tree is wanted."""
    if patches is None:
        return
    if patches.hipified and hipify and not commit:
        raise PatchRefusedError(
            f"{patches.folder / 'hipified'} has patches, which go on top of the commit that hipify makes",
            tip="leave out --no-commit-hipify, or use --no-patch",
        )
    log.log_note(f"patches: {len(patches.list_patches())} in {patches.folder}")
    below = sorted({*patches.base, *(patches.hipified if hipify else ())} - {""})
    if below and not submodules:
        raise PatchRefusedError(
            f"{patches.folder} has patches for submodules ({', '.join(below)}), and there are to be none",
            tip="leave out --no-submodules, or use --no-patch",
        )
    if patches.hipified and not hipify:
        log.log_note(f"{patches.folder / 'hipified'} is left out: the tree is not hipified")


def apply_stage(
    parts: Sequence[trees.TreePart],
    git_dir: Path,
    state: checkout_state.CheckoutState,
    series: PatchSeries,
    name: str,
) -> checkout_state.CheckoutState:
    """Apply the patches of a stage (``base`` or ``hipified``); return the state of the tree then.

    ``parts`` are the tree's repositories; their commits are what ``state`` says. Files that do not differ
    keep their times. What is to be left is on the disk before the first file is written, so that a run after
    a crash knows it as ours. Raises PatchRefusedError, before a file is written, also for a file in the way
    that git ignores.
    """
    if not series:
        return state
    new = replace(state, left=plan_stage(parts, state.left, series, name))
    checkout_state.write_state(git_dir, replace(new, operation="checkout"))
    for part in reversed(parts):
        if new.left[part.path].head != state.left[part.path].head:
            try:
                own_changes.switch_to_commit(part.git, new.left[part.path].head)
            except errors.SourceError as cause:
                raise PatchRefusedError("the patches cannot be applied", tip=cause.tip) from cause
    log.log_note(f"{sum(map(len, series.values()))} {name} patches applied")
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
        submodules = ", ".join(sorted(set(parts) - {""})) or "none"
        raise PatchRefusedError(
            f"{series[missing[0]][0].name} is for a submodule {missing[0]}, "
            f"which is not in {tree[0].git.directory}",
            tip=f"its submodules: {submodules}; move the folder, or use --no-patch",
        )
    new: dict[str, checkout_state.RepositoryState] = {}
    for path in reversed(parts):
        git, state, patches = parts[path].git, states[path], series.get(path, ())
        links = {
            below.removeprefix(f"{path}/"): left.head
            for below, left in new.items()
            if left.head != states[below].head and trees.find_holder(below, parts) == path
        }
        head = state.head
        if links:
            named = build_tree(git, head, {}, links)
            head = write_commit(git, named, [head], LINKS_MESSAGE, dated_like=state.upstream)
        if patches:
            base = "upstream's" if stage == "base" else "what hipify made of upstream's"
            where = f"{base} {state.upstream[:12]}" + (f" in {path}" if path else "")
            before, head = head, commit_series(git, head, patches, where=where)[-1]
            changes = trees.list_differences(git, "diff-tree", "-r", before, head)
            if moved := min((change.path for change in changes if change.of_submodule), default=""):
                raise PatchRefusedError(
                    f"the patches in {patches[0].name.rpartition('/')[0]} add, remove or move the submodule "
                    f"{moved}",
                    tip="patch what is in it: the folder of its path takes the patches",
                )
        changed = head != state.head
        tree_id = git.text("rev-parse", f"{head}^{{tree}}") if changed else state.tree
        new[path] = replace(state, head=head, tree=tree_id)
    return dict(reversed(new.items()))


@dataclass(frozen=True)
class SavedPatches:
    """``patches``: what the set holds now, by name; ``written`` and ``removed``: what changed on the disk."""

    folder: Path
    patches: tuple[str, ...]
    written: tuple[str, ...]
    removed: tuple[str, ...]


def save_patches(
    project: Project, directory: Path, folder: Path, *, replace_others: bool, env: Mapping[str, str]
) -> SavedPatches:
    """Write the commits of ``directory`` to the set in ``folder``: base and, where hipified, hipified.

    What hipify makes of them need not be there: `checkout` hipifies what patches change.
    ``replace_others``: also over patches that this tree was not made with. Raises SourceError,
    with nothing written: no tags, changes that are not committed, history with a merge or not on
    top of the tags, a commit that no patch can give back.
    """
    git = disable_private_filters(_open_checkout(directory, env))
    git_dir = find_git_directory(git)
    with lock_folder(git_dir / checkout_state.OWN_FOLDER, purpose=f"save-patches of {project.name}"):
        state = checkout_state.read_state(git_dir)
        parts = trees.list_repositories(git)
        _require_settled_tree(git, parts, state)
        tags = {part.path: _read_tags(part) for part in parts if part.head}
        old = read_patch_set(folder)
        is_hipified = bool(tags[""][1])
        base: dict[str, list[Patch]] = {}
        hipified: dict[str, Sequence[Patch]] = {} if is_hipified else dict(old.hipified)
        if hipified:
            log.log_note(f"{folder / 'hipified'} stays as it is: the tree is not hipified")
        for part in parts:
            if part.path in tags:
                upstream, boundary = tags[part.path]
                base[part.path] = _make_series(part, "base", upstream, upstream, boundary or part.head)
                if is_hipified:
                    start = boundary or part.head
                    hipified[part.path] = _make_series(part, "hipified", upstream, start, part.head)
        new = _make_patch_set(folder, base, hipified)
        known_digests = ("", state.patches, state.saved) if state is not None else ("",)
        if new.digest != old.digest and old.digest not in known_digests and not replace_others:
            raise errors.SourceError(
                f"{folder} has patches that {directory} was not made with; they would be lost",
                tip="check out with that set first (--patchset), save under another name, or use --replace",
            )
        saved = _write_set(old, new)
        if state is not None:
            checkout_state.write_state(git_dir, replace(state, saved=new.digest))
    return saved


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
    if state is not None and state.operation is not None:
        raise errors.SourceError(
            f"the {state.operation} in {git.directory} was interrupted",
            tip="run `checkout` again; it continues",
        )
    own_changes.refuse_unfinished_operations(parts)
    for part in parts:
        recorded = state.left.get(part.path) if state is not None and state.hipify == "uncommitted" else None
        if recorded is None or not recorded.uncommitted or part.head == recorded.head:
            continue
        tag = f"refs/tags/{checkout_state.HIPIFY_TAG}"
        if not part.git.succeeds("merge-base", "--is-ancestor", tag, "HEAD"):
            # else what hipify first wrote is committed, and what comes after it is in commits of its own
            raise errors.SourceError(
                f"{part.git.directory} has commits made while what hipify wrote was not committed; "
                "the two cannot be told apart",
                tip="check out with --commit-hipify (or --no-hipify) and commit there",
            )
    files = [
        part.path_from_root(path) for part in parts for _, path in own_changes.list_own_changes(part, state)
    ]
    if files:
        more = f" and {len(files) - 5} more" if len(files) > 5 else ""
        raise errors.SourceError(
            f"{git.directory} has changes that are not committed: {', '.join(files[:5])}{more}",
            tip="commit them, one commit a patch, or put them away with `git stash -u`",
        )


def _read_tags(part: trees.TreePart) -> tuple[str, str]:
    """Return what the two tags of a repository name; the second is empty without that tag."""
    commits: list[str] = []
    for name in (checkout_state.UPSTREAM_TAG, checkout_state.HIPIFY_TAG):
        commit = part.git.text("for-each-ref", "--format=%(objectname)", f"refs/tags/{name}")
        if commit and not part.git.succeeds("merge-base", "--is-ancestor", commit, part.head):
            raise errors.SourceError(
                f"HEAD of {part.git.directory} is not on top of {name}",
                tip=f"`git rebase --onto {name} <where your work begins>`, or run `checkout` again",
            )
        if not commit and not commits:
            raise errors.SourceError(
                f"{part.git.directory} has no tag {name}", tip="run `checkout` first; it sets it"
            )
        commits.append(commit)
    return commits[0], commits[1]


def _make_series(part: trees.TreePart, stage: str, upstream: str, start: str, end: str) -> list[Patch]:
    """Return the patches of a stage in one repository, after a trial that they give the same again."""
    git = part.git
    commits = _list_commits(git, start, end, hipified=stage == "hipified")
    patches = [format_patch(git, commit, number, upstream) for number, commit in enumerate(commits, 1)]
    try:
        again = commit_series(git, start, patches, where=f"{start[:12]}, in a trial") if patches else []
    except PatchRefusedError as cause:
        raise errors.SourceError(
            f"the commits in {git.directory} cannot be saved as patches one after another",
            tip="keep them between the tags in one line, without what a mail cannot hold "
            "(a message with a line that begins with `diff -` or `---`)",
        ) from cause
    for number, (commit, patch) in enumerate(zip(again, patches, strict=True), 1):
        if format_patch(git, commit, number, upstream) != patch:
            raise errors.SourceError(
                f"commit {commits[number - 1][:12]} of {git.directory} ({patch.name}) would come back as "
                "another one: its message or author has something that a mail cannot hold",
                tip="reword it: no line that begins with `---`, `diff -` or `From:`, no [PATCH] in front",
            )
    return [Patch("/".join(filter(None, (stage, part.path, patch.name))), patch.data) for patch in patches]


def _list_commits(git: Git, start: str, end: str, *, hipified: bool) -> list[str]:
    """List the commits to save, oldest first: not ours, not those that only move submodules.

    ``hipified``: what hipify made of them belongs to them. A commit is listed with it where another one
    follows, which may change that further.
    """
    commits: list[str] = []
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
            if hipified and subject == checkout_state.HIPIFY_MESSAGE:
                translated = commit
            continue
        changes = trees.list_differences(git, "diff-tree", "-r", parent, commit)
        if changes and all(change.of_submodule for change in changes):
            continue
        if commits and translated:  # the one before, with what hipify made of it
            head, _, message = git.text("cat-file", "commit", commits[-1]).partition("\n\n")
            tree = git.text("rev-parse", f"{translated}^{{tree}}")
            again = "\n".join((f"tree {tree}", *head.split("\n")[1:], "", message, ""))
            data = again.encode("utf-8", "surrogateescape")
            commits[-1] = git.text("hash-object", "-t", "commit", "-w", "--stdin", stdin=data)
        commits.append(commit)
        translated = ""
    return commits


def _write_set(old: PatchSet, new: PatchSet) -> SavedPatches:
    """Make the folder hold ``new``; files that do not change are not written, others appear whole."""
    before = {patch.name: patch.data for patch in old.list_patches()}
    after = {patch.name: patch.data for patch in new.list_patches()}
    written = tuple(name for name, data in after.items() if before.get(name) != data)
    removed = tuple(name for name in before if name not in after)
    for name in written:
        write_atomically(new.folder / name, after[name])
    remove_files(new.folder, removed)
    return SavedPatches(new.folder, tuple(after), written, removed)
