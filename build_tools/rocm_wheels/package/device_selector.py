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

from rocm_wheels.core import errors
from rocm_wheels.variants import device_names
from rocm_wheels.wheels import dist_info, metadata_wheel

_PREFIX = "gfx"
_BUILD = f"1{_PREFIX}"


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
    # without gfx in front of each the name of one for all GPUs stays below the 255 bytes of file systems
    short = ".".join(target.removeprefix(_PREFIX) for target in targets)
    build = f"{_BUILD}{short}" if targets else fields.build
    name = replace(fields, distribution=project.replace("-", "_"), build=build, label="")
    extras = f"[{','.join(map(device_names.make_device_extra, targets))}]" if targets else ""
    version = dist_info.parse_wheel_name(wheel).version
    summary = f"Brings device code of {host} for {' '.join(targets) or 'no target'}"
    requirement = f"{host}{extras} == {version}"
    text = metadata_wheel.format_metadata_text(project, version, summary, requires_python, [requirement])
    return Selector(name.file_name, metadata_wheel.make_metadata_wheel(name.file_name, text), text)


def read_targets(name: str) -> tuple[str, ...]:
    """Return the targets that the build tag of a selector names: ``1gfx942.950``; none for any other file."""
    try:
        build = dist_info.split_wheel_name(name).build
    except errors.DataError:
        return ()
    if not build.startswith(_BUILD):
        return ()
    return tuple(f"{_PREFIX}{short}" for short in build.removeprefix(_BUILD).split("."))
