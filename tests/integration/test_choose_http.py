"""``choose`` over HTTP from an index that `stamp` and `index` made, its words and exit codes, its speed."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from commands import call
from servers import RELEASE, IndexServer, Shelf, machine, serve_folder
from wheels import Draft, library

from rocm_wheels.index import reader
from rocm_wheels.user import choose

pytestmark = pytest.mark.contract

LINUX = ("--platform", "linux-x86_64", "--python", "3.12")


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A release of three variants, stamped by what code is in them, and a plain wheel of its companion."""
    folder = tmp_path_factory.mktemp("index")
    made = []
    for chip, rocm in (("gfx942", "7.2"), ("gfx1100", "7.1"), ("", "")):
        (place := folder / f"of-{chip}").mkdir()
        members = {"torch/lib/libtorch_hip.so": library(chip)} if chip else {}
        version = f"2.9.0+{f'rocm{rocm}.0' if rocm else 'cpu'}"
        wheel = Draft("torch", version, "cp312-cp312-linux_x86_64", members=members).write(place)
        words = ["--rocm", rocm] if chip else ["--null"]
        call("wheel", "stamp", wheel, *words, "--output-dir", folder / "out")
    made = sorted(map(str, (folder / "out").iterdir()))
    made.append(str(Draft("torchaudio", "2.9.0", "py3-none-any").write(folder)))
    call("index", "build", folder / "index", *made)
    return folder / "index"


@pytest.fixture
def server(index: Path) -> Iterator[IndexServer]:
    """The index over HTTP."""
    with serve_folder(index) as running:
        yield running


def run(*words: str, code: int = 0) -> tuple[str, str]:
    """Run ``choose``; return what it printed and what it noted."""
    said = call("choose", *words, code=code)
    return said.out, said.err


@pytest.mark.parametrize(
    ("gpus", "label", "noted"),
    [
        ("gfx942", "rocm7.2_gfx942", ""),
        ("gfx1100,gfx942", "rocm7.1_gfx1100", "1 of 2 GPUs are served: gfx1100; not gfx942"),
        ("new:gfx1399", "null",
         "no variant fits this machine; the nearest is rocm7.1_gfx1100: amd :: gfx_arch is gfx1100"),
        ("none", "null", "is the wheel for the CPU: there is no AMD GPU here"),
    ],
)  # fmt: skip
def test_over_http_one_request_a_page(server: IndexServer, gpus: str, label: str, noted: str) -> None:
    words = ["torch", "--index", server.url, "--gfx", gpus, *LINUX, "--rocm", "none", "--json", "--allow-cpu"]
    out, err = run(*words)
    found: Any = json.loads(out)
    (choice,) = found["choices"]
    assert choice["picked"]["label"] == label
    assert choice["picked"]["url"].startswith(server.url)
    assert len(choice["picked"]["sha256"]) == 64
    assert choice["candidates"][0]["rank"] == 1
    assert [gpu["source"] for gpu in found["host"]["gpus"]] == ["--gfx"] * (
        0 if gpus == "none" else gpus.count(",") + 1
    )
    assert any(noted in note for note in choice["notes"]) or not noted
    assert err == ""
    asked = [request.path.rpartition("/")[2] for request in server.requests]
    assert asked == ["", "torch-2.9.0-variants.json"]


def test_what_people_read(server: IndexServer) -> None:
    words = ("torch", "torchaudio", "--index", server.url, *LINUX, "--rocm", "7.2")
    out, err = run(*words, "--gfx", "gfx942", "--gfx", "gfx1100")
    name = "torch-2.9.0-cp312-cp312-linux_x86_64"
    best = "best for this machine: amd :: gfx_arch :: gfx942, rocm :: version :: 7.2"
    chips = "amd :: gfx_arch :: gfx942, gfx1100, gfx9_4_generic, gfx11_generic"
    listed = "… 14 values in all  (listed in the document, the same for every machine)"
    wanted = f"""\
machine  linux x86_64, Python 3.12
GPU      0 gfx942 (--gfx, forced)
GPU      1 gfx1100 (--gfx, forced)
ROCm     7.2 (forced: --rocm)

torch  from {server.url} (variants)
  takes    {name}-rocm7.2_gfx942.whl
  why      {best}
  pin      torch==2.9.0
  set      HIP_VISIBLE_DEVICES=0
  has      {chips}  (this machine, for rocm-bootstrap)
  has      rocm :: version :: 7.2, 7.1, {listed}
  1  {name}-rocm7.2_gfx942.whl   {best}
  2  {name}-rocm7.1_gfx1100.whl  amd :: gfx_arch :: gfx1100 is ranked after gfx942
  3  {name}-null.whl             null comes after all variants that fit

torchaudio  from {server.url} (plain)
  takes    torchaudio-2.9.0-py3-none-any.whl
  why      the newest version that fits
  pin      torchaudio==2.9.0
  1  torchaudio-2.9.0-py3-none-any.whl  the newest version that fits
"""
    assert out == wanted
    assert err == "torch: 1 of 2 GPUs are served: gfx942; not gfx1100\n"


@pytest.mark.parametrize(("gpu", "version"), [("gfx942", "2.9.0+rocm7.2.0"), ("gfx1201", "2.9.0+cpu")])
def test_families_of_an_index_of_ours(tmp_path: Path, gpu: str, version: str) -> None:
    for family, torch in (((), "2.9.0+cpu"), (("--family", "gfx94X-dcgpu"), "2.9.0+rocm7.2.0")):
        wheel = Draft("torch", torch, "cp312-cp312-linux_x86_64").write(tmp_path)
        call("index", "build", tmp_path / "index", wheel, *family)
    index = tmp_path / "index"
    words = ["torch", "--index", str(index), "--gfx", gpu, *LINUX, "--rocm", "none", "--json", "--allow-cpu"]
    out, _ = run(*words)
    assert json.loads(out)["choices"][0]["picked"]["version"] == version


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["torch"], 17, "no wheel of torch in"),
        (["torch", "--gfx", "gfx1151"], 17, "gfx1102; this machine has gfx1151, gfx11_generic"),
        (["nothing"], 17, "has no project nothing"),
        (["torch", "--gfx", "MI301X"], 2, "--gfx: no GPU of the tables is called 'MI301X'"),
        (["torch", "--gfx", "gfx110"], 2,
         "gfx110 is no GPU target; did you mean gfx1100, gfx1101, gfx1102 or gfx1103?"),
        (["torch", "--gfx", "gfx11-generic"], 2,
         "--gfx: gfx11-generic is code for several GPUs, and none of them"),
        (["torch", "--channel", "dev"], 2,
         "--index and --channel exclude each other"),
        (["torch", "--platform", "macos"], 17, "tip: name an index with wheels for this platform"),
        (["torch", "--gfx", " , "], 2, "--gfx names no GPU"),
        (["torch", "--gfx", "none,gfx942"], 2, "either GPUs or none"),
        (["torch", "--rocm", "seven"], 2, "--rocm: 'seven' is not a version like 7.2"),
        (["torch", "--python", "3"], 2, "--python: '3' is not a Python"),
        (["torch", "--python", "pithon"], 2, "--python: 'pithon' is not a Python"),
        (["torch", "--platform", "beos"], 2, "--platform beos: it is one of linux, windows, macos"),
        (["torch", "--platform", "linux-s390x"], 2, "it is linux-x86_64 or linux-aarch64"),
        (["torch", "--index", "/no/such/place"], 2,
         "/no/such/place is neither a folder nor the URL of an index"),
        (["torch", "--index", "http://127.0.0.1:9/"], 17, "http://127.0.0.1:9/torch/ cannot be reached: "),
        (["torch", "--channel", "weekly"], 2, "'weekly' is not one of"),
        ([], 2, "Missing argument"),
    ],
)  # fmt: skip
def test_wrong_inputs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], code: int, message: str
) -> None:
    monkeypatch.setitem(reader.IndexReader.__init__.__kwdefaults__, "retries", 0)
    shelf = Shelf(tmp_path)
    shelf.release({label: RELEASE[label] for label in ("rocm7.2_gfx9", "rocm7.2_gfx110x")})
    defaults = {"--gfx": "none", "--rocm": "none", "--python": "3.12", "--platform": "linux-x86_64"}
    defaults["--index"] = str(shelf.write())
    given = [word for pair in defaults.items() for word in pair if pair[0] not in words]
    _, err = run(*words, *given, code=code)
    assert message in err


@pytest.mark.contract
def test_a_file_of_certificates_that_is_not_there_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Of requests that is a plain OSError, before it asks any server."""
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path / "ca.pem"))
    said = call("choose", "torch", "--index", "https://127.0.0.1:9/", code=17).err
    assert (
        f"https://127.0.0.1:9/torch/ cannot be reached: there is no file of certificates {tmp_path}" in said
    )
    assert "(REQUESTS_CA_BUNDLE or pip's cert names it)" in said


def test_200_wheels_are_chosen_from_at_once(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path)
    for minor in range(20):
        shelf.release(RELEASE, f"2.{minor}.0")
        for python in ("cp310", "cp311", "cp313", "cp314", "cp315"):
            shelf.wheel(f"2.{minor}.0", tag=f"{python}-{python}-linux_x86_64")
    shelf.write()
    took = []
    for _ in range(3):
        begun = time.process_time()
        (choice,) = choose.choose_wheels(["torch"], str(tmp_path), machine("gfx942"), reader.IndexReader())
        took.append(time.process_time() - begun)
    assert len(choice.candidates) == 200
    assert choice.picked and choice.picked.version == "2.19.0"
    assert min(took) < 0.5
