"""Limits of what a file may state about itself: counts and sizes, held before anything is made of them.

A file of some kilobytes can state a million entries, or have them all share one text: what is made of them is
gigabytes. A wheel can hold thousands of such files. Real ones stay far below each of these limits; with them,
what is made of a file is not much more than its bytes. What the format itself limits has no limit here: 16
bits for program headers, of which a pruned library has thousands.
"""

from __future__ import annotations

from rocm_wheels.core import errors


class LimitError(errors.DataError):
    """A file states more than any real one has: nothing of it is read, and no other tool is given it."""


MOST_SECTIONS = 1 << 17  # of an ELF file; objects with a section a function have some ten thousand
MOST_IMAGE_SECTIONS = 1 << 10  # of a DLL; Windows once loaded 96, and linkers make a dozen
MOST_SECTION_NAME_BYTES = 16 << 20  # of all names in a file, which can share their texts
MOST_DYNAMIC_ENTRIES = 1 << 12  # some dozens in real libraries
MOST_IMPORTS = 1 << 12  # DLLs that one names: some dozens
MOST_LIBRARY_NAME_BYTES = 1 << 16  # of all that a library needs, or of versions
MOST_RUN_PATHS = 1 << 2  # the loader heeds one
LONGEST_RUN_PATH = 1 << 16  # some kilobytes have been published
MOST_VERSIONS = 1 << 12  # of symbols, needed or defined: some dozens
MOST_SYMBOLS = 1 << 21  # libtorch_cpu has 75,000, libtensorflow_cc 264,000
MOST_SYMBOL_NAME_BYTES = 64 << 20
"""What the names of dynamic symbols take together; more where the text that they stand in is longer."""
MOST_SYMBOL_TEXT = 256 << 20  # libtensorflow_cc 2.21 has 82 MB
MOST_RELOCATIONS = 1 << 23  # some hundred thousand in the largest libraries
MOST_RECORDS = 1 << 16  # of .hipFatBinSegment, one a translation unit
MOST_VALUES = 1 << 20  # of a table in MessagePack: ten a kernel

_MOST_CODE_OBJECTS = 1 << 18  # one a target and translation unit: librocblas 5 has 910 of 14 targets
_LEAST_OBJECT = 64  # bytes of a file for each: the smallest compressed ones have some hundred
_MOST_RATIO, _HARMLESS = 200, 256 << 10  # code becomes a fifth to a twentieth; zeros become nothing


def get_object_limit(size: int) -> int:
    """Return how many code objects a file of ``size`` bytes can have."""
    return min(_MOST_CODE_OBJECTS, size // _LEAST_OBJECT)


def get_plain_limit(size: int) -> int:
    """Return how many bytes ``size`` bytes of compressed device code can hold."""
    return _MOST_RATIO * size + _HARMLESS
