"""How the miniature is made: folders once, hipify from where it may come, a ROCm of all its libraries."""

from __future__ import annotations

import zipfile
from pathlib import Path

import miniature
import pytest
import requests

from rocm_wheels.core import errors
from rocm_wheels.index import reader


def _fill_with(text: str):  # type: ignore[no-untyped-def]
    return lambda folder: (folder / "file").write_text(text)


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


def test_the_fingerprint_sees_names_and_facts_and_no_compiled_file(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x")
    first = miniature.fingerprint_folders([tmp_path], "7.1.0")
    assert miniature.fingerprint_folders([tmp_path], "7.2.0") != first
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "__pycache__" / "a.pyc").write_text("x")
    assert miniature.fingerprint_folders([tmp_path], "7.1.0") == first
    (tmp_path / "a").rename(tmp_path / "b")
    assert miniature.fingerprint_folders([tmp_path], "7.1.0") != first


HTML = """<!DOCTYPE html><html><body>
<a href="../../packages/torch-2.13.0-cp311-cp311-win_amd64.whl#sha256=00">w</a>
<a data-requires-python="&gt;=3.10" href='https://files.example/torch-2.13.0-cp310-cp310-macosx_14_0_arm64.whl?a=1&amp;b=2#sha256=00'>m</a>
<A HREF="https://files.example/torch-2.13.0-cp312-cp312-manylinux_2_28_x86_64.whl">l</A>
<a href="https://files.example/torch-2.12.0-cp312-cp312-manylinux_2_28_x86_64.whl">old</a>
<a href="https://files.example/torch-2.13.0.tar.gz">sdist</a>
</body></html>"""
BASE = "https://mirror.example/simple/torch/"


def test_wheels_are_found_on_a_page() -> None:
    links = reader.parse_page(HTML.encode(), "text/html", BASE, project="torch")
    assert miniature.list_wheel_urls(links) == [
        "https://files.example/torch-2.13.0-cp310-cp310-macosx_14_0_arm64.whl?a=1&b=2",
        "https://files.example/torch-2.13.0-cp312-cp312-manylinux_2_28_x86_64.whl",
        "https://mirror.example/packages/torch-2.13.0-cp311-cp311-win_amd64.whl",
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


WHEEL = "torch-2.13.0-cp311-cp311-linux_x86_64.whl"
CHANGED = [f"utils/hipify/{name}" for name in ("__init__", "constants", "cuda_to_hip_mappings")]
CHANGED += ["utils/hipify/hipify_python", "utils/hipify/version"]


@pytest.mark.parametrize(
    ("modules", "env", "message"),
    [
        (CHANGED, {}, f"{{}}/{WHEEL}\n  because __init__.py is not the one of torch"),
        ([], {}, f"hipify cannot be read from {{}}/{WHEEL}"),  # no zip
        (["__init__"], {}, f"hipify cannot be read from {{}}/{WHEEL}"),
        ([], {"PIP_NO_INDEX": "1"}, "PIP_NO_INDEX forbids to ask the index"),
        ([], {"UV_OFFLINE": "true"}, "UV_OFFLINE forbids to ask the index"),
        ([], {"PIP_INDEX_URL": "file:///srv/simple"},
         "cannot be read from file:///srv/simple/torch/\n  because it has no wheel of torch 2.13.0"),
    ],
)  # fmt: skip
def test_what_is_refused_leaves_nothing(
    tmp_path: Path, modules: list[str], env: dict[str, str], message: str
) -> None:
    links, cache = tmp_path / "links", tmp_path / "cache"
    links.mkdir()
    (links / WHEEL).write_text("<html>")
    if modules:
        with zipfile.ZipFile(links / WHEEL, "w") as wheel:
            for name in modules:
                wheel.writestr(f"torch/{name}.py", "import os\n")
            wheel.writestr("torch-2.13.0.dist-info/licenses/LICENSE", "mine\n")
    with pytest.raises(errors.SourceError) as refused:
        miniature.fetch_hipify(cache, env=env or {"PIP_FIND_LINKS": str(links)})
    assert message.format(links) in errors.explain_error(refused.value)
    assert refused.value.tip
    assert not cache.exists() or not list(cache.iterdir())


def test_a_certificate_that_nobody_knows_is_told_from_a_network_that_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_arguments: object, **_options: object) -> None:
        raise requests.exceptions.SSLError("CERTIFICATE_VERIFY_FAILED")

    monkeypatch.setattr(requests.Session, "get", refuse)
    said = r"cannot be read from https://pypi\.org/simple/torch/"
    with pytest.raises(errors.SourceError, match=said) as refused:
        miniature.fetch_hipify(tmp_path / "cache", env={})
    told = errors.explain_error(refused.value)
    assert "certificate of the server is not trusted (REQUESTS_CA_BUNDLE" in told
    assert "PIP_FIND_LINKS" in (refused.value.tip or "")


@pytest.mark.parametrize("version", ["", "7", "7.1", "seven", "7.1.0/../..", "7.1.0\n"])
def test_a_version_has_three_numbers(tmp_path: Path, version: str) -> None:
    with pytest.raises(errors.DataError, match="is not a ROCm version"):
        miniature.make_artifacts(tmp_path, tmp_path / "made", version=version, targets=["gfx942"], env={})
    assert not (tmp_path / "made").exists()


def test_libraries_have_names_of_their_own() -> None:
    assert len({library.soname for library in miniature.LIBRARIES}) == len(miniature.LIBRARIES) == 22
    assert len({library.name.replace("-", "_") for library in miniature.LIBRARIES}) == 22  # of functions
