"""How often workers of each kind renew the leases of their messages."""

from __future__ import annotations

import pytest

from sleeper.model.jobs.settings import queue_settings
from sleeper.model.known_properties.typed import InstanceProperties
from sleeper.workers.open_worker import WORKER_KINDS, queues_of, with_handling
from sleeper.workers.worker import WorkerSettings


@pytest.mark.parametrize("kind", [kind for kind in WORKER_KINDS if kind != "commit"])
@pytest.mark.parametrize("visibility_s", ["900", "60"])
def test_a_lease_is_renewed_before_it_ends(kind, visibility_s):
    """Else the message of a long job is delivered again while the job runs."""
    properties = InstanceProperties(
        {"sleeper.ingest.queue.visibility.timeout.seconds": visibility_s}
    )

    for name in queues_of(kind):
        settings = with_handling(WorkerSettings(jobs_max=3), properties, name)

        assert settings.keepalive_s < queue_settings(properties, name).visibility_s
        assert settings.jobs_max == 3
