"""``rocm-wheels container``: what engines are told, what comes out, how it ends. The engines are fake."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from fake_engine import FakeEngine
from warm_python import warm_python

from rocm_wheels.cli import boundary, container
from rocm_wheels.core import process

CLONE = Path(__file__).resolve().parents[2]
DIGEST = "sha256:" + "5" * 64
IMAGE = f"ghcr.io/a/b@{DIGEST}"

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="containers are started from Linux")


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeEngine:
    """Both engines on PATH, a folder to be in, and no variable of this machine that would be passed on."""
    fake = FakeEngine(tmp_path / "engine", "docker", "podman")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    for name in list(os.environ):
        if re.search("_proxy$|_PROXY$|CERT|_CA_|^DOCKER_HOST$|^CAINFO$", name):
            monkeypatch.delenv(name)
    monkeypatch.setenv("PATH", f"{fake.bin}:/usr/bin:/bin")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    return fake


Run = Callable[..., tuple[str, str]]


@pytest.fixture
def run(engine: FakeEngine, capfd: pytest.CaptureFixture[str]) -> Run:
    """Return what runs a command in a container, and returns what was printed and said."""

    def start(*words: str, code: int = 0) -> tuple[str, str]:
        capfd.readouterr()
        assert boundary.run_command(container.container_group, ["run", *words]) == code
        return capfd.readouterr()

    return start


@pytest.mark.contract
def test_the_exit_code_of_the_command_comes_out(
    engine: FakeEngine, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    cache = tmp_path / "cache/rocm-wheels/containers"
    run("--image", IMAGE, "--", "sh", "-c", "exit 37", code=37)
    told = engine.ran()
    assert told[:4] == ["docker", "run", "--rm", "--init"]
    assert told[-4:] == [IMAGE, "sh", "-c", "exit 37"]
    user = told.index("--user")
    assert told[user + 1] == f"{os.getuid()}:{os.getgid()}"
    assert f"{tmp_path}/here:{tmp_path}/here" in told
    assert {one.name for one in cache.iterdir()} == {"home", "cache", "ccache", "uv", "pip"}
    assert "--tty" not in told


@pytest.mark.contract
def test_a_secret_reaches_the_command_and_no_command_line(
    engine: FakeEngine, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hunter2-token")
    monkeypatch.setenv("https_proxy", "http://ada:hunter2@proxy:3128")
    show = 'echo "$HF_TOKEN $https_proxy $AWS_PROFILE"'
    monkeypatch.setenv("AWS_PROFILE", "not passed on")
    words = ("--image", IMAGE, "--env", "HF_TOKEN", "--", "sh", "-c", show)
    assert run(*words)[0] == "hunter2-token http://ada:hunter2@proxy:3128 \n"
    assert "hunter2" not in run("--print", *words)[0] + json.dumps(engine.told())


def test_the_printed_line_is_what_a_shell_can_run(engine: FakeEngine, run: Run) -> None:
    words = ("--engine", "podman", "--image", IMAGE, "--", "sh", "-c", 'echo "it is $HOME"; exit 3')
    line, _ = run("--print", *words)
    ended = subprocess.run(["sh", "-c", line], capture_output=True, text=True, check=False)
    home = f"{os.environ['HOME']}/.cache/rocm-wheels/containers/home"
    assert (ended.returncode, ended.stdout) == (3, f"it is {home}\n")
    printed = engine.ran()
    (engine.state / "told").unlink()
    run(*words, code=3)
    same = [one for one in engine.ran() if not one.startswith("rocm-wheels-")]
    assert same == [one for one in printed if not one.startswith("rocm-wheels-")]
    assert "--userns" in same
    out, err = run("--print", *words[:-1], "A_TOKEN=hunter2x make")
    assert "'A_TOKEN=*** make'" in out and "hunter2x" not in out and "the line has *** in place of" in err


def test_no_pipe_is_read_unasked(engine: FakeEngine) -> None:
    argv = [*warm_python(), "-m", "rocm_wheels", "container", "run", "--image", IMAGE, "--", "cat"]
    ended = subprocess.run(argv, input="hello\n", capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (0, ""), ended.stderr


@pytest.mark.contract
def test_a_signal_ends_the_container_and_not_only_its_client(engine: FakeEngine, tmp_path: Path) -> None:
    began = tmp_path / "here/began"
    argv = [*warm_python(), "-m", "rocm_wheels", "container", "run", "--image", IMAGE, "--"]
    running = subprocess.Popen(
        [*argv, "sh", "-c", "echo $$ > began.; mv began. began; sleep 60"], stderr=subprocess.PIPE
    )
    while not (began.exists() and began.read_text().strip()):
        assert running.poll() is None
        time.sleep(0.02)
    running.send_signal(signal.SIGTERM)
    said = running.communicate(timeout=30)[1].decode()
    assert running.returncode == 130, said
    assert "ending the container rocm-wheels-" in said
    assert "may still be running" not in said
    assert process.list_group_members({int(began.read_text())}) == []
    assert [one[1] for one in engine.told()][-3:] == ["stop", "rm", "ps"]


@pytest.mark.contract
def test_a_container_that_stays_is_told_of(
    engine: FakeEngine, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.answer("docker", "ps", 0, "0123456789ab")
    killed = "kill -9 $PPID"  # the client, and the container goes on
    monkeypatch.setattr("rocm_wheels.ci.container._REMOVE_TRIES", 1)
    _, said = run("--image", IMAGE, "--", "sh", "-c", killed, code=18)
    assert "docker was killed by signal 9" in said
    assert "may still be running: `docker rm --force rocm-wheels-" in said


ENDS = [(125, "could not start the container"), (126, "could not be started"), (127, "no such command")]


@pytest.mark.parametrize(("code", "said"), ENDS)
def test_exit_codes_that_engines_use_are_explained(run: Run, code: int, said: str) -> None:
    assert said in run("--image", IMAGE, "--", "sh", "-c", f"exit {code}", code=code)[1]


@pytest.mark.contract
def test_without_an_engine_there_is_one_error_and_the_command(
    engine: FakeEngine, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    for one in engine.bin.iterdir():
        one.unlink()
    monkeypatch.setenv("PATH", str(engine.bin))
    _, said = run("--image", IMAGE, "--", "make", "-j", code=18)
    assert said.count("error: ") == 1
    assert "error: there is no docker and no podman on PATH\ntip: install podman" in said
    assert "docker run --rm --init --name rocm-wheels-" in said and f"{IMAGE} make -j\n" in said
    out, said = run("--print", "--engine", "podman", "--image", IMAGE, "--", "make")
    assert " && podman run --rm " in out and "warning: there is no podman on PATH" in said


DOWN = "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?"
TRUE = ("--image", IMAGE, "--", "true")
PODMAN_API = {"Components": [{"Name": "Podman Engine", "Version": "4.3.1"}]}


def test_engines_that_do_not_answer(engine: FakeEngine, run: Run) -> None:
    """docker 28.2.2 leaves with 1 where no daemon is, earlier ones with 0 and the error inside the JSON."""
    for code, out in ((1, ""), (0, {"ServerErrors": [DOWN]})):
        engine.answer("docker", "info", code, out, DOWN)
        _, said = run("--engine", "docker", *TRUE, code=18)
        assert DOWN in said and "tip: " in said
        assert "podman is used, because " in run(*TRUE)[1]
    engine.answer("podman", "info", 125, "", 'Error: no subuid ranges found for user "ada" in /etc/subuid')
    _, said = run(*TRUE, code=18)
    assert DOWN in said and "no subuid ranges" in said


ODD = [
    ("version", PODMAN_API, "loses the exit code"),
    ("version", "null", "says nothing of itself"),
    ("info", "Segmentation fault", "says nothing of itself as JSON: 'Segmentation fault'"),
]


@pytest.mark.parametrize(("word", "answer", "said"), ODD)
def test_odd_answers_are_no_engine(
    engine: FakeEngine, run: Run, word: str, answer: object, said: str
) -> None:
    engine.answer("docker", word, 0, answer)
    assert said in run("--engine", "docker", *TRUE, code=18)[1]
    assert not any(one[1] == "run" for one in engine.told())


def test_podman_under_the_name_of_docker(engine: FakeEngine, run: Run) -> None:
    answer = {"host": {"security": {"rootless": True}}, "version": {"Version": "5"}}
    engine.answer("docker", "info", 0, answer)
    run(*TRUE)
    assert engine.ran()[0] == "docker" and "keep-id" in engine.ran()


def test_an_engine_on_another_machine_has_none_of_our_folders(
    engine: FakeEngine, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", "ssh://ada@builder")
    assert "DOCKER_HOST names another machine" in run("--engine", "docker", *TRUE, code=18)[1]
    monkeypatch.delenv("DOCKER_HOST")
    engine.answer("docker", "context", 0, "ssh://ada@builder\n")
    assert "docker's context names another machine" in run("--engine", "docker", *TRUE, code=18)[1]
    assert [one[:2] for one in engine.told()] == [["docker", "context"]]
    engine.answer("podman", "info", 0, {"host": {"serviceIsRemote": True}})
    assert "podman's connection (CONTAINER_CONNECTION" in run(*TRUE, code=18)[1]
    engine.answer("docker", "context", 1, "", "podman: unrecognized command")
    run(*TRUE)


WRONG = [
    ((), 2, "Missing argument"),
    (("--image", "ubuntu:24.04", "--", "ls"), 2, "ubuntu:24.04 has no digest"),
    (("--image", IMAGE, "--mount", "/nowhere", "--", "ls"), 2, "there is no /nowhere"),
    (("--image", IMAGE, "--env", "A_TOKEN=hunter2x", "--", "ls"), 2, "would show a secret"),
    (("--image", IMAGE, "--engine", "lxc", "--", "ls"), 2, "'lxc' is not one of"),
    (("--nonsense", "--", "ls"), 2, "No such option"),
    (("--image", "tests", "--", "ls"), 2, "tests has no digest"),
]


@pytest.mark.contract
@pytest.mark.parametrize(("words", "code", "said"), WRONG)
def test_wrong_words_start_nothing(  # noqa: PLR0917
    engine: FakeEngine, run: Run, tmp_path: Path, words: tuple[str, ...], code: int, said: str
) -> None:
    assert said in run(*words, code=code)[1]
    assert engine.told() == []
    assert not (tmp_path / "home").exists()


@pytest.mark.contract
def test_our_images_are_made_here_and_never_pulled(engine: FakeEngine, run: Run) -> None:
    test = ("--image", "test", "--", "true")
    run(*test)
    ran = engine.ran()
    tag = ran[-2]
    assert ran[-4:] == ["--pull", "never", tag, "true"] and tag.startswith("localhost/rocm-wheels-test:")
    engine.answer("docker", "image", 1, "[]", f"Error response from daemon: No such image: {tag}")
    said, _, line = run(*test, code=18)[1].partition("tip: make it: ")
    assert said == f"error: there is no image {tag} here\n"
    *words, folder = shlex.split(line)
    assert words[:4] == ["DOCKER_BUILDKIT=1", "docker", "build", "--file"] and folder == str(CLONE)
    assert words[words.index("--tag") + 1] == tag
