"""Policies that say what cannot be: each mistake with its file, line and column."""

from __future__ import annotations

from pathlib import Path

import pytest
from judged_sets import ONE, policy

from rocm_wheels.core import DataError
from rocm_wheels.models import get_data_folder
from rocm_wheels.release import load_policy

KEY = f"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI{'A' * 43}"
_WHO = "owner: bob, reason: known, expires: 2026-12-24"
WAIVER = f"waivers: [{{rule: smoke, channels: [nightly], gfx: gfx942, {_WHO}}}]"
WRONG = {
    "no channels": ("waivers: []", "1:1: channels: Field required"),
    "an unknown channel": (
        ONE.replace("nightly", "nightli"),
        "1:12: channels.nightli: there is no channel nightli; did you mean nightly?",
    ),
    "an unknown key": (
        ONE + "\nwavers: []",
        "2:1: wavers: Extra inputs are not permitted; did you mean waivers?",
    ),
    "an unknown rule": (
        ONE.replace("smoke", "smok"),
        "rules.smok: Extra inputs are not permitted; did you mean smoke?",
    ),
    "without verify": (
        "channels: {nightly: {rules: {smoke: {fresh: 7d}}}}",
        "1:22: channels.nightly.rules.verify: Field required",
    ),
    "no age": (ONE.replace("{fresh: 14d}", "{}"), "verify.fresh: Field required"),
    "an age in words": (
        ONE.replace("14d", "two weeks"),
        "1:39: channels.nightly.rules.verify.fresh: "
        "it must be a number of hours, days or weeks: 36h, 14d, 2w (found 'two weeks')",
    ),
    "no age at all": (ONE.replace("14d", "0d"), "it must be a number of hours, days or weeks"),
    "some targets": (
        ONE.replace("targets: one", "targets: some"),
        "smoke.targets: Input should be 'every' or 'one' (found 'some')",
    ),
    "no passes": (
        ONE.replace("nightly: {", "nightly: {passes_after_failure: 0, "),
        "passes_after_failure: Input should be greater than or equal to 1 (found '0')",
    ),
    "an unknown family": (
        ONE + "\nfamilies: {gfx103X: {}}",
        "2:12: families.gfx103X: there is no GPU family gfx103X; did you mean gfx1103?",
    ),
    "an exception of nobody": (
        ONE + "\nfamilies:\n  gfx1031:\n    bypass_tests_for_releases: true",
        "3:3: families.gfx1031: bypass_tests_for_releases needs a reason and an owner",
    ),
    "a family without verify": (
        ONE + "\nfamilies: {gfx1031: {channels: {nightly: {not_needed: [verify]}}}}",
        "not_needed.0: nobody can waive verify: what is not whole is not released",
    ),
    "an unknown target": (
        f"{ONE}\n{WAIVER.replace('gfx942', 'gfx943')}",
        "waivers.0.gfx: there is no GPU target gfx943; did you mean gfx94",
    ),
    "a waiver of verify": (
        f"{ONE}\n{WAIVER.replace('smoke', 'verify')}",
        "2:12: waivers.0.rule: nobody can waive verify",
    ),
    "a waiver of hashes": (
        f"{ONE}\n{WAIVER.replace('smoke', 'hashes')}",
        "nobody can waive hashes",
    ),
    "a waiver of nobody": (
        f"{ONE}\n{WAIVER.replace('owner: bob, ', '')}",
        "2:11: waivers.0.owner: Field required",
    ),
    "a waiver for ever": (
        f"{ONE}\n{WAIVER.replace(', expires: 2026-12-24', '')}",
        "waivers.0.expires: Field required",
    ),
    "a waiver until some day": (
        f"{ONE}\n{WAIVER.replace('2026-12-24', 'Christmas')}",
        "too short (found 'Christmas')",
    ),
    "a waiver of everything": (
        f"{ONE}\n{WAIVER.replace('gfx: gfx942, ', '')}",
        "2:11: waivers.0: a waiver names a family, a gfx or a set",
    ),
    "a waiver without a channel": (
        f"{ONE}\n{WAIVER.replace('[nightly]', '[]')}",
        "waivers.0.channels: Tuple should have at least 1",
    ),
    "a key of another kind": (
        f"{ONE}\nsigners: {{ann: ssh-rsa AAAA}}",
        "2:11: signers.ann: it must be a public Ed25519 key: ssh-ed25519 AAAA… (found 'ssh-rsa AAAA')",
    ),
    "half of a key": (
        f"{ONE}\nsigners: {{ann: {KEY[:-5]}}}",
        "2:11: signers.ann: it must be a public Ed25519 key: ssh-ed25519 AAAA… (found 'ssh-ed25519 AAAAC3",
    ),
    "a key without a name": (
        f"{ONE}\nsigners: {{'': {KEY}}}",
        "signers.'': in this key: Value should have at least 1",
    ),
    "one key of two people": (
        f"{ONE}\nsigners: {{ann: {KEY}, bob: {KEY} bob@example.org}}",
        "2:98: signers.bob: ann and bob have one key: who signs is one person",
    ),
    "a family of another channel": (
        f"{ONE}\nfamilies: {{gfx1031: {{channels: {{stable: {{not_needed: [smoke]}}}}}}}}",
        "2:33: families.gfx1031.channels.stable: stable is no channel of this policy",
    ),
    "a waiver for another channel": (
        f"{ONE}\n{WAIVER.replace('[nightly]', '[nightly, stable]')}",
        "2:45: waivers.0.channels.1: stable is no channel of this policy",
    ),
    "a waiver for half of all cards": (
        f"{ONE}\n{WAIVER.replace('gfx: gfx942', 'family: dgpu-all')}",
        "2:46: waivers.0.family: dgpu-all is a kind of card, not a family",
    ),
    "an exception of all cards": (
        ONE + "\nfamilies: {multi-arch: {bypass_tests_for_releases: true, owner: eve, reason: none}}",
        "multi-arch may have `channels` alone: GPUs are tested and excused by families",
    ),
    "an exception of half of all cards": (
        ONE + "\nfamilies: {dcgpu-all: {bypass_tests_for_releases: true, owner: eve, reason: none}}",
        "dcgpu-all is a kind of card, not a family",
    ),
    "a waiver of a GPU where none matters": (
        f"{ONE}\n{WAIVER.replace('smoke', 'complete')}",
        "2:11: waivers.0: complete is about no GPU: name a family or a set, no gfx",
    ),
    "a waiver of what others name": (
        f"{ONE}\n{WAIVER.replace('smoke', 'evidence')}",
        "nobody can waive evidence",
    ),
    "an owner of nothing": (
        ONE + "\nfamilies: {gfx1031: {owner: eve, reason: no card}}",
        "reason and owner are those of bypass_tests_for_releases, which is not there",
    ),
    "some selections": (
        ONE.replace("pythons: one", "pythons: one, selections: some"),
        "smoke.selections: Input should be 'refused' or 'count' (found 'some')",
    ),
    "signed by nobody": (
        ONE.replace("nightly: {", "nightly: {signed: required, "),
        "1:22: channels.nightly.signed: nightly needs signed evidence, and `signers` names nobody",
    ),
    "a runner that is no label": (
        ONE + '\nfamilies: {gfx1031: {runners: {linux: "a b"}}}',
        "2:32: families.gfx1031.runners.linux: it must be letters, digits, _ . and - (found 'a b')",
    ),
    "no YAML": (ONE[:-3], "not valid YAML"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_mistake_is_named_with_its_place(case: str):
    text, says = WRONG[case]
    with pytest.raises(DataError) as refused:
        policy(text)
    assert refused.value.message.startswith("policy.yaml:")
    assert says in refused.value.message


def test_a_policy_is_read_from_a_file(tmp_path: Path):
    with pytest.raises(DataError, match="cannot read"):
        load_policy(tmp_path / "none.yaml")
    (tmp_path / "part.yaml").write_text(WAIVER)
    with pytest.raises(DataError, match="channels: Field required") as refused:
        load_policy(tmp_path / "part.yaml")
    assert (
        refused.value.tip
        and f"begin with a copy of {get_data_folder() / 'release_policy.yaml'}" in refused.value.tip
    )
    (tmp_path / "wrong.yaml").write_text(f"{ONE}\nwaivers: [1]")
    with pytest.raises(DataError) as refused:
        load_policy(tmp_path / "wrong.yaml")
    assert refused.value.tip is None
    (tmp_path / "own.yaml").write_text(f"{ONE}\n{WAIVER}")
    assert str(load_policy(tmp_path / "own.yaml").waivers[0]) == "bob answers for it until 2026-12-24: known"
