"""A second kind of state store on the same objects, so that moves between kinds meet their faults."""

from __future__ import annotations

import base64
import json

from sleeper.state.revision_store import Revision, RevisionHistory, RevisionStateStore
from sleeper.state.snapshot import snapshot_parts, state_from_parts
from sleeper.tables import state_stores

LOG, REVISIONS = "TransactionLogStateStore", "S3StateStore"


class RevisionsInObjects:
    """Revisions as objects, each created only if its number is free."""

    limit = changes_max = None

    def __init__(self, objects, schema):
        self._objects, self._schema = objects, schema

    def refresh(self, known):
        if not known.state.number:
            keys = [info.key for info in self._objects.listing("statestore/revisions/")]
            if keys:
                known = self._read(keys[-1]) or known  # None: deleted since it was listed
        while (found := self._read(self._key(known.state.number + 1))) is not None:
            known = found
        return known

    def fits(self, before, after):
        return True

    def replace(self, before, after):
        return self._objects.create(self._key(after.state.number), self._body(after))

    def begin(self, first):
        self._objects.put(self._key(first.state.number), self._body(first))

    def remember(self, known):
        pass

    def at(self, number):
        found = self._read(self._key(number))
        return None if found is None else found.state

    def delete(self):
        pass

    @staticmethod
    def _key(number):
        return f"statestore/revisions/{number:06d}"

    def _body(self, revision):
        parts = snapshot_parts(revision.state, self._schema)
        texts = {name: base64.b64encode(part).decode() for name, part in parts.items()}
        document = [revision.state.number, revision.history.to_json(), texts]
        return json.dumps(document).encode()

    def _read(self, key):
        body = self._objects.read(key)
        if body is None:
            return None
        number, history, texts = json.loads(body)
        parts = {name: base64.b64decode(text) for name, text in texts.items()}
        state = state_from_parts(number, parts.__getitem__, self._schema)
        return Revision(state, RevisionHistory.from_json(history))


def open_revisions(place):
    """Open the second kind, as the factory opens the others."""
    context = place.context
    return RevisionStateStore(
        RevisionsInObjects(place.files, place.schema),
        place.schema,
        storage_time=context.storage_time,
        ticks_s=context.clock.ticks_s,
        new_id=context.new_id,
        pause=context.clock.back_off,
        here=place.here,
    )


def install(monkeypatch):
    """Let tables have the second kind under the name of one of upstream's."""
    openers = {**state_stores._OPENERS, REVISIONS: open_revisions}
    monkeypatch.setattr(state_stores, "_OPENERS", openers)
