"""Evidence in a folder and in S3: written whole or not, once, whatever happens on the way."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import servers
from crash import FaultyStore, Killed
from documents import NOW, a_set, put_set, said, wheel

from rocm_wheels.core import errors
from rocm_wheels.release import gate, policy
from rocm_wheels.release.evidence.evidence import Evidence
from rocm_wheels.release.evidence.store import add_evidence, read_evidence
from rocm_wheels.stores import folder
from rocm_wheels.stores.store import Store

SET = a_set(wheel("torch"))
POLICY = policy.Policy.model_validate({"channels": {"nightly": {"rules": {"audit": {"fresh": "14d"}}}}})


@pytest.fixture(params=["folder", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    opened = folder.FolderStore(tmp_path) if request.param == "folder" else servers.a_store()
    put_set(opened, SET)
    return opened


def evidence(outcome: str = "pass") -> Evidence:
    return said("audit", outcome, document=SET).evidence


def known(store: Store) -> list[Evidence]:
    return [one.evidence for one in read_evidence(store, SET, signers={}, env={})]


def test_of_many_who_hand_in_one_result_one_is_first(store: Store):
    with ThreadPoolExecutor(4) as pool:
        new = list(pool.map(lambda _: add_evidence(store, SET, evidence()), range(8)))
    assert sum(new) == 1
    assert known(store) == [evidence()]


@pytest.mark.parametrize("fault", ["before", "after", "raced", "other"])
def test_what_happens_on_the_way_leaves_it_whole_or_not_there(store: Store, fault: str):
    watched = FaultyStore(store)
    add_evidence(watched, SET, evidence("fail"))
    (write,) = watched.writes
    again = FaultyStore(store, at=write.replace(evidence("fail").id, evidence().id), fault=fault)
    if fault == "raced":
        assert not add_evidence(again, SET, evidence())
    elif fault == "other":  # nobody passes over what is there
        with pytest.raises(errors.DataError, match="cannot be read as evidence"):
            add_evidence(again, SET, evidence())
        with pytest.raises(errors.DataError, match="cannot be read as evidence"):
            known(store)
        return
    else:
        with pytest.raises(Killed):
            add_evidence(again, SET, evidence())
        assert add_evidence(store, SET, evidence()) == (fault == "before")
    assert {one.outcome for one in known(store)} == {"pass", "fail"}
    found = read_evidence(store, SET, signers={}, env={})
    verdict = gate.judge_set(POLICY, "nightly", SET, found, NOW)
    assert not verdict.passed  # at the same moment the failure holds


def test_an_answer_that_was_lost_writes_no_second_evidence():
    bucket, lost = servers.a_bucket(), iter(["lost", "", "lost"])
    put_set(servers.a_store(bucket=bucket), SET)
    with servers.bad_line(lambda method, _: next(lost, "") if method == "PUT" else "") as line:
        assert add_evidence(servers.a_store(line.url, bucket=bucket), SET, evidence())
    assert known(servers.a_store(bucket=bucket)) == [evidence()]
