"""Random indexes: variants are chosen as uv installs them, versions as pip takes them."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from packaging.tags import platform_tags, sys_tags
from servers import serve_folder
from uv import find_uv_bin
from wheels import Draft

from rocm_wheels.core import errors
from rocm_wheels.gpus import gpu
from rocm_wheels.index import reader
from rocm_wheels.user import choose
from rocm_wheels.user.host import TargetHost, detect_platform
from rocm_wheels.variants.document import SCHEMA

pytestmark = pytest.mark.contract

INDEXES = 50
SEED = 850
HERE = f"cp{sys.version_info.major}{sys.version_info.minor}"
PLATFORM = next(iter(platform_tags()))
TAGS = ("py3-none-any", f"{HERE}-none-any", f"{HERE}-{HERE}-{PLATFORM}", "cp27-none-any")
STATIC = {
    "rocm": {"version": ["7.2", "7.1", "7.0"], "level": ["b", "a"]},
    "priority": {"order": ["1", "2", "3"]},
    "cpu": {"simd": ["avx512", "avx2"]},
}
UNLISTED = "9"  # a value that no static list has: nobody can use such a wheel
PLAIN = "-"
PYTHONS = (' data-requires-python="&gt;=3.99"', ' data-requires-python="&gt;=3.8"')
ATTRIBUTES = ("", "", "", ' data-yanked=""', *PYTHONS)


class Project:
    """An index of one project with random variants in one to three versions, and its files."""

    attributes: Sequence[str] = ("",)

    def __init__(self, number: int, root: Path, chance: random.Random) -> None:
        self.name = f"p{number}"
        self.folder = root / self.name
        self.folder.mkdir(parents=True)
        self.chance = chance
        self.lines: list[str] = []
        for version in chance.sample(["1.0", "1.1", "2.0", "3.0rc1"], chance.randint(1, 3)):
            self.release(version)
        self.write_page()

    def write_page(self) -> None:
        """Write the page, in no order."""
        self.chance.shuffle(self.lines)
        page = "<!DOCTYPE html>\n<html><body>\n" + "\n".join(self.lines) + "\n</body></html>\n"
        (self.folder / "index.html").write_text(page, encoding="utf-8")

    def release(self, version: str) -> None:
        """Write the wheels and the document of one version."""
        chance = self.chance
        namespaces = chance.sample(sorted(STATIC), chance.randint(1, 3))
        providers = {}
        for ns in namespaces:
            features = chance.sample(sorted(STATIC[ns]), chance.randint(1, len(STATIC[ns])))
            static = {f: chance.sample(STATIC[ns][f], len(STATIC[ns][f])) for f in features}
            providers[ns] = {"static-properties": static}
            if len(features) > 1:
                providers[ns]["feature-order"] = features  # type: ignore[assignment]
        common = {"$schema": SCHEMA, "default-priorities": {"namespace": namespaces}, "providers": providers}
        variants: dict[str, Any] = {}
        for number in range(chance.randint(0, 5)):
            variants[f"{chance.choice('xyz')}{number}"] = self.properties(providers)
        if chance.random() < 0.5:
            variants["null"] = {}
        for label, properties in variants.items():
            self.wheels(version, label, {**common, "variants": {label: properties}})
        if variants:
            self.file(
                f"{self.name}-{version}-variants.json", json.dumps({**common, "variants": variants}).encode()
            )
        if chance.random() < 0.4 or not variants:
            self.wheels(version, PLAIN, None)

    def properties(self, providers: dict[str, Any]) -> dict[str, dict[str, list[str]]]:
        """Return one to three random properties, some of them not listed."""
        found: dict[str, dict[str, list[str]]] = {}
        known = [(ns, f) for ns, one in providers.items() for f in one["static-properties"]]
        for ns, feature in self.chance.sample(known, self.chance.randint(1, min(3, len(known)))):
            values = self.chance.sample([*STATIC[ns][feature], UNLISTED], self.chance.randint(1, 2))
            found.setdefault(ns, {})[feature] = sorted(values)
        return found

    def wheels(self, version: str, label: str, document: dict[str, Any] | None) -> None:
        """Write wheels of one label: for one or two tags, sometimes with a build tag too."""
        for tag in self.chance.sample(TAGS, self.chance.randint(1, 2)):
            for build in ("", "-2")[: self.chance.choice([1, 1, 2])]:
                suffix = "" if label == PLAIN else f"-{label}"
                name = f"{self.name}-{version}{build}-{tag}{suffix}.whl"
                self.file(name, b"", document, version)

    def file(self, name: str, content: bytes, document: Any = None, version: str = "") -> None:
        """Write a file and its line of the page; a wheel holds its own name."""
        if name.endswith(".whl"):
            draft = Draft(self.name, version, "py3-none-any", file_name=name, python="")
            draft.members = {f"{self.name}.txt": name.encode()}
            if document:
                draft.members[f"{draft.folder}/variant.json"] = json.dumps(document).encode()
            content = draft.write(self.folder).read_bytes()
        else:
            (self.folder / name).write_bytes(content)
        more = "" if document or not name.endswith(".whl") else self.chance.choice(self.attributes)
        href = name.replace("+", "%2B").replace("!", "%21")
        self.lines.append(f'<a href="{href}#sha256={sha256(content).hexdigest()}"{more}>{name}</a>')


def by_pip(requirements: list[str], url: str, folder: Path) -> dict[str, str]:
    """Ask pip what it would install; return file names by project."""
    words = [sys.executable, "-m", "pip", "--isolated", "install", "--dry-run", "--quiet", "--no-deps"]
    words += ["--report", str(folder / "report.json"), "--ignore-installed", "--only-binary", ":all:"]
    words += ["--no-cache-dir", "--disable-pip-version-check", "--index-url", url, *requirements]
    env = {**os.environ, "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
    done = subprocess.run(words, env=env, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    report = json.loads((folder / "report.json").read_text(encoding="utf-8"))["install"]
    return {
        one["metadata"]["name"]: unquote(one["download_info"]["url"]).rpartition("/")[2] for one in report
    }


def host() -> TargetHost:
    system, machine = detect_platform()
    return TargetHost(system, machine, f"3.{sys.version_info.minor}", tuple(sys_tags()), gpu.Hardware(), {})


def chosen(name: str, root: Path) -> str | None:
    """Return the file that we choose; None when none fits."""
    try:
        (choice,) = choose.choose_wheels([name], str(root), host(), reader.IndexReader())
    except errors.HostError:
        return None
    assert choice.picked is not None
    return choice.picked.name


def by_uv(names: list[str], url: str, target: Path) -> dict[str, str]:
    """Install projects with uv; return the wheels that it took, by project."""
    words = [find_uv_bin(), "pip", "install", "--no-config", "--python", sys.executable]
    words += ["--preview-features", "wheel-variants", "--default-index", url, "--target", str(target)]
    words += ["--cache-dir", str(target.parent / "uv-cache"), "--no-deps", "--only-binary", ":all:"]
    env = {**os.environ, "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1", "UV_LINK_MODE": "copy"}
    done = subprocess.run([*words, *names], env=env, capture_output=True, text=True, check=False)
    if done.returncode == 1 and "No solution found" in done.stderr:
        return {}
    assert done.returncode == 0, done.stderr
    return {name: (target / f"{name}.txt").read_text(encoding="utf-8") for name in names}


def test_50_random_static_indexes_are_chosen_from_as_by_uv(tmp_path: Path) -> None:
    root = tmp_path / "index"
    chance = random.Random(SEED)
    ours: dict[str, str] = {}
    nothing: list[str] = []
    while len(ours) < INDEXES:
        name = Project(len(ours) + len(nothing), root, chance).name
        if file := chosen(name, root):
            ours[name] = file
        else:
            nothing.append(name)
    with serve_folder(root) as server:
        assert by_uv(list(ours), server.url, tmp_path / "site") == ours
        for name in nothing[:2]:
            assert by_uv([name], server.url, tmp_path / "none") == {}
    labelled = [file for file in ours.values() if file.count("-") > 4]
    assert len(labelled) > INDEXES / 2


VERSIONS = ("1.0", "1.0.post1", "1.1a1", "1.1", "1.2.dev3", "1.2", "2.0rc1", "2.0", "2.0+b", "2.1b2", "1!0.5")
WANTED = (
    "",
    *[">=1.1", "<2", "~=1.0", "==1.1", "==2.0", "==2.0.*", ">=2.0rc1", "!=2.0", "==1.2.dev3", "<2,>1.0"],
)


def test_versions_are_chosen_as_by_pip(tmp_path: Path) -> None:
    # uv judges yanked files and Requires-Python by the version's best file; pip, as we do, by each
    root = tmp_path / "index"
    chance = random.Random(SEED)
    ours: dict[str, str] = {}
    requirements: list[str] = []
    for number in range(40):
        project = Project.__new__(Project)
        project.name, project.folder = f"q{number}", root / f"q{number}"
        project.chance, project.lines, project.attributes = chance, [], ATTRIBUTES
        project.folder.mkdir(parents=True)
        for version in chance.sample(VERSIONS, chance.randint(1, 6)):
            project.wheels(version, PLAIN, None)
        project.write_page()
        wanted = f"{project.name}{(specifier := chance.choice(WANTED))}"
        file = chosen(wanted, root)
        unclear = (
            specifier
            and not re.search("rc|dev", specifier)
            and re.search(r"-[^-]*(a|b|dev|rc)\d", file or "")
        )
        if file and not unclear:  # a range that only pre-releases fit: pip before 26 took nothing
            ours[project.name] = file
            requirements.append(wanted)
    with serve_folder(root) as server:
        assert by_pip(requirements, server.url, tmp_path) == ours
    assert len(ours) > 15
