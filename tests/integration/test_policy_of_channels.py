"""The policy by which a set came judges it; and the gate asks all that a promotion refuses."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from commands import Ended, call
from stores import PATHS, Attacked, stage_attacked

from rocm_wheels.release import channel as channels
from rocm_wheels.release import wheel_set
from rocm_wheels.release.policy import load_policy
from rocm_wheels.stores.folder import FolderStore


@pytest.fixture(scope="module")
def staged(tmp_path_factory: pytest.TempPathFactory) -> Attacked:
    return stage_attacked(tmp_path_factory.mktemp("policies"))


@pytest.fixture
def attacked(staged: Attacked, request: pytest.FixtureRequest) -> Attacked:
    return staged.copy(f"store-of-{request.node.name}")


def run(*words: object, code: int = 0) -> Ended:
    return call(*words, code=code)


def judge(attacked: Attacked, *words: object) -> dict[str, Any]:
    chosen = ("--set", attacked.document.id, "--channel", "nightly")
    words = ("set", "gate", attacked.place, *chosen, "--json", "--explain", *words)
    document: dict[str, Any] = call(*words, code=None).json
    return document


def refusals(verdict: dict[str, Any]) -> list[str]:
    (rule,) = [rule for rule in verdict["rules"] if rule["rule"] == "channel"]
    assert (rule["outcome"] == "fail") == (rule["reasons"][0]["code"] == "refused")
    return [reason["fault"] for reason in rule["reasons"] if reason["code"] == "refused"]


def test_the_policy_that_ships_judges_no_set_that_came_by_another(attacked: Attacked) -> None:
    assert attacked.promote()
    document, place = attacked.document, attacked.place
    shown = channels.read_channel(FolderStore(place), PATHS, "nightly").channel
    assert shown.policies == {load_policy(attacked.policy).digest}
    before = {path: path.read_bytes() for path in attacked.files("")}
    of = ("--channel", "nightly", "--set", document.id)
    for words in (
        ("promote", place, *of),
        ("demote", place, *of),
        ("refresh", place),
        ("refresh", place, "--dry-run"),
    ):
        assert "--policy FILE" in run("set", *words, code=2).err
    assert {path: path.read_bytes() for path in attacked.files("")} == before
    assert "came by another policy" in run("set", "list", place, "--channel", "nightly").err
    verdict = judge(attacked)
    assert any("came by another policy" in fault for fault in refusals(verdict))
    assert "--policy FILE" in verdict["next"]
    # another one that somebody names is theirs to choose
    stricter = attacked.policy.with_name("stricter.yaml")
    stricter.write_text(attacked.policy.read_text().replace("14d", "13d"))
    for policy in (attacked.policy, stricter):
        run("set", "refresh", place, "--policy", policy)
    run("set", "demote", place, *of, "--policy", stricter)
    run("set", "refresh", place)  # nothing is shown that came by any


def test_a_killed_promotion_is_not_carried_on_by_the_policy_that_ships(attacked: Attacked) -> None:
    assert attacked.promote()
    document = attacked.place / PATHS.channel_document("nightly")
    channel = json.loads(document.read_bytes())
    del channel["seal"]
    (event,) = channel["history"]
    pending = {"action": "promote", "sets": event["sets"], "by": "ann", "began": event["when"], "adds": True}
    pending |= {"goal": channel["sets"], "policy": event["policy"]}
    begun = channels.Channel.model_validate({**channel, "sets": [], "history": [], "pending": pending})
    document.unlink()
    document.write_bytes(begun.to_json())
    of = ("--set", attacked.document.id, "--channel", "nightly")
    run("set", "promote", attacked.place, *of, code=2)
    run("set", "promote", attacked.place, *of, "--policy", attacked.policy)


def test_the_gate_names_all_that_the_channel_refuses_and_the_command_that_is_next(attacked: Attacked) -> None:
    policy = ("--policy", attacked.policy)
    verdict = judge(attacked, *policy)
    assert verdict["passed"] and refusals(verdict) == []
    promote = f"rocm-wheels set promote {attacked.place} --set {attacked.document.id} --channel nightly"
    assert verdict["next"] == f"{promote} --policy {attacked.policy}"
    explain = ("--set", attacked.document.id, "--channel", "nightly", "--explain", *policy)
    assert run("set", "gate", attacked.place, *explain).out.splitlines()[-1] == f"next: {verdict['next']}"
    assert attacked.promote()
    shown = judge(attacked, *policy)
    refresh = f"rocm-wheels set refresh {attacked.place} --policy {attacked.policy}"
    assert (shown["passed"], shown["next"]) == (True, refresh)
    # a set with the same names and other bytes
    store = FolderStore(attacked.place)
    file, *rest = attacked.document.files
    files = (file.model_copy(update={"sha256": "0" * 64}), *rest)
    other = attacked.document.model_copy(update={"files": files})
    other = other.model_copy(update={"id": other.computed_id})
    source = attacked.place / PATHS.pool_file(file.sha256, file.name)
    wrong = attacked.place / PATHS.pool_file("0" * 64, file.name)
    wrong.parent.mkdir(parents=True)
    wrong.write_bytes(source.read_bytes())
    wrong.with_name(f"{file.name}.metadata").write_bytes(
        source.with_name(f"{file.name}.metadata").read_bytes()
    )
    store.create(PATHS.set_document(other.id), other.to_json())
    assert wheel_set.find_set(store, other.id) == other
    held = judge(replace(attacked, document=other), *policy)
    taken = f"{file.name} of {other.id} has other bytes in {attacked.document.id}"
    assert any(taken in fault for fault in refusals(held))
    assert not held["passed"] and attacked.document.id in held["rules"][0]["reasons"][0]["tip"]
    # and a change that another run has begun
    path = attacked.place / PATHS.channel_document("nightly")
    channel = json.loads(path.read_bytes())
    del channel["seal"]
    pending = {
        "action": "demote",
        "sets": [attacked.document.id],
        "by": "ann",
        "began": "2026-11-21T00:00:00Z",
    }
    pending |= {"goal": [], "adds": False}
    begun_channel = channels.Channel.model_validate({**channel, "pending": pending})
    path.unlink()
    path.write_bytes(begun_channel.to_json())
    begun = refusals(judge(replace(attacked, document=other), *policy))
    assert any(f"is being changed: demote of {attacked.document.id} by ann" in fault for fault in begun)
