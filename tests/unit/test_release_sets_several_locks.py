"""Sets of variants that were built from several locks: which wheel is of which, and what should be there."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from documents import NOW as MOMENT
from documents import edit_sealed, judged, said
from stores import NEWER, OLDER, PYTHON, several_drafts
from wheels import Draft

from rocm_wheels.core import errors
from rocm_wheels.models.lock import Lock
from rocm_wheels.release import gate, policy, stage, wheel_set
from rocm_wheels.release.evidence import store
from rocm_wheels.release.store_paths import FamilyPaths
from rocm_wheels.sources.lock import digest_lock, format_lock

LOCKS = (NEWER, OLDER)
Drafts = dict[str, Draft]


def plan(
    folder: Path, made: Drafts, locks: Sequence[Lock] = LOCKS, *, layout: wheel_set.SetLayout = "variants"
) -> stage.StagePlan:
    wheels = [draft.write(folder) for draft in made.values()]
    return stage.plan_stage(wheels, locks, paths=FamilyPaths("variants"), layout=layout)


def test_each_wheel_is_of_the_lock_inside_it_and_of_each_lock_all_is_there(tmp_path: Path) -> None:
    made = several_drafts()
    found = plan(tmp_path, made)
    document = found.document
    assert {file.label: (document.rocm_of(file), file.lock) for file in document.files} == {
        "rocm7.1": ("7.1.0", digest_lock(NEWER)),
        "": ("7.1.0", digest_lock(NEWER)),
        "rocm7.0": ("7.0.2", digest_lock(OLDER)),
        "null": ("7.1.0", digest_lock(NEWER)),
    }
    assert (document.rocm, document.rocms, document.is_complete) == (None, ("7.0.2", "7.1.0"), True)
    assert [str(cell) for cell in document.planned] == [
        f"triton for Python {PYTHON} with ROCm 7.0.2",
        f"torch for Python {PYTHON} and gfx942 with ROCm 7.0.2",
        f"triton for Python {PYTHON} with ROCm 7.1.0",
        f"torch for Python {PYTHON} and gfx942 with ROCm 7.1.0",
        f"torch for Python {PYTHON} and gfx1100 with ROCm 7.1.0",
    ]
    assert wheel_set.parse_set(document.to_json(), where="x") == document
    scans = [wheel.scan for wheel in found.wheels]
    assert stage.find_document_faults(document, scans, LOCKS) == []
    assert stage.find_document_faults(document, scans, LOCKS[:1]) != []
    files = found.list_files()
    for lock in LOCKS:
        assert files[found.paths.lock_file(digest_lock(lock))] == format_lock(lock).encode()
    wheels = [wheel.path for wheel in found.wheels]
    again = stage.plan_stage(wheels, (OLDER, NEWER, OLDER), paths=found.paths, layout="variants")
    assert again.document == document
    # a gate sees what a lock wants, by its ROCm
    older = [file for file in document.files if file.label != "rocm7.0"]
    lacking = document.model_copy(update={"files": tuple(older)})
    cell = f"torch for Python {PYTHON} and gfx942 with ROCm 7.0.2"
    for one, missing in ((document, ()), (lacking, (cell,))):
        verdict = gate.judge_set(policy.load_policy(), "nightly", one, (), MOMENT)
        rules = {rule.rule: rule for rule in verdict.rules}
        (reason,) = rules["complete"].reasons
        assert (reason.facts["planned"], reason.facts.get("cells", ())) == (5, missing)
    assert rules["hashes"].outcome == "fail"


def test_a_gpu_is_tested_when_the_wheels_of_each_rocm_are(tmp_path: Path) -> None:
    """What installers take there that know of no variants counts as well."""
    document = plan(tmp_path, several_drafts()).document
    smoke = "{audit: {fresh: 14d}, smoke: {fresh: 7d, targets: every}}"
    rules = f"channels: {{nightly: {{signed: false, rules: {smoke}}}}}"

    def passed(gfx: str, *labels: str) -> store.StoredEvidence:
        hashes = sorted(file.sha256 for file in document.files if file.label in labels)
        return said("smoke", gfx=gfx, document=document, hashes=tuple(hashes))

    known: list[store.StoredEvidence] = []
    missed = {"gfx1100": "pass", "gfx942": "fail"}
    for more, expected in (
        ([passed("gfx1100", "rocm7.1", "null", "")], missed),
        ([passed("gfx942", "rocm7.1", "null"), passed("gfx942", "", "null")], missed),
        ([passed("gfx942", "rocm7.0", "null")], {"gfx1100": "pass", "gfx942": "pass"}),
    ):
        known += more
        found = judged(rules, *known, document=document).rules
        assert {rule.gfx: rule.outcome for rule in found if rule.rule == "smoke"} == expected


def test_what_a_lock_wants_is_missing_also_where_another_has_it(tmp_path: Path) -> None:
    made = several_drafts()
    del made["newer"], made["plain"]
    made["cousin"] = several_drafts("gfx1100")["newer"]
    found = plan(tmp_path, made).document
    assert [str(cell) for cell in found.missing] == [f"torch for Python {PYTHON} and gfx942 with ROCm 7.1.0"]


def test_a_document_of_one_lock_names_it_once(tmp_path: Path) -> None:
    made = several_drafts()
    del made["older"]
    found = plan(tmp_path, made, [NEWER]).document
    shown = json.loads(found.to_json())
    assert list(shown) == [
        *("schema", "id", "created", "version", "rocm", "family", "layout", "files", "locks"),
        *("planned", "missing", "seal"),
    ]
    assert (shown["schema"], len(shown["locks"])) == (2, 1)
    assert {file["lock"] for file in shown["files"]} == {""}
    for locks in (shown["locks"] * 2, [*shown["locks"], {**shown["locks"][0], "digest": "0" * 64}]):
        with pytest.raises(errors.DataError, match="of several locks, each is another one"):
            edited = edit_sealed(found.to_json(), lambda document, locks=locks: document.update(locks=locks))
            wheel_set.parse_set(edited, where="x")


def _no_lock(project: str) -> Callable[[Drafts], object]:
    return lambda made: made[project].members.pop(f"{made[project].folder}/sources.lock.json")


def _moved(made: Drafts) -> None:
    name = f"{made['older'].folder}/sources.lock.json"
    made["older"].members[name] = format_lock(OLDER.model_copy(update={"rocm": "7.0.3"})).encode()


def test_a_wheel_without_a_lock_is_of_the_one_that_it_can_be_of(tmp_path: Path) -> None:
    made = several_drafts()
    _no_lock("older")(made)
    _no_lock("newer")(made)  # the older lock has no gfx1100
    assert {file.lock for file in plan(tmp_path, made).document.files} == {digest_lock(one) for one in LOCKS}


_WINDOWS = OLDER.model_copy(update={"platform": "windows"})
_IDLE = OLDER.model_copy(update={"rocm": "6.4.4"})


@pytest.mark.parametrize(
    ("change", "locks", "said"),
    [
        (_no_lock("triton"), LOCKS,
         r"triton-.*: it has no lock inside, and could be of the lock .* or the lock"),
        (_moved, LOCKS,
         r"rocm7\.0.*: it is of none of the locks: not of the lock .*built with ROCm 7\.0\.3, the"),
        (_no_lock("newer"), (OLDER, _IDLE), r"rocm7\.1.*: it has no lock inside, and could be of none of"),
        (lambda made: None, (*LOCKS, _IDLE), r"no wheel is of the lock \w{12} with ROCm 6\.4\.4 for gfx942"),
        (lambda made: None, (NEWER, _WINDOWS), r"the locks are for linux and windows"),
        (lambda made: made.pop("newer"), LOCKS, r"no variant label, and no variant here is the same"),
    ],
)  # fmt: skip
def test_wheels_that_cannot_be_one_set(
    change: Callable[[Drafts], object], locks: Sequence[Lock], said: str, tmp_path: Path
) -> None:
    made = several_drafts()
    change(made)
    with pytest.raises(errors.RocmWheelsError, match=said):
        plan(tmp_path, made, locks)


def test_only_variants_have_several_locks(tmp_path: Path) -> None:
    said = r"2 locks were given, and wheels of multi-arch are all of one"
    with pytest.raises(errors.RocmWheelsError, match=said):
        plan(tmp_path, several_drafts(), layout="multi-arch")
