"""Files in a checkout that are not git's: what builds leave outside their build folder.

torch's cpp_extension writes translated sources beside the originals, setuptools an egg-info. Git calls
them untracked: the tree would look changed by its user, and its identity with it. They are listed in
``info/exclude``, which belongs to the clone and is never committed.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath

from rocm_wheels.core import (
    RocmWheelsError,
    capture_output,
    log_note,
    log_warning,
    write_atomically,
    write_json_file,
)

_UNTRACKED_QUESTION = ("ls-files", "-z", "--others", "--exclude-standard")
_STAYING_FOLDERS = ("__pycache__", "dist")
_PATTERN_CHARACTERS = re.compile(r"([\\*?\[ ])")  # characters that mean something in a pattern of git
# What builds make: hipify's translations, setuptools' metadata, binaries. Anything else that appears may
# be a file that its user has just written, and must not leave git's sight.
_GENERATED_NAME = re.compile(
    r"(?:.*/)?(?:hip/.*|[^/]+_hip\.\w+|[^/]+\.(?:hip|cuh?\.hip|so|pyd|dll|dylib|o|obj|a|lib|pyc|ninja|stamp)"
    r"|[^/]+\.egg-info/?.*|_?version\.py|build/.*|dist/.*)"
)
_LATE_SECONDS = 5.0  # a killed build's last file may be younger than its last line of log


def list_ignored_files(source: Path, env: Mapping[str, str]) -> frozenset[str]:
    """Return the ignored files below a git checkout, relative to it; empty for a plain folder.

    Bytecode, ``dist`` and everything hidden (environments, editors) is left out.
    """
    answer = ask_git(source, env, "ls-files", "-z", "--others", "--ignored", "--exclude-standard")
    return frozenset(name for name in answer.split("\0") if name and _is_relevant(PurePosixPath(name)))


def list_untracked_files(source: Path, env: Mapping[str, str]) -> frozenset[str]:
    """Return the files that git neither tracks nor ignores, relative to ``source``."""
    answer = ask_git(source, env, *_UNTRACKED_QUESTION)
    return frozenset(name for name in answer.split("\0") if name)


def list_new_files(source: Path, before: frozenset[str], env: Mapping[str, str]) -> frozenset[str]:
    """Return the untracked files that were not there ``before``.

    A folder without a tracked file, and without a file from before, counts as one, with ``/`` at its end.
    """
    answer = ask_git(source, env, *_UNTRACKED_QUESTION, "--directory", "--no-empty-directory")
    folders = tuple(name for name in answer.split("\0") if name.endswith("/"))
    whole = tuple(folder for folder in folders if not any(name.startswith(folder) for name in before))
    files = list_untracked_files(source, env) - before
    return frozenset(name for name in files if not name.startswith(whole)) | frozenset(whole)


def exclude_from_git(source: Path, names: Iterable[str], env: Mapping[str, str]) -> tuple[str, ...]:
    """List files (relative to ``source``) in the checkout's ``info/exclude``; return those new there.

    Nothing happens in a plain folder.
    """
    sorted_names = sorted(names)
    question = ("rev-parse", "--show-prefix", "--git-path", "info/exclude")
    answer = ask_git(source, env, *question) if sorted_names else ""
    if not answer:
        return ()
    prefix, exclude_path = answer.split("\n")
    path = source / exclude_path
    text = path.read_bytes().decode("utf-8", "surrogateescape") if path.is_file() else ""
    patterns = ["/" + _PATTERN_CHARACTERS.sub(r"\\\1", prefix + name) for name in sorted_names]
    fresh = [pattern for pattern in patterns if pattern not in text.splitlines()]
    if fresh:
        text += ("" if not text or text.endswith("\n") else "\n") + "\n".join(fresh) + "\n"
        write_atomically(path, text.encode("utf-8", "surrogateescape"))
    return tuple(fresh)


@contextlib.contextmanager
def exclude_generated_files(source: Path, marker: Path, log: Path, env: Mapping[str, str]) -> Iterator[None]:
    """Exclude what appears in ``source`` during the block, whether it ends well or not.

    ``marker`` remembers, for a build that is killed, what was there before it: the next one
    excludes what is younger than that and not younger than the killed build's log. What a user
    adds later stays visible.
    """
    _exclude_after_kill(marker, env)
    before = list_untracked_files(source, env)
    write_json_file(marker, {"source": str(source), "log": str(log), "before": sorted(before)})
    try:
        yield
    finally:
        _exclude_generated(source, list_new_files(source, before, env), env)
        marker.unlink(missing_ok=True)


def _exclude_after_kill(marker: Path, env: Mapping[str, str]) -> None:
    """Exclude what a killed build left in its own source, which need not be the one built now."""
    if not marker.is_file():
        return
    past = json.loads(marker.read_text(encoding="utf-8"))
    source, log = Path(past["source"]), Path(past["log"])
    if source.is_dir() and log.is_file():
        end = log.stat().st_mtime + _LATE_SECONDS
        since = list_new_files(source, frozenset(past["before"]), env)
        _exclude_generated(source, [name for name in since if (source / name).lstat().st_mtime <= end], env)
    marker.unlink()


def _exclude_generated(source: Path, names: Iterable[str], env: Mapping[str, str]) -> None:
    """Exclude what a build makes; name what else has appeared, which counts as a change of the tree."""
    generated = {name: _is_generated(source, name) for name in sorted(names)}
    patterns = exclude_from_git(source, [name for name, is_made in generated.items() if is_made], env)
    if others := [name for name, is_made in generated.items() if not is_made]:
        listing = ", ".join(others[:5]) + (f" and {len(others) - 5} more" if len(others) > 5 else "")
        log_warning(
            f"appeared in {source} while it was built, and count as changes of it: {listing} "
            "(if the build makes them, they belong into its .gitignore)"
        )
    if patterns:
        listing = ", ".join(patterns[:3]) + (", …" if len(patterns) > 3 else "")
        log_note(f"the build left files in {source}; git ignores them (info/exclude): {listing}")


def _is_generated(source: Path, name: str) -> bool:
    """Tell by its name whether a build makes a file; a folder when it makes every file in it."""
    if not name.endswith("/"):
        return _GENERATED_NAME.fullmatch(name) is not None
    files = [path.relative_to(source).as_posix() for path in (source / name).rglob("*") if not path.is_dir()]
    return all(_GENERATED_NAME.fullmatch(file) for file in files)


def ask_git(source: Path, env: Mapping[str, str], *question: str) -> str:
    """Ask git in a folder; the answer is empty in a folder that is no checkout."""
    try:
        return capture_output(["git", *question], env={**env, "LC_ALL": "C"}, cwd=source)
    except RocmWheelsError as fault:
        if "not a git repository" in str(fault):
            return ""
        raise


def _is_relevant(path: PurePosixPath) -> bool:
    return not any(part in _STAYING_FOLDERS or part.startswith(".") for part in path.parts)
