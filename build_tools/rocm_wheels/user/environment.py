"""The environment that is installed into: which Python, what is in it, made where it is not there yet.

A virtual environment that is not there is planned for before it is made: an installation that cannot be
planned leaves no folder behind. What a killed run has begun is recognised by its folder inside, and is made.
Which wheels were installed is noted in that folder: two builds may have the same version.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from packaging.utils import canonicalize_name

from rocm_wheels.core import errors, files, log, process, shell
from rocm_wheels.core.installation import find_uv
from rocm_wheels.models.closed_projects import is_closed_project
from rocm_wheels.user import installed_packages
from rocm_wheels.user.installed_packages import (
    InstalledDistribution,
    PythonEnvironment,
    parse_optional_version,
)
from rocm_wheels.user.lock import LockedPackage
from rocm_wheels.wheels import dist_info

_FOLDER_NAME = ".rocm-wheels"  # in the environment: held while somebody installs into it, and what was
_UNFINISHED_MARK, _NOTES_FILE = "unfinished", "installed.json"
_ANY_PROJECT = re.compile(r".+")
_OWN_VENV_TIP = "install into an environment of your own: --venv my-torch makes one"


@dataclass(frozen=True)
class InstallTarget:
    """An environment. ``base_python`` is the Python that it is to be made of; None where it is there."""

    environment: PythonEnvironment
    base_python: Path | None = None

    @property
    def python(self) -> Path:
        """The interpreter."""
        return self.environment.python

    @property
    def runnable_python(self) -> Path:
        """An interpreter of its kind that can be started now."""
        return self.base_python or self.python

    @property
    def own_folder(self) -> Path:
        """The folder to hold while something is installed, which also has our notes."""
        if self.base_python is not None or self.environment.is_virtual:
            return self.environment.prefix / _FOLDER_NAME
        return self.environment.site_packages / _FOLDER_NAME

    def __str__(self) -> str:
        new = f", new, of {self.base_python}" if self.base_python else ""
        return f"{self.environment.prefix} (Python {self.environment.version}{new})"


def inspect_target(python: Path | None, venv: Path | None, env: Mapping[str, str]) -> InstallTarget:
    """Return the environment ``venv``, which is made of ``python`` where it is not there, or that of
    ``python``.

    Without both it is the active one, never that of this program. UsageError for no Python that runs, that no
    torch is built for, or that is not the one at ``venv``; HostError for one that belongs to the system (PEP
    668), is this program's own and was not named, or cannot be written to.
    """
    env = {name: value for name, value in env.items() if name not in ("PYTHONHOME", "PYTHONPATH")}
    if venv is not None:
        return _inspect_venv(venv.expanduser().absolute(), python, env)
    active = installed_packages.find_active_python(python, env)
    if python is None and installed_packages.is_own_environment(active):
        prefix, here = Path(sys.prefix).resolve(), Path(".venv")
        is_other = (here / "pyvenv.cfg").is_file() and here.resolve() != prefix
        raise errors.HostError(
            f"no environment is named, and {prefix} is that of rocm-wheels itself",
            tip=f"{'--python .venv is the one here' if is_other else '--venv DIR makes one'}; "
            f"--python {shell.format_command([str(prefix)])} takes that one all the same",
        )
    environment = _read_cpython(active, env)
    if environment.is_managed:
        raise errors.HostError(
            f"{environment.python} belongs to the system, which forbids installing into it (PEP 668)",
            tip=_OWN_VENV_TIP,
        )
    for folder in {environment.site_packages, environment.platform_packages or environment.site_packages}:
        _require_writable(folder)
    return InstallTarget(environment)


def _inspect_venv(folder: Path, python: Path | None, env: Mapping[str, str]) -> InstallTarget:
    if installed_packages.is_own_environment(folder):
        own = shell.format_command([str(folder)])
        raise errors.HostError(
            f"--venv {folder} is that of rocm-wheels itself",
            tip=f"name another folder; --python {own} takes that one all the same",
        )
    is_there = (folder / "pyvenv.cfg").is_file() and not (folder / _FOLDER_NAME / _UNFINISHED_MARK).exists()
    if is_there:
        try:
            environment = installed_packages.read_environment(folder, env)
        except errors.UsageError as cause:
            cause.tip = f"delete {folder}: the same command creates it again"
            raise errors.UsageError(f"--venv {folder} does not run") from cause
        base = _read_cpython(python, env) if python is not None else environment
        if _identify_base(environment) != _identify_base(base):
            raise errors.UsageError(
                f"--venv {folder} is an environment of Python {environment.version} in "
                f"{environment.base_prefix}, and not of {base.version} in {base.base_prefix}",
                tip=f"delete {folder}, or name another folder",
            )
        _require_writable(environment.site_packages)
        return InstallTarget(environment)
    # folders alone, and those of a run that was killed, are none of the user's
    others = [Path(name) for name, _, names in os.walk(folder) if names and Path(name).name != _FOLDER_NAME]
    begun = (folder / _FOLDER_NAME).is_dir()
    if (folder.exists() and not folder.is_dir()) or (others and not begun):
        raise errors.UsageError(
            f"--venv {folder} is there, and is no virtual environment",
            tip="name a folder that is not there yet, or one that this made",
        )
    _require_writable(folder)
    base = _read_cpython(installed_packages.find_active_python(python, env), env)
    program = Path("Scripts", "python.exe") if sys.platform == "win32" else Path("bin", "python")
    new = replace(base, python=folder / program, prefix=folder, path=(), user_site=None, is_managed=False)
    return InstallTarget(new, base_python=base.python)


def _read_cpython(python: Path | None, env: Mapping[str, str]) -> PythonEnvironment:
    environment = installed_packages.read_environment(python, env)
    if environment.implementation != "cpython":
        raise errors.UsageError(
            f"{environment.python} is {environment.implementation}; wheels of torch are built for CPython",
            tip="name a CPython",
        )
    return environment


def _identify_base(environment: PythonEnvironment) -> tuple[str, bool, Path]:
    return environment.version, environment.free_threaded, environment.base_prefix.resolve()


def _require_writable(folder: Path) -> None:
    existing = next(place for place in (folder, *folder.parents) if place.exists())
    if not existing.is_dir():
        raise errors.HostError(f"{folder} cannot be made: {existing} is a file")
    if not os.access(existing, os.W_OK):
        raise errors.HostError(f"{folder} cannot be written by this user", tip=_OWN_VENV_TIP)


def name_uv() -> str:
    """Return what uv is called in lines to paste: where it is not on PATH, the path of the one beside us."""
    if shutil.which("uv") is None:
        with suppress(errors.MissingExtraError):
            return str(find_uv())
    return "uv"


def make_venv_command(target: InstallTarget, uv: str) -> list[str]:
    """Return the command that makes an environment without anything in it."""
    words = [uv, "venv", "--no-config", "--no-project", "--python", str(target.base_python)]
    return [*words, str(target.environment.prefix)]


def make_venv(target: InstallTarget, env: Mapping[str, str]) -> InstallTarget:
    """Make an environment that is not there yet; who calls holds its folder. Return it as it is then."""
    prefix, begun = target.environment.prefix, target.own_folder / _UNFINISHED_MARK
    if target.base_python is None:
        return target
    if begun.exists() or not (prefix / "pyvenv.cfg").exists():  # else another run has made it meanwhile
        log.log_note(f"making {target}")
        begun.touch()
        words = make_venv_command(target, str(find_uv()))
        words[2:2] = ["--quiet", "--allow-existing"]
        process.run_command(words, env=env, check=errors.HostError, description=f"making {prefix}")
        begun.unlink()
    # where a virtual environment has its packages, of each Python; to ask it would be another start
    places = prefix.glob("Lib/site-packages" if sys.platform == "win32" else "lib/python*/site-packages")
    site = next(places, None)
    if site is None:
        raise errors.HostError(f"uv has made {prefix} without a folder for packages")
    return InstallTarget(
        replace(target.environment, path=(site,), site_packages=site, platform_packages=None)
    )


def list_installed(target: InstallTarget) -> dict[str, InstalledDistribution]:
    """Return what is installed in an environment, by normalized name: of two the one that is imported."""
    distributions: dict[str, InstalledDistribution] = {}
    for distribution in installed_packages.read_distributions(target.environment.path, _ANY_PROJECT)[0]:
        distributions.setdefault(distribution.name, distribution)
    return distributions


def is_intact(installed: InstalledDistribution) -> bool:
    """Tell whether every file of an installed package is there, with the size that its RECORD has."""
    try:
        entries = dist_info.parse_wheel_record((installed.info / "RECORD").read_bytes(), name="RECORD")
        return all(
            entry.size in (None, (installed.site_folder / entry.path).stat().st_size) for entry in entries
        )
    except (OSError, errors.DataError):
        return False


def is_of_version(installed: InstalledDistribution, package: LockedPackage) -> bool:
    """Tell whether a distribution is of the version of a package, however its METADATA spells that."""
    return parse_optional_version(installed.version) == package.version


def is_of_wheel(
    installed: InstalledDistribution | None, package: LockedPackage, notes: Mapping[str, Sequence[str]]
) -> bool:
    """Tell whether what is installed is of this very wheel; of a plain dependency the version tells.

    Of what others installed the local part of the version has to tell: two builds may both be called 2.9.1.
    """
    if installed is None or installed.editable or not is_of_version(installed, package):
        return False
    if not is_closed_project(package.project) or package.is_sdist:
        return True  # what a source distribution was built into is not known beforehand
    if not is_intact(installed):
        return False
    if note := notes.get(package.project):
        return note[0] == package.file and package.sha256 in (None, note[1])
    return package.version.local is not None and package.properties is None


def read_notes(target: InstallTarget, present: Mapping[str, InstalledDistribution]) -> dict[str, list[str]]:
    """Return of which wheels packages were installed by us: name and sha256 of the wheel, digest of RECORD.

    Of one that somebody else has installed over there is none.
    """
    try:
        notes = json.loads((target.own_folder / _NOTES_FILE).read_text(encoding="utf-8"))
        known = {str(name): [str(text) for text in note] for name, note in notes.items()}
    except (OSError, ValueError, AttributeError, TypeError):
        return {}
    return {
        name: note
        for name, note in known.items()
        if name in present and note[2:] == [_digest_record(present[name])]
    }


def write_notes(target: InstallTarget, wheels: Mapping[str, tuple[str, str]]) -> None:
    """Note of which wheels (name and sha256, by project) packages were installed."""
    present = list_installed(target)
    notes = read_notes(target, present)
    for name, wheel in wheels.items():
        if name in present:
            notes[name] = [*wheel, _digest_record(present[name])]
    files.write_json_file(target.own_folder / _NOTES_FILE, notes)


def _digest_record(installed: InstalledDistribution) -> str:
    record = installed.info / "RECORD"
    return files.hash_file(record) if record.is_file() else ""


def remove_partial_records(target: InstallTarget, projects: set[str]) -> None:
    """Remove what a killed installation left half written of packages that are installed next.

    uv takes such a package for installed, pip cannot uninstall it. The files themselves are written anew.
    """
    environment = target.environment
    for folder in {environment.site_packages, environment.platform_packages or environment.site_packages}:
        for info in sorted(folder.glob("*.dist-info")):
            if canonicalize_name(info.name.split("-", 1)[0]) not in projects:
                continue
            installer = info / "INSTALLER"
            by_us = not installer.is_file() or installer.read_text("utf-8").strip() in ("pip", "uv", "")
            if not (info / "METADATA").is_file() or (by_us and not (info / "RECORD").is_file()):
                log.log_note(f"removing {info}, which is left of an installation that was broken off")
                shutil.rmtree(info)
