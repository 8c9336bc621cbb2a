"""How a set is built again: found in its statements and locks, or refused with what says too little."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from commands import call, refused
from stores import NOW, PYTHON, ROCM, TARGET, World, a_lock
from wheels import embed_parts

from rocm_wheels.cli import reproduce
from rocm_wheels.core import errors
from rocm_wheels.package import sbom as sbom_parts
from rocm_wheels.pipeline.request import WheelsRequest
from rocm_wheels.release import rebuild, wheel_set
from rocm_wheels.release.stage import plan_stage, stage_set
from rocm_wheels.stores.folder import FolderStore
from rocm_wheels.wheels import sbom, statement

pytestmark = pytest.mark.contract

TAG = f"cp{PYTHON.replace('.', '')}"
PROJECTS = {"triton": "triton", "torch": "pytorch", "torchvision": "pytorch_vision"}
NINJA = "ninja-1.13.2-py3-none-any.whl"
CORE = f"rocm_sdk_core-{ROCM}-py3-none-linux_x86_64.whl"
COMMIT = "a" * 40
Change = Callable[[dict[str, Any]], object]


def package(file: str, role: str) -> dict[str, Any]:
    name, version = file.replace("_", "-").split("-py3")[0].rsplit("-", 1)
    digest = {"sha256": hashlib.sha256(file.encode()).hexdigest()}
    notes = {"file": file, "installed-with": role}
    return {"name": name, "uri": f"pkg:pypi/{name}@{version}", "digest": digest, "annotations": notes}


def embed_origin(wheel: Path, project: str, tool: str = "0.1.0") -> tuple[sbom.SourcePart, bytes]:
    """Put lock and bill of materials into a wheel; return its source, and the lock."""
    source = sbom.SourcePart(project, f"https://github.com/h/{project}", COMMIT)
    lock = sbom_parts.extract_lock_part(a_lock(), project).encode()
    embed_parts(wheel, lock, sbom.WheelParts(tool, sources=(source,)))
    return source, lock


def write_statement(wheel: Path, change: Change = lambda _: None) -> None:
    """Give a wheel the statement that its build would have written, changed by a test."""
    project = PROJECTS[wheel.name.split("-")[0]]
    source, lock = embed_origin(wheel, project)
    definition = {
        "buildType": statement.BUILD_TYPE,
        "externalParameters": {
            "command": "rocm-wheels build",
            "project": project,
            "platform": "linux",
            "python": TAG,
            "targets": [] if project == "triton" else [TARGET],
            "rocm": ROCM,
            "packaging": "per-family",
            "release-type": "nightly",
            "build-number": "1",
            "recipe": {"sha256": "e" * 64},
            "lock": {"sha256": hashlib.sha256(lock).hexdigest()},
            "repair": True,
        },
        "internalParameters": {"shell": {"CFLAGS": "-O1"}, "set-env": {"USE_GLOO": "0"}},
        "resolvedDependencies": [
            {"name": project, "uri": sbom.make_repository_url(source), "digest": {"gitCommit": COMMIT}},
            package(CORE, "rocm"),
            package(NINJA, "tools"),
        ],
    }
    tool = {"id": "urn:rocm-wheels:0.1.0", "version": {"rocm-wheels": "0.1.0"}}
    predicate: dict[str, Any] = {"buildDefinition": definition, "runDetails": {"builder": tool}}
    change(predicate)
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    statement.write_statement(wheel, statement.format_statement(wheel.name, digest, predicate))


@pytest.fixture
def world(tmp_path: Path) -> World:
    """Wheels of triton, torch and torchvision with statements."""
    made = World(tmp_path / "wheels")
    for wheel in made.wheels:
        write_statement(wheel)
    return made


def plan(world: World, *projects: str) -> tuple[rebuild.Rebuild, ...]:
    """Stage the wheels as they are, and plan how they are built again."""
    store = FolderStore(world.folder.parent / "store")
    planned = plan_stage(world.wheels, [a_lock()], paths=world.places, layout="per-family")
    return rebuild.plan_rebuilds(store, stage_set(store, planned, now=NOW).document, projects)


def torch_of(world: World) -> Path:
    return next(wheel for wheel in world.wheels if wheel.name.startswith("torch-"))


def test_all_that_a_build_was_given_is_asked_for_again(world: World) -> None:
    (planned,) = plan(world)
    assert planned.projects == ("pytorch", "pytorch_vision", "triton")
    assert (planned.python, planned.packaging, planned.given) == (PYTHON, "per-family", {})
    assert [wheel.file.project for wheel in planned.compared] == ["torch", "torchvision", "triton"]
    assert (planned.shell, planned.set_env["pytorch"]) == ({"CFLAGS": "-O1"}, {"USE_GLOO": "0"})
    tools = planned.lock.tools[PYTHON]
    assert tools.rocm["rocm-sdk-core"].files == {CORE: hashlib.sha256(CORE.encode()).hexdigest()}
    assert tools.projects["triton"]["ninja"].version == "1.13.2"
    assert planned.lock.replace_tools({}) == a_lock()  # no wheel has another lock inside for it


def test_a_part_of_a_set_is_built_against_the_rest_of_it(world: World) -> None:
    for name in ("torchvision", "pytorch-vision"):
        (planned,) = plan(world, name)
        assert planned.projects == ("pytorch_vision",)
        assert [wheel.file.project for wheel in planned.compared] == ["torchvision"]
        assert {project: file.project for project, file in planned.given.items()} == {"pytorch": "torch"}


def test_what_was_packaged_since_is_built_again_and_not_built_against(world: World) -> None:
    """A torch that was split, by the build or by `set package`, has its name and other bytes."""
    torch = torch_of(world)
    origin = statement.read_origin(torch)
    embed_origin(torch, "pytorch", "0.2.0")
    statement.write_step_statement([origin], torch, f"split {TARGET}")
    (planned,) = plan(world, "torchvision")
    assert (planned.packaging, planned.projects, planned.given.keys()) == (
        "split",
        ("pytorch", "pytorch_vision"),
        {"triton"},
    )
    assert [wheel.file.project for wheel in planned.compared] == ["torchvision"]


def test_what_was_built_with_asan_and_packaged_since_is_not_built_plain(world: World) -> None:
    torch = torch_of(world)
    write_statement(torch, lambda predicate: parameters(predicate).update(packaging="asan"))
    assert plan(world, "torch")[0].packaging == "asan"
    origin = statement.read_origin(torch)
    embed_origin(torch, "pytorch", "0.2.0")
    statement.write_step_statement([origin], torch, f"split {TARGET}")
    with pytest.raises(errors.ReleaseError, match="AddressSanitizer, and `wheel split` behind it"):
        plan(world, "torch")


def parameters(predicate: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = predicate["buildDefinition"]["externalParameters"]
    return found


def dependencies(predicate: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = predicate["buildDefinition"]["resolvedDependencies"]
    return found


def internal(predicate: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = predicate["buildDefinition"]["internalParameters"]
    return found


REFUSED: dict[str, tuple[Change, str]] = {
    "of an earlier version": (lambda p: parameters(p).pop("recipe"), r"by rocm-wheels 0\.1\.0, is too old"),
    "of a later version": (
        lambda p: parameters(p).update(colour="red"),
        r"of another version than this tool \(what was asked for\): colour",
    ),
    "a Python that is a path": (
        lambda p: parameters(p).update(python="cp3/../../bin/python"),
        r"python: it must be a tag such as cp312",
    ),
    "a tool whose version is a list": (
        lambda p: (p["runDetails"]["builder"].update(version=["1"]), parameters(p).pop("recipe")),
        "by rocm-wheels unknown, is too old",
    ),
    "a changed tree": (
        lambda p: dependencies(p)[0].update(annotations={"changed-tree": "4" * 40}),
        "somebody had changed the sources",
    ),
    "a variable that no build reads": (
        lambda p: internal(p)["shell"].update(LD_PRELOAD="mine.so"),
        "LD_PRELOAD is no variable that configures builds",
    ),
    "variables that are none": (
        lambda p: internal(p).update(shell=["CC"]),
        r"\(variables\): shell: Input should be a valid",
    ),
    "notes that are none": (
        lambda p: dependencies(p)[1].update(annotations=[]),
        r"\(rocm-sdk-core\): ",
    ),
    "a package without its digest": (lambda p: dependencies(p)[2].pop("digest"), r"\(ninja\): "),
    "a tool from nowhere": (
        lambda p: dependencies(p)[2].update(annotations={"record-sha256-begins": "abc"}),
        "built with a ninja that came from no file",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_wheel_of_which_too_little_is_known_is_named(case: str, world: World) -> None:
    change, message = REFUSED[case]
    write_statement(torch_of(world), change)
    with pytest.raises(errors.ReleaseError, match=message) as raised:
        plan(world)
    assert f"cannot be built again: {torch_of(world).name}: " in raised.value.message
    assert plan(world, "triton")[0].projects == ("triton",)  # the others can


def test_wheels_without_statements(world: World) -> None:
    for wheel in world.wheels:
        statement.remove_statement(wheel)
    with pytest.raises(
        errors.ReleaseError, match="no statement that says how it was built; and 2 other wheels"
    ):
        plan(world)


def test_a_project_that_the_set_has_not(world: World) -> None:
    with refused(errors.UsageError) as raised:
        plan(world, "torchvison")
    assert "has no torchvison; did you mean torchvision" in raised.value.message


def test_in_what_two_builds_differ(world: World) -> None:
    torch = torch_of(world)
    then = statement.read_statement(torch)

    def change(predicate: dict[str, Any]) -> None:
        predicate["runDetails"]["builder"]["version"]["rocm-wheels"] = "0.2.0"
        parameters(predicate)["build-number"] = "2"
        internal(predicate)["environment"] = {"USE_GLOO": "1"}
        dependencies(predicate).pop()
        dependencies(predicate).append({"name": "clang", "digest": {"sha256": "c" * 64}})

    write_statement(torch, change)
    now = statement.read_statement(torch)
    assert then is not None and now is not None
    assert rebuild.list_differences(then, then) == []
    digest = hashlib.sha256(NINJA.encode()).hexdigest()[:12]
    assert rebuild.list_differences(then, now) == [
        "rocm-wheels 0.1.0, here 0.2.0",
        "USE_GLOO none, here 1",
        "build-number 1, here 2",
        f"clang none, here ({'c' * 12})",
        f"ninja 1.13.2 ({digest}), here none",
    ]


def reproduce_triton(
    world: World, monkeypatch: pytest.MonkeyPatch, build: Callable[[Path], None], code: int
) -> tuple[list[dict[str, Any]], str]:
    """Reproduce one wheel, which ``build`` makes in a folder; return the evidence, and what was said."""
    plan(world, "triton")
    store = world.folder.parent / "store"
    (set_id,) = wheel_set.list_set_ids(FolderStore(store), world.places.family)

    def make(request: WheelsRequest, _: object) -> None:
        request.output.mkdir(parents=True, exist_ok=True)
        build(request.output)

    monkeypatch.setattr(reproduce, "_check_out", lambda *_: None)
    monkeypatch.setattr(reproduce, "_build", make)
    words = ("--set", set_id, "--project", "triton", "-o", world.folder.parent / "out", "--json")
    ended = call("set", "reproduce", store, *words, code=code)
    return json.loads(ended.out), ended.err


def triton_of(world: World) -> Path:
    return next(wheel for wheel in world.wheels if wheel.name.startswith("triton-"))


def test_what_cannot_be_compared_is_written_down_as_a_failure(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    triton = triton_of(world)
    (entry,), err = reproduce_triton(
        world, monkeypatch, lambda output: (output / triton.name).write_bytes(b"\x1b[2J") and None, 14
    )
    assert (entry["kind"], entry["outcome"]) == ("reproduced", "fail")
    assert "they cannot be compared: " in entry["failed"][0]
    assert "came out otherwise" in err


def test_a_pass_is_of_the_day_of_its_build_and_says_what_was_otherwise(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same folder again builds nothing, and cannot make a pass new."""
    triton, later = triton_of(world), datetime.now(timezone.utc).replace(microsecond=0) + timedelta(minutes=1)
    moment = later.strftime("%Y-%m-%dT%H:%M:%SZ")  # it ended after the command had begun

    def build(output: Path) -> None:
        shutil.copy2(triton, output)
        write_statement(
            output / triton.name, lambda p: p["runDetails"].update(metadata={"finishedOn": moment})
        )

    (entry,), err = reproduce_triton(world, monkeypatch, build, 0)
    assert (entry["outcome"], entry["when"], entry["new"]) == ("pass", moment, True)
    assert "built by another recipe of triton: " in entry["detail"] and entry["detail"][:20] in err
    (again,), _ = reproduce_triton(world, monkeypatch, build, 0)
    assert (again["id"], again["new"]) == (entry["id"], False)


IMAGE = {"uri": "docker:build", "digest": {"sha256": "9" * 64}}


def test_outside_of_its_image_nothing_is_begun(world: World, tmp_path: Path) -> None:
    write_statement(torch_of(world), lambda p: dependencies(p).append(IMAGE))
    (planned,) = plan(world)
    assert planned.images == {f"build@sha256:{'9' * 64}"}
    store = tmp_path / "store"
    (set_id,) = wheel_set.list_set_ids(FolderStore(store), world.places.family)
    ended = call("set", "reproduce", store, "--set", set_id, "-o", tmp_path / "out", code=2)
    assert f"built in the image build@sha256:{'9' * 64}, and this is in none" in ended.err
    assert not (tmp_path / "out").exists()


def test_a_set_for_another_system_is_built_there(world: World, tmp_path: Path) -> None:
    for wheel in world.wheels:
        write_statement(wheel, lambda p: parameters(p).update(platform="windows"))
    plan(world)
    store = tmp_path / "store"
    (set_id,) = wheel_set.list_set_ids(FolderStore(store), world.places.family)
    ended = call("set", "reproduce", store, "--set", set_id, "-o", tmp_path / "out", code=2)
    assert "the set is for windows, and this is linux" in ended.err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("said", "release"), [("3.11.99", "3.11.99"), ("/tmp/python", PYTHON)])
def test_a_statement_names_a_python_and_no_program(said: str, release: str, world: World) -> None:
    """A word that is a path would be run, to be asked what it is."""
    entry = {"name": "python", "uri": f"pkg:generic/python@{said}"}
    write_statement(torch_of(world), lambda p: dependencies(p).append(entry))
    assert plan(world)[0].python_release == release


def test_a_set_that_was_built_on_an_installed_rocm_names_none(world: World, tmp_path: Path) -> None:
    for wheel in world.wheels:
        write_statement(wheel, lambda p: parameters(p).update({"installed-rocm": "f" * 16}))
    assert plan(world)[0].parameters.installed_rocm == "f" * 16
