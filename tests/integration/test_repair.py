"""``wheel repair`` of wheels for Linux: libraries of a compiler, auditwheel and the loader as judges."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import stat
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from commands import Ended, call
from sources import CLONE
from wheels import Draft, bundle, elf_header, read_members

from rocm_wheels.binaries import loader
from rocm_wheels.wheels import edit, scan

pytestmark = [
    pytest.mark.contract,
    pytest.mark.skipif(
        sys.platform != "linux" or shutil.which("cc") is None, reason="needs a C compiler for Linux"
    ),
]
MACHINE = os.uname().machine if sys.platform != "win32" else ""
LONG_PATH = ":".join(f"$ORIGIN/../{number:0100}" for number in range(60))
TAG = f"cp311-cp311-linux_{MACHINE}"


def compile_library(folder: Path, name: str, *words: str, source: str = "", soname: str = "") -> Path:
    """Compile a shared library of a source; ``words`` are for the linker."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    argv = ["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(path)]
    argv += ["-Wl,--no-as-needed", f"-Wl,-soname,{soname or name}", "-x", "none", *words]
    subprocess.run(argv, input=source or f"int of_{folder.name.replace('-', '_')};", text=True, check=True)
    return path


class World:
    """A torch that needs libamdhip64.so.7, which rocm[libraries] brings in the wheel rocm_sdk_core."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.sdk = folder / "sdk"
        self.links = folder / "links"
        self.links.mkdir()
        self.out = folder / "out"
        self.hip = compile_library(self.sdk, "libamdhip64.so.7", source="int hipInit(void) { return 0; }")

    def write_rocm(self, soname: str = "libamdhip64.so.7") -> None:
        """Write the wheels of ROCm: rocm leads to the runtime with an extra only."""
        place = f"_rocm_sdk_core/lib/{soname}"
        core = Draft("rocm_sdk_core", "7.1.0", f"py3-none-linux_{MACHINE}")
        core.members[place] = (self.sdk / soname).read_bytes()
        core.write(self.links)
        requires = ['rocm-sdk-core==7.1.0; extra == "libraries"']
        Draft("rocm", "7.1.0", "py3-none-any", fields=["Provides-Extra: libraries"], requires=requires).write(
            self.links
        )

    def write_torch(self, *words: str, name: str = "torch", needs: str = "", **members: bytes) -> Path:
        """Write a wheel whose one library is linked with ``words``, and needs the runtime."""
        library = compile_library(
            self.folder / f"build-{len(list(self.folder.iterdir()))}",
            f"lib{name}_hip.so",
            *words,
            needs or str(self.hip),
            source="#include <math.h>\ndouble f(double x) { return exp(x); }",
        )
        draft = Draft(name, "2.9.0", TAG, requires=["rocm[libraries]==7.1.0"])
        draft.members = {
            f"{name}/__init__.py": b"",
            f"{name}/lib/{library.name}": library.read_bytes(),
            f"{name}/lib/notes.bin": os.urandom(1000),
            **members,
        }
        return draft.write(self.folder)

    def run(self, *words: object, links: bool = True, code: int = 0) -> Ended:
        """Run ``wheel repair --json``."""
        given = ["--find-links", self.links] if links else []
        given += [] if "--output-dir" in words else ["--output-dir", self.out]
        return call("wheel", "repair", "--json", *given, *words, code=code)

    def repair(self, *words: object, links: bool = True) -> Any:
        """Repair wheels; return what is said of the first."""
        return self.run(*words, links=links).json["wheels"][0]

    def refuse(self, *words: object, code: int = 13) -> str:
        """Return why wheels are not repaired."""
        return self.run(*words, code=code).err

    def read_library(self, wheel: Path, suffix: str = ".so") -> Path:
        """Unpack the first library of a wheel of that name."""
        with zipfile.ZipFile(wheel) as archive:
            name = next(name for name in archive.namelist() if name.endswith(suffix))
            return Path(archive.extract(name, self.folder / "unpacked" / wheel.stem))


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path)
    made.write_rocm()
    return made


def ask_auditwheel(wheel: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "auditwheel", "show", "--json", str(wheel)],
        capture_output=True,
        text=True,
        check=True,
    )
    tag: str = json.loads(done.stdout)["sym_tag"]
    return tag


def test_only_name_and_wheel_file_change(world: World) -> None:
    wheel = world.write_torch("-Wl,-rpath,$ORIGIN", "-lm")
    repaired = world.repair(wheel)
    tag = ask_auditwheel(wheel)
    assert tag.startswith("manylinux") and repaired["platforms"][0] == tag
    assert repaired["excluded"] == {"libamdhip64.so.7": f"rocm_sdk_core-7.1.0-py3-none-linux_{MACHINE}.whl"}
    path = Path(repaired["path"])
    difference = edit.compare_wheels(wheel, path)
    assert [name.partition("/")[2] for name in difference.changed] == ["WHEEL"]
    assert not difference.added and not difference.removed and not difference.metadata
    assert scan.scan_wheel(path).faults == ()
    again = world.folder / "again"
    world.repair(wheel, "--output-dir", again)
    assert (again / path.name).read_bytes() == path.read_bytes()
    assert world.repair(path)["platforms"] == []


def test_sdk_on_the_search_path_is_not_grafted(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = world.write_torch()
    monkeypatch.setenv("LD_LIBRARY_PATH", str(world.sdk))
    repaired = world.repair(wheel)
    assert repaired["grafts"] == []
    shutil.rmtree(world.links)
    world.links.mkdir()
    for options in ([], ["--library-dir", world.sdk]):
        told = world.refuse(wheel, *options)
        assert "libamdhip64.so.7" in told and "torch/lib/libtorch_hip.so" in told
        assert "rocm[libraries]==7.1.0" in told
        assert ("is not searched" in told) == bool(options)


def test_sonames_come_from_the_packages(world: World) -> None:
    renamed = compile_library(world.sdk, "libhip_of_tomorrow.so.9")
    world.write_rocm(renamed.name)
    repaired = world.repair(world.write_torch(needs=str(renamed)))
    assert list(repaired["excluded"]) == [renamed.name]


def test_library_of_an_extra_that_is_not_required_is_a_fault(world: World) -> None:
    wheel = world.write_torch()
    draft = Draft("torch", "2.9.0", TAG, requires=["rocm==7.1.0"])
    draft.members = {name: data for name, data in read_members(wheel).items() if ".dist-info" not in name}
    told = world.refuse(draft.write(world.folder))
    assert "rocm_sdk_core" in told and "does not require" in told


def test_packages_of_an_environment_count(world: World) -> None:
    environment = world.folder / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True)
    (site,) = environment.glob("lib/python*/site-packages")
    for wheel in world.links.glob("*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(site)
    repaired = world.repair(world.write_torch(), "--python", environment / "bin" / "python", links=False)
    assert "rocm-sdk-core 7.1.0" in repaired["excluded"]["libamdhip64.so.7"]


def test_companion_counts_on_what_torch_has_and_requires(world: World) -> None:
    torch = world.write_torch()
    library = world.folder / "build-libs" / "libtorch_hip.so"
    compile_library(library.parent, library.name)
    companion = world.write_torch(str(library), name="torchvision")
    draft = Draft("torchvision", "0.24.0", TAG, requires=["torch==2.9.0"])
    draft.members = {name: data for name, data in read_members(companion).items() if ".dist-info" not in name}
    repaired = world.repair(draft.write(world.folder), "--find-links", torch)
    assert set(repaired["excluded"]) == {"libtorch_hip.so", "libamdhip64.so.7"}


def test_need_from_nowhere_is_a_fault_and_nothing_is_written(world: World) -> None:
    stray = compile_library(world.folder / "strays", "libstray.so.1")
    told = world.refuse(world.write_torch(), world.write_torch(str(stray), name="other"))
    assert "1 of 2 wheels" in told and "libstray.so.1, needed by other/lib/libother_hip.so" in told
    assert not world.out.exists() or list(world.out.iterdir()) == []


def test_stray_library_and_what_it_needs_are_grafted(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    strays = world.folder / "strays"
    deep = compile_library(strays, "libdeep.so.2", source="int deep(void) { return 42; }")
    stray = compile_library(
        strays, "libstray.so.1", str(deep), source="int deep(void); int stray(void) { return deep(); }"
    )
    beside = compile_library(world.folder / "beside", "libbeside.so", source="int beside(void) { return 1; }")
    deep.rename(strays / "libdeep.so.2.0.1")
    deep.symlink_to("libdeep.so.2.0.1")
    wheel = world.write_torch(
        str(stray),
        str(beside),  # in the wheel, and no run path leads to it: torch loads such libraries by their paths
        f"-Wl,-rpath,{strays}",
        **{"torch/lib/libbeside.so": beside.read_bytes()},
    )
    monkeypatch.setenv("LD_LIBRARY_PATH", str(world.sdk))
    monkeypatch.chdir(world.folder)
    repaired = world.repair(wheel, "--library-dir", "strays", "--output-dir", "out")
    assert [graft["library"] for graft in repaired["grafts"]] == ["libdeep.so.2", "libstray.so.1"]
    assert repaired["grafts"][1]["needed_by"] == ["torch/lib/libtorch_hip.so"]
    path = Path(repaired["path"])
    grafts = [name for name in read_members(path) if ".so." in name]
    assert len(grafts) == 2 and all(name.startswith("torch.libs/") for name in grafts)
    assert scan.scan_wheel(path).faults == ()
    again = world.folder / "again"
    world.repair(wheel, "--library-dir", strays, "--output-dir", again)
    assert (again / path.name).read_bytes() == path.read_bytes()
    unpacked = world.folder / "site"
    with zipfile.ZipFile(path) as archive:
        archive.extractall(unpacked)
    shutil.rmtree(strays)
    library = unpacked / "torch" / "lib" / "libtorch_hip.so"
    first = [str(world.hip), str(library.with_name("libbeside.so"))]
    script = f"import ctypes as c; [c.CDLL(p) for p in {first}]; print(c.CDLL({str(library)!r}).stray())"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.stdout == "42\n", done.stderr


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("/opt/build/lib:$ORIGIN:$ORIGIN/../x", "$ORIGIN:$ORIGIN/../x"),
        ("$ORIGIN::relative:", "$ORIGIN"),
        ("/opt/build/lib", None),
        (":", None),
        (f"{LONG_PATH}:/opt/build/lib", LONG_PATH),
    ],
    ids=["absolute", "empty", "nothing-left", "only-empty", "long"],
)
@pytest.mark.parametrize("tag", ["enable", "disable"])
def test_run_paths_of_builders_go_in_place(world: World, before: str, after: str | None, tag: str) -> None:
    wheel = world.write_torch(f"-Wl,-rpath,{before}", f"-Wl,--{tag}-new-dtags")
    old = world.read_library(wheel)
    repaired = world.repair(wheel)
    (change,) = repaired["changes"]
    assert change["in_place"] and change["run_paths"] == [{"old": before, "new": after or ""}]
    new = world.read_library(Path(repaired["path"]))
    binary = loader.read_host_binary_file(new)
    assert binary is not None
    assert [path.text for path in binary.run_paths] == ([after] if after else [])
    assert all(path.is_rpath == (tag == "disable") for path in binary.run_paths)
    assert new.stat().st_size == old.stat().st_size and b"/opt/build" not in new.read_bytes()
    assert stat.S_IMODE(new.stat().st_mode) == stat.S_IMODE(old.stat().st_mode)
    ctypes.CDLL(str(world.hip))
    assert ctypes.CDLL(str(new)).f
    assert scan.scan_wheel(Path(repaired["path"])).faults == ()


def test_run_path_that_shares_its_text_is_written_by_patchelf(world: World) -> None:
    """The linker keeps the symbol ``lib`` in the end of the run path: other text there would rename it."""
    source = 'const char *ORIGIN(void) { return "kept"; }'
    shared = compile_library(
        world.folder / "shared", "libshared.so", "-Wl,-rpath,/opt/build:$ORIGIN", source=source
    )
    binary = loader.read_host_binary_file(shared)
    assert binary is not None and binary.run_paths[0].is_shared, "this linker shares no text"
    repaired = world.repair(world.write_torch(**{"torch/lib/libshared.so": shared.read_bytes()}))
    (change,) = repaired["changes"]
    assert not change["in_place"]
    new = world.read_library(Path(repaired["path"]), "libshared.so")
    assert [path.text for path in loader.read_host_binary_file(new).run_paths] == ["$ORIGIN"]  # type: ignore[union-attr]
    function = ctypes.CDLL(str(new)).ORIGIN
    function.restype = ctypes.c_char_p
    assert function() == b"kept"


def test_executable_stack_is_refused(world: World) -> None:
    told = world.refuse(world.write_torch("-Wl,-z,execstack"))
    assert "torch/lib/libtorch_hip.so" in told and "patchelf --clear-execstack" in told


def test_tag_can_be_asked_for_and_is_not_made_up(world: World) -> None:
    wheel = world.write_torch("-lm")
    told = world.refuse(
        wheel, "--plat", f"manylinux_2_5_{MACHINE}" if MACHINE == "x86_64" else "manylinux_2_17"
    )
    assert "GLIBC_2." in told and "libtorch_hip.so" in told
    repaired = world.repair(wheel, "--plat", "manylinux_2_39")
    assert repaired["platforms"] == [f"manylinux_2_39_{MACHINE}"]


@pytest.mark.skipif(MACHINE != "x86_64", reason="manylinux1 is of x86_64")
def test_right_tags_in_another_order_stay(world: World) -> None:
    draft = Draft("plain", "1.0", "cp311-cp311-manylinux1_x86_64.manylinux_2_5_x86_64")
    library = compile_library(world.folder / "plain", "libplain.so", source="int f(void) { return 1; }")
    draft.members = {"plain/libplain.so": library.read_bytes()}
    wheel = draft.write(world.folder)
    repaired = world.repair(wheel)
    assert repaired["platforms"] == []
    path = Path(repaired["path"])
    assert path.name == wheel.name and path.read_bytes() == wheel.read_bytes()


def test_device_code_has_no_tag(world: World) -> None:
    kernels = {
        "torch/k.hsaco": elf_header(224, 0x4C) + b"kernel code",
        "torch/k.co": bundle("gfx942"),
        "torch/cut.so": b"\x7fELF\x02\x01",
    }
    draft = Draft("torch_device", "2.9.0", TAG, members={**kernels})
    repaired = world.repair(draft.write(world.folder))
    assert repaired["platforms"] == []
    assert "no libc to compute a tag from" in repaired["notes"][0]
    assert Path(repaired["path"]).read_bytes() == Path(repaired["source"]).read_bytes()
    wheel = world.write_torch(**kernels)
    repaired = world.repair(wheel)
    assert repaired["platforms"]
    everywhere = shutil.copy(wheel, wheel.with_name("torch-2.9.0-py3-none-any.whl"))
    told = world.refuse(everywhere)
    assert "torch/lib/libtorch_hip.so" in told


def test_user_can_say_what_is_there(world: World) -> None:
    stray = compile_library(world.folder / "strays", "libstray.so.1")
    repaired = world.repair(world.write_torch(str(stray)), "--exclude", "libstray.so.1")
    assert repaired["excluded"]["libstray.so.1"] == "--exclude"


def test_a_recipe_can_say_what_is_there(world: World) -> None:
    stray = compile_library(world.folder / "strays", "libstray.so.1")
    wheel = world.write_torch(str(stray), name="mine")
    recipe = (CLONE / "repos/pytorch_audio.yaml").read_text(encoding="utf-8")
    recipe = recipe.replace("name: pytorch_audio", "name: mine").replace("torchaudio", "mine")
    recipe = recipe.replace("exclude: [libgomp.so.1]", "exclude: [libstray.so.1]")
    (world.folder / "recipes").mkdir()
    (world.folder / "recipes/mine.yaml").write_text(recipe, encoding="utf-8")
    world.refuse(wheel)
    repaired = world.repair(wheel, "--recipe-dir", world.folder / "recipes")
    assert repaired["excluded"]["libstray.so.1"] == "the recipe of mine"
    words = ["audit", "--json", repaired["path"], "--find-links", world.links]
    for more in ((), ("--by-recipe", "--recipe-dir", world.folder / "recipes")):
        report = call(*words, *more, code=None).json
        assert report["wheels"] and ("libstray" in str(report)) == (not more), report


def test_wrong_input_leaves_with_2(world: World) -> None:
    wheel = world.write_torch()
    variant = wheel.with_name(wheel.name.replace(".whl", "-rocm7.whl"))
    shutil.copy(wheel, variant)
    mac = shutil.copy(wheel, wheel.with_name("torch-2.9.0-cp311-cp311-macosx_11_0_arm64.whl"))
    for words, text in [
        ([variant], "wheel stamp"),
        ([mac], "macosx"),
        ([wheel, "--plat", "manylinux_9_9"], "manylinux_2_28"),
        ([wheel, "--find-links", world.folder / "none"], "--find-links"),
        ([wheel, "--library-dir", world.folder / "none"], "--library-dir"),
    ]:
        assert text in world.refuse(*words, code=2), words
    assert not world.out.exists()


def test_symbols_that_no_tag_allows_are_the_only_fault(world: World) -> None:
    """As of a compiler on a distribution that is newer than auditwheel's tables."""
    (world.folder / "map").write_text("GLIBC_9.99 { global: of_tomorrow; };")
    script = f"-Wl,--version-script={world.folder / 'map'}"
    libc = compile_library(
        world.folder / "libc", "libc.so", script, source="int of_tomorrow;", soname="libc.so.6"
    )
    user = compile_library(
        world.folder / "user",
        "libuser.so",
        str(libc),
        source="extern int of_tomorrow; int *f(void) { return &of_tomorrow; }",
    )
    text = world.refuse(world.write_torch(**{"torch/lib/libuser.so": user.read_bytes()}))
    assert "GLIBC_9.99 in torch/lib/libuser.so" in text
    assert "--library-dir" not in text
