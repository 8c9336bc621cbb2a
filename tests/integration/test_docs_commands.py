"""The commands of the documentation, run: those that are not marked as needing what is not here."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import miniature
import pytest
import servers
from docs_pages import CLONE, PAGES, DocsBlock, list_blocks
from finished_demo import Demo
from warm_python import warm_python, write_script

from rocm_wheels.gpus import variables

pytestmark = [pytest.mark.contract_slow, pytest.mark.slow, pytest.mark.network]
RUN = [page for page in PAGES if any(block.is_run for block in list_blocks(page))]


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for PATH, with a rocm-wheels that begins in a warm Python."""
    folder = tmp_path_factory.mktemp("programs")
    write_script(folder / "rocm-wheels", [*warm_python(), "-m", "rocm_wheels"])
    return folder


@pytest.mark.parametrize("page", RUN, ids=lambda page: page.relative_to(CLONE).as_posix())
def test_commands_of_a_page_run_as_it_shows(page: Path, demo: Demo, programs: Path, tmp_path: Path) -> None:
    """All blocks of a page in their order, in a folder that has a finished demo."""
    (tmp_path / "demo-output").symlink_to(demo.folder, target_is_directory=True)
    for block in list_blocks(page):
        if block.is_run:
            run_block(block, demo, programs, tmp_path)


def test_lines_of_a_release_pass_the_gate(demo: Demo, programs: Path, tmp_path: Path) -> None:
    """On the demo's wheels, by the shipped policy; what is imitated is the GPU.

    They are README's and those of the page about releases, in a bucket of a server that ``AWS_ENDPOINT_URL``
    names, as README says; the demo releases into a folder. What a command says is next is how the line after
    it begins.
    """
    for place, link in {"wheels": "dist", "sources.lock.json": "set.lock"}.items():
        (tmp_path / link).symlink_to(demo.folder / place)
    env = {variables.GFX_VARIABLES[0]: miniature.TARGETS[0]}
    store, moto = f"s3://{servers.a_bucket()}/rocm", servers.environment(servers.moto())
    assert "AWS_ENDPOINT_URL" in moto and "`AWS_ENDPOINT_URL`" in (CLONE / "README.md").read_text()
    env |= moto
    lines = lines_of_a_release("docs/pages/how-to/release.md", demo, store)
    where_it_is_served = " --public-url https://wheels.example.org/rocm/"
    assert lines[-1].endswith(where_it_is_served)
    assert lines_of_a_release("README.md", demo, store) == [
        *lines[:-1],
        lines[-1].removesuffix(where_it_is_served),
    ]
    set_id, expected, nexts = "", "", 0
    for template in lines:
        line = template.replace(" ID ", f" {set_id} ")
        assert line.startswith(expected), f"{line}: the command before says that {expected} is next"
        ended = run_lines([line], demo, programs, tmp_path, **env)
        if "test smoke" in line:  # this torch has no tensors: the part on the GPU fails
            assert ended.returncode == 1, ended.stdout
            imitate_gpu(tmp_path / "smoke" / "results.json")
        else:
            assert ended.returncode == 0, f"{line}\n{ended.stdout}"
        said = re.search(r"^next: (.*)$", ended.stdout, re.M)
        expected = said[1].partition(" --family ")[0] if said and "set key" not in line else ""
        nexts += bool(expected)
        if "set stage" in line:
            set_id = expected.rpartition(" --set ")[2]
    shown = run_lines([f"rocm-wheels set list {store} --channel nightly"], demo, programs, tmp_path, **env)
    assert nexts >= 3 and set_id and set_id in shown.stdout


def lines_of_a_release(page: str, demo: Demo, store: str) -> list[str]:
    """Return the lines of a page with a store, and the family and the ROCm of the demo."""
    blocks = list_blocks(CLONE / page)
    (block,) = (b for b in blocks if any("set stage s3://" in line for line, _ in b.commands))
    lines = []
    for line, _ in block.commands:
        here = line.replace("s3://my-wheels/rocm", store)
        if "set stage" in line:
            here = re.sub(r"--family \S+", "--family multi-arch", here)
        if "test smoke" in line:
            packages = shlex.quote(str(demo.folder / "rocm-packages" / "dist"))
            here = re.sub(r"--rocm-index \S+", f"--rocm-index {packages}", here)
            here = re.sub(r"--family \S+", "", here) + " -- -k torch_starts"  # it calculates nothing
        lines.append(here)
    return lines


def imitate_gpu(results: Path) -> None:
    """Write into results of a real run what a run of all tests on a GPU has more."""
    document = json.loads(results.read_text(encoding="utf-8"))
    del document["selected"]
    tests = [{"name": f"test_matmul.py::test_{name}[gpu]", "outcome": "passed"} for name in ("mm", "bmm")]
    changes = {"gfx": miniature.TARGETS[0]}
    results.write_text(json.dumps({**document, **changes, "tests": tests}), encoding="utf-8")


def run_lines(
    lines: Sequence[str], demo: Demo, programs: Path, folder: Path, **env: str
) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(programs), str(Path(sys.executable).parent), demo.env["PATH"]])
    return subprocess.run(
        ["bash", "-e", "-c", "\n".join(lines)],
        cwd=folder,
        env={**demo.env, "PATH": path, **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


def run_block(block: DocsBlock, demo: Demo, programs: Path, folder: Path) -> None:
    ended = run_lines([command for command, _ in block.commands], demo, programs, folder)
    assert ended.returncode == int(block.marks.get("exit code", 0)), f"{block.place}\n{ended.stdout}"
    printed = [" ".join(line.split()) for line in ended.stdout.splitlines()]
    for line in (line for _, lines in block.commands for line in lines):
        pattern = ".*".join(re.escape(part) for part in " ".join(line.split()).split("…"))
        place = next((n for n, text in enumerate(printed) if re.fullmatch(pattern, text)), None)
        assert place is not None, f"{block.place}: {line}\n{ended.stdout}"
        del printed[: place + 1]
