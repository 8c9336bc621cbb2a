"""Nights: sets of several torch lines and platforms that come to one channel, staged as they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from audit_wheels import Draft, library
from judged_sets import said
from release_world import PYTHON, ROCM

from rocm_wheels.models import project_names
from rocm_wheels.models.lock import Lock, LockedProject
from rocm_wheels.release import wheel_set
from rocm_wheels.release.evidence.store import add_evidence
from rocm_wheels.release.stage import plan_stage, stage_set
from rocm_wheels.release.store_paths import FamilyPaths
from rocm_wheels.sources.lock import format_lock
from rocm_wheels.stores.store import Store

FAMILY, GPUS = "gfx110X-all", ("gfx1100", "gfx1101", "gfx1102", "gfx1103")
_ABI = f"cp{PYTHON.replace('.', '')}"
TAGS = {"linux": f"{_ABI}-{_ABI}-linux_x86_64", "windows": f"{_ABI}-{_ABI}-win_amd64", "any": "py3-none-any"}
_COMMITS = {"pytorch": "b" * 40, "pytorch_vision": "c" * 40}


@dataclass(frozen=True)
class Night:
    """A set of torch and torchvision, made on a day of November; ``vision`` is the tag of the latter.

    ``line`` is what its lock says. ``pinned``: torchvision wants this very torch.
    """

    torch: str
    day: int
    platform: project_names.Platform = "linux"
    line: str | None = None
    targets: Sequence[str] = GPUS
    family: str = FAMILY
    layout: wheel_set.SetLayout = "per-family"
    vision: str = ""
    pinned: bool = True

    @property
    def created(self) -> str:
        """When it is staged."""
        return f"2026-11-{self.day:02}T00:00:00Z"

    @property
    def version(self) -> str:
        """The version of torch: each night's is its own."""
        return f"{self.torch}+night{self.day:02}.rocm{ROCM}"

    @property
    def lock(self) -> Lock:
        """What it was built from."""
        locked = {
            name: LockedProject(origin=f"https://h/{name}.git", ref="main", why="test", commit=commit)
            for name, commit in _COMMITS.items()
        }
        return Lock(
            platform=self.platform,
            line=self.line,
            rocm=ROCM,
            targets=tuple(self.targets),
            pythons=(PYTHON,),
            projects=locked,
        )

    def wheels(self, folder: Path) -> list[Path]:
        """Write its wheels."""
        folder.mkdir(parents=True, exist_ok=True)
        own, code = TAGS[self.platform], library(*self.targets)
        vision, tag = self.version.replace("2.", "0.", 1), self.vision or own
        torch = Draft("torch", self.version, own, members={"torch/lib/libtorch_hip.so": code})
        torch.requires = [f"rocm[libraries]=={ROCM}"]
        torch.members["torch/__init__.py"] = f"night = {self.day}\nfound = {self.torch!r}\n".encode()
        with_code = {} if tag.endswith("any") else {"torchvision/_C.so": code}
        other = Draft("torchvision", vision, tag, members=with_code)
        other.members["torchvision/__init__.py"] = b""
        other.requires = [f"torch=={self.version}" if self.pinned else "torch"]
        part = self.lock.model_copy(update={"projects": {"pytorch": self.lock.projects["pytorch"]}})
        for draft, lock in ((torch, part), (other, self.lock)):
            draft.members[f"{draft.folder}/sources.lock.json"] = format_lock(lock).encode()
        return [torch.write(folder), other.write(folder)]

    def stage(self, store: Store, folder: Path) -> wheel_set.SetDocument:
        """Stage it as the command does."""
        places = FamilyPaths(self.family)
        wheels = self.wheels(folder / f"{self.torch}-{self.day}-{self.platform}-{self.family}")
        plan = plan_stage(wheels, [self.lock], paths=places, layout=self.layout)
        stage_set(store, plan, now=self.created)
        return wheel_set.find_set(store, plan.document.id)


def know(store: Store, document: wheel_set.SetDocument, gfx: str, outcome: str, when: datetime) -> None:
    """Write down what smoke tests found on a GPU."""
    found = said("smoke", outcome, gfx=gfx, document=document, when=when, added=when)
    add_evidence(store, document, found.evidence)


def verified(store: Store, document: wheel_set.SetDocument, when: datetime) -> None:
    """Write down that its files are right."""
    found = said("audit", document=document, when=when, added=when)
    add_evidence(store, document, found.evidence)


def hours_ago(moment: datetime, hours: float) -> datetime:
    """Return a time before another."""
    return moment - timedelta(hours=hours)
