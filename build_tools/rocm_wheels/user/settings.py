"""Settings of this machine for a torch: what fits, and writing it into an environment.

Rules: nothing for a card that has kernels of its own. An override only to kernels that are there and that
the card is known to run. Never one that changes another card that is in use: then one for the card alone,
or the card is hidden. An integrated GPU without kernels is hidden when a discrete card has some. What the
user has set stays, and a note says so.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rocm_wheels.core import errors
from rocm_wheels.gpus import detect, kfd, programs
from rocm_wheels.gpus.gpu import Gpu, Hardware, format_override_version
from rocm_wheels.gpus.variables import CUDA_VISIBLE_DEVICES, HIP_VISIBLE_DEVICES
from rocm_wheels.models.gfx import OVERRIDE_VARIABLE, TargetOverride, load_overrides
from rocm_wheels.user import gpu_support, install_options, installed_packages


@dataclass(frozen=True)
class VariableSetting:
    """A variable and its value. ``why`` is one sentence; ``source`` a URL that says that it works."""

    name: str
    value: str
    why: str
    source: str


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
    return gpu_support.check_kernel_support(targets, target, xnack=env.get("HSA_XNACK") == "1").runs


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


_HIDING_VARIABLES = (HIP_VISIBLE_DEVICES, CUDA_VISIBLE_DEVICES)  # GPU_DEVICE_ORDINAL is for OpenCL
_MPS_FALLBACK = "PYTORCH_ENABLE_MPS_FALLBACK"
_MPS_FALLBACK_SOURCE = "https://docs.pytorch.org/docs/stable/mps_environment_variables.html"
_WSL_VARIABLE = "HSA_ENABLE_DXG_DETECTION"
_WSL_SOURCE = "https://github.com/ROCm/librocdxg"
_ISOLATION_SOURCE = "https://rocm.docs.amd.com/en/latest/conceptual/gpu-isolation.html"


@dataclass(frozen=True)
class _SettingsPlan:
    """What is done about the cards: which stay in sight, and by what name each override is set."""

    visible: tuple[ConfiguredCard, ...]
    overridden: tuple[tuple[str, tuple[ConfiguredCard, ...]], ...] = ()
    notes: tuple[str, ...] = ()


def make_settings(
    hardware: Hardware,
    targets: Sequence[str] | None,
    env: Mapping[str, str],
    platform: str,
    *,
    nodes: Sequence[int] = (),
    rocm: str = "",
    risky: bool = False,
) -> tuple[tuple[VariableSetting, ...], tuple[str, ...]]:
    """Return the variables to set, and notes for people.

    ``targets`` are those of the kernels in the installed torch: None when that is not known, empty for a
    build without any. ``platform`` is as ``sys.platform`` spells it. ``nodes`` are the runtime's numbers of
    the cards, by their index (``gpus.kfd``); without them no card can be overridden alone. ``rocm`` is the
    version that torch was built with, and brings or requires; "" where it does not say.
    """
    if platform == "darwin":
        return _make_macos_settings(env)
    order = sort_by_hip_index(gpu for gpu in hardware.gpus if gpu.vendor == "amd")
    if not order:
        return (), ("no AMD GPU that the ROCm runtime numbers: nothing to set",)
    if targets is None:
        return (), ("unknown which kernels torch has: nothing is set",)
    if not targets:
        return (), ("the installed torch has no kernels for AMD GPUs: no variable changes that",)
    override_variables = list_override_variables(env)
    cards = judge_cards(order, targets, env, platform=platform, risky=risky)
    notes = [
        *_describe_user_variables(cards, override_variables, targets, env),
        *_describe_cards(cards, targets, platform),
    ]
    if not any(card.usable for card in cards):
        return (), tuple(notes)
    alone = nodes if _supports_node_overrides(hardware, rocm) else ()
    plan = _plan_settings(cards, hardware, alone)
    settings = [
        VariableSetting(
            name,
            (group[0].override and group[0].override.version) or "",
            _explain_override(group),
            _get_source_url(group),
        )
        for name, group in plan.overridden
    ]
    hiding, hiding_notes = _hide_cards(cards, plan.visible, env)
    return (*settings, *hiding), (*notes, *plan.notes, *hiding_notes, *_list_cautions(plan))


def _make_macos_settings(env: Mapping[str, str]) -> tuple[tuple[VariableSetting, ...], tuple[str, ...]]:
    if _MPS_FALLBACK in env:
        return (), (f"{_MPS_FALLBACK}={env[_MPS_FALLBACK]} is your own and stays",)
    why = "operations that the mps back end lacks then run on the CPU, not at all otherwise"
    return (VariableSetting(_MPS_FALLBACK, "1", why, _MPS_FALLBACK_SOURCE),), ()


def _plan_settings(
    cards: Sequence[ConfiguredCard], hardware: Hardware, nodes: Sequence[int]
) -> _SettingsPlan:
    """Decide which cards stay and how those that need an override get theirs."""
    discrete = any(card.usable and not card.gpu.integrated for card in cards)
    visible = tuple(
        card
        for card in cards
        if card.native or not card.has_target or (card.override and not (discrete and card.gpu.integrated))
    )
    needy = tuple(card for card in visible if card.override)
    if not needy:
        return _SettingsPlan(visible)
    groups: dict[str, list[ConfiguredCard]] = {}
    for card in needy:
        groups.setdefault(card.override.version if card.override else "", []).append(card)
    first = next(iter(groups))
    if len(groups) == 1 and _is_harmless_for_others(first, needy, visible, hardware):
        return _SettingsPlan(visible, ((OVERRIDE_VARIABLE, needy),))
    if all((card.gpu.index or 0) < len(nodes) for card in needy):
        alone = [(f"{OVERRIDE_VARIABLE}_{nodes[card.gpu.index or 0]}", (card,)) for card in needy]
        since = load_overrides().per_node.since
        return _SettingsPlan(
            visible, tuple(alone), (f"{OVERRIDE_VARIABLE}_<node> is read by ROCm {since} and later",)
        )
    native = tuple(card for card in visible if not card.override)
    if native:
        out = ", ".join(map(str, needy))
        return _SettingsPlan(
            native, (), (f"{out}: would need an override that breaks the other cards; hidden",)
        )
    group = tuple(groups[first])
    if _is_harmless_for_others(first, group, group, hardware):
        return _SettingsPlan(
            group,
            ((OVERRIDE_VARIABLE, group),),
            ("the cards need different overrides: only one kind is used",),
        )
    return _SettingsPlan((), (), ("the cards need overrides that exclude each other: nothing is set",))


def _is_harmless_for_others(
    version: str, needy: Sequence[ConfiguredCard], visible: Sequence[ConfiguredCard], hardware: Hardware
) -> bool:
    """Whether an override of all cards, which the runtime applies to hidden ones too, does no harm."""
    overridden_indices = {card.gpu.index for card in needy}
    used = {card.gpu.index for card in visible}
    other_gpus = [
        gpu
        for gpu in hardware.gpus
        if gpu.vendor == "amd" and gpu.index is not None and gpu.index not in overridden_indices
    ]
    return all(is_override_harmless(gpu, version, used=gpu.index in used) for gpu in other_gpus)


def _supports_node_overrides(hardware: Hardware, rocm: str) -> bool:
    """Whether torch's runtime reads overrides of one card: believed where no ROCm says its version."""
    versions = [
        _parse_numbers(version)
        for version in ((rocm,) if rocm else (installation.version for installation in hardware.rocm))
    ]
    return not versions or max(versions) >= _parse_numbers(load_overrides().per_node.since)


def _parse_numbers(version: str) -> tuple[int, ...]:
    """Return ``(7, 2, 0)`` of ``7.2.0-43`` or ``7.2.0rc1``."""
    match = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(map(int, match[0].split("."))) if match else ()


def _hide_cards(
    cards: Sequence[ConfiguredCard], visible: Sequence[ConfiguredCard], env: Mapping[str, str]
) -> tuple[tuple[VariableSetting, ...], tuple[str, ...]]:
    hidden = [card for card in cards if card not in visible]
    if not hidden or not visible:
        return (), ()
    value = ",".join(str(card.number) for card in visible)
    names = ", ".join(map(str, hidden))
    if user_variables := [name for name in _HIDING_VARIABLES if name in env]:
        message = (
            f"{user_variables[0]}={env[user_variables[0]]} is your own and stays, though torch "
            f"cannot use {names}"
        )
        return (), (f"{message}: {HIP_VISIBLE_DEVICES}={value} would hide it",)
    source = load_overrides().hidden_integrated.source
    integrated = all(card.gpu.integrated for card in hidden)
    url = load_overrides().sources[source].url if integrated else _ISOLATION_SOURCE
    return (
        VariableSetting(
            HIP_VISIBLE_DEVICES, value, f"hides {names}: torch has no kernels that it can run", url
        ),
    ), ()


def _explain_override(group: Sequence[ConfiguredCard]) -> str:
    card = group[0]
    assert card.override is not None
    names = ", ".join(dict.fromkeys(get_own_target(member.gpu) or "" for member in group))
    return f"torch has no kernels for {names}, which runs those for {card.override.target}"


def _get_source_url(group: Sequence[ConfiguredCard]) -> str:
    assert group[0].override is not None
    return load_overrides().sources[group[0].override.source].url


def _list_cautions(plan: _SettingsPlan) -> list[str]:
    used_overrides = [card.override for _, group in plan.overridden for card in group if card.override]
    return list(
        dict.fromkeys(
            f"{OVERRIDE_VARIABLE}={override.version}: {override.care}"
            for override in used_overrides
            if override.care
        )
    )


def _describe_cards(cards: Sequence[ConfiguredCard], targets: Sequence[str], platform: str) -> list[str]:
    """Say what cannot be helped, and what only the user may decide."""
    notes = []
    for card in cards:
        target = get_own_target(card.gpu)
        if card.usable:
            continue
        if not card.has_target or target is None:
            notes.append(f"{card}: nothing tells its target; it is left as it is")
            continue
        possible = list_possible_overrides(target, targets)
        message = f"{card}: torch has no kernels for it"
        if possible and platform == "win32":
            message += f", and {load_overrides().windows.note}"
        elif possible and possible[0].risky:
            message += f"; {OVERRIDE_VARIABLE}={possible[0].version} might do, but is {possible[0].care}"
        notes.append(f"{message}; {_suggest_torch(target, platform)}")
    return notes


def _suggest_torch(target: str, platform: str) -> str:
    """Say where there is a torch whose kernels a card can run, or what people do where there is none."""
    options = install_options.list_install_options(
        target, platform="windows" if platform == "win32" else "linux"
    )
    if not options:
        return "; ".join(install_options.explain_no_torch(target))
    best = options[0]
    return f"{best.index.name} has a torch with kernels for {best.target}: see `rocm-wheels doctor`"


def _describe_user_variables(
    cards: Sequence[ConfiguredCard], variables: Sequence[str], targets: Sequence[str], env: Mapping[str, str]
) -> list[str]:
    """Say which of the user's variables stay, and where they do harm."""
    if not variables:
        return []
    notes = [f"{name}={env[name]} is your own and stays" for name in variables]
    notes += [
        f"{name} is set and empty, and then ROCm of before mid-2026 uses no GPU: unset it"
        for name in variables
        if not env[name]
    ]
    for card in cards:
        target = get_own_target(card.gpu) or ""
        if can_run_kernels(targets, target, env) and card.gpu.gfx != card.gpu.native:
            notes.append(
                f"{card} has kernels of its own and now passes for {card.gpu.gfx}: unset {variables[0]}"
            )
    return notes


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
    """The variables that are needed, notes for people, and what they follow from.

    ``unserved`` are the cards, where torch can use none of them whatever is set.
    """

    settings: tuple[VariableSetting, ...]
    notes: tuple[str, ...]
    machine: ConfiguredMachine
    unserved: tuple[str, ...] = ()

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
    run: programs.Runner = programs.run_program,
) -> HostConfiguration:
    """Return what this machine needs for the torch of ``python`` (None: the running one); nothing is changed.

    ``gfx`` states cards, in the runtime's order, in place of a look; ``root`` and ``run`` are as in
    ``detect_hardware``. UsageError for a ``python`` that does not run and for variables that cannot be read;
    DataError for a damaged torch; HostError when there are cards and no torch.
    """
    machine = inspect_machine(env, python=python, gfx=gfx, platform=platform, root=root, run=run)
    cards = any(gpu.vendor == "amd" and gpu.index is not None for gpu in machine.hardware.gpus)
    if machine.targets is None and cards and platform != "darwin":
        raise errors.HostError(
            f"{machine.torch}: cannot determine what its kernels need",
            tip="rocm-wheels install --venv .venv; or name the Python that has it: --python DIR",
        )
    settings, notes = make_settings(
        machine.hardware, machine.targets, env, platform, nodes=machine.nodes, rocm=machine.rocm, risky=risky
    )
    order = sort_by_hip_index(gpu for gpu in machine.hardware.gpus if gpu.vendor == "amd")
    judged = judge_cards(order, machine.targets or (), env, platform=platform, risky=risky)
    is_served = platform == "darwin" or any(card.usable or not card.has_target for card in judged)
    unserved = () if is_served else tuple(map(str, judged))
    return HostConfiguration((*_make_wsl_settings(machine, env, root), *settings), notes, machine, unserved)


def _make_wsl_settings(
    machine: ConfiguredMachine, env: Mapping[str, str], root: Path
) -> tuple[VariableSetting, ...]:
    """Return what makes the runtime look for the GPU that Windows lends, where torch has code for AMD's."""
    lent = (root / "dev/dxg").exists() and not (root / "dev/kfd").exists()
    if not lent or not machine.targets or _WSL_VARIABLE in env:
        return ()
    why = "there is no /dev/kfd in WSL: the runtime reaches the GPU over /dev/dxg, with librocdxg"
    return (VariableSetting(_WSL_VARIABLE, "1", why, _WSL_SOURCE),)


def inspect_machine(
    env: Mapping[str, str],
    *,
    python: Path | None = None,
    gfx: Sequence[str] = (),
    platform: str = sys.platform,
    root: Path = Path("/"),
    run: programs.Runner = programs.run_program,
) -> ConfiguredMachine:
    """Look at the cards (unless ``gfx`` states them) and at the installed torch."""
    installed = installed_packages.read_installed_packages(python, env)
    torch = installed.torch
    where = installed.environment.python
    targets: tuple[str, ...] | None = None
    description = f"torch is not installed in {where}"
    if torch is not None and torch.folder is not None:
        targets = gpu_support.list_kernel_targets(installed, "torch")
        description = f"torch {torch.version} ({torch.kind}) in {where}"
    if gfx:
        from rocm_wheels.user import host

        hardware = host.make_host(env, host.StatedMachine(gfx=tuple(gfx), rocm="none")).hardware
        if targets is None:
            targets = _find_future_targets(hardware, platform, installed.environment.minor)
            description += ": for the one that `rocm-wheels install` takes"
        return ConfiguredMachine(hardware, targets, description)
    try:
        hardware = detect.detect_hardware(
            env, root=root, platform=platform, run=run, site_packages=installed.environment.path
        )
    except ValueError as cause:
        raise errors.UsageError(str(cause)) from None
    if not any(gpu.source == "kfd" for gpu in hardware.gpus):  # stated by a variable, or seen otherwise
        return ConfiguredMachine(hardware, targets, description)
    topology = kfd.read_topology(root)
    numbered = sorted(
        (gpu.index, node)
        for gpu, node in zip(topology.gpus, topology.nodes, strict=True)
        if gpu.index is not None
    )
    built = torch.build.version if torch is not None and torch.kind == "rocm" else ""
    return ConfiguredMachine(hardware, targets, description, tuple(node for _, node in numbered), built)


def _find_future_targets(hardware: Hardware, platform: str, python: str) -> tuple[str, ...]:
    """Return whose kernels the torch has that would be installed for stated cards, as far as tables say.

    HostError, with what people do, where no index has a torch for any of them.
    """
    system = "windows" if platform == "win32" else "linux"
    stated = hardware.targets
    ways = [install_options.list_install_options(target, platform=system) for target in stated]
    chosen = [install_options.pick_option(options, python) for options in ways]
    targets = dict.fromkeys(option.target for option in chosen if option)
    if stated and not targets:
        message, line = install_options.explain_no_torch(stated[0])
        raise errors.HostError(message, tip=line)
    return tuple(targets)


SHELL_NAMES = ("sh", "fish", "powershell", "cmd", "github")


def detect_shell(env: Mapping[str, str], platform: str) -> str:
    """Return the shell that most likely reads what we print: fish by ``SHELL``, PowerShell on Windows."""
    if env.get("SHELL", "").endswith("fish"):
        return "fish"
    return "powershell" if platform == "win32" and "SHELL" not in env else "sh"


def format_settings(settings: Iterable[VariableSetting], shell: str) -> list[str]:
    """Return one line a variable. ``github`` is what a step appends to ``$GITHUB_ENV``."""
    if shell not in _SHELL_FORMATS:
        raise errors.UsageError(
            f"{shell} is no shell that is known here", tip=f"shells: {', '.join(SHELL_NAMES)}"
        )
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
