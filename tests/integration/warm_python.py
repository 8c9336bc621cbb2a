"""A Python that has imported rocm-wheels already: commands of tests start in a fifth of the time.

``[*warm_python(), "-m", "rocm_wheels", …]`` is for the caller what ``[sys.executable, …]`` is: a process with
the caller's environment, folder and files. What begins there is a few lines (``main``), which hand all of it
to a process that imports everything once and forks for each command. A command that its caller kills is
killed. What differs is how processes are called and numbered: tests that look for processes, or kill them,
start Python itself.
"""

from __future__ import annotations

import _socket  # this file is also what begins in place of a command, and socket takes 5 ms
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from typing import NoReturn

COUNT = 8  # bytes of a number on the line
FILES = 3  # stdin, stdout, stderr
STEPS = "--steps"
STARTED: list[tuple[object, list[str]]] = []  # what serves this process, and the words
SCRIPTS: list[tuple[object, list[str]]] = []  # the same of each script that was made to begin so


def warm_python(*, steps: bool = False) -> list[str]:
    """Return the words that stand for Python; the first call starts what serves them until pytest ends.

    With ``steps`` the processes of steps, which ``build`` starts, begin so too.
    """
    if sys.platform != "linux":
        return [sys.executable]
    if not STARTED:
        STARTED.append(start_server(sys.executable))
    return [*STARTED[0][1], *([STEPS] if steps else [])]


def warm_script(script: Path) -> None:
    """Have the script of an environment's rocm-wheels begin in a warm Python of that environment."""
    import shlex

    if sys.platform == "linux" and not script.read_text(encoding="utf-8").startswith("#!/bin/sh\n"):
        SCRIPTS.append(start_server(str(script.with_name("python"))))
        begin = shlex.join([*SCRIPTS[-1][1], "-m", "rocm_wheels"])
        script.write_text(f'#!/bin/sh\nexec {begin} "$@"\n', encoding="utf-8")


def start_server(python: str) -> tuple[object, list[str]]:
    """Start what serves commands of a Python; return it, and the words that stand for that Python."""
    import subprocess
    import tempfile

    place = tempfile.mkdtemp(prefix="warm-") + "/socket"
    words = [python, __file__, "--serve", place]
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    server = subprocess.Popen(words, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert server.stdout is not None
    assert server.stdout.readline() == b"ready\n"
    return server, [python, "-I", "-S", __file__, place]


# -- in place of a command ----------------------------------------------------------------------------------


def main(place: str, words: list[str]) -> None:
    """Have the server fork, pass on signals, and end as the command ended."""
    import signal

    line = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    line.connect(place)
    env = [name + b"=" + value for name, value in os.environb.items()]
    parts = [os.getcwdb(), str(len(words)).encode(), *map(os.fsencode, words), *env]  # noqa: PTH109
    message = b"\0".join(parts)
    files = b"".join(number.to_bytes(4, sys.byteorder) for number in range(FILES))
    first = len(message).to_bytes(COUNT, "big")
    line.sendmsg([first], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, files)])
    line.sendall(message)
    pid = int.from_bytes(receive(line, COUNT), "big")
    if not pid:
        os.execv(sys.executable, [sys.executable, *(word for word in words if word != STEPS)])
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda got, _frame: os.kill(pid, got))
    status = int.from_bytes(receive(line, COUNT), "big")
    if os.WIFSIGNALED(status):
        if os.WTERMSIG(status) != signal.SIGKILL:
            signal.signal(os.WTERMSIG(status), signal.SIG_DFL)
        os.kill(os.getpid(), os.WTERMSIG(status))
    os._exit(os.WEXITSTATUS(status))


def receive(line: _socket.socket, size: int) -> bytes:
    """Read so many bytes; the other side is gone when there are fewer."""
    got = b""
    while len(got) < size:
        more = line.recv(size - len(got))
        if not more:
            raise SystemExit("the warm Python is gone")
        got += more
    return got


# -- the server ---------------------------------------------------------------------------------------------

READ_AT_START = ("LANG", "LC_", "PYTHON")
HARMLESS = {"PYTHONPATH", "PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE"}


def serve(place: str) -> None:
    """Import all, then fork for each command, until the process that started this is gone."""
    import gc
    import importlib
    import pkgutil
    import selectors
    import shutil
    import signal
    import socket
    from pathlib import Path

    import rocm_wheels

    for module in pkgutil.walk_packages(rocm_wheels.__path__, "rocm_wheels."):
        if ".templates" not in module.name and not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    sys.path.pop(0)  # where this file is
    gc.collect()
    gc.freeze()
    own = _read_at_start(os.environb)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(place)
    listener.listen(16)
    awake, wake = socket.socketpair()
    for end in (awake, wake):
        end.setblocking(False)
    signal.set_wakeup_fd(wake.fileno())
    signal.signal(signal.SIGCHLD, lambda *_: None)
    interrupted = signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to everybody
    os.write(1, b"ready\n")
    sources = selectors.DefaultSelector()
    for source in (0, listener, awake):
        sources.register(source, selectors.EVENT_READ)
    lines: dict[int, socket.socket] = {}  # of the commands at work
    while True:
        for key, _ in sources.select():
            if key.fileobj == 0:
                shutil.rmtree(Path(place).parent)
                os._exit(0)
            elif key.fileobj is awake:
                awake.recv(4096)
            elif key.fileobj is not listener:  # who waited for a command was killed
                sources.unregister(key.fileobj)
                os.kill(key.data, signal.SIGKILL)
            else:
                line, _ = listener.accept()
                size, files, _, _ = socket.recv_fds(line, COUNT, FILES)
                parts = receive(line, int.from_bytes(size, "big")).split(b"\0")
                count = 2 + int(parts[1])
                env = dict(part.split(b"=", 1) for part in parts[count:])
                pid = os.fork() if _read_at_start(env) == own else None
                if pid == 0:
                    signal.set_wakeup_fd(-1)
                    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                    signal.signal(signal.SIGINT, interrupted)
                    sources.close()
                    _take(files, parts[0], env)
                    _run([os.fsdecode(word) for word in parts[2:count]], place)
                for file in files:
                    os.close(file)
                line.send((pid or 0).to_bytes(COUNT, "big"))
                if pid:
                    lines[pid] = line
                    sources.register(line, selectors.EVENT_READ, pid)
        while lines:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                break
            with lines.pop(pid) as line:
                if line in sources.get_map():
                    sources.unregister(line)
                    line.send(status.to_bytes(COUNT, "big"))


def _read_at_start(env: Mapping[bytes, bytes]) -> set[tuple[str, str]]:
    """Return what Python reads when it starts: a command with other things than the server is not for it."""
    from pathlib import Path

    import rocm_wheels

    own = Path(rocm_wheels.__file__).parent
    texts = {os.fsdecode(name): os.fsdecode(value) for name, value in env.items()}
    special = {(name, text) for name, text in texts.items() if name.startswith(READ_AT_START)}
    for place in map(Path, filter(None, texts.get("PYTHONPATH", "").split(os.pathsep))):
        another = (place / "rocm_wheels").exists() and not own.samefile(place / "rocm_wheels")
        if another or (place / "sitecustomize.py").exists():
            special.add((str(place), ""))
    return {(name, text) for name, text in special if name not in HARMLESS}


def _take(files: list[int], folder: bytes, env: Mapping[bytes, bytes]) -> None:
    """Take over what the process has that this one stands for, and nothing else."""
    os.setsid()
    for number, file in enumerate(files):
        os.dup2(file, number)
    os.closerange(FILES, max(files) + 100)
    os.chdir(folder)
    os.environb.clear()
    os.environb.update(env)
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        old = getattr(sys, name)
        new = open(number, mode, 1 if name == "stderr" else -1, old.encoding, old.errors)  # noqa: SIM115
        setattr(sys, name, new)
        setattr(sys, f"__{name}__", new)


def _run(words: list[str], place: str) -> NoReturn:
    """Run ``-m MODULE …``, ``-c CODE …`` or ``SCRIPT …`` as Python does, and end."""
    import runpy
    from pathlib import Path

    from rocm_wheels.pipeline import run_step

    if words[0] == STEPS:
        words = words[1:]
        begin = [sys.executable, "-I", "-S", __file__, place, "-m", "rocm_wheels"]
        run_step.get_own_command = lambda: begin
    how = words.pop(0) if words[0] in ("-c", "-m") else ""
    first = Path(words[0]).absolute().parent if not how else Path.cwd()
    places = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:0] = [str(first), *filter(None, places)]
    sys.argv = ["-c", *words[1:]] if how == "-c" else words
    if how == "-c":
        exec(compile(words[0], "<string>", "exec"), {"__name__": "__main__"})
    elif how == "-m":
        runpy.run_module(words[0], run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(words[0], run_name="__main__")
    sys.exit()


if __name__ == "__main__":
    if sys.argv[1] == "--serve":
        serve(sys.argv[2])
    else:
        main(sys.argv[1], sys.argv[2:])
