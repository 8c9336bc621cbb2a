"""The bill of materials of a wheel: right by the strict schema, the same for the same parts, kept true."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from wheels import embed_parts, list_steps, require_valid, torch_draft

from rocm_wheels.cli import boundary, main
from rocm_wheels.core import errors
from rocm_wheels.wheels import edit, rewrite, sbom, scan

pytestmark = pytest.mark.contract

COMMIT, OTHER = "1" * 40, "2" * 40
PARTS = sbom.WheelParts(
    tool="0.1.0",
    targets=("gfx942", "gfx1100"),
    rocm="7.1.0",
    sources=(
        sbom.SourcePart("pytorch", "https://github.com/ROCm/pytorch.git", COMMIT, patches="a" * 64),
        sbom.SourcePart("fmt", "https://github.com/fmtlib/fmt", OTHER, "third_party/fmt"),
        sbom.SourcePart("fmt", "https://github.com/fmtlib/fmt", OTHER, "third_party/kineto/fmt"),
        sbom.SourcePart("private", "file:///home/planted/secret.git", COMMIT, "third_party/private"),
        sbom.SourcePart(
            "mirror", "https://planted:token@git.planted.example/x.git", OTHER, "third_party/mirror"
        ),
    ),
    packages=(
        sbom.PackagePart("rocm-sdk-core", "7.1.0", "b" * 64),
        sbom.PackagePart("triton", "3.5.0+rocm7.1.0"),
    ),
)


def make_wheel(folder: Path) -> Path:
    """Return a torch with lock and bill of materials inside."""
    folder.mkdir(exist_ok=True)
    return embed_parts(torch_draft().write(folder), b"{}", PARTS)


def read_sbom(wheel: Path) -> bytes:
    assert scan.scan_wheel(wheel).faults == ()  # and in RECORD
    return rewrite.read_dist_info_files(wheel)[sbom.SBOM_MEMBER]


def test_parts_by_their_names_in_the_trade(tmp_path: Path) -> None:
    document = require_valid(read_sbom(make_wheel(tmp_path)))
    wheel = document["metadata"]["component"]
    assert wheel["purl"] == "pkg:pypi/torch@2.9.0%2Brocm7.1.0"
    assert {"name": "rocm-wheels:targets", "value": "gfx942 gfx1100"} in wheel["properties"]
    components = {component["purl"]: component for component in document["components"]}
    assert set(components) == {
        f"pkg:github/rocm/pytorch@{COMMIT}",
        f"pkg:github/fmtlib/fmt@{OTHER}",  # in two places, and one component
        f"pkg:generic/private@{COMMIT}",
        f"pkg:generic/mirror@{OTHER}",
        "pkg:pypi/rocm-sdk-core@7.1.0",
        "pkg:pypi/triton@3.5.0%2Brocm7.1.0",
    }
    paths = [entry["value"] for entry in components[f"pkg:github/fmtlib/fmt@{OTHER}"]["properties"]]
    assert paths == ["third_party/fmt", "third_party/kineto/fmt"]
    assert b"planted" not in json.dumps(document).encode()
    (depends,) = [entry for entry in document["dependencies"] if entry["ref"] == wheel["bom-ref"]]
    assert sorted(depends["dependsOn"]) == sorted(components)


def test_same_parts_same_bytes_other_commit_other_serial(tmp_path: Path) -> None:
    first, second = make_wheel(tmp_path / "a"), make_wheel(tmp_path / "b")
    assert first.read_bytes() == second.read_bytes()
    other = replace(PARTS, sources=(replace(PARTS.sources[0], commit=OTHER),))
    serials = {json.loads(sbom.format_sbom(parts, "torch", "1"))["serialNumber"] for parts in (PARTS, other)}
    assert len(serials) == 2


def test_licence_is_what_metadata_states_or_nothing(tmp_path: Path) -> None:
    draft = torch_draft()
    metadata = (
        b"Metadata-Version: 2.4\nName: torch\nVersion: 2.9.0+rocm7.1.0\nLicense-Expression: BSD-3-Clause\n"
    )
    draft.metadata = metadata
    wheel = embed_parts(draft.write(tmp_path), None, PARTS)
    document = require_valid(read_sbom(wheel))
    assert document["metadata"]["component"]["licenses"] == [{"expression": "BSD-3-Clause"}]
    plain = require_valid(read_sbom(make_wheel(tmp_path)))
    assert "licenses" not in plain["metadata"]["component"]


def test_what_is_done_later_is_in_it(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path)
    retag = edit.WheelEdit(version="2.9.0", platforms=("manylinux_2_28_x86_64",), step="retag")
    retagged = rewrite.rewrite_wheel(wheel, tmp_path / "new", retag)
    content = read_sbom(retagged)
    document = require_valid(content)
    assert document["metadata"]["component"]["purl"] == "pkg:pypi/torch@2.9.0"
    assert list_steps(content) == ["retag"]
    assert b"2Brocm7.1.0" not in json.dumps(document["dependencies"][0]["ref"]).encode()


def test_variant_and_back_is_the_same_file(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path)
    stamp = edit.WheelEdit(label="gfx942", put={"variant.json": b"{}"}, step="stamp gfx942")
    stamped = rewrite.rewrite_wheel(wheel, tmp_path / "variant", stamp)
    assert list_steps(read_sbom(stamped)) == ["stamp gfx942"]
    words = ["wheel", "retag", str(stamped), "--label", "", "--output-dir", str(tmp_path)]
    assert boundary.run_command(main.cli, [*words[:-1], str(tmp_path / "plain")]) == 0
    assert read_sbom(tmp_path / "plain" / wheel.name) == read_sbom(wheel)
    assert boundary.run_command(main.cli, [*words, "--build-tag", "1"]) == 0
    assert list_steps(read_sbom(*tmp_path.glob("torch-*-1-*.whl"))) == ["stamp gfx942", "retag"]


def test_contained_packages_are_components_of_the_wheel(tmp_path: Path) -> None:
    content = read_sbom(make_wheel(tmp_path))
    inside = sbom.describe_contained(sbom.PackagePart("rocm-sdk-core", "7.1.0", "c" * 64))
    document = require_valid(sbom.revise_sbom(content, step="fat gfx942", contained=[inside]))
    assert document["metadata"]["component"]["components"] == [inside]


def own(**wheel: object) -> bytes:
    """Return a document like ours, of whose component some is of another kind."""
    component = {"name": "demo", "bom-ref": "demo", "properties": [], **wheel}
    return json.dumps({"metadata": {"component": component}, "dependencies": []}).encode()


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"[]", b"{}", b'{"metadata": {"component": {}}}', b"\xff", b"[" * 100_000),
        *(own(name=1), own(properties={"a": 1})),
    ],
)
def test_a_document_that_is_not_ours_is_refused(content: bytes) -> None:
    with pytest.raises(errors.DataError):
        sbom.revise_sbom(content, version="1", step="retag")
