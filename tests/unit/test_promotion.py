"""What ties a set together, and what a channel's document says."""

from __future__ import annotations

from pathlib import Path

import pytest
from documents import a_set, edit_sealed, reseal, sha, wheel
from packaging.requirements import Requirement

from rocm_wheels.core import errors
from rocm_wheels.release import set_conflicts, store_paths, wheel_set
from rocm_wheels.release.channel import Channel, ChannelSet, PendingChange, find_sets_on, read_channel
from rocm_wheels.stores import folder

V = "2.9.1+rocm7.1.0"
PAIR = (wheel("torch"), wheel("torchvision"))


def requires(document: wheel_set.SetDocument, *said: str) -> dict[str, list[Requirement]]:
    """What torchvision requires; the others require nothing."""
    return {
        file.name: [Requirement(one) for one in said] if file.project == "torchvision" else []
        for file in document.files
    }


@pytest.mark.parametrize(
    ("said", "pinned"),
    [
        (f"torch=={V}", True),
        (f"torch==={V}", True),
        (f"torch>=2,=={V}", True),
        (f"torch=={V} ; platform_system == 'Linux'", True),
        ("torch", False),
        ("torch>=2.9", False),
        ("torch~=2.9.1", False),
        ("torch==2.9.*", False),
        ("torch==2.9.1", False),  # any build of 2.9.1, for any ROCm
        ("torch===nonsense", False),
    ],
)
def test_wheels_pin_those_of_their_set(said: str, pinned: bool) -> None:
    document = a_set(*PAIR)
    if pinned:
        set_conflicts.require_pins(document, requires(document, said))
    else:
        said_so = r"are not pinned to it: torchvision-.* requires torch"
        with pytest.raises(errors.ReleaseError, match=said_so) as found:
            set_conflicts.require_pins(document, requires(document, said))
        assert "exact versions" in str(found.value.tip)


def needing(document: wheel_set.SetDocument, **needs: list[str]) -> dict[str, list[Requirement]]:
    """What projects require: as it is said, or in the version of the set."""

    def pin(said: str) -> Requirement:
        return Requirement(said if set(said) & set("=<>") else f"{said}=={V}")

    return {file.name: [pin(one) for one in needs.get(file.project, [])] for file in document.files}


def test_what_nothing_ties_is_refused() -> None:
    document = a_set(*PAIR, wheel("apex"))
    tied = needing(document, torchvision=["torch"], apex=["torch"])
    set_conflicts.require_pins(document, tied)
    loose = needing(document, torchvision=["torch"])
    with pytest.raises(errors.ReleaseError, match="nothing ties apex to torch, torchvision in 2"):
        set_conflicts.require_pins(document, loose)


KERNELS = "amd-torch-device-gfx942"
BY_EXTRA = 'extra == "device-gfx942"'


def test_what_an_extra_requires_is_pinned_and_comes_first() -> None:
    """A host wheel has its kernels by an extra, and requires its selector; both may require it, too."""
    document = a_set(wheel("torch"), wheel(KERNELS))
    pinned = needing(document, torch=[f"{KERNELS}=={V} ; {BY_EXTRA}"])
    set_conflicts.require_pins(document, pinned)
    assert set_conflicts.sort_by_dependencies([document], pinned) == [KERNELS, "torch"]
    both = needing(document, torch=[f"{KERNELS}=={V} ; {BY_EXTRA}"], **{KERNELS: ["torch"]})
    assert set_conflicts.sort_by_dependencies([document], both) == [KERNELS, "torch"]
    selector = "amd-torch-device"
    split = a_set(*document.files, wheel(selector), wheel("torchvision"))
    circle = needing(
        split,
        torch=[selector, f"{KERNELS}=={V} ; {BY_EXTRA}"],
        torchvision=["torch"],
        **{KERNELS: ["torch"], selector: ["torch"]},
    )
    assert set_conflicts.sort_by_dependencies([split], circle) == [selector, KERNELS, "torch", "torchvision"]
    loose = needing(document, torch=[f"{KERNELS}>=1 ; {BY_EXTRA}"])
    with pytest.raises(errors.ReleaseError, match=f"are not pinned to it: torch-.* requires {KERNELS}"):
        set_conflicts.require_pins(document, loose)
    by_itself = needing(a_set(wheel(KERNELS)), **{KERNELS: ["torch"]})  # what pins torch decides
    set_conflicts.require_pins(document, {**both, **loose, **by_itself})


def test_sets_that_share_what_ties_them_are_not_shown_together() -> None:
    def a_release(number: str, torch: str = V) -> wheel_set.SetDocument:
        companions = [wheel(one, version=number, sha256=sha(number)) for one in ("torchvision", "torchaudio")]
        return a_set(wheel("torch", version=torch, sha256=sha(torch)), *companions)

    old, new = a_release("1"), a_release("2")
    requires = needing(new, torchvision=["torch"], torchaudio=["torch"])
    said = r"differ in torchaudio, torchvision, .* ties torchaudio to torchvision"
    with pytest.raises(errors.ReleaseError, match=said):
        set_conflicts.require_ties(new, requires, [old])
    set_conflicts.require_ties(new, requires, [a_release("1", "2.9.0")])
    set_conflicts.require_ties(new, needing(new, torchvision=["torch"], torchaudio=["torchvision"]), [old])


def renamed(file: wheel_set.SetFile, old: str, new: str) -> wheel_set.SetFile:
    name = file.name.replace(old, new)
    return file.model_copy(update={"name": name, "sha256": sha(name)})


def rebuilt(file: wheel_set.SetFile) -> wheel_set.SetFile:
    return renamed(file, "-cp312-cp312", "-1-cp312-cp312")


def windows(file: wheel_set.SetFile) -> wheel_set.SetFile:
    return renamed(file, "linux_x86_64", "win_amd64")


def test_wheels_with_asan_are_shown_beside_none_without() -> None:
    """Their versions are the newer ones: pip would take them on any machine."""
    labelled = [renamed(file, V, f"{V}.asan").model_copy(update={"version": f"{V}.asan"}) for file in PAIR]
    for new, shown in ((labelled, PAIR), (PAIR, labelled)):
        with pytest.raises(errors.ReleaseError, match="has AddressSanitizer, and torch-"):
            set_conflicts.refuse_asan_mixture(a_set(*new), [a_set(*shown)])
    set_conflicts.refuse_asan_mixture(a_set(*labelled), [a_set(*labelled)])


def test_wheels_do_not_take_the_place_of_others() -> None:
    torch, vision = PAIR
    shown = a_set(*PAIR)
    # the same set with one project exchanged, and another Python
    set_conflicts.refuse_overlaps(a_set(rebuilt(torch), vision), [shown])
    set_conflicts.refuse_overlaps(a_set(wheel("torch", "311"), wheel("torchvision", "311")), [shown])
    newer = renamed(vision, "2.9.1", "3").model_copy(update={"version": "3"})
    newer_linux = rebuilt(torch).model_copy(update={"name": torch.name.replace("linux", "manylinux_2_28")})
    for_all = rebuilt(torch).model_copy(update={"name": torch.name.replace("cp312-cp312", "cp39-abi3")})
    set_conflicts.refuse_overlaps(a_set(windows(torch), windows(vision)), [shown])
    for other in (
        a_set(newer_linux, newer),
        a_set(for_all, newer),
        a_set(rebuilt(torch), rebuilt(vision)),
        a_set(rebuilt(torch), newer),
        a_set(rebuilt(torch)),
    ):
        with pytest.raises(errors.ReleaseError, match=r"has torch.* in the same version as") as found:
            set_conflicts.refuse_overlaps(other, [shown])
        assert f"demote {shown.id} first" in str(found.value.tip)


def test_many_wheels_of_many_sets_are_compared_by_name_and_version_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each wheel with the one in its place, and with no other: sets of hundreds are shown together."""
    compared = []

    def compare(name: str, other: str) -> bool:
        compared.append((name, other))
        return name == other

    monkeypatch.setattr(set_conflicts.installer_slots, "are_interchangeable", compare)
    documents = [
        a_set(*(wheel(f"project-{n}", version=version, sha256=sha(f"{n}{version}")) for n in range(100)))
        for version in map(str, range(20))
    ]
    set_conflicts.refuse_overlaps(documents[0], documents[1:])
    assert compared == []
    set_conflicts.refuse_overlaps(documents[0], documents)
    assert len(compared) == 100
    assert len(list(set_conflicts.find_rivals(documents[0].files, documents[0].files))) == 100
    assert len(compared) == 200


def test_dependencies_come_first_and_a_circle_has_an_order() -> None:
    files = [wheel(one) for one in ("apex", "torch", "torchaudio", "triton")]
    document = a_set(*files)
    needs = {"apex": ["torch"], "torch": ["Triton"], "torchaudio": ["torch"], "triton": []}
    listed = {file.name: [Requirement(f"{one}=={V}") for one in needs[file.project]] for file in files}
    assert set_conflicts.sort_by_dependencies([document], listed) == ["triton", "torch", "apex", "torchaudio"]
    listed[files[3].name] = [Requirement(f"torch=={V}")]
    assert sorted(set_conflicts.sort_by_dependencies([document], listed)) == sorted(needs)


SHOWN = tuple(
    ChannelSet(set=f"2.9.{n}-{'a' * 12}", document="d" * 64, when="2026-11-21T12:00:00Z", by="ann")
    for n in (1, 2, 3)
)
IDS = [one.set for one in SHOWN]


def test_a_channel_remembers_what_was_done(tmp_path: Path) -> None:
    channel = Channel(family="gfx94X-dcgpu", channel="stable", sets=SHOWN)
    pending = PendingChange(
        action="demote", sets=tuple(IDS[1:]), by="ann", began="now", goal=SHOWN[:1], adds=False
    )
    begun = channel.with_pending(pending)
    settled = begun.finish_pending()
    assert (settled.current, settled.shown, settled.revision) == (IDS[0], (IDS[0],), 2)
    assert settled.demoted == set(IDS[1:])
    store, places = folder.FolderStore(tmp_path), store_paths.FamilyPaths(settled.family)
    store.create(places.channel_document("stable"), settled.to_json())
    assert read_channel(store, places, "stable").channel == settled


def test_the_family_of_sets_is_that_of_the_channel_that_shows_or_showed_them(tmp_path: Path) -> None:
    store = folder.FolderStore(tmp_path)
    for family, sets in (("gfx94X-dcgpu", SHOWN[:2]), ("gfx110X-all", SHOWN[2:])):
        channel = Channel(family=family, channel="stable", sets=sets)
        store.create(store_paths.FamilyPaths(family).channel_document("stable"), channel.to_json())
    paths, found = find_sets_on(store, "stable", ["2.9.2", IDS[0], IDS[1]])
    assert (paths.family, found) == ("gfx94X-dcgpu", (IDS[1], IDS[0]))
    assert find_sets_on(store, "stable", ["2.9.3"])[0].family == "gfx110X-all"
    with pytest.raises(errors.UsageError, match=r"are of gfx110X-all and gfx94X-dcgpu"):
        find_sets_on(store, "stable", IDS)
    for begins, says in (("2.9.", "2.9. could be 2.9.1-"), ("2.9.9", "2.9.9 is not on"), ("", "is not on")):
        with pytest.raises(errors.ReleaseError, match=says):
            find_sets_on(store, "stable", [begins])
    document = tmp_path / store_paths.FamilyPaths("gfx110X-all").channel_document("stable")
    document.chmod(0o644)
    document.write_text("{}")
    assert find_sets_on(store, "stable", IDS[:1])[1] == (IDS[0],), "a damaged channel of another family"
    with pytest.raises(errors.DataError):
        find_sets_on(store, "stable", IDS[2:])


KNOWN = Channel(family="gfx94X-dcgpu", channel="stable", sets=SHOWN[:1]).to_json()


def edited(**by_hand: object) -> bytes:
    return edit_sealed(KNOWN, lambda document: document.update(by_hand))


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"{", "is not the document of a channel: it does not end in a seal"),
        (KNOWN[:-1], "is not the document of a channel: it does not end in a seal"),
        (KNOWN.replace(b'"revision": 0', b'"revision": 1'), "was edited: its seal is of something else"),
        (edited(schema=3), "is not the document of a channel: schema"),
        (edited(channel="nightly"), "is of nightly of gfx94X-dcgpu"),
        (b"", "is not the document of a channel"),
        (reseal(KNOWN.replace(b"ann", b"\xff\xfe")), "is not the document of a channel: Invalid JSON"),
        (edited(sets=[SHOWN[0].model_dump()] * 2), "a set is there twice"),
        (edited(sets="2.9.1"), "is not the document of a channel: sets"),
    ],
)
def test_a_damaged_document_is_refused(content: bytes, says: str, tmp_path: Path) -> None:
    places = store_paths.FamilyPaths("gfx94X-dcgpu")
    store = folder.FolderStore(tmp_path)
    store.create(places.channel_document("stable"), content)
    with pytest.raises(errors.DataError, match=says) as found:
        read_channel(store, places, "stable")
    assert "put it back from a copy of the store" in str(found.value.tip)
