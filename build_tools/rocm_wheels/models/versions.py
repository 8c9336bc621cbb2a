"""Hold the rules about versions: suffixes, what a wheel is called, what torch requires.

A wheel of torch 2.9.0 made with ROCm 7.10.0 is ``2.9.0+rocm7.10.0``. The table of all
kinds is in ROCm/TheRock docs/packaging/versioning.md; local parts follow PEP 440.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path

from packaging.version import InvalidVersion, Version

from rocm_wheels.core import errors
from rocm_wheels.models import project_names

_WITH_COMMIT = ("dev", "dev-bkc")
_COMMIT_DIGITS = 8


def make_version_suffix(rocm_version: str, explicit: str | None = None) -> str:
    """Return what wheels of a ROCm version carry: ``+rocm<v>``, or ``+devrocm<v>`` for a dev build.

    A ``+`` inside the ROCm version becomes ``-`` (which PEP 440 writes ``.`` in a finished
    version). ``explicit`` (``--version-suffix``) is taken instead when it is not empty; it must
    make a version with a base before it. Raises UsageError, or SdkError for a bad ``rocm_version``.
    """
    if explicit:
        _parse_version(f"1.0{explicit}", f"--version-suffix {explicit}", errors.UsageError)
        return explicit
    _parse_version(rocm_version, "the version of the ROCm SDK", errors.SdkError)
    prefix = "devrocm" if "dev" in rocm_version else "rocm"
    return f"+{prefix}{rocm_version.replace('+', '-')}"


def add_version_parts(suffix: str, *parts: str) -> str:
    """Return a suffix with parts before what it says: ``+rocm10.1`` → ``+nightly20261122.17.rocm10.1``.

    Raises UsageError for a suffix that is no local part (``.post1``), which nothing can stand before.
    """
    if not parts:
        return suffix
    if suffix and not suffix.startswith("+"):
        raise errors.UsageError(
            f"--version-suffix {suffix} leaves no place for +{'.'.join(parts)}", tip="begin it with +"
        )
    return "+" + ".".join(part for part in (*parts, suffix[1:]) if part)


_MOST_SPELLED_TARGETS = 4
_MARKS = re.compile(
    r"""(?:\.(?:debug | relwithdebinfo | asan | (?:git|dirty|gfxset)[0-9a-f]{8}
    | gfx[0-9a-f]+(?:[.](?:xnack|sramecc)[-.](?:on|off))*))+$""",
    re.VERBOSE,
)


def add_version_marks(
    suffix: str, *, targets: Sequence[str] = (), debug: str = "", commit: str = "", changes: str = ""
) -> str:
    """Return a suffix that tells a developer's build from others, behind what it says of ROCm.

    ``+rocm7.2.4`` → ``+rocm7.2.4.gfx1151.debug.git0a1b2c3d.dirty4e5f6a7b``: ``targets``, how it is compiled
    (``debug``), a ``commit`` of the developer's own, the digest of ``changes`` that are in no commit. Behind
    ROCm, so that a newer ROCm goes first, and such a build before the plain one (PEP 440). Letters begin each
    mark: PEP 440 takes a mark of digits alone for a number. More than four targets are a digest.
    """
    marks = [target.replace("+", "-on").replace(":", ".") for target in targets]
    marks = [re.sub("-$", "-off", mark) for mark in marks]
    if len(targets) > _MOST_SPELLED_TARGETS:
        marks = [f"gfxset{hashlib.sha256(','.join(targets).encode('utf-8')).hexdigest()[:_COMMIT_DIGITS]}"]
    marks += [debug] if debug else []
    marks += [f"git{commit[:_COMMIT_DIGITS]}"] if commit else []
    marks += [f"dirty{changes[:_COMMIT_DIGITS]}"] if changes else []
    return "+" + ".".join(part for part in (suffix.removeprefix("+"), *marks) if part) if marks else suffix


def add_asan_label(suffix: str) -> str:
    """Return a suffix that says that host code is compiled with AddressSanitizer: ``+rocm10.1.0.asan``.

    One of a ROCm that says so itself (``10.1.0+asan.5``, as ROCm/TheRock#7312 spells it) stays.
    """
    if is_asan_version(f"1.0{suffix}"):
        return suffix
    if suffix and not suffix.startswith("+"):
        raise errors.UsageError(f"--version-suffix {suffix} leaves no place for .asan", tip="begin it with +")
    return f"{suffix}.asan" if suffix else "+asan"


def is_asan_version(version: str | Version) -> bool:
    """Tell whether a version is of a wheel with AddressSanitizer; what is none is not."""
    try:
        local = Version(str(version)).local or ""
    except ValueError:  # no version, or a number of more digits than Python reads
        return False
    return "asan" in local.split(".")


def strip_version_marks(text: str) -> str:
    """Return a version or suffix without the marks of a developer's build."""
    return _MARKS.sub("", text)


def read_base_version(source: Path, file: str = "version.txt") -> str:
    """Read the base version of a source tree. Raises DataError that names the file."""
    path = source / file
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as cause:
        raise errors.DataError(
            f"cannot read the version of {source.name} from {path}",
            tip="it must hold the base version, such as 2.9.0; is this the right folder?",
        ) from cause
    return parse_base_version(text, name=str(path))


def parse_base_version(text: str, *, name: str) -> str:
    """Return the base version that a file holds; ``name`` stands for the file. Raises DataError."""
    text = text.strip()
    if not text:
        raise errors.DataError(f"{name} is empty", tip="it must hold the base version, such as 2.9.0")
    version = _parse_version(text, name, errors.DataError)
    if version.local:
        raise errors.DataError(
            f"{name}: {text} has a local part (+{version.local}) before any suffix is added"
        )
    return text


def read_stated_version(text: str, variable: str, *, name: str) -> str:
    """Return the base version that a Python file assigns to ``variable``; the file is not run.

    ``name`` stands for the file in messages. Raises DataError unless there is exactly one.
    """
    assigned = rf"^{re.escape(variable)}[ \t]*=[ \t]*(?P<quote>['\"])(?P<value>[^'\"\n]*)(?P=quote)"
    values = {match["value"] for match in re.finditer(assigned, text, re.MULTILINE)}
    if len(values) != 1:
        raise errors.DataError(
            f"{name}: a version must be assigned to {variable} once, here are {len(values)}",
            tip="the recipe's `version.stated` names the file and the variable",
        )
    return parse_base_version(values.pop(), name=name)


def make_wheel_version(
    base: str,
    suffix: str,
    *,
    release_type: str = "nightly",
    commit: str | None = None,
    git_tag: bool = True,
) -> str:
    """Join base and suffix as PEP 440 writes it; dev builds carry ``git<8 digits>`` of the commit first.

    ``git_tag`` is the recipe's word on whether this project takes part in that. Raises
    SourceError when the commit is needed and not there, UsageError when the parts do not fit.
    """
    if release_type not in project_names.RELEASE_TYPES:
        raise errors.UsageError(
            f"--release-type {release_type} is none of {', '.join(project_names.RELEASE_TYPES)}"
        )
    if release_type in _WITH_COMMIT and git_tag:
        if not re.fullmatch(rf"[0-9a-f]{{{_COMMIT_DIGITS},64}}", commit or ""):
            raise errors.SourceError(
                f"a build of release type {release_type} carries its commit, and the sources have none"
                + (f" (found {commit!r})" if commit else ""),
                tip="build from a git checkout, or choose another --release-type",
            )
        suffix = add_version_parts(suffix, f"git{(commit or '')[:_COMMIT_DIGITS]}")
    return str(_parse_version(base + suffix, f"{base}{suffix}", errors.UsageError))


def get_local_part(suffix: str) -> str:
    """Return the local part that a suffix gives, as finished versions spell it (``""`` when none)."""
    return _parse_version(f"1.0{suffix}", suffix, errors.UsageError).local or ""


def make_rocm_requirement(rocm_version: str) -> str:
    """Return what torch requires: exactly this build of the ROCm libraries, local part included (PEP 440)."""
    version = _parse_version(rocm_version, "the version of the ROCm SDK", errors.SdkError)
    return f"rocm[libraries]=={version}"


def check_exact_requirement(text: str) -> str:
    """Return ``text`` when it is a requirement on one exact version (PEP 508). Raises UsageError."""
    from packaging.requirements import InvalidRequirement, Requirement

    try:
        specifiers = [(s.operator, s.version) for s in Requirement(text).specifier]
    except InvalidRequirement as cause:
        raise errors.UsageError(f"{text!r} is not a requirement") from cause
    if len(specifiers) != 1 or specifiers[0][0] != "==" or "*" in specifiers[0][1]:
        raise errors.UsageError(f"{text} does not require one exact version")
    return text


def _parse_version(text: str, label: str, error: type[errors.RocmWheelsError]) -> Version:
    try:
        return Version(text)
    except InvalidVersion:
        raise error(f"{label}: {text!r} is not a version (PEP 440)", tip="such as 2.9.0 or 2.9.0a0") from None
