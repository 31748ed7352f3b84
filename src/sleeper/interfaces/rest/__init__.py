"""The REST server: tables, rows, jobs and maintenance of one instance by HTTP.

    app = make_app(instance, tokens=TokenFile(path), limits=RequestLimits())

`app.py` makes the FastAPI application, whose routes are in `routes/`, all below `/sleeper`. A route
names the role that it needs by a dependency of `authorization.py`, and reads what is served from
`served_instance`:

    @router.get("/sleeper/things/{table:segment}", dependencies=[READ])
    def list_things(table: str, request: Request) -> Response:
        opened = served_instance(request).table(table)
        return json_answer(...)

Routes are `def`, so that they run in threads. They raise the errors of `sleeper.errors`;
`problems.py` turns them into answers. Who mounts other routes on the same application, such as
HTML pages, calls `app.include_router` with the same dependencies, and answers its own errors by
`problem_of`. The dependencies accept the cookie `sleeper_token` too; a request that changes
something by it must come from a page of this server (`Origin`), which is checked for all requests.
"""
