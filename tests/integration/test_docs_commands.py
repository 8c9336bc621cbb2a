"""The commands of the documentation, run: those that are not marked as needing what is not here."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from docs_pages import CLONE, PAGES, DocsBlock, list_blocks
from finished_demo import Demo
from warm_python import warm_python, write_script

pytestmark = [pytest.mark.slow, pytest.mark.network]
RUN = [page for page in PAGES if any(block.is_run for block in list_blocks(page))]


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for PATH, with a rocm-wheels that begins in a warm Python."""
    folder = tmp_path_factory.mktemp("programs")
    write_script(folder / "rocm-wheels", [*warm_python(steps=True), "-m", "rocm_wheels"])
    return folder


@pytest.mark.parametrize("page", RUN, ids=lambda page: page.relative_to(CLONE).as_posix())
def test_commands_of_a_page_run_as_it_shows(page: Path, demo: Demo, programs: Path, tmp_path: Path) -> None:
    """All blocks of a page in their order, in a folder that has a finished demo."""
    (tmp_path / "demo-output").symlink_to(demo.folder, target_is_directory=True)
    for block in list_blocks(page):
        if block.is_run:
            run_block(block, demo, programs, tmp_path)


def run_block(block: DocsBlock, demo: Demo, programs: Path, folder: Path) -> None:
    script = "\n".join(command for command, _ in block.commands)
    path = os.pathsep.join([str(programs), str(Path(sys.executable).parent), demo.env["PATH"]])
    ended = subprocess.run(
        ["bash", "-e", "-c", script],
        cwd=folder,
        env={**demo.env, "PATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert ended.returncode == int(block.marks.get("exit code", 0)), f"{block.place}\n{ended.stdout}"
    printed = [" ".join(line.split()) for line in ended.stdout.splitlines()]
    for line in (line for _, lines in block.commands for line in lines):
        pattern = ".*".join(re.escape(part) for part in " ".join(line.split()).split("…"))
        place = next((n for n, text in enumerate(printed) if re.fullmatch(pattern, text)), None)
        assert place is not None, f"{block.place}: {line}\n{ended.stdout}"
        del printed[: place + 1]
