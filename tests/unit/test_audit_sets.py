"""A set of wheels is audited as one: from a folder, an index, a lock and a store, each wheel read once."""

from __future__ import annotations

import copy
import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from binaries import code_object
from servers import serve_folder
from wheels import PYTHONS, ROCM, TARGETS, TORCH, Draft, audit_set, library, set_drafts, write_set

from rocm_wheels.audit import audited_set, checks
from rocm_wheels.cli import boundary, main
from rocm_wheels.core.junit import read_junit_report
from rocm_wheels.index import update

pytestmark = pytest.mark.contract

SET_IDS = {
    "RW061": "set-files", "RW062": "set-pins", "RW063": "set-versions", "RW064": "set-complete",
    "RW065": "set-plan", "RW066": "set-devices", "RW067": "metapackage", "RW068": "set-target-packages",
    "RW069": "device-default", "RW070": "set-index",
    "RW072": "set-abi", "RW073": "set-targets", "RW074": "set-runtimes",
    "RW075": "set-overlaps", "RW095": "set-asan",
}  # fmt: skip


@pytest.fixture
def small_set(tmp_path: Path) -> list[Path]:
    """Two wheels in a folder ``wheels``."""
    drafts = set_drafts()
    return write_set({name: drafts[name] for name in ("triton-311", "torch-311")}, tmp_path / "wheels")


def audit(capfd: pytest.CaptureFixture[str], *words: object) -> tuple[int, Any]:
    """Run the command; return its exit code and what it prints, as JSON where that was asked for."""
    code = boundary.run_command(main.cli, ["audit", *map(str, words)])
    out = capfd.readouterr().out
    return code, json.loads(out) if out and "--json" in words else out


def list_ids(document: dict[str, Any]) -> list[tuple[str, str]]:
    return [(finding["id"], finding["where"]) for finding in document["set"]["findings"]]


def write_pylock(lock: Path, wheels: list[Path], **digests: str) -> Path:
    """Write a lock (PEP 751) that lists wheels by relative paths, or URLs where they are of a server."""
    lines = ['lock-version = "1.0"', 'created-by = "test"']
    for wheel in wheels:
        name, version = wheel.name.split("-")[:2]
        digest = digests.get(name) or hashlib.sha256(wheel.read_bytes()).hexdigest()
        path = wheel.relative_to(lock.parent).as_posix()
        lines += ["[[packages]]", f'name = "{name.replace("_", "-")}"', f'version = "{version}"']
        lines += [f'wheels = [{{ path = "{path}", hashes = {{ sha256 = "{digest}" }} }}]']
    lock.write_text("\n".join(lines) + "\n")
    return lock


def test_ids_of_sets_are_for_good() -> None:
    assert {check.id: check.name for check in checks.SET_CHECKS} == {**SET_IDS, "RW090": "lost-wheels"}
    ids = [check.id for check in checks.ALL_CHECKS]
    assert ids == sorted(set(ids)) and len({check.name for check in checks.ALL_CHECKS}) == len(ids)
    assert all(check.looks_for and check.why and check.fix for check in checks.SET_CHECKS)


def test_each_wheel_of_a_folder_is_read_once_for_all_checks(
    small_set: list[Path], capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from rocm_wheels.audit import verify

    scanned: list[Path] = []
    scan_wheel = verify.scan_wheel
    monkeypatch.setattr(
        verify, "scan_wheel", lambda path, **more: [scanned.append(path), scan_wheel(path, **more)][1]
    )
    code, document = audit(capfd, "--set", small_set[0].parent, "--json")
    assert code == 0 and sorted(scanned) == sorted(small_set)
    assert [report["wheel"] for report in document["wheels"]] == sorted(path.name for path in small_set)
    digests = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in small_set}
    assert document["set"]["wheels"] == digests and document["set"]["kind"] == "folder"
    assert {*document["set"]["ran"], *document["set"]["skipped"]} == {*SET_IDS.values(), "lost-wheels"}


def test_named_wheels_are_part_of_the_set_and_alone_are_reported(
    tmp_path: Path, small_set: list[Path], capfd: pytest.CaptureFixture[str]
) -> None:
    [more] = write_set({"torchvision": set_drafts()["torchvision-311"]}, tmp_path / "new")
    code, document = audit(capfd, "--set", small_set[0].parent, more, "--json")
    assert code == 0 and [report["wheel"] for report in document["wheels"]] == [more.name]
    assert set(document["set"]["wheels"]) == {more.name, *(path.name for path in small_set)}
    other = Draft("triton", "3.5.0", "cp311-cp311-linux_x86_64", members={"triton/__init__.py": b"1"})
    code, document = audit(capfd, "--set", small_set[0].parent, other.write(tmp_path), "--json")
    assert (code, list_ids(document)) == (14, [("RW061", small_set[0].name)])


def test_wheels_of_a_set_count_for_each_other(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """What torch links to is looked for in the ROCm of the set, as in --find-links."""
    drafts = set_drafts()
    drafts["torch-311"].members["torch/lib/libtorch_hip.so"] = library(
        "gfx942", "gfx1100", needed=("libamdhip64.so.7", "libstray.so.1")
    )
    drafts["torch-311"].requires.remove("filelock")
    drafts["rocm-sdk-core"].members["core/libamdhip64.so.7"] = library(soname="libamdhip64.so.7")
    names = ("torch-311", "triton-311", "rocm", "rocm-sdk-core", "rocm-sdk-libraries")
    write_set({name: drafts[name] for name in names}, tmp_path / "wheels")
    _, document = audit(capfd, "--set", tmp_path / "wheels", "--json")
    [report] = [report for report in document["wheels"] if report["wheel"].startswith("torch-")]
    [finding] = [finding for finding in report["findings"] if finding["id"] == "RW031"]
    assert finding["severity"] == "warning" and "libstray" in finding["what"]
    assert "libamdhip64" not in finding["what"]


@pytest.fixture
def index(tmp_path: Path, small_set: list[Path]) -> Path:
    """An index of the small set, with an older triton."""
    older = Draft("triton", "3.4.0", "cp311-cp311-linux_x86_64", members={"triton/__init__.py": b""})
    root = tmp_path / "index"
    update.add_wheels(root, [*small_set, older.write(tmp_path)], now="2026-11-21T12:00:00Z")
    return root


def test_of_an_index_the_newest_wheels_count(
    index: Path, small_set: list[Path], capfd: pytest.CaptureFixture[str]
) -> None:
    code, document = audit(capfd, "--set", index, "--json")
    assert code == 0 and set(document["set"]["wheels"]) == {path.name for path in small_set}
    assert (document["set"]["kind"], document["set"]["older"]) == ("index", 1)
    next(index.rglob(small_set[0].name)).write_bytes(small_set[0].read_bytes() + b"\0")
    code, document = audit(capfd, "--set", index, "--json")
    assert code == 14 and ("RW061", small_set[0].name) in list_ids(document)


@pytest.fixture
def server(index: Path) -> Iterator[str]:
    """The URL of that index on a server."""
    with serve_folder(index) as running:
        yield running.url


def test_wheels_at_urls_are_downloaded_compared_and_removed(
    server: str,
    small_set: list[Path],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    code, document = audit(capfd, "--set", server, "--json")
    assert code == 0 and set(document["set"]["wheels"]) == {path.name for path in small_set}
    lock = tmp_path / "pylock.toml"
    url = f"{server}triton/{quote(small_set[0].name)}"
    entry = f'wheels = [{{ url = "{url}", hashes = {{ sha256 = "{"0" * 64}" }} }}]'
    package = f'[[packages]]\nname = "triton"\nversion = "3.5.0"\n{entry}\n'
    lock.write_text(f'lock-version = "1.0"\ncreated-by = "test"\n{package}')
    code, document = audit(capfd, "--set", lock, "--json")
    assert (code, list_ids(document)) == (14, [("RW061", small_set[0].name)])
    assert document["wheels"] == [] and list(place.iterdir()) == []


def test_a_lock_is_compared_with_its_files(
    tmp_path: Path, small_set: list[Path], capfd: pytest.CaptureFixture[str]
) -> None:
    lock = write_pylock(tmp_path / "pylock.toml", small_set)
    code, document = audit(capfd, "--set", lock, "--json")
    assert (code, document["set"]["kind"], list_ids(document)) == (0, "lock", [])
    write_pylock(lock, small_set, triton="0" * 64)
    small_set[1].unlink()
    code, document = audit(capfd, "--set", lock, "--json")
    assert code == 14
    assert list_ids(document) == [("RW061", small_set[1].name), ("RW061", small_set[0].name)]


def test_a_server_has_no_say_about_files_of_this_machine(
    server: str, index: Path, small_set: list[Path], capfd: pytest.CaptureFixture[str]
) -> None:
    for page in ("index.html", "index.json"):
        file = index / "triton" / page
        text = file.read_text()
        file.write_text(text.replace(f'"{small_set[0].name}"', f'"{small_set[0].as_uri()}"'))
        file.write_text(file.read_text().replace(f'"{small_set[0].name}#', f'"{small_set[0].as_uri()}#'))
    _, document = audit(capfd, "--set", server, "--json")
    assert ("RW061", small_set[0].name) in list_ids(document)
    assert small_set[0].name not in document["set"]["wheels"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("pylock.toml", "lock-version = 1"),
        ("pylock.toml", "= nothing"),
        ("pylock.toml", 'lock-version = "1.0"\ncreated-by = "x"\npackages = []\n'),
        ("set.json", "{}"),
        ("other.json", "{}"),
        ("folder/readme.txt", ""),
        ("missing", None),
        ("https://example.invalid/pylock.toml", None),
        ("s3://bucket/index", None),
    ],
)
def test_what_no_set_can_be_read_from_is_one_clear_error(
    name: str, text: str | None, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    place = name
    if "://" not in name:
        file = tmp_path / name
        place = str(file.parent if name.startswith("folder/") else file)
        if text is not None:
            file.parent.mkdir(exist_ok=True)
            file.write_text(text)
    code = boundary.run_command(main.cli, ["audit", "--set", place])
    err = capfd.readouterr().err
    assert code == 2 and err.startswith("error: ") and err.count("error: ") == 1


def test_findings_of_a_set_reach_every_output_and_can_be_let_pass(
    tmp_path: Path, small_set: list[Path], capfd: pytest.CaptureFixture[str]
) -> None:
    lock = write_pylock(tmp_path / "pylock.toml", small_set, triton="0" * 64)
    sarif, junit, page = (tmp_path / name for name in ("a.sarif", "a.xml", "a.html"))
    code, out = audit(capfd, "--set", lock, "--report", sarif, "--report", junit, "--report", page)
    assert code == 14 and f"set {lock}: 1 error" in out
    [run_of_log] = json.loads(sarif.read_text())["runs"]
    [result] = [result for result in run_of_log["results"] if result["ruleId"] == "RW061"]
    place = result["locations"][0]["physicalLocation"]["artifactLocation"]
    assert run_of_log["artifacts"][place["index"]]["location"]["uri"] == quote(small_set[0].name)
    assert run_of_log["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == "RW061"
    assert read_junit_report(junit).reasons.keys() == {"audit::RW061 set-files"}
    assert f"set {lock}" in page.read_text() and 'href="#RW061"' in page.read_text()
    for word, expected in (("RW061", 0), ("set-files:triton-*", 0), ("RW061:torch-*", 14), ("RW001", 14)):
        assert audit(capfd, "--set", lock, "--ignore", word)[0] == expected
    policy = tmp_path / "policy.yaml"
    entry = {"check": "set-files", "wheel": "triton-*", "owner": "ann", "reason": "again tomorrow"}
    policy.write_text(json.dumps({"ignore": [{**entry, "expires": "2999-01-01"}]}))
    code, document = audit(capfd, "--set", lock, "--policy", policy, "--json")
    assert code == 0 and len(document["set"]["ignored"]) == 1
    policy.write_text(json.dumps({"ignore": [{**entry, "expires": "2020-01-01"}]}))
    code, document = audit(capfd, "--set", lock, "--policy", policy, "--json")
    assert code == 14 and sorted(word for word, _ in list_ids(document)) == ["RW048", "RW061"]
    assert all(report["passed"] for report in document["wheels"])
    assert audit(capfd, "--explain", "RW061")[0] == 0


Drafts = dict[str, Draft]
Mutation = Callable[[Drafts], object]


def replace_requirement(wheel: str, line: str, new: str) -> Mutation:
    def change(drafts: Drafts) -> None:
        requires = drafts[wheel].requires
        requires[requires.index(line)] = new

    return change


def pin_torch(line: str) -> Mutation:
    """Have torchvision for one Python require something else in the place of torch."""
    return replace_requirement("torchvision-311", f"torch=={TORCH}", line)


def silence_host(drafts: Drafts) -> None:
    drafts["torchaudio-311"].members["torchaudio/__init__.py"] = b""


def move_rocm(drafts: Drafts) -> None:
    """Vision says that it is for another ROCm than torch; so do both of its wheels."""
    for python in PYTHONS:
        drafts[f"torchvision-{python}"].version = "0.24.0+rocm7.2.0"


def move_torch(drafts: Drafts) -> None:
    """All that is for one Python is of another torch, and agrees with itself."""
    drafts["torch-312"].version = f"2.9.1+rocm{ROCM}"
    for name in ("torchvision-312", "torchaudio-312"):
        drafts[name].requires[0] = f"torch==2.9.1+rocm{ROCM}"


def rename_triton(drafts: Drafts) -> None:
    for python in PYTHONS:
        drafts[f"triton-{python}"].distribution = "pytorch_triton_rocm"


def drop(*names: str) -> Mutation:
    return lambda drafts: [drafts.pop(name) for name in names]


def split_owner(drafts: Drafts) -> None:
    """A second rocm of this version, as the job of another platform may upload it."""
    drafts["rocm-too"] = Draft("rocm", ROCM, "py3-none-linux_x86_64", members={"rocm_sdk/__init__.py": b"1"})
    drafts["rocm-too"].fields, drafts["rocm-too"].requires = drafts["rocm"].fields, drafts["rocm"].requires


def add_stray_device(drafts: Drafts) -> None:
    device = drafts["amd-torchaudio-device-gfx942-311"]
    drafts["stray"] = Draft(
        "amd_torchaudio_device_gfx90a", device.version, device.tag, requires=[TORCH_AUDIO]
    )


def give_selectors(extras: str = "", *, less: str = "") -> Mutation:
    """Have hosts require selectors, which the set has for each Python but one (``less``)."""

    def change(drafts: Drafts) -> None:
        for python in PYTHONS:
            host = drafts[f"torchaudio-{python}"]
            host.requires.append(f"amd-torchaudio-device=={host.version}")
            required = [f"torchaudio{extras}=={host.version}"]
            selector = Draft("amd_torchaudio_device", host.version, host.tag, requires=required)
            drafts |= {} if python == less else {f"amd-torchaudio-device-{python}": selector}

    return change


def join_changes(*changes: Mutation) -> Mutation:
    return lambda drafts: [change(drafts) for change in changes]


def leave_extra_for_all(drafts: Drafts) -> None:
    """Leave two extras, of which none leads to the code for gfx942 without that for gfx1100."""
    for python in ("311", "312"):
        host = drafts[f"torchaudio-{python}"]
        everything = [line.partition(";")[0] for line in host.requires if "-device-" in line]
        host.fields = [line for line in host.fields if "device-gfx942" not in line]
        host.requires = [line for line in host.requires if "device-gfx942" not in line]
        host.fields.append("Provides-Extra: device-all")
        host.requires += [f'{line}; extra == "device-all"' for line in everything]


def pin_triton(version: str) -> Mutation:
    """Have torch pin a triton that the set does not have at all."""

    def change(drafts: Drafts) -> None:
        for python in PYTHONS:
            drafts.pop(f"triton-{python}")
            requires = drafts[f"torch-{python}"].requires
            requires[:] = [line.replace("triton==3.5.0", f"triton=={version}") for line in requires]

    return change


def drop_triton(drafts: Drafts) -> None:
    torch = drafts["torch-311"]
    torch.requires = [line for line in torch.requires if not line.startswith("triton")]


def drop_rocm(drafts: Drafts) -> None:
    torch = drafts["torch-311"]
    torch.requires = [line for line in torch.requires if not line.startswith("rocm")]


def build_for_cpus(drafts: Drafts) -> None:
    """A torch for CPUs alone requires no triton, as upstream's."""
    drop_triton(drafts)
    for name in ("torch-311", "torchvision-311"):
        drafts[name].members = {
            m: c for m, c in drafts[name].members.items() if not m.endswith((".so", ".0"))
        }


def retag_device(drafts: Drafts) -> None:
    drafts["amd-torchaudio-device-gfx942-311"].tag = "cp311-cp311-manylinux_2_28_x86_64"


def build_vision(drafts: Drafts, *targets: str) -> None:
    drafts["torchvision-311"].members["torchvision/_C.so"] = library(*targets)


def build_audio(drafts: Drafts) -> None:
    """A torchaudio that is not split, of which no library must hold all targets."""
    for name in [name for name in drafts if name.startswith("amd-torchaudio")]:
        drafts.pop(name)
    for python in PYTHONS:
        draft = drafts[f"torchaudio-{python}"]
        draft.fields, draft.requires = [], [f"torch=={TORCH}"]
        draft.members["torchaudio/lib/_audio.so"] = library("gfx942")


def give_databases(*targets: str) -> Mutation:
    """Put a file of hipBLASLt into ROCm's packages for some targets."""

    def change(drafts: Drafts) -> None:
        for target in targets:
            member = f"_rocm/lib/hipblaslt/library/extop_{target}.co"
            drafts[f"rocm-sdk-device-{target}"].members[member] = code_object(target)

    return change


def give_openmp(torch: bytes, vision: bytes) -> Mutation:
    def change(drafts: Drafts) -> None:
        for project, content in (("torch", torch), ("torchvision", vision)):
            sections = {b".rodata": content}
            omp = library(soname="libgomp.so.1", sections=sections)
            drafts[f"{project}-311"].members[f"{project}.libs/libgomp.so.1"] = omp

    return change


def share_file(first: bytes, second: bytes) -> Mutation:
    def change(drafts: Drafts) -> None:
        drafts["torch-311"].members["torch/x.py"] = first
        drafts["torchvision-311"].members["torch/x.py"] = second

    return change


TORCH_AUDIO = f"torchaudio==2.9.0+rocm{ROCM}"


def add_other_devices(drafts: Drafts) -> None:
    """Of the next ROCm, and of another system, device packages without databases: they are other sets."""
    give_databases(*TARGETS)(drafts)
    for version, tag in (("7.2.0", "py3-none-linux_x86_64"), (ROCM, "py3-none-win_amd64")):
        drafts[tag] = Draft("rocm_sdk_device_gfx1100", version, tag, members={"gfx1100.txt": b""})


MUTATIONS: list[tuple[str, str, Mutation, str]] = [
    # case, check, what is done to the set, what a finding names or says
    ("pin", "set-pins", pin_torch("torch==2.9.1"), "torchvision"),
    ("other-local", "set-pins", pin_torch("torch==2.9.0+rocm7.0"), TORCH),
    ("public-pin", "", pin_torch("torch==2.9.0"), ""),
    ("range", "set-pins", pin_torch("torch<2.9"), "torch<2.9"),
    ("marker", "", pin_torch('torch==1; sys_platform == "win32"'), ""),
    ("no-extra", "set-pins", pin_torch(f"rocm[libraries,tools]=={ROCM}"), "no extra tools"),
    ("triton", "set-pins", rename_triton, "pytorch-triton-rocm"),
    ("rocm-of-another", "set-versions", move_rocm, "7.2.0"),
    ("two-torches", "set-versions", move_torch, "2.9.1"),
    ("no-vision", "set-complete", drop("torchvision-312"), "no torchvision for Python 3.12"),
    ("no-torch", "set-complete", drop("torch-312"), "no torch for Python 3.12"),
    ("no-vision-at-all", "", drop("torchvision-311", "torchvision-312"), ""),
    ("no-device", "set-devices", drop("amd-torchaudio-device-gfx942-312"), "gfx942"),
    ("stray-device", "set-devices", add_stray_device, "gfx90a"),
    ("only-all", "set-devices", leave_extra_for_all, "no extra of torchaudio leads to it alone"),
    ("two-owners", "metapackage", split_owner, "other bytes"),
    ("no-owner", "metapackage", drop("rocm"), "there is no rocm"),
    ("no-libraries", "metapackage", drop("rocm-sdk-libraries"), "rocm-sdk-libraries"),
    ("no-rocm-device", "set-target-packages", drop("rocm-sdk-device-gfx942"), "gfx942"),
    (
        "wrong-family",
        "set-target-packages",
        replace_requirement(
            "amd-torchaudio-device-gfx942-311",
            f"rocm-sdk-device-gfx942=={ROCM}",
            f"rocm-sdk-device-gfx1100=={ROCM}",
        ),
        "another GPU",
    ),
    (
        "no-kernels-of-rocm",
        "set-target-packages",
        replace_requirement("amd-torchaudio-device-gfx942-311", f"rocm-sdk-device-gfx942=={ROCM}", "numpy"),
        "requires no rocm-sdk-device-gfx942",
    ),
    ("silent", "device-default", silence_host, ""),
    ("selectors", "", give_selectors(), ""),
    ("no-selector", "set-devices", give_selectors(less="312"), "amd-torchaudio-device"),
    ("silent-selectors", "device-default", join_changes(give_selectors(), silence_host), ""),
    ("selectors-of-a-gpu", "", join_changes(give_selectors("[device-gfx942]"), silence_host), ""),
    ("built-triton", "set-pins", pin_triton("3.5.0+rocm7.1.0"), "the set has no triton"),
    ("public-triton", "", pin_triton("3.5.0"), ""),
    ("no-triton", "set-pins", drop_triton, "requires no triton, and the set has one"),
    ("no-rocm-pin", "set-pins", drop_rocm, "requires no rocm, and the set has one"),
    ("torch-for-cpus", "", build_for_cpus, ""),
    ("other-tags", "set-devices", retag_device, "has other tags than every wheel of torchaudio"),
    ("less-vision", "set-targets", lambda drafts: build_vision(drafts, "gfx942"), "no code for gfx1100"),
    ("less-audio", "set-targets", build_audio, "it has no code for gfx1100"),
    ("host-vision", "", build_vision, ""),
    ("no-database", "set-targets", give_databases("gfx942"), "not for gfx1100"),
    ("databases", "", give_databases(*TARGETS), ""),
    ("other-databases", "", add_other_devices, ""),
    ("two-runtimes", "set-runtimes", give_openmp(b"1", b"2"), "torchvision.libs/libgomp.so.1"),
    ("one-runtime", "", give_openmp(b"1", b"1"), ""),
    ("overlap", "set-overlaps", share_file(b"1", b"2"), "has torch/x.py"),
    ("namespace", "", share_file(b"1", b"1"), ""),
]  # fmt: skip


def test_nothing_is_found_in_a_set_without_faults(tmp_path: Path) -> None:
    report = audit_set(set_drafts(), tmp_path)
    assert report.findings == ()
    assert {skip.check for skip in report.skipped} - {"lost-wheels"} == {"set-plan", "set-index", "set-abi"}


@pytest.mark.parametrize(
    ("check", "change", "words"),
    [pytest.param(*row[1:], id=f"{row[1] or 'nothing'}-{row[0]}") for row in MUTATIONS],
)
def test_one_mutation_of_a_set_is_named_by_exactly_one_check(
    check: str, change: Mutation, words: str, tmp_path: Path
) -> None:
    drafts = set_drafts()
    change(drafts)
    report = audit_set(drafts, tmp_path)
    assert {finding.check for finding in report.findings} == ({check} if check else set()), report.findings
    assert not check or any(words in f"{f.subject} {f.message}" for f in report.findings)
    assert report.passed == (check in ("", "device-default"))


def add_windows(drafts: Drafts) -> None:
    """torch, torchvision and ROCm's packages for Windows, too, where there is no triton."""
    for name in ("torch-311", "torchvision-311", "rocm-sdk-core", "rocm-sdk-libraries"):
        windows = copy.deepcopy(drafts[name])
        windows.tag = windows.tag.replace("linux_x86_64", "win_amd64")
        windows.members = {member: b"" for member in windows.members if member.endswith(".py")}
        drafts[f"{name}-windows"] = windows
    for name in ("rocm", "rocm-sdk-device-gfx942", "rocm-sdk-device-gfx1100"):
        drafts[name].requires = [
            f'{line} and sys_platform == "linux"' if "device" in line else line
            for line in drafts[name].requires
        ]


@pytest.mark.parametrize(
    ("version", "check", "severity"), [(ROCM, "metapackage", "info"), ("7.2.0", "set-pins", "error")]
)
def test_rocm_may_be_a_source_distribution(version: str, check: str, severity: str, tmp_path: Path) -> None:
    """That what it requires is decided on the user's machine is a note; its version is judged."""
    drafts = set_drafts()
    del drafts["rocm"]
    report = audit_set(drafts, tmp_path, sdists=(tmp_path / f"rocm-{version}.tar.gz",))
    named = {(finding.check, finding.severity) for finding in report.findings}
    assert named == {("metapackage", "info"), (check, severity)}


def test_a_set_may_be_for_several_systems(tmp_path: Path) -> None:
    drafts = set_drafts()
    add_windows(drafts)
    assert audit_set(drafts, tmp_path / "whole").findings == ()
    del drafts["rocm-sdk-libraries-windows"]
    [finding] = audit_set(drafts, tmp_path / "lacking").findings
    assert finding.check == "metapackage" and "for windows" in finding.message


def test_variants_may_be_for_several_rocms(tmp_path: Path) -> None:
    """Each is compared with itself: its own version and its own pin."""
    drafts = {name: draft for name, draft in set_drafts().items() if name in ("torch-311", "triton-311")}
    for rocm in ("7.0.2", "7.2.0"):
        variant = copy.deepcopy(drafts["torch-311"])
        variant.requires[1] = f"rocm[libraries]=={rocm}"
        variant.version = f"2.9.0+rocm{rocm}"
        variant.file_name = f"torch-{variant.version}-{variant.tag}-rocm{rocm[:3]}.whl"
        drafts[rocm] = variant
    assert audit_set(drafts, tmp_path / "right").findings == ()
    drafts["7.0.2"].requires[1] = "rocm[libraries]==7.2.0"
    [finding] = audit_set(drafts, tmp_path / "wrong").findings
    assert finding.check == "set-versions" and finding.subject == drafts["7.0.2"].file_name


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Libraries with functions of torch that take strings, and what calls them, by ABI of strings."""
    folder, libraries = tmp_path_factory.mktemp("strings"), {}
    # a name with Ss in it that is no string: an identifier
    source = "#include <string>\nnamespace c10 { struct ClaSs; %s }"
    torch = "void warn(const std::string&, ClaSs*) {} void ClaSsOnly(ClaSs*) {}"
    user = "void warn(const std::string&, ClaSs*); void use() { warn(std::string(), nullptr); }"
    for name, code in (("torch", torch), ("user", user)):
        for abi in "01":
            words = ["g++", "-shared", "-fPIC", "-O1", f"-D_GLIBCXX_USE_CXX11_ABI={abi}", "-x", "c++", "-"]
            path = folder / f"{name}{abi}.so"
            subprocess.run([*words, "-o", path], input=source % code, text=True, check=True)
            libraries[name + abi] = path.read_bytes()
    return libraries


@pytest.mark.skipif(sys.platform != "linux" or shutil.which("g++") is None, reason="needs g++ for Linux")
@pytest.mark.parametrize(
    ("torch", "vision", "named"), [("1", "1", 0), ("0", "0", 0), ("1", "0", 1), ("0", "1", 1), ("10", "1", 2)]
)
def test_strings_of_cxx_are_those_of_torch(
    torch: str, vision: str, named: int, compiled: dict[str, bytes], tmp_path: Path
) -> None:
    """In the last case the torches of two Pythons differ, and torchvision is for one of them."""
    drafts = set_drafts()
    for python, abi in zip(PYTHONS, torch * 2, strict=False):
        drafts[f"torch-{python}"].members["torch/lib/libc10.so"] = compiled[f"torch{abi}"]
    drafts["torchvision-312"].members["torchvision/image.so"] = compiled[f"user{vision}"]
    report = audit_set(drafts, tmp_path)
    assert {finding.check for finding in report.findings} == ({"set-abi"} if named else set())
    projects = {finding.subject.split("-")[0] for finding in report.findings}
    assert projects == ({"torchvision"} if named == 1 else {"torch", "torchvision"} if named else set())
    assert "set-abi" in report.ran


def test_conformance_is_told_of_an_index(index: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code, document = audit(capfd, "--set", index, "--json")
    assert code == 0 and "set-index" in document["set"]["ran"]
    page = index / "triton" / "index.json"
    page.write_text(page.read_text().replace("3.5.0", "3.5.1"))
    code, document = audit(capfd, "--set", index, "--json")
    assert code == 14 and {word for word, _ in list_ids(document)} == {"RW070"}


@pytest.mark.parametrize(
    ("cell", "words"),
    [
        (audited_set.PlannedWheel("torch", "3.12", "linux", TARGETS), ""),
        (audited_set.PlannedWheel("torchaudio", "3.12", "linux", TARGETS), ""),  # in its device wheels
        (audited_set.PlannedWheel("triton", "3.11", "linux"), ""),
        (audited_set.PlannedWheel("torch", "3.12", "linux", TARGETS, line="2.9"), ""),
        (audited_set.PlannedWheel("torch", "3.12", "linux", TARGETS, line="2.90"), "no torch 2.90"),
        (audited_set.PlannedWheel("torch", "3.13", "linux", TARGETS), "no torch for Python 3.13"),
        (audited_set.PlannedWheel("torch", "3.12", "windows", TARGETS), "on windows"),
        (audited_set.PlannedWheel("apex", "3.12", "linux"), "no apex"),
        (audited_set.PlannedWheel("torch", "3.12", "linux", (*TARGETS, "gfx1201")), "no code for gfx1201"),
    ],
)
def test_what_was_planned_is_there(cell: audited_set.PlannedWheel, words: str, tmp_path: Path) -> None:
    report = audit_set(set_drafts(), tmp_path, planned=(cell,))
    assert {finding.check for finding in report.findings} == ({"set-plan"} if words else set())
    assert not words or words in report.findings[0].message


def write_matrix(capfd: pytest.CaptureFixture[str], file: Path, *words: str) -> Path:
    """Write what ``matrix --json`` prints."""
    assert boundary.run_command(main.cli, ["matrix", "--trigger", "release", *words, "--json"]) == 0
    file.write_text(capfd.readouterr().out)
    return file


def test_a_matrix_says_what_the_set_must_hold(
    tmp_path: Path, small_set: list[Path], capfd: pytest.CaptureFixture[str]
) -> None:
    chosen = ("--family", "gfx94X-dcgpu", "--line", "2.13", "--platform", "linux", "--python", "3.11")
    matrix = write_matrix(capfd, tmp_path / "matrix.json", *chosen, "--layout", "per-family")
    code, document = audit(capfd, "--set", small_set[0].parent, "--plan", matrix, "--json")
    messages = [f["what"] for f in document["set"]["findings"]]
    assert code == 14 and {f["id"] for f in document["set"]["findings"]} == {"RW065"}
    assert not any("triton for" in message for message in messages)
    for missing in ("torch 2.13", "torchvision"):  # the set has another torch
        assert any(f"no {missing} for Python 3.11 on linux" in message for message in messages)
    step = {"kind": "build", "project": "pytorch", "python": "cp311"}
    plan = {"request": {"platform": "linux"}, "targets": ["gfx942", "gfx90a"], "steps": [step]}
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    code, document = audit(capfd, "--set", small_set[0].parent, "--plan", tmp_path / "plan.json", "--json")
    [finding] = document["set"]["findings"]
    assert code == 14 and "no code for gfx90a" in finding["what"]


@pytest.mark.parametrize(
    "text",
    [
        None,
        "nothing",
        "[]",
        "{}",
        '{"cells": 1}',
        '{"cells": [{}], "layout": "multi-arch"}',
        '{"steps": [1]}',
    ],
)
def test_what_is_no_plan_is_one_clear_error(
    text: str | None, tmp_path: Path, small_set: list[Path], capfd: pytest.CaptureFixture[str]
) -> None:
    plan = tmp_path / "plan.json"
    if text is not None:
        plan.write_text(text)
    code = boundary.run_command(main.cli, ["audit", "--set", str(small_set[0].parent), "--plan", str(plan)])
    err = capfd.readouterr().err
    assert code == 2 and err.count("error: ") == 1


def test_a_matrix_of_several_sets_and_options_without_a_set_are_refused(
    tmp_path: Path, small_set: list[Path], capfd: pytest.CaptureFixture[str]
) -> None:
    matrix = write_matrix(capfd, tmp_path / "matrix.json", "--platform", "linux")
    for words in (["--set", str(small_set[0].parent), "--plan", str(matrix)], ["--plan", str(matrix)]):
        assert boundary.run_command(main.cli, ["audit", str(small_set[0]), *words]) == 2
