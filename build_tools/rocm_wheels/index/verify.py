"""Verify an index, in a folder or at a URL: every page, link, METADATA and variants file.

Several files are looked at at a time. It is read as installers read it, from the root page to the files,
finding work on the way. Of a folder, pages are also compared with what follows from those as JSON.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import secrets
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name

from rocm_wheels.core import errors, parallel
from rocm_wheels.index import folder, pages, provenance_object, reader, update, wheel_file
from rocm_wheels.index.folder import HTML_PAGE, JSON_PAGE, METADATA_SUFFIX, VARIANTS_SUFFIX, IndexFolder
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
_OTHER_SUFFIXES = (".zip", ".tar.bz2", ".egg", ".exe")  # installers know them; they are not ours to judge
_NOT_FOR_VARIANTS = ("core-metadata", "dist-info-metadata", "requires-python", "yanked")
_READABLE_TYPES = ("text/html", pages.HTML_TYPE, pages.JSON_TYPE)
_COMPARED = ("name", "sha256", "metadata", "requires_python", "yanked", "provenance")
_MOST_DIFFERENCES = 5
_LOCAL_FILE_DETAIL = "leads from a server to a file of this machine"

AnswerT = TypeVar("AnswerT")
Links = tuple[reader.IndexLink, ...]


def _make_finding(place: str, fault: str, detail: str) -> errors.Finding:
    """Return a fault by its name in ``FAULTS``, seen at a URL or in a file."""
    severity: errors.Severity = "warning" if fault in WARNING_FAULTS else "error"
    return errors.Finding(severity, detail, subject=place, check=fault)


@dataclass(frozen=True)
class _ProjectPage:
    """The page of a project: its links by the names of their files."""

    project: str
    url: str
    links: Mapping[str, reader.IndexLink]


class _Crawl:
    """One index as installers see it; ``findings`` are all that is wrong.

    Content is hashed with ``full``, or when it lies on this disk and ``digests`` has none for it as it is.
    """

    def __init__(
        self,
        base: str,
        reach: reader.IndexReader,
        *,
        full: bool,
        digests: Mapping[Path, tuple[int, int, str]],
    ) -> None:
        self.base = base
        self.findings: list[errors.Finding] = []
        self._reach = reach
        self._full = full
        self._digests = digests
        self._links: dict[str, str | None] = {}  # all files of project pages, with their digests

    def report(self, place: str, fault: str, detail: str) -> None:
        """Note a fault."""
        self.findings.append(_make_finding(place, fault, detail))

    def _try(
        self, place: str, unreachable: str, wrong: str, ask: Callable[[], AnswerT], *, unusable: str = ""
    ) -> AnswerT | None:
        """Return what is asked for; None after the fault was noted: not to be had, or not as it must be."""
        try:
            return ask()
        except reader.UnusableAnswerError as cause:
            self.report(place, unusable or unreachable, cause.message)
        except reader.UnreachableError as cause:
            self.report(place, unreachable, cause.message)
        except errors.DataError as cause:
            self.report(place, wrong, errors.split_explanation(cause)[0])
        return None

    def _fetch(
        self, place: str, fault: str, url: str, subject: str = "", *, accept: str = "*/*"
    ) -> reader.IndexAnswer | None:
        """Return a page or file; None after the fault was noted that there is none."""
        answer = self._try(place, fault, "bad-page", lambda: self._reach.get(url, accept=accept))
        if answer is not None and answer.status != 200:
            self.report(place, fault, f"{answer.status}{subject and f' for {subject}'}")
            return None
        return answer

    def _parse(self, answer: reader.IndexAnswer, project: str = "", kind: str = "") -> Links | None:
        """Return the links of a page, of a known ``kind`` or as the server says; None after a fault."""
        kind = kind or answer.kind
        if not kind.lower().startswith(_READABLE_TYPES):
            self.report(answer.url, "wrong-type", f"comes as {kind or 'nothing'}")
            return None
        links = self._try(
            answer.url,
            "bad-page",
            "bad-page",
            lambda: reader.parse_page(answer.content, kind, answer.url, project=project),
        )
        is_json = links is not None and project and kind.startswith(pages.JSON_TYPE)
        if is_json and not isinstance(json.loads(answer.content).get("versions"), list):
            self.report(answer.url, "bad-page", "has no versions (PEP 700)")
        return links

    def _leads_here(self, place: str, link: reader.IndexLink) -> bool:
        """Tell whether a server links to the disk of whoever reads its pages: that is not looked at."""
        leads_here = reader.path_of_url(link.url) is not None and reader.path_of_url(self.base) is None
        if leads_here:
            self.report(place, "broken-link", f"{link.href} {_LOCAL_FILE_DETAIL}")
        return leads_here

    def run(self) -> tuple[int, int]:
        """Read it all; return how many projects and files there are. UsageError when there is no index."""
        projects = self._read_root()
        listed = parallel.run_in_parallel(self._read_project, projects.items())
        read = [page for page in listed if page is not None]
        files = [(page.project, name, link) for page in read for name, link in page.links.items()]
        documents = parallel.run_in_parallel(lambda file: self._check_file(*file), files)
        variants: dict[str, dict[str, str]] = {}
        for (project, name, _), text in zip(files, documents, strict=True):
            if text is not None:
                variants.setdefault(project, {})[name] = text
        parallel.run_in_parallel(
            lambda page: self._check_variants(page, variants.get(page.project, {})), read
        )
        self._check_links_page()
        return len(projects), len(files)

    def _read_root(self) -> dict[str, str]:
        """Return the pages of projects by name."""
        answer = self._reach.get(self.base, accept=reader.ACCEPT_PAGES)
        if answer.status >= 500:
            raise reader.make_status_error(self.base, answer.status)
        if answer.status != 200:
            raise errors.UsageError(
                f"{self.base} is not an index: {answer.status}", tip="name the folder of its root page"
            )
        links = self._parse(answer)
        missing = f"no-such-project-{secrets.token_hex(4)}"
        url = f"{self.base}{missing}/"
        absent = self._try(
            url, "broken-link", "bad-page", lambda: self._reach.get(url, accept=reader.ACCEPT_PAGES)
        )
        if absent is not None and absent.status != 404:
            detail = f"{absent.status} instead of 404 for {missing}, which is not there"
            self.report(self.base, "forbidden", detail)
        projects: dict[str, str] = {}
        for link in links or ():
            if self._leads_here(self.base, link):
                continue
            name = canonicalize_name(link.name)
            if link.href.rstrip("/").rpartition("/")[2] != name or not link.href.endswith("/"):
                self.report(self.base, "not-normalized", f"{link.href!r} for {link.name}; it must be {name}/")
            projects[name] = link.url if link.url.endswith("/") else link.url + "/"
        return projects

    def _read_project(self, item: tuple[str, str]) -> _ProjectPage | None:
        """Read a project's page, and compare its two forms, where there are two."""
        project, url = item
        answer = self._fetch(url, "broken-link", url, f"the page of {project}", accept=reader.ACCEPT_PAGES)
        links = self._parse(answer, project) if answer else None
        if answer is None or links is None:
            return None
        links = self._compare_forms(project, url, links, answer)
        self._links |= {link.url: link.sha256 for link in links}
        checked = [link for link in links if not self._leads_here(url, link)]
        return _ProjectPage(project, url, {reader.file_name_of_link(link): link for link in checked})

    def _compare_forms(self, project: str, url: str, links: Links, answer: reader.IndexAnswer) -> Links:
        """Compare with the other form of the page, where there is one; return the one that says more."""
        as_json = answer.kind.startswith(pages.JSON_TYPE)
        try:
            other = self._reach.get(url, accept="text/html") if as_json else self._reach.get(url + JSON_PAGE)
        except (reader.UnreachableError, reader.UnreadablePageError):
            return links
        if other.status != 200:
            return links
        second = self._parse(other, project, "text/html" if as_json else pages.JSON_TYPE)
        if second is None:
            return links
        first, other_links = ({link.url: link for link in form} for form in (links, second))
        differences = [
            f"{reader.file_name_of_link((first | other_links)[link_url])} is in one only"
            for link_url in sorted(first.keys() ^ other_links.keys())
        ]
        for link_url in sorted(first.keys() & other_links.keys()):
            for key in _COMPARED:
                values = [getattr(form[link_url], key) for form in (first, other_links)]
                if values[0] != values[1]:
                    differences.append(f"{first[link_url].name}: {key} is {values[0]!r} and {values[1]!r}")
        for difference in differences[:_MOST_DIFFERENCES]:
            self.report(url, "forms-differ", difference)
        return links if as_json or differences else second

    def _check_links_page(self) -> None:
        """Compare the page for ``--find-links``, where there is one, with the project pages."""
        url = self.base + folder.LINKS_PAGE
        answer = self._try(url, "bad-page", "bad-page", lambda: self._reach.get(url))
        links = self._parse(answer, kind="text/html") if answer and answer.status == 200 else None
        if links is None:
            return
        listed = {link.url: link.sha256 for link in links}
        for link_url in {*listed, *self._links}:
            if listed.get(link_url, "") != self._links.get(link_url, ""):
                self.report(link_url, "forms-differ", f"{folder.LINKS_PAGE} and the project page disagree")

    def _check_file(self, project: str, name: str, link: reader.IndexLink) -> str | None:
        """Check a link and the file behind it; return the ``variant.json`` of a wheel with a label."""
        url = link.url
        if "+" in urlsplit(link.href).path:
            self.report(url, "unescaped-plus", link.href)
        if link.name != name:
            self.report(url, "bad-name", f"is called {link.name!r} on the page")
        if not link.sha256:
            self.report(url, "no-hash", "no sha256")
        if name.endswith(VARIANTS_SUFFIX):
            return None  # with the wheels of its release
        answer = self._try(url, "broken-link", "bad-page", lambda: self._reach.fetch_size(url))
        if answer is None:
            return None
        status, size = answer
        if status != 200:
            self.report(url, "broken-link", f"{status}")
            return None
        if link.size is not None and size is not None and link.size != size:
            self.report(url, "wrong-size", f"{size} bytes, the page says {link.size}")
        if not name.endswith(wheel_file.FILE_SUFFIXES):
            if not name.endswith(_OTHER_SUFFIXES):
                self.report(url, "bad-name", "is neither a wheel nor a source distribution")
            return None
        parsed = self._try(url, "bad-name", "bad-name", lambda: folder.parse_file_name(name))
        if parsed is None:
            return None
        if parsed[0] != project:
            self.report(url, "wrong-page", f"is of {parsed[0]}, the page of {project}")
        variant = self._check_content(link, name, size) if name.endswith(".whl") else None
        if link.provenance:
            self._check_provenance(link, name)
        if link.sha256:
            self._check_digest(link, link.sha256)
        return variant

    def _check_content(self, link: reader.IndexLink, name: str, size: int | None) -> str | None:
        offered = None
        metadata, variant = self._try(
            link.url,
            "broken-link",
            "bad-wheel",
            lambda: self._reach.fetch_metadata_and_variant(link.url, name, size),
            unusable="no-ranges",
        ) or (None, None)
        if link.metadata is None:
            self.report(link.url, "no-metadata", "no data-core-metadata")
        elif answer := self._fetch(link.url, "missing-metadata", link.url + METADATA_SUFFIX, METADATA_SUFFIX):
            offered = answer.content
            digest = hashlib.sha256(offered).hexdigest()
            if link.metadata and digest != link.metadata:
                detail = f"{METADATA_SUFFIX} has sha256 {digest}, the page says {link.metadata}"
                self.report(link.url, "wrong-metadata", detail)
        if metadata is not None and offered is not None and metadata != offered:
            detail = f"{METADATA_SUFFIX} differs from the METADATA in the wheel"
            self.report(link.url, "wrong-metadata", detail)
        content = offered if metadata is None else metadata
        if content is None:
            return variant
        fault = "bad-wheel" if metadata is not None else "wrong-metadata"
        python = self._try(link.url, fault, fault, lambda: wheel_file.read_requires_python(content, name))
        if python is None:
            return variant
        with contextlib.suppress(InvalidSpecifier):  # which is no other one than METADATA have
            if SpecifierSet(python) == SpecifierSet(link.requires_python):
                return variant
        detail = f"the page says {link.requires_python!r}, METADATA {python!r}"
        self.report(link.url, "requires-python", detail)
        return variant

    def _check_provenance(self, link: reader.IndexLink, name: str) -> None:
        """Check the provenance object of a file; of one on this disk that beside it, where there is one."""
        if fault := provenance_object.find_url_fault(link.provenance):
            self.report(link.url, "provenance-url", fault)
            return
        url, beside = link.provenance, link.url + provenance_object.PROVENANCE_SUFFIX
        if (path := reader.path_of_url(beside)) is not None and path.is_file():
            url = beside
        if answer := self._fetch(link.url, "missing-provenance", url, link.provenance):
            for fault in provenance_object.find_object_faults(
                answer.content, file_name=name, sha256=(link.sha256 or "").lower()
            ):
                self.report(link.url, "wrong-provenance", fault)

    def _check_digest(self, link: reader.IndexLink, stated: str) -> None:
        path, digest = reader.path_of_url(link.url), None
        if path is not None and not self._full and (noted := self._digests.get(path.resolve())):
            status = path.stat()
            digest = noted[2] if (status.st_size, status.st_mtime_ns) == noted[:2] else None
        if digest is None and (self._full or path is not None):
            try:
                digest = self._reach.compute_digest(link.url)
            except (reader.UnreachableError, OSError) as cause:
                self.report(link.url, "broken-link", f"cannot be read whole: {cause}")
        if digest is not None and digest != stated.lower():
            self.report(link.url, "wrong-hash", f"has sha256 {digest}, its link says {stated}")

    def _check_variants(self, page: _ProjectPage, variants: Mapping[str, str]) -> None:
        """Check the variants files of a page; the wheels' variant.json come by file name."""
        for name, link in page.links.items():
            wrong_keys = [key for key in _NOT_FOR_VARIANTS if key in link.keys or f"data-{key}" in link.keys]
            if name.endswith(VARIANTS_SUFFIX) and wrong_keys:
                self.report(link.url, "variants-entry", f"has {', '.join(wrong_keys)}")
        releases: dict[str, dict[str, str]] = {}
        for name, text in variants.items():
            release = pages.make_variants_name(page.project, folder.parse_file_name(name)[1])
            releases.setdefault(release, {})[name] = text
        for name, wheels in releases.items():
            if name in page.links:
                self._check_variants_file(page.links[name], name, wheels)
            else:
                detail = f"{name} is not linked; there are {', '.join(sorted(wheels))}"
                self.report(page.url, "missing-variants", detail)

    def _check_variants_file(self, link: reader.IndexLink, name: str, wheels: Mapping[str, str]) -> None:
        answer = self._fetch(link.url, "broken-link", link.url)
        if answer is None:
            return
        content, fault = answer.content, "wrong-variants"
        digest = hashlib.sha256(content).hexdigest()
        if link.sha256 and digest != link.sha256.lower():
            self.report(link.url, fault, f"has sha256 {digest}, its link says {link.sha256}")
        expected = self._try(link.url, fault, fault, lambda: pages.join_variants(wheels))
        published = self._try(link.url, fault, fault, lambda: document.parse_document(content, name=name))
        if published is not None and expected is not None and published != expected:
            labels = sorted({*published.variants, *expected.variants})
            different = [
                label for label in labels if published.variants.get(label) != expected.variants.get(label)
            ]
            difference = f"of {', '.join(different)}" if different else "in priorities or providers"
            self.report(link.url, fault, f"differs from what the wheels say {difference}")


def _find_stale_pages(view: IndexFolder) -> Iterator[errors.Finding]:
    """Yield the pages of an index that differ from what follows from its pages as JSON.

    Of a folder that was not made here only those that the root page does not link.
    """
    families = [] if view.family else folder.list_families(view.root)
    expected: dict[Path, bytes] = {}
    if (view.root / folder.STATE_FOLDER).is_dir():
        names = view.list_projects()
        expected |= update.make_root_files(view, names, families)
        links = [pages.make_page_head("Links of all projects")]
        for project in names:
            try:
                general_entries = IndexFolder(view.root).read_entries(project) if view.family else {}
                made = update.make_project_files(view, project, view.read_entries(project), general_entries)
            except errors.DataError as wrong:
                detail = errors.split_explanation(wrong)[0]
                yield _make_finding(str(view.page_of(project)), "stale-page", detail)
                continue
            expected |= made
            links.append(pages.make_links(project, made.get(view.folder / project / HTML_PAGE, b"")))
        expected[view.folder / folder.LINKS_PAGE] = b"".join([*links, pages.PAGE_TAIL])
    for path, content in expected.items():
        if not path.is_file() or path.read_bytes() != content:
            detail = "is not what follows from the pages as JSON: `index build` writes it again"
            yield _make_finding(str(path), "stale-page", detail)
    page = view.folder / HTML_PAGE
    text = page.read_text(encoding="utf-8", errors="replace") if page.is_file() else ""
    for path in sorted(view.folder.iterdir()) if view.folder.is_dir() else ():  # somebody has removed it
        is_project = path.name not in families and canonicalize_name(path.name) == path.name
        if is_project and (path / HTML_PAGE).is_file() and f'href="{path.name}/"' not in text:
            yield _make_finding(str(path / HTML_PAGE), "not-listed", "the root page has no link to it")


@dataclass(frozen=True)
class VerifiedIndex:
    """What was looked at, and the faults."""

    projects: int
    files: int
    findings: tuple[errors.Finding, ...]

    @property
    def errors(self) -> tuple[errors.Finding, ...]:
        """The faults that make it fail."""
        return errors.find_errors(self.findings)


def verify_index(index: str, *, full: bool = False, reach: reader.IndexReader | None = None) -> VerifiedIndex:
    """Read an index; of a folder also those of its families, and whether its pages are up to date.

    With ``full`` every file is hashed; else those on this disk that changed since they were hashed. On a
    server METADATA is read from the wheels by ranges. UsageError when there is no index at all.
    """
    base = reader.resolve_index_url(index)
    reach = reach or reader.IndexReader()
    findings: list[errors.Finding] = []
    views: list[IndexFolder] = []
    digests: dict[Path, tuple[int, int, str]] = {}
    if path := reader.path_of_url(base):
        try:
            views = folder.list_index_folders(path)
        except errors.DataError as wrong:
            findings.append(_make_finding(base + JSON_PAGE, "bad-page", wrong.message))
    for view in views:
        findings += _find_stale_pages(view)
        for project in view.list_projects() if (view.root / folder.STATE_FOLDER).is_dir() else ():
            with contextlib.suppress(errors.DataError):  # which was told as a stale page
                for entry in view.read_entries(project).values():
                    file = view.file_of(project, entry).resolve()
                    digests[file] = entry.size, entry.changed, entry.sha256
    written = [view.family for view in views if view.family and (view.folder / HTML_PAGE).is_file()]
    projects = files = 0
    for folder_url in [base, *(f"{base}{family}/" for family in written)]:  # of others, the pages are stale
        crawl = _Crawl(folder_url, reach, full=full, digests=digests)
        project_count, file_count = crawl.run()
        findings += crawl.findings
        projects += project_count
        files += file_count
    ordered = sorted(set(findings), key=lambda finding: (finding.subject, finding.check, finding.message))
    return VerifiedIndex(projects, files, tuple(ordered))
