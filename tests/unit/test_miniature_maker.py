"""How the miniature is made: folders once, hipify from where it may come, a ROCm of all its libraries."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import miniature
import pytest
import requests

from rocm_wheels.core import errors
from rocm_wheels.index import reader


def _fill_with(text: str):  # type: ignore[no-untyped-def]
    return lambda folder: (folder / "file").write_text(text)


def test_it_is_made_once_for_one_input(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "folder"
    miniature.make_folder(folder, "a", _fill_with("one"))
    miniature.make_folder(folder, "a", _fill_with("never written"))
    assert (folder / "file").read_text() == "one"
    miniature.make_folder(folder, "b", _fill_with("two"))
    assert (folder / "file").read_text() == "two"
    assert [path.name for path in folder.parent.iterdir()] == ["folder"]


def test_a_failure_leaves_the_old_folder(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    miniature.make_folder(folder, "a", _fill_with("one"))

    def fail(beside: Path) -> None:
        (beside / "half").touch()
        raise RuntimeError("no")

    with pytest.raises(RuntimeError):
        miniature.make_folder(folder, "b", fail)
    assert miniature.read_mark(folder) == "a"
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


@pytest.mark.parametrize("leftover", [".folder.part", ".folder.old"])
def test_what_a_killed_run_left_is_cleared(tmp_path: Path, leftover: str) -> None:
    (tmp_path / leftover).mkdir()
    (tmp_path / leftover / "half").touch()
    miniature.make_folder(tmp_path / "folder", "a", _fill_with("one"))
    assert sorted(path.name for path in (tmp_path / "folder").iterdir()) == [".made-from", "file"]
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_somebodys_files_are_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(errors.DataError, match="holds files that were not made here"):
        miniature.make_folder(tmp_path, "a", _fill_with("one"))
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_the_fingerprint_sees_names_contents_and_facts(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x")
    first = miniature.fingerprint_folders([tmp_path], "7.1.0")
    assert miniature.fingerprint_folders([tmp_path], "7.1.0") == first
    assert miniature.fingerprint_folders([tmp_path], "7.2.0") != first
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "__pycache__" / "a.pyc").write_text("x")
    assert miniature.fingerprint_folders([tmp_path], "7.1.0") == first
    (tmp_path / "a").rename(tmp_path / "b")
    assert miniature.fingerprint_folders([tmp_path], "7.1.0") != first


JSON_TYPE = "application/vnd.pypi.simple.v1+json"
HTML = """<!DOCTYPE html><html><body>
<a href="../../packages/torch-2.13.0-cp311-cp311-win_amd64.whl#sha256=00">w</a>
<a data-requires-python="&gt;=3.10" href='https://files.example/torch-2.13.0-cp310-cp310-macosx_14_0_arm64.whl?a=1&amp;b=2#sha256=00'>m</a>
<A HREF="https://files.example/torch-2.13.0-cp312-cp312-manylinux_2_28_x86_64.whl">l</A>
<a href="https://files.example/torch-2.12.0-cp312-cp312-manylinux_2_28_x86_64.whl">old</a>
<a href="https://files.example/torch-2.13.0.tar.gz">sdist</a>
</body></html>"""
BASE = "https://mirror.example/simple/torch/"


def test_wheels_are_found_on_a_page_of_html() -> None:
    assert miniature.list_wheel_urls(
        reader.parse_page(HTML.encode(), "text/html", BASE, project="torch")
    ) == [
        "https://files.example/torch-2.13.0-cp310-cp310-macosx_14_0_arm64.whl?a=1&b=2",
        "https://files.example/torch-2.13.0-cp312-cp312-manylinux_2_28_x86_64.whl",
        "https://mirror.example/packages/torch-2.13.0-cp311-cp311-win_amd64.whl",
    ]


def test_wheels_are_found_on_a_page_of_json() -> None:
    names = ["torch-2.13.0-cp312-cp312-win_amd64.whl", "torch-2.13.0-cp312-cp312-macosx_14_0_arm64.whl"]
    files = [{"filename": name, "url": f"files/{name}#sha256=00", "hashes": {}} for name in names]
    page = json.dumps({"meta": {"api-version": "1.0"}, "files": files}).encode()
    assert miniature.list_wheel_urls(reader.parse_page(page, JSON_TYPE, BASE)) == [
        f"{BASE}files/{name}" for name in reversed(names)
    ]


@pytest.mark.parametrize(
    ("env", "url"),
    [
        ({}, "https://pypi.org/simple"),
        ({"PIP_INDEX_URL": "https://a.example/simple/"}, "https://a.example/simple"),
        ({"PIP_INDEX_URL": "https://a.example/", "UV_INDEX_URL": "https://b.example/"}, "https://b.example"),
        ({"UV_INDEX_URL": "https://b.example", "UV_DEFAULT_INDEX": "https://c.example"}, "https://c.example"),
        ({"UV_DEFAULT_INDEX": "", "PIP_INDEX_URL": "https://a.example"}, "https://a.example"),
    ],
)
def test_the_index_is_the_one_that_installers_use(env: dict[str, str], url: str) -> None:
    assert miniature.find_index_url(env) == url


@pytest.mark.parametrize("form", ["{}", "/nowhere {}", "file://{}", "https://pages.example/links {}"])
@pytest.mark.parametrize("variable", ["PIP_FIND_LINKS", "UV_FIND_LINKS"])
def test_a_local_folder_is_looked_in(tmp_path: Path, variable: str, form: str) -> None:
    env = {variable: form.format(tmp_path)}
    assert miniature.find_local_wheel(env) is None
    (tmp_path / "torch-2.13.1-cp311-cp311-linux_x86_64.whl").touch()
    assert miniature.find_local_wheel(env) is None
    (tmp_path / "torch-2.13.0+cpu-cp311-cp311-linux_x86_64.whl").touch()
    assert miniature.find_local_wheel(env) == tmp_path / "torch-2.13.0+cpu-cp311-cp311-linux_x86_64.whl"


def _changed(folder: Path) -> dict[str, str]:
    with zipfile.ZipFile(folder / "torch-2.13.0-cp311-cp311-linux_x86_64.whl", "w") as wheel:
        for name in ("__init__", "constants", "cuda_to_hip_mappings", "hipify_python", "version"):
            wheel.writestr(f"torch/utils/hipify/{name}.py", "import os\n")
        wheel.writestr("torch-2.13.0.dist-info/licenses/LICENSE", "mine\n")
    return {"PIP_FIND_LINKS": str(folder)}


def _not_a_zip(folder: Path) -> dict[str, str]:
    (folder / "torch-2.13.0-cp311-cp311-linux_x86_64.whl").write_text("<html>")
    return {"PIP_FIND_LINKS": str(folder)}


def _incomplete(folder: Path) -> dict[str, str]:
    with zipfile.ZipFile(folder / "torch-2.13.0-cp311-cp311-linux_x86_64.whl", "w") as wheel:
        wheel.writestr("torch/__init__.py", "")
    return {"PIP_FIND_LINKS": str(folder)}


@pytest.mark.parametrize(
    ("prepare", "message"),
    [
        (
            _changed,
            "{}/torch-2.13.0-cp311-cp311-linux_x86_64.whl\n  because __init__.py is not the one of torch",
        ),
        (_not_a_zip, "hipify cannot be read from {}/torch-2.13.0-cp311-cp311-linux_x86_64.whl"),
        (_incomplete, "hipify cannot be read from {}/torch-2.13.0-cp311-cp311-linux_x86_64.whl"),
        (lambda _: {"PIP_NO_INDEX": "1"}, "PIP_NO_INDEX forbids to ask the index"),
        (lambda _: {"UV_OFFLINE": "true"}, "UV_OFFLINE forbids to ask the index"),
        (
            lambda _: {"PIP_INDEX_URL": "file:///srv/simple"},
            "cannot be read from file:///srv/simple/torch/\n  because it has no wheel of torch 2.13.0",
        ),
    ],
)
def test_what_is_refused_leaves_nothing(tmp_path: Path, prepare, message: str) -> None:  # type: ignore[no-untyped-def]
    links, cache = tmp_path / "links", tmp_path / "cache"
    links.mkdir()
    with pytest.raises(errors.SourceError) as refused:
        miniature.fetch_hipify(cache, env=prepare(links))
    assert message.format(links) in errors.explain_error(refused.value)
    assert refused.value.tip
    assert not cache.exists() or not list(cache.iterdir())


def test_a_certificate_that_nobody_knows_is_told_from_a_network_that_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_arguments: object, **_options: object) -> None:
        raise requests.exceptions.SSLError("CERTIFICATE_VERIFY_FAILED")

    monkeypatch.setattr(requests.Session, "get", refuse)
    with pytest.raises(
        errors.SourceError, match=r"cannot be read from https://pypi\.org/simple/torch/"
    ) as refused:
        miniature.fetch_hipify(tmp_path / "cache", env={})
    assert "certificate of the server is not trusted (REQUESTS_CA_BUNDLE" in errors.explain_error(
        refused.value
    )
    assert "PIP_FIND_LINKS" in (refused.value.tip or "")


@pytest.mark.parametrize("version", ["", "7", "7.1", "seven", "7.1.0/../..", "7.1.0\n"])
def test_a_version_has_three_numbers(tmp_path: Path, version: str) -> None:
    with pytest.raises(errors.DataError, match="is not a ROCm version"):
        miniature.make_artifacts(tmp_path, tmp_path / "made", version=version, targets=["gfx942"], env={})
    assert not (tmp_path / "made").exists()


def test_libraries_have_names_of_their_own() -> None:
    assert len({library.soname for library in miniature.LIBRARIES}) == len(miniature.LIBRARIES) == 22
    assert len({library.name.replace("-", "_") for library in miniature.LIBRARIES}) == 22  # of functions
