"""Published wheels by digest, downloaded once into the user's cache."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from filelock import FileLock


def download(requirement: str, digest: str, platform: str, *words: str) -> Path:
    """Download a wheel once; pip compares its digest."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    folder = Path(base) / "rocm-wheels-tests" / digest[:16]
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / "lock"):
        if not list(folder.glob("*.whl")):
            (folder / "requirements.txt").write_text(f"{requirement} --hash=sha256:{digest}\n")
            pip = [sys.executable, "-m", "pip", "download", "--quiet", "--require-hashes", "--no-deps"]
            pip += ["--only-binary=:all:", "--platform", platform, *words, "--dest", str(folder)]
            subprocess.run([*pip, "-r", str(folder / "requirements.txt")], check=True)
    (wheel,) = folder.glob("*.whl")
    return wheel
