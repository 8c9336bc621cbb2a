"""ROCm packages from artifacts: made, installed, asked, expanded, killed, uninstalled. All real."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from rocm import add, library, make_artifacts

from rocm_wheels.binaries.elf import read_loader_info_of_file
from rocm_wheels.core import errors, installation
from rocm_wheels.sdk import build_packages, interpreters, package_contents, rocm_sdk
from rocm_wheels.wheels import wheel_writer

pytestmark = [pytest.mark.skipif(sys.platform != "linux", reason="compiles ELF files")]
VERSION = "7.1.0+small"
ALL = "rocm[libraries,devel,device-gfx942]"


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("packages")
    build_packages.build_rocm_packages(
        build_packages.PackageRequest(make_artifacts(root / "artifacts"), root), os.environ
    )
    compiler = wheel_writer.WheelPlan("small-compiler", "1.0", "stands for a compiler", "py3-none-any", {})
    wheel_writer.write_wheel(compiler, root / "dist")
    return root / "dist"


class Site:
    """A fresh virtual environment with packages installed by uv, without any index."""

    def __init__(self, root: Path, packages: Path, *requirements: str) -> None:
        self.prefix, self.packages = root / "venv", packages
        # A cache of its own, and copies: what is damaged here may be nobody else's file.
        self.env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | {
            "PYTHONDONTWRITEBYTECODE": "1",
            "UV_CACHE_DIR": str(packages.parent / "uv-cache"),
            "UV_LINK_MODE": "copy",
        }
        self.uv("venv", "--no-project", "--python", sys.executable, str(self.prefix))
        self.before = self.files()
        self.uv(
            "pip",
            "install",
            "--python",
            str(self.python),
            "--no-index",
            "--find-links",
            str(packages),
            *requirements,
        )

    @property
    def python(self) -> Path:
        return self.prefix / "bin" / "python"

    @property
    def site(self) -> Path:
        return next(self.prefix.glob("lib/python*/site-packages"))

    def uv(self, *words: str) -> None:
        subprocess.run(
            [installation.find_uv(), "-q", *words],
            env=interpreters.compose_uv_environment(self.env),
            check=True,
            timeout=120,
        )

    def run(
        self, *words: str | Path, check: bool = True, env: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(word) for word in words],
            env={**self.env, **(env or {})},
            capture_output=True,
            text=True,
            check=check,
            timeout=120,
        )

    def sdk(self, *words: str) -> str:
        return self.run(self.prefix / "bin" / "rocm-sdk", *words).stdout.strip()

    def code(self, text: str, **env: str) -> subprocess.CompletedProcess[str]:
        return self.run(self.python, "-c", text, check=False, env=env)

    def files(self) -> set[str]:
        """All there is, but for uv's own lock."""
        return {p.relative_to(self.prefix).as_posix() for p in self.prefix.rglob("*")} - {".lock"}

    def uninstall(self, names: Sequence[str]) -> None:
        self.uv("pip", "uninstall", "--python", str(self.python), *names)


INSTALLED = (
    "rocm",
    "rocm-sdk-core",
    "rocm-sdk-libraries",
    "rocm-sdk-devel",
    "rocm-sdk-device-gfx942",
    "small-compiler",
)


@pytest.mark.contract
def test_the_set_of_packages(packages: Path) -> None:
    names = {path.name.removesuffix("-py3-none-linux_x86_64.whl") for path in packages.iterdir()}
    assert names >= {
        f"rocm-{VERSION}-py3-none-any.whl",
        *(
            f"rocm_sdk_{name}-{VERSION}"
            for name in ("core", "libraries", "devel", "device_gfx942", "device_gfx1100")
        ),
    }
    with zipfile.ZipFile(packages / f"rocm-{VERSION}-py3-none-any.whl") as wheel:
        metadata = wheel.read(f"rocm-{VERSION}.dist-info/METADATA").decode()
    assert f"Requires-Dist: rocm-sdk-core=={VERSION}\n" in metadata
    for extra, needs in {
        "libraries": "libraries", "devel": "devel", "device-gfx942": "device-gfx942",
        "device-all": "device-gfx1100", "device": "device-gfx942",
    }.items():  # fmt: skip
        assert f'Requires-Dist: rocm-sdk-{needs}=={VERSION}; extra == "{extra}"\n' in metadata


@pytest.mark.contract
def test_the_same_artifacts_give_the_same_bytes(packages: Path, tmp_path: Path) -> None:
    request = build_packages.PackageRequest(make_artifacts(tmp_path / "again"), tmp_path)
    first = {p.name: p.stat().st_mtime_ns for p in build_packages.build_rocm_packages(request, os.environ)}
    digests = {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in (tmp_path / "dist").iterdir()}
    assert digests == {name: hashlib.sha256((packages / name).read_bytes()).hexdigest() for name in digests}
    # … and nothing is touched when there is nothing new.
    assert {
        p.name: p.stat().st_mtime_ns for p in build_packages.build_rocm_packages(request, os.environ)
    } == first
    assert {p.name for p in tmp_path.iterdir()} == {"again", "dist", ".lock"}


@pytest.mark.contract
def test_installed_and_asked(packages: Path, tmp_path: Path) -> None:
    site = Site(tmp_path, packages, ALL)
    root = site.site / "_rocm_sdk_devel"
    assert site.sdk("version") == VERSION
    assert site.sdk("targets") == "gfx942;gfx1100"
    assert site.run(site.prefix / "bin" / "hipcc", "-c").stdout == f"hipcc from {root}/bin -c\n"  # unpacks
    assert site.sdk("path", "--cmake") == str(root / "lib" / "cmake")
    assert site.sdk("path", "--bin") == str(root / "bin")
    assert site.sdk("init", "--quiet") == ""
    report = site.sdk("test")
    assert report.endswith("0 failed: OK") and "libhipblas.so.3" in report and "program amdclang++" in report
    sdk = rocm_sdk.query_sdk(site.python, site.env)
    assert (sdk.version, sdk.root, sdk.bin, sdk.cmake) == (
        VERSION,
        root,
        root / "bin",
        root / "lib" / "cmake",
    )
    assert sdk.targets == ("gfx942", "gfx1100")
    assert dict(sdk.installed) == {name: VERSION for name in INSTALLED if name.startswith("rocm")}


@pytest.mark.contract
def test_the_trees_hold_what_they_should(packages: Path, tmp_path: Path) -> None:
    site = Site(tmp_path, packages, ALL)
    site.sdk("init")
    core, libraries, devel = (site.site / f"_rocm_sdk_{name}" for name in ("core", "libraries", "devel"))
    # Runtime packages: a library once, under its SONAME; no links; programs behind links start.
    assert [p.name for p in sorted((core / "lib").glob("libamdhip64*"))] == ["libamdhip64.so.7"]
    assert not [p for p in (*core.rglob("*"), *libraries.rglob("*")) if p.is_symlink()]
    assert not (core / "lib" / "cmake").exists() and not (core / "llvm").exists()
    compiler = core / "lib/llvm/bin/amdclang++"
    assert site.run(compiler, "x", "y").stdout == f"{compiler} 3\n"
    assert (libraries / ".kpack/blas_gfx942.kpack").exists() and not (
        libraries / ".kpack/blas_gfx1100.kpack"
    ).exists()
    # The development tree: everything, and what others have only once on the disk.
    assert (devel / "lib/libamdhip64.so.7").samefile(core / "lib/libamdhip64.so.7")
    assert not (devel / "lib/libamdhip64.so.7").is_symlink()
    assert str((devel / "lib/libamdhip64.so").readlink()) == "libamdhip64.so.7"
    assert str((devel / "lib/libamdhip64.so.7.1").readlink()) == "libamdhip64.so.7"
    assert str((devel / "lib/llvm/bin/amdclang++").readlink()) == "amdclang"
    assert (devel / "include/rocprim/a, b.hpp").is_file() and (devel / "llvm").is_symlink()
    assert (devel / ".kpack/blas_gfx942.kpack").samefile(libraries / ".kpack/blas_gfx942.kpack")
    # A device package that comes later is linked by the next question.
    site.uv(
        "pip",
        "install",
        "--python",
        str(site.python),
        "--no-index",
        "--find-links",
        str(packages),
        "rocm[device-gfx1100]",
    )
    site.sdk("path", "--root")
    assert (devel / ".kpack/blas_gfx1100.kpack").samefile(libraries / ".kpack/blas_gfx1100.kpack")
    site.uninstall(["rocm-sdk-device-gfx1100"])
    assert not (devel / ".kpack/blas_gfx1100.kpack").exists() and (libraries / "__init__.py").exists()


@pytest.mark.contract
def test_uninstalling_leaves_nothing(packages: Path, tmp_path: Path) -> None:
    site = Site(tmp_path, packages, ALL)
    site.sdk("path", "--root")
    site.uninstall(INSTALLED)
    assert site.files() == site.before


@pytest.mark.contract_slow
@pytest.mark.slow
def test_pip_uninstalls_everything_too(packages: Path, tmp_path: Path) -> None:
    prefix = tmp_path / "venv"
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "PIP_"))}

    def run(*words: str | Path) -> None:
        subprocess.run(words, env=env, check=True, capture_output=True, timeout=120)

    run(sys.executable, "-m", "venv", "--without-pip", prefix)
    pip = (sys.executable, "-m", "pip", "--python", prefix / "bin" / "python", "--disable-pip-version-check")

    def files() -> set[Path]:
        # pip leaves empty folders where several distributions share one.
        return {p for p in prefix.rglob("*") if not p.is_dir() and "__pycache__" not in p.parts}

    before = files()
    run(*pip, "install", "--no-index", "--find-links", packages, ALL)
    run(prefix / "bin" / "hipcc")
    run(prefix / "bin" / "rocm-sdk", "test")
    run(*pip, "uninstall", "--yes", *INSTALLED)
    assert files() == before


@pytest.mark.contract
@pytest.mark.parametrize("after", [0, 5, 9])
def test_a_killed_expansion_is_done_again_or_uninstalled(packages: Path, tmp_path: Path, after: int) -> None:
    kill = (
        "import os, signal; from rocm_sdk import _devel; place, seen = _devel._place, []\n"
        "def dying(*a):\n"
        f"    if len(seen) == {after}: os.kill(os.getpid(), signal.SIGKILL)\n"
        "    seen.append(a); place(*a)\n"
        "_devel._place = dying; _devel.devel_root()"
    )
    site = Site(tmp_path / "again", packages, ALL)
    assert site.code(kill).returncode == -9
    root = Path(site.sdk("path", "--root"))
    assert (root / "lib/cmake/hip/hip-config.cmake").is_file() and (root / "lib/libhipblas.so").exists()
    assert site.sdk("test").endswith("OK")
    gone = Site(tmp_path / "gone", packages, ALL)
    assert gone.code(kill).returncode == -9
    gone.uninstall(INSTALLED)
    assert gone.files() == gone.before


@pytest.mark.contract
def test_many_at_once_expand_once(packages: Path, tmp_path: Path) -> None:
    site = Site(tmp_path, packages, ALL)
    ask_root = [str(site.python), "-m", "rocm_sdk", "path", "--root"]
    running = [subprocess.Popen(ask_root, env=site.env, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    assert {child.communicate(timeout=60)[0].strip() for child in running} == {
        str(site.site / "_rocm_sdk_devel")
    }
    assert [child.returncode for child in running] == [0] * 4
    record = next(site.site.glob("rocm_sdk_devel-*.dist-info")) / "RECORD"
    rows = record.read_text().splitlines()
    assert len(rows) == len(set(rows)) and '"_rocm_sdk_devel/include/rocprim/a, b.hpp",,' in rows
    assert not any(row.startswith("rocm_sdk_devel/_devel.tar") for row in rows)


@pytest.mark.contract
def test_a_process_is_initialized(packages: Path, tmp_path: Path) -> None:
    site = Site(tmp_path, packages, "rocm[libraries]")
    loaded = (
        "print([line.split('/')[-1].strip() for line in open('/proc/self/maps')"
        " if 'r-xp' in line and '_rocm_sdk_' in line])"
    )
    done = site.code(
        "from rocm_sdk import initialize_process as start\n"
        "start(preload_shortnames=['amdhip64'], check_version='7.1*', later=1)\n" + loaded,
        ROCM_SDK_PRELOAD_LIBRARIES="hipblas; ",
    )
    assert done.stderr == "" and sorted(eval(done.stdout)) == ["libamdhip64.so.7", "libhipblas.so.3"]
    for text, code, said in (
        ("initialize_process(check_version='7.2.0')", 0, "built against ROCm 7.2.0, but ROCm 7.1.0+small"),
        ("initialize_process(check_version=__import__('re').compile('8'), fail_on_version_mismatch=True)", 1,
         "RuntimeError: this program was built against ROCm 8"),
        ("find_libraries('hipblas', 'nonsense')", 1, "no ROCm package has a library 'nonsense'"),
        ("find_libraries('rccl')", 1, "the ROCm library 'rccl' is missing: no librccl.so* in"),
        ("find_libraries('rocdxg')", 0, ""),
    ):  # fmt: skip
        done = site.code(f"import rocm_sdk; rocm_sdk.{text}")
        assert (done.returncode, said in done.stderr) == (code, True), done.stderr
    done = site.code("import rocm_sdk; rocm_sdk.initialize_process()", ROCM_SDK_PRELOAD_LIBRARIES="rccl")
    assert "ROCM_SDK_PRELOAD_LIBRARIES='rccl' cannot be loaded" in done.stderr


@pytest.mark.contract
def test_without_a_package_the_answer_says_what_to_install(packages: Path, tmp_path: Path) -> None:
    site = Site(tmp_path, packages, "rocm")
    done = site.run(site.python, "-m", "rocm_sdk", "path", "--root", check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"rocm-sdk: rocm-sdk-devel is not installed; pip install 'rocm[devel]=={VERSION}'\n"
    done = site.code("import rocm_sdk; rocm_sdk.find_libraries('hipblas', 'amdhip64', 'rccl')")
    assert f"pip install 'rocm[libraries]=={VERSION}'" in done.stderr
    # Tools still start, from the runtime package.
    core = site.site / "_rocm_sdk_core"
    assert site.run(site.prefix / "bin" / "hipcc").stdout.strip() == f"hipcc from {core}/bin"


@pytest.mark.contract
def test_a_damaged_installation_is_named(packages: Path, tmp_path: Path) -> None:
    site = Site(tmp_path, packages, ALL)
    root = Path(site.sdk("path", "--root"))
    (root / ".unpacked.json").unlink()
    done = site.run(site.python, "-m", "rocm_sdk", "path", "--root", check=False)
    assert done.returncode == 1 and "pip install --force-reinstall --no-deps rocm-sdk-devel" in done.stderr
    (root / ".unpacked.json").write_text("{")
    again = site.run(site.python, "-m", "rocm_sdk", "path", "--root", check=False)
    assert (again.returncode, again.stderr) == (1, done.stderr)


@pytest.mark.contract
@pytest.mark.parametrize("content", ["", "[]", '{"version": "7.1.0+small"}'])
def test_a_damaged_list_of_device_files_is_named(packages: Path, tmp_path: Path, content: str) -> None:
    site = Site(tmp_path, packages, ALL)
    (site.site / "_rocm_sdk_libraries/.devel_links/gfx942.json").write_text(content)
    done = site.run(site.python, "-m", "rocm_sdk", "path", "--root", check=False)
    assert done.returncode == 1 and done.stderr.startswith("rocm-sdk: ")
    assert f"--force-reinstall --no-deps rocm-sdk-device-gfx942=={VERSION}" in done.stderr


def unlinked(tmp_path: Path) -> Path:
    """Artifacts in which a library needs one of another package and does not say where that is."""
    artifacts = make_artifacts(tmp_path / "artifacts")
    blas = artifacts / "blas_lib_generic/math-libs/BLAS/stage/lib/libhipblas.so.3"
    hip = artifacts / "core-hip_lib_generic/core/clr/stage/lib/libamdhip64.so.7.1"
    library(
        blas, "const char *blas_name(void) { return 0; }", "libhipblas.so.3", "-Wl,--no-as-needed", str(hip)
    )
    return artifacts


@pytest.mark.contract
def test_what_is_missing_on_the_machine_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    request = build_packages.PackageRequest(unlinked(tmp_path), tmp_path / "out")
    (tmp_path / "bin").mkdir()
    with pytest.raises(
        errors.SdkError, match=r"\(clang-22\) needs a launcher, but there is no C compiler 'cc'"
    ):
        build_packages.build_rocm_packages(request, {"PATH": str(tmp_path / "bin")})
    for tool in ("cc", "as", "ld"):
        (tmp_path / "bin" / tool).symlink_to(str(shutil.which(tool)))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    with pytest.raises(errors.SdkError, match=r"libhipblas.so.3 needs libraries of another package"):
        build_packages.build_rocm_packages(request, {"PATH": str(tmp_path / "bin")})
    assert not request.destination.exists()


@pytest.mark.contract
@pytest.mark.skipif(package_contents.find_patchelf(os.environ) is None, reason="patchelf is not installed")
def test_libraries_are_told_where_their_siblings_are(tmp_path: Path) -> None:
    wheels = build_packages.build_rocm_packages(
        build_packages.PackageRequest(unlinked(tmp_path), tmp_path / "out"), os.environ
    )
    with zipfile.ZipFile(next(w for w in wheels if "libraries" in w.name)) as wheel:
        path = Path(wheel.extract("_rocm_sdk_libraries/lib/libhipblas.so.3", tmp_path))
    elf = read_loader_info_of_file(path)
    assert elf is not None and elf.search_paths == ("$ORIGIN/../../_rocm_sdk_core/lib",)


@pytest.mark.contract
def test_the_door_makes_packages_and_explains_failures(tmp_path: Path) -> None:
    door = Path(__file__).parents[2] / "build_tools" / "build_python_packages.py"
    artifacts = make_artifacts(tmp_path / "a", compile_elf=False)
    words = [
        sys.executable,
        door,
        "--artifact-dir",
        "a",
        "--output-dir",
        "d",
        "--version",
        "8.0.0rc1",
        "--gfx",
        "gfx942",
    ]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    made = [Path(line).name for line in done.stdout.splitlines()]
    assert done.returncode == 0, done.stderr
    assert (
        len(made) == 5 and "rocm-8.0.0rc1-py3-none-any.whl" in made and not any("gfx1100" in m for m in made)
    )
    (artifacts / "blas_lib_gfx942" / "artifact_manifest.txt").unlink()
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert (
        done.returncode == 11
        and "has no artifact_manifest.txt" in done.stderr
        and "Traceback" not in done.stderr
    )


@pytest.mark.contract
def test_a_profiler_starts_with_its_libraries_and_modules(tmp_path: Path) -> None:
    artifacts = make_artifacts(tmp_path / "artifacts", compile_elf=False)
    add(artifacts, "rocprofiler-systems_run_generic", "p/stage", {
        "bin/rocprof-sys-run": '#!/bin/sh\necho "$LD_LIBRARY_PATH" "$PYTHONPATH" "$@"\n',
    }, executable=True)  # fmt: skip
    add(artifacts, "rocprofiler-systems_lib_generic", "p/stage", {"lib/librocprof-sys-rt.txt": ""})
    add(artifacts, "rocprofiler-compute_run_generic", "c/stage", {
        "libexec/rocprofiler-compute/rocprof-compute": "#!/bin/sh\nbasename $(dirname $0)\n",
    }, executable=True)  # fmt: skip
    program = artifacts / "rocprofiler-compute_run_generic/c/stage/bin/rocprof-compute"
    program.parent.mkdir()
    program.symlink_to("../libexec/rocprofiler-compute/rocprof-compute")
    dist = build_packages.build_rocm_packages(build_packages.PackageRequest(artifacts, tmp_path), os.environ)[
        0
    ].parent
    wheel_writer.write_wheel(
        wheel_writer.WheelPlan("small-compiler", "1.0", "stands for a compiler", "py3-none-any", {}), dist
    )
    site = Site(tmp_path, dist, "rocm[profiler]")
    scripts = site.prefix / "bin"
    env = {**site.env, "LD_LIBRARY_PATH": "/of/mine"}
    said = subprocess.run(
        [scripts / "rocprof-sys-run", "a", "b"], env=env, capture_output=True, text=True, check=True
    )
    libraries, modules, *words = said.stdout.split()
    first, *others = libraries.split(":")
    assert first.endswith("/_rocm_profiler/lib") and others == ["/of/mine"]
    assert modules.endswith("/_rocm_profiler/libexec/rocprofiler-compute") and words == ["a", "b"]
    said = subprocess.run([scripts / "rocprof-compute"], env=env, capture_output=True, text=True, check=True)
    assert said.stdout == "rocprofiler-compute\n"
