"""Evidence in a folder and in S3: written whole or not, once, whatever happens on the way."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from pathlib import Path

import pytest
import s3_servers
from faulty_store import FaultyStore, Killed

from rocm_wheels.errors import DataError
from rocm_wheels.release.evidence import Counts, Evidence, Host, Moment, Outcome
from rocm_wheels.release.evidence_store import add_evidence, evidence_of
from rocm_wheels.release.gate.judge import judge
from rocm_wheels.release.gate.policy import Policy
from rocm_wheels.release.layout import load_layout
from rocm_wheels.release.sets import SetDocument, SetFile, SetLock, set_id
from rocm_wheels.release.stores import Store
from rocm_wheels.release.stores.folder import FolderStore

LAYOUT = load_layout()
NOW: Moment = datetime(2026, 11, 21, 12, tzinfo=timezone.utc)
NAME = "torch-2.9.1-cp312-cp312-linux_x86_64.whl"
SET = SetDocument(
    id=set_id("2.9.1", [(NAME, "a" * 64)], "c" * 64),
    created="2026-11-20T12:00:00Z",
    version="2.9.1",
    family="gfx1030",
    layout="per-family",
    files=(
        SetFile(
            name=NAME,
            project="torch",
            version="2.9.1",
            sha256="a" * 64,
            size=1,
            metadata_sha256="b" * 64,
            targets=("gfx1030",),
        ),
    ),
    lock=SetLock(digest="c" * 64, path="sources.lock.json"),
)
POLICY = Policy.model_validate({"channels": {"nightly": {"rules": {"verify": {"fresh": "14d"}}}}})


@pytest.fixture(params=["folder", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return FolderStore(tmp_path) if request.param == "folder" else s3_servers.a_store()


def evidence(outcome: Outcome = "pass") -> Evidence:
    return Evidence(
        kind="verify",
        set=SET.id,
        hashes=("a" * 64,),
        outcome=outcome,
        counts=Counts(passed=1) if outcome == "pass" else Counts(failed=1),
        tool="rocm-wheels verify",
        host=Host(name="runner-1"),
        by="ann",
        when=NOW,
        added=NOW,
    )


def known(store: Store) -> list[Evidence]:
    return [one.evidence for one in evidence_of(store, LAYOUT, SET, signers={}, env={})]


def test_of_many_who_hand_in_one_result_one_is_first(store: Store):
    with ThreadPoolExecutor(4) as pool:
        new = list(pool.map(lambda _: add_evidence(store, LAYOUT, SET, evidence()), range(8)))
    assert sum(new) == 1
    assert known(store) == [evidence()]


@pytest.mark.parametrize("fault", ["before", "after", "raced", "other"])
def test_what_happens_on_the_way_leaves_it_whole_or_not_there(store: Store, fault: str):
    watched = FaultyStore(store)
    add_evidence(watched, LAYOUT, SET, evidence("fail"))
    (write,) = watched.writes
    again = FaultyStore(store, at=write.replace(evidence("fail").id, evidence().id), fault=fault)
    if fault == "raced":
        assert not add_evidence(again, LAYOUT, SET, evidence())
    elif fault == "other":  # nobody passes over what is there
        with pytest.raises(DataError, match="cannot be read as evidence"):
            add_evidence(again, LAYOUT, SET, evidence())
        with pytest.raises(DataError, match="cannot be read as evidence"):
            known(store)
        return
    else:
        with pytest.raises(Killed):
            add_evidence(again, LAYOUT, SET, evidence())
        assert add_evidence(store, LAYOUT, SET, evidence()) == (fault == "before")
    assert {one.outcome for one in known(store)} == {"pass", "fail"}
    found = evidence_of(store, LAYOUT, SET, signers={}, env={})
    assert not judge(POLICY, "nightly", SET, found, NOW).passed  # at the same moment the failure holds


def test_an_answer_that_was_lost_writes_no_second_evidence():
    bucket, lost = s3_servers.a_bucket(), iter(["lost"])
    with s3_servers.bad_line(lambda method, _: next(lost, "") if method == "PUT" else "") as line:
        assert add_evidence(s3_servers.a_store(line.url, bucket=bucket), LAYOUT, SET, evidence())
    assert known(s3_servers.a_store(bucket=bucket)) == [evidence()]
