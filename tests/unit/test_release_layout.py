"""Names in a store: a layout of somebody's own stays one when names are added."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocm_wheels.core import errors
from rocm_wheels.release import layout

OLD = (
    "staging: in\nrelease: out\nsets: sets\nfiles: files\nevidence: seen\npages: simple\nchannels: channels\n"
)


def test_a_layout_without_the_names_that_came_later_is_one(tmp_path: Path) -> None:
    path = tmp_path / "layout.yaml"
    path.write_text(OLD)
    places = layout.FamilyPaths(layout.load_layout(path), "gfx94X-dcgpu", "release")
    assert places.view_pages("gfx942", "stable") == "out/gfx94X-dcgpu/by-gfx/gfx942/stable"
    assert (places.support_document, places.evidence_folder("x")) == (
        "out/gfx94X-dcgpu/support.json",
        "out/gfx94X-dcgpu/seen/x",
    )


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("pages: simple", "pages: by-gfx", "pages (by-gfx) is in views (by-gfx): rename one"),
        ("pages: simple", "pages: by-gfx/simple", "pages (by-gfx/simple) is in views (by-gfx): rename one"),
        (
            "files: files",
            "support: public.json\nfiles: files",
            "support (public.json) is in public (public.json)",
        ),
        ("files: files", "files: sets.json", "files (sets.json) is in the listing of sets (sets.json)"),
        ("files: files", "files: ../files", "it must be a relative path of plain names"),
    ],
)
def test_names_that_meet_are_refused(old: str, new: str, says: str, tmp_path: Path) -> None:
    path = tmp_path / "layout.yaml"
    path.write_text(OLD.replace(old, new))
    with pytest.raises(errors.DataError) as found:
        layout.load_layout(path)
    assert says in str(found.value)
