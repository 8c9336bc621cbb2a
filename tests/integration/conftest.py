"""What modules share that is long to make, and that none of them changes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from finished_demo import Demo, finish_demo
from pythons import INSTALLERS, OLD_PIPS, UV, get_pip
from sources import CLONE, Upstream, make_upstream


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


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Demo:
    """A finished demo. It is as new for test_demo only, which begins before the others."""
    return finish_demo(tmp_path_factory)


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
