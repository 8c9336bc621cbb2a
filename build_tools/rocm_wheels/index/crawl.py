"""Reading an index as installers do: from the root page to the files, finding work while it goes."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from packaging.utils import canonicalize_name

from rocm_wheels.errors import DataError, UsageError, explain
from rocm_wheels.index.checks import KnownDigest, check_file, check_variants
from rocm_wheels.index.faults import Finding
from rocm_wheels.index.pages import HTML_TYPE, JSON_TYPE
from rocm_wheels.index.reach import ACCEPT, Answer, Reach, UnreachableError, local_path
from rocm_wheels.index.reading import Link, Page, file_name, read_page
from rocm_wheels.index.views import JSON, LINKS

_READ = ("text/html", HTML_TYPE, JSON_TYPE)
_MOST_SHOWN = 5
_HERE = "leads from a server to a file of this machine"
Result = tuple[list[Finding], int]  # faults, files looked at
Job = Callable[[], "tuple[Result, list[Job]]"]


@dataclass
class _ProjectPage:
    """A page whose files are being checked; when none is left, its variants are."""

    project: str
    url: str
    links: dict[str, Link]
    variants: dict[str, str] = field(default_factory=dict)
    left: set[str] = field(default_factory=set)


class Crawl:
    """One index; ``findings`` are those of its root page."""

    def __init__(self, base: str, reach: Reach, *, full: bool, known: KnownDigest) -> None:
        self.base = base
        self.findings: list[Finding] = []
        self._reach = reach
        self._full = full
        self._known = known
        self._links: dict[str, str | None] = {}  # all files of project pages, with their digests

    def root(self) -> dict[str, str]:
        """Read the root page; return the pages of projects by name."""
        try:
            answer = self._reach.get(self.base, accept=ACCEPT)
        except UnreachableError as cause:
            raise UsageError(f"{self.base} cannot be reached: {cause}") from None
        if answer.status != 200:
            raise UsageError(
                f"{self.base} is not an index: {answer.status}", tip="name the folder of its root page"
            )
        page, findings = _page(answer)
        self.findings += findings
        self.findings += self._missing_project()
        listed: dict[str, str] = {}
        for link in page.links if page else ():
            if self._leads_here(link):
                self.findings.append(Finding(self.base, "broken-link", f"{link.href} {_HERE}"))
                continue
            name = canonicalize_name(link.name)
            if link.href.rstrip("/").rpartition("/")[2] != name or not link.href.endswith("/"):
                self.findings.append(
                    Finding(self.base, "not-normalized", f"{link.href!r} for {link.name}; it must be {name}/")
                )
            listed[name] = link.url if link.url.endswith("/") else link.url + "/"
        return listed

    def _missing_project(self) -> Iterator[Finding]:
        name = f"no-such-project-{secrets.token_hex(4)}"
        url = f"{self.base}{name}/"
        try:
            status = self._reach.get(url, accept=ACCEPT).status
        except UnreachableError as cause:
            yield Finding(url, "broken-link", str(cause))
            return
        if status != 404:
            yield Finding(self.base, "forbidden", f"{status} instead of 404 for {name}, which is not there")

    def project(self, name: str, url: str) -> Job:
        """Return the job that reads a project page and finds the jobs for its files."""

        def job() -> tuple[Result, list[Job]]:
            findings: list[Finding] = []
            try:
                answer = self._reach.get(url, accept=ACCEPT)
            except UnreachableError as cause:
                return ([Finding(url, "broken-link", str(cause))], 0), []
            if answer.status != 200:
                return ([Finding(url, "broken-link", f"{answer.status} for the page of {name}")], 0), []
            page, found = _page(answer)
            findings += found
            if page is None:
                return (findings, 0), []
            page, differing = self._with_json(url, page, answer)
            findings += differing
            self._links |= {link.url: link.sha256 for link in page.links}
            here = [link for link in page.links if self._leads_here(link)]
            findings += [Finding(url, "broken-link", f"{link.href} {_HERE}") for link in here]
            links = [link for link in page.links if link not in here]
            opened = _ProjectPage(name, url, {file_name(link): link for link in links})
            opened.left |= opened.links.keys()
            return (findings, 0), [self._file(opened, file) for file in opened.links]

        return job

    def _leads_here(self, link: Link) -> bool:
        """Tell whether a server links to the disk of whoever reads its pages: that is not looked at."""
        return local_path(link.url) is not None and local_path(self.base) is None

    def _file(self, page: _ProjectPage, name: str) -> Job:
        def job() -> tuple[Result, list[Job]]:
            link = page.links[name]
            report = check_file(link, page.project, self._reach, full=self._full, known=self._known)
            if report.variant is not None:
                page.variants[name] = report.variant
            page.left.discard(name)
            return (report.findings, 1), [] if page.left else [self._variants(page)]

        return job

    def _variants(self, page: _ProjectPage) -> Job:
        def job() -> tuple[Result, list[Job]]:
            found = check_variants(page.url, page.project, page.links, page.variants, self._reach)
            return (list(found), 0), []

        return job

    def _with_json(self, url: str, page: Page, answer: Answer) -> tuple[Page, list[Finding]]:
        """Compare with the other form of the page, where there is one; return the one that says more."""
        as_json = answer.kind.startswith(JSON_TYPE)
        try:
            other = self._reach.get(url, accept="text/html") if as_json else self._reach.get(url + JSON)
        except UnreachableError:
            return page, []
        kind = "text/html" if as_json else JSON_TYPE
        if other.status != 200:
            return page, []
        try:
            second = read_page(other.content, kind, answer.url)
        except DataError as wrong:
            return page, [Finding(other.url, "bad-page", explain(wrong))]
        differing = [*_differing(page, second)]
        findings = [Finding(url, "forms-differ", said) for said in differing[:_MOST_SHOWN]]
        findings += [Finding(other.url, "bad-page", fault) for fault in second.faults]
        return (page if as_json else second if not differing else page), findings

    def find_links(self) -> list[Finding]:
        """Compare the page for ``--find-links``, where there is one, with the project pages."""
        url = self.base + LINKS
        try:
            answer = self._reach.get(url)
            if answer.status != 200:
                return []
            page = read_page(answer.content, "text/html", url)
        except (UnreachableError, DataError) as wrong:
            return [Finding(url, "bad-page", explain(wrong))]
        listed = {link.url: link.sha256 for link in page.links}
        different = [
            one for one in {*listed, *self._links} if listed.get(one, "") != self._links.get(one, "")
        ]
        return [Finding(one, "forms-differ", f"{LINKS} and the project page disagree") for one in different]


def _page(answer: Answer) -> tuple[Page | None, list[Finding]]:
    findings = []
    if not answer.kind.lower().startswith(_READ):
        findings.append(Finding(answer.url, "wrong-type", f"comes as {answer.kind or 'nothing'}"))
    try:
        page = read_page(answer.content, answer.kind, answer.url)
    except DataError as wrong:
        return None, [*findings, Finding(answer.url, "bad-page", explain(wrong))]
    return page, [*findings, *(Finding(answer.url, "bad-page", fault) for fault in page.faults)]


def _differing(one: Page, other: Page) -> Iterator[str]:
    sides = [{link.url: link for link in page.links} for page in (one, other)]
    for url in sorted({*sides[0], *sides[1]}):
        first, second = (side.get(url) for side in sides)
        if first is None or second is None:
            yield f"{file_name(first or second)} is in one only"  # type: ignore[arg-type]
            continue
        for what in ("name", "sha256", "metadata", "requires_python", "yanked"):
            if getattr(first, what) != getattr(second, what):
                yield f"{first.name}: {what} is {getattr(first, what)!r} and {getattr(second, what)!r}"
