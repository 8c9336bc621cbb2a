"""Where a wheel can be imported, in which environment, and how an end is told."""

from __future__ import annotations

import pytest

from rocm_wheels.audit import audited_wheel, import_check
from rocm_wheels.core import errors
from rocm_wheels.models import project, project_names
from rocm_wheels.wheels import python_tags

LINUX = import_check.ImportHost("linux", "x86_64")
PLACES: list[tuple[str, project_names.Platform, import_check.ImportHost, str | None]] = [
    ("torch-2.9.0-cp311-cp311-linux_x86_64.whl", "linux", LINUX, None),
    ("torch-2.9.0-cp311-cp311-manylinux_2_28_x86_64.whl", "linux", LINUX, None),
    ("torch-2.9.0-py3-none-any.whl", "linux", LINUX, None),
    ("torch-2.9.0-cp311-cp311-win_amd64.whl", "windows", import_check.ImportHost("windows", "x86_64"), None),
    ("torch-2.9.0-cp311-cp311-win_amd64.whl", "windows", LINUX, "for windows, and this machine runs linux"),
    (
        "torch-2.9.0-cp311-cp311-linux_x86_64.whl",
        "linux",
        import_check.ImportHost("macos", "aarch64"),
        "machine runs macos",
    ),
    ("torch-2.9.0-cp311-cp311-linux_aarch64.whl", "linux", LINUX, "for aarch64, and this machine is x86_64"),
]


@pytest.mark.parametrize(("wheel", "platform", "host", "said"), PLACES)
def test_where_it_can_be_imported(
    wheel: str, platform: project_names.Platform, host: import_check.ImportHost, said: str | None
) -> None:
    reason = import_check.explain_no_import(
        wheel, audited_wheel.WheelExpectation(project.load_project("pytorch"), platform), host
    )
    if said is None:
        assert reason is None
    else:
        assert reason is not None
        assert reason.startswith("not imported: ")
        assert said in reason


def test_the_builders_variables_stay_outside() -> None:
    given = {
        "PATH": "/usr/bin",
        "HOME": "/root",
        "http_proxy": "http://proxy",
        "PYTHONPATH": "/build",
        "PYTHONHOME": "/build",
        "LD_LIBRARY_PATH": "/build",
        "LD_PRELOAD": "/build/x.so",
        "ROCM_PATH": "/build",
        "HIP_DEVICE_LIB_PATH": "/build",
        "PYTORCH_ROCM_ARCH": "gfx942",
        "VIRTUAL_ENV": "/build",
    }
    cleaned = import_check.make_clean_environment(given)
    assert {name for name in cleaned if name in given} == {"PATH", "HOME", "http_proxy"}


ENDS = [
    (-11, "crashed with SIGSEGV"),
    (-6, "crashed with SIGABRT"),
    (-250, "crashed with signal 250"),
    (1, "failed with exit code 1"),
    (0xC0000005, "crashed with an access violation (0xc0000005)"),
    (0xC0000135, "crashed with a DLL that was not found"),
]


@pytest.mark.parametrize(("code", "said"), ENDS)
def test_how_it_ended(code: int, said: str) -> None:
    assert import_check.describe_exit(code).startswith(said)


TAGS = [
    ("cp311", "cp311-cp311-linux_x86_64", True),
    ("cp312", "cp39-abi3-linux_x86_64", True),
    ("cp313t", "cp39-abi3-linux_x86_64", False),
    ("cp313t", "cp313-cp313t-linux_x86_64", True),
    ("cp313", "cp313-cp313t-linux_x86_64", False),
    ("cp310", "py3-none-linux_x86_64", True),
]


@pytest.mark.parametrize(("interpreter", "tag", "accepted"), TAGS)
def test_what_an_interpreter_accepts(interpreter: str, tag: str, accepted: bool) -> None:
    assert (
        tag in {str(t) for t in python_tags.list_accepted_tags(interpreter, ["linux_x86_64"])}
    ) is accepted


@pytest.mark.parametrize("text", ["", "311", "cp27", "pp310", "cp3"])
def test_what_is_no_interpreter(text: str) -> None:
    with pytest.raises(errors.DataError, match="is not the ABI tag of a CPython 3"):
        python_tags.list_accepted_tags(text, ["any"])
