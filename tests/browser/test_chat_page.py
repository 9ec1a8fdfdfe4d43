"""The chat page in a real browser, over both transports: what it shows is what the log has."""

import re

import pytest

from tests.browser.chat import Chat, Transport
from tests.browser.kit import BrowserContext, Page, expect
from tests.browser.processes import Api, ServerProcess
from tests.browser.proxy import open_proxy
from tests.browser.puppet import Stage

HOSTILE = (
    "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\"> "
    "[click](javascript:document.title='owned') **<b>bold</b>** `<i>code</i>`"
)

over_both = pytest.mark.parametrize("transport", ["EventSource", "WebSocket"])


@pytest.fixture
def chat(page: Page) -> Chat:
    return Chat(page)


@over_both
async def test_a_first_visit_sends_and_sees_the_answer_grow(
    chat: Chat, open_server: ServerProcess, stage: Stage, transport: Transport
) -> None:
    await chat.visit(open_server.url, transport=transport)
    await chat.send("What is a log?")
    turn = await stage.turn()
    assert turn.prompt == "What is a log?"
    await turn.text("A log is ")
    await expect(chat.answers).to_have_text("A log is")
    await expect(chat.stop_button).to_be_visible()
    await expect(chat.connection).to_have_text("Live")
    await turn.complete("**append-only**.")
    await expect(chat.ending("Completed")).to_be_visible()
    await expect(chat.answers.locator("strong")).to_have_text("append-only")
    await expect(chat.send_button).to_be_visible()
    await expect(chat.sessions.locator("[aria-current=page]")).to_contain_text("What is a log?")
    await expect(chat.page.locator("#announcer")).to_have_text("A log is **append-only**.")


@over_both
async def test_a_reload_shows_everything_again(
    chat: Chat, open_server: ServerProcess, stage: Stage, transport: Transport
) -> None:
    await chat.visit(open_server.url, transport=transport)
    await chat.send("First")
    await (await stage.turn()).complete("one")
    await expect(chat.ending("Completed")).to_have_count(1)
    await chat.send("Second")
    turn = await stage.turn()
    await turn.text("two ")
    await expect(chat.answers).to_have_count(2)
    before = await chat.shown()
    await chat.page.reload()
    await expect(chat.answers).to_have_text(["one", "two"])
    assert await chat.shown() == before
    await turn.complete("and three")
    await expect(chat.answers).to_have_text(["one", "two and three"])


@over_both
async def test_stop_keeps_what_was_said(
    chat: Chat, open_server: ServerProcess, stage: Stage, transport: Transport
) -> None:
    await chat.visit(open_server.url, transport=transport)
    await chat.send("A long story")
    turn = await stage.turn()
    await turn.text("Once upon ")
    await expect(chat.answers).to_have_text("Once upon")
    await chat.stop_button.click()
    await expect(chat.ending("Stopped")).to_be_visible()
    await turn.stopped()
    await chat.page.reload()
    await expect(chat.ending("Stopped")).to_be_visible()
    await expect(chat.answers).to_have_text("Once upon")
    await chat.send("And now?")
    await (await stage.turn()).complete("Now it goes on.")
    await expect(chat.ending("Completed")).to_be_visible()


async def test_a_failed_turn_says_why_and_keeps_what_was_said(
    chat: Chat, open_server: ServerProcess, stage: Stage
) -> None:
    await chat.visit(open_server.url)
    await chat.send("Try")
    turn = await stage.turn()
    await turn.text("Half an ans")
    await turn.fail("the model is out of breath", code="out_of_breath", retryable=True)
    await expect(chat.ending("Failed")).to_be_visible()
    error = chat.page.get_by_role("article", name="Error")
    await expect(error).to_contain_text("the model is out of breath")
    await expect(error).to_contain_text("out_of_breath")
    await expect(error).to_contain_text("Trying again may help")
    before = await chat.shown()
    await chat.page.reload()
    await expect(chat.ending("Failed")).to_be_visible()
    assert await chat.shown() == before
    assert "Half an ans" in before


async def test_thinking_and_tools_can_be_unfolded(
    chat: Chat, open_server: ServerProcess, stage: Stage
) -> None:
    await chat.visit(open_server.url)
    await chat.send("Weather?")
    turn = await stage.turn()
    await turn.say("thinking", delta="Where is the user? ")
    thinking = chat.log.locator("details.thinking")
    await expect(thinking).to_contain_text("Thinking…")
    await turn.say("tool_started", id="a", name="get_weather", args={"city": "Aarhus"})
    await turn.say("tool_started", id="b", name="get_time", args={})
    tools = chat.log.locator("details.tool")
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
    context: BrowserContext, chat: Chat, open_server: ServerProcess, stage: Stage, transport: Transport
) -> None:
    await chat.visit(open_server.url, transport=transport)
    await chat.send("Hello")
    turn = await stage.turn()
    await turn.text("Hello ")
    second = Chat(await context.new_page())
    await second.visit(open_server.url, await chat.session_id(), transport)
    await expect(second.answers).to_have_text("Hello")
    await turn.text("to both ")
    await expect(chat.answers).to_have_text("Hello to both")
    await expect(second.answers).to_have_text("Hello to both")
    await second.stop_button.click()
    await expect(chat.ending("Stopped")).to_be_visible()
    await expect(second.ending("Stopped")).to_be_visible()
    assert await second.shown() == await chat.shown()


@over_both
async def test_a_broken_connection_is_told_and_mends_itself(
    chat: Chat, open_server: ServerProcess, stage: Stage, transport: Transport
) -> None:
    async with open_proxy(open_server.port) as proxy:
        await chat.visit(proxy.url, transport=transport)
        await chat.send("Hello")
        turn = await stage.turn()
        await turn.text("one ")
        await expect(chat.answers).to_have_text("one")
        proxy.is_down = True
        proxy.cut()
        await expect(chat.connection).to_have_text("Reconnecting…")
        await turn.text("two ")
        proxy.is_down = False
        await expect(chat.answers).to_have_text("one two")
        await expect(chat.connection).to_have_text("Live")
        await turn.complete("three")
        await expect(chat.answers).to_have_text("one two three")
        await expect(chat.ending("Completed")).to_have_count(1)


async def test_switching_the_transport_in_mid_turn_doubles_nothing(
    chat: Chat, open_server: ServerProcess, stage: Stage
) -> None:
    await chat.visit(open_server.url)
    await chat.send("Hello")
    turn = await stage.turn()
    await turn.text("one ")
    await expect(chat.answers).to_have_text("one")
    await chat.choose("WebSocket")
    await turn.text("two ")
    await expect(chat.answers).to_have_text("one two")
    await chat.choose("EventSource")
    await turn.complete("three")
    await expect(chat.answers).to_have_text("one two three")


async def test_a_hidden_page_lets_its_connection_go_and_catches_up(
    chat: Chat, open_server: ServerProcess, stage: Stage
) -> None:
    await chat.visit(open_server.url)
    await chat.send("Hello")
    turn = await stage.turn()
    await turn.text("one ")
    await expect(chat.answers).to_have_text("one")
    await chat.page.evaluate(
        "Object.defineProperty(document, 'hidden', { value: true, configurable: true });"
        "document.dispatchEvent(new Event('visibilitychange'))"
    )
    await expect(chat.connection).to_have_text("Ready")
    await turn.complete("two")
    await chat.page.evaluate("delete document.hidden; document.dispatchEvent(new Event('visibilitychange'))")
    await expect(chat.answers).to_have_text("one two")
    await expect(chat.ending("Completed")).to_be_visible()


@over_both
async def test_what_could_not_be_sent_is_given_back(
    chat: Chat, open_server: ServerProcess, stage: Stage, api: Api, transport: Transport
) -> None:
    session_id = await api.create()
    async with open_proxy(open_server.port) as proxy:
        await chat.visit(proxy.url, session_id, transport)
        proxy.is_down = True
        proxy.cut()
        await expect(chat.connection).to_have_text("Reconnecting…")
        await chat.send("Are you there?")
        await expect(chat.problem).not_to_be_empty()
        await expect(chat.field).to_have_value("Are you there?")
        proxy.is_down = False
        await expect(chat.connection).to_have_text("Live")
        await chat.field.press("Enter")
        await (await stage.turn()).complete("Yes.")
        await expect(chat.answers).to_have_text("Yes.")
        await expect(chat.problem).to_be_empty()


async def test_shift_and_enter_begin_a_new_line(chat: Chat, open_server: ServerProcess, stage: Stage) -> None:
    await chat.visit(open_server.url)
    await expect(chat.field).to_be_focused()
    await chat.page.keyboard.type("one")
    await chat.page.keyboard.press("Shift+Enter")
    await chat.page.keyboard.type("two")
    await expect(chat.field).to_have_value("one\ntwo")
    await chat.page.keyboard.press("Enter")
    turn = await stage.turn()
    assert turn.prompt == "one\ntwo"
    await turn.complete("three")
    await expect(chat.ending("Completed")).to_be_visible()


@pytest.mark.parametrize("chosen", ["Keep", "Delete"])
async def test_a_session_is_deleted_only_after_a_question(
    context: BrowserContext, chat: Chat, open_server: ServerProcess, api: Api, chosen: str
) -> None:
    name = f"To be asked about: {chosen}"
    session_id = await api.create(name)
    await chat.visit(open_server.url, session_id)
    other = Chat(await context.new_page())
    await other.visit(open_server.url, session_id)
    link = chat.sessions.get_by_role("link", name=name)
    await link.hover()
    await chat.sessions.get_by_role("button", name=f"Delete {name}").click()
    await chat.page.get_by_role("dialog").get_by_role("button", name=chosen).click()
    if chosen == "Keep":
        await expect(link).to_be_visible()
        await expect(chat.connection).to_have_text("Live")
        return
    await expect(link).to_have_count(0)
    await expect(chat.page.get_by_role("heading", name="New chat")).to_be_visible()
    await expect(other.log).to_contain_text("This session was deleted.")
    await expect(other.field).to_be_disabled()
    await expect(other.connection).to_have_text("Closed")


async def test_a_session_that_is_not_there_is_told(chat: Chat, open_server: ServerProcess) -> None:
    await chat.page.goto(f"{open_server.url}/#sess_aaaaaaaaaaaaaaaaaaaaaaaaaa")
    await expect(chat.connection).to_have_text("Closed")
    await expect(chat.problem).to_contain_text("no session")
    await chat.page.get_by_role("button", name="New chat").click()
    await expect(chat.connection).to_have_text("Ready")
    await expect(chat.field).to_be_enabled()


async def test_sessions_are_picked_from_the_list_and_by_the_way_back(
    chat: Chat, open_server: ServerProcess, stage: Stage, api: Api
) -> None:
    first, second = await api.create("The first one"), await api.create("The second one")
    for session_id, answer in ((first, "one"), (second, "two")):
        await api.query(session_id, "Hello")
        await (await stage.turn()).complete(answer)
    await chat.visit(open_server.url, first)
    await expect(chat.answers).to_have_text("one")
    await chat.sessions.get_by_role("link", name="The second one").click()
    await expect(chat.answers).to_have_text("two")
    await chat.page.go_back()
    await expect(chat.answers).to_have_text("one")


async def test_hostile_text_stays_text(
    context: BrowserContext, chat: Chat, open_server: ServerProcess, stage: Stage
) -> None:
    context.on("dialog", lambda _: pytest.fail("a dialog was opened"))
    await chat.visit(open_server.url)
    await chat.send(HOSTILE)
    turn = await stage.turn()
    await turn.say("thinking", delta=HOSTILE)
    await turn.say("tool_started", id="a", name=HOSTILE, args={HOSTILE: HOSTILE})
    await turn.say("tool_ended", id="a", isError=False, content=HOSTILE)
    await turn.say("tool_started", id="b", name="b", args=HOSTILE)
    await turn.say("tool_ended", id="b", isError=True, content=HOSTILE)
    await turn.say(HOSTILE[:80], why=HOSTILE)
    await turn.text(f"{HOSTILE}\n\n# {HOSTILE}\n\n- {HOSTILE}\n\n| {HOSTILE} |\n|---|\n| {HOSTILE} |\n\n")
    await turn.text(f"```<b>\n{HOSTILE}\n```\n\n[a](JaVaScRiPt:1) [b](data:text/html,1) <https://ok.example>")
    await turn.fail(HOSTILE, code=HOSTILE)
    await expect(chat.ending("Failed")).to_be_visible()
    await expect(
        chat.page.locator("img:not(.brand img), body script, main i:not(.dots i), main b")
    ).to_have_count(0)
    addresses = [await link.get_attribute("href") for link in await chat.log.get_by_role("link").all()]
    assert addresses == ["https://ok.example"]
    assert HOSTILE in await chat.page.locator(".user").inner_text()
    assert await chat.page.title() != "owned"
    await chat.page.reload()
    await expect(chat.ending("Failed")).to_be_visible()
    assert await chat.page.title() != "owned"


async def test_a_phone_can_do_it_all(
    context: BrowserContext, chat: Chat, open_server: ServerProcess, stage: Stage
) -> None:
    await chat.page.set_viewport_size({"width": 390, "height": 844})
    await chat.visit(open_server.url)
    await chat.send("w" * 200)
    turn = await stage.turn()
    await turn.complete(f"{'x' * 300}\n\n```\n{'y' * 300}\n```\n\n|{'z|' * 40}\n|{'-|' * 40}\n")
    await expect(chat.ending("Completed")).to_be_visible()
    widths = "[document.documentElement.scrollWidth, document.querySelector('#scroller').scrollWidth]"
    assert max(await chat.page.evaluate(widths)) <= 390
    await expect(chat.sessions).to_be_hidden()
    await chat.page.get_by_role("button", name="Sessions", exact=True).click()
    await expect(chat.sessions.get_by_role("link", name=re.compile("^www")).first).to_be_visible()
    await chat.page.keyboard.press("Escape")
    await expect(chat.sessions).to_be_hidden()
