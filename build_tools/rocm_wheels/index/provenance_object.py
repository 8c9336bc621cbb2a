"""Check provenance objects, which an index may have beside its files: ``<file>.provenance`` (PEP 740).

An object holds attestations by Sigstore certificates. Its form is checked here, and that each statement in
it is about the file; signatures are not: that needs Sigstore's root of trust, and who verifies them
(``pypi-attestations``, installers) has it.

Sources: "Index hosted attestations" and "Simple repository API" of the PyPA specifications.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import SplitResult, urlsplit

from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    parse_sdist_filename,
    parse_wheel_filename,
)

from rocm_wheels.core import errors

PROVENANCE_SUFFIX = ".provenance"
_STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
_PREDICATE_TYPES = ("https://slsa.dev/provenance/v1", "https://docs.pypi.org/attestations/publish/v1")
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


def check_provenance_base(url: str | None) -> str:
    """Return the URL under which people see an index, with a slash at its end; "" for None.

    UsageError for one that pages cannot name: it must be whole, of a secure origin, and fit to be read.
    """
    if url is None:
        return ""
    parts = _split_url(url)
    is_secure = parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in _LOOPBACK)
    if not is_secure or not parts.hostname or "@" in parts.netloc or parts.query or parts.fragment:
        raise errors.UsageError(
            f"--public-url {parts.scheme}://{parts.hostname or ''} cannot be named by pages of an index",
            tip="for example: https://wheels.example.org/simple/, without user, password, ? and #",
        )
    return url.rstrip("/") + "/"


def _split_url(url: str) -> SplitResult:
    try:
        return urlsplit(url)
    except ValueError:  # http://[half
        return urlsplit("")


def find_url_fault(url: str) -> str:
    """Return why installers cannot use the URL of an object, "" where they can."""
    parts = _split_url(url)
    if not parts.hostname:
        return f"{url} is not a whole URL"
    if parts.scheme != "https" and parts.hostname not in _LOOPBACK:
        return f"{url} is of no secure origin"
    return ""


def require_provenance_object(content: bytes, *, where: str, file_name: str, sha256: str) -> None:
    """Raise DataError with all that is wrong with an object; ``sha256`` (hex) is that of the file."""
    if faults := find_object_faults(content, file_name=file_name, sha256=sha256):
        raise errors.DataError(f"{where} is no provenance object of {file_name}: {'; '.join(faults)}")


def find_object_faults(content: bytes, *, file_name: str, sha256: str) -> list[str]:
    """Return what is wrong with an object as a whole, or with any attestation in it."""
    try:
        document = json.loads(content)
        if document["version"] != 1 or isinstance(document["version"], bool):
            return [f"version is {document['version']!r}, not 1"]
        bundles = document["attestation_bundles"]
        if not isinstance(bundles, list) or not bundles:
            return ["it has no attestation_bundles"]
        faults = []
        for number, bundle in enumerate(bundles):
            faults += [f"bundle {number}: {fault}" for fault in _check_bundle(bundle, file_name, sha256)]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as cause:
        missing = f"{cause} is missing" if isinstance(cause, KeyError) else "it is not of the form of PEP 740"
        return [missing]
    return faults


def _check_bundle(bundle: Mapping[str, Any], file_name: str, sha256: str) -> Iterator[str]:
    publisher = bundle["publisher"]
    if not isinstance(publisher["kind"], str) or not isinstance(publisher.get("claims") or {}, dict):
        yield "its publisher has no kind, or claims that are none"
    attestations = bundle["attestations"]
    if not isinstance(attestations, list) or not attestations:
        yield "it has no attestations"
        return
    for attestation in attestations:
        yield from _check_attestation(attestation, file_name, sha256)


def _check_attestation(attestation: Mapping[str, Any], file_name: str, sha256: str) -> Iterator[str]:
    if attestation["version"] != 1:
        yield f"an attestation is of version {attestation['version']!r}"
    material = attestation["verification_material"]
    entries = material["transparency_entries"]
    if not _decode(material["certificate"]) or not isinstance(entries, list) or not entries:
        yield "an attestation has no certificate, or no entry of a transparency log"
    if not _decode(attestation["envelope"]["signature"]):
        yield "an attestation has no signature"
    statement = json.loads(_decode(attestation["envelope"]["statement"]))
    kinds = statement["_type"], statement["predicateType"]
    if kinds[0] != _STATEMENT_TYPE or kinds[1] not in _PREDICATE_TYPES:
        yield f"a statement is {kinds[0]!r} with {kinds[1]!r}"
    if len(statement["subject"]) != 1:
        yield f"a statement is about {len(statement['subject'])} files"
        return
    (subject,) = statement["subject"]
    if not _is_same_file(subject["name"], file_name) or subject["digest"]["sha256"] != sha256:
        yield f"a statement is about {subject['name']!r} with sha256 {subject['digest']['sha256']!r}"


def _is_same_file(name: str, file_name: str) -> bool:
    """Tell whether two names are those of one file: a statement may have the normalized one."""
    if name == file_name:
        return True
    parse = parse_wheel_filename if file_name.endswith(".whl") else parse_sdist_filename
    try:
        return parse(name) == parse(file_name)
    except (InvalidWheelFilename, InvalidSdistFilename):
        return False


def _decode(text: str) -> bytes:
    return base64.b64decode(text, validate=True)
