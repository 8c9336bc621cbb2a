"""What a step did last, so that nothing is done twice.

A stamp holds a step's inputs by name and its outputs by hash. A step is current when
its inputs are the same and its outputs are still what they were; otherwise ``why_run``
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

from rocm_wheels.workspace import write_json

_BLOCK = 1 << 20
_FORMAT = 1  # raise it when steps come to need other facts of each other


@dataclass(frozen=True)
class Output:
    """A file that a step made: absolute path, size in bytes, mtime and ctime in ns, sha256 in hex.

    ctime cannot be set back: a file that was changed and dated as before is found out by it.
    """

    path: str
    size: int
    mtime_ns: int
    sha256: str
    ctime_ns: int = 0

    @classmethod
    def of(cls, path: Path, sha256: str | None = None) -> Output:
        """Describe a file; its digest is taken here unless the caller already has it."""
        stat = path.stat()
        return cls(str(path), stat.st_size, stat.st_mtime_ns, sha256 or sha256_of(path), stat.st_ctime_ns)

    def fault(self) -> str | None:
        """Say what is wrong with the file now, or ``None``. Hashed again only when its stat changed."""
        path = Path(self.path)
        if not path.is_file():
            return f"{path} is gone"
        stat = path.stat()
        known = (self.size, self.mtime_ns, self.ctime_ns)
        if (stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns) == known:
            return None
        if stat.st_size != self.size or sha256_of(path) != self.sha256:
            return f"{path} is not the file that was built"
        return None


@dataclass(frozen=True)
class Stamp:
    """The last success of a step. ``facts`` are what later steps and the summary need of it."""

    step: str
    inputs: Mapping[str, str]
    outputs: tuple[Output, ...]
    facts: Mapping[str, Any]

    def fault(self) -> str | None:
        """Say what is wrong with the outputs now, or ``None``."""
        return next((fault for output in self.outputs if (fault := output.fault())), None)


def sha256_of(path: Path) -> str:
    """Return the sha256 of a file in hex."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


def read_stamp(folder: Path, step: str) -> Stamp | None:
    """Read a step's stamp; a missing or torn one, or one of another form, counts as none: the step runs."""
    try:
        raw = json.loads(_place(folder, step).read_text(encoding="utf-8"))
        if raw["format"] != _FORMAT or raw["step"] != step:
            return None
        outputs = tuple(Output(**output) for output in raw["outputs"])
        return Stamp(step, dict(raw["inputs"]), outputs, dict(raw["facts"]))
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None


def write_stamp(folder: Path, stamp: Stamp) -> None:
    """Record a success, whole or not at all."""
    write_json(_place(folder, stamp.step), {"format": _FORMAT, **asdict(stamp)})


def changed(stamp: Stamp, inputs: Mapping[str, str]) -> tuple[str, ...]:
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


def why_run(stamp: Stamp | None, inputs: Mapping[str, str]) -> str | None:
    """Say why a step must run, or return ``None`` when its stamp is current."""
    if stamp is None:
        return "not built yet"
    first, *more = changed(stamp, inputs) or (None,)
    if first is None:
        return stamp.fault()
    names = ", ".join(line.split(" changed (", 1)[0] for line in more)
    return f"{first}; and {names}" if names else first


def _place(folder: Path, step: str) -> Path:
    return folder / f"{step}.json"
