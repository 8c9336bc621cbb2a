"""Checks of one linked file, and of the variants of one page."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from urllib.parse import urlsplit

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from rocm_wheels.errors import DataError, explain_error
from rocm_wheels.index.entries import METADATA_SUFFIX, SDIST_SUFFIX, parse_file_name
from rocm_wheels.index.faults import IndexFinding
from rocm_wheels.index.reach import IndexReader, UnreachableError, path_of_url
from rocm_wheels.index.reading import IndexLink, file_name_of_link
from rocm_wheels.index.releases import join_variants, make_variants_name
from rocm_wheels.index.taking import read_requires_python
from rocm_wheels.variants.metadata import parse_document

_OTHER_SUFFIXES = (
    ".zip",
    ".tar.bz2",
    ".egg",
    ".exe",
)  # installers know them; they are not ours to judge
_NOT_FOR_VARIANTS = ("core-metadata", "dist-info-metadata", "requires-python", "yanked")
FindDigest = Callable[[str], "str | None"]


@dataclass
class FileReport:
    """What came out of one link; ``variant`` is the variant.json of a wheel with a label."""

    findings: list[IndexFinding] = field(default_factory=list)
    variant: str | None = None

    def add_finding(self, link: IndexLink, fault: str, detail: str) -> None:
        """Note a fault."""
        self.findings.append(IndexFinding(link.url, fault, detail))


def check_file(
    link: IndexLink,
    project: str,
    reach: IndexReader,
    *,
    full: bool = False,
    find_digest: FindDigest = lambda _: None,
) -> FileReport:
    """Check a link of a project page and the file behind it.

    The content of a wheel is hashed with ``full``, or when it lies on this disk and ``find_digest`` has no digest
    for it as it is.
    """
    report, name = FileReport(), file_name_of_link(link)
    if "+" in urlsplit(link.href).path:
        report.add_finding(link, "unescaped-plus", f"{link.href}")
    if link.name != name:
        report.add_finding(link, "bad-name", f"is called {link.name!r} on the page")
    if not link.sha256:
        report.add_finding(link, "no-hash", "no sha256")
    if name.endswith("-variants.json"):
        return report  # with the wheels of its release
    try:
        status, size = reach.fetch_size(link.url)
    except UnreachableError as cause:
        report.add_finding(link, "broken-link", str(cause))
        return report
    if status != 200:
        report.add_finding(link, "broken-link", f"{status}")
        return report
    if link.size is not None and size is not None and link.size != size:
        report.add_finding(link, "wrong-size", f"{size} bytes, the page says {link.size}")
    if not name.endswith((".whl", SDIST_SUFFIX)):
        if not name.endswith(_OTHER_SUFFIXES):
            report.add_finding(link, "bad-name", "is neither a wheel nor a source distribution")
        return report
    try:
        project_of_file = parse_file_name(name)[0]
    except DataError as wrong:
        report.add_finding(link, "bad-name", explain_error(wrong))
        return report
    if project_of_file != project:
        report.add_finding(link, "wrong-page", f"is of {project_of_file}, the page of {project}")
    if name.endswith(".whl"):
        _check_content(link, name, size, reach, report)
    _check_digest(link, reach, report, full=full, find_digest=find_digest)
    return report


def _check_content(
    link: IndexLink, name: str, size: int | None, reach: IndexReader, report: FileReport
) -> None:
    metadata = offered = None
    try:
        metadata, report.variant = reach.fetch_metadata_and_variant(link.url, name, size)
    except DataError as wrong:
        report.add_finding(link, "bad-wheel", explain_error(wrong))
    except UnreachableError as cause:
        report.add_finding(link, "no-ranges", str(cause))
    if link.metadata is None:
        report.add_finding(link, "no-metadata", "no data-core-metadata")
    else:
        offered = _fetch_offered_metadata(link, reach, report)
    if metadata is not None and offered is not None and metadata != offered:
        report.add_finding(
            link, "wrong-metadata", f"{METADATA_SUFFIX} differs from the METADATA in the wheel"
        )
    content = offered if metadata is None else metadata
    if content is None:
        return
    try:
        python = read_requires_python(content, name)
    except DataError as wrong:
        report.add_finding(
            link, "bad-wheel" if metadata is not None else "wrong-metadata", explain_error(wrong)
        )
        return
    if not _same_specifiers(python, link.requires_python):
        report.add_finding(
            link, "requires-python", f"the page says {link.requires_python!r}, METADATA {python!r}"
        )


def _fetch_offered_metadata(link: IndexLink, reach: IndexReader, report: FileReport) -> bytes | None:
    try:
        answer = reach.get(link.url + METADATA_SUFFIX)
    except UnreachableError as cause:
        report.add_finding(link, "missing-metadata", str(cause))
        return None
    if answer.status != 200:
        report.add_finding(link, "missing-metadata", f"{answer.status} for {METADATA_SUFFIX}")
        return None
    digest = hashlib.sha256(answer.content).hexdigest()
    if link.metadata and digest != link.metadata:
        report.add_finding(
            link, "wrong-metadata", f"{METADATA_SUFFIX} has sha256 {digest}, the page says {link.metadata}"
        )
    return answer.content


def _check_digest(
    link: IndexLink, reach: IndexReader, report: FileReport, *, full: bool, find_digest: FindDigest
) -> None:
    if not link.sha256:
        return
    digest = None if full else find_digest(link.url)
    if digest is None and (full or path_of_url(link.url) is not None):
        try:
            digest = reach.compute_digest(link.url)
        except (UnreachableError, OSError) as cause:
            report.add_finding(link, "broken-link", f"cannot be read whole: {cause}")
            return
    if digest is not None and digest != link.sha256.lower():
        report.add_finding(link, "wrong-hash", f"has sha256 {digest}, its link says {link.sha256}")


def _same_specifiers(first: str, second: str) -> bool:
    try:
        return SpecifierSet(first) == SpecifierSet(second)
    except InvalidSpecifier:
        return first == second


def check_variants(
    page: str, project: str, links: Mapping[str, IndexLink], variants: Mapping[str, str], reach: IndexReader
) -> Iterator[IndexFinding]:
    """Check the variants files of a page; ``links`` and the wheels' variant.json come by file name."""
    for name, link in links.items():
        if name.endswith("-variants.json"):
            wrong_keys = [key for key in _NOT_FOR_VARIANTS if key in link.keys or f"data-{key}" in link.keys]
            if wrong_keys:
                yield IndexFinding(link.url, "variants-entry", f"has {', '.join(wrong_keys)}")
    releases: dict[str, dict[str, str]] = {}
    for name, text in variants.items():
        releases.setdefault(make_variants_name(project, parse_file_name(name)[1]), {})[name] = text
    for name, wheels in releases.items():
        if name not in links:
            yield IndexFinding(
                page, "missing-variants", f"{name} is not linked; there are {', '.join(sorted(wheels))}"
            )
            continue
        yield from _check_variants_file(links[name], wheels, reach)


def _check_variants_file(
    link: IndexLink, wheels: Mapping[str, str], reach: IndexReader
) -> Iterator[IndexFinding]:
    try:
        answer = reach.get(link.url)
    except UnreachableError as cause:
        yield IndexFinding(link.url, "broken-link", str(cause))
        return
    if answer.status != 200:
        yield IndexFinding(link.url, "broken-link", f"{answer.status}")
        return
    digest = hashlib.sha256(answer.content).hexdigest()
    if link.sha256 and digest != link.sha256.lower():
        yield IndexFinding(link.url, "wrong-variants", f"has sha256 {digest}, its link says {link.sha256}")
    try:
        expected = join_variants(wheels)
        published = parse_document(answer.content, name=PurePosixPath(urlsplit(link.url).path).name)
    except DataError as wrong:
        yield IndexFinding(link.url, "wrong-variants", explain_error(wrong))
        return
    if published != expected:
        different = sorted(
            label
            for label in {*published.variants, *expected.variants}
            if published.variants.get(label) != expected.variants.get(label)
        )
        difference = f"of {', '.join(different)}" if different else "in priorities or providers"
        yield IndexFinding(link.url, "wrong-variants", f"differs from what the wheels say {difference}")
