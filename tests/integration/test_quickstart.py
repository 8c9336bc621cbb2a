"""A stranger's first minutes: quickstart and the doors, in a copy of the project with a fresh HOME."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import runpy
import shlex
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
import zipfile
from collections.abc import Sequence
from importlib.metadata import distributions
from pathlib import Path

import pytest
from commands import Ended
from packaging.utils import canonicalize_name, parse_wheel_filename
from packaging.version import Version
from pythons import copy_pip
from uv import find_uv_bin

from rocm_wheels.core import errors, files
from rocm_wheels.sdk import interpreters

CLONE = Path(__file__).resolve().parents[2]
BASE_PYTHON = Path(getattr(sys, "_base_executable", sys.executable))
pytestmark = [pytest.mark.contract_slow, pytest.mark.slow, pytest.mark.network]


# what no stranger's first minutes need, and more than half of all files
OF_TESTS = tuple(
    f"tests/{name}/" for name in ("unit", "integration", "bench", "data", "house", "real", "worlds")
)


def run(words: Sequence[str | Path], env: dict[str, str], cwd: Path | None = None) -> Ended:
    ended = subprocess.run(words, env=env, cwd=cwd, capture_output=True, text=True, check=False)
    return Ended(ended.returncode, ended.stdout, ended.stderr)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project, to be copied."""
    target = tmp_path_factory.mktemp("whole") / "clone"
    listed = run(["git", "ls-files", "-z", "-co", "--exclude-standard"], dict(os.environ), CLONE)
    for name in listed.out.split("\0"):
        if name and not name.startswith(OF_TESTS) and (CLONE / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(CLONE / name, target / name)
    return target


@pytest.fixture
def clone(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "clone"))


def folder_with(tmp_path: Path, *programs: str) -> Path:
    """A folder for PATH that has these programs and no others."""
    place = tmp_path / "only"
    place.mkdir()
    for program in programs:
        (place / program).symlink_to(shutil.which(program) or program)
    return place


@pytest.fixture(scope="module")
def project(whole: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(shutil.copytree(whole, tmp_path_factory.mktemp("a folder") / "röcm wheels"))


@pytest.fixture(scope="module")
def env(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A fresh HOME; uv on PATH, as its own cache is the user's (nothing is downloaded twice)."""
    base = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "VIRTUAL_ENV", "XDG_"))}
    cache = base.get("UV_CACHE_DIR") or str(Path(base.get("HOME", "/root")) / ".cache" / "uv")
    path = f"{Path(find_uv_bin()).parent}{os.pathsep}{base['PATH']}"
    return {**base, "HOME": str(tmp_path_factory.mktemp("home")), "PATH": path, "UV_CACHE_DIR": cache}


def quickstart(project: Path, env: dict[str, str], *words: str, code: int = 0) -> Ended:
    argv = [BASE_PYTHON, project / "build_tools" / "quickstart.py", *words]
    ended = run(argv, env, project.parent)
    assert ended.code == code, ended.err
    return ended


def test_doors_say_in_one_line_what_to_run_first(project: Path, env: dict[str, str]) -> None:
    for door in ("build_tools/build_prod_wheels.py", "repos/pytorch_torch_repo.py"):
        ended = run([BASE_PYTHON, "-S", project / door, "--help"], env)
        assert (ended.code, len(ended.err.strip().splitlines())) == (2, 1)
        assert f"run `python3 {project / 'build_tools' / 'quickstart.py'} setup` once" in ended.err


def test_setup_killed_set_up_again_then_nothing_to_do(project: Path, env: dict[str, str]) -> None:
    argv = [str(BASE_PYTHON), str(project / "build_tools" / "quickstart.py"), "setup"]
    first = subprocess.Popen(argv, env=env, start_new_session=True, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while not (project / ".venv" / "lib").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    os.killpg(first.pid, signal.SIGKILL)
    first.wait()

    assert "with uv" in quickstart(project, env, "setup").err
    state = (project / ".venv.state").stat().st_mtime_ns
    told = project.parent / "path of a workflow"
    third = quickstart(project, {**env, "GITHUB_PATH": str(told)}, "setup", "--github-path")
    assert third.err == ""
    assert (Path(told.read_text().rstrip("\n")) / "rocm-wheels").exists()
    assert (project / ".venv.state").stat().st_mtime_ns == state
    # what a script of the clone lacks is brought by the command that it names
    script = project / "build_tools" / "fetch_artifacts.py"
    ended = run([BASE_PYTHON, script, "--run-id", "1", "--output-dir", project.parent / "fetched"], env)
    assert ended.code == 2, ended.err
    tip = shlex.split(ended.err.splitlines()[-1].partition(": ")[2].partition(",")[0])
    assert run([BASE_PYTHON, *tip[1:]], env).code == 0
    added = [quickstart(project, env, "setup", "--store", "--compiler-cache") for _ in range(2)]
    assert "from tools.lock" in added[0].err and added[1].err == ""
    assert list((project / ".venv").glob("*/ccache*"))
    packages = {
        path.name.partition("-")[0] for path in (project / ".venv").glob("lib/*/site-packages/*.dist-info")
    }
    assert "botocore" in packages and not packages & {"pytest_xdist", "moto", "flask"}
    assert quickstart(project, env, "setup").err == ""  # what is more than asked for stays

    # and now every door runs from the clone without activation, in any folder
    doors = {"build_tools/build_prod_wheels.py": "install-rocm", "repos/pytorch_torch_repo.py": "hipify"}
    for door, word in doors.items():
        ended = run([BASE_PYTHON, "-S", project / door, "--help"], env, project.parent)
        assert (ended.code, word in ended.out) == (0, True), ended.err


def test_outside_of_a_workflow_no_path_can_be_set(env: dict[str, str]) -> None:
    bare = {name: value for name, value in env.items() if name != "GITHUB_PATH"}
    ended = quickstart(CLONE, bare, "setup", "--github-path", code=2)
    assert "GITHUB_PATH is not set: this is no step of a workflow" in ended.err


def read_versions(name: str) -> set[str]:
    return set(re.findall(r"^\w\S*==\S+", (CLONE / "build_tools" / name).read_text(), re.MULTILINE))


def test_the_locks_agree() -> None:
    """What the product runs with is what it is tested with; jobs with rights install little else."""
    names = ("requirements.lock", "requirements-store.lock", "requirements-test.lock")
    product, store, tests = map(read_versions, names)
    assert len(product) > 30
    assert product < store < tests
    added = {pin.partition("==")[0] for pin in store - product}
    assert {"botocore", "sigstore"} < added and len(added) * 4 < len(tests - product), added


QUICKSTART = runpy.run_path(str(CLONE / "build_tools" / "quickstart.py"))
ADDITIONS = QUICKSTART["ADDITIONS"]
LOCKS = [
    # the lock of the tests has every pin of these, so what is wrong with one is wrong with it
    *(pytest.param(path, marks=pytest.mark.exhaustive) for path in (QUICKSTART["LOCK"], ADDITIONS["store"])),
    *(ADDITIONS["tests"], ADDITIONS["cache"]),
]


@pytest.fixture(scope="module")
def hollow_index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index of the packages that are installed here, those of all locks: wheels of METADATA alone.

    Each has a later version there, as on a real index: an installer that looks past a pin takes that.
    """
    root = tmp_path_factory.mktemp("hollow")
    wheel_text = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    for one in distributions():
        name = canonicalize_name(one.name)
        (root / name).mkdir(exist_ok=True)
        for version in (one.version, f"{Version(one.version).base_version}.post9"):
            stem = f"{name.replace('-', '_')}-{version}"
            metadata = re.sub(
                r"(?m)^Version: .*", f"Version: {version}", one.read_text("METADATA") or "", count=1
            )
            with zipfile.ZipFile(root / name / f"{stem}-py3-none-any.whl", "w") as wheel:
                for member, text in {"METADATA": metadata, "WHEEL": wheel_text, "RECORD": ""}.items():
                    wheel.writestr(f"{stem}.dist-info/{member}", text)
        links = (f'<a href="{path.name}">{path.name}</a>' for path in (root / name).glob("*.whl"))
        (root / name / "index.html").write_text(
            "<!DOCTYPE html><html><body>" + "".join(links) + "</body></html>"
        )
    return root


def use_hollow_wheels(lock: Path, folder: Path) -> str:
    """Return a lock with the digests of hollow wheels, where there are some, and all else as it is."""
    digests = {
        (name, str(version)): files.hash_file(path)
        for path in folder.glob("*/*.whl")
        for name, version, *_ in [parse_wheel_filename(path.name)]
    }
    lines: list[str] = []
    digest = None
    for line in lock.read_text().splitlines():
        if pin := re.match(r"([\w.-]+)(?:\[.*])?==([^ ;]+)", line):
            digest = digests.get((canonicalize_name(pin[1]), pin[2]))
        new = re.sub(r"sha256:\w+", f"sha256:{digest}", line) if digest else line
        lines.append(new)
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: path.stem)
def test_every_installer_takes_the_locks(
    installer: list[str], lock: Path, hollow_index: Path, tmp_path: Path, exhaustive: bool
) -> None:
    """Each looks for what is required and misses none: a lock has all, however much newer the index is.

    The exhaustive test does it with the files of the package index, else there are hollow ones.
    """
    words = ["--dry-run", "--target", str(tmp_path / "site"), "--require-hashes"]
    env = {key: value for key, value in os.environ.items() if not key.startswith("PIP_")}
    if not exhaustive:
        (tmp_path / lock.name).write_text(use_hollow_wheels(lock, hollow_index))
        lock = tmp_path / lock.name
        words += ["--index-url", hollow_index.as_uri()]
        env["PIP_CONFIG_FILE"] = os.devnull
    ended = run([*installer, *words, "-r", lock], env)
    assert ended.code == 0, ended.out[-2000:] + ended.err


def test_what_ci_runs_has_neither_uv_nor_a_newer_pip(tmp_path: Path) -> None:
    """What else is in the folder of uv stays."""
    for name, text in {
        ".ci/run": (CLONE / ".ci" / "run").read_text(),
        "build_tools/quickstart.py": (
            "import json, pip, shutil, sys\n"
            "found = [shutil.which(name) for name in ('uv', 'uvx', 'git', 'c++')]\n"
            "print(json.dumps([sys.argv[1:], pip.__version__, list(map(bool, found))]))\n"
            "sys.exit(7)\n"
        ),
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    bundled = run([BASE_PYTHON, "-c", "import ensurepip; print(ensurepip.version())"], dict(os.environ))
    if bundled.code:
        pytest.skip("this Python has no ensurepip")
    tools = ("bash", "ln", "rm", "mktemp", "dirname", "git", "c++")
    place = folder_with(tmp_path, *tools)
    for name in ("uv", "uvx"):
        (place / name).symlink_to(find_uv_bin())
    (place / "python3").symlink_to(BASE_PYTHON)
    ended = run([place / "bash", ".ci/run"], {"PATH": str(place), "HOME": str(tmp_path)}, tmp_path)
    assert ended.code == 7, ended.err
    assert json.loads(ended.out) == [["test"], bundled.out.strip(), [False, False, True, True]]


def test_what_is_there_already_is_not_installed_again() -> None:
    """Of the locks that hold each other one is enough, and one that has changed counts for nothing."""
    list_missing = QUICKSTART["list_missing"]
    digests = {name: QUICKSTART["digest"](path) for name, path in ADDITIONS.items()}
    assert list_missing({}, ["tests", "store", "cache"]) == ["tests", "cache"]
    assert list_missing({"tests": digests["tests"]}, ["store"]) == []
    assert list_missing({"tests": "of another lock"}, ["store"]) == ["store"]
    assert list_missing({"store": digests["store"]}, ["tests", "store"]) == ["tests"]
    assert list_missing({"cache": digests["cache"]}, ["cache"]) == []


# what installs the project itself: enough to see that an environment can be filled
BACK_END = {"hatchling", "packaging", "pathspec", "pluggy", "tomli", "tomlkit", "trove-classifiers"}


def shorten_lock(project: Path, names: set[str]) -> None:
    """Keep only these packages in a lock."""
    lock = project / "build_tools" / "requirements.lock"
    packages = re.split(r"(?m)^(?=\w)", lock.read_text())
    kept = [text for text in packages if re.split("[= ]", text, maxsplit=1)[0] in names]
    assert len(kept) == len(names)
    lock.write_text("".join(kept))


def python_with(folder: Path, *parts: str) -> Path:
    """Copy the base Python into a folder of links that has, of pip and ensurepip, only these parts."""
    stdlib = Path(sysconfig.get_path("stdlib", vars={"installed_base": sys.base_prefix}))
    (folder / "bin").mkdir(parents=True)
    # a copied program takes the folder that it is in for its prefix; a link would lead it back
    program = Path(shutil.copy2(BASE_PYTHON.resolve(), folder / "bin" / BASE_PYTHON.resolve().name))
    library = folder / "lib" / stdlib.name
    library.mkdir(parents=True)
    for entry in stdlib.iterdir():
        if entry.name not in ("ensurepip", "site-packages", "dist-packages", "__pycache__"):
            (library / entry.name).symlink_to(entry)
    if "ensurepip" in parts:
        if not (stdlib / "ensurepip").is_dir():
            pytest.skip("this Python has no ensurepip")
        (library / "ensurepip").symlink_to(stdlib / "ensurepip")
    if "ensurepip without wheels" in parts:
        (library / "ensurepip.py").write_text("if __name__ == '__main__': raise SystemExit('no wheel')\n")
    if "pip" in parts:
        ask = [program, "-I", "-c", "import site; print(site.getsitepackages()[-1])"]
        copy_pip(Path(run(ask, dict(os.environ)).out.rstrip("\n")))
    return program


@pytest.mark.parametrize(
    ("parts", "works"),
    [
        (("pip",), True),
        (("ensurepip",), True),
        (("uv",), True),
        (("uv", "pip", "ensurepip"), True),
        pytest.param(("pip", "ensurepip without wheels"), True, marks=pytest.mark.exhaustive),
        (("ensurepip without wheels",), False),
        ((), False),
    ],
)
def test_any_one_of_uv_pip_and_ensurepip_is_enough(
    clone: Path, tmp_path: Path, env: dict[str, str], parts: tuple[str, ...], works: bool
) -> None:
    """Distributions split Python in different ways."""
    shorten_lock(clone, BACK_END)
    place = folder_with(tmp_path, "git")
    (place / "apt-get").symlink_to("/bin/true")
    if "uv" in parts:
        (place / "uv").symlink_to(find_uv_bin())
    python = python_with(tmp_path / "python", *parts)
    ended = run([python, "build_tools/quickstart.py", "setup"], {**env, "PATH": str(place)}, clone)
    if works:
        assert (ended.code, "with uv" in ended.err) == (0, "uv" in parts), ended.err
        assert (clone / ".venv" / "bin" / "rocm-wheels").exists()
    else:
        assert ended.code == 2
        assert ended.err.splitlines()[-1].endswith("; install it: apt-get install python3-venv")


def test_without_uv_pip_makes_the_same(clone: Path, env: dict[str, str], exhaustive: bool) -> None:
    """What uv made, venv and pip complete and renew; the exhaustive test has the whole lock."""
    if not exhaustive:
        shorten_lock(clone, BACK_END | {"ninja"})
    quickstart(clone, env, "setup")
    (ninja,) = (clone / ".venv").glob("lib/*/site-packages/ninja-*.dist-info")
    shutil.rmtree(ninja)
    path = [p for p in env["PATH"].split(os.pathsep) if not (Path(p) / "uv").exists()]
    assert Path(find_uv_bin()).parent not in map(Path, path)
    (clone / ".venv.state").write_text("{}")
    ended = quickstart(clone, {**env, "PATH": os.pathsep.join(path)}, "setup")
    assert "with venv and pip" in ended.err
    names = {entry.name for entry in (clone / ".venv" / "bin").iterdir()}
    assert {"rocm-wheels", "ninja", *(("cmake", "uv") if exhaustive else ())} <= names
    assert ninja.exists()


def build_by(python: Path, project: Path, env: dict[str, str]) -> str:
    """Start a build by a door under a Python; return the Python that it has no environment of."""
    trees = project.parent / "trees"
    (trees / "triton").mkdir(parents=True, exist_ok=True)
    (trees / "triton" / "setup.py").touch()
    words = ["build", "--source-dir", trees, "--output-dir", project.parent / "dist"]
    ended = run([python, project / "build_tools/build_prod_wheels.py", *words], env)
    assert ended.code == 2, ended.err
    found = re.search(r"no build environment with rocm\S+ for (.+) is in ", ended.err)
    assert found, ended.err
    return found[1]


def test_the_python_that_runs_a_door_is_built_for(project: Path, env: dict[str, str]) -> None:
    """And not the one of our own environment; older ones, which cannot run us, too."""
    found = []
    for word in ("3.9", "3.10", "3.12", "3.13"):
        with contextlib.suppress(errors.UsageError):
            found += [one.path for one in interpreters.find_interpreters([word], env)]
    if not (others := [path for path in found if path != BASE_PYTHON.resolve()]):
        pytest.skip("there is one Python on this machine")
    quickstart(project, env, "setup")
    for path in others:
        assert build_by(path, project, env) == str(path)
    assert build_by(project / ".venv/bin/python", project, env) == str(BASE_PYTHON.resolve())


def test_a_venv_of_somebody_else_is_not_in_the_way(clone: Path, env: dict[str, str]) -> None:
    subprocess.run([BASE_PYTHON, "-m", "venv", "--without-pip", clone / ".venv"], check=True)
    (clone / ".venv" / "mine.txt").write_text("mine")
    before = sorted((clone / ".venv").rglob("*"))
    assert ".venv.rocm-wheels/bin/rocm-wheels" in quickstart(clone, env, "setup").out
    assert quickstart(clone, env, "setup").err == ""
    for python in (BASE_PYTHON, clone / ".venv/bin/python"):
        assert build_by(python, clone, env) == str(BASE_PYTHON.resolve())
    assert sorted((clone / ".venv").rglob("*")) == before


def test_a_venv_in_place_of_ours_is_not_taken_for_it(clone: Path, env: dict[str, str]) -> None:
    shorten_lock(clone, BACK_END)
    (clone / ".venv").mkdir()
    (clone / ".venv.state").write_text(json.dumps({"lock": "of the one that was deleted"}))
    assert ".venv.rocm-wheels/bin/rocm-wheels" in quickstart(clone, env, "setup").out


@pytest.mark.parametrize("with_uv", [True, False], ids=["uv", "pip"])
def test_a_terminal_shows_the_costs_first_and_then_what_is_done(
    clone: Path, tmp_path: Path, env: dict[str, str], with_uv: bool
) -> None:
    """Of a demo that ends early: what installs the project is not in the lock."""
    shorten_lock(clone, {"click", "pyyaml"})
    if not with_uv:
        env = {**env, "PATH": str(folder_with(tmp_path, "git", "c++"))}
    argv = [BASE_PYTHON, clone / "build_tools" / "quickstart.py", "demo"]
    ours, terminal = pty.openpty()
    with subprocess.Popen(argv, env=env, stdout=subprocess.DEVNULL, stderr=terminal) as started:
        os.close(terminal)
        shown = b""
        with contextlib.suppress(OSError):  # at its end
            while piece := os.read(ours, 1 << 16):
                shown += piece
        os.close(ours)
    assert started.returncode == 2, shown
    before, _, after = shown.partition(b"making ")
    assert all(unit in before for unit in (b"minutes", b"GB of disk", b"MB of downloads"))
    while_made = after.rpartition(b"hatchling")[0].split(b"\r\x1b[K")
    assert len({line for line in while_made if re.match(rb" *\d+ s  \S", line)}) >= 3, shown


@pytest.mark.parametrize("with_uv", [True, False], ids=["uv", "pip"])
@pytest.mark.parametrize("fault", ["hash", "no version", "no server"])
def test_the_tip_is_for_what_the_installer_failed_of(
    clone: Path, tmp_path: Path, env: dict[str, str], fault: str, with_uv: bool
) -> None:
    shorten_lock(clone, {"click"})
    lock = clone / "build_tools" / "requirements.lock"
    if fault == "hash":
        lock.write_text(re.sub(r"sha256:\w+", "sha256:" + "0" * 64, lock.read_text()))
    if fault == "no version":
        lock.write_text(re.sub(r"==[\d.]+", "==99.0", lock.read_text()))
    if fault == "no server":
        env = {**env, "PIP_INDEX_URL": "http://127.0.0.1:9/", "UV_DEFAULT_INDEX": "http://127.0.0.1:9/"}
        env = {**env, "PIP_CONFIG_FILE": os.devnull, "PIP_RETRIES": "1", "UV_HTTP_RETRIES": "0"}
        env = {key: value for key, value in env.items() if key != "PIP_FIND_LINKS"}
    if not with_uv:
        env = {**env, "PATH": str(folder_with(tmp_path, "git"))}
    said = quickstart(clone, env, "setup", code=2).err.splitlines()
    assert len(said) > 2, "the installer's own words"
    tip = said[-1].rpartition("; ")[2]
    assert ("network" in tip) != ("lock" in tip) and ("network" in tip) == (fault == "no server"), tip
    assert json.loads((clone / ".venv.state").read_text()) == {"state": "unfinished"}


MISSING: dict[str, tuple[tuple[str, ...], str]] = {
    "git": ((), "git is not on PATH"),
    "g++": (("git",), "no C++ compiler is on PATH (looked for c++, g++, clang++, cl)"),
    "python3-venv": (("git", "g++"), "this Python has no venv with pip or ensurepip, and uv is not on PATH"),
}


@pytest.mark.parametrize("package", MISSING)
def test_a_missing_program_is_one_line_with_the_package(
    clone: Path, tmp_path: Path, env: dict[str, str], package: str
) -> None:
    programs, said = MISSING[package]
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken/venv.py").write_text("raise ImportError('split off by the distribution')")
    place = folder_with(tmp_path, *programs)
    (place / "apt-get").symlink_to("/bin/true")
    bare = {**env, "PATH": str(place), "PYTHONPATH": str(tmp_path / "broken"), "CXX": ""}
    ended = quickstart(clone, bare, "demo", code=2)
    assert ended.err == f"error: {said}; install it: apt-get install {package}\n"
    assert not (clone / ".venv").exists()
