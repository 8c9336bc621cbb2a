#!/usr/bin/env python3
"""Install what a store has published on a bare system, import it, and look at it: as its users do.

``validate_published.py SUPPORT --image NAME``: SUPPORT is the address or the path of the
``support.json`` of a store, NAME an image of ``data/containers.yaml``. Of each family the newest set of the
channel for Linux is installed in a container of that image, by the command that SUPPORT has for it, without a
GPU, for one of its targets. Then torch is imported, and ``rocm-wheels doctor`` looks at the installation. The
Python is one that uv manages: that of a system would say which versions can be tested.

With --share 1/4 every fourth family is installed, other ones each day: four jobs do all of them between them,
and each of them all within four days.

Exit code: 0 when all could be installed and imported, 16 when something could not, 2 for wrong words.
Standard library only.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime, timezone
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.parse import urljoin
from urllib.request import urlopen

from _arguments import OnceParser

CLONE = Path(__file__).resolve().parents[1]
WORK = CLONE / ".validated"  # in the clone: containers see it at the same path
_ANY_PYTHON = (3, 12)  # for wheels that are for every Python
_LONGEST_DETAIL = 300
_READ_SECONDS = 60


def main(words: Sequence[str], env: Mapping[str, str]) -> int:
    """Return the exit code."""
    parser = OnceParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("support", metavar="SUPPORT")
    parser.add_argument("--image", required=True, metavar="NAME", help="image to install in")
    parser.add_argument("--channel", default="nightly", help="channel to install from (default: nightly)")
    parser.add_argument("--share", default="1/1", metavar="N/M", help="part of the families (default: all)")
    parser.add_argument("--date", type=date.fromisoformat, default=datetime.now(timezone.utc).date())
    options = parser.parse_args(words)
    try:
        number, parts = (int(word) for word in options.share.split("/"))
        support = read_support(options.support)
    except (ValueError, OSError) as fault:
        sys.stderr.write(f"error: {options.support}, --share {options.share}: {fault}\n")
        return 2
    if not 1 <= number <= parts:
        sys.stderr.write(f"error: --share {options.share}\ntip: 1/4 to 4/4\n")
        return 2
    installs = list(list_installs(support, options.support, options.channel))
    day = options.date.toordinal()
    failed = False
    for install in installs[(number - 1 - day) % parts :: parts]:
        reason = validate(install, options.support, options.image, env)
        failed = failed or bool(reason)
        state = f"failed: {reason}" if reason else "installed"
        sys.stdout.write(f"{install['family']}, {install['version']}: {state}\n")
        sys.stdout.flush()
    if not installs:
        sys.stdout.write(f"{options.channel} shows no set for Linux\n")
    return 16 if failed else 0


def read_support(address: str) -> Any:
    """Return ``support.json``. OSError where it cannot be read, ValueError where it is none."""
    if "://" not in address:
        return json.loads(Path(address).read_text(encoding="utf-8"))
    try:
        with urlopen(address, timeout=_READ_SECONDS) as answer:
            return json.loads(answer.read())
    except URLError as fault:
        raise OSError(str(fault.reason)) from fault


def list_installs(support: Mapping[str, Any], address: str, channel: str) -> Iterator[dict[str, str]]:
    """Yield what to install: of each family that the channel shows a set of for Linux the newest."""
    releases = {(item["family"], item["channel"], item["set"]): item for item in support["releases"]}
    for item in support["channels"]:
        newest = next((entry for entry in item["sets"] if entry["os"] == "linux"), None)
        if item["channel"] != channel or newest is None:
            continue
        release = releases[item["family"], channel, newest["set"]]
        tags = [tag for wheel in release["wheels"] for tag in wheel["pythons"] if not tag.endswith("t")]
        python = max(map(find_version, tags), default=_ANY_PYTHON)
        targets = sorted(target["gfx"] for target in release["targets"])
        yield {
            "family": item["family"],
            "version": newest["version"],
            "python": ".".join(map(str, python)),
            "gfx": targets[0] if targets else "none",
            "command": newest["install"]["rocm_wheels"].replace(
                "{index}", item["url"] or str(locate_index(address, item["index"]))
            ),
        }


def find_version(tag: str) -> tuple[int, int]:
    """Return the version that a tag is of: 3.12 of cp312, or of 3.12."""
    major, minor = tag.removeprefix("cp").replace(".", "")[:1], tag.removeprefix("cp").replace(".", "")[1:]
    return int(major), int(minor)


def locate_index(address: str, index: str) -> str | Path:
    """Return where an index is, which is named from where the document lies."""
    return urljoin(address, index) if "://" in address else (Path(address).resolve().parent / index).resolve()


def validate(install: Mapping[str, str], support: str, image: str, env: Mapping[str, str]) -> str:
    """Install, import and look; return which step failed and why, or ""."""
    environment = WORK / "environment"
    shutil.rmtree(environment, ignore_errors=True)
    tool = str(WORK / f"tool-{install['python']}" / "bin" / "rocm-wheels")
    python = str(WORK / f"tool-{install['python']}" / "bin" / "python")
    words = shlex.split(install["command"])[1:]  # what people are told to type, but where it goes
    more = ["--venv", str(environment), "--python", python, "--no-cache"]
    more += [] if "--gfx" in words else ["--gfx", install["gfx"]]
    steps = {
        "install": [tool, *words, *more],
        "import": [tool, "test", "import", "--device", "cpu", "--python", str(environment)],
        "doctor": [tool, "doctor", "--python", str(environment), "--gfx", install["gfx"]],
    }
    inside = ["rocm-wheels", "container", "run", "--image", image, *list_mounts(support, install), "--"]
    fault = ""
    for name in ("prepare", *steps):
        code, text = run([*inside, *steps[name]], env) if name in steps else make_tool(install["python"], env)
        if code:
            sys.stderr.write(text)
            fault = f"{name}: {find_detail(text, code)}"
            break
    shutil.rmtree(environment, ignore_errors=True)
    return fault


def find_detail(text: str, code: int) -> str:
    """Return the line that says what was wrong."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if "error" in line.lower()]
    return (errors or lines[-1:] or [f"exit code {code}"])[0][:_LONGEST_DETAIL]


def list_mounts(support: str, install: Mapping[str, str]) -> list[str]:
    """Return the options that have a container see a store that is a folder, and indexes that are."""
    places = [] if "://" in support else [Path(support).resolve().parent]
    words = [word.removeprefix("file://") for word in shlex.split(install["command"])]
    places += [Path(word) for word in words if word.startswith("/")]
    return [word for place in places for word in ("--mount", f"{place}:ro")]


def make_tool(python: str, env: Mapping[str, str]) -> tuple[int, str]:
    """Make the environment that installs, once for each Python, from the clone."""
    folder = WORK / f"tool-{python}"
    if (folder / "bin" / "rocm-wheels").exists():
        return 0, ""
    uv_env = {"UV_PYTHON_INSTALL_DIR": str(WORK / "pythons"), "UV_PYTHON_PREFERENCE": "only-managed", **env}
    code, text = run(["uv", "venv", "--clear", "--python", python, str(folder)], uv_env)
    if code == 0:
        code, text = run(["uv", "pip", "install", "--python", str(folder), str(CLONE)], uv_env)
    return code, text


def run(command: Sequence[str], env: Mapping[str, str]) -> tuple[int, str]:
    """Run a command; return its exit code and what it printed."""
    program = shutil.which(command[0], path=env.get("PATH"))
    if program is None:
        return (
            127,
            f"error: there is no {command[0]}: python3 build_tools/quickstart.py setup --github-path\n",
        )
    ended = subprocess.run(
        [program, *command[1:]],
        env=dict(env),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    return ended.returncode, ended.stdout


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
