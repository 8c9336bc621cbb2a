"""Patch sets: chosen, read, applied before and after hipify, and saved from the commits of a checkout.

A set is a folder ``patches/<project>/<line>/`` with ``base/`` (on upstream's commit) and
``hipified/`` (on what hipify made of it). Files of a submodule lie under its path in there. They are what
`git am` takes. Committer and date of a commit are ours and its author's, so a patch on the same commit is
the same commit, made by anybody.

A set is planned as commits first, and files are written after. Submodules go before the repository that holds
them: it then names their new commits. What is saved is applied before, in the repository's objects: a commit
that would come back as another one is refused, so that saving, checking out and saving again changes no
byte.
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
from rocm_wheels.sources.commits import build_tree, write_commit
from rocm_wheels.sources.git import OUR_EMAIL, OUR_NAME, Git, disable_private_filters, find_git_directory

PATCH_STAGES = ("base", "hipified")
_SET_NAME = re.compile(r"\w[\w.+-]*\Z")
_LINE_VERSION = re.compile(r"v?(\d+\.\d+)(?:[.-].*)?\Z")


@dataclass(frozen=True)
class Patch:
    """One file: its name from the set's folder (with /), and its bytes."""

    name: str
    data: bytes


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
        patch_list = [
            p for stage in (self.base, self.hipified) for patches in stage.values() for p in patches
        ]
        return sorted(patch_list, key=lambda patch: patch.name)


def read_patch_set(folder: Path) -> PatchSet:
    """Read a set; an empty one where there is no folder.

    Raises DataError for anything in it that would not be applied (a wrong folder, a file of
    another kind): a patch that is left out by mistake must not go unseen. README files and
    names with a leading dot are nobody's patches.
    """
    stages: dict[str, dict[str, list[Patch]]] = {stage: {} for stage in PATCH_STAGES}
    for path in sorted(folder.rglob("*")) if folder.is_dir() else []:
        relative = path.relative_to(folder)
        if path.is_dir() or path.name.startswith((".", "README")):
            continue
        if relative.parts[0] not in PATCH_STAGES or len(relative.parts) == 1:
            raise errors.DataError(
                f"{path} is neither in base/ nor in hipified/ of its set", tip="move it there"
            )
        if path.suffix != ".patch":
            raise errors.DataError(
                f"{path} would not be applied: its name does not end in .patch",
                tip="rename it, or remove it from the set",
            )
        module = relative.parent.relative_to(relative.parts[0]).as_posix()
        patches = stages[relative.parts[0]].setdefault("" if module == "." else module, [])
        try:
            patches.append(Patch(relative.as_posix(), path.read_bytes()))
        except OSError as cause:
            raise errors.DataError(
                f"{path} cannot be read", tip="correct it, or remove it from the set"
            ) from cause
    ordered = {
        stage: {module: tuple(sorted(group, key=lambda p: p.name)) for module, group in modules.items()}
        for stage, modules in stages.items()
    }
    return PatchSet(folder, ordered["base"], ordered["hipified"])


def list_lines(project: str, folder: Path) -> list[str]:
    """List the lines that have a set of a project in ``folder``."""
    sets_folder = folder / project
    if not sets_folder.is_dir():
        return []
    return sorted(entry.name for entry in sets_folder.iterdir() if entry.is_dir() and entry.name[0] != ".")


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
    if name is not None:
        if name not in lines:
            names = ", ".join(lines) or "none"
            raise errors.UsageError(
                f"{folder / project} has no patch set {name!r}",
                tip=f"it has: {names}; --no-patch does without",
            )
        return read_patch_set(folder / project / name)
    matched = match_line(ref if line is None else line, lines)
    if matched is None:
        if lines:
            log.log_note(
                f"no patches: {folder / project} has sets for {', '.join(lines)}, none for {line or ref}"
            )
        return None
    return read_patch_set(folder / project / matched)


def choose_patch_folder(project: str, folder: Path, *, name: str | None, made_with: str, ref: str) -> Path:
    """Return the folder of the set that a checkout's commits go to.

    The one named, else the one it was made with, else the ref's line (a commit has none). Raises
    UsageError where there is none, or the name is none of a folder.
    """
    lines = list_lines(project, folder)
    short = re.sub(r"\Arefs/(heads|tags)/", "", ref).removeprefix("release/").replace("/", "-")
    fallback = "" if re.fullmatch("[0-9a-f]{40}", ref) else short
    chosen = name if name is not None else made_with or match_line(ref, lines) or fallback
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
_FORMAT_OPTIONS = (
    "--always",
    "--binary",
    "--encode-email-headers",
    "--full-index",
    "--ignore-submodules=all",
    "--indent-heuristic",
    "--inter-hunk-context=0",
    "--diff-algorithm=myers",
    "--dst-prefix=b/",
    "--no-attach",
    "--no-base",
    "--no-color",
    "--no-cover-letter",
    "--no-ext-diff",
    "--no-from",
    "--no-notes",
    "--no-numbered",
    "--no-relative",
    "--no-renames",
    "--no-signature",
    "--no-signoff",
    "--no-stat",
    "--no-textconv",
    "--no-thread",
    "--no-to",
    "--no-cc",
    "--no-add-header",
    "--src-prefix=a/",
    "--subject-prefix=PATCH",
    "--suffix=.patch",
    "--unified=3",
    "--zero-commit",
)
_FORMAT_SETTINGS = (
    "core.abbrev=40",
    "core.compression=9",
    "core.quotePath=true",
    f"diff.orderFile={os.devnull}",
    "diff.suppressBlankEmpty=false",
    "format.filenameMaxLength=64",
    "format.forceInBodyFrom=false",
    "format.mboxrd=false",
    "i18n.logOutputEncoding=UTF-8",
    "log.showSignature=false",
)


class PatchRefusedError(errors.SourceError):
    """A patch cannot be applied; the message names it and what it was made for."""


@dataclass(frozen=True)
class PatchMail:
    """What a patch says of itself: author, date (RFC 2822), message, and the changes."""

    author: str
    email: str
    date: str
    message: bytes
    changes: bytes


def describe_base(patch: Patch, where: str = "") -> str:
    """Say which commit a patch was made for, as far as it tells; ``where`` names the one that is there."""
    if base := _BASE.search(patch.data):
        commit = base[1].decode()
        return f"it needs commit {commit}" + (
            ", which is there; a patch before it, or hipify, gives something else now"
            if commit[:12] in where
            else ""
        )
    parent = _FROM.match(patch.data)
    if parent and int(parent[1], 16):
        return f"it was made from commit {parent[1].decode()}, and needs the one before"
    return "it does not say which commit it needs (no base-commit line)"


def read_patch_mail(git: Git, patch: Patch) -> PatchMail:
    """Take a patch file apart as `git am` does. Raises PatchRefusedError for one without author or date."""
    if not patch.data.strip():
        raise PatchRefusedError(f"{patch.name} is empty", tip="remove it from the set, or write it again")
    with tempfile.TemporaryDirectory(prefix="rocm-wheels-patch-") as folder:
        message, changes = Path(folder, "message"), Path(folder, "changes")
        output = git.text(
            "mailinfo",
            "-b",
            "--encoding=UTF-8",
            "--no-scissors",
            str(message),
            str(changes),
            stdin=patch.data,
            activity=f"reading {patch.name}",
        )
        facts = dict(line.split(": ", 1) for line in output.splitlines() if ": " in line)
        body, diff = message.read_bytes().strip(b"\n"), changes.read_bytes()
    if not facts.get("Author") or not facts.get("Email") or not _DATE.match(facts.get("Date", "")):
        raise PatchRefusedError(
            f"{patch.name} has no author and date",
            tip="commit the change and make the file with `save-patches`",
        )
    subject = facts.get("Subject", "").encode("utf-8", "surrogateescape")
    whole = (subject + b"\n\n" + body if body else subject).rstrip() + b"\n"
    return PatchMail(facts["Author"], facts["Email"], facts["Date"], whole, diff)


def commit_series(git: Git, start: str, patches: Sequence[Patch], *, where: str) -> tuple[list[str], str]:
    """Store a commit for each patch, on top of ``start``; return them, and the tree of the last.

    No file and no ref is touched. ``where`` says in messages what ``start`` is. Raises PatchRefusedError with
    the patch's name.
    """
    commits: list[str] = []
    head, tree = start, ""
    with trees.temporary_index(git, None, keep=True) as index_git:
        index_git.text("read-tree", start)
        for patch in patches:
            mail = read_patch_mail(git, patch)
            if _DIFF.search(mail.changes):
                _apply_patch(index_git, patch, mail, where)
            elif b"\n@@ -" in mail.changes:
                raise PatchRefusedError(f"{patch.name} is not a git diff", tip="make it with `save-patches`")
            tree = index_git.text("write-tree")
            head = _commit_patch(index_git, tree, head, mail, patch)
            commits.append(head)
    return commits, tree


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


def _apply_patch(index_git: Git, patch: Patch, mail: PatchMail, where: str) -> None:
    strict = index_git.with_settings("apply.ignoreWhitespace=no", "apply.whitespace=nowarn")
    try:
        strict.text(
            "apply",
            "--cached",
            "--binary",
            "--whitespace=nowarn",
            "-",
            stdin=mail.changes,
            activity="git apply",
        )
    except errors.SourceError as cause:
        raise PatchRefusedError(
            f"{patch.name} does not apply to {where}: {describe_base(patch, where)}",
            tip="check that commit out with this patch set, move the patch to the new one (`git rebase`) and "
            "use `save-patches`; or remove it from the set, or use --no-patch",
        ) from cause


def _commit_patch(git: Git, tree: str, parent: str, mail: PatchMail, patch: Patch) -> str:
    return git.with_variables(
        GIT_AUTHOR_NAME=mail.author,
        GIT_AUTHOR_EMAIL=mail.email,
        GIT_AUTHOR_DATE=mail.date,
        GIT_COMMITTER_NAME=OUR_NAME,
        GIT_COMMITTER_EMAIL=OUR_EMAIL,
        GIT_COMMITTER_DATE=mail.date,
    ).text("commit-tree", tree, "-p", parent, stdin=mail.message, activity=f"the commit of {patch.name}")


LINKS_MESSAGE = "DO NOT SUBMIT: SUBMODULES OF PATCHES"  # our commit that names patched submodules

PatchSeries = Mapping[str, Sequence[Patch]]


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

    ``parts`` are the tree's repositories; their commits are what ``state`` says. Raises PatchRefusedError;
    then no file was touched. What is to be left is on the disk before the first file is written, so that a
    run after a crash knows it as ours.
    """
    if not series:
        return state
    new = replace(state, left=plan_stage(parts, state.left, series, name))
    checkout_state.write_state(git_dir, replace(new, operation="checkout"))
    write_stage(parts, state.left, new.left)
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
        links = {
            below.removeprefix(f"{path}/"): state.head
            for below, state in new.items()
            if state.head != states[below].head and trees.find_holder(below, parts) == path
        }
        new[path] = _plan_repository(parts[path], states[path], series.get(path, ()), links, stage)
    return dict(reversed(new.items()))


def write_stage(
    parts: Sequence[trees.TreePart],
    old: Mapping[str, checkout_state.RepositoryState],
    new: Mapping[str, checkout_state.RepositoryState],
) -> None:
    """Bring files, HEAD and index from ``old`` to ``new``; files that do not differ keep their times.

    Raises PatchRefusedError, before any file is written, when a file that git ignores is in the way.
    """
    moved = [part for part in parts if new[part.path].head != old[part.path].head]
    for part in reversed(moved):
        try:
            own_changes.switch_to_commit(part.git, new[part.path].head)
        except errors.SourceError as cause:
            raise PatchRefusedError("the patches cannot be applied", tip=cause.tip) from cause


def _plan_repository(
    part: trees.TreePart,
    state: checkout_state.RepositoryState,
    patches: Sequence[Patch],
    links: dict[str, str],
    stage: str,
) -> checkout_state.RepositoryState:
    head, tree = state.head, state.tree
    if links:
        tree = build_tree(part.git, head, {}, links)
        head = write_commit(part.git, tree, [head], LINKS_MESSAGE, dated_like=state.upstream)
    if patches:
        base = "upstream's" if stage == "base" else "what hipify made of upstream's"
        where = f"{base} {state.upstream[:12]}" + (f" in {part.path}" if part.path else "")
        before = head
        commits, tree = commit_series(part.git, before, patches, where=where)
        head = commits[-1]
        moves = [
            change.path
            for change in trees.list_differences(part.git, "diff-tree", "-r", before, head)
            if change.of_submodule
        ]
        if moves:
            raise PatchRefusedError(
                f"the patches in {patches[0].name.rpartition('/')[0]} add, remove or move the submodule "
                f"{min(moves)}",
                tip="patch what is in it: the folder of its path takes the patches",
            )
    if head == state.head:
        return state
    return replace(state, head=head, tree=tree)


@dataclass(frozen=True)
class SavedPatches:
    """``patches``: what the set holds now, by name; ``written`` and ``removed``: what changed on the disk."""

    folder: Path
    patches: tuple[str, ...]
    written: tuple[str, ...]
    removed: tuple[str, ...]


@dataclass(frozen=True)
class _TaggedRepository:
    """One repository with its two tags (``hipified`` empty: without that tag)."""

    part: trees.TreePart
    upstream: str
    hipified: str
    head: str


def save_patches(
    project: Project, directory: Path, folder: Path, *, replace_others: bool, env: Mapping[str, str]
) -> SavedPatches:
    """Write the commits of ``directory`` to the set in ``folder``: base and, where hipified, hipified.

    What hipify makes of them need not be there: `checkout` hipifies what patches change.
    ``replace_others``: also over patches that this tree was not made with. Raises SourceError,
    with nothing written: no tags, changes that are not committed, history with a merge or not on
    top of the tags, a commit that no patch can give back.
    """
    directory = directory.absolute()
    if not (directory / ".git").exists():
        raise errors.SourceError(f"{directory} is not a git checkout", tip=trees.CHECKOUT_TIP)
    git = disable_private_filters(Git(directory, env))
    git_dir = find_git_directory(git)
    with lock_folder(git_dir / checkout_state.OWN_FOLDER, purpose=f"save-patches of {project.name}"):
        state = checkout_state.read_state(git_dir)
        _require_settled_tree(git, state)
        tagged = [_read_tags(part) for part in trees.list_repositories(git) if part.head]
        old = read_patch_set(folder)
        known_digests = ("", state.patches, state.saved) if state is not None else ("",)
        base = {t.part.path: _make_series(t, "base") for t in tagged}
        hipified: Mapping[str, Sequence[Patch]] = old.hipified
        if tagged[0].hipified:
            hipified = {t.part.path: _make_series(t, "hipified") for t in tagged}
        elif old.hipified:
            log.log_note(f"{folder / 'hipified'} stays as it is: the tree is not hipified")
        new = PatchSet(folder, _drop_empty(base), _drop_empty(hipified))
        if new.digest != old.digest and old.digest not in known_digests and not replace_others:
            raise errors.SourceError(
                f"{folder} has patches that {directory} was not made with; they would be lost",
                tip="check out with that set first (--patchset), save under another name, or use --replace",
            )
        saved = _write_set(old, new)
        if state is not None:
            checkout_state.write_state(git_dir, replace(state, saved=new.digest))
    return saved


def read_patch_origin(directory: Path, *, env: Mapping[str, str]) -> tuple[str, str]:
    """Return the name of the set that a tree was made with, and its ref; empty where that is not known."""
    if not (directory / ".git").exists():
        raise errors.SourceError(f"{directory} is not a git checkout", tip=trees.CHECKOUT_TIP)
    state = checkout_state.read_state(find_git_directory(Git(directory.absolute(), env)))
    return (state.patch_set, state.ref) if state is not None else ("", "")


def _require_settled_tree(git: Git, state: checkout_state.CheckoutState | None) -> None:
    if state is not None and state.operation is not None:
        raise errors.SourceError(
            f"the {state.operation} in {git.directory} was interrupted",
            tip="run `checkout` again; it continues",
        )
    parts = trees.list_repositories(git)
    own_changes.refuse_unfinished_operations(parts)
    root = state.left.get("") if state is not None else None
    if state is not None and state.hipify == "uncommitted" and root is not None:
        for part in trees.list_repositories(git):
            recorded = state.left.get(part.path)
            if recorded is None or not recorded.uncommitted or _is_hipified(part.git):
                continue
            if part.head != recorded.head:
                raise errors.SourceError(
                    f"{part.git.directory} has commits made while what hipify wrote was not committed; "
                    "the two cannot be told apart",
                    tip="check out with --commit-hipify (or --no-hipify) and commit there",
                )
    files = [
        part.path_from_root(path) for part in parts for _, path in own_changes.list_own_changes(part, state)
    ]
    if files:
        raise errors.SourceError(
            f"{git.directory} has changes that are not committed: {', '.join(files[:5])}"
            + (f" and {len(files) - 5} more" if len(files) > 5 else ""),
            tip="commit them, one commit a patch, or put them away with `git stash -u`",
        )


def _is_hipified(git: Git) -> bool:
    """Tell whether what hipify first wrote is committed: what comes after it is in commits of its own."""
    return git.succeeds("merge-base", "--is-ancestor", f"refs/tags/{checkout_state.HIPIFY_TAG}", "HEAD")


def _read_tags(part: trees.TreePart) -> _TaggedRepository:
    git = part.git
    head = part.head
    commits = []
    for name in (checkout_state.UPSTREAM_TAG, checkout_state.HIPIFY_TAG):
        commits.append(git.text("for-each-ref", "--format=%(objectname)", f"refs/tags/{name}"))
        if commits[-1] and not git.succeeds("merge-base", "--is-ancestor", commits[-1], head):
            raise errors.SourceError(
                f"HEAD of {git.directory} is not on top of {name}",
                tip=f"`git rebase --onto {name} <where your work begins>`, or run `checkout` again",
            )
    if not commits[0]:
        raise errors.SourceError(
            f"{git.directory} has no tag {checkout_state.UPSTREAM_TAG}",
            tip="run `checkout` first; it sets it",
        )
    return _TaggedRepository(part, commits[0], commits[1], head)


def _make_series(tagged: _TaggedRepository, stage: str) -> list[Patch]:
    """Return the patches of a stage in one repository, after a trial that they give the same again."""
    git, boundary = tagged.part.git, tagged.hipified or tagged.head
    start, end = (tagged.upstream, boundary) if stage == "base" else (boundary, tagged.head)
    commits = _list_commits(git, start, end, hipified=stage == "hipified")
    patches = [format_patch(git, commit, number, tagged.upstream) for number, commit in enumerate(commits, 1)]
    try:
        recommitted, _ = commit_series(git, start, patches, where=f"{start[:12]}, in a trial")
    except PatchRefusedError as cause:
        raise errors.SourceError(
            f"the commits in {git.directory} cannot be saved as patches one after another",
            tip="keep them between the tags in one line, without what a mail cannot hold "
            "(a message with a line that begins with `diff -` or `---`)",
        ) from cause
    for number, (commit, patch) in enumerate(zip(recommitted, patches, strict=True), 1):
        if format_patch(git, commit, number, tagged.upstream) != patch:
            raise errors.SourceError(
                f"commit {commits[number - 1][:12]} of {git.directory} ({patch.name}) would come back as "
                "another one: its message or author has something that a mail cannot hold",
                tip="reword it: no line that begins with `---`, `diff -` or `From:`, no [PATCH] in front",
            )
    prefix = "/".join(word for word in (stage, tagged.part.path) if word)
    return [Patch(f"{prefix}/{patch.name}", patch.data) for patch in patches]


def _list_commits(git: Git, start: str, end: str, *, hipified: bool) -> list[str]:
    """List the commits to save, oldest first: not ours, not those that only move submodules.

    ``hipified``: what hipify made of them belongs to them. A commit is listed with it where another one
    follows, which may change that further.
    """
    commits: list[str] = []
    translated = ""
    form = "--format=%H%x09%P%x09%ce%x09%s"
    for line in git.fields("log", "-z", "--reverse", "--topo-order", form, f"{start}..{end}", "--"):
        commit, parents, email, subject = line.split("\t", 3)
        if len(parents.split()) > 1:
            raise errors.SourceError(
                f"commit {commit[:12]} of {git.directory} is a merge ({subject}), which no patch can hold",
                tip="`git rebase` your work onto the tag",
            )
        if is_our_commit(email, subject):
            translated = commit if hipified and subject == checkout_state.HIPIFY_MESSAGE else translated
            continue
        files = git.fields("diff-tree", "-r", "-z", "--name-only", "--ignore-submodules=all", parents, commit)
        if files or git.text("rev-parse", f"{commit}^{{tree}}") == git.text(
            "rev-parse", f"{parents}^{{tree}}"
        ):
            if commits and translated:
                commits[-1] = _recommit_with_files(git, commits[-1], translated)
            commits.append(commit)
            translated = ""
    return commits


def _recommit_with_files(git: Git, commit: str, later: str) -> str:
    """Store a commit again with the files of a later one; return it."""
    head, _, message = git.text("cat-file", "commit", commit).partition("\n\n")
    tree = git.text("rev-parse", f"{later}^{{tree}}")
    lines = [f"tree {tree}", *head.split("\n")[1:], "", message, ""]
    data = "\n".join(lines).encode("utf-8", "surrogateescape")
    return git.text("hash-object", "-t", "commit", "-w", "--stdin", stdin=data)


def _drop_empty(series: Mapping[str, Sequence[Patch]]) -> dict[str, tuple[Patch, ...]]:
    return {path: tuple(patches) for path, patches in series.items() if patches}


def _write_set(old: PatchSet, new: PatchSet) -> SavedPatches:
    """Make the folder hold ``new``; files that do not change are not written, others appear whole."""
    before = {patch.name: patch.data for patch in old.list_patches()}
    after = {patch.name: patch.data for patch in new.list_patches()}
    written = tuple(name for name, data in after.items() if before.get(name) != data)
    removed = tuple(name for name in before if name not in after)
    for name in written:
        write_atomically(new.folder / name, after[name])
    for name in removed:
        target = new.folder / name
        target.unlink()
        for folder in target.parents:
            if folder == new.folder or any(folder.iterdir()):
                break
            folder.rmdir()
    return SavedPatches(new.folder, tuple(after), written, removed)
