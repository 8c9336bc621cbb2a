"""Compare CMake's cache with the options that were asked for, while a front end runs.

CMake goes on without a part that it does not find, and ends with success. torch's CMake then writes
``USE_ROCM:BOOL=OFF`` into its cache (``caffe2_update_option`` in cmake/Dependencies.cmake), and hours
later there is a wheel for the CPU. So the cache is compared as soon as it is written, and the build ends
there.

An option that depends on others (``cmake_dependent_option``) keeps in the cache what it was given, with
the type INTERNAL, while the others are off: that is CMake's right, and costs a warning. USE_ROCM is never
lost.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rocm_wheels.compile.build_request import BuildRequest
from rocm_wheels.compile.failure import join_paragraph
from rocm_wheels.core import BuildError, log_warning

CACHE_FILE = "CMakeCache.txt"
_NEVER_LOST = "USE_ROCM"
_OPTION_NAME = re.compile(r"(?:USE|BUILD)_\w+")
_ON = re.compile(r"1|ON|YES|TRUE|Y", re.IGNORECASE)
_OFF = re.compile(r"0|OFF|NO|FALSE|N|IGNORE|NOTFOUND|.*-NOTFOUND|", re.IGNORECASE)  # as CMake's if() reads it
_CACHE_ENTRY = re.compile(r"(?P<name>[A-Za-z_]\w*):(?P<type>[A-Z]+)=(?P<value>.*)")
_WRITTEN_LINE = re.compile(r"-- Build files have been written to: (?P<folder>.+)")
# ninja compiles, or has done so before: nothing more is configured
_COMPILE_LINE = re.compile(r"\[\d+/\d+\] (?!Re-running CMake)|ninja: no work to do")
_MESSAGE_HEAD = re.compile(r"CMake (?:Deprecation )?(?:Warning|Error)\b.*:$")
_REFUSAL = re.compile(
    r"could not|cannot|not found|no \"|not (?:compiling|building|using|supported|available)|without"
    r"|unsuitable|does not exist|disabl|forcing|turn(?:ing|ed)\b.*\boff",
    re.IGNORECASE,
)
# what CMake calls the parts of an option that are looked for by another name
_OPTION_PARTS: Mapping[str, tuple[str, ...]] = {"USE_ROCM": ("HIP", "ROCm")}


class OptionLost(BuildError):
    """CMake configured without an option that was asked for. ``option``: its name."""

    def __init__(self, option: str, requested: str, configured: str) -> None:
        super().__init__(
            f"CMake configured with {option}={configured}, but {option}={requested} was requested"
        )
        self.option = option
        self.requested = requested


class TreeConfigured(Exception):
    """CMake has configured a tree, and nothing more was wanted of the front end."""


def list_requested_options(request: BuildRequest, env: Mapping[str, str]) -> dict[str, str]:
    """Return the switches for CMake that recipe and user set for this project, as ``env`` has them."""
    names = {*request.recipe_variables, *request.set_env}
    switches = {name: env.get(name, "") for name in sorted(names) if _OPTION_NAME.fullmatch(name)}
    return {name: value for name, value in switches.items() if _parse_truth(value) is not None and value}


@dataclass(frozen=True)
class CMakeCacheEntry:
    """An entry of CMake's cache."""

    kind: str
    value: str


def read_cmake_cache(path: Path) -> dict[str, CMakeCacheEntry]:
    """Read CMakeCache.txt; a missing one has no entries."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return {}
    entries = (_CACHE_ENTRY.fullmatch(line) for line in text.splitlines())
    return {entry["name"]: CMakeCacheEntry(entry["type"], entry["value"]) for entry in entries if entry}


class ConfigureWatch:
    """Watches the lines of a front end, and CMake's cache in its build trees.

    ``only_configure``: raise ``TreeConfigured`` when the tree is configured as asked.
    """

    def __init__(
        self, request: BuildRequest, env: Mapping[str, str], *, only_configure: bool = False
    ) -> None:
        self._trees = [request.folder / name for name in request.project.build.trees]
        self._project = request.project.name
        self._requested = list_requested_options(request, env)
        self._only_configure = only_configure
        self._read: dict[Path, tuple[int, int]] = {}  # caches as they were compared: inode, time
        self._warned: set[str] = set()

    def delete_lost_caches(self) -> None:
        """Delete a cache that lacks what is asked for: a build would go on with it, and never look again."""
        for path in self._list_caches():
            try:
                self._compare_cache(path)
            except OptionLost:
                path.unlink()

    def wrap_listener(self, on_line: Callable[[str], None] | None) -> Callable[[str], None]:
        """Return what takes the lines of the front end, and raises OptionLost or TreeConfigured."""

        def take(line: str) -> None:
            if on_line is not None:
                on_line(line)
            written, compiles = _WRITTEN_LINE.fullmatch(line), _COMPILE_LINE.match(line)
            if written or compiles:
                self.check_caches()
            if self._only_configure and (compiles or (written and self._is_ours(Path(written["folder"])))):
                raise TreeConfigured

        return take

    def check_caches(self) -> None:
        """Compare every cache that was written since. Raises OptionLost; that cache is deleted."""
        for path in self._list_caches():
            try:
                state = path.stat()
            except FileNotFoundError:
                continue
            mark = (state.st_ino, state.st_mtime_ns)
            if self._read.get(path) == mark:
                continue
            try:
                self._compare_cache(path)
            except OptionLost:
                path.unlink()
                raise
            self._read[path] = mark

    def _compare_cache(self, path: Path) -> None:
        entries = read_cmake_cache(path)
        for name, requested in self._requested.items():
            entry = entries.get(name)
            configured = None if entry is None else _parse_truth(entry.value)
            if entry is None or configured is None:
                continue
            if configured != _parse_truth(requested):
                raise OptionLost(name, requested, entry.value)
            if configured and entry.kind == "INTERNAL":
                if name == _NEVER_LOST:
                    raise OptionLost(name, requested, "OFF")
                self._warn_of_no_effect(name, requested)

    def _warn_of_no_effect(self, name: str, requested: str) -> None:
        if name not in self._warned:
            self._warned.add(name)
            log_warning(
                f"{self._project}: {name}={requested} has no effect, because what it depends on is off"
            )

    def _list_caches(self) -> list[Path]:
        """Return the caches of the project itself; those of projects inside it lie deeper."""
        own_caches = [tree / CACHE_FILE for tree in self._trees if (tree / CACHE_FILE).is_file()]
        return own_caches or [path for tree in self._trees for path in sorted(tree.glob(f"*/{CACHE_FILE}"))]

    def _is_ours(self, folder: Path) -> bool:
        return folder.resolve() in [path.parent.resolve() for path in self._list_caches()]


def explain_lost_option(option: str, lines: Sequence[str]) -> str | None:
    """Return what CMake said about an option that it turned: the first message that names it, or its part."""
    words = (option, *_OPTION_PARTS.get(option, (option.partition("_")[2],)))
    either = "|".join(map(re.escape, words))
    name = re.compile(rf"(?:(?<![A-Za-z0-9])|Find)(?:{either})(?![A-Za-z0-9])", re.IGNORECASE)
    messages = _read_messages(lines)
    return next((text for text in messages if name.search(text) and _REFUSAL.search(text)), None)


def _read_messages(lines: Sequence[str]) -> Iterator[str]:
    """Yield what CMake says, each message as one line."""
    number = 0
    while number < len(lines):
        line = lines[number].rstrip()
        number += 1
        if _MESSAGE_HEAD.match(line):
            yield join_paragraph(lines[number:])
            while number < len(lines) and lines[number].startswith("  "):
                number += 1
        elif line:
            yield line.removeprefix("-- ")


def _parse_truth(value: str) -> bool | None:
    if _ON.fullmatch(value):
        return True
    return False if _OFF.fullmatch(value) else None
