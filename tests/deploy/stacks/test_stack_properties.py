"""The list of properties that stacks are made from is kept by hand: this compares it with what they read."""

from __future__ import annotations

from dataclasses import fields, is_dataclass

from sleeper.deploy.stack_properties import STACK_PROPERTIES
from sleeper.deploy.stacks.app import synthesise
from sleeper.model.known_properties.typed import InstanceProperties
from sleeper.model.stacks import OPTIONAL_STACKS
from tests.deploy.stacks.conftest import settings_of

BESIDE = {"sleeper.retain.infra.after.destroy", "sleeper.jobs.called.queues"}
"""`sleeper destroy` reads the first, which needs no deployment before; stacks write the second."""


def note_reads(properties, monkeypatch):
    """Have each read of a property noted: return the set that its full name is put into."""
    seen: set[str] = set()
    groups = {
        type(group)
        for name in dir(InstanceProperties)
        if not name.startswith("_") and is_dataclass(group := getattr(properties, name))
    }
    for group in groups:
        names = {each.name: each.metadata["property"].name for each in fields(group)}

        def noted(self, name, names=names):
            if name in names:
                seen.add(names[name])
            return object.__getattribute__(self, name)

        monkeypatch.setattr(group, "__getattribute__", noted)
    text = InstanceProperties.text

    def noted_text(self, name):
        seen.add(name)
        return text(self, name)

    monkeypatch.setattr(InstanceProperties, "text", noted_text)
    return seen


def test_each_property_that_stacks_read_is_one_that_needs_a_deployment(tmp_path, monkeypatch):
    """Given all stacks, when their templates are made, then all that is read is in the list."""
    settings = settings_of({"sleeper.optional.stacks": ",".join(OPTIONAL_STACKS)})
    seen = note_reads(settings.properties, monkeypatch)

    synthesise(settings, tmp_path)

    assert len(seen) > 100
    assert seen - STACK_PROPERTIES == BESIDE
