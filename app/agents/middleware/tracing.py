"""Makes spans of turns and their tools, through OpenTelemetry's API: whatever SDK the process has set up gets them.

A turn is a span `invoke_agent`; a tool is a child span `execute_tool <name>`. While the agent runs a step, the turn's
span is the current one, so spans of the agent's own libraries nest in it; between two steps it is not, for then other
code runs. A turn that came with a trace id belongs to that trace; the parent's span id is not told to agents, so one
that belongs to nobody stands in for it. Names follow OpenTelemetry's conventions for generative AI.
"""

import random
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from typing import Any

from opentelemetry import context, trace
from opentelemetry.context import Context
from opentelemetry.trace import NonRecordingSpan, Span, SpanContext, StatusCode, TraceFlags, Tracer

from app.agents.contract import TERMINAL_TYPES, Agent, AgentEvent, Prompt, Scope
from app.agents.middleware.relay import relay


class Tracing:
    """Uses the global tracer provider unless a `tracer` is given."""

    def __init__(self, agent: Agent, *, tracer: Tracer | None = None) -> None:
        self._agent = agent
        self._tracer = tracer or trace.get_tracer("tarko-server")

    async def invoke(self, scope: Scope, prompt: Prompt, /) -> AsyncIterator[AgentEvent]:
        span = self._tracer.start_span(
            "invoke_agent",
            context=_remote_parent(scope.get("trace")),
            attributes={"gen_ai.operation.name": "invoke_agent", "gen_ai.conversation.id": scope["session"]},
        )
        within = trace.set_span_in_context(span)
        tools: dict[str, Span] = {}
        try:
            async with aclosing(relay(self._agent, scope, prompt)) as events:
                while (event := await _step(events, within)) is not None:
                    self._note(event, within, tools)
                    if event["type"] in TERMINAL_TYPES:
                        _note_ending(span, event)
                    yield event
        finally:
            for tool in tools.values():
                tool.end()
            span.end()

    def _note(self, event: AgentEvent, within: Context, tools: dict[str, Span]) -> None:
        tool_id = event.get("id")
        if not isinstance(tool_id, str):
            return
        if event["type"] == "tool_started":
            name = str(event.get("name"))
            attributes = {"gen_ai.tool.name": name, "gen_ai.tool.call.id": tool_id}
            _end_tool(tools, tool_id, event)
            tools[tool_id] = self._tracer.start_span(
                f"execute_tool {name}", context=within, attributes=attributes
            )
        elif event["type"] == "tool_ended":
            _end_tool(tools, tool_id, event)


async def _step(events: AsyncIterator[AgentEvent], within: Context) -> AgentEvent | None:
    token = context.attach(within)
    try:
        return await anext(events, None)
    finally:
        context.detach(token)


def _end_tool(tools: dict[str, Span], tool_id: str, event: AgentEvent) -> None:
    span = tools.pop(tool_id, None)
    if span is not None:
        if event.get("isError") is True:
            span.set_status(StatusCode.ERROR)
        span.end()


def _note_ending(span: Span, event: Mapping[str, Any]) -> None:
    if event["type"] == "failed":
        span.set_attribute("error.type", str(event.get("code") or "failed"))
        span.set_status(StatusCode.ERROR, event["details"])


def _remote_parent(trace_id: str | None) -> Context | None:
    if trace_id is None:
        return None
    stand_in = SpanContext(
        int(trace_id, 16),
        random.getrandbits(64) or 1,
        is_remote=True,
        trace_flags=TraceFlags(TraceFlags.SAMPLED),
    )
    return trace.set_span_in_context(NonRecordingSpan(stand_in))
