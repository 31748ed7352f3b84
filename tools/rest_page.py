"""docs/reference/rest.md: the routes of the REST server, from the description that it gives."""

from __future__ import annotations

import json
from typing import Any

import sleeper
from sleeper.interfaces.rest.app import make_app
from sleeper.interfaces.rest.authorization import ROLE
from sleeper.interfaces.rest.problems import STATUSES

INTRODUCTION = """\
# REST

`sleeper server start` serves an instance by HTTP/1.1; [Share a table by REST](../guide/rest.md)
shows how. A running server describes itself at `/sleeper/openapi.json` (OpenAPI 3.1).

- **Names** in paths are percent-encoded, a slash as `%2F`: `/sleeper/tables/my%2Ftable`.
- **Values** in JSON are those of `sleeper query --json`: bytes in base64, dates and timestamps in
  ISO 8601, decimals as text. Keys in requests have the same form.
- **Rows** are answered as the header `Accept` says, or `format` in the body: `application/json`
  (one document, at most 10,000 rows), or a stream of `application/jsonl`,
  `application/vnd.apache.arrow.stream`, `application/vnd.apache.parquet` or `text/csv`. A stream
  that fails is broken off: the last chunk of HTTP and the end of the Arrow stream are missing.
- **Tokens** are sent as `Authorization: Bearer TOKEN`. A role may do what smaller ones may: read,
  write, admin. A server without tokens is reached from its own machine alone, and asks for none.
- **Limits**: 64 requests at once, 16 MiB of JSON in a question (keys, regions, SQL) and 4 MiB in
  other bodies, 10,000 members in their other lists and objects, 4 GiB of rows in one upload, 600
  seconds, and 30 seconds in which a client sends nothing. SQL, `where` of queries, and questions of
  more than 64 KiB run in processes of their own, 8 at once, with 1,024 MB of memory each; what
  needs more is refused with 400 `QueryInvalid`.
  `sleeper server start --help` says how to change them.
- **Jobs** name files in the instance's own bucket, in those of `sleeper.ingest.source.bucket`, or
  at the places of `sleeper.jobs.input.places`, if that is set. Files of the server's machine are
  refused, but for those of its `--input-folder`; links that lead out of it are not followed.

## Errors

An error is a problem document (RFC 9457, `application/problem+json`):

```json
{
  "type": "about:blank",
  "title": "Not Found",
  "status": 404,
  "detail": "no table 'flight'; did you mean 'flights'?",
  "class": "TableNotFound",
  "retryable": false,
  "error": "not_found",
  "message": "no table 'flight'; did you mean 'flights'?"
}
```

`class` is a class of `sleeper.errors`, which the Python client raises. If `retryable` is true, the
same request may succeed later. `error` and `message` are what upstream's API answers;
`attributes`, where they are, those of the class.

"""


def rest_page() -> str:
    """Every route: what it does, its role, parameters, body and answer."""
    with sleeper.connect("memory://") as instance:
        document = make_app(instance).openapi()
    text = f"{INTRODUCTION}| class | status |\n|---|---|\n"
    for kind, status in STATUSES.items():
        text += f"| `{kind.__name__}` | {status.value} {status.phrase} |\n"
    text += "\nA class that is not listed has the status of its base class. `AccessRefused` has\n"
    text += "403 where a token is valid and its role too small.\n"
    routes = [
        (method.upper(), path, route)
        for path, by_method in document["paths"].items()
        for method, route in by_method.items()
    ]
    for tag in dict.fromkeys(route["tags"][0] for _, _, route in routes):
        text += f"\n## {tag.capitalize()}\n"
        for method, path, route in routes:
            if route["tags"][0] == tag:
                text += route_text(method, path, route, document["components"]["schemas"])
    return text


def route_text(method: str, path: str, route: dict[str, Any], schemas: dict[str, Any]) -> str:
    """One route."""
    text = f"\n### {method} {path}\n\n{route['description']}\n\n"
    role = route.get(ROLE)
    text += f"Role: {role}.\n" if role else "Needs no token.\n"
    parameters = [each for each in route.get("parameters", []) if each["in"] != "path"]
    if parameters:
        text += "\n| parameter | in | type | default | meaning |\n|---|---|---|---|---|\n"
        for each in parameters:
            schema = each["schema"]
            default = cell_code(schema.get("default"))
            meaning = cell(each.get("description", schema.get("description", "")))
            name = f"`{each['name']}`"
            text += f"| {name} | {each['in']} | {type_text(schema)} | {default} | {meaning} |\n"
    content = route.get("requestBody", {}).get("content", {})
    for media_type, body in content.items():
        if "$ref" in body["schema"]:
            text += body_text(schemas[body["schema"]["$ref"].rpartition("/")[2]])
        else:
            text += f"\nBody: `{media_type}`.\n"
    return text + answer_text(route["responses"])


def body_text(schema: dict[str, Any]) -> str:
    """The fields of a JSON body."""
    text = "\n| body | type | meaning |\n|---|---|---|\n"
    needed = schema.get("required", [])
    for name, each in schema["properties"].items():
        meaning = cell(each.get("description", ""))
        examples = each.get("examples", [])
        shown = f" Such as {cell_code(examples[0])}." if examples else ""
        mark = " *Needed.*" if name in needed else ""
        text += f"| `{name}` | {type_text(each)} | {meaning}{shown}{mark} |\n"
    return text


def answer_text(responses: dict[str, Any]) -> str:
    """An example of the answer, if the route has one."""
    for status, answer in responses.items():
        example = answer.get("content", {}).get("application/json", {}).get("example")
        if example is not None:
            shown = json.dumps(example, indent=2)
            return f"\nAnswer, {status}:\n\n```json\n{shown}\n```\n"
    return ""


def type_text(schema: dict[str, Any]) -> str:
    """The type of a value, in words."""
    if "anyOf" in schema:
        return " or ".join(type_text(each) for each in schema["anyOf"])
    if "enum" in schema:
        return ", ".join(f"`{each}`" for each in schema["enum"])
    if "$ref" in schema:
        return f"`{schema['$ref'].rpartition('/')[2]}`"
    if schema.get("type") == "array":
        return f"list of {type_text(schema['items'])}"
    return str(schema.get("type", "any"))


def cell(text: str) -> str:
    """Text that fits into one cell of a Markdown table."""
    return " ".join(text.split()).replace("|", "\\|")


def cell_code(value: object) -> str:
    """A JSON value as code in a cell."""
    return "" if value is None else f"`{cell(json.dumps(value))}`"
