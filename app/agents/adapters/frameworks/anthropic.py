"""An agent over Anthropic's Messages API, with the official SDK.

It keeps no conversation: earlier messages come from the scope's transcript, so any replica can run the next turn.
Functions registered with it are the model's tools; the calls of one step run at the same time. The HTTP stream is
closed, and closing awaited, on every way out. Nothing is retried here; `failed` says whether asking again makes sense.
With `output_type` the model spells its answer as that type: it is the structured result, not text.
"""

import os
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from contextlib import aclosing
from typing import Any

import anthropic
from anthropic.types import TextBlock, ToolUseBlock
from pydantic import BaseModel
from pydantic_core import to_json

from app.agents.adapters.failures import AgentFailure, guarded
from app.agents.adapters.python_tools import PythonTools, json_of
from app.agents.adapters.tool_calls import ToolCall, run_calls
from app.agents.contract import AgentEvent, ImageRef, Message, Model, Prompt, Scope

_NO_RESULT = "The turn was stopped before this tool had a result."
_BY_TYPE = {
    "overloaded_error": ("provider_unavailable", True),
    "api_error": ("provider_unavailable", True),
    "timeout_error": ("provider_timeout", True),
    "rate_limit_error": ("rate_limited", True),
    "authentication_error": ("authentication_failed", False),
    "permission_error": ("authentication_failed", False),
    "request_too_large": ("context_length_exceeded", False),
}
ProviderMessage = dict[str, Any]


class AnthropicAgent:
    """`tools` are Python functions. A session may choose one of `other_models` instead of `model`.

    `thinking` is how many tokens the model may think, `max_tokens` how many it may say in all, thoughts included.
    `client` replaces the one that `api_key`, `base_url` and `timeout` (seconds) would make. `max_rounds` bounds how
    often the model may be asked in one turn.
    """

    name = "anthropic"

    def __init__(
        self,
        *,
        model: str,
        other_models: Iterable[str] = (),
        system_prompt: str | None = None,
        tools: Iterable[Callable[..., Any]] = (),
        output_type: type[BaseModel] | None = None,
        max_tokens: int = 8_192,
        thinking: int = 0,
        client: anthropic.AsyncAnthropic | None = None,
        api_key: str | None = None,
        base_url: str | None = None,
        max_rounds: int = 16,
        timeout: float = 300.0,
    ) -> None:
        key = api_key or ("" if base_url else os.environ.get("ANTHROPIC_API_KEY", ""))
        self._client = client or anthropic.AsyncAnthropic(
            api_key=key or "unset", base_url=base_url, timeout=timeout, max_retries=0
        )
        self._model = model
        self.allowed_models: list[Model] = [
            {"id": each, "provider": "anthropic", "displayName": each} for each in (model, *other_models)
        ]
        self._tools = PythonTools(tools)
        self._output_type = output_type
        self._max_rounds = max_rounds
        self._options: dict[str, Any] = {"max_tokens": max_tokens}
        if system_prompt:
            self._options["system"] = system_prompt
        if thinking:
            self._options["thinking"] = {"type": "enabled", "budget_tokens": thinking}
        if output_type is not None:
            self._options["output_format"] = output_type
        told = [
            {"name": tool.name, "description": tool.description, "input_schema": tool.schema}
            for tool in self._tools
        ]
        if told:
            self._options["tools"] = told

    async def aclose(self) -> None:
        """Close the connections to the provider."""
        await self._client.close()

    def invoke(self, scope: Scope, prompt: Prompt, /) -> AsyncGenerator[AgentEvent, None]:
        return guarded(self._rounds(scope, prompt))

    async def _rounds(self, scope: Scope, prompt: Prompt) -> AsyncGenerator[AgentEvent, None]:
        """Ask, run the tools that the model calls, ask again, until it calls none."""
        transcript = scope.get("transcript")
        earlier = await transcript.messages() if transcript is not None else []
        now: Message = {"role": "user", "content": prompt["text"], "images": prompt.get("images", [])}
        messages = _provider_messages([*earlier, now])
        chosen = scope.get("model")
        model = self._model if chosen is None else chosen["id"]
        for _ in range(self._max_rounds):
            answers: list[Any] = []
            async with aclosing(self._ask(model, messages, answers)) as events:
                async for event in events:
                    yield event
            [answer] = answers
            messages.append({"role": "assistant", "content": _sent_back(answer)})
            calls = [
                ToolCall(block.id, block.name, to_json(block.input).decode())
                for block in answer.content
                if isinstance(block, ToolUseBlock)
            ]
            if calls:
                async with aclosing(run_calls(calls, self._tools)) as events:
                    async for event in events:
                        yield event
                messages.append({"role": "user", "content": [_tool_result(call) for call in calls]})
            elif answer.stop_reason != "pause_turn":
                yield self._ending(answer)
                return
        details = f"the model still calls tools after {self._max_rounds} rounds"
        raise AgentFailure(details, "too_many_rounds")

    async def _ask(
        self, model: str, messages: list[ProviderMessage], answers: list[Any]
    ) -> AsyncGenerator[AgentEvent, None]:
        """One answer: its events, and then the whole of it, put into `answers`."""
        try:
            async with self._client.messages.stream(
                model=model, messages=messages, **self._options
            ) as stream:
                has_stopped = False
                async for event in stream:
                    has_stopped = has_stopped or event.type == "message_stop"
                    if event.type == "text" and self._output_type is None:
                        yield {"type": "text", "delta": event.text}
                    elif event.type == "thinking":
                        yield {"type": "thinking", "delta": event.thinking}
                if not has_stopped:
                    raise AgentFailure(
                        "the provider's stream ended in the middle", "stream_cut", retryable=True
                    )
                answers.append(await stream.get_final_message())
        except anthropic.APIStatusError as error:
            raise _refused(error) from error

    def _ending(self, answer: Any) -> AgentEvent:
        if answer.stop_reason == "refusal":
            raise AgentFailure("the provider's safety system stopped the answer", "content_filtered")
        if self._output_type is None:
            return {"type": "completed"}
        return {"type": "completed", "data": json_of(answer.parsed_output)}


def _refused(error: anthropic.APIStatusError) -> Exception:
    """By the provider's own type, which a broken stream has too; by the status if that says nothing."""
    body: Any = error.body
    told = body.get("error") if isinstance(body, dict) else None
    if not isinstance(told, dict) or told.get("type") not in _BY_TYPE:
        return error
    code, is_retryable = _BY_TYPE[told["type"]]
    if code == "authentication_failed":
        return AgentFailure("the provider refused the API key", code)
    return AgentFailure(f"the provider said: {told.get('message')}", code, retryable=is_retryable)


def _sent_back(answer: Any) -> list[dict[str, Any]]:
    """The answer's blocks as a request takes them: thoughts are signed and must come back unchanged."""
    return [
        {"type": "text", "text": block.text} if isinstance(block, TextBlock) else block.to_dict(mode="json")
        for block in answer.content
        if not isinstance(block, TextBlock) or block.text
    ]


def _provider_messages(messages: list[Message]) -> list[ProviderMessage]:
    """Roles take turns, and each call has its result in the very next message: neighbours of one role are joined."""
    answered = {message.get("toolCallId") for message in messages if message["role"] == "tool"}
    joined: list[ProviderMessage] = []
    for role, blocks in _blocks(messages, answered):
        if joined and joined[-1]["role"] == role:
            joined[-1]["content"] += blocks
        elif blocks:
            joined.append({"role": role, "content": blocks})
    return joined


def _blocks(messages: list[Message], answered: set[Any]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    for message in messages:
        text = [{"type": "text", "text": message["content"]}] if message["content"] else []
        if message["role"] == "tool":
            yield "user", [_result(message.get("toolCallId", ""), message["content"], is_error=False)]
        elif message["role"] == "user":
            yield "user", [*map(_image, message.get("images", [])), *text]
        else:
            calls = message.get("toolCalls", [])
            uses = [
                {
                    "type": "tool_use",
                    "id": call["id"],
                    "name": call["name"],
                    "input": call.get("arguments", {}),
                }
                for call in calls
            ]
            yield "assistant", [*text, *uses]
            missing = [call["id"] for call in calls if call["id"] not in answered]
            yield "user", [_result(call_id, _NO_RESULT, is_error=True) for call_id in missing]


def _image(image: ImageRef) -> dict[str, Any]:
    source = {"type": "base64", "media_type": image["mimeType"], "data": image["data"]}
    return {"type": "image", "source": source}


def _tool_result(call: ToolCall) -> dict[str, Any]:
    assert call.result is not None  # noqa: S101 - `run_calls` gave each one
    return _result(call.id, call.result.text, is_error=call.result.is_error)


def _result(call_id: str, text: str, *, is_error: bool) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": text, "is_error": is_error}
