"""Write and read the statement beside a wheel that says how it was made: ``<wheel>.intoto.json``.

It is an in-toto Statement v1 with SLSA's predicate, provenance v1. It names the finished file by its
digest, so it cannot be inside. A signature by an SSH key is beside it: ``<wheel>.intoto.json.sig``.

What is done to a wheel afterwards makes another file, which gets a statement of its own: its dependency is
the wheel of before, with the statement (and signature) of that inside, byte for byte. So the newest
statement holds all of them, down to the build. A wheel that had none gets none: nobody knows its origin.

Sources: in-toto attestation framework v1 (Statement, ResourceDescriptor); SLSA v1.1, provenance.
"""

from __future__ import annotations

import base64
import errno
import hashlib
import json
import re
import stat
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from rocm_wheels import __version__
from rocm_wheels.core import errors, log
from rocm_wheels.core.files import hash_file, write_atomically
from rocm_wheels.wheels import sbom

STATEMENT_SUFFIX = ".intoto.json"
STATEMENT_SIGNATURE_SUFFIX = f"{STATEMENT_SUFFIX}.sig"
STATEMENT_NAMESPACE = "provenance@rocm-wheels"  # what signatures of statements are for
BUILD_TYPE = "urn:rocm-wheels:build:1"
STEP_TYPE = "urn:rocm-wheels:step:1"
TOOL_URN = f"urn:rocm-wheels:{__version__}"
_STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
_PREDICATE_TYPE = "https://slsa.dev/provenance/v1"
_STATEMENT_MEDIA_TYPE = "application/vnd.in-toto+json"
_LARGEST_STATEMENT = 16 << 20
_MOST_STATEMENTS = 1024
_SHA256 = re.compile(r"[0-9a-f]{64}")
# escapes of JSON for what would move a terminal's cursor, or turn its text round
_UNPRINTABLE = re.compile(
    rb"(?<!\\)(?:\\\\)*\\(?:[bfnrt]|u00(?:[01]|7f|[89])|u20(?:0[ef]|2[a-e]|6[6-9]))", re.IGNORECASE
)


@dataclass(frozen=True)
class WheelOrigin:
    """A wheel that another was made of: name, digest (hex), its statement, and the signature of that."""

    name: str
    sha256: str
    statement: bytes
    signature: bytes | None = None


@dataclass(frozen=True)
class ProvenanceStatement:
    """A statement as it was read: the name and the digest (hex) of the wheel, and what is said of it."""

    name: str
    sha256: str
    predicate: Mapping[str, Any]
    content: bytes

    @property
    def build_type(self) -> str:
        """What its parameters mean: ``BUILD_TYPE``, ``STEP_TYPE``."""
        return str(self.predicate["buildDefinition"]["buildType"])

    @property
    def builder(self) -> str:
        """Who made the wheel: a workflow, or the tool with its version."""
        return str(self.predicate["runDetails"]["builder"]["id"])

    @property
    def parameters(self) -> Mapping[str, Any]:
        """What was asked for."""
        parameters: Mapping[str, Any] = self.predicate["buildDefinition"]["externalParameters"]
        return parameters

    @property
    def dependencies(self) -> Sequence[Mapping[str, Any]]:
        """What went into the wheel."""
        dependencies: Sequence[Mapping[str, Any]] = self.predicate["buildDefinition"]["resolvedDependencies"]
        return dependencies

    @cached_property
    def earlier(self) -> tuple[WheelOrigin, ...]:
        """The statements of the wheels that this one was made of. DataError for one without its wheel."""
        wheels = {entry.get("name"): entry.get("digest", {}).get("sha256") for entry in self.dependencies}
        contents = {
            entry["name"]: _decode_content(entry) for entry in self.dependencies if "content" in entry
        }
        earlier = []
        for name, content in contents.items():
            wheel = name.removesuffix(STATEMENT_SUFFIX)
            if wheel == name:
                continue  # a signature
            if not isinstance(sha256 := wheels.get(wheel), str):
                raise errors.DataError(f"the statement of {self.name} has {name}, and no digest of {wheel}")
            signature = contents.get(wheel + STATEMENT_SIGNATURE_SUFFIX)
            earlier.append(WheelOrigin(wheel, sha256, content, signature))
        return tuple(earlier)


def locate_statement(wheel: Path) -> Path:
    """Return where the statement of a wheel is: beside it."""
    return wheel.with_name(wheel.name + STATEMENT_SUFFIX)


def locate_statement_signature(wheel: Path) -> Path:
    """Return where the signature of a wheel's statement is."""
    return wheel.with_name(wheel.name + STATEMENT_SIGNATURE_SUFFIX)


def has_statement(wheel: Path) -> bool:
    """Tell whether a statement lies beside a wheel; it cannot where its name would be too long."""
    return _read_file(locate_statement(wheel)) is not None


def remove_statement(wheel: Path) -> None:
    """Remove the statement of a wheel that is gone, and its signature."""
    if has_statement(wheel):
        locate_statement_signature(wheel).unlink(missing_ok=True)
        locate_statement(wheel).unlink(missing_ok=True)


def format_statement(name: str, sha256: str, predicate: Mapping[str, Any]) -> bytes:
    """Return the statement of a wheel: sorted, and the same for the same predicate."""
    document = {
        "_type": _STATEMENT_TYPE,
        "subject": [{"name": name, "digest": {"sha256": sha256}}],
        "predicateType": _PREDICATE_TYPE,
        "predicate": predicate,
    }
    return (json.dumps(document, indent=1, sort_keys=True) + "\n").encode("ascii")


def parse_statement(content: bytes, *, name: str) -> ProvenanceStatement:
    """Read a statement about one wheel; DataError, with ``name`` as that of the file, for anything else.

    It is in ASCII, as it is written here, and all texts in it can be printed.
    """
    if not content.isascii() or _UNPRINTABLE.search(content):
        raise errors.DataError(f"{name} is no statement: it has characters that cannot be printed")
    try:
        document = json.loads(content)
        (subject,) = document["subject"]
        predicate = document["predicate"]
        build, run = predicate["buildDefinition"], predicate["runDetails"]
        kinds = document["_type"], document["predicateType"]
        statement = ProvenanceStatement(subject["name"], subject["digest"]["sha256"], predicate, content)
        texts = statement.name, statement.sha256, build["buildType"], run["builder"]["id"]
        dependencies = build["resolvedDependencies"]
        right = all(isinstance(text, str) for text in texts) and isinstance(build["externalParameters"], dict)
        right = right and isinstance(dependencies, list) and all(map(_is_descriptor, dependencies))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        kinds, right, statement = ("", ""), False, None
    if statement is None or not right or not _SHA256.fullmatch(statement.sha256):
        raise errors.DataError(f"{name} is not a statement about one wheel")
    if kinds != (_STATEMENT_TYPE, _PREDICATE_TYPE):
        raise errors.DataError(
            f"{name} is of the form {' and '.join(map(str, kinds))}, not SLSA's provenance v1"
        )
    return statement


def read_statement(wheel: Path) -> ProvenanceStatement | None:
    """Read the statement beside a wheel; None where there is none. DataError as ``parse_statement``."""
    path = locate_statement(wheel)
    content = _read_file(path)
    return None if content is None else parse_statement(content, name=str(path))


def read_origin(wheel: Path, *, sha256: str | None = None) -> WheelOrigin | None:
    """Read the statement of a wheel that another is to be made of; None where it has none.

    ``sha256`` (hex) is that of the wheel, where it is known. DataError for a statement about other bytes than
    the wheel has.
    """
    statement = read_statement(wheel)
    if statement is None:
        return None
    sha256 = sha256 or hash_file(wheel)
    if (statement.name, statement.sha256) != (wheel.name, sha256):
        raise errors.DataError(
            f"{locate_statement(wheel)} is about {statement.name} with sha256 {statement.sha256[:12]}…, "
            f"and the wheel has {sha256[:12]}…",
            tip="put the wheel back that it is about, or remove the statement: the new wheel has none then",
        )
    signature = _read_file(locate_statement_signature(wheel))
    return WheelOrigin(wheel.name, sha256, statement.content, signature)


def write_statement(wheel: Path, content: bytes, signature: bytes | None = None) -> None:
    """Write the statement of a finished wheel beside it, whole; the signature of another one goes."""
    path, signature_path = locate_statement(wheel), locate_statement_signature(wheel)
    if signature is None and _read_file(path) == content:
        return
    signature_path.unlink(missing_ok=True)
    write_atomically(path, content)
    if signature is not None:
        write_atomically(signature_path, signature)


def write_step_statement(
    origins: Sequence[WheelOrigin | None],
    wheel: Path,
    step: str,
    packages: Sequence[sbom.PackagePart] = (),
) -> None:
    """Write the statement of a wheel that a step made of others; where one has none, there is none.

    ``packages`` are those whose files went into the wheel. A step that gives back a wheel of before gives
    back its statement as well: ``retag --label ''`` after ``stamp``.
    """
    known_origins = [origin for origin in origins if origin is not None]
    if not known_origins or len(known_origins) < len(origins):
        stale = read_statement(wheel)
        # about a wheel that had this name before, it would be a lie about the new one
        if stale is not None and stale.sha256 != hash_file(wheel):
            remove_statement(wheel)
            log.log_note(f"{locate_statement(wheel).name} is removed: it is about another wheel of that name")
        return
    sha256 = hash_file(wheel)
    for origin in known_origins:
        if (same := _find_statement_of(origin, wheel.name, sha256)) is not None:
            write_statement(wheel, same.statement, same.signature)
            return
    predicate = {
        "buildDefinition": {
            "buildType": STEP_TYPE,
            "externalParameters": {"step": step},
            "internalParameters": {},
            "resolvedDependencies": [
                *(entry for origin in known_origins for entry in _describe_origin(origin)),
                *map(describe_package_dependency, packages),
            ],
        },
        "runDetails": {"builder": {"id": TOOL_URN}},
    }
    write_statement(wheel, format_statement(wheel.name, sha256, predicate))


def copy_statement(source: Path, target: Path) -> None:
    """Give a copy of a wheel, under its name, the statement of the original; none where that has none."""
    if (content := _read_file(locate_statement(source))) is None:
        remove_statement(target)
    else:
        write_statement(target, content, _read_file(locate_statement_signature(source)))


def describe_package_dependency(part: sbom.PackagePart) -> dict[str, Any]:
    """Return a Python package as a dependency; its digest is that of its files' list (``PackagePart``)."""
    dependency: dict[str, Any] = {"name": part.name, "uri": sbom.make_package_url(part.name, part.version)}
    if part.record:
        dependency["digest"] = {"rocm-wheels-record-sha256": part.record}
    return dependency


def walk_statements(statement: ProvenanceStatement) -> Iterable[tuple[ProvenanceStatement, bytes | None]]:
    """Yield the statements that one holds, the newest first, with their signatures, not this one; each once.

    DataError where one is not about the wheel that it is named as the statement of, and for too many.
    """
    pending, walked = list(statement.earlier), set[bytes]()
    for _ in range(_MOST_STATEMENTS):
        if not pending:
            return
        earlier = pending.pop(0)
        if earlier.statement in walked:
            continue
        walked.add(earlier.statement)
        inner = parse_statement(earlier.statement, name=f"the statement of {earlier.name}")
        if (inner.name, inner.sha256) != (earlier.name, earlier.sha256):
            raise errors.DataError(
                f"the statement of {earlier.name} is about {inner.name} with sha256 {inner.sha256[:12]}…, "
                f"and {earlier.sha256[:12]}… was used"
            )
        yield inner, earlier.signature
        pending += inner.earlier
    raise errors.DataError(f"the statement of {statement.name} holds more than {_MOST_STATEMENTS} others")


def _find_statement_of(origin: WheelOrigin, name: str, sha256: str) -> WheelOrigin | None:
    """Return the statement that is about these bytes already: the wheel's own, or one of before."""
    statement = parse_statement(origin.statement, name=f"the statement of {origin.name}")
    if (origin.name, origin.sha256) == (name, sha256):
        return origin
    for inner, signature in walk_statements(statement):
        if (inner.name, inner.sha256) == (name, sha256):
            return WheelOrigin(name, sha256, inner.content, signature)
    return None


def _describe_origin(origin: WheelOrigin) -> list[dict[str, Any]]:
    files = [(origin.name + STATEMENT_SUFFIX, _STATEMENT_MEDIA_TYPE, origin.statement)]
    if origin.signature is not None:
        files.append((origin.name + STATEMENT_SIGNATURE_SUFFIX, "text/plain", origin.signature))
    descriptors: list[dict[str, Any]] = [{"name": origin.name, "digest": {"sha256": origin.sha256}}]
    for name, media_type, content in files:
        descriptors.append(
            {
                "name": name,
                "mediaType": media_type,
                "digest": {"sha256": hashlib.sha256(content).hexdigest()},
                "content": base64.b64encode(content).decode("ascii"),
            }
        )
    return descriptors


def _is_descriptor(entry: object) -> bool:
    return (
        isinstance(entry, dict)
        and isinstance(entry.get("digest", {}), dict)
        and all(isinstance(entry.get(key, ""), str) for key in ("name", "uri", "content"))
        and ("content" not in entry or "name" in entry)
    )


def _decode_content(entry: Mapping[str, Any]) -> bytes:
    try:
        content = base64.b64decode(entry["content"], validate=True)
    except ValueError as cause:
        raise errors.DataError(f"{entry['name']} inside a statement is not base64") from cause
    if entry.get("digest", {}).get("sha256") != hashlib.sha256(content).hexdigest():
        raise errors.DataError(f"{entry['name']} inside a statement is not what its digest says")
    return content


def _read_file(path: Path) -> bytes | None:
    """Return a small file; None where it is not there, or where no file can have the name."""
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise errors.DataError(f"{path} is no file")
        if status.st_size > _LARGEST_STATEMENT:
            raise errors.DataError(f"{path} has {status.st_size} bytes: too many for a statement")
        return path.read_bytes()
    except OSError as failure:
        if failure.errno in {errno.ENOENT, errno.ENAMETOOLONG}:
            return None
        raise
