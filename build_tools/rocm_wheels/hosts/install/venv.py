"""A virtual environment to install into, which is made where it is not there yet.

It is planned for before it is made: an installation that cannot be planned leaves no folder behind. What a
killed run has begun is known by the lock of that run, inside, and is made again.
"""

from __future__ import annotations

import json
import os
import sysconfig
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from rocm_wheels import log, process
from rocm_wheels.errors import HostError, UsageError
from rocm_wheels.hosts.install.plan import InstallPlan, make_venv_command
from rocm_wheels.hosts.install.resolve import make_installer_environment
from rocm_wheels.hosts.install.target import LOCK_NAME, InstallTarget, inspect_target, require_writable_folder
from rocm_wheels.hosts.installed.environment import PythonEnvironment, read_environment
from rocm_wheels.process import capture_output
from rocm_wheels.sdk.uv import find_uv

_UNFINISHED_MARK = "unfinished"  # beside the lock: `uv venv` has not ended well yet
# Debian's own Pythons have other folders than the environments that are made of them
_VENV_QUERY = """
import json, os, sys, sysconfig
scheme = "venv" if "venv" in sysconfig.get_scheme_names() else "nt" if os.name == "nt" else "posix_prefix"
base = {"base": sys.argv[1], "platbase": sys.argv[1]}
print(json.dumps([sysconfig.get_path(name, scheme, base) for name in ("purelib", "platlib", "scripts")]))
"""


def inspect_venv(folder: Path, base: Path | None, env: Mapping[str, str]) -> InstallTarget:
    """Return a virtual environment of the Python ``base`` as a target: that at ``folder``, or the one to be.

    UsageError where something else is there: other files, or an environment of another Python.
    """
    folder = folder.expanduser().absolute()
    env = {name: value for name, value in env.items() if name not in ("PYTHONHOME", "PYTHONPATH")}
    base_target = inspect_target(base, env, changes=False)
    target = _plan_target(folder, base_target, env)
    lock = target.package_folders[0] / LOCK_NAME
    begun = lock.is_dir() and ((lock / _UNFINISHED_MARK).exists() or not (folder / "pyvenv.cfg").exists())
    if begun or not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        require_writable_folder(target.package_folders[0])
        return target
    if not (folder / "pyvenv.cfg").is_file():
        raise UsageError(
            f"--venv {folder} is there, and is no virtual environment",
            tip="name a folder that is not there yet, or one that this made",
        )
    try:
        existing = read_environment(folder, env)
    except UsageError as cause:
        cause.tip = f"delete {folder}: the same command makes it anew"
        raise UsageError(f"--venv {folder} does not run") from cause
    if _identify_base(existing) != _identify_base(base_target.environment):
        raise UsageError(
            f"--venv {folder} is an environment of Python {existing.version} in {existing.base_prefix}, and not of"
            f" {base_target.environment.version} in {base_target.environment.base_prefix}",
            tip=f"delete {folder}, or name another folder",
        )
    return inspect_target(folder, env)


def begin_venv(target: InstallTarget) -> None:
    """Make the folder of an environment that is not there yet. HostError where there can be none."""
    if target.base_python is not None:
        try:
            (target.package_folders[0] / LOCK_NAME).mkdir(parents=True, exist_ok=True)
        except OSError as cause:
            raise HostError(f"{target.environment.prefix} cannot be made: {cause.strerror}") from cause


def make_venv(plan: InstallPlan, env: Mapping[str, str]) -> None:
    """Make the environment of a plan that is not there yet; who calls holds the lock inside of it."""
    target = plan.target
    if target.base_python is None:
        return
    prefix, begun = target.environment.prefix, target.package_folders[0] / LOCK_NAME / _UNFINISHED_MARK
    if (prefix / "pyvenv.cfg").exists() and not begun.exists():
        return  # another run has made it meanwhile
    log.log_note(f"making {target}")
    begun.touch()
    words = make_venv_command(plan, str(find_uv()))
    words[2:2] = ["--quiet", "--allow-existing"]
    process.run_command(
        words, env=make_installer_environment(env), check=HostError, description=f"making {prefix}"
    )
    if not target.python.is_file():
        raise HostError(f"uv has made {prefix} without {target.python}")
    begun.unlink()


def _identify_base(environment: PythonEnvironment) -> tuple[str, bool, Path]:
    return environment.version, environment.free_threaded, environment.base_prefix.resolve()


def _plan_target(folder: Path, base_target: InstallTarget, env: Mapping[str, str]) -> InstallTarget:
    output = capture_output(
        [base_target.python, "-I", "-c", _VENV_QUERY, folder],
        env=env,
        timeout=60,
        check=UsageError,
        description=f"asking {base_target.python} where an environment has its packages",
    )
    *folders, scripts = (Path(os.path.normpath(path)) for path in json.loads(output))
    folders = list(dict.fromkeys(folders))
    environment = replace(
        base_target.environment,
        python=scripts / f"python{sysconfig.get_config_var('EXE') or ''}",
        prefix=folder,
        path=tuple(folders),
        site_packages=folders[0],
        user_site=None,
    )
    return replace(
        base_target,
        environment=environment,
        package_folders=tuple(folders),
        has_pip=False,
        base_python=base_target.python,
    )
