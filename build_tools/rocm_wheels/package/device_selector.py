"""Write device selectors: wheels of some hundred bytes that say which device code a plain install brings.

The host wheel of a split set requires ``amd-torch-device`` of its own version, whose wheel has the host's
tags. The one that is split off requires the host alone, and so brings no device code. The index of a target
lists another of the same version in its place, with a build tag that names the target; it requires the host
with the extra of that target: ``torch[device-gfx942]``. So ``pip install torch`` there brings host and device
wheels, and the host's bytes, METADATA among them, are the same in every index.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rocm_wheels.variants import device_names
from rocm_wheels.wheels import dist_info, metadata_wheel


@dataclass(frozen=True)
class Selector:
    """A selector: the name of its file, the bytes of the wheel, and those of its METADATA."""

    file: str
    content: bytes
    metadata: bytes


def make_selector(host: str, wheel: str, requires_python: str, targets: Sequence[str] = ()) -> Selector:
    """Return the selector of a host wheel for ``targets`` (base targets); of none it is the neutral one.

    ``host`` is the distribution as METADATA spells it, ``wheel`` the file name of the host wheel or of one of
    its selectors, ``requires_python`` "" where the host states none. DataError for what is no wheel's name.
    """
    project = device_names.make_selector_name(host)
    fields = dist_info.split_wheel_name(wheel)
    build = f"1{'.'.join(targets)}" if targets else fields.build
    name = replace(fields, distribution=project.replace("-", "_"), build=build, label="")
    extras = f"[{','.join(map(device_names.make_device_extra, targets))}]" if targets else ""
    version = dist_info.parse_wheel_name(wheel).version
    metadata = [
        "Metadata-Version: 2.4",
        f"Name: {project}",
        f"Version: {version}",
        f"Summary: Brings device code of {host} for {' '.join(targets) or 'no target'}",
        *([f"Requires-Python: {requires_python}"] if requires_python else []),
        f"Requires-Dist: {host}{extras} == {version}",
    ]
    text = "".join(f"{line}\n" for line in metadata).encode()
    return Selector(name.file_name, metadata_wheel.make_metadata_wheel(name.file_name, text), text)
