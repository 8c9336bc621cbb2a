"""Hold what the doctor looks at: a machine, a Python on it, variables; and make lines that put it right."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from rocm_wheels.core import shell
from rocm_wheels.core.errors import Finding
from rocm_wheels.gpus.gpu import Gpu, Hardware, format_stated_target
from rocm_wheels.models import package_indexes
from rocm_wheels.models.project import list_default_packages, list_projects
from rocm_wheels.user import environment, gpu_support, install_options, installed_packages
from rocm_wheels.user.machine import MachineFacts

_OTHERS_WITH_CODE = ("torchao", "flash-attn", "xformers", "vllm")  # by no recipe of ours


@dataclass(frozen=True)
class DoctorSubject:
    """A machine, a Python on it, and the environment of the process.

    ``stated`` says that the GPUs are those of a machine to be: nothing of this one's devices counts.
    ``python`` is what the user named to look at, None for the active or running one; ``is_own`` says that
    this is the environment of rocm-wheels itself, which nothing is installed into by itself.
    """

    hardware: Hardware
    installed: installed_packages.InstalledSet
    machine: MachineFacts
    env: Mapping[str, str] = field(default_factory=dict)
    stated: bool = False
    python: Path | None = None
    is_own: bool = False

    @property
    def name(self) -> str:
        """Name the machine that findings are about."""
        return "that machine" if self.stated else "this machine"

    @property
    def has_amd(self) -> bool:
        """Tell whether anything says that there is an AMD GPU here."""
        on_bus = bool(self.machine.amd_cards) and not self.stated
        return on_bus or any(gpu.vendor == "amd" for gpu in self.hardware.gpus)

    @property
    def cards(self) -> list[Gpu]:
        """The GPUs that programs use together: an integrated one beside a card is none of them."""
        return [gpu for gpu in self.hardware.amd if not gpu.integrated]

    @cached_property
    def codes(self) -> dict[str, tuple[gpu_support.InstalledCode, ...]]:
        """The libraries with device code, by project: of torch, and of what is here beside it."""
        built = [project.normalized_name for project in list_projects() if project.has_device_code]
        packages = map(self.installed.get, dict.fromkeys(["torch", *built, *_OTHERS_WITH_CODE]))
        return {entry.name: gpu_support.read_installed_code(entry) for entry in packages if entry}

    @property
    def uses_xnack(self) -> bool:
        """Tell whether a process started here runs with XNACK."""
        return self.env.get("HSA_XNACK") == "1"

    def format_pip(self, *words: str) -> str:
        """Return a line that lets pip do something in the environment that was looked at; uv, without pip."""
        python = self.installed.environment.python
        if any((folder / "pip").is_dir() for folder in self.installed.environment.path):
            return shell.format_command([*([str(python), "-m"] if self.python else []), "pip", *words])
        command, *arguments = (word for word in words if word != "-y")  # uv does not ask
        return shell.format_command([environment.name_uv(), "pip", command, "--python", python, *arguments])

    def format_rocm_pip(self, requirement: str, version: str) -> str:
        """Return the line that lets pip install one of ROCm's packages from AMD's index.

        Where none is known, that which installs torch with what it requires: PyPI has other packages under
        some of these names, or none, and another torch.
        """
        channel = "nightly" if re.search(r"[0-9]a[0-9]|dev", version) else "stable"
        indexes = package_indexes.find_indexes(
            next(iter(self.hardware.targets), None),
            platform=self._platform,
            channel="bkc" if "bkc" in version else "prerelease" if "rc" in version else channel,
        )
        for index in indexes:
            if index.layout == "multi-arch":
                return self.format_pip("install", requirement, "--index-url", index.url)
        return self.format_install("torch")

    def format_install(self, *projects: str) -> str:
        """Return the line that installs projects for this machine's GPUs."""
        gfx = ["--gfx", self._stated_gfx] if self._stated_gfx else []
        return shell.format_command(["rocm-wheels", "install", *projects, *self._place, *gfx])

    def format_replacement(self, removed: Iterable[str], install: str) -> str:
        """Return the line that takes projects away, and then does what ``install`` says."""
        return f"{self.format_pip('uninstall', '-y', *removed)} && {install}"

    def format_reinstallation(self, project: str) -> str:
        """Return the line that takes a project away and installs it anew: not from PyPI, as pip would."""
        return self.format_replacement([project], self.format_install(*dict.fromkeys(["torch", project])))

    def format_torch(self, *projects: str, gfx: str = "") -> str:
        """Return the line that installs torch (and its companions, or ``projects``) for this machine's GPUs.

        From the channel, and with the Python, that have one; else what people do. ``gfx`` names the GPU that
        counts, where they differ.
        """
        names = projects or list_default_packages()
        python = self.installed.environment.minor
        targets = [gfx] if gfx else list(self._ways)
        options = (install_options.pick_option(self._ways[target], python) for target in targets)
        option = next(filter(None, options), None)
        if targets and option is None:
            return install_options.explain_no_torch(targets[0])[1]
        if option is None or (option.is_default and option.fits(python)):
            return self.format_install(*names)
        return option.format_install(python, names, gfx=self._stated_gfx, place=self._place)

    def format_other_torch(self, gfx: str = "") -> str:
        """Return the line that takes torch and its companions away and installs those for this machine.

        Where no index has a torch for its GPUs, what people do with such a card: ``install`` gives none.
        """
        removed = [package for package in list_default_packages() if self.installed.get(package)]
        removed += [package.name for package in self.installed.tritons]
        install = self.format_torch(gfx=gfx)
        is_lacking = self.find_lack(gfx) if gfx else self.lack
        return self.format_replacement(removed, install) if removed and not is_lacking else install

    def find_lack(self, gfx: str) -> str:
        """Say that no index that is known has a torch for a GPU; "" where one has."""
        return "" if self._ways[gfx] else install_options.explain_no_torch(gfx)[0]

    @property
    def lack(self) -> str:
        """Say that no index that is known has a torch for any AMD GPU of this machine; "" where one has."""
        lacks = [self.find_lack(gfx) for gfx in self._ways]
        return "; ".join(lacks) if all(lacks) else ""

    @cached_property
    def _ways(self) -> dict[str, list[install_options.InstallOption]]:
        """The ways to a torch for each AMD GPU whose target is known."""
        find = install_options.list_install_options
        return {gfx: find(gfx, platform=self._platform) for gfx in self.hardware.targets}

    @property
    def _platform(self) -> str:
        return "windows" if self.machine.platform == "win32" else "linux"

    @property
    def _stated_gfx(self) -> str:
        return ",".join(map(format_stated_target, self.hardware.targets)) if self.stated else ""

    @property
    def _place(self) -> list[str]:
        """Return the words that name the environment to install into."""
        if self.python or (self.is_own and self.installed.torch):
            return ["--python", str(self.installed.environment.python)]
        return ["--venv", install_options.NEW_VENV] if self.is_own else []


def ok(message: str, source: str = "") -> Finding:
    """Return what is as it should be."""
    return Finding("ok", message, source=source)


def info(message: str, tip: str = "", source: str = "") -> Finding:
    """Return what is good to know; every finding but one that is ok has a tip."""
    return Finding("info", message, tip, source=source)


def warning(message: str, tip: str, source: str = "") -> Finding:
    """Return what may do harm."""
    return Finding("warning", message, tip, source=source)


def error(message: str, tip: str, source: str = "") -> Finding:
    """Return what keeps torch from working on the GPU."""
    return Finding("error", message, tip, source=source)


def join_some(names: list[str], most: int = 6) -> str:
    """Return names as a list for people, cut where it grows long."""
    listed = names[:most]
    return ", ".join(listed) + (f" and {len(names) - most} more" if len(names) > most else "")
