"""What the pages of an index say, byte for byte where it matters."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wheels import NOW, drop, files, variant, wheel

from rocm_wheels.core import errors
from rocm_wheels.index import folder, reader, update
from rocm_wheels.index.pages import make_links, make_project_html, make_project_json

pytestmark = pytest.mark.contract

DIGEST = "ab" * 32


def entry(name: str = "torch-2.9.1+rocm7.1.0-py3-none-any.whl", **more: object) -> folder.IndexEntry:
    values = {"size": 5, "changed": 1, "sha256": DIGEST, "uploaded": NOW, "metadata": "cd" * 32}
    return folder.IndexEntry(name=name, **{**values, **more})  # type: ignore[arg-type]


def test_a_link_says_all_that_an_installer_asks() -> None:
    page = make_project_html(
        "torch", [entry(requires_python=">=3.10,<4", yanked='bad "kernels" & more')]
    ).decode()
    assert (
        f'<a href="torch-2.9.1%2Brocm7.1.0-py3-none-any.whl#sha256={DIGEST}"'
        ' data-requires-python="&gt;=3.10,&lt;4"'
        f' data-core-metadata="sha256={"cd" * 32}"'
        ' data-yanked="bad &quot;kernels&quot; &amp; more">torch-2.9.1+rocm7.1.0-py3-none-any.whl</a><br>\n'
    ) in page
    assert '<meta name="pypi:repository-version" content="1.1">' in page


def test_json_has_what_pep_700_and_714_ask() -> None:
    page = json.loads(make_project_json("torch", [entry(yanked=""), entry("torch-2.10.0-py3-none-any.whl")]))
    assert page["meta"] == {"api-version": "1.1"}
    assert page["versions"] == ["2.9.1+rocm7.1.0", "2.10.0"]
    assert page["files"][0] == {
        "filename": "torch-2.9.1+rocm7.1.0-py3-none-any.whl",
        "url": "torch-2.9.1%2Brocm7.1.0-py3-none-any.whl",
        "hashes": {"sha256": DIGEST},
        "size": 5,
        "upload-time": NOW,
        "core-metadata": {"sha256": "cd" * 32},
        "yanked": True,
    }


PLACES = [("", "torch/a%2Bb"), ("../", "a%2Bb"), ("../../torch/", "../torch/a%2Bb")]


@pytest.mark.parametrize(("place", "link"), PLACES)
def test_links_of_a_page_one_folder_above(place: str, link: str) -> None:
    name = "a+b"
    lines = make_links("torch", make_project_html("torch", [entry(name, place=place)]))
    assert lines.startswith(f'<a href="{link}#sha256='.encode())
    assert lines.count(b"\n") == 1


def test_a_page_of_a_family_sees_what_is_for_everybody_from_its_place() -> None:
    assert entry(place="").move_to("../../torch/").place == "../../torch/"
    assert entry(place="../").move_to("../../torch/").place == "../../"


@given(st.text(alphabet="abcXYZ019._+!-", min_size=1))
def test_escaping_can_be_undone(name: str) -> None:
    from urllib.parse import unquote, urljoin

    assert unquote(folder.escape_file_name(name)) == name
    assert "+" not in folder.escape_file_name(name)
    if name not in (".", ".."):
        joined = urljoin("http://host/torch/", folder.escape_file_name(name))
        assert unquote(joined) == f"http://host/torch/{name}"


@given(
    st.builds(
        entry,
        changed=st.just(0),
        size=st.integers(0, 2**40),
        requires_python=st.text(),
        yanked=st.none() | st.text(),
        place=st.sampled_from(["", "../", "../files/é/"]),
        variant=st.sampled_from([None, '{"variants": {"null": {}}}']),
        provenance=st.sampled_from(["", "https://host/x"]),
    ),
    st.sampled_from(["", "gfx1100"]),
)
def test_what_a_page_says_is_read_back(known: folder.IndexEntry, family: str) -> None:
    with tempfile.TemporaryDirectory() as root:
        view = folder.IndexFolder(Path(root), family)
        view.page_of("torch").parent.mkdir(parents=True)
        general = entry("torch-2.9.1-py3-none-any.whl", place="../../torch/")
        listed = [known, general] if family else [known]
        keys = folder.make_page_keys(view, {known.name: known})
        view.page_of("torch").write_bytes(make_project_json("torch", listed, extra=keys))
        assert view.read_entries("torch") == {known.name: known}


def test_versions_are_in_order_not_their_names() -> None:
    names = ["torch-2.10-py3-none-any.whl", "torch-2.9-py3-none-any.whl", "torch-2.9.0-cp310-none-any.whl"]
    listed = [one.name for one in folder.sort_entries({name: entry(name) for name in names})]
    assert listed[-1] == names[0]


@pytest.mark.parametrize(
    "name", ["torch.whl", "torch-2.9.whl", "torch-x-py3-none-any.whl", "torch-1-py3-none.zip"]
)
def test_no_name_of_a_wheel(name: str) -> None:
    with pytest.raises(errors.DataError, match=name):
        folder.parse_file_name(name)


def test_an_index_is_made_changed_and_emptied(tmp_path: Path) -> None:
    root, fresh = tmp_path / "index", tmp_path / "fresh"
    one, other = wheel(fresh), wheel(fresh, "My_Pkg", "1.0", text="x")
    added = update.add_wheels(root, [one, other], now=NOW)
    assert added.new == (one.name, other.name)
    assert sorted(files(root)) == [
        *(".index/my-pkg.json", ".index/torch.json", "index.html", "index.json", "links.html"),
        *(f"my-pkg/My_Pkg-1.0-py3-none-any.whl{end}" for end in ("", ".metadata")),
        *("my-pkg/index.html", "my-pkg/index.json", "torch/index.html", "torch/index.json"),
        *(f"torch/{one.name}{end}" for end in ("", ".metadata")),
    ]
    before = {path: (root / path).stat().st_mtime_ns for path in files(root)}
    assert update.add_wheels(root, [one], now="2027-01-01T00:00:00Z").unchanged == (one.name,)
    assert {path: (root / path).stat().st_mtime_ns for path in files(root)} == before
    assert update.yank_wheels(root, ["my_pkg==1"], reason="no good") == [other.name]
    changed = {path for path in before if (root / path).stat().st_mtime_ns != before[path]}
    assert changed == {"links.html", "my-pkg/index.html", "my-pkg/index.json"}
    assert b'data-yanked="no good"' in (root / "links.html").read_bytes()
    assert update.yank_wheels(root, [other.name], reason=None) == [other.name]
    drop(root, root / "torch" / one.name, root / "my-pkg" / other.name)
    assert sorted(files(root)) == ["index.html", "index.json", "links.html"]


def test_the_same_wheels_are_the_same_pages(tmp_path: Path) -> None:
    fresh = [wheel(tmp_path / "fresh", version=f"2.{n}.0") for n in (9, 10, 8)]
    for order, name in ((fresh, "a"), (fresh[::-1], "b")):
        for path in order:
            update.add_wheels(tmp_path / name, [path], now=NOW)
    assert files(tmp_path / "a") == files(tmp_path / "b")


def test_a_family_has_its_own_wheels_and_those_for_everybody(tmp_path: Path) -> None:
    root = tmp_path / "index"
    everybody = wheel(tmp_path, "triton", "3.6.0")
    mine, other = wheel(tmp_path / "942", text="942"), wheel(tmp_path / "110", text="110")
    update.add_wheels(root, [mine], now=NOW, family="gfx94X-dcgpu")
    update.add_wheels(root, [other], now=NOW, family="gfx110X-all")
    update.add_wheels(root, [everybody], now=NOW)
    pages = files(root)
    assert b"torch" not in pages["index.html"].partition(b"<p>")[0]
    assert b"gfx110X-all, gfx94X-dcgpu" in pages["index.html"]
    for family in ("gfx94X-dcgpu", "gfx110X-all"):
        listed = json.loads(pages[f"{family}/index.json"])["projects"]
        assert listed == [{"name": "torch"}, {"name": "triton"}]
        assert f'href="../../triton/{everybody.name}#'.encode() in pages[f"{family}/triton/index.html"]
    assert pages[f"gfx94X-dcgpu/torch/{mine.name}"] != pages[f"gfx110X-all/torch/{other.name}"]
    with pytest.raises(errors.DataError, match="for all and for gfx110X-all"):
        update.add_wheels(root, [wheel(tmp_path / "all", text="all")], now=NOW)
    assert files(root) == pages
    drop(root, root / "gfx94X-dcgpu" / "torch" / mine.name)
    assert json.loads((root / "gfx94X-dcgpu/index.json").read_text())["projects"] == [{"name": "triton"}]


def test_variants_are_joined_a_release(tmp_path: Path) -> None:
    root = tmp_path / "index"
    old = variant(tmp_path, "rocm7.1", {"rocm": {"version": ["7.1"]}})
    stated = {"amd": {"gfx_arch": ["gfx942"]}, "rocm": {"version": ["7.2"]}}
    new = variant(tmp_path, "rocm7.2_gfx942", stated, namespaces=("rocm", "amd"))
    null = variant(tmp_path, "null", {})
    update.add_wheels(root, [old, null], now=NOW)
    first = [path for path in files(root) if path.startswith("torch/variants/")]
    update.add_wheels(root, [new], now=NOW)
    pages = files(root)
    joined = json.loads(pages["torch/torch-2.9.1-variants.json"])
    assert sorted(joined["variants"]) == ["null", "rocm7.1", "rocm7.2_gfx942"]
    listed = json.loads(pages["torch/index.json"])["files"][0]
    assert listed.keys() == {"filename", "url", "hashes", "size"}
    assert pages[f"torch/{listed['url']}"] == pages["torch/torch-2.9.1-variants.json"]
    assert first[0] in pages  # somebody may still be reading the page before
    drop(root, root / "torch" / null.name)
    assert first[0] not in files(root)
    clash = variant(
        tmp_path / "clash", "rocm7.1", {"rocm": {"version": ["7.2"]}}, tag="py3-none-linux_x86_64"
    )
    before = files(root)
    with pytest.raises(errors.DataError) as wrong:
        update.add_wheels(root, [clash], now=NOW)
    assert old.name in str(wrong.value.__cause__)
    assert clash.name in str(wrong.value.__cause__)
    assert files(root) == before


def test_a_folder_of_wheels_becomes_an_index_where_they_lie(tmp_path: Path) -> None:
    name = wheel(tmp_path).name
    update.build_index(tmp_path, now=NOW)
    assert (tmp_path / f"{name}.metadata").is_file()
    assert (
        f'href="../{folder.escape_file_name(name)}#'.encode() in (tmp_path / "torch/index.html").read_bytes()
    )
    assert f'href="{folder.escape_file_name(name)}#'.encode() in (tmp_path / "links.html").read_bytes()
    before = files(tmp_path)
    assert update.build_index(tmp_path, now="2027-01-01T00:00:00Z").new == 0
    assert files(tmp_path) == before


def test_a_reason_of_several_lines_spoils_no_page(tmp_path: Path) -> None:
    update.add_wheels(tmp_path, [wheel(tmp_path / "new")], now=NOW)
    reason = 'broken\n<a href="https://evil.example/">\r\n"quoted" lines of text'
    update.yank_wheels(tmp_path, ["torch==2.9.1+rocm7.1.0"], reason=reason)
    for page in ("torch/index.html", "links.html"):
        links = reader.parse_page((tmp_path / page).read_bytes(), "text/html", "https://host/")
        assert [link.yanked for link in links] == [reason], page


JSON = "application/vnd.pypi.simple.v1+json"
ODD_FILES = [
    {"filename": 5, "hashes": {}},
    {"filename": "x", "hashes": {"sha256": 5}},
    {"filename": "x", "hashes": {}, "size": "5"},
    {"filename": "x", "hashes": {}, "requires-python": [3]},
    {"filename": "x", "hashes": {}, "core-metadata": {"sha256": 5}},
]
ODD_PAGES = [{"projects": [{"name": 5}]}, *({"files": [{"url": "x", **file}]} for file in ODD_FILES)]
NO_PAGES = [("text/html", b'<a href="http://[/x">x</a>'), (JSON, b"[" * 100_000)]
NO_PAGES += [(JSON, json.dumps({"meta": {"api-version": "1.1"}, **page}).encode()) for page in ODD_PAGES]


@pytest.mark.parametrize(("kind", "content"), NO_PAGES, ids=range(len(NO_PAGES)))
def test_pages_of_strangers_are_refused(kind: str, content: bytes) -> None:
    with pytest.raises(errors.DataError, match="https://host/ "):
        reader.parse_page(content, kind, "https://host/")
