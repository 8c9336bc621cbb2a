"""Evidence in a folder and in S3: written whole or not, once, whatever happens on the way."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import s3_servers
from faulty_store import FaultyStore, Killed

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "unit"))
from judged_sets import NOW, a_log, a_set, put_set, said, wheel

from rocm_wheels.core import errors
from rocm_wheels.release import gate, layout, policy
from rocm_wheels.release.evidence.evidence import Evidence
from rocm_wheels.release.evidence.store import add_evidence, add_failures_beside, read_evidence
from rocm_wheels.stores import folder
from rocm_wheels.stores.store import Store

LAYOUT = layout.load_layout()
SET = a_set(wheel("torch"))
POLICY = policy.Policy.model_validate({"channels": {"nightly": {"rules": {"verify": {"fresh": "14d"}}}}})


@pytest.fixture(params=["folder", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    opened = folder.FolderStore(tmp_path) if request.param == "folder" else s3_servers.a_store()
    put_set(opened, SET)
    return opened


def evidence(outcome: str = "pass") -> Evidence:
    return said("verify", outcome, document=SET).evidence


def known(store: Store) -> list[Evidence]:
    return [one.evidence for one in read_evidence(store, LAYOUT, SET, signers={}, env={})]


def test_of_many_who_hand_in_one_result_one_is_first(store: Store):
    with ThreadPoolExecutor(4) as pool:
        new = list(pool.map(lambda _: add_evidence(store, LAYOUT, SET, evidence()), range(8)))
    assert sum(new) == 1
    assert known(store) == [evidence()]


@pytest.mark.parametrize("fault", ["before", "after", "raced", "other"])
def test_what_happens_on_the_way_leaves_it_whole_or_not_there(store: Store, fault: str):
    watched = FaultyStore(store)
    add_evidence(watched, LAYOUT, SET, evidence("fail"))
    write, _ = watched.writes  # then the entry of the log
    again = FaultyStore(store, at=write.replace(evidence("fail").id, evidence().id), fault=fault)
    if fault == "raced":
        assert not add_evidence(again, LAYOUT, SET, evidence())
    elif fault == "other":  # nobody passes over what is there
        with pytest.raises(errors.DataError, match="cannot be read as evidence"):
            add_evidence(again, LAYOUT, SET, evidence())
        with pytest.raises(errors.DataError, match="cannot be read as evidence"):
            known(store)
        return
    else:
        with pytest.raises(Killed):
            add_evidence(again, LAYOUT, SET, evidence())
        assert add_evidence(store, LAYOUT, SET, evidence()) == (fault == "before")
    assert {one.outcome for one in known(store)} == {"pass", "fail"}
    found = read_evidence(store, LAYOUT, SET, signers={}, env={})
    assert not gate.judge_set(
        POLICY, "nightly", SET, found, NOW, log=a_log(SET, found)
    ).passed  # at the same moment the failure holds


def test_an_answer_that_was_lost_writes_no_second_evidence():
    bucket, lost = s3_servers.a_bucket(), iter(["lost", "", "lost"])
    put_set(s3_servers.a_store(bucket=bucket), SET)
    with s3_servers.bad_line(lambda method, _: next(lost, "") if method == "PUT" else "") as line:
        assert add_evidence(s3_servers.a_store(line.url, bucket=bucket), LAYOUT, SET, evidence())
    assert known(s3_servers.a_store(bucket=bucket)) == [evidence()]


def test_what_is_written_names_the_failures_that_were_there(store: Store):
    failed, passed = evidence("fail"), evidence()
    (first,) = add_failures_beside(store, LAYOUT, SET, [failed])
    assert first == failed
    add_evidence(store, LAYOUT, SET, first)
    (second,) = add_failures_beside(store, LAYOUT, SET, [passed])
    assert second.beside == (failed.id,)
    add_evidence(store, LAYOUT, SET, second)
    other = said("verify", document=SET, by="bob").evidence
    made = add_failures_beside(store, LAYOUT, SET, [passed, failed, other])
    assert made[:2] == [second, first]  # what is there is what it was
    assert made[2].beside == (failed.id,)
    both = [said("verify", one, document=SET, hours=0.5).evidence for one in ("fail", "pass")]
    bad, good = add_failures_beside(store, LAYOUT, SET, both)
    assert good.beside == (failed.id, bad.id)
