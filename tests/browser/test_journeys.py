"""The web page in a real browser: what people do with it, wide and narrow, in light and dark."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.csv as pc
import pytest
from axe_core_python.sync_playwright import Axe
from playwright.sync_api import Page, expect, sync_playwright

import sleeper
from sleeper.instance.instance import new_secret
from sleeper.interfaces.rest.tokens import Role, TokenFile
from tests.browser.chromium import require_chromium
from tools.screenshots import served, weather_instance

WINDOWS = {
    "wide, light": {"viewport": {"width": 1200, "height": 800}, "color_scheme": "light"},
    "phone, dark": {"viewport": {"width": 360, "height": 740}, "color_scheme": "dark"},
}
TABLE = "/page/tables/readings"
PAGES = {
    "instance": "/page",
    "table": TABLE,
    "question": f"{TABLE}/rows?by=range",
    "rows": f"{TABLE}/rows?by=key&key0=S300&ask=1",
    "sql": f"{TABLE}/rows?by=sql&ask=1&sql=SELECT+*+FROM+stations",
    "failure": f"{TABLE}/rows?by=sql&ask=1&sql=DROP+TABLE+stations",
    "properties": f"{TABLE}/properties",
    "history": f"{TABLE}/history",
    "maintenance": f"{TABLE}/maintenance?look=orphans",
    "rest": "/page/rest",
    "first rows": f"{TABLE}/rows",
    "deletion": f"{TABLE}/delete?by=keys",
    "jobs": "/page/jobs?live=no",
    "dead letters": "/page/dead-letters",
    "nothing": "/page/nothing",
}


@pytest.fixture(scope="module")
def browser():
    """One Chromium for all tests here."""
    path = require_chromium()
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def shared():
    """A server without tokens, for tests that only look."""
    with served(weather_instance()) as url:
        yield url


@pytest.fixture
def instance():
    """An instance that a test may change."""
    return weather_instance()


@pytest.fixture(params=[*WINDOWS.values()], ids=[*WINDOWS])
def window(browser, request):
    """A window of each kind; what it writes to its console is a failure."""
    context = browser.new_context(**request.param)
    page = context.new_page()
    page.set_default_timeout(15_000)
    troubles: list[str] = []
    page.on("console", lambda m: troubles.append(m.text) if m.type == "error" else None)
    page.on("pageerror", lambda error: troubles.append(str(error)))
    yield page
    context.close()
    told = (
        "htmx:sendAbort",
        "htmx:afterRequest",
        "server responded with a status of",
        "Response Status Error Code 40",
    )
    assert [each for each in troubles if not any(words in each for words in told)] == []


def sideways(page: Page) -> int:
    """By how many pixels the page is wider than its window."""
    return page.evaluate("document.documentElement.scrollWidth - window.innerWidth")


@pytest.mark.parametrize("path", [*PAGES.values()], ids=[*PAGES])
def test_every_page_is_accessible_and_fits_its_window(window, shared, path):
    """axe finds nothing serious, and nothing but grids of rows scrolls sideways."""
    window.goto(shared + path)

    found = Axe().run(window)["violations"]

    serious = [each for each in found if each["impact"] in ("serious", "critical")]
    assert [(each["id"], each["nodes"][0]["html"]) for each in serious] == []
    assert sideways(window) <= 0


def test_words_beside_a_long_type_stay_whole(window):
    """Given a struct of many parts, then the role of its field is on one line at each width."""
    kind = pa.struct([(f"a_long_name_{n}", pa.string()) for n in range(6)])
    opened = sleeper.connect("memory://")
    opened.create_table("t", pa.schema([("id", pa.int64()), ("user", kind)]), row_keys=["id"])

    with served(opened) as url:
        window.goto(f"{url}/page/tables/t")
        role = window.get_by_role("cell", name="value", exact=True)
        lines = role.evaluate(
            "cell => { const all = document.createRange(); all.selectNodeContents(cell); "
            "return all.getClientRects().length; }"
        )

    assert lines == 1


def test_somebody_looks_at_an_instance_and_finds_a_key(window, shared, tmp_path):
    """From the list of tables to a row and to a file with it, by what is written on the page."""
    window.goto(shared)
    expect(window).to_have_title("weather - Sleeper")

    window.get_by_role("link", name="readings", exact=True).click()
    tree = window.get_by_role("img", name=re.compile("Partition tree")).locator("visible=true")
    expect(tree).to_have_count(1)
    window.get_by_role("link", name="Rows", exact=True).click()
    window.get_by_label("station").fill("S300")
    window.get_by_role("button", name="Show rows").click()
    expect(window.get_by_role("cell", name="S300").first).to_be_visible()
    with window.expect_download() as waiting:
        window.get_by_role("link", name="CSV").click()

    waiting.value.save_as(tmp_path / "rows.csv")
    assert waiting.value.suggested_filename == "readings.csv"
    assert set(pc.read_csv(tmp_path / "rows.csv")["station"].to_pylist()) == {"S300"}
    assert "key0=S300" in window.url


def test_somebody_asks_in_sql_and_is_told_what_is_wrong(window, shared):
    """A mistake is told beside the statement, which stays; the next one has rows."""
    window.goto(f"{shared}{TABLE}/rows?by=sql")

    window.get_by_label("SQL").fill("SELECT statoin FROM readings")
    window.get_by_role("button", name="Show rows").click()
    expect(window.get_by_role("alert")).to_contain_text("station")
    window.get_by_label("SQL").fill("SELECT count(*) AS n FROM readings")
    window.get_by_role("button", name="Show rows").click()

    expect(window.get_by_role("cell", name="21600")).to_be_visible()


def test_a_question_that_takes_long_shows_its_time_and_is_cancelled(window, shared):
    """Given a server that is still at work, the page shows for how long, and Cancel breaks the
    request off: the server kills a statement whose client left. The next question is answered.
    """
    window.goto(f"{shared}{TABLE}/rows?by=sql")
    broken_off = []
    window.on("requestfailed", lambda request: broken_off.append(request.failure))
    window.route("**/rows?*ask=1*", lambda _: None)  # no answer comes
    cancel = window.get_by_role("button", name="Cancel")
    expect(cancel).to_be_hidden()

    window.get_by_role("button", name="Show rows").click()
    expect(window.get_by_role("timer")).to_have_text(re.compile(r"^[1-9]\d*\.\d s$"))
    cancel.click()

    expect(window.get_by_text(re.compile(r"^Cancelled after [1-9]"))).to_be_visible()
    expect(cancel).to_be_hidden()
    assert broken_off == ["net::ERR_ABORTED"]
    window.unroute("**/rows?*ask=1*")
    window.get_by_label("SQL").fill("SELECT count(*) AS n FROM readings")
    window.get_by_role("button", name="Show rows").click()
    expect(window.get_by_role("cell", name="21600")).to_be_visible()


def test_somebody_changes_a_property(window, instance):
    """A wrong value is refused beside its field; a right one is in force."""
    name = "sleeper.table.gc.delay.minutes"
    with served(instance) as url:
        window.goto(f"{url}{TABLE}/properties")
        window.get_by_label("Find a property").fill("gc.delay")
        expect(window.locator(".property")).to_have_count(1)

        window.get_by_label(name).first.fill("soon")
        window.get_by_role("button", name=f"Save {name}").click()
        expect(window.get_by_role("alert")).to_contain_text("it must be")
        window.get_by_label(name).first.fill("30")
        window.get_by_role("button", name=f"Save {name}").click()

        expect(window.get_by_role("status")).to_have_text("The property was saved.")
        expect(window.get_by_label(name).first).to_have_value("30")
    assert instance.table("readings").properties.gc.delay_minutes == 30


def test_somebody_deletes_rows_by_a_condition_after_a_look(window, instance):
    """What would go is shown first, and Delete nothing leads back; then it goes, with a reason."""
    table = instance.table("readings")
    with served(instance) as url:
        window.goto(f"{url}{TABLE}/rows")
        window.get_by_role("link", name="Delete rows").click()
        window.get_by_role("link", name="Condition").click()
        window.get_by_label("Condition").fill("celsius <")
        window.get_by_role("button", name="Show what would go").click()
        expect(window.get_by_role("alert")).to_contain_text("celsius <")
        expect(window.get_by_label("Condition")).to_have_value("celsius <")

        window.get_by_label("Condition").fill("station = 'S300' AND celsius IS NOT NULL")
        window.get_by_role("button", name="Show what would go").click()
        count = table.count(where="station = 'S300' AND celsius IS NOT NULL")
        expect(window.get_by_role("heading", name=f"Delete {count} rows?")).to_be_visible()
        expect(window.get_by_role("cell", name="S300").first).to_be_visible()
        assert sideways(window) <= 0
        found = Axe().run(window)["violations"]
        assert [e["id"] for e in found if e["impact"] in ("serious", "critical")] == []
        window.get_by_role("link", name="Delete nothing").click()
        expect(window.get_by_label("Condition")).to_be_visible()
        assert table.count(key="S300") == count

        window.get_by_label("Condition").fill("station = 'S300'")
        window.get_by_role("button", name="Show what would go").click()
        window.get_by_label("Reason").fill("broken sensor")
        window.get_by_role("button", name=f"Delete {count} rows").click()
        expect(window.get_by_role("status")).to_contain_text(f"{count} rows of readings went")
    assert table.count(key="S300") == 0
    assert table.history(1)[0].reasons == ("broken sensor",)


def test_keys_are_pasted_and_deleted_without_scripts(browser, instance):
    """Given keys with blank lines between them, then their rows go, and no others."""
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    with served(instance) as url:
        page.goto(f"{url}/page/tables/stations/delete?by=keys")
        page.get_by_label("Keys").fill("S001\n\nS999\nnowhere\n")
        page.get_by_role("button", name="Show what would go").click()
        page.get_by_role("button", name="Delete 2 rows").click()
        expect(page.get_by_role("status")).to_contain_text("The rows of 3 keys and ranges")
    context.close()
    table = instance.table("stations")
    assert (table.count(), table.count(keys=["S001", "S999"])) == (998, 0)


def test_somebody_redrives_dead_letters(window, instance):
    """First one, then the others."""
    with served(instance) as url:
        window.goto(url + "/page")
        window.get_by_role("link", name="Dead letters").click()
        expect(window.locator("pre")).to_have_count(2)

        window.get_by_role("button", name=re.compile("Redrive 0")).first.click()
        expect(window.locator("pre")).to_have_count(1)
        window.get_by_role("button", name="Redrive all of ingest").click()

        expect(window.get_by_text("There is no dead letter.")).to_be_visible()
    assert instance.jobs.queue_depths()["ingest"].ready == 3


def test_jobs_come_by_themselves(browser, instance):
    """A page that is open shows a job that is sent later, without a click."""
    page = browser.new_page()
    with served(instance) as url:
        page.goto(f"{url}/page/jobs?kind=export")
        expect(page.get_by_text("No such job is known.")).to_be_visible()
        export = instance.jobs.submit_export("stations")

        expect(page.get_by_text(export)).to_be_visible(timeout=15_000)
        page.close()


def test_somebody_signs_in_with_a_wrong_and_a_right_token(window, instance, tmp_path):
    """The page that was asked for is shown after it; signing out asks again."""
    file = TokenFile(tmp_path / "tokens.json", lambda: datetime.now(UTC))
    token = file.add("desk", Role.READ, expires=None, new_secret=new_secret, token_id="0a0b0c0d")
    with served(instance, tokens=file) as url:
        window.goto(url + TABLE)
        window.get_by_label("Token").fill("sleeper_0a0b0c0d_guess")
        window.get_by_role("button", name="Sign in").click()
        expect(window.get_by_role("alert")).to_contain_text("not valid")

        window.get_by_label("Token").fill(token)
        window.keyboard.press("Enter")
        expect(window.get_by_role("heading", name="readings")).to_be_visible()
        assert window.evaluate("document.cookie") == ""
        window.get_by_role("link", name="Properties").click()
        expect(window.get_by_role("button", name=re.compile("Save"))).to_have_count(0)

        window.get_by_role("button", name="Sign out").click()
        expect(window.get_by_label("Token")).to_be_visible()


def test_everything_is_reached_by_the_keyboard(browser, shared):
    """The first tab skips to the content, and what has the focus is seen."""
    page = browser.new_page()
    page.goto(shared + "/page")

    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    focused = page.evaluate("document.activeElement.textContent")
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")

    assert focused.strip() in ("2", "readings")  # the dead letters, or the first table
    assert outline == "solid"
    page.close()


def test_pages_work_without_scripts(browser, shared):
    """htmx only saves loading the whole page."""
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(f"{shared}{TABLE}/rows")

    page.get_by_label("station").fill("S300")
    page.get_by_role("button", name="Show rows").click()

    expect(page.get_by_role("cell", name="S300").first).to_be_visible()
    context.close()


def test_a_script_in_a_page_would_not_run(browser, shared):
    """Were markup of a name ever let through, the policy of the answer stops it."""
    page = browser.new_page()
    page.goto(shared + "/page")

    page.evaluate(
        """() => { const s = document.createElement('script'); s.textContent = 'window.ran = 1';
        document.body.append(s); const i = document.createElement('img'); i.src = 'x';
        i.setAttribute('onerror', 'window.ran = 1'); document.body.append(i); }"""
    )
    page.wait_for_timeout(200)

    assert page.evaluate("window.ran") is None
    page.close()
