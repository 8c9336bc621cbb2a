"""What an installation will do, in full, before anything is done: pure data, printed by ``--dry-run``."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rocm_wheels.gpus.gpu import Gpu
from rocm_wheels.hosts.choose.candidate import Choice
from rocm_wheels.hosts.install.cache import Cache
from rocm_wheels.hosts.install.offers import Offer
from rocm_wheels.hosts.install.target import Target
from rocm_wheels.hosts.installed.distributions import Distribution
from rocm_wheels.shell import hide_credentials, shell_line


@dataclass(frozen=True)
class Item:
    """A project of the set: its file, and what is done.

    ``keep``: what is installed is of that very file (or, of dependencies, fits). ``before`` is what is
    there now, None for nothing; ``built_for`` what that was built for (``cuda``), "" where nothing says.
    ``at_hand``: the file is on this machine.
    """

    offer: Offer
    keep: bool
    before: Distribution | None
    built_for: str
    at_hand: bool

    @property
    def does(self) -> str:
        """Say what happens, for people."""
        if self.keep:
            return "is installed"
        how = "at hand" if self.at_hand else "to fetch"
        if self.before is None:
            return how
        of = f" ({self.built_for})" if self.built_for else ""
        same = self.before.version == str(self.offer.version)
        return f"{how}, replaces {'another build of ' if same else ''}{self.before.version}{of}"


@dataclass(frozen=True)
class Plan:
    """An installation: ``items`` in their order, ``removed`` what would be in the way of them.

    ``installer`` is ``uv`` or ``pip``; ``choice`` that of torch, None where torch is not part of it;
    ``index`` has the chosen builds, ``dependencies`` what that has not. ``warnings`` is what will be wrong
    afterwards with packages that are not part of it.
    """

    target: Target
    installer: str
    choice: Choice | None
    requirements: tuple[str, ...]
    index: str
    dependencies: str
    items: tuple[Item, ...]
    removed: tuple[Distribution, ...]
    warnings: tuple[str, ...]

    @property
    def changed(self) -> tuple[Item, ...]:
        """What is installed anew."""
        return tuple(item for item in self.items if not item.keep)

    @property
    def to_fetch(self) -> int:
        """The known bytes that come over the network."""
        return sum(item.offer.size or 0 for item in self.changed if not item.at_hand)

    def folder(self, cache: Cache) -> Path:
        """Return where the files lie under the names that installers read."""
        return cache.set_folder({one.offer.shown: one.offer.sha256 or one.offer.url for one in self.changed})

    @property
    def visible_line(self) -> str | None:
        """The variable that hides the GPUs which torch has no kernels for, None when it serves all."""
        return self.choice.visible_line if self.choice else None


def install_words(plan: Plan, folder: Path, uv: str, *, cached: bool = True) -> list[str]:
    """Return the command that installs the files of a folder, and no others."""
    pins = [f"{item.offer.project}=={item.offer.version}" for item in plan.changed]
    python = str(plan.target.python)
    if plan.installer == "pip":
        words = [python, "-m", "pip", "install", "--no-input", "--force-reinstall"]
    else:
        words = [uv, "pip", "install", "--python", python, "--no-config"]
        words += [] if cached else ["--no-cache"]
        # of what is there alone: for what it reinstalls, uv looks at the whole file again
        there = [item.offer.project for item in plan.changed if item.before]
        words += [word for project in there for word in ("--reinstall-package", project)]
    return [*words, "--no-index", "--find-links", str(folder), "--no-deps", *pins]


def venv_words(plan: Plan, uv: str) -> list[str]:
    """Return the command that makes the environment, without anything in it."""
    of = str(plan.target.made_of)
    return [uv, "venv", "--no-config", "--no-project", "--python", of, str(plan.target.environment.prefix)]


def remove_words(plan: Plan, uv: str) -> list[str]:
    """Return the command that removes what would be in the way."""
    names = [one.name for one in plan.removed]
    if plan.installer == "pip":
        return [str(plan.target.python), "-m", "pip", "uninstall", "--yes", *names]
    return [uv, "pip", "uninstall", "--python", str(plan.target.python), *names]


def commands(plan: Plan, cache: Cache) -> list[str]:
    """Return what to type to get the same by hand, line by line."""
    if not plan.changed:
        return []
    folder = plan.folder(cache)
    place = shell_line([str(folder)])
    lines = [shell_line(venv_words(plan, "uv"))] if plan.target.made_of else []
    lines.append(f"mkdir -p {place} && cd {place}")
    for item in plan.changed:
        url, name = hide_credentials(item.offer.url), item.offer.shown
        lines.append(shell_line(["curl", "--fail", "--location", "--output", name, url]))
        if item.offer.sha256:
            lines.append(f"echo '{item.offer.sha256}  {name}' | sha256sum --check --quiet")
        if item.offer.is_sdist:
            build = ["uv", "build", "--wheel", "--python", str(plan.target.python), "--out-dir", "."]
            lines.append(shell_line([*build, name]))
    if plan.removed:
        lines.append(as_typed(plan, remove_words(plan, "uv")))
    lines.append(as_typed(plan, install_words(plan, folder, "uv")))
    return lines


def as_typed(plan: Plan, words: list[str]) -> str:
    """Return a command with what keeps the user's own indexes out of it."""
    front = f"PIP_CONFIG_FILE={os.devnull} " if plan.installer == "pip" else ""
    return front + shell_line(words)


def as_json(plan: Plan, cache: Cache) -> dict[str, Any]:
    """Return a plan for programs."""
    return {
        "python": str(plan.target.python),
        "prefix": str(plan.target.environment.prefix),
        "made_of": str(plan.target.made_of) if plan.target.made_of else None,
        "installer": plan.installer,
        "index": hide_credentials(plan.index),
        "dependency_index": hide_credentials(plan.dependencies),
        "requirements": list(plan.requirements),
        "choice": _choice(plan.choice) if plan.choice else None,
        "packages": [_item(item) for item in plan.items],
        "removed": [str(one) for one in plan.removed],
        "bytes_to_fetch": plan.to_fetch,
        "environment": plan.visible_line,
        "warnings": list(plan.warnings),
        "commands": commands(plan, cache),
    }


def _choice(one: Choice) -> dict[str, Any]:
    return {
        "requirement": one.requirement,
        "project": one.project,
        "layout": one.layout,
        "picked": one.picked.name if one.picked else None,
        "requires": list(one.requires),
        "notes": list(one.notes),
        "served": [{"gpu": _gpu(gpu), "served": yes} for gpu, yes in one.served],
    }


def _gpu(gpu: Gpu) -> str:
    return " ".join(filter(None, (gpu.gfx, gpu.name)))


def _item(item: Item) -> Mapping[str, Any]:
    offer = item.offer
    return {
        "name": offer.project,
        "version": str(offer.version),
        "file": offer.name,
        "label": offer.label,
        "url": hide_credentials(offer.url),
        "sha256": offer.sha256,
        "size": offer.size,
        "from": offer.source,
        "does": "keep" if item.keep else "install",
        "at_hand": item.at_hand,
        "before": item.before.version if item.before else None,
    }
