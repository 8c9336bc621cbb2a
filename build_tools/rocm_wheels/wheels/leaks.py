"""Find what should not have left the builder's machine: credentials, and paths of the builder's folders.

Credentials are known by the prefixes that their makers give them, or are the blocks of private keys, with
their content. They are looked for in text files and in the read-only data and data of native libraries;
paths in the latter alone, where nobody means to write one. Of a member no more than 32 MiB are searched, so
that the time is bounded; compressed and encoded text is not seen.

Sources: GitHub, "Token formats" and "About secret scanning"; GitLab, "Token overview"; AWS, "IAM
identifiers"; PyPI, "API tokens" (``pypi-AgEIcHlwaS5vcmc``: the macaroon of pypi.org); Hugging Face, "User
access tokens"; npm, "About access tokens"; Slack, "Token types"; RFC 7468 (PEM). Work folders: GitHub's and
GitLab's runners, Jenkins.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from rocm_wheels.binaries import elf, pe
from rocm_wheels.core import files

LeakKind = Literal["credential", "builder-path"]

MOST_SEARCHED = 32 << 20
"""How many bytes of a member are searched."""

_PIECE = 1 << 20
_RELEASED = 8 * _PIECE  # so often, mapped pages are given back
_OVERLAP = 1 << 10  # what begins in a piece and ends behind it is found whole
_DATA_SECTIONS = re.compile(r"\.rodata.*|\.data|\.rdata")


@dataclass(frozen=True)
class Leak:
    """What was found in a member: ``name`` says what it is, ``count`` how often; ``example`` is the first.

    Of a credential ``example`` is its beginning alone.
    """

    kind: LeakKind
    name: str
    count: int
    example: str


@dataclass(frozen=True)
class _Pattern:
    """``literal`` is quick to look for; where it is, ``shape`` decides."""

    kind: LeakKind
    name: str
    literal: bytes
    shape: re.Pattern[bytes]

    @property
    def anchor(self) -> bytes:
        """The part of the literal that begins with the rarest byte, for which a search is quickest."""
        ends = [self.literal[at:] for at in range(len(self.literal) - 2)]
        return min(ends, key=lambda end: _RARE.index(end[0]) if end[0] in _RARE else len(_RARE))


_RARE = b"\\KIxyzv/:Hw5SPAgbhdmpfu"  # in sources and in data of libraries, the rarest first


def _make_pattern(kind: LeakKind, name: str, literal: bytes, rest: bytes, not_behind: bytes) -> _Pattern:
    """Return the pattern of what does not stand behind some bytes; what begins plainly is found quickly."""
    text = re.escape(literal)
    return _Pattern(kind, name, literal, re.compile(rb"%b(?<![%b]%b)%b" % (text, not_behind, text, rest)))


_WORD = rb"A-Za-z0-9_"
# all is bounded: what nearly is a key must not take long
_KEY_KIND = rb"(?:[A-Z0-9]{1,16} ){0,3}PRIVATE KEY(?: BLOCK)?"
_KEY_LINE_END = rb"(?:[\s\"'#*+,;>|]|\\[rnt]){1,40}"
_KEY_TEXT = rb"[A-Za-z0-9+/]{20}"
_CREDENTIALS = (
    _Pattern(
        "credential",
        "a private key",
        b"PRIVATE KEY",
        re.compile(
            # a key may be cut at either end, a comment, or a text of a source with line ends spelled out
            rb"-----BEGIN %(kind)b-----%(end)b(?:[A-Za-z-]{1,20}: [^\r\n\\]{0,80}%(end)b){0,4}%(text)b"
            rb"(?:[^-]{0,8000}-----END %(kind)b-----)?|%(text)b={0,2}%(end)b-----END %(kind)b-----"
            % {b"kind": _KEY_KIND, b"end": _KEY_LINE_END, b"text": _KEY_TEXT}
        ),
    ),
    *(
        _make_pattern("credential", name, literal, rest, _WORD)
        for name, literal, rest in (
            ("an access key of AWS", b"AKIA", rb"(?![A-Z0-9]*EXAMPLE)[A-Z2-7]{16}(?![A-Za-z0-9])"),
            ("a token of GitHub", b"ghp_", rb"[A-Za-z0-9]{36}(?![A-Za-z0-9])"),
            ("a token of GitHub", b"gho_", rb"[A-Za-z0-9]{36}(?![A-Za-z0-9])"),
            ("a token of GitHub", b"ghs_", rb"[A-Za-z0-9]{36}(?![A-Za-z0-9])"),
            ("a token of GitHub", b"github_pat_", rb"[A-Za-z0-9]{22}_[A-Za-z0-9]{59}"),
            ("a token of GitLab", b"glpat-", rb"[A-Za-z0-9_-]{20}"),
            ("a token of PyPI", b"pypi-AgEIcHlwaS5vcmc", rb"[A-Za-z0-9_-]{50}"),
            ("a token of Hugging Face", b"hf_", rb"[A-Za-z]{34}(?![A-Za-z0-9_])"),
            ("a token of npm", b"npm_", rb"[A-Za-z0-9]{36}(?![A-Za-z0-9])"),
            ("a token of Slack", b"xoxb-", rb"[0-9]{10,13}-[0-9]{10,13}-[A-Za-z0-9]{24}"),
            ("a key of Google's APIs", b"AIza", rb"[A-Za-z0-9_-]{35}(?![A-Za-z0-9_-])"),
        )
    ),
)
_PATH = rb"A-Za-z0-9_.$}-"
_FOLDER = rb"[\w.+-]+/[\w.+/-]*"
_DRIVE = rb"[A-Za-z]:\\Users\\[\w.+ -]+\\[\w.+ \\-]*"
_PATHS = (
    _make_pattern("builder-path", "a home folder", b"/home/", _FOLDER, _PATH),
    _make_pattern("builder-path", "a home folder", b"/Users/", _FOLDER, _PATH),
    _make_pattern("builder-path", "a home folder", b"/root/", rb"[\w.+/-]+", _PATH),
    _Pattern("builder-path", "a home folder", b":\\Users\\", re.compile(_DRIVE)),
    _make_pattern("builder-path", "a CI work folder", b"/__w/", _FOLDER, _PATH),
    _make_pattern("builder-path", "a CI work folder", b"/builds/", _FOLDER, _PATH),
    _make_pattern("builder-path", "a CI work folder", b"/var/lib/jenkins/", rb"[\w.+/-]*", _PATH),
)


class _Search:
    """Patterns, and what is quick to look for in their place: anchors, in what is left of some bytes."""

    def __init__(self, patterns: Sequence[_Pattern]) -> None:
        anchors = [pattern.anchor for pattern in patterns]
        self._patterns = list(zip(anchors, patterns, strict=True))
        self._anchors = re.compile(b"|".join(map(re.escape, anchors)))
        self._absent = bytes({*range(256)}.difference(*anchors))

    def list_candidates(self, piece: bytes) -> list[_Pattern]:
        """Return the patterns whose literal a piece may hold: no others are in it."""
        present = set(self._anchors.findall(piece.translate(None, self._absent)))
        return [pattern for anchor, pattern in self._patterns if anchor in present] if present else []


_IN_TEXTS = _Search(_CREDENTIALS)
_IN_LIBRARIES = _Search((*_CREDENTIALS, *_PATHS))


def find_text_leaks(data: memoryview) -> tuple[Leak, ...]:
    """Return the credentials in a text file."""
    return _find_leaks([data], _IN_TEXTS)


def find_library_leaks(
    data: memoryview, name: str, sections: Iterable[elf.BinarySection] | None
) -> tuple[Leak, ...]:
    """Return the leaks in the data of a native library; ``sections`` are those of an ELF file.

    DataError when a section reaches past the end; ``name`` stands for the file.
    """
    span = elf.BinarySpan(data, name)
    if sections is None:
        file = pe.read_pe_file(span)
        sections = file.sections if file is not None else ()
    parts = [
        span.get_part(section.offset, section.size, f"section {section.name}")
        for section in sections
        if _DATA_SECTIONS.fullmatch(section.name)
    ]
    return _find_leaks(parts, _IN_LIBRARIES)


def _find_leaks(parts: Iterable[memoryview], search: _Search) -> tuple[Leak, ...]:
    """Look for all literals at once, then for the shapes of those that may be there."""
    leaks: dict[tuple[LeakKind, str], Leak] = {}
    for piece, length in _cut_pieces(parts):
        for pattern in search.list_candidates(piece):
            for match in pattern.shape.finditer(piece):
                if match.start() >= length:
                    break  # the next piece begins with it
                key = (pattern.kind, pattern.name)
                first = leaks.get(key)
                example = first.example if first else _show_example(pattern, match)
                leaks[key] = Leak(*key, first.count + 1 if first else 1, example)
    return tuple(leaks.values())


def _cut_pieces(parts: Iterable[memoryview]) -> Iterator[tuple[bytes, int]]:
    """Yield pieces that overlap, each with where the next one begins."""
    remaining = MOST_SEARCHED
    for part in parts:
        searched = part[:remaining]
        for at in range(0, len(searched), _PIECE):
            yield bytes(searched[at : at + _PIECE + _OVERLAP]), _PIECE
            if at % _RELEASED == 0:
                files.release_mapped_pages(part)
        remaining -= len(searched)


def _show_example(pattern: _Pattern, match: re.Match[bytes]) -> str:
    if pattern.kind == "credential":
        return f"{pattern.literal.decode()}…"
    return match[0].decode("utf-8", "replace")
