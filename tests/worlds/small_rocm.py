"""The small ROCm of ``tests/miniature`` with its compiler, laid out as an installation is."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import miniature
import pytest
from filelock import FileLock

from rocm_wheels.compile import sdk_tree
from rocm_wheels.sdk.artifacts import merge_artifacts, read_artifacts, read_requirements

SOURCE = miniature.SOURCE / "rocm"
TARGETS = ["gfx942", "gfx1100"]
ENV = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/")}


def lay_out(artifacts: Path, root: Path) -> Path:
    """Put all artifacts over each other, as an installation is."""
    for relative, entry in merge_artifacts(read_artifacts(artifacts)).items():
        place = root / relative
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(entry.path, place, follow_symlinks=False)
    return root


def install_ziglang(factory: pytest.TempPathFactory, wanted: Sequence[str] = ()) -> Path:
    """Install ziglang once for all workers (the installer's cache keeps its 101 MB); return its folder."""
    base = factory.getbasetemp()
    shared = base.parent if base.name.startswith("popen-") else base
    wanted = wanted or [path.read_text().strip() for path in SOURCE.rglob("python_requirements.txt")]
    with FileLock(shared / "ziglang.lock"):
        if not (shared / "ziglang" / "done").exists():
            to = ["--target", shared / "ziglang", "--python", sys.executable, "--no-deps", *wanted]
            subprocess.run([sys.executable, "-m", "uv", "pip", "install", "--quiet", *to], check=True)
            (shared / "ziglang" / "done").touch()
    return shared / "ziglang" / "ziglang"


def beside_ziglang(artifacts: Path, factory: pytest.TempPathFactory) -> Path:
    """Lay out a ROCm beside ziglang, as in site-packages."""
    ziglang = install_ziglang(factory, read_requirements(read_artifacts(artifacts)))
    site = factory.mktemp("site packages")
    (site / "ziglang").symlink_to(ziglang)
    return lay_out(artifacts, site / "_rocm_sdk_devel")


def small_sdk(factory: pytest.TempPathFactory) -> sdk_tree.SdkTree:
    """Make the small ROCm and look at it as a build does."""
    artifacts = miniature.make_artifacts(
        SOURCE, factory.mktemp("rocm") / "artifacts", version="7.1.0", targets=TARGETS, env=ENV
    )
    return sdk_at(beside_ziglang(artifacts, factory))


def sdk_at(root: Path) -> sdk_tree.SdkTree:
    """Look at a ROCm."""
    return sdk_tree.inspect_sdk(version="7.1.0", root=root, cmake=root / "lib" / "cmake", bin=root / "bin")


def another(sdk: sdk_tree.SdkTree, site: Path) -> sdk_tree.SdkTree:
    """Copy a small ROCm, to change it."""
    site.mkdir()
    (site / "ziglang").symlink_to((sdk.root.parent / "ziglang").resolve())
    return sdk_at(Path(shutil.copytree(sdk.root, site / sdk.root.name, symlinks=True)))
