"""Gather what the checks look at: this machine or a stated one, and an environment on it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from rocm_wheels.errors import UsageError
from rocm_wheels.gpus.gpu import Hardware
from rocm_wheels.gpus.look import detect_hardware
from rocm_wheels.hosts.choose.machine import StatedMachine, make_host
from rocm_wheels.hosts.doctor.machine import read_machine_facts
from rocm_wheels.hosts.doctor.subject import DoctorSubject
from rocm_wheels.hosts.installed.environment import find_active_python
from rocm_wheels.hosts.installed.look import read_installed_packages


def inspect_host(
    env: Mapping[str, str],
    *,
    python: Path | None = None,
    gfx: Sequence[str] = (),
    root: Path = Path("/"),
) -> DoctorSubject:
    """Read a machine whose files are below ``root``, and the environment of ``python``.

    Without ``python`` that of the active environment, else the running one. ``gfx`` states GPUs of a machine
    to be, as ``--gfx`` takes them (``none``: none). UsageError for a Python that does not run, and for GPUs
    that are none.
    """
    installed = read_installed_packages(find_active_python(python, env), env)
    hardware = (
        make_host(env, StatedMachine(tuple(gfx))).hardware
        if gfx
        else _detect_here(env, root, installed.environment.path)
    )
    return DoctorSubject(
        hardware=hardware,
        installed=installed,
        machine=read_machine_facts(env, root=root),
        env=env,
        stated=bool(gfx),
        python=python,
    )


def _detect_here(env: Mapping[str, str], root: Path, path: tuple[Path, ...]) -> Hardware:
    """Look at this machine; a variable that cannot be read is a fault, and what it says does not count."""
    faults: list[str] = []
    remaining = dict(env)
    while True:
        try:
            hardware = detect_hardware(remaining, root=root, site_packages=path)
        except ValueError as error:
            variables = [name for name in remaining if re.search(rf"\b{re.escape(name)}\b", str(error))]
            if not variables:
                raise UsageError(str(error)) from None
            faults.append(str(error))
            remaining = {name: value for name, value in remaining.items() if name not in variables}
        else:
            return replace(hardware, faults=(*faults, *hardware.faults))
