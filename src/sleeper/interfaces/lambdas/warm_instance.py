"""The instance of this process, kept for the calls that Lambda makes next, and their time limit."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Mapping
from typing import Final, Protocol

from sleeper.errors import BadRequest
from sleeper.instance.instance import Instance, connect, process_environment
from sleeper.workers.instance_changes import CurrentInstance
from sleeper.workers.stop_signal import StopSignal

URL: Final = "SLEEPER_INSTANCE"
"""The variable of the environment that names the instance, such as `aws://demo`."""

_OPEN_MAX = 4
_LOOK_S = 60.0
_RESERVE_S = 10.0
_open: OrderedDict[str, CurrentInstance] = OrderedDict()


def warm_instance() -> Instance:
    """Return the instance that SLEEPER_INSTANCE names, with the newest properties.

    It is opened at the first call of a process. From then on changed properties are looked for
    once a minute at most, and not while nobody calls.

    Raises:
        BadRequest: the environment names none.
        InstanceNotFound, StorageFailed: it cannot be opened.
    """
    logging.getLogger("sleeper").setLevel(logging.INFO)
    url = needed(process_environment(), URL)
    current = _open.get(url)
    if current is None:
        current = CurrentInstance(connect(url), lambda: connect(url), every_s=_LOOK_S)
        _open[url] = current
        if len(_open) > _OPEN_MAX:
            _open.popitem(last=False)
    else:
        _open.move_to_end(url)
        current.look(with_jobs=True)
    return current()


def needed(environment: Mapping[str, str], name: str) -> str:
    """Return a variable of the environment.

    Raises:
        BadRequest: it is missing or empty.
    """
    value = environment.get(name, "").strip()
    if not value:
        raise BadRequest(f"{name} is not set in the environment of this function: set it")
    return value


class LambdaContext(Protocol):
    """What Lambda passes to a function beside the event, as far as it is used."""

    def get_remaining_time_in_millis(self) -> int:
        """Return for how long the call may still run."""
        ...


class TimeLimit(StopSignal):
    """Is set when the time of a call is almost over, and says what may still be begun in it.

    Ten seconds are kept for giving back what is not done; of a short call, a quarter.

    Args:
        context: What Lambda passes.
    """

    def __init__(self, context: LambdaContext) -> None:
        self._context = context
        self._whole_s = self._call_left_s()
        reserve_s = min(_RESERVE_S, self._whole_s / 4)
        super().__init__(lambda: self._call_left_s() - reserve_s)

    def may_begin(self) -> bool:
        """Return whether another message may be begun: half of the time is left for it."""
        return self._call_left_s() > self._whole_s / 2

    def _call_left_s(self) -> float:
        return self._context.get_remaining_time_in_millis() / 1000
