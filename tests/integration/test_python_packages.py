"""ROCm packages from artifacts: made, installed, asked, expanded, killed, uninstalled. All real."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from commands import Ended, run_program
from rocm import add, library, make_artifacts
from warm_python import warm_python

from rocm_wheels.binaries.elf import read_loader_info_of_file
from rocm_wheels.core import errors, installation
from rocm_wheels.sdk import build_packages, interpreters, package_contents, rocm_sdk
from rocm_wheels.sdk.artifacts import merge_artifacts, read_artifacts
from rocm_wheels.wheels import wheel_writer

pytestmark = [pytest.mark.contract, pytest.mark.skipif(sys.platform != "linux", reason="compiles ELF files")]
VERSION = "7.1.0+small"
ALL = "rocm[libraries,devel,device-gfx942]"


def make_packages(artifacts: Path, root: Path) -> Path:
    """Return the folder of the packages, with what stands for a compiler."""
    build_packages.build_rocm_packages(build_packages.PackageRequest(artifacts, root), os.environ)
    compiler = wheel_writer.WheelPlan("small-compiler", "1.0", "stands for a compiler", "py3-none-any", {})
    return wheel_writer.write_wheel(compiler, root / "dist").parent


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("packages")
    return make_packages(make_artifacts(root / "artifacts"), root)


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
        self.install(*requirements)

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

    def run(self, *words: str | Path, code: int = 0, **env: str) -> Ended:
        ended = self.try_run(*words, **env)
        assert ended.code == code, ended.err
        return ended

    def try_run(self, *words: str | Path, **env: str) -> Ended:
        env = {**self.env, **env}
        ended = subprocess.run(words, env=env, capture_output=True, text=True, check=False, timeout=120)
        return Ended(ended.returncode, ended.stdout, ended.stderr)

    def sdk(self, *words: str) -> str:
        return self.run(self.prefix / "bin" / "rocm-sdk", *words).out.strip()

    def code(self, text: str, **env: str) -> Ended:
        return self.try_run(self.python, "-c", text, **env)

    def files(self) -> set[str]:
        """All there is, but for uv's own lock."""
        return {p.relative_to(self.prefix).as_posix() for p in self.prefix.rglob("*")} - {".lock"}

    def install(self, *requirements: str) -> None:
        links = ("--no-index", "--find-links", str(self.packages))
        self.uv("pip", "install", "--python", str(self.python), *links, *requirements)

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


def test_installed_and_asked(packages: Path, tmp_path: Path) -> None:
    site = Site(tmp_path, packages, ALL)
    root = site.site / "_rocm_sdk_devel"
    assert site.sdk("version") == VERSION
    assert site.sdk("targets") == "gfx942;gfx1100"
    assert site.run(site.prefix / "bin" / "hipcc", "-c").out == f"hipcc from {root}/bin -c\n"  # unpacks
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


def test_the_trees_hold_what_they_should(packages: Path, tmp_path: Path) -> None:
    site = Site(tmp_path, packages, ALL)
    site.sdk("init")
    core, libraries, devel = (site.site / f"_rocm_sdk_{name}" for name in ("core", "libraries", "devel"))
    # Runtime packages: a library once, under its SONAME; no links; programs behind links start.
    assert [p.name for p in sorted((core / "lib").glob("libamdhip64*"))] == ["libamdhip64.so.7"]
    assert not [p for p in (*core.rglob("*"), *libraries.rglob("*")) if p.is_symlink()]
    assert not (core / "lib" / "cmake").exists() and not (core / "llvm").exists()
    compiler = core / "lib/llvm/bin/amdclang++"
    assert site.run(compiler, "x", "y").out == f"{compiler} 3\n"
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
    site.install("rocm[device-gfx1100]")
    site.sdk("path", "--root")
    assert (devel / ".kpack/blas_gfx1100.kpack").samefile(libraries / ".kpack/blas_gfx1100.kpack")
    site.uninstall(["rocm-sdk-device-gfx1100"])
    assert not (devel / ".kpack/blas_gfx1100.kpack").exists() and (libraries / "__init__.py").exists()
    # Uninstalling leaves nothing.
    site.uninstall(INSTALLED)
    assert site.files() == site.before


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
    assert site.code(kill).code == -9
    root = Path(site.sdk("path", "--root"))
    assert (root / "lib/cmake/hip/hip-config.cmake").is_file() and (root / "lib/libhipblas.so").exists()
    assert site.sdk("test").endswith("OK")
    gone = Site(tmp_path / "gone", packages, ALL)
    assert gone.code(kill).code == -9
    gone.uninstall(INSTALLED)
    assert gone.files() == gone.before


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
    assert done.err == "" and sorted(eval(done.out)) == ["libamdhip64.so.7", "libhipblas.so.3"]
    for text, code, said in (
        ("initialize_process(check_version='7.2.0')", 0, "built against ROCm 7.2.0, but ROCm 7.1.0+small"),
        ("initialize_process(check_version=__import__('re').compile('8'), fail_on_version_mismatch=True)", 1,
         "RuntimeError: this program was built against ROCm 8"),
        ("find_libraries('hipblas', 'nonsense')", 1, "no ROCm package has a library 'nonsense'"),
        ("find_libraries('rccl')", 1, "the ROCm library 'rccl' is missing: no librccl.so* in"),
        ("find_libraries('rocdxg')", 0, ""),
    ):  # fmt: skip
        done = site.code(f"import rocm_sdk; rocm_sdk.{text}")
        assert (done.code, said in done.err) == (code, True), done.err
    done = site.code("import rocm_sdk; rocm_sdk.initialize_process()", ROCM_SDK_PRELOAD_LIBRARIES="rccl")
    assert "ROCM_SDK_PRELOAD_LIBRARIES='rccl' cannot be loaded" in done.err


def test_without_a_package_the_answer_says_what_to_install(packages: Path, tmp_path: Path) -> None:
    site = Site(tmp_path, packages, "rocm")
    done = site.run(site.python, "-m", "rocm_sdk", "path", "--root", code=1)
    assert done.out == ""
    assert done.err == f"rocm-sdk: rocm-sdk-devel is not installed; pip install 'rocm[devel]=={VERSION}'\n"
    done = site.code("import rocm_sdk; rocm_sdk.find_libraries('hipblas', 'amdhip64', 'rccl')")
    assert f"pip install 'rocm[libraries]=={VERSION}'" in done.err
    # Tools still start, from the runtime package.
    core = site.site / "_rocm_sdk_core"
    assert site.run(site.prefix / "bin" / "hipcc").out.strip() == f"hipcc from {core}/bin"


def test_a_damaged_installation_is_named(packages: Path, tmp_path: Path) -> None:
    """A list of device files, then what says that the development tree is whole."""
    site = Site(tmp_path, packages, ALL)
    ask = (site.python, "-m", "rocm_sdk", "path", "--root")
    listed = site.site / "_rocm_sdk_libraries/.devel_links/gfx942.json"
    whole = listed.read_text()
    for content in ("", "[]", '{"version": "7.1.0+small"}'):
        listed.write_text(content)
        done = site.run(*ask, code=1)
        assert done.err.startswith("rocm-sdk: "), content
        assert f"--force-reinstall --no-deps rocm-sdk-device-gfx942=={VERSION}" in done.err, content
    listed.write_text(whole)
    root = Path(site.run(*ask).out.strip())
    (root / ".unpacked.json").unlink()
    done = site.run(*ask, code=1)
    assert "pip install --force-reinstall --no-deps rocm-sdk-devel" in done.err
    (root / ".unpacked.json").write_text("{")
    assert site.run(*ask, code=1).err == done.err


def unlinked(tmp_path: Path) -> Path:
    """Artifacts in which a library needs one of another package and does not say where that is."""
    artifacts = make_artifacts(tmp_path / "artifacts")
    blas = artifacts / "blas_lib_generic/math-libs/BLAS/stage/lib/libhipblas.so.3"
    hip = artifacts / "core-hip_lib_generic/core/clr/stage/lib/libamdhip64.so.7.1"
    library(
        blas, "const char *blas_name(void) { return 0; }", "libhipblas.so.3", "-Wl,--no-as-needed", str(hip)
    )
    return artifacts


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


@pytest.mark.skipif(package_contents.find_patchelf(os.environ) is None, reason="patchelf is not installed")
def test_libraries_are_told_where_their_siblings_are(tmp_path: Path) -> None:
    wheels = build_packages.build_rocm_packages(
        build_packages.PackageRequest(unlinked(tmp_path), tmp_path / "out"), os.environ
    )
    with zipfile.ZipFile(next(w for w in wheels if "libraries" in w.name)) as wheel:
        path = Path(wheel.extract("_rocm_sdk_libraries/lib/libhipblas.so.3", tmp_path))
    elf = read_loader_info_of_file(path)
    assert elf is not None and elf.search_paths == ("$ORIGIN/../../_rocm_sdk_core/lib",)


def test_the_door_makes_packages_and_explains_failures(tmp_path: Path) -> None:
    door = Path(__file__).parents[2] / "build_tools" / "build_python_packages.py"
    artifacts = make_artifacts(tmp_path / "a", compile_elf=False)
    words = [*warm_python(), door, "--artifact-dir", "a", "--output-dir", "d", "--version", "8.0.0rc1"]
    words += ["--gfx", "gfx942"]
    done = run_program(words, cwd=tmp_path, env=os.environ)
    made = [Path(line).name for line in done.out.splitlines()]
    assert (done.code, len(made)) == (0, 5), done.err
    assert "rocm-8.0.0rc1-py3-none-any.whl" in made and not any("gfx1100" in name for name in made)
    (artifacts / "blas_lib_gfx942" / "artifact_manifest.txt").unlink()
    done = run_program(words, cwd=tmp_path, env=os.environ)
    assert (done.code, "has no artifact_manifest.txt" in done.err) == (11, True), done.err


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
    site = Site(tmp_path, make_packages(artifacts, tmp_path), "rocm[profiler]")
    scripts = site.prefix / "bin"
    said = site.run(scripts / "rocprof-sys-run", "a", "b", LD_LIBRARY_PATH="/of/mine")
    libraries, modules, *words = said.out.split()
    first, *others = libraries.split(":")
    assert first.endswith("/_rocm_profiler/lib") and others == ["/of/mine"]
    assert modules.endswith("/_rocm_profiler/libexec/rocprofiler-compute") and words == ["a", "b"]
    assert site.run(scripts / "rocprof-compute").out == "rocprofiler-compute\n"


KERNELS = {  # names that ROCm 6.4 and 7.2 have
    "lib/rocblas/library/TensileLibrary_lazy_gfx942.dat": "gfx942",
    "lib/rocblas/library/TensileLibrary_Type_SS_gfx90a.co": "gfx90a",
    "lib/rocblas/library/Kernels.so-000-gfx90a-xnack+.hsaco": "gfx90a",
    "lib/hipblaslt/library/extop_gfx1100.co": "gfx1100",
    "share/miopen/db/gfx90a68.db": "gfx90a",
    "share/miopen/db/gfx900_56.kdb": "gfx900",
    "share/miopen/db/gfx942130.HIP.fdb.txt": "gfx942",
    "lib/rocblas/library/TensileLibrary_lazy_gfx1250.dat": "gfx1250",
    "share/miopen/db/gfx103036.HIP.fdb.txt": "gfx1030",
}
SHARED = (
    "lib/rocblas/library/TensileLibrary_Type_SS_fallback.dat",
    "lib/hipblaslt/library/hipblasltTransform.hsaco",
    *(f"lib/hipblaslt/library/extop_{name}-generic.co" for name in ("gfx9", "gfx9-4", "gfx10-3", "gfx11")),
)
UNKNOWN = (  # ROCm has kernels for targets that it is no longer built for, and for those to come
    ("lib/rocblas/library/TensileLibrary_lazy_gfx803.dat", "gfx803"),
    ("share/miopen/db/gfx803_36.db", "gfx803"),
    ("share/miopen/db/gfx940e4.kdb", "gfx940"),
    ("lib/hipblaslt/library/Kernels.so-000-gfx941-xnack+.hsaco", "gfx941"),
    ("lib/hipsparselt/library/extop_gfx1299.co", "gfx1299"),
    ("share/miopen/db/gfx129940.HIP.fdb.txt", "gfx1299"),
)


def add_kernels(root: Path, *relatives: str) -> None:
    for relative in relatives:
        (root / relative).parent.mkdir(parents=True, exist_ok=True)
        (root / relative).write_text(relative)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Lay out the small ROCm as an installed one, to be copied."""
    folder = tmp_path_factory.mktemp("installed")
    root = folder / "rocm"
    artifacts = [a for a in read_artifacts(make_artifacts(folder / "artifacts")) if a.generic]
    for relative, entry in merge_artifacts(artifacts).items():
        target = root / relative
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(entry.path, target, follow_symlinks=False)
    shutil.rmtree(root / "share/therock")
    add_kernels(root, *KERNELS, *SHARED)
    (root / ".info").mkdir()
    (root / ".info/version").write_text("6.4.3-128\n")
    return root


@pytest.fixture
def prefix(installed: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(installed, tmp_path / "opt/rocm", symlinks=True))


def pack_prefix(destination: Path, *words: str | Path, code: int = 0) -> str:
    """Make packages; return what was said."""
    command = [*warm_python(), "-m", "rocm_wheels", "build-python-packages", "--output-dir", destination]
    ended = run_program([*command, *words], cwd=destination.parent, env=os.environ)
    assert (ended.code, ended.err.count("error: ")) == (code, int(code > 0)), ended.err
    return ended.err


def list_members(destination: Path, package: str) -> set[str]:
    (wheel,) = (destination / "dist").glob(f"{package}-6.4.3-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        return {name.split("/", 1)[-1] for name in archive.namelist()}


def test_files_go_to_the_packages_that_rocm_has_them_in(prefix: Path, tmp_path: Path) -> None:
    pack_prefix(tmp_path / "made", "--from-prefix", prefix)
    for relative, target in KERNELS.items():
        assert relative in list_members(tmp_path / "made", f"rocm_sdk_device_{target}")
        assert relative not in list_members(tmp_path / "made", "rocm_sdk_libraries")
    assert {*SHARED, "lib/libhipblas.so.3"} <= list_members(tmp_path / "made", "rocm_sdk_libraries")
    core = list_members(tmp_path / "made", "rocm_sdk_core")
    assert {"bin/hipcc", "lib/libamdhip64.so.7", "lib/llvm/bin/amdclang++"} <= core
    assert "include/rocprim/a, b.hpp" not in core


def test_only_the_targets_that_are_asked_for(prefix: Path, tmp_path: Path) -> None:
    pack_prefix(tmp_path / "made", "--from-prefix", prefix, "--gfx", "gfx90a")
    names = {path.name for path in (tmp_path / "made/dist").iterdir()}
    assert {name.split("-")[0] for name in names if "device" in name} == {"rocm_sdk_device_gfx90a"}
    pack_prefix(tmp_path / "other", "--from-prefix", prefix, "--gfx", "gfx1201", code=11)
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize(("relative", "target"), UNKNOWN[1:4:2])
def test_kernels_of_a_target_that_nobody_here_knows(
    prefix: Path, tmp_path: Path, relative: str, target: str
) -> None:
    add_kernels(prefix, relative)
    for words in (["--gfx", f"gfx90a,{target}"], []):
        said = pack_prefix(tmp_path / "made", "--from-prefix", prefix, *words, code=11)
        assert f"{target} ({prefix / relative})" in said and "data/gfx_families.yaml" in said
        assert not (tmp_path / "made").exists()
    (tip,) = re.findall(r"tip: .*(--gfx \S+),", said)
    assert target not in tip
    pack_prefix(tmp_path / "made", "--from-prefix", prefix, *tip.split())
    for package in ("rocm_sdk_core", "rocm_sdk_libraries", "rocm_sdk_device_gfx90a"):
        assert relative not in list_members(tmp_path / "made", package)


def test_all_unknown_targets_are_named_at_once(prefix: Path, tmp_path: Path) -> None:
    add_kernels(prefix, *(relative for relative, _ in UNKNOWN))
    said = pack_prefix(tmp_path / "made", "--from-prefix", prefix, code=11)
    assert re.findall(r"(gfx\w+) \(\S+( and 1 more)?\)", said) == [
        ("gfx803", " and 1 more"), ("gfx940", ""), ("gfx941", ""), ("gfx1299", " and 1 more")
    ]  # fmt: skip


def test_the_installed_tree_is_whole_again(prefix: Path, tmp_path: Path) -> None:
    pack_prefix(tmp_path / "made", "--from-prefix", prefix)
    venv = tmp_path / "venv"
    env = interpreters.compose_uv_environment({**os.environ, "UV_CACHE_DIR": str(tmp_path / "cache")})
    for words in (
        ["venv", "--no-project", "--python", sys.executable, str(venv)],
        ["pip", "install", "--python", str(venv), "--no-index", "--find-links", str(tmp_path / "made/dist"),
         "rocm[libraries,devel,device]"],
    ):  # fmt: skip
        subprocess.run([installation.find_uv(), "-q", *words], env=env, check=True, timeout=120)
    tree = Path(subprocess.check_output([venv / "bin/rocm-sdk", "path", "--root"], text=True).strip())
    files = [path.relative_to(prefix) for path in prefix.rglob("*") if path.is_file()]
    assert files
    assert [path for path in files if not (tree / path).is_file()] == []


@pytest.mark.parametrize(
    "damage",
    [
        lambda root: shutil.rmtree(root / "include"),  # no ROCm at all
        lambda root: (root / ".info/version").unlink(),  # which ROCm?
        lambda root: (root / "lib/libout.so").symlink_to("/usr/lib/libout.so.1"),
    ],
)
def test_what_is_no_whole_rocm_is_refused(
    prefix: Path, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    damage(prefix)
    pack_prefix(tmp_path / "made", "--from-prefix", prefix, code=11)
    assert not (tmp_path / "made").exists()


def test_one_source_and_one_only(prefix: Path, tmp_path: Path) -> None:
    both = ("--from-prefix", prefix, "--artifact-dir", tmp_path)
    for words in ((), both):
        pack_prefix(tmp_path / "made", *words, code=2)
