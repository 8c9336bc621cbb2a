"""``torch/_rocm_init.py``: the generated module that starts the ROCm packages at ``import torch``.

torch imports it when it is there and calls ``initialize()``. The rocm_sdk package raises for a library
name that it does not know or does not find, on every user's machine. So the names of
``data/preload_libraries.yaml`` are put to the rocm_sdk of the build environment one by one; what it has
not is left out, stands as a comment in the module, and is reported to the caller.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from pydantic import model_validator

from rocm_wheels.compile.generated_files import exclude_from_git
from rocm_wheels.core import (
    Record,
    SdkError,
    capture_output,
    load_record,
    make_record_error,
    write_atomically,
)
from rocm_wheels.models import Platform, get_data_folder

_PROBE_SCRIPT = """\
import json, sys
import rocm_sdk
answers = {}
for name in sys.argv[1:]:
    try:
        rocm_sdk.find_libraries(name)
    except Exception as fault:
        answers[name] = str(fault) or type(fault).__name__
json.dump(answers, sys.stdout)
"""


class _PreloadTable(Record):
    required: tuple[str, ...]
    linux: tuple[str, ...]
    windows: tuple[str, ...]

    @model_validator(mode="after")
    def _required_are_listed(self) -> _PreloadTable:
        for name in self.required:
            if name not in self.linux or name not in self.windows:
                raise make_record_error(f"{name} is required, but a platform does not list it", "required")
        return self


@dataclass(frozen=True)
class Preloads:
    """Libraries to load first, in order, and those left out with the SDK's reason."""

    libraries: tuple[str, ...]
    left_out: Mapping[str, str] = field(default_factory=dict)

    def warning(self) -> str | None:
        """Say what was left out, or ``None``."""
        if not self.left_out:
            return None
        return f"the ROCm SDK has not got, so torch will not preload: {', '.join(self.left_out)}"


@lru_cache
def _load_preload_table() -> _PreloadTable:
    return load_record(get_data_folder() / "preload_libraries.yaml", _PreloadTable)


def list_preload_names(platform: Platform) -> tuple[str, ...]:
    """Return the libraries of a platform, in loading order."""
    return _load_preload_table().linux if platform == "linux" else _load_preload_table().windows


def ask_preloads(python: Path, platform: Platform, env: Mapping[str, str]) -> Preloads:
    """Ask the rocm_sdk that ``python`` imports for every library of the platform.

    Raises SdkError when it cannot be asked, or lacks one without which torch cannot work.
    """
    names = list_preload_names(platform)
    answer = capture_output(
        [python, "-c", _PROBE_SCRIPT, *names],
        env=env,
        check=SdkError,
        description="asking rocm_sdk for its libraries",
        tip="install the libraries: rocm[libraries]",
    )
    try:
        left_out = dict(json.loads(answer))
    except ValueError as cause:
        raise SdkError(f"rocm_sdk gave no list of libraries: {answer[:200]!r}") from cause
    return select_preloads(names, left_out)


def select_preloads(names: tuple[str, ...], left_out: Mapping[str, str]) -> Preloads:
    """Split the names; SdkError when a required one is among those left out."""
    for name in _load_preload_table().required:
        if name in left_out:
            raise SdkError(
                f"the ROCm SDK has no {name}: {left_out[name]}", tip="install the libraries: rocm[libraries]"
            )
    libraries = tuple(name for name in names if name not in left_out)
    return Preloads(libraries, {name: left_out[name] for name in names if name in left_out})


def render_rocm_init(rocm_version: str, preloads: Preloads) -> str:
    """Write the module. The same input gives the same text."""
    names = "".join(f'            "{name}",\n' for name in preloads.libraries)
    missing = "".join(
        f"# not preloaded, the SDK of the build has not got it: {name}\n" for name in preloads.left_out
    )
    return f'''"""Start the ROCm packages that this torch was built with. Generated; edits are lost."""

{missing}
def initialize():
    """Load the ROCm libraries before torch's own, and warn when another ROCm is installed."""
    import rocm_sdk

    rocm_sdk.initialize_process(
        preload_shortnames=[
{names}        ],
        check_version="{rocm_version}",
    )
'''


def write_generated_file(source: Path, name: str, text: str, *, env: Mapping[str, str]) -> bool:
    """Write a generated file into a source tree if its content changes; tell whether it did.

    A change of its date alone would rebuild what depends on it. Git is told not to see the file.
    """
    path = source / name
    changed = not path.is_file() or path.read_bytes() != text.encode("utf-8")
    if changed:
        write_atomically(path, text)
    exclude_from_git(source, [name], env)
    return changed
