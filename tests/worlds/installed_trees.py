"""Writes environments as installers leave them: constructed, with libraries that hold next to nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from audit_wheels import library

from rocm_wheels.user import installed_packages

VERSION = "__version__ = '{version}'\ndebug = False\ncuda: str | None = {cuda}\nhip: str | None = {hip}\n"


def environment(
    folder: Path, *, also: Sequence[Path] = (), version: str = "3.11.9"
) -> installed_packages.PythonEnvironment:
    """A virtual environment in ``folder``, with its site-packages made."""
    place = folder / "lib" / "python3.11" / "site-packages"
    place.mkdir(parents=True, exist_ok=True)
    return installed_packages.PythonEnvironment(
        python=folder / "bin" / "python",
        version=version,
        implementation="cpython",
        free_threaded=False,
        prefix=folder,
        base_prefix=Path("/usr"),
        path=(*also, place),
        site_packages=place,
        user_site=None,
        markers={"python_full_version": version, "python_version": version.rpartition(".")[0]},
    )


def install(
    place: Path,
    name: str,
    version: str,
    *,
    files: Mapping[str, bytes | str] | None = None,
    requires: Sequence[str] = (),
    tag: str = "cp311-cp311-linux_x86_64",
    installer: str = "pip",
    direct_url: str = "",
    record: bool = True,
) -> Path:
    """Install a distribution; return its ``.dist-info``."""
    place.mkdir(parents=True, exist_ok=True)
    info = place / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir()
    lines = ["Metadata-Version: 2.4", f"Name: {name}", f"Version: {version}"]
    lines += [f"Requires-Dist: {line}" for line in requires]
    (info / "METADATA").write_text("\n".join(lines) + "\n")
    (info / "WHEEL").write_text(f"Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: {tag}\n")
    (info / "INSTALLER").write_text(installer + "\n")
    if direct_url:
        (info / "direct_url.json").write_text(direct_url)
    for path, content in (files or {}).items():
        file = place / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.encode() if isinstance(content, str) else content)
    if record:
        (info / "RECORD").write_text("".join(f'"{path}",,\n' for path in files or {}))
    return info


def install_torch(
    place: Path,
    *targets: str,
    version: str = "2.9.1+rocm7.1.0",
    hip: str | None = "7.1.25424",
    cuda: str | None = None,
    requires: Sequence[str] = (),
    **more: bytes,
) -> Path:
    """Install a torch whose ``libtorch_hip.so`` has code for the targets."""
    files: dict[str, bytes | str] = {
        "torch/__init__.py": "raise ImportError('nobody imports this')\n",
        "torch/version.py": VERSION.format(version=version, cuda=repr(cuda), hip=repr(hip)),
        "torch/lib/libtorch_cpu.so": library(),
    }
    if hip:
        files["torch/lib/libtorch_hip.so"] = library(*targets)
    if cuda:
        files["torch/lib/libtorch_cuda.so"] = library()
    files.update(more)
    return install(place, "torch", version, files=files, requires=requires)
