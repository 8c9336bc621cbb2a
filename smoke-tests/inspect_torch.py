"""Find out what is tested: ask torch in a process that may die of it, and the checkout for its data.

    python inspect_torch.py FILE [DEVICE [SECONDS]]

writes what torch says to FILE, a line of JSON an answer, the last one how the process ended that asked; and
ends in any case: that process may hang in its driver for ever. DEVICE is as probe.py has it.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

_HERE = Path(__file__).resolve().parent
_CLONE = _HERE.parent
_SECONDS = 180.0
_PATIENCE = (
    5.0  # seconds for a killed process to be gone: one that waits for its GPU in the kernel cannot die
)
_SHOWN_LINES = 15
_DATA = """
import json, sys
sys.path.insert(0, sys.argv[1])
from rocm_wheels.testing.smoke import make_smoke_data
sys.stdout.write(json.dumps(make_smoke_data(*(word or None for word in sys.argv[2:]))))
"""


class Given(NamedTuple):
    """What the tests are about.

    ``torch`` is what it says of itself, ``fault`` why it does not start. ``gpu`` is the first that it sees,
    else ``no_gpu`` says why there is none; that is a failure where ``gpu_fails``. ``data`` are the rows of
    the compatibility data, else ``no_data`` says why there are none.
    """

    torch: dict[str, Any]
    fault: str
    gpu: dict[str, Any] | None
    no_gpu: str
    gpu_fails: bool
    data: dict[str, Any]
    no_data: str


def inspect_torch(*, data: str | None, gfx: str | None, require_gpu: bool, device: str = "") -> Given:
    """Return what is tested. ``data`` is a file of it, ``gfx`` the target that the GPU is meant to be.

    ``device`` is torch's name of what is tested; else it is the first GPU of AMD.
    """
    answers, how = probe(device)
    if not answers:
        return Given({}, f"torch does not start: {how}", None, "torch does not start", True, {}, "no torch")
    facts = answers[0]
    gpus = answers[1]["devices"] if len(answers) > 1 else []
    if device:
        gpus = [gpu for gpu in gpus if gpu["device"] == device]
    elif facts["kind"] != "rocm":
        gpus = []
    gpu, no_gpu, fails = gpus[0] if gpus else None, "", require_gpu
    if device == "cpu":
        no_gpu = "the CPU alone is tested"
    elif len(answers) == 1:
        no_gpu, fails = f"listing the GPUs {how}", True
    elif gpu is None and device:
        no_gpu, fails = f"torch does not see {device}", True
    elif gpu is None and facts["kind"] != "rocm":
        no_gpu = f"torch {facts['version']} is a build for {facts['kind']}, not for ROCm"
    elif gpu is None:
        no_gpu = f"torch {facts['version']} (ROCm {facts['of']}) sees no AMD GPU"
    elif gfx and gpu["arch"].split(":")[0] != gfx:
        no_gpu, fails = f"the GPU is {gpu['arch']}, and {gfx} is to be tested", True
    elif wrong := _calculates(answers, how):
        no_gpu, fails = f"{gpu['name']} ({gpu['arch']}) is there and does not calculate: {wrong}", True
    gpu = None if no_gpu else gpu
    rows, no_data = _from(data) if data else _asked(facts, gpu)
    return Given(facts, "", gpu, no_gpu, fails, rows, no_data)


def _calculates(answers: list[dict[str, Any]], how: str) -> str:
    if len(answers) > 2:
        return "" if answers[2]["calculated"] else "a sum of whole numbers on it is wrong"
    if len(answers) == 2:
        return f"a sum on it {how}" if answers[1]["devices"] else "torch does not see it any more"
    return f"asking for it {how}"


def probe(device: str = "", seconds: float = _SECONDS) -> tuple[list[dict[str, Any]], str]:
    """Return the answers of the probe, and how it ended."""
    with tempfile.TemporaryDirectory(prefix="smoke-", ignore_cleanup_errors=True) as name:
        answer, printed = Path(name, "answer"), Path(name, "printed")
        with printed.open("wb") as sink:
            child = subprocess.Popen(
                [sys.executable, "-X", "faulthandler", str(_HERE / "probe.py"), str(answer), device],
                cwd=name,
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=sink,
                start_new_session=os.name != "nt",
            )
            try:
                how = _describe(child.wait(seconds))
            except subprocess.TimeoutExpired:
                how = f"stopped after {seconds:g} s"
            if os.name == "nt":
                subprocess.run(
                    ["taskkill", "/F", "/T", "/PID", str(child.pid)], capture_output=True, check=False
                )
            else:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(child.pid, signal.SIGKILL)
            try:
                child.wait(_PATIENCE)
            except subprocess.TimeoutExpired:
                how = f"hangs in the kernel: process {child.pid} cannot be ended"
        text = answer.read_text(encoding="utf-8") if answer.is_file() else ""
        said = printed.read_text(encoding="utf-8", errors="replace").splitlines()[-_SHOWN_LINES:]
    whole = text[: text.rfind("\n") + 1].splitlines()  # it may have died while it wrote the next
    return [json.loads(line) for line in whole], how + "".join(f"\n  | {line}" for line in said)


def _describe(code: int) -> str:
    """Say how a process ended."""
    if code >= 0:
        windows = {
            0xC0000005: "an access violation",
            0xC000001D: "an illegal instruction",
            0xC0000409: "an abort",
        }
        named = windows.get(code)
        return f"crashed with {named}" if named else f"ended in the middle of it, with exit code {code}"
    try:
        return f"crashed with {signal.Signals(-code).name}"
    except ValueError:
        return f"crashed with signal {-code}"


def _from(path: str) -> tuple[dict[str, Any], str]:
    return json.loads(Path(path).read_text(encoding="utf-8")), ""


def _asked(facts: dict[str, Any], gpu: dict[str, Any] | None) -> tuple[dict[str, Any], str]:
    """Ask rocm-wheels in the checkout, under this Python or that of the checkout's own environment."""
    build_tools = _CLONE / "build_tools"
    if not (build_tools / "rocm_wheels").is_dir():
        return {}, f"the compatibility data are not there: no {build_tools / 'rocm_wheels'}"
    of_rocm = facts["kind"] == "rocm"
    words = [gpu["arch"] if gpu and of_rocm else "", facts["version"], facts["of"] if of_rocm else ""]
    said = ""
    program = "Scripts/python.exe" if os.name == "nt" else "bin/python"
    owns = [_CLONE / name / program for name in (".venv", ".venv.rocm-wheels")]
    for python in (sys.executable, *(str(own) for own in owns if own.is_file())):
        argv = [python, "-c", _DATA, str(build_tools), *words]
        ended = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=_SECONDS)
        if not ended.returncode:
            return json.loads(ended.stdout), ""
        said = said or (ended.stderr.strip().splitlines() or ["without a word"])[-1]
    tip = "build_tools/run_pytorch_smoke_tests.py brings them along"
    return {}, f"the compatibility data of the checkout cannot be read here ({said}); {tip}"


def main(answer: str, device: str = "", seconds: str = str(_SECONDS)) -> None:
    """Write down what torch says."""
    answers, ended = probe(device, float(seconds))
    lines = [json.dumps(line) + "\n" for line in (*answers, {"ended": ended})]
    Path(answer).write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
