"""versitygw: a server that speaks S3 and keeps objects as files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.request import ProxyHandler, Request, build_opener

from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from tests.contracts.s3_server import CREDENTIALS, REGION, S3Server, with_checked_conditions
from tests.contracts.servers.installed import VERSITYGW, left_out
from tests.contracts.servers.running import answers, free_port, running, shared
from tests.patience import PATIENCE_S


@dataclass(frozen=True)
class VersityServer(S3Server):
    """A server that runs. It wants requests to be signed."""

    def request(self, method: str, path: str) -> bytes:
        """Send a signed request."""
        asked = AWSRequest(method, f"{self.endpoint}/{path}")
        S3SigV4Auth(Credentials(*CREDENTIALS.values()), "s3", REGION).add_auth(asked)
        request = Request(asked.url, method=method, headers=dict(asked.headers))
        with build_opener(ProxyHandler({})).open(request, timeout=PATIENCE_S) as reply:
            return reply.read()


def shared_versitygw(config, tmp_path_factory) -> VersityServer:
    """Return this process' server, the same for all tests of a run."""
    program = VERSITYGW.require()
    folder = tmp_path_factory.mktemp("versitygw")
    if not takes_attributes(folder):
        left_out("versitygw", f"files cannot have attributes in {folder.parent}; set TMPDIR")
    server = shared(config, "versitygw", lambda: running_versitygw(program, folder))
    return with_checked_conditions(server)


def takes_attributes(folder: Path) -> bool:
    """Tell whether files may have attributes, as on most file systems; tmpfs once had none."""
    if hasattr(os, "setxattr"):
        try:
            os.setxattr(folder, "user.tried", b"")
        except OSError:
            return False
    return True


@contextmanager
def running_versitygw(program: Path, folder: Path) -> Iterator[VersityServer]:
    """Start a server whose objects are in a folder, and kill it in the end."""
    objects = folder / "objects"
    objects.mkdir()
    address = f"127.0.0.1:{free_port()}"
    command = [program, address, objects, *CREDENTIALS.values(), REGION]
    url = f"http://{address}"
    with running(command, lambda: answers(f"{url}/health"), folder / "server.log"):
        yield VersityServer(url)
