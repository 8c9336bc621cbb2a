"""What of a repository travels in a packed checkout, and how a repository is made anew from it.

Whoever can write a packed checkout must not be able to run a program where it is unpacked: git starts what
a ``config``, a hook or an attribute names as soon as anybody looks at a tree (git-config(1):
``core.fsmonitor``, ``filter.<driver>.clean``, ``include.path``; githooks(5)). So a repository is not copied.
HEAD, refs, their logs, and what is in the index are read and written again; git hashes every object of a
pack; loose objects are hashed here; the configuration is written from the keys of a table. Nothing else is
taken, and nothing in it can be executed.
"""

from __future__ import annotations

import hashlib
import os
import posixpath
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from rocm_wheels.core import SourceError
from rocm_wheels.sources.checkout_state import OWN_FOLDER, locate_state_file, read_state
from rocm_wheels.sources.git import Git, is_inside_tree
from rocm_wheels.sources.network import is_server, strip_credentials

MODULES_FOLDER = "modules"  # in a repository: those of its submodules, by name (gitrepository-layout(5))
_LOOSE_OBJECT = re.compile(r"objects/([0-9a-f]{2})/([0-9a-f]{38})")
_PACK = re.compile(r"objects/pack/pack-[0-9a-f]{40}\.pack")
_REF_PART = (
    r"(?!\.)(?!-)(?:(?!\.\.|@\{)[^\x00-\x20\x7f~^:?*\[\\/])+(?<!\.)(?<!\.lock)"  # git-check-ref-format(1)
)
_REF = re.compile(rf"refs(/{_REF_PART})+")
_TEXTS = re.compile(r"HEAD|index|packed-refs|shallow|config|logs/HEAD")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_LOG_LINE = re.compile(r"[0-9a-f]{40} [0-9a-f]{40} [^\x00]*")
_PACKED_REF = re.compile(rf"[0-9a-f]{{40}} (?:{_REF.pattern})|\^[0-9a-f]{{40}}")
_MOST_TEXT_BYTES = 64 << 20
_MOST_LOOSE_BYTES = 1 << 30  # git writes larger ones into packs (git-config(1), core.bigFileThreshold)
_INFLATED_PIECE = 1 << 20

_BOOLEAN = re.compile(r"true|false")
_REFSPEC = re.compile(r"\+?refs/[\w./*@-]+:refs/[\w./*@-]+")
_PLAIN_NAME = re.compile(r"[\w.][\w./-]*")
# keys whose values git only compares, reads or fetches from; sections and variables come in lower letters
_CONFIG_KEYS = (
    (re.compile(r"core\.(logallrefupdates|autocrlf)"), re.compile(r"true|false|input|always")),
    (re.compile(r"core\.eol"), re.compile(r"lf|crlf|native")),
    (re.compile(r"remote\.[^\n]+\.fetch"), _REFSPEC),
    (re.compile(r"branch\.[^\n]+\.remote"), _PLAIN_NAME),
    (re.compile(r"branch\.[^\n]+\.merge"), _REF),
    (re.compile(r"submodule\.[^\n]+\.active"), _BOOLEAN),
)
_URL_KEY = re.compile(r"(remote|submodule)\.[^\n]+\.url")
# `git init` says these anew, by the file system that it is on
_KEYS_OF_THE_PLACE = {
    "core.repositoryformatversion", "core.bare", "core.filemode", "core.ignorecase", "core.precomposeunicode",
    "core.symlinks", "core.worktree",
}  # fmt: skip
# what every repository has, and git makes again where it is needed: not worth a word
_DISPENSABLE = re.compile(
    r"(.*/)?(hooks/[\w-]+\.sample|description|branches|info/(exclude|refs)|gc\.log|COMMIT_EDITMSG|[A-Z_]*HEAD"
    r"|[\w.-]+\.lock|objects/info/(packs|commit-graphs?(/.*)?)|objects/pack/[\w-]+\.(idx|rev|bitmap|keep|mtimes))"
)


def is_portable(path: str) -> bool:
    """Tell whether a file of a repository, as seen from its folder, is one that travels."""
    return bool(
        _TEXTS.fullmatch(path)
        or _LOOSE_OBJECT.fullmatch(path)
        or _PACK.fullmatch(path)
        or _REF.fullmatch(path.removeprefix("logs/"))
        or path == f"{OWN_FOLDER}/{locate_state_file(Path()).name}"
    )


def list_portable_files(git_dir: Path) -> Iterator[str]:
    """Yield the files of a repository that travel, from its folder, without those of its submodules."""
    for folder, folders, files in os.walk(git_dir):
        path = Path(folder)
        if path == git_dir and MODULES_FOLDER in folders:
            folders.remove(MODULES_FOLDER)
        for name in files:
            relative = (path / name).relative_to(git_dir).as_posix()
            if is_portable(relative):
                yield relative


def require_own_objects(git_dir: Path, tree: Path, keys: Iterable[str]) -> None:
    """Raise SourceError for a repository some of whose objects are elsewhere; ``keys``: of its config."""
    if (git_dir / "objects/info/alternates").is_file():
        raise SourceError(
            f"the repository of {tree} borrows objects from another one (objects/info/alternates)",
            tip="have them copied with `git repack -a -d`, remove that file, then pack again",
        )
    if any(key == "extensions.partialclone" or key.endswith(".promisor") for key in keys):
        raise SourceError(
            f"the repository of {tree} is a partial clone: objects that were not needed are at its origin",
            tip="check it out without a filter, then pack again",
        )


def read_config_file(git: Git, file: Path) -> list[tuple[str, str]]:
    """Return keys and values of one file of git's configuration; includes are not followed."""
    output = git.text("config", "--file", str(file.absolute()), "--no-includes", "-z", "--list")
    records = [record.partition("\n") for record in output.split("\0")[:-1]]
    return [(key, value) for key, _, value in records]


def choose_config(settings: Iterable[tuple[str, str]]) -> tuple[list[tuple[str, str]], list[str]]:
    """Return the settings that travel, URLs without credentials; and the keys of those that do not."""
    taken, left_out = [], []
    for key, value in settings:
        if _URL_KEY.fullmatch(key) and _is_plain_origin(value):
            taken.append((key, strip_credentials(value)))
        elif any(names.fullmatch(key) and values.fullmatch(value) for names, values in _CONFIG_KEYS):
            taken.append((key, value))
        elif key not in _KEYS_OF_THE_PLACE:
            left_out.append(key)
    return [(key, value) for key, value in taken if key.isprintable()], left_out


def _is_plain_origin(url: str) -> bool:
    """Tell whether a URL is a server's, or a folder's: git starts programs for others (git-remote-ext(1))."""
    local = url.startswith(("/", "./", "../", "file:///")) or re.match(r"[A-Za-z]:[\\/]", url)
    return url.isprintable() and not url.startswith("-") and bool(local or is_server(url))


def format_config(settings: Iterable[tuple[str, str]]) -> str:
    """Write settings as a file of git's configuration has them."""
    lines = []
    for key, value in settings:
        section, _, rest = key.partition(".")
        name, _, variable = rest.rpartition(".")
        heading = f'[{section} "{_escape(name)}"]' if name else f"[{section}]"
        lines.append(f'{heading}\n\t{variable} = "{_escape(value)}"\n')
    return "".join(lines)


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def describe_left_out(names: Iterable[str]) -> str:
    """Return the files of a repository that are left out and that git would not make again, for a message."""
    telling = sorted({name for name in names if not _DISPENSABLE.fullmatch(name)})
    more = f" and {len(telling) - 5} more" if len(telling) > 5 else ""
    return ", ".join(ascii(name)[1:-1] for name in telling[:5]) + more


def find_repository_folder(pointer: str, content: str) -> str:
    """Return where below the root's repository a submodule's is. Raises SourceError when it is elsewhere.

    ``pointer``: the submodule's ``.git`` file, from the root of the tree; ``content``: what is in it.
    """
    named = content.removeprefix("gitdir:").strip()
    folder = posixpath.normpath(posixpath.join(posixpath.dirname(pointer), named))
    inside = folder.removeprefix(".git/")
    if not content.startswith("gitdir:") or inside == folder or not is_inside_tree(inside):
        raise SourceError(f"{pointer} names {named[:200]!a}, which is no submodule's repository")
    return inside


def require_separate(folders: Iterable[str]) -> None:
    """Raise SourceError unless each repository is among the submodules of the one that it lies in."""
    known = {""}
    for folder in sorted(folders):
        if folder in known:
            raise SourceError(f"two submodules have one repository, {folder}")
        above = max((f for f in known if not f or folder.startswith(f"{f}/")), key=len)
        if not folder.removeprefix(above).lstrip("/").startswith(f"{MODULES_FOLDER}/"):
            raise SourceError(f"a submodule's repository is at {folder}, where git has none")
        known.add(folder)


def rebuild_repositories(
    raw: Path, tree: Path, submodules: Mapping[str, str], *, env: Mapping[str, str]
) -> dict[str, list[str]]:
    """Make the repositories of a tree anew from files in ``raw``, which are taken away from there.

    ``submodules``: path in the tree → folder in the root's repository. Returns keys that were left out of
    each configuration, by that folder. Raises SourceError for what is not as git writes it.
    """
    require_separate(submodules.values())
    git = Git(tree, env)
    git.text("init", "--quiet", "--initial-branch=main", "--template=")
    fresh_settings = [
        (key, value)
        for key, value in read_config_file(git, tree / ".git/config")
        if key not in {"core.worktree", "core.bare"}
    ]
    left_out = {}
    for path, folder in {"": "", **submodules}.items():
        git_dir, source = tree / ".git" / folder, raw / folder
        settings = list(fresh_settings)
        if (source / "config").is_file():
            taken, left_out[folder] = choose_config(read_config_file(git, source / "config"))
            settings += taken
        if path:
            worktree = os.path.relpath(tree / path, git_dir).replace(os.sep, "/")
            settings.append(("core.worktree", worktree))
            pointer = os.path.relpath(git_dir, tree / path).replace(os.sep, "/")
            (tree / path).mkdir(parents=True, exist_ok=True)
            for name in ("objects", "refs"):
                (git_dir / name).mkdir(parents=True)
            (tree / path / ".git").write_text(
                f"gitdir: {pointer}\n", encoding="utf-8", errors="surrogateescape"
            )
        settings.append(("core.bare", "false"))
        (git_dir / "config").write_text(format_config(settings), encoding="utf-8", errors="surrogateescape")
        _move_checked_files(source, git_dir)
        repository = git.in_directory(tree / path)
        for pack in sorted((git_dir / "objects").glob("pack/*.pack")):
            repository.text(
                "index-pack", str(pack.absolute()), activity=f"reading {folder or '.git'}/{pack.name}"
            )
        if (source / "index").is_file():
            _write_index(repository, source / "index")
    read_state(tree / ".git")  # or it is refused
    return {folder: keys for folder, keys in left_out.items() if keys}


def _move_checked_files(source: Path, git_dir: Path) -> None:
    for relative in sorted(list_portable_files(source)):
        file, target = source / relative, git_dir / relative
        if relative in {"config", "index"}:
            continue
        if loose := _LOOSE_OBJECT.fullmatch(relative):
            _check_loose_object(file, loose[1] + loose[2])
        elif not _PACK.fullmatch(relative):
            _check_text(relative, file)
        target.parent.mkdir(parents=True, exist_ok=True)
        os.replace(file, target)
        target.chmod(0o444 if relative.startswith("objects/") else 0o644)


def _check_text(relative: str, file: Path) -> None:
    """Raise SourceError for a HEAD, a ref, or a list of them that is not as git writes it."""
    if file.stat().st_size > _MOST_TEXT_BYTES:
        raise SourceError(f"{relative} of a repository in it is too long")
    lines = file.read_text(encoding="utf-8", errors="surrogateescape").split("\n")
    if lines and not lines[-1]:
        lines.pop()
    if relative.startswith("logs/"):
        correct = all(map(_LOG_LINE.fullmatch, lines))
    elif relative == "packed-refs":
        correct = all(line.startswith("# ") or _PACKED_REF.fullmatch(line) for line in lines)
    elif relative == "shallow":
        correct = all(map(_COMMIT.fullmatch, lines))
    elif relative == "HEAD" or relative.startswith("refs/"):
        name = lines[0].removeprefix("ref: ") if lines else ""
        correct = len(lines) == 1 and bool((_REF if name != lines[0] else _COMMIT).fullmatch(name))
    else:
        correct = True  # the state: whoever reads it checks it
    if not correct:
        raise SourceError(f"{relative} of a repository in it is not as git writes it")


def _check_loose_object(file: Path, oid: str) -> None:
    """Raise SourceError unless a file holds the object that its name says."""
    content, pending = zlib.decompressobj(), b""
    digest, length = hashlib.sha1(usedforsecurity=False), 0
    with file.open("rb") as stream:
        while not content.eof:
            pending = pending or stream.read(_INFLATED_PIECE)
            try:
                piece = content.decompress(pending, _INFLATED_PIECE) if pending else b""
            except zlib.error:
                break
            if not pending or length > _MOST_LOOSE_BYTES:
                break
            pending = content.unconsumed_tail
            digest.update(piece)
            length += len(piece)
        whole = content.eof and not content.unused_data and not stream.read(1)
    if not whole or digest.hexdigest() != oid:
        raise SourceError(f"the object {oid} of a repository in it is not what its name says")


def _write_index(git: Git, packed: Path) -> None:
    """Write an index with the entries of another one. Raises SourceError for paths that leave the tree.

    What a file system says of the files, and what programs cached, is not taken.
    """
    reader = git.with_variables(GIT_INDEX_FILE=str(packed.absolute()))
    entries, marks = [], dict[str, list[str]]()
    for line in reader.fields("ls-files", "-s", "-v", "-z"):
        entries.append(line[2:])
        path = line.split("\t", 1)[1]
        if not is_inside_tree(path):
            raise SourceError(f"the index of a repository in it has {path!a}, which leaves the tree")
        if line[0].islower():
            marks.setdefault("--assume-unchanged", []).append(path)
        if line[0] in "Ss":
            marks.setdefault("--skip-worktree", []).append(path)
    git.text("update-index", "-z", "--index-info", stdin=_join_fields(entries))
    for option, paths in marks.items():
        git.text("update-index", option, "-z", "--stdin", stdin=_join_fields(paths))


def _join_fields(fields: Iterable[str]) -> bytes:
    return "".join(f"{field}\0" for field in fields).encode("utf-8", "surrogateescape")


def is_git_name(name: str) -> bool:
    """Tell whether some file system takes a name for git's own folder (git's path.c, is_ntfs_dotgit)."""
    return name.split(":", maxsplit=1)[0].rstrip(" .").casefold() in {".git", "git~1"}
