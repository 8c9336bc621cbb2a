"""What is told of released sets by all that is known now, which of them views show, and support.json."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import pytest
from documents import FAMILY, NOW, TARGETS, a_set, said, sha, wheel
from documents import policy as make_policy
from pydantic import ValidationError

from rocm_wheels.core import errors
from rocm_wheels.release import channel, policy, refresh, support, wheel_set
from rocm_wheels.release.evidence.store import StoredEvidence as Result
from rocm_wheels.release.store_paths import FamilyPaths
from rocm_wheels.release.support import SupportDocument
from rocm_wheels.stores import folder

PATHS = FamilyPaths(FAMILY)
RULES = """
channels:
  stable:
    signed: false
    rules: {audit: {fresh: 1d}, resolver: {fresh: 1d}, smoke: {fresh: 1d}}
waivers:
  - {rule: smoke, channels: [stable], gfx: gfx1031, owner: ann, reason: no card, expires: 2026-11-30}
"""
SETS = [
    a_set(*(wheel("torch", v, sha256=sha(f"{n}{v}")) for v in ("311", "312")), created=when)
    for n, when in ((1, "2026-11-18T00:00:00Z"), (2, "2026-11-19T00:00:00Z"), (3, "2026-11-17T00:00:00Z"))
]


def told(
    document: wheel_set.SetDocument,
    *results: Result,
    text: str = RULES,
    notes: tuple[str, ...] = (),
    now: datetime = NOW,
) -> refresh.SetStatus:
    when = "2026-11-20T00:00:00Z"
    entry = channel.ChannelSet(set=document.id, document=document.digest, when=when, by="ann", notes=notes)
    rules = make_policy(text)
    return refresh.make_set_status(document, results, entry, policy=rules, channel="stable", now=now)


def of(document: wheel_set.SetDocument, kind: str = "smoke", outcome: str = "pass", **more: Any) -> Result:
    return said(kind, outcome, document=document, **more)


def test_a_split_companion_is_told_of_by_its_own_name() -> None:
    """Not by that of a device wheel, which comes first: commands to install name it."""
    parts = ["amd-bitsandbytes-device", "amd-bitsandbytes-device-gfx1030", "bitsandbytes"]
    assert told(a_set(*map(wheel, parts))).project == "bitsandbytes"


SMOKES = [("smoke", "pass", {"gfx": gfx}) for gfx in TARGETS]
BOTH = ["gfx1030: tested", "gfx1031: tested"]


@pytest.mark.parametrize(
    ("results", "state", "lines", "passed"),
    [
        ([], "untested", ["gfx1030: untested", "gfx1031: untested", "smoke on gfx1031: ann answers"], []),
        ([("smoke", "pass", {"gfx": "gfx1030", "hours": 999})], "partly tested",
         ["gfx1030: tested (smoke tests with Python 3.11, 3.12, 2026-10-1", "gfx1031: untested"],
         ["gfx1030"]),
        (SMOKES, "tested", BOTH, list(TARGETS)),
        ([("smoke", "pass", {"gfx": gfx, "signer": ""}) for gfx in TARGETS], "reported, unsigned",
         ["gfx1030: reported, unsigned (smoke tests with", "gfx1031: reported, unsigned"],
         list(TARGETS)),  # the channel takes reports
        ([("smoke", "pass", {"gfx": gfx, "hours": 9}) for gfx in TARGETS]
         + [("tests", "fail", {"gfx": "gfx1030"})], "tests failed",
         ["gfx1030: tests failed", "gfx1031: tested"], ["gfx1031"]),
        # what is not whole is in no view
        ([*SMOKES, ("audit", "fail", {})], "checks failed", [*BOTH, "audit: failed"], []),
        ([*SMOKES, ("resolver", "fail", {})], "checks failed", [*BOTH, "resolver: failed"], list(TARGETS)),
    ],
)  # fmt: skip
def test_what_is_told_of_a_set(
    results: list[tuple[str, str, dict[str, Any]]], state: str, lines: list[str], passed: list[str]
) -> None:
    known = told(SETS[0], *(of(SETS[0], kind, outcome, **more) for kind, outcome, more in results))
    assert known.state == state
    assert [line[: len(wanted)] for line, wanted in zip(known.told, lines, strict=False)] == lines
    assert [gfx for gfx in TARGETS if known.passed_on(gfx)] == passed
    assert known.is_failing == (state in {"tests failed", "checks failed"})


def newest(*sets: refresh.SetStatus, gfx: str = "gfx1030") -> list[str]:
    """Return the sets that a view of a target shows."""
    passed = [status for status in sets if status.passed_on(gfx)]
    return [status.set for status in refresh.find_newest_by_platform(passed, "stable", gfx)]


def test_a_view_shows_reports_where_its_channel_takes_them_and_signed_ones_first() -> None:
    reported = told(SETS[2], *(of(SETS[2], gfx=gfx, signer="") for gfx in TARGETS))
    older = told(SETS[1], *(of(SETS[1], gfx=gfx) for gfx in TARGETS))
    assert (reported.takes_reports, reported.version) == (True, older.version)
    assert newest(reported) == [SETS[2].id]
    assert newest(older, reported) == [SETS[1].id]
    newer = reported.model_copy(update={"version": "2.10.0+rocm7.1.0"})
    assert newest(older, newer) == [SETS[2].id]
    strict = [one.model_copy(update={"takes_reports": False}) for one in (older, newer)]
    assert newest(*strict) == [SETS[1].id]


def test_a_view_is_at_the_newest_set_that_passed_by_the_rule_of_standing() -> None:
    results = [
        [of(SETS[0], gfx="gfx1030"), of(SETS[0], gfx="gfx1031")],
        [of(SETS[1], gfx="gfx1030", hours=5), of(SETS[1], "tests", "fail", gfx="gfx1030")],
        [of(SETS[2], gfx=gfx) for gfx in TARGETS],
    ]
    known = [told(document, *found) for document, found in zip(SETS, results, strict=True)]
    for gfx in TARGETS:
        assert newest(*known, gfx=gfx) == [SETS[0].id]
    assert newest(known[1]) == []


def test_what_was_changed_is_in_no_view() -> None:
    whole = [of(SETS[0], gfx=gfx) for gfx in TARGETS]
    known = told(SETS[0], *whole, of(SETS[0], "audit", about="0" * 64))
    assert (known.state, known.failed_checks) == ("checks failed", ("hashes",))
    assert "hashes: failed" in known.told and not known.passed_on(TARGETS[0])


def test_waivers_are_told_while_they_last_and_ties_for_good() -> None:
    loose = ("not pinned: a requires b",)
    known = told(SETS[0], notes=loose)
    assert known.told[-1:] == loose
    waived = "smoke on gfx1031: ann answers for it until 2026-11-30: no card; without"
    assert known.told[-2].startswith(waived)
    ended = told(SETS[0], text=RULES.replace("2026-11-30", "2026-11-20"), notes=loose)
    assert "smoke on gfx1031: the waiver of ann ended on 2026-11-20" in ended.told
    assert ended.told[-1:] == loose
    assert not any("answers for it" in line for line in ended.told)


def test_a_damaged_document_is_made_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = folder.FolderStore(tmp_path)
    assert support.read_document(store, PATHS.support_document) == (SupportDocument(), None)
    for content in (b"{}", b"[]", b"\xff", b'{"schema": 1}'):
        tag = store.create(PATHS.support_document, content)
        assert support.read_document(store, PATHS.support_document) == (SupportDocument(), tag)
        said = "is damaged, or of an earlier version, and is made again" in capsys.readouterr().err
        assert said == (content != b"{}")
        store.remove(PATHS.support_document)


@pytest.mark.parametrize(
    ("rows", "change"),
    [("releases", {"channel": "beta"}), ("views", {"channel": "beta"}), ("views", {"gfx": "../.."})],
)
def test_a_row_of_no_channel_or_no_target_is_damage(
    rows: str, change: dict[str, str], tmp_path: Path
) -> None:
    """A refresh sorts by channels, and looks into the folder of each view that was there."""
    store = folder.FolderStore(tmp_path)
    document = json.loads(documents(SupportDocument())[0].to_json())
    document[rows][0].update(change)
    tag = store.create(PATHS.support_document, json.dumps(document).encode())
    assert support.read_document(store, PATHS.support_document) == (SupportDocument(), tag)


# ---- support.json


A = SETS[0].id


def own_part(known: refresh.SetStatus, public: SupportDocument, *views: str) -> SupportDocument:
    shown = [support.ShownView(gfx, (gfx,), (known,)) for gfx in views]
    return support.make_channel_part(PATHS, "stable", [known], [known], shown, public)


def documents(public: SupportDocument) -> tuple[SupportDocument, SupportDocument]:
    known = told(SETS[0], *(of(SETS[0], gfx=gfx) for gfx in TARGETS))
    own = own_part(known, public, "gfx1030")
    return own, support.merge_documents([own, SupportDocument()], public)


def test_variants_are_left_to_what_knows_them() -> None:
    """pip would take PyPI's torch of that version; uv never asks which GPU there is."""
    known = told(SETS[0]).model_copy(update={"kind": "variants"})
    (release,) = own_part(known, SupportDocument()).releases
    assert release.install.pip is None
    assert release.install.uv.startswith("uv pip install --preview-features wheel-variants --index {index} ")
    assert release.install.rocm_wheels == "rocm-wheels install --index {index} torch==2.9.1+rocm7.1.0"
    known = told(SETS[0]).model_copy(update={"version": "2.9.1"})  # PyPI has that, too
    assert own_part(known, SupportDocument()).releases[0].install.pip is None


def test_what_is_said_of_other_channels_stays() -> None:
    known = told(SETS[0])
    document = own_part(known, SupportDocument())
    nightly = support.make_channel_part(PATHS, "nightly", [known], [known], (), SupportDocument())
    both = document.with_channel("nightly", nightly)
    assert [item.channel for item in both.releases] == ["nightly", "stable"]
    assert both.with_channel("nightly", SupportDocument()) == document


def test_support_json_says_where_and_how() -> None:
    public = SupportDocument(
        public_url="https://wheels.example.org/x/", other_indexes=("https://rocm.example.org/simple/",)
    )
    own, whole = documents(public)
    for base, document in ((f"{FAMILY}/support.json", own), ("support.json", whole)):
        assert SupportDocument.model_validate_json(document.to_json()) == document
        assert document.to_json() == documents(public)[document is whole].to_json()
        said = json.loads(document.to_json())
        assert {len(said[name]) for name in ("channels", "releases", "views")} == {1}
        for name, path in (
            ("channels", "simple/stable/"),
            ("releases", f"sets/{A}/simple/"),
            ("views", "by-gfx/gfx1030/stable/"),
        ):
            (one,) = said[name]
            if name != "releases":  # here all is of one platform
                (its,) = one["sets"]
                version = "2.9.1+rocm7.1.0"
                assert its == {"os": "linux", "set": A, "version": version, "install": one["install"]}
            assert one["url"] == f"{public.public_url}{FAMILY}/{path}"
            assert urljoin(f"{public.public_url}{base}", one["index"]) == one["url"]
            assert one["install"] == {
                "uv": f"uv pip install --index {one['url']} --index https://rocm.example.org/simple/ "
                "torch==2.9.1+rocm7.1.0",
                "pip": f"pip install --index-url {one['url']} --extra-index-url "
                "https://rocm.example.org/simple/ --extra-index-url https://pypi.org/simple/ "
                "torch==2.9.1+rocm7.1.0",
                "rocm_wheels": f"rocm-wheels install --index {one['url']} --rocm-index "
                "https://rocm.example.org/simple/ torch==2.9.1+rocm7.1.0",
            }
        (release,) = said["releases"]
        told = (release["set"], release["state"], release["os"], release["rocm"])
        assert told == (A, "tested", "linux", None)
        assert [(one["pythons"], one["platforms"], one["gfx"]) for one in release["wheels"]] == [
            ([python], ["linux_x86_64"], list(TARGETS)) for python in ("3.11", "3.12")
        ]
        its = {"gfx": "gfx1030", "state": "tested", "by": ["smoke tests"], "when": "2026-11-21"}
        assert release["targets"][0] == {**its, "pythons": ["3.11", "3.12"]}
    with pytest.raises(ValidationError):
        SupportDocument.model_validate_json(own.to_json().replace(b'"releases"', b'"release"'))
    nowhere = documents(SupportDocument())[0].releases[0]
    assert nowhere.url is None
    assert nowhere.install.uv == "uv pip install --index {index} torch==2.9.1+rocm7.1.0"


@pytest.mark.parametrize(
    ("url", "says"),
    [
        *((url, "is no URL of a folder") for url in ("wheels.example.org", "s3://bucket/x", "https://")),
        *((f"https://{url}", "is no URL of a folder") for url in ("[::1", "h/a b", "h/{index}")),
        ("https://ann:secret@h/", "https://h… has more than a place in it"),
        ("https://h/?token=x", "has more than a place in it"),
    ],
)
def test_a_public_url_that_nobody_can_use_is_refused(url: str, says: str) -> None:
    with pytest.raises(errors.UsageError) as found:
        policy.check_public_url(url)
    assert says in str(found.value) and "secret" not in str(found.value)


def test_where_a_store_is_seen_from_is_kept(tmp_path: Path) -> None:
    store = folder.FolderStore(tmp_path)
    plain = policy.load_policy()
    rules = plain.model_copy(update={"other_indexes": ("https://o/",)})
    refresher = refresh.Refresher(store, rules, "ann", NOW, {})
    for url, known in (("https://h/x", "https://h/x/"), ("", "")):
        refresher.set_public(url)
        refresher.refresh_support()  # which says the same of it
        public = support.read_public(store)
        assert (public.public_url, public.other_indexes) == (known, ("https://o/",))
        assert public.address_of(store, "a/") == (f"{known}a/" if known else store.url_of("a/"))
    with pytest.raises(errors.UsageError):
        refresher.set_public("s3://x")
    replace(refresher, policy=plain).refresh_support()
    assert support.read_public(store).other_indexes == ()
    wrong = tmp_path / "policy.yaml"
    wrong.write_text(f"{policy.read_policy_text()}\nother_indexes: ['s3://x']\n")
    with pytest.raises(errors.DataError, match="is no URL of a folder"):
        policy.load_policy(wrong)
