"""A step's turn: all that the code of a step may use, and how it tells what it made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rocm_wheels import log
from rocm_wheels.pipeline.facts.gather import Facts
from rocm_wheels.pipeline.facts.ready import Ready
from rocm_wheels.pipeline.plan.planner import Planner
from rocm_wheels.pipeline.plan.step import Step
from rocm_wheels.pipeline.record.writing import RunRecord
from rocm_wheels.pipeline.stamps import Output, Stamp, write_stamp
from rocm_wheels.process import Finished
from rocm_wheels.shell import shell_line, shown_environment


@dataclass(frozen=True)
class Turn:
    """The turn of a settled step. ``jobs``: how many compilers at a time, where that was decided."""

    planner: Planner
    step: Step
    record: RunRecord
    jobs: int | None = None

    @property
    def facts(self) -> Facts:
        """What was looked up."""
        return self.planner.facts

    @property
    def log(self) -> Path:
        """The step's own log."""
        return self.record.folder / f"{self.step.id}.log"

    @property
    def ready(self) -> Ready:
        """The step's environment, which an earlier step has made."""
        ready = self.planner.python(self.step).ready
        assert ready is not None, f"{self.step.id} began before its environment was there"
        return ready

    @property
    def known_inputs(self) -> dict[str, str]:
        """The inputs of the step, all of which are known by now."""
        return {name: str(value) for name, value in self.step.inputs.items()}

    def say(self, line: str) -> None:
        """Take a line of a program's output: on GitHub, where log files are lost, people read it at once."""
        if log.is_github():
            log.note(line)

    def event(self, event: str, **fields: object) -> None:
        """Put an event of this step into the record."""
        self.record.write(event, step=self.step.id, **fields)

    def ran(
        self, argv: list[str], finished: Finished, *, cwd: Path, changes: Mapping[str, str | None]
    ) -> None:
        """Put a program that the step ran into the record."""
        self.event(
            "command",
            command=shell_line(argv, cwd=cwd),
            cwd=cwd,
            environment=shown_environment(changes),
            seconds=round(finished.seconds, 3),
            returncode=finished.returncode,
        )

    def succeed(self, outputs: tuple[Output, ...] = (), **facts: Any) -> Stamp:
        """Record the success: from now on the step is current."""
        stamp = Stamp(self.step.id, self.known_inputs, outputs, facts)
        write_stamp(self.facts.workspace.steps, stamp)
        return stamp
