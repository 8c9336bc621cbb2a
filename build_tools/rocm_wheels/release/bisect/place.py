"""Where uv finds a set: as somebody serves the store, in its folder, or copied out of it.

uv takes indexes over http and in folders (``file:``), with links relative to the page. A bucket answers for
files alone and not for folders, and may be closed: of such a store the set's pages and its wheels for one
Python are copied, so that the links hold.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rocm_wheels.parallel import run_in_parallel
from rocm_wheels.release.bisect.question import ProbeRequest, SetLine
from rocm_wheels.release.gate.needed import list_wheel_pythons
from rocm_wheels.release.sets import SetDocument

_FETCH_JOBS = 4


@contextmanager
def provide_index(line: SetLine, request: ProbeRequest, document: SetDocument, folder: Path) -> Iterator[str]:
    """Give the address of a set's own index while the block runs; copies are below ``folder``, then gone."""
    path = f"{line.paths.set_index(document.id)}/"
    if request.served:
        yield f"{request.served}{path}"
    elif line.store.folder is not None:
        yield line.store.url_of(path)
    else:
        copied = folder / "copied"
        shutil.rmtree(copied, ignore_errors=True)  # of a run that was killed
        try:
            run_in_parallel(
                lambda file_path: _fetch_file(line, file_path, copied),
                _list_needed_files(line, request, document),
                jobs=_FETCH_JOBS,
            )
            yield f"{(copied / path).as_uri()}/"
        finally:
            shutil.rmtree(copied, ignore_errors=True)


def _list_needed_files(line: SetLine, request: ProbeRequest, document: SetDocument) -> list[str]:
    """Return pages, and the wheels that this Python and these GPUs could take, with their METADATA."""
    paths = [listed.path for listed in line.store.listing(line.paths.set_index(document.id))]
    device_suffixes = tuple(f"-device-{target}" for target in request.targets)
    for file in document.files:
        pythons = list_wheel_pythons(file.name)
        is_part = "-device-" in file.project
        if (pythons and request.python_version not in pythons) or (
            is_part and not file.project.endswith(device_suffixes)
        ):
            continue
        path = line.paths.wheel_file(file.sha256, file.name)
        paths += [path, f"{path}.metadata"]
    return paths


def _fetch_file(line: SetLine, path: str, copied: Path) -> None:
    target = copied / path
    target.parent.mkdir(parents=True, exist_ok=True)
    line.store.fetch(path, target)
