"""Check what libraries must find in others: symbols, and versions of them.

The loader looks for a symbol in everything that is loaded, not only in what a library is linked to itself:
what counts is whether any library of the wheel, or of the packages that it requires, defines it. So a library
is judged where all that it is linked to, directly or not, is at hand. Libraries of the system are not: their
symbols have versions, which the check of tags compares. Weak symbols may stay undefined.

Sources: System V ABI, "Symbol Table"; Linux Standard Base, "Symbol Versioning"; glibc, ``elf/dl-lookup.c``
and ``elf/dl-version.c`` (what the loader takes, and what it refuses); ISO C17, 7.3, 7.6, 7.12, and
POSIX.1-2017, "System Interfaces" (names of the C library).
"""

from __future__ import annotations

import ctypes
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from rocm_wheels.audit.audited_wheel import AuditedWheel
from rocm_wheels.audit.definition import Findings, Skip, check, error, join_names, warning
from rocm_wheels.audit.needs import list_library_names
from rocm_wheels.binaries import loader
from rocm_wheels.core import tables
from rocm_wheels.wheels import platform_promises

if TYPE_CHECKING:
    from collections.abc import Mapping

# of glibc and GCC: whoever links to them is given versions for every symbol
_VERSIONED_SYSTEM = re.compile(
    r"lib(c|m|mvec|pthread|dl|rt|util|resolv|anl|nsl|gcc_s|stdc\+\+|gomp|atomic|gfortran|quadmath)\.so\.\d+"
)
_SYSTEM_VERSION = re.compile(r"(GLIBC|GLIBCXX|CXXABI|GCC)_")
_PYTHON_SYMBOL = re.compile(rb"_?Py")
# Python is linked to the whole C library: who is not linked to a part of it finds it all the same, by names
# without a version
_C_LIBRARY_SYMBOL = re.compile(
    rb"dl(?:open|sym|vsym|close|error|addr|addr1|info|mopen|_iterate_phdr)"
    rb"|(?:pthread|sem|mq|timer|clock|aio|lio|shm|sched)_\w+"
    rb"|fe(?:clear|get|raise|set|test|hold|update)\w+"
    rb"|c?(?:a?(?:cos|sin|tan)h?|exp|log|log10|pow|sqrt|abs|arg|imag|real|conj|proj)[fl]?"
    rb"|(?:atan2|cbrt|ceil|copysign|drem|erfc?|exp2|exp10|expm1|fabs|fdim|floor|fmax?|fmin|fmod|frexp|gamma"
    rb"|hypot|ilogb|[jy][01n]|ldexp|lgamma|lgamma_r|ll?rint|ll?round|log1p|log2|logb|modf|nan|nearbyint"
    rb"|nextafter|nexttoward|remainder|remquo|rint|round|roundeven|scalb|scalbl?n|significand|sincos|tgamma"
    rb"|trunc|finite)[fl]?|signgam"
)


@dataclass(frozen=True)
class LibraryScope:
    """The libraries of a wheel and of what it requires, as far as it is at hand, by SONAME and file name."""

    by_name: Mapping[str, list[loader.HostBinary]]

    def find_absent(self, libraries: Iterable[str]) -> set[str]:
        """Return what is neither at hand nor of the system: of libraries, and what they are linked to."""
        reached, waiting = set(libraries), list(libraries)
        while waiting:
            binaries = self.by_name.get(waiting.pop(), ())
            needed = {need for binary in binaries for need in binary.loader.needed} - reached
            waiting += needed
            reached |= needed
        return {name for name in reached if name not in self.by_name and not _is_of_system(name)}

    def lacks_version(self, version: loader.SymbolVersion) -> bool:
        """Tell whether a library is at hand, and does not define a version that somebody needs of it."""
        symbols = _list_symbols(self.by_name.get(version.library, ()))
        return bool(symbols) and not any(version.name in each.versions for each in symbols)

    def has_versions(self, library: str) -> bool:
        """Tell whether a library at hand defines versions at all."""
        return any(each.versions for each in _list_symbols(self.by_name.get(library, ())))

    def list_judged(self, binary: loader.HostBinary, *, is_whole: bool) -> list[loader.SymbolVersion]:
        """Return the versions ("" without one) whose symbols a library must find in what is at hand.

        Those of the system are not there; those that a library at hand lacks are a finding of their own.
        What has no version can be anywhere: everything must be at hand then (``is_whole``). Who is not linked
        to the C library finds that without a version, too: see ``_is_of_process``.
        """
        undefined = binary.symbols.undefined if binary.symbols is not None else {}
        linked = binary.loader.needed
        is_complete = is_whole and not self.find_absent(linked)
        if "libc.so.6" not in linked:
            is_complete = is_complete and sys.platform == "linux"
        return [version for version in undefined if (self._has(version) if version.library else is_complete)]

    def _has(self, version: loader.SymbolVersion) -> bool:
        if version.library not in self.by_name or _SYSTEM_VERSION.match(version.name):
            return False
        return not (self.has_versions(version.library) and self.lacks_version(version))

    def collect_definitions(self, names: frozenset[bytes]) -> dict[bytes, set[str]]:
        """Return the versions ("" without one) that symbols are defined with."""
        definitions: dict[bytes, set[str]] = {}
        distinct = {id(binary): binary for libraries in self.by_name.values() for binary in libraries}
        for symbols in _list_symbols(distinct.values()):
            for version, exported in symbols.exported.items():
                for block in exported.iterate_blocks():
                    for name in names.intersection(block):
                        definitions.setdefault(name, set()).add(version)
        return definitions


def _collect_scope(wheel: AuditedWheel) -> LibraryScope:
    by_name: dict[str, list[loader.HostBinary]] = {}
    for member, binary in wheel.binaries.items():
        for name in () if binary.loader.program else list_library_names(member, binary):
            by_name.setdefault(name, []).append(binary)
    for name, binary in wheel.required.binaries.items() if wheel.required else ():
        by_name.setdefault(name, []).append(binary)
    return LibraryScope(by_name)


@check("RW052 needed-symbols (error)")
def check_needed_symbols(wheel: AuditedWheel) -> Findings:
    """Every symbol that libraries must find is defined.

    Why: Loading ends with: undefined symbol; or the first call does.
    Fix: Link to the library that has it, or compile with the headers of the one that will be there.

    A library that import never loads, one for each ROCm, may lack some: without a recipe it is a warning.
    """
    wheel.require_linux_libraries()
    scope = _collect_scope(wheel)
    is_whole = not any(name.startswith(("rocm", "torch")) for name in wheel.list_absent_packages())
    needed = {
        member: binary.symbols.select_undefined(scope.list_judged(binary, is_whole=is_whole))
        for member, binary in wheel.binaries.items()
        if binary.symbols is not None
    }
    if not any(needed.values()):
        reason = "what its libraries must find is of the system, or in packages that are not at hand"
        raise Skip(f"{reason}: --find-links")
    definitions = scope.collect_definitions(frozenset(name for pairs in needed.values() for name, _ in pairs))
    for member, pairs in needed.items():
        undefined = {name for name, version in pairs if not _is_defined(name, version, definitions)}
        if "libc.so.6" not in wheel.binaries[member].loader.needed:
            undefined = {name for name in undefined if not _is_of_process(name)}
        if undefined:
            listed = join_names(sorted(name.decode("utf-8", "replace") for name in undefined))
            count = tables.format_count(len(undefined), "symbol")
            finding = error if wheel.has_recipe or member in wheel.loaded_libraries else warning
            yield finding(f"needs {count} that no library at hand defines: {listed}", member)


@check("RW053 needed-versions (error)")
def check_needed_versions(wheel: AuditedWheel) -> Findings:
    """Every symbol version that libraries need of others is defined there.

    Why: Loading ends with: version not found.
    Fix: Require the version of the library that it was linked to.

    The loader refuses a library when one that it needs defines other versions; one that defines none at all
    it takes, with a message each time.
    """
    wheel.require_linux_libraries()
    scope = _collect_scope(wheel)
    for member, binary in wheel.binaries.items():
        lacking: dict[str, list[str]] = {}
        for version in sorted(binary.symbols.needed) if binary.symbols is not None else ():
            if scope.lacks_version(version) and not _SYSTEM_VERSION.match(version.name):
                lacking.setdefault(version.library, []).append(version.name)
        for library, names in lacking.items():
            message = f"needs {join_names(names)} of {library}, which it does not define"
            if not scope.has_versions(library):
                yield warning(f"{message}, as it defines none", member)
            elif wheel.has_recipe or member in wheel.loaded_libraries:
                yield error(message, member)
            else:
                yield warning(message, member)


def _list_symbols(binaries: Iterable[loader.HostBinary]) -> list[loader.DynamicSymbols]:
    return [binary.symbols for binary in binaries if binary.symbols is not None]


def _is_of_system(library: str) -> bool:
    if library.startswith("libpython3") or platform_promises.is_dynamic_linker(library):
        return True
    return _VERSIONED_SYSTEM.fullmatch(library) is not None


# what compilers call without a word in the source, of libraries that come with them
_OF_COMPILER = re.compile(
    rb"_ZN?K?S[tabsiod]|_ZT[VIST]N?S?t?10__cxxabiv1|_Zn[aw]|_Zd[al]|__cxa_|__gxx_|_Unwind_|__\w+[dsxthq][ifc][2-5]?$|__gcc_"
)


def _is_of_process(name: bytes) -> bool:
    """Tell whether whoever runs in this Python finds a symbol, as the C library's are; of Linux alone."""
    return bool(_OF_COMPILER.match(name)) or hasattr(_open_process(), name.decode("utf-8", "replace"))


@cache
def _open_process() -> ctypes.CDLL:
    return ctypes.CDLL(None)


def _is_defined(name: bytes, version: str, definitions: Mapping[bytes, set[str]]) -> bool:
    """Tell whether a symbol will be found; a library without versions is taken for every version."""
    versions = definitions.get(name, set())
    if versions and (not version or not versions.isdisjoint({version, ""})):
        return True
    return bool(_PYTHON_SYMBOL.match(name) or _C_LIBRARY_SYMBOL.fullmatch(name))
