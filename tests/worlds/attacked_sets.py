"""A staged set that has all that its promotion needs, and what changes a file of it by hand."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from judged_sets import said
from promoted_sets import linked
from pydantic import ValidationError
from release_world import FAMILY, TARGET, World

from rocm_wheels.cli import boundary, main
from rocm_wheels.release import store_paths, wheel_set
from rocm_wheels.release.evidence import store
from rocm_wheels.release.evidence.evidence import Evidence
from rocm_wheels.stores.folder import FolderStore

PATHS = store_paths.FamilyPaths(FAMILY)
POLICY = """
channels:
  nightly: {signed: false, rules: {audit: {fresh: 14d}, complete: {}, smoke: {fresh: 7d}}}
"""


@dataclass(frozen=True)
class Attacked:
    """A store, and the set in it."""

    place: Path
    document: wheel_set.SetDocument
    policy: Path

    def copy(self, name: str) -> Attacked:
        return Attacked(linked(self.place, self.place.with_name(name)), self.document, self.policy)

    def files(self, folder: str) -> list[Path]:
        return sorted(path for path in (self.place / folder).rglob("*") if path.is_file())

    @property
    def results(self) -> list[Path]:
        return self.files(PATHS.evidence_folder(self.document.id))

    @property
    def set_file(self) -> Path:
        return self.place / PATHS.set_document(self.document.id)

    def know(self, kind: str, outcome: str, hours: float, key: Path | None = None, **fields: Any) -> str:
        when = datetime.now(timezone.utc).replace(microsecond=0) - timedelta(hours=hours)
        of = {"document": self.document, "when": when, "added": when, "gfx": TARGET}
        evidence = said(kind, outcome, **{"about": self.document.digest, **of, **fields}).evidence
        evidence = evidence if key is None else store.sign_evidence(evidence, key, dict(os.environ))
        store.add_evidence(FolderStore(self.place), self.document, evidence)
        return evidence.id

    def run(self, *words: str) -> int:
        """Run a command of the group `set`."""
        chosen = ["--set", self.document.id] if words[0] in {"gate", "promote"} else []
        more = [] if words[0] == "list" else ["--policy", str(self.policy)]
        return boundary.run_command(main.cli, ["set", words[0], str(self.place), *chosen, *words[1:], *more])

    def promote(self) -> bool:
        """Try to; tell whether people get anything of it."""
        code = self.run("promote", "--channel", "nightly")
        shown = (self.place / PATHS.channel_document("nightly")).exists()
        assert shown == (code == 0)
        return shown


def stage_attacked(folder: Path, *, passes: bool = True) -> Attacked:
    """Stage a set into ``folder / "good"``; with ``passes`` it is verified and tested on its GPU."""
    world, place, policy = World(folder / "world"), folder / "good", folder / "policy.yaml"
    policy.write_text(POLICY)
    assert boundary.run_command(main.cli, world.words(str(place))) == 0
    attacked = Attacked(place, wheel_set.find_set(FolderStore(place), world.plan().document.id), policy)
    if passes:
        attacked.know("audit", "pass", 5)
        attacked.know("smoke", "pass", 4)
    return attacked


def overwrite(path: Path, content: bytes) -> None:
    path.unlink()  # the copies share their files
    path.write_bytes(content)


def is_same_result(one: bytes, other: bytes) -> bool:
    """Tell whether both are results that say the same: a field with its usual value may be left out."""
    with contextlib.suppress(ValidationError):
        return Evidence.model_validate_json(one) == Evidence.model_validate_json(other)
    return False


def list_leaves(value: Any, at: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Yield where each value of a document is, lists and mappings that are empty too."""
    children = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    )
    if not children or not value:
        yield at
    for name, child in children:
        yield from list_leaves(child, (*at, name))
