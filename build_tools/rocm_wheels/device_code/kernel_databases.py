"""Kernel databases of ROCm's libraries: files beside a library that are labelled with a target each.

Sources of labels: rocBLAS, hipBLASLt and hipSPARSELt (``library/*_<gfx>[-xnack+].*``, ``library/<gfx>/*``),
MIOpen (``share/miopen/db/<gfx><compute units>*``, ``libMIOpenCK*_<gfx>.so``), aotriton
(``aotriton.images/amd-gfx11xx``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from rocm_wheels.binaries import elf
from rocm_wheels.device_code import code_objects, kpack

_DATABASE = re.compile(
    r"(?:^|/)(?:rocblas|hipblaslt|hipsparselt)/(?:[^/]+/)*library/"
    r"|(?:^|/)share/miopen/db/|(?:^|/)aotriton\.images/|(?:^|/)(?=libMIOpenCK[^/]*$)"
)
_LABEL = re.compile(
    r"(?<![a-z0-9])gfx(?P<number>[0-9][0-9a-fx]*(?:-[0-9]+)*(?:-generic)?)(?P<features>(?:-[a-z]+[+-])*)"
)
_FEATURE = re.compile(r"-([a-z]+)([+-])")
_KNOWN_PROCESSORS = sorted(code_objects.ELF_MACHINES.values(), key=lambda name: (-len(name), name))
_KERNEL_LIST = re.compile(r"(?:^|/)(?P<stem>Tensile(?:Lite)?Library)_lazy_(?P<target>gfx[0-9a-f]+)\.dat$")


def is_label(text: str) -> bool:
    """Tell whether a text is a label as such files have them."""
    return _LABEL.fullmatch(text) is not None


def parse_label(label: str) -> code_objects.TargetId | None:
    """Return the target that a label names; None for one that names a family (``gfx11xx``)."""
    match = _LABEL.fullmatch(label)
    assert match, label
    if "x" in match["number"]:
        return None
    processor = f"gfx{match['number']}"
    if processor not in _KNOWN_PROCESSORS:  # MIOpen writes the number of compute units behind it
        processor = next((name for name in _KNOWN_PROCESSORS if processor.startswith(name)), processor)
    features = "".join(f":{name}{sign}" for name, sign in _FEATURE.findall(match["features"]))
    return code_objects.TargetId.parse(processor + features)


def is_database_file(name: str) -> bool:
    """Tell whether a file lies in a kernel database, labelled or not."""
    return _DATABASE.search(name) is not None


def list_database_labels(name: str) -> list[str]:
    """Return the targets that the name of a kernel database's file has; [] for all other files."""
    place = _DATABASE.search(name)
    return [match[0] for match in _LABEL.finditer(name, place.end())] if place else []


def get_kernel_list_target(name: str) -> str | None:
    """Return the target of a file that lists a target's kernel files (``TensileLibrary_lazy_gfx942.dat``)."""
    match = _KERNEL_LIST.search(name)
    return match["target"] if match else None


def read_kernel_list(data: memoryview, name: str) -> tuple[str, ...]:
    """Return the stems of kernel files that such a list names, sorted; DataError when it is damaged.

    It is MessagePack; texts in it that begin with ``TensileLibrary_`` are stems. Seen in the packages of
    ROCm 7.2.4, where this holds without an exception.
    """
    value = kpack.unpack_messagepack(elf.BinarySpan(data, name))
    return tuple(sorted({text for text in _walk_texts(value) if text.startswith("TensileLibrary_")}))


def _walk_texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield key
            yield from _walk_texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _walk_texts(item)
