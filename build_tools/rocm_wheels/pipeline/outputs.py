"""What steps made: the stamp of each step, and the wheels in the output folder.

A stamp holds a step's inputs by name and its outputs by hash. A step is current when its inputs are the
same and its outputs are still what they were; otherwise ``explain_run`` names the inputs that differ. A
stamp is written after its outputs are in place: a step killed in the middle has none, and runs again.

The work directory remembers every wheel that it put anywhere, and what each is for. A wheel of the same
project in the output folder that it did not put there is somebody else's, and one for other targets or of
another release type is not to be lost: two builds of one project must not mix, so the step is refused
before it begins.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import TypeAdapter

from rocm_wheels.core import errors, log
from rocm_wheels.core.files import (
    copy_atomically,
    hash_file,
    lock_folder,
    remove_stale,
    write_json_file,
)
from rocm_wheels.core.workspace import Workspace

ValueT = TypeVar("ValueT")
NO_EARLIER_RESULT = "no earlier result"
INPUTS_CHANGED = "inputs changed:"


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
        return cls(str(path), stat.st_size, stat.st_mtime_ns, sha256 or hash_file(path), stat.st_ctime_ns)

    def renew_times(self) -> OutputFile | None:
        """Return it with the times that its file has now; ``None`` when that is gone, or has other bytes.

        The file is hashed again only when its stat changed.
        """
        path = Path(self.path)
        if not path.is_file():
            return None
        now = OutputFile.from_path(path, self.sha256)
        is_same = now == self or (now.size == self.size and hash_file(path) == self.sha256)
        return now if is_same else None


@dataclass(frozen=True)
class StepStamp:
    """The last success of a step. ``facts`` are what later steps and the summary need of it.

    ``format`` is another where steps come to need other facts of each other.
    """

    step: str
    inputs: Mapping[str, str]
    outputs: tuple[OutputFile, ...]
    facts: Mapping[str, Any]
    format: Literal[4] = 4

    def check_outputs(self) -> tuple[StepStamp, str | None]:
        """Return the stamp with the times that its outputs have now, and what is wrong with them."""
        renewed: list[OutputFile] = []
        for output in self.outputs:
            if (now := output.renew_times()) is None:
                exists = Path(output.path).is_file()
                return self, f"{output.path} {'was changed after it was built' if exists else 'is missing'}"
            renewed.append(now)
        return replace(self, outputs=tuple(renewed)), None


def read_cached(path: Path, kind: type[ValueT]) -> ValueT | None:
    """Return what a file of our own holds that can be made again, a dataclass as ``write_cached`` wrote it.

    ``None`` where it is not there, torn, or of another form: one of an earlier version.
    """
    try:
        value: ValueT = _make_adapter(kind).validate_python(json.loads(path.read_bytes()))
    except (FileNotFoundError, ValueError, RecursionError):
        return None
    return value


def write_cached(path: Path, value: object) -> None:
    """Write a dataclass, whole or not at all. Raises OSError."""
    write_json_file(path, _make_adapter(type(value)).dump_python(value, mode="json"))


_make_adapter: Callable[[Any], TypeAdapter[Any]] = cache(TypeAdapter)


def read_stamp(folder: Path, step: str) -> StepStamp | None:
    """Read a step's stamp; a missing or torn one, or one of another form, counts as none: the step runs."""
    stamp = read_cached(folder / f"{step}.json", StepStamp)
    return stamp if stamp is not None and stamp.step == step else None


def write_stamp(folder: Path, stamp: StepStamp) -> None:
    """Record a success, whole or not at all."""
    write_cached(folder / f"{stamp.step}.json", stamp)


def describe_changes(stamp: StepStamp, inputs: Mapping[str, str]) -> tuple[str, ...]:
    """Return a line for each input that differs: its name, and both values where they can be read."""
    values = [
        (name, stamp.inputs.get(name, "not set"), inputs.get(name, "not set"))
        for name in sorted({*stamp.inputs, *inputs})
    ]
    return tuple(f"{name} ({before} → {now})" for name, before, now in values if before != now)


def explain_run(stamp: StepStamp | None, inputs: Mapping[str, str]) -> str | None:
    """Say why a step must run, or return ``None`` when its stamp is current."""
    if stamp is None:
        return NO_EARLIER_RESULT
    first, *more = describe_changes(stamp, inputs) or (None,)
    if first is None:
        return stamp.check_outputs()[1]
    return f"{INPUTS_CHANGED} {', '.join([first, *(line.split(' (', 1)[0] for line in more)])}"


_COLLECT_WAIT_SECONDS = 60.0  # another step writes the list


FOREIGN_WHEEL_TIP = (
    "build into another --output-dir, with --per-target into a folder for each target, or move it away:"
    " two builds must not mix"
)


def refuse_foreign_wheels(
    workspace: Workspace, output: Path, distribution: str, python_tag: str, purpose: str
) -> None:
    """Raise UsageError when the output has a wheel of ``distribution`` that this build must not replace.

    That is one that we did not put there, or for another ``purpose`` (empty: not known, or of no account).
    """
    ours = _read_collected(workspace)
    for wheel in list_wheels(output, distribution, python_tag):
        if str(wheel) not in ours:
            raise errors.UsageError(
                f"{wheel} is in the output folder and was not put there by this work directory",
                tip=FOREIGN_WHEEL_TIP,
            )
        noted = ours[str(wheel)]
        if purpose and noted not in ("", purpose):
            raise errors.UsageError(
                f"{wheel} is in the output folder and is for {noted}, and this build for {purpose}",
                tip=FOREIGN_WHEEL_TIP,
            )


def deliver_files(
    workspace: Workspace,
    files: Sequence[Path],
    output: Path,
    *,
    distribution: str,
    python_tag: str,
    purpose: str,
) -> list[Path]:
    """Copy the files of one wheel into the output, each whole or not at all; then those of ours that they
    replace go.

    The first is the wheel; others are its device wheels. The statement of a wheel comes with it, after it.
    ``purpose``: what they are for, as ``refuse_foreign_wheels`` compares.
    """
    targets = [output / file.name for file in files]
    with lock_folder(
        workspace.steps / ".locks" / "collected", purpose=targets[0].name, patience=_COLLECT_WAIT_SECONDS
    ):
        ours = _read_collected(workspace) | dict.fromkeys(map(str, targets), purpose)
        # before the copy: killed in between, it is still ours
        write_json_file(_collected_path(workspace), dict(sorted(ours.items())))
    for pattern in _list_patterns(distribution):
        for part in output.glob(f".{pattern.removesuffix('.whl')}.part"):  # hidden names are short
            remove_stale(part)  # of a run that was killed in a copy
    from rocm_wheels.wheels import statement  # planning reads no wheels

    for file, target in zip(files, targets, strict=True):
        copy_atomically(file, target)
        statement.copy_statement(file, target)
    for old in list_wheels(output, distribution, python_tag):
        if old not in targets and str(old) in ours:
            old.unlink()
            statement.remove_statement(old)
            log.log_note(f"{old.name} is replaced by {targets[0].name}")
    return targets


def list_wheels(output: Path, distribution: str, python_tag: str) -> list[Path]:
    """Return what lies there of a distribution for one interpreter, sorted: wheels and device wheels."""
    files = sorted(file for pattern in _list_patterns(distribution) for file in output.glob(pattern))
    return [file for file in files if f"-{python_tag}-" in file.name]


def _list_patterns(distribution: str) -> tuple[str, ...]:
    name = distribution.replace("-", "_")
    return f"{name}-*.whl", f"amd_{name}_device[-_]*.whl"


def _read_collected(workspace: Workspace) -> dict[str, str]:
    """Return the files that we put anywhere, and what each is for."""
    path = _collected_path(workspace)
    if not path.is_file():
        return {}
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, TypeError, RecursionError) as cause:
        tip = "delete it: wheels already in an output folder then count as somebody else's"
        raise errors.DataError(f"{path} is not the list of wheels that it must be", tip=tip) from cause


def _collected_path(workspace: Workspace) -> Path:
    return workspace.root / "collected.json"
