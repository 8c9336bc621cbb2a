"""What is asked for, from where it may come, and what belongs together: pure rules, as tables."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from rocm_wheels.core import download, errors, user_folders
from rocm_wheels.index import reader
from rocm_wheels.models.project import is_closed_project
from rocm_wheels.user import (
    candidates,
    compare_installed,
    installed_packages,
    package_offers,
    plan_install,
    resolve,
    wheel_cache,
)
from rocm_wheels.wheels import dist_info

MARKERS = {"python_version": "3.12", "sys_platform": "linux", "platform_machine": "x86_64", "extra": ""}

FORMS = [
    # what pip takes, and what comes of it
    ([], ["torch", "torchvision", "torchaudio"]),
    (["torch==2.9.*"], ["torch==2.9.*"]),
    (["torch>=2.8,<2.10"], ["torch<2.10,>=2.8"]),
    (["torch~=2.9"], ["torch~=2.9"]),
    (["torch==2.9.0+rocm7.2"], ["torch==2.9.0+rocm7.2"]),
    (["torch (>=2.8)"], ["torch>=2.8"]),
    (["torch===2.9.0+rocm7.2"], ["torch===2.9.0+rocm7.2"]),
    (["TorchVision != 0.24.0"], ["TorchVision!=0.24.0"]),
    (["torch[opt-einsum]>=2.9"], ["torch[opt-einsum]>=2.9"]),
    (["torch; sys_platform == 'linux'", "numpy; sys_platform == 'win32'"], ["torch"]),
]


@pytest.mark.parametrize(("words", "texts"), FORMS)
def test_pips_version_forms_are_read(words: list[str], texts: list[str]) -> None:
    assert [one.text for one in plan_install.parse_packages(words, MARKERS)] == texts


class Looked:
    """Offers of an index, of which some were looked up in vain."""

    faults: tuple[()] = ()
    left_out: tuple[str, ...] = ()

    def __init__(self, *missing: str) -> None:
        self.missing = missing

    def list_missing_projects(self) -> list[str]:
        return list(self.missing)


@pytest.mark.parametrize(
    ("said", "missing", "tip"),
    [
        ("Because there is no version of rocm[libraries]==7.1.0 and", "rocm", "has it with --rocm-index"),
        ("Because rocm-sdk-core was not found in the package registry", "rocm-sdk-core", "--rocm-index"),
        ("Because triton was not found in the package registry", "triton", "has it with --index"),
        ("Because there are no versions of triton and you require", "triton", "has it with --index"),
        ("Because pytorch-triton was not found in the package registry", "triton", "name versions that go"),
        ("Because there is no version of triton-extra==1", "triton", "name versions that go"),
        ("Because numpy was not found in the package registry", "numpy", "name versions that go"),
    ],
)
def test_what_no_index_has_is_told_with_the_option_that_helps(said: str, missing: str, tip: str) -> None:
    found = resolve.explain_failure(
        errors.HostError(said), cast("package_offers.PackageOffers", Looked(missing))
    )
    assert found.tip and tip in found.tip


WRONG = [
    ([""], "empty name"),
    (["torch=2.9"], "two equals signs"),
    (["torch==2.9.x"], "'torch==2.9.x' is not a requirement"),
    (["torch==two"], "is not a requirement"),
    (["torch>=2.8 <2.10"], "is not a requirement"),
    (["torch 2.9"], "is not a requirement"),
    (["torch,torchvision"], "is not a requirement"),
    (["torch; sys_platfrm == 'linux'"], "is not a requirement"),
    (["torch[device-gfx942"], "is not a requirement"),
    (["./torch-2.9.0-cp312-cp312-linux_x86_64.whl"], "is a file or URL: nothing would be chosen"),
    (["https://download.pytorch.org/whl/torch.whl"], "is a file or URL"),
    (["torch @ https://download.pytorch.org/whl/torch.whl"], "is a file or URL"),
    (["git+https://github.com/pytorch/pytorch"], "is a file or URL"),
    (["/home/me/torch"], "is a file or URL"),
    (["torchh"], "torchh is no project of torch's; did you mean torch?"),
    (["torhc"], "did you mean torch?"),
    (["pytorch"], "did you mean torch?"),
    (["torch-vision==0.24"], "torch-vision is no project of torch's; did you mean torchvision?"),
    (["tirton"], "did you mean triton?"),
    (["torchadio"], "did you mean torchaudio?"),
    (["-r"], "-r is no option of this command"),
    (["torch", "Torch>=2.9"], "torch is requested twice: torch and Torch>=2.9"),
    (["torch; sys_platform == 'win32'"], "nothing is left to install"),
]


@pytest.mark.parametrize(("words", "said"), WRONG)
def test_what_cannot_be_asked_for_is_refused(words: list[str], said: str) -> None:
    with pytest.raises(errors.UsageError, match=re.escape(said)) as failure:
        plan_install.parse_packages(words, MARKERS)
    assert failure.value.tip


WANTED = [
    (["torch==2.9.*", "numpy"], "torch==2.9.*"),
    (["torchaudio"], "torch"),
    (["torchao"], "torch"),
    (["apex"], "torch"),
    (["rocm"], None),
    (["numpy", "pytorch-triton-rocm"], None),
]


@pytest.mark.parametrize(("words", "wanted"), WANTED)
def test_torch_is_chosen_where_it_is_part_of_it(words: list[str], wanted: str | None) -> None:
    assert plan_install.find_torch_requirement(plan_install.parse_packages(words, MARKERS)) == wanted


def choice(requires: str) -> candidates.WheelChoice:
    version = requires.partition("==")[2]
    name = f"torch-{version}-py3-none-any.whl"
    link = reader.IndexLink(name, name, f"http://x/{name}")
    picked = candidates.ChoiceCandidate(link, dist_info.parse_wheel_name(name), rank=1)
    return candidates.WheelChoice(
        "torch", "torch", (), "http://x/", "plain", picked, (picked,), (requires,), (), (), None
    )


def test_torch_is_pinned_and_its_companions_say_themselves_what_they_go_with() -> None:
    chosen = choice("torch[device-gfx942]==2.9.1+rocm7.2")
    asked = plan_install.parse_packages(["torch>=2.8", "torchvision<1"], MARKERS)
    assert plan_install.list_resolver_lines(asked, chosen) == [
        "torch[device-gfx942]==2.9.1+rocm7.2",
        "torchvision<1",
    ]
    assert plan_install.list_resolver_lines(asked, chosen, pinned=False) == [
        "torch[device-gfx942]>=2.8",
        "torchvision<1",
    ]
    alone = plan_install.parse_packages(["torchvision==0.23"], MARKERS)
    assert plan_install.list_resolver_lines(alone, chosen) == ["torch[device-gfx942]", "torchvision==0.23"]
    assert plan_install.list_resolver_lines(alone, choice("torch==2.9.1")) == ["torchvision==0.23"]
    assert plan_install.list_resolver_lines(alone, None) == ["torchvision==0.23"]
    assert plan_install.list_device_extras(chosen) == {"device-gfx942"}
    assert plan_install.list_stable_projects(
        plan_install.parse_packages(["torch", "numpy==2.0rc1"], MARKERS), pre=False
    ) == {"torch"}
    assert plan_install.list_stable_projects(asked, pre=True) == frozenset()


CLOSED = """torch torchvision torchaudio apex triton triton-rocm pytorch-triton pytorch-triton-rocm rocm
rocm-sdk-core rocm-sdk-device-gfx942 amd-torch-device-gfx942 amd-anything amdsmi fbgemm-gpu-genai"""
OPEN = "numpy sympy filelock networkx jinja2 tritonclient rocketry rocm-bootstrap"
TORCH_PROJECTS = "torchao torchtune tensordict torch-geometric"


def test_what_holds_gpu_code_never_comes_from_elsewhere() -> None:
    assert [name for name in CLOSED.split() if not is_closed_project(name)] == []
    assert [
        name for name in OPEN.split() if is_closed_project(name) or package_offers.requires_pure_wheel(name)
    ] == []
    assert [
        name
        for name in TORCH_PROJECTS.split()
        if is_closed_project(name) or not package_offers.requires_pure_wheel(name)
    ] == []


def test_compiled_strangers_are_refused() -> None:
    assert package_offers.is_pure_wheel("torchao-0.18.0-py3-none-any.whl")
    compiled = "xformers-0.0.33-cp39-abi3-manylinux_2_28_x86_64.whl"
    assert "requires torch: it was built for another build" in str(
        package_offers.explain_refusal(compiled, ["numpy", "torch==2.9.0"])
    )
    assert package_offers.explain_refusal("einops-1.0-py3-none-any.whl", ["torch"]) is None
    assert package_offers.explain_refusal(compiled, ["numpy", "torch>=2; extra == 'test'"]) is None


def test_the_index_of_dependencies_is_the_users_mirror() -> None:
    assert package_offers.find_dependency_index(None, {}) == "https://pypi.org/simple/"
    assert (
        package_offers.find_dependency_index(None, {"PIP_INDEX_URL": "https://m/simple"})
        == "https://m/simple/"
    )
    both = {"PIP_INDEX_URL": "https://m/simple", "UV_DEFAULT_INDEX": "https://n/"}
    assert package_offers.find_dependency_index(None, both) == "https://n/"
    assert package_offers.find_dependency_index("https://o/", both) == "https://o/"
    with pytest.raises(
        errors.UsageError, match="--dependency-index: bananas is neither a folder nor the URL"
    ):
        package_offers.find_dependency_index("bananas", both)
    with pytest.raises(errors.UsageError, match=r"PIP_INDEX_URL: pypi\.org/simple is neither"):
        package_offers.find_dependency_index(None, {"PIP_INDEX_URL": "pypi.org/simple"})


def test_projects_with_names_like_torchs_can_be_asked_for() -> None:
    real = ("torch", "torchao", "torchx", "torchio", "torchmetrics", "torchsde", "torchcodec", "tensordict")
    assert [
        package_offers.find_intended_project(name) for name in (*real, "tritonclient", "pytorch-triton-rocm")
    ] == [None] * 10


def test_no_index_of_the_users_reaches_an_installer() -> None:
    given = {
        "PIP_EXTRA_INDEX_URL": "x", "UV_INDEX": "x", "UV_EXTRA_INDEX_URL": "x", "PIP_FIND_LINKS": "x",
        "UV_FIND_LINKS": "x", "UV_TORCH_BACKEND": "cu128", "PIP_CERT": "c", "PATH": "p", "NO_PROXY": "a",
    }  # fmt: skip
    found = resolve.make_installer_environment(given)
    assert {name for name in given if name in found} == {"PIP_CERT", "PATH", "NO_PROXY"}
    assert found["NO_PROXY"] == "a,127.0.0.1"


def offer(version: str, project: str = "torchvision") -> package_offers.PackageOffer:
    return package_offers.PackageOffer(
        project, Version(version), f"{project}.whl", f"{project}.whl", "http://x/", "index"
    )


BUILDS = [
    # torch, what the index has of a companion, what is offered
    ("2.9.1+rocm7.2", "0.24+rocm7.2 0.24+cu128 0.24+cpu 0.24 0.24+xpu", "0.24+rocm7.2"),
    ("2.9.1+rocm7.1", "0.24+rocm7.1 0.24+rocm7.2 0.23+rocm7.2 0.23+cu128", "0.24+rocm7.1 0.23+rocm7.2"),
    ("2.9.1+cpu", "0.24+cpu 0.24+cu128 0.23 0.22+rocm7.2", "0.24+cpu 0.23"),
    ("2.9.1", "0.24+cu128 0.24 0.23+cpu", "0.24 0.23+cpu"),
]


@pytest.mark.parametrize(("torch", "there", "offered"), BUILDS)
def test_companions_are_of_the_same_build_as_torch(torch: str, there: str, offered: str) -> None:
    found = package_offers.select_same_build([offer(version) for version in there.split()], Version(torch))
    assert [str(one.version) for one in found] == [str(Version(version)) for version in offered.split()]


def test_other_torches_stay_where_only_a_companion_is_asked_for() -> None:
    there = [offer(v, "torch") for v in ("2.9.1+rocm7.2", "2.8.0+rocm6.4", "2.8.0+cu128")]
    assert [str(o.version) for o in package_offers.select_same_build(there, Version("2.9.1+rocm7.2"))] == [
        "2.9.1+rocm7.2",
        "2.8.0+rocm6.4",
    ]


def test_what_does_not_belong_together_is_named() -> None:
    there = {"torch": "2.9.1+rocm7.2", "triton": "3.4.0"}
    requires = [
        "triton==3.5.0", "torch==2.9.1", "numpy; extra == 'x'", "sympy", "winreg; sys_platform == 'win32'"
    ]  # fmt: skip
    assert compare_installed.list_unmet_requirements(requires, there, MARKERS) == [
        "triton==3.5.0, and 3.4.0 is there",
        "sympy, which is not there",
    ]
    old = installed_packages.InstalledDistribution(
        "xformers", "0.0.30", Path(), Path(), requires=("torch==2.8.0", "numpy")
    )
    assert compare_installed.list_broken_requirements(["torch"], [old], there, MARKERS) == [
        "xformers 0.0.30 requires torch==2.8.0, and 2.9.1+rocm7.2 is there"
    ]
    assert (
        compare_installed.list_broken_requirements(
            ["triton"], [old, replace(old, name="triton")], there, MARKERS
        )
        == []
    )


def test_places_of_the_cache(tmp_path: Path) -> None:
    assert user_folders.find_cache_folder({"XDG_CACHE_HOME": "/c", "HOME": "/h"}, "linux") == Path(
        "/c/rocm-wheels"
    )
    assert user_folders.find_cache_folder({"XDG_CACHE_HOME": "c", "HOME": "/h"}, "linux") == Path(
        "/h/.cache/rocm-wheels"
    )
    assert user_folders.find_cache_folder({"LOCALAPPDATA": "/l"}, "win32") == Path("/l/rocm-wheels/cache")
    cache, weak = wheel_cache.WheelCache(tmp_path), download.Validators('W/"x"', "", 3)
    assert weak.strong == "" and download.Validators('"x"', "date").strong == '"x"'
    cache.remember_url("http://x/a", weak, "0" * 64)
    assert cache.find_remembered("http://x/a", weak, "a") is None


def test_requirements_of_the_tables_are_ones() -> None:
    assert [str(Requirement(text)) for _, texts in FORMS for text in texts]
