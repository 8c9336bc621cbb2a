"""Pages of an index as the user's machine reads them: what is not there, what is refused, what is a trap."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from servers import machine

from rocm_wheels.cli import boundary, main
from rocm_wheels.core import errors
from rocm_wheels.index import reader
from rocm_wheels.user import candidates, choose, environment, installed_packages, package_set, plan_reader
from rocm_wheels.wheels import dist_info

INDEX, REST = "https://me:secret@index.example/whl/", "https://pypi.example/simple/"
TAG = "cp312-cp312-linux_x86_64"


class Web(plan_reader.PlanReader):
    """Answers from a table: lines of a page, or a status, by URL; all else is not there."""

    def __init__(self, pages: Mapping[str, Sequence[str] | int]) -> None:
        super().__init__(Path("cache"))
        self.pages = pages
        self.asked: list[str] = []

    def get(self, url: str, *, accept: str = "*/*") -> reader.IndexAnswer:
        self.asked.append(url)
        page = self.pages.get(url, 404)
        if isinstance(page, int):
            return reader.IndexAnswer(page, "", b"", url)
        links = "".join(line if "<" in line else f'<a href="{line}">{line}</a>' for line in page)
        return reader.IndexAnswer(200, "text/html", f"<!DOCTYPE html>{links}<br>".encode(), url)


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
    files = [f"torchvision-0.23-{TAG}.whl", f"torchvision-0.24-{TAG}-gfx9.whl"]
    pages: dict[str, Sequence[str] | int] = {
        f"{INDEX}torchvision/": [*files, "torchvision-0.24-variants.json"],
        f"{INDEX}torchvision/torchvision-0.24-variants.json": 503,
    }
    web = Web(pages)
    target = environment.InstallTarget(installed_packages.read_environment(None, {}))
    asked = package_set.InstallRequest(("torch",), INDEX)
    site = package_set.InstallSite(target, machine("gfx942"), {}, REST, web, Path("cache"), {})
    planner = package_set.SetPlanner(asked, site)
    planner.read_places(INDEX, "torchvision")
    torch = candidates.ChoiceCandidate(
        reader.IndexLink("t.whl", "t.whl", INDEX),
        dist_info.parse_wheel_name("torch-2.9-py3-none-any.whl"),
        rank=1,
    )
    choice = candidates.WheelChoice("torch", "torch", (), INDEX, "plain", torch, (torch,), (), (), (), None)
    with pytest.raises(reader.UnreachableError, match="answers 503"):
        planner._list_builds("torchvision", choice)
    assert all(url.startswith(INDEX) for url in web.asked)  # where torch is from, and nowhere else


def test_a_wheel_that_does_not_say_what_it_wants_is_no_reason_to_take_that_for_the_cpu() -> None:
    files = [f"torch-2.9-{TAG}-gfx9.whl", f"torch-2.9-{TAG}-null.whl"]
    web = Web({f"{INDEX}torch/": files})

    def texts(url: str, _name: str, _size: int | None, *, variant: bool = True) -> tuple[bytes, str | None]:
        raise reader.UnreachableError("the server is silent")

    web.fetch_metadata_and_variant = texts  # type: ignore[method-assign]
    with pytest.raises(reader.UnreachableError, match="the server is silent"):
        choose.choose_wheels(["torch"], INDEX, machine("gfx942"), web)


@pytest.mark.parametrize("index", ["http://[x", "file://[x", "https://[x/links.html"])
def test_what_is_no_url_of_an_index_is_told(index: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert boundary.run_command(main.cli, ["choose", "--gfx", "gfx942", "--index-url", index, "torch"]) == 2
    assert f"{index} is not the URL of an index" in capsys.readouterr().err
