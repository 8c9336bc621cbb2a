"""`rocm-wheels lock`: what is in a lock, where it is read, and that nothing else is written."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from servers import FileServer, GitServer, serving
from sources import DEEP, MIDDLE, TRITON_PIN, Upstream, enter, isolated_environment, write_files

from rocm_wheels.ci.matrix import list_line_projects
from rocm_wheels.cli import boundary, matrix
from rocm_wheels.cli.main import cli
from rocm_wheels.core import errors
from rocm_wheels.models import project, project_names, release_lines
from rocm_wheels.sources.lock import format_manifest, read_lock

pytestmark = pytest.mark.contract

OPTIONS = ["--rocm", "7.10.0a1", "--gfx", "gfx942,gfx1100", "--python", "3.12,3.14t"]


@dataclass(frozen=True)
class Servers:
    """Upstreams whose torch pins audio and triton on its branch main, and a folder to work in."""

    up: Upstream
    work: Path

    def run(self, *words: str | Path, code: int = 0, **variables: str) -> tuple[str, str]:
        """Run ``rocm-wheels`` in the folder; return what it printed and what it said."""
        ended = self.up.start(self.work, "-m", "rocm_wheels", *words, **variables)
        assert ended.code == code, ended.out + ended.err
        return ended.out, ended.err

    def lock(self, *words: str | Path, code: int = 0, **variables: str) -> str:
        """Lock torch of branch main and what it pins; return what was said."""
        given = self.torch()
        if "--pytorch-origin" in words:
            place = given.index("--pytorch-origin")
            del given[place : place + 2]
        return "".join(self.run("lock", *given, *words, code=code, **variables))

    def torch(self, ref: str = "main") -> list[str]:
        """The options of a lock of three projects."""
        projects = [word for name in ("pytorch", "pytorch_audio", "triton") for word in ("--project", name)]
        origin = ["--pytorch-origin", self.up.url, "--pytorch-ref", ref]
        return [*projects, *origin, "--source-dir", str(self.work)]

    def read(self, name: str = "set.lock") -> dict[str, Any]:
        """Return a lock as JSON."""
        lock: dict[str, Any] = json.loads((self.work / name).read_text())
        return lock

    def pin(self) -> str:
        """Have torch pin the tips of the two others; return its commit."""
        audio, triton = (self.up.git(name, "rev-parse", "main") for name in ("audio", "triton"))
        url = (self.up.folder / "audio").as_uri()
        row = f"ubuntu|pytorch|torchaudio|main|{audio}|{url}\n"
        write_files(self.up.root, {TRITON_PIN: f"{triton}\n", "related_commits": row})
        return self.up.commit("root", "pin the others")


def make_servers(sources: Upstream, folder: Path) -> Servers:
    up = sources.copy(folder / "servers")
    # no test asks a server of the world: git is told where the recipes' repositories are
    for url, name in (("ROCm/triton", "triton"), ("pytorch/audio", "audio")):
        place = f"url.{(up.folder / name).as_uri()}.insteadOf"
        up.git("", "config", "--global", place, f"https://github.com/{url}.git")
    servers = Servers(up, folder / "work")
    servers.work.mkdir()
    servers.pin()
    return servers


@pytest.fixture
def servers(sources: Upstream, tmp_path: Path) -> Servers:
    """Upstreams of one's own, to change."""
    return make_servers(sources, tmp_path)


@pytest.fixture(scope="module")
def standing(sources: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Servers:
    return make_servers(sources, tmp_path_factory.mktemp("standing"))


@pytest.fixture
def shared(standing: Servers, tmp_path: Path) -> Servers:
    """Upstreams that no test changes, and a folder of one's own."""
    return Servers(standing.up, tmp_path)


def test_everything_of_a_set_is_in_its_lock(shared: Servers) -> None:
    said = shared.lock("-o", "new/set.lock", *OPTIONS)
    lock, up = shared.read("new/set.lock"), shared.up
    assert {key: value for key, value in lock.items() if key != "projects"} == {
        "lock_version": "1",
        "platform": "linux",
        "rocm": "7.10.0a1",
        "targets": ["gfx942", "gfx1100"],
        "pythons": ["3.12", "3.14t"],
    }
    triton, torch, audio = lock["projects"].values()
    main, short = up.git("root", "rev-parse", "main"), up.git("root", "rev-parse", "--short=12", "main")
    middle = up.git("root", "rev-parse", "main:third_party/middle")
    inner = up.git("middle", "rev-parse", f"{middle}:deep dir")
    assert torch == {
        "origin": up.url,
        "ref": "main",
        "why": "options",
        "commit": main,
        "tree": up.git("root", "rev-parse", "main^{tree}"),
        "version": "1.0",
        "submodules": {
            path: {
                "origin": (up.folder / name).as_uri(),
                "commit": commit,
                "tree": up.git(name, "rev-parse", f"{commit}^{{tree}}"),
            }
            for path, name, commit in (
                (MIDDLE, "middle", middle),
                (DEEP, "inner", inner),
            )
        },
    }
    assert audio == {
        "origin": (up.folder / "audio").as_uri(),
        "ref": up.git("audio", "rev-parse", "main"),
        "why": f"pytorch@{short}:related_commits line 1, branch main",
        "pinned": True,
        "commit": up.git("audio", "rev-parse", "main"),
        "tree": up.git("audio", "rev-parse", "main^{tree}"),
        "version": "2.9.1",
        "submodules": {},
    }
    assert (triton["commit"], triton["version"]) == (up.git("triton", "rev-parse", "main"), "3.5.0")
    assert f"pytorch        main      {short}  1.0    2 submodules" in said
    assert [path.name for path in shared.work.iterdir()] == ["new"]


def test_the_same_again_is_the_same_file(shared: Servers) -> None:
    shared.lock("-o", "set.lock")
    before = (shared.work / "set.lock").stat()
    assert "set.lock is up to date" in shared.lock("-o", "set.lock")
    after = (shared.work / "set.lock").stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    printed, _ = shared.run("lock", *shared.torch(), "-o", "-")
    assert printed == (shared.work / "set.lock").read_text()


def test_each_ref_is_asked_once_and_a_commit_never(shared: Servers) -> None:
    trace = shared.work / "trace"
    shared.lock("-o", "set.lock", GIT_TRACE=str(trace))
    asked = [line for line in trace.read_text().splitlines() if "ls-remote --quiet" in line]
    assert len(asked) == 1 and "root" in asked[0]


def locked_without_servers(servers: Servers, **variables: str) -> None:
    """Lock by commits alone while no server is there; the lock must be the one of before."""
    servers.lock("-o", "set.lock")
    torch = servers.read()["projects"]["pytorch"]["commit"]
    servers.up.folder.rename(servers.up.folder.with_name("gone"))
    for name in ("near", "far"):
        servers.run("lock", *servers.torch(torch), "-o", name, **variables)
    near, plain = servers.read("near"), servers.read()
    plain["projects"]["pytorch"]["ref"] = torch
    assert near == plain


def test_checkouts_that_have_the_commits_save_the_servers(servers: Servers) -> None:
    up = servers.up
    for name, folder in (("root", "pytorch"), ("audio", "pytorch_audio"), ("triton", "triton")):
        source = (up.folder / name).as_uri()
        up.git(
            servers.work, "clone", "-q", "--depth=1", "--recursive", "--shallow-submodules", source, folder
        )
    locked_without_servers(servers)


def test_mirrors_that_have_the_commits_save_the_servers(servers: Servers) -> None:
    mirrors = servers.work / "mirrors"
    for name in ("root", "middle", "inner", "audio", "triton"):
        source = (servers.up.folder / name).as_uri()
        servers.up.git(servers.work, "clone", "-q", "--mirror", source, f"mirrors/{name}.git")
    before = {path: path.stat().st_mtime_ns for path in mirrors.rglob("*")}
    locked_without_servers(servers, ROCM_WHEELS_MIRROR_DIR=str(mirrors))
    assert {path: path.stat().st_mtime_ns for path in mirrors.rglob("*")} == before


def configure(servers: Servers, **settings: str) -> None:
    """Change git's configuration, also that of the servers."""
    for key, value in settings.items():
        servers.up.git("", "config", "--global", key.replace("_", "."), value)


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param(
            {"uploadpack_allowFilter": "true", "uploadpackfilter_blob:limit_allow": "false"},
            marks=pytest.mark.exhaustive,
        ),
        {"uploadpack_allowFilter": "false"},
        {"protocol_version": "0"},
        pytest.param(
            {
                "protocol_version": "0",
                "uploadpack_allowFilter": "true",
                "uploadpack_allowAnySHA1InWant": "true",
            },
            marks=pytest.mark.exhaustive,
        ),
    ],
    ids=["one filter", "no filters", "branches only", "old, but helpful"],
)
def test_servers_of_every_kind_give_the_same_lock(servers: Servers, settings: dict[str, str]) -> None:
    configure(servers, protocol_version="2", uploadpack_allowFilter="true")
    servers.lock("-o", "set.lock")
    configure(servers, **settings)
    servers.lock("-o", "other.lock")
    assert servers.read("other.lock") == servers.read()


def test_of_a_server_that_leaves_nothing_out_no_history_is_fetched(servers: Servers) -> None:
    """One that gives out its branches' tips alone has given what is read with the commit."""
    configure(servers, protocol_version="0", uploadpack_allowFilter="false")
    trace = servers.work / "trace"
    torch = ["--project", "pytorch", "--pytorch-origin", servers.up.url, "--pytorch-ref", "main"]
    servers.up.git("root", "rm", "-q", "-r", "third_party", ".gitmodules")
    servers.up.commit("root", "alone")
    servers.run("lock", *torch, "--source-dir", ".", "-o", "set.lock", GIT_TRACE=str(trace))
    fetches = [line for line in trace.read_text().splitlines() if " fetch --progress" in line]
    assert len(fetches) == 1 and "--depth=1" in fetches[0]


def test_a_ref_outside_of_branches_on_a_server_that_gives_out_refs_only(servers: Servers) -> None:
    up = servers.up
    up.git("root", "update-ref", "refs/pull/8/head", servers.up.append("root", "of a pull request"))
    up.git("root", "reset", "-q", "--hard", "HEAD^")
    configure(servers, protocol_version="0")
    servers.run("lock", *servers.torch("refs/pull/8/head"), "-o", "set.lock")
    assert servers.read()["projects"]["pytorch"]["commit"] == up.git("root", "rev-parse", "refs/pull/8/head")


@pytest.mark.slow
def test_a_network_that_fails_for_a_moment(servers: Servers) -> None:
    servers.lock("-o", "set.lock")
    with serving(GitServer(servers.up.folder)) as server:
        words = ("-o", "net.lock", "--pytorch-origin", f"{server.url}/root")
        server.fail("busy", "cut", "stall")
        said = servers.lock(*words, ROCM_WHEELS_TIMEOUT="3")
        assert said.count("trying again") == 3
        near, far = servers.read()["projects"]["pytorch"], servers.read("net.lock")["projects"]["pytorch"]
        assert far["submodules"]["third_party/middle"]["origin"] == f"{server.url}/middle"
        assert (far["commit"], far["tree"]) == (near["commit"], near["tree"])
        before = (servers.work / "net.lock").read_bytes()
        server.fail("forbidden", where="inner")
        assert "error: 403" in servers.lock(*words, code=10)
        server.fail(*["busy"] * 3, where="middle")
        assert "error: 503" in servers.lock(*words, code=10, ROCM_WHEELS_RETRIES="1")
        assert (servers.work / "net.lock").read_bytes() == before


def test_options_go_before_pins_and_pins_before_a_line(servers: Servers) -> None:
    up = servers.up
    moved = servers.up.append("audio", "audio 2")
    url = (up.folder / "audio").as_uri()
    audio = {"ROCM_WHEELS_PYTORCH_AUDIO_REF": "main", "ROCM_WHEELS_PYTORCH_AUDIO_ORIGIN": url}
    servers.lock("-o", "a", **audio)
    refused = servers.lock("-o", "x", code=2, ROCM_WHEELS_APEX_REF="main")
    assert "ROCM_WHEELS_APEX_REF would have no effect" in refused and "or unset it" in refused
    _, refused = servers.run("lock", "--project", "torch", "--triton-ref", "main", "-o", "x", code=2)
    assert "--triton-ref would have no effect" in refused and "or leave it out" in refused
    assert servers.read("a")["projects"]["pytorch_audio"]["commit"] == moved
    assert "pinned" not in servers.read("a")["projects"]["pytorch_audio"]
    (up.root / "version.txt").write_text("2.13.0\n")
    up.commit("root", "2.13")
    said = servers.lock("-o", "b", "--line", "2.13", "--rocm", "5.0")
    found = servers.read("b")
    assert found["line"] == "2.13" and found["pythons"][-1].endswith("t")
    assert found["projects"]["pytorch_audio"]["commit"] == up.git("audio", "rev-parse", "main^")
    assert "warning: release line 2.13 was released with ROCm" in said and "not with 5.0" in said


def test_all_five_by_one_line(servers: Servers) -> None:
    up = servers.up
    up.git("root", "rm", "-q", "related_commits", TRITON_PIN)
    (up.root / "version.txt").write_text("2.13.0\n")
    up.commit("root", "without pins")
    places = [
        ("root", "ROCm/pytorch.git", "release/2.13"),
        ("middle", "ROCm/middle", "any"),
        ("inner", "ROCm/inner", "any"),
        ("triton", "ROCm/triton.git", "release/internal/3.8.x"),
        ("audio", "ROCm/audio.git", "release/2.11.0.2"),
        ("audio", "pytorch/vision.git", "release/0.28"),
        ("audio", "ROCm/apex.git", "release/1.13.0"),
    ]
    for name, place, branch in places:
        up.git(name, "branch", branch, "main")
        key = f"url.{(up.folder / name).as_uri()}.insteadOf"
        up.git("", "config", "--global", "--add", key, f"https://github.com/{place}")
    servers.run("lock", "--line", "2.13", "--platform", "linux", "--source-dir", ".", "-o", "set.lock")
    lock = servers.read()
    assert list(lock["projects"]) == ["triton", "pytorch", "apex", "pytorch_audio", "pytorch_vision"]
    torch = lock["projects"]["pytorch"]
    assert (torch["ref"], torch["why"]) == ("release/2.13", "release line 2.13")
    assert torch["submodules"]["third_party/middle"]["origin"] == "https://github.com/ROCm/middle"
    assert lock["projects"]["apex"]["ref"] == "release/1.13.0"
    printed, _ = servers.run("lock", "update", "set.lock", "--source-dir", ".")
    assert printed == "" and servers.read() == lock


def test_patches_are_named_with_their_digest(shared: Servers) -> None:
    place = shared.work / "patches/pytorch/main/base"
    place.mkdir(parents=True)
    (place / "0001-x.patch").write_text("x")
    shared.lock("-o", "set.lock", ROCM_WHEELS_PATCH_DIR="patches")
    patches = shared.read()["projects"]["pytorch"]["patches"]
    assert patches["name"] == "main" and len(patches["digest"]) == 64
    (shared.work / "none").mkdir()
    shared.lock("-o", "set.lock", ROCM_WHEELS_PATCH_DIR="none")
    assert "patches" not in shared.read()["projects"]["pytorch"]


def test_credentials_stay_out_of_the_lock_and_of_what_is_said(servers: Servers) -> None:
    up, url = servers.up, "https://me:hunter2@h.invalid/audio.git"
    up.git("", "config", "--global", f"url.{(up.folder / 'audio').as_uri()}.insteadOf", url)
    audio = {"ROCM_WHEELS_PYTORCH_AUDIO_ORIGIN": url, "ROCM_WHEELS_PYTORCH_AUDIO_REF": "main"}
    said = servers.lock("-o", "set.lock", **audio)
    assert servers.read()["projects"]["pytorch_audio"]["origin"] == "https://h.invalid/audio.git"
    assert "warning: pytorch_audio: the credentials in its origin are not written" in said
    assert "hunter2" not in said + (servers.work / "set.lock").read_text()


def test_a_submodule_cannot_name_a_folder_of_this_machine(servers: Servers) -> None:
    """A repository from a server whose ``.gitmodules`` names a file:// URL: git refuses it, and so do we."""
    up, url = servers.up, "https://h.invalid/root"
    up.git("", "config", "--global", f"url.{up.url}.insteadOf", url)
    up.git(
        "root",
        "config",
        "-f",
        ".gitmodules",
        "submodule.third_party/middle.url",
        (up.folder / "middle").as_uri(),
    )
    up.commit("root", "steal")
    said = servers.lock("-o", "set.lock", "--pytorch-origin", url, code=10)
    assert "transport 'file' not allowed" in said
    assert list(servers.work.iterdir()) == []


# what a commit of torch changes (None: takes away) → exit code, what is said
CANNOT: list[tuple[dict[str, str | None], int, str]] = [
    ({"version.txt": None}, 2, "cannot read the version of pytorch: there is no pytorch@"),
    ({"version.txt": "new"}, 2, "version.txt: 'new' is not a version"),
    ({"related_commits": "x"}, 2, "related_commits:1: a row has 6 fields"),
    ({"related_commits": None}, 10, "there is no pytorch@"),
    ({TRITON_PIN: "main"}, 2, "triton.txt:1: a pin must be a commit"),
    ({".gitmodules": None}, 10, ", and .gitmodules has no URL for it"),
    ({".gitmodules": "[submodule"}, 10, "reading .gitmodules of pytorch@"),
    ({".gitmodules": f'[submodule "x"]\npath={MIDDLE}\nurl={40 * "../"}x'}, 10, "further up than"),
]


def test_a_torch_that_cannot_be_locked(servers: Servers) -> None:
    good = servers.up.git("root", "rev-parse", "main")
    for change, code, message in CANNOT:
        for name, text in change.items():
            if text is None:
                (servers.up.root / name).unlink()
            else:
                (servers.up.root / name).write_text(text)
        servers.up.commit("root", "break it")
        triton = {"ROCM_WHEELS_TRITON_REF": "main"} if "related_commits" in change else {}
        assert message in servers.lock("-o", "set.lock", code=code, **triton)
        assert list(servers.work.iterdir()) == [], message
        servers.up.git("root", "reset", "-q", "--hard", good)


def test_an_update_takes_what_refs_are_now_and_says_what_changed(servers: Servers) -> None:
    up = servers.up
    servers.lock("-o", "set.lock")
    before = servers.read()
    audio = servers.up.append("audio", "audio of another day")
    assert "set.lock is up to date" in servers.run("lock", "update", "set.lock", "--source-dir", ".")[1]
    servers.pin()
    torch = servers.up.append("root", "torch of another day")
    printed, said = servers.run("lock", "update", "set.lock", "torch", "--source-dir", ".")
    assert "unchanged: pytorch_audio, triton" in printed
    old = before["projects"]["pytorch_audio"]["commit"]
    assert f"warning: pytorch_audio: torch now pins {audio[:12]}, the lock has {old[:12]}" in said
    assert "`rocm-wheels lock update set.lock pytorch_audio` takes those pins" in said
    now = servers.read()["projects"]
    assert (now["pytorch"]["commit"], now["pytorch_audio"]["commit"]) == (torch, old)
    printed, said = servers.run("lock", "update", "set.lock", "pytorch_audio", "--source-dir", ".")
    assert f"{old[:12]} → {audio[:12]}" in printed and "warning" not in said
    assert servers.read()["projects"]["pytorch_audio"]["commit"] == audio
    servers.lock("-o", "fresh.lock")
    assert servers.read("fresh.lock")["projects"].keys() == servers.read()["projects"].keys()
    short = {name: project["commit"] for name, project in servers.read("fresh.lock")["projects"].items()}
    assert short == {name: project["commit"] for name, project in servers.read()["projects"].items()}
    assert up.git("root", "rev-parse", "main") == torch


def test_what_cannot_be_updated(servers: Servers) -> None:
    servers.lock("-o", "set.lock")
    before = (servers.work / "set.lock").read_bytes()
    (servers.up.root / "related_commits").unlink()
    servers.up.commit("root", "without pins")
    for words, code, message in [
        (("apex",), 2, "apex is not in the lock"),
        (("triton", "--source-dir", "nowhere"), 2, "--source-dir nowhere is not a folder"),
        ((), 10, "pytorch_audio is pinned in the lock, but no longer by torch"),
    ]:
        assert message in servers.run("lock", "update", "set.lock", *words, code=code)[1]
        assert (servers.work / "set.lock").read_bytes() == before
    lock = servers.read()
    del lock["projects"]["pytorch"]
    (servers.work / "without.lock").write_text(json.dumps(lock))
    message = "triton: the lock has no pytorch, whose commit pinned them"
    assert message in servers.run("lock", "update", "without.lock", "triton", code=2)[1]


def test_versions_tell_builds_and_torches_apart(shared: Servers) -> None:
    """Two nights, or two torches of a night, have torchaudio of one version; an index has a name once."""
    words = ["--rocm", "7.10.0", "--local-version", "nightly{date}.17", "--name-torch"]
    shared.lock("-o", "l", *words, SOURCE_DATE_EPOCH="1800000000")
    lock = shared.read("l")
    assert (lock["local_version"], lock["named_torch"]) == ("nightly20270115.17", "1.0")
    shared.run("lock", "update", "l", "triton")
    assert shared.read("l") == lock
    (shared.work / "old").write_text(json.dumps({**lock, "named_torch": "0.9"}))
    shared.run("lock", "update", "old", "pytorch")  # another torch is another name
    assert shared.read("old") == lock
    (shared.work / "m.json").write_text(format_manifest(read_lock(shared.work / "l")))
    said = {name: one["version"] for name, one in shared.read("m.json").items() if name != "schema_version"}
    assert said == {
        "triton": "3.5.0+nightly20270115.17.torch1.0.rocm7.10.0",
        "pytorch": "1.0+nightly20270115.17.rocm7.10.0",
        "pytorch_audio": "2.9.1+nightly20270115.17.torch1.0.rocm7.10.0",
    }
    assert read_lock(shared.work / "m.json").rocm == "7.10.0"
    shared.lock("-o", "plain", "--local-version", "")  # as a workflow that was told nothing
    assert not {"local_version", "named_torch"} & set(shared.read("plain"))
    assert "local_version" in shared.run("lock", "diff", "plain", "l")[0]
    alone = ("-o", "x", "--line", "2.13", "--project", "triton", "--name-torch")
    assert "--name-torch: pytorch is not among" in shared.run("lock", *alone, code=2)[1]


def test_a_manifest_for_the_peers_scripts(shared: Servers) -> None:
    shared.lock("-o", "set.lock", "--rocm", "7.10.0")
    (shared.work / "m.json").write_text(format_manifest(read_lock(shared.work / "set.lock")))
    found = shared.read("m.json")
    assert found["schema_version"] == 1 and found["pytorch"]["version"] == "1.0+rocm7.10.0"
    assert found["pytorch"]["branch"] == "main" and "branch" not in found["triton"]
    assert "m.json is a manifest" in shared.run("lock", "update", "m.json", code=2)[1]
    shared.lock("-o", "open.lock")
    with pytest.raises(errors.UsageError, match="the lock names none"):
        format_manifest(read_lock(shared.work / "open.lock"))


def test_a_lock_of_a_manifest_by_file_or_url(shared: Servers, tmp_path: Path) -> None:
    """What the manifest names at its commits, branches moved on or not, with what a manifest has not."""
    from rocm_wheels.sources.lock import parse_lock

    shared.lock("-o", "set.lock", "--rocm", "7.10.0")
    (shared.work / "m.json").write_text(format_manifest(read_lock(shared.work / "set.lock")))
    before, manifest = shared.read("set.lock"), (shared.work / "m.json").read_bytes()
    old = before["projects"]["pytorch"]["commit"]
    branch, newer = (
        shared.up.git("root", "rev-parse", "--abbrev-ref", "HEAD"),
        shared.up.append("root", "newer"),
    )
    assert branch == "main" and newer != old
    repo = ("--source-dir", shared.work)
    name = "therock-manifest_torch_windows_main.json"
    broken = b'{"schema_version": 1, "pytorch": {"repo": "https://git.invalid/x"}}'
    with serving(FileServer({name: manifest, "broken": broken, "binary": b"\xff"})) as server:
        server.fail("busy")
        url = ("--manifest", f"{server.url}/{name}", *repo)
        shared.run("lock", *url, "-o", "w.lock")
        for words, code, message in [
            (("--manifest", f"{server.url}/none"), 10, "answers 404"),
            (("--manifest", f"{server.url}/broken"), 2, "commit: Field required"),
            (("--manifest", f"{server.url}/binary"), 10, "not text"),
            (("--manifest", "http://127.0.0.1:9/x"), 10, "be reached"),
            (("--manifest", "nowhere.json"), 2, "cannot read nowhere.json"),
            ((*url, "--pytorch-ref", "main"), 2, "say two things"),
            ((*url, "--project", "apex"), 2, "has no apex"),
            ((*url, "--manifest", "m.json"), 2, "more than once"),
            (("--manifest", "set.lock"), 2, "is a lock"),
        ]:
            assert message in shared.run("lock", *words, "-o", "x", code=code)[1], words
    lock = shared.read("w.lock")
    assert (lock["platform"], lock["rocm"]) == ("windows", "7.10.0")
    assert parse_lock(json.dumps(lock), name="w").projects["pytorch"].submodules
    for locked_name, locked in lock["projects"].items():
        asked = before["projects"][locked_name]
        for key in ("origin", "commit", "tree", "version", "submodules"):
            assert locked.get(key) == asked.get(key)
        assert locked["why"] == f"manifest {name}"
    assert lock["projects"]["pytorch"]["ref"] == "main"
    words = ("--project", "torch", "--platform", "linux", "-o", "t.lock")
    shared.run("lock", "--manifest", "m.json", *repo, *words)
    assert list(shared.read("t.lock")["projects"]) == ["pytorch"]
    said = {**json.loads(manifest), "pytorch": {**json.loads(manifest)["pytorch"], "commit": "1" * 40}}
    (shared.work / "n.json").write_text(json.dumps(said))
    shared.run("lock", "--manifest", "n.json", *repo, "-o", "x", code=10)


GITHUB = "https://github.com/"
ROWS = json.loads(CliRunner().invoke(matrix.matrix_command, ["--rows", "lines"]).stdout)["include"]


def places() -> Iterator[tuple[str, str]]:
    """Every repository and ref that a line or a recipe names."""
    for line in release_lines.get_release_lines():
        for one in line.projects.values():
            if one.checkout.origin is not None:
                yield one.checkout.origin, one.checkout.ref or "main"
    for name in project_names.list_project_names():
        for platform in ("linux", "windows"):
            yield project.load_project(name).source.get_platform_source(platform).origin, "main"


@pytest.fixture(scope="module")
def env(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """One repository stands for all; torch's branches have their version, AMD's pin what belongs to it."""
    folder = tmp_path_factory.mktemp("lines")
    env, servers = isolated_environment(folder / "home"), folder / "servers"
    whole = servers / "whole.git"
    servers.mkdir()

    def git(*words: str, told: str = "") -> str:
        argv = ["git", "-C", str(servers), *words]
        return subprocess.run(argv, env=env, input=told, capture_output=True, text=True, check=True).stdout

    git("init", "-q", "--bare", str(whole))
    who, said = "committer a <a@b.example> 1700000000 +0000\ndata 0\n", []

    def commit(branch: str, files: dict[str, str]) -> None:
        written = (f"M 644 inline {path}\ndata {len(text)}\n{text}\n" for path, text in files.items())
        said.append(f"commit refs/heads/{branch}\n{who}{''.join(written)}")

    versions = {"version.txt": "1.0\n", "python/triton/__init__.py": "__version__ = '1.0'\n"}
    found = set(places())
    for ref in sorted({ref for _, ref in found}):
        commit(ref, versions)
    git("-C", str(whole), "fast-import", "--quiet", told="".join(said))
    main, said = git("-C", str(whole), "rev-parse", "main").strip(), []
    for line in release_lines.get_release_lines():
        torch = line.projects["pytorch"].checkout
        if torch.origin is None or torch.ref is None:
            continue
        pinned = (("torchaudio", "audio"), ("apex", "apex"))
        rows = [f"u|pytorch|{one}|main|{main}|{GITHUB}ROCm/{name}\n" for one, name in pinned]
        pins = {
            "version.txt": f"{line.torch}.0\n" if line.torch else "2.99.0a0\n",
            ".ci/docker/ci_commit_pins/triton.txt": f"{main}\n",
            **({"related_commits": "".join(rows)} if "ROCm/" in torch.origin else {}),
        }
        said.append("".join((f"commit refs/heads/{torch.ref}\n{who}", f"from refs/heads/{torch.ref}^0\n")))
        said += [f"M 644 inline {path}\ndata {len(text)}\n{text}\n" for path, text in pins.items()]
    git("-C", str(whole), "fast-import", "--quiet", told="".join(said))
    for origin in {origin for origin, _ in found}:
        for name in (origin, origin.removesuffix(".git")):
            place = servers / name.removeprefix(GITHUB)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.symlink_to(whole)
    git("config", "--global", f"url.{servers.as_uri()}/.insteadOf", GITHUB)
    return env


# one of each platform; the lines are alike, and all are locked by hand and at night
FIRST = {row["platform"]: row["name"] for row in reversed(ROWS)}.values()


@pytest.mark.parametrize(
    "row",
    [
        pytest.param(row, marks=() if row["name"] in FIRST else pytest.mark.exhaustive, id=row["name"])
        for row in ROWS
    ],
)
def test_a_row_can_be_locked(
    env: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, row: dict[str, str]
) -> None:
    enter(monkeypatch, tmp_path, env)
    words = ["--line", row["line"], "--platform", row["platform"], "--rocm", row["rocm"]]
    assert boundary.run_command(cli, ["lock", *words, "--python", row["pythons"], "-o", "set.lock"]) == 0
    lock = json.loads(Path("set.lock").read_text())
    assert set(lock["projects"]) == {one.name for one in list_line_projects(row["platform"], row["line"])}
    assert (lock["line"], lock["platform"], " ".join(lock["pythons"])) == (
        *(row["line"], row["platform"], row["pythons"]),
    )


def test_what_a_line_has_elsewhere_only_is_said_and_can_be_asked_for(
    env: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    enter(monkeypatch, tmp_path, env)
    line = next(row["line"] for row in ROWS if row["platform"] == "windows")
    assert release_lines.get_release_line(line).leaves_out(project.load_project("triton"), "windows")
    words = ["lock", "--line", line, "--platform", "windows", "-o", "set.lock"]
    assert boundary.run_command(cli, words) == 0
    said = f"without triton: release line {line} has none for windows"
    assert said in capfd.readouterr().err
    with monkeypatch.context() as variables:
        variables.setenv("ROCM_WHEELS_TRITON_REF", "main")
        assert boundary.run_command(cli, words) == 0
    assert said not in capfd.readouterr().err
    assert json.loads(Path("set.lock").read_text())["projects"]["triton"]["origin"].endswith(
        "triton-windows.git"
    )
    assert boundary.run_command(cli, [*words, "--project", "triton"]) == 10
    assert "name it with --triton-ref" in capfd.readouterr().err
