"""What is asked for, from where it may come, and what belongs together: pure rules, as tables."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from packaging.version import Version

from rocm_wheels.core import errors, user_folders
from rocm_wheels.index import reader
from rocm_wheels.models.closed_projects import is_closed_project
from rocm_wheels.user import offers, pip_settings, requested, resolve
from rocm_wheels.user.pip_settings import PipSettings

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
    assert [str(one) for one in requested.parse_packages(words, MARKERS).values()] == texts


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
    (["torch @ file:/wheels"], "is a file or URL"),
    (["/home/me/torch"], "is a file or URL"),
    (["torchh"], "torchh is no project of torch's; did you mean torch?"),
    (["torhc"], "did you mean torch?"),
    (["pytorch"], "did you mean torch?"),
    (["torch-vision==0.24"], "torch-vision is no project of torch's; did you mean torchvision?"),
    (["tirton"], "did you mean triton?"),
    (["torchadio"], "did you mean torchaudio?"),
    (["-r"], "'-r' is not a requirement"),
    (["torch", "Torch>=2.9"], "torch is requested twice: torch and Torch>=2.9"),
    (["torch; sys_platform == 'win32'"], "nothing is left to install"),
]


@pytest.mark.parametrize(("words", "said"), WRONG)
def test_what_cannot_be_asked_for_is_refused(words: list[str], said: str) -> None:
    with pytest.raises(errors.UsageError, match=re.escape(said)) as failure:
        requested.parse_packages(words, MARKERS)
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
    assert requested.find_torch_requirement(requested.parse_packages(words, MARKERS)) == wanted


CLOSED = """torch torchvision torchaudio apex triton triton-rocm pytorch-triton pytorch-triton-rocm rocm
rocm-sdk-core rocm-sdk-device-gfx942 amd-torch-device-gfx942 amd-anything amdsmi fbgemm-gpu-genai"""
OPEN = "numpy sympy filelock networkx jinja2 tritonclient rocketry rocm-bootstrap"
TORCH_PROJECTS = "torchao torchtune tensordict torch-geometric"


def test_what_holds_gpu_code_never_comes_from_elsewhere() -> None:
    assert [name for name in CLOSED.split() if not is_closed_project(name)] == []
    for names, pure in ((OPEN, False), (TORCH_PROJECTS, True)):
        for name in names.split():
            assert (is_closed_project(name), requested.requires_pure_wheel(name)) == (False, pure), name


def test_the_index_of_dependencies_is_the_users_mirror() -> None:
    pip, uv = PipSettings("https://m/simple", "PIP_INDEX_URL"), {"UV_DEFAULT_INDEX": "https://n/"}
    assert requested.find_dependency_index({}, PipSettings()) == "https://pypi.org/simple/"
    assert requested.find_dependency_index({}, pip) == "https://m/simple/"
    assert requested.find_dependency_index(uv, pip) == "https://n/"
    assert requested.find_dependency_index({}, replace(pip, no_index=True)) == ""
    assert requested.find_dependency_index(uv, replace(pip, no_index=True)) == "https://n/"
    with pytest.raises(errors.UsageError, match="UV_INDEX_URL: bananas is neither a folder nor the URL"):
        requested.find_dependency_index({"UV_INDEX_URL": "bananas"}, pip)
    with pytest.raises(errors.UsageError, match=r"/etc/pip\.conf: pypi\.org/simple is neither"):
        requested.find_dependency_index({}, PipSettings("pypi.org/simple", "/etc/pip.conf"))


def test_what_is_set_for_pip_is_followed_or_named(tmp_path: Path) -> None:
    """Files from the most general to the most special, then variables; what uv has set stays."""
    user, named, prefix = tmp_path / "home" / ".config" / "pip", tmp_path / "named.conf", tmp_path / "venv"
    for folder in (user, prefix):
        folder.mkdir(parents=True)
    (user / "pip.conf").write_text(
        "[global]\nindex-url = https://user/simple\nproxy = http://p%40ss@proxy:1\ntrusted-host = a b\n"
        "[install]\nno-index = yes\nfind-links = /wheels\n[freeze]\nuser = true\n"
    )
    (prefix / "pip.conf").write_text("[install]\nindex_url = https://venv/simple\npre = no\n")
    env = {"HOME": str(tmp_path / "home"), "XDG_CONFIG_DIRS": str(tmp_path / "none")}
    settings = pip_settings.read_pip_settings(env, prefix)
    assert (settings.index, settings.index_source) == ("https://venv/simple", str(prefix / "pip.conf"))
    assert settings.no_index
    assert settings.variables["HTTPS_PROXY"] == "http://p%40ss@proxy:1"
    assert "trusted-host" in settings.note and "find-links" in settings.note
    assert "pre" not in settings.note and "user " not in settings.note
    named.write_text("[global]\nindex-url = https://named/\ncert = /ca.pem\nproxy = http://named:1\n")
    env |= {"PIP_CONFIG_FILE": str(named), "PIP_NO_INDEX": "0", "PIP_RETRIES": "9"}
    env["https_proxy"] = "http://x:1"
    settings = pip_settings.read_pip_settings(env, prefix)
    assert settings.index == "https://named/" and not settings.no_index
    assert settings.variables == {
        "SSL_CERT_FILE": "/ca.pem", "REQUESTS_CA_BUNDLE": "/ca.pem", "UV_HTTP_RETRIES": "9"
    }  # fmt: skip
    none = pip_settings.read_pip_settings({**env, "PIP_CONFIG_FILE": "/dev/null"}, prefix)
    assert none.index == "" and none.note == ""
    for text, seconds in (("7.5", "8"), ("15", "15"), ("1e1", "10")):  # pip takes fractions, and uv none
        patient = pip_settings.read_pip_settings({**env, "PIP_TIMEOUT": text}, prefix)
        assert patient.variables["UV_HTTP_TIMEOUT"] == seconds
    for name, text in (("TIMEOUT", "abc"), ("TIMEOUT", "inf"), ("RETRIES", "-1"), ("RETRIES", "nan")):
        with pytest.raises(errors.UsageError, match=rf"\(PIP_{name}\) is no number: '{text}'"):
            pip_settings.read_pip_settings({**env, f"PIP_{name}": text}, prefix)
    named.write_text("index-url = https://no.section/\n")
    with pytest.raises(errors.UsageError, match=r"named\.conf cannot be read"):
        pip_settings.read_pip_settings(env, prefix)


def test_projects_with_names_like_torchs_can_be_asked_for() -> None:
    real = ("torch", "torchao", "torchx", "torchio", "torchmetrics", "torchsde", "torchcodec", "tensordict")
    for name in (*real, "tritonclient", "pytorch-triton-rocm"):
        assert requested.find_intended_project(name) is None, name


def test_no_index_of_the_users_reaches_uv() -> None:
    given = {
        "PIP_EXTRA_INDEX_URL": "x", "UV_INDEX": "x", "UV_EXTRA_INDEX_URL": "x", "PIP_FIND_LINKS": "x",
        "UV_FIND_LINKS": "x", "UV_TORCH_BACKEND": "cu128", "SSL_CERT_FILE": "c", "PATH": "p", "NO_PROXY": "a",
        "UV_CACHE_DIR": "/c", "HTTPS_PROXY": "http://p:1",
    }  # fmt: skip
    found = resolve.make_uv_environment(given)
    kept = {"SSL_CERT_FILE", "PATH", "NO_PROXY", "UV_CACHE_DIR", "HTTPS_PROXY"}
    assert {name for name in given if name in found} == kept
    assert found["NO_PROXY"] == "a,127.0.0.1,localhost"


BUILDS = [
    # torch, what the index has of a companion, what is offered
    ("2.9.1+rocm7.2", "0.24+rocm7.2 0.24+cu128 0.24+cpu 0.24 0.24+xpu", "0.24+rocm7.2"),
    ("2.9.1+rocm7.1", "0.24+rocm7.1 0.24+rocm7.2 0.23+rocm7.2 0.23+cu128", "0.24+rocm7.1 0.23+rocm7.2"),
    ("2.9.1+cpu", "0.24+cpu 0.24+cu128 0.23 0.22+rocm7.2", "0.24+cpu 0.23"),
    ("2.9.1", "0.24+cu128 0.24 0.23+cpu", "0.24 0.23+cpu"),
    ("2.9.1+rocm7.1", "0.24+rocm7.1 0.25+rocm7.1.asan", "0.24+rocm7.1"),
    ("2.9.1+rocm7.1.asan", "0.24+rocm7.1 0.24+rocm7.1.asan 0.23+rocm7.1", "0.24+rocm7.1.asan 0.23+rocm7.1"),
]


@pytest.mark.parametrize("file", [f"text-{'9' * 5000}.tar.gz", "text-one.tar.gz", "text-1.0.zip"])
def test_what_no_installer_takes_is_no_offer(file: str) -> None:
    assert offers.make_offer(reader.IndexLink(file, file, f"https://x/{file}")) is None


@pytest.mark.parametrize(("torch", "there", "offered"), BUILDS)
def test_companions_are_of_the_same_build_as_torch(torch: str, there: str, offered: str) -> None:
    found = offers.select_same_build(map(Version, there.split()), Version(torch))
    assert found == set(map(Version, offered.split()))


def test_other_torches_stay_where_only_a_companion_is_asked_for() -> None:
    there = map(Version, ("2.9.1+rocm7.2", "2.8.0+rocm6.4", "2.8.0+cu128"))
    found = offers.select_same_build(there, Version("2.9.1+rocm7.2"), is_torch=True)
    assert found == {Version("2.9.1+rocm7.2"), Version("2.8.0+rocm6.4")}


@pytest.mark.parametrize(
    ("env", "system", "folder"),
    [
        ({"XDG_CACHE_HOME": "/c", "HOME": "/h"}, "linux", "/c/rocm-wheels"),
        ({"XDG_CACHE_HOME": "c", "HOME": "/h"}, "linux", "/h/.cache/rocm-wheels"),
        ({"LOCALAPPDATA": "/l"}, "win32", "/l/rocm-wheels/cache"),
    ],
)
def test_places_of_the_cache(env: dict[str, str], system: str, folder: str) -> None:
    assert user_folders.find_cache_folder(env, system) == Path(folder)
