"""The smoke tests as a suite of the runner, and the rows of the compatibility data that they go through.

The tests themselves are in ``smoke-tests/`` and run under the Python that is tested, where rocm-wheels is not
installed: what they need of the compatibility data is handed to them as JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from packaging.version import InvalidVersion, Version

from rocm_wheels.core import shell
from rocm_wheels.gpus.gpu import Gpu
from rocm_wheels.models import dtypes, libraries, tested_machine, torch_features, torch_tests
from rocm_wheels.models.gfx import get_gfx_targets, strip_features
from rocm_wheels.testing import installed_torch, pytest_words, tested_gpus
from rocm_wheels.testing.results import start_results
from rocm_wheels.testing.runner import TestFile, TestRequest

KNOWN_FOLDER = "smoke-tests/"  # before the names of smoke tests among known failures
TEST_SECONDS = 180.0  # a test; kernels that are compiled when first used take a minute on some GPUs
_FILE_SECONDS = 4 * 3600.0


def make_smoke_request(
    target: installed_torch.TargetPython,
    folder: Path,
    scratch: Path,
    *,
    wheels: Mapping[str, str] | None = None,
    words: Sequence[str] = (),
    files: Sequence[str] = (),
    limit: float | None = None,
    require_gpu: bool = False,
    device: str = "",
    machine: tested_machine.TestedMachine | None = None,
    remarks: Sequence[str] = (),
) -> TestRequest:
    """Return what is to be run of the smoke tests in ``folder``; ``files`` of them, or all.

    They run in one process, until a test ends it. ``limit``: seconds of each test, whatever it says itself.
    ``device`` is the one of torch's that is tested alone (``cpu``,
    ``cuda:1``, ``xpu:0``). What they are handed is written into ``scratch``.
    """
    rocm = target.kind_version if target.kind == "rocm" else None

    def make_words(place: tested_gpus.GpuPlace) -> list[str]:
        gpu = place.gfx or find_seen_target(target, device)
        data, given = scratch / f"data-{place.label}.json", scratch / f"given-{place.label}.json"
        data.write_text(json.dumps(make_smoke_data(gpu, target.version or None, rocm)), encoding="utf-8")
        # with "=": pytest takes any other word that is a file for tests, and looks beside it for conftest.py
        told = [f"--smoke-data={data}", f"--smoke-given={given}"]
        told += [f"--smoke-gfx={place.gfx}"] if place.gfx else []
        told += [f"--smoke-device={device}"] if device else []
        return told + (["--require-gpu"] if place.gfx or require_gpu else [])

    chosen = pytest_words.find_selecting_words(words)
    if target.rocm_version and machine is not None:
        machine = machine.model_copy(update={"rocm": target.rocm_version})
    names = tuple(files) or tuple(sorted(path.name for path in folder.glob("test_*.py")))
    header = start_results(
        "smoke",
        wheels=wheels or {},
        machine=machine,
        subject=f"torch {target.torch_version}",
        selected=shell.format_command(chosen) if chosen else "",
        remarks=remarks,
    )
    known = [
        row.model_copy(update={"tests": tuple(test.removeprefix(KNOWN_FOLDER) for test in row.tests)})
        for row in torch_tests.load_torch_tests().known
        if any(test.startswith(KNOWN_FOLDER) for test in row.tests)
    ]
    return TestRequest(
        header,
        target,
        folder,
        [TestFile("smoke", paths=names)],
        limit=limit or TEST_SECONDS,
        file_limit=_FILE_SECONDS,
        own_limits=limit is None,
        words=tuple(words),
        place_words=make_words,
        known=known,
        known_torch=target.version or None,
        find_gpu_fault=partial(installed_torch.find_gpu_fault, target.python),
    )


def choose_smoke_places(
    target: installed_torch.TargetPython,
    gpus: Sequence[Gpu],
    env: Mapping[str, str],
    targets: Sequence[str] | None,
) -> list[tested_gpus.GpuPlace]:
    """Return where the smoke tests run: on the first GPU of each target, else on what is here.

    Raises ChecksError where no GPU of ``targets`` can be tested.
    """
    chosen = tested_gpus.choose_tested_gpus(target, gpus, "unique", targets)
    seen = find_seen_target(target)
    if not chosen and seen:  # doctor has no number for it, and torch sees it
        return [tested_gpus.GpuPlace(seen, seen, env)]
    return tested_gpus.list_places(chosen, env, gpus=gpus, hidden=False)


def find_seen_target(target: installed_torch.TargetPython, device: str = "") -> str | None:
    """Return the target of the first GPU that torch sees, or of ``device``; None where that is none."""
    gpus = target.facts.get("devices", ()) if target.kind == "rocm" else ()
    targets = [strip_features(gpu["arch"]) for gpu in gpus if device in ("", gpu["device"])]
    return targets[0] if targets else None


_TOLERANCE = {"rtol", "atol"}
_FLASH_SINCE, _FLASH_RELEASE = Version("2.8"), "0.8.2b"  # newer than that release is every torch since 2.8


def make_smoke_data(target: str | None, torch: str | None = None, rocm: str | None = None) -> dict[str, Any]:
    """Return the rows that smoke tests go through: ``dtypes``, ``libraries``, ``domains``.

    ``flash_attention`` says why torch must have it on this target; "", where it may be without.

    A row that does not concern the GPU of ``target`` says why (``not_here``); one that this torch is too old
    for, on whatever device, does too (``too_new``). ``torch`` and ``rocm`` are versions as torch says them;
    None, when they do not matter. A target that the tables do not have has rows that say so.
    """
    gfx = strip_features(target) if target else None
    known_gfx = get_gfx_targets().get(gfx or "")
    torch_version, rocm_version = _parse_version(torch), _parse_version(rocm)
    # aotriton served these targets first, and still does
    flash_attention = ""
    has_flash = torch_version is not None and torch_version >= _FLASH_SINCE
    if gfx and known_gfx and has_flash and torch_features.has_aotriton_kernels(gfx, _FLASH_RELEASE):
        flash_attention = f"aotriton has kernels for {gfx} since {known_gfx.aotriton}"
    missing = {}
    if gfx and known_gfx:
        for library in libraries.list_missing_libraries(gfx):
            without = libraries.get_rocm_libraries()[library.name].without.text
            why = f"{library.issue or 'no issue says why'}; {without}"
            missing[library.name] = f"{library.name} is not built for {gfx}: {why}"
    return {
        "schema": 1,
        "gfx": gfx,
        "dtypes": _make_dtype_rows(gfx, torch_version, rocm_version),
        "libraries": [
            {
                "id": name,
                "use": library.use,
                "file": library.therock.file if library.therock else "",
                "api": library.probe.api if library.probe else "",
                "setting": library.probe.setting if library.probe else "",
                "not_here": missing.get(name, ""),
            }
            for name, library in libraries.get_rocm_libraries().items()
        ],
        "domains": [
            {
                "id": name,
                "probe": domain.probe,
                "state": domain.state.now,
                "code": domain.code,
                "from": domain.origin.text,
                "obstacles": libraries.find_obstacles(name, torch=torch_version),
            }
            for name, domain in libraries.get_domain_libraries().items()
        ],
        "flash_attention": flash_attention,
    }


def _parse_version(text: str | None) -> Version | None:
    """Read a version; of HIP's (``7.2.26015-9428210``) what is before the build."""
    try:
        return Version(text) if text else None
    except InvalidVersion:
        match = re.match(r"[0-9]+(\.[0-9]+)*", text or "")
        return Version(match[0]) if match else None


def _make_dtype_rows(gfx: str | None, torch: Version | None, rocm: Version | None) -> list[dict[str, Any]]:
    """Return a row for each operation with each dtype: how it is checked, and why not on this target."""
    known_gfx = get_gfx_targets().get(gfx or "")
    target_dtypes = {}
    if gfx and known_gfx:
        target_dtypes = {row.name: row for row in dtypes.list_target_dtypes(gfx, torch=torch, rocm=rocm)}
    table = dtypes.load_dtype_table()
    rows = []
    for name, dtype in table.dtypes.items():
        how, tolerances = table.formats[dtype.format], table.tolerances.get(name, dtypes.DtypeTolerances())
        since = {"torch": dtype.since_torch, "ROCm": dtype.since_rocm}
        too_new = torch is not None and dtype.since_torch is not None and dtype.since_torch > torch
        target_dtype = target_dtypes.get(name)
        same = {
            **dtype.model_dump(include={"torch", "elements", "scale", "block", "bits", "format"}),
            **how.model_dump(include={"compared", "reference", "multiple"}),
            **tolerances.model_dump(include=dict.fromkeys(("elementwise", "accumulated"), _TOLERANCE)),
            "product": dtype.product or how.product,
            "too_new": f"torch has {name} since {dtype.since_torch}" if too_new else "",
        }
        for operation in how.operations if dtype.operations is None else dtype.operations:
            library = table.operations[operation].library
            not_here = ""
            if gfx and known_gfx is None:
                not_here = f"nothing is known about {gfx}"
            elif gfx and known_gfx and target_dtype is None:
                versions = ", ".join(f"{part} {version}" for part, version in since.items() if version)
                not_here = f"{gfx} ({dtypes.find_architecture(gfx)}) has no {name} here"
                not_here += f"; it is since {versions}" if versions else ""
            elif gfx and known_gfx and target_dtype and operation not in target_dtype.operations:
                if library and library in known_gfx.excluded:
                    why = known_gfx.excluded[library] or "no issue says why"
                    not_here = f"{operation} needs {library}, which is not built for {gfx}: {why}"
                else:
                    held = f"{name} is held and converted on {gfx} ({dtypes.find_architecture(gfx)})"
                    note = f": {target_dtype.note}" if target_dtype.note else ""
                    not_here = f"{held}, not calculated with{note}"
            rows.append({"id": f"{name}-{operation}", "operation": operation, **same, "not_here": not_here})
    return rows
