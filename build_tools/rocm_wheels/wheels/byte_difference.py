"""Say of two wheels that should have the same bytes in which members they differ, and why.

``wheel diff`` is for two versions; this is for one build that was done twice. A member is named with one
cause, the likeliest that its content shows: a time, a folder, a compiler, an order, or that it only follows
other members (RECORD, build ids, symbols). What shows no cause is called by what differs: text, code, device
code, data. Of a member no more than 64 MiB are looked at for texts, and a path has no more than 32 parts, so
that time and memory are bounded: the wheel may be somebody's who would rather not be found out.

Sources: reproducible-builds.org, "Variations"; System V ABI, "Sections"; GCC and clang write ``.comment``;
PEP 552, the header of .pyc files.
"""

from __future__ import annotations

import mmap
import re
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rocm_wheels.binaries import elf
from rocm_wheels.core import errors, tables
from rocm_wheels.wheels import zip_format
from rocm_wheels.wheels.archive import WheelArchive

Cause = Literal[
    "missing",
    "added",
    "time",
    "path",
    "compiler",
    "order",
    "text",
    "code",
    "device code",
    "data",
    "mode",
    "follows",
]
_MOST_SEARCHED = 64 << 20
_MOST_SHOWN = 70  # letters of a text
_TEXT_RUN = re.compile(rb"[\x20-\x7e]{5,}")
_MONTH = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)"
_TIMES = re.compile(
    rf"\d{{4}}-\d\d-\d\d|{_MONTH} +\d{{1,2}} +\d{{4}}"
    rf"|(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun),? +(?:\d+ +)?{_MONTH}( +\d+)?"
    r"|\d\d:\d\d:\d\d(?:\.\d+)?|\b1[5-9]\d{8}(?:\.\d+)?\b"
)
# clang names each file that it compiles for a GPU by a hash of its path and options
_PATHS = re.compile(r"(?<![\w.])(?:/[\w.+@~ -]{1,255}){0,32}/(?=[\w.+@~-])|(?<=__hip_cuid_)[0-9a-f]{16}")
_COMPILERS = re.compile(r"GCC: \(|clang version|LLD |rustc version")
# parts of a library that are made of the others
_FOLLOWING = re.compile(
    r"\.note\.gnu\.build-id|\.gnu_debuglink|\.(dyn|sh)?str(tab)?|\.(dyn)?sym(tab)?|\.gnu\.hash|\.hash"
    r"|\.gnu\.version.*|\.rela?\..*|\.eh_frame.*|\.got.*|\.plt.*|\.dynamic|\.gcc_except_table|\.debug_.*"
)
_CODE = re.compile(r"\.text.*|\.init|\.fini")
_EXPORTS = ".dynstr"
_DEVICE_CODE = re.compile(r"\.hip.*|\.nv_fatbin|__CLANG_OFFLOAD.*")
_TEXT_CAUSES: tuple[tuple[Cause, re.Pattern[str]], ...] = (("time", _TIMES), ("path", _PATHS))


@dataclass(frozen=True)
class MemberDifference:
    """A member that differs, or ``""`` for the archive around them; ``detail`` shows how, in some words."""

    member: str
    cause: Cause
    detail: str = ""

    def __str__(self) -> str:
        """Return it as a line: ``torch/lib/libtorch.so: path: /a/x.cpp, here /b/x.cpp``."""
        return ": ".join(filter(None, (self.member or "the archive", self.cause, self.detail)))


def explain_differences(published: Path, rebuilt: Path) -> list[MemberDifference]:
    """Return in what a wheel that was built again differs, what explains most first.

    [] for equal members in archives that differ in compression alone. DataError for what is no wheel.
    """
    found: list[MemberDifference] = []
    with WheelArchive.open(published) as old, WheelArchive.open(rebuilt) as new:
        before, after = old.member_by_name, new.member_by_name
        found += [MemberDifference(name, "missing", "not built here") for name in before if name not in after]
        found += [MemberDifference(name, "added", "not published") for name in after if name not in before]
        common = [name for name in before if name in after]
        changed = [
            name
            for name in common
            if (before[name].crc, before[name].size) != (after[name].crc, after[name].size)
        ]
        all_changed = {item.member for item in found} | {*changed}
        with tempfile.TemporaryDirectory(prefix="rocm-wheels-differences-") as folder:
            for name in changed:
                with (
                    _open_member(old, before[name], Path(folder, "published")) as left,
                    _open_member(new, after[name], Path(folder, "rebuilt")) as right,
                ):
                    found.append(_explain_member(name, left, right, all_changed))
        found += _explain_archive(before, after, common)
    return sorted(found, key=lambda item: item.cause == "follows")


def format_differences(found: Sequence[MemberDifference], most: int) -> list[str]:
    """Return them as at most so many lines; the rest is counted by cause."""
    lines = [str(item) for item in found[:most]]
    if len(found) > most:
        rest = Counter(item.cause for item in found[most - 1 :])
        lines[-1] = f"and more: {', '.join(f'{number} by {cause}' for cause, number in rest.items())}"
    return lines


@contextmanager
def _open_member(archive: WheelArchive, entry: zip_format.ZipEntry, place: Path) -> Iterator[memoryview]:
    archive.extract(entry, place)
    if not entry.size:  # what is empty cannot be mapped
        yield memoryview(b"")
        return
    with (
        place.open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped,
        memoryview(mapped) as data,
    ):
        yield data


def _explain_member(name: str, old: memoryview, new: memoryview, changed: set[str]) -> MemberDifference:
    if elf.is_elf(old[:8]) and elf.is_elf(new[:8]):
        return _explain_library(name, old, new)
    if name.endswith(".pyc") and old[16:] == new[16:]:
        return MemberDifference(name, "time", "in its header: it has the time of its source")
    texts = [_decode(data) for data in (old, new)]
    if None in texts:
        return _explain_texts(name, _list_runs([old]), _list_runs([new]), otherwise="data")
    lines = [str(text).splitlines() for text in texts]
    if name.endswith(".dist-info/RECORD"):
        rows = {row.split(",")[0] for row in {*lines[0]} ^ {*lines[1]}}
        if rows and rows <= changed:
            return MemberDifference(name, "follows", "the other members")
    return _explain_texts(name, lines[0], lines[1], otherwise="text")


def _decode(data: memoryview) -> str | None:
    if len(data) > _MOST_SEARCHED or b"\0" in bytes(data[:4096]):
        return None
    try:
        return bytes(data).decode("utf-8")
    except UnicodeDecodeError:
        return None


def _list_runs(parts: Iterable[memoryview]) -> list[str]:
    """Return the printable texts in some parts of a member, in their order."""
    runs, left = list[str](), _MOST_SEARCHED
    for part in parts:  # sections may lie one over another
        runs += [run.decode("ascii") for run in _TEXT_RUN.findall(part[:left])]
        left -= min(left, len(part))
    return runs


def _explain_texts(
    name: str, old: Sequence[str], new: Sequence[str], *, otherwise: Cause
) -> MemberDifference:
    """Find the cause in texts: what one side alone has is the same but for times, or for folders."""
    gone, come = _take_apart(old, new)
    if not gone and not come:
        is_order = list(old) != list(new)
        return MemberDifference(
            name, "order" if is_order else otherwise, _show_first(old, new) if is_order else ""
        )
    for cause, pattern in _TEXT_CAUSES:
        plain = [sorted(pattern.sub("", text) for text in texts) for texts in (gone, come)]
        if plain[0] == plain[1]:
            return MemberDifference(name, cause, _show_pair(gone, come, pattern))
    if Counter("".join(gone)) == Counter("".join(come)):  # one long line, as JSON has it
        return MemberDifference(name, "order", _show_pair(gone, come))
    return MemberDifference(name, otherwise, _show_pair(gone, come))


def _show_first(old: Sequence[str], new: Sequence[str]) -> str:
    number = next((n for n, pair in enumerate(zip(old, new, strict=False)) if pair[0] != pair[1]), 0)
    return f"{_cut(old[number])}, here {_cut(new[number])}" if number < min(len(old), len(new)) else ""


def _show_pair(gone: Sequence[str], come: Sequence[str], pattern: re.Pattern[str] | None = None) -> str:
    """Return the first text of each side, from where they differ."""
    first, second = (next(filter(str.strip, texts), "") for texts in (gone, come))
    if pattern is not None:  # the one that is the same otherwise
        second = next((text for text in come if pattern.sub("", text) == pattern.sub("", first)), second)
    same = next((n for n, pair in enumerate(zip(first, second, strict=False)) if pair[0] != pair[1]), 0)
    start = max(same - 20, 0)
    more = f" ({tables.format_count(len(gone), 'text')} in all)" if len(gone) > 1 else ""
    return f"{_cut(first[start:]) or 'nothing'}, here {_cut(second[start:]) or 'nothing'}{more}"


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_SHOWN else f"{text[: _MOST_SHOWN - 1]}…"


def _explain_library(name: str, old: memoryview, new: memoryview) -> MemberDifference:
    """Compare the sections of two ELF files: what compilers say of themselves, texts, then code."""
    try:
        sides = _read_sections(old, name), _read_sections(new, name)
    except errors.DataError:  # without a section table
        return _explain_texts(name, _list_runs([old]), _list_runs([new]), otherwise="code")

    def read_texts(parts: Sequence[str]) -> tuple[list[str], list[str]]:
        first, second = ([side[part] for part in parts if part in side] for side in sides)
        return _list_runs(first), _list_runs(second)

    names = dict.fromkeys([*sides[0], *sides[1]])
    differing = [part for part in names if sides[0].get(part) != sides[1].get(part)]
    own = [part for part in differing if not _FOLLOWING.fullmatch(part)]
    old_words, new_words = (
        [text for text in texts if _COMPILERS.search(text)] for texts in _take_apart(*read_texts(differing))
    )
    if old_words or new_words:
        return MemberDifference(name, "compiler", _show_pair(old_words, new_words))
    if own and all(_DEVICE_CODE.fullmatch(part) for part in own):
        explained = _explain_texts(name, *read_texts(own), otherwise="device code")
        is_told = explained.cause != "device code"
        return explained if is_told else MemberDifference(name, "device code", ", ".join(own))
    data = [part for part in own if not _CODE.fullmatch(part) and not _DEVICE_CODE.fullmatch(part)]
    for parts in (data, [_EXPORTS]):  # a function that comes earlier moves all code
        explained = _explain_texts(name, *read_texts(parts), otherwise="code")
        if explained.cause != "code":
            return explained
    rooms = [len(side.get(_EXPORTS, b"")) for side in sides]
    if not own and rooms[0] != rooms[1]:  # `wheel repair` leaves the room of what it removes
        detail = f"of the build's own run path, {_EXPORTS} has room for {rooms[0]} bytes, here {rooms[1]}"
        return MemberDifference(name, "path", detail)
    return MemberDifference(name, "code" if own else "follows", ", ".join(own or differing))


def _take_apart(old: Iterable[str], new: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return the texts that one side alone has, or has more often."""
    before, after = Counter(old), Counter(new)
    return list((before - after).elements()), list((after - before).elements())


def _read_sections(data: memoryview, name: str) -> dict[str, memoryview]:
    span = elf.BinarySpan(data, name)
    return {
        section.name: span.get_part(section.offset, section.size, section.name)
        for section in elf.ElfFile(span).read_sections()
    }


def _explain_archive(
    before: dict[str, zip_format.ZipEntry], after: dict[str, zip_format.ZipEntry], common: Sequence[str]
) -> Iterator[MemberDifference]:
    """Yield in what the archives around the members differ: dates, modes, the order of members."""
    dates = [name for name in common if before[name][4:6] != after[name][4:6]]
    modes = [name for name in common if before[name].mode != after[name].mode]
    if dates:
        count = tables.format_count(len(dates), "member")
        yield MemberDifference("", "time", f"the dates of {count}: {dates[0]}")
    for name in modes:
        yield MemberDifference(name, "mode", f"{before[name].mode:o}, here {after[name].mode:o}")
    if common != [name for name in after if name in before]:
        yield MemberDifference("", "order", "the members come in another one")
