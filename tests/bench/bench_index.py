"""What an index costs: ``python tests/bench/bench_index.py [WHEELS] [PROJECTS]`` (10000 and 200).

The wheels are small, in the folders of their projects. Prints wall time, processor time and peak memory, each
run a process of its own: the first build, the build again when all is known, one more wheel, a new project,
and a yank.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "worlds"))
from wheels import Draft

RUN = """import resource, sys
from rocm_wheels.cli.boundary import run_command
from rocm_wheels.cli.main import cli
code = run_command(cli, sys.argv[1:])
used = resource.getrusage(resource.RUSAGE_SELF)
print(f"{used.ru_utime + used.ru_stime:6.2f} s of CPU {used.ru_maxrss // 1024:>4} MB")
sys.exit(code)"""
TAGS = [f"cp3{minor}-cp3{minor}-manylinux_2_28_x86_64" for minor in range(10, 15)]


def make(folder: Path, wheels: int, projects: int) -> None:
    """Write the wheels, each version for five Pythons."""
    for number in range(projects):
        project = folder / f"project{number}"
        project.mkdir()
        for count in range(wheels // projects):
            version = f"2.{count // 5}.0+rocm7.{count // 5 % 7}.0"
            Draft(f"project{number}", version, TAGS[count % 5]).write(project)


def measure(what: str, *words: str | Path) -> None:
    """Run a command and print what it took."""
    start = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", RUN, *words], capture_output=True, text=True, check=False)
    wall = time.perf_counter() - start
    if done.returncode:
        raise SystemExit(done.stdout + done.stderr)
    print(f"{what:24} {wall:6.2f} s {done.stdout.splitlines()[-1]}")


def main(wheels: int, projects: int) -> None:
    """Measure everything once."""
    with tempfile.TemporaryDirectory() as name:
        folder, fresh = Path(name) / "index", Path(name) / "fresh"
        folder.mkdir()
        fresh.mkdir()
        make(folder, wheels, projects)
        print(f"{wheels} wheels in {projects} projects")
        measure("start of Python", "--version")
        measure("the first build", "index", "build", folder)
        measure("build, all known", "index", "build", folder)
        for version in ("3.0+rocm7.1.0", "3.1+rocm7.1.0", "3.2+rocm7.1.0"):
            wheel = Draft("project7", version, "py3-none-any").write(fresh)
            measure("one more wheel", "index", "build", folder, wheel)
        measure("a new project", "index", "build", folder, Draft("new", "1.0", "py3-none-any").write(fresh))
        measure("a yank", "index", "yank", folder, "project7==3.0+rocm7.1.0", "--reason", "broken")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("wheels", type=int, nargs="?", default=10_000)
    parser.add_argument("projects", type=int, nargs="?", default=200)
    main(**vars(parser.parse_args()))
