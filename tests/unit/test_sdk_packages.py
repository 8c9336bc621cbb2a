"""Packages from artifacts, without compilers and installers: rules, wrong trees, wheels as files."""
# ruff: noqa: E501 - tables

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import os
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from commands import refused, transcript
from hypothesis import given
from hypothesis import strategies as st

from rocm_wheels.binaries.elf import LoaderInfo, read_loader_info_of_file
from rocm_wheels.core import errors
from rocm_wheels.sdk import artifacts, build_packages, package_contents
from rocm_wheels.wheels import wheel_writer

pytestmark = pytest.mark.contract

_ = transcript  # a fixture for every test here
MESSAGES = "sdk"

BASE = "base_lib_generic/base/aux-overlay/stage/share/therock"
BLAS = "math-libs/BLAS/stage"


def put(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """The least that packages can be made from."""
    root = tmp_path / "artifacts"
    put(root, {
        f"{BASE}/therock_manifest.json": json.dumps({"rocm_package_version": "7.1.0"}),
        f"{BASE}/dist_info.json": json.dumps({"dist_amdgpu_targets": "gfx942"}),
        "base_lib_generic/artifact_manifest.txt": "base/aux-overlay/stage\nbase/not-there/stage\n",
        "core-hip_lib_generic/artifact_manifest.txt": "hip/stage\n",
        "core-hip_lib_generic/hip/stage/bin/hipcc": "#!/bin/sh\n",
        "core-hip_dev_generic/artifact_manifest.txt": "hip/stage\n",
        "core-hip_dev_generic/hip/stage/include/hip/hip_runtime.h": "",
        "blas_lib_generic/artifact_manifest.txt": f"{BLAS}\n",
        f"blas_lib_generic/{BLAS}/share/notice": "generic",
        "blas_lib_gfx942/artifact_manifest.txt": f"{BLAS}\n",
        f"blas_lib_gfx942/{BLAS}/lib/kernels_gfx942.dat": "k",
    })  # fmt: skip
    return root


def make(tree: Path, **options: object) -> tuple[Path, ...]:
    request = build_packages.PackageRequest(tree, tree.parent / "out", **options)  # type: ignore[arg-type]
    return build_packages.build_rocm_packages(request, {})


def test_the_least_tree_makes_five_wheels_with_right_records(tree: Path) -> None:
    wheels = make(tree, platform_tag="linux_x86_64")
    assert [w.name.split("-py3")[0] for w in wheels] == [
        "rocm-7.1.0", "rocm_sdk_core-7.1.0", "rocm_sdk_devel-7.1.0",
        "rocm_sdk_device_gfx942-7.1.0", "rocm_sdk_libraries-7.1.0",
    ]  # fmt: skip
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            names = archive.namelist()
            record = next(name for name in names if name.endswith(".dist-info/RECORD"))
            rows = {row[0]: row[1:] for row in csv.reader(io.StringIO(archive.read(record).decode()))}
            assert list(rows) == names and names[-1] == record and rows[record] == ["", ""]
            for name in names[:-1]:
                digest = base64.urlsafe_b64encode(hashlib.sha256(archive.read(name)).digest()).rstrip(b"=")
                assert rows[name] == [f"sha256={digest.decode()}", str(len(archive.read(name)))]
            assert {info.date_time[:3] for info in archive.infolist()} == {(2020, 2, 2)}


def test_scripts_only_for_programs_that_are_there(tree: Path) -> None:
    core = make(tree)[1]
    with zipfile.ZipFile(core) as archive:
        scripts = archive.read("rocm_sdk_core-7.1.0.dist-info/entry_points.txt").decode()
    assert scripts == "[console_scripts]\nhipcc = rocm_sdk_core._cli:hipcc\n"


def test_xnack_variants_share_one_package(tree: Path) -> None:
    put(tree, {
        "blas_lib_gfx942:xnack+/artifact_manifest.txt": f"{BLAS}\n",
        f"blas_lib_gfx942:xnack+/{BLAS}/lib/kernels_gfx942-xnack+.dat": "k",
    })  # fmt: skip
    device = next(w for w in make(tree) if "device" in w.name)
    names = zipfile.ZipFile(device).namelist()
    assert [n for n in names if n.endswith(".dat")] == [
        "_rocm_sdk_libraries/lib/kernels_gfx942-xnack+.dat", "_rocm_sdk_libraries/lib/kernels_gfx942.dat",
    ]  # fmt: skip


def remove(name: str) -> Callable[[Path], None]:
    def change(tree: Path) -> None:
        (tree / name).unlink()

    return change


def text(name: str, content: str) -> Callable[[Path], None]:
    return lambda tree: put(tree, {name: content})


def raw(name: str, content: bytes) -> Callable[[Path], None]:
    def change(tree: Path) -> None:
        (tree / name).write_bytes(content)

    return change


def link(name: str, target: str) -> Callable[[Path], None]:
    def change(tree: Path) -> None:
        (tree / name).symlink_to(target)

    return change


def drop(folder: str) -> Callable[[Path], None]:
    return lambda tree: (tree / folder).rename(tree.parent / "dropped") and None


WRONG: list[Callable[[Path], None]] = [
    drop("base_lib_generic"),
    drop("core-hip_lib_generic"),
    drop("blas_lib_generic"),
    drop("core-hip_dev_generic"),
    drop("blas_lib_gfx942"),
    remove("core-hip_lib_generic/hip/stage/bin/hipcc"),
    remove("blas_lib_gfx942/artifact_manifest.txt"),
    remove(f"blas_lib_gfx942/{BLAS}/lib/kernels_gfx942.dat"),
    text("fft_lib_generic.tar.zst", ""),
    text("blas_lib_generic/artifact_manifest.txt", "\n"),
    text("blas_lib_generic/artifact_manifest.txt", "ok\n../other\n"),
    text("blas_lib_generic/artifact_manifest.txt", "/etc\n"),
    text("blas_lib_gfx94X-dcgpu/artifact_manifest.txt", "x\n"),
    text(f"{BASE}/therock_manifest.json", "{"),
    text(f"{BASE}/therock_manifest.json", "[]"),
    text(f"{BASE}/therock_manifest.json", "{}"),
    text(f"{BASE}/therock_manifest.json", '{"rocm_package_version": "x.y"}'),
    text(f"{BASE}/therock_manifest.json", '{"flags": {"KPACK_SPLIT_ARTIFACTS": false}}'),
    text(f"{BASE}/dist_info.json", "{}"),
    text(f"{BASE}/dist_info.json", '{"dist_amdgpu_targets": "gfx942;gfx1100"}'),
    text(f"{BASE}/dist_info.json", '{"dist_amdgpu_targets": "gfx90a"}'),
    link("core-hip_lib_generic/hip/stage/bin/cc", "/usr/bin/cc"),
    link("core-hip_lib_generic/hip/stage/bin/up", "../../x"),
    text("core-hip_dev_generic/hip/stage/bin/hipcc", "other"),
    link("core-hip_dev_generic/hip/stage/bin", "include"),
    text(f"blas_lib_gfx942/{BLAS}/share/notice", "mine"),
    raw("blas_lib_gfx942/artifact_manifest.txt", b"\xff"),
    raw(f"{BASE}/python_requirements.txt", b"\xff"),
    text(f"blas_lib_gfx942/{BLAS}/lib/two\nlines.dat", ""),
    text(os.fsdecode(os.fsencode(f"blas_lib_gfx942/{BLAS}/lib/") + b"\xff.dat"), ""),
    lambda tree: os.mkfifo(tree / f"blas_lib_gfx942/{BLAS}/lib/pipe"),
    text(f"{BASE}/python_requirements.txt", "# fine\nfine==1\nnot a requirement\n"),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(WRONG)))
def test_wrong_artifacts_write_nothing(tree: Path, number: int) -> None:
    WRONG[number](tree)
    with refused(errors.SdkError):
        make(tree)
    assert not (tree.parent / "out").exists()


@pytest.mark.parametrize(
    "options", [{"version": "seven"}, {"platform_tag": "Linux x"}, {"targets": ("gfx1100",)}]
)
def test_wrong_options(tree: Path, options: dict[str, object]) -> None:
    with refused(errors.RocmWheelsError):
        make(tree, **options)


def test_a_folder_that_cannot_be_read_is_not_left_out(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scan = os.scandir

    def closed(folder: os.PathLike[str]) -> object:
        if str(folder).endswith("/lib"):
            raise PermissionError(13, "Permission denied", str(folder))
        return scan(folder)

    monkeypatch.setattr(os, "scandir", closed)
    with refused(errors.SdkError):
        make(tree)


def test_no_artifacts(tmp_path: Path) -> None:
    with refused(errors.SdkError):
        artifacts.read_artifacts(tmp_path)
    with refused(errors.SdkError):
        artifacts.read_artifacts(tmp_path / "x")


def test_the_date_comes_from_the_environment(tree: Path) -> None:
    request = build_packages.PackageRequest(tree, tree.parent / "out")
    wheel = build_packages.build_rocm_packages(request, {"SOURCE_DATE_EPOCH": "1700000000"})[0]
    assert zipfile.ZipFile(wheel).infolist()[0].date_time == (2023, 11, 14, 22, 13, 20)
    for wrong in ("yesterday", "4354819200"):
        with refused(errors.UsageError):
            build_packages.build_rocm_packages(request, {"SOURCE_DATE_EPOCH": wrong})
    latest = build_packages.build_rocm_packages(request, {"SOURCE_DATE_EPOCH": "4354819199"})[0]
    assert zipfile.ZipFile(latest).infolist()[0].date_time[:3] == (2107, 12, 31)


def test_other_work_in_the_destination_is_left_alone(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # and refused before hours of compression, not after them
    monkeypatch.setattr("rocm_wheels.wheels.wheel_writer.write_wheel", pytest.fail)
    put(tree.parent / "out" / "dist", {"rocm-6.4-py3-none-any.whl": "mine"})
    with refused(errors.SdkError):
        make(tree)
    assert os.listdir(tree.parent / "out" / "dist") == ["rocm-6.4-py3-none-any.whl"]  # noqa: PTH208
    assert not list(tree.parent.glob("out/.packages-*"))


def test_links_are_followed_in_the_merged_tree(tree: Path) -> None:
    base = tree / "core-hip_lib_generic/hip/stage"
    put(base, {"lib/llvm/bin/clang": "c"})
    link("core-hip_lib_generic/hip/stage/llvm", "lib/llvm")(tree)
    link("core-hip_dev_generic/hip/stage/tool", "llvm/bin/clang")(tree)
    link("core-hip_lib_generic/hip/stage/loop", "loop")(tree)
    merged = artifacts.merge_artifacts(artifacts.read_artifacts(tree))
    assert artifacts.resolve_path(merged, "tool") == "lib/llvm/bin/clang"
    for path in ("llvm", "loop", "llvm/../bin/hipcc", "nothing"):
        assert artifacts.resolve_path(merged, path) is None, path
    chosen = package_contents.select_runtime("_rocm_sdk_core", merged)
    assert "tool" in chosen.files and not {"llvm", "loop"} & set(chosen.files)
    assert package_contents.map_devel_links(merged, [chosen])["llvm"] == "lib/llvm"
    assert package_contents.map_devel_links(merged, [chosen])["bin/hipcc"] == "../../_rocm_sdk_core/bin/hipcc"


def test_requirements_of_artifacts(tree: Path) -> None:
    text(f"{BASE}/python_requirements.txt", "# why\nb == 2 ; sys_platform == 'linux'\na>=1 # here\n\na>=1\n")(
        tree
    )
    wanted = artifacts.read_requirements(artifacts.read_artifacts(tree))
    assert wanted == ("a>=1", 'b==2; sys_platform == "linux"')
    core = next(w for w in make(tree) if "core" in w.name)
    with zipfile.ZipFile(core) as archive:
        metadata = archive.read("rocm_sdk_core-7.1.0.dist-info/METADATA").decode()
        assert "Requires-Dist: a>=1\nRequires-Dist: b==2; sys" in metadata
        assert not [name for name in archive.namelist() if "python_requirements" in name]


def test_targets_in_order_of_their_numbers() -> None:
    found = artifacts.sort_targets(["gfx1201", "gfx942", "gfx90a", "gfx1100"])
    assert found == ("gfx90a", "gfx942", "gfx1100", "gfx1201")


LIB = package_contents.RuntimeFile(
    Path("x"), True, LoaderInfo(program=False, soname=None, needed=(), search_paths=())
)


@pytest.mark.parametrize(
    ("needed", "search", "wanted"),
    [
        (("libc.so.6",), (), ()),
        (("libhip.so",), (), ("$ORIGIN/../../_rocm_sdk_core/lib",)),
        (("libhip.so", "libz.so"), ("/old",), ("/old", "$ORIGIN/../../_rocm_sdk_core/lib", "$ORIGIN/../../_rocm_sdk_core/lib/rocm_sysdeps/lib")),
        (("libhip.so",), ("${ORIGIN}/../../_rocm_sdk_core/lib",), ()),
        (("libblas.so",), ("$ORIGIN",), ()),
        (("libblas.so",), (), ("$ORIGIN/.",)),
    ],
)  # fmt: skip
def test_a_library_finds_its_siblings(
    needed: tuple[str, ...], search: tuple[str, ...], wanted: tuple[str, ...]
) -> None:
    core = package_contents.RuntimePackage(
        "_rocm_sdk_core", {"lib/libhip.so": LIB, "lib/rocm_sysdeps/lib/libz.so": LIB}
    )
    libraries = package_contents.RuntimePackage("_rocm_sdk_libraries", {"lib/libblas.so": LIB})
    elf = LoaderInfo(program=False, soname="x", needed=needed, search_paths=search)
    folders = package_contents.list_library_folders(core, libraries)
    assert package_contents.find_rpath("_rocm_sdk_libraries", "lib/libx.so", elf, folders) == wanted


@given(st.binary(max_size=300), st.sampled_from([b"", b"\x7fELF\x02\x01\x01" + b"\0" * 9 + b"\3\0\x3e\0"]))
def test_no_file_breaks_the_elf_reader(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, start: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / f"elf-{os.getpid()}"
    path.write_bytes(start + data)
    assert read_loader_info_of_file(path) is None or start


def test_a_wheel_is_written_whole_or_not(tmp_path: Path) -> None:
    plan = wheel_writer.WheelPlan(
        "a-b.c", "1.0", "s", "py3-none-any", {"x": wheel_writer.PlannedMember(tmp_path / "missing")}
    )
    with refused(errors.SdkError):
        wheel_writer.write_wheel(plan, tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("killed", [False, True])
def test_publishing_replaces_in_one_rename(tmp_path: Path, killed: bool) -> None:
    put(tmp_path, {"dist/a": "old", "fresh/a": "new"})
    if killed:
        (tmp_path / "dist").rename(tmp_path / ".dist.old")
    assert wheel_writer.publish_wheels(tmp_path / "fresh", tmp_path / "dist") is True
    assert (tmp_path / "dist" / "a").read_text() == "new"
    assert [p.name for p in tmp_path.iterdir()] == ["dist"]
    put(tmp_path, {"fresh/a": "new"})
    assert wheel_writer.publish_wheels(tmp_path / "fresh", tmp_path / "dist") is False


def metadata_of(wheels: tuple[Path, ...], name: str) -> list[str]:
    (wheel,) = (wheel for wheel in wheels if wheel.name.startswith(f"{name}-"))
    with zipfile.ZipFile(wheel) as archive:
        (member,) = (member for member in archive.namelist() if member.endswith("/METADATA"))
        return archive.read(member).decode().splitlines()


def test_rocm_of_two_platforms_has_the_extras_of_both_and_is_one_wheel(tree: Path, tmp_path: Path) -> None:
    published = {"linux": ("gfx942", "gfx1100"), "win32": ("gfx1100", "gfx1151")}
    blas = {"artifact_manifest.txt": f"{BLAS}\n", f"{BLAS}/lib/k.dat": "k"}
    put(tree, {f"blas_lib_gfx1100/{name}": text for name, text in blas.items()})
    put(tree, {f"blas_lib_gfx90a/{name}": text for name, text in blas.items()})  # of no family
    put(tree, PROFILER)
    linux = make(tree, platform_tag="linux_x86_64", published=published)
    assert [name for name in (w.name.split("-7")[0] for w in linux) if "device" in name] == [
        "rocm_sdk_device_gfx1100", "rocm_sdk_device_gfx942",
    ]  # fmt: skip
    required = {line.removeprefix("Requires-Dist: rocm-sdk-") for line in metadata_of(linux, "rocm")}
    assert required >= {
        'device-gfx942==7.1.0; sys_platform == "linux" and extra == "device-gfx942"',
        'device-gfx942==7.1.0; sys_platform == "linux" and extra == "device-all"',
        'device-gfx1100==7.1.0; extra == "device-gfx1100"',
        'device-gfx1151==7.1.0; sys_platform == "win32" and extra == "device-gfx1151"',
    }
    windows = tmp_path / "windows" / "artifacts"
    tree.rename(tmp_path / "linux-artifacts")
    put(windows, {
        str(path.relative_to(tmp_path / "linux-artifacts")): path.read_text()
        for path in (tmp_path / "linux-artifacts").rglob("*") if path.is_file() and "rocprofiler" not in str(path)
    })  # fmt: skip
    put(windows, {f"blas_lib_gfx1151/{name}": text for name, text in blas.items()})
    put(windows, {"core-hip_lib_generic/hip/stage/bin/hipcc.exe": "MZ"})
    other = make(windows, platform_tag="win_amd64", published=published)
    first, second = (wheel for wheel in (*linux, *other) if wheel.name.startswith("rocm-7"))
    assert first.read_bytes() == second.read_bytes()


def test_a_family_without_artifacts_is_refused(tree: Path) -> None:
    with refused(errors.SdkError):
        make(tree, platform_tag="linux_x86_64", published={"linux": ("gfx942", "gfx1100")})
    with refused(errors.UsageError):
        make(tree, platform_tag="linux_x86_64", published={"linux": ("gfx942",)}, targets=("gfx942",))
    wheels = make(tree, platform_tag="linux_x86_64", published={"win32": ("gfx1151",)})
    pin = 'Requires-Dist: rocm-sdk-device-gfx942==7.1.0; sys_platform == "linux" and extra == "device"'
    assert pin in metadata_of(wheels, "rocm")


def test_the_families_of_both_platforms(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from rocm_wheels.cli import artifacts, boundary

    argv = ["--artifact-dir", str(tree), "--output-dir", str(tree.parent / "out")]
    argv += ["--linux-amdgpu-families", "gfx94X-dcgpu", "--platform-tag", "linux_x86_64"]
    for families, expected in (("gfx1151; gfx1150", True), ("", False)):  # a workflow without Windows
        assert (
            boundary.run_command(artifacts.packages_script, [*argv, "--windows-amdgpu-families", families])
            == 0
        )
        wheels = tuple(Path(line) for line in capsys.readouterr().out.splitlines())
        text = "\n".join(metadata_of(wheels, "rocm"))
        pin = 'rocm-sdk-device-gfx1150==7.1.0; sys_platform == "win32" and extra == "device-gfx1150"'
        assert (pin in text, "sys_platform" in text) == (expected, expected)
    assert (
        boundary.run_command(artifacts.packages_script, [*argv, "--windows-amdgpu-families", "gfx115X-none"])
        == 2
    )
    assert "--windows-amdgpu-families" in capsys.readouterr().err


PROFILER = {
    "rocprofiler-systems_run_generic/artifact_manifest.txt": "p/stage\n",
    "rocprofiler-systems_run_generic/p/stage/bin/rocprof-sys-run": "#!/bin/sh\n",
    "rocprofiler-systems_run_generic/p/stage/bin/other": "#!/bin/sh\n",
    "rocprofiler-compute_run_generic/artifact_manifest.txt": "c/stage\n",
    "rocprofiler-compute_run_generic/c/stage/libexec/rocprofiler-compute/rocprof-compute": "#!/bin/sh\n",
}


def test_the_profilers_are_a_package_of_linux(tree: Path) -> None:
    without = metadata_of(make(tree, platform_tag="linux_x86_64"), "rocm")
    assert not [line for line in without if "profiler" in line]
    put(tree, PROFILER)
    link = tree / "rocprofiler-compute_run_generic/c/stage/bin/rocprof-compute"
    link.parent.mkdir()
    link.symlink_to("../libexec/rocprofiler-compute/rocprof-compute")
    wheels = make(tree, platform_tag="linux_x86_64")
    assert 'Requires-Dist: rocm-profiler==7.1.0; extra == "profiler"' in metadata_of(wheels, "rocm")
    assert "Requires-Dist: rocm-sdk-core==7.1.0" in metadata_of(wheels, "rocm_profiler")
    (wheel,) = (wheel for wheel in wheels if wheel.name.startswith("rocm_profiler-"))
    with zipfile.ZipFile(wheel) as archive:
        assert archive.read("rocm_profiler-7.1.0.dist-info/entry_points.txt").decode().splitlines()[1:] == [
            "rocprof-compute = rocm_profiler._cli:rocprof_compute",
            "rocprof-sys-run = rocm_profiler._cli:rocprof_sys_run",
        ]
        assert b"'libexec/rocprofiler-compute/rocprof-compute'" in archive.read("rocm_profiler/_tools.py")
    both = {"linux": ("gfx942",), "win32": ("gfx1151",)}
    text = metadata_of(make(tree, platform_tag="linux_x86_64", published=both), "rocm")
    assert 'Requires-Dist: rocm-profiler==7.1.0; sys_platform == "linux" and extra == "profiler"' in text
