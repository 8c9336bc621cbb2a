"""Checks of one linked file, and of the variants of one page."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from urllib.parse import urlsplit

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from rocm_wheels.errors import DataError, explain
from rocm_wheels.index.entries import METADATA_SUFFIX, SDIST_SUFFIX, name_parts
from rocm_wheels.index.faults import Finding
from rocm_wheels.index.reach import Reach, UnreachableError, local_path
from rocm_wheels.index.reading import Link, file_name
from rocm_wheels.index.releases import joined, variants_name
from rocm_wheels.index.taking import stated_python
from rocm_wheels.variants.metadata import parse

_OTHER_FILES = (
    ".zip",
    ".tar.bz2",
    ".egg",
    ".exe",
)  # installers know them; they are not ours to judge
_NOT_FOR_VARIANTS = ("core-metadata", "dist-info-metadata", "requires-python", "yanked")
KnownDigest = Callable[[str], "str | None"]


@dataclass
class FileReport:
    """What came out of one link; ``variant`` is the variant.json of a wheel with a label."""

    findings: list[Finding] = field(default_factory=list)
    variant: str | None = None

    def add(self, link: Link, fault: str, said: str) -> None:
        """Note a fault."""
        self.findings.append(Finding(link.url, fault, said))


def check_file(
    link: Link, project: str, reach: Reach, *, full: bool = False, known: KnownDigest = lambda _: None
) -> FileReport:
    """Check a link of a project page and the file behind it.

    The content of a wheel is hashed with ``full``, or when it lies on this disk and ``known`` has no digest
    for it as it is.
    """
    report, name = FileReport(), file_name(link)
    if "+" in urlsplit(link.href).path:
        report.add(link, "unescaped-plus", f"{link.href}")
    if link.name != name:
        report.add(link, "bad-name", f"is called {link.name!r} on the page")
    if not link.sha256:
        report.add(link, "no-hash", "no sha256")
    if name.endswith("-variants.json"):
        return report  # with the wheels of its release
    try:
        status, size = reach.look(link.url)
    except UnreachableError as cause:
        report.add(link, "broken-link", str(cause))
        return report
    if status != 200:
        report.add(link, "broken-link", f"{status}")
        return report
    if link.size is not None and size is not None and link.size != size:
        report.add(link, "wrong-size", f"{size} bytes, the page says {link.size}")
    if not name.endswith((".whl", SDIST_SUFFIX)):
        if not name.endswith(_OTHER_FILES):
            report.add(link, "bad-name", "is neither a wheel nor a source distribution")
        return report
    try:
        belongs = name_parts(name)[0]
    except DataError as wrong:
        report.add(link, "bad-name", explain(wrong))
        return report
    if belongs != project:
        report.add(link, "wrong-page", f"is of {belongs}, the page of {project}")
    if name.endswith(".whl"):
        _check_content(link, name, size, reach, report)
    _check_digest(link, reach, report, full=full, known=known)
    return report


def _check_content(link: Link, name: str, size: int | None, reach: Reach, report: FileReport) -> None:
    inside = offered = None
    try:
        inside, report.variant = reach.texts(link.url, name, size)
    except DataError as wrong:
        report.add(link, "bad-wheel", explain(wrong))
    except UnreachableError as cause:
        report.add(link, "no-ranges", str(cause))
    if link.metadata is None:
        report.add(link, "no-metadata", "no data-core-metadata")
    else:
        offered = _offered(link, reach, report)
    if inside is not None and offered is not None and inside != offered:
        report.add(link, "wrong-metadata", f"{METADATA_SUFFIX} differs from the METADATA in the wheel")
    content = offered if inside is None else inside
    if content is None:
        return
    try:
        python = stated_python(content, name)
    except DataError as wrong:
        report.add(link, "bad-wheel" if inside is not None else "wrong-metadata", explain(wrong))
        return
    if not _same_pythons(python, link.requires_python):
        report.add(link, "requires-python", f"the page says {link.requires_python!r}, METADATA {python!r}")


def _offered(link: Link, reach: Reach, report: FileReport) -> bytes | None:
    try:
        answer = reach.get(link.url + METADATA_SUFFIX)
    except UnreachableError as cause:
        report.add(link, "missing-metadata", str(cause))
        return None
    if answer.status != 200:
        report.add(link, "missing-metadata", f"{answer.status} for {METADATA_SUFFIX}")
        return None
    digest = hashlib.sha256(answer.content).hexdigest()
    if link.metadata and digest != link.metadata:
        report.add(
            link, "wrong-metadata", f"{METADATA_SUFFIX} has sha256 {digest}, the page says {link.metadata}"
        )
    return answer.content


def _check_digest(link: Link, reach: Reach, report: FileReport, *, full: bool, known: KnownDigest) -> None:
    if not link.sha256:
        return
    digest = None if full else known(link.url)
    if digest is None and (full or local_path(link.url) is not None):
        try:
            digest = reach.digest(link.url)
        except (UnreachableError, OSError) as cause:
            report.add(link, "broken-link", f"cannot be read whole: {cause}")
            return
    if digest is not None and digest != link.sha256.lower():
        report.add(link, "wrong-hash", f"has sha256 {digest}, its link says {link.sha256}")


def _same_pythons(one: str, other: str) -> bool:
    try:
        return SpecifierSet(one) == SpecifierSet(other)
    except InvalidSpecifier:
        return one == other


def check_variants(
    page: str, project: str, links: Mapping[str, Link], variants: Mapping[str, str], reach: Reach
) -> Iterator[Finding]:
    """Check the variants files of a page; ``links`` and the wheels' variant.json come by file name."""
    for name, link in links.items():
        if name.endswith("-variants.json"):
            wrong = [key for key in _NOT_FOR_VARIANTS if key in link.keys or f"data-{key}" in link.keys]
            if wrong:
                yield Finding(link.url, "variants-entry", f"has {', '.join(wrong)}")
    releases: dict[str, dict[str, str]] = {}
    for name, text in variants.items():
        releases.setdefault(variants_name(project, name_parts(name)[1]), {})[name] = text
    for name, wheels in releases.items():
        if name not in links:
            yield Finding(
                page, "missing-variants", f"{name} is not linked; there are {', '.join(sorted(wheels))}"
            )
            continue
        yield from _check_joined(links[name], wheels, reach)


def _check_joined(link: Link, wheels: Mapping[str, str], reach: Reach) -> Iterator[Finding]:
    try:
        answer = reach.get(link.url)
    except UnreachableError as cause:
        yield Finding(link.url, "broken-link", str(cause))
        return
    if answer.status != 200:
        yield Finding(link.url, "broken-link", f"{answer.status}")
        return
    digest = hashlib.sha256(answer.content).hexdigest()
    if link.sha256 and digest != link.sha256.lower():
        yield Finding(link.url, "wrong-variants", f"has sha256 {digest}, its link says {link.sha256}")
    try:
        wanted = joined(wheels)
        found = parse(answer.content, name=PurePosixPath(urlsplit(link.url).path).name)
    except DataError as wrong:
        yield Finding(link.url, "wrong-variants", explain(wrong))
        return
    if found != wanted:
        different = sorted(
            label
            for label in {*found.variants, *wanted.variants}
            if found.variants.get(label) != wanted.variants.get(label)
        )
        said = f"of {', '.join(different)}" if different else "in priorities or providers"
        yield Finding(link.url, "wrong-variants", f"differs from what the wheels say {said}")
