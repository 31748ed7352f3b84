"""Names of objects in a bucket: the key, with characters escaped that the client refuses."""

from __future__ import annotations

import re

_CONTROL = re.compile(r"[\x01-\x1f\x7f]|%(?=0[1-9A-F]|1[0-9A-F]|7F|25)")
_ESCAPED = re.compile(r"%(0[1-9A-F]|1[0-9A-F]|7F|25)")


def stored_name(key: str) -> str:
    r"""Return the name of the object of `key` in the bucket.

    Control characters become `%` and two digits. A `%` that would read like such an escape
    becomes `%25`. Other characters are unchanged.

    >>> stored_name("a b%20c\n")
    'a b%20c%0A'
    """
    return _CONTROL.sub(lambda found: f"%{ord(found[0]):02X}", key)


def key_of(name: str) -> str:
    r"""Return the key whose name in the bucket is `name`.

    >>> key_of(stored_name("%0A\n"))
    '%0A\n'
    """
    return _ESCAPED.sub(lambda found: chr(int(found[1], 16)), name)
