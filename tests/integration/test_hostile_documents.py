"""Every document that commands read, with one thing wrong in it: an error of ours or no harm, and no release.

Each is first written by our own code. The sample takes each 101st mutation; the exhaustive test all.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import yaml
from commands import make_key
from documents import OUTSIDE, Mutation, mutate_html, mutate_json, mutate_toml, reseal
from runs import make_facts, night, settled
from stores import PATHS, Attacked, a_lock, is_same_result, linked, overwrite, stage_attacked
from wheels import NOW, variant, wheel

from rocm_wheels.cli import boundary, config, main
from rocm_wheels.core import errors
from rocm_wheels.core.workspace import Workspace
from rocm_wheels.index import update
from rocm_wheels.index.pages import HTML_TYPE, JSON_TYPE
from rocm_wheels.index.reader import parse_page
from rocm_wheels.models import project_names
from rocm_wheels.pipeline import outputs, plan, step
from rocm_wheels.sources.lock import format_lock
from rocm_wheels.variants.document import parse_document, read_any_format
from rocm_wheels.wheels.statement import BUILD_TYPE, format_statement, locate_statement

SAMPLE, LEAST, KINDS = 101, 648, 24
TAGS = {"html", "head", "meta", "title", "body", "a", "br"}  # of pages of ours
ALLOWED = {0, 2, *range(10, 19)}  # done, or an error of ours
pytestmark = [
    pytest.mark.contract,
    pytest.mark.skipif(os.name != "posix", reason="pipes in the place of files"),
]


@dataclass(frozen=True)
class Document:
    """A document in a folder, how it is mutated, and what reads it.

    ``read`` takes the folder, of which each mutation has its own copy, and returns the exit codes of all
    that it ran.
    """

    kind: str
    path: str
    mutate: Callable[[bytes], Iterator[Mutation]]
    read: Callable[[Path], Sequence[int]]
    folder: Path

    @property
    def content(self) -> bytes:
        return (self.folder / self.path).read_bytes()


def run(*words: str | Path) -> int:
    return boundary.run_command(main.cli, [str(word) for word in words])


def call(function: Callable[[], object]) -> int:
    """Return the exit code with which a command would end that calls this first."""
    try:
        function()
    except errors.RocmWheelsError as error:
        return error.exit_code
    return 0


def json_at(places: int) -> Callable[[bytes], Iterator[Mutation]]:
    return lambda content: mutate_json(content, places=places)


def list_store_documents(good: Attacked, released: Attacked, key: Path) -> Iterator[Document]:
    """Yield the documents of a store: staged, then released."""

    def attack(place: Path) -> Attacked:
        return Attacked(place, good.document, good.policy)

    def promote(place: Path) -> list[int]:
        codes = [attack(place).run(word, "--channel", "nightly") for word in ("gate", "promote")]
        shown = (place / PATHS.channel_document("nightly")).exists()
        assert not shown, "it was promoted"
        return codes

    def mutate_sealed(content: bytes, places: int = 4) -> Iterator[Mutation]:
        """Seal what can be sealed again, so that what lies behind the seal is met."""
        return ((name, reseal(mutated)) for name, mutated in mutate_json(content, places=places))

    def mutate_staged(content: bytes) -> Iterator[Mutation]:
        for name, mutated in mutate_sealed(content, places=7):
            if mutated != content and not is_same_result(mutated, content):
                yield name, mutated

    def refresh(place: Path) -> list[int]:
        here = attack(place)
        codes = [
            run("store", "fsck", place),
            here.run("list", "--channel", "nightly"),
            here.run("refresh", "--sign-with", str(key)),
        ]
        return [*codes, run("set", "list", place)]

    staged = {
        "set.json": good.set_file,
        "evidence": good.results[-1],
    }
    for kind, path in staged.items():
        yield Document(kind, str(path.relative_to(good.place)), mutate_staged, promote, good.place)
    pages = Path(PATHS.channel_pages("nightly"))
    files = {
        "channel": PATHS.channel_document("nightly"),
        "manifest": PATHS.channel_manifest("nightly"),
        "support.json": PATHS.support_document,
        "support.json of all": "support.json",
        "released set.json": PATHS.set_document(good.document.id),
        "JSON page of a channel": str(pages / "torch" / "index.json"),
    }
    for kind, name in files.items():
        yield Document(kind, name, mutate_sealed, refresh, released.place)


def list_index_documents(folder: Path) -> Iterator[Document]:
    """Yield pages and variants of an index, and what lies beside and in wheels."""
    index = folder / "index"
    properties = {"rocm": {"version": ["7.1"]}}
    wheels = [wheel(folder / "wheels"), variant(folder / "wheels", "rocm7.1", properties)]
    update.add_wheels(index, wheels, now=NOW)

    def choose(place: Path) -> list[int]:
        options = (
            "--allow-cpu",
            "--gfx",
            "gfx942",
            "--rocm",
            "7.1",
            "--platform",
            "linux",
            "--python",
            "3.12",
        )
        return [run("choose", "torch", "--index", place, *options), run("index", "verify", place)]

    def read_json_page(place: Path) -> list[int]:
        content = (place / "torch/index.json").read_bytes()
        page = call(lambda: parse_page(content, JSON_TYPE, "https://h/simple/torch/"))
        return [page, run("index", "verify", place)]

    def read_html_page(place: Path) -> list[int]:
        content = (place / "torch/index.html").read_bytes()
        return [call(lambda: parse_page(content, HTML_TYPE, "https://h/simple/torch/")), *choose(place)]

    def read_variant(place: Path) -> list[int]:
        content = (place / "variant.json").read_bytes()
        readers = (parse_document, read_any_format)
        return [call(lambda reader=reader: reader(content, name="variant.json")) for reader in readers]

    (variants,) = (index / "torch").glob("*-variants.json")
    yield Document("JSON page", "torch/index.json", json_at(8), read_json_page, index)
    yield Document("HTML page", "torch/index.html", mutate_html, read_html_page, index)
    yield Document("variants of an index", str(variants.relative_to(index)), json_at(7), choose, index)
    alone = folder / "alone"
    alone.mkdir()
    shutil.copy(variants, alone / "variant.json")
    yield Document("variant.json", "variant.json", json_at(9), read_variant, alone)

    def federate(place: Path) -> list[int]:
        codes = [run("index", "federate", place / "owners.yaml", place / "public") for _ in range(2)]
        shown = place / "public" / "torch" / "index.html"
        assert not shown.exists() or set(re.findall(r"<([a-z]+)", shown.read_text())) <= TAGS
        return codes

    stated = {"sources": {"theirs": {"index": "theirs"}}, "owners": {"torch": "theirs", "tor*": "theirs"}}
    for form in ("json", "html"):
        several = folder / f"several_{form}"
        shutil.copytree(index, several / "theirs")
        (several / "owners.yaml").write_text(json.dumps(stated))
        if form == "html":
            (several / "theirs" / "index.json").unlink()
        assert federate(several) == [0, 0]
    yield Document("page of a source", "theirs/torch/index.html", mutate_html, federate, several)
    several = folder / "several_json"
    kinds = {"owners.yaml": 6, "public/federation.json": 6, "theirs/torch/index.json": 8}
    for path, places in kinds.items():
        yield Document(f"{path} of several", path, json_at(places), federate, several)

    beside = folder / "beside"
    beside.mkdir()
    made = wheel(beside)
    dependency = {"uri": "git+https://h/torch", "digest": {"gitCommit": "a" * 40}}
    definition = {"buildType": BUILD_TYPE, "externalParameters": {}, "resolvedDependencies": [dependency]}
    predicate = {"buildDefinition": definition, "runDetails": {"builder": {"id": "urn:test"}}}
    digest = hashlib.sha256(made.read_bytes()).hexdigest()
    statement = locate_statement(made)
    statement.write_bytes(format_statement(made.name, digest, predicate))

    def read_statement(place: Path) -> list[int]:
        return [run("provenance", "verify", place / made.name)]

    yield Document("statement", statement.name, json_at(9), read_statement, beside)


PYLOCK = """\
lock-version = "1.0"
created-by = "uv"
requires-python = ">=3.10"

[[packages]]
name = "torch"
version = "2.9.1+rocm7.1.0"

[[packages.wheels]]
name = "{name}"
path = "{name}"
size = {size}
hashes = {{ sha256 = "{digest}" }}
"""
CONFIG = """\
jobs = 4
retries = 2

[checkout]
hipify = false

[build]
gfx = "gfx942"
keep-going = true
"""


def list_source_documents(folder: Path) -> Iterator[Document]:
    """Yield what people and resolvers write: locks, configuration, recipe, policy."""
    for name in ("lock", "pylock", "config", "recipe"):
        (folder / name).mkdir()
    for name in ("set.lock", "other.lock"):
        (folder / "lock" / name).write_text(format_lock(a_lock()))

    def read_lock(place: Path) -> list[int]:
        lock = place / "set.lock"
        return [run("lock", "diff", lock, place / "other.lock", "--json")]

    yield Document("lock", "set.lock", json_at(8), read_lock, folder / "lock")
    made = wheel(folder / "pylock")
    digest = hashlib.sha256(made.read_bytes()).hexdigest()
    text = PYLOCK.format(name=made.name, size=made.stat().st_size, digest=digest)
    (folder / "pylock/pylock.toml").write_text(text)

    def audit(place: Path) -> list[int]:
        return [run("audit", "--set", place / "pylock.toml")]

    yield Document("pylock.toml", "pylock.toml", mutate_toml, audit, folder / "pylock")
    (folder / "config/rocm-wheels.toml").write_text(CONFIG)

    def show_config(place: Path) -> list[int]:
        config.read_config_file.cache_clear()
        file = place / "rocm-wheels.toml"
        return [run("--config", file, "settings"), run("--config", file, "settings", "build")]

    yield Document("configuration", "rocm-wheels.toml", mutate_toml, show_config, folder / "config")
    recipe = yaml.safe_load((project_names.get_recipes_folder() / "apex.yaml").read_text(encoding="utf-8"))
    checks = {**recipe["checks"], "import_name": "mine"}
    own = {**recipe, "name": "mine", "distribution": "mine", "checks": checks}
    (folder / "recipe/mine.yaml").write_text(json.dumps(own).replace("apex/", "mine/"))
    yield Document(
        "recipe",
        "mine.yaml",
        json_at(12),
        lambda place: [run("recipe", "check", place / "mine.yaml")],
        folder / "recipe",
    )


def list_build_documents(folder: Path) -> Iterator[Document]:
    """Yield what builds write and read: plan, record, stamp, list of wheels."""
    facts = make_facts(folder)
    (folder / "plan").mkdir()
    plan.write_plan(
        folder / "plan/plan.json", plan.PlanFile(facts.request, step.Plan(settled(facts), ("gfx942",)), {})
    )

    def read_planned(place: Path) -> list[int]:
        return [run("run-step", "no-such-step", "--plan", place / "plan.json")]

    yield Document("plan", "plan.json", json_at(12), read_planned, folder / "plan")
    made = night(folder / "work/runs")
    shutil.copy(folder / "plan/plan.json", made.folder / "plan.json")
    events = next(path for path in made.folder.iterdir() if path.suffix == ".jsonl")
    record = str(events.relative_to(folder / "work"))

    def read_record(place: Path) -> list[int]:
        words = (("runs", "show"), ("runs", "list"))
        return [run(*command, "--work-dir", place) for command in words]

    def mutate_record(content: bytes) -> Iterator[Mutation]:
        lines = content.splitlines()
        for number in (0, len(lines) // 2, len(lines) - 1):
            for name, line in mutate_json(lines[number], places=4):
                changed = [*lines[:number], b" ".join(line.splitlines()), *lines[number + 1 :]]
                yield f"line {number}: {name}", b"\n".join(changed) + b"\n"

    yield Document("run record", record, mutate_record, read_record, folder / "work")
    plan_of_run = str((made.folder / "plan.json").relative_to(folder / "work"))
    yield Document("plan of a run", plan_of_run, json_at(3), read_record, folder / "work")
    stamps = folder / "stamps"
    stamps.mkdir()
    output = outputs.OutputFile(str(folder / "x.whl"), 1, 1, "0" * 64)
    outputs.write_stamp(stamps, outputs.StepStamp("build", {"python": "3.12"}, (output,), {"version": "1"}))

    def read_stamps(place: Path) -> list[int]:
        def look() -> None:
            stamp = outputs.read_stamp(place, "build")
            if stamp is not None:
                outputs.explain_run(stamp, {"python": "3.12"})

        return [call(look)]

    yield Document("step stamp", "build.json", json_at(8), read_stamps, stamps)
    collected = folder / "collected"
    (collected / "dist").mkdir(parents=True)
    delivered = wheel(folder / "built", tag="cp312-cp312-linux_x86_64")
    workspace = Workspace(collected)
    options = {"distribution": "torch", "python_tag": "cp312", "purpose": "gfx942"}
    outputs.deliver_files(workspace, [delivered], collected / "dist", **options)

    def read_collected(place: Path) -> list[int]:
        output = place / "dist"
        return [
            call(lambda: outputs.refuse_foreign_wheels(Workspace(place), output, *options.values())),
            call(lambda: outputs.deliver_files(Workspace(place), [delivered], output, **options)),
        ]

    yield Document("collected.json", "collected.json", json_at(4), read_collected, collected)


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Document]]:
    folder = tmp_path_factory.mktemp("documents")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        key = make_key(folder / "key")
        good = stage_attacked(folder)
        released = good.copy("released")
        assert released.run("promote", "--channel", "nightly", "--sign-with", str(key)) == 0
        found = list(list_store_documents(good, released, key))
        for list_documents in (list_index_documents, list_source_documents, list_build_documents):
            place = folder / list_documents.__name__
            place.mkdir()
            found += list_documents(place)
        (folder / "policies").mkdir()
        text = json.dumps(yaml.safe_load(good.policy.read_text()))
        (folder / "policies/policy.yaml").write_text(text)

        def gate(place: Path) -> list[int]:
            attacked = replace(good, policy=place / "policy.yaml")
            return [attacked.run("gate", "--channel", "nightly")]

        found.append(Document("policy", "policy.yaml", json_at(9), gate, folder / "policies"))
        yield found


def find_harm(document: Document, place: Path, mutation: Mutation) -> str:
    """Return what went wrong where a mutated document is read, "" where nothing did."""
    name, content = mutation
    linked(document.folder, place)
    overwrite(place / document.path, content)
    try:
        codes = document.read(place)
    except BaseException as harm:
        trace = traceback.extract_tb(harm.__traceback__)[-1]
        where = f"{trace.filename}:{trace.lineno}"
        return f"{document.kind}: {name}: {type(harm).__name__}: {str(harm)[:100]} ({where})"
    finally:
        shutil.rmtree(place)
    wrong = sorted(set(codes) - ALLOWED)
    return f"{document.kind}: {name}: exit codes {wrong}" if wrong else ""


def test_nothing_breaks_on_a_mutated_document(
    documents: list[Document], tmp_path: Path, exhaustive: bool
) -> None:
    """0 tracebacks, 0 files outside, 0 promoted sets (``promote`` of the staged ones asserts that)."""
    cases = [(document, mutation) for document in documents for mutation in document.mutate(document.content)]
    assert len(documents) >= KINDS
    assert len(cases) >= LEAST
    chosen = cases if exhaustive else cases[::SAMPLE]
    harms = [find_harm(document, tmp_path / "case", mutation) for document, mutation in chosen]
    harms = [harm for harm in harms if harm]
    assert not harms, f"{len(harms)} of {len(chosen)}\n" + "\n".join(harms)
    base = tmp_path.parent
    assert not [path for path in base.rglob(f"*{OUTSIDE}*") if not path.is_relative_to(tmp_path / "case")]
    assert not Path("/tmp", OUTSIDE).exists()


def test_every_document_is_read_as_it_was_written(documents: list[Document], tmp_path: Path) -> None:
    """So that a mutation is what each refusal is about."""
    for document in documents:
        place = linked(document.folder, tmp_path / "whole")
        if document.kind in {"set.json", "evidence"}:
            with pytest.raises(AssertionError, match="it was promoted"):
                document.read(place)
        else:
            codes = document.read(place)
            last = {"plan": 2, "statement": 13}.get(document.kind, 0)  # no such step, no bill of materials
            # of a copy in another folder: the wheel there was not put there by this one
            first = [2] if document.kind == "collected.json" else [0] * (len(codes) - 1)
            assert codes == [*first, last], document.kind
        shutil.rmtree(place)
