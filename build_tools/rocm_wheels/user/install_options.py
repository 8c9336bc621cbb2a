"""Say where there is a torch with kernels for a GPU: by channel, Python and index, each with its command.

What the tables of indexes know, and the overrides by which a card runs another's kernels. Where there is
none, what people do with such a card.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rocm_wheels.core import errors, shell, tables
from rocm_wheels.gpus import variables
from rocm_wheels.gpus.gpu import format_stated_target, is_known_target
from rocm_wheels.models import facts, package_indexes
from rocm_wheels.models.gfx import get_gfx_targets, load_overrides
from rocm_wheels.user.host import TargetHost

NEW_VENV = "my-torch"  # the environment that is advised: a clone has rocm-wheels itself in its .venv
_DEVELOPERS_CHANNEL = "dev"
_OLDEST_PYTHON = (10, False)  # that rocm-wheels itself runs on

DIRECTML_NOTE = (  # microsoft/DirectML#712, comment of 2025-08-11; the tags of torch-directml 0.2.5 on PyPI
    "torch-directml computes on any DirectX 12 GPU, and is not chosen: it ends with torch 2.4.1 and "
    "Python 3.12, and Microsoft no longer develops it"
)


@dataclass(frozen=True)
class InstallOption:
    """A way to a torch with kernels for a GPU. ``pythons`` () where nobody says.

    ``target`` is whose kernels: another one than the GPU's own runs with ``override``, the value of
    HSA_OVERRIDE_GFX_VERSION. ``is_guess``: of an unstable channel, and nobody states it.
    """

    target: str
    index: package_indexes.PackageIndex
    pythons: tuple[str, ...]
    override: str = ""
    is_guess: bool = False

    @property
    def is_default(self) -> bool:
        """Tell whether ``install`` takes it without being told."""
        return self.index.channel == "stable" and not self.override

    def fits(self, python: str) -> bool:
        """Tell whether it has a torch for a Python (``3.12``), as far as anybody says."""
        return not self.pythons or python in self.pythons

    def format_install(
        self, python: str, projects: Sequence[str] = (), *, gfx: str = "", place: Sequence[str] = ()
    ) -> str:
        """Return the command that installs it where there is ``python``.

        ``place`` are the words that name the environment; where it has another Python than is needed, a new
        one takes its place. ``gfx`` states the GPU.
        """
        words = ["rocm-wheels", "install", *projects]
        if self.fits(python):
            words += place
        else:
            minor = facts.get_python_key(python)[0]
            nearest = min(
                self.pythons,
                key=lambda other: (other.endswith("t"), abs(facts.get_python_key(other)[0] - minor)),
            )
            words += ["--venv", NEW_VENV, "--python", nearest]
        words += [] if self.index.channel == "stable" else ["--channel", self.index.channel]
        stated_target = self.target if self.override else gfx
        return shell.format_command([*words, *(["--gfx", stated_target] if stated_target else [])])


def list_install_options(gfx: str, *, platform: str, machine: str | None = None) -> list[InstallOption]:
    """Return the ways to a torch for an AMD GPU (``gfx1032``), the best first: its own kernels, stable ones.

    Of the indexes of a channel those that bring a Python that better ones have not. By an override only
    stable ones; what is only believed of other channels is left out beside what somebody states.
    """
    ways: list[InstallOption] = []
    for channel in package_indexes.INDEX_CHANNELS:
        if channel != _DEVELOPERS_CHANNEL:
            ways += _list_channel_options(gfx, "", channel, platform, machine)
    if platform == "linux":  # elsewhere the runtime does not read the variable
        for option in load_overrides().cards.get(gfx, ()):
            if not option.risky:
                ways += _list_channel_options(option.target, option.version, "stable", platform, machine)
    return [way for way in ways if not way.is_guess] or ways


def _list_channel_options(
    target: str, override: str, channel: str, platform: str, machine: str | None
) -> Iterator[InstallOption]:
    covered: set[str] = set()
    for index in package_indexes.find_indexes(target, platform=platform, channel=channel, machine=machine):
        stated = sorted(index.list_pythons(platform, target), key=facts.get_python_key)
        pythons = tuple(python for python in stated if facts.get_python_key(python) >= _OLDEST_PYTHON)
        locked = {python for python in pythons if not python.endswith("t")}
        if (stated and not locked) or (covered and covered.issuperset(locked)):
            continue
        serving = index.find_serving(platform, target)
        is_guess = channel != "stable" and serving is not None and serving.kind == "believed"
        yield InstallOption(target, index, pythons, override, is_guess)
        covered |= locked or {"any"}


def pick_option(options: Sequence[InstallOption], python: str) -> InstallOption | None:
    """Return the best way for a Python, the best of all where none has a torch for it; None without any.

    A stable torch for another Python comes before one of another channel for this one.
    """
    if not options:
        return None
    first = options[0]
    same_kind = [
        option
        for option in options
        if (option.target, option.index.channel) == (first.target, first.index.channel)
    ]
    return next((option for option in same_kind if option.fits(python)), first)


def describe_host_options(gfx: str, host: TargetHost) -> list[str]:
    """Return the grid of ways for one GPU of a machine: a row each with channel, Pythons, index and command.

    [] where nothing serves it.
    """
    is_stated = any(gpu.gfx == gfx and gpu.confidence == "forced" for gpu in host.hardware.gpus)
    rows = []
    for option in list_install_options(gfx, platform=host.platform, machine=host.machine):
        # who started by uvx or pipx is in no environment that torch may go into
        place = ("--venv", NEW_VENV)
        command = option.format_install(host.python, gfx=gfx if is_stated else "", place=place)
        needs = f"   # with {variables.OVERRIDE_VARIABLE}={option.override}" if option.override else ""
        rows.append(
            (option.index.channel, _describe_pythons(option.pythons), option.index.name, command + needs)
        )
    return tables.align_rows(rows)


def _describe_pythons(pythons: Sequence[str]) -> str:
    plain = [python for python in pythons if not python.endswith("t")]
    if not plain:
        return "any Python"
    minors = [int(python.partition(".")[2]) for python in plain]
    if len(plain) > 2 and minors == list(range(minors[0], minors[-1] + 1)):
        return f"Python {plain[0]} to {plain[-1]}"
    return f"Python {', '.join(plain)}"


def explain_no_torch(gfx: str) -> tuple[str, str]:
    """Say that no index has a torch for a GPU, and what people do: commands, with the rest in a comment.

    A chip that no table knows is asked for where the newest wheels are; an old one has what others built.
    """
    message = f"no torch of the indexes that are known here has kernels for {gfx}"
    if not is_known_target(gfx):
        words = ["choose", "torch", "--channel", "nightly", "--gfx", format_stated_target(gfx)]
        line = shell.format_command(["rocm-wheels", *words])
        return message, f"{line}   # asks AMD's indexes, which may be newer than the tables here"
    line = ""
    if gfx in get_gfx_targets():
        words = ["build", "--gfx", gfx, "--rocm-path", "/opt/rocm", "--output-dir", "dist"]
        line = f"rocm-wheels checkout && {shell.format_command(['rocm-wheels', *words])}"
        line += f"   # compiles it, on Linux with a ROCm that serves {gfx}"
    else:
        message += ", and no ROCm of today compiles for it"
    from rocm_wheels.models import torch_builds  # slow to import, and read for a card without torch alone

    table = torch_builds.load_build_table()
    examples = "; ".join(
        f"torch {build.torch} with ROCm {build.rocm} ({table.sources[build.source].url})"
        for build in table.own_builds
        if build.target == gfx
    )
    others = f"others have: {examples}" if examples else ""
    return message, "; ".join(filter(None, [line, others])) or "it computes on the CPU: --allow-cpu"


ALLOW_CPU_TIP = "--allow-cpu takes a torch that computes on the CPU"


class UnservedGpuError(errors.HostError):
    """No torch that was found serves the GPUs here; to take one for the CPU is the user's to say.

    ``index`` has the torch that was refused, "" where none was found.
    """

    index = ""


def require_gpu_index(host: TargetHost, channel: str) -> None:
    """Refuse to go on to wheels for the CPU on a machine with an AMD GPU: UnservedGpuError says what serves.

    For who has found no index of the channel for any GPU that is here.
    """
    gpus = host.hardware.amd
    targets = host.hardware.targets
    if gpus and not targets:
        raise UnservedGpuError(
            f"the target of {gpus[0].name or 'the AMD GPU'} is not known, nor which torch has kernels for it",
            tip=f"name it with --gfx gfx… (rocminfo prints it), or {ALLOW_CPU_TIP}",
        )
    if targets:
        names = " or ".join(targets)
        reason = f"no {channel} index that is known here has torch for {names} with Python {host.python}"
        has_ways = any(describe_host_options(gfx, host) for gfx in targets)  # else what people do says it all
        raise make_unserved_error([reason] if has_ways else [], targets, host)


def make_unserved_error(reasons: Sequence[str], targets: Sequence[str], host: TargetHost) -> UnservedGpuError:
    """Return the error with the grid of what serves the GPUs, or what people do where nothing does."""
    lines = [*reasons]
    for gfx in targets:
        if rows := describe_host_options(gfx, host):
            lines += [f"with kernels for {gfx} there are, by the tables:", *(f"  {row}" for row in rows)]
        else:
            lines += [*explain_no_torch(gfx), *([DIRECTML_NOTE] if host.platform == "windows" else [])]
    return UnservedGpuError("\n  ".join(lines), tip=ALLOW_CPU_TIP)
