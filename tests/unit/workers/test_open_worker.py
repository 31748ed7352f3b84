"""Every queue has a kind of worker that takes its messages, and renews their leases in time."""

from __future__ import annotations

import pytest

from sleeper.model.jobs.kinds import KIND_NAMES, kind_of
from sleeper.model.jobs.settings import queue_settings
from sleeper.model.known_properties.typed import InstanceProperties
from sleeper.workers.open_worker import with_handling
from sleeper.workers.worker import WorkerSettings


@pytest.mark.parametrize("kind", [kind for kind in KIND_NAMES if kind != "commit"])
@pytest.mark.parametrize("visibility_s", ["900", "60"])
def test_a_lease_is_renewed_before_it_ends(kind, visibility_s):
    """Else the message of a long job is delivered again while the job runs."""
    properties = InstanceProperties(
        {"sleeper.ingest.queue.visibility.timeout.seconds": visibility_s}
    )

    for name in kind_of(kind).queue_names:
        settings = with_handling(WorkerSettings(jobs_max=3), properties, name)

        assert settings.keepalive_s < queue_settings(properties, name).visibility_s
        assert settings.jobs_max == 3
