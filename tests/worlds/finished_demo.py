"""A finished demo, which modules share, and how its commands are called again."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import zipfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import miniature
import pytest
from commands import Ended, choose_projects, run_program
from sources import CLONE
from warm_python import warm_python

from rocm_wheels.core import errors, files
from rocm_wheels.package import split
from rocm_wheels.wheels import wheel_code

_PATIENCE = 800.0  # seconds, for a demo on a busy machine


@dataclass(frozen=True)
class Demo:
    """A finished demo, and how its commands are called again with other options."""

    folder: Path
    env: dict[str, str]

    def command(self, *words: str, door: str = "build_tools/build_prod_wheels.py") -> list[str]:
        return [sys.executable, str(CLONE / door), *words]

    def build_words(
        self, *more: str, output: str = "wheels", targets: str = ",".join(miniature.TARGETS)
    ) -> list[str]:
        """Build triton, torch and torchaudio: three say what five would, in less time."""
        usual = {
            "--rocm": f"=={miniature.ROCM_VERSION}",
            "--source-dir": str(self.folder / "sources"),
            "--output-dir": str(self.folder / output),
            "--gfx": targets,
        }
        return [
            "build",
            *(word for option, value in usual.items() if option not in more for word in (option, value)),
            *choose_projects(("triton", "pytorch", "pytorch_audio"), more),
        ]

    def build(
        self, *more: str, output: str = "wheels", targets: str = ",".join(miniature.TARGETS), **env: str
    ) -> Ended:
        return self.run(*self.build_words(*more, output=output, targets=targets), **env)

    def run(self, *words: str, door: str = "build_tools/build_prod_wheels.py", **env: str) -> Ended:
        argv = [*warm_python(), *self.command(*words, door=door)[1:]]
        given = {**self.env, **env}
        ended = subprocess.run(argv, env=given, capture_output=True, text=True, check=False)
        return Ended(ended.returncode, ended.stdout, ended.stderr)

    def ours(self, *words: str | Path, code: int | None = None, **env: str) -> Ended:
        """Run `rocm-wheels`; it must end with a code that is given."""
        ended = self.run(*map(str, words), door="build_tools/rocm_wheels/__main__.py", **env)
        assert code in (None, ended.code), ended.out + ended.err
        return ended

    def start(self, *words: str | Path, code: int | None = 0, cwd: Path | None = None, **env: str) -> Ended:
        """Run any other program; it must end with a code that is given."""
        ended = run_program(words, cwd=cwd or Path.cwd(), env={**self.env, **env}, timeout=600)
        assert code in (None, ended.code), ended.out + ended.err
        return ended

    def has_installed(self, environment: str, wheel: Path) -> bool:
        """Tell whether an environment of the demo has every file of a wheel as it is."""
        (site,) = (self.folder / "installed" / environment).glob("lib/python*/site-packages")
        with zipfile.ZipFile(wheel) as archive:
            members = [name for name in archive.namelist() if not name.endswith("/RECORD")]
            return all((site / name).read_bytes() == archive.read(name) for name in members)

    def log(self) -> str:
        """All that the commands of the first demo printed."""
        return (self.folder.parent / "log.txt").read_text()

    @property
    def torch(self) -> Path:
        return self.folder / "sources" / "pytorch"

    def wheels(self) -> dict[str, Path]:
        return {path.name.split("-")[0]: path for path in sorted((self.folder / "wheels").glob("*.whl"))}

    def digests(self) -> dict[str, str]:
        return {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in self.wheels().items()}

    def last_log(self, project: str, before: int = 0) -> str:
        """The log of the last build of a project, or of one ``before`` it."""
        logs = sorted((self.folder / "sources" / ".rocm-wheels" / "runs").glob(f"*/build-{project}-*.log"))
        return logs[-1 - before].read_text()


def make_own_demo(tmp_path_factory: pytest.TempPathFactory, place: Path) -> Demo:
    """Run the demo for tests that change it; those of other workers, which do not, find it by ``place``."""
    with ExitStack() as stack:
        try:
            stack.enter_context(files.lock_folder(place, purpose="demo of all workers"))
        except errors.UsageError:  # another worker makes one for them
            return finish_demo(tmp_path_factory)
        demo = finish_demo(tmp_path_factory)
        if not (place / "demo.json").exists():
            (place / "demo.json").write_text(json.dumps([str(demo.folder), demo.env]))
        return demo


def find_demo(tmp_path_factory: pytest.TempPathFactory, place: Path) -> Demo:
    """Return the demo that some worker has made, or makes now. Tests may have built in it since.

    As it was released remain the store, ROCm's packages, the lock, the repositories, and what is beside it.
    """
    with files.lock_folder(place, purpose="demo of all workers", patience=_PATIENCE):
        named = place / "demo.json"
        if not named.exists():
            demo = finish_demo(tmp_path_factory)
            named.write_text(json.dumps([str(demo.folder), demo.env]))
        folder, env = json.loads(named.read_text())
    return Demo(Path(folder), env)


def finish_demo(tmp_path_factory: pytest.TempPathFactory) -> Demo:
    """Run the demo."""
    env = {
        k: v
        for k, v in os.environ.items()
        if not k.startswith(("PYTHON", "GITHUB_", "ROCM", "HIP", "PYTORCH"))
    }
    env["XDG_CACHE_HOME"] = str(tmp_path_factory.mktemp("cache"))
    env["UV_CACHE_DIR"] = os.environ.get("UV_CACHE_DIR") or str(Path.home() / ".cache" / "uv")
    folder = tmp_path_factory.mktemp("a demo") / "with spaces"
    demo = Demo(folder, env)
    ended = run_demo(demo)
    assert ended.code == 0, ended.out + ended.err
    (folder.parent / "screen.txt").write_text(ended.err + ended.out)
    for name in ("fat", "split"):  # tests of packaging write into these
        shutil.copytree(folder / name, folder.parent / "as made" / name)
    (folder.parent / "digests.json").write_text(json.dumps(demo.digests()))
    (folder.parent / "log.txt").write_text((folder / "demo.log").read_text())  # a later demo begins it anew
    return demo


def run_demo(demo: Demo) -> Ended:
    argv = [*warm_python(), CLONE / "build_tools/demo.py", "--output-dir", demo.folder]
    return demo.start(*argv, code=None, cwd=demo.folder.parent)


def dist_info_file(wheel: Path, name: str) -> str:
    """A file of the dist-info folder as text, empty when there is none."""
    with zipfile.ZipFile(wheel) as archive:
        found = [n for n in archive.namelist() if n.endswith(f".dist-info/{name}")]
        return archive.read(found[0]).decode() if found else ""


def targets_in(wheel: Path) -> set[str]:
    return {
        str(code.target) for objects in wheel_code.read_device_code(wheel).code.values() for code in objects
    }


def snapshot(folder: Path) -> dict[str, tuple[int, int]]:
    """The files below a folder: when each was written, and how long it is. A demo has a hundred thousand."""
    found, waiting = {}, [str(folder)]
    while waiting:
        with os.scandir(waiting.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
                elif entry.is_file(follow_symlinks=False):
                    state = entry.stat(follow_symlinks=False)
                    found[entry.path] = (state.st_mtime_ns, state.st_size)
    return found


def changed_since(before: dict[str, tuple[int, int]], folder: Path) -> set[Path]:
    """The files that are new, or were written since."""
    return {Path(path) for path, state in snapshot(folder).items() if before.get(path) != state}


def required(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        lines = archive.read(name).decode().splitlines()
    return [line for line in lines if line.startswith("Requires-Dist")]


# ---- a torch that is split as ROCm's packaging does it: a host wheel, and device wheels with archives

LIBRARY = "torch/lib/libtorch_hip.so"
ARCHIVE = "../.kpack/torch_@GFXARCH@.kpack"


def split_torch(wheel: Path, folder: Path) -> tuple[Path, dict[str, Path]]:
    """Write host and device wheels of a torch; return the first, and the others by target."""
    with ExitStack() as stack:
        wheels = split.write_split(split.plan_split(split.SplitRequest(wheel), stack), folder)
    return wheels.host, wheels.devices
