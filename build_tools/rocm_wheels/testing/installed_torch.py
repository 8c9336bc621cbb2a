"""The Python that is tested: what its torch says of itself, and which wheel files are installed there.

Results are evidence for those wheel files alone. An installer leaves no digest of a wheel that came from
an index. So a wheel that is named, or that direct_url.json names (PEP 610), is compared with what is
installed: by the digests of all its files in both RECORDs, and by those of the files on the disk, which
somebody may have changed since.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from urllib.parse import unquote, urlsplit
from urllib.request import url2pathname

from packaging.utils import canonicalize_name

from rocm_wheels.core import errors, extras, files, log, process
from rocm_wheels.models.gfx import strip_features
from rocm_wheels.wheels import dist_info

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

    @property
    def torch(self) -> TargetDistribution | None:
        """The distribution that torch was installed as, None where it is none: a folder on a path."""
        return next((distribution for distribution in self.installed if distribution.name == "torch"), None)

    @property
    def torch_version(self) -> str:
        """What torch says, else what its metadata say."""
        return self.version or (self.torch.version if self.torch else "unknown")

    @property
    def rocm_version(self) -> str:
        """Return the version of the ROCm packages that torch stands on, else that of its HIP; "" without."""
        for distribution in self.installed:
            if canonicalize_name(distribution.name) == "rocm-sdk-core":
                return distribution.version
        return self.kind_version if self.kind == "rocm" else ""


def inspect_target_python(
    python: Path,
    looking_script: Path,
    env: Mapping[str, str],
    *,
    option: str = "--python",
    device: str = "",
    limit: float = 180.0,
) -> TargetPython:
    """Ask a Python what there is to test. A torch that is missing or does not start is no error here.

    ``looking_script`` is looking.py of the smoke tests, which ends even where what it starts hangs in a
    driver; torch has ``limit`` seconds. ``device`` ``cpu``: GPUs are left alone. ``option`` is the one that
    named the Python. Raises UsageError for what is no Python.
    """
    tip = f"name a Python that has torch: {option} .venv/bin/python"
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
        answer = json.loads(output)
    except ValueError:
        raise errors.UsageError(
            f"{python} is no Python: it does not say what is installed", tip=tip
        ) from None
    missing = tuple(name for name, is_installed in answer["there"].items() if not is_installed)
    installed = tuple(
        TargetDistribution(name, entry["version"], Path(entry["place"]), entry["url"])
        for name, entry in sorted(answer["installed"].items())
    )
    facts = {} if "torch" in missing else _ask_torch(python, looking_script, env, device, limit)
    ended = str(facts.pop("ended", ""))
    return TargetPython(
        python,
        installed,
        version=str(facts.get("version", "")),
        kind=str(facts.get("kind", "")),
        kind_version=str(facts.get("of", "")),
        devices=_list_targets(facts),
        python_version=answer["python"],
        missing=missing,
        facts=facts,
        ended=ended,
    )


def require_package(target: TargetPython, name: Literal["torch", "pytest"]) -> None:
    """Raise ChecksError where torch or pytest is not installed."""
    if name in target.missing:
        tips = {
            "torch": "name the Python that has it: --python .venv/bin/python",
            "pytest": f"the tests run there: uv pip install --python {target.python} pytest",
        }
        raise errors.ChecksError(f"{name} is not installed in {target.python}", tip=tips[name])


def find_torch_folder(target: TargetPython) -> Path | None:
    """Return the folder that ``import torch`` is to find, None where it is not beside its metadata."""
    folder = target.torch.place.parent / "torch" if target.torch else None
    return folder if folder and (folder / "__init__.py").is_file() else None


def digest_torch_record(target: TargetPython) -> str:
    """Return the digest of what the installer wrote down of torch, "" for nothing; of each build another."""
    record = target.torch.place / "RECORD" if target.torch else None
    return files.hash_file(record) if record and record.is_file() else ""


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
                [extras.find_uv(), *words, "pytest"],
                env=env,
                check=errors.ChecksError,
                description="lending pytest",
                tip=f"install it: uv pip install --python {target.python} pytest",
            )
            env["PYTHONPATH"] = os.pathsep.join(filter(None, [env.get("PYTHONPATH", ""), str(lent)]))
        yield Path(name)


def find_gpu_fault(python: Path, looking_script: Path, gfx: str, env: Mapping[str, str]) -> str:
    """Say which GPU of an environment does not calculate any more, "" where all of them do.

    Each is asked in a process of its own with a limit: one may hang in its driver for ever.
    """
    try:
        facts = _ask_torch(python, looking_script, env)
        targets = _list_targets(facts)
        if strip_features(gfx) not in {strip_features(target) for target in targets}:
            return f"torch does not see the {gfx} any more{_describe_ended(facts)}"
        for number in range(len(targets)):
            facts = facts if number == 0 else _ask_torch(python, looking_script, env, f"cuda:{number}")
            if not facts.get("calculated"):
                how = ": a sum is wrong" if "calculated" in facts else _describe_ended(facts)
                return f"the {gfx} does not calculate any more{how}"
    except errors.ChecksError as cause:
        return f"torch does not tell any more which GPUs it sees: {cause}"
    return ""


def _describe_ended(facts: Mapping[str, Any]) -> str:
    ended = str(facts.get("ended", "")).partition("\n")[0]
    return f": the process that asked {ended}" if ended else ""


def _list_targets(facts: Mapping[str, Any]) -> tuple[str, ...]:
    gpus = facts.get("devices", ()) if facts.get("kind") == "rocm" else ()
    return tuple(str(gpu["arch"]) for gpu in gpus)


def _ask_torch(
    python: Path, looking_script: Path, env: Mapping[str, str], device: str = "", limit: float = 180.0
) -> dict[str, Any]:
    """Return what torch says before it dies, if it does."""
    with tempfile.TemporaryDirectory(prefix="rocm-wheels-smoke-") as name:
        answer = Path(name, "answer")
        process.run_command(
            [python, looking_script, answer, device, str(limit)],
            env={**env, "PYTHONDONTWRITEBYTECODE": "1"},
            cwd=Path(name),
            check=errors.ChecksError,
            description=f"asking the torch of {python}",
        )
        facts: dict[str, Any] = {}
        for line in answer.read_text(encoding="utf-8").splitlines():
            facts.update(json.loads(line))
        return facts


_WHEELS_TIP = "install the wheels that are to be tested, or name those that are installed: --wheels"


def identify_wheels(installed: Iterable[TargetDistribution], paths: Sequence[Path]) -> dict[str, str]:
    """Return the sha256 of the wheels that are installed, by file name.

    ``paths`` are wheels, which must be what is installed, and folders of wheels: of each project there that
    is installed, one of its wheels must be. Without any, what direct_url.json says. Raises UsageError for a
    wheel that is not installed or is another one than that which is, and where the torch that is installed
    is of none of them; DataError for a file that is no wheel.
    """
    distributions: dict[str, TargetDistribution] = {
        canonicalize_name(distribution.name): distribution for distribution in installed
    }
    if not paths:
        return _identify_from_urls(distributions.values())
    digests: dict[str, str] = {}
    for path in paths:
        if not path.exists():
            raise errors.UsageError(f"there is no wheel {path}")
        here: set[str] = set()
        others: dict[str, str] = {}
        for wheel in sorted(path.glob("*.whl")) if path.is_dir() else [path]:
            project = _get_wheel_project(wheel.name)
            fault = _why_not_installed(wheel, distributions)
            if fault is None:
                here.add(project)
                digests[wheel.name] = files.hash_file(wheel)
            elif not path.is_dir():
                raise errors.UsageError(f"{wheel.name} is not what is tested: {fault}", tip=_WHEELS_TIP)
            elif project in distributions:
                others.setdefault(project, f"{wheel.name}: {fault}")
        for project in sorted(others.keys() - here):
            raise errors.UsageError(
                f"the {project} that is installed is of no wheel in {path}: {others[project]}",
                tip=_WHEELS_TIP,
            )
    if "torch" not in map(_get_wheel_project, digests):
        names = ", ".join(map(str, paths))
        raise errors.UsageError(f"the torch that is installed is of no wheel in {names}", tip=_WHEELS_TIP)
    return digests


def _get_wheel_project(file_name: str) -> str:
    return canonicalize_name(file_name.split("-", maxsplit=1)[0])


def _why_not_installed(wheel: Path, distributions: Mapping[str, TargetDistribution]) -> str | None:
    """Say why a wheel is not what is installed; None, when it is."""
    name = _get_wheel_project(wheel.name)
    if name not in distributions:
        return f"{name} is not installed"
    record = distributions[name].place / "RECORD"
    if not record.is_file():
        return f"{name} is installed without a RECORD"
    installed = {
        entry.path: entry.digest
        for entry in dist_info.parse_wheel_record(record.read_bytes(), name=str(record))
    }
    wheel_digests = _read_wheel_record(wheel)
    changed = [path for path, digest in wheel_digests.items() if installed.get(path) != digest]
    if changed:
        differ = "differs" if len(changed) == 1 else "differ"
        return f"{len(changed)} of its files {differ} in {record.parent}, among them {changed[0]}"
    return _find_changed_file(record.parent.parent, wheel_digests)


def _find_changed_file(site: Path, digests: Mapping[str, str]) -> str | None:
    """Say which of the installed files is not any more what RECORD says; None, when all are."""
    for path, digest in digests.items():
        file = site / path
        if not file.is_file():
            return f"{file} is not there any more"
        if dist_info.encode_record_digest(bytes.fromhex(files.hash_file(file))) != digest:
            return f"{file} was changed after it was installed"
    return None


def _read_wheel_record(wheel: Path) -> dict[str, str]:
    """Return the digests of a wheel's files that an installer leaves where they are."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            names = [entry for entry in archive.namelist() if re.fullmatch(r"[^/]+\.dist-info/RECORD", entry)]
            if len(names) != 1:
                raise errors.DataError(f"{wheel} has {len(names)} RECORDs, and a wheel has one")
            entries = dist_info.parse_wheel_record(archive.read(names[0]), name=f"{wheel.name}/{names[0]}")
    except (OSError, zipfile.BadZipFile) as cause:
        raise errors.DataError(f"{wheel} is no wheel") from cause
    moved = f"{names[0].split('.dist-info')[0]}.data/"
    return {
        entry.path: entry.digest for entry in entries if entry.digest and not entry.path.startswith(moved)
    }


def _identify_from_urls(installed: Iterable[TargetDistribution]) -> dict[str, str]:
    """Return the wheels that direct_url.json names: by its digest, or (uv notes none) by the file itself."""
    digests = {}
    for distribution in installed:
        url = urlsplit(str((distribution.url or {}).get("url", "")))
        archive: Mapping[str, Any] = (distribution.url or {}).get("archive_info") or {}
        old = str(archive.get("hash", "")).partition("=")
        digest = (archive.get("hashes") or {}).get("sha256") or (old[2] if old[0] == "sha256" else "")
        name = unquote(url.path).rpartition("/")[2]
        wheel = Path(url2pathname(url.path)) if url.scheme == "file" else None
        if not name.endswith(".whl") or not (digest or (wheel and wheel.is_file())):
            continue
        distributions: dict[str, TargetDistribution] = {canonicalize_name(distribution.name): distribution}
        fault = (
            _why_not_installed(wheel, distributions)
            if wheel and wheel.is_file()
            else _find_own_changes(distribution)
        )
        if fault is None and not digest and wheel:
            digest = files.hash_file(wheel)
        if fault is not None:
            log.log_warning(f"the results are no evidence for {name}: {fault}")
        elif digest:
            digests[name] = str(digest)
    return dict(sorted(digests.items()))


def _find_own_changes(entry: TargetDistribution) -> str | None:
    """Say which file of a distribution is not what its own RECORD says; scripts may be (their first line)."""
    record = entry.place / "RECORD"
    if not record.is_file():
        return f"{entry.name} is installed without a RECORD"
    entries = dist_info.parse_wheel_record(record.read_bytes(), name=str(record))
    recorded = {
        entry.path: entry.digest for entry in entries if entry.digest and not entry.path.startswith("..")
    }
    return _find_changed_file(record.parent.parent, recorded)
