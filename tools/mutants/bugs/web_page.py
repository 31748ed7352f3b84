"""Bugs in the web page, and in the HTML and SVG of notebooks."""

from __future__ import annotations

from ..bug import Bug

_PAGES = "tests/unit/interfaces/page/test_pages.py"
_VIEWS = "tests/unit/html/test_values.py"
_PICTURES = "tests/unit/pictures/test_pictures.py"
_VISITS = "interfaces/page/visits.py"
_SIGN_IN = "interfaces/page/routes/sign_in.py"

DELETION = ("tests/unit/interfaces/page/test_deletion.py",)

BUGS = (
    Bug(
        name="rows-go-unseen",
        breaks="The form that asks what would go deletes the rows.",
        module="interfaces/page/routes/deletion.py",
        right='if given.get("sure") != "yes":',
        wrong='if given.get("sure") == "no":',
        tests=DELETION,
    ),
    Bug(
        name="deletions-by-forms-of-others",
        breaks="A page of another site that knows a browser's cookie is there deletes rows.",
        module="interfaces/page/visits.py",
        right='    check_proof(request, proof if isinstance(proof, str) else "")\n',
        wrong="",
        tests=DELETION,
    ),
    Bug(
        name="deletions-of-the-page-twice",
        breaks="A form that is sent again deletes what was added since.",
        module="interfaces/page/routes/deletion.py",
        right='job_id=given.get("job_id") or None',
        wrong="job_id=None",
        tests=DELETION,
    ),
    Bug(
        name="markup-of-names-runs",
        breaks="A name or value that is HTML becomes part of a page.",
        module="html/markup.py",
        right='    return Markup(escape(_NOT_XML.sub("\\ufffd", str(value)), quote=True))',
        wrong="    return Markup(str(value))",
        tests=(_VIEWS, "-k", "names_with_markup"),
    ),
    Bug(
        name="pages-do-not-escape",
        breaks="Templates write values as they are.",
        module="interfaces/page/rendering.py",
        right="    autoescape=True,",
        wrong="    autoescape=False,",
        tests=(_PAGES, "-k", "names_keys_and_values"),
    ),
    Bug(
        name="a-shown-stream-lacks-its-first-rows",
        breaks="Rows that a notebook showed are missing when they are read.",
        module="engine/rows.py",
        right="        self._batches = _rejoined(read, batches)",
        wrong="        self._batches = batches",
        tests=(_VIEWS, "-k", "peeking or can_still_be_read"),
    ),
    Bug(
        name="forms-without-proof",
        breaks="A form that does not come from a page of this visitor is carried out.",
        module=_VISITS,
        right="    if not hmac.compare_digest(proof.encode(), form_proof(request).encode()):",
        wrong="    if False:",
        tests=(_PAGES, "-k", "proof"),
    ),
    Bug(
        name="one-proof-for-all-visitors",
        breaks="The proof of one visitor is accepted from another.",
        module=_VISITS,
        right="    return hmac.new(secret.encode(), cookie.encode(), sha256).hexdigest()",
        wrong='    return hmac.new(secret.encode(), b"", sha256).hexdigest()',
        tests=(_PAGES, "-k", "proof_of_another"),
    ),
    Bug(
        name="sign-in-leads-elsewhere",
        breaks="An address leads from the sign-in to a page of another server.",
        module=_SIGN_IN,
        right='    plain = after.startswith("/page") and',
        wrong="    plain = True or",
        tests=(_PAGES, "-k", "after_the_sign_in"),
    ),
    Bug(
        name="scripts-read-the-token",
        breaks="The cookie with the token is readable by scripts.",
        module=_SIGN_IN,
        right='        httponly=True,\n        samesite="strict",\n        secure',
        wrong='        httponly=False,\n        samesite="strict",\n        secure',
        tests=(_PAGES, "-k", "kept_in_a_cookie"),
    ),
    Bug(
        name="every-leaf-is-a-box",
        breaks="The picture of a large tree has a box for each leaf.",
        module="pictures/tree.py",
        right="        is_merged = not partition.is_leaf and (here",
        wrong="        is_merged = False and (here",
        tests=(_PICTURES, "-k", "any_tree_is_small"),
    ),
)
