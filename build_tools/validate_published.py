#!/usr/bin/env python3
"""Install what a store has published on a bare system, import it and run doctor, as its users would.

``validate_published.py SUPPORT --image NAME``: SUPPORT is the address or the path of the
``support.json`` of a store, NAME an image of ``data/containers.yaml``. For each family the newest set of the
channel for Linux is installed in a container of that image, by its command in SUPPORT, without a GPU, for one
of its targets. Then torch is imported, and ``rocm-wheels doctor`` checks the installation. uv provides the
Python, so that the image does not limit its version.

With --share 1/4 every fourth family is installed, different ones each day: four jobs cover all families each
day, and one job within four days.

Exit code: 0 if everything could be installed and imported, 16 if not, 2 for wrong arguments.
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
    address = options.support
    try:
        number, parts = (int(word) for word in options.share.split("/"))
        if not 1 <= number <= parts:
            raise ValueError("it is to be like 1/4 to 4/4")
        if "://" in address:
            with urlopen(address, timeout=_READ_SECONDS) as answer:
                content = answer.read()
        else:
            content = Path(address).read_bytes()
        installs = list(list_installs(json.loads(content), address, options.channel))
    except (ValueError, KeyError, OSError) as fault:
        sys.stderr.write(f"error: {address}, --share {options.share}: {fault}\n")
        return 2
    failed = False
    for install in installs[(number - 1 - options.date.toordinal()) % parts :: parts]:
        reason = validate(install, address, options.image, env)
        failed = failed or bool(reason)
        state = f"failed: {reason}" if reason else "installed"
        sys.stdout.write(f"{install['family']}, {install['version']}: {state}\n")
        sys.stdout.flush()
    if not installs:
        sys.stdout.write(f"{options.channel} shows no set for Linux\n")
    return 16 if failed else 0


def list_installs(support: Mapping[str, Any], address: str, channel: str) -> Iterator[dict[str, str]]:
    """Yield what to install: of each family that the channel shows a set of for Linux the newest."""
    releases = {(item["family"], item["channel"], item["set"]): item for item in support["releases"]}
    for item in support["channels"]:
        newest = next((entry for entry in item["sets"] if entry["os"] == "linux"), None)
        if item["channel"] != channel or newest is None:
            continue
        release = releases[item["family"], channel, newest["set"]]
        # cp312 or 3.12; not cp314t
        tags = [
            tag.removeprefix("cp").replace(".", "") for wheel in release["wheels"] for tag in wheel["pythons"]
        ]
        pythons = [(int(tag[0]), int(tag[1:])) for tag in tags if not tag.endswith("t")]
        index = item["url"] or item["index"]
        if item["url"] is None:  # named from where the document lies
            folder = Path(address).resolve().parent
            index = urljoin(address, index) if "://" in address else str((folder / index).resolve())
        yield {
            "family": item["family"],
            "version": newest["version"],
            "python": ".".join(map(str, max(pythons, default=_ANY_PYTHON))),
            "gfx": min((target["gfx"] for target in release["targets"]), default="none"),
            "command": newest["install"]["rocm_wheels"].replace("{index}", index),
        }


def validate(install: Mapping[str, str], support: str, image: str, env: Mapping[str, str]) -> str:
    """Install, import and look; return which step failed and why, or ""."""
    environment, tool = WORK / "environment", WORK / f"tool-{install['python']}"
    program, python = str(tool / "bin" / "rocm-wheels"), str(tool / "bin" / "python")
    words = shlex.split(install["command"])[1:]  # what people are told to type, but where it goes
    more = ["--venv", str(environment), "--python", python]
    more += [] if "--gfx" in words else ["--gfx", install["gfx"]]
    # a store that is a folder, and indexes that are, have to be seen from inside
    places = [] if "://" in support else [Path(support).resolve().parent]
    places += [Path(word.removeprefix("file://")) for word in words if word.startswith(("/", "file:///"))]
    mounts = [word for place in places for word in ("--mount", f"{place}:ro")]
    inside = ["rocm-wheels", "container", "run", "--image", image, *mounts, "--", program]
    steps = [
        ("install", [*inside, *words, *more]),
        ("import", [*inside, "test", "quick", "import", "--device", "cpu", "--python", str(environment)]),
        ("doctor", [*inside, "doctor", "--python", str(environment), "--gfx", install["gfx"]]),
    ]
    if not Path(program).exists():  # what installs, once for each Python, from the clone
        steps.insert(0, ("prepare", ["uv", "venv", "--clear", "--python", install["python"], str(tool)]))
        steps.insert(1, ("prepare", ["uv", "pip", "install", "--python", str(tool), str(CLONE)]))
    uv = {"UV_PYTHON_INSTALL_DIR": str(WORK / "pythons"), "UV_PYTHON_PREFERENCE": "only-managed"}
    shutil.rmtree(environment, ignore_errors=True)
    fault = ""
    for name, command in steps:
        code, text = run(command, {**uv, **env} if name == "prepare" else env)
        if code:
            sys.stderr.write(text)
            lines = [line.strip() for line in text.splitlines() if line.strip()]
            told = [line for line in lines if "error" in line.lower()] or lines[-1:] or [f"exit code {code}"]
            fault = f"{name}: {told[0][:_LONGEST_DETAIL]}"
            break
    shutil.rmtree(environment, ignore_errors=True)
    return fault


def run(command: Sequence[str], env: Mapping[str, str]) -> tuple[int, str]:
    """Run a command; return its exit code and what it printed."""
    program = shutil.which(command[0], path=env.get("PATH"))
    if program is None:
        how = "python3 build_tools/quickstart.py setup --github-path"
        return 127, f"error: there is no {command[0]}: {how}\n"
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    ended = subprocess.run(
        [program, *command[1:]], env=dict(env), text=True, errors="replace", check=False, **pipes
    )
    return ended.returncode, ended.stdout


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
