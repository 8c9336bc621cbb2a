"""Build environments: made once, used again, made anew, never trusted half-made. Real uv, no network."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rocm import make_artifacts
from warm_python import warm_python

from rocm_wheels.core import errors, process, workspace
from rocm_wheels.core.files import lock_folder
from rocm_wheels.sdk import build_environment, build_packages, interpreters, resolve_packages, rocm_sdk
from rocm_wheels.sdk.build_environment import EnvironmentSpec
from rocm_wheels.wheels import wheel_writer

ENV = {**os.environ, "UV_NO_INDEX": "1"}
PY = f"py{sys.version_info[0]}.{sys.version_info[1]}"
NO_NETWORK = {**ENV, "UV_OFFLINE": "1"}


BACK_END = """
import os, zipfile

def build_wheel(folder, config_settings=None, metadata_directory=None):
    name, info = "rocm-7.1.0-py3-none-any.whl", "rocm-7.1.0.dist-info"
    about = "Metadata-Version: 2.1\\nName: rocm\\nVersion: 7.1.0\\n"
    about += "Summary: " + os.environ["ROCM_SDK_TARGET_FAMILY"] + "\\n"
    about += "Provides-Extra: devel\\nProvides-Extra: libraries\\n"
    tag = "Wheel-Version: 1.0\\nGenerator: test\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n"
    with zipfile.ZipFile(os.path.join(folder, name), "w") as wheel:
        wheel.writestr(info + "/METADATA", about)
        wheel.writestr(info + "/WHEEL", tag)
        wheel.writestr(info + "/RECORD", "")
    return name
"""


def wheel(folder: Path, name: str, version: str, code: str = "", requires: tuple[str, ...] = ()) -> Path:
    module = name.replace("-", "_")
    (folder / f"{module}-{version}-py3-none-any.whl").unlink(missing_ok=True)
    files = {f"{module}.py": wheel_writer.PlannedMember(code.encode())}
    return wheel_writer.write_wheel(
        wheel_writer.WheelPlan(name, version, "small", "py3-none-any", files, requires), folder
    )


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Packages without any compiled file: fast to make, whole all the same. To be copied."""
    folder = tmp_path_factory.mktemp("packages")
    artifacts = make_artifacts(folder / "artifacts", compile_elf=False)
    build_packages.build_rocm_packages(build_packages.PackageRequest(artifacts, folder), os.environ)
    wheel(folder / "dist", "small-compiler", "1.0")
    return folder / "dist"


@pytest.fixture
def spec(packages: Path, tmp_path: Path) -> EnvironmentSpec:
    dist = shutil.copytree(packages, tmp_path / "dist")
    return EnvironmentSpec(Path(sys.executable), rocm_spec="==7.1.0", find_links=str(dist))


def ensure(
    spec: EnvironmentSpec, tmp_path: Path, env: Mapping[str, str] = ENV, *words: Any, upgrade: bool = False
) -> build_environment.BuildEnvironment:
    work = workspace.Workspace(tmp_path / "work")
    return build_environment.ensure_environment(spec, work, env, *words, upgrade=upgrade)


@pytest.mark.contract
def test_made_once_and_used_again(spec: EnvironmentSpec, tmp_path: Path) -> None:
    lines: list[str] = []
    made = ensure(spec, tmp_path, ENV, lines.append)
    assert made.created and any("rocm==7.1.0+small" in line for line in lines)
    assert made.prefix == tmp_path / "work/environments" / f"{PY}-rocm-7.1.0"
    assert rocm_sdk.query_sdk(made.python, ENV).version == "7.1.0+small"
    assert not (made.bin / "pip").exists()
    again = ensure(spec, tmp_path, NO_NETWORK, pytest.fail)
    assert not again.created and again.prefix == made.prefix
    work = workspace.Workspace(tmp_path / "work")
    for one, expected in ((spec, (again, "")), (replace(spec, rocm_spec="==8"), (None, "no earlier result"))):
        looked = build_environment.check_environment(one, work, ENV)
        assert (looked.environment, looked.why) == expected
    # Credentials are neither in the record nor a reason to make it anew.
    assert "secret" not in (made.prefix / build_environment.ENVIRONMENT_RECORD).read_text()


@pytest.mark.contract
def test_changed_inputs_make_it_anew(spec: EnvironmentSpec, tmp_path: Path) -> None:
    made = ensure(spec, tmp_path)
    (made.prefix / "stale").touch()
    links = tmp_path / "work" / "rocm"  # by which other environments reach the ROCm in this one
    links.mkdir()
    (links / "rocm-1").symlink_to(made.prefix / "lib" / "site-packages")
    (links / "rocm-2").symlink_to(tmp_path / "another environment")
    assert ensure(replace(spec, extras=("device-gfx942",)), tmp_path).created
    assert not (made.prefix / "stale").exists()
    assert [link.name for link in links.iterdir()] == ["rocm-2"]
    assert "rocm-sdk-device-gfx942" in rocm_sdk.query_sdk(made.python, ENV).installed
    # Packages of the same name and version, built again with other content, are noticed.
    core = next(Path(str(spec.find_links)).glob("rocm_sdk_libraries-*"))
    plan = wheel_writer.WheelPlan("rocm-sdk-libraries", "7.1.0+small", "", "py3-none-linux_x86_64",
                     {"rebuilt.py": wheel_writer.PlannedMember(b"")}, ("rocm-sdk-core",))  # fmt: skip
    core.unlink()
    wheel_writer.write_wheel(plan, core.parent)
    assert ensure(spec, tmp_path).created
    assert list(made.prefix.glob("lib/python*/site-packages/rebuilt.py"))
    # without a network as well
    core.unlink()
    wheel_writer.write_wheel(replace(plan, files={"again.py": wheel_writer.PlannedMember(b"")}), core.parent)
    assert ensure(spec, tmp_path, NO_NETWORK).created
    assert list(made.prefix.glob("lib/python*/site-packages/again.py"))


@pytest.mark.contract
def test_each_target_family_gets_its_own_build_of_rocm(spec: EnvironmentSpec, tmp_path: Path) -> None:
    """ROCm's own `rocm` is a source distribution that is evaluated where it is installed."""
    dist = Path(str(spec.find_links))
    next(dist.glob("rocm-*.whl")).unlink()
    source = tmp_path / "rocm-7.1.0"
    source.mkdir()
    (source / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "back_end"\nbackend-path = ["."]\n'
    )
    (source / "back_end.py").write_text(BACK_END)
    with tarfile.open(dist / "rocm-7.1.0.tar.gz", "w:gz") as archive:
        archive.add(source, source.name)
    for family in ("gfx94X-dcgpu", "gfx110X-all", "gfx94X-dcgpu"):
        env = {**ENV, "ROCM_SDK_TARGET_FAMILY": family, "UV_CACHE_DIR": str(tmp_path / "cache")}
        made = ensure(spec, tmp_path, env)
        assert made.created
        program = "import importlib.metadata as m; print(m.metadata('rocm')['Summary'])"
        assert (
            process.capture_output([made.python, "-c", program], env=env, check=errors.SdkError).strip()
            == family
        )


def test_an_open_specifier_is_looked_up_again_only_when_asked(spec: EnvironmentSpec, tmp_path: Path) -> None:
    open_spec = replace(spec, rocm_spec=">1.0")
    assert ensure(open_spec, tmp_path).prefix.name.endswith("-rocm-gt1.0")
    assert not ensure(open_spec, tmp_path).created
    assert ensure(open_spec, tmp_path, upgrade=True).created
    assert ensure(spec, tmp_path).created
    assert not ensure(spec, tmp_path, upgrade=True).created  # pinned: there is no newer answer


def test_killed_in_the_middle(spec: EnvironmentSpec, tmp_path: Path) -> None:
    made = ensure(spec, tmp_path)
    aside = made.prefix.with_name(f".{made.prefix.name}.old")
    for when in ("before the record", "with the old one aside", "after all"):
        if when == "before the record":
            (made.prefix / build_environment.ENVIRONMENT_RECORD).unlink()
        elif when == "with the old one aside":
            made.prefix.rename(aside)
            made.python.parent.mkdir(parents=True)  # a beginning of the new one
        else:
            aside.mkdir()
        again = ensure(spec, tmp_path)
        assert again.created == (when == "before the record"), when
        assert not aside.exists() and rocm_sdk.query_sdk(again.python, ENV).version == "7.1.0+small"


@pytest.mark.contract
def test_killed_for_real_while_installing(spec: EnvironmentSpec, tmp_path: Path) -> None:
    made = ensure(spec, tmp_path)
    kill = "import os, signal\nfrom rocm_wheels.sdk import resolve_packages\n"
    kill += "resolve_packages.install_packages = lambda *a, **k: os.kill(os.getpid(), signal.SIGKILL)\n"
    words = [sys.executable, "-c", kill + _ENSURE.replace("==7.1.0", ">=7,<8"), str(spec.find_links)]
    one = replace(spec, rocm_spec=">=7,<8", extras=("device-gfx942",))

    def killed() -> None:
        done = subprocess.run([*words, str(tmp_path / "work")], env=ENV, timeout=60, check=False)
        assert done.returncode == -9

    killed()
    assert ensure(one, tmp_path).created
    killed()  # it had begun to make another one in place of this
    assert not ensure(one, tmp_path).created
    python = made.prefix.with_name(f"{PY}-rocm-ge7-lt8") / "bin" / "python"
    assert rocm_sdk.query_sdk(python, ENV).version == "7.1.0+small"


@pytest.mark.contract
def test_a_failure_leaves_the_old_environment(
    spec: EnvironmentSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = ensure(spec, tmp_path)
    before = json.loads((made.prefix / build_environment.ENVIRONMENT_RECORD).read_text())

    def fail(*_: object) -> None:
        raise errors.SdkError("the disk is full")

    with monkeypatch.context() as patched, pytest.raises(errors.SdkError, match="the disk is full"):
        patched.setattr(resolve_packages, "note_installed", fail)  # after all else is installed
        ensure(replace(spec, extras=("device-gfx942",)), tmp_path)
    assert json.loads((made.prefix / build_environment.ENVIRONMENT_RECORD).read_text()) == before
    assert not ensure(spec, tmp_path).created
    with pytest.raises(errors.SdkError):
        ensure(replace(spec, rocm_spec="==9.9"), tmp_path)
    assert sorted(p.name for p in made.prefix.parent.iterdir() if p.name != ".locks") == [made.prefix.name]


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"rocm_spec": "7.1.0"}, "'7.1.0' is not a version specifier"),
    ({"rocm_spec": "==seven"}, "'==seven' is not a version specifier"),
    ({"rocm_spec": "==7.1.0; print()"}, "is not a version specifier"),
    ({"extras": ("device-gfx942]",)}, "'device-gfx942]' is not the name of an extra"),
    ({"find_links": "/no/such/folder"}, "--find-links /no/such/folder is not a folder"),
    ({"find_links": "file://[x"}, "--find-links file://[x is not a folder"),
    ({"python": Path("/no/python")}, "there is no Python at /no/python"),
    ({"rocm_spec": "==6.0"}, "resolving rocm[devel,libraries]==6.0 from "),
    ({"extras": ("device-gfx90a",)}, "[devel,device-gfx90a,libraries]==7.1.0 has no extra device-gfx90a"),
]


@pytest.mark.contract
@pytest.mark.parametrize(("change", "message"), WRONG)
def test_wrong_inputs(spec: EnvironmentSpec, tmp_path: Path, change: dict[str, Any], message: str) -> None:
    with pytest.raises(errors.SdkError) as caught:
        ensure(replace(spec, **change), tmp_path)
    assert message in str(caught.value) and caught.value.tip
    assert not list((tmp_path / "work").glob("environments/py*"))


@pytest.mark.contract
def test_credentials_are_hidden(spec: EnvironmentSpec, tmp_path: Path) -> None:
    lines: list[str] = []
    index = replace(spec, index_url="http://user:secret@127.0.0.1:9/simple", find_links=None)
    fast = {**os.environ, "UV_HTTP_RETRIES": "0", "UV_HTTP_TIMEOUT": "2"}
    with pytest.raises(errors.SdkError) as caught:
        ensure(index, tmp_path, fast, lines.append)
    assert "secret" not in str(caught.value) + "".join(lines)
    assert "could not be reached" in str(caught.value.tip)


def test_one_run_at_a_time(spec: EnvironmentSpec, tmp_path: Path) -> None:
    made = ensure(spec, tmp_path)
    with lock_folder(made.prefix.parent / ".locks" / made.prefix.name, purpose="somebody else"):
        done = subprocess.run(
            [sys.executable, "-c", _ENSURE, str(spec.find_links), str(tmp_path / "work")],
            env=ENV, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
    assert f"is in use by process {os.getpid()} (somebody else)" in done.stderr


_ENSURE = """
import os, sys
from pathlib import Path
from rocm_wheels.sdk.build_environment import ensure_environment
from rocm_wheels.sdk.build_environment import EnvironmentSpec
from rocm_wheels.core.workspace import Workspace
spec = EnvironmentSpec(Path(sys.executable), "==7.1.0", find_links=sys.argv[1])
ensure_environment(spec, Workspace(Path(sys.argv[2])), os.environ)
"""


@pytest.mark.contract
def test_into_an_environment_of_ones_own(spec: EnvironmentSpec, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "own"], check=True)
    python = tmp_path / "own" / "bin" / "python"
    for _ in range(2):  # the second time replaces what is there
        found = build_environment.install_into(python, spec, ENV)
        assert (found.prefix, found.created) == (tmp_path / "own", False)
        assert rocm_sdk.query_sdk(found.python, ENV).version == "7.1.0+small"


@pytest.mark.contract
def test_wheels_and_requirements_into_an_environment(spec: EnvironmentSpec, tmp_path: Path) -> None:
    made = ensure(spec, tmp_path)
    fresh = tmp_path / "fresh"
    fresh.mkdir()

    def said() -> str:  # without bytecode, which is known by the second and the size of its source
        return process.capture_output([made.python, "-B", "-c", "import torchy; print(torchy.n)"], env=ENV)

    for n in ("1", "2"):  # the same file name, other content
        cache = tmp_path / f"cache-{n}"
        env = {**NO_NETWORK, "UV_CACHE_DIR": str(cache)}
        build_environment.install_wheel(
            made, wheel(fresh, "torchy", "2.9", f"n = {n}", ("surely-missing",)), env=env
        )
        assert said() == n
        assert not list(cache.rglob("torchy"))  # it would keep each torch that was ever built
    assert not (made.prefix / ".wheel-cache").exists()
    (tmp_path / "requirements.txt").write_text(f"--find-links {spec.find_links}\nsmall-compiler\n")
    build_environment.install_requirements(made, [tmp_path / "requirements.txt", "rocm"], env=ENV)
    build_environment.install_requirements(made, [], env=ENV)
    for name in ("ninja", "needed"):
        wheel(fresh, name, "1.0", "", ("ninja==1.0",) if name == "needed" else ())
    (tmp_path / "requirements.txt").write_text(f"--find-links {fresh}\nninja==1.0\nneeded\n")
    for platform, there in (("windows", False), ("linux", True)):
        for requirement in ([tmp_path / "requirements.txt"], [tmp_path / "requirements.txt", "ninja"]):
            build_environment.install_requirements(made, requirement, env=NO_NETWORK, platform=platform)
        site = next((made.prefix / "lib").glob("python*/site-packages"))
        assert (site / "needed-1.0.dist-info").is_dir()
        assert (site / "ninja-1.0.dist-info").is_dir() == there
    with pytest.raises(errors.SdkError, match=r"installing requirements\.txt failed"):
        (tmp_path / "requirements.txt").write_text("surely-missing\n")
        build_environment.install_requirements(made, [tmp_path / "requirements.txt"], env=ENV)


@pytest.mark.parametrize("form", ["tar.gz", "zip", "without", "cut"])
def test_what_a_source_distribution_is_built_with_is_resolved(form: str, tmp_path: Path) -> None:
    for name in ("small-backend", "setuptools"):
        wheel(tmp_path, name, "70.0")
    tree = tmp_path / "odd-1.0"
    (tree / "vendored").mkdir(parents=True)
    (tree / "vendored" / "pyproject.toml").write_text("[build-system]\nrequires = ['not-there']\n")
    if form != "without":
        (tree / "pyproject.toml").write_text("[build-system]\nrequires = ['small-backend']\n")
    suffix = "zip" if form == "zip" else "gztar"
    archive = Path(shutil.make_archive(str(tmp_path / "odd"), suffix, tmp_path, tree.name))
    if form == "cut":
        archive.write_bytes(archive.read_bytes()[:90])
    resolution = resolve_packages.Resolution({}, {}, {"odd": str(archive)})
    target = resolve_packages.PackageTarget(Path(sys.executable))
    source = interpreters.PackageSource(find_links=str(tmp_path))

    def resolve() -> list[str]:
        return list(resolve_packages.resolve_backends(resolution, target, source, ENV, cwd=tmp_path))

    if form == "cut":
        with pytest.raises(errors.SdkError, match="the source distribution of odd cannot be read"):
            resolve()
    else:
        assert resolve() == ["setuptools" if form == "without" else "small-backend"]


STRANGERS = {"rocm": "99.0", "rocm-sdk-libraries": "7.1.0+small", "rocm-sdk-device-gfx942": "7.1.0+small",
             "triton": "99.0", "small-tool": "1.0"}  # fmt: skip


@pytest.fixture
def strangers_index(tmp_path: Path) -> str:
    """An index of the user's on which somebody else has the names of ROCm's packages."""
    for name, version in STRANGERS.items():
        folder = tmp_path / "simple" / name
        folder.mkdir(parents=True)
        extras = {"devel": (), "libraries": ()} if name == "rocm" else {}
        files = {f"{name.replace('-', '_')}.py": wheel_writer.PlannedMember(b"stranger = True\n")}
        plan = wheel_writer.WheelPlan(name, version, "small", "py3-none-any", files, extras=extras)
        file = wheel_writer.write_wheel(plan, folder)
        (folder / "index.html").write_text(f'<!DOCTYPE html><a href="{file.name}">{file.name}</a>')
    return (tmp_path / "simple").as_uri()


@pytest.mark.contract_slow
def test_rocm_comes_from_the_folder_or_index_that_was_named(
    spec: EnvironmentSpec, tmp_path: Path, strangers_index: str
) -> None:
    variables = ("UV_DEFAULT_INDEX", "UV_INDEX", "UV_EXTRA_INDEX_URL")
    env = {
        **os.environ,
        **dict.fromkeys(variables, strangers_index),
        "UV_INDEX_STRATEGY": "unsafe-best-match",
    }
    dist = Path(str(spec.find_links))
    (tmp_path / "none" / "rocm").mkdir(parents=True)

    def install(*words: str) -> subprocess.CompletedProcess[str]:
        command = [
            *warm_python(),
            "-m",
            "rocm_wheels",
            "rocm",
            "install",
            *words,
            "--work-dir",
            tmp_path / "w",
        ]
        return subprocess.run(command, env=env, capture_output=True, text=True, timeout=120, check=False)

    folder, index = str(tmp_path / "none"), (tmp_path / "none").as_uri()
    for places in (["--find-links", folder], ["--rocm-index", index]):
        refused = install(*places)
        assert refused.returncode == 11 and places[-1] in refused.stderr and "rocm" in refused.stderr
    assert not list((tmp_path / "w").glob("environments/py*"))
    done = install("--find-links", str(dist), "--rocm-extras", "device-gfx942")
    assert done.returncode == 0 and "7.1.0+small" in done.stdout
    assert not list((tmp_path / "w").rglob("rocm_sdk_libraries.py"))
    for name in ("rocm_sdk_libraries", "rocm_sdk_device_gfx942"):  # the folder has only some of them
        next(dist.glob(f"{name}-*")).unlink()
        refused = install("--find-links", str(dist), "--rocm-extras", "device-gfx942")
        assert refused.returncode == 11 and str(dist) in refused.stderr
    # what is installed beside that ROCm may come from the user's index, and is no ROCm or torch
    made = build_environment.locate_environment(tmp_path / "own")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", made.prefix], check=True)
    build_environment.install_requirements(made, ["small-tool"], env=env, source=spec.tools_source)
    with pytest.raises(errors.SdkError):
        build_environment.install_requirements(made, ["triton"], env=env, source=spec.tools_source)
    build_environment.install_requirements(made, ["triton"], env=env)  # where no place of ROCm was named


_GOOD = {
    "version": "7.1.0+local.1",
    "path --root": "{root}",
    "path --cmake": "{root}/lib/cmake",
    "path --bin": "{root}/bin",
    "targets": "gfx942;gfx1100",
}
_MAIN = """
import sys
open({asked!r}, "a").write(" ".join(sys.argv[1:]) + "\\n")
sys.stderr.write("a warning that means nothing\\n" * 3)
answer = {answers!r}[" ".join(sys.argv[1:])]
if answer.startswith("exit "):
    sys.stderr.write("out of luck\\n")
    sys.exit(int(answer[5:]))
sys.stdout.write(answer)
"""


def fake(folder: Path, answers: dict[str, str], *, installed: str | None = "7.1.0+local.1") -> dict[str, str]:
    """Put a `rocm_sdk` that gives these answers in front of a Python; returns the environment."""
    for name in ("lib/cmake", "bin"):
        (folder / "root" / name).mkdir(parents=True)
    said = {k: v.format(root=folder / "root") for k, v in (_GOOD | answers).items()}
    said = {k: v if not v or v.startswith("exit ") else f"{v}\n" for k, v in said.items()}
    module = folder / "site" / "rocm_sdk"
    module.mkdir(parents=True)
    (module / "__init__.py").touch()
    (module / "__main__.py").write_text(_MAIN.format(answers=said, asked=str(folder / "asked")))
    for name, version in (("rocm", installed), ("rocm-sdk-core", "7.1.0")):
        if version:
            metadata = folder / "site" / f"{name.replace('-', '_')}-{version}.dist-info" / "METADATA"
            metadata.parent.mkdir()
            metadata.write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    return {**os.environ, "PYTHONPATH": str(folder / "site")}


def test_everything_is_asked_once_and_noise_does_not_matter(tmp_path: Path) -> None:
    sdk = rocm_sdk.query_sdk(Path(sys.executable), fake(tmp_path, {}))
    root = tmp_path / "root"
    assert (sdk.version, sdk.targets) == ("7.1.0+local.1", ("gfx942", "gfx1100"))
    assert (sdk.root, sdk.cmake, sdk.bin) == (root, root / "lib" / "cmake", root / "bin")
    assert dict(sdk.installed) == {"rocm": "7.1.0+local.1", "rocm-sdk-core": "7.1.0"}
    asked = (tmp_path / "asked").read_text().splitlines()
    assert sorted(asked) == sorted(_GOOD)
    # which may unpack the development tree, and nothing else may do that meanwhile
    assert asked.index("path --root") < min(asked.index("path --cmake"), asked.index("path --bin"))


@pytest.mark.parametrize(
    ("question", "answer", "message"),
    [
        ("version", "", "rocm_sdk version` said nothing"),
        ("version", "7.1.0\nWARNING: old driver", "said 2 lines where one is expected: '7.1.0\\nWARNING"),
        ("version", "seven", "said 'seven', which is not a version (PEP 440)"),
        ("version", "7.2.0", "said 7.2.0, but rocm 7.1.0+local.1 is installed"),
        ("path --root", ".", "said '.', which is not an existing folder"),
        ("path --bin", "exit 3", "path --bin` failed with exit code 3"),
        ("targets", "gfx942;gfx94X-dcgpu", "said 'gfx942;gfx94X-dcgpu', where gfx targets are expected"),
    ],
)
def test_bad_answers(tmp_path: Path, question: str, answer: str, message: str) -> None:
    with pytest.raises(errors.SdkError) as caught:
        rocm_sdk.query_sdk(Path(sys.executable), fake(tmp_path, {question: answer}))
    assert message in str(caught.value)
    assert "-m rocm_sdk" in str(caught.value) and caught.value.tip


def test_no_sdk_at_all(tmp_path: Path) -> None:
    with pytest.raises(errors.SdkError, match="No module named rocm_sdk"):
        rocm_sdk.query_sdk(Path(sys.executable), {**os.environ, "PYTHONPATH": str(tmp_path)})
    with pytest.raises(errors.SdkError, match="no distribution 'rocm' is installed"):
        rocm_sdk.query_sdk(Path(sys.executable), fake(tmp_path, {}, installed=None))
    with pytest.raises(errors.SdkError, match="could not be started"):
        rocm_sdk.query_sdk(tmp_path / "python", os.environ)
