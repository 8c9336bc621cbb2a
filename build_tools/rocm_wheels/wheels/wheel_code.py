"""Device code of a wheel by member, or of a file: what tables, sets and packaging ask for alone."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from rocm_wheels.core import files
from rocm_wheels.device_code import code_objects
from rocm_wheels.wheels import archive, rewrite, write_together


@dataclass(frozen=True)
class FoundDeviceCode:
    """What a wheel or zip archive holds by member, another file as member "".

    ``code``: code objects. ``moved_code``: the libraries whose code was moved out, with the ``.kpack``
    archives that they name, relative to themselves; ``@GFXARCH@`` stands for a target.
    """

    code: dict[str, list[code_objects.CodeObject]]
    moved_code: dict[str, tuple[str, ...]]


def read_device_code(path: Path, *, whole: bool = True) -> FoundDeviceCode:
    """Read a wheel, a zip archive or another file; without ``whole`` the tables of compressed bundles only.

    Members of other kinds cost a few bytes of inflating. Memory: about 64 MiB a thread; a larger member goes
    through a temporary file. DataError when a file cannot be read or is damaged.
    """
    try:
        with files.open_regular_file(path) as file:
            is_archive = file.read(4) == code_objects.ZIP_MAGIC or path.suffix.lower() == ".whl"
    except OSError as cause:
        raise code_objects.make_unreadable_error(path, cause) from None
    if is_archive:
        with archive.WheelArchive.open(path) as wheel:
            return read_archive_code(wheel, whole=whole)
    objects, archives = _read_content(code_objects.map_file(path), str(path), whole)
    return FoundDeviceCode({"": objects}, {"": archives} if archives else {})


_Reading = tuple[list[code_objects.CodeObject], tuple[str, ...]]


def _read_content(data: memoryview, name: str, whole: bool) -> _Reading:
    """Return the code objects of a file, and the archives that it names."""
    objects = code_objects.read_code_objects(data, name, whole=whole)
    return objects, code_objects.list_named_archives(data, name)


def read_archive_code(wheel: archive.WheelArchive, *, whole: bool, digest: bool = False) -> FoundDeviceCode:
    """Return the device code of an open wheel or zip; with ``digest`` all of its members are hashed as well.

    DataError for a damaged member.
    """

    def choose_reader(name: str, head: bytes) -> Callable[[memoryview], _Reading] | None:
        if not code_objects.may_hold_code(name, head):
            return None
        return lambda data: _read_content(data, f"{wheel.path}: {name}", whole)

    readings = wheel.read_chosen(choose_reader, digest=digest)
    return FoundDeviceCode(
        {name: objects for name, (objects, _) in readings.items() if objects},
        {name: archives for name, (_, archives) in readings.items() if archives},
    )


class CopiedWheel(NamedTuple):
    """A wheel whose rewriting has begun, and its device code as its tables tell."""

    rewrite: rewrite.BegunRewrite
    code: FoundDeviceCode


@contextmanager
def begin_copies(
    wheels: Sequence[Path], folder: Path | None, batch: write_together.WheelBatch
) -> Iterator[dict[Path, Future[CopiedWheel]]]:
    """Begin to copy wheels into a batch (for ``folder``; None: beside each), and to read the tables of their
    device code, as many at a time as there are cores; the same pass hashes all that is copied.

    For what stays the same whatever is decided. What comes raises DataError for a wheel that is not sound.
    """

    def copy(wheel: Path) -> CopiedWheel:
        stage = batch.find_stage(folder or wheel.parent)
        begun = copies.enter_context(rewrite.begin_rewrite(wheel, stage))
        return CopiedWheel(begun, read_archive_code(begun.archive, whole=False, digest=True))

    with ExitStack() as copies:
        pool = ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="rocm-wheels")
        try:
            yield {wheel: pool.submit(copy, wheel) for wheel in dict.fromkeys(wheels)}
        finally:
            pool.shutdown(cancel_futures=True)  # before what it reads is closed
