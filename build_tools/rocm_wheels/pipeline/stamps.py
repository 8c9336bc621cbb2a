"""What a step did last, so that nothing is done twice.

A stamp holds a step's inputs by name and its outputs by hash. A step is current when
its inputs are the same and its outputs are still what they were; otherwise ``explain_run``
names the inputs that differ. A stamp is written after its outputs are in place: a
step killed in the middle has none, and runs again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rocm_wheels.workspace import write_json_file

_BLOCK_BYTES = 1 << 20
_STAMP_FORMAT = 1  # raise it when steps come to need other facts of each other


@dataclass(frozen=True)
class OutputFile:
    """A file that a step made: absolute path, size in bytes, mtime and ctime in ns, sha256 in hex.

    ctime cannot be set back: a file that was changed and dated as before is found out by it.
    """

    path: str
    size: int
    mtime_ns: int
    sha256: str
    ctime_ns: int = 0

    @classmethod
    def from_path(cls, path: Path, sha256: str | None = None) -> OutputFile:
        """Describe a file; its digest is taken here unless the caller already has it."""
        stat = path.stat()
        return cls(
            str(path), stat.st_size, stat.st_mtime_ns, sha256 or compute_sha256(path), stat.st_ctime_ns
        )

    def find_fault(self) -> str | None:
        """Say what is wrong with the file now, or ``None``. Hashed again only when its stat changed."""
        path = Path(self.path)
        if not path.is_file():
            return f"{path} is gone"
        stat = path.stat()
        recorded = (self.size, self.mtime_ns, self.ctime_ns)
        if (stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns) == recorded:
            return None
        if stat.st_size != self.size or compute_sha256(path) != self.sha256:
            return f"{path} is not the file that was built"
        return None


@dataclass(frozen=True)
class StepStamp:
    """The last success of a step. ``facts`` are what later steps and the summary need of it."""

    step: str
    inputs: Mapping[str, str]
    outputs: tuple[OutputFile, ...]
    facts: Mapping[str, Any]

    def find_fault(self) -> str | None:
        """Say what is wrong with the outputs now, or ``None``."""
        return next((fault for output in self.outputs if (fault := output.find_fault())), None)


def compute_sha256(path: Path) -> str:
    """Return the sha256 of a file in hex."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()


def read_stamp(folder: Path, step: str) -> StepStamp | None:
    """Read a step's stamp; a missing or torn one, or one of another form, counts as none: the step runs."""
    try:
        raw = json.loads(_stamp_path(folder, step).read_text(encoding="utf-8"))
        if raw["format"] != _STAMP_FORMAT or raw["step"] != step:
            return None
        outputs = tuple(OutputFile(**output) for output in raw["outputs"])
        return StepStamp(step, dict(raw["inputs"]), outputs, dict(raw["facts"]))
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None


def write_stamp(folder: Path, stamp: StepStamp) -> None:
    """Record a success, whole or not at all."""
    write_json_file(_stamp_path(folder, stamp.step), {"format": _STAMP_FORMAT, **asdict(stamp)})


def describe_changes(stamp: StepStamp, inputs: Mapping[str, str]) -> tuple[str, ...]:
    """Return a line for each input that differs: its name, and both values where they can be read."""
    lines = []
    for name in sorted({*stamp.inputs, *inputs}):
        before, now = stamp.inputs.get(name), inputs.get(name)
        if before == now:
            continue
        if before is None:
            lines.append(f"{name} changed (it was not set, and is {now})")
        elif now is None:
            lines.append(f"{name} changed (it was {before}, and is not set)")
        else:
            lines.append(f"{name} changed ({before} → {now})")
    return tuple(lines)


def explain_run(stamp: StepStamp | None, inputs: Mapping[str, str]) -> str | None:
    """Say why a step must run, or return ``None`` when its stamp is current."""
    if stamp is None:
        return "not built yet"
    first, *more = describe_changes(stamp, inputs) or (None,)
    if first is None:
        return stamp.find_fault()
    names = ", ".join(line.split(" changed (", 1)[0] for line in more)
    return f"{first}; and {names}" if names else first


def _stamp_path(folder: Path, step: str) -> Path:
    return folder / f"{step}.json"
