"""Each command needs no more rights than its role has, by the policies of the page, request by request."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest
from commands import call
from crash import FaultyStore, Killed
from documents import said
from servers import a_bucket, a_store, bad_line, environment
from stores import FAMILY, TARGET, SplitWorld, World
from stores import stage as stage_plan

from rocm_wheels.core import errors
from rocm_wheels.release import policy, store_paths, wheel_set
from rocm_wheels.release.evidence.store import add_evidence
from rocm_wheels.release.prune import PrunePlan, Pruner
from rocm_wheels.stores import s3 as store_s3
from rocm_wheels.stores.store import open_store

PAGE = Path(__file__).resolve().parents[2] / "docs" / "pages" / "how-to" / "store-roles.md"
PATHS = store_paths.FamilyPaths(FAMILY)
RULES = (
    "channels:\n  nightly: {signed: false, rules: {audit: {fresh: 14d}, complete: {}, smoke: {fresh: 7d}}}\n"
)
Statement = Mapping[str, Any]
Asked = list[tuple[str, str, dict[str, str]]]  # action, resource, and what conditions look at


def read_policies(bucket: str) -> dict[str, list[Statement]]:
    """Return the statements of each role, for a bucket of the tests."""
    found = re.findall(r"^## (\w+)\n\n```json\n(.*?)```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    return {
        role: json.loads(text.replace("my-wheels", bucket).replace("/rocm/", "/some/where/"))["Statement"]
        for role, text in found
    }


def list_asked(method: str, path: str, headers: Mapping[str, str]) -> Asked:
    """Return what a request needs, as Amazon's "Actions, resources, and condition keys for S3" has it."""
    parts = urlsplit(path)
    bucket, _, key = unquote(parts.path).lstrip("/").partition("/")
    query = parse_qs(parts.query, keep_blank_values=True)
    arn = f"arn:aws:s3:::{bucket}/{key}"
    if method in {"GET", "HEAD"}:
        return [("s3:GetObject", arn, {}) if key else ("s3:ListBucket", f"arn:aws:s3:::{bucket}", {})]
    if method == "DELETE":
        return [("s3:AbortMultipartUpload" if "uploadId" in query else "s3:DeleteObject", arn, {})]
    creates = "partNumber" not in query and "uploads" not in query
    context = {"s3:ObjectCreationOperation": str(creates).lower()}
    if (condition := headers.get("If-None-Match")) is not None:
        context["s3:if-none-match"] = condition
    source = headers.get("x-amz-copy-source")
    copied: Asked = [("s3:GetObject", f"arn:aws:s3:::{unquote(source).lstrip('/')}", {})] if source else []
    return [("s3:PutObject", arn, context), *copied]


def may(statements: list[Statement], action: str, resource: str, context: Mapping[str, str]) -> bool:
    """Tell what a policy says: what one statement allows and none denies."""
    effects = {
        statement["Effect"]
        for statement in statements
        if matches(statement["Action"], action)
        and matches(statement["Resource"], resource)
        and all(holds(*entry, context) for entry in statement.get("Condition", {}).items())
    }
    return effects == {"Allow"}


def matches(patterns: str | list[str], text: str) -> bool:
    several = [patterns] if isinstance(patterns, str) else patterns
    return any(re.fullmatch(".*".join(map(re.escape, one.split("*"))), text) for one in several)


def holds(operator: str, keys: Mapping[str, str], context: Mapping[str, str]) -> bool:
    if operator == "Null":
        return all((key not in context) == (value == "true") for key, value in keys.items())
    assert operator == "Bool", operator
    return all(context.get(key) == value for key, value in keys.items())


class Roles:
    """A store in a bucket, and who works on it."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bucket = a_bucket()
        self.policies = read_policies(self.bucket)
        self.all = a_store(bucket=self.bucket)
        self.url = self.all.url
        self.refused: list[str] = []
        self.policy = folder / "policy.yaml"
        self.policy.write_text(RULES)
        self._set = monkeypatch.setenv

    @contextmanager
    def work_as(self, role: str) -> Iterator[Callable[..., int]]:
        """Give what runs a command with the rights of a role."""
        self.refused.clear()

        def refuses(method: str, path: str, headers: Mapping[str, str]) -> bool:
            for action, resource, context in list_asked(method, path, headers):
                if not may(self.policies[role], action, resource, context):
                    self.refused.append(f"{action} {resource}")
                    return True
            return False

        with bad_line(lambda *_: "") as line:
            line.refuses = refuses
            for name, value in environment(line.url).items():
                self._set(name, value)
            yield lambda *words: call(*words, code=None).code

    def add(self, kind: str, document: Any, hours: float) -> None:
        when = datetime.now(timezone.utc).replace(microsecond=0) - timedelta(hours=hours)
        of = {"document": document, "when": when, "added": when, "gfx": TARGET}
        result = said(kind, about=document.digest, **of).evidence
        add_evidence(open_store(self.url, dict(os.environ)), document, result)


def test_each_command_has_the_rights_that_it_needs_and_not_those_of_the_other_role(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    roles = Roles(tmp_path, monkeypatch)
    assert list(roles.policies) == ["write", "release"]
    made = SplitWorld if shutil.which("cc") else World  # whose views have selectors besides
    world, other = made(tmp_path / "one"), made(tmp_path / "two", version="2.9.2")
    stage, chosen = world.words(roles.url), ["--set", world.plan().document.id, "--channel", "nightly"]
    judged = [*chosen, "--policy", roles.policy]
    with roles.work_as("write") as run:
        assert run(*stage) == 0 and roles.refused == []
        assert run(*stage) == 0 and roles.refused == []  # once more, which sends nothing
        document = wheel_set.find_set(roles.all, world.plan().document.id)
        for kind in ("audit", "smoke"):
            roles.add(kind, document, 5)
        assert run("set", "gate", roles.url, *judged) == 0
        assert run("set", "list", roles.url) == 0 and run("store", "fsck", roles.url) == 0
        assert roles.refused == []
        assert run("set", "promote", roles.url, *judged) == 15 and roles.refused
    with roles.work_as("release") as run:
        assert run("set", "promote", roles.url, *judged) == 0
        assert run("set", "refresh", roles.url, "--policy", roles.policy) == 0
        assert run("set", "demote", roles.url, *judged) == 0
        assert roles.refused == []
        assert run(*other.words(roles.url)) == 15 and roles.refused
        with pytest.raises(errors.ReleaseError, match="AccessDenied"):
            roles.add("smoke", document, 4)
    with roles.work_as("write") as run:
        last = f"create {PATHS.set_document(other.plan().document.id)}"
        killed = FaultyStore(open_store(roles.url, dict(os.environ)), at=last, fault="before")
        begun = datetime.now(timezone.utc) + timedelta(minutes=1)
        with pytest.raises(Killed):
            stage_plan(killed, other.plan(), now=f"{begun:%Y-%m-%dT%H:%M:%SZ}")
        assert run(*other.words(roles.url)) == 0 and roles.refused == []  # its pages stay
        assert run("store", "fsck", roles.url) == 0
    later = datetime.now(timezone.utc) + timedelta(days=99)  # when all that is staged is old
    with roles.work_as("write"), pytest.raises(errors.ReleaseError, match="AccessDenied"):
        prune(roles, later)
    with roles.work_as("release") as run:
        assert run("store", "prune", roles.url) == 0  # today nothing is
        plan = prune(roles, later)
        assert [gone.id for gone in plan.sets] == [document.id] and roles.refused == []
        store = open_store(roles.url, dict(os.environ))
        with pytest.raises(errors.ReleaseError, match="AccessDenied"):
            store.remove(f"{PATHS.evidence_folder(document.id)}/x")


def prune(roles: Roles, now: datetime) -> PrunePlan:
    """Prune with the rights that the environment gives: only the newest set is kept."""
    store = open_store(roles.url, dict(os.environ))
    return Pruner(store, policy.RetentionPolicy(keep=1), now).prune(FAMILY)


def test_who_holds_a_role_cannot_undo_what_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By hand, with the client of the store; a wheel that goes in parts is staged all the same."""
    roles, wheel, path = (
        Roles(tmp_path, monkeypatch),
        tmp_path / "big.whl",
        PATHS.pool_file("a" * 64, "a.whl"),
    )
    monkeypatch.setattr(store_s3, "PART_SIZE", 5 << 20)
    wheel.write_bytes(bytes(6 << 20))
    with roles.work_as("write"):
        store = open_store(roles.url, dict(os.environ))
        store.create(path, wheel)
    assert roles.refused == []
    result, page = f"{PATHS.evidence_folder('s')}/e.json", f"{PATHS.set_index('s')}/torch/index.html"
    channel, pages = PATHS.channel_document("nightly"), PATHS.channel_pages("nightly")
    for name in (result, page, channel, PATHS.set_document("s")):
        roles.all.create(name, b"x")
    kept = {
        "write": ([path, result, page, channel, PATHS.set_document("s")],) * 2,
        "release": ([result, channel], [path, result]),
    }
    for role, (present, changeless) in kept.items():
        with roles.work_as(role):
            store = open_store(roles.url, dict(os.environ))
            for name in present:
                with pytest.raises(errors.ReleaseError, match="AccessDenied"):
                    store.remove(name)
            for name in changeless:
                with pytest.raises(errors.ReleaseError, match="AccessDenied"):
                    store.replace(name, b"others", roles.all.head(name).tag)
    with roles.work_as("write"):
        store = open_store(roles.url, dict(os.environ))
        for name in (f"{pages}/sets/index.html", f"{PATHS.view_pages(TARGET, 'nightly')}/files/index.json"):
            with pytest.raises(errors.ReleaseError, match="AccessDenied"):
                store.create(name, b"a project of that name")
