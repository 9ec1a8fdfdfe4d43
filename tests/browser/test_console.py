"""The console in a real browser, over both transports: what it shows is what the log has."""

import re

import pytest

from tests.browser.console import Console, Transport
from tests.browser.kit import BrowserContext, Page, expect
from tests.browser.processes import Api, ServerProcess
from tests.browser.proxy import open_proxy
from tests.browser.puppet import Stage

HOSTILE = (
    "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\"> "
    "[click](javascript:document.title='owned') **<b>bold</b>** `<i>code</i>`"
)

over_both = pytest.mark.parametrize("transport", ["Event stream", "WebSocket"])


@pytest.fixture
def console(page: Page) -> Console:
    return Console(page)


@over_both
async def test_a_first_visit_sends_and_sees_the_answer_grow(
    console: Console, open_server: ServerProcess, stage: Stage, transport: Transport
) -> None:
    await console.visit(open_server.url, transport=transport)
    await console.send("What is a log?")
    turn = await stage.turn()
    assert turn.prompt == "What is a log?"
    await turn.text("A log is ")
    await expect(console.answers).to_have_text("A log is")
    await expect(console.stop_button).to_be_visible()
    await expect(console.connection).to_have_text("Live")
    await turn.complete("**append-only**.")
    await expect(console.ending("Completed")).to_be_visible()
    await expect(console.answers.locator("strong")).to_have_text("append-only")
    await expect(console.send_button).to_be_visible()
    await expect(console.sessions.locator("[aria-current=page]")).to_contain_text("What is a log?")
    await expect(console.page.locator("#announcer")).to_have_text("A log is **append-only**.")


@over_both
async def test_a_reload_shows_everything_again(
    console: Console, open_server: ServerProcess, stage: Stage, transport: Transport
) -> None:
    await console.visit(open_server.url, transport=transport)
    await console.send("First")
    await (await stage.turn()).complete("one")
    await expect(console.ending("Completed")).to_have_count(1)
    await console.send("Second")
    turn = await stage.turn()
    await turn.text("two ")
    await expect(console.answers).to_have_text(["one", "two"])
    before = await console.shown()
    await console.page.reload()
    await expect(console.answers).to_have_text(["one", "two"])
    await console.shows(before)
    await turn.complete("and three")
    await expect(console.answers).to_have_text(["one", "two and three"])


@over_both
async def test_a_reload_in_mid_message_shows_all_its_pieces(
    console: Console, open_server: ServerProcess, stage: Stage, api: Api, transport: Transport
) -> None:
    session_id = await api.create()
    await console.visit(open_server.url, session_id, transport)
    await console.send("Go")
    turn = await stage.turn()
    await turn.text("one ")
    await turn.say("thinking", delta="Hm.")
    await turn.text("two ")  # the thought has closed, and lasts; the pieces around it do not
    await expect(console.answers).to_have_text("one two")
    await console.page.reload()
    await expect(console.answers).to_have_text("one two")
    await turn.complete("three")
    await expect(console.answers).to_have_text("one two three")


@over_both
async def test_stop_keeps_what_was_said(
    console: Console, open_server: ServerProcess, stage: Stage, transport: Transport
) -> None:
    await console.visit(open_server.url, transport=transport)
    await console.send("A long story")
    turn = await stage.turn()
    await turn.text("Once upon ")
    await expect(console.answers).to_have_text("Once upon")
    await console.stop_button.click()
    await expect(console.ending("Stopped")).to_be_visible()
    await turn.stopped()
    await console.page.reload()
    await expect(console.ending("Stopped")).to_be_visible()
    await expect(console.answers).to_have_text("Once upon")
    await console.send("And now?")
    await (await stage.turn()).complete("Now it goes on.")
    await expect(console.ending("Completed")).to_be_visible()


async def test_a_failed_turn_says_why_and_keeps_what_was_said(
    console: Console, open_server: ServerProcess, stage: Stage
) -> None:
    await console.visit(open_server.url)
    await console.send("Try")
    turn = await stage.turn()
    await turn.text("Half an ans")
    await turn.fail("the model is out of breath", code="out_of_breath", retryable=True)
    await expect(console.ending("Failed")).to_be_visible()
    error = console.page.get_by_role("article", name="Error")
    await expect(error).to_contain_text("the model is out of breath")
    await expect(error).to_contain_text("out_of_breath")
    await expect(error).to_contain_text("Trying again may help")
    before = await console.shown()
    await console.page.reload()
    await expect(console.ending("Failed")).to_be_visible()
    await console.shows(before)
    assert "Half an ans" in before


async def test_thinking_and_tools_can_be_unfolded(
    console: Console, open_server: ServerProcess, stage: Stage
) -> None:
    await console.visit(open_server.url)
    await console.send("Weather?")
    turn = await stage.turn()
    await turn.say("thinking", delta="Where is the user? ")
    thinking = console.log.locator("details.thinking")
    await expect(thinking).to_contain_text("Thinking…")
    await turn.say("tool_started", id="a", name="get_weather", args={"city": "Aarhus"})
    await turn.say("tool_started", id="b", name="get_time", args={})
    tools = console.log.locator("details.tool")
    await expect(tools.first).to_contain_text("running")
    await turn.say("tool_ended", id="a", isError=False, content={"celsius": 11.5})
    await turn.say("tool_ended", id="b", isError=True, content="no such zone")
    await turn.complete("It is cool.")
    await expect(thinking).to_contain_text("Thought for")
    await expect(thinking.get_by_text("Where is the user?")).to_be_hidden()
    await thinking.locator("summary").press("Enter")
    await expect(thinking.get_by_text("Where is the user?")).to_be_visible()
    await expect(tools.first).to_contain_text("done in")
    await tools.first.locator("summary").click()
    await expect(tools.first.get_by_text('"city": "Aarhus"')).to_be_visible()
    await expect(tools.first.get_by_text('"celsius": 11.5')).to_be_visible()
    await tools.nth(1).locator("summary").click()
    await expect(tools.nth(1).get_by_text("no such zone")).to_be_visible()


@over_both
async def test_a_second_tab_sees_the_same_and_may_stop_it(
    context: BrowserContext, console: Console, open_server: ServerProcess, stage: Stage, transport: Transport
) -> None:
    await console.visit(open_server.url, transport=transport)
    await console.send("Hello")
    turn = await stage.turn()
    await turn.text("Hello ")
    second = Console(await context.new_page())
    await second.visit(open_server.url, await console.session_id(), transport)
    await expect(second.answers).to_have_text("Hello")
    await turn.text("to both ")
    await expect(console.answers).to_have_text("Hello to both")
    await expect(second.answers).to_have_text("Hello to both")
    await second.stop_button.click()
    await expect(console.ending("Stopped")).to_be_visible()
    await expect(second.ending("Stopped")).to_be_visible()
    await second.shows(await console.shown())


@over_both
async def test_a_broken_connection_is_told_and_mends_itself(
    console: Console, open_server: ServerProcess, stage: Stage, transport: Transport
) -> None:
    async with open_proxy(open_server.port) as proxy:
        await console.visit(proxy.url, transport=transport)
        await console.send("Hello")
        turn = await stage.turn()
        await turn.text("one ")
        await expect(console.answers).to_have_text("one")
        proxy.is_down = True
        proxy.cut()
        await expect(console.connection).to_have_text("Reconnecting…")
        await turn.text("two ")
        proxy.is_down = False
        await expect(console.answers).to_have_text("one two")
        await expect(console.connection).to_have_text("Live")
        await turn.complete("three")
        await expect(console.answers).to_have_text("one two three")
        await expect(console.ending("Completed")).to_have_count(1)


async def test_switching_the_transport_in_mid_turn_doubles_nothing(
    console: Console, open_server: ServerProcess, stage: Stage
) -> None:
    await console.visit(open_server.url)
    await console.send("Hello")
    turn = await stage.turn()
    await turn.text("one ")
    await expect(console.answers).to_have_text("one")
    await console.choose("WebSocket")
    await turn.text("two ")
    await expect(console.answers).to_have_text("one two")
    await console.choose("Event stream")
    await turn.complete("three")
    await expect(console.answers).to_have_text("one two three")


async def test_a_hidden_page_lets_its_connection_go_and_catches_up(
    console: Console, open_server: ServerProcess, stage: Stage
) -> None:
    await console.visit(open_server.url)
    await console.send("Hello")
    turn = await stage.turn()
    await turn.text("one ")
    await expect(console.answers).to_have_text("one")
    await console.page.evaluate(
        "Object.defineProperty(document, 'hidden', { value: true, configurable: true });"
        "document.dispatchEvent(new Event('visibilitychange'))"
    )
    await expect(console.connection).to_have_text("Paused")
    await turn.complete("two")
    await console.page.evaluate(
        "delete document.hidden; document.dispatchEvent(new Event('visibilitychange'))"
    )
    await expect(console.answers).to_have_text("one two")
    await expect(console.ending("Completed")).to_be_visible()


@over_both
async def test_what_could_not_be_sent_is_given_back(
    console: Console, open_server: ServerProcess, stage: Stage, api: Api, transport: Transport
) -> None:
    session_id = await api.create()
    async with open_proxy(open_server.port) as proxy:
        await console.visit(proxy.url, session_id, transport)
        proxy.is_down = True
        proxy.cut()
        await expect(console.connection).to_have_text("Reconnecting…")
        await console.send("Are you there?")
        await expect(console.problem).not_to_be_empty()
        await expect(console.field).to_have_value("Are you there?")
        proxy.is_down = False
        await expect(console.connection).to_have_text("Live")
        await console.field.press("Enter")
        await (await stage.turn()).complete("Yes.")
        await expect(console.answers).to_have_text("Yes.")
        await expect(console.problem).to_be_empty()


async def test_shift_and_enter_begin_a_new_line(
    console: Console, open_server: ServerProcess, stage: Stage
) -> None:
    await console.visit(open_server.url)
    await expect(console.field).to_be_focused()
    await console.page.keyboard.type("one")
    await console.page.keyboard.press("Shift+Enter")
    await console.page.keyboard.type("two")
    await expect(console.field).to_have_value("one\ntwo")
    await console.page.keyboard.press("Enter")
    turn = await stage.turn()
    assert turn.prompt == "one\ntwo"
    await turn.complete("three")
    await expect(console.ending("Completed")).to_be_visible()


@pytest.mark.parametrize("chosen", ["Keep", "Delete"])
async def test_a_session_is_deleted_only_after_a_question(
    context: BrowserContext, console: Console, open_server: ServerProcess, api: Api, chosen: str
) -> None:
    name = f"To be asked about: {chosen}"
    session_id = await api.create(name)
    await console.visit(open_server.url, session_id)
    other = Console(await context.new_page())
    await other.visit(open_server.url, session_id)
    link = console.sessions.get_by_role("link", name=name)
    await link.hover()
    await console.sessions.get_by_role("button", name=f"Delete {name}").click()
    await console.page.get_by_role("dialog").get_by_role("button", name=chosen).click()
    if chosen == "Keep":
        await expect(link).to_be_visible()
        await expect(console.connection).to_have_text("Live")
        return
    await expect(link).to_have_count(0)
    await expect(console.page.get_by_role("heading", name="New session")).to_be_visible()
    await expect(other.log).to_contain_text("This session was deleted.")
    await expect(other.field).to_be_disabled()
    await expect(other.connection).to_have_text("Closed")


async def test_a_session_that_is_not_there_is_told(console: Console, open_server: ServerProcess) -> None:
    await console.page.goto(f"{open_server.url}/#sess_aaaaaaaaaaaaaaaaaaaaaaaaaa")
    await expect(console.connection).to_have_text("Closed")
    for view in ("", "/timeline", "/events", "/replay"):
        await console.page.goto(f"{open_server.url}/#sess_aaaaaaaaaaaaaaaaaaaaaaaaaa{view}")
        await expect(console.page.locator("main").get_by_role("alert")).to_contain_text("no session")
        await expect(console.page.locator("main")).not_to_contain_text("No turn has begun")
        await expect(console.page.get_by_role("button", name="Rename the session")).to_have_count(0)
    await console.page.get_by_role("link", name="Begin a new session").click()
    await expect(console.connection).to_have_text("Ready")
    await expect(console.field).to_be_enabled()


async def test_sessions_are_picked_from_the_list_and_by_the_way_back(
    console: Console, open_server: ServerProcess, stage: Stage, api: Api
) -> None:
    first, second = await api.create("The first one"), await api.create("The second one")
    for session_id, answer in ((first, "one"), (second, "two")):
        await api.query(session_id, "Hello")
        await (await stage.turn()).complete(answer)
    await console.visit(open_server.url, first)
    await expect(console.answers).to_have_text("one")
    await console.sessions.get_by_role("link", name="The second one").click()
    await expect(console.answers).to_have_text("two")
    await console.page.go_back()
    await expect(console.answers).to_have_text("one")


async def test_hostile_text_stays_text(
    context: BrowserContext, console: Console, open_server: ServerProcess, stage: Stage
) -> None:
    context.on("dialog", lambda _: pytest.fail("a dialog was opened"))
    await console.visit(open_server.url)
    await console.send(HOSTILE)
    turn = await stage.turn()
    await turn.say("thinking", delta=HOSTILE)
    await turn.say("tool_started", id="a", name=HOSTILE, args={HOSTILE: HOSTILE})
    await turn.say("tool_ended", id="a", isError=False, content=HOSTILE)
    await turn.say("tool_started", id="b", name="b", args=HOSTILE)
    await turn.say("tool_ended", id="b", isError=True, content=HOSTILE)
    await turn.say(HOSTILE[:80], why=HOSTILE)
    await turn.text(f"{HOSTILE}\n\n# {HOSTILE}\n\n- {HOSTILE}\n\n| {HOSTILE} |\n|---|\n| {HOSTILE} |\n\n")
    await turn.text(f"```<b>\n{HOSTILE}\n```\n\n[a](JaVaScRiPt:1) [b](data:text/html,1) <https://ok.example>")
    await turn.text("\n\n![out](https://out.example/track.png) ![in](data:text/html;base64,eA==)")
    await turn.fail(HOSTILE, code=HOSTILE)
    await expect(console.ending("Failed")).to_be_visible()
    await expect(
        console.page.locator("img:not(.brand img), body script, main i:not(.dots i), main b")
    ).to_have_count(0)
    addresses = [await link.get_attribute("href") for link in await console.log.get_by_role("link").all()]
    assert addresses == ["https://ok.example", "https://out.example/track.png"]
    assert HOSTILE in await console.page.locator(".user").inner_text()
    assert await console.page.title() != "owned"
    await console.page.reload()
    await expect(console.ending("Failed")).to_be_visible()
    assert await console.page.title() != "owned"


async def test_a_phone_can_do_it_all(
    context: BrowserContext, console: Console, open_server: ServerProcess, stage: Stage
) -> None:
    await console.page.set_viewport_size({"width": 390, "height": 844})
    await console.visit(open_server.url)
    await console.send("w" * 200)
    turn = await stage.turn()
    await turn.complete(f"{'x' * 300}\n\n```\n{'y' * 300}\n```\n\n|{'z|' * 40}\n|{'-|' * 40}\n")
    await expect(console.ending("Completed")).to_be_visible()
    widths = "[document.documentElement.scrollWidth, document.querySelector('#scroller').scrollWidth]"
    assert max(await console.page.evaluate(widths)) <= 390
    await expect(console.sessions).to_be_hidden()
    await console.page.get_by_role("button", name="Sessions", exact=True).click()
    await expect(console.sessions.get_by_role("link", name=re.compile("^www")).first).to_be_visible()
    await console.page.keyboard.press("Escape")
    await expect(console.sessions).to_be_hidden()
