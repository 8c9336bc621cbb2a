"""What a search has found so far: a file that is there whole, so that a killed run can be carried on.

Each question has a folder of its own below the work folder; what was found for another is never read.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from rocm_wheels.errors import DataError
from rocm_wheels.records import Record
from rocm_wheels.release.bisect.search import ProbeOutcome
from rocm_wheels.workspace import write_json_file


class SetProbe(Record):
    """A set that was tried. ``exit`` is the command's exit code, ``None`` where it was not come to."""

    set: str
    outcome: ProbeOutcome
    why: str
    exit: int | None = None
    seconds: float = 0.0


class _BisectStateFile(Record):
    schema_version: Literal[1] = Field(default=1, alias="schema")
    key: str
    command: str
    probes: tuple[SetProbe, ...] = ()


class BisectState:
    """The probes of one question, in the order in which they were made."""

    def __init__(self, folder: Path, key: str, command: str) -> None:
        """Read what is there. Raises DataError for a file that is no state, or another question's."""
        self.folder, self._key, self._command = folder, key, command
        self.probes: list[SetProbe] = []
        path = self._state_path
        if not path.exists():
            return
        try:
            state_file = _BisectStateFile.model_validate_json(path.read_bytes())
        except ValidationError as cause:
            raise DataError(
                f"{path} is no state of a search", tip=f"delete it to begin anew: {path}"
            ) from cause
        if state_file.key != key:
            raise DataError(
                f"{path} is of another question: {state_file.command}", tip="delete it to begin anew"
            )
        self.probes = list(state_file.probes)

    def find_probe(self, set_id: str) -> SetProbe | None:
        """Return what came of a set, ``None`` when it was not tried."""
        return next((probe for probe in self.probes if probe.set == set_id), None)

    def add_probe(self, probe: SetProbe) -> None:
        """Note what came of a set."""
        self._write_probes([*self.probes, probe])

    def remove_probe(self, set_id: str) -> None:
        """Have a set tried again next time."""
        self._write_probes([probe for probe in self.probes if probe.set != set_id])

    def clear(self) -> None:
        """Have the next run begin anew."""
        self._state_path.unlink(missing_ok=True)

    @property
    def _state_path(self) -> Path:
        return self.folder / "state.json"

    def _write_probes(self, probes: Sequence[SetProbe]) -> None:
        state_file = _BisectStateFile(key=self._key, command=self._command, probes=tuple(probes))
        write_json_file(self._state_path, state_file.model_dump(mode="json", by_alias=True))
        self.probes = list(probes)
