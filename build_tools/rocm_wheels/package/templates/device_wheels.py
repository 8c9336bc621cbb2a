"""Say at import which device wheels are missing. Written by `rocm-wheels wheel split`; edits are lost."""

from __future__ import annotations

import warnings
from pathlib import Path

HOST = ""
EXTRAS: dict[str, tuple[str, ...]] = {}  # by the extra of a GPU target: the device wheels that it brings


def warn_of_missing_wheels() -> None:
    """Warn when no device wheel is installed, or none for a GPU that Linux sees here."""
    missing = [extra for extra, names in EXTRAS.items() if not all(map(_is_installed, names))]
    present = [extra for extra in _list_local_extras() if extra in EXTRAS]
    if absent := [extra for extra in present if extra in missing]:
        reason = f"{HOST} has no kernels for the GPU of this machine: its device wheel is not installed"
    elif not present and len(missing) == len(EXTRAS):
        reason = f"{HOST} has no kernels: none of its device wheels is installed"
        absent = missing
    else:
        return
    choices = " or ".join(f"pip install '{HOST}[{extra}]'" for extra in absent)
    warnings.warn(f"{reason}. Install it from the index that {HOST} is from: {choices}", stacklevel=2)


def _is_installed(name: str) -> bool:
    """Tell whether a device wheel is unpacked over the package, which it has to be."""
    folder = Path(__file__).parent.parent
    return any(folder.glob(f"{name.replace('-', '_')}-*.dist-info"))


def _list_local_extras() -> list[str]:
    """Return the extras of the GPUs that the kernel driver lists; none where there is no such list."""
    extras = []
    for path in sorted(Path("/sys/class/kfd/kfd/topology/nodes").glob("*/properties")):
        try:
            lines = path.read_text(encoding="ascii").splitlines()
            values = dict(line.split(None, 1) for line in lines if " " in line)
            number = int(values.get("gfx_target_version", 0))
        except (OSError, ValueError):
            continue
        if number:
            extras.append(f"device-gfx{number // 10000}{number // 100 % 100:x}{number % 100:x}")
    return list(dict.fromkeys(extras))


warn_of_missing_wheels()
