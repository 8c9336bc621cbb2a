"""The Python that is tested: what its torch says of itself, and which wheel files are installed there.

Results are evidence for those wheel files alone. An installer leaves no digest of the wheel that it took. So
a wheel that is named is compared with what is installed: by the digests of all its files in both RECORDs,
and by those of the files on the disk, which somebody may have changed since.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from packaging.utils import canonicalize_name

from rocm_wheels.binaries import asan, loader
from rocm_wheels.core import errors, files, installation, log, process, workspace
from rocm_wheels.models import versions
from rocm_wheels.models.gfx import strip_features
from rocm_wheels.wheels import archive, dist_info

_QUESTION_SECONDS = 60.0
# -c puts the current folder in front, which may hold a torch of its own: a checkout
_INSTALLED_SCRIPT = """
import importlib.metadata, importlib.util, json, sys
sys.path[:] = [folder for folder in sys.path if folder]
installed = {}
for entry in importlib.metadata.distributions():
    name, place = entry.metadata["Name"], getattr(entry, "_path", None)
    if name and place is not None:
        installed.setdefault(name, [entry.version, str(place)])
missing = [name for name in ("torch", "pytest") if importlib.util.find_spec(name) is None]
print(json.dumps(["%d.%d" % sys.version_info[:2], missing, sorted(installed.items())]))
"""


@dataclass(frozen=True)
class TargetDistribution:
    """An installed distribution: ``place`` is its ``.dist-info``."""

    name: str
    version: str
    place: Path


@dataclass(frozen=True)
class TargetPython:
    """The Python that is tested. ``version``, ``kind`` and ``kind_version`` are torch's, "" when it does not
    start.

    ``devices`` are the targets of AMD's GPUs that torch numbers, in its order; ``python_version``: ``3.12``.
    ``missing``: which of torch and pytest it lacks. ``facts`` are what torch says (the answers of probe.py),
    ``ended`` how the process ended that asked it.
    """

    python: Path
    installed: tuple[TargetDistribution, ...]
    version: str = ""
    kind: str = ""
    kind_version: str = ""
    devices: tuple[str, ...] = ()
    python_version: str = ""
    missing: tuple[str, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    ended: str = ""

    def find(self, project: str) -> TargetDistribution | None:
        """Return what is installed of a project, None where it is none: torch may be a folder on a path."""
        named = (entry for entry in self.installed if canonicalize_name(entry.name) == project)
        return next(named, None)

    @property
    def torch_version(self) -> str:
        """What torch says, else what its metadata say."""
        torch = self.find("torch")
        return self.version or (torch.version if torch else "unknown")

    @property
    def rocm_version(self) -> str:
        """Return the version of the ROCm packages that torch stands on, else that of its HIP; "" without."""
        core = self.find("rocm-sdk-core")
        return core.version if core else self.kind_version if self.kind == "rocm" else ""

    @property
    def torch_folder(self) -> Path | None:
        """The folder that ``import torch`` is to find, None where it is not beside its metadata."""
        torch = self.find("torch")
        folder = torch.place.parent / "torch" if torch else None
        return folder if folder and (folder / "__init__.py").is_file() else None

    def digest_torch_record(self) -> str:
        """Return the digest of what the installer wrote of torch, "" for nothing; of each build another."""
        torch = self.find("torch")
        record = torch.place / "RECORD" if torch else None
        return files.hash_file(record) if record and record.is_file() else ""

    def require(self, name: Literal["torch", "pytest"]) -> None:
        """Raise ChecksError where torch or pytest is not installed."""
        if name in self.missing:
            tips = {
                "torch": "name the Python that has it: --python .venv/bin/python",
                "pytest": f"the tests run there: uv pip install --python {self.python} pytest",
            }
            raise errors.ChecksError(f"{name} is not installed in {self.python}", tip=tips[name])


def inspect_target_python(
    python: Path, env: MutableMapping[str, str], *, device: str = "", limit: float = 180.0
) -> TargetPython:
    """Ask a Python what there is to test. A torch that is missing or does not start is no error here.

    Of a torch with AddressSanitizer ``env`` gets the variables that every process with it needs; HostError
    where its runtime is not here.

    torch has ``limit`` seconds. ``device`` ``cpu``: GPUs are left alone. Raises UsageError for what is no
    Python.
    """
    tip = "name a Python that has torch: --python .venv/bin/python"
    output = process.capture_output(
        [python, "-c", _INSTALLED_SCRIPT],
        env=env,
        cwd=python.parent,
        timeout=_QUESTION_SECONDS,
        check=errors.UsageError,
        description=f"asking {python} what is installed",
        tip=tip,
    )
    try:
        version, missing, installed = json.loads(output)
    except ValueError:
        raise errors.UsageError(
            f"{python} is no Python: it does not say what is installed", tip=tip
        ) from None
    torch_version, place = dict(installed).get("torch", ("", ""))
    if versions.is_asan_version(torch_version):
        site = Path(place).parent
        libraries = map(loader.read_host_binary_file, sorted((site / "torch").glob("**/*.so*")))
        runtimes = asan.list_runtimes(library for library in libraries if library is not None)
        env.update(asan.make_test_variables(env, asan.find_runtime(runtimes, env, [site])))
    facts = {} if "torch" in missing else _ask_torch(python, env, device, limit)
    ended = str(facts.pop("ended", ""))
    return TargetPython(
        python,
        tuple(TargetDistribution(name, release, Path(place)) for name, (release, place) in installed),
        version=str(facts.get("version", "")),
        kind=str(facts.get("kind", "")),
        kind_version=str(facts.get("of", "")),
        devices=_list_targets(facts),
        python_version=version,
        missing=tuple(missing),
        facts=facts,
        ended=ended,
    )


@contextlib.contextmanager
def lend_pytest(target: TargetPython, env: MutableMapping[str, str]) -> Iterator[Path]:
    """Let a Python without pytest find one for as long as this lasts, by PYTHONPATH of ``env``.

    Yields a folder for anything that the run needs. uv puts pytest there as that Python needs it; the
    environment that is tested stays what it is, and each process is that Python itself. Raises ChecksError
    where uv cannot.
    """
    with tempfile.TemporaryDirectory(prefix="rocm-wheels-tests-", ignore_cleanup_errors=True) as name:
        if "pytest" in target.missing:
            lent = Path(name, "pytest")
            log.log_note(f"{target.python} has no pytest: it is lent one")
            words = ["pip", "install", "--quiet", "--python", str(target.python), "--target", str(lent)]
            process.run_command(
                [installation.find_uv(), *words, "pytest"],
                env=env,
                check=errors.ChecksError,
                description="lending pytest",
                tip=f"install it: uv pip install --python {target.python} pytest",
            )
            env["PYTHONPATH"] = os.pathsep.join(filter(None, [env.get("PYTHONPATH", ""), str(lent)]))
        yield Path(name)


def find_gpu_fault(python: Path, gfx: str, env: Mapping[str, str]) -> str:
    """Say which GPU of an environment does not calculate any more, "" where all of them do.

    Each is asked in a process of its own with a limit: one may hang in its driver for ever.
    """
    try:
        facts = _ask_torch(python, env)
        targets = _list_targets(facts)
        fault = ""
        if strip_features(gfx) not in map(strip_features, targets):
            fault = f"torch does not see the {gfx} any more"
        for number in range(len(targets) if not fault else 0):
            facts = facts if number == 0 else _ask_torch(python, env, f"cuda:{number}")
            if not facts.get("calculated"):
                fault = f"the {gfx} does not calculate any more"
                break
    except errors.ChecksError as cause:
        return f"torch does not tell any more which GPUs it sees: {cause}"
    ended = str(facts.get("ended", "")).partition("\n")[0]
    how = "a sum is wrong" if "calculated" in facts else f"the process that asked {ended}" if ended else ""
    return ": ".join(filter(None, [fault, how])) if fault else ""


def _list_targets(facts: Mapping[str, Any]) -> tuple[str, ...]:
    gpus = facts.get("devices", ()) if facts.get("kind") == "rocm" else ()
    return tuple(str(gpu["arch"]) for gpu in gpus)


def _ask_torch(
    python: Path, env: Mapping[str, str], device: str = "", limit: float = 180.0
) -> dict[str, Any]:
    """Return what torch says before it dies, if it does: the script ends also where a driver hangs."""
    script = workspace.get_project_home() / "smoke-tests" / "inspect_torch.py"
    with tempfile.TemporaryDirectory(prefix="rocm-wheels-smoke-") as name:
        answer = Path(name, "answer")
        process.run_command(
            [python, script, answer, device, str(limit)],
            env={**env, "PYTHONDONTWRITEBYTECODE": "1"},
            cwd=Path(name),
            check=errors.ChecksError,
            description=f"asking the torch of {python}",
        )
        facts: dict[str, Any] = {}
        for line in answer.read_text(encoding="utf-8").splitlines():
            facts.update(json.loads(line))
        return facts


def identify_wheels(installed: Iterable[TargetDistribution], paths: Sequence[Path]) -> dict[str, str]:
    """Return the sha256 of the wheels that are installed, by file name.

    ``paths`` are wheels, which must be what is installed, and folders of wheels: of each project there that
    is installed, one of its wheels must be. Without any, nothing says which wheels they are. Raises
    UsageError for a wheel that is not installed or is another one than that which is, and where the torch
    that is installed is of none of them; DataError for a file that is no wheel.
    """
    tip = "install the wheels that are to be tested, or name those that are installed: --wheels"
    distributions: dict[str, TargetDistribution] = {
        canonicalize_name(entry.name): entry for entry in installed
    }
    digests: dict[str, str] = {}
    identified: set[str] = set()
    others: dict[str, str] = {}
    for path in paths:
        if not path.exists():
            raise errors.UsageError(f"there is no wheel {path}")
        for wheel in sorted(path.glob("*.whl")) if path.is_dir() else [path]:
            project: str = canonicalize_name(wheel.name.split("-", maxsplit=1)[0])
            distribution = distributions.get(project)
            if distribution is None and path.is_dir():
                continue
            fault = _find_difference(wheel, distribution) if distribution else f"{project} is not installed"
            if not fault:
                identified.add(project)
                digests[wheel.name] = files.hash_file(wheel)
            elif not path.is_dir():
                raise errors.UsageError(f"{wheel.name} is not what is tested: {fault}", tip=tip)
            else:
                others.setdefault(project, f"is of no wheel in {path}: {wheel.name}: {fault}")
    for project in sorted(others.keys() - identified):
        raise errors.UsageError(f"the {project} that is installed {others[project]}", tip=tip)
    if paths and "torch" not in identified:
        names = ", ".join(map(str, paths))
        raise errors.UsageError(f"the torch that is installed is of no wheel in {names}", tip=tip)
    return digests


def _find_difference(wheel: Path, distribution: TargetDistribution) -> str:
    """Say why a wheel is not what is installed; "", when it is."""
    record = distribution.place / "RECORD"
    if not record.is_file():
        return f"{distribution.name} is installed without a RECORD"
    with archive.WheelArchive.open(wheel) as opened:
        inside = next((entry for entry in opened.members if entry.name.endswith(".dist-info/RECORD")), None)
        if inside is None:
            raise errors.DataError(f"{wheel} has no RECORD")
        entries = dist_info.parse_wheel_record(opened.read(inside), name=f"{wheel.name}/{inside.name}")
    moved = inside.name.replace(
        ".dist-info/RECORD", ".data/"
    )  # an installer leaves the others where they are
    digests = {entry.path: entry.digest for entry in entries if entry.digest}
    digests = {path: digest for path, digest in digests.items() if not path.startswith(moved)}
    recorded = dist_info.parse_wheel_record(record.read_bytes(), name=str(record))
    installed = {entry.path: entry.digest for entry in recorded}
    if changed := [path for path, digest in digests.items() if installed.get(path) != digest]:
        differ = "differs" if len(changed) == 1 else "differ"
        return f"{len(changed)} of its files {differ} in {record.parent}, among them {changed[0]}"
    for path, digest in digests.items():
        file = record.parent.parent / path
        if not file.is_file():
            return f"{file} is not there any more"
        if dist_info.encode_record_digest(bytes.fromhex(files.hash_file(file))) != digest:
            return f"{file} was changed after it was installed"
    return ""
