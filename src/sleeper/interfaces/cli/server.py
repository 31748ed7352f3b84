"""`sleeper server`: serves an instance by REST, and keeps the tokens of those who may use it."""

from __future__ import annotations

import logging
from datetime import timedelta
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import click

from sleeper.errors import BadRequest, MissingExtra
from sleeper.instance.instance import connect, current_time, new_secret
from sleeper.interfaces.cli.options import host_and_port, instance_option, json_option
from sleeper.interfaces.cli.present import print_grid, print_json, say
from sleeper.interfaces.cli.stderr import LogOutput
from sleeper.interfaces.rest.tokens import Role, TokenFile

_log = logging.getLogger(__name__)

_OF_PAGES = ("jinja2", "python_multipart")

tokens_option = click.option(
    "--tokens",
    "tokens_file",
    required=True,
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="The file of tokens.",
)
_existing = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.group()
def server() -> None:
    """Serve an instance by REST, and make the tokens of those who may use it.

    \b
    Example:
        sleeper server start --listen 127.0.0.1:8750
    """


@server.command()
@click.option(
    "--listen",
    default="127.0.0.1:8750",
    show_default=True,
    metavar="HOST:PORT",
    help="Where to listen; port 0 for any that is free.",
)
@click.option("--tokens", "tokens_file", type=_existing, help="Who may do what; see token add.")
@click.option("--certificate", type=_existing, help="Serve by TLS, with this certificate (PEM).")
@click.option("--key", type=_existing, help="The certificate's key (PEM).")
@click.option(
    "--input-folder",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Jobs may name files of this folder; without it, files in buckets only.",
)
@click.option(
    "--requests", type=click.IntRange(min=1), default=64, show_default=True, help="At once."
)
@click.option(
    "--question-mb",
    type=click.IntRange(min=1),
    default=16,
    show_default=True,
    help="Longest question (keys, regions) in JSON.",
)
@click.option(
    "--upload-mb",
    type=click.IntRange(min=1),
    default=4096,
    show_default=True,
    help="Largest upload of rows.",
)
@click.option(
    "--statement-mb",
    type=click.IntRange(min=64),
    default=1024,
    show_default=True,
    help="Memory of one statement in SQL; 8 run at once.",
)
@click.option(
    "--time",
    "time_s",
    type=click.IntRange(min=1),
    default=600,
    show_default=True,
    metavar="SECONDS",
    help="Longest request.",
)
@instance_option
@click.pass_obj
def start(
    log_output: LogOutput,
    *,
    listen: str,
    tokens_file: Path | None,
    certificate: Path | None,
    key: Path | None,
    input_folder: Path | None,
    requests: int,
    question_mb: int,
    upload_mb: int,
    statement_mb: int,
    time_s: int,
    instance: str,
) -> None:
    """Serve an instance by REST, and a web page of it at /page, until it is stopped.

    Without --tokens it listens at a loopback address alone, and everybody on this
    machine may do everything. docs/reference/rest.md describes the routes, and so
    does /sleeper/openapi.json. Ctrl-C or SIGTERM stops it; requests under way
    have 20 seconds to end. It runs no jobs: sleeper serve does.

    \b
    Examples:
        sleeper server start
        sleeper server start --listen 0.0.0.0:8750 --tokens tokens.json \\
            --certificate server.pem --key server.key
    """
    for needed in ("fastapi", "uvicorn"):
        if find_spec(needed) is None:
            raise MissingExtra(
                f"the REST server needs {needed}, which is not installed: "
                "pip install 'sleeper-store[server]'"
            )
    rest = "sleeper.interfaces.rest"
    run, limits = import_module(f"{rest}.server"), import_module(f"{rest}.request_limits")
    host, port = host_and_port(listen, "--listen")
    listening = run.Listening(host=host, port=port, certificate=certificate, key=key)
    log_output.serve()
    opened = connect(instance)
    tokens = None if tokens_file is None else TokenFile(tokens_file, opened.now)
    if tokens is not None and not tokens.tokens():
        raise BadRequest(f"{str(tokens_file)!r} has no tokens: add one by sleeper server token add")
    listening.check(with_tokens=tokens is not None)
    allowed = limits.RequestLimits(
        requests=requests,
        body_bytes=question_mb << 20,
        upload_bytes=upload_mb << 20,
        time_s=float(time_s),
    )
    app = import_module(f"{rest}.app").make_app(
        opened,
        tokens=tokens,
        limits=allowed,
        input_folder=input_folder,
        statement_bytes=statement_mb << 20,
    )
    if all(find_spec(needed) for needed in _OF_PAGES):
        import_module("sleeper.interfaces.page.mount").add_pages(app)
    else:
        _log.warning("no web page is served: it needs %s", " and ".join(_OF_PAGES))
    with opened:
        run.run_server(app, listening, allowed)


@server.group()
def token() -> None:
    """Add, list and remove tokens.

    \b
    Example:
        sleeper server token list --tokens tokens.json
    """


@token.command()
@click.argument("name")
@click.option(
    "--role",
    type=click.Choice([role.text for role in Role]),
    required=True,
    help="What its bearer may do.",
)
@click.option(
    "--days", type=click.IntRange(min=1), help="It expires after so many days; never without."
)
@tokens_option
def add(name: str, role: str, days: int | None, tokens_file: Path) -> None:
    """Make a token, called NAME in lists, and print it. It cannot be shown again.

    read: queries and reports. write: also ingest and jobs. admin: also tables,
    properties and maintenance. The file keeps a hash of it; nobody else may read
    it. Servers that use it accept the token at once.

    \b
    Example:
        sleeper server token add dashboard --role read --days 90 --tokens tokens.json
    """
    now = current_time()
    made = TokenFile(tokens_file, current_time).add(
        name,
        Role.of(role),
        expires=None if days is None else now + timedelta(days=days),
        new_secret=new_secret,
        token_id=new_secret()[:8],
    )
    say(made)


@token.command("list")
@tokens_option
@json_option
def list_tokens(tokens_file: Path, as_json: bool) -> None:
    """List what tokens are for, what they allow and when they expire.

    \b
    Example:
        sleeper server token list --tokens tokens.json
    """
    found = TokenFile(tokens_file, current_time).tokens()
    shown = [
        {"name": t.name, "role": t.role.text, "made": t.made, "expires": t.expires} for t in found
    ]
    if as_json:
        print_json(shown)
        return
    print_grid(
        ["name", "role", "made", "expires"],
        [[t["name"], t["role"], t["made"], t["expires"] or "never"] for t in shown],
    )


@token.command()
@click.argument("name")
@tokens_option
def remove(name: str, tokens_file: Path) -> None:
    """Remove the token called NAME. Servers refuse it at once.

    \b
    Example:
        sleeper server token remove dashboard --tokens tokens.json
    """
    TokenFile(tokens_file, current_time).remove(name)
    say(f"removed token {name}")
