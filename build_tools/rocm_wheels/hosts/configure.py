"""Configure a machine: inspect its cards and torch, or stated cards, and write the variables for a shell."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rocm_wheels.core import HostError, UsageError
from rocm_wheels.gpus import Hardware, Runner, detect_hardware, read_topology, run_program
from rocm_wheels.hosts.installed_kernels import list_kernel_targets
from rocm_wheels.hosts.installed_packages import read_installed_packages
from rocm_wheels.hosts.settings import VariableSetting, make_settings


@dataclass(frozen=True)
class ConfiguredMachine:
    """Cards, and the targets that torch has kernels for (None: torch is not there). ``torch`` in words.

    ``nodes`` are the runtime's numbers of the cards, by their index; ``rocm`` is the version that torch was
    built with, "" when it does not say.
    """

    hardware: Hardware
    targets: tuple[str, ...] | None
    torch: str
    nodes: tuple[int, ...] = ()
    rocm: str = ""


@dataclass(frozen=True)
class HostConfiguration:
    """The variables that are needed, notes for people, and what they follow from."""

    settings: tuple[VariableSetting, ...]
    notes: tuple[str, ...]
    machine: ConfiguredMachine

    @property
    def variables(self) -> dict[str, str]:
        """The settings as an environment."""
        return {setting.name: setting.value for setting in self.settings}


def make_configuration(
    env: Mapping[str, str],
    *,
    python: Path | None = None,
    gfx: Sequence[str] = (),
    risky: bool = False,
    platform: str = sys.platform,
    root: Path = Path("/"),
    run: Runner = run_program,
) -> HostConfiguration:
    """Return what this machine needs for the torch of ``python`` (None: the running one); nothing is changed.

    ``gfx`` states cards, in the runtime's order, in place of a look; ``root`` and ``run`` are as in
    ``detect_hardware``. UsageError for a ``python`` that does not run and for variables that cannot be read;
    DataError for a damaged torch; HostError when there are cards and no torch.
    """
    machine = inspect_machine(env, python=python, gfx=gfx, platform=platform, root=root, run=run)
    cards = any(gpu.vendor == "amd" and gpu.index is not None for gpu in machine.hardware.gpus)
    if machine.targets is None and cards and platform != "darwin":
        raise HostError(
            f"{machine.torch}: cannot determine what its kernels need",
            tip="rocm-wheels install; or name the Python that has it: --python .venv/bin/python",
        )
    settings, notes = make_settings(
        machine.hardware, machine.targets, env, platform, nodes=machine.nodes, rocm=machine.rocm, risky=risky
    )
    return HostConfiguration(settings, notes, machine)


def inspect_machine(
    env: Mapping[str, str],
    *,
    python: Path | None = None,
    gfx: Sequence[str] = (),
    platform: str = sys.platform,
    root: Path = Path("/"),
    run: Runner = run_program,
) -> ConfiguredMachine:
    """Look at the cards (unless ``gfx`` states them) and at the installed torch."""
    installed = read_installed_packages(python, env)
    torch = installed.torch
    where = installed.environment.python
    if torch is None or torch.folder is None:
        targets, description = None, f"torch is not installed in {where}"
    else:
        targets = list_kernel_targets(installed, "torch")
        description = f"torch {torch.version} ({torch.kind}) in {where}"
    if gfx:
        from rocm_wheels.hosts.host import StatedMachine, make_host

        return ConfiguredMachine(
            make_host(env, StatedMachine(gfx=tuple(gfx), rocm="none")).hardware, targets, description
        )
    try:
        hardware = detect_hardware(
            env, root=root, platform=platform, run=run, site_packages=installed.environment.path
        )
    except ValueError as cause:
        raise UsageError(str(cause)) from None
    if not any(gpu.source == "kfd" for gpu in hardware.gpus):  # stated by a variable, or seen otherwise
        return ConfiguredMachine(hardware, targets, description)
    topology = read_topology(root)
    numbered = sorted(
        (gpu.index, node)
        for gpu, node in zip(topology.gpus, topology.nodes, strict=True)
        if gpu.index is not None
    )
    built = torch.build.version if torch is not None and torch.kind == "rocm" else ""
    return ConfiguredMachine(hardware, targets, description, tuple(node for _, node in numbered), built)


SHELL_NAMES = ("sh", "fish", "powershell", "cmd", "github")


def detect_shell(env: Mapping[str, str], platform: str) -> str:
    """Return the shell that most likely reads what we print: fish by ``SHELL``, PowerShell on Windows."""
    if env.get("SHELL", "").endswith("fish"):
        return "fish"
    return "powershell" if platform == "win32" and "SHELL" not in env else "sh"


def format_settings(settings: Iterable[VariableSetting], shell: str) -> list[str]:
    """Return one line a variable. ``github`` is what a step appends to ``$GITHUB_ENV``."""
    if shell not in _SHELL_FORMATS:
        raise UsageError(f"{shell} is no shell that is known here", tip=f"shells: {', '.join(SHELL_NAMES)}")
    return [_SHELL_FORMATS[shell](setting.name, setting.value) for setting in settings]


def _format_powershell(name: str, value: str) -> str:
    quoted = value.replace("'", "''")
    return f"$env:{name} = '{quoted}'"


_SHELL_FORMATS: dict[str, Callable[[str, str], str]] = {
    "sh": lambda name, value: f"export {name}={shlex.quote(value)}",
    "fish": lambda name, value: f"set -gx {name} {shlex.quote(value)}",
    "powershell": _format_powershell,
    "cmd": lambda name, value: f'set "{name}={value}"',
    "github": lambda name, value: f"{name}={value}",
}
