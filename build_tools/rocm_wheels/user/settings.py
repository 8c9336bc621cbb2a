"""Settings of this machine for a torch: what fits, and writing it into an environment.

Rules: nothing for a card that has kernels of its own. An override only to kernels that are there and that
the card is known to run. Never one that changes another card that is in use: then one for the card alone,
or the card is hidden. An integrated GPU without kernels is hidden when a discrete card has some. What the
user has set stays, and a note says so.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rocm_wheels.core import errors, shell
from rocm_wheels.gpus import detect, kfd, programs
from rocm_wheels.gpus.gpu import Gpu, Hardware, format_override_version
from rocm_wheels.gpus.variables import CUDA_VISIBLE_DEVICES, HIP_VISIBLE_DEVICES
from rocm_wheels.models.gfx import OVERRIDE_VARIABLE, TargetOverride, load_overrides
from rocm_wheels.user import gpu_support, host, install_options, installed_packages

_MPS_FALLBACK = "PYTORCH_ENABLE_MPS_FALLBACK"
_MPS_FALLBACK_SOURCE = "https://docs.pytorch.org/docs/stable/mps_environment_variables.html"
_WSL_VARIABLE = "HSA_ENABLE_DXG_DETECTION"
_WSL_SOURCE = "https://github.com/ROCm/librocdxg"
_ISOLATION_SOURCE = "https://rocm.docs.amd.com/en/latest/conceptual/gpu-isolation.html"


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

    ``target`` is that of the hardware itself, without features, "" where nothing tells it. ``native``: torch
    has kernels for it (those of a generic target count). ``override``: else, whose kernels it can run.
    """

    gpu: Gpu
    number: int
    target: str
    native: bool
    override: TargetOverride | None

    @property
    def usable(self) -> bool:
        """Whether torch can use it, with an override or without."""
        return self.native or self.override is not None

    def __str__(self) -> str:
        target = self.target or "unknown target"
        return f"{self.gpu.name} ({target})" if self.gpu.name else target


def sort_by_hip_index(gpus: Iterable[Gpu]) -> list[Gpu]:
    """Return the AMD GPUs in the order in which HIP numbers them, before ``HIP_VISIBLE_DEVICES``.

    Those that somebody states are in the order of their statement.
    """
    numbered = [
        (gpu.index if gpu.hip_index is None and gpu.visible else gpu.hip_index, gpu)
        for gpu in gpus
        if gpu.vendor == "amd"
    ]
    ordered = sorted((number, place) for place, (number, _) in enumerate(numbered) if number is not None)
    return [numbered[place][1] for _, place in ordered]


def judge_cards(
    hardware: Hardware, targets: Sequence[str], env: Mapping[str, str], platform: str
) -> list[ConfiguredCard]:
    """Say of each GPU, in HIP's order, what torch's ``targets`` come to for it; hidden ones are left out.

    Where the user overrides targets, each is what it passes for.
    """
    overridden = bool(list_override_variables(env))
    cards = []
    for number, gpu in enumerate(sort_by_hip_index(hardware.gpus)):
        target = _get_own_target(gpu)
        passed = (gpu.gfx or "").partition(":")[0] if overridden else target
        native = bool(passed) and _can_run(targets, passed, env)
        override = None
        if not (native or overridden or platform == "win32"):  # there the runtime does not read the variable
            options = list_possible_overrides(target, targets)
            override = next((option for option in options if not option.risky), None)
        if gpu.visible:
            cards.append(ConfiguredCard(gpu, number, target, native, override))
    return cards


def _get_own_target(gpu: Gpu) -> str:
    return (gpu.native or gpu.gfx or "").partition(":")[0]


def _can_run(targets: Sequence[str], target: str, env: Mapping[str, str]) -> bool:
    return gpu_support.check_kernel_support(targets, target, xnack=env.get("HSA_XNACK") == "1").runs


def list_possible_overrides(target: str, targets: Iterable[str]) -> list[TargetOverride]:
    """Return whose kernels, of those for ``targets``, a card can run: the best first, risky ones too."""
    available = {target_id.partition(":")[0] for target_id in targets}
    return [option for option in load_overrides().cards.get(target, ()) if option.target in available]


def list_override_variables(env: Mapping[str, str]) -> list[str]:
    """Return the user's own variables that override a target: for all cards, or for one of them."""
    return sorted(name for name in env if re.fullmatch(rf"{OVERRIDE_VARIABLE}(_\d+)?", name))


def make_settings(
    hardware: Hardware,
    targets: Sequence[str] | None,
    env: Mapping[str, str],
    platform: str,
    *,
    nodes: Sequence[int] = (),
    rocm: str = "",
    doctor: str = "rocm-wheels doctor",
) -> tuple[tuple[VariableSetting, ...], tuple[str, ...]]:
    """Return the variables to set, and notes for people.

    ``targets`` are those of the kernels in the installed torch: None when that is not known, empty for a
    build without any. ``platform`` is as ``sys.platform`` spells it. ``nodes`` are the runtime's numbers of
    the cards, by their index (``gpus.kfd``); without them no card can be overridden alone. ``rocm`` is the
    version that torch was built with, and brings or requires; "" where it does not say. ``doctor`` is the
    command that says more.
    """
    if platform == "darwin":
        if _MPS_FALLBACK in env:
            return (), (f"{_MPS_FALLBACK}={env[_MPS_FALLBACK]} is your own and stays",)
        why = "operations that the mps back end lacks then run on the CPU, not at all otherwise"
        return (VariableSetting(_MPS_FALLBACK, "1", why, _MPS_FALLBACK_SOURCE),), ()
    if not sort_by_hip_index(hardware.gpus):
        return (), ("no AMD GPU that the ROCm runtime numbers: nothing to set",)
    if targets is None:
        return (), ("unknown which kernels torch has: nothing is set",)
    if not targets:
        return (), ("the installed torch has no kernels for AMD GPUs: no variable changes that",)
    cards = judge_cards(hardware, targets, env, platform)
    notes = _describe_user_variables(cards, targets, env)
    notes += [_describe_unusable(card, targets, platform, doctor) for card in cards if not card.usable]
    if not any(card.usable for card in cards):
        return (), tuple(notes)

    table, settings = load_overrides(), []
    nodes = nodes if _reads_node_overrides(hardware, rocm) else ()
    visible, overrides, placed = _place_overrides(cards, hardware, nodes)
    notes += filter(None, [placed])
    for name, needy in overrides.items():
        options = [card.override for card in needy if card.override]
        posing = ", ".join(dict.fromkeys(card.target for card in needy))
        why = f"torch has no kernels for {posing}, which runs those for {options[0].target}"
        source = table.sources[options[0].source].url
        settings.append(VariableSetting(name, options[0].version, why, source))
        cares = (f"{OVERRIDE_VARIABLE}={option.version}: {option.care}" for option in options if option.care)
        notes += dict.fromkeys(cares)
    hidden = [card for card in cards if card not in visible]
    if hidden and visible:
        value = ",".join(str(card.number) for card in visible)
        names = ", ".join(map(str, hidden))
        # GPU_DEVICE_ORDINAL is for OpenCL
        own = next((name for name in (HIP_VISIBLE_DEVICES, CUDA_VISIBLE_DEVICES) if name in env), None)
        if own:
            text = f"{own}={env[own]} is your own and stays, though torch cannot use {names}"
            notes.append(f"{text}: {HIP_VISIBLE_DEVICES}={value} would hide it")
        else:
            inside = all(card.gpu.integrated for card in hidden)
            url = table.sources[table.hidden_integrated.source].url if inside else _ISOLATION_SOURCE
            why = f"hides {names}: torch has no kernels that it can run"
            settings.append(VariableSetting(HIP_VISIBLE_DEVICES, value, why, url))
    return tuple(settings), tuple(notes)


def _place_overrides(
    cards: Sequence[ConfiguredCard], hardware: Hardware, nodes: Sequence[int]
) -> tuple[list[ConfiguredCard], dict[str, list[ConfiguredCard]], str]:
    """Decide which cards stay in sight, and by what variable those that need an override get theirs.

    Returns these cards, the cards of each variable, and a note, "" for none.
    """
    has_discrete = any(card.usable and not card.gpu.integrated for card in cards)
    native = [card for card in cards if card.native or not card.target]
    needy = [card for card in cards if card.override and not (has_discrete and card.gpu.integrated)]
    visible = [card for card in cards if card in native or card in needy]
    alike = [card for card in needy if card.override == needy[0].override]

    def is_harmless(group: Sequence[ConfiguredCard], visible: Sequence[ConfiguredCard]) -> bool:
        """Whether an override of all cards, which the runtime applies to hidden ones too, does no harm.

        A card in use must stay what it is. Of the others none may be of another major version: the runtime
        refuses that, and then sees no card at all (rocm-systems 5686).
        """
        version = group[0].override.version if group[0].override else ""
        needy, used = ({card.gpu.index for card in several} for several in (group, visible))
        for gpu in hardware.gpus:
            if gpu.vendor == "amd" and gpu.index is not None and gpu.index not in needy:
                target = _get_own_target(gpu)
                own = format_override_version(target) if target else ""
                if own != version and (gpu.index in used or own.split(".")[0] != version.split(".")[0]):
                    return False
        return True

    if not needy:
        return visible, {}, ""
    versions = {card.override.version for card in needy if card.override}
    if len(versions) == 1 and is_harmless(needy, visible):
        return visible, {OVERRIDE_VARIABLE: needy}, ""
    if all((card.gpu.index or 0) < len(nodes) for card in needy):
        alone = {f"{OVERRIDE_VARIABLE}_{nodes[card.gpu.index or 0]}": [card] for card in needy}
        return (
            visible,
            alone,
            f"{OVERRIDE_VARIABLE}_<node> is read by ROCm {load_overrides().per_node.since} and later",
        )
    if native:
        names = ", ".join(map(str, needy))
        return native, {}, f"{names}: would need an override that breaks the other cards; hidden"
    if is_harmless(alike, alike):
        return alike, {OVERRIDE_VARIABLE: alike}, "the cards need different overrides: only one kind is used"
    return [], {}, "the cards need overrides that exclude each other: nothing is set"


def _reads_node_overrides(hardware: Hardware, rocm: str) -> bool:
    """Whether torch's runtime reads overrides of one card: believed where no ROCm says its version."""
    texts = [rocm] if rocm else [installation.version for installation in hardware.rocm]
    versions = [list(map(int, re.findall(r"\d+", text)[:3])) for text in texts]  # of 7.2.0-43, 7.2.0rc1
    return not versions or max(versions) >= list(map(int, load_overrides().per_node.since.split(".")))


def _describe_unusable(card: ConfiguredCard, targets: Sequence[str], platform: str, doctor: str) -> str:
    """Say what cannot be helped, and what only the user may decide."""
    if not card.target:
        return f"{card}: nothing tells its target; it is left as it is"
    possible = list_possible_overrides(card.target, targets)
    text = f"{card}: torch has no kernels for it"
    if possible and platform == "win32":
        text += f", and {load_overrides().windows.note}"
    elif possible and possible[0].risky:
        text += f"; {OVERRIDE_VARIABLE}={possible[0].version} might do, but is {possible[0].care}"
    options = install_options.list_install_options(card.target, platform=_name_system(platform))
    if not options:
        return "; ".join([text, *install_options.explain_no_torch(card.target)])
    best = options[0]
    return f"{text}; {best.index.name} has a torch with kernels for {best.target}: see `{doctor}`"


def _name_system(platform: str) -> str:
    return "windows" if platform == "win32" else "linux"


def _describe_user_variables(
    cards: Sequence[ConfiguredCard], targets: Sequence[str], env: Mapping[str, str]
) -> list[str]:
    """Say which of the user's variables stay, and where they do harm."""
    variables = list_override_variables(env)
    notes = [f"{name}={env[name]} is your own and stays" for name in variables]
    notes += [
        f"{name} is set and empty, and then ROCm of before mid-2026 uses no GPU: unset it"
        for name in variables
        if not env[name]
    ]
    for card in cards if variables else ():
        if _can_run(targets, card.target, env) and card.gpu.gfx != card.gpu.native:
            text = f"{card} has kernels of its own and now passes for {card.gpu.gfx}"
            notes.append(f"{text}: unset {variables[0]}")
    return notes


@dataclass(frozen=True)
class HostConfiguration:
    """The variables that are needed, notes for people, and what they follow from.

    ``targets`` are those that torch has kernels for (None: torch is not there), ``torch`` says in words which
    one it is. ``unserved`` are the cards, where torch can use none of them whatever is set; ``tip`` is what
    to do then.
    """

    settings: tuple[VariableSetting, ...]
    notes: tuple[str, ...]
    hardware: Hardware
    targets: tuple[str, ...] | None
    torch: str
    unserved: tuple[str, ...] = ()
    tip: str = ""

    @property
    def variables(self) -> dict[str, str]:
        """The settings as an environment."""
        return {setting.name: setting.value for setting in self.settings}


def make_configuration(
    env: Mapping[str, str],
    *,
    python: Path | None = None,
    gfx: Sequence[str] = (),
    platform: str = sys.platform,
    root: Path = Path("/"),
    run: programs.Runner = programs.run_program,
) -> HostConfiguration:
    """Return what this machine needs for the torch of ``python`` (None: the running one); nothing is changed.

    ``gfx`` states cards, in the runtime's order, in place of a look: without an installed torch it is about
    the one that would be installed. ``root`` and ``run`` are as in ``detect_hardware``. UsageError for a
    ``python`` that does not run and for variables that cannot be read; DataError for a damaged torch;
    HostError when there are cards and no torch, and when no index has one for stated cards.
    """
    installed = installed_packages.read_installed_packages(python, env)
    torch, environment = installed.torch, installed.environment
    targets: tuple[str, ...] | None = None
    description = f"torch is not installed in {environment.python}"
    if torch is not None and torch.folder is not None:
        targets = gpu_support.list_kernel_targets(installed, "torch")
        description = f"torch {torch.version} ({torch.kind}) in {environment.python}"

    nodes: list[int] = []
    rocm = ""
    if gfx:
        hardware = host.make_host(env, host.StatedMachine(gfx=tuple(gfx), rocm="none")).hardware
        if targets is None:
            targets = _find_future_targets(hardware.targets, platform, environment.minor)
            description += ": for the one that `rocm-wheels install` takes"
    else:
        try:
            hardware = detect.detect_hardware(
                env, root=root, platform=platform, run=run, site_packages=environment.path
            )
        except ValueError as cause:
            raise errors.UsageError(str(cause)) from None
        # what a variable states, or what is seen otherwise, has no place among the driver's nodes
        if any(gpu.source == "kfd" for gpu in hardware.gpus):
            topology = kfd.read_topology(root)
            numbered = zip(topology.gpus, topology.nodes, strict=True)
            nodes = [node for gpu, node in numbered if gpu.index is not None]
            rocm = torch.build.version if torch is not None and torch.kind == "rocm" else ""

    place = ["--python", str(python)] if python else []
    has_cards = any(gpu.vendor == "amd" and gpu.index is not None for gpu in hardware.gpus)
    if targets is None and has_cards and platform != "darwin":
        words = ["rocm-wheels", "install", *(place or ["--venv", install_options.NEW_VENV])]
        raise errors.HostError(
            f"{description}: cannot determine what its kernels need",
            tip=f"{shell.format_command(words)}; or name the Python that has it: --python DIR",
        )
    stated = ["--gfx", ",".join(gfx)] if gfx else []
    doctor = shell.format_command(["rocm-wheels", "doctor", *place, *stated])
    settings, notes = make_settings(hardware, targets, env, platform, nodes=nodes, rocm=rocm, doctor=doctor)
    is_lent = (root / "dev/dxg").exists() and not (root / "dev/kfd").exists()
    if is_lent and targets and _WSL_VARIABLE not in env:
        why = "there is no /dev/kfd in WSL: the runtime reaches the GPU over /dev/dxg, with librocdxg"
        settings = (VariableSetting(_WSL_VARIABLE, "1", why, _WSL_SOURCE), *settings)
    cards = judge_cards(hardware, targets or (), env, platform)
    if platform == "darwin" or any(card.usable or not card.target for card in cards):
        return HostConfiguration(settings, notes, hardware, targets, description)
    lacking = dict.fromkeys(card.target for card in cards)
    tip = f"`{doctor}` names the torch that has them"
    if not any(install_options.list_install_options(gfx, platform=_name_system(platform)) for gfx in lacking):
        tip = "; ".join(install_options.explain_no_torch(gfx)[1] for gfx in lacking)
    return HostConfiguration(settings, notes, hardware, targets, description, tuple(map(str, cards)), tip)


def _find_future_targets(stated: Sequence[str], platform: str, python: str) -> tuple[str, ...]:
    """Return whose kernels the torch has that would be installed for stated cards, as far as tables say.

    HostError, with what people do, where no index has a torch for any of them.
    """
    system = _name_system(platform)
    ways = [install_options.list_install_options(target, platform=system) for target in stated]
    chosen = [install_options.pick_option(options, python) for options in ways]
    targets = dict.fromkeys(option.target for option in chosen if option)
    if stated and not targets:
        message, line = install_options.explain_no_torch(stated[0])
        raise errors.HostError(message, tip=line)
    return tuple(targets)


def detect_shell(env: Mapping[str, str], platform: str) -> str:
    """Return the shell that most likely reads what we print: fish by ``SHELL``, PowerShell on Windows."""
    if env.get("SHELL", "").endswith("fish"):
        return "fish"
    return "powershell" if platform == "win32" and "SHELL" not in env else "sh"
