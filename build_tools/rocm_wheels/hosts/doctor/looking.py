"""Gather what the checks look at: this machine or a stated one, and an environment on it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from rocm_wheels.errors import UsageError
from rocm_wheels.gpus.gpu import Hardware
from rocm_wheels.gpus.look import look
from rocm_wheels.hosts.choose.machine import Stated, host_of
from rocm_wheels.hosts.doctor.machine import read_machine
from rocm_wheels.hosts.doctor.subject import Subject
from rocm_wheels.hosts.installed.environment import meant_python
from rocm_wheels.hosts.installed.look import look_at_packages


def look_at(
    env: Mapping[str, str],
    *,
    python: Path | None = None,
    gfx: Sequence[str] = (),
    root: Path = Path("/"),
) -> Subject:
    """Read a machine whose files are below ``root``, and the environment of ``python``.

    Without ``python`` that of the active environment, else the running one. ``gfx`` states GPUs of a machine
    to be, as ``--gfx`` takes them (``none``: none). UsageError for a Python that does not run, and for GPUs
    that are none.
    """
    installed = look_at_packages(meant_python(python, env), env)
    hardware = (
        host_of(env, Stated(tuple(gfx))).hardware if gfx else _here(env, root, installed.environment.path)
    )
    return Subject(
        hardware=hardware,
        installed=installed,
        machine=read_machine(env, root=root),
        env=env,
        stated=bool(gfx),
        python=python,
    )


def _here(env: Mapping[str, str], root: Path, path: tuple[Path, ...]) -> Hardware:
    """Look at this machine; a variable that cannot be read is a fault, and what it says does not count."""
    faults: list[str] = []
    left = dict(env)
    while True:
        try:
            found = look(left, root=root, site_packages=path)
        except ValueError as wrong:
            named = [name for name in left if re.search(rf"\b{re.escape(name)}\b", str(wrong))]
            if not named:
                raise UsageError(str(wrong)) from None
            faults.append(str(wrong))
            left = {name: value for name, value in left.items() if name not in named}
        else:
            return replace(found, faults=(*faults, *found.faults))
