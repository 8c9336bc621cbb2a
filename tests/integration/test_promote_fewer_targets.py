"""Sets for all GPUs that lack some which the newest set of a channel has: refused, unless meant."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from commands import call
from crash import FaultyStore, Killed
from stores import NOW, PASSED, Night, hours_ago, know, verified

from rocm_wheels.release import store_paths, wheel_set
from rocm_wheels.release.channel import ChannelActor, Promoter
from rocm_wheels.stores import folder

RULES = "{audit: {fresh: 14d}, smoke: {fresh: 14d, targets: one, pythons: one}}"
POLICY = f"channels: {{nightly: {{signed: false, rules: {RULES}}}}}"
ALL, SOME = ("gfx942", "gfx1100", "gfx1201"), ("gfx1100", "gfx1201")
FAMILY = "multi-arch"
PATHS = store_paths.FamilyPaths(FAMILY)
PAGE = f"{PATHS.channel_pages('nightly')}/torch/index.json"
OF_ONE_FAMILY = {"family": "gfx110X-all", "layout": "per-family"}
Promote = Callable[..., Any]


class Bench:
    """A store of sets for all GPUs; what is staged passes its gate."""

    def __init__(self, root: Path) -> None:
        self.root, self.store = root, folder.FolderStore(root / "store")
        (root / "policy.yaml").write_text(POLICY)

    def stage(self, torch: str, day: int, targets: tuple[str, ...], **more: Any) -> wheel_set.SetDocument:
        night = Night(torch, day, targets=targets, **{"family": FAMILY, "layout": "multi-arch", **more})
        document, now = night.stage(self.store, self.root / "made"), datetime.now(timezone.utc)
        verified(self.store, document, hours_ago(now, 1))
        know(self.store, document, "gfx1100", "pass", hours_ago(now, 1))
        return document

    def files(self) -> set[str]:
        return {str(one.relative_to(self.root)) for one in self.root.rglob("*")}


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


@pytest.fixture
def promote(bench: Bench) -> Promote:
    def asked(document: wheel_set.SetDocument, *words: str, code: int = 0) -> Any:
        named = ["--set", document.id, "--channel", "nightly"]
        said = ["--policy", str(bench.root / "policy.yaml"), *words]
        both = call("set", "promote", bench.store.folder, *named, *said, code=code)
        return both.err if code else both.out

    return asked


@pytest.mark.contract
def test_a_set_for_all_gpus_that_lacks_some_is_refused_unless_it_is_meant(
    bench: Bench, promote: Promote
) -> None:
    whole = bench.stage("2.13.0", 11, ALL)
    promote(whole)
    part, before = bench.stage("2.13.1", 12, SOME), bench.files()
    for words in ([], ["--dry-run"]):
        said = promote(part, *words, code=15)
        assert f"{part.id} has no code of torch for gfx942; torchvision for gfx942, and {whole.id}" in said
        assert "tip: promote a set for all of them, or allow this with --allow-fewer-targets" in said
    assert bench.files() == before
    gate = ["set", "gate", str(bench.store.folder), "--set", part.id, "--channel", "nightly"]
    gate += ["--policy", str(bench.root / "policy.yaml")]
    call(*gate)  # as it was
    assert f"{part.id} has no code of torch for gfx942" in call(*gate, "--explain", code=15).out
    promote(part, "--allow-fewer-targets")
    told = f"fewer targets: no code of torch for gfx942; torchvision for gfx942, which {whole.id} has"
    page = json.loads(bench.store.read(PAGE).content)
    (shown,) = [one for one in page["_untested"] if one["set"] == part.id]
    assert shown["told"][-1] == told
    call("set", "refresh", bench.store.folder, "--policy", bench.root / "policy.yaml")
    page = json.loads(bench.store.read(PAGE).content)
    assert [one["told"][-1] for one in page["_untested"] if one["set"] == part.id] == [told]  # it stays
    # it was meant: what comes after it is held against it
    promote(bench.stage("2.13.1", 13, SOME))
    assert "no code of torch for gfx1100" in promote(bench.stage("2.13.1", 14, ("gfx1201",)), code=15)
    promote(bench.stage("2.13.1", 15, ALL))
    assert "no code of torch for gfx942" in promote(bench.stage("2.13.1", 16, SOME), code=15)


@pytest.mark.contract
@pytest.mark.parametrize(
    "other",
    [
        {"torch": "2.14.0"},
        {"torch": "2.13.0", "platform": "windows"},
        {"torch": "2.13.0", "targets": ("gfx1100", "gfx1101"), **OF_ONE_FAMILY},
    ],
)
def test_what_takes_nothing_from_anybody_is_shown(
    other: dict[str, Any], bench: Bench, promote: Promote
) -> None:
    """Another line, another platform, and a set of one family."""
    promote(bench.stage("2.13.0", 11, ALL))
    if "family" in other:
        promote(bench.stage("2.13.0", 11, ("gfx1100", "gfx1101", "gfx1102"), **OF_ONE_FAMILY))
    given = {"torch": "2.13.0", "day": 12, "targets": SOME, **other}
    promote(bench.stage(**given))
    promote(bench.stage("2.13.0", 13, (*ALL, "gfx90a")))  # more is always right


@pytest.mark.contract
def test_a_failure_on_any_target_holds_a_set_that_one_is_enough_for(bench: Bench, promote: Promote) -> None:
    """What the policy says of sets for all families."""
    document = bench.stage("2.13.0", 11, ALL)
    know(bench.store, document, "gfx942", "fail", hours_ago(datetime.now(timezone.utc), 0.5))
    assert "gfx942" in promote(document, code=15)


def test_a_killed_promotion_of_such_a_set_is_finished(bench: Bench, promote: Promote) -> None:
    """It was said once that it is meant: what was begun is completed by the same command, or without it."""
    promote(bench.stage("2.13.0", 11, ALL))
    part = bench.stage("2.13.1", 12, SOME)
    store = FaultyStore(bench.store, at=f"replace {PATHS.channel_document('nightly')}", fault="after")
    promoter = Promoter(store, PATHS, "nightly", ChannelActor("eve", NOW))
    with pytest.raises(Killed):
        promoter.promote(part, lambda: replace(PASSED, family=FAMILY), allow_fewer_targets=True)
    assert f"{part.id} promoted (an earlier run had begun it)" in promote(part)
