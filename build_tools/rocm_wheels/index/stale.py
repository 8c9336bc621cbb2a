"""Pages of a folder that are not what follows from the known wheels."""

from __future__ import annotations

from collections.abc import Iterator

from packaging.utils import canonicalize_name

from rocm_wheels.errors import DataError, explain
from rocm_wheels.index.entries import in_order
from rocm_wheels.index.faults import Finding
from rocm_wheels.index.pages import TAIL, as_links, head, project_html, root_html, root_json
from rocm_wheels.index.releases import variants_files
from rocm_wheels.index.staging import project_pages, variants_paths
from rocm_wheels.index.views import HTML, JSON, LINKS, PENDING, STATE, View, combined, families


def stale_pages(view: View) -> Iterator[Finding]:
    """Yield the pages of an index that differ from what would be written; none for a folder without state."""
    if not (view.root / STATE).is_dir():
        yield from _unlisted(view)
        return
    if (note := view.root / STATE / PENDING).exists():
        said = "a change is being made, or was cut short: the next command that changes the index finishes it"
        yield Finding(str(note), "stale-page", said)
    names = view.projects()
    links = [head("Links of all projects")]
    for project in names:
        own = view.read(project)
        general = View(view.root).read(project) if view.family else {}
        try:
            entries = in_order(combined(view, project, own, general))
            files = variants_files(project, entries)
        except DataError as wrong:
            yield Finding(str(view.project(project)), "stale-page", explain(wrong))
            continue
        folder = view.project(project)
        pages = project_pages(folder, project, entries, files) | variants_paths(folder, entries, files)
        links.append(as_links(project, project_html(project, entries, files)))
        for path, content in pages.items():
            if not path.is_file() or path.read_bytes() != content:
                yield Finding(str(path), "stale-page", "is not what follows from the known wheels")
    known = [] if view.family else families(view.root)
    tops = {HTML: root_html(names, known), JSON: root_json(names), LINKS: b"".join([*links, TAIL])}
    for name, content in tops.items():
        path = view.folder / name
        if not path.is_file() or path.read_bytes() != content:
            yield Finding(str(path), "stale-page", "is not what follows from the known wheels")
    yield from _unlisted(view)


def _unlisted(view: View) -> Iterator[Finding]:
    page = view.folder / HTML
    text = page.read_text(encoding="utf-8", errors="replace") if page.is_file() else ""
    skipped = set() if view.family else set(families(view.root))
    for path in sorted(view.folder.iterdir()):
        is_project = path.name not in skipped and canonicalize_name(path.name) == path.name
        if is_project and (path / HTML).is_file() and f'href="{path.name}/"' not in text:
            yield Finding(str(path / HTML), "not-listed", "the root page has no link to it")
