"""What is told of released sets by all that is known now, which of them views show, and support.json."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import pytest
from judged_sets import FAMILY, NOW, TARGETS, a_log, a_set, policy, said, sha, wheel
from pydantic import ValidationError

from rocm_wheels.core import errors
from rocm_wheels.release import channel, wheel_set
from rocm_wheels.release.evidence.store import StoredEvidence as Result
from rocm_wheels.release.layout import FamilyPaths, load_layout
from rocm_wheels.release.views import (
    PublicLocation,
    SupportDocument,
    check_public_url,
    find_view_sets,
    make_support,
    merge_support,
    plan_views,
    read_public,
    update_public,
)
from rocm_wheels.stores import folder

RULES = """
channels:
  stable:
    rules: {verify: {fresh: 1d}, resolver: {fresh: 1d}, smoke: {fresh: 1d}}
waivers:
  - {rule: smoke, channels: [stable], gfx: gfx1031, owner: ann, reason: no card, expires: 2026-11-30}
"""
SETS = [
    a_set(*(wheel("torch", v, sha256=sha(f"{n}{v}")) for v in ("311", "312")), created=when)
    for n, when in ((1, "2026-11-18T00:00:00Z"), (2, "2026-11-19T00:00:00Z"), (3, "2026-11-17T00:00:00Z"))
]


def told(
    document: wheel_set.SetDocument, *results: Result, text: str = RULES, **more: Any
) -> channel.SetStatus:
    rules = policy(text)
    shown = channel.ChannelSet(
        set=document.id, when="2026-11-20T00:00:00Z", by="ann", state="untested", **more
    )
    known = channel.make_set_status(
        document,
        results,
        shown,
        policy=channel.drop_age_limits(rules),
        channel="stable",
        now=NOW,
        digest="d",
        log=a_log(document, results),
    )
    assert channel.SetStatus.model_validate_json(known.model_dump_json()) == known
    return known


def of(document: wheel_set.SetDocument, kind: str = "smoke", outcome: str = "pass", **more: Any) -> Result:
    return said(kind, outcome, document=document, **more)


@pytest.mark.parametrize(
    ("results", "state", "lines", "passed"),
    [
        ([], "untested", ["gfx1030: untested", "gfx1031: untested", "smoke on gfx1031: ann answers"], []),
        (
            [("smoke", "pass", {"gfx": "gfx1030", "hours": 999})],
            "partly tested",
            ["gfx1030: tested (smoke tests with Python 3.11, 3.12, 2026-10-1", "gfx1031: untested"],
            ["gfx1030"],
        ),
        (
            [("smoke", "pass", {"gfx": g}) for g in TARGETS],
            "tested",
            ["gfx1030: tested", "gfx1031: tested"],
            list(TARGETS),
        ),
        (
            [("smoke", "pass", {"gfx": g, "signer": ""}) for g in TARGETS],
            "reported, unsigned",
            ["gfx1030: reported, unsigned (smoke tests with", "gfx1031: reported, unsigned"],
            list(TARGETS),  # the channel takes reports
        ),
        (
            [
                *(("smoke", "pass", {"gfx": g, "hours": 9}) for g in TARGETS),
                ("tests", "fail", {"gfx": "gfx1030"}),
            ],
            "tests failed",
            ["gfx1030: tests failed", "gfx1031: tested"],
            ["gfx1031"],
        ),
        (
            [("smoke", "pass", {"gfx": g}) for g in TARGETS] + [("verify", "fail", {})],
            "checks failed",
            ["gfx1030: tested", "gfx1031: tested", "verify: failed"],
            [],  # what is not whole is in no view
        ),
        (
            [("smoke", "pass", {"gfx": g}) for g in TARGETS] + [("resolver", "fail", {})],
            "checks failed",
            ["gfx1030: tested", "gfx1031: tested", "resolver: failed"],
            list(TARGETS),
        ),
    ],
)
def test_what_is_told_of_a_set(
    results: list[tuple[str, str, dict[str, Any]]], state: str, lines: list[str], passed: list[str]
) -> None:
    known = told(SETS[0], *(of(SETS[0], kind, outcome, **more) for kind, outcome, more in results))
    assert known.state == state
    assert [line[: len(wanted)] for line, wanted in zip(known.told, lines, strict=False)] == lines
    assert [gfx for gfx in TARGETS if known.passed_on(gfx)] == passed
    assert known.is_failing == (state in {"tests failed", "checks failed"})


def test_a_view_shows_reports_where_its_channel_takes_them_and_signed_ones_first() -> None:
    reported = told(SETS[2], *(of(SETS[2], gfx=gfx, signer="") for gfx in TARGETS))
    older = told(SETS[1], *(of(SETS[1], gfx=gfx) for gfx in TARGETS))
    assert (reported.takes_reports, reported.version) == (True, older.version)
    assert find_view_sets([reported], "stable") == dict.fromkeys(TARGETS, (SETS[2].id,))
    assert find_view_sets([older, reported], "stable") == dict.fromkeys(TARGETS, (SETS[1].id,))
    newer = reported.model_copy(update={"version": "2.10.0+rocm7.1.0"})
    assert find_view_sets([older, newer], "stable") == dict.fromkeys(TARGETS, (SETS[2].id,))
    strict = [one.model_copy(update={"takes_reports": False}) for one in (older, newer)]
    assert find_view_sets(strict, "stable") == dict.fromkeys(TARGETS, (SETS[1].id,))


def test_what_cannot_be_believed_is_in_no_view() -> None:
    whole = [of(SETS[0], gfx=gfx) for gfx in TARGETS]
    failure = of(SETS[0], "verify", "fail", hours=9)
    naming = of(SETS[0], "verify", beside=(failure.id,))
    assert told(SETS[0], *whole, failure, naming).state == "tested"
    gone = told(SETS[0], *whole, naming)  # the failure that it names was removed
    changed = told(SETS[0], *whole, of(SETS[0], "verify", about="0" * 64))
    for known, rule in ((gone, "evidence"), (changed, "hashes")):
        assert (known.state, known.failed_checks) == ("checks failed", (rule,))
        assert f"{rule}: failed" in known.told and not known.passed_on(TARGETS[0])


def test_waivers_are_told_while_they_last_and_ties_for_good() -> None:
    loose = ("not pinned: a requires b", "gfx1030: tested by somebody long ago")
    known = told(SETS[0], told=loose)
    assert known.told[-2:] == (
        "smoke on gfx1031: ann answers for it until 2026-11-30: no card; without that: "
        + known.told[-2].rpartition("without that: ")[2],
        "not pinned: a requires b",
    )
    ended = told(SETS[0], text=RULES.replace("2026-11-30", "2026-11-20"), told=loose)
    assert "smoke on gfx1031: the waiver of ann ended on 2026-11-20" in ended.told
    assert not any("answers for it" in line for line in ended.told)


def test_the_digest_knows_what_matters() -> None:
    rules = policy(RULES)
    shown = channel.ChannelSet(set=SETS[0].id, when="2026-11-20T00:00:00Z", by="ann", state="untested")

    def digest(ids: list[str], text: str = RULES, days: int = 0, one: channel.ChannelSet = shown) -> str:
        given = policy(text)
        return channel.compute_status_digest(
            given, channel.compute_policy_digest(given), one, ids, NOW + timedelta(days=days)
        )

    same = digest(["a", "b"])
    assert same == digest(["b", "a"]) == digest(["a", "b"], days=3)
    assert same == digest(["a", "b"], one=shown.model_copy(update={"state": "tested", "told": ("x",)}))
    others = [
        digest(["a"]),
        digest(["a", "b"], RULES.replace("1d", "2d")),
        digest(["a", "b"], days=30),  # the waiver has ended
        digest(["a", "b"], one=shown.model_copy(update={"told": ("not tied: x",)})),
    ]
    assert len({same, *others}) == 5
    assert (
        channel.drop_age_limits(rules).channels["stable"].rules.smoke != rules.channels["stable"].rules.smoke
    )
    future = said("smoke", document=SETS[0], when=NOW + timedelta(hours=1), added=NOW + timedelta(hours=1))
    assert told(SETS[0], future).of == ""  # to be looked at again when that is past


def test_a_view_is_at_the_newest_set_that_passed_by_the_rule_of_standing() -> None:
    results = [
        [of(SETS[0], gfx="gfx1030"), of(SETS[0], gfx="gfx1031")],
        [of(SETS[1], gfx="gfx1030", hours=5), of(SETS[1], "tests", "fail", gfx="gfx1030")],
        [of(SETS[2], gfx=gfx) for gfx in TARGETS],
    ]
    known = [told(document, *found) for document, found in zip(SETS, results, strict=True)]
    views = find_view_sets(known, "stable")
    assert views == {"gfx1030": (SETS[0].id,), "gfx1031": (SETS[0].id,)}
    assert find_view_sets([known[1]], "stable") == {}


A, B, C = (one.id for one in SETS)


@pytest.mark.parametrize(
    ("before", "wanted", "there", "planned"),
    [
        ([], {"g": (A,)}, [], [channel.ChannelView(gfx="g", set=A, settled=False)]),
        ([channel.ChannelView(gfx="g", set=A)], {"g": (A,)}, ["g"], [channel.ChannelView(gfx="g", set=A)]),
        (
            [channel.ChannelView(gfx="g", set=A)],
            {"g": (A,)},
            [],
            [channel.ChannelView(gfx="g", set=A, settled=False)],
        ),  # somebody deleted it
        (
            [channel.ChannelView(gfx="g", set=A)],
            {"g": (B,)},
            ["g"],
            [channel.ChannelView(gfx="g", set=B, was=(A,), settled=False)],
        ),
        # a set for another platform comes, stays, and goes
        (
            [channel.ChannelView(gfx="g", set=A)],
            {"g": (A, B)},
            ["g"],
            [channel.ChannelView(gfx="g", set=A, sets=(A, B), settled=False)],
        ),
        (
            [channel.ChannelView.make("g", (A, B))],
            {"g": (A, B)},
            ["g"],
            [channel.ChannelView(gfx="g", set=A, sets=(A, B))],
        ),
        (
            [channel.ChannelView.make("g", (A, B))],
            {"g": (C, B)},
            ["g"],
            [channel.ChannelView.make("g", (C, B), (A,), settled=False)],
        ),
        (
            [channel.ChannelView.make("g", (A, B))],
            {"g": (B,)},
            ["g"],
            [channel.ChannelView(gfx="g", set=B, was=(A,), settled=False)],
        ),
        (
            [channel.ChannelView.make("g", (A, B))],
            {},
            ["g"],
            [channel.ChannelView(gfx="g", set=None, was=(A, B), settled=False)],
        ),
        (
            [channel.ChannelView(gfx="g", set=A)],
            {},
            ["g"],
            [channel.ChannelView(gfx="g", set=None, was=(A,), settled=False)],
        ),
        (
            [
                channel.ChannelView(gfx="g", set=B, was=(A,), settled=False)
            ],  # a run was killed, and more is known
            {"g": (C,)},
            ["g"],
            [channel.ChannelView(gfx="g", set=C, was=(A, B), settled=False)],
        ),
        (
            [channel.ChannelView(gfx="g", set=B, was=(A,), settled=False)],
            {"g": (A,)},
            ["g"],
            [channel.ChannelView(gfx="g", set=A, was=(B,), settled=False)],
        ),
        ([], {}, ["g"], [channel.ChannelView(gfx="g", set=None, settled=False)]),  # of which nothing is known
    ],
)
def test_a_change_of_a_view_remembers_what_its_pages_may_show(
    before: list[channel.ChannelView],
    wanted: dict[str, tuple[str, ...]],
    there: list[str],
    planned: list[channel.ChannelView],
) -> None:
    document = channel.ChannelStatus(family=FAMILY, channel="stable", views=tuple(before))
    assert plan_views(channel.StoredStatus(document, "tag"), wanted, there) == tuple(planned)
    made = document.model_copy(update={"views": tuple(planned)}).settle_views()
    assert [(one.gfx, one.shown) for one in made.views] == list(wanted.items())


def test_a_damaged_document_is_made_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    places, store = FamilyPaths(load_layout(), FAMILY, "release"), folder.FolderStore(tmp_path)
    assert channel.read_channel_status(store, places, "stable").tag is None
    tag = store.create(places.channel_status("stable"), b"{}")
    assert channel.read_channel_status(store, places, "stable") == channel.StoredStatus(
        channel.ChannelStatus(family=FAMILY, channel="stable"), tag
    )
    assert "is damaged, and is made again" in capsys.readouterr().err


# ---- support.json


def documents(public: PublicLocation) -> tuple[SupportDocument, SupportDocument]:
    known = told(SETS[0], *(of(SETS[0], gfx=gfx) for gfx in TARGETS))
    views = (
        channel.ChannelView(gfx="gfx1030", set=A),
        channel.ChannelView(gfx="gfx1031", set=A, settled=False),
    )
    found = channel.ChannelStatus(family=FAMILY, channel="stable", sets=(known,), views=views)
    own = make_support(FamilyPaths(load_layout(), FAMILY, "release"), [found], public)
    return own, merge_support([(FAMILY, own), ("gfx94X-dcgpu", None)], public)


def test_variants_are_left_to_what_knows_them() -> None:
    """pip would take PyPI's torch of that version; uv never asks which GPU there is."""
    known = told(SETS[0]).model_copy(update={"kind": "variants"})
    found = channel.ChannelStatus(family=FAMILY, channel="stable", sets=(known,), views=())
    places = FamilyPaths(load_layout(), FAMILY, "release")
    (release,) = make_support(places, [found], PublicLocation()).releases
    assert release.install.pip is None
    assert release.install.uv.startswith("uv pip install --preview-features wheel-variants --index {index} ")
    assert release.install.rocm_wheels == "rocm-wheels install --index {index} torch==2.9.1+rocm7.1.0"
    known = told(SETS[0]).model_copy(update={"version": "2.9.1"})  # PyPI has that, too
    found = channel.ChannelStatus(family=FAMILY, channel="stable", sets=(known,), views=())
    assert make_support(places, [found], PublicLocation()).releases[0].install.pip is None


def test_support_json_says_where_and_how() -> None:
    public = PublicLocation(
        url="https://wheels.example.org/x/", other_indexes=("https://rocm.example.org/simple/",)
    )
    own, whole = documents(public)
    for base, document in ((f"v2/{FAMILY}/support.json", own), ("v2/support.json", whole)):
        assert SupportDocument.model_validate_json(document.to_json()) == document
        assert document.to_json() == documents(public)[document is whole].to_json()
        said = json.loads(document.to_json())
        assert {len(said[name]) for name in ("channels", "releases", "views")} == {1}  # one is on its way
        for name, path in (
            ("channels", "simple/stable/"),
            ("releases", f"sets/{A}/simple/"),
            ("views", "by-gfx/gfx1030/stable/"),
        ):
            (one,) = said[name]
            if name != "releases":  # here all is of one platform
                (its,) = one["sets"]
                assert its == {
                    "os": "linux",
                    "set": A,
                    "version": "2.9.1+rocm7.1.0",
                    "install": one["install"],
                }
            assert (
                urljoin(f"{public.url}{base}", one["index"])
                == one["url"]
                == f"{public.url}v2/{FAMILY}/{path}"
            )
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
        assert (release["set"], release["state"], release["os"], release["rocm"]) == (
            A,
            "tested",
            "linux",
            None,
        )
        assert [(one["pythons"], one["platforms"], one["gfx"]) for one in release["wheels"]] == [
            ([python], ["linux_x86_64"], list(TARGETS)) for python in ("3.11", "3.12")
        ]
        assert release["targets"][0] == {
            "gfx": "gfx1030",
            "state": "tested",
            "by": ["smoke tests"],
            "pythons": ["3.11", "3.12"],
            "when": "2026-11-21",
        }
    with pytest.raises(ValidationError):
        SupportDocument.model_validate_json(own.to_json().replace(b'"releases"', b'"release"'))
    nowhere = documents(PublicLocation())[0].releases[0]
    assert (nowhere.url, nowhere.install.uv) == (
        None,
        "uv pip install --index {index} torch==2.9.1+rocm7.1.0",
    )


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("wheels.example.org", "is no URL of a folder"),
        ("s3://bucket/x", "is no URL of a folder"),
        ("https://", "is no URL of a folder"),
        ("https://[::1", "is no URL of a folder"),
        ("https://h/a b", "is no URL of a folder"),
        ("https://h/{index}", "is no URL of a folder"),
        ("https://ann:secret@h/", "https://h… has more than a place in it"),
        ("https://h/?token=x", "has more than a place in it"),
    ],
)
def test_a_public_url_that_nobody_can_use_is_refused(url: str, says: str) -> None:
    with pytest.raises(errors.UsageError) as found:
        check_public_url(url)
    assert says in str(found.value) and "secret" not in str(found.value)


def test_where_a_store_is_seen_from_is_kept(tmp_path: Path) -> None:
    store, layout = folder.FolderStore(tmp_path), load_layout()
    assert read_public(store, layout) == PublicLocation()
    assert update_public(store, layout, "https://h/x", ("https://o",))
    assert read_public(store, layout) == PublicLocation(url="https://h/x/", other_indexes=("https://o/",))
    assert read_public(store, layout).address_of(store, "a/b/") == "https://h/x/a/b/"
    assert PublicLocation().address_of(store, "a/") == store.url_of("a/")
    assert not update_public(store, layout, "https://h/x/", None)
    assert update_public(store, layout, "", None)
    assert read_public(store, layout) == PublicLocation(other_indexes=("https://o/",))
    (tmp_path / "v2/public.json").write_text("[]")
    with pytest.raises(errors.DataError, match="does not say where the store is seen from"):
        read_public(store, layout)
