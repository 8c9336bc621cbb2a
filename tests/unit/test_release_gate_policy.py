"""Policies that say what cannot be: each mistake with its file, line and column."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import refused, transcript
from documents import ONE, policy

from rocm_wheels.core import errors
from rocm_wheels.models import project_names
from rocm_wheels.release.policy import load_policy

pytestmark = pytest.mark.contract

_ = transcript  # a fixture for every test here
MESSAGES = "policy"

KEY = f"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI{'A' * 43}"
_WHO = "owner: bob, reason: known, expires: 2026-12-24"
WAIVER = f"waivers: [{{rule: smoke, channels: [nightly], gfx: gfx942, {_WHO}}}]"
REPRODUCED = (
    ONE.replace("smoke:", "provenance: {signed_by: [ann]}, reproduced: {fresh: 90d, by: [lab]}, smoke:")
    + f"\nsigners: {{ann: {KEY}, lab: {KEY.replace('AAAAI', 'AAAAIB', 1)[:-1]}}}"
)
WRONG = {
    "no channels": "waivers: []",
    "an unknown channel": ONE.replace("nightly", "nightli"),
    "an unknown key": ONE + "\nwavers: []",
    "an unknown rule": ONE.replace("smoke", "smok"),
    "without audit": "channels: {nightly: {signed: false, rules: {smoke: {fresh: 7d}}}}",
    "no age": ONE.replace("{fresh: 14d}", "{}"),
    "an age in words": ONE.replace("14d", "two weeks"),
    "no age at all": ONE.replace("14d", "0d"),
    "some targets": ONE.replace("targets: one", "targets: some"),
    "no passes": ONE.replace("nightly: {", "nightly: {passes_after_failure: 0, "),
    "an unknown family": ONE + "\nfamilies: {gfx103X: {}}",
    "an exception of nobody": ONE + "\nfamilies:\n  gfx1031:\n    bypass_tests_for_releases: true",
    "a family without audit": ONE + "\nfamilies: {gfx1031: {channels: {nightly: {not_needed: [audit]}}}}",
    "an unknown target": f"{ONE}\n{WAIVER.replace('gfx942', 'gfx943')}",
    "a reproducer whom nobody knows": REPRODUCED.replace("by: [lab]", "by: [lib]"),
    "who builds reproduces": REPRODUCED.replace("signed_by: [ann]", "signed_by: [lab]"),
    "who builds for a family reproduces": REPRODUCED
    + "\nfamilies: {gfx1031: {channels: {nightly: {provenance: {signed_by: [lab]}}}}}",
    "reproduced by nobody": REPRODUCED.replace("by: [lab]", "by: []"),
    "a waiver of reproduced for a family": f"{ONE}\nwaivers: [{{rule: reproduced, channels: [nightly],"
    f" family: gfx1030, {_WHO}}}]",
    "a waiver of audit": f"{ONE}\n{WAIVER.replace('smoke', 'audit')}",
    "a waiver of hashes": f"{ONE}\n{WAIVER.replace('smoke', 'hashes')}",
    "a waiver of nobody": f"{ONE}\n{WAIVER.replace('owner: bob, ', '')}",
    "a waiver for ever": f"{ONE}\n{WAIVER.replace(', expires: 2026-12-24', '')}",
    "a waiver until some day": f"{ONE}\n{WAIVER.replace('2026-12-24', 'Christmas')}",
    "a waiver of everything": f"{ONE}\n{WAIVER.replace('gfx: gfx942, ', '')}",
    "a waiver without a channel": f"{ONE}\n{WAIVER.replace('[nightly]', '[]')}",
    "a key of another kind": f"{ONE}\nsigners: {{ann: ssh-rsa AAAA}}",
    "a workflow of nobody": f"{ONE}\nsigners: {{ci: {{identity: x, issuer: https://example.org}}}}",
    "half of a key": f"{ONE}\nsigners: {{ann: {KEY[:-5]}}}",
    "a key without a name": f"{ONE}\nsigners: {{'': {KEY}}}",
    "one key of two people": f"{ONE}\nsigners: {{ann: {KEY}, bob: {KEY} bob@example.org}}",
    "a family of another channel": ONE + "\nfamilies: {gfx1031: {channels: {stable: {not_needed: [smoke]}}}}",
    "a waiver for another channel": f"{ONE}\n{WAIVER.replace('[nightly]', '[nightly, stable]')}",
    "a waiver for half of all cards": f"{ONE}\n{WAIVER.replace('gfx: gfx942', 'family: dgpu-all')}",
    "an exception of all cards": ONE
    + "\nfamilies: {multi-arch: {bypass_tests_for_releases: true, owner: eve, reason: none}}",
    "an exception of half of all cards": ONE
    + "\nfamilies: {dcgpu-all: {bypass_tests_for_releases: true, owner: eve, reason: none}}",
    "a waiver of a GPU where none matters": f"{ONE}\n{WAIVER.replace('smoke', 'complete')}",
    "an owner of nothing": ONE + "\nfamilies: {gfx1031: {owner: eve, reason: no card}}",
    "some selections": ONE.replace("pythons: one", "pythons: one, selections: some"),
    "a runner that is no label": ONE + '\nfamilies: {gfx1031: {runners: {linux: "a b"}}}',
    "no YAML": ONE[:-3],
}


@pytest.mark.parametrize("case", WRONG)
def test_a_mistake_is_named_with_its_place(case: str):
    with refused(errors.DataError) as caught:
        policy(WRONG[case])
    assert caught.value.message.startswith("policy.yaml:")


def test_a_policy_is_read_from_a_file(tmp_path: Path):
    with refused(errors.DataError):
        load_policy(tmp_path / "none.yaml")
    (tmp_path / "part.yaml").write_text(WAIVER)
    with refused(errors.DataError) as caught:
        load_policy(tmp_path / "part.yaml")
    assert (
        caught.value.tip
        and f"begin with a copy of {project_names.get_data_folder() / 'release_policy.yaml'}"
        in caught.value.tip
    )
    (tmp_path / "wrong.yaml").write_text(f"{ONE}\nwaivers: [1]")
    with refused(errors.DataError) as caught:
        load_policy(tmp_path / "wrong.yaml")
    assert caught.value.tip is None
    (tmp_path / "old.yaml").write_text(ONE.replace("audit", "verify"))
    with refused(errors.DataError) as caught:
        load_policy(tmp_path / "old.yaml")
    assert caught.value.tip and "`verify` is called `audit`" in caught.value.tip
    (tmp_path / "own.yaml").write_text(f"{ONE}\n{WAIVER}")
    waiver = load_policy(tmp_path / "own.yaml").waivers[0]
    assert (waiver.owner, str(waiver.expires), waiver.reason) == ("bob", "2026-12-24", "known")


def test_the_policy_of_the_workflows_has_our_rules_and_names_signers_for_all_channels() -> None:
    """Nothing that nobody signed goes anywhere; a policy that takes such results says so."""
    clone = Path(__file__).resolve().parents[2]
    shipped, own = load_policy(clone / ".github" / "release-policy.yaml"), load_policy()
    assert shipped.channels == own.channels and shipped.retention == own.retention
    assert all(channel.signed for channel in own.channels.values())
    assert set(shipped.signers) == {"tests", "checks"} and not own.signers
    workflows = [path.read_text() for path in (clone / ".github" / "workflows").glob("*.yml")]
    lines = [line for text in workflows for line in text.splitlines() if "rocm-wheels set gate" in line]
    assert lines and all("--policy .github/release-policy.yaml" in line for line in lines)


def test_the_policy_that_ships_judges_what_came_by_one_that_ships(tmp_path: Path) -> None:
    """Of whichever version; where somebody named one, it has to be named again. A named one judges all."""
    named = tmp_path / "named.yaml"
    named.write_text((project_names.get_data_folder() / "release_policy.yaml").read_text())
    shipped, own = load_policy(), load_policy(named)
    assert shipped.digest == f"shipped-{own.digest}"
    assert shipped.judges_after(shipped.digest) and shipped.judges_after("shipped-0123456789abcdef")
    assert shipped.judges_after("") and not shipped.judges_after(own.digest)
    assert all(map(own.judges_after, (shipped.digest, own.digest, "0123456789abcdef", "")))
    retention = own.retention.model_copy(update={"keep": 9})
    assert own.model_copy(update={"retention": retention}).digest != own.digest
