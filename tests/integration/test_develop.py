"""``dev`` and ``shell``: an editable torch, edited, compiled, debugged, tried; on a demo's environment."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import miniature
import pytest
from commands import Ended
from finished_demo import Demo
from sources import CLONE

from rocm_wheels.core import process

pytestmark = [
    pytest.mark.contract_slow,
    pytest.mark.slow,
    pytest.mark.network,
    pytest.mark.skipif(sys.platform != "linux", reason="the miniature is built on Linux"),
]
PROGRAM = "build_tools/rocm_wheels/__main__.py"
KERNEL = "aten/src/ATen/native/cuda/Saxpy.cu"
BUILD = 12


@dataclass(frozen=True)
class Branch:
    """A checkout of a developer's own, with the work directory of a demo."""

    demo: Demo
    torch: Path

    @property
    def work(self) -> Path:
        return self.demo.folder / "sources" / ".rocm-wheels"

    def run(self, name: str, *words: str, **env: str) -> Ended:
        places = ["--work-dir", str(self.work)]
        places += ["--source-dir", str(self.torch.parent)] if name == "dev" else []
        return self.demo.ours(name, "torch", *places, *words, **env)

    def develop(self, *words: str) -> Any:
        ended = self.run("dev", "--rocm", f"=={miniature.ROCM_VERSION}", "--gfx", "gfx942", "--json", *words)
        assert ended.code == 0, ended.err
        return json.loads(ended.out)

    def edit(self, path: str, text: str) -> None:
        with (self.torch / path).open("a", encoding="utf-8") as file:
            file.write(text)

    def objects(self) -> dict[str, int]:
        """When each object of the tree in place was written."""
        files = (self.torch / "build").rglob("*.o")
        return {path.name: path.stat().st_mtime_ns for path in files}

    def ask(self, python: str, expression: str) -> str:
        words = (python, "-c", f"import torch; print({expression})")
        return self.demo.start(*words, cwd=Path("/")).out.strip()

    def read_built_environment(self) -> dict[str, str]:
        """The variables of the newest run of the front end, or of ninja."""
        for folder in sorted((self.demo.folder / "sources/.rocm-wheels/runs").iterdir(), reverse=True):
            for line in (folder / "events.jsonl").read_text().splitlines():
                event = json.loads(line)
                step = event.get("step") or ""
                if event["event"] == "command" and step.startswith("develop-"):
                    environment: dict[str, str] = event["environment"]
                    return environment
        raise AssertionError("nothing was developed")

    def runs(self) -> int:
        return len(list((self.demo.folder / "sources" / ".rocm-wheels" / "runs").iterdir()))


@pytest.fixture(scope="module")
def branch(demo: Demo, tmp_path_factory: pytest.TempPathFactory) -> Branch:
    torch = tmp_path_factory.mktemp("branch") / "pytorch"
    shutil.copytree(demo.torch, torch, symlinks=True, ignore=shutil.ignore_patterns("build"))
    return Branch(demo, torch)


def test_an_edit_costs_hipify_and_ninja_alone_and_all_else_is_noticed(branch: Branch) -> None:
    first = branch.develop()
    assert first["action"] == "configured"
    assert branch.ask(first["python"], "torch.__file__") == str(branch.torch / "torch/__init__.py")
    looked = branch.demo.ours("doctor", "--python", first["python"], "--gfx", "gfx942", "--json")
    findings = json.loads(looked.out)["findings"]
    assert [one["message"] for one in findings if one["severity"] == "error"] == [], "it may be imported"
    before, runs = branch.objects(), branch.runs()

    branch.edit(KERNEL, "// mine\n")
    edited = branch.develop()
    assert (edited["action"], edited["hipified"]) == ("compiled", 1)
    assert {name for name, time in branch.objects().items() if before[name] != time} == {"Saxpy.hip.o"}
    branch.edit("torch/cuda/__init__.py", "MINE = 7\n")
    again = branch.develop()
    assert (again["action"], again["hipified"]) == ("up to date", 0)
    assert branch.ask(first["python"], "torch.cuda.MINE") == "7"
    assert branch.runs() == runs

    branch.edit(KERNEL, "int wrong = ;\n")
    failed = branch.run("dev", "--rocm", f"=={miniature.ROCM_VERSION}", "--gfx", "gfx942", "--json")
    assert (failed.code, failed.out) == (BUILD, "")
    assert "Saxpy.hip:" in failed.err and "expected expression" in failed.err
    assert f"in the source: {branch.torch / KERNEL}:" in failed.err
    text = (branch.torch / KERNEL).read_text()
    (branch.torch / KERNEL).write_text(text.replace("int wrong = ;\n", ""))
    assert branch.develop()["action"] == "compiled"

    branch.edit(KERNEL, "// without options\n")
    bare = branch.run("dev", "--json")
    assert json.loads(bare.out)["action"] == "compiled" and "--gfx gfx942" in bare.err, bare.err
    wrong = branch.run("dev", "--gfx", "gfx9", "--json")
    assert (wrong.code, wrong.out) == (2, "")
    assert json.loads(branch.run("dev", "--json").out)["action"] == "up to date"

    released = branch.objects()
    debug = branch.develop("--set-env", "pytorch:DEBUG=1")
    assert branch.ask(debug["python"], "torch.version.debug") == "True"
    branch.develop()
    assert branch.objects() == released
    assert branch.ask(first["python"], "torch.version.debug") == "False"


@pytest.mark.exhaustive  # test_build_again.py has one of `build`, which goes on in the same tree
def test_a_kernel_that_comes_goes_or_is_renamed_counts(branch: Branch) -> None:
    branch.develop()
    before = branch.objects()
    folder = branch.torch / Path(KERNEL).parent
    text = (folder / "Activation.cu").read_text().replace("Relu", "Mine").replace("relu", "first_mine")
    (folder / "First.cu").write_text(text)
    for names in (["first_mine"], ["second_mine"], []):
        assert branch.develop()["action"] == "configured"
        library = (branch.torch / "torch/lib/libtorch_hip.so").read_bytes()
        assert [name for name in ("first_mine", "second_mine") if name.encode() in library] == names
        assert before.items() <= branch.objects().items()
        runs = branch.runs()
        assert branch.develop()["action"] == "up to date"
        assert branch.runs() == runs  # the short way again
        if names == ["first_mine"]:
            (folder / "First.cu").rename(folder / "Second.cu")
            (folder / "Second.cu").write_text(text.replace("first_mine", "second_mine"))
        else:
            (folder / "Second.cu").unlink(missing_ok=True)


def test_what_a_killed_run_left_at_work_is_ended(branch: Branch) -> None:
    """Its step holds the source; whoever edits on does not wait for it."""
    branch.develop()
    branch.edit("setup.py", "import os, time\nif not os.path.exists('go-on'):\n    time.sleep(300)\n")
    before = branch.runs()
    words = ("dev", "torch", "--source-dir", str(branch.torch.parent), "--work-dir", str(branch.work))
    line = branch.demo.command(*words, door=PROGRAM)
    killed = subprocess.Popen(line, env=branch.demo.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    begun: dict[str, Any] = {}
    deadline = time.monotonic() + 60
    while not begun and time.monotonic() < deadline:
        time.sleep(0.2)
        record = max((branch.work / "runs").iterdir()) / "events.jsonl"
        if branch.runs() > before and record.exists():
            lines = record.read_text().splitlines()
            events = [json.loads(text) for text in lines]
            begun = next((e for e in events if e["event"] == "step-begun" and "develop" in e["step"]), {})
    killed.kill()
    killed.wait()
    assert begun and process.is_process_alive(begun["pid"], begun["began"]), "the step goes on alone"
    (branch.torch / "go-on").touch()
    assert branch.develop()["action"] == "configured"
    assert not process.is_process_alive(begun["pid"], begun["began"])


@pytest.mark.exhaustive
def test_another_commit_needs_no_front_end_and_another_setup_does(branch: Branch) -> None:
    branch.develop()
    runs = branch.runs()
    branch.edit(KERNEL, "// of the branch\n")
    identity = ("-c", "user.name=A", "-c", "user.email=a@example.org")
    for words in (
        ["checkout", "-q", "-b", "mine"],
        [*identity, "commit", "-qm", "mine", KERNEL],
        ["checkout", "-q", "-"],
    ):
        subprocess.run(["git", *words], cwd=branch.torch, check=True)
    for name in ("mine", "-"):
        switched = branch.develop()
        assert (switched["action"], switched["hipified"]) == ("compiled", 1)
        subprocess.run(["git", "checkout", "-q", name], cwd=branch.torch, check=True)
    assert branch.runs() == runs
    branch.develop()

    branch.edit("setup.py", "# mine\n")
    assert branch.develop()["action"] == "configured"
    assert branch.develop()["action"] == "up to date"


def test_a_shell_has_the_environment_of_the_build_step(branch: Branch, tmp_path: Path) -> None:
    python = branch.develop()["python"]
    printed = branch.run("shell", "--json")
    variables = json.loads(printed.out)
    built = branch.read_built_environment()
    # the jobs of one run; its git and its cmake, which stand before the PATH of all others
    steps = {"MAX_JOBS", "CMAKE_BUILD_PARALLEL_LEVEL", "PATH", "PYTHONPATH"}
    assert {name: variables[name] for name in built.keys() - steps} == {
        name: value for name, value in built.items() if name not in steps
    }
    assert variables["PATH"].split(":")[0] == str(Path(python).parent)
    script = tmp_path / "shell"
    script.write_text(
        '#!/bin/sh\npython -c "import torch; print(torch.__file__)"\necho $PYTORCH_ROCM_ARCH\nexit 7\n'
    )
    script.chmod(0o755)
    opened = branch.run("shell", SHELL=str(script))
    assert (opened.code, opened.out.split()) == (7, [str(branch.torch / "torch/__init__.py"), "gfx942"])
    ran = branch.run("shell", "--", "python", "-c", "import torch; print(torch.__file__); exit(5)")
    assert (ran.code, ran.out.strip()) == (5, str(branch.torch / "torch/__init__.py"))
    assert branch.run("shell", "--json", "--", "true").code == 2
    unnamed = branch.demo.ours("shell", "--work-dir", branch.work, "--", "echo", "apex")
    assert (unnamed.code, unnamed.out.strip()) == (0, "apex"), unnamed.err


def test_test_tools_are_installed_in_a_shell_as_the_page_says(branch: Branch, tmp_path: Path) -> None:
    """Where no uv is on PATH, and the environment has no pip."""
    built = branch.develop()
    page = (CLONE / "docs/pages/how-to/custom-branch.md").read_text(encoding="utf-8")
    (block,) = (fence for fence in page.split("```console\n") if "install pytest" in fence)
    _, install, test = [line[2:] for line in block.partition("```")[0].splitlines()]
    script = tmp_path / "shell"
    script.write_text(f"#!/bin/sh -e\n{install}\n{test.replace('test/test_nn.py', '--version')}\n")
    script.chmod(0o755)
    opened = branch.run("shell", SHELL=str(script), PATH="/usr/bin:/bin")
    assert opened.code == 0, opened.err
    ran = branch.run("shell", "--", "pip", "list", PATH="/usr/bin:/bin")  # not that of the system
    assert ran.code == 0 and "pytest" in ran.out, ran.err
    installed = "import pytest, sys; print(sys.prefix in pytest.__file__)"
    assert branch.demo.start(built["python"], "-c", installed).out.strip() == "True"
    assert branch.develop()["action"] == "up to date"
