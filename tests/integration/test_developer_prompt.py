"""Visual Studio's developer prompt, played by shell scripts: what a build on Windows begins with."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from rocm_wheels.compile import variables
from rocm_wheels.core import errors

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there it would be the real one")


def installed(folder: Path, *, says: str = "@VS@", told: str = "VCToolsInstallDir=C:\\VC") -> dict[str, str]:
    """Return the environment of a machine with vswhere and a cmd.exe that knows two commands."""
    programs = folder / "Program Files (x86)"
    vswhere = programs / "Microsoft Visual Studio/Installer/vswhere.exe"
    vswhere.parent.mkdir(parents=True)
    vswhere.write_text(f"#!/bin/sh\necho '{says.replace('@VS@', str(folder / 'VS 2022'))}'\n")
    cmd = folder / "cmd.exe"
    cmd.write_text(
        "#!/bin/sh\n"
        f'[ "$1 $2" = "/d /c" ] || exit 9\n/bin/cp "$3" "{folder}/asked.bat"\n'
        f"printf '%s\\r\\n' '{told}' 'Path=C:\\VC\\bin;C:\\Git\\usr\\bin' '=C:=C:\\here' 'Of=a=b'\n"
    )
    for one in (vswhere, cmd):
        one.chmod(0o755)
    return {"ProgramFiles(x86)": str(programs), "ComSpec": str(cmd), "PATH": r"C:\Git\usr\bin", "MINE": "1"}


def test_a_build_outside_of_a_developer_prompt_begins_inside(tmp_path: Path) -> None:
    env = installed(tmp_path)
    found = variables.add_visual_studio(env, "win32")
    assert found["PATH"] == r"C:\VC\bin;C:\Git\usr\bin"  # before Git's own link.exe
    assert (found["VCTOOLSINSTALLDIR"], found["MINE"], found["OF"]) == (r"C:\VC", "1", "a=b")
    script = tmp_path / "VS 2022/VC/Auxiliary/Build/vcvars64.bat"
    assert f'@call "{script}" >nul\r\n' in (tmp_path / "asked.bat").read_bytes().decode()
    assert variables.add_visual_studio(found, "win32") == found  # and again nothing is asked


def test_what_is_as_it_was(tmp_path: Path) -> None:
    env = installed(tmp_path, says="")
    assert variables.add_visual_studio(env, "win32") == env  # no Visual Studio with C++
    assert variables.add_visual_studio(env, "linux") == env
    inside = {"VSCMD_VER": "17.14", "PATH": "x"}
    assert variables.add_visual_studio(inside, "win32") == inside
    nothing = {"ProgramFiles(x86)": str(tmp_path / "none")}
    assert variables.add_visual_studio(nothing, "win32") == nothing


def test_a_prompt_that_says_nothing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(errors.BuildError, match="says nothing of compilers"):
        variables.add_visual_studio(installed(tmp_path, told="X=1"), "win32")
