"""A plan of tiny projects as a workflow, and Snakemake as a user starts it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from tiny_projects import TAG, World

TRITON, TORCH, AUDIO = (f"build-{name}-{TAG}" for name in ("triton", "pytorch", "pytorch_audio"))
SMOKE = f"test-smoke-{TAG}"


def write_workflow(world: World, *words: str) -> Path:
    """Plan, and write it as a workflow in a folder whose name a shell and Snakemake must not read."""
    snakefile = world.folder / "a night's plan" / "Snakefile"
    shutil.rmtree(snakefile.parent, ignore_errors=True)
    snakefile.parent.mkdir()
    made = world.run(*world.words("--format", "snakemake", "-o", str(snakefile), *words, command="plan"))
    assert made.code == 0, made.err
    return snakefile


def has_wheel(world: World, distribution: str) -> bool:
    return any(world.output.glob(f"{distribution}-*.whl"))


def start(world: World, snakefile: Path, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        ["snakemake", "--snakefile", str(snakefile), "--cores", "2", "--nocolor", *words],
        cwd=snakefile.parent,
        env={**world.env, "XDG_CACHE_HOME": str(world.folder / "cache")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
