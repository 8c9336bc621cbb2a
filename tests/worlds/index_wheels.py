"""Tiny real wheels for tests of indexes."""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path

from audit_wheels import Draft

from rocm_wheels.index import update

NOW = "2026-11-21T12:00:00Z"
SCHEMA = "https://variants-schema.wheelnext.dev/peps/850/v0.2.0.json"
Properties = dict[str, dict[str, list[str]]]


def wheel(
    folder: Path,
    name: str = "torch",
    version: str = "2.9.1+rocm7.1.0",
    tag: str = "py3-none-any",
    *,
    build: str = "",
    requires: tuple[str, ...] = (),
    python: str = ">=3.10",
    text: str = "",
) -> Path:
    """Write a wheel with one module; ``text`` is what makes its bytes differ."""
    folder.mkdir(parents=True, exist_ok=True)
    draft = Draft(name, version, tag, requires=list(requires), python=python)
    draft.members = {f"{name}/__init__.py": f"__version__ = '{version}'  # {text}\n".encode()}
    draft.file_name = f"{name}-{version}{build and '-' + build}-{tag}.whl"
    return draft.write(folder)


def variant(
    folder: Path,
    label: str,
    properties: Properties,
    *,
    name: str = "torch",
    version: str = "2.9.1",
    tag: str = "py3-none-any",
    namespaces: tuple[str, ...] = ("rocm",),
) -> Path:
    """Write a variant wheel whose properties have static providers."""
    folder.mkdir(parents=True, exist_ok=True)
    values = {"rocm": {"version": ["7.2", "7.1"]}, "amd": {"gfx_arch": ["gfx942", "gfx1100"]}}
    document = {
        "$schema": SCHEMA,
        "default-priorities": {"namespace": list(namespaces)},
        "providers": {namespace: {"static-properties": values[namespace]} for namespace in namespaces},
        "variants": {label: properties},
    }
    draft = Draft(name, version, tag)
    draft.members = {
        f"{name}/__init__.py": f"label = '{label}'\n".encode(),
        f"{draft.folder}/variant.json": json.dumps(document).encode(),
    }
    draft.file_name = f"{name}-{version}-{tag}-{label}.whl"
    return draft.write(folder)


def files(root: Path) -> dict[str, bytes]:
    """Return what lies in an index, but for its lock and who held it."""
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and path.name not in (".lock", ".owner", ".groups")
    }


def drop(root: Path, *paths: Path) -> None:
    """Take wheels out of an index: the files, then what it knows of them."""
    for path in paths:
        path.unlink()
    assert update.build_index(root, now=NOW, drop_missing=True).missing == tuple(sorted(map(str, paths)))


def make_object(path: Path, **changed: object) -> bytes:
    """Return a provenance object as PyPI has them: made up, but for the file that it is about.

    ``changed`` are other values of the subject (``name``, ``sha256``), of the predicate's type (``kind``), or
    of the object itself (``version``).
    """
    subject = {
        "name": changed.get("name", path.name),
        "digest": {"sha256": changed.get("sha256", hashlib.sha256(path.read_bytes()).hexdigest())},
    }
    statement = {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [subject],
        "predicateType": changed.get("kind", "https://docs.pypi.org/attestations/publish/v1"),
        "predicate": None,
    }
    entry = {"logIndex": "1", "kindVersion": {"kind": "dsse", "version": "0.0.1"}}
    attestation = {
        "version": 1,
        "verification_material": {
            "certificate": base64.b64encode(b"0 certificate").decode(),
            "transparency_entries": [entry],
        },
        "envelope": {
            "statement": base64.b64encode(json.dumps(statement).encode()).decode(),
            "signature": base64.b64encode(b"a signature").decode(),
        },
    }
    publisher = {"kind": "GitHub", "claims": None, "repository": "o/r", "workflow": "release.yml"}
    bundle = {"publisher": publisher, "attestations": [attestation]}
    return json.dumps({"version": changed.get("version", 1), "attestation_bundles": [bundle]}).encode()
