"""The payload of ``rocm-sdk-devel``: a tar archive that is unpacked beside the runtime packages.

Files that a runtime package has are links to it (``../../_rocm_sdk_core/lib/libx.so.1``);
links of the artifacts stay links; all else is there itself.
"""

from __future__ import annotations

import posixpath
import tarfile
from collections.abc import Sequence
from pathlib import Path

from rocm_wheels.sdk.artifacts import ArtifactTree
from rocm_wheels.sdk.runtime import RuntimePackage


def map_devel_links(tree: ArtifactTree, packages: Sequence[RuntimePackage]) -> dict[str, str]:
    """Return the paths of the tree that become links, with the text of each link."""
    links: dict[str, str] = {}
    for relative, entry in tree.items():
        owner = next((p for p in packages if relative in p.files), None)
        alias = next((p.aliases[relative] for p in packages if relative in p.aliases), None)
        if owner is not None and (entry.link is None or _is_library(owner, relative)):
            up = "../" * (relative.count("/") + 1)
            links[relative] = f"{up}{owner.module}/{relative}"
        elif entry.link is not None:
            links[relative] = entry.link
        elif alias is not None:
            links[relative] = alias
    return links


def write_devel_archive(
    tree: ArtifactTree, links: dict[str, str], module: str, target: Path, *, epoch: int, compress: bool
) -> tuple[str, ...]:
    """Write the archive with ``module`` as its top folder; the same bytes for the same tree.

    Returns the names of its members.
    """
    with tarfile.open(target, "w:xz" if compress else "w", format=tarfile.PAX_FORMAT) as archive:
        archive.addfile(_make_member(f"{module}/__init__.py", epoch))
        for relative, entry in tree.items():
            info = _make_member(f"{module}/{relative}", epoch)
            if relative in links:
                info.type = tarfile.SYMTYPE
                info.linkname = links[relative]
                info.mode = 0o777
                archive.addfile(info)
                continue
            state = entry.path.stat()
            info.size = state.st_size
            info.mode = 0o755 if state.st_mode & 0o111 else 0o644
            with entry.path.open("rb") as file:
                archive.addfile(info, file)
    return (f"{module}/__init__.py", *(f"{module}/{relative}" for relative in tree))


def list_device_links(files: Sequence[str], libraries: str) -> list[dict[str, str]]:
    """Return what of a device package also belongs into the unpacked tree, as its manifest lists it."""
    return [
        {"relpath": relative, "target": f"{'../' * (relative.count('/') + 1)}{libraries}/{relative}"}
        for relative in sorted(files)
    ]


def _is_library(owner: RuntimePackage, relative: str) -> bool:
    elf = owner.files[relative].elf
    return elf is not None and elf.soname == posixpath.basename(relative)


def _make_member(name: str, epoch: int) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.mtime = epoch
    info.mode = 0o644
    return info
