"""The run of one step: all that the code of a step may use, and how it records what it made."""

from __future__ import annotations

import errno
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rocm_wheels.core import files, process, shell
from rocm_wheels.core.log import is_log_on_github, log_note
from rocm_wheels.pipeline import build_environment, run_record
from rocm_wheels.pipeline.facts import Facts
from rocm_wheels.pipeline.outputs import OutputFile, StepStamp, write_stamp
from rocm_wheels.pipeline.planner import Planner
from rocm_wheels.pipeline.step import Step
from rocm_wheels.sdk import resolve_packages


@dataclass(frozen=True)
class StepRun:
    """The turn of a settled step. ``jobs``: how many compilers at a time, where that was decided."""

    planner: Planner
    step: Step
    record: run_record.RunRecord
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
    def ready(self) -> build_environment.ReadyEnvironment:
        """The step's environment, which an earlier step has made."""
        return self.planner.ready

    @property
    def known_inputs(self) -> dict[str, str]:
        """The inputs of the step, all of which are known by now."""
        return dict(self.step.inputs)

    def make_scratch_folder(self) -> Path:
        """Return a folder of the workspace for small compilations."""
        folder = self.facts.workspace.fresh_wheels
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def echo_line(self, line: str) -> None:
        """Take a line of a program's output: on GitHub, where log files are lost, people read it at once."""
        if is_log_on_github():
            log_note(line)

    def keep_files(self, files: Sequence[Path]) -> list[Path]:
        """Move wheels, with their statements, and what goes with them to where they stay for later steps."""
        from rocm_wheels.wheels import statement

        folder = self.facts.workspace.built_wheels / self.step.id
        folder.mkdir(parents=True, exist_ok=True)
        older = set(folder.iterdir())
        kept = []
        for file in files:
            kept.append(_move_file(file, folder / file.name))
            if file.suffix == ".whl":
                statement.copy_statement(file, kept[-1])
                statement.remove_statement(file)
        for old in older - {path for file in kept for path in folder.glob(f"{file.name}*")}:
            old.unlink()
        return kept

    def append_log(self, title: str, lines: Iterable[str]) -> None:
        """Write lines into the step's log, below a title."""
        with self.log.open("a", encoding="utf-8") as file:
            file.write("\n".join(["", f"# {title}", *lines, ""]))

    def record_event(self, event: str, **fields: object) -> None:
        """Put an event of this step into the record."""
        self.record.write(event, step=self.step.id, **fields)

    def record_packages(
        self, installed: Mapping[str, resolve_packages.InstalledPackage], *, locked: bool, project: str = ""
    ) -> None:
        """Put what an environment was installed from into the record; ``project``: of whose layer."""
        packages = [asdict(package) for package in installed.values()]
        self.record_event("packages", project=project, locked=locked, packages=packages)

    def record_command(
        self,
        argv: list[str],
        finished: process.FinishedProcess,
        *,
        cwd: Path,
        changes: Mapping[str, str | None],
    ) -> None:
        """Put a program that the step ran into the record."""
        self.record_event(
            "command",
            command=shell.format_command(argv, cwd=cwd),
            cwd=cwd,
            environment=shell.redact_environment(changes),
            seconds=round(finished.seconds, 3),
            returncode=finished.returncode,
        )

    def record_success(self, outputs: tuple[OutputFile, ...] = (), **facts: Any) -> StepStamp:
        """Record the success: from now on the step is current."""
        stamp = StepStamp(self.step.id, self.known_inputs, outputs, facts)
        write_stamp(self.facts.workspace.steps, stamp)
        return stamp


def _move_file(source: Path, target: Path) -> Path:
    """Move a file over another one, whole or not at all, also to another file system; return the target."""
    try:
        return source.replace(target)
    except OSError as failure:
        if failure.errno != errno.EXDEV:
            raise
    files.copy_atomically(source, target)
    source.unlink()
    return target
