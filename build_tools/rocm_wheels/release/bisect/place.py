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

from rocm_wheels.parallel import each
from rocm_wheels.release.bisect.question import Asked, Line
from rocm_wheels.release.gate.needed import pythons_of
from rocm_wheels.release.sets import SetDocument

_JOBS = 4


@contextmanager
def index_of(line: Line, asked: Asked, document: SetDocument, folder: Path) -> Iterator[str]:
    """Give the address of a set's own index while the block runs; copies are below ``folder``, then gone."""
    path = f"{line.places.index(document.id)}/"
    if asked.served:
        yield f"{asked.served}{path}"
    elif line.store.folder is not None:
        yield line.store.url_of(path)
    else:
        copied = folder / "copied"
        shutil.rmtree(copied, ignore_errors=True)  # of a run that was killed
        try:
            each(lambda one: _fetch(line, one, copied), _files(line, asked, document), jobs=_JOBS)
            yield f"{(copied / path).as_uri()}/"
        finally:
            shutil.rmtree(copied, ignore_errors=True)


def _files(line: Line, asked: Asked, document: SetDocument) -> list[str]:
    """Return pages, and the wheels that this Python and these GPUs could take, with their METADATA."""
    found = [one.path for one in line.store.listing(line.places.index(document.id))]
    others = tuple(f"-device-{target}" for target in asked.targets)
    for file in document.files:
        own = pythons_of(file.name)
        is_part = "-device-" in file.project
        if (own and asked.python_version not in own) or (is_part and not file.project.endswith(others)):
            continue
        path = line.places.file(file.sha256, file.name)
        found += [path, f"{path}.metadata"]
    return found


def _fetch(line: Line, path: str, copied: Path) -> None:
    target = copied / path
    target.parent.mkdir(parents=True, exist_ok=True)
    line.store.fetch(path, target)
