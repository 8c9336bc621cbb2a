"""Verifying an index: in a folder or at a URL, several files at a time."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rocm_wheels.index.checks import FindDigest
from rocm_wheels.index.crawl import IndexCrawl, CrawlJob, CrawlResult
from rocm_wheels.index.faults import IndexFinding
from rocm_wheels.index.reach import IndexReader, resolve_index_url, path_of_url
from rocm_wheels.index.stale import find_stale_pages
from rocm_wheels.index.views import HTML_PAGE, list_index_folders
from rocm_wheels.parallel import run_growing_work

VERIFY_JOBS = 8


@dataclass(frozen=True)
class VerifiedIndex:
    """What was looked at, and the faults."""

    projects: int
    files: int
    findings: tuple[IndexFinding, ...]

    @property
    def errors(self) -> tuple[IndexFinding, ...]:
        """The faults that make it fail."""
        return tuple(finding for finding in self.findings if finding.severity == "error")


def verify_index(
    index: str, *, full: bool = False, jobs: int = VERIFY_JOBS, retries: int = 4, timeout: float = 60
) -> VerifiedIndex:
    """Read an index; of a folder also those of its families, and whether its pages are up to date.

    With ``full`` every file is hashed; else those on this disk that changed since they were hashed. On a
    server METADATA is read from the wheels by ranges. UsageError when there is no index at all.
    """
    base = resolve_index_url(index)
    reach = IndexReader(retries=retries, timeout=timeout)
    path = path_of_url(base)
    folders = list_index_folders(path) if path else []
    find_digest = _make_digest_finder(path) if path else lambda _url: None
    written = [view.family for view in folders if view.family and (view.folder / HTML_PAGE).is_file()]
    bases = [base, *(f"{base}{family}/" for family in written)]  # of others, the pages are stale
    projects = files = 0
    findings: list[IndexFinding] = []
    for folder_url in bases:
        crawl = IndexCrawl(folder_url, reach, full=full, find_digest=find_digest)
        listed = crawl.read_root()
        findings += crawl.findings
        for new_findings, count in run_growing_work(
            _run_job, [crawl.make_project_job(name, url) for name, url in listed.items()], jobs=jobs
        ):
            findings += new_findings
            files += count
        findings += crawl.check_links_page()
        projects += len(listed)
    for view in folders:
        findings += find_stale_pages(view)
    return VerifiedIndex(projects, files, tuple(sorted(set(findings))))


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
        path = path_of_url(url)
        if path is None or (known_file := digests.get(path.resolve())) is None:
            return None
        state = path.stat()
        return known_file[2] if (state.st_size, state.st_mtime_ns) == known_file[:2] else None

    return digest
