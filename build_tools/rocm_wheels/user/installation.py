"""The plan of an installation: the environment that is installed into, what will be done, and the commands.

Everything is known before anything is done: pure data, printed by ``--dry-run``.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from packaging.version import Version

from rocm_wheels.core import errors, shell
from rocm_wheels.gpus.gpu import Gpu
from rocm_wheels.user import (
    candidates,
    gpu_support,
    installed_packages,
    kernel_proof,
    package_offers,
    wheel_cache,
)

LOCK_NAME = ".rocm-wheels"  # folder among the packages: held while somebody installs into an environment
_ANY_PROJECT = re.compile(r".+")


@dataclass(frozen=True)
class InstallTarget:
    """An environment: ``markers`` are those of PEP 508, ``package_folders`` the folders that installers
    write to.

    ``has_pip``: it has a pip of its own. ``base_python``: the Python that it is to be made of; None where it
    is there. ``stated``: it is elsewhere, and only its version is known.
    """

    environment: installed_packages.PythonEnvironment
    markers: Mapping[str, str]
    package_folders: tuple[Path, ...]
    has_pip: bool
    base_python: Path | None = None
    stated: bool = False

    @property
    def python(self) -> Path:
        """The interpreter."""
        return self.environment.python

    @property
    def runnable_python(self) -> Path:
        """An interpreter of it that can be started now."""
        return self.base_python or self.python

    @property
    def version(self) -> Version:
        """The version of the interpreter."""
        return Version(self.markers["python_full_version"].rstrip("+"))

    def __str__(self) -> str:
        new = f", new, of {self.base_python}" if self.base_python else ""
        return f"{self.environment.prefix} (Python {self.environment.version}{new})"


def inspect_target(python: Path | None, env: Mapping[str, str], *, changes: bool = True) -> InstallTarget:
    """Ask an environment what it is.

    UsageError for no Python that runs or that no torch is built for; HostError, where it ``changes``, for one
    that belongs to the system (PEP 668), is this program's own and was not named, or cannot be written to.
    """
    chosen_python = installed_packages.find_active_python(python, env)
    if changes and python is None:
        _refuse_own_environment(chosen_python)
    clean = {name: value for name, value in env.items() if name not in ("PYTHONHOME", "PYTHONPATH")}
    environment = installed_packages.read_environment(chosen_python, clean)
    if environment.implementation != "cpython":
        raise errors.UsageError(
            f"{environment.python} is {environment.implementation}; wheels of torch are built for CPython",
            tip="name a CPython",
        )
    folders = tuple(
        dict.fromkeys((environment.site_packages, environment.platform_packages or environment.site_packages))
    )
    if changes and environment.is_managed:
        raise errors.HostError(
            f"{environment.python} belongs to the system, which forbids installing into it (PEP 668)",
            tip="install into an environment of your own: --venv .venv makes one",
        )
    for folder in folders if changes else ():
        require_writable_folder(folder)
    return InstallTarget(environment, environment.markers, folders, environment.has_pip)


def state_target(python: str, env: Mapping[str, str]) -> InstallTarget:
    """Return an environment without packages of a Python (``3.12``, ``3.14t``) on a machine like this one.

    UsageError for what is no version of Python.
    """
    match = re.fullmatch(r"(3\.[0-9]{1,2})(t?)", python)
    if not match:
        raise errors.UsageError(
            f"--python {python}: it is a version like 3.12", tip="for example: --python 3.12,3.13"
        )
    here = inspect_target(Path(sys.executable), env, changes=False)
    full = f"{match[1]}.0"
    environment = replace(
        here.environment, version=full, free_threaded=bool(match[2]), path=(), user_site=None
    )
    markers = {"python_version": match[1], "python_full_version": full, "implementation_version": full}
    return InstallTarget(environment, {**here.markers, **markers}, (), False, stated=True)


def _refuse_own_environment(active: Path | None) -> None:
    """Raise HostError where nothing but this program's own environment would be installed into."""
    if not installed_packages.is_own_environment(active):
        return
    prefix = Path(sys.prefix).resolve()
    venv = Path(".venv")
    use_venv = (
        "--python .venv is the one here"
        if (venv / "pyvenv.cfg").is_file() and venv.resolve() != prefix
        else "--venv DIR makes one"
    )
    raise errors.HostError(
        f"no environment is named, and {prefix} is that of rocm-wheels itself",
        tip=f"{use_venv}; --python {shell.format_command([str(prefix)])} takes that one all the same",
    )


def list_installed(target: InstallTarget) -> dict[str, installed_packages.InstalledDistribution]:
    """Return what is installed in an environment, by normalized name: of two the one that is imported."""
    distributions: dict[str, installed_packages.InstalledDistribution] = {}
    for distribution in installed_packages.read_distributions(target.environment.path, _ANY_PROJECT)[0]:
        distributions.setdefault(distribution.name, distribution)
    return distributions


def require_writable_folder(folder: Path) -> None:
    """Raise HostError when this user cannot write to a folder, or make it."""
    existing = folder
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    if not os.access(existing, os.W_OK):
        raise errors.HostError(
            f"{folder} cannot be written by this user",
            tip="install into an environment of your own: --venv .venv makes one",
        )


@dataclass(frozen=True)
class InstallItem:
    """A project of the set: its file, and what is done.

    ``keep``: what is installed is of that very file (or, of dependencies, fits). ``current`` is what is
    there now, None for nothing; ``built_for`` what that was built for (``cuda``), "" where nothing says.
    ``is_local``: the file is on this machine. ``statement`` of how it was made: ``present``, ``signed by
    KEY``, or "" where there is none, or nobody looked.
    """

    offer: package_offers.PackageOffer
    keep: bool
    current: installed_packages.InstalledDistribution | None
    built_for: str
    is_local: bool
    statement: str = ""

    @property
    def action(self) -> str:
        """Say what happens, for people."""
        if self.keep:
            return "already installed"
        how = "local file" if self.is_local else "to download"
        if self.current is None:
            return how
        build_text = f" ({self.built_for})" if self.built_for else ""
        is_same_version = self.current.version == str(self.offer.version)
        return (
            f"{how}, replaces "
            f"{'another build of ' if is_same_version else ''}{self.current.version}{build_text}"
        )


@dataclass(frozen=True)
class InstallPlan:
    """An installation: ``items`` in their order, ``removed`` what would be in the way of them.

    ``installer`` is ``uv`` or ``pip``; ``choice`` that of torch, None where torch is not part of it;
    ``index`` has the chosen builds, ``dependencies`` what that has not. ``warnings`` is what will be wrong
    afterwards with packages that are not part of it. ``demand`` is what torch must serve, unless
    ``allow_cpu``, None without an AMD GPU; ``proof`` what was read of torch, None without a GPU or a torch.
    ``override_line`` makes a GPU pass for the one that torch has code for.
    """

    target: InstallTarget
    installer: str
    choice: candidates.WheelChoice | None
    requirements: tuple[str, ...]
    index: str
    dependencies: str
    items: tuple[InstallItem, ...]
    removed: tuple[installed_packages.InstalledDistribution, ...]
    warnings: tuple[str, ...]
    demand: kernel_proof.GpuDemand | None = None
    proof: kernel_proof.KernelProof | None = None
    allow_cpu: bool = False
    override_line: str | None = None

    @property
    def proof_lines(self) -> list[str]:
        """What is known of torch's code, a sentence a GPU."""
        targets = self.demand.targets if self.demand else ()
        return [self.proof.describe(target) for target in targets] if self.proof else []

    @property
    def changed(self) -> tuple[InstallItem, ...]:
        """What is installed anew."""
        return tuple(item for item in self.items if not item.keep)

    @property
    def bytes_to_fetch(self) -> int:
        """The known bytes that come over the network."""
        return sum(item.offer.size or 0 for item in self.changed if not item.is_local)

    def find_folder(self, cache: wheel_cache.WheelCache) -> Path:
        """Return where the files lie under the names that installers read."""
        return cache.installation_folder(
            {item.offer.installer_name: item.offer.sha256 or item.offer.url for item in self.changed}
        )

    @property
    def visible_line(self) -> str | None:
        """The variable that hides the GPUs which torch has no kernels for, None when it serves all."""
        if self.choice and self.choice.served:
            return self.choice.visible_line
        if self.proof is None or self.demand is None:
            return None
        supports = {gpu: self.proof.check(gpu.gfx) if gpu.gfx else None for gpu in self.demand.gpus}
        return gpu_support.make_visible_line(
            tuple((gpu, support is not None and support.runs) for gpu, support in supports.items())
        )


def make_install_command(plan: InstallPlan, folder: Path, uv: str, *, cached: bool = True) -> list[str]:
    """Return the command that installs the files of a folder, and no others."""
    pins = [f"{item.offer.project}=={item.offer.version}" for item in plan.changed]
    python = str(plan.target.python)
    if plan.installer == "pip":
        words = [python, "-m", "pip", "install", "--no-input", "--force-reinstall"]
    else:
        words = [uv, "pip", "install", "--python", python, "--no-config"]
        words += [] if cached else ["--no-cache"]
        # of what is there alone: for what it reinstalls, uv looks at the whole file again
        replaced = [item.offer.project for item in plan.changed if item.current]
        words += [word for project in replaced for word in ("--reinstall-package", project)]
    return [*words, "--no-index", "--find-links", str(folder), "--no-deps", *pins]


def make_venv_command(plan: InstallPlan, uv: str) -> list[str]:
    """Return the command that makes the environment, without anything in it."""
    base_python = str(plan.target.base_python)
    return [
        uv,
        "venv",
        "--no-config",
        "--no-project",
        "--python",
        base_python,
        str(plan.target.environment.prefix),
    ]


def make_remove_command(plan: InstallPlan, uv: str) -> list[str]:
    """Return the command that removes what would be in the way."""
    names = [distribution.name for distribution in plan.removed]
    if plan.installer == "pip":
        return [str(plan.target.python), "-m", "pip", "uninstall", "--yes", *names]
    return [uv, "pip", "uninstall", "--python", str(plan.target.python), *names]


def list_commands(plan: InstallPlan, cache: wheel_cache.WheelCache) -> list[str]:
    """Return what to type to get the same by hand, line by line."""
    if not plan.changed:
        return []
    folder = plan.find_folder(cache)
    quoted_folder = shell.format_command([str(folder)])
    lines = [shell.format_command(make_venv_command(plan, "uv"))] if plan.target.base_python else []
    lines.append(f"mkdir -p {quoted_folder} && cd {quoted_folder}")
    for item in plan.changed:
        url, name = shell.hide_credentials(item.offer.url), item.offer.installer_name
        lines.append(shell.format_command(["curl", "--fail", "--location", "--output", name, url]))
        if item.offer.sha256:
            lines.append(f"echo '{item.offer.sha256}  {name}' | sha256sum --check --quiet")
        if item.offer.is_sdist:
            build = ["uv", "build", "--wheel", "--python", str(plan.target.python), "--out-dir", "."]
            lines.append(shell.format_command([*build, name]))
    if plan.removed:
        lines.append(format_installer_command(plan, make_remove_command(plan, "uv")))
    lines.append(format_installer_command(plan, make_install_command(plan, folder, "uv")))
    return lines


def format_installer_command(plan: InstallPlan, words: list[str]) -> str:
    """Return a command with what keeps the user's own indexes out of it."""
    front = f"PIP_CONFIG_FILE={os.devnull} " if plan.installer == "pip" else ""
    return front + shell.format_command(words)


def make_plan_json(plan: InstallPlan, cache: wheel_cache.WheelCache) -> dict[str, Any]:
    """Return a plan for programs."""
    return {
        "python": str(plan.target.python),
        "prefix": str(plan.target.environment.prefix),
        "made_of": str(plan.target.base_python) if plan.target.base_python else None,
        "installer": plan.installer,
        "index": shell.hide_credentials(plan.index),
        "dependency_index": shell.hide_credentials(plan.dependencies),
        "requirements": list(plan.requirements),
        "choice": _describe_choice(plan.choice) if plan.choice else None,
        "packages": [_describe_item(item) for item in plan.items],
        "removed": [str(distribution) for distribution in plan.removed],
        "kernels": _describe_proof(plan.proof, plan.demand) if plan.proof and plan.demand else None,
        "bytes_to_fetch": plan.bytes_to_fetch,
        "environment": plan.visible_line,
        "override": plan.override_line,
        "warnings": list(plan.warnings),
        "commands": list_commands(plan, cache),
    }


def _describe_proof(proof: kernel_proof.KernelProof, demand: kernel_proof.GpuDemand) -> dict[str, Any]:
    supports = {gfx: proof.check(gfx) for gfx in demand.targets}
    return {
        "built_for": proof.kind,
        "by": proof.file or proof.source or None,
        "targets": None if proof.targets is None else list(proof.targets),
        "unread": proof.unread or None,
        "gpus": [
            {
                "gfx": gfx,
                "served": support.runs if support else None,
                "how": support.kind if support else None,
            }
            for gfx, support in supports.items()
        ],
    }


def _describe_choice(choice: candidates.WheelChoice) -> dict[str, Any]:
    return {
        "requirement": choice.requirement,
        "project": choice.project,
        "layout": choice.layout,
        "picked": choice.picked.name if choice.picked else None,
        "requires": list(choice.requires),
        "notes": list(choice.notes),
        "served": [{"gpu": _describe_gpu(gpu), "served": yes} for gpu, yes in choice.served],
    }


def _describe_gpu(gpu: Gpu) -> str:
    return " ".join(filter(None, (gpu.gfx, gpu.name)))


def _describe_item(item: InstallItem) -> Mapping[str, Any]:
    offer = item.offer
    return {
        "name": offer.project,
        "version": str(offer.version),
        "file": offer.name,
        "label": offer.label,
        "url": shell.hide_credentials(offer.url),
        "sha256": offer.sha256,
        "size": offer.size,
        "from": offer.source,
        "does": "keep" if item.keep else "install",
        "at_hand": item.is_local,
        "before": item.current.version if item.current else None,
        "statement": item.statement or None,
    }
