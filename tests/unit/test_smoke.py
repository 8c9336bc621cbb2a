"""Smoke tests without a torch: their data, their sessions, and how their results are counted and shown."""

from __future__ import annotations

import ast
import hashlib
import json
import zipfile
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from rocm_wheels.core import errors
from rocm_wheels.gpus.gpu import Gpu
from rocm_wheels.models import dtypes, libraries, torch_tests
from rocm_wheels.models.gfx import get_gfx_targets
from rocm_wheels.models.test_results import Results, TestResult
from rocm_wheels.testing import installed_torch, results, smoke, tested_gpus
from rocm_wheels.wheels import dist_info

SMOKE_TESTS = Path(__file__).resolve().parents[2] / "smoke-tests"
TARGET = installed_torch.TargetPython(
    Path("/env/bin/python"), (), "2.13.0+rocm7.2", "rocm", "7.2.26015-9428210", ("gfx942:xnack-",)
)


def keys(file: str, name: str) -> set[str]:
    """The keys of a table in a file of the smoke tests, which is not imported here."""
    for node in ast.parse((SMOKE_TESTS / file).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.AnnAssign) and getattr(node.target, "id", "") == name:
            assert isinstance(node.value, ast.Dict)
            return {str(key.value) for key in node.value.keys if isinstance(key, ast.Constant)}
    raise AssertionError(f"no {name} in {file}")


def test_every_library_and_operation_of_the_data_has_its_test() -> None:
    probed = {name for name, one in libraries.get_rocm_libraries().items() if one.probe}
    assert keys("test_libraries.py", "PROBES") == probed
    assert keys("test_dtypes.py", "OPERATIONS") == set(dtypes.load_dtype_table().operations)


# target → (row, why it is not for this GPU)
@pytest.mark.contract
@pytest.mark.parametrize(
    ("target", "row", "why"),
    [
        ("gfx942:sramecc+:xnack-", "float8_e4m3fnuz-scaled_mm", ""),
        ("gfx942", "float8_e4m3fn-scaled_mm",
         "float8_e4m3fn is held and converted on gfx942 (cdna3), not calc"),
        ("gfx942", "float8_e4m3fn-cast", ""),
        ("gfx942", "mxfp8_e4m3-scaled_mm",
         "gfx942 (cdna3) has no mxfp8_e4m3 here; it is since torch 2.7, ROCm"),
        ("gfx950", "mxfp8_e4m3-scaled_mm", ""),
        ("gfx1030", "int8-int_mm",
         "int_mm needs hipBLASLt, which is not built for gfx1030: https://github.com/"),
        ("gfx1030", "int8-add", ""),
        ("gfx9999", "float32-matmul", "nothing is known about gfx9999"),
        (None, "mxfp8_e4m3-scaled_mm", ""),
    ],
)  # fmt: skip
def test_dtypes_are_tested_where_the_data_have_them(target: str | None, row: str, why: str) -> None:
    data = smoke.make_smoke_data(target, "2.13.0+rocm7.2", "7.2.26015-9428210")
    rows = {one["id"]: one for one in data["dtypes"]}
    assert rows[row]["not_here"].startswith(why) and bool(rows[row]["not_here"]) == bool(why)


def test_every_row_says_how_close_is_close() -> None:
    for row in smoke.make_smoke_data(None)["dtypes"]:
        sums = row["operation"] in ("sum", "matmul", "scaled_mm")
        if row["compared"] == "close":
            assert row["accumulated" if sums else "elementwise"], row["id"]


def test_libraries_that_a_target_lacks_say_so_with_the_issue() -> None:
    rows = {one["id"]: one for one in smoke.make_smoke_data("gfx1103", "2.13.0", "7.2")["libraries"]}
    assert rows["RCCL"]["not_here"].startswith("RCCL is not built for gfx1103: https://")
    assert not rows["MIOpen"]["not_here"] and rows["MIOpen"]["api"] == "torch.nn.functional.conv2d"
    json.dumps([smoke.make_smoke_data(target) for target in get_gfx_targets()])


def test_flash_attention_is_needed_where_it_has_been_for_long() -> None:
    needed = smoke.make_smoke_data("gfx942:xnack-", "2.9.1", "7.2")["flash_attention"]
    assert needed.startswith("aotriton has kernels")
    for target, torch in (("gfx942", "2.6.0"), ("gfx1030", "2.9.1"), (None, "2.9.1"), ("gfx942", None)):
        assert smoke.make_smoke_data(target, torch)["flash_attention"] == "", (target, torch)


def gpu(gfx: str, number: int | None, **more: Any) -> Gpu:
    return Gpu("amd", gfx=gfx, index=number, hip_index=number, name=f"GPU {number}", **more)


GPUS = [gpu("gfx1100", 2), gpu("gfx942", 0), gpu("gfx942", 1), gpu("gfx1030", None)]
GPUS.append(gpu("gfx942", 3, visible=False))


@pytest.mark.parametrize(
    ("policy", "targets", "numbers"),
    [
        ("unique", None, [0, 2]),
        ("all", None, [0, 1, 2]),
        ("single", None, [0]),
        ("single", ["gfx1100"], [2]),
        ("all", ["gfx942"], [0, 1]),
        ("unique", ["gfx1030", "gfx906"], []),
    ],
)
def test_policies_choose_gpus_by_the_numbers_of_hip(policy: Any, targets: Any, numbers: list[int]) -> None:
    assert [one.hip_index for one in tested_gpus.choose_gpus(GPUS, policy, targets)] == numbers


def test_places_see_one_gpu_each_and_know_of_one_more() -> None:
    chosen = tested_gpus.choose_gpus(GPUS, "all", None)
    env = {"GPU_DEVICE_ORDINAL": "0", "HIP_VISIBLE_DEVICES": "3", "A": "b"}
    found = tested_gpus.list_places(chosen, env, gpus=GPUS)
    pair = "ROCM_SMOKE_PAIR"
    assert [(place.label, place.env["HIP_VISIBLE_DEVICES"], place.env.get(pair)) for place in found] == [
        ("gfx942-0", "0", "0,1"),
        ("gfx942-1", "1", "1,0"),
        ("gfx1100", "2", None),
    ]
    assert all("GPU_DEVICE_ORDINAL" not in place.env and place.env["A"] == "b" for place in found)
    (cpu,) = tested_gpus.list_places([], env, gpus=GPUS, hidden=False)
    assert cpu.gfx is None and cpu.env == env


def test_without_a_number_of_hip_the_gpu_that_torch_sees_is_tested() -> None:
    seen = replace(TARGET, facts={"devices": [{"device": "cuda:0", "arch": "gfx1030:xnack-"}]})
    (place,) = smoke.choose_smoke_places(seen, [], {}, None)
    assert (place.label, place.gfx) == ("gfx1030", "gfx1030")
    (place,) = smoke.choose_smoke_places(replace(seen, kind="cpu"), GPUS, {}, None)
    assert place.gfx is None, "a build for the CPU tests no GPU"
    with pytest.raises(errors.ChecksError, match="no GPU of gfx906 can be tested here"):
        smoke.choose_smoke_places(seen, GPUS, {}, ["gfx906"])


TESTS = (
    TestResult(name="test_a.py::test_x[cpu-1]", outcome="passed", seconds=0.5, detail="exact"),
    TestResult(name="test_a.py::test_x[gpu-1]", outcome="crashed", seconds=2, detail="SIGSEGV\n  | \x1b```"),
    TestResult(name="test_b.py::test_y", outcome="skipped", seconds=0, detail="no | here"),
    TestResult(name="test_b.py::test_z", outcome="failed", known="fails: a | b (ann, https://x)"),
    TestResult(name="test_b.py::test_f", outcome="passed", tries=2, detail="failed, then passed alone"),
)
RESULTS = Results(
    kind="smoke", tool="t", when=datetime(2026, 11, 21, 20, tzinfo=timezone.utc), host="h", gfx="gfx942",
    subject="torch 2.13", wheels={"torch.whl": "0" * 64}, tests=TESTS, remarks=("lost | one",),
)  # fmt: skip


def test_results_are_written_read_and_shown(tmp_path: Path) -> None:
    results.write_results(tmp_path, RESULTS)
    assert results.read_results(tmp_path / "results.json") == RESULTS
    said = json.loads((tmp_path / "results.json").read_text())
    assert said["kind"] == "smoke" and len(said["tests"]) == 5 and not RESULTS.good
    shown = results.format_table(RESULTS)
    counted = "1 passed, 1 crashed, 1 flaky, 1 known, 1 skipped"
    assert shown.splitlines()[-1] == f"torch 2.13 on gfx942, h: {counted}"
    assert "flaky: failed, and passed when tried again:\n  test_b.py::test_f" in shown
    assert "  1  no | here" in shown and "test_z: fails: a | b (ann, https://x)" in shown
    page = results.format_page(RESULTS)
    assert "lost \\| one" in page and "````" in page, "a cell and a fence cannot be left"
    results.write_junit(tmp_path / "junit.xml", RESULTS)
    root = ET.parse(tmp_path / "junit.xml").getroot()
    assert [(one.get("name"), one.get("tests"), one.get("errors"), one.get("skipped")) for one in root] == [
        ("smoke gfx942 test_a", "2", "1", "0"),
        ("smoke gfx942 test_b", "3", "0", "2"),
    ]
    assert root[0][1].get("classname") == "test_a" and root[0][1][0].get("type") == "crashed"
    assert root[1][2][0].tag == "flakyFailure"


def test_failures_by_one_error_are_one_line_with_a_count() -> None:
    def failed(word: str, detail: str = "") -> TestResult:
        return TestResult(name=word, outcome="failed", detail=detail)

    alike, other = (
        [failed(f"t[{n}]", f"no kernel at 0x{n:x}f") for n in range(88)],
        failed("other", "not close"),
    )
    groups = results.group_failures([*alike, other, failed("a"), failed("b")])
    told = [(first.name, others) for first, others in groups]
    assert told == [("t[0]", 87), ("other", 0), ("a", 0), ("b", 0)]
    both = RESULTS.model_copy(update={"tests": (*alike, other)})
    for shown in (results.format_table(both), results.format_page(both)):
        assert shown.count("no kernel") == 1 and "and 87 more of the same error" in shown


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[", "holds no results: it is not JSON (line 1, column 2: expecting value)"),
        ("{}", "kind: Field required"),
        (RESULTS.to_json().decode().replace('"crashed"', '"dead"'), "tests.1.outcome"),
        (RESULTS.to_json().decode().replace('"kind"', '"schema": 2, "kind"'), "schema: Input should be 1"),
    ],
)
def test_what_holds_no_results(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "results.json").write_text(text)
    with pytest.raises(errors.DataError) as caught:
        results.read_results(tmp_path / "results.json")
    assert said in caught.value.message


def installed(folder: Path, name: str, body: bytes) -> tuple[Path, installed_torch.TargetDistribution]:
    """A wheel of one module, and what an installer makes of it."""
    info, files = f"{name}-1.0.dist-info", {f"{name}.py": body}
    lines = [
        f"{path},{dist_info.encode_record_digest(hashlib.sha256(data).digest())},{len(data)}"
        for path, data in files.items()
    ]
    wheel, place = folder / f"{name}-1.0-py3-none-any.whl", folder / "site" / info
    place.mkdir(parents=True)
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, data in files.items():
            archive.writestr(path, data)
            (folder / "site" / path).write_bytes(data)
        archive.writestr(f"{info}/RECORD", "\n".join([*lines, f"{info}/RECORD,,"]))
    (place / "RECORD").write_text("\n".join([*lines, f"{info}/INSTALLER,,", f"{info}/RECORD,,"]))
    return wheel, installed_torch.TargetDistribution(name, "1.0", place)


def test_results_name_the_wheels_that_are_installed(tmp_path: Path) -> None:
    wheel, torch = installed(tmp_path, "torch", b"a = 1")
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    for given in (wheel, tmp_path):
        assert installed_torch.identify_wheels([torch], [given]) == {wheel.name: digest}
    assert installed_torch.identify_wheels([torch], []) == {}
    (tmp_path / "site" / "torch.py").write_text("a = 3")
    with pytest.raises(errors.UsageError, match=r"torch\.py was changed after it was installed"):
        installed_torch.identify_wheels([torch], [wheel])


def test_wheels_that_are_not_what_is_installed_are_refused(tmp_path: Path) -> None:
    wheel, torch = installed(tmp_path, "torch", b"a = 1")
    other, _ = installed(tmp_path / "other", "torch", b"a = 2")
    with pytest.raises(errors.UsageError, match=r"1 of its files differs in .*, among them torch\.py"):
        installed_torch.identify_wheels([torch], [other])
    vision, its = installed(tmp_path / "other", "torchvision", b"")
    for given in ([tmp_path / "other"], [vision, other]):
        # beside a torchvision that is the installed one
        with pytest.raises(errors.UsageError, match="torch"):
            installed_torch.identify_wheels([torch, its], given)
    with pytest.raises(errors.UsageError, match="the torch that is installed is of no wheel in"):
        installed_torch.identify_wheels([torch, its], [vision])
    other.unlink()
    found = installed_torch.identify_wheels([torch, its], [tmp_path / "other", wheel])
    assert set(found) == {wheel.name, vision.name}
    with pytest.raises(errors.UsageError, match="torch is not installed"):
        installed_torch.identify_wheels([], [wheel])
    (tmp_path / "bad-1.0-py3-none-any.whl").write_text("no zip")
    _, bad = installed(tmp_path / "more", "bad", b"")
    with pytest.raises(errors.DataError, match="is not a readable wheel"):
        installed_torch.identify_wheels([bad], [tmp_path / "bad-1.0-py3-none-any.whl"])


def test_known_failures_of_smoke_tests_are_those_below_their_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What becomes of them is the runner's, as for torch's own tests."""
    same = {"reason": "r", "source": "x", "kind": "tested", "owner": "ann", "issue": "https://example.org/1"}
    rows = tuple(
        torch_tests.KnownTestRow(tests=(test,), effect="hangs", expires="2999-01-01", **same)
        for test in ("smoke-tests/test_math.py::test_matmul", "test_nn.py::test_x")
    )
    table = torch_tests.load_torch_tests().model_copy(update={"known": rows})
    monkeypatch.setattr(torch_tests, "load_torch_tests", lambda: table)
    target = installed_torch.TargetPython(Path("x"), (), version="2.13")
    request = smoke.make_smoke_request(target, tmp_path, tmp_path)
    assert [row.tests for row in request.known] == [("test_math.py::test_matmul",)]
    assert request.known_torch == "2.13"
