"""What modules share that is long to make, and that none of them changes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import servers
from finished_demo import Demo, find_demo, make_own_demo
from projects import base, made_world, make, python, recipe, source, world
from pythons import INSTALLERS, OLD_PIPS, UV, get_pip
from sources import CLONE, Tree, Upstream, make_upstream

__all__ = ["base", "made_world", "make", "python", "recipe", "source", "world"]  # fixtures


@pytest.fixture(scope="session", autouse=True)
def no_power_cuts() -> Iterator[None]:
    """Leave out of this process what only a loss of power would show, and what takes longest."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        yield


@pytest.fixture(scope="session")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Upstream:
    """The repositories of all projects: to be copied."""
    return make_upstream(tmp_path_factory.mktemp("sources"))


@pytest.fixture(scope="module")
def upstream(sources: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Upstream:
    """The repositories; what tests of a module add to them does no harm to its others."""
    return sources.copy(tmp_path_factory.mktemp("upstream"))


@pytest.fixture(scope="module")
def github(sources: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Upstream:
    """The same where github.com leads to them."""
    return sources.copy(tmp_path_factory.mktemp("github"), github=True)


@pytest.fixture
def server(upstream: Upstream) -> Iterator[servers.GitServer]:
    """A server of the repositories, which fails when it is told to."""
    with servers.serving(servers.GitServer(upstream.folder)) as server:
        yield server


@pytest.fixture(scope="module")
def hipified(upstream: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout of torch's main, to be copied: its submodules know their place relative to it."""
    tree = Tree(upstream, tmp_path_factory.mktemp("hipified") / "tree")
    tree.checkout()
    return tree.directory


@pytest.fixture(scope="session")
def demo_place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder by which all workers of this run find a demo."""
    base = tmp_path_factory.getbasetemp()
    return (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "demo of all workers"


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory, demo_place: Path) -> Demo:
    """A finished demo. It is as new for test_demo only, which begins before the others."""
    return make_own_demo(tmp_path_factory, demo_place)


@pytest.fixture(scope="session")
def released_demo(tmp_path_factory: pytest.TempPathFactory, demo_place: Path) -> Demo:
    """What a demo has released, of whichever worker: to be read."""
    return find_demo(tmp_path_factory, demo_place)


@pytest.fixture(scope="session", params=INSTALLERS)
def installer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """How each installer that we promise is called, before its options: the oldest pip, the newest, uv.

    The exhaustive test has the pips between, too.
    """
    pip = [sys.executable, "-m", "pip"]
    if request.param in OLD_PIPS:
        pip = get_pip(request.param, tmp_path_factory.mktemp("pip"))
    if request.param == "uv":
        return [UV[0], "pip", "install", "--no-config", "--python", sys.executable]
    return [*pip, "install", "--disable-pip-version-check", "--no-compile", "--no-warn-conflicts"]


@pytest.fixture(scope="session")
def project_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of rocm-wheels itself, of the clone as it is."""
    folder = tmp_path_factory.mktemp("wheel")
    words = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(CLONE)]
    subprocess.run(words, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


@pytest.fixture
def nobody(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No credentials, settings or proxies of whoever runs the tests."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name in ("GITHUB_REPOSITORY", "RELEASE_TYPE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


@pytest.fixture
def s3(nobody: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment of who has credentials for the buckets of `moto`."""
    for name, value in servers.environment(servers.moto()).items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def own_caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out settings, indexes and GPUs of whoever runs the tests; caches that nobody shares."""
    for name in [name for name in os.environ if name.startswith(("PIP_", "UV_", "ROCM_", "AMD_", "HSA_"))]:
        monkeypatch.delenv(name)
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv"))
