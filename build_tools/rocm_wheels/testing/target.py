"""The Python that is tested: has it torch and pytest, and what does torch say of itself and its GPUs."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rocm_wheels.errors import ChecksError, UsageError
from rocm_wheels.process import capture_output, run_command

_QUESTION_SECONDS = 60.0
# -c puts the current folder in front, which may hold a torch of its own: a checkout
_INSTALLED_SCRIPT = """
import importlib.metadata, importlib.util, json, sys
sys.path[:] = [one for one in sys.path if one]
found = {}
for one in importlib.metadata.distributions():
    name, place = one.metadata["Name"], getattr(one, "_path", None)
    if name and place is not None:
        url = one.read_text("direct_url.json")
        url = json.loads(url) if url else None
        found.setdefault(name, {"version": one.version, "place": str(place), "url": url})
there = {name: importlib.util.find_spec(name) is not None for name in ("torch", "pytest")}
python = "%d.%d" % sys.version_info[:2]
print(json.dumps({"python": python, "there": there, "installed": found}))
"""


@dataclass(frozen=True)
class TargetDistribution:
    """An installed distribution: ``place`` is its ``.dist-info``, ``url`` what direct_url.json says."""

    name: str
    version: str
    place: Path
    url: Mapping[str, Any] | None


@dataclass(frozen=True)
class TargetPython:
    """The Python that is tested. ``version``, ``kind`` and ``kind_version`` are torch's, "" when it does not start.

    ``devices`` are the targets of the GPUs that torch numbers, in its order; ``python_version``: ``3.12``.
    """

    python: Path
    installed: tuple[TargetDistribution, ...]
    version: str = ""
    kind: str = ""
    kind_version: str = ""
    devices: tuple[str, ...] = ()
    python_version: str = ""

    @property
    def torch_version(self) -> str:
        """What torch says, else what its metadata say."""
        if self.version:
            return self.version
        return next(
            (distribution.version for distribution in self.installed if distribution.name == "torch"),
            "unknown",
        )


def inspect_target_python(python: Path, looking_script: Path, env: Mapping[str, str]) -> TargetPython:
    """Ask a Python what there is to test. A torch that does not start is no error here: its tests say so.

    ``looking_script`` is looking.py of the smoke tests, which ends even where what it starts hangs in a driver.

    Raises UsageError for what is no Python, ChecksError where torch or pytest is not installed.
    """
    output = capture_output(
        [python, "-c", _INSTALLED_SCRIPT],
        env=env,
        cwd=python.parent,
        timeout=_QUESTION_SECONDS,
        check=UsageError,
        description=f"asking {python} what is installed",
        tip="name a Python that has torch: --target-python .venv/bin/python",
    )
    try:
        answer = json.loads(output)
    except ValueError:
        tip = "name a Python that has torch: --target-python .venv/bin/python"
        raise UsageError(f"{python} is no Python: it does not say what is installed", tip=tip) from None
    if not answer["there"]["torch"]:
        raise ChecksError(
            f"torch is not installed in {python}",
            tip="name the Python that has it: --target-python .venv/bin/python",
        )
    if not answer["there"]["pytest"]:
        raise ChecksError(
            f"pytest is not installed in {python}, and the tests run there",
            tip=f"{python} -m pip install pytest (or: uv pip install --python {python} pytest)",
        )
    installed = tuple(
        TargetDistribution(name, entry["version"], Path(entry["place"]), entry["url"])
        for name, entry in sorted(answer["installed"].items())
    )
    facts = _ask_torch(python, looking_script, env)
    return TargetPython(
        python,
        installed,
        version=str(facts.get("version", "")),
        kind=str(facts.get("kind", "")),
        kind_version=str(facts.get("of", "")),
        devices=tuple(str(entry["arch"]) for entry in facts.get("devices", ())),
        python_version=answer["python"],
    )


def list_torch_devices(python: Path, looking_script: Path, env: Mapping[str, str]) -> tuple[str, ...]:
    """Return the targets of the GPUs that the torch of a Python sees in an environment, in its order."""
    return tuple(str(device["arch"]) for device in _ask_torch(python, looking_script, env).get("devices", ()))


def _ask_torch(python: Path, looking_script: Path, env: Mapping[str, str]) -> dict[str, Any]:
    """Return what torch says before it dies, if it does."""
    with tempfile.TemporaryDirectory(prefix="rocm-wheels-smoke-") as name:
        answer = Path(name, "answer")
        run_command(
            [python, looking_script, answer],
            env={**env, "PYTHONDONTWRITEBYTECODE": "1"},
            cwd=Path(name),
            check=ChecksError,
            description=f"asking the torch of {python}",
        )
        facts: dict[str, Any] = {}
        for line in answer.read_text(encoding="utf-8").splitlines():
            facts.update(json.loads(line))
        return facts
