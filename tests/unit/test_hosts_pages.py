"""Pages of an index as the user's machine reads them: what is not there, what is refused, what is a trap."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import pytest
from choose_indexes import TAGS, machine
from packaging.version import Version

from rocm_wheels.core import errors
from rocm_wheels.index import reader
from rocm_wheels.user import candidates, choose, package_offers, plan_install

INDEX, REST = "https://me:secret@index.example/whl/", "https://pypi.example/simple/"
TAG = "cp312-cp312-linux_x86_64"


class Web(reader.IndexReader):
    """Answers from a table: lines of a page, or a status, by URL; all else is not there."""

    def __init__(self, pages: Mapping[str, Sequence[str] | int]) -> None:
        super().__init__()
        self.pages = pages
        self.asked: list[str] = []

    def get(self, url: str, *, accept: str = "*/*") -> reader.IndexAnswer:
        self.asked.append(url)
        page = self.pages.get(url, 404)
        if isinstance(page, int):
            return reader.IndexAnswer(page, "", b"", url)
        links = "".join(line if "<" in line else f'<a href="{line}">{line}</a>' for line in page)
        return reader.IndexAnswer(200, "text/html", f"<!DOCTYPE html>{links}<br>".encode(), url)


def offers(pages: Mapping[str, Sequence[str] | int]) -> package_offers.PackageOffers:
    def none(_project: str, _version: Version) -> candidates.ChoiceCandidate | None:
        return None

    return package_offers.PackageOffers(package_offers.OfferSources(INDEX, REST, TAGS, {}, none), Web(pages))


@pytest.mark.parametrize(
    ("pages", "message"),
    [
        ({f"{INDEX}torch/": 403, INDEX: ["vision/"]}, "has no project torch"),  # as S3 says it
        ({f"{INDEX}torch/": 404}, "has no project torch"),
        ({f"{INDEX}torch/": 403, INDEX: 403}, r"https://\*\*\*@index.example/whl/ answers 403"),
        ({f"{INDEX}torch/": 401}, r"https://\*\*\*@index.example/whl/torch/ answers 401"),
        ({f"{INDEX}torch/": 500}, "answers 500"),
        ({f"{INDEX}torch/": [f"file:///wheels/torch-1-{TAG}.whl"]}, "has no wheels of torch"),
        (
            {f"{INDEX}torch/": [f"torch-1-{TAG}.whl#sha256=../../../etc"]},
            "says sha256=../../../etc, which is",
        ),
    ],
)
def test_what_an_index_does_not_give(pages: Mapping[str, Sequence[str] | int], message: str) -> None:
    with pytest.raises((errors.HostError, errors.DataError), match=message) as failure:
        choose.choose_wheels(["torch"], INDEX, machine("gfx942"), Web(pages))
    assert isinstance(failure.value, reader.UnreachableError) == ("answers" in message)


def test_digests_and_servers_of_links() -> None:
    digest = "AB" * 32
    lines = [
        f'<a href="/files/a-1.whl#egg=a&amp;sha256={digest}">',
        '<a href="https://index.example/b-1.whl">',
        '<a href="https://cdn.example/c-1.whl#md5=00">',
        '<a href="http://index.example/d-1.whl">',
    ]
    links = reader.parse_page("\n".join(lines).encode(), "text/html", f"{INDEX}a/")
    assert [reader.require_link_digest(link) for link in links] == [digest.lower(), None, None, None]
    servers = [urlsplit(link.url).netloc for link in links]
    assert servers == ["me:secret@index.example"] * 2 + ["cdn.example", "index.example"]


def test_a_document_that_is_refused_is_no_reason_to_take_an_older_version() -> None:
    files = [f"torchvision-{version}-{TAG}-gfx9.whl" for version in ("0.23", "0.24")]
    pages: dict[str, Sequence[str] | int] = {
        f"{INDEX}torchvision/": [*files, "torchvision-0.24-variants.json"],
        f"{INDEX}torchvision/torchvision-0.24-variants.json": 503,
    }
    web = Web(pages)
    choosing = plan_install._make_chooser(plan_install.InstallRequest(index=None), machine("gfx942"), web)
    with pytest.raises(reader.UnreachableError, match="answers 503"):
        plan_install._choose_version(choosing, INDEX, "torchvision", Version("0.24"))
    assert all(url.startswith(INDEX) for url in web.asked)  # where torch is from, and nowhere else
    assert plan_install._choose_version(choosing, INDEX, "torchvision", Version("9")) is None


def test_a_wheel_that_does_not_say_what_it_wants_is_no_reason_to_take_that_for_the_cpu() -> None:
    files = [f"torch-2.9-{TAG}-gfx9.whl", f"torch-2.9-{TAG}-null.whl"]
    web = Web({f"{INDEX}torch/": files})

    def texts(url: str, _name: str, _size: int | None, *, variant: bool = True) -> tuple[bytes, str | None]:
        raise reader.UnreachableError("the server is silent")

    web.fetch_metadata_and_variant = texts  # type: ignore[method-assign]
    with pytest.raises(reader.UnreachableError, match="the server is silent"):
        choose.choose_wheels(["torch"], INDEX, machine("gfx942"), web)


def test_of_a_version_the_best_file_that_an_installer_reads_is_offered() -> None:
    said = 'data-yanked="bad"'
    pages = {
        f"{INDEX}apex/": [
            f"apex-1.0-1-{TAG}.whl",
            f"apex-1.0-2-{TAG}.whl",
            "apex-1.0-py3-none-any.whl",
            f'<a href="apex-1.1-{TAG}.whl" {said}></a>',
            "apex-1.1-py3-none-any.whl",
        ],
        f"{REST}numpy/": [f"numpy-2.5-{TAG}.whl", f"numpy-2.5-{TAG}-x86_64_v3.whl", "numpy-2.6.tar.gz"],
        f"{REST}sympy/": ["sympy-1.0-py3-none-any.whl#sha256=nonsense"],
        INDEX: ["apex/"],
    }
    found = offers(pages)
    assert [one.name for one in found.list_offers("apex")] == [
        f"apex-1.0-2-{TAG}.whl",
        "apex-1.1-py3-none-any.whl",
    ]
    assert [one.name for one in found.list_offers("numpy")] == [f"numpy-2.5-{TAG}.whl"]
    with pytest.raises(errors.DataError, match="sha256=nonsense, which is none"):
        found.list_offers("sympy")


def test_projects_are_looked_up_side_by_side_and_each_once() -> None:
    """A resolver asks for many at once; with a lock around it all they would wait for each other."""
    web = Web({f"{REST}numpy/": [], f"{REST}sympy/": [], INDEX: []})
    found = package_offers.PackageOffers(
        package_offers.OfferSources(INDEX, REST, TAGS, {}, lambda _project, _version: None), web
    )
    both = threading.Barrier(2)

    def get(url: str, *, accept: str = "*/*") -> reader.IndexAnswer:
        if url.startswith(REST):
            both.wait(timeout=20)
        return Web.get(web, url, accept=accept)

    web.get = get  # type: ignore[method-assign]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(found.list_offers, ["numpy", "sympy", "numpy", "sympy"]))
    assert sorted(url for url in web.asked if url.startswith(REST)) == [f"{REST}numpy/", f"{REST}sympy/"]
    assert web.asked.count(INDEX) == 1
