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
from rocm_wheels.hosts.install.plan import Plan, venv_words
from rocm_wheels.hosts.install.resolve import installer_environment
from rocm_wheels.hosts.install.target import LOCK, Target, look_at_target, require_writable
from rocm_wheels.hosts.installed.environment import Environment, read_environment
from rocm_wheels.process import capture
from rocm_wheels.sdk.uv import uv_program

_BEGUN = "unfinished"  # beside the lock: `uv venv` has not ended well yet
# Debian's own Pythons have other folders than the environments that are made of them
_QUESTION = """
import json, os, sys, sysconfig
scheme = "venv" if "venv" in sysconfig.get_scheme_names() else "nt" if os.name == "nt" else "posix_prefix"
base = {"base": sys.argv[1], "platbase": sys.argv[1]}
print(json.dumps([sysconfig.get_path(name, scheme, base) for name in ("purelib", "platlib", "scripts")]))
"""


def look_at_venv(folder: Path, base: Path | None, env: Mapping[str, str]) -> Target:
    """Return a virtual environment of the Python ``base`` as a target: that at ``folder``, or the one to be.

    UsageError where something else is there: other files, or an environment of another Python.
    """
    folder = folder.expanduser().absolute()
    env = {name: value for name, value in env.items() if name not in ("PYTHONHOME", "PYTHONPATH")}
    of = look_at_target(base, env, changes=False)
    target = _target_to_be(folder, of, env)
    lock = target.places[0] / LOCK
    begun = lock.is_dir() and ((lock / _BEGUN).exists() or not (folder / "pyvenv.cfg").exists())
    if begun or not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        require_writable(target.places[0])
        return target
    if not (folder / "pyvenv.cfg").is_file():
        raise UsageError(
            f"--venv {folder} is there, and is no virtual environment",
            tip="name a folder that is not there yet, or one that this made",
        )
    try:
        there = read_environment(folder, env)
    except UsageError as cause:
        cause.tip = f"delete {folder}: the same command makes it anew"
        raise UsageError(f"--venv {folder} does not run") from cause
    if _made_of(there) != _made_of(of.environment):
        raise UsageError(
            f"--venv {folder} is an environment of Python {there.version} in {there.base_prefix}, and not of"
            f" {of.environment.version} in {of.environment.base_prefix}",
            tip=f"delete {folder}, or name another folder",
        )
    return look_at_target(folder, env)


def begin_venv(target: Target) -> None:
    """Make the folder of an environment that is not there yet. HostError where there can be none."""
    if target.made_of is not None:
        try:
            (target.places[0] / LOCK).mkdir(parents=True, exist_ok=True)
        except OSError as cause:
            raise HostError(f"{target.environment.prefix} cannot be made: {cause.strerror}") from cause


def make_venv(plan: Plan, env: Mapping[str, str]) -> None:
    """Make the environment of a plan that is not there yet; who calls holds the lock inside of it."""
    target = plan.target
    if target.made_of is None:
        return
    prefix, begun = target.environment.prefix, target.places[0] / LOCK / _BEGUN
    if (prefix / "pyvenv.cfg").exists() and not begun.exists():
        return  # another run has made it meanwhile
    log.note(f"making {target}")
    begun.touch()
    words = venv_words(plan, str(uv_program()))
    words[2:2] = ["--quiet", "--allow-existing"]
    process.run(words, env=installer_environment(env), check=HostError, what=f"making {prefix}")
    if not target.python.is_file():
        raise HostError(f"uv has made {prefix} without {target.python}")
    begun.unlink()


def _made_of(one: Environment) -> tuple[str, bool, Path]:
    return one.version, one.free_threaded, one.base_prefix.resolve()


def _target_to_be(folder: Path, of: Target, env: Mapping[str, str]) -> Target:
    said = capture(
        [of.python, "-I", "-c", _QUESTION, folder],
        env=env,
        timeout=60,
        check=UsageError,
        what=f"asking {of.python} where an environment has its packages",
    )
    *places, scripts = (Path(os.path.normpath(one)) for one in json.loads(said))
    places = list(dict.fromkeys(places))
    environment = replace(
        of.environment,
        python=scripts / f"python{sysconfig.get_config_var('EXE') or ''}",
        prefix=folder,
        path=tuple(places),
        site_packages=places[0],
        user_site=None,
    )
    return replace(of, environment=environment, places=tuple(places), has_pip=False, made_of=of.python)
