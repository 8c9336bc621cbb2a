"""Small indexes in a folder for tests of choosing, and machines to choose for. Everything is constructed."""

from __future__ import annotations

import html
import json
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from audit_wheels import Draft
from packaging.tags import Tag, parse_tag

from rocm_wheels.gpus import gpu, variables
from rocm_wheels.index import reader
from rocm_wheels.user import candidates
from rocm_wheels.user.choose import choose_wheels
from rocm_wheels.user.host import TargetHost
from rocm_wheels.variants.document import SCHEMA

TAG = "cp312-cp312-linux_x86_64"
TAGS: tuple[Tag, ...] = tuple(
    tag
    for name in (TAG, "cp312-abi3-linux_x86_64", "py3-none-linux_x86_64", "py3-none-any")
    for tag in parse_tag(name)
)
PLUGIN = {
    "requires": ["rocm-bootstrap>=0.3,<1"],
    "plugin-api": "rocm_bootstrap.variant_provider:AMDVariantPlugin",
}
PROVIDERS: dict[str, Any] = {"amd": PLUGIN, "rocm": {"static-properties": {"version": ["7.2", "7.1", "7.0"]}}}
Properties = Mapping[str, Mapping[str, Sequence[str]]]


def gfx(*targets: str, rocm: str = "") -> Properties:
    """Return the properties of a stamped wheel."""
    found: dict[str, dict[str, list[str]]] = {"amd": {"gfx_arch": sorted(targets)}} if targets else {}
    return {**found, "rocm": {"version": [rocm]}} if rocm else found


RELEASE: dict[str, Properties] = {
    "null": {},
    "rocm7.0_gfx9": gfx("gfx90a", "gfx942", rocm="7.0"),
    "rocm7.2_gfx9": gfx("gfx90a", "gfx942", rocm="7.2"),
    "rocm7.2_gfx110x": gfx("gfx1100", "gfx1101", "gfx1102", rocm="7.2"),
    "rocm7.2_gfx12": gfx("gfx12_generic", rocm="7.2"),
}


class Shelf:
    """An index in a folder; ``add`` puts a file on a project's page, ``write`` writes the pages."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.pages: dict[str, list[str]] = {}

    def add(self, project: str, name: str, content: bytes, **attributes: str) -> Path:
        """Put a file there, with attributes of its link (``yanked``, ``requires_python``)."""
        path = self.root / project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        said = "".join(
            f' data-{key.replace("_", "-")}="{html.escape(text)}"' for key, text in attributes.items()
        )
        href = name.replace("+", "%2B")
        digest = sha256(content).hexdigest()
        self.pages.setdefault(project, []).append(f'<a href="{href}#sha256={digest}"{said}>{name}</a><br>')
        return path

    def wheel(
        self,
        version: str,
        label: str = "",
        *,
        project: str = "torch",
        tag: str = TAG,
        document: Any = None,
        fields: Sequence[str] = (),
        requires: Sequence[str] = (),
        **attributes: str,
    ) -> Path:
        """Put a wheel there; with a ``document`` as its ``variant.json``."""
        draft = Draft(project.replace("-", "_"), version, tag, fields=list(fields), requires=list(requires))
        if document:
            draft.members[f"{draft.folder}/variant.json"] = json.dumps(document).encode()
        name = f"{draft.distribution}-{version}-{tag}{label and '-' + label}.whl"
        draft.file_name = name
        (self.root / "made").mkdir(parents=True, exist_ok=True)
        path = draft.write(self.root / "made")
        return self.add(project, name, path.read_bytes(), **attributes)

    def release(
        self, variants: Mapping[str, Properties], version: str = "2.9.0", *, listed: bool = True, **top: Any
    ) -> None:
        """Put a wheel for each variant there, and the document that lists them all."""
        providers = top.pop("providers", PROVIDERS)
        whole = {
            "$schema": SCHEMA,
            "default-priorities": {"namespace": list(providers)},
            "providers": providers,
            **top,
        }
        for label, properties in variants.items():
            self.wheel(version, label, document={**whole, "variants": {label: properties}})
        if listed:
            self.document({**whole, "variants": variants}, version)

    def document(self, content: Any, version: str = "2.9.0") -> None:
        """Put a ``-variants.json`` there."""
        self.add("torch", f"torch-{version}-variants.json", json.dumps(content).encode())

    def write(self) -> Path:
        """Write the pages; return the folder of the index."""
        for project, links in self.pages.items():
            page = "<!DOCTYPE html>\n<html><body>\n" + "\n".join(links) + "\n</body></html>\n"
            (self.root / project / "index.html").write_text(page, encoding="utf-8")
        return self.root

    def choose(
        self, *requirements: str, on: TargetHost | None = None, pre: bool = False
    ) -> candidates.WheelChoice:
        """Write the pages, and choose for a machine (gfx942) from them; the first choice."""
        self.write()
        asked = requirements or ("torch",)
        return choose_wheels(asked, str(self.root), on or machine("gfx942"), reader.IndexReader(), pre=pre)[0]


def machine(
    *targets: str, rocm: str | None = None, vendor: str = "amd", python: str = "3.12.4", **more: Any
) -> TargetHost:
    """Return a Linux machine with GPUs of these targets."""
    gpus = tuple(
        gpu.Gpu(
            vendor,
            gfx=one if vendor == "amd" else None,
            index=n,
            integrated=one in gpu.INTEGRATED_TARGETS,
            source="kfd",
            confidence="read",
        )
        for n, one in enumerate(targets)
    )
    found = (gpu.RocmInstallation(rocm, "info", "/opt/rocm"),) if rocm else ()
    return host(gpu.Hardware(gpus=gpus, rocm=found), python=python, **more)


def host(hardware: gpu.Hardware, *, python: str = "3.12.4") -> TargetHost:
    """Return a Linux machine with this hardware."""
    short = ".".join(python.split(".")[:2])
    return TargetHost(
        "linux",
        "x86_64",
        short,
        TAGS,
        hardware,
        {"amd": variables.list_supported_features(hardware)},
        python,
    )
