"""What is installed: read from the ``.dist-info`` folders of every folder on the path.

Source: "Recording installed projects" and "direct_url.json" of the PyPA specifications.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from email.parser import HeaderParser
from pathlib import Path
from string import ascii_lowercase
from urllib.parse import urlsplit

from packaging.utils import canonicalize_name

# what belongs to torch, and every package of ROCm
RELEVANT_PROJECTS = re.compile(
    r"torch|torchvision|torchaudio|torchao|torchdata|torchtune|torchrl|torchcodec|tensordict|apex"
    r"|triton|triton-rocm|triton-xpu|triton-windows|pytorch-triton(-rocm|-xpu)?|amd-torch.*"
    r"|rocm|rocm-.*|amd-smi|amdsmi|aotriton|flash-attn|xformers|bitsandbytes|vllm|jax-rocm.*|nvidia-c.*"
)
_INFO_SUFFIXES = (".dist-info", ".egg-info")


@dataclass(frozen=True)
class InstalledDistribution:
    """One installed distribution.

    ``name`` is normalised, ``version`` as it is written. ``info`` is its ``.dist-info`` folder, ``site_folder``
    the folder on the path that it is in. ``installer`` is ``pip``, ``uv``, … ("" when nothing says).
    ``origin`` is the URL or folder that it was installed from when that was named directly, ``editable``
    the source tree that is imported instead of a copy. ``tags`` are those of its wheel.
    """

    name: str
    version: str
    info: Path
    site_folder: Path
    installer: str = ""
    requires: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    origin: str = ""
    editable: Path | None = None

    @property
    def label(self) -> str:
        """Return the local part of the version: ``rocm7.1`` of ``2.9.1+rocm7.1``."""
        return self.version.partition("+")[2]

    def __str__(self) -> str:
        return f"{self.name} {self.version}"


def read_distributions(
    path: Iterable[Path], only: re.Pattern[str] = RELEVANT_PROJECTS
) -> tuple[tuple[InstalledDistribution, ...], tuple[str, ...]]:
    """Return what is installed in the folders, in their order, and what could not be read.

    A distribution that two folders have is there twice: the first is the one that is imported.
    """
    distributions: list[InstalledDistribution] = []
    faults: list[str] = []
    for folder in path:
        for info in _list_info_folders(folder, only, faults):
            try:
                distributions.append(_read_distribution(info, folder))
            except (OSError, UnicodeDecodeError, ValueError) as cause:
                faults.append(f"{info} cannot be read: {cause}")
    return tuple(distributions), tuple(faults)


def _list_info_folders(folder: Path, only: re.Pattern[str], faults: list[str]) -> Iterator[Path]:
    try:
        names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(_INFO_SUFFIXES))
    except OSError as cause:
        faults.append(f"{folder} cannot be read: {cause.strerror}")
        return
    for name in names:
        project = name.rsplit(".", 1)[0].split("-", 1)[0]
        # of an uninstall or an upgrade that was broken off, pip leaves folders that begin with ~
        if project.startswith("~"):
            full_names = [canonicalize_name(letter + project[1:]) for letter in ("", *ascii_lowercase)]
            if any(only.fullmatch(entry) for entry in full_names):
                faults.append(f"{folder / name} is left of an installation that was broken off; delete it")
        elif only.fullmatch(canonicalize_name(project)):
            yield folder / name


def _read_distribution(info: Path, site_folder: Path) -> InstalledDistribution:
    metadata_file = info
    if info.is_dir():
        metadata_file = info / ("METADATA" if info.suffix == ".dist-info" else "PKG-INFO")
    message = HeaderParser().parsestr(metadata_file.read_text(encoding="utf-8"))
    name, version = message.get("Name", ""), message.get("Version", "")
    if not name or not version:
        raise ValueError(f"{metadata_file.name} has no name or no version")
    origin, editable = _read_origin(info / "direct_url.json")
    return InstalledDistribution(
        name=canonicalize_name(name),
        version=version.strip(),
        info=info,
        site_folder=site_folder,
        installer=_read_text(info / "INSTALLER").strip(),
        requires=tuple(message.get_all("Requires-Dist", [])),
        tags=tuple(HeaderParser().parsestr(_read_text(info / "WHEEL")).get_all("Tag", [])),
        origin=origin,
        editable=editable,
    )


def _read_text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""


def _read_origin(path: Path) -> tuple[str, Path | None]:
    """Return the URL that was named to the installer, and the source tree when it is imported from there."""
    if not path.is_file():
        return "", None
    record = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(record, dict) or not isinstance(record.get("url"), str):
        raise ValueError("direct_url.json has no url")
    url, folder = record["url"], record.get("dir_info")
    if isinstance(folder, dict) and folder.get("editable") and url.startswith("file:"):
        from urllib.request import url2pathname  # it brings http, ssl and email along

        return url, Path(url2pathname(urlsplit(url).path))
    return url, None
