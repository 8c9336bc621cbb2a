"""The statement of a build: what is known of it, and nothing of the machine, its user or their secrets."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from wheels import embed_parts, torch_draft

from rocm_wheels.models import project_names
from rocm_wheels.pipeline import build_statement
from rocm_wheels.sdk import resolve_packages
from rocm_wheels.wheels import sbom
from rocm_wheels.wheels.statement import ProvenanceStatement, read_statement

SOURCES = (
    sbom.SourcePart(
        "pytorch", "https://planted:token@github.com/ROCm/pytorch.git", "1" * 40, patches="a" * 64
    ),
    sbom.SourcePart("fmt", "https://github.com/fmtlib/fmt", "2" * 40, "third_party/fmt"),
    sbom.SourcePart("private", "file:///home/planted/x.git", "3" * 40, tree="4" * 64),
)
PACKAGE = sbom.PackagePart("rocm-sdk-core", "7.1.0", "b" * 64)
PARTS = sbom.WheelParts("0.1.0", ("gfx942",), "7.1.0", SOURCES, (PACKAGE,))
FILE = "rocm_sdk_core-7.1.0-py3-none-linux_x86_64.whl"
ROCM_CORE = {"name": "rocm-sdk-core", "version": "7.1.0", "file": FILE, "sha256": "d" * 64}
VARIABLES = {"PYTORCH_ROCM_ARCH": "gfx942", "USE_KINETO": "ON", "USE_FLASH": "1", "PATH": "/home/planted/bin"}
VARIABLES |= {"CXXFLAGS": "-I/home/planted/include -O2", "CFLAGS": "-DAPI_TOKEN=planted"}
VARIABLES |= {"HIPFLAGS": "-ffile-prefix-map=/home/planted/pytorch=. -O3"}
VARIABLES |= {"GITHUB_TOKEN": "planted", "MY_WORDS": "planted"}
GITHUB = {"GITHUB_ACTIONS": "true", "GITHUB_SERVER_URL": "https://github.com", "GITHUB_REPOSITORY": "o/r"}
GITHUB["GITHUB_WORKFLOW_REF"] = "o/r/.github/workflows/build-line.yml@refs/heads/main"
GITHUB |= {"GITHUB_RUN_ID": "7", "GITHUB_RUN_ATTEMPT": "2"}


def write(folder: Path, env: dict[str, str]) -> ProvenanceStatement:
    """Return the statement of a build in which secrets, a home and a user are planted."""
    request = SimpleNamespace(
        packaging="per-family", release_type="nightly", version_suffix="+mine", unlisted_targets=False
    )
    (folder / resolve_packages.PACKAGES_NOTE).write_text(json.dumps({"rocm-sdk-core": ROCM_CORE}))
    ready = SimpleNamespace(python_tag="cp312", environment=SimpleNamespace(prefix=folder))
    python = SimpleNamespace(version="3.12.11")
    step_run = SimpleNamespace(facts=SimpleNamespace(request=request, env=env, python=python), ready=ready)
    build = SimpleNamespace(
        project=SimpleNamespace(name="pytorch"),
        source=Path("/home/planted/pytorch"),
        platform="linux",
        sdk=SimpleNamespace(content=""),
        build_number="1",
        suffix="+rocm7.1.0",
        flash_attention=None,
        set_env={"MY_WORDS": "planted", "USE_FLASH": "1"},
        recipe_variables={"USE_KINETO": "ON"},
    )
    inputs = {name: "" for name in VARIABLES if name != "PATH"}
    inputs |= {"build package ninja": "1.13.2 abcdef012345", "source": "/home/planted/pytorch"}
    environment = {**VARIABLES, "CC": sys.executable, "PATH": os.defpath}
    file = "ninja-1.13.2-py3-none-any.whl"
    tools = {"ninja": resolve_packages.InstalledPackage("ninja", "1.13.2", file, "c" * 64)}
    base = {"CXXFLAGS": "-O2", "CFLAGS": "-DAPI_TOKEN=planted", "PYTORCH_ROCM_ARCH": "gfx942"}
    planned = SimpleNamespace(
        request=build, inputs=inputs, environment=environment, tools=tools, base={**base, "USE_KINETO": "ON"}
    )
    wheel = embed_parts(torch_draft().write(folder), b"a lock\n", PARTS)
    times = ("2026-11-21T12:00:00Z", "2026-11-21T13:00:00Z")
    moment = build_statement.BuildMoment("20261121-120000", *times, 3, 4)
    predicate = build_statement.describe_build(cast(Any, step_run), cast(Any, planned), PARTS, moment)
    lock = {"sha256": hashlib.sha256(b"a lock\n").hexdigest()}
    build_statement.write_build_statement(wheel, "e" * 64, predicate, PARTS.sources, lock=lock)
    statement = read_statement(wheel)
    assert statement is not None
    return statement


def test_nothing_of_the_machine_and_no_secret_is_in_it(tmp_path: Path) -> None:
    image = "registry.planted.example/planted-team/build@sha256:" + "9" * 64
    statement = write(tmp_path, {"ROCM_WHEELS_IMAGE": image, "HOME": "/home/planted", "USER": "planted"})
    assert b"planted" not in statement.content
    assert str(Path(sys.executable).parent).encode() not in statement.content
    internal = statement.predicate["buildDefinition"]["internalParameters"]
    assert internal["environment"] == {
        "PYTORCH_ROCM_ARCH": "gfx942",
        "USE_KINETO": "ON",
        "USE_FLASH": "1",
        "HIPFLAGS": "-ffile-prefix-map=SOURCE=. -O3",
    }
    assert internal["withheld"] == ["CFLAGS", "CXXFLAGS", "GITHUB_TOKEN", "MY_WORDS"]
    # what the user had set, to be set again: flags without those that the build put before them
    assert internal["shell"] == {"CXXFLAGS": "-O2"}
    assert internal["set-env"] == {"USE_FLASH": "1"}
    assert internal["withheld-set"] == ["CFLAGS", "MY_WORDS"]


def test_what_is_known_is_in_it_by_its_digest(tmp_path: Path) -> None:
    statement = write(tmp_path, {"ROCM_WHEELS_IMAGE": "ghcr.io/x/build@sha256:" + "9" * 64})
    digests = {entry["name"]: entry.get("digest") for entry in statement.dependencies}
    compiler = Path(os.path.realpath(sys.executable)).name
    assert digests["pytorch"] == {"gitCommit": "1" * 40}
    assert digests["private"] == {"gitCommit": "3" * 40}
    assert digests["rocm-sdk-core"] == {"rocm-wheels-record-sha256": "b" * 64, "sha256": "d" * 64}
    assert digests["ninja"] == {"sha256": "c" * 64}
    assert digests["build"] == {"sha256": "9" * 64}
    assert set(digests[compiler] or {}) == {"sha256"}
    uris = [entry.get("uri") for entry in statement.dependencies]
    assert {"pkg:github/rocm/pytorch@" + "1" * 40, "pkg:pypi/ninja@1.13.2"} <= set(uris)
    assert statement.parameters["lock"] == {"sha256": hashlib.sha256(b"a lock\n").hexdigest()}
    assert "flash-attention" not in statement.parameters  # not known: left out
    assert statement.parameters["asked-suffix"] == "+mine"
    recipe = project_names.find_recipes()["pytorch"].path
    assert statement.parameters["recipe"] == {"sha256": hashlib.sha256(recipe.read_bytes()).hexdigest()}
    files = {entry["name"]: entry.get("annotations", {}) for entry in statement.dependencies}
    assert (files["rocm-sdk-core"]["file"], files["rocm-sdk-core"]["installed-with"]) == (FILE, "rocm")
    assert files["ninja"]["installed-with"] == "tools"
    assert "pkg:generic/python@3.12.11" in uris


@pytest.mark.parametrize("env", [{}, GITHUB], ids=["here", "GitHub"])
def test_who_built_it_and_in_which_run(env: dict[str, str], tmp_path: Path) -> None:
    statement = write(tmp_path, env)
    invocation = statement.predicate["runDetails"]["metadata"]["invocationId"]
    if env:
        assert statement.builder == "https://github.com/o/r/.github/workflows/build-line.yml@refs/heads/main"
        assert invocation == "https://github.com/o/r/actions/runs/7/attempts/2"
    else:
        assert statement.builder.startswith("urn:rocm-wheels:")
        assert invocation == "20261121-120000"
    (product,) = statement.predicate["runDetails"]["byproducts"]
    assert product == {"name": "compiler-cache", "annotations": {"hits": 3, "cacheable": 4}}
