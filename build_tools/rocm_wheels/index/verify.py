"""Verifying an index: in a folder or at a URL, several files at a time."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rocm_wheels.index.checks import KnownDigest
from rocm_wheels.index.crawl import Crawl, Job, Result
from rocm_wheels.index.faults import Finding
from rocm_wheels.index.reach import Reach, base_url, local_path
from rocm_wheels.index.stale import stale_pages
from rocm_wheels.index.views import HTML, views
from rocm_wheels.parallel import spread

JOBS = 8


@dataclass(frozen=True)
class Verified:
    """What was looked at, and the faults."""

    projects: int
    files: int
    findings: tuple[Finding, ...]

    @property
    def errors(self) -> tuple[Finding, ...]:
        """The faults that make it fail."""
        return tuple(finding for finding in self.findings if finding.severity == "error")


def verify_index(
    index: str, *, full: bool = False, jobs: int = JOBS, retries: int = 4, timeout: float = 60
) -> Verified:
    """Read an index; of a folder also those of its families, and whether its pages are up to date.

    With ``full`` every file is hashed; else those on this disk that changed since they were hashed. On a
    server METADATA is read from the wheels by ranges. UsageError when there is no index at all.
    """
    base = base_url(index)
    reach = Reach(retries=retries, timeout=timeout)
    path = local_path(base)
    inside = views(path) if path else []
    known = _known_digests(path) if path else lambda _url: None
    written = [view.family for view in inside if view.family and (view.folder / HTML).is_file()]
    bases = [base, *(f"{base}{family}/" for family in written)]  # of others, the pages are stale
    projects = files = 0
    findings: list[Finding] = []
    for one in bases:
        crawl = Crawl(one, reach, full=full, known=known)
        listed = crawl.root()
        findings += crawl.findings
        for found, count in spread(
            _run, [crawl.project(name, url) for name, url in listed.items()], jobs=jobs
        ):
            findings += found
            files += count
        findings += crawl.find_links()
        projects += len(listed)
    for view in inside:
        findings += stale_pages(view)
    return Verified(projects, files, tuple(sorted(set(findings))))


def _run(job: Job) -> tuple[Result, list[Job]]:
    return job()


def _known_digests(root: Path) -> KnownDigest:
    """Return the digests of files that are as they were when they were hashed."""
    known: dict[Path, tuple[int, int, str]] = {}
    for view in views(root):
        for project in view.own_projects():
            for entry in view.read(project).values():
                file = view.file_of(project, entry)
                if file is not None:
                    known[file.resolve()] = entry.size, entry.changed, entry.sha256

    def digest(url: str) -> str | None:
        path = local_path(url)
        if path is None or (found := known.get(path.resolve())) is None:
            return None
        state = path.stat()
        return found[2] if (state.st_size, state.st_mtime_ns) == found[:2] else None

    return digest
