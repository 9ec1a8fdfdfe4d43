"""One turn, watched at once by the official UI, an EventSource, a socket and an A2A subscription, and stopped by each."""

import pytest

from tests.browser.kit import expect
from tests.browser.official import OfficialUi
from tests.browser.processes import ServerProcess
from tests.browser.puppet import Stage

WATCH = """async sessionId => {
  window.seen = {events: [], socket: [], task: [], isOver: false};
  const source = new EventSource(`/api/v1/sessions/events/stream?sessionId=${sessionId}`);
  source.onmessage = ({data}) => seen.events.push(JSON.parse(data));
  window.socket = new WebSocket(`ws://${location.host}/ws`);
  socket.onmessage = ({data}) => seen.socket.push(JSON.parse(data));
  socket.onopen = () => socket.send(JSON.stringify({type: "join_session", sessionId}));
  const post = (path, body) => fetch(path, {
    method: "POST",
    headers: {"content-type": "application/json", "a2a-version": "1.0"},
    body: JSON.stringify(body),
  });
  const {status} = await (await fetch(`/api/v1/sessions/status?sessionId=${sessionId}`)).json();
  const call = method => post("/a2a", {jsonrpc: "2.0", id: 1, method, params: {id: status.turnId}});
  window.stop = {
    "POST abort": () => post("/api/v1/sessions/abort", {sessionId}),
    "abort_query": () => socket.send(JSON.stringify({type: "abort_query", sessionId})),
    "CancelTask": () => call("CancelTask"),
  };
  const reader = (await call("SubscribeToTask")).body.pipeThrough(new TextDecoderStream()).getReader();
  (async () => {
    let text = "";
    for (let read = await reader.read(); !read.done; read = await reader.read()) {
      text += read.value;
      const frames = text.split("\\n\\n").slice(0, -1).filter(frame => frame.startsWith("data: "));
      seen.task = frames.map(frame => JSON.parse(frame.slice(6)).result);
    }
    seen.isOver = true;
  })();
}"""
ALL_HEARD = (
    """() => [seen.events, seen.socket, seen.task].every(told => JSON.stringify(told).includes("the end"))"""
)
ALL_ENDED = """() => seen.isOver && [seen.events, seen.socket].every(told => told.some(({type}) => type === "agent_run_end"))"""


@pytest.mark.parametrize("way", ["its button", "POST abort", "abort_query", "CancelTask"])
async def test_everybody_sees_the_same_turn_and_may_stop_it(
    ui: OfficialUi, open_server: ServerProcess, stage: Stage, way: str
) -> None:
    await ui.visit(open_server.url)
    await ui.send("A story")
    turn = await stage.turn()
    await turn.text("Not yet ")
    await expect(ui.answers).to_have_text("Not yet")
    await ui.page.evaluate(WATCH, await ui.session_id())
    await turn.text("the end")
    await expect(ui.answers).to_have_text("Not yet the end")
    await ui.page.wait_for_function(ALL_HEARD)

    if way == "its button":
        await ui.stop_button.click()
    else:
        await ui.page.evaluate("way => { stop[way](); }", way)
    await turn.stopped()

    await ui.is_idle()
    await expect(ui.answers).to_have_text("Not yet the end")
    await ui.page.wait_for_function(ALL_ENDED)
    seen = await ui.page.evaluate("seen")
    messages, ends = (
        [[event for event in seen[who] if event["type"] == kind] for who in ("events", "socket")]
        for kind in ("assistant_message", "agent_run_end")
    )
    assert messages[0] == messages[1]
    assert [message["data"]["content"] for message in messages[0]] == ["Not yet the end"]
    assert ends[0] == ends[1]
    assert [end["data"]["status"] for end in ends[0]] == ["aborted"]
    states = [told["statusUpdate"]["status"]["state"] for told in seen["task"] if "statusUpdate" in told]
    assert states[-1] == "TASK_STATE_CANCELED"
