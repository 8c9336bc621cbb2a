"""What programs ask of a machine and its torch: ``import rocm_wheels``, then these functions.

Each looks at this machine as the command of its name does, and raises
``rocm_wheels.core.errors.RocmWheelsError`` where that would print an error. Nothing is changed but by
``configure`` and ``install``.

| torchruntime | rocm_wheels |
|---|---|
| ``configure()`` ``install([…])`` | ``configure()`` ``install([…])`` |
| ``device_db.get_gpus()`` | ``get_gpus()`` |
| ``platform_detection.get_torch_platform(gpus)`` | ``str(get_platform(gpus))`` |
| ``installer.get_install_commands(platform, packages)`` | ``get_install_commands(packages)`` |
| ``utils.get_installed_torch_platform()`` | ``get_installed_platform()`` |
| ``utils.get_device(0)`` | ``get_device(0)`` |
| ``info()`` | ``doctor()`` |
| ``python -m torchruntime test`` | ``test()`` |
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rocm_wheels.core import errors
    from rocm_wheels.gpus import gpu
    from rocm_wheels.user import candidates, selftest
    from rocm_wheels.user import plan as planning

__all__ = [
    "TorchPlatform",
    "choose",
    "configure",
    "doctor",
    "get_device",
    "get_gpus",
    "get_hardware",
    "get_install_commands",
    "get_installed_platform",
    "get_platform",
    "install",
    "test",
]


@dataclass(frozen=True)
class TorchPlatform:
    """Which torch a machine gets: ``rocm``, ``cu128``, ``xpu``, ``mps`` or ``cpu``; that is its ``str``.

    ``index`` is the URL where it comes from, ``reason`` why that one.
    """

    name: str
    index: str
    reason: str

    def __str__(self) -> str:
        return self.name


def get_hardware() -> gpu.Hardware:
    """Return all GPUs and every ROCm of this machine, and what was odd about them.

    UsageError for a variable that forces something and cannot be read.
    """
    from rocm_wheels.core import errors
    from rocm_wheels.gpus import detect

    try:
        return detect.detect_hardware(
            dict(os.environ), site_packages=[Path(place) for place in sys.path if place]
        )
    except ValueError as cause:
        raise errors.UsageError(str(cause)) from None


def get_gpus() -> tuple[gpu.Gpu, ...]:
    """Return all GPUs of this machine, of every vendor, best first; unknown ones are among them."""
    return get_hardware().gpus


def get_platform(gpus: Iterable[gpu.Gpu] | None = None, *, channel: str = "stable") -> TorchPlatform:
    """Return which torch this machine gets, or one with other ``gpus``, and the index where it comes from.

    HostError when no index of the channel has wheels for this Python on this system.
    """
    from rocm_wheels.gpus import gpu
    from rocm_wheels.user import index_pages
    from rocm_wheels.user.host import StatedMachine, make_host

    env = dict(os.environ)
    if gpus is None:
        host = make_host(env)
    else:
        host = replace(
            make_host(env, StatedMachine(gfx=("none",), rocm="none")), hardware=gpu.Hardware(tuple(gpus))
        )
    recommended = index_pages.recommend_torch(host, channel)
    return TorchPlatform(recommended.kind, recommended.index.url, "; ".join(recommended.reasons))


def get_installed_platform() -> str | None:
    """Return what this Python's torch was built for: ``rocm``, ``cuda``, ``xpu``, ``cpu`` or ``unknown``.

    None when there is no torch. It is read from its files, and not imported.
    """
    from rocm_wheels.user import installed_packages

    torch = installed_packages.read_installed_packages(None, dict(os.environ)).torch
    return torch.kind if torch is not None else None


def get_device(device: int | str = 0) -> Any:
    """Return a ``torch.device``: by its number among those that torch computes on, or by name.

    ``0`` is the first GPU that torch sees (``cuda:0`` for AMD's too, ``xpu:0``, ``mps:0``), or the CPU where
    it sees none. HostError without torch, UsageError for a device that torch does not see. Call
    ``configure()`` before: this imports torch.
    """
    from rocm_wheels.core import errors

    try:
        torch: Any = import_module("torch")
    except ImportError as cause:
        raise errors.HostError(f"torch cannot be imported: {cause}", tip="rocm-wheels install") from cause
    counts = {
        "cuda": torch.cuda.device_count() if torch.cuda.is_available() else 0,
        "xpu": torch.xpu.device_count() if hasattr(torch, "xpu") and torch.xpu.is_available() else 0,
        "mps": int(torch.backends.mps.is_available()),
    }
    best = next((kind for kind, count in counts.items() if count), "cpu")
    kind, _, number = device.partition(":") if isinstance(device, str) else (best, "", str(device))
    index = int(number or 0) if (number or "0").isdecimal() else -1
    if index not in range({**counts, "cpu": 1}.get(kind, 0)):
        seen = [f"{name}:{i}" for name, count in {**counts, "cpu": 1}.items() for i in range(count)]
        raise errors.UsageError(f"torch sees no device {device}", tip=f"it sees {', '.join(seen)}")
    return torch.device(kind, index)


def choose(
    requirements: Sequence[str] = ("torch",),
    *,
    index: str | None = None,
    gfx: Sequence[str] = (),
    rocm: str | None = None,
    python: str | None = None,
    platform: str | None = None,
    channel: str = "stable",
    allow_cpu: bool = False,
) -> tuple[candidates.WheelChoice, ...]:
    """Choose a wheel for each requirement, all from one index, and say why: ``rocm-wheels choose``.

    ``gfx``, ``rocm``, ``python`` (``3.12``) and ``platform`` state another machine. HostError when
    nothing fits, and for a torch that serves no GPU of the machine, unless ``allow_cpu``.
    """
    from rocm_wheels.index import reader
    from rocm_wheels.user.host import StatedMachine, make_host
    from rocm_wheels.user.kernel_proof import choose_proven_wheels

    host = make_host(dict(os.environ), StatedMachine(tuple(gfx), rocm, python, platform))
    reach = reader.IndexReader()
    return choose_proven_wheels(requirements, index, host, reach, channel=channel, allow_cpu=allow_cpu)


def get_install_commands(
    packages: Sequence[str] = (),
    *,
    index: str | None = None,
    python: Path | None = None,
    gfx: Sequence[str] = (),
    channel: str = "stable",
    pre: bool = False,
    allow_cpu: bool = False,
) -> tuple[str, ...]:
    """Return the lines that fetch and install torch for this machine: ``rocm-wheels install --dry-run``.

    Nothing named is torch, torchvision and torchaudio. ``python`` is the environment: the active one, else
    that of this Python. Nothing is installed; empty when all of it is there already. The index is asked. A
    torch that serves no GPU of the machine is a HostError, unless ``allow_cpu``.
    """
    plan = _plan_install(
        packages, index, python, gfx, channel=channel, pre=pre, allow_cpu=allow_cpu, dry_run=True
    )
    return tuple(plan.list_commands())


def install(
    packages: Sequence[str] = (),
    *,
    index: str | None = None,
    python: Path | None = None,
    gfx: Sequence[str] = (),
    channel: str = "stable",
    pre: bool = False,
    allow_cpu: bool = False,
) -> tuple[str, ...]:
    """Install torch for this machine and check what came of it: ``rocm-wheels install``.

    The arguments are those of ``get_install_commands``. Returns what is installed now, for people; HostError
    when anything did not happen.
    """
    from rocm_wheels.user import install as installing

    plan = _plan_install(packages, index, python, gfx, channel=channel, pre=pre, allow_cpu=allow_cpu)
    return tuple(installing.install(plan))


def configure() -> dict[str, str]:
    """Set the variables that this machine's GPUs need for the torch of this Python; call it before torch.

    Most machines need none. What is set already is left as it is. Returns what was set: name → value. Warns
    when torch is imported already, because the ROCm runtime may have read its variables. What there is to
    know besides goes to the logger ``rocm_wheels``. HostError when there is an AMD GPU and no torch.
    """
    import logging

    from rocm_wheels.user import settings

    configuration = settings.make_configuration(dict(os.environ))
    for note in configuration.notes:
        logging.getLogger("rocm_wheels").info(note)
    if configuration.variables and "torch" in sys.modules:
        import warnings

        names = ", ".join(configuration.variables)
        warnings.warn(
            f"torch is imported already: {names} may come too late; call rocm_wheels.configure() before",
            RuntimeWarning,
            stacklevel=2,
        )
    os.environ.update(configuration.variables)
    return configuration.variables


def doctor(*, python: Path | None = None) -> tuple[errors.Finding, ...]:
    """Return what is right and wrong with this machine for torch, each with a fix: ``rocm-wheels doctor``.

    ``python`` is another Python or virtual environment to look at.
    """
    from rocm_wheels.core import errors
    from rocm_wheels.gpus import detect
    from rocm_wheels.user import doctor_subject, installed_packages, machine
    from rocm_wheels.user.doctor import run_checks

    env = dict(os.environ)
    installed = installed_packages.read_installed_packages(python, env)
    try:
        hardware = detect.detect_hardware(env, site_packages=installed.environment.path)
    except ValueError as cause:
        raise errors.UsageError(str(cause)) from None
    return run_checks(
        doctor_subject.DoctorSubject(hardware, installed, machine.read_machine_facts(env), env, python=python)
    )


def test(
    groups: Sequence[str] = (),
    *,
    device: str = "auto",
    python: Path | None = None,
) -> selftest.SelfTestReport:
    """Test the installed torch in processes of its own: ``rocm-wheels test``.

    Nothing named is all of ``import``, ``devices``, ``compile``, ``math``, ``functions``. ``device`` is
    ``auto`` (every GPU, else the CPU), ``all``, ``cpu``, ``gpu`` (that there is none is a failure), or
    torch's name of one. A check that fails is in the report (``report.failures``) and raises nothing;
    HostError when there is no torch.
    """
    from rocm_wheels.user import selftest

    return selftest.run_self_test(
        dict(os.environ),
        selftest.parse_groups(groups),
        device=device,
        python=python,
    )


def _plan_install(
    packages: Sequence[str],
    index: str | None,
    python: Path | None,
    gfx: Sequence[str],
    *,
    channel: str,
    pre: bool,
    allow_cpu: bool,
    dry_run: bool = False,
) -> planning.InstallPlan:
    """Plan for the environment that a program means: the one it names, the active one, else its own."""
    from rocm_wheels.user import package_set
    from rocm_wheels.user import plan as planning

    active = os.environ.get("VIRTUAL_ENV") or os.environ.get("CONDA_PREFIX")
    request = package_set.InstallRequest(
        packages=tuple(packages),
        index=index,
        python=python or Path(active or sys.executable),
        gfx=tuple(gfx),
        channel=channel,
        pre=pre,
        allow_cpu=allow_cpu,
        dry_run=dry_run,
    )
    return planning.plan_install(request, dict(os.environ))
