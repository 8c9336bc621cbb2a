"""Detect the GPUs of Windows and macOS, where there is no sysfs, with the system's own tools."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from .gpu import Gpu, is_chip_name
from .pci import make_amd_gpu
from .pci_bus import PciCard, count_cards, make_gpu
from .programs import Look
from .vendors import GPU_VENDORS

_TIMEOUT = 30.0  # seconds; a first PowerShell on a cold Windows takes ten
_PNP_SCRIPT = "ForEach-Object { $_.PNPDeviceID + '|' + $_.Name }"
_POWERSHELL = r"C:\Windows\System32\WindowsPowerShell\v1.0\powershell.exe"
_PNP_DEVICE = re.compile(r"VEN_([0-9A-F]{4})&DEV_([0-9A-F]{4})[^|]*(?:\|(.*))?$", re.IGNORECASE)
_CLINFO_FIELD = re.compile(
    r"^\s*(Device Type|Board name|Name|Device Name|Device Board Name \(AMD\))"
    r"(?::[ \t]*|[ \t]{2,})(.*?)[ \t\r]*$",
    re.MULTILINE,
)


def detect_windows_gpus(look: Look, *, only_amd: bool = False) -> list[Gpu]:
    """Return the cards of Windows: what it lists, with the targets that AMD's driver says (clinfo).

    With ``only_amd`` the driver's word is enough when there is one: PowerShell takes a second.
    """
    printed = look.ask(("clinfo",), _TIMEOUT)
    driver_gpus = parse_clinfo(printed or "")
    if printed is not None:
        look.tried.append(f"clinfo: {len(driver_gpus)} AMD GPUs")
        if not driver_gpus and "latform" not in printed:
            look.faults.append(f"clinfo printed no list of platforms, but {printed.strip()[:60]!r}")
    if driver_gpus and only_amd:
        return driver_gpus
    return _join_targets(query_windows(look), driver_gpus)


def parse_pnp_devices(text: str) -> list[PciCard]:
    """Read lines of ``PNPDeviceID|name``; a device that is not on PCI (a remote display) is left out."""
    cards = []
    for match in filter(None, map(_PNP_DEVICE.search, text.splitlines())):
        card = PciCard(f"{match[1]}:{match[2]}".lower(), "", (match[3] or "").strip())
        cards.append(card)
    return cards


def parse_clinfo(text: str) -> list[Gpu]:
    """Read AMD's GPUs in what clinfo prints: AMD's own program, or the one of Linux distributions.

    A device begins with its type in the one (``Device Type: …``), with its name in the other (columns).
    """
    devices: list[dict[str, str]] = []
    for key, value in _CLINFO_FIELD.findall(text):
        if key == "Device Name" or (key == "Device Type" and (not devices or key in devices[-1])):
            devices.append({})
        if devices:
            devices[-1].setdefault(key, value)
    gpus: list[Gpu] = []
    for device in devices:
        chip = device.get("Name", device.get("Device Name", "")).split(":")[0]
        if "GPU" in device.get("Device Type", "") and is_chip_name(chip):
            name = device.get("Board name") or device.get("Device Board Name (AMD)") or ""
            gpus.append(make_amd_gpu(chip, "clinfo", name=name, index=len(gpus)))
    return gpus


def detect_macos_gpus(look: Look) -> list[Gpu]:
    """Return the cards of a Mac."""
    printed = look.ask(("system_profiler", "-json", "SPDisplaysDataType"), _TIMEOUT)
    if printed is None:
        return []
    gpus = parse_system_profiler(printed)
    look.tried.append(f"system_profiler: {'no answer' if gpus is None else count_cards(gpus)}")
    if gpus is None:
        look.faults.append(f"system_profiler printed no list of displays, but {printed.strip()[:60]!r}")
    return gpus or []


def parse_system_profiler(text: str) -> list[Gpu] | None:
    """Read the JSON of ``SPDisplaysDataType``; None when it is none."""
    import json

    try:
        cards = json.loads(text)["SPDisplaysDataType"]
        gpus = [_make_mac_gpu(card) for card in cards]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    return [gpu for gpu in gpus if gpu]


def _make_mac_gpu(card: Mapping[str, object]) -> Gpu | None:
    vendor_text = str(card.get("spdisplays_vendor", "")).lower()
    name = str(card.get("sppci_model") or card.get("_name") or "")
    number = re.search(r"0x([0-9a-f]{4})", vendor_text)
    vendor = (
        number[1]
        if number
        else next((maker.pci_id for key, maker in GPU_VENDORS.items() if key in vendor_text), "")
    )
    device = re.fullmatch(r"0x([0-9a-f]{4})", str(card.get("spdisplays_device-id", "")).lower())
    if vendor == GPU_VENDORS["apple"].pci_id:
        return Gpu("apple", name=name, integrated=True, source="system_profiler", confidence="read")
    gpu = make_gpu(PciCard(f"{vendor}:{device[1] if device else ''}", "", name), "system_profiler")
    return replace(gpu, pci_id=gpu.pci_id if device else None, address=None) if gpu else None


def query_windows(look: Look, powershell: str = _POWERSHELL) -> list[Gpu]:
    """Return the cards that the PowerShell of Windows lists; a WSL has one on its PATH: that around it."""
    for command in ("Get-CimInstance", "Get-WmiObject"):  # the second is all that PowerShell 2 has
        script = f"{command} Win32_VideoController | {_PNP_SCRIPT}"
        words = (powershell, "-NoProfile", "-NonInteractive", "-Command", script)
        answer = look.run(words, look.env, _TIMEOUT)
        if not answer.installed:
            look.tried.append("PowerShell: not installed")
            return []
        if not answer.fault:
            gpus = [make_gpu(card, "wmi") for card in parse_pnp_devices(answer.out)]
            listed_gpus = [replace(gpu, address=None) for gpu in gpus if gpu]
            look.tried.append(f"{command}: {count_cards(listed_gpus)}")
            return listed_gpus
        look.tried.append(f"{command}: no answer")
        look.faults.append(answer.fault)
    return []


def _join_targets(cards: list[Gpu], driver_gpus: list[Gpu]) -> list[Gpu]:
    """Give each card the target that the driver says: the card whose table entry agrees, else the next one.

    Without the driver's word AMD's cards are numbered as Windows lists them.
    """
    remaining, joined = list(driver_gpus), []
    for card in cards:
        if card.vendor != "amd":
            joined.append(card)
            continue
        matching = [gpu for gpu in remaining if card.gfx in {None, gpu.gfx}]
        if matching:
            remaining.remove(matching[0])
            joined.append(
                replace(matching[0], name=card.name, pci_id=card.pci_id, integrated=card.integrated)
            )
        else:
            number = sum(joined_gpu.vendor == "amd" for joined_gpu in joined)
            joined.append(replace(card, index=None if driver_gpus else number))
    return [*joined, *remaining]
