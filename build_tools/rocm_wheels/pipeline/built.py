"""What a project's step comes to."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rocm_wheels.model.project import Project
from rocm_wheels.pipeline.stamps import Output
from rocm_wheels.pipeline.summary import Row
from rocm_wheels.variants.targets import HeldTargets


@dataclass(frozen=True)
class Built:
    """A finished wheel in the output folder. ``again`` tells that nothing had to be done.

    ``content`` is a digest of what is in it but for its lock: what others are built against.
    ``targets`` are those of the device code found inside; nothing is known of them unless ``verified``.
    ``held`` is what a variant may say of it, when this run has read the wheel.
    """

    project: Project
    version: str
    output: Output
    content: str
    targets: tuple[str, ...]
    verified: bool
    again: bool
    held: HeldTargets | None = None

    @property
    def path(self) -> Path:
        """Where the wheel is."""
        return Path(self.output.path)

    @property
    def requirement(self) -> str:
        """The requirement on exactly this wheel."""
        return f"{self.project.distribution}=={self.version}"

    def row(self, seconds: float) -> Row:
        """Return the line of the summary."""
        return Row(
            project=self.project.name,
            outcome="up to date" if self.again else "built",
            wheel=self.path.name,
            version=self.version,
            targets=self.targets if self.verified else None,
            size=self.output.size,
            seconds=seconds,
            sha256=self.output.sha256,
            checked="verified" if self.verified else "NOT VERIFIED (--no-verify)",
        )
