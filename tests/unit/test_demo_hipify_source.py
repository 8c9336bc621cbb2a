"""Where hipify is looked for, and what is refused."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest
import requests

from rocm_wheels.core import errors
from rocm_wheels.demo import miniature
from rocm_wheels.index import reader

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
        (_changed, "__init__.py of hipify in {}/torch-2.13.0-cp311-cp311-linux_x86_64.whl is not the one of"),
        (_not_a_zip, "hipify cannot be read from {}/torch-2.13.0-cp311-cp311-linux_x86_64.whl"),
        (_incomplete, "hipify cannot be read from {}/torch-2.13.0-cp311-cp311-linux_x86_64.whl"),
        (lambda _: {"PIP_NO_INDEX": "1"}, "PIP_NO_INDEX forbids to ask the index"),
        (lambda _: {"UV_OFFLINE": "true"}, "UV_OFFLINE forbids to ask the index"),
        (
            lambda _: {"PIP_INDEX_URL": "file:///srv/simple"},
            "the index file:///srv/simple/torch/ is a folder",
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
    with pytest.raises(errors.SourceError, match="is not trusted") as refused:
        miniature.fetch_hipify(tmp_path / "cache", env={})
    assert "REQUESTS_CA_BUNDLE" in (refused.value.tip or "")
