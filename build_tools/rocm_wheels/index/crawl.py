"""Reading an index as installers do: from the root page to the files, finding work while it goes."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from packaging.utils import canonicalize_name

from rocm_wheels.errors import DataError, UsageError, explain_error
from rocm_wheels.index.checks import FindDigest, check_file, check_variants
from rocm_wheels.index.faults import IndexFinding
from rocm_wheels.index.pages import HTML_TYPE, JSON_TYPE
from rocm_wheels.index.reach import ACCEPT_PAGES, IndexAnswer, IndexReader, UnreachableError, path_of_url
from rocm_wheels.index.reading import IndexLink, IndexPage, file_name_of_link, parse_page
from rocm_wheels.index.views import JSON_PAGE, LINKS_PAGE

_READABLE_TYPES = ("text/html", HTML_TYPE, JSON_TYPE)
_MOST_DIFFERENCES = 5
_LOCAL_FILE_DETAIL = "leads from a server to a file of this machine"
CrawlResult = tuple[list[IndexFinding], int]  # faults, files looked at
CrawlJob = Callable[[], "tuple[CrawlResult, list[CrawlJob]]"]


@dataclass
class _ProjectPage:
    """A page whose files are being checked; when none is left, its variants are."""

    project: str
    url: str
    links: dict[str, IndexLink]
    variants: dict[str, str] = field(default_factory=dict)
    unchecked: set[str] = field(default_factory=set)


class IndexCrawl:
    """One index; ``findings`` are those of its root page."""

    def __init__(self, base: str, reach: IndexReader, *, full: bool, find_digest: FindDigest) -> None:
        self.base = base
        self.findings: list[IndexFinding] = []
        self._reach = reach
        self._full = full
        self._find_digest = find_digest
        self._links: dict[str, str | None] = {}  # all files of project pages, with their digests

    def read_root(self) -> dict[str, str]:
        """Read the root page; return the pages of projects by name."""
        try:
            answer = self._reach.get(self.base, accept=ACCEPT_PAGES)
        except UnreachableError as cause:
            raise UsageError(f"{self.base} cannot be reached: {cause}") from None
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
                    IndexFinding(self.base, "broken-link", f"{link.href} {_LOCAL_FILE_DETAIL}")
                )
                continue
            name = canonicalize_name(link.name)
            if link.href.rstrip("/").rpartition("/")[2] != name or not link.href.endswith("/"):
                self.findings.append(
                    IndexFinding(
                        self.base, "not-normalized", f"{link.href!r} for {link.name}; it must be {name}/"
                    )
                )
            listed[name] = link.url if link.url.endswith("/") else link.url + "/"
        return listed

    def _check_missing_project(self) -> Iterator[IndexFinding]:
        name = f"no-such-project-{secrets.token_hex(4)}"
        url = f"{self.base}{name}/"
        try:
            status = self._reach.get(url, accept=ACCEPT_PAGES).status
        except UnreachableError as cause:
            yield IndexFinding(url, "broken-link", str(cause))
            return
        if status != 404:
            yield IndexFinding(
                self.base, "forbidden", f"{status} instead of 404 for {name}, which is not there"
            )

    def make_project_job(self, name: str, url: str) -> CrawlJob:
        """Return the job that reads a project page and finds the jobs for its files."""

        def job() -> tuple[CrawlResult, list[CrawlJob]]:
            findings: list[IndexFinding] = []
            try:
                answer = self._reach.get(url, accept=ACCEPT_PAGES)
            except UnreachableError as cause:
                return ([IndexFinding(url, "broken-link", str(cause))], 0), []
            if answer.status != 200:
                return ([IndexFinding(url, "broken-link", f"{answer.status} for the page of {name}")], 0), []
            page, page_findings = _parse_answer(answer)
            findings += page_findings
            if page is None:
                return (findings, 0), []
            page, differing = self._compare_forms(url, page, answer)
            findings += differing
            self._links |= {link.url: link.sha256 for link in page.links}
            local_links = [link for link in page.links if self._leads_here(link)]
            findings += [
                IndexFinding(url, "broken-link", f"{link.href} {_LOCAL_FILE_DETAIL}") for link in local_links
            ]
            links = [link for link in page.links if link not in local_links]
            opened = _ProjectPage(name, url, {file_name_of_link(link): link for link in links})
            opened.unchecked |= opened.links.keys()
            return (findings, 0), [self._make_file_job(opened, file) for file in opened.links]

        return job

    def _leads_here(self, link: IndexLink) -> bool:
        """Tell whether a server links to the disk of whoever reads its pages: that is not looked at."""
        return path_of_url(link.url) is not None and path_of_url(self.base) is None

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
        self, url: str, page: IndexPage, answer: IndexAnswer
    ) -> tuple[IndexPage, list[IndexFinding]]:
        """Compare with the other form of the page, where there is one; return the one that says more."""
        as_json = answer.kind.startswith(JSON_TYPE)
        try:
            other = self._reach.get(url, accept="text/html") if as_json else self._reach.get(url + JSON_PAGE)
        except UnreachableError:
            return page, []
        kind = "text/html" if as_json else JSON_TYPE
        if other.status != 200:
            return page, []
        try:
            second = parse_page(other.content, kind, answer.url)
        except DataError as wrong:
            return page, [IndexFinding(other.url, "bad-page", explain_error(wrong))]
        differing = [*_find_differences(page, second)]
        findings = [
            IndexFinding(url, "forms-differ", difference) for difference in differing[:_MOST_DIFFERENCES]
        ]
        findings += [IndexFinding(other.url, "bad-page", fault) for fault in second.faults]
        return (page if as_json else second if not differing else page), findings

    def check_links_page(self) -> list[IndexFinding]:
        """Compare the page for ``--find-links``, where there is one, with the project pages."""
        url = self.base + LINKS_PAGE
        try:
            answer = self._reach.get(url)
            if answer.status != 200:
                return []
            page = parse_page(answer.content, "text/html", url)
        except (UnreachableError, DataError) as wrong:
            return [IndexFinding(url, "bad-page", explain_error(wrong))]
        listed = {link.url: link.sha256 for link in page.links}
        different = [
            link_url
            for link_url in {*listed, *self._links}
            if listed.get(link_url, "") != self._links.get(link_url, "")
        ]
        return [
            IndexFinding(link_url, "forms-differ", f"{LINKS_PAGE} and the project page disagree")
            for link_url in different
        ]


def _parse_answer(answer: IndexAnswer) -> tuple[IndexPage | None, list[IndexFinding]]:
    findings = []
    if not answer.kind.lower().startswith(_READABLE_TYPES):
        findings.append(IndexFinding(answer.url, "wrong-type", f"comes as {answer.kind or 'nothing'}"))
    try:
        page = parse_page(answer.content, answer.kind, answer.url)
    except DataError as wrong:
        return None, [*findings, IndexFinding(answer.url, "bad-page", explain_error(wrong))]
    return page, [*findings, *(IndexFinding(answer.url, "bad-page", fault) for fault in page.faults)]


def _find_differences(first_page: IndexPage, second_page: IndexPage) -> Iterator[str]:
    sides = [{link.url: link for link in page.links} for page in (first_page, second_page)]
    for url in sorted({*sides[0], *sides[1]}):
        first, second = (side.get(url) for side in sides)
        if first is None or second is None:
            yield f"{file_name_of_link(first or second)} is in one only"  # type: ignore[arg-type]
            continue
        for attribute in ("name", "sha256", "metadata", "requires_python", "yanked"):
            if getattr(first, attribute) != getattr(second, attribute):
                yield f"{first.name}: {attribute} is {getattr(first, attribute)!r} and {getattr(second, attribute)!r}"
