"""An object store that speaks TLS with a certificate of a private authority."""

from __future__ import annotations

import shutil
import subprocess

import pyarrow as pa
import pytest

import sleeper
from sleeper.errors import StorageFailed
from tests.contracts.fault_proxy import fault_proxy
from tests.contracts.s3_server import bucket, s3_credentials, s3_server

__all__ = ["bucket", "s3_credentials", "s3_server"]

MAKE = """
openssl req -x509 $KEY -nodes -keyout ca.key -out ca.pem -days 30 -subj "/CN=test authority" \
    -addext basicConstraints=critical,CA:TRUE
openssl req $KEY -nodes -keyout server.key -out server.csr -subj /CN=localhost
echo subjectAltName=IP:127.0.0.1 > names
openssl x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -out server.pem \
    -days 30 -extfile names
"""


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    """A folder with the authority's certificate, and a server's with its key."""
    if shutil.which("openssl") is None:
        pytest.skip("certificates are made by the command openssl, which is not installed")
    folder = tmp_path_factory.mktemp("certificates")
    environment = {"KEY": "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1"}
    subprocess.run(
        ["/bin/sh", "-ec", MAKE], cwd=folder, env=environment, check=True, capture_output=True
    )
    return folder


@pytest.fixture
def proxy(s3_server, certificates, s3_credentials, monkeypatch):
    """A proxy that speaks TLS, and the environment that names it."""
    pair = certificates / "server.pem", certificates / "server.key"
    with fault_proxy(s3_server.endpoint, certificate=pair) as opened:
        monkeypatch.setenv("AWS_ENDPOINT_URL", opened.endpoint)
        monkeypatch.setenv("AWS_REGION", "us-east-1")
        monkeypatch.delenv("SSL_CERT_FILE", raising=False)
        yield opened


def test_a_certificate_that_is_not_trusted_is_told_as_that(proxy, bucket):
    """The store is up: the message says what is wrong with it, and what to set."""
    with pytest.raises(StorageFailed, match=r"certificate .*UnknownIssuer.*SSL_CERT_FILE") as told:
        sleeper.connect(f"s3://{bucket}/instance")

    assert "store is up" not in str(told.value)


def test_ssl_cert_file_is_trusted_by_every_reader(proxy, bucket, certificates, monkeypatch):
    """By what reads and writes objects, and by what reads ranges of keys."""
    monkeypatch.setenv("SSL_CERT_FILE", str(certificates / "ca.pem"))

    instance = sleeper.connect(f"s3://{bucket}/instance", create=True)
    table = instance.create_table("t", pa.schema([pa.field("id", pa.int64())]), row_keys=["id"])
    table.ingest([{"id": n} for n in range(10)])

    assert table.query(key=5).to_pylist() == [{"id": 5}]
    assert table.query().to_arrow().num_rows == 10


def test_aws_ca_bundle_is_trusted_too(proxy, bucket, certificates, monkeypatch, caplog):
    """But not for many rows of several files, which DataFusion reads: refused before a request."""
    monkeypatch.setenv("AWS_CA_BUNDLE", str(certificates / "ca.pem"))

    instance = sleeper.connect(f"s3://{bucket}/instance", create=True)
    table = instance.create_table("t", pa.schema([pa.field("id", pa.int64())]), row_keys=["id"])
    table.ingest([{"id": n} for n in range(10)])

    assert "set SSL_CERT_FILE" in caplog.text
    assert table.query(key=5).to_pylist() == [{"id": 5}]
    assert table.query().to_arrow().num_rows == 10
    for _ in range(2):
        table.ingest(pa.table({"id": range(10_000)}))
    with pytest.raises(StorageFailed, match=r"SSL_CERT_FILE to the file .*AWS_CA_BUNDLE"):
        table.query().to_arrow()


def test_a_bundle_and_ssl_cert_file_are_both_trusted(proxy, bucket, certificates, monkeypatch):
    """Where the two name different files, ranges of keys go by SSL_CERT_FILE."""
    shutil.copy(certificates / "ca.pem", certificates / "bundle.pem")
    monkeypatch.setenv("AWS_CA_BUNDLE", str(certificates / "bundle.pem"))
    monkeypatch.setenv("SSL_CERT_FILE", str(certificates / "ca.pem"))

    instance = sleeper.connect(f"s3://{bucket}/instance", create=True)
    table = instance.create_table("t", pa.schema([pa.field("id", pa.int64())]), row_keys=["id"])
    table.ingest([{"id": n} for n in range(10)])

    assert table.query().to_arrow().num_rows == 10


def test_a_bundle_that_cannot_be_read_is_named(proxy, bucket, tmp_path, monkeypatch):
    """With the variables that may name it."""
    monkeypatch.setenv("AWS_CA_BUNDLE", str(tmp_path / "none.pem"))

    with pytest.raises(StorageFailed, match=r"none\.pem.*AWS_CA_BUNDLE"):
        sleeper.connect(f"s3://{bucket}/instance")


def test_a_server_without_tls_is_told_as_that(s3_server, bucket, monkeypatch):
    """An endpoint that says https:// by mistake."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_server.endpoint.replace("http:", "https:"))

    with pytest.raises(StorageFailed, match="does not speak TLS"):
        sleeper.connect(f"s3://{bucket}/instance")
