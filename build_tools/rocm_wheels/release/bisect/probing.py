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
from rocm_wheels.release.bisect.place import provide_index
from rocm_wheels.release.bisect.question import ProbeRequest, SetLine
from rocm_wheels.release.bisect.state import SetProbe
from rocm_wheels.release.gate.needed import list_wheel_pythons, list_set_targets
from rocm_wheels.release.sets import SetDocument
from rocm_wheels.sdk.interpreter import locate_python
from rocm_wheels.sdk.uv import PackageSource, make_venv, is_transient_failure, pip_install

SKIP_EXIT_CODE, STOP_EXIT_CODE = (
    125,
    128,
)  # exit codes of `git bisect run`: not to be tested; from here on: stop
_LONGEST_MESSAGE = 240


@dataclass(frozen=True)
class SetProber:
    """Tries sets in a folder of its own. ``keep``: the environments stay."""

    line: SetLine
    request: ProbeRequest
    folder: Path
    env: Mapping[str, str]
    keep: bool = False

    def probe_set(self, number: int) -> SetProbe:
        """Try a set. Raises ReleaseError where nothing can be said of it, now or at all.

        That is: no network, no space, a command that cannot be started or that asks to stop.
        """
        started = time.monotonic()
        document = self.line.read_document(number)
        exit_code, why = None, self._explain_unsuited(document)
        if not why:
            prefix = self.folder / "environments" / document.id
            log_file = self.folder / "logs" / f"{document.id}.log"
            log_file.unlink(missing_ok=True)
            try:
                with provide_index(self.line, self.request, document, self.folder) as index:
                    why = self._install_set(document, index, prefix, log_file)
                    exit_code = self._run_command(document, index, prefix, log_file) if not why else None
            finally:
                if not self.keep:
                    shutil.rmtree(prefix, ignore_errors=True)
        seconds = round(time.monotonic() - started, 1)
        if exit_code is None:
            return SetProbe(set=document.id, outcome="skip", why=why, seconds=seconds)
        outcome = "good" if exit_code == 0 else "skip" if exit_code == SKIP_EXIT_CODE else "bad"
        why = f"exit code {exit_code}"
        return SetProbe.model_validate(
            {"set": document.id, "outcome": outcome, "why": why, "exit": exit_code, "seconds": seconds}
        )

    def _explain_unsuited(self, document: SetDocument) -> str:
        """Return why a set cannot be installed here, by what its document says; "" when nothing does."""
        request = self.request
        targets = list_set_targets(document)
        if request.targets and not set(request.targets) & set(targets):
            return f"it is for {', '.join(targets) or 'no GPU'}, not for {', '.join(request.targets)}"
        for project in request.projects:
            pythons = [list_wheel_pythons(file.name) for file in document.files if file.project == project]
            if not pythons:
                return f"it has no {project}"
            if not any(
                not wheel_pythons or request.python_version in wheel_pythons for wheel_pythons in pythons
            ):
                return f"it has no {project} for Python {request.python_version}"
        return ""

    def _install_set(self, document: SetDocument, index: str, prefix: Path, log_file: Path) -> str:
        """Make the environment and install the set; return why that cannot be done, "" when it was."""
        shutil.rmtree(prefix, ignore_errors=True)  # of a run that was killed
        prefix.parent.mkdir(parents=True, exist_ok=True)
        log_file.parent.mkdir(parents=True, exist_ok=True)
        make_venv(self.request.python, prefix, self.env)
        # in the environment: addresses may hold passwords, and arguments can be read by all
        indexes = " ".join([index, *self.request.extra_indexes])
        links = [word for place in self.request.find_links for word in ("--find-links", place)]
        with log_file.open("w", encoding="utf-8") as sink:
            try:
                pip_install(
                    locate_python(prefix),
                    ["--index-strategy", "first-index", *links, *self._list_requirements(document)],
                    PackageSource(pre=self.request.pre),
                    {**self.env, "UV_INDEX": indexes},
                    activity=f"installing {document.id}",
                    cwd=self.folder,
                    on_line=lambda text: print(text, file=sink),
                )
            except SdkError as failure:
                if is_transient_failure(str(failure)):
                    tip = failure.tip or "run the same command again: it carries on"
                    raise ReleaseError(f"{document.id} could not be tried", tip=tip) from failure
                return f"it does not install: {_shorten_failure(failure)}"
        return ""

    def _list_requirements(self, document: SetDocument) -> list[str]:
        """Return the projects at the set's versions, with the parts that hold the kernels of the targets."""
        versions = {file.project: file.version for file in document.files}
        requirements = []
        for project in self.request.projects:
            devices = [
                f"device-{target}"
                for target in self.request.targets
                if f"{project}-device-{target}" in versions
            ]
            extras = f"[{','.join(devices)}]" if devices else ""
            requirements.append(f"{project}{extras}=={versions[project]}")
        return requirements

    def _run_command(self, document: SetDocument, index: str, prefix: Path, log_file: Path) -> int:
        """Run the command with the environment's Python first; return its exit code, below 128."""
        programs = locate_python(prefix).parent
        env = {name: value for name, value in self.env.items() if name != "PYTHONHOME"}
        env["PATH"] = os.pathsep.join([str(programs), *filter(None, [self.env.get("PATH")])])
        env["VIRTUAL_ENV"] = str(prefix)
        env |= {"ROCM_WHEELS_SET": document.id, "ROCM_WHEELS_INDEX": index}
        command = self.request.command
        program = shutil.which(command[0], path=env["PATH"])
        if program is None:
            raise ReleaseError(
                f"there is no program {command[0]}",
                tip="it is looked for in the set's environment and on PATH",
            )
        completed = process.run_command(
            [program, *command[1:]],
            env=env,
            cwd=self.request.cwd,
            log=log_file,
            on_line=lambda text: log.log_note(f"  | {text}"),
            check=None,
        )
        code = completed.returncode if completed.returncode >= 0 else STOP_EXIT_CODE - completed.returncode
        if code >= STOP_EXIT_CODE:
            outcome = (
                f"was killed by signal {code - STOP_EXIT_CODE}"
                if code > STOP_EXIT_CODE
                else f"ended with exit code {code}"
            )
            tip = "0 is good, 125 cannot be tested, 1 to 127 is bad; the same command carries on here"
            raise ReleaseError(
                f"stopped at {document.id}: {self.request} {outcome} (see {log_file})", tip=tip
            )
        return code


def _shorten_failure(failure: SdkError) -> str:
    lines = [line.strip(" |×╰─▶") for line in str(failure).splitlines()[1:]]
    message = " ".join(line for line in lines if line and not line.startswith(("Using Python", "tip:")))
    return (
        message[: _LONGEST_MESSAGE - 1] + "…" if len(message) > _LONGEST_MESSAGE else message or str(failure)
    )
