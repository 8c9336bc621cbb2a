"""Verify an index, in a folder or at a URL: every page, link, METADATA and variants file.

Several files are looked at at a time. It is read as installers read it, from the root page to the files,
finding work on the way. Of a folder, pages are also compared with what follows from its state files.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from urllib.parse import urlsplit

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name

from rocm_wheels.core import parallel
from rocm_wheels.core.errors import DataError, Finding, Severity, UsageError, explain_error, find_errors
from rocm_wheels.index import provenance_object, reader, update, wheel_file
from rocm_wheels.index.folder import (
    HTML_PAGE,
    JSON_PAGE,
    LINKS_PAGE,
    METADATA_SUFFIX,
    PENDING_NOTE,
    SDIST_SUFFIX,
    STATE_FOLDER,
    IndexFolder,
    combine_entries,
    list_families,
    list_index_folders,
    parse_file_name,
    sort_entries,
)
from rocm_wheels.index.pages import (
    HTML_TYPE,
    JSON_TYPE,
    PAGE_TAIL,
    join_variants,
    make_links,
    make_page_head,
    make_project_html,
    make_root_html,
    make_root_json,
    make_variants_files,
    make_variants_name,
)
from rocm_wheels.variants import document

# name: what it means for those who install
FAULTS = {
    "broken-link": "a link or page leads to nothing",
    "forbidden": "the server says 403 for what is not there: uv ends there instead of looking on",
    "wrong-type": "a page comes with a content type that installers do not read",
    "bad-page": "a page cannot be read, or lacks what its version of the API asks for",
    "not-normalized": "a project is not linked by its normalized name and a slash: it is not found",
    "wrong-page": "a wheel is on the page of another project",
    "bad-name": "a linked file has a name that no installer reads",
    "unescaped-plus": "a link has a bare +, which object stores read as a space",
    "no-hash": "a link has no sha256: nothing shows a damaged or replaced file",
    "wrong-hash": "a file has another sha256 than its link says",
    "wrong-size": "a file has another size than the page says",
    "no-metadata": "no METADATA is offered: resolving downloads the whole wheel",
    "missing-metadata": "METADATA is offered and is not there: pip ends with an error",
    "wrong-metadata": "METADATA is not that of the wheel, or has another sha256 than the link says",
    "requires-python": "the link says nothing or something else about Pythons than the wheel",
    "bad-wheel": "the wheel cannot be read, or is not what its name says",
    "no-ranges": "a wheel cannot be read in parts: resolving without METADATA downloads all of it",
    "missing-variants": "variant wheels without a variants.json on their page: they are never chosen",
    "wrong-variants": "variants.json is not what the wheels say, or has another sha256 than its link",
    "variants-entry": "the entry of a variants.json has keys that are only for wheels (PEP 825)",
    "missing-provenance": "a provenance object is offered and is not there",
    "wrong-provenance": "a provenance object is not of the form of PEP 740, or is about other bytes",
    "provenance-url": "the URL of a provenance object is not whole, or of no secure origin",
    "forms-differ": "the page as HTML and as JSON do not list the same",
    "stale-page": "a page differs from what follows from the known wheels",
    "not-listed": "a project has a page, and the root page does not link it",
}
WARNING_FAULTS = frozenset({"no-metadata", "no-ranges"})  # slow, and not wrong


def _make_finding(place: str, fault: str, detail: str) -> Finding:
    """Return a fault by its name in ``FAULTS``, seen at a URL or in a file."""
    severity: Severity = "warning" if fault in WARNING_FAULTS else "error"
    return Finding(severity, detail, subject=place, check=fault)


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

    findings: list[Finding] = field(default_factory=list)
    variant: str | None = None

    def add_finding(self, link: reader.IndexLink, fault: str, detail: str) -> None:
        """Note a fault."""
        self.findings.append(_make_finding(link.url, fault, detail))


def check_file(
    link: reader.IndexLink,
    project: str,
    reach: reader.IndexReader,
    *,
    full: bool = False,
    find_digest: FindDigest = lambda _: None,
) -> FileReport:
    """Check a link of a project page and the file behind it.

    The content of a wheel is hashed with ``full``, or when it lies on this disk and ``find_digest`` has no
    digest for it as it is.
    """
    report, name = FileReport(), reader.file_name_of_link(link)
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
    except reader.UnreachableError as cause:
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
    if link.provenance:
        _check_provenance(link, name, reach, report)
    _check_digest(link, reach, report, full=full, find_digest=find_digest)
    return report


def _check_content(
    link: reader.IndexLink, name: str, size: int | None, reach: reader.IndexReader, report: FileReport
) -> None:
    metadata = offered = None
    try:
        metadata, report.variant = reach.fetch_metadata_and_variant(link.url, name, size)
    except DataError as wrong:
        report.add_finding(link, "bad-wheel", explain_error(wrong))
    except reader.UnusableAnswerError as cause:
        report.add_finding(link, "no-ranges", str(cause))
    except reader.UnreachableError as cause:
        report.add_finding(link, "broken-link", str(cause))
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
        python = wheel_file.read_requires_python(content, name)
    except DataError as wrong:
        report.add_finding(
            link, "bad-wheel" if metadata is not None else "wrong-metadata", explain_error(wrong)
        )
        return
    if not _same_specifiers(python, link.requires_python):
        report.add_finding(
            link, "requires-python", f"the page says {link.requires_python!r}, METADATA {python!r}"
        )


def _check_provenance(
    link: reader.IndexLink, name: str, reach: reader.IndexReader, report: FileReport
) -> None:
    """Check the provenance object of a file; of a file on this disk the one beside it, where there is one."""
    if fault := provenance_object.find_url_fault(link.provenance):
        report.add_finding(link, "provenance-url", fault)
        return
    path = reader.path_of_url(link.url)
    beside = link.url + provenance_object.PROVENANCE_SUFFIX
    is_here = path is not None and path.with_name(path.name + provenance_object.PROVENANCE_SUFFIX).is_file()
    try:
        answer = reach.get(beside if is_here else link.provenance)
    except reader.UnreachableError as cause:
        report.add_finding(link, "missing-provenance", str(cause))
        return
    if answer.status != 200:
        report.add_finding(link, "missing-provenance", f"{answer.status} for {link.provenance}")
        return
    for fault in provenance_object.find_object_faults(
        answer.content, file_name=name, sha256=(link.sha256 or "").lower()
    ):
        report.add_finding(link, "wrong-provenance", fault)


def _fetch_offered_metadata(
    link: reader.IndexLink, reach: reader.IndexReader, report: FileReport
) -> bytes | None:
    try:
        answer = reach.get(link.url + METADATA_SUFFIX)
    except reader.UnreachableError as cause:
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
    link: reader.IndexLink,
    reach: reader.IndexReader,
    report: FileReport,
    *,
    full: bool,
    find_digest: FindDigest,
) -> None:
    if not link.sha256:
        return
    digest = None if full else find_digest(link.url)
    if digest is None and (full or reader.path_of_url(link.url) is not None):
        try:
            digest = reach.compute_digest(link.url)
        except (reader.UnreachableError, OSError) as cause:
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
    page: str,
    project: str,
    links: Mapping[str, reader.IndexLink],
    variants: Mapping[str, str],
    reach: reader.IndexReader,
) -> Iterator[Finding]:
    """Check the variants files of a page; ``links`` and the wheels' variant.json come by file name."""
    for name, link in links.items():
        if name.endswith("-variants.json"):
            wrong_keys = [key for key in _NOT_FOR_VARIANTS if key in link.keys or f"data-{key}" in link.keys]
            if wrong_keys:
                yield _make_finding(link.url, "variants-entry", f"has {', '.join(wrong_keys)}")
    releases: dict[str, dict[str, str]] = {}
    for name, text in variants.items():
        releases.setdefault(make_variants_name(project, parse_file_name(name)[1]), {})[name] = text
    for name, wheels in releases.items():
        if name not in links:
            yield _make_finding(
                page, "missing-variants", f"{name} is not linked; there are {', '.join(sorted(wheels))}"
            )
            continue
        yield from _check_variants_file(links[name], wheels, reach)


def _check_variants_file(
    link: reader.IndexLink, wheels: Mapping[str, str], reach: reader.IndexReader
) -> Iterator[Finding]:
    try:
        answer = reach.get(link.url)
    except reader.UnreachableError as cause:
        yield _make_finding(link.url, "broken-link", str(cause))
        return
    if answer.status != 200:
        yield _make_finding(link.url, "broken-link", f"{answer.status}")
        return
    digest = hashlib.sha256(answer.content).hexdigest()
    if link.sha256 and digest != link.sha256.lower():
        yield _make_finding(link.url, "wrong-variants", f"has sha256 {digest}, its link says {link.sha256}")
    try:
        expected = join_variants(wheels)
        published = document.parse_document(answer.content, name=PurePosixPath(urlsplit(link.url).path).name)
    except DataError as wrong:
        yield _make_finding(link.url, "wrong-variants", explain_error(wrong))
        return
    if published != expected:
        different = sorted(
            label
            for label in {*published.variants, *expected.variants}
            if published.variants.get(label) != expected.variants.get(label)
        )
        difference = f"of {', '.join(different)}" if different else "in priorities or providers"
        yield _make_finding(link.url, "wrong-variants", f"differs from what the wheels say {difference}")


_READABLE_TYPES = ("text/html", HTML_TYPE, JSON_TYPE)
_MOST_DIFFERENCES = 5
_LOCAL_FILE_DETAIL = "leads from a server to a file of this machine"
CrawlResult = tuple[list[Finding], int]  # faults, files looked at
CrawlJob = Callable[[], "tuple[CrawlResult, list[CrawlJob]]"]


@dataclass
class _ProjectPage:
    """A page whose files are being checked; when none is left, its variants are."""

    project: str
    url: str
    links: dict[str, reader.IndexLink]
    variants: dict[str, str] = field(default_factory=dict)
    unchecked: set[str] = field(default_factory=set)


class IndexCrawl:
    """One index; ``findings`` are those of its root page."""

    def __init__(self, base: str, reach: reader.IndexReader, *, full: bool, find_digest: FindDigest) -> None:
        self.base = base
        self.findings: list[Finding] = []
        self._reach = reach
        self._full = full
        self._find_digest = find_digest
        self._links: dict[str, str | None] = {}  # all files of project pages, with their digests

    def read_root(self) -> dict[str, str]:
        """Read the root page; return the pages of projects by name."""
        answer = self._reach.get(self.base, accept=reader.ACCEPT_PAGES)
        if answer.status >= 500:
            raise reader.make_status_error(self.base, answer.status)
        if answer.status != 200:
            raise UsageError(
                f"{self.base} is not an index: {answer.status}", tip="name the folder of its root page"
            )
        page, findings = _parse_answer(answer)
        self.findings += findings
        self.findings += self._check_missing_project()
        listed: dict[str, str] = {}
        for link in page.links if page else ():
            if self._leads_here(link):
                self.findings.append(
                    _make_finding(self.base, "broken-link", f"{link.href} {_LOCAL_FILE_DETAIL}")
                )
                continue
            name = canonicalize_name(link.name)
            if link.href.rstrip("/").rpartition("/")[2] != name or not link.href.endswith("/"):
                self.findings.append(
                    _make_finding(
                        self.base, "not-normalized", f"{link.href!r} for {link.name}; it must be {name}/"
                    )
                )
            listed[name] = link.url if link.url.endswith("/") else link.url + "/"
        return listed

    def _check_missing_project(self) -> Iterator[Finding]:
        name = f"no-such-project-{secrets.token_hex(4)}"
        url = f"{self.base}{name}/"
        try:
            status = self._reach.get(url, accept=reader.ACCEPT_PAGES).status
        except reader.UnreachableError as cause:
            yield _make_finding(url, "broken-link", str(cause))
            return
        if status != 404:
            yield _make_finding(
                self.base, "forbidden", f"{status} instead of 404 for {name}, which is not there"
            )

    def make_project_job(self, name: str, url: str) -> CrawlJob:
        """Return the job that reads a project page and finds the jobs for its files."""

        def job() -> tuple[CrawlResult, list[CrawlJob]]:
            findings: list[Finding] = []
            try:
                answer = self._reach.get(url, accept=reader.ACCEPT_PAGES)
            except reader.UnreachableError as cause:
                return ([_make_finding(url, "broken-link", str(cause))], 0), []
            except DataError as wrong:
                return ([_make_finding(url, "bad-page", wrong.message)], 0), []
            if answer.status != 200:
                return ([_make_finding(url, "broken-link", f"{answer.status} for the page of {name}")], 0), []
            page, page_findings = _parse_answer(answer, name)
            findings += page_findings
            if page is None:
                return (findings, 0), []
            page, differing = self._compare_forms(url, page, answer)
            findings += differing
            self._links |= {link.url: link.sha256 for link in page.links}
            local_links = [link for link in page.links if self._leads_here(link)]
            findings += [
                _make_finding(url, "broken-link", f"{link.href} {_LOCAL_FILE_DETAIL}") for link in local_links
            ]
            links = [link for link in page.links if link not in local_links]
            opened = _ProjectPage(name, url, {reader.file_name_of_link(link): link for link in links})
            opened.unchecked |= opened.links.keys()
            return (findings, 0), [self._make_file_job(opened, file) for file in opened.links]

        return job

    def _leads_here(self, link: reader.IndexLink) -> bool:
        """Tell whether a server links to the disk of whoever reads its pages: that is not looked at."""
        return reader.path_of_url(link.url) is not None and reader.path_of_url(self.base) is None

    def _make_file_job(self, page: _ProjectPage, name: str) -> CrawlJob:
        def job() -> tuple[CrawlResult, list[CrawlJob]]:
            link = page.links[name]
            report = check_file(
                link, page.project, self._reach, full=self._full, find_digest=self._find_digest
            )
            if report.variant is not None:
                page.variants[name] = report.variant
            page.unchecked.discard(name)
            return (report.findings, 1), [] if page.unchecked else [self._make_variants_job(page)]

        return job

    def _make_variants_job(self, page: _ProjectPage) -> CrawlJob:
        def job() -> tuple[CrawlResult, list[CrawlJob]]:
            variant_findings = check_variants(page.url, page.project, page.links, page.variants, self._reach)
            return (list(variant_findings), 0), []

        return job

    def _compare_forms(
        self, url: str, page: reader.IndexPage, answer: reader.IndexAnswer
    ) -> tuple[reader.IndexPage, list[Finding]]:
        """Compare with the other form of the page, where there is one; return the one that says more."""
        as_json = answer.kind.startswith(JSON_TYPE)
        try:
            other = self._reach.get(url, accept="text/html") if as_json else self._reach.get(url + JSON_PAGE)
        except reader.UnreachableError:
            return page, []
        kind = "text/html" if as_json else JSON_TYPE
        if other.status != 200:
            return page, []
        try:
            second = reader.parse_page(other.content, kind, answer.url)
        except DataError as wrong:
            return page, [_make_finding(other.url, "bad-page", explain_error(wrong))]
        differing = [*_find_differences(page, second)]
        findings = [
            _make_finding(url, "forms-differ", difference) for difference in differing[:_MOST_DIFFERENCES]
        ]
        findings += [_make_finding(other.url, "bad-page", fault) for fault in second.faults]
        return (page if as_json else second if not differing else page), findings

    def check_links_page(self) -> list[Finding]:
        """Compare the page for ``--find-links``, where there is one, with the project pages."""
        url = self.base + LINKS_PAGE
        try:
            answer = self._reach.get(url)
            if answer.status != 200:
                return []
            page = reader.parse_page(answer.content, "text/html", url)
        except (reader.UnreachableError, DataError) as wrong:
            return [_make_finding(url, "bad-page", explain_error(wrong))]
        listed = {link.url: link.sha256 for link in page.links}
        different = [
            link_url
            for link_url in {*listed, *self._links}
            if listed.get(link_url, "") != self._links.get(link_url, "")
        ]
        return [
            _make_finding(link_url, "forms-differ", f"{LINKS_PAGE} and the project page disagree")
            for link_url in different
        ]


def _parse_answer(
    answer: reader.IndexAnswer, project: str = ""
) -> tuple[reader.IndexPage | None, list[Finding]]:
    if not answer.kind.lower().startswith(_READABLE_TYPES):
        return None, [_make_finding(answer.url, "wrong-type", f"comes as {answer.kind or 'nothing'}")]
    try:
        page = reader.parse_page(answer.content, answer.kind, answer.url, project=project)
    except DataError as wrong:
        return None, [_make_finding(answer.url, "bad-page", wrong.message)]
    return page, [_make_finding(answer.url, "bad-page", fault) for fault in page.faults]


def _find_differences(first_page: reader.IndexPage, second_page: reader.IndexPage) -> Iterator[str]:
    sides = [{link.url: link for link in page.links} for page in (first_page, second_page)]
    for url in sorted({*sides[0], *sides[1]}):
        first, second = (side.get(url) for side in sides)
        if first is None or second is None:
            yield f"{reader.file_name_of_link(first or second)} is in one only"  # type: ignore[arg-type]
            continue
        for attribute in ("name", "sha256", "metadata", "requires_python", "yanked", "provenance"):
            if getattr(first, attribute) != getattr(second, attribute):
                yield (
                    f"{first.name}: {attribute} is {getattr(first, attribute)!r} and "
                    f"{getattr(second, attribute)!r}"
                )


def find_stale_pages(view: IndexFolder) -> Iterator[Finding]:
    """Yield the pages of an index that differ from what would be written; none for a folder without state."""
    if not (view.root / STATE_FOLDER).is_dir():
        yield from _find_unlisted(view)
        return
    if (note := view.root / STATE_FOLDER / PENDING_NOTE).exists():
        detail = (
            "a change is being made, or was cut short: the next command that changes the index finishes it"
        )
        yield _make_finding(str(note), "stale-page", detail)
    names = view.list_projects()
    links = [make_page_head("Links of all projects")]
    for project in names:
        own_entries = view.read_entries(project)
        general_entries = IndexFolder(view.root).read_entries(project) if view.family else {}
        try:
            entries = sort_entries(combine_entries(view, project, own_entries, general_entries))
            files = make_variants_files(project, entries)
        except DataError as wrong:
            yield _make_finding(str(view.project_folder(project)), "stale-page", explain_error(wrong))
            continue
        folder = view.project_folder(project)
        pages = update.make_project_pages(folder, project, entries, files) | update.place_variants_files(
            folder, entries, files
        )
        links.append(make_links(project, make_project_html(project, entries, files)))
        for path, content in pages.items():
            if not path.is_file() or path.read_bytes() != content:
                yield _make_finding(str(path), "stale-page", "is not what follows from the known wheels")
    family_names = [] if view.family else list_families(view.root)
    tops = {
        HTML_PAGE: make_root_html(names, family_names),
        JSON_PAGE: make_root_json(names),
        LINKS_PAGE: b"".join([*links, PAGE_TAIL]),
    }
    for name, content in tops.items():
        path = view.folder / name
        if not path.is_file() or path.read_bytes() != content:
            yield _make_finding(str(path), "stale-page", "is not what follows from the known wheels")
    yield from _find_unlisted(view)


def _find_unlisted(view: IndexFolder) -> Iterator[Finding]:
    page = view.folder / HTML_PAGE
    text = page.read_text(encoding="utf-8", errors="replace") if page.is_file() else ""
    skipped = set() if view.family else set(list_families(view.root))
    for path in sorted(view.folder.iterdir()) if view.folder.is_dir() else ():  # somebody has removed it
        is_project = path.name not in skipped and canonicalize_name(path.name) == path.name
        if is_project and (path / HTML_PAGE).is_file() and f'href="{path.name}/"' not in text:
            yield _make_finding(str(path / HTML_PAGE), "not-listed", "the root page has no link to it")


VERIFY_JOBS = 8


@dataclass(frozen=True)
class VerifiedIndex:
    """What was looked at, and the faults."""

    projects: int
    files: int
    findings: tuple[Finding, ...]

    @property
    def errors(self) -> tuple[Finding, ...]:
        """The faults that make it fail."""
        return find_errors(self.findings)


def verify_index(
    index: str, *, full: bool = False, jobs: int = VERIFY_JOBS, retries: int = 4, timeout: float = 60
) -> VerifiedIndex:
    """Read an index; of a folder also those of its families, and whether its pages are up to date.

    With ``full`` every file is hashed; else those on this disk that changed since they were hashed. On a
    server METADATA is read from the wheels by ranges. UsageError when there is no index at all.
    """
    base = reader.resolve_index_url(index)
    reach = reader.IndexReader(retries=retries, timeout=timeout)
    path = reader.path_of_url(base)
    folders = list_index_folders(path) if path else []
    find_digest = _make_digest_finder(path) if path else lambda _url: None
    written = [view.family for view in folders if view.family and (view.folder / HTML_PAGE).is_file()]
    bases = [base, *(f"{base}{family}/" for family in written)]  # of others, the pages are stale
    projects = files = 0
    findings: list[Finding] = []
    for folder_url in bases:
        crawl = IndexCrawl(folder_url, reach, full=full, find_digest=find_digest)
        listed = crawl.read_root()
        findings += crawl.findings
        for new_findings, count in parallel.run_growing_work(
            _run_job, [crawl.make_project_job(name, url) for name, url in listed.items()], jobs=jobs
        ):
            findings += new_findings
            files += count
        findings += crawl.check_links_page()
        projects += len(listed)
    for view in folders:
        findings += find_stale_pages(view)
    return VerifiedIndex(projects, files, tuple(sorted(set(findings), key=_sort_key)))


def _sort_key(finding: Finding) -> tuple[str, str, str]:
    return finding.subject, finding.check, finding.message


def _run_job(job: CrawlJob) -> tuple[CrawlResult, list[CrawlJob]]:
    return job()


def _make_digest_finder(root: Path) -> FindDigest:
    """Return the digests of files that are as they were when they were hashed."""
    digests: dict[Path, tuple[int, int, str]] = {}
    for view in list_index_folders(root):
        for project in view.list_own_projects():
            for entry in view.read_entries(project).values():
                file = view.file_of(project, entry)
                if file is not None:
                    digests[file.resolve()] = entry.size, entry.changed, entry.sha256

    def digest(url: str) -> str | None:
        path = reader.path_of_url(url)
        if path is None or (known_file := digests.get(path.resolve())) is None:
            return None
        state = path.stat()
        return known_file[2] if (state.st_size, state.st_mtime_ns) == known_file[:2] else None

    return digest
