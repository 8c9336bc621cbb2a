"""Write and revise the bill of materials inside a wheel: ``*.dist-info/sboms/rocm-wheels.cdx.json``.

CycloneDX 1.6, where PEP 770 puts it. It names what went into the wheel, never where or by whom: no path,
user, host, date or credential. The same parts give the same bytes. What is not known is left out.
Sources: PEP 770; the CycloneDX 1.6 JSON schema; the purl specification (types pypi, github, generic).
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlsplit

from packaging.utils import canonicalize_name

from rocm_wheels.core import errors

SBOM_MEMBER = "sboms/rocm-wheels.cdx.json"
_STEP = "rocm-wheels:step"
_DEVICES = "rocm-wheels:rocm-devices"
_NAMESPACE = uuid.uuid5(uuid.NAMESPACE_URL, "https://cyclonedx.org/schema/bom-1.6.schema.json")


@dataclass(frozen=True)
class SourcePart:
    """A repository at a commit; ``origin`` may be ``""``. ``path``: where in the tree, ``""``: its root.

    ``patches`` and ``tree`` are digests: of a patch set, and of a tree that somebody has changed.
    """

    name: str
    origin: str
    commit: str
    path: str = ""
    patches: str | None = None
    tree: str | None = None


@dataclass(frozen=True)
class PackagePart:
    """A Python package that the wheel was built against; ``record`` is the SHA-256 of its files' list."""

    name: str
    version: str
    record: str | None = None


@dataclass(frozen=True)
class WheelParts:
    """What a wheel was made of, by which version of rocm-wheels; ``rocm`` is the version of ROCm.

    ``devices`` are the GPU targets that this ROCm has device packages for: extras of ``rocm``.
    """

    tool: str
    targets: tuple[str, ...] = ()
    rocm: str | None = None
    sources: tuple[SourcePart, ...] = ()
    packages: tuple[PackagePart, ...] = ()
    devices: tuple[str, ...] = ()


def format_sbom(parts: WheelParts, name: str, version: str, licence: str | None = None) -> bytes:
    """Return the document of a wheel: sorted, and the same for the same parts.

    ``licence`` is an SPDX expression, as METADATA has it.
    """
    reference = make_package_url(name, version)
    wheel: dict[str, Any] = {
        "type": "library",
        "bom-ref": reference,
        "name": name,
        "version": version,
        "purl": reference,
        "properties": _list_properties(
            [
                ("rocm-wheels:targets", " ".join(parts.targets)),
                ("rocm-wheels:rocm", parts.rocm),
                (_DEVICES, " ".join(parts.devices)),
            ]
        ),
    }
    if licence:
        wheel["licenses"] = [{"expression": licence}]
    components = _describe_sources(parts.sources) + [_describe_package(part) for part in parts.packages]
    components.sort(key=lambda component: str(component["bom-ref"]))
    references = [component["bom-ref"] for component in components]
    document = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "lifecycles": [{"phase": "build"}],
            "tools": {"components": [{"type": "application", "name": "rocm-wheels", "version": parts.tool}]},
            "component": wheel,
        },
        "components": components,
        "dependencies": [
            {"ref": reference, "dependsOn": references},
            *({"ref": component} for component in references),
        ],
    }
    return _finish_document(document)


def revise_sbom(
    content: bytes,
    *,
    version: str | None = None,
    step: str = "",
    undone: str = "",
    contained: Sequence[Mapping[str, Any]] = (),
) -> bytes:
    """Return the document of a wheel that got another version, or that something was done to.

    ``step`` says what (``retag``), unless it takes back what was done last: what ``undone`` begins.
    ``contained``: components that are now inside the wheel. Raises DataError for a document that is not ours.
    """
    try:
        document = json.loads(content)
        wheel = document["metadata"]["component"]
        steps, dependencies = wheel["properties"], document["dependencies"]
        old_reference = wheel["bom-ref"]
        if version is not None:
            wheel["version"] = version
            wheel["bom-ref"] = wheel["purl"] = make_package_url(wheel["name"], version)
            for dependency in dependencies:
                if dependency["ref"] == old_reference:
                    dependency["ref"] = wheel["bom-ref"]
        if undone and steps and steps[-1]["name"] == _STEP and steps[-1]["value"].startswith(undone):
            steps.pop()
        elif step:
            steps.append({"name": _STEP, "value": step})
        if contained:
            wheel["components"] = [*wheel.get("components", []), *contained]
        return _finish_document(document)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as cause:
        raise errors.DataError(f"{SBOM_MEMBER} is not as rocm-wheels writes it") from cause


def list_rocm_devices(content: bytes) -> list[str]:
    """Return the targets that the ROCm of a build has device packages for. DataError for another format."""
    try:
        properties = json.loads(content)["metadata"]["component"]["properties"]
        values = [entry["value"] for entry in properties if entry["name"] == _DEVICES]
        return [target for value in values for target in value.split()]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as cause:
        raise errors.DataError(f"{SBOM_MEMBER} is not as rocm-wheels writes it") from cause


def describe_contained(part: PackagePart) -> dict[str, Any]:
    """Return the component of a package whose files are inside a wheel, which need not be all of them.

    The same package may be named as what the wheel was built against: this is another reference.
    """
    component = _describe_package(part)
    return {**component, "bom-ref": f"contained:{component['bom-ref']}"}


def _describe_sources(sources: Iterable[SourcePart]) -> list[dict[str, Any]]:
    """Return a component a repository and commit; a commit that lies in several places is one of them."""
    components: dict[str, dict[str, Any]] = {}
    for part in sources:
        rows = [("path", part.path), ("patches-sha256", part.patches), ("changed-tree", part.tree)]
        reference = make_repository_url(part)
        component = components.setdefault(reference, _make_component(reference, part.name, part.commit))
        properties = _list_properties((f"rocm-wheels:{name}", value) for name, value in rows)
        component["properties"] += [entry for entry in properties if entry not in component["properties"]]
    return list(components.values())


def _describe_package(part: PackagePart) -> dict[str, Any]:
    component = _make_component(make_package_url(part.name, part.version), part.name, part.version)
    return component | {"properties": _list_properties([("rocm-wheels:record-sha256", part.record)])}


def _make_component(reference: str, name: str, version: str) -> dict[str, Any]:
    """Return what a wheel was made of; ``reference`` is its purl."""
    named = {"type": "library", "bom-ref": reference, "name": name, "version": version, "purl": reference}
    return {**named, "scope": "required", "properties": []}


def _list_properties(rows: Iterable[tuple[str, str | None]]) -> list[dict[str, str]]:
    return [{"name": name, "value": value} for name, value in rows if value]


def make_package_url(distribution: str, version: str) -> str:
    """Return the purl of a Python package."""
    return f"pkg:pypi/{canonicalize_name(distribution)}@{quote(version, safe='.-_!')}"


def make_repository_url(part: SourcePart) -> str:
    """Return a purl. An origin that is no public address (a path, a machine of one's own) is not named."""
    address = urlsplit(part.origin)
    path = address.path.strip("/").removesuffix(".git")
    if address.scheme == "https" and address.hostname == "github.com" and path.count("/") == 1:
        return f"pkg:github/{path.lower()}@{part.commit}"
    return f"pkg:generic/{quote(part.name, safe='.-_')}@{part.commit}"


def _finish_document(document: dict[str, Any]) -> bytes:
    """Return the bytes of a document, with a serial number that follows from the rest."""
    document.pop("serialNumber", None)
    text = json.dumps(document, sort_keys=True)
    document["serialNumber"] = f"urn:uuid:{uuid.uuid5(_NAMESPACE, text)}"
    return (json.dumps(document, indent=1, sort_keys=True) + "\n").encode("utf-8")
