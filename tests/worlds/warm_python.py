"""A Python that has imported rocm-wheels already: commands of tests start in a fifth of the time.

``[*warm_python(), "-m", "rocm_wheels", …]`` is for the caller what ``[sys.executable, …]`` is: a process with
the caller's environment, folder and files. What begins there is a small program (``warm_client.c``), which
hands all of it to a process that imports everything once and forks for each command. A command that its
caller kills is killed. What differs is how processes are called and numbered: tests that look for processes,
or kill them, start Python itself.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    import socket

COUNT = 8  # bytes of a number on the line
FILES = 3  # stdin, stdout, stderr
CLIENT: list[str] = []  # the small program, once it is compiled
STARTED: list[tuple[object, list[str]]] = []  # what serves this process, and the words
ENDED: list[int] = []  # in a command that has ended: its exit code


def warm_python() -> list[str]:
    """Return the words that stand for Python; the first call starts what serves them until pytest ends."""
    if sys.platform != "linux":
        return [sys.executable]
    if not STARTED:
        STARTED.append(start_server(sys.executable))
    return STARTED[0][1]


def write_script(script: Path, words: list[str]) -> None:
    """Write a program that is these words, and those that it is called with."""
    import shlex

    script.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n', encoding="utf-8")
    script.chmod(0o755)


def start_server(python: str) -> tuple[object, list[str]]:
    """Start what serves commands of a Python; return it, and the words that stand for that Python."""
    import atexit
    import shutil

    if not CLIENT:
        folder = tempfile.mkdtemp(prefix="warm-")
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        CLIENT.append(folder + "/client")
        source = str(Path(__file__).with_name("warm_client.c"))
        subprocess.run(["cc", "-O1", "-o", CLIENT[0], source], check=True)
    place = tempfile.mkdtemp(prefix="warm-") + "/socket"
    words = [python, __file__, place, CLIENT[0]]
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    server = subprocess.Popen(words, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert server.stdout is not None
    assert server.stdout.readline() == b"ready\n"
    return server, [CLIENT[0], place, python]


# -- the server ---------------------------------------------------------------------------------------------

READ_AT_START = ("LANG", "LC_", "PYTHON")
HARMLESS = {"PYTHONPATH", "PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE"}
HARMLESS |= {"PYTHON", "PYTHONS"}  # of our workflows: no Python reads them


def serve(place: str, client: str) -> None:
    """Import all, then fork for each command, until the process that started this is gone."""
    import atexit
    import contextlib
    import gc
    import importlib
    import pkgutil
    import selectors
    import shutil
    import signal
    import socket

    atexit.register(_end)  # first, so that it is called last
    import rocm_wheels

    for module in pkgutil.walk_packages(rocm_wheels.__path__, "rocm_wheels."):
        if ".templates" not in module.name and not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    _read_tables()
    os.fsync = lambda fd: None  # as in the process of the tests: nobody takes the power away
    sys.path.pop(0)  # where this file is
    gc.collect()
    gc.freeze()
    first = dict(part.split(b"=", 1) for part in Path("/proc/self/environ").read_bytes().split(b"\0")[:-1])
    own = _read_at_start(first)
    set_by_python = {name: value for name, value in os.environb.items() if name not in first}  # LC_CTYPE
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
                shutil.rmtree(Path(client).parent, ignore_errors=True)  # all servers end at once
                os._exit(0)
            elif key.fileobj is awake:
                awake.recv(4096)
            elif key.fileobj is not listener:  # who waited for a command was killed
                sources.unregister(key.fileobj)
                os.kill(key.data, signal.SIGKILL)
            else:
                line, _ = listener.accept()
                size, files, _, _ = socket.recv_fds(line, COUNT, FILES)
                try:
                    parts = receive(line, int.from_bytes(size, "big")).split(b"\0")
                    if len(size) < COUNT:
                        raise EOFError
                except (EOFError, OSError):  # who asked was killed before it had said what for
                    line.close()
                    for file in files:
                        os.close(file)
                    continue
                count = 2 + int(parts[1])
                env = dict(part.split(b"=", 1) for part in parts[count:])
                pid = os.fork() if _read_at_start(env) == own else None
                if pid == 0:
                    signal.set_wakeup_fd(-1)
                    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                    signal.signal(signal.SIGINT, interrupted)
                    sources.close()
                    _take(files, parts[0], {**set_by_python, **env})
                    _run([os.fsdecode(word) for word in parts[2:count]])
                for file in files:
                    os.close(file)
                if pid:
                    lines[pid] = line
                    sources.register(line, selectors.EVENT_READ, pid)
                with contextlib.suppress(OSError):  # it was killed: its end of the line tells, too
                    line.send((pid or 0).to_bytes(COUNT, "big"))
        while lines:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                break
            with lines.pop(pid) as line:
                if line in sources.get_map():
                    sources.unregister(line)
                    with contextlib.suppress(OSError):
                        line.send(status.to_bytes(COUNT, "big"))


def _read_tables() -> None:
    """Read what ships with the product, and make the models of all files of ours: for every command."""
    from pydantic import BaseModel

    from rocm_wheels.models import project, project_names

    for name, module in list(sys.modules.items()):
        if name.startswith("rocm_wheels.models."):
            for function in vars(module).values():
                if hasattr(function, "cache_info") and not function.__wrapped__.__code__.co_argcount:
                    function()
    for recipe in project_names.find_recipes().values():
        project.read_recipe(recipe.path)
    waiting: list[type[BaseModel]] = [BaseModel]
    while waiting:
        model = waiting.pop()
        waiting += model.__subclasses__()
        if model.__module__.startswith("rocm_wheels."):
            model.model_rebuild()


def receive(line: socket.socket, size: int) -> bytes:
    """Read so many bytes; the other side is gone when there are fewer."""
    got = b""
    while len(got) < size:
        more = line.recv(size - len(got))
        if not more:
            raise EOFError("who asked for a command is gone")
        got += more
    return got


def _read_at_start(env: Mapping[bytes, bytes]) -> set[tuple[str, str]]:
    """Return what Python reads when it starts: a command with other things than the server is not for it."""
    import rocm_wheels

    own = Path(rocm_wheels.__file__).parent
    texts = {os.fsdecode(name): os.fsdecode(value) for name, value in env.items()}
    special = {(name, text) for name, text in texts.items() if name.startswith(READ_AT_START)}
    special.discard(("LANG", "C.UTF-8"))  # what Python takes where there is no LANG (PEP 538)
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


def _run(words: list[str]) -> NoReturn:
    """Run ``-m MODULE …``, ``-c CODE …`` or ``SCRIPT …`` as Python does, and end."""
    try:
        _run_words(words)
        sys.exit()
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            ENDED.append(end.code or 0)
        raise


def _end() -> None:
    """End the process when Python has done all that it promises to do at the end.

    It would then take everything apart: every module, 60 ms, most of them for copies of the server's pages.
    """
    if ENDED:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(ENDED[0] & 0xFF)


def _run_words(words: list[str]) -> None:
    import runpy

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


if __name__ == "__main__":
    serve(*sys.argv[1:])
