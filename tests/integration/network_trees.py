"""Checkouts through a transport of their own, for tests of servers and mirrors."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

from source_trees import Upstream

from rocm_wheels.models import load_project
from rocm_wheels.sources import CheckoutRequest, CheckoutResult, Pin, Transport, checkout_project


@dataclass
class Tree:
    """One checkout of ``origin``; ``hipify`` is left out unless a test asks for it."""

    upstream: Upstream
    directory: Path
    origin: str
    transport: Transport

    def checkout(self, ref: str = "main", **options: object) -> CheckoutResult:
        request = CheckoutRequest(
            load_project("pytorch"),
            self.directory,
            Pin(self.origin, ref, "test"),
            hipify=False,
            transport=self.transport,
        )
        wanted = replace(request, **options)  # type: ignore[arg-type]
        return checkout_project(wanted, env=self.upstream.env, python=Path(sys.executable))

    def git(self, *arguments: str, where: str = "") -> str:
        return self.upstream.git(self.directory / where, *arguments)

    def is_sound(self) -> bool:
        """Tell whether nothing is missing or changed, in the root and in every submodule."""
        check = "git fsck --connectivity-only --no-dangling && git status --porcelain"
        command = ["git", "submodule", "--quiet", "foreach", "--recursive", check]
        said = [
            subprocess.run(
                one, cwd=self.directory, env=self.upstream.env, capture_output=True, text=True, check=False
            )
            for one in (["sh", "-c", check], command)
        ]
        return all(one.returncode == 0 and not one.stdout for one in said)

    def packs(self, where: str = "") -> dict[str, int]:
        """Return the packs of a repository (``modules/<name>`` or the root's) and their inodes."""
        folder = self.directory / ".git" / where / "objects/pack"
        return {path.name: path.stat().st_ino for path in folder.glob("pack-*.pack")}
