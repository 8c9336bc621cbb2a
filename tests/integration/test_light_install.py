"""The wheel in environments of its own, light and with extras: what is there, how large, what it does."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import time
from importlib.metadata import distributions
from pathlib import Path

import pytest

from rocm_wheels.core.installation import find_uv

LIGHT_BYTES = 80_000_000  # 38 of them are the program uv
HELP_SECONDS = 0.12
PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
pytestmark = [pytest.mark.contract_slow, pytest.mark.slow, pytest.mark.network]


class Installation:
    """An environment outside of the clone, with the wheel in it and nothing else. ``bytes``: of all files."""

    def __init__(self, folder: Path, python: str, wheel: Path, extras: str = "") -> None:
        self.folder = folder
        self.home = folder / "home"
        self.home.mkdir(parents=True)
        uv = str(find_uv())
        quiet = ["--quiet", "--no-config"]
        subprocess.run([uv, "venv", *quiet, "--python", python, str(folder / "env")], check=True)
        begin = time.monotonic()
        # compiled, as pip does it: that is the larger of the two
        words = ["pip", "install", *quiet, "--compile-bytecode", "--python", str(self.program("python"))]
        subprocess.run([uv, *words, f"{wheel}{extras}"], check=True)
        self.seconds = time.monotonic() - begin
        site = next((folder / "env").glob("[Ll]ib/**/site-packages"))
        self.distributions = {entry.name: entry for entry in distributions(path=[str(site)])}
        files = [path for entry in self.distributions.values() for path in entry.files or ()]
        compiled = site.rglob("__pycache__/*.pyc")
        places = {Path(os.path.normpath(site / path)) for path in files} | set(compiled)
        self.bytes = sum(path.stat().st_size for path in places)

    def program(self, name: str) -> Path:
        scripts = "Scripts" if sys.platform == "win32" else "bin"
        return self.folder / "env" / scripts / name

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        path = os.pathsep.join([str(self.program("")), "/usr/bin", "/bin"])
        env = {"HOME": str(self.home), "PATH": path, "LANG": "C.UTF-8"}
        argv = [str(self.program("rocm-wheels")), *words]
        return subprocess.run(argv, cwd=self.home, env=env, capture_output=True, text=True, check=False)

    def run_well(self, *words: str) -> str:
        ended = self.run(*words)
        assert ended.returncode == 0, (words, ended.stderr)
        return ended.stdout

    def measure_help(self) -> float:
        """The seconds of processor that `--help` takes: the least of some, as other work is in the way."""
        seconds = []
        for _ in range(15):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            self.run_well("--help")
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        return min(seconds)


def try_commands(light: Installation) -> None:
    """Run what a light installation is for, and what it is not for."""
    assert "doctor" in light.run_well("--help")
    assert "Python" in light.run_well("doctor", "--gfx", "none")
    assert "gfx1100" in light.run_well("compat", "gpu", "gfx1100")
    assert "2.13" in light.run_well("compat", "show", "lines")
    assert light.run_well("matrix")
    offered = light.home / "offered"
    offered.mkdir()
    chosen = light.run("choose", "torch", "--index", str(offered), "--gfx", "gfx1100")
    assert chosen.returncode == 17 and "Traceback" not in chosen.stderr, chosen.stderr
    needs_build = light.run("build", "--output-dir", "dist")
    assert needs_build.returncode == 2, needs_build.stderr
    assert needs_build.stderr.endswith(".whl[build]'\n"), needs_build.stderr
    needs_s3 = light.run("set", "list", "s3://bucket/store")
    assert needs_s3.stderr.endswith(".whl[s3]'\n"), needs_s3.stderr


def test_a_light_installation_is_small_and_does_its_work(project_wheel: Path, tmp_path: Path) -> None:
    light = Installation(tmp_path / "light", sys.executable, project_wheel)
    assert light.bytes <= LIGHT_BYTES, light.bytes
    assert "uv" in light.distributions
    assert {"cmake", "gitpython", "pytest", "botocore"} & set(light.distributions) == set()
    metadata = light.distributions["rocm-wheels"].metadata
    assert metadata["License-Expression"] == "MIT" and metadata.get_all("Project-URL")
    assert [word for word in metadata.get_all("Classifier") or () if word.endswith(tuple(PYTHONS))]
    assert (tmp_path / "light" / "env" / "share" / "doc" / "rocm-wheels" / "index.md").is_file()
    try_commands(light)


def find_python(version: str) -> str | None:
    """A Python of that version: uv's, the system's or pyenv's."""
    words = [str(find_uv()), "python", "find", "--no-python-downloads", "--system", version]
    path = os.pathsep.join(part for part in os.environ["PATH"].split(os.pathsep) if "shims" not in part)
    ended = subprocess.run(
        words, env={**os.environ, "PATH": path}, capture_output=True, text=True, check=False
    )
    if ended.returncode == 0:
        return ended.stdout.strip()
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    return next((str(path) for path in sorted(pyenv.glob(f"versions/{version}.*/bin/python"))), None)


@pytest.mark.exhaustive
@pytest.mark.parametrize("version", PYTHONS)
def test_every_python_light_and_with_extras(version: str, project_wheel: Path, tmp_path: Path) -> None:
    """Prints sizes and times: `-m exhaustive -s`."""
    python = find_python(version)
    if python is None:
        pytest.skip(f"no Python {version} is here")
    light = Installation(tmp_path / "light", python, project_wheel)
    help_seconds = light.measure_help()
    print(f"{version} light: {light.bytes / 1e6:.1f} MB, {light.seconds:.1f} s, --help {help_seconds:.3f} s")
    assert light.bytes <= LIGHT_BYTES and help_seconds <= HELP_SECONDS
    try_commands(light)
    shutil.rmtree(light.folder)
    building = Installation(tmp_path / "build", python, project_wheel, "[build]")
    print(f"{version} build: {building.bytes / 1e6:.1f} MB, {building.seconds:.1f} s")
    ended = building.run("build", "--output-dir", "dist")
    assert "looked for source trees" in ended.stderr, ended.stderr
    everything = Installation(tmp_path / "all", python, project_wheel, "[build,release,s3]")
    print(f"{version} all: {everything.bytes / 1e6:.1f} MB, {everything.seconds:.1f} s")
    (everything.home / "store").mkdir()
    assert everything.run("set", "list", "store").returncode == 0
