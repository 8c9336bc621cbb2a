"""The machine that is chosen for: this one, or one that is stated. And the index, when none is named."""

from __future__ import annotations

import json
import platform
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from packaging.tags import parse_tag, sys_tags
from servers import PLUGIN, gfx, machine
from servers import host as host_with

from rocm_wheels.core import errors, installation
from rocm_wheels.gpus import variables
from rocm_wheels.gpus.gpu import Gpu, Hardware
from rocm_wheels.index import reader
from rocm_wheels.models import package_indexes
from rocm_wheels.user import candidates, choose, index_pages
from rocm_wheels.user.host import StatedMachine, TargetHost, detect_platform, make_host
from rocm_wheels.user.install_options import UnservedGpuError
from rocm_wheels.variants import document

NOTHING = {"ROCM_BOOTSTRAP_DISABLE_DETECTION": "1"}


def test_this_machine_has_its_own_tags_and_version() -> None:
    host = make_host(NOTHING, StatedMachine(rocm="none"))
    assert (host.platform, host.machine) == detect_platform()
    assert host.full_python == platform.python_version()
    assert host.tags == tuple(sys_tags())
    assert (host.hardware.usable, dict(host.supported["amd"])) == ((), {})


@pytest.mark.parametrize(
    ("python", "platform", "fits", "not_"),
    [
        ("3.12", "linux-x86_64", "cp312-cp312-manylinux_2_28_x86_64", "cp311-cp311-linux_x86_64"),
        ("3.12", "linux-x86_64", "cp39-abi3-manylinux2014_x86_64", "cp312-cp312-musllinux_1_2_x86_64"),
        ("3.14t", "linux-x86_64", "cp314-cp314t-linux_x86_64", "cp314-cp314-linux_x86_64"),
        ("3.10.4", "linux-aarch64", "cp310-cp310-manylinux_2_28_aarch64", "py3-none-linux_x86_64"),
        ("3.12", "linux-arm64", "py3-none-any", "cp312-cp312-manylinux1_aarch64"),
        ("3.12", "windows", "cp312-cp312-win_amd64", "cp312-cp312-win_arm64"),
        ("3.12", "windows-x64", "cp312-cp312-win_amd64", "cp312-cp312-win32"),
        ("3.12", "windows-arm64", "py3-none-win_arm64", "cp312-cp312-win_amd64"),
        ("3.12", "macos", "cp312-cp312-macosx_11_0_arm64", "cp312-cp312-macosx_11_0_x86_64"),
        ("3.12", "macOS-x86_64", "cp312-cp312-macosx_10_12_x86_64", "py3-none-linux_x86_64"),
    ],
)
def test_tags_of_stated_machines(python: str, platform: str, fits: str, not_: str) -> None:
    tags = make_host(NOTHING, StatedMachine(python=python, platform=platform)).tags
    assert parse_tag(fits) & set(tags)
    assert not parse_tag(not_) & set(tags)
    assert tags[-1] == next(iter(parse_tag("py30-none-any")))


def test_another_python_on_this_machine_keeps_its_platform_tags() -> None:
    other = "3.13" if sys.version_info.minor != 13 else "3.12"
    here = {tag.platform for tag in make_host(NOTHING).tags}
    assert {tag.platform for tag in make_host(NOTHING, StatedMachine(python=other)).tags} == here


CARD_FIRST = ("gfx1201", "gfx12_generic", "gfx1036", "gfx10_3_generic")


@pytest.mark.contract
@pytest.mark.parametrize(
    ("gfx", "chips", "values"),
    [
        (("gfx942",), ["gfx942"], ("gfx942", "gfx9_4_generic")),
        (("gfx942,gfx942",), ["gfx942", "gfx942"], ("gfx942", "gfx9_4_generic")),
        (("gfx1100", "gfx90a:xnack+"), ["gfx1100", "gfx90a"], ("gfx1100", "gfx90a", "gfx11_generic")),
        (("new:GFX1399",), ["gfx1399"], ("gfx1399",)),
        (("None",), [], ()),
        (("gfx94X-all", "RX 580"), ["gfx942", "gfx803"], ("gfx942", "gfx803", "gfx9_4_generic")),
        (("gfx1100 gfx942",), ["gfx1100", "gfx942"],
         ("gfx1100", "gfx942", "gfx11_generic", "gfx9_4_generic")),
        (("RX 7900 XTX, mi300x", "780M"), ["gfx1100", "gfx942", "gfx1103"],
         ("gfx1100", "gfx942", "gfx11_generic", "gfx9_4_generic", "gfx1103")),
        (("gfx1201,gfx1036",), ["gfx1201", "gfx1036"], CARD_FIRST),
    ],
)  # fmt: skip
def test_stated_gpus(gfx: tuple[str, ...], chips: list[str], values: tuple[str, ...]) -> None:
    host = make_host({}, StatedMachine(gfx=gfx, rocm="7.2.1"))
    assert [gpu.gfx for gpu in host.hardware.gpus] == chips
    assert host.supported["amd"].get("gfx_arch", ()) == values
    assert host.supported["amd"]["rocm_version"] == ("7.2",) and "sanitizer" not in host.supported["amd"]
    sanitized = make_host({variables.SANITIZER_VARIABLE: "address"}, StatedMachine(gfx=gfx))
    assert sanitized.supported["amd"]["sanitizer"] == ("address",)
    assert all(gpu.source == "--gfx" and gpu.index == n for n, gpu in enumerate(host.hardware.gpus))


def test_what_is_odd_of_a_stated_gpu_is_noted() -> None:
    new, mode = make_host({}, StatedMachine(gfx=("new:gfx1399,gfx90a:xnack+",), rocm="none")).hardware.gpus
    assert new.notes == ("no table here knows it: it is stated as new",)
    old_host = make_host({}, StatedMachine(gfx=("RX 580",), rocm="none"))
    (old,) = old_host.hardware.gpus
    assert (old.gfx, old.name, old.notes) == ("gfx803", "RX 580", ())
    # no index is asked: it is no newer chip
    asked = next(index_pages.list_rounds(old_host, "stable"))
    assert (asked.gpu, asked.indexes, asked.is_listed) == (old, (), False)
    assert mode.notes == ("xnack+ is not a property of wheels: they are chosen for gfx90a",)


@pytest.mark.contract
@pytest.mark.parametrize(
    ("gfx", "said"),
    [
        ("", "--gfx names no GPU\ntip: for example: --gfx gfx942, or --gfx none"),
        (" , ;", "--gfx names no GPU"),
        ("gfx942,none", "--gfx gfx942,none: either GPUs or none"),
        ("gfx94", "--gfx: gfx94 is no GPU target; did you mean gfx942?\ntip: `rocm-wheels compat show"),
        ("gfx11-generic", "is code for several GPUs, and none of them; say which: gfx1100,"),
        ("bananas", "--gfx: no GPU of the tables is called 'bananas'\ntip: name a card (RX 7900 XTX)"),
        ("RX 7990 XTX", "tip: near names: Navi 31 [Radeon RX 7900 XT/7900 XTX"),
        ("RTX 4090", "--gfx RTX 4090: that is no AMD GPU\ntip: --gfx none is for no AMD GPU"),
        ("Radeon Pro", "targets are called so: gfx"),
        ("1002:ffff", "--gfx: the tables have no GPU with PCI id 1002:ffff"),
    ],
)
def test_what_names_no_gpu_is_refused(gfx: str, said: str) -> None:
    with pytest.raises(errors.UsageError) as failure:
        make_host({}, StatedMachine(gfx=(gfx,), rocm="none"))
    assert said in errors.explain_error(failure.value)


# --- which index, when none is named ---


class Pages(reader.IndexReader):
    """Servers that have these pages; ``down`` is the beginning of what does not answer.

    ``extras`` are the device extras of wheels, by the beginning of their addresses.
    """

    def __init__(
        self, pages: dict[str, str], down: str = "nowhere", extras: dict[str, str] | None = None
    ) -> None:
        super().__init__()
        self.pages, self.down, self.extras = pages, down, extras or {}

    def get(self, url: str, *, accept: str = "*/*") -> reader.IndexAnswer:
        """Answer with a page, or 404."""
        if url.startswith(self.down):
            raise reader.UnreachableError("Name or service not known")
        text = self.pages.get(url)
        return reader.IndexAnswer(200 if text is not None else 404, "text/html", (text or "").encode(), url)

    def fetch_metadata_and_variant(
        self, url: str, file_name: str, size: int | None, *, variant: bool = True
    ) -> tuple[bytes, str | None]:
        """Return METADATA of a wheel by its name, with its device extra."""
        project, version = file_name.split("-")[:2]
        lines = ["Metadata-Version: 2.1", f"Name: {project}", f"Version: {version}"]
        for extra in (extra for start, extra in self.extras.items() if url.startswith(start)):
            lines += [f"Provides-Extra: {extra}", f'Requires-Dist: kernels==1; extra == "{extra}"']
        return "\n".join([*lines, ""]).encode(), None


def page(*names: str) -> str:
    """Return a page that links files."""
    return "".join(f'<a href="{name.replace("+", "%2B")}">{name}</a>' for name in names)


def best(host: TargetHost, vendor: str, target: str | None) -> list[str]:
    """Return the addresses of the indexes for a machine."""
    found = package_indexes.find_indexes(
        target, vendor=vendor, platform="linux", python=host.python, machine="x86_64"
    )
    return [one.url.rstrip("/") + "/" for one in found]


def take(host: TargetHost, servers: reader.IndexReader, index: str | None = None) -> candidates.WheelChoice:
    """Return the torch that a machine gets."""
    (choice,) = choose.choose_wheels(["torch"], index, host, servers)
    return choice


def test_without_an_index_the_best_one_that_has_everything_is_taken() -> None:
    host = machine("gfx1100")
    first, second, *_ = best(host, "amd", "gfx1100")
    reach = Pages(
        {
            f"{first}torch/": page("torch-2.9.0+rocm7.2-py3-none-any.whl"),
            f"{second}torch/": page("torch-2.8.0+rocm7.1-py3-none-any.whl"),
            f"{second}torchaudio/": page("torchaudio-2.8.0-py3-none-any.whl"),
        }
    )
    torch = take(host, reach)
    assert torch.index == first
    assert torch.notes[0].split(" was taken: ")[1].startswith("stable index")
    assert "with code for gfx1100" in torch.notes[0]
    both = choose.choose_wheels(["torch", "torchaudio"], None, host, reach)
    assert {one.index for one in both} == {second}  # never from two
    assert any(f"passed over: {first} has no project torchaudio" in note for note in both[0].notes)


NEW_VARIANTS = {
    "$schema": document.SCHEMA,
    "default-priorities": {"namespace": ["amd"]},
    "providers": {"amd": PLUGIN},
    "variants": {"gfx1399": gfx("gfx1399")},
}


@pytest.mark.parametrize("layout", ["extra", "family extra", "variants", "family page"])
def test_the_index_is_asked_for_a_gpu_that_the_tables_lack(layout: str) -> None:
    host = machine("gfx1399", "gfx1036")
    address = "https://repo.amd.com/rocm/whl-multi-arch/"
    name = "torch-2.20.0-cp312-cp312-linux_x86_64.whl"
    pages = {"https://stable.repo.amd.com/rocm/whl-next/torch/": page("torch-2.19.0-py3-none-any.whl")}
    extra = {"extra": "device-gfx1399", "family extra": "device-gfx139x-all"}.get(layout)
    if layout == "family page":
        address = "https://repo.amd.com/rocm/whl/gfx1399/"
        pages["https://repo.amd.com/rocm/whl/"] = page("gfx1399/", "gfx110X-all/")
    elif layout == "variants":
        name = name.replace(".whl", "-gfx1399.whl")
        pages[f"{address}torch/torch-2.20.0-variants.json"] = json.dumps(NEW_VARIANTS)
        pages[f"{address}torch/"] = page(name, "torch-2.20.0-variants.json")
    else:
        pages[f"{address}kernels/"] = page("kernels-1-py3-none-any.whl")
    pages.setdefault(f"{address}torch/", page(name))
    reach = Pages(pages, extras={address: extra} if extra else {})
    choice = take(host, reach)
    assert (choice.index, choice.picked.name if choice.picked else "") == (address, name)
    assert [is_served for _, is_served in choice.served] == [True, False]
    assert choice.requires == (f"torch{f'[{extra}]' if extra else ''}==2.20.0",)
    assert "it has code for gfx1399, which no table lists" in choice.notes[0]


def host_wheels(pages: dict[str, str], extras: dict[str, str]) -> Pages:
    """Return servers whose torch has one device extra each (by address), and the wheel with its kernels."""
    kernels = {f"{url}kernels/": page("kernels-1-py3-none-any.whl") for url in extras}
    return Pages(pages | kernels, extras=extras)


def test_an_index_without_the_kernels_that_tables_promise_is_passed_over() -> None:
    host = machine("gfx1100")
    first, second, *_ = best(host, "amd", "gfx1100")
    name = "torch-2.14.0-py3-none-linux_x86_64.whl"
    pages = {f"{url}torch/": page(name) for url in (first, second)}
    reach = host_wheels(pages, {first: "device-gfx1201", second: "device-gfx1100"})
    choice = take(host, reach)
    assert (choice.index, [is_served for _, is_served in choice.served]) == (second, [True])
    del reach.pages[f"{second}torch/"]
    choice = take(host, reach)
    assert (choice.index, [is_served for _, is_served in choice.served]) == (first, [False])


def test_an_index_whose_torch_was_refused_is_passed_over_whatever_it_promises() -> None:
    """Also for the next GPU, and where the next index has nothing; the first refusal is the error then."""
    host = machine("gfx1100", "gfx1201")
    first, second = indexes = best(host, "amd", "gfx1100")[:2]
    pages = {f"{url}torch/": page("torch-2.14.0-py3-none-linux_x86_64.whl") for url in indexes}
    reach = host_wheels(pages, dict.fromkeys(indexes, "device-gfx1100"))
    refused = {url: UnservedGpuError(f"torch of {url}\n  and more") for url in indexes}
    (choice,) = choose.choose_wheels(["torch"], None, host, reach, refused={first: refused[first]})
    assert choice.index == second
    passed = [note for note in choice.notes if note.startswith("passed over: ")]
    assert len(passed) == 1 and passed[0].endswith(f"has torch of {first}")
    for taken in (refused, {first: refused[first]}):
        with pytest.raises(UnservedGpuError) as failure:
            choose.choose_wheels(["torch"], None, host, reach, refused=taken)
        assert failure.value is refused[first]
        reach.pages.pop(f"{second}torch/", None)  # the second has none then


@pytest.mark.parametrize(
    ("target", "python", "listed"),
    [
        ("gfx906", "3.12", "https://download.pytorch.org/whl/rocm7.2/"),  # the table has another index for it
        ("gfx1100", "3.15", "https://download.pytorch.org/whl/rocm7.14/"),  # and for this Python
        ("gfx90c", "3.12", ""),  # and none for this one
    ],
)
def test_an_index_is_asked_for_what_the_tables_do_not_list_of_it(
    target: str, python: str, listed: str
) -> None:
    stable = "https://stable.repo.amd.com/rocm/whl-next/"
    name = "torch-2.14.0-py3-none-linux_x86_64.whl"
    fat = {f"{listed}torch/": page("torch-2.13.0+rocm7.2-py3-none-linux_x86_64.whl")} if listed else {}
    reach = host_wheels({f"{stable}torch/": page(name), **fat}, {stable: f"device-{target}"})
    choice = take(machine(target, python=f"{python}.0"), reach)
    assert (choice.index, choice.requires) == (stable, (f"torch[device-{target}]==2.14.0",))
    assert choice.override_line is None
    assert (f"it has code for {target}, which no table lists" in choice.notes[0]) == (target != "gfx1100")
    # one that the tables do not name for it, and that does not answer, is passed over with a note
    reach.down = stable
    if target == "gfx906":
        choice = take(machine(target, python=f"{python}.0"), reach)
        assert choice.index == listed and any("cannot ask amd-stable" in note for note in choice.notes)
    else:
        with pytest.raises(reader.UnreachableError, match="cannot ask amd-stable"):
            take(machine(target, python=f"{python}.0"), reach)


IGPU = Gpu("amd", gfx="gfx1036", index=0, integrated=True)
RX, POLARIS = Gpu("amd", gfx="gfx1100", index=1), Gpu("amd", gfx="gfx803", index=0)
VEGA = Gpu("amd", gfx="gfx90c", index=0, integrated=True)
RTX, KEPLER = Gpu("nvidia", capability="8.9"), Gpu("nvidia", capability="3.0", name="GK104")
ARC, UHD = Gpu("intel", integrated=False), Gpu("intel", integrated=True)


@pytest.mark.parametrize(
    ("hardware", "vendor", "target", "note"),
    [
        (Hardware(), "none", None, "no GPU that torch has a build for"),
        (Hardware(gpus=(Gpu("nvidia", capability="8.9"),)), "nvidia", "8.9", "compute capability 8.9"),
        (Hardware(gpus=(Gpu("intel"),)), "intel", None, "Intel GPUs"),
        (Hardware(gpus=(Gpu("intel", capability="before-xe"),)), "none", None, "no GPU that torch has"),
        (Hardware(gpus=(Gpu("amd", gfx="gfx1399", index=0),)), "none", None,
         "serves gfx1399 with Python 3.12: for the CPU"),
        # a card is better than graphics inside a processor, whoever made it
        (Hardware(gpus=(IGPU, RTX)), "nvidia", "8.9", "compute capability 8.9"),
        (Hardware(gpus=(IGPU, ARC)), "intel", None, "Intel GPUs"),
        (Hardware(gpus=(RTX, RX)), "amd", "gfx1100", "with code for gfx1100"),
        (Hardware(gpus=(IGPU, UHD)), "amd", "gfx1036", "with code for gfx1036"),
        # of several GPUs the best that is served at all
        (Hardware(gpus=(POLARIS, RX)), "amd", "gfx1100", "serves gfx803 with Python 3.12"),
        (Hardware(gpus=(KEPLER, IGPU)), "amd", "gfx1036", "serves GK104 with Python 3.12"),
        # none has kernels for it, and it runs another's
        (Hardware(gpus=(VEGA,)), "amd", "gfx900", "with code for gfx900"),
    ],
)  # fmt: skip
def test_the_index_is_of_the_vendor(hardware: Hardware, vendor: str, target: str | None, note: str) -> None:
    host = host_with(hardware)
    url = best(host, vendor, target)[0]
    choice = take(host, Pages({f"{url}torch/": page("torch-2.9.0-py3-none-any.whl")}))
    assert choice.index == url
    assert any(note in one for one in choice.notes), choice.notes


def test_directml_is_named_for_an_old_radeon_on_windows_and_not_chosen() -> None:
    old, windows = machine("gfx803"), {"platform": "windows", "machine": "amd64"}
    for host, is_named in ((old, False), (machine("gfx1030"), False), (replace(old, **windows), True)):
        notes = index_pages.recommend_torch(host).reasons
        assert any("torch-directml" in note for note in notes) == is_named


def test_commands_in_notes_are_told_as_the_user_started_us(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installation, "_find_own_command", lambda *_: "uvx rocm-wheels")
    url = "https://download.pytorch.org/whl/rocm7.2/"
    reach = Pages({f"{url}torch/": page("torch-2.11.0+rocm7.2-py3-none-linux_x86_64.whl")})
    choice = take(machine("gfx1031", python="3.10"), reach)
    assert any("which `uvx rocm-wheels configure` sets" in note for note in choice.notes)


@pytest.mark.parametrize("target", ["gfx1031", "gfx1032", "gfx1034"])
def test_a_card_that_no_index_serves_gets_the_kernels_that_it_runs(target: str) -> None:
    url = "https://download.pytorch.org/whl/rocm7.2/"
    reach = Pages({f"{url}torch/": page("torch-2.11.0+rocm7.2-py3-none-linux_x86_64.whl")})
    choice = take(machine(target, python="3.10"), reach)
    assert (choice.index, choice.override_line) == (url, "HSA_OVERRIDE_GFX_VERSION=10.3.0")
    assert [(gpu.native, gpu.gfx, is_served) for gpu, is_served in choice.served] == [
        (target, "gfx1030", True)
    ]
    sentence = f"{target} runs kernels for gfx1030 with HSA_OVERRIDE_GFX_VERSION=10.3.0"
    assert sum(sentence in note for note in choice.notes) == 1
    assert take(machine("gfx1030", python="3.10"), reach).override_line is None


@pytest.mark.parametrize(
    ("gpus", "taken"),
    [
        ((IGPU, RTX), "2.8.0+cu128"),
        ((RX, RTX), "2.9.0+rocm7.2"),
        ((UHD, IGPU), "2.9.0+rocm7.2"),
    ],
)
def test_builds_for_every_gpu_that_is_here_fit_the_better_ones_first(
    gpus: tuple[Gpu, ...], taken: str
) -> None:
    url = "https://example.com/simple/"
    versions = ("2.8.0+cu128", "2.9.0+rocm7.2", "2.10.0+cpu")
    names = [f"torch-{one}-cp312-cp312-linux_x86_64.whl" for one in versions]
    host = host_with(Hardware(gpus=gpus))
    choice = take(host, Pages({f"{url}torch/": page(*names)}), url)
    assert choice.picked is not None and choice.picked.version == taken
    assert not any("computes on the CPU" in one for one in choice.notes), choice.notes
    choice = take(host, Pages({f"{url}torch/": page(names[1])}), url)
    assert choice.picked is not None and choice.picked.version == "2.9.0+rocm7.2"
    better = [note for note in choice.notes if note.startswith("the better GPU here is one of NVIDIA")]
    assert len(better) == (gpus == (IGPU, RTX))
    assert not any("computes on the CPU" in one for one in choice.notes)


@pytest.mark.parametrize(
    ("gpu", "cuda", "name"),
    [
        (RTX, None, "cu130"),
        (RTX, "13.1", "cu130"),
        (RTX, "12.4", "cu126"),  # a driver serves every minor version of its major one
        (Gpu("nvidia", capability="12.0"), "12.8", "cu128"),
        (Gpu("nvidia", capability="12.0", name="RTX 5090"), "11.8", "cpu"),
    ],
)
def test_cuda_is_no_newer_than_nvidias_driver(gpu: Gpu, cuda: str | None, name: str) -> None:
    found = index_pages.recommend_torch(host_with(Hardware(gpus=(gpu,), cuda=cuda)))
    assert found.index.url.endswith(name)
    assert ("serves RTX 5090 (whose driver has CUDA 11.8) with" in "".join(found.reasons)) == (cuda == "11.8")


def test_a_server_that_is_down_is_no_reason_to_take_a_worse_index() -> None:
    host = machine("gfx942")
    first, second, *_ = best(host, "amd", "gfx942")
    reach = Pages({f"{second}torch/": page("torch-2.8.0-py3-none-any.whl")}, down=first)
    with pytest.raises(errors.HostError, match="cannot ask amd-stable, a stable index of ROCm") as failure:
        take(host, reach)
    assert "Name or service not known" in errors.explain_error(failure.value)


@pytest.mark.parametrize(
    ("status", "tip"),
    [(401, "does it want a password"), (503, "the server fails: try again later"), (418, "is it the URL of")],
)
def test_what_a_server_answers_tells_what_to_do(status: int, tip: str) -> None:
    reach = Pages({})
    reach.get = lambda url, *, accept="*/*": reader.IndexAnswer(status, "text/html", b"", url)  # type: ignore[method-assign]
    with pytest.raises(errors.HostError, match=f"https://x/torch/ answers {status}") as failure:
        take(machine("gfx942"), reach, "https://x/")
    assert tip in errors.explain_error(failure.value)


def test_when_no_known_index_has_it_each_says_why() -> None:
    with pytest.raises(errors.HostError) as failure:
        take(machine("gfx942"), Pages({}))
    said = errors.explain_error(failure.value)
    assert "stable indexes for this machine has what fits" in said
    for url in best(machine("gfx942"), "amd", "gfx942"):
        assert f"{url} has no project torch" in said


def test_what_the_tables_say_of_an_index_counts_when_it_is_named() -> None:
    url = "https://download.pytorch.org/whl/rocm7.2/"
    reach = Pages({f"{url}torch/": page("torch-2.11.0+rocm7.2-cp312-cp312-linux_x86_64.whl")})
    choice = take(machine("gfx1036", "gfx1100"), reach, url)
    assert [is_served for _, is_served in choice.served] == [False, True]
    assert (choice.layout, choice.visible_line) == ("plain", "HIP_VISIBLE_DEVICES=1")


def test_a_folder_of_nothing(tmp_path: Path) -> None:
    with pytest.raises(errors.HostError, match="has no project torch"):
        take(machine(), reader.IndexReader(), str(tmp_path))


def test_a_stated_target_that_the_card_here_runs_names_the_override(monkeypatch: pytest.MonkeyPatch) -> None:
    card = Gpu("amd", gfx="gfx1031", native="gfx1031", index=0, source="kfd")
    monkeypatch.setattr("rocm_wheels.user.host.sys.platform", "linux")
    monkeypatch.setattr(
        "rocm_wheels.user.host.detect.detect_hardware", lambda *_, **__: Hardware(gpus=(card,))
    )
    name = "torch-2.11.0+rocm7.2-py3-none-linux_x86_64.whl"
    url = "https://download.pytorch.org/whl/rocm7.2/"
    reach = Pages({f"{url}torch/": page(name)})
    for stated, line in (("gfx1030", "HSA_OVERRIDE_GFX_VERSION=10.3.0"), ("gfx1100", None)):
        host = make_host({}, StatedMachine(gfx=(stated,), rocm="none", python="3.12"))
        choice = take(host, reach, url)
        assert choice.override_line == line
        assert any("gfx1031 runs kernels for gfx1030" in note for note in choice.notes) == bool(line)
        # an index that says nothing of GPUs, and one for the CPU
        of_cpu = page(name.replace("rocm7.2", "cpu"))
        other = Pages({"https://x/torch/": page(name), "https://y/torch/": of_cpu})
        assert [take(host, other, f"https://{at}/").override_line for at in "xy"] == [line, None]
