"""Local stand-ins of the actions that our workflows use, with the rules of the real ones.

An input that a stand-in does not know is an error. Artifacts: a name twice, a name with a character that
NTFS has not, and no files are errors; the least common folder of all files is the root of an artifact
(https://github.com/actions/upload-artifact, download-artifact at the versions that the workflows pin).
"""

from __future__ import annotations

import base64
import fnmatch
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from workflow_expressions import Unknown

_NEVER = re.compile(r'["<>:|*?\r\n\\/]')


class Failed(Exception):
    """A step that failed, as it would on GitHub."""


@dataclass
class Services:
    """What a run of GitHub keeps: artifacts, caches, and what was asked of others.

    ``history`` is what jobs fetch from which want more than one commit. Runs share the machines
    of a ``folder``; each is a ``run`` of its own. ``warm``: rocm-wheels begins on them in a warm Python.
    """

    folder: Path
    clone: Path
    pythons: Mapping[str, Path]
    left_out: Sequence[str] = ()
    history: Path | None = None
    run: str = "run"
    warm: bool = False
    artifacts: dict[str, Path] = field(default_factory=dict)
    caches: dict[str, Path] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)


@dataclass
class At:
    """Where a step runs: its workspace, what later steps get, and a place for outputs."""

    services: Services
    workspace: Path
    paths: list[str]
    outputs: dict[str, str]


def workspace_of(services: Services, machine: str) -> Path:
    """Return the workspace of a machine: each has its own, and all are at one place, as those of GitHub.

    Compiler caches know files by where they are.
    """
    work, mark = services.folder / "work", services.folder / "work.of"
    now = mark.read_text() if mark.exists() else ""
    if now != machine:
        if work.exists():
            work.rename(services.folder / f"machine-{now}")
        if (parked := services.folder / f"machine-{machine}").exists():
            parked.rename(work)
        services.folder.mkdir(parents=True, exist_ok=True)
        mark.write_text(machine)
    return work


def _only(given: Mapping[str, Any], *known: str) -> None:
    if strange := sorted(set(given) - set(known)):
        raise Unknown(f"inputs that the stand-in does not know: {strange}")


def checkout(at: At, given: Mapping[str, Any]) -> None:
    """Put our files into the workspace, with commits where the step asks for more than one.

    The real one deletes all else. Here a machine that ran before keeps what only saves time: the environment
    of the tool, and what Python compiled.
    """
    _only(given, "persist-credentials", "fetch-depth")
    if given.get("persist-credentials") is not False:
        raise Failed("the token would stay")
    at.workspace.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(at.workspace / ".git", ignore_errors=True)
    if (depth := int(given.get("fetch-depth", 1))) != 1:
        _fetch(at, depth)
        return
    words = ["git", "ls-files", "-z", "-co", "--exclude-standard"]  # what is not committed yet belongs to it
    ended = subprocess.run(words, cwd=at.services.clone, capture_output=True, check=True)
    listed = {*filter(None, ended.stdout.decode().split("\0"))} - {*at.services.left_out}
    wanted = {name for name in listed if (at.services.clone / name).is_file()}
    _delete_others(at.workspace, wanted)
    for name in wanted:
        source, place = at.services.clone / name, at.workspace / name
        there, now = place.stat() if place.is_file() else None, source.stat()
        if there is None or (there.st_mtime_ns, there.st_size) != (now.st_mtime_ns, now.st_size):
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, place)


def _fetch(at: At, depth: int) -> None:
    if at.services.history is None:
        raise Unknown("commits are asked for, and this run has none")
    deep = [f"--depth={depth}"] if depth else []
    for words in (
        ["init", "-q"],
        ["fetch", "-q", *deep, at.services.history.as_uri(), "HEAD"],
        ["checkout", "-q", "-f", "--detach", "FETCH_HEAD"],
        ["clean", "-q", "-ffdx", "-e", ".venv*", "-e", "__pycache__"],
    ):
        subprocess.run(["git", *words], cwd=at.workspace, check=True, capture_output=True)


def _delete_others(workspace: Path, wanted: set[str]) -> None:
    above = {"." if str(one) == "." else str(one) for name in wanted for one in Path(name).parents}
    for place, inner, files in os.walk(workspace):
        here = Path(place).relative_to(workspace)
        for one in [*inner, *files]:
            kept = one == "__pycache__" or (str(here) == "." and one.startswith(".venv"))
            if kept or str(here / one) not in (above if one in inner else wanted):
                if one in inner:
                    inner.remove(one)
                if not kept:
                    gone = Path(place, one)
                    shutil.rmtree(gone) if gone.is_dir() and not gone.is_symlink() else gone.unlink()


def setup_python(at: At, given: Mapping[str, Any]) -> None:
    """Put a Python before all others, in an environment of its own, as those of the tool cache are."""
    _only(given, "python-version")
    version = str(given["python-version"])
    if version not in at.services.pythons:
        raise Failed(f"there is no Python {version} on this machine")
    place = at.services.folder / "tools" / version
    if not place.exists():
        subprocess.run(
            [at.services.pythons[version], "-m", "venv", "--without-pip", place],
            check=True,
            env={name: value for name, value in os.environ.items() if not name.startswith("PYTHON")},
        )
    at.paths.insert(0, str(place / "bin"))
    at.outputs["python-path"] = str(place / "bin" / "python")


def upload_artifact(at: At, given: Mapping[str, Any]) -> None:
    """Keep files under a name that nothing has yet: only a job that is run again replaces what it kept."""
    _only(given, "name", "path", "if-no-files-found", "compression-level", "retention-days", "overwrite")
    name, kept = str(given["name"]), at.services.artifacts
    if not name or _NEVER.search(name):
        raise Failed(f"the name of an artifact cannot be {name!r}")
    if name in kept:
        raise Failed(f"an artifact with the name {name} is there already")
    files: list[Path] = []
    for pattern in str(given["path"]).splitlines():
        for found in sorted(at.workspace.glob(pattern)):
            inner = sorted(found.rglob("*")) if found.is_dir() else [found]
            files += [one for one in inner if one.is_file() and not one.name.startswith(".")]
    if not files:
        if given.get("if-no-files-found") != "error":
            raise Unknown("a warning alone, where no files were found")
        raise Failed(f"no files were found: {given['path']}")
    place = at.services.folder / at.services.run / "artifacts" / name
    root = Path(os.path.commonpath([one.parent for one in files]))
    for one in files:
        (place / one.relative_to(root)).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(one, place / one.relative_to(root))
    kept[name] = place


def download_artifact(at: At, given: Mapping[str, Any]) -> None:
    """Fetch what was kept: one by name, which must be there, or all that fit a pattern."""
    _only(given, "name", "path", "pattern", "merge-multiple")
    kept = at.services.artifacts
    if "name" in given:
        if given["name"] not in kept:
            raise Failed(f"Artifact '{given['name']}' not found")
        chosen = [str(given["name"])]
    else:
        if set(str(given["pattern"])) & set("[]{}?!"):
            raise Unknown(f"more than * in the pattern {given['pattern']}")
        chosen = [name for name in sorted(kept) if fnmatch.fnmatchcase(name, str(given["pattern"]))]
    apart = "name" not in given and given.get("merge-multiple") is not True
    for name in chosen:
        place = at.workspace / str(given["path"])
        shutil.copytree(kept[name], place / name if apart else place, dirs_exist_ok=True)


def restore_cache(at: At, given: Mapping[str, Any]) -> None:
    """Put back what was saved under this key, or the newest whose key begins so."""
    _only(given, "path", "key", "restore-keys")
    wanted = [str(given["key"]), *str(given.get("restore-keys", "")).splitlines()]
    newest = list(reversed(at.services.caches))
    found = next((key for start in wanted for key in newest if key.startswith(start)), None)
    at.services.asked.append(f"cache: {found or 'nothing'} for {given['key']}")
    at.outputs["cache-matched-key"] = found or ""
    if found is not None:
        root = _split_cache_path(given)[0]
        shutil.copytree(at.services.caches[found], at.workspace / root, dirs_exist_ok=True)


def save_cache(at: At, given: Mapping[str, Any]) -> None:
    """Keep a folder under a key, or files of it that fit a pattern; what is there under it stays."""
    _only(given, "path", "key")
    root, pattern = _split_cache_path(given)
    key, source = str(given["key"]), at.workspace / root
    found = list(source.glob(pattern))
    files = [path for path in found if path.is_file()]
    if key in at.services.caches or not files:
        at.services.asked.append(f"cache: not saved as {key}")
        return
    place = at.services.folder / "caches" / key
    for path in files:
        (place / path.relative_to(source)).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, place / path.relative_to(source))
    for path in found if pattern == "**/*" else ():
        if path.is_dir():  # git needs its empty ones
            (place / path.relative_to(source)).mkdir(parents=True, exist_ok=True)
    at.services.caches[key] = place


def _split_cache_path(given: Mapping[str, Any]) -> tuple[str, str]:
    """Return the folder of what is cached, and the pattern of its files."""
    root, _, pattern = str(given["path"]).partition("/")
    return root, pattern or "**/*"


def credentials(at: At, given: Mapping[str, Any]) -> None:
    """Note that a role was asked for."""
    _only(given, "role-to-assume", "role-duration-seconds", "aws-region")
    if (
        not given["role-to-assume"]
        or not given["aws-region"]
        or int(given.get("role-duration-seconds", 3600)) < 900
    ):
        raise Failed("Input required and not supplied: aws-region or role-to-assume")
    at.services.asked.append(f"role {given['role-to-assume']} in {given['aws-region']}")


def attest(at: At, given: Mapping[str, Any]) -> None:
    """Write one bundle about all files, with their digests and without certificate, log entry or signature.

    Nothing to attest is an error.
    """
    _only(given, "subject-path")
    found = sorted(at.workspace.glob(str(given["subject-path"])))
    if not found:
        raise Failed(f"Could not find subject at path {given['subject-path']}")
    at.services.asked.append(f"attested {len(found)} files")
    digests = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in found}
    subjects = [{"name": name, "digest": {"sha256": digest}} for name, digest in digests.items()]
    statement = base64.b64encode(json.dumps({"subject": subjects}).encode()).decode()
    # in a folder of its own outside of the workspace, as there
    bundle = Path(tempfile.mkdtemp(dir=at.services.folder)) / "attestation.json"
    bundle.write_text(json.dumps({"dsseEnvelope": {"payload": statement}}) + "\n", encoding="utf-8")
    at.outputs["bundle-path"] = str(bundle)


ACTIONS: dict[str, Callable[[At, Mapping[str, Any]], None]] = {
    "actions/checkout": checkout,
    "actions/setup-python": setup_python,
    "actions/upload-artifact": upload_artifact,
    "actions/download-artifact": download_artifact,
    "actions/cache/restore": restore_cache,
    "actions/cache/save": save_cache,
    "actions/attest-build-provenance": attest,
    "aws-actions/configure-aws-credentials": credentials,
}


def pythons_here() -> dict[str, Path]:
    """Return the Pythons of this machine by version: the running one, pyenv's and those on PATH."""
    base = Path(getattr(sys, "_base_executable", sys.executable)).resolve()
    found = {f"{sys.version_info[0]}.{sys.version_info[1]}": base}
    for folder in sorted((Path.home() / ".pyenv" / "versions").glob("3.*")):
        version = ".".join(folder.name.split(".")[:2])
        if (folder / "bin" / "python3").exists():
            found.setdefault(version, folder / "bin" / "python3")
    for minor in range(10, 16):
        path = shutil.which(f"python3.{minor}")
        if path and "shims" not in path:
            found.setdefault(f"3.{minor}", Path(path))
    return {version: path for version, path in found.items() if int(version.split(".")[1]) >= 10}
