"""Each script of tests/bench starts, and the command lines that it would run are those of today."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import click
import pytest
from warm_python import warm_python

from rocm_wheels.cli import main

CLONE = Path(__file__).resolve().parents[2]
BENCH = CLONE / "tests" / "bench"
SCRIPTS = sorted(path.name for path in BENCH.glob("bench_*.py"))
PEER = "/therock/external-builds/pytorch"
CHECKS = {  # those that compare with the peer's scripts: what has every line of theirs and of ours checked
    "bench_against_peer.py": ["--peer", PEER, "--check"],
    "bench_checkout.py": ["--peer", PEER, "--check"],
}
# options of git, uv, pip, cp, auditwheel, variantlib, wheel; --apart is between processes of a script
OF_OTHERS = """
    --apart --bare --build --cache-dir --no-cache --default-index --disable-pip-version-check --dist-dir
    --init --inplace --isolated --local --no-config --no-deps --no-isolation --preview-features --property
    --pyproject-toml --recurse-submodules --recursive --reflink=never --reinstall --trusted-host
    --variant-label
"""
OTHERS = frozenset(OF_OTHERS.split())


def run(script: str, *words: str) -> subprocess.CompletedProcess[str]:
    argv = [*warm_python(), str(BENCH / script), *words]
    return subprocess.run(argv, capture_output=True, text=True, check=False)


def test_each_script_starts() -> None:
    with ThreadPoolExecutor(2) as pool:
        ended = dict(zip(SCRIPTS, pool.map(lambda script: run(script, "--help"), SCRIPTS), strict=True))
    assert {script: done.stderr for script, done in ended.items() if done.returncode} == {}


@pytest.mark.parametrize("script", CHECKS)
def test_lines_of_ours_and_of_the_peer_are_those_of_today(script: str) -> None:
    done = run(script, *CHECKS[script])
    assert done.returncode == 0, done.stderr
    assert PEER in done.stdout  # its lines were among them


def test_an_option_that_the_peer_lacks_is_seen() -> None:
    lines = [["python", f"{PEER}/build_prod_wheels.py", "build", "--gfx", "gfx942"]]
    code = f"import sys; sys.path.insert(0, {str(BENCH)!r}); from peer_lines import check_lines; "
    done = subprocess.run(
        [sys.executable, "-c", f"{code}check_lines({lines!r})"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "--gfx" in done.stderr


def list_options(command: click.Command, context: click.Context) -> set[str]:
    names = {
        name
        for option in command.get_params(context)
        if isinstance(option, click.Option) and not option.hidden
        for name in (*option.opts, *option.secondary_opts)
    }
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            names |= list_options(below, click.Context(below, info_name=name, parent=context))
    return names


def test_every_option_in_a_script_is_one_of_a_program() -> None:
    """Also of scripts whose lines cannot be listed without running them."""
    peer = json.loads((CLONE / "tests" / "data" / "peer_options.json").read_text(encoding="utf-8"))
    known = list_options(main.cli, click.Context(main.cli)) | OTHERS
    known |= {name for commands in peer["scripts"].values() for names in commands.values() for name in names}
    unknown = {}
    for path in sorted(BENCH.glob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        texts = {
            node.value
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant) and isinstance(node.value, str)
        }
        declared = {
            word.value
            for node in ast.walk(tree)
            if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "add_argument"
            for word in node.args
            if isinstance(word, ast.Constant)
        }
        options = {text for text in texts if re.fullmatch(r"--[a-z][\w=-]*", text)} - declared
        unknown[path.name] = sorted(options - known)
    assert {name: options for name, options in unknown.items() if options} == {}


def test_the_page_of_benchmarks_names_scripts_and_options_that_are_there() -> None:
    page = (CLONE / "docs" / "pages" / "benchmarks.md").read_text(encoding="utf-8")
    for script, words in re.findall(r"`(?:tests/bench/)?(bench_\w+\.py)([^`]*)`", page):
        assert script in SCRIPTS
        text = (BENCH / script).read_text(encoding="utf-8")
        assert all(f'"{option}"' in text for option in re.findall(r"--[\w-]+", words)), script
