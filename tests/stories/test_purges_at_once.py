"""Two purges of a table run at once, and neither puts back what the other has removed (DEL-4)."""

from __future__ import annotations

import threading

import pytest

import sleeper
from sleeper.storage.transaction_log import ObjectTransactionLog
from sleeper.tables.purges import turns
from tests.patience import PATIENCE_S
from tests.stories.test_purges import addresses, new_table, rows_of

ANN, ART, BOB = "ann@mail.example", "art@mail.example", "bob@mail.example"


def stored_bytes(folder):
    return b"".join(each.read_bytes() for each in folder.rglob("*") if each.is_file())


@pytest.mark.parametrize("place", [0, 1, 2])
def test_keys_that_stand_in_one_entry_go_from_it(tmp_path, monkeypatch, place):
    """Given a purge that has read an entry when another comes, which has a key in it as well.

    Without turns the second one would redact the entry, and the first one would put the entry that
    it has read in its place, without its own key alone.
    """
    table = new_table(tmp_path)
    for _ in range(3):  # the first and the last key of a file stand in its entry
        table.ingest(rows_of([ANN, ART, BOB]))
    original, is_over = ObjectTransactionLog.replace, turns._is_over
    went_on, others, proofs, replaced = threading.Event(), [], {}, []

    def purge(key):
        proofs[key] = sleeper.connect(tmp_path / "instance").table("people").purge(keys=[key])
        went_on.set()

    def slow(log, number, before, after):
        if not others and len(replaced) == place:
            others.append(threading.Thread(target=purge, args=[BOB]))
            others[0].start()
            assert went_on.wait(PATIENCE_S)  # until it has ended, or waits
            log.objects.put(log.key(number), after)
            return True
        replaced.append(number)
        return original(log, number, before, after)

    def watched(*given):
        over = is_over(*given)
        if not over:
            went_on.set()
        return over

    monkeypatch.setattr(ObjectTransactionLog, "replace", slow)
    monkeypatch.setattr(turns, "_is_over", watched)

    purge(ANN)
    others[0].join(PATIENCE_S)

    assert all(proof.finished for proof in proofs.values())
    assert sorted(proofs) == [ANN, BOB]
    stored = stored_bytes(tmp_path / "instance" / table.table_id)
    assert ANN.encode() not in stored
    assert BOB.encode() not in stored
    assert table.count() == 3
    assert table.verify().clean


def test_many_purges_at_once_end_all(tmp_path):
    """Given eight purges of a key each in threads, all are finished, and no key is left."""
    keys = addresses(40)
    table = new_table(tmp_path, split_points=[keys[20]])
    for first in range(4):
        table.ingest(rows_of(keys[first::4]))
    proofs = []

    def purge(key):
        opened = sleeper.connect(tmp_path / "instance").table("people")
        for _ in range(5):  # one that found what another had not removed yet goes on
            proof = opened.purge(keys=[key])
            if proof.finished:
                break
        proofs.append(proof.finished)

    threads = [threading.Thread(target=purge, args=[key]) for key in keys[:4] + keys[-4:]]
    for each in threads:
        each.start()
    for each in threads:
        each.join()

    assert proofs == [True] * 8
    stored = stored_bytes(tmp_path / "instance" / table.table_id)
    assert [key for key in keys[:4] + keys[-4:] if key.encode() in stored] == []
    assert sorted(row["email"] for row in table.query().to_pylist()) == keys[4:-4]
    assert table.verify().clean
