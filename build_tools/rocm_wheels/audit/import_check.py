"""Import a finished wheel in a clean process: the check that meets what no reader sees.

The process gets no PYTHONPATH, no loader variables and no ROCm variables of the builder,
starts in an empty folder, and has a time limit. A wheel that is not installed in the
environment is put into a throw-away folder that comes first on ``sys.path``; what it
requires comes from the environment, and from a folder of what that lacks.
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
from typing import Any

from rocm_wheels.audit import audited_wheel, metadata
from rocm_wheels.audit.definition import Findings, Skip, check, error
from rocm_wheels.binaries import asan
from rocm_wheels.core import errors, installation, process
from rocm_wheels.models import versions
from rocm_wheels.wheels import dist_info, scan

_PROBE = Path(__file__).with_name("import_probe.py")
_BUILDER_VARIABLES = re.compile(
    r"(PYTHON|LD_|DYLD_|ROCM_|HIP_|HSA_|PYTORCH_|TORCH_|TRITON_|CONDA_|VIRTUAL_ENV$|__PYVENV)", re.IGNORECASE
)
_MISSING_MODULE = re.compile(r"ModuleNotFoundError: No module named '(?P<name>[^'.]+)[^']*'")
_KFD = Path("/dev/kfd")  # through which programs reach AMD GPUs on Linux
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
class ImportHost:
    """The machine that we run on: ``linux``, ``windows`` or ``macos``; ``x86_64``, ``aarch64``, …"""

    system: str
    machine: str


@dataclass(frozen=True)
class ImportEnvironment:
    """Where a wheel is imported: an environment's interpreter, whose packages the wheel may require.

    ``installed``: the wheel is in that environment already, in the folder ``packages`` where that is not the
    interpreter's own. ``additions``: a folder of packages that the environment lacks; ``lacking``: the names
    of those that are nowhere. ``timeout`` is in seconds; ``log`` receives what the process printed.
    """

    python: Path
    env: Mapping[str, str] = field(default_factory=dict)
    installed: bool = False
    packages: Path | None = None
    additions: Path | None = None
    lacking: tuple[str, ...] = ()
    timeout: float = 600.0
    log: Path | None = None


def detect_import_host() -> ImportHost:
    """Return what this machine is."""
    machine = platform.machine().lower()
    return ImportHost(_SYSTEMS.get(sys.platform, sys.platform), _MACHINES.get(machine, machine))


def explain_no_import(
    wheel_name: str, expected: audited_wheel.WheelExpectation, host: ImportHost
) -> str | None:
    """Say why a wheel cannot be imported on ``host``; None when it can."""
    if host.system != expected.platform:
        return f"not imported: it is for {expected.platform}, and this machine runs {host.system}"
    tag = wheel_name.removesuffix(".whl").rpartition("-")[2].lower()
    for spelling in ("x86_64", "amd64", "aarch64", "arm64"):
        machine = _MACHINES.get(spelling, spelling)
        if tag.endswith(spelling) and machine != host.machine:
            return f"not imported: it is for {machine}, and this machine is {host.machine}"
    return None


@check("RW022 import (error)", needs_recipe=True)
def check_import(wheel: audited_wheel.AuditedWheel) -> Findings:
    """It can be imported in a clean process, and says of itself what was built.

    Why: Nothing works.
    Fix: The last lines that the process printed say what is missing.

    No reading of files is enough for it: it runs behind the others, where there is an environment
    (``import_here``).
    """
    if wheel.scan.breaking_faults:
        raise Skip("not imported: its archive is damaged or does not agree with itself")
    raise Skip("not imported: no environment to import it in")


def import_here(
    wheel: Path, expected: audited_wheel.WheelExpectation, environment: ImportEnvironment
) -> Findings:
    """Import a wheel in a clean process, and yield where what it says of itself is not what is ``expected``.

    A crash is named by its signal, with the last lines printed. ``Skip`` where this machine is not what it is
    for, and where the environment lacks what the wheel requires and a module of another project is not there:
    that is no fault of the wheel. Raises AuditError only when uv, which fills the throw-away folder, is not
    there.
    """
    if reason := explain_no_import(wheel.name, expected, detect_import_host()):
        raise Skip(reason)
    checks = expected.recipe.checks
    if checks.import_needs_gpu and not _KFD.exists():
        raise Skip("not imported: it asks for a GPU when it is imported, and there is no /dev/kfd here")
    env = {**make_clean_environment(environment.env), **checks.import_variables}
    if versions.is_asan_version(dist_info.parse_wheel_name(wheel.name).version):
        runtimes = asan.list_runtimes(scan.scan_wheel(wheel).binaries.values())
        env |= asan.make_test_variables(env, asan.find_runtime(runtimes, env))
    with tempfile.TemporaryDirectory(prefix="rocm-wheels-import-") as name:
        scratch = Path(name)
        folders: list[str] = []
        if not environment.installed:
            folders = [str(scratch / "installed")]
            argv = [str(installation.find_uv()), "pip", "install", "--quiet", "--no-cache", "--no-config"]
            argv += ["--no-deps", "--no-index", "--python", str(environment.python)]
            argv += ["--target", folders[0], str(wheel.resolve())]
            description = "installing it into a throw-away folder"
            fault = _run_or_find(argv, environment, env, description, None)
            if fault is not None:
                yield fault
                return
        start = scratch / "start"
        start.mkdir()
        answer = scratch / "answer.json"
        if environment.additions is not None:
            folders.append(str(environment.additions))
        argv = [str(environment.python), "-I", "-X", "faulthandler", str(_PROBE), str(answer)]
        argv += [checks.import_name, expected.recipe.distribution, *folders]
        fault = _run_or_find(argv, environment, env, f"`import {checks.import_name}`", start)
        if fault is not None:
            if environment.lacking and _lacks_other_module(fault.message, checks.import_name):
                names = ", ".join(environment.lacking)
                raise Skip(f"not imported: it requires {names}, not in the build environment")
            yield fault
            return
        if not answer.is_file():
            yield error(f"`import {checks.import_name}` ended before it was done, with exit code 0")
            return
        stated = json.loads(answer.read_text(encoding="utf-8"))
        if environment.packages is not None:
            stated["places"] = [str(environment.packages)]
        elif not environment.installed:
            stated["places"] = folders[:1]
        yield from _judge_import(stated, expected)


def _lacks_other_module(message: str, import_name: str) -> bool:
    """Tell whether Python did not find a module of another project."""
    match = _MISSING_MODULE.search(message)
    return match is not None and match["name"] != import_name.partition(".")[0]


def make_clean_environment(env: Mapping[str, str]) -> dict[str, str]:
    """Return ``env`` without what steers Python, the loader, ROCm or torch."""
    cleaned = {name: value for name, value in env.items() if not _BUILDER_VARIABLES.match(name)}
    return {**cleaned, "PYTHONUTF8": "1", "PYTHONDONTWRITEBYTECODE": "1"}


def _run_or_find(
    argv: list[str],
    environment: ImportEnvironment,
    env: Mapping[str, str],
    description: str,
    cwd: Path | None,
) -> errors.Finding | None:
    """Run a program; return a finding when it does not end well."""
    printed: deque[str] = deque(maxlen=_SHOWN_LINES)
    try:
        finished = process.run_command(
            argv,
            env=env,
            cwd=cwd,
            log=environment.log,
            on_line=printed.append,
            timeout=environment.timeout,
            check=None,
            description=description,
        )
    except errors.BuildError as failure:  # not started, or stopped by the time limit
        return error(str(failure) + _format_last_lines(printed))
    if finished.returncode == 0:
        return None
    tip = "a library is missing, or does not fit another" if finished.returncode != 1 else ""
    ended = f"{description} {describe_exit(finished.returncode)}"
    return error(ended + _format_last_lines(printed), tip=tip)


def describe_exit(code: int) -> str:
    """Say how a process ended: ``crashed with SIGSEGV``, ``failed with exit code 1``."""
    if code < 0:
        try:
            return f"crashed with {signal.Signals(-code).name}"
        except ValueError:
            return f"crashed with signal {-code}"
    windows = _WINDOWS_CODES.get(code & 0xFFFFFFFF)
    return f"crashed with {windows} ({code:#x})" if windows else f"failed with exit code {code}"


def _format_last_lines(lines: deque[str]) -> str:
    marked = [f"\n  | {line}" for line in lines if line.strip()]
    return ":" + "".join(marked) if marked else ""


def _judge_import(stated: Mapping[str, Any], expected: audited_wheel.WheelExpectation) -> Findings:
    recipe = expected.recipe
    name = recipe.checks.import_name
    file = Path(str(stated["file"])).resolve()
    if stated["file"] is None:
        yield error(f"`import {name}` found a folder without a package in it")
    elif not any(file.is_relative_to(Path(folder).resolve()) for folder in stated["places"]):
        tip = "something on the environment's path hides the wheel: look for .pth files"
        yield error(f"`import {name}` took {file}, not the wheel's", tip=tip)
    if expected.version is not None:
        installed, version = str(stated["installed"]), stated["version"]
        if not metadata.is_same_version(installed, expected.version):
            yield error(f"installed metadata say {installed}, not {expected.version}")
        # a project that is not told its version by the build states only the public part of it
        allowed = {expected.version}
        if not recipe.version.variables:
            allowed.add(expected.version.partition("+")[0])
        if version is not None and not any(metadata.is_same_version(version, other) for other in allowed):
            yield error(f"`{name}.__version__` is {version}, not {expected.version}")
    if recipe.checks.rocm == "torch.version.hip":
        if not stated["hip"]:
            yield error(f"`{name}.version.hip` is {stated['hip']}: a CPU-only build")
        listed = stated["architectures"]
        if isinstance(listed, list) and expected.targets is not None:
            held = audited_wheel.list_base_targets(listed)
            missing = sorted(set(audited_wheel.list_base_targets(expected.targets)).difference(held))
            if missing:
                text = f"{name} says it was compiled for {' '.join(listed)}, not for {' '.join(missing)}"
                yield error(text)
