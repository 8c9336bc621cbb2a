"""Say what a wheel puts into an environment, and what of it is dangerous whoever made the wheel.

Nothing of a wheel is run here. Sources: PyPA specifications, "Binary distribution format" (``*.data``),
"Entry points" and "Core metadata"; Python's documentation of ``site`` (``.pth``, ``sitecustomize``), whose
lines are cut as ``str.splitlines`` does (Python 3.13).
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from rocm_wheels.core import errors
from rocm_wheels.wheels import sbom, zip_format

HazardKind = Literal["startup-files", "environment-files", "file-types", "colliding-names", "metadata-text"]
SCRIPT_GROUPS = ("console_scripts", "gui_scripts")
_SCHEMES = ("purelib", "platlib", "headers", "scripts", "data")
_LIBRARY_SCHEMES = ("", "purelib", "platlib")


@dataclass(frozen=True)
class Hazard:
    """What is dangerous about a member. A warning is what honest wheels do as well."""

    kind: HazardKind
    severity: errors.Severity
    member: str
    text: str


class InstalledFile(NamedTuple):
    """Where installers put a member: ``scheme`` is "" for what lies at the top, ``path`` is below that."""

    member: str
    scheme: str
    path: str

    @property
    def is_library(self) -> bool:
        """Tell whether it lands in site-packages."""
        return self.scheme in _LIBRARY_SCHEMES

    @property
    def module(self) -> str:
        """The top-level name that it belongs to: of a module without its suffixes, else a name of a file."""
        top, slash, _ = self.path.partition("/")
        match = _MODULE_FILE.fullmatch(top)
        return match["name"] if match and not slash else top


_MODULE_FILE = re.compile(r"(?P<name>\w+)(?:\.[\w-]+)*\.(?:py|pyc|pyd|so|dll)")
_PTH = re.compile(r"[^/]*\.pth", re.IGNORECASE)
_RUN_LINE = re.compile(r"import[ \t]")
_STARTUP_MODULES = ("sitecustomize", "usercustomize")


def locate_installed(member: str) -> InstalledFile:
    """Return where installers put a member."""
    top, _, rest = member.partition("/")
    if not top.endswith(".data") or not rest:
        return InstalledFile(member, "", member)
    scheme, _, path = rest.partition("/")
    return InstalledFile(member, scheme, path)


def is_startup_file(member: str) -> bool:
    """Tell whether Python reads a member whenever it starts: ``*.pth`` at the top of site-packages."""
    file = locate_installed(member)
    return file.is_library and _PTH.fullmatch(file.path) is not None


def find_hazards(
    entries: Sequence[zip_format.ZipEntry], texts: Mapping[str, bytes], project: str
) -> list[Hazard]:
    """Return what is dangerous in a wheel of a project, in the order of ``HazardKind``.

    ``texts`` are the contents of its dist-info files and of what ``is_startup_file`` names.
    """
    files = [locate_installed(entry.name) for entry in entries if not entry.is_folder]
    return [
        *_find_startup_files(files, texts),
        *_find_environment_files(files, texts, project),
        *find_archive_hazards(entries),
        *_find_bad_texts(texts),
    ]


def find_archive_hazards(entries: Sequence[zip_format.ZipEntry]) -> list[Hazard]:
    """Return what is dangerous in an archive whatever its members hold: their types and names."""
    return [*_find_file_types(entries), *_find_colliding_names(entry.name for entry in entries)]


def _find_startup_files(files: Iterable[InstalledFile], texts: Mapping[str, bytes]) -> Iterator[Hazard]:
    told = set[str]()
    for file in files:
        if not file.is_library:
            continue
        module = file.module
        if module.casefold() in _STARTUP_MODULES and module not in told:
            told.add(module)
            yield Hazard("startup-files", "error", file.member, "Python imports it whenever it starts")
        if is_startup_file(file.member):
            lines = list_startup_lines(texts.get(file.member, b""))
            if code := [line for line in lines if _RUN_LINE.match(line)]:
                message = f"Python runs a line of it whenever it starts: {_shorten(code[0])}"
                yield Hazard("startup-files", "warning", file.member, message)
            elif out := [line for line in lines if _leads_out(line)]:
                message = f"puts a folder outside of site-packages on sys.path: {_shorten(out[0])}"
                yield Hazard("startup-files", "warning", file.member, message)


def list_startup_lines(content: bytes) -> list[str]:
    """Return the lines of a ``.pth`` that Python heeds."""
    lines = content.decode("utf-8-sig", "replace").splitlines()
    return [line for line in lines if line.strip() and not line.startswith("#")]


def _leads_out(line: str) -> bool:
    parts = re.split(r"[/\\]", line.strip())
    return not parts[0] or ".." in parts or re.match("[A-Za-z]:", parts[0]) is not None


# programs of an environment, and those that people start there without a thought
_RESERVED_PROGRAM = re.compile(
    r"python[\d.]*t?(?:-config)?|pythonw[\d.]*t?|py|pyw|pip[\d.]*|activate(?:_this)?|deactivate"
    r"|sh|bash|dash|zsh|env|sudo|su|ssh"
)
_PROGRAM_SUFFIX = re.compile(r"\.(?:exe|com|bat|cmd|ps1|py|pyw|sh|fish|csh|nu|xsh)$|-script\.pyw?$")
_PROGRAM_FOLDERS = ("bin", "scripts")
_PYTHON_PLACE = re.compile(
    r"pyvenv\.cfg|(?:lib|lib64|include)/(?:python|pypy)[\d.]*t?/.*|lib/site-packages/.*|dlls/.*|python.*\.(?:dll|zip|_pth)"
)
# packages that installers are, with the project that may hold them
_INSTALLER_PACKAGES = {
    "pip": "pip",
    "setuptools": "setuptools",
    "_distutils_hack": "setuptools",
    "pkg_resources": "setuptools",
}


_OTHER_PROJECT = re.compile(r"[^/]+\.(?:dist-info|egg-info|egg-link)(?:/.*)?", re.IGNORECASE)


def _find_environment_files(
    files: Sequence[InstalledFile], texts: Mapping[str, bytes], project: str
) -> Iterator[Hazard]:
    folders = [name.partition("/")[0] for name in texts if ".dist-info/" in name]
    stem = folders[0].removesuffix(".dist-info") if folders else ""
    packages = set[str]()
    for file in files:
        for text in _list_misplacements(file, stem, project):
            yield Hazard("environment-files", "error", file.member, text)
        owner = _INSTALLER_PACKAGES.get(file.module.casefold()) if file.is_library else None
        if owner and project != owner and file.module not in packages:
            packages.add(file.module)
            yield Hazard("environment-files", "error", file.member, f"takes the place of {owner}")
    yield from _find_bad_programs(texts, project)


def _list_misplacements(file: InstalledFile, stem: str, project: str) -> Iterator[str]:
    """Yield what is wrong with the place of a file of the wheel ``stem`` (``torch-2.9.0``)."""
    top = file.member.partition("/")[0]
    if file.scheme and not _is_same_stem(top.removesuffix(".data"), stem):
        yield f"is installed from {top}, the folder of another wheel"
    if file.scheme and file.scheme not in _SCHEMES:
        yield f"{file.scheme!r} is no place that installers know"
    if file.scheme == "scripts" and "/" in file.path:
        yield "is a script in a folder below the others, which uv refuses"
    if file.scheme == "data" and _PYTHON_PLACE.fullmatch(file.path.lower()):
        yield "is put among the files of Python itself"
    folder, _, name = file.path.rpartition("/")
    is_program = file.scheme == "data" and folder.lower() in _PROGRAM_FOLDERS
    if (is_program or file.scheme == "scripts") and _replaces_program(name, project):
        yield f"takes the place of the environment's {name}"
    is_ours = not file.scheme and top.endswith(".dist-info")
    if file.is_library and not is_ours and _OTHER_PROJECT.fullmatch(file.path):
        yield "states that another project is installed"


def _is_same_stem(stem: str, other: str) -> bool:
    """Tell whether two spellings of ``name-version`` are one (PEP 503)."""
    first, second = (re.sub(r"[-_.]+", "-", text).casefold() for text in (stem, other))
    return first == second


def _replaces_program(name: str, project: str) -> bool:
    word = _PROGRAM_SUFFIX.sub("", name.casefold())
    return bool(_RESERVED_PROGRAM.fullmatch(word)) and not (word.startswith("pip") and project == "pip")


def _find_bad_programs(texts: Mapping[str, bytes], project: str) -> Iterator[Hazard]:
    for member, groups in _iterate_entry_points(texts):
        for name in (name for group in SCRIPT_GROUPS for name in groups.get(group, ())):
            if not _PROGRAM_NAME.fullmatch(name):
                yield Hazard(
                    "environment-files", "error", member, f"{name!r} is not the name of a program, but a path"
                )
            elif _replaces_program(name, project):
                text = f"its entry point {name} takes the place of the environment's"
                yield Hazard("environment-files", "error", member, text)


_PROGRAM_NAME = re.compile(r"(?![-.])[^/\\:*?\"<>|]+(?<![. ])")
_GROUP_LINE = re.compile(r"\[\s*(?P<group>[^\[\]]+?)\s*\]")
_OBJECT = re.compile(r"[\w.]+\s*(?::\s*[\w.]+)?\s*(?:\[[\w\s,.-]*\])?")


def parse_entry_points(content: bytes, *, name: str) -> dict[str, dict[str, str]]:
    """Return the entry points by group and name; DataError with a line that installers may read otherwise."""
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as cause:
        raise errors.DataError(f"{name} is not UTF-8") from cause
    if control := find_control_character(text):
        raise errors.DataError(f"{name} has the control character {control}")
    groups: dict[str, dict[str, str]] = {}
    group: dict[str, str] | None = None
    is_program = False
    for number, line in enumerate(map(str.strip, text.splitlines()), 1):
        if not line or line.startswith(("#", ";")):
            continue
        if match := _GROUP_LINE.fullmatch(line):
            if match["group"] in groups:
                raise errors.DataError(f"{name}:{number}: the group {match['group']} comes twice")
            group = groups[match["group"]] = {}
            is_program = match["group"] in SCRIPT_GROUPS
            continue
        entry, equals, target = (part.strip() for part in line.partition("="))
        if group is None or not equals or not entry or not _OBJECT.fullmatch(target):
            raise errors.DataError(f"{name}:{number}: {_shorten(line)} is no entry point")
        if is_program and ":" not in target:
            raise errors.DataError(f"{name}:{number}: {_shorten(line)} names no function to run")
        if entry in group:
            raise errors.DataError(f"{name}:{number}: the entry point {entry} comes twice")
        group[entry] = target
    return groups


_UNUSUAL_BITS = {0o4000: "setuid", 0o2000: "setgid", 0o1000: "sticky"}
_REGULAR_FILE, _SYMBOLIC_LINK = 0o100000, 0o120000


def _find_file_types(entries: Iterable[zip_format.ZipEntry]) -> Iterator[Hazard]:
    """Devices and pipes are faults of the archive: nobody can read what they hold."""
    for entry in entries:
        if entry.mode & 0o177000 == _REGULAR_FILE:
            continue
        if bits := [word for bit, word in _UNUSUAL_BITS.items() if entry.mode & bit]:
            text = f"has the bits {', '.join(bits)} (mode {entry.mode:o})"
            yield Hazard("file-types", "error", entry.name, text)
        if entry.mode & 0o170000 == _SYMBOLIC_LINK:
            text = "is a symbolic link: installers write its target into a file"
            yield Hazard("file-types", "error", entry.name, text)


def _fold_name(name: str) -> str:
    """Return the one spelling of all names that are the same where case and Unicode forms do not count."""
    if name.isascii():
        return name.lower()
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())


def _find_colliding_names(names: Iterable[str]) -> Iterator[Hazard]:
    """Compare folders and files by what they are on file systems of Windows and macOS.

    Folders form a tree of the parts of names: whole names of thousands of parts would be gigabytes.
    """
    tree: dict[tuple[int, str], tuple[int, str]] = {}  # folder and folded part → its number and spelling
    twins = set[tuple[int, str]]()
    for name in names:
        folder, parts = 0, name.rstrip("/").split("/")
        for depth, part in enumerate(parts):
            number, spelling = tree.setdefault((folder, _fold_name(part)), (len(tree) + 1, part))
            if spelling != part:  # what lies in a twin is told with it
                if (folder, part) not in twins:
                    twins.add((folder, part))
                    first = "/".join([*parts[:depth], spelling])
                    text = f"is the same as {first} where case and Unicode forms do not count"
                    yield Hazard("colliding-names", "error", "/".join(parts[: depth + 1]), text)
                break
            folder = number


_TEXT_FILES = ("METADATA", "WHEEL", "RECORD")
_JSON_FILES = ("variant.json", "sources.lock.json", sbom.SBOM_MEMBER)
# C0 but tab, line ends and form feed, DEL, C1, and what turns the direction of text round
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_BODY_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1f\x7f]")
HEADERS_END = re.compile(r"\r?\n\r?\n")
"""The empty line between the fields of METADATA and its description."""


def find_control_character(text: str) -> str:
    """Return the first control character of a text, spelled out; "" when it has none."""
    match = _CONTROL.search(text)
    return f"U+{ord(match[0]):04X}" if match else ""


def _find_bad_texts(texts: Mapping[str, bytes]) -> Iterator[Hazard]:
    for member, content in texts.items():
        folder, _, file = member.partition("/")
        if folder.endswith(".dist-info") and (text := _explain_text(content, member, file)):
            yield Hazard("metadata-text", "error", member, text)


def _explain_text(content: bytes, member: str, file: str) -> str:
    """Say what is wrong with a text of the dist-info folder; "" for nothing."""
    if file == "entry_points.txt":
        return _explain_fault(content, member)
    if file in _JSON_FILES:
        try:
            document = json.loads(content.decode("utf-8"))
        except (ValueError, RecursionError):  # a number of a million digits is a ValueError, too
            return "is not JSON in UTF-8"
        return "" if isinstance(document, dict) else "holds no JSON object"
    if file not in _TEXT_FILES:
        return ""
    # in a description, form feeds and the like are usual
    head, *body = HEADERS_END.split(content.decode("utf-8", "replace"), maxsplit=1)
    if control := find_control_character(head):
        return f"has the control character {control}"
    match = _BODY_CONTROL.search(body[0]) if body else None
    return f"has the control character U+{ord(match[0]):04X} in its description" if match else ""


def _explain_fault(content: bytes, member: str) -> str:
    try:
        parse_entry_points(content, name=member)
    except errors.DataError as fault:
        return fault.message.removeprefix(member).lstrip(" :")
    return ""


def _iterate_entry_points(texts: Mapping[str, bytes]) -> Iterator[tuple[str, dict[str, dict[str, str]]]]:
    """Yield member and entry points of a wheel; nothing where they cannot be read, which is a hazard."""
    for member, content in texts.items():
        if member.endswith(".dist-info/entry_points.txt") and not _explain_fault(content, member):
            yield member, parse_entry_points(content, name=member)


@dataclass(frozen=True)
class InstalledContents:
    """What a wheel puts into an environment, by what a recipe has a line for; values are members.

    ``names``: the top-level names of site-packages. ``scripts``: programs, of ``*.data/scripts`` and of entry
    points. ``entry_points``: the other groups. ``data``: paths below the environment, headers among them.
    """

    names: Mapping[str, str]
    scripts: Mapping[str, str]
    entry_points: Mapping[str, str]
    data: Mapping[str, str]
    startup_files: Mapping[str, str]


def list_contents(members: Iterable[str], texts: Mapping[str, bytes]) -> InstalledContents:
    """Return what installers make of members, without entry points that cannot be read: a hazard."""
    names, scripts, data = dict[str, str](), dict[str, str](), dict[str, str]()
    startup_files, groups = dict[str, str](), dict[str, str]()
    for file in map(locate_installed, members):
        if file.scheme == "scripts":
            scripts.setdefault(file.path, file.member)
        elif not file.is_library:
            data.setdefault(f"headers/{file.path}" if file.scheme == "headers" else file.path, file.member)
        elif is_startup_file(file.member):
            startup_files.setdefault(file.path, file.member)
        elif file.scheme or not file.path.partition("/")[0].endswith(".dist-info"):
            names.setdefault(file.module, file.member)
    for member, entry_points in _iterate_entry_points(texts):
        for group, entries in entry_points.items():
            if group in SCRIPT_GROUPS:
                scripts |= dict.fromkeys(entries, member)
            else:
                groups[group] = member
    return InstalledContents(names, scripts, groups, data, startup_files)


def _shorten(text: str) -> str:
    return repr(text if len(text) <= 80 else f"{text[:79]}…")
