"""What the checks of a machine look at, and what they say: plain values."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from rocm_wheels.gpus.gpu import Gpu, Hardware
from rocm_wheels.hosts.doctor.machine import MachineFacts
from rocm_wheels.hosts.installed.look import InstalledSet
from rocm_wheels.shell import format_command

Severity = Literal["ok", "info", "warning", "error"]


@dataclass(frozen=True)
class DoctorFinding:
    """What one check found.

    ``fix`` is a command, or a line to paste, for everything that is not ``ok``; ``source`` says who says
    so, "" where it was read here. ``check`` and ``group`` are filled in by whoever runs the check.
    """

    severity: Severity
    text: str
    fix: str = ""
    source: str = ""
    check: str = ""
    group: str = ""


@dataclass(frozen=True)
class DoctorSubject:
    """A machine, a Python on it, and the environment of the process.

    ``stated`` says that the GPUs are those of a machine to be: nothing of this one's devices counts.
    ``python`` is what the user named to look at, None for the active or running one.
    """

    hardware: Hardware
    installed: InstalledSet
    machine: MachineFacts
    env: Mapping[str, str] = field(default_factory=dict)
    stated: bool = False
    python: Path | None = None

    @property
    def amd_gpus(self) -> tuple[Gpu, ...]:
        """The AMD GPUs that a program may use, those with unknown targets too."""
        return tuple(gpu for gpu in self.hardware.gpus if gpu.vendor == "amd" and gpu.visible)

    @property
    def has_amd(self) -> bool:
        """Tell whether anything says that there is an AMD GPU here."""
        on_bus = bool(self.machine.amd_devices) and not self.stated
        return on_bus or any(gpu.vendor == "amd" for gpu in self.hardware.gpus)

    @property
    def uses_xnack(self) -> bool:
        """Tell whether a process started here runs with XNACK."""
        return self.env.get("HSA_XNACK") == "1"

    def make_pip_line(self, *words: str) -> str:
        """Return a line that lets pip do something in the environment that was looked at; uv, without pip."""
        python = self.installed.environment.python
        if not any((folder / "pip").is_dir() for folder in self.installed.environment.path):
            arguments = [word for word in words if word != "-y"]  # uv does not ask
            return format_command(["uv", "pip", arguments[0], "--python", python, *arguments[1:]])
        return format_command([*(["pip"] if self.python is None else [python, "-m", "pip"]), *words])

    def make_rocm_pip_line(self, requirement: str, version: str) -> str:
        """Return the line that lets pip install one of ROCm's packages from AMD's index.

        Where none is known, that which installs torch with what it requires: PyPI has other packages under
        some of these names, or none, and another torch.
        """
        from rocm_wheels.model.compat.releases import find_indexes

        channel = "nightly" if re.search(r"[0-9]a[0-9]|dev", version) else "stable"
        platform = "windows" if self.machine.platform == "win32" else "linux"
        gfx = next((gpu.gfx for gpu in self.amd_gpus if gpu.gfx), None)
        indexes = find_indexes(gfx, platform=platform, channel="prerelease" if "rc" in version else channel)
        index = next((candidate.url for candidate in indexes if candidate.layout == "multi-arch"), None)
        return (
            self.make_pip_line("install", requirement, "--index-url", index)
            if index
            else self.make_install_line("torch")
        )

    def make_reinstall_line(self, project: str) -> str:
        """Return the line that takes a project away and installs it anew: not from PyPI, as pip would."""
        return (
            self.make_pip_line("uninstall", "-y", project)
            + " && "
            + self.make_install_line(*dict.fromkeys(["torch", project]))
        )

    def make_replace_torch_line(self) -> str:
        """Return the line that takes torch and its companions away and installs those for this machine."""
        names = ["torch", "torchvision", "torchaudio"]
        removed = [package for package in names if self.installed.get(package)]
        removed += [package.name for package in self.installed.tritons]
        return self.make_pip_line("uninstall", "-y", *removed) + " && " + self.make_install_line(*names)

    @property
    def machine_name(self) -> str:
        """Name the machine that findings are about."""
        return "that machine" if self.stated else "this machine"

    def make_install_line(self, *projects: str) -> str:
        """Return the line that installs projects for this machine's GPUs."""
        python = ["--target-python", str(self.installed.environment.python)] if self.python else []
        gfx_list = ",".join(dict.fromkeys(gpu.gfx for gpu in self.amd_gpus if gpu.gfx)) if self.stated else ""
        return format_command(
            ["rocm-wheels", "install", *projects, *python, *(["--gfx", gfx_list] if gfx_list else [])]
        )


def join_some(names: list[str], most: int = 6) -> str:
    """Return names as a list for people, cut where it grows long."""
    listed = names[:most]
    return ", ".join(listed) + (f" and {len(names) - most} more" if len(names) > most else "")
