"""Keys in a bucket: as they are, but for what its client refuses."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sleeper.storage.objectstore.objects import key_of, stored_name

KEYS = st.text(st.sampled_from("%0125AF7af\n\x7f\x01é /"), max_size=12)


@given(key=KEYS)
def test_a_key_comes_back_from_its_name(key):
    """Whatever the key looks like, even like the name of another."""
    assert key_of(stored_name(key)) == key


@given(key=KEYS)
def test_a_name_holds_no_control_characters(key):
    """obstore refuses them."""
    assert not any(character in stored_name(key) for character in "\n\x7f\x01")


def test_most_keys_are_their_own_names():
    """Spaces, signs and escapes of others' included: other tools find what they look for."""
    for key in ("a b/c%20d&e#f?g", "é/雪🏔", "100%", "back\\slash", "50%2B"):
        assert stored_name(key) == key
