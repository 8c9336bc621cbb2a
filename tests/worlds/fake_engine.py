"""A docker or podman that keeps what it was told and runs the command right here, without a container.

It behaves as the real ones do where we depend on it: `info` and `version` as JSON, `run` with the exit code
of the command, a running container that `stop` ends, 125 for an option that it does not know.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

DOCKER_INFO = {"ServerVersion": "28.2.2", "SecurityOptions": ["name=seccomp,profile=builtin"]}
DOCKER_SERVER = {"Components": [{"Name": "Engine", "Version": "28.2.2"}]}
PODMAN_INFO = {
    "host": {"security": {"rootless": True}, "ociRuntime": {"name": "crun"}},
    "version": {"Version": "5.4.0"},
}

# options of `docker run` (28.2.2) that stand alone; all others that we give take a value
ALONE = {"--rm", "--init", "--interactive", "--tty"}
PROGRAM = """#!{python} -IS
import json, os, signal, subprocess, sys
from pathlib import Path
sys.path.insert(0, {folder!r})
from fake_engine import act
sys.exit(act(Path({state!r}), Path(sys.argv[0]).name, sys.argv[1:]))
"""


class FakeEngine:
    """The programs in ``bin``. ``answer`` fixes what they say to a first word."""

    def __init__(self, folder: Path, *names: str) -> None:
        self.bin, self.state = folder / "bin", folder / "state"
        for one in (self.bin, self.state):
            one.mkdir(parents=True)
        for name in names:
            program = self.bin / name
            text = PROGRAM.format(
                python=sys.executable, folder=str(Path(__file__).parent), state=str(self.state)
            )
            program.write_text(text)
            program.chmod(0o755)

    def answer(self, name: str, word: str, code: int, out: Any = "", err: str = "") -> None:
        said = out if isinstance(out, str) else json.dumps(out)
        (self.state / f"{name}-{word}").write_text(json.dumps([code, said, err]))

    def told(self) -> list[list[str]]:
        """Every command, with the name of the program first."""
        kept = self.state / "told"
        return [json.loads(line) for line in kept.read_text().splitlines()] if kept.exists() else []

    def ran(self) -> list[str]:
        """The only `run` of all."""
        (found,) = [one for one in self.told() if one[1] == "run"]
        return found


def act(state: Path, name: str, argv: list[str]) -> int:
    """Be the engine."""
    with (state / "told").open("a") as kept:
        kept.write(json.dumps([name, *argv]) + "\n")
    fixed = state / f"{name}-{argv[0]}"
    if fixed.exists():
        code, out, err = json.loads(fixed.read_text())
        sys.stdout.write(out)
        sys.stderr.write(err)
        return int(code)
    if argv[0] == "info":
        print(json.dumps(DOCKER_INFO if name == "docker" else PODMAN_INFO))
    elif argv[0] == "version":
        print(json.dumps(DOCKER_SERVER))
    elif argv[0] == "stop":
        return _stop(state / argv[-1])
    elif argv[0] == "ps":
        wanted = argv[-1].removeprefix("name=^").removesuffix("$")
        print("0123456789ab" if (state / wanted).exists() else "", end="")
    elif argv[0] == "run":
        return _run(state, argv[1:])
    return 0


def _run(state: Path, argv: list[str]) -> int:
    import subprocess

    given: dict[str, list[str]] = {}
    while argv and argv[0].startswith("--"):
        option = argv.pop(0)
        given.setdefault(option, []).append("" if option in ALONE else argv.pop(0))
    container = state / given["--name"][0]
    env = {"PATH": os.environ["PATH"]}
    for word in given.get("--env", []):
        name, has_value, value = word.partition("=")
        if has_value or name in os.environ:
            env[name] = value if has_value else os.environ[name]
    command = argv[1:]  # behind the image
    # a session of its own, as the processes of a container are no children of the client
    child = subprocess.Popen(command, env=env, cwd=given["--workdir"][0], start_new_session=True)
    container.write_text(str(child.pid))
    code = child.wait()
    container.unlink(missing_ok=True)
    return code if code >= 0 else 128 - code


def _stop(container: Path) -> int:
    import signal

    if not container.exists():
        print(f"Error response from daemon: No such container: {container.name}", file=sys.stderr)
        return 1
    os.killpg(int(container.read_text()), signal.SIGTERM)
    return 0
