"""The ``setup.py`` of a stub project: a process that computes for a while, then a wheel that passes checks.

``BENCH_ROUNDS`` says how much is computed, ``BENCH_FAIL`` names a project that fails after that. It is its
own PEP 517 backend as well, and knows nothing of setuptools, which takes a second to import.
"""

from __future__ import annotations

import base64
import hashlib
import os
import subprocess
import sys
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
TAG = "cp{0}{1}-cp{0}{1}-linux_x86_64".format(*sys.version_info)
WORK = "import hashlib, sys; hashlib.pbkdf2_hmac('sha256', b'work', b'salt', int(sys.argv[1]))"
TORCH = """
from . import _rocm_init

_rocm_init.initialize()
from torch import version


class cuda:
    is_available = staticmethod(lambda: False)
"""


def named() -> list[str]:
    """Return the names of project and distribution, and the base version."""
    return (HERE / "name.txt").read_text().split()


def version(project: str, base: str) -> str:
    if project == "triton":
        return base + os.environ["TRITON_WHEEL_VERSION_SUFFIX"]
    return os.environ["PYTORCH_BUILD_VERSION" if project == "pytorch" else "BUILD_VERSION"]


def members(project: str, distribution: str, version: str) -> dict[str, bytes]:
    """Return the files of the wheel: sources, the libraries that lie in the tree, what torch says of HIP."""
    said = f"__version__ = {version!r}\n"
    found = {f"{distribution}/__init__.py": said.encode()}
    for file in sorted((HERE / "files").rglob("*")):
        if file.is_file():
            found[f"{distribution}/{file.relative_to(HERE / 'files').as_posix()}"] = file.read_bytes()
    if project == "pytorch":
        found["torch/__init__.py"] += TORCH.encode()
        found["torch/version.py"] = f"{said}hip = '7.1'\ncuda = None\n".encode()
        found["torch/_rocm_init.py"] = (HERE / "torch" / "_rocm_init.py").read_bytes()
    return found


def metadata(project: str, distribution: str, version: str) -> dict[str, bytes]:
    lines = [
        "Metadata-Version: 2.1",
        f"Name: {distribution}",
        f"Version: {version}",
        "Requires-Python: >=3.10",
    ]
    requires = os.environ.get("PYTORCH_EXTRA_INSTALL_REQUIREMENTS", "") if project == "pytorch" else ""
    lines += [f"Requires-Dist: {one}" for one in requires.split("|") if one]
    wheel = f"Wheel-Version: 1.0\nGenerator: stub\nRoot-Is-Purelib: false\nTag: {TAG}\n"
    return {"METADATA": "\n".join([*lines, ""]).encode(), "WHEEL": wheel.encode()}


def build_wheel(folder: str, config_settings: object = None, metadata_directory: str | None = None) -> str:
    """Do the work, and write the wheel into a folder."""
    subprocess.run([sys.executable, "-c", WORK, os.environ.get("BENCH_ROUNDS", "1")], check=True)
    project, distribution, base = named()
    if os.environ.get("BENCH_FAIL") == project:
        sys.exit("kernel.hip:1:1: error: this does not compile")
    about = project, distribution, version(project, base)
    stem = f"{distribution}-{about[2]}"
    info = f"{stem}.dist-info"
    files = {**members(*about), **{f"{info}/{name}": data for name, data in metadata(*about).items()}}
    record = ""
    for name, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
        record += f"{name},sha256={digest},{len(data)}\n"
    files[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()
    name = f"{stem}-{TAG}.whl"
    Path(folder).mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(Path(folder, name), "w") as archive:
        for member, data in files.items():
            archive.writestr(zipfile.ZipInfo(member, (2026, 1, 1, 0, 0, 0)), data)
    return name


if __name__ == "__main__":
    words = sys.argv[1:]
    build_wheel(words[words.index("--dist-dir") + 1] if "--dist-dir" in words else "dist")
