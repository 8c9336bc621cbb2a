"""The pages that follow from what is known, staged for an exchange."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from rocm_wheels.index.entries import Entry, in_order
from rocm_wheels.index.pages import (
    TAIL,
    VariantsFile,
    as_links,
    head,
    project_html,
    project_json,
    root_html,
    root_json,
)
from rocm_wheels.index.releases import variants_files
from rocm_wheels.index.switching import Rank, Switch
from rocm_wheels.index.views import HTML, JSON, LINKS, VARIANTS, View, combined

_BESIDE = ("", "../")  # places of wheels whose folder somebody may name with --find-links


def stage_project(
    switch: Switch, view: View, project: str, own: Mapping[str, Entry], general: Mapping[str, Entry]
) -> bool:
    """Stage the pages of a project: its own wheels and those for everybody; tell whether it has any."""
    entries = in_order(combined(view, project, dict(own), dict(general)))
    files = variants_files(project, entries)
    folder = view.project(project)
    _stage_variants(switch, folder, entries, files)
    for path, content in project_pages(folder, project, entries, files).items():
        if entries:
            switch.put(path, content, Rank.PROJECT)
        elif path.exists():
            switch.remove(path)
    return bool(entries)


def project_pages(
    folder: Path, project: str, entries: Sequence[Entry], files: Sequence[VariantsFile]
) -> dict[Path, bytes]:
    """Return the pages of a project."""
    return {
        folder / JSON: project_json(project, entries, files),
        folder / HTML: project_html(project, entries, files),
    }


def variants_paths(
    folder: Path, entries: Iterable[Entry], files: Sequence[VariantsFile]
) -> dict[Path, bytes]:
    """Return variants files with their content: one by its digest for the page, one beside the wheels."""
    places = sorted({e.place for e in entries if e.variant is not None and e.place in _BESIDE})
    return {
        path: file.content
        for file in files
        for path in (folder / file.folder / file.name, *(folder / place / file.name for place in places))
    }


def _stage_variants(
    switch: Switch, folder: Path, entries: Iterable[Entry], files: Sequence[VariantsFile]
) -> None:
    """Stage variants files; those of the page before stay for one change more: somebody may be reading it."""
    if not files and not (folder / VARIANTS).is_dir():
        return
    wanted = variants_paths(folder, entries, files)
    new = [path for path, content in wanted.items() if switch.put(path, content, Rank.VARIANTS)]
    page = folder / HTML
    before = page.read_bytes() if new and page.is_file() else b""
    beside = f"{folder.name.replace('-', '_')}-*-variants.json"
    for path in (*folder.glob(beside), *(folder / "..").glob(beside)):
        if path not in wanted:
            switch.remove(path)
    for path in folder.glob(f"{VARIANTS}/*/*-variants.json"):
        if path not in wanted and path.parent.name.encode() not in before:
            switch.remove(path)


def stage_tops(switch: Switch, view: View, names: Sequence[str], known: Sequence[str]) -> None:
    """Stage the root pages and the page for ``--find-links``, which is put together a project at a time."""
    part = switch.new_part()
    with part.open("wb") as file:
        file.write(head("Links of all projects"))
        for project in names:
            page = switch.current(view.project(project) / HTML)
            file.write(as_links(project, page.read_bytes()))
        file.write(TAIL)
    switch.put(view.folder / JSON, root_json(names), Rank.ROOT)
    switch.put_part(view.folder / LINKS, part, Rank.ROOT)
    switch.put(view.folder / HTML, root_html(names, known), Rank.ROOT)
