"""What a stamp needs to know of a wheel, read from its name and its ``.dist-info`` folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rocm_wheels.errors import DataError
from rocm_wheels.variants.metadata import VARIANT_FILE_NAME
from rocm_wheels.variants.rocm_version import strip_rocm_local
from rocm_wheels.wheels.archive.edit_texts import read_metadata_fields, get_field_values
from rocm_wheels.wheels.archive.rewrite import read_dist_info_files
from rocm_wheels.wheels.names import WheelName, parse_wheel_name


@dataclass(frozen=True)
class WheelFacts:
    """A wheel: its name, its Requires-Dist values as written, its ``variant.json`` (None: it has none)."""

    path: Path
    name: WheelName
    requirements: tuple[str, ...]
    document: bytes | None

    def get_release(self, *, keep_local: bool) -> tuple[str, str]:
        """Return project and version of the release that the wheel becomes a variant of."""
        version = self.name.version
        local = (version.local or "") if keep_local else strip_rocm_local(version.local)
        return self.name.name, f"{version.public}+{local}" if local else version.public

    @property
    def is_stamped(self) -> bool:
        """Whether it is a variant wheel, by its name or its content."""
        return self.name.label is not None or self.document is not None


def read_wheel_facts(wheel: Path) -> WheelFacts:
    """Read a wheel's name and ``.dist-info`` folder, and inflate nothing else. DataError when it is none."""
    name = parse_wheel_name(wheel.name)
    files = read_dist_info_files(wheel)
    if "METADATA" not in files:
        raise DataError(f"{wheel}: its .dist-info folder has no METADATA")
    fields, _ = read_metadata_fields(files["METADATA"], f"{wheel}: METADATA")
    return WheelFacts(wheel, name, get_field_values(fields, "Requires-Dist"), files.get(VARIANT_FILE_NAME))
