"""The search alone: which sets lie between two, and against looking at every place of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from documents import FAMILY, LOCK, a_set, sha, wheel
from hypothesis import given, settings
from hypothesis import strategies as st

from rocm_wheels.core import errors
from rocm_wheels.release import bisect, store_paths, wheel_set
from rocm_wheels.stores.folder import FolderStore


def searched(truth: list[str]) -> tuple[int, int, list[int]]:
    """Try places until there is none to try: the last good and the first bad one, and which were tried."""
    outcomes = ["good", *[""] * (len(truth) - 2), "bad"]
    tried = []
    while (place := bisect.narrow_down(outcomes)[2]) is not None:
        assert not outcomes[place] and 0 < place < len(truth) - 1
        outcomes[place] = truth[place]
        tried.append(place)
    good, bad, _ = bisect.narrow_down(outcomes)
    assert all(outcomes[place] == "skip" for place in range(good + 1, bad))
    return good, bad, tried


@st.composite
def lines(draw: st.DrawFn) -> list[str]:
    """Places of which the first bad one is anywhere, and any but the ends may be skipped."""
    count = draw(st.integers(2, 60))
    first_bad = draw(st.integers(1, count - 1))
    skipped = draw(st.sets(st.integers(1, count - 2))) if count > 2 else set()
    return ["skip" if n in skipped else "good" if n < first_bad else "bad" for n in range(count)]


@settings(max_examples=400, deadline=None)
@given(lines())
def test_it_finds_what_looking_at_every_place_finds(truth: list[str]) -> None:
    good, bad, tried = searched(truth)
    assert bad == truth.index("bad")
    assert good == max(n for n, one in enumerate(truth[:bad]) if one == "good")
    if "skip" not in truth:
        assert len(tried) <= (len(truth) - 2).bit_length()


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from(["good", "bad", "skip"]), min_size=2, max_size=40))
def test_whatever_a_command_says_it_ends_between_a_good_and_a_bad_place(truth: list[str]) -> None:
    truth = ["good", *truth, "bad"]
    good, bad, _ = searched(truth)
    assert good < bad and (truth[good], truth[bad]) == ("good", "bad")


@pytest.mark.parametrize(("skipped", "most"), [(range(30, 70), 12), (range(1, 50), 13), (range(10, 12), 8)])
def test_neighbours_that_cannot_be_tested_are_left_at_once(skipped: range, most: int) -> None:
    for first_bad in {1, 9, 80, 99} - set(skipped):
        truth = ["skip" if n in skipped else "good" if n < first_bad else "bad" for n in range(100)]
        hidden = max(n for n in range(first_bad) if truth[n] == "good") < first_bad - 1
        assert hidden or len(searched(truth)[2]) <= most


KINDS = (("2.13.0", "linux"), ("2.14.0", "linux"), ("2.13.0", "windows"), ("2.12.1", "linux"))
Nights = dict[tuple[int, str, str], str]  # ids of sets by day, torch and platform, as they were made


@pytest.fixture
def nights(tmp_path: Path) -> Nights:
    """Three nights of sets of one family, of two platforms and three torch lines; only their documents.

    With each night comes a companion alone, which is on no line of torch.
    """
    store, ids = FolderStore(tmp_path), Nights()
    for day in (1, 2, 3):
        for hour, (torch, platform) in enumerate((*KINDS, ("0.50.2", "linux"))):
            version, tag = f"{torch}+night{day}", {"linux": "linux_x86_64", "windows": "win_amd64"}[platform]
            project = "bitsandbytes" if torch == "0.50.2" else "torch"
            name = f"{project}-{version}-cp312-cp312-{tag}.whl"
            file = wheel(project, name=name, version=version, sha256=sha(name))
            set_id = wheel_set.make_set_id(version, FAMILY, [(name, file.sha256)], LOCK)
            created = f"2026-11-{day:02}T{hour:02}:00:00Z"
            document = a_set(file, version=version, id=set_id, created=created)
            store.create(store_paths.FamilyPaths(FAMILY).set_document(set_id), document.to_json())
            ids[day, torch, platform] = set_id
    return ids


@pytest.mark.parametrize(("torch", "platform"), KINDS)
def test_between_two_sets_of_a_line_is_that_line_of_their_platform(
    torch: str, platform: str, nights: Nights, tmp_path: Path
) -> None:
    line = [nights[day, torch, platform] for day in (1, 2, 3)]
    found = bisect.list_sets_between(FolderStore(tmp_path), line[0], line[-1])
    assert [document.id for document in found] == line


def test_between_two_lines_are_all_of_their_platform(nights: Nights, tmp_path: Path) -> None:
    good, bad = nights[1, "2.12.1", "linux"], nights[3, "2.14.0", "linux"]
    linux = [nights[key] for key in nights if key[1] != "0.50.2" and key[2] == "linux"]
    found = bisect.list_sets_between(FolderStore(tmp_path), good, bad)
    assert [document.id for document in found] == linux[linux.index(good) : linux.index(bad) + 1]


def test_ends_of_two_platforms_are_refused(nights: Nights, tmp_path: Path) -> None:
    ends = nights[1, "2.13.0", "linux"], nights[3, "2.13.0", "windows"]
    with pytest.raises(errors.ReleaseError, match=r"no line between them: .*, linux and .*, windows"):
        bisect.list_sets_between(FolderStore(tmp_path), *ends)
    ends = nights[1, "0.50.2", "linux"], nights[3, "2.14.0", "linux"]
    with pytest.raises(errors.ReleaseError, match=r"is of bitsandbytes, .* of torch, "):
        bisect.list_sets_between(FolderStore(tmp_path), *ends)
