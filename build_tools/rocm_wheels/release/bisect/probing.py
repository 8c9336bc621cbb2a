"""One set: an environment of its own, the set installed from its own index, the command in it.

Each project comes from the first index that has it: the set's own, then those that were named, then the
user's or PyPI.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rocm_wheels import log, process
from rocm_wheels.errors import ReleaseError, SdkError
from rocm_wheels.release.bisect.place import index_of
from rocm_wheels.release.bisect.question import Asked, Line
from rocm_wheels.release.bisect.state import Probe
from rocm_wheels.release.gate.needed import pythons_of, targets_of
from rocm_wheels.release.sets import SetDocument
from rocm_wheels.sdk.interpreter import python_in
from rocm_wheels.sdk.uv import PackageSource, make_venv, may_pass, pip_install

SKIP, STOP = 125, 128  # exit codes of `git bisect run`: not to be tested; from here on: stop
_LONGEST = 240


@dataclass(frozen=True)
class Prober:
    """Tries sets in a folder of its own. ``keep``: the environments stay."""

    line: Line
    asked: Asked
    folder: Path
    env: Mapping[str, str]
    keep: bool = False

    def probe(self, number: int) -> Probe:
        """Try a set. Raises ReleaseError where nothing can be said of it, now or at all.

        That is: no network, no space, a command that cannot be started or that asks to stop.
        """
        begun = time.monotonic()
        document = self.line.document(number)
        exit_code, why = None, self._unsuited(document)
        if not why:
            prefix = self.folder / "environments" / document.id
            log_file = self.folder / "logs" / f"{document.id}.log"
            log_file.unlink(missing_ok=True)
            try:
                with index_of(self.line, self.asked, document, self.folder) as index:
                    why = self._install(document, index, prefix, log_file)
                    exit_code = self._run(document, index, prefix, log_file) if not why else None
            finally:
                if not self.keep:
                    shutil.rmtree(prefix, ignore_errors=True)
        seconds = round(time.monotonic() - begun, 1)
        if exit_code is None:
            return Probe(set=document.id, outcome="skip", why=why, seconds=seconds)
        outcome = "good" if exit_code == 0 else "skip" if exit_code == SKIP else "bad"
        why = f"exit code {exit_code}"
        return Probe.model_validate(
            {"set": document.id, "outcome": outcome, "why": why, "exit": exit_code, "seconds": seconds}
        )

    def _unsuited(self, document: SetDocument) -> str:
        """Return why a set cannot be installed here, by what its document says; "" when nothing does."""
        asked = self.asked
        targets = targets_of(document)
        if asked.targets and not set(asked.targets) & set(targets):
            return f"it is for {', '.join(targets) or 'no GPU'}, not for {', '.join(asked.targets)}"
        for project in asked.projects:
            pythons = [pythons_of(file.name) for file in document.files if file.project == project]
            if not pythons:
                return f"it has no {project}"
            if not any(not own or asked.python_version in own for own in pythons):
                return f"it has no {project} for Python {asked.python_version}"
        return ""

    def _install(self, document: SetDocument, index: str, prefix: Path, log_file: Path) -> str:
        """Make the environment and install the set; return why that cannot be done, "" when it was."""
        shutil.rmtree(prefix, ignore_errors=True)  # of a run that was killed
        prefix.parent.mkdir(parents=True, exist_ok=True)
        log_file.parent.mkdir(parents=True, exist_ok=True)
        make_venv(self.asked.python, prefix, self.env)
        # in the environment: addresses may hold passwords, and arguments can be read by all
        indexes = " ".join([index, *self.asked.extra_indexes])
        links = [word for place in self.asked.find_links for word in ("--find-links", place)]
        with log_file.open("w", encoding="utf-8") as sink:
            try:
                pip_install(
                    python_in(prefix),
                    ["--index-strategy", "first-index", *links, *self._requirements(document)],
                    PackageSource(pre=self.asked.pre),
                    {**self.env, "UV_INDEX": indexes},
                    what=f"installing {document.id}",
                    cwd=self.folder,
                    on_line=lambda text: print(text, file=sink),
                )
            except SdkError as failure:
                if may_pass(str(failure)):
                    tip = failure.tip or "run the same command again: it carries on"
                    raise ReleaseError(f"{document.id} could not be tried", tip=tip) from failure
                return f"it does not install: {_in_a_line(failure)}"
        return ""

    def _requirements(self, document: SetDocument) -> list[str]:
        """Return the projects at the set's versions, with the parts that hold the kernels of the targets."""
        versions = {file.project: file.version for file in document.files}
        found = []
        for project in self.asked.projects:
            devices = [f"device-{one}" for one in self.asked.targets if f"{project}-device-{one}" in versions]
            extras = f"[{','.join(devices)}]" if devices else ""
            found.append(f"{project}{extras}=={versions[project]}")
        return found

    def _run(self, document: SetDocument, index: str, prefix: Path, log_file: Path) -> int:
        """Run the command with the environment's Python first; return its exit code, below 128."""
        programs = python_in(prefix).parent
        env = {name: value for name, value in self.env.items() if name != "PYTHONHOME"}
        env["PATH"] = os.pathsep.join([str(programs), *filter(None, [self.env.get("PATH")])])
        env["VIRTUAL_ENV"] = str(prefix)
        env |= {"ROCM_WHEELS_SET": document.id, "ROCM_WHEELS_INDEX": index}
        command = self.asked.command
        program = shutil.which(command[0], path=env["PATH"])
        if program is None:
            raise ReleaseError(
                f"there is no program {command[0]}",
                tip="it is looked for in the set's environment and on PATH",
            )
        done = process.run(
            [program, *command[1:]],
            env=env,
            cwd=self.asked.cwd,
            log=log_file,
            on_line=lambda text: log.note(f"  | {text}"),
            check=None,
        )
        code = done.returncode if done.returncode >= 0 else STOP - done.returncode
        if code >= STOP:
            how = f"was killed by signal {code - STOP}" if code > STOP else f"ended with exit code {code}"
            tip = "0 is good, 125 cannot be tested, 1 to 127 is bad; the same command carries on here"
            raise ReleaseError(f"stopped at {document.id}: {self.asked} {how} (see {log_file})", tip=tip)
        return code


def _in_a_line(failure: SdkError) -> str:
    lines = [line.strip(" |×╰─▶") for line in str(failure).splitlines()[1:]]
    said = " ".join(line for line in lines if line and not line.startswith(("Using Python", "tip:")))
    return said[: _LONGEST - 1] + "…" if len(said) > _LONGEST else said or str(failure)
