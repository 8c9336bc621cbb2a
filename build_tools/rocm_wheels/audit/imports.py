"""Import a finished wheel in a clean process: the check that meets what no reader sees.

The process gets no PYTHONPATH, no loader variables and no ROCm variables of the builder,
starts in an empty folder, and has a time limit. A wheel that is not installed in the
environment is put into a throw-away folder that comes first on ``sys.path``; what it
requires comes from the environment.
"""

from __future__ import annotations

import json
import platform
import re
import signal
import sys
import tempfile
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from packaging.version import InvalidVersion, Version

from rocm_wheels.audit.findings import Finding
from rocm_wheels.audit.names import same_version
from rocm_wheels.audit.subject import Expectation, bases
from rocm_wheels.errors import AuditError, BuildError
from rocm_wheels.process import run

_PROBE = Path(__file__).with_name("probe.py")
_BUILDERS = re.compile(
    r"(PYTHON|LD_|DYLD_|ROCM_|HIP_|HSA_|PYTORCH_|TORCH_|TRITON_|CONDA_|VIRTUAL_ENV$|__PYVENV)", re.IGNORECASE
)
_SHOWN_LINES = 15
_MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}
_SYSTEMS = {"linux": "linux", "win32": "windows", "darwin": "macos"}
_WINDOWS_CODES = {
    0xC0000005: "an access violation",
    0xC0000135: "a DLL that was not found",
    0xC0000139: "a function that a DLL lacks",
    0xC000001D: "an illegal instruction",
    0xC0000409: "an abort",
}


@dataclass(frozen=True)
class Host:
    """The machine that we run on: ``linux``, ``windows`` or ``macos``; ``x86_64``, ``aarch64``, …"""

    system: str
    machine: str


@dataclass(frozen=True)
class ImportPlace:
    """Where a wheel is imported: an environment's interpreter, whose packages the wheel may require.

    ``installed``: the wheel is in that environment already, in the folder ``packages`` where that is not the
    interpreter's own. ``timeout`` is in seconds; ``log`` receives, appended, what the process printed.
    """

    python: Path
    env: Mapping[str, str] = field(default_factory=dict)
    installed: bool = False
    packages: Path | None = None
    timeout: float = 600.0
    log: Path | None = None


def this_host() -> Host:
    """Return what this machine is."""
    machine = platform.machine().lower()
    return Host(_SYSTEMS.get(sys.platform, sys.platform), _MACHINES.get(machine, machine))


def why_not_here(wheel_name: str, expected: Expectation, host: Host) -> str | None:
    """Say why a wheel cannot be imported on ``host``; None when it can."""
    if host.system != expected.platform:
        return f"not imported: it is for {expected.platform}, and this machine runs {host.system}"
    tag = wheel_name.removesuffix(".whl").rpartition("-")[2].lower()
    for known in ("x86_64", "amd64", "aarch64", "arm64"):
        machine = _MACHINES.get(known, known)
        if tag.endswith(known) and machine != host.machine:
            return f"not imported: it is for {machine}, and this machine is {host.machine}"
    return None


def check_import(wheel: Path, expected: Expectation, place: ImportPlace) -> list[Finding]:
    """Import the wheel in a clean process and compare what it says of itself with ``expected``.

    A crash is named by its signal, with the last lines printed. Raises AuditError only
    when uv, which fills the throw-away folder, is not there.
    """
    env = clean_environment(place.env)
    with tempfile.TemporaryDirectory(prefix="rocm-wheels-import-") as name:
        scratch = Path(name)
        folders: list[str] = []
        if not place.installed:
            folders = [str(scratch / "installed")]
            fault = _install(wheel, Path(folders[0]), place, env)
            if fault is not None:
                return [fault]
        start = scratch / "start"
        start.mkdir()
        checks = expected.project.checks
        answer = scratch / "answer.json"
        argv = [place.python, "-I", "-X", "faulthandler", _PROBE, answer]
        names = [checks.import_name, expected.project.distribution, *folders]
        fault = _run([*map(str, argv), *names], place, env, f"`import {checks.import_name}`", start)
        if fault is not None:
            return [fault]
        if not answer.is_file():
            return [Finding(f"`import {checks.import_name}` ended before it was done, with exit code 0")]
        said = json.loads(answer.read_text(encoding="utf-8"))
        if place.packages is not None:
            said["places"] = [str(place.packages)]
        return _judge(said, expected)


def clean_environment(env: Mapping[str, str]) -> dict[str, str]:
    """Return ``env`` without what steers Python, the loader, ROCm or torch."""
    kept = {name: value for name, value in env.items() if not _BUILDERS.match(name)}
    return {**kept, "PYTHONUTF8": "1", "PYTHONDONTWRITEBYTECODE": "1"}


def _install(wheel: Path, folder: Path, place: ImportPlace, env: Mapping[str, str]) -> Finding | None:
    argv = [_uv(), "pip", "install", "--quiet", "--no-cache", "--no-config", "--no-deps", "--no-index"]
    argv += ["--python", str(place.python), "--target", str(folder), str(wheel.resolve())]
    return _run(argv, place, env, "installing it into a throw-away folder", None)


def _uv() -> str:
    try:
        from uv import find_uv_bin

        return str(find_uv_bin())
    except (ImportError, FileNotFoundError) as cause:
        tip = "install rocm-wheels with its dependencies, or leave the import check out"
        raise AuditError("uv is not there to install the wheel for its import check", tip=tip) from cause


def _run(
    argv: list[str], place: ImportPlace, env: Mapping[str, str], what: str, cwd: Path | None
) -> Finding | None:
    """Run a program; return a finding when it does not end well."""
    said: deque[str] = deque(maxlen=_SHOWN_LINES)
    try:
        ended = run(
            argv,
            env=env,
            cwd=cwd,
            log=place.log,
            on_line=said.append,
            timeout=place.timeout,
            check=None,
            what=what,
        )
    except BuildError as wrong:  # not started, or stopped by the time limit
        return Finding(str(wrong) + _last(said))
    if ended.returncode == 0:
        return None
    tip = "a library is missing, or does not fit another" if ended.returncode != 1 else ""
    return Finding(f"{what} {describe_end(ended.returncode)}{_last(said)}", tip=tip)


def describe_end(code: int) -> str:
    """Say how a process ended: ``crashed with SIGSEGV``, ``failed with exit code 1``."""
    if code < 0:
        try:
            return f"crashed with {signal.Signals(-code).name}"
        except ValueError:
            return f"crashed with signal {-code}"
    windows = _WINDOWS_CODES.get(code & 0xFFFFFFFF)
    return f"crashed with {windows} ({code:#x})" if windows else f"failed with exit code {code}"


def _last(lines: deque[str]) -> str:
    shown = [f"\n  | {line}" for line in lines if line.strip()]
    return ":" + "".join(shown) if shown else ""


def _judge(said: Mapping[str, object], expected: Expectation) -> list[Finding]:
    name = expected.project.checks.import_name
    found = []
    places = said["places"]
    assert isinstance(places, list)
    file = Path(str(said["file"])).resolve()
    if said["file"] is None:
        found.append(Finding(f"`import {name}` found a folder without a package in it"))
    elif not any(file.is_relative_to(Path(place).resolve()) for place in places):
        tip = "something on the environment's path hides the wheel: look for .pth files"
        found.append(Finding(f"`import {name}` took {file}, not the wheel's", tip=tip))
    if expected.version is not None:
        found += _judge_versions(said, expected, expected.version)
    if expected.project.checks.rocm == "torch.version.hip":
        found += _judge_torch(said, expected)
    return found


def _judge_versions(said: Mapping[str, object], expected: Expectation, wanted: str) -> list[Finding]:
    found = []
    if not same_version(str(said["installed"]), wanted):
        found.append(Finding(f"installed metadata say {said['installed']}, not {wanted}"))
    stated = said["version"]
    # a project that is not told its version by the build states only the public part of it
    allowed = {wanted} if expected.project.version.variables else {wanted, _public(wanted)}
    if stated is not None and not any(same_version(str(stated), version) for version in allowed):
        name = expected.project.checks.import_name
        found.append(Finding(f"`{name}.__version__` is {stated}, not {wanted}"))
    return found


def _judge_torch(said: Mapping[str, object], expected: Expectation) -> list[Finding]:
    name = expected.project.checks.import_name
    found = []
    if not said["hip"]:
        found.append(Finding(f"`{name}.version.hip` is {said['hip']}: a CPU-only build"))
    listed = said["architectures"]
    if isinstance(listed, list) and expected.targets is not None:
        missing = sorted(set(bases(expected.targets)) - set(bases(listed)))
        if missing:
            said_so = f"{name} says it was compiled for {' '.join(listed)}, not for {' '.join(missing)}"
            found.append(Finding(said_so))
    return found


def _public(version: str) -> str:
    try:
        return Version(version).public
    except InvalidVersion:
        return version
