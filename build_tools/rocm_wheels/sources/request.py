"""What a checkout is asked for, and what it came to."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from rocm_wheels.model.project import Project
from rocm_wheels.sources.network.transport import Transport
from rocm_wheels.sources.patches.sets import PatchSet
from rocm_wheels.sources.pins.choose import Pin
from rocm_wheels.sources.state import CheckoutState


@dataclass(frozen=True)
class CheckoutRequest:
    """What to check out where, and how its server is reached; ``depth`` as git has it, ``None``: whole.

    ``local_origin``: the user named an origin on this machine, so that submodules may come
    from there as well (git's ``protocol.file.allow``).
    """

    project: Project
    directory: Path
    pin: Pin
    depth: int | None = None
    submodules: bool = True
    hipify: bool = True
    commit_hipify: bool = True
    local_origin: bool = False
    patches: PatchSet | None = None
    transport: Transport = field(default_factory=Transport)

    @property
    def hipify_way(self) -> str:
        """How the tree is left: ``no``, ``committed`` or ``uncommitted``, as in the state."""
        return "no" if not self.hipify else "committed" if self.commit_hipify else "uncommitted"

    @property
    def patched_with(self) -> str:
        """The digest of the patch set, as in the state."""
        return self.patches.digest if self.patches is not None else ""


@dataclass(frozen=True)
class CheckoutResult:
    """``upstream`` names its commit; ``state`` is what was left; ``changed``: anything was done.

    ``tree``: of the upstream commit, where it was looked at.
    """

    directory: Path
    upstream: Pin
    state: CheckoutState
    changed: bool
    tree: str | None = None

    @property
    def head(self) -> str:
        """The commit that is checked out."""
        return self.state.left[""].head
