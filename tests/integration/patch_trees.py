"""A checkout with patches, driven through the functions that the doors call."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field, replace
from pathlib import Path

from source_trees import Upstream, content

from rocm_wheels.models import load_project
from rocm_wheels.sources import (
    CheckoutRequest,
    Pin,
    SavedPatches,
    TreeStatus,
    checkout_project,
    read_patch_set,
    read_tree_status,
    save_patches,
)

MIDDLE, DEEP = "third_party/middle", "third_party/middle/deep dir"


@dataclass
class Patched:
    """One checkout and one patch set; ``folder`` may be the set of several checkouts."""

    upstream: Upstream
    directory: Path
    folder: Path
    env: dict[str, str] = field(default_factory=dict)

    def checkout(self, ref: str = "main", *, patch: bool = True, **options: object) -> str:
        """Check out; return HEAD."""
        base = CheckoutRequest(
            load_project("pytorch"),
            self.directory,
            Pin(self.upstream.url, ref, "test"),
            local_origin=True,
            patches=read_patch_set(self.folder) if patch else None,
        )
        request = replace(base, **options)  # type: ignore[arg-type]
        return checkout_project(
            request, env={**self.upstream.env, **self.env}, python=Path(sys.executable)
        ).head

    def save(self, *, replace_others: bool = False) -> SavedPatches:
        """Save the tree's commits to the set."""
        return save_patches(
            load_project("pytorch"),
            self.directory,
            self.folder,
            replace_others=replace_others,
            env={**self.upstream.env, **self.env},
        )

    def status(self) -> TreeStatus:
        """Ask what the tree is."""
        return read_tree_status(
            load_project("pytorch"), self.directory, env={**self.upstream.env, **self.env}
        )

    def git(self, *arguments: str, where: str = "", **variables: str) -> str:
        """Run git in the tree."""
        return self.upstream.git(self.directory / where, *arguments, **variables)

    def commit(self, message: str, files: dict[str, str | bytes], where: str = "") -> str:
        """Write files and commit them, as a developer does."""
        for name, text in files.items():
            path = self.directory / where / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text if isinstance(text, bytes) else text.encode())
        self.git("add", "-A", where=where)
        self.git("commit", "-q", "--allow-empty", "--allow-empty-message", "-m", message, where=where)
        return self.git("rev-parse", "HEAD", where=where)

    def patches(self) -> dict[str, bytes]:
        """Return the files of the set."""
        return content(self.folder)

    def everything(self) -> tuple[object, ...]:
        """Return files, HEAD (and its branch), refs and state of the tree, submodules included."""
        modules = [m for m in ("", MIDDLE, DEEP) if (self.directory / m / ".git").exists()]
        found: list[object] = [content(self.directory)]
        for module in modules:
            found.append(self.git("rev-parse", "--symbolic-full-name", "HEAD", where=module))
            found.append(self.git("rev-parse", "HEAD", where=module))
            found.append(self.git("for-each-ref", "refs/tags", "refs/heads", where=module))
            found.append(self.git("status", "--porcelain", "-uall", "--ignore-submodules=none", where=module))
        state = self.directory / ".git/rocm-wheels/state.json"
        return (*found, state.read_text() if state.exists() else None)
