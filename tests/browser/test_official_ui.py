"""The official Tarko UI of PyPI, unmodified, in a real browser against a real server."""

import asyncio
import json
import re
from pathlib import Path

from tests.browser.kit import BrowserContext, Page, Route, expect
from tests.browser.official import OfficialUi
from tests.browser.processes import Api, ServerProcess
from tests.browser.puppet import Stage

ALICE = "correct-horse-battery-staple"
DURATION = re.compile(r"[0-9]m?s")
ANSWER = "# A heading\n\n| a | b |\n|---|---|\n| one | two |\n\nThe **end**."
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
PASTE = """(field, image) => {
  const data = new DataTransfer();
  const bytes = Uint8Array.from(atob(image), character => character.charCodeAt(0));
  data.items.add(new File([bytes], "pixel.png", {type: "image/png"}));
  field.dispatchEvent(new ClipboardEvent("paste", {clipboardData: data, bubbles: true, cancelable: true}));
}"""


async def test_a_first_message_streams_thinking_tools_and_markdown(
    ui: OfficialUi, open_server: ServerProcess, stage: Stage
) -> None:
    await ui.visit(open_server.url)
    await ui.send("What is a log?")
    turn = await stage.turn()
    assert turn.prompt == "What is a log?"
    await turn.say("thinking", delta="The user asks ")
    await turn.say("thinking", delta="about logs.")
    await expect(ui.answers).to_contain_text("The user asks about logs.")
    await expect(ui.stop_button).to_be_visible()
    await expect(ui.field).to_be_disabled()
    await turn.text("Let me ")
    await expect(ui.answers.first).to_contain_text("Let me")
    await turn.text("look.")
    await expect(ui.answers.first).to_contain_text("Let me look.")
    await turn.say("tool_started", id="a", name="run_command", args={"command": ["ls", {"in": "/"}]})
    await turn.say("tool_started", id="b", name="get_time", args={"path": ["zones", 1]})
    await expect(ui.card("Run Command")).to_be_visible()
    await expect(ui.card("Get Time")).to_be_visible()
    await turn.say("tool_ended", id="b", isError=False, content={"time": "12:00"})
    await turn.say("tool_ended", id="a", isError=True, content=["no such file", None])
    await expect(ui.card("Get Time")).to_contain_text(DURATION)
    await ui.card("Run Command").click()
    await expect(ui.page.get_by_text("no such file").locator("visible=true").first).to_be_visible()
    await ui.card("Get Time").click()
    await expect(ui.page.get_by_text("12:00", exact=True).locator("visible=true").first).to_be_visible()
    await turn.complete(ANSWER)
    await ui.is_idle()
    await expect(ui.answers.locator("table")).to_contain_text("two")
    await expect(ui.page.get_by_title("Copy message").locator("visible=true")).to_be_visible()

    shown = await ui.answers.all_inner_texts()
    await ui.reload()
    await expect(ui.answers.locator("table")).to_contain_text("two")
    await expect(ui.answers).to_have_text(shown, use_inner_text=True)
    await expect(ui.user).to_have_text("What is a log?")
    await ui.is_idle()


async def test_a_reload_in_the_middle_shows_the_turn_which_can_be_stopped(
    ui: OfficialUi, open_server: ServerProcess, stage: Stage, api: Api
) -> None:
    await ui.visit(open_server.url)
    await ui.send("A long story")
    turn = await stage.turn()
    await turn.text("Once ", "upon ")
    await expect(ui.answers).to_have_text("Once upon")
    await ui.reload_into_running()
    await expect(ui.answers).to_have_text("Once upon")
    await turn.text("a time")  # the UI follows no turn that it has not sent itself, so it does not show this
    await api.told(await ui.session_id(), "a time")
    await ui.stop_button.click()
    await turn.stopped()
    await ui.is_idle()
    await ui.reload()
    await expect(ui.answers.first).to_have_text("Once upon a time")
    await expect(ui.notices).to_contain_text("The turn was aborted.")
    await ui.send("Again")
    await (await stage.turn()).complete("And again.")
    await ui.is_idle()
    await expect(ui.answers.last).to_have_text("And again.")


async def test_a_turn_goes_on_through_a_reload_and_is_there_after_the_next(
    ui: OfficialUi, open_server: ServerProcess, stage: Stage
) -> None:
    await ui.visit(open_server.url)
    await ui.send("A story")
    turn = await stage.turn()
    await turn.text("Once ")
    await expect(ui.answers).to_have_text("Once")
    await ui.reload_into_running()
    await turn.complete("upon a time")
    await ui.stop_button.click()  # the UI does not know that it has ended
    await ui.is_idle()
    await ui.reload()
    await expect(ui.answers).to_have_text("Once upon a time")
    await ui.is_idle()


async def test_stop_in_the_middle_of_the_text_keeps_it_and_leaves_the_field_usable(
    ui: OfficialUi, open_server: ServerProcess, stage: Stage
) -> None:
    await ui.visit(open_server.url)
    await ui.send("A long story")
    turn = await stage.turn()
    await turn.text("Once ")
    await turn.say("tool_started", id="t", name="get_time", args={})
    await expect(ui.card("Get Time")).to_be_visible()
    await ui.stop_button.click()
    await ui.is_idle()
    await turn.stopped()
    await expect(ui.answers.first).to_have_text("Once")
    await expect(ui.card("Get Time")).to_contain_text(DURATION)
    await ui.send("Once more")
    second = await stage.turn()
    await second.text("Sure, ")
    await expect(ui.answers.last).to_have_text("Sure,")
    await expect(ui.stop_button).to_be_visible()
    await second.complete("once more.")
    await ui.is_idle()
    await expect(ui.answers.last).to_have_text("Sure, once more.")


async def test_a_failure_is_shown_and_leaves_the_field_usable(
    ui: OfficialUi, open_server: ServerProcess, stage: Stage
) -> None:
    await ui.visit(open_server.url)
    await ui.send("Fail")
    turn = await stage.turn()
    await turn.text("Half of ")
    await turn.fail("The model is away.", code="away", retryable=True)
    await expect(ui.notices).to_contain_text("The model is away.")
    await expect(ui.answers.first).to_have_text("Half of")
    await ui.is_idle()


async def test_it_chats_with_a_remote_a2a_agent(
    ui: OfficialUi, relaying_server: ServerProcess, stage: Stage
) -> None:
    await ui.visit(relaying_server.url)
    await ui.send("Weather?")
    turn = await stage.turn()
    assert turn.prompt == "Weather?"
    await turn.text("Let me ")
    await expect(ui.answers.first).to_have_text("Let me")
    await turn.text("see.")
    await turn.say("input_required", text="Which city?")
    await turn.complete()
    await expect(ui.answers.first).to_contain_text("Which city?")
    await ui.is_idle()
    await ui.send("Aarhus")
    answer = await stage.turn()
    assert answer.prompt == "Aarhus"
    await answer.text("It rains")
    await expect(ui.answers.last).to_have_text("It rains")
    await ui.stop_button.click()
    await answer.stopped()
    await ui.is_idle()
    await expect(ui.answers.last).to_have_text("It rains")


async def test_a_second_tab_is_told_that_the_session_is_busy(
    ui: OfficialUi, visitor: BrowserContext, open_server: ServerProcess, stage: Stage, api: Api
) -> None:
    session_id = await api.create("Shared")
    async with ui.page.expect_response("**/sessions/status?*"):
        await ui.visit(open_server.url, f"/ui/{session_id}")
    await ui.is_idle()
    # An answer would lock the field while the other's turn runs.
    await ui.page.route("**/sessions/status?*", lambda route: route.abort())
    await api.query(session_id, "From elsewhere")
    turn = await stage.turn()
    await ui.send("Me, too")
    await expect(ui.notices).to_contain_text("A turn is running in this session.")
    await ui.is_idle()
    await turn.complete("Done.")


async def test_a_turn_of_the_documented_dialect_is_there_after_a_reload(
    ui: OfficialUi, open_server: ServerProcess, stage: Stage, api: Api
) -> None:
    session_id = await api.create("From outside")
    await ui.visit(open_server.url, f"/ui/{session_id}")
    await expect(ui.page).to_have_title(re.compile("agent"))
    await api.query(session_id, "Said over the other dialect")
    await (await stage.turn()).complete("And answered there.")
    await api.ended(session_id)
    await ui.reload()
    await expect(ui.user).to_have_text("Said over the other dialect")
    await expect(ui.answers).to_have_text("And answered there.")


async def test_sessions_are_named_switched_and_deleted(
    ui: OfficialUi, open_server: ServerProcess, stage: Stage, api: Api
) -> None:
    await ui.visit(open_server.url)
    await ui.send("The first question")
    await (await stage.turn()).complete("The first answer.")
    await ui.is_idle()
    first = await ui.session_id()
    await ui.page.get_by_title("New Task").click()
    await ui.page.wait_for_url(lambda url: first not in url and "/ui/sess_" in url)
    await ui.send("The second question")
    await (await stage.turn()).complete("The second answer.")
    await expect(ui.answers).to_have_text("The second answer.")
    await ui.is_idle()

    await ui.open_sidebar()
    await expect(ui.task("The second question")).to_be_visible()
    await ui.task("The first question").click()
    await ui.page.wait_for_url(f"**/ui/{first}")
    await expect(ui.answers).to_have_text("The first answer.")

    await ui.task("The first question").hover()
    await ui.page.get_by_title("Edit task name").locator("visible=true").click()
    name = ui.page.locator("input:visible:not([aria-label])")
    await name.fill("A better name")
    async with ui.page.expect_response("**/sessions/update"):
        await name.press("Enter")
    await expect(ui.task("A better name")).to_be_visible()
    await ui.reload()
    await ui.open_sidebar()
    await expect(ui.task("A better name")).to_be_visible()

    await ui.task("A better name").hover()
    await ui.page.get_by_title("Delete task").locator("visible=true").click()
    async with ui.page.expect_response("**/sessions/delete"):
        await ui.page.get_by_role("button", name="Delete", exact=True).click()
    await expect(ui.page.get_by_text("A better name")).to_have_count(0)
    assert first not in [session["id"] for session in await sessions(ui.page, open_server)]


async def sessions(page: Page, server: ServerProcess) -> list[dict[str, str]]:
    """What the server lists."""
    answer = await page.request.get(f"{server.url}/ui/api/v1/sessions")
    found: list[dict[str, str]] = (await answer.json())["sessions"]
    return found


async def test_a_shared_page_is_downloaded_and_plays_from_the_disk(
    ui: OfficialUi, visitor: BrowserContext, open_server: ServerProcess, stage: Stage, tmp_path: Path
) -> None:
    await ui.visit(open_server.url)
    await ui.send("Share </script><script>alert(1)</script> this")
    turn = await stage.turn()
    await turn.say("tool_started", id="t", name="get_time", args={"zone": "UTC"})
    await turn.say("tool_ended", id="t", isError=False, content="12:00")
    await turn.complete("It is **noon**.")
    await ui.is_idle()
    await ui.page.locator("button:visible:right-of([title='Light Mode'])").first.click()
    async with ui.page.expect_download() as downloading:
        await ui.page.get_by_role("button", name=re.compile("Download", re.I)).click()
    file = tmp_path / "shared.html"
    await (await downloading.value).save_as(file)

    shared = OfficialUi(await visitor.new_page())
    await shared.page.goto(file.as_uri())
    await expect(shared.user).to_have_text("Share </script><script>alert(1)</script> this")
    await expect(shared.answers.last).to_contain_text("It is noon.")
    await expect(shared.card("Get Time")).to_be_visible()


async def test_a_query_in_the_address_is_sent(
    ui: OfficialUi, open_server: ServerProcess, stage: Stage
) -> None:
    listed = asyncio.Event()

    async def once_listed(route: Route) -> None:
        await listed.wait()
        await route.continue_()

    await ui.page.route("**/sessions/create", once_listed)
    async with ui.listing():
        await ui.page.goto(f"{open_server.url}/ui/?q=From%20the%20address")
    listed.set()
    turn = await stage.turn()
    assert turn.prompt == "From the address"
    await turn.complete("Got it.")
    await expect(ui.answers).to_have_text("Got it.")


async def test_a_pasted_image_is_sent_and_shown_again(
    ui: OfficialUi, open_server: ServerProcess, stage: Stage, api: Api
) -> None:
    await ui.visit(open_server.url)
    await ui.field.evaluate(PASTE, PIXEL)
    await expect(ui.page.get_by_alt_text("Preview").locator("visible=true").first).to_be_visible()
    await ui.send("What is it?")
    await (await stage.turn()).complete("A pixel.")
    await ui.is_idle()
    session_id = await ui.session_id()
    [said] = [e for e in await api.events(session_id, deltas=False) if e["type"] == "user_message"]
    assert PIXEL in json.dumps(said["data"]["content"])
    await ui.reload()
    await expect(ui.user.locator("img")).to_have_attribute("src", re.compile("^data:image/png;base64,"))


async def test_html_of_an_agent_is_shown_and_runs_no_script(
    ui: OfficialUi, problems: list[str], open_server: ServerProcess, stage: Stage
) -> None:
    """The UI shows it in a frame of the page's own origin, where a script could use the visitor's login."""
    evil = "<h1>Shown</h1><script>document.body.append('owned'); parent.document.title = 'owned'</script>"
    await ui.visit(open_server.url)
    await ui.send("Write a page")
    turn = await stage.turn()
    await turn.say("tool_started", id="t", name="write_file", args={"path": "page.html", "content": evil})
    await turn.say("tool_ended", id="t", isError=False, content="ok")
    frame = ui.page.frame_locator("iframe[title='HTML Preview']:visible")
    await expect(frame.get_by_text("Shown")).to_be_visible()
    await expect(frame.locator("body")).not_to_contain_text("owned")
    assert "owned" not in await ui.page.title()
    await turn.complete("Done.")
    await ui.is_idle()
    await ui.page.close()  # what it complains of later would be taken for another fault
    assert problems
    assert all("inline script" in problem for problem in problems)
    problems.clear()


async def test_the_ui_works_behind_a_prefix(ui: OfficialUi, open_server: ServerProcess, stage: Stage) -> None:
    """A proxy puts one before it: the page finds out by its own address."""

    async def strip(route: Route) -> None:
        await route.continue_(url=route.request.url.replace("/some/prefix", "", 1))

    await ui.page.route("**/some/prefix/**", strip)
    await ui.visit(open_server.url, "/some/prefix/ui/")
    await ui.send("Hello")
    await (await stage.turn()).complete("From behind a prefix.")
    await expect(ui.answers).to_have_text("From behind a prefix.")
    await ui.page.wait_for_url("**/some/prefix/ui/sess_*")
    await ui.reload()
    await expect(ui.answers).to_have_text("From behind a prefix.")


async def test_with_tokens_the_ui_works_after_a_login(
    ui: OfficialUi, guarded_server: ServerProcess, stage: Stage
) -> None:
    await ui.page.goto(f"{guarded_server.url}/ui/")
    await ui.page.wait_for_url("**/login?next=/ui/")
    await expect(ui.page.get_by_text("This server asks for a token.")).to_be_visible()
    await ui.page.get_by_label("Token").fill(ALICE)
    async with ui.listing():
        await ui.page.get_by_role("button", name="Log in").click()
    await ui.page.wait_for_url(f"{guarded_server.url}/ui/")
    await ui.send("Hello")
    await (await stage.turn()).complete("Hello, Alice.")
    await expect(ui.answers).to_have_text("Hello, Alice.")
    await ui.is_idle()
    await ui.reload()
    await expect(ui.answers).to_have_text("Hello, Alice.")
