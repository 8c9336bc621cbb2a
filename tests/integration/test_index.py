"""Real installers on real indexes; writers that are killed, that meet, that run out of disk."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import textwrap
from collections.abc import Mapping
from functools import partial
from http.server import SimpleHTTPRequestHandler
from pathlib import Path

import pytest
from commands import Ended, call
from crash import killed_at_events, run_on_full_disk
from servers import IndexServer, serve_folder, serve_requests
from uv import find_uv_bin
from warm_python import warm_python
from wheels import NOW, Draft, Properties, drop, files, make_object, variant, wheel

from rocm_wheels.core import errors
from rocm_wheels.index import update, verify

pytestmark = [pytest.mark.slow]
PIP = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--no-cache-dir"]
UV = [find_uv_bin(), "pip", "install", "--no-cache", "--no-config", "--python", sys.executable]
KEPT = ("PATH", "LANG", "SYSTEMROOT", "PYTHONPATH", "PYENV_ROOT", "PYENV_VERSION")


def environment(home: Path) -> dict[str, str]:
    env = {key: value for key, value in os.environ.items() if key in KEPT}
    return {**env, "HOME": str(home), "PIP_CONFIG_FILE": os.devnull, "NO_COLOR": "1", "NO_PROXY": "127.0.0.1"}


@pytest.fixture(params=[PIP, UV], ids=["pip", "uv"])
def tool(request: pytest.FixtureRequest) -> list[str]:
    """How each installer is called."""
    words: list[str] = request.param
    return words


def install(
    tool: list[str], where: list[str], home: Path, *what: str, code: int = 0
) -> tuple[dict[str, str], str]:
    """Install into an empty folder with pip or uv; return the versions there and what was said."""
    target = home / f"site-{len(list(home.iterdir()))}"
    words = [*tool, *where, "--target", str(target), *what]
    done = subprocess.run(words, env=environment(home), capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    found = [path.name.removesuffix(".dist-info").split("-") for path in target.glob("*.dist-info")]
    return dict(found), done.stdout + done.stderr


@pytest.fixture
def server(tmp_path: Path):  # type: ignore[no-untyped-def]
    """An index of a torch that requires a triton, in versions for several Pythons, one of them yanked."""
    fresh, root = tmp_path / "fresh", tmp_path / "index"
    wheels = [
        wheel(fresh, version="2.8.0+rocm7.1.0", requires=("triton==3.5.0",)),
        wheel(fresh, version="2.9.0+rocm7.1.0", requires=("triton==3.5.0",)),
        wheel(fresh, version="2.9.1+rocm7.1.0", requires=("triton==3.5.0",)),
        wheel(fresh, version="2.10.0+rocm7.1.0", python=">=3.99"),
        wheel(fresh, "triton", "3.5.0"),
        wheel(fresh, "triton", "3.6.0"),
    ]
    update.add_wheels(root, wheels, now=NOW)
    update.yank_wheels(root, ["torch==2.9.1+rocm7.1.0"], reason="crashes on gfx942")
    with serve_folder(root) as running:
        yield running


@pytest.mark.contract
def test_installers_take_what_they_should(tool: list[str], server: IndexServer, tmp_path: Path) -> None:
    index = ["--index-url", server.url]
    expected = {"torch": "2.9.0+rocm7.1.0", "triton": "3.5.0"}
    assert install(tool, index, tmp_path, "torch")[0] == expected
    asked = [request.path for request in server.requests]
    assert not any(path.endswith("/triton-3.6.0-py3-none-any.whl") for path in asked)
    assert all(request.status < 400 for request in server.requests)
    versions, said = install(tool, index, tmp_path, "torch==2.9.1+rocm7.1.0")
    assert versions["torch"] == "2.9.1+rocm7.1.0"
    assert "crashes on gfx942" in said
    links = ["--no-index", "--find-links", f"{server.url}links.html"]
    assert install(tool, links, tmp_path, "torch<2.9.1")[0] == expected
    if tool is not UV:  # uv 0.13.8 takes yanked files from such a page
        assert install(tool, links, tmp_path, "torch")[0] == expected
    folder = ["--no-index"]
    folder += ["--find-links", f"{server.folder}/torch", "--find-links", f"{server.folder}/triton"]
    assert install(tool, folder, tmp_path, "torch==2.9.0")[0] == expected


@pytest.mark.contract_slow
@pytest.mark.network
def test_every_installer_takes_a_name_that_is_not_normalized(installer: list[str], tmp_path: Path) -> None:
    """From JSON pages, which it asks our server for, and from HTML pages, which are all that others have."""
    for folder in ("fresh", "home"):
        (tmp_path / folder).mkdir()
    draft = Draft("Backports.Zstd_x", "1.0", "py3-none-any")
    draft.file_name = "backports_zstd_x-1.0-py3-none-any.whl"
    torch = wheel(tmp_path / "fresh", version="2.9.0", requires=("backports-zstd.x>=1",))
    root = tmp_path / "index"
    update.add_wheels(root, [draft.write(tmp_path / "fresh"), torch], now=NOW)
    plain = partial(SimpleHTTPRequestHandler, directory=str(root))
    with serve_folder(root) as running, serve_requests(plain) as html_alone:
        for url, target in ((running.url, tmp_path / "of JSON"), (html_alone, tmp_path / "of HTML")):
            words = [*installer, "--index-url", url, "--target", str(target), "torch"]
            ended = subprocess.run(
                words, env=environment(tmp_path / "home"), capture_output=True, text=True, check=False
            )
            assert ended.returncode == 0, ended.stdout + ended.stderr
            assert len(list(target.glob("*.dist-info/METADATA"))) == 2


BACKEND = """
import zipfile
NAME = "rocm-7.14.0"
def build_wheel(folder, config_settings=None, metadata_directory=None):
    info = f"{NAME}.dist-info"
    texts = {"METADATA": "Metadata-Version: 2.1\\nName: rocm\\nVersion: 7.14.0\\n", "RECORD": "",
             "WHEEL": "Wheel-Version: 1.0\\nGenerator: own\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n"}
    with zipfile.ZipFile(f"{folder}/{NAME}-py3-none-any.whl", "w") as wheel:
        for name, text in texts.items():
            wheel.writestr(f"{info}/{name}", text)
    return f"{NAME}-py3-none-any.whl"
"""


def sdist(folder: Path, *, stated: str = "7.14.0") -> Path:
    """A source distribution as ROCm's metapackage is one, which builds without anything else."""
    project = '[build-system]\nrequires = []\nbuild-backend = "own"\nbackend-path = ["."]\n'
    information = f"Metadata-Version: 2.1\nName: rocm\nVersion: {stated}\nRequires-Python: >=3.9\n"
    path = folder / "rocm-7.14.0.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for name, text in {"pyproject.toml": project, "own.py": BACKEND, "PKG-INFO": information}.items():
            member = tarfile.TarInfo(f"rocm-7.14.0/{name}")
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
    return path


@pytest.mark.contract
def test_source_distributions_are_listed_too(tool: list[str], tmp_path: Path) -> None:
    """As the metapackage of ROCm is one: a torch that requires it is installed from the same index."""
    root = tmp_path / "index"
    torch = wheel(tmp_path / "fresh", version="2.9.0", requires=("rocm==7.14.0",))
    source = sdist(tmp_path / "fresh")
    assert update.add_wheels(root, [torch, source], now=NOW).new == (torch.name, source.name)
    assert update.add_wheels(root, [source], now=NOW).unchanged == (source.name,)
    assert update.build_index(root, now=NOW).new == 0
    assert verify.verify_index(str(root)).findings == ()
    (entry,) = json.loads((root / "rocm" / "index.json").read_text())["files"]
    assert entry["requires-python"] == ">=3.9" and "core-metadata" not in entry
    with serve_folder(root) as running:
        versions, _ = install(tool, ["--index-url", running.url], tmp_path, "torch")
    assert versions == {"torch": "2.9.0", "rocm": "7.14.0"}
    (root / "rocm" / source.name).write_bytes(b"other")
    assert {one.check for one in verify.verify_index(str(root)).findings} >= {"wrong-hash", "wrong-size"}
    update.yank_wheels(root, [source.name], reason="")
    drop(root, root / "rocm" / source.name)
    with pytest.raises(errors.DataError, match=r"METADATA of rocm-7\.14\.0\.tar\.gz is of rocm 7\.13"):
        update.add_wheels(root, [sdist(tmp_path, stated="7.13")], now=NOW)
    source.write_bytes(source.read_bytes()[:-40])
    with pytest.raises(errors.DataError, match="not a readable source distribution"):
        update.add_wheels(root, [source], now=NOW)


@pytest.mark.contract
def test_a_family_is_an_index_of_its_own(tool: list[str], tmp_path: Path) -> None:
    """Wheels of two families have one name and other bytes; what they require is for everybody."""
    root = tmp_path / "index"
    for family in ("gfx94X-dcgpu", "gfx110X-all"):
        mine = wheel(tmp_path / family, requires=("triton==3.5.0",), text=family)
        update.add_wheels(root, [mine], now=NOW, family=family)
    update.add_wheels(root, [wheel(tmp_path, "triton", "3.5.0")], now=NOW)
    with serve_folder(root) as server:
        for number, family in enumerate(("gfx94X-dcgpu", "gfx110X-all")):
            home = tmp_path / f"home{number}"
            home.mkdir()
            found, _ = install(tool, ["--index-url", f"{server.url}{family}/"], home, "torch")
            assert found == {"torch": "2.9.1+rocm7.1.0", "triton": "3.5.0"}
            assert family in next(home.glob("site*/torch/__init__.py")).read_text()


@pytest.mark.contract
def test_no_wheel_is_downloaded_to_resolve(tool: list[str], server: IndexServer, tmp_path: Path) -> None:
    compiling = [UV[0], "pip", "compile", "-", "--no-cache", "--no-config", "--python", sys.executable]
    compiling += ["--no-python-downloads", "--python-version", "3.12"]
    words = compiling if tool is UV else [*tool, "--dry-run", "--ignore-installed", "torch"]
    done = subprocess.run(
        [*words, "--index-url", server.url],
        input="torch\n",
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2.9.0+rocm7.1.0" in done.stdout
    wheels = [request for request in server.requests if request.path.endswith(".whl")]
    sidecars = [request for request in server.requests if request.path.endswith(".metadata")]
    assert wheels == []
    assert {request.path.split("/")[1] for request in sidecars} == {"torch", "triton"}


@pytest.mark.contract
def test_a_replaced_file_is_refused_by_its_hash(tool: list[str], server: IndexServer, tmp_path: Path) -> None:
    path = server.folder / "triton/triton-3.6.0-py3-none-any.whl"
    path.write_bytes(wheel(tmp_path / "other", "triton", "3.6.0", text="other").read_bytes())
    _, said = install(tool, ["--index-url", server.url], tmp_path, "triton", code=1)
    assert "hash" in said.lower()


@pytest.mark.contract
def test_uv_takes_the_variant_that_the_index_names(tmp_path: Path) -> None:
    """uv's preview reads the variants file by the link of the page, and checks its hash."""
    root = tmp_path / "index"
    labels: dict[str, Properties] = {"null": {}, "rocm7.1": {"rocm": {"version": ["7.1"]}}}
    labels["rocm7.2"] = {"rocm": {"version": ["7.2"]}}
    update.add_wheels(root, [variant(tmp_path, label, said) for label, said in labels.items()], now=NOW)
    preview = ["--preview-features", "wheel-variants"]
    with serve_folder(root) as server:
        install(UV, [*preview, "--index-url", server.url], tmp_path, "torch")
        wheels = [request.path for request in server.requests if request.path.endswith(".whl")]
        assert set(wheels) == {"/torch/torch-2.9.1-py3-none-any-rocm7.2.whl"}
        assert any(request.path.endswith("-variants.json") for request in server.requests)
    install(UV, [*preview, "--no-index", "--find-links", str(root / "torch")], tmp_path, "torch")


def start(script: str, *words: object) -> subprocess.Popen[str]:
    argv = [*warm_python(), "-c", textwrap.dedent(script), *map(str, words)]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


CHANGING = r"os\.(rename|remove|rmdir|mkdir)"  # events of the disk that readers may see


def contents(root: Path) -> Mapping[str, bytes]:
    """What readers see: without what is known, which has times of files."""
    return {path: content for path, content in files(root).items() if ".index/" not in path}


NEW = ["{torch}", "{triton}"]
CHANGES = {
    "add": ["build", "{root}", *NEW, "{apex}"],
    "add for families": ["build", "{root}", *NEW],
    "family": ["build", "{root}", *NEW, "--family", "gfx1100"],
    "drop": ["build", "{root}", "--drop-missing"],
}


def list_versions(root: Path, project: str, page: str) -> set[str]:
    """Return the versions of a project that a page as HTML or as JSON lists."""
    file = root / project / f"index.{page}"
    text = file.read_text() if file.exists() else ""
    return set(re.findall(rf"{project}-([0-9.]+)-py3-none-any\.whl", text))


@pytest.mark.contract
@pytest.mark.skipif(sys.platform == "win32", reason="nothing is like SIGKILL there")
@pytest.mark.parametrize(
    "change",
    [
        "add",
        "drop",
        *(pytest.param(name, marks=pytest.mark.exhaustive) for name in ("add for families", "family")),
    ],
)
def test_the_same_command_finishes_a_change_that_was_killed(
    change: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exhaustive: bool
) -> None:
    """And a torch is never seen without the triton that it pins, whatever the change is cut at."""
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    fresh, seen = tmp_path / "fresh", set()
    base = [wheel(fresh, version="2.9.0", requires=("triton==3.5.0",)), wheel(fresh, "triton", "3.5.0")]
    new = {
        "torch": wheel(fresh, version="2.10.0", requires=("triton==3.6.0",)),
        "triton": wheel(fresh, "triton", "3.6.0"),
        "apex": wheel(fresh, "apex", "1.0"),
    }
    other = wheel(fresh, "vision", "1.0")

    def made(name: str) -> tuple[Path, list[str]]:
        root = tmp_path / name
        call("index", "build", root, *base, *(new.values() if change == "drop" else ()))
        if change == "add for families":
            update.add_wheels(root, [other], now=NOW, family="gfx1100")
        for path in new.values() if change == "drop" else ():
            next(root.rglob(path.name)).unlink()
        return root, ["index", *(word.format(root=root, **new) for word in CHANGES[change])]

    whole, argv = made("whole")
    before = contents(whole)
    gone = {finding.check for finding in verify.verify_index(str(whole)).findings}
    call(*argv)
    after = contents(whole)
    assert before != after
    call("index", "build", whole, other)
    with_other = contents(whole)
    root, argv = made("killed")

    def begin() -> None:
        shutil.rmtree(root)
        made("killed")

    kills = killed_at_events(
        lambda: call(*argv), begin=begin, exhaustive=exhaustive, most=8, least=20, like=CHANGING
    )
    for point, event in enumerate(kills):
        faults = {finding.check for finding in verify.verify_index(str(root)).findings}
        # nothing is broken that was not
        assert faults <= {"stale-page", "not-listed", "forms-differ", *gone}, (event, faults)
        for page in ("html", "json"):
            torch, triton = (list_versions(root, project, page) for project in ("torch", "triton"))
            assert "2.10.0" not in torch or "3.6.0" in triton, (event, page)
            seen.add("2.10.0" in torch)
        if point % 2:  # another command comes between
            call("index", "build", root, other)
        elif change != "drop":  # all pages are made again, of the files that have come
            call("index", "build", root)
            assert verify.verify_index(str(root)).findings == (), event
        call(*argv)
        expected, now = with_other if point % 2 else after, contents(root)
        assert now == expected, (event, sorted(now.keys() ^ expected.keys()))
        assert verify.verify_index(str(root)).findings == (), event
    assert change not in {"add", "drop"} or seen == {True, False}


@pytest.mark.contract
def test_a_folder_that_is_named_from_beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    torch = wheel(tmp_path / "fresh", version="2.9.0")
    serve("build", "../ix", f"../fresh/{torch.name}")
    serve("build", "../ix")
    serve("yank", "../ix", "torch==2.9.0")
    assert verify.verify_index("../ix").findings == ()


@pytest.mark.contract
def test_a_family_whose_folder_somebody_removed(tmp_path: Path) -> None:
    root, fresh = tmp_path / "index", tmp_path / "fresh"
    update.add_wheels(root, [wheel(fresh, version="2.9.0")], now=NOW)
    update.add_wheels(root, [wheel(fresh, version="2.10.0")], now=NOW, family="gfx1100")
    shutil.rmtree(root / "gfx1100")
    before = contents(root)
    apex = str(wheel(fresh, "apex", "1.0"))
    for words in (["build", str(root), apex], ["yank", str(root), "torch==2.9.0"], ["build", str(root)]):
        serve(*words, code=2)
        assert contents(root) == before
    serve("verify", str(root), code=14)
    serve("build", str(root), "--drop-missing")
    serve("build", str(root), apex)
    assert verify.verify_index(str(root)).findings == ()


@pytest.mark.contract
@pytest.mark.skipif(sys.platform == "win32", reason="no limits of file sizes there")
def test_a_copy_that_does_not_fit_leaves_nothing(tmp_path: Path) -> None:
    root = tmp_path / "index"
    update.add_wheels(root, [wheel(tmp_path)], now=NOW)
    large = wheel(tmp_path, version="2.10.0", text="x" * 200_000)
    before = files(root)
    code, told = run_on_full_disk(["index", "build", str(root), str(large)], 100_000)
    assert code == 2
    assert "File too large" in told
    assert "`ulimit -f`" in told
    assert files(root) == before


@pytest.mark.contract
def test_writers_that_meet_lose_nothing(tmp_path: Path) -> None:
    root = tmp_path / "index"
    wheels = [wheel(tmp_path / f"w{n}", version=f"2.{n}.0") for n in range(6)]
    script = """
        import sys
        from rocm_wheels.cli.boundary import run_command
        from rocm_wheels.cli.main import cli
        sys.exit(run_command(cli, sys.argv[1:]))
    """
    running = [start(script, "index", "build", root, path) for path in wheels]
    for child in running:
        told, _ = child.communicate()
        assert child.returncode == 0, told
    page = json.loads((root / "torch/index.json").read_text())
    assert [file["filename"] for file in page["files"]] == [path.name for path in wheels]
    assert verify.verify_index(str(root), full=True).findings == ()


@pytest.mark.contract
def test_a_reader_never_sees_half_a_change(tmp_path: Path) -> None:
    """A crawl that runs beside a writer meets no broken link, whatever it reads first."""
    root = tmp_path / "index"
    update.add_wheels(root, [wheel(tmp_path, version="1.0")], now=NOW)
    versions = [wheel(tmp_path, version=f"2.{n}.0") for n in range(8)]
    script = """
        import sys
        from rocm_wheels.cli.boundary import run_command
        from rocm_wheels.cli.main import cli
        root, *wheels = sys.argv[1:]
        for wheel in wheels:
            assert run_command(cli, ["index", "build", root, wheel]) == 0
    """
    with serve_folder(root) as server:
        writer = start(script, root, *versions)
        looked = 0
        while writer.poll() is None:
            faults = {finding.check for finding in verify.verify_index(server.url).findings}
            assert faults <= {"forms-differ"}  # two pages that were read one after another
            looked += 1
        told, _ = writer.communicate()
    assert writer.returncode == 0, told
    assert looked > 0


def serve(*words: str, code: int = 0) -> Ended:
    return call("index", *words, code=code)


@pytest.mark.contract
def test_dates_are_refused_and_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = wheel(tmp_path)
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "yesterday")
    assert "SOURCE_DATE_EPOCH" in serve("build", str(tmp_path / "index"), str(path), code=2).err
    assert not (tmp_path / "index").exists()
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    serve("build", str(tmp_path / "index"), str(path))
    page = json.loads((tmp_path / "index/torch/index.json").read_text())
    assert page["files"][0]["upload-time"] == "2023-11-14T22:13:20Z"


@pytest.mark.contract
def test_installers_take_wheels_whose_provenance_is_offered(tool: list[str], tmp_path: Path) -> None:
    """As pages name it to both: HTML and JSON; what it says is for those who verify it."""
    fresh = wheel(tmp_path / "fresh", "triton", "3.5.0+rocm7.1.0")
    fresh.with_name(f"{fresh.name}.provenance").write_bytes(make_object(fresh))
    root, home = tmp_path / "index", tmp_path / "home"
    root.mkdir()
    home.mkdir()
    with serve_folder(root) as served:
        update.add_wheels(root, [fresh], now=NOW, public_url=served.url)
        link = f"{served.url}triton/{fresh.name.replace('+', '%2B')}.provenance"
        assert f'data-provenance="{link}"' in (root / "triton" / "index.html").read_text()
        (file,) = json.loads((root / "triton" / "index.json").read_text())["files"]
        assert file["provenance"] == link
        assert verify.verify_index(served.url).findings == ()
        versions, _ = install(tool, ["--index-url", served.url], home, "triton")
    assert versions == {"triton": "3.5.0+rocm7.1.0"}
