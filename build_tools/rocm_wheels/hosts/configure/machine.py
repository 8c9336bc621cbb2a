"""What settings are made from: this machine's cards and torch, or cards that somebody states."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rocm_wheels.errors import HostError, UsageError
from rocm_wheels.gpus.gpu import Hardware
from rocm_wheels.gpus.kfd import read_topology
from rocm_wheels.gpus.look import look
from rocm_wheels.gpus.programs import Runner, run_program
from rocm_wheels.hosts.configure.setting import Setting
from rocm_wheels.hosts.configure.settings import settings_for
from rocm_wheels.hosts.installed import look_at_packages, targets_of


@dataclass(frozen=True)
class Seen:
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
class Configuration:
    """The variables that are needed, notes for people, and what they follow from."""

    settings: tuple[Setting, ...]
    notes: tuple[str, ...]
    seen: Seen

    @property
    def variables(self) -> dict[str, str]:
        """The settings as an environment."""
        return {one.name: one.value for one in self.settings}


def configuration(
    env: Mapping[str, str],
    *,
    python: Path | None = None,
    gfx: Sequence[str] = (),
    risky: bool = False,
    platform: str = sys.platform,
    root: Path = Path("/"),
    run: Runner = run_program,
) -> Configuration:
    """Return what this machine needs for the torch of ``python`` (None: the running one); nothing is changed.

    ``gfx`` states cards, in the runtime's order, in place of a look; ``root`` and ``run`` are as in
    ``gpus.look``. UsageError for a ``python`` that does not run and for variables that cannot be read;
    DataError for a damaged torch; HostError when there are cards and no torch.
    """
    seen = see(env, python=python, gfx=gfx, platform=platform, root=root, run=run)
    cards = any(gpu.vendor == "amd" and gpu.index is not None for gpu in seen.hardware.gpus)
    if seen.targets is None and cards and platform != "darwin":
        raise HostError(
            f"{seen.torch}: what its kernels need cannot be told",
            tip="rocm-wheels install; or name the Python that has it: --python .venv/bin/python",
        )
    settings, notes = settings_for(
        seen.hardware, seen.targets, env, platform, nodes=seen.nodes, rocm=seen.rocm, risky=risky
    )
    return Configuration(settings, notes, seen)


def see(
    env: Mapping[str, str],
    *,
    python: Path | None = None,
    gfx: Sequence[str] = (),
    platform: str = sys.platform,
    root: Path = Path("/"),
    run: Runner = run_program,
) -> Seen:
    """Look at the cards (unless ``gfx`` states them) and at the installed torch."""
    installed = look_at_packages(python, env)
    torch = installed.torch
    where = installed.environment.python
    if torch is None or torch.folder is None:
        targets, said = None, f"torch is not installed in {where}"
    else:
        targets = targets_of(installed, "torch")
        said = f"torch {torch.version} ({torch.kind}) in {where}"
    if gfx:
        from rocm_wheels.hosts.choose.machine import Stated, host_of

        return Seen(host_of(env, Stated(gfx=tuple(gfx), rocm="none")).hardware, targets, said)
    try:
        hardware = look(env, root=root, platform=platform, run=run, site_packages=installed.environment.path)
    except ValueError as cause:
        raise UsageError(str(cause)) from None
    if not any(gpu.source == "kfd" for gpu in hardware.gpus):  # stated by a variable, or seen otherwise
        return Seen(hardware, targets, said)
    topology = read_topology(root)
    numbered = sorted(
        (gpu.index, node)
        for gpu, node in zip(topology.gpus, topology.nodes, strict=True)
        if gpu.index is not None
    )
    built = torch.build.version if torch is not None and torch.kind == "rocm" else ""
    return Seen(hardware, targets, said, tuple(node for _, node in numbered), built)
