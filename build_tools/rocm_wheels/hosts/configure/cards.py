"""What the installed torch has for each card: its own kernels, others that it can run, or none."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rocm_wheels.gpus.gpu import Gpu
from rocm_wheels.gpus.names import format_override_version
from rocm_wheels.hosts.installed.serving import check_kernel_support
from rocm_wheels.model.compat.overrides import OVERRIDE_VARIABLE, TargetOverride, load_overrides


@dataclass(frozen=True)
class ConfiguredCard:
    """A card that HIP sees. ``number`` is HIP's, before ``HIP_VISIBLE_DEVICES``.

    ``native``: torch has kernels for it (those of a generic target count). ``override``: else, whose kernels
    it can run. ``has_target`` is False for a card whose target nothing tells.
    """

    gpu: Gpu
    number: int
    native: bool
    override: TargetOverride | None
    has_target: bool = True

    @property
    def usable(self) -> bool:
        """Whether torch can use it, with an override or without."""
        return self.native or self.override is not None

    def __str__(self) -> str:
        target = get_own_target(self.gpu) or "unknown target"
        return f"{self.gpu.name} ({target})" if self.gpu.name else target


def get_own_target(gpu: Gpu) -> str | None:
    """Return the target of the hardware itself, without features."""
    target = gpu.native or gpu.gfx
    return target.partition(":")[0] if target else None


def sort_by_hip_index(gpus: Iterable[Gpu]) -> tuple[Gpu, ...]:
    """Return the GPUs in the order in which HIP numbers them, before ``HIP_VISIBLE_DEVICES``.

    Those that somebody states are in the order of their statement.
    """
    numbers = [(gpu.index if gpu.hip_index is None and gpu.visible else gpu.hip_index, gpu) for gpu in gpus]
    numbered = [(number, gpu) for number, gpu in numbers if number is not None]
    return tuple(gpu for _, gpu in sorted(numbered, key=lambda pair: pair[0]))


def judge_cards(
    gpus: Sequence[Gpu],
    targets: Sequence[str],
    env: Mapping[str, str],
    *,
    platform: str,
    risky: bool,
) -> tuple[ConfiguredCard, ...]:
    """Say of each GPU (in HIP's order) what torch's ``targets`` come to for it; hidden ones are left out.

    Where the user overrides targets, each is what it passes for.
    """
    overridden = bool(list_override_variables(env))
    cards = []
    for number, gpu in enumerate(gpus):
        target = (gpu.gfx or "").partition(":")[0] if overridden else get_own_target(gpu)
        native = bool(target) and can_run_kernels(targets, target or "", env)
        options = (
            []
            if native or not target or overridden or platform == "win32"
            else list_possible_overrides(target, targets)
        )
        allowed = [option for option in options if risky or not option.risky]
        if gpu.visible:
            cards.append(
                ConfiguredCard(gpu, number, native, allowed[0] if allowed else None, has_target=bool(target))
            )
    return tuple(cards)


def can_run_kernels(targets: Sequence[str], target: str, env: Mapping[str, str]) -> bool:
    """Whether kernels for ``targets`` run on a GPU, as this environment has it."""
    return check_kernel_support(targets, target, xnack=env.get("HSA_XNACK") == "1").runs


def list_possible_overrides(target: str, targets: Iterable[str]) -> list[TargetOverride]:
    """Return whose kernels, of those for ``targets``, a card can run: the best first, risky ones too."""
    available = {target_id.partition(":")[0] for target_id in targets}
    return [option for option in load_overrides().cards.get(target, ()) if option.target in available]


def is_override_harmless(gpu: Gpu, version: str, *, used: bool) -> bool:
    """Whether an override of all cards leaves this one, which has no need of it, as good as it was.

    The runtime refuses one of another major version, and then sees no card at all (rocm-systems 5686).
    """
    target = get_own_target(gpu)
    if target is None:
        return False
    own_version = format_override_version(target)
    return own_version == version or (not used and own_version.partition(".")[0] == version.partition(".")[0])


def list_override_variables(env: Mapping[str, str]) -> tuple[str, ...]:
    """Return the user's own variables that override a target: for all cards, or for one of them."""
    names = [
        name
        for name in env
        if name.removeprefix(OVERRIDE_VARIABLE + "_").isdecimal() or name == OVERRIDE_VARIABLE
    ]
    return tuple(sorted(names))
