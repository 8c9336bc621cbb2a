"""The doctor on faked machines: every check finds its fault, names a fix, and is silent elsewhere.

The trees of /proc, /sys and /dev are constructed after the kernel's documentation of those files; the
messages of tools are nobody's: no tool is started.
"""

from __future__ import annotations

import errno
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from binaries import elf, kpack_reference
from commands import take_down, transcript
from pythons import environment, install, install_torch
from wheels import library

from rocm_wheels.cli import boundary
from rocm_wheels.cli.machine import doctor_command
from rocm_wheels.core import errors
from rocm_wheels.gpus.gpu import Gpu, Hardware, RocmInstallation
from rocm_wheels.gpus.kfd import NO_DEVICE_FILES
from rocm_wheels.user import doctor, doctor_system, doctor_variables, installed_packages
from rocm_wheels.user.doctor_subject import DoctorSubject
from rocm_wheels.user.machine import DeviceFile, MachineFacts, ProcessUser, read_machine_facts

_ = transcript  # a fixture for every test here
MESSAGES = "doctor"

USER = ProcessUser("ada", 1000, frozenset([1000]))
IN_GROUP = ProcessUser("ada", 1000, frozenset([1000, 992]))


def gpu(gfx: str | None = "gfx1100", index: int = 0, **more: Any) -> Gpu:
    """An AMD GPU as the driver's topology tells of it."""
    about: dict[str, Any] = {"native": gfx, "index": index, "source": "kfd", "confidence": "read", **more}
    return Gpu("amd", gfx, **about)


def root_of(folder: Path, files: Mapping[str, str] | None = None, *, render: bool = True) -> Path:
    """The files of a machine with one card and a loaded driver, in ``folder``."""
    device = "sys/bus/pci/devices/0000:03:00.0"
    driver = folder / "sys/bus/pci/drivers/amdgpu"
    driver.mkdir(parents=True)
    content = {
        "proc/version": "Linux version 6.8.0-45-generic (buildd@host) (gcc) #45-Ubuntu SMP\n",
        "proc/cmdline": "BOOT_IMAGE=/vmlinuz root=UUID=1 ro quiet\n",
        "sys/module/amdgpu/version": "6.12.12\n",
        f"{device}/vendor": "0x1002\n",
        f"{device}/device": "0x744c\n",
        f"{device}/class": "0x030000\n",
        "sys/class/drm/renderD128/device/vendor": "0x1002\n",
        "etc/group": "root:x:0:\nvideo:x:44:\nrender:x:992:\n",
        "dev/kfd": "",
        **({"dev/dri/renderD128": ""} if render else {}),
        **(files or {}),
    }
    for name, text in content.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (folder / device / "driver").symlink_to(driver)
    return folder


def machine(folder: Path, files: Mapping[str, str] | None = None, **changes: Any) -> MachineFacts:
    """That machine as it is read; ``refused`` is what opening a device gives."""
    refused = changes.pop("refused", 0)
    user = changes.pop("user", USER)
    without = changes.pop("without", ())
    env = changes.pop("env", {})
    root = root_of(folder / "root", files, render=changes.pop("render", True))
    for name in without:
        path = root / name
        path.unlink() if path.is_file() or path.is_symlink() else path.rename(root / "gone")
    found = read_machine_facts(env, root=root, platform="linux", user=user, opening=lambda path: refused)
    kfd = replace(found.kfd, gid=992, mode=0o660)
    nodes = tuple(replace(one, gid=992, mode=0o660) for one in found.render)
    whole = {"shared_memory": 1 << 34, "locked_memory": None, "kfd": kfd, "render": nodes}
    return replace(found, **{**whole, **changes})


def subject(folder: Path, **given: Any) -> DoctorSubject:
    """A sound machine with a torch for gfx1100, apart from what is given."""
    place = given.pop("place", None) or environment(folder / "venv")
    if not any(place.site_packages.iterdir()) and given.pop("torch", True):
        install_torch(place.site_packages, "gfx1100", "gfx90a:xnack+", requires=["triton==3.5.1"])
        install(place.site_packages, "triton", "3.5.1")
    (place.site_packages / "pip").mkdir(exist_ok=True)
    given.pop("torch", None)
    return DoctorSubject(
        hardware=given.pop("hardware", Hardware((gpu(),), driver="6.12.12")),
        installed=installed_packages.read_environment_packages(place),
        machine=given.pop("machine", None) or machine(folder),
        env=given.pop("env", {}),
        **given,
    )


def found(findings: tuple[errors.Finding, ...], check: str) -> list[errors.Finding]:
    """The findings of a check that are not ok."""
    return [one for one in findings if one.check == check and one.severity != "ok"]


@pytest.mark.contract
def test_a_sound_machine_is_called_sound(tmp_path: Path) -> None:
    findings = doctor.run_checks(subject(tmp_path))
    assert [(one.check, one.message) for one in findings if one.severity in {"warning", "error"}] == []
    assert doctor.summarize_findings(findings) == "no problems found"
    yes = next(one for one in findings if one.check == "torch-kernels")
    assert yes.severity == "ok"
    assert yes.message.startswith("kernels of torch for gfx1100: yes, code for gfx1100 (")
    assert yes.message.endswith("torch/lib/libtorch_hip.so)")


@pytest.mark.contract
def test_nothing_at_all_is_no_error(tmp_path: Path) -> None:
    bare = MachineFacts("linux", home=None)
    findings = doctor.run_checks(subject(tmp_path, torch=False, hardware=Hardware(), machine=bare))
    assert {one.severity for one in findings} == {"ok", "info"}
    assert all(one.tip for one in findings if one.severity == "info")


Make = Callable[[Path], DoctorSubject]
WSL = "Linux version 5-microsoft-standard-WSL2 "
DOCKER = {".dockerenv": ""}
TWO = (gpu(), gpu(index=1))


def on(files: Mapping[str, str] | None = None, *, cards: tuple[Gpu, ...] = (gpu(),), **changes: Any) -> Make:
    """A machine that differs from the sound one."""
    return lambda folder: subject(folder, machine=machine(folder, files, **changes), hardware=Hardware(cards))


def having(*cards: Gpu, **env: str) -> Make:
    """A sound machine with these GPUs and variables."""
    return lambda folder: subject(folder, hardware=Hardware(cards or (gpu(),)), env=env)


def posing(native: str, gfx: str, version: str) -> Make:
    """A machine whose GPU poses as another."""
    return having(gpu(gfx, native=native), HSA_OVERRIDE_GFX_VERSION=version)


def count_rows(rows: Iterable[tuple[str, Any, str]]) -> list[str]:
    """Return names of rows: their checks, numbered."""
    counts = Counter[str]()
    names = []
    for check, *_ in rows:
        counts[check] += 1
        names.append(f"{check} {counts[check]}")
    return names


def take_down_findings(findings: Sequence[errors.Finding]) -> None:
    for finding in findings:
        text = f"{finding.severity}: {finding.message}\ntip: {finding.tip}"
        take_down(["doctor", "--checks", finding.check], 0, text)


CASES: list[tuple[str, Make, str]] = [  # check, machine, severity; what is said is taken down
    ("driver", on(without=["sys/module/amdgpu"]), "error"),
    ("driver", on({"etc/modprobe.d/no.conf": "# x\nblacklist amdgpu\n"}), "warning"),
    ("driver", on({"proc/cmdline": "modprobe.blacklist=nouveau,amdgpu"}), "warning"),
    ("driver", on(without=["sys/bus/pci/devices/0000:03:00.0/driver"]), "warning"),
    ("kfd", on(refused=errno.EACCES, render=False, without=["sys/class/drm/renderD128/device/vendor"]),
     "error"),
    ("kfd", on({"etc/group": "render:x:992:bob,ada\n"}, refused=errno.EACCES), "error"),
    ("kfd", on(refused=errno.EACCES, user=IN_GROUP), "error"),
    ("kfd", on({**DOCKER, "etc/group": ""}, refused=errno.EACCES), "error"),
    ("kfd", on(DOCKER, refused=errno.EPERM), "error"),
    ("kfd", on(DOCKER, without=["dev/kfd"]), "error"),
    ("kfd", on({"run/.containerenv": ""}, without=["dev/kfd"]), "error"),
    ("kfd", on({"proc/1/cgroup": "0::/kubepods/x\n"}, without=["dev/kfd"]), "error"),
    ("kfd", on({".singularity.d/runscript": ""}, without=["dev/kfd"]), "error"),
    ("kfd", on(without=["dev/kfd"]), "error"),
    ("kfd", on(refused=errno.ENXIO), "error"),
    ("kfd", on(refused=errno.EACCES, kfd=DeviceFile(Path("/dev/kfd"), errno.EACCES, 0o600, 0)), "error"),
    ("render", on(render=False), "error"),
    ("render", on(DOCKER, render=False), "error"),
    ("wsl", on({"proc/version": WSL}, without=["dev/kfd"]), "error"),
    ("wsl", on({"proc/version": WSL, "dev/dxg": ""}, without=["dev/kfd"]), "info"),
    ("shared-memory", on(DOCKER, shared_memory=64 << 20), "info"),
    ("iommu", having(*TWO), "warning"),
    ("numa", on({"proc/sys/kernel/numa_balancing": "1\n"}, cards=TWO), "info"),
    ("locked-memory", on(cards=TWO, locked_memory=8 << 20), "info"),
    ("caches", on(home=Path("/nowhere"), home_writable=False), "warning"),
    ("gpus", lambda p: subject(p, hardware=Hardware((Gpu("nvidia"),)), machine=MachineFacts("linux")),
     "info"),
    ("hidden-gpus", having(gpu(visible=False, hidden_by="HIP_VISIBLE_DEVICES"), HIP_VISIBLE_DEVICES="-1"),
     "warning"),
    ("hidden-gpus", having(gpu(), gpu("gfx942", visible=False, hidden_by="/dev/dri/renderD9, which is")),
     "info"),
    ("hidden-gpus", having(gpu(), gpu("gfx803", visible=False, hidden_by="kfd, which does not list it")),
     "info"),
    ("odd-gpus", having(gpu("gfx1032", confidence="derived", notes=("revision df is gfx1031",))), "info"),
    ("unknown-gpus", having(gpu(None, address="0000:03:00.0")), "warning"),
    ("odd-gpus", lambda p: subject(p, hardware=Hardware((gpu(),), faults=("X_GPU=7 is",)), env={"X_GPU": ""}),
     "warning"),
    ("torch-kernels", having(gpu("gfx1101")), "error"),
    ("torch-kernels", having(gpu("gfx90a")), "error"),
    ("torch-kernels", having(gpu("gfx1100"), gpu("gfx803", 1)), "warning"),
    ("harmful", having(AMD_SERIALIZE_KERNEL="3"), "warning"),
    ("harmful", having(CUDA_VISIBLE_DEVICES=""), "warning"),
    ("harmful", having(HSA_ENABLE_SDMA="0"), "info"),
    ("devices", having(HIP_VISIBLE_DEVICES="0,1", ROCR_VISIBLE_DEVICES="0"), "error"),
    ("override", posing("gfx1100", "gfx1101", "11.0.1"), "warning"),
    ("override", posing("gfx1030", "gfx1100", "11.0.0"), "error"),
    ("override", posing("gfx1103", "gfx1100", "11.0.0"), "info"),
    ("override", having(HSA_OVERRIDE_GFX_VERSION="11.0.0"), "info"),
    ("architectures", having(PYTORCH_ROCM_ARCH="gfx942"), "warning"),
    ("architectures", having(PYTORCH_ROCM_ARCH="gfx9000"), "warning"),
    ("allocator", having(PYTORCH_HIP_ALLOC_CONF="max_split_size:128"), "error"),
    ("allocator", having(PYTORCH_HIP_ALLOC_CONF="expandable_segments=True"), "error"),
    ("allocator", having(PYTORCH_ALLOC_CONF="backend:jemalloc"), "error"),
]  # fmt: skip


@pytest.mark.contract
@pytest.mark.parametrize(("check", "make", "severity"), CASES, ids=count_rows(CASES))
def test_each_fault_is_found_and_has_a_fix(tmp_path: Path, check: str, make: Make, severity: str) -> None:
    findings = doctor.run_checks(make(tmp_path))
    said = found(findings, check)
    assert [one.severity for one in said] == [severity]
    take_down_findings(said)
    assert all(one.tip for one in findings if one.severity != "ok")


SPLIT = elf({".rocm_kpack_ref": kpack_reference("../.kpack/torch_@GFXARCH@.kpack")})
INSTALLED: list[tuple[str, Callable[[Path], object], str]] = [
    ("torch", lambda s: install_torch(s, hip=None, cuda="12.8", version="2.9.1"), "error"),
    ("torch", lambda s: install_torch(s, hip=None, version="2.9.1+cpu"), "error"),
    ("torch", lambda s: install(s, "torch", "2.9.1+rocm7.1"), "error"),
    ("torch-kernels", install_torch, "error"),
    ("torch-kernels", lambda s: install_torch(s, **{"torch/lib/libtorch_hip.so": library("gfx1100")[:-9]}),
     "error"),
    ("torch-kernels", lambda s: install_torch(s, version="2.9.1", **{"torch/lib/libtorch_hip.so": elf(
        {".rocm_kpack_ref": kpack_reference("../.kpack/torch_@GFXARCH@.kpack")})}), "error"),
    ("torch-kernels", lambda s: install_torch(s, version="2.9.1", **{"torch/lib/libtorch_hip.so": SPLIT}),
     "error"),
    ("companion-kernels", lambda s: (install_torch(s, "gfx1100"), install(
        s, "torchvision", "0.24.1", files={"torchvision/_C.so": SPLIT})), "warning"),
    ("archive-runtime", lambda s: (install_torch(s, **{"torch/lib/libtorch_hip.so": SPLIT}), install(
        s, "rocm-sdk-core", "7.2.0", files={"_rocm_sdk_core/lib/libamdhip64.so.7": b""})), "error"),
    ("torch-libraries", lambda s: install_torch(
        s, "gfx1100", **{"torch/lib/libaotriton_v2.so.0.11": library("gfx942")}), "info"),
    ("library-kernels", lambda s: (install_torch(s, "gfx1100"), install(
        s, "rocm-sdk-core", "7.2.0", files={
            "_rocm_sdk_libraries/lib/rocblas/library/TensileLibrary_lazy_gfx942.dat": b""})), "warning"),
    ("asan", lambda s: install_torch(s, "gfx1100", version="2.9.1+rocm7.1.0.asan"), "error"),
    ("kinds", lambda s: (install_torch(s, "gfx1100"), install(s, "torchvision", "0.24.1+cpu")), "error"),
    ("triton", lambda s: (install_torch(s, "gfx1100", requires=["pytorch-triton-rocm==3.5.1"]),
                          install(s, "triton", "3.5.0"), install(s, "pytorch-triton-rocm", "3.5.1")),
     "error"),
    ("requirements", lambda s: install_torch(s, "gfx1100", requires=["rocm[libraries]==7.1.0"]), "error"),
    ("requirements", lambda s: (install_torch(s, "gfx1100", requires=["rocm[libraries]==7.1.0"]),
                                install(s, "rocm", "7.1.0", requires=[
                                    'rocm-sdk-libraries==7.1.0; extra == "libraries"',
                                    'rocm-sdk-devel==7.1.0; extra == "devel"'])), "error"),
    ("requirements", lambda s: (install_torch(s, "gfx1100"),
                                install(s, "torchaudio", "2.8.0", requires=["torch==2.8.0"])), "error"),
    ("requirements", lambda s: (install_torch(s, "gfx1100"),
                                install(s, "torchvision", "0.24.1", requires=["numpy", "torch==2.9.1"])),
     "error"),
    ("requirements", lambda s: (install_torch(s, "gfx1100", requires=["sympy>=1.13", "jinja2"]),
                                install(s, "sympy", "1.14", requires=["mpmath<1.4", 'gmpy2; extra == "x"']),
                                install(s, "jinja2", "3.1"), install(s, "mpmath", "1.4.0")), "error"),
    ("release-line", lambda s: (install_torch(s, "gfx1100"), install(s, "torchvision", "0.23.0")), "warning"),
    ("interpreter", lambda s: (install_torch(s, "gfx1100"),
                               install(s, "torchao", "0.14.0", tag="cp312-cp312-linux_x86_64")), "error"),
    ("rocm-packages", lambda s: (install_torch(s, "gfx1100"), install(s, "rocm", "7.1.0"),
                                 install(s, "rocm-sdk-core", "7.2.0"), install(s, "rocm-sdk-devel", "7.1.0"),
                                 (s / "_rocm_sdk_devel").mkdir()), "error"),
    ("companion-kernels", lambda s: (install_torch(s, "gfx1100"), install(
        s, "torchvision", "0.24.1", files={"torchvision/_C.so": library("gfx942")})), "warning"),
    ("unreadable", lambda s: (install_torch(s, "gfx1100"), (s / "torchao-1.dist-info").mkdir()), "warning"),
    ("twice", lambda s: (install_torch(s, "gfx1100"), install(s, "torch", "2.8.0")), "error"),
    ("companion-kernels", lambda s: (install_torch(s, "gfx1100"), install(
        s, "torchvision", "0.24.1", files={"torchvision/_C.so": library("gfx1100")[:-9]})), "error"),
]  # fmt: skip


def test_what_pins_no_torch_goes_with_any(tmp_path: Path) -> None:
    place = environment(tmp_path / "venv")
    install_torch(place.site_packages, "gfx1100")
    install(place.site_packages, "torchcodec", "0.16.0+cpu")
    (said,) = (one for one in doctor.run_checks(subject(tmp_path, place=place)) if one.check == "kinds")
    assert said.severity == "ok" and "torchcodec 0.16.0+cpu, for processors" in said.message


@pytest.mark.contract
@pytest.mark.parametrize(("check", "fill", "severity"), INSTALLED, ids=count_rows(INSTALLED))
def test_each_fault_of_an_environment_is_found(
    tmp_path: Path, check: str, fill: Callable[[Path], object], severity: str
) -> None:
    place = environment(tmp_path / "venv")
    fill(place.site_packages)
    said = [
        one for one in found(doctor.run_checks(subject(tmp_path, place=place)), check)
        if one.severity == severity
    ]  # fmt: skip
    assert len(said) == 1 and said[0].tip
    take_down_findings(said)


def test_a_torch_of_the_user_and_one_of_the_environment(tmp_path: Path) -> None:
    user = tmp_path / "local"
    place = replace(environment(tmp_path / "venv", also=[user]), user_site=user)
    install_torch(user, hip=None, cuda="12.6", version="2.7.0")
    install_torch(place.site_packages, "gfx1100")
    texts = [one.message for one in found(doctor.run_checks(subject(tmp_path, place=place)), "twice")]
    assert [text.split(":")[0].split(",")[0] for text in texts] == [
        f"torch 2.7.0 is in the user's own folder {user}",
        "torch is installed twice",
    ]


def test_two_releases_of_rocm(tmp_path: Path) -> None:
    place = environment(tmp_path / "venv")
    install_torch(place.site_packages, "gfx1100")
    install(place.site_packages, "rocm-sdk-core", "7.2.0")
    system = Hardware((gpu(),), (RocmInstallation("6.4.1", "info", "/opt/rocm-6.4.1"),))

    def said(env: dict[str, str]) -> list[tuple[str, str]]:
        findings = doctor.run_checks(subject(tmp_path / str(len(env)), place=place, hardware=system, env=env))
        return [(one.severity, one.tip) for one in found(findings, "rocm")]

    assert said({}) == [
        ("info", "leave /opt/rocm-6.4.1 out of LD_LIBRARY_PATH and ROCM_PATH when torch runs")
    ]
    leading = {"LD_LIBRARY_PATH": "/usr/lib:/opt/rocm-6.4.1/lib", "ROCM_PATH": "/opt/rocm-6.4.1"}
    assert said(leading) == [("error", "unset ROCM_PATH LD_LIBRARY_PATH")]
    assert said({"ROCM_PATH": "/opt/rocm-6.4.1"}) == [("warning", "unset ROCM_PATH")]


@pytest.mark.parametrize(
    ("system", "package", "severities"),
    [("7.2.1", "", []), ("6.4.1", "", ["error"]), ("", "", ["error"]), ("", "7.2.4", [])],
)
def test_a_torch_on_an_installed_rocm_wants_that_one(
    tmp_path: Path, system: str, package: str, severities: list[str]
) -> None:
    place = environment(tmp_path / "venv")
    metadata = install_torch(place.site_packages, "gfx1100") / "METADATA"
    metadata.write_text(f"{metadata.read_text()}Requires-External: rocm (==7.2.4)\n")
    if package:
        install(place.site_packages, "rocm-sdk-core", package)
        install(place.site_packages, "rocm", package)
    here = (RocmInstallation(system, "info", "/opt/rocm"),) if system else ()
    findings = doctor.run_checks(subject(tmp_path, place=place, hardware=Hardware((gpu(),), here)))
    assert [one.severity for one in found(findings, "rocm")] == severities


def test_an_override_that_is_no_version_is_told_of_once(tmp_path: Path) -> None:
    look = subject(tmp_path, env={"HSA_OVERRIDE_GFX_VERSION": "10.3"})
    assert found(doctor.run_checks(look), "override") == []


def test_configure_is_advised_for_the_python_that_was_named(tmp_path: Path) -> None:
    posing = Hardware((gpu("gfx1100", native="gfx1103"),))
    env = {"HSA_OVERRIDE_GFX_VERSION": "11.0.0"}
    look = subject(tmp_path, hardware=posing, env=env, python=tmp_path / "venv")
    (finding,) = found(doctor.run_checks(look), "override")
    assert f"rocm-wheels configure --print --python {tmp_path}/venv   #" in finding.tip


def test_an_override_is_not_judged_for_a_machine_to_be(tmp_path: Path) -> None:
    findings = doctor.run_checks(subject(tmp_path, env={"HSA_OVERRIDE_GFX_VERSION": "10.3.0"}, stated=True))
    assert not any("unset" in (finding.tip or "") for finding in findings)


def test_nothing_is_advised_into_the_environment_of_the_program_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = subject(tmp_path, torch=False, is_own=True)
    monkeypatch.chdir(tmp_path)
    (finding,) = found(doctor.run_checks(own), "torch")
    assert (finding.tip or "").endswith("--venv my-torch")
    Path(".venv").symlink_to("venv")
    (finding,) = found(doctor.run_checks(own), "torch")
    assert (finding.tip or "").endswith("--venv my-torch")


def test_device_files_that_are_not_here_are_told_of_once(tmp_path: Path) -> None:
    fault = f"{NO_DEVICE_FILES} (/dev/dri/renderD128): no program can use them"
    look = subject(tmp_path, hardware=Hardware(faults=(fault, "rocminfo fails")))
    assert [one.message for one in found(doctor.run_checks(look), "odd-gpus")] == ["rocminfo fails"]


def test_variables_that_lead_astray(tmp_path: Path) -> None:
    place = environment(tmp_path / "venv")
    install_torch(place.site_packages, "gfx1100", **{"torch/lib/libamdhip64.so": b""})
    other = tmp_path / "rocm-6" / "lib"
    other.mkdir(parents=True)
    (other / "libamdhip64.so.6").touch()
    env = {"HIP_PATH": "/gone", "LD_PRELOAD": "/gone/rocm/lib/x.so", "LD_LIBRARY_PATH": f"/usr/lib:{other}"}
    said = found(doctor.run_checks(subject(tmp_path, place=place, env=env)), "rocm-variables")
    assert [(one.severity, one.tip) for one in said] == [
        ("warning", "unset HIP_PATH"),
        ("warning", "unset LD_PRELOAD"),
        ("warning", "unset LD_LIBRARY_PATH"),
    ]
    assert f"LD_LIBRARY_PATH={other} holds other HIP libraries" in said[2].message


def test_a_machine_to_be_has_no_devices_here(tmp_path: Path) -> None:
    stated = subject(
        tmp_path, stated=True, machine=MachineFacts("linux"), python=tmp_path / "venv",
        hardware=Hardware((gpu("gfx942", source="forced", confidence="forced"),)),
    )  # fmt: skip
    findings = doctor.run_checks(stated)
    here = set(map(doctor.get_check_name, doctor_system.LOCAL_CHECKS))
    assert [one for one in findings if one.check in here] == []
    no = found(findings, "torch-kernels")[0]
    python = stated.installed.environment.python
    assert no.tip == f"rocm-wheels install torch torchvision torchaudio --python {python} --gfx gfx942"


def test_several_kinds_of_gpu_get_an_answer_each(tmp_path: Path) -> None:
    cards = Hardware(
        (gpu("gfx1100"), gpu("gfx1100", 1), gpu("gfx1201", 2), gpu("gfx1036", 3, integrated=True))
    )
    one = subject(tmp_path, hardware=cards, env={"HSA_XNACK": "1"})
    said = doctor.make_report_json(one, doctor.run_checks(one))
    assert [(v["project"], v["gfx"], v["served"], v["by"]) for v in said["kernels"]] == [
        ("torch", "gfx1100", True, "gfx1100"),
        ("torch", "gfx1201", False, None),
        ("torch", "gfx1036", False, None),
    ]
    assert (said["errors"], said["warnings"]) == (0, 2)  # gfx1201, iommu; the integrated one is no matter


def test_where_some_gpus_are_served_the_others_are_to_be_left_alone(tmp_path: Path) -> None:
    cards = (gpu("gfx1036", 0, integrated=True), gpu("gfx1100", 1), gpu("gfx942", 2))
    said = found(doctor.run_checks(subject(tmp_path, hardware=Hardware(cards))), "torch-kernels")
    assert [one.severity for one in said] == ["info", "warning"]
    assert all(one.tip.startswith("export HIP_VISIBLE_DEVICES=1   # or: rocm-wheels install") for one in said)


@pytest.mark.parametrize(
    ("tag", "version", "fits"),
    [
        ("cp311-cp311-linux_x86_64", "3.11.9", True),
        ("cp312-cp312-linux_x86_64", "3.11.9", False),
        ("cp39-abi3-manylinux_2_28_x86_64", "3.11.9", True),
        ("cp312-abi3-manylinux_2_28_x86_64", "3.11.9", False),
        ("cp311-none-any", "3.11.9", True),
        ("py3-none-any", "3.11.9", True),
        ("py2.py3-none-any", "3.11.9", True),
        ("cp313-cp313t-linux_x86_64", "3.13.0", False),
    ],
)
def test_tags_that_a_python_can_use(tmp_path: Path, tag: str, version: str, fits: bool) -> None:
    place = environment(tmp_path / "venv", version=version)
    install(place.site_packages, "torchao", "0.14.0", tag=tag)
    assert (found(doctor.run_checks(subject(tmp_path, place=place)), "interpreter") == []) is fits


def test_other_systems_have_no_devices_of_linux(tmp_path: Path) -> None:
    for platform in ("win32", "darwin"):
        other = read_machine_facts({}, root=tmp_path, platform=platform)
        findings = doctor.run_checks(subject(tmp_path / platform, machine=other))
        here = set(map(doctor.get_check_name, doctor_system.LOCAL_CHECKS))
        assert not here & {one.check for one in findings}


def test_a_build_for_something_else_has_no_kernels(tmp_path: Path) -> None:
    place = environment(tmp_path / "venv")
    install_torch(place.site_packages, hip=None, version="2.9.1+cpu")
    one = subject(tmp_path, place=place)
    said = doctor.make_report_json(one, doctor.run_checks(one))["kernels"]
    assert [(v["project"], v["gfx"], v["served"]) for v in said] == [("torch", "gfx1100", False)]


@pytest.mark.contract
def test_the_report_is_by_group_with_the_worst_last(tmp_path: Path) -> None:
    findings = doctor.run_checks(
        subject(tmp_path, hardware=Hardware((gpu("gfx1201"),)), env={"HSA_XNACK": "1"})
    )
    lines = list(doctor.format_findings(findings, lambda text, _: text))
    assert [line for line in lines if not line.startswith(" ")] == [
        "machine:", "ROCm:", "packages:", "kernels:", "variables:", "1 error",
    ]  # fmt: skip
    assert lines.index("kernels:") < lines.index(next(line for line in lines if line.startswith("  error")))
    assert all(line.strip() for line in lines)


def test_known_issues_are_those_of_this_torch_rocm_and_gpu(tmp_path: Path) -> None:
    place = environment(tmp_path / "venv")
    install_torch(place.site_packages, "gfx1100", "gfx942", version="2.12.0+rocm7.14.0", hip="7.14.60850")

    def said(name: str, gfx: str) -> list[tuple[str, str]]:
        findings = doctor.run_checks(subject(tmp_path / name, place=place, hardware=Hardware((gpu(gfx),))))
        return [(one.severity, one.message) for one in found(findings, "known-issues")]

    known = [text for severity, text in said("a", "gfx1100") if severity == "warning"]
    assert any(
        text.startswith("torch 2.12.0+rocm7.14.0 with ROCm 7.14.0 on gfx1100: flash") for text in known
    )
    assert not any(
        "flash and memory-efficient attention do not start" in text for _, text in said("b", "gfx942")
    )
    assert said("c", "gfx1201") == []  # it has no kernels for that: the rest does not matter


def test_the_torch_for_the_machine_is_named(tmp_path: Path) -> None:
    def tell(name: str, *cards: Gpu) -> list[str]:
        findings = doctor.run_checks(subject(tmp_path / name, torch=False, hardware=Hardware(cards)))
        return [one.message for one in findings if one.check == "recommended"]

    (served,), (nothing,) = tell("a", gpu("gfx1100")), tell("b")
    assert ": rocm, from https://" in served and "with code for gfx1100" in served
    assert ": cpu, from https://download.pytorch.org/whl/cpu" in nothing


@pytest.mark.parametrize(
    ("target", "version", "told"),
    [
        ("gfx1250", "10.1.0a20261120+bkc.20261120", "--index-url https://bkc.repo.amd.com/rocm/whl-next/"),
        ("gfx1250", "10.1.0a20261120", "--index-url https://nightly.repo.amd.com/rocm/whl-next/"),
        ("gfx1100", "10.1.0rc1", "--index-url https://rc.repo.amd.com/rocm/whl-next/"),
        ("gfx1100", "10.1.0a20261120+bkc.20261120", "rocm-wheels install torch"),  # it has no gfx1100
    ],
)
def test_a_package_of_rocm_comes_from_the_stream_of_its_version(
    tmp_path: Path, target: str, version: str, told: str
) -> None:
    looked = subject(tmp_path, torch=False, hardware=Hardware((gpu(target),)))
    assert told in looked.format_rocm_pip(f"rocm=={version}", f"=={version}")


def test_the_table_of_variables_is_whole() -> None:
    table = doctor_variables.load_variable_harms()
    for name, cases in table.variables.items():
        assert name.isupper() and all(case.text and case.source in table.sources for case in cases)
    assert list(table.allocator_keys.keys) == sorted(table.allocator_keys.keys)


@pytest.mark.contract
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--python", "nothing/here"], "there is no Python nothing/here"),
        (["--python", ""], "the path is empty"),
        (["--python", "{folder}"], "no Python in the folder"),
        (["--gfx", "mi301"], "no GPU of the tables is called 'mi301'"),
        (["--gfx", ""], "--gfx names no GPU"),
        (["--gfx", "gfx11-generic"], "is code for several GPUs"),
        (["--gfx", "gfx110"], "is no GPU target; did you mean gfx1100, gfx1101, gfx1102 or gfx1103?"),
        (["--gfx", "gfx942,none"], "either GPUs or none"),
        (["--gfx"], "requires an argument"),
        (["--jsno"], "No such option"),
        (["torch"], "unexpected extra argument"),
    ],
)
def test_wrong_input_is_refused_with_one_message(
    tmp_path: Path,
    words: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        monkeypatch.delenv(name, raising=False)
    assert boundary.run_command(doctor_command, [word.format(folder=tmp_path) for word in words]) == 2
    said = capsys.readouterr()
    assert message in said.err and said.out == ""


def test_every_check_has_a_name_of_its_own_and_a_test() -> None:
    names = [doctor.get_check_name(check) for checks in doctor.CHECKS.values() for check in checks]
    assert len(names) == len(set(names))
    text = Path(__file__).read_text()
    never_a_fault = {"system", "python"}
    assert {name for name in names if f'"{name}"' not in text} <= never_a_fault
