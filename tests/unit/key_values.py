"""Any values of each type of key, for hypothesis."""

from __future__ import annotations

from datetime import UTC

from hypothesis import strategies as st

from sleeper.model.schema import Primitive

KEY_VALUES = {
    Primitive.INT: st.integers(-(2**31), 2**31 - 1),
    Primitive.LONG: st.integers(-(2**63), 2**63 - 1),
    Primitive.STRING: st.text(st.characters(exclude_categories=["Cs"])),
    Primitive.BYTES: st.binary(),
    Primitive.DATE: st.dates(),
    Primitive.TIMESTAMP: st.datetimes(timezones=st.just(UTC)),
    Primitive.TIMESTAMP_NTZ: st.datetimes(),
}
