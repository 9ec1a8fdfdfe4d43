"""An agent over any server that speaks OpenAI's chat completions: OpenAI itself, a local model, a gateway.

It keeps no conversation: earlier messages come from the scope's transcript, so any replica can run the next
turn. Functions registered with it and the tools of MCP servers are the model's tools; the calls of one step run at the
same time. The HTTP stream is closed, and closing awaited, on every way out, so that a cancelled turn stops the model too.

Nothing is retried here (`max_retries=0`): `failed` says whether asking again makes sense, and the caller
decides. An answer that ends because it is too long (`finish_reason: length`) counts as completed.
"""

import importlib
import logging
import os
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, field
from typing import Any, TypeVar

import openai
from openai.types.chat import ChatCompletionChunk
from openai.types.chat.chat_completion_chunk import ChoiceDelta, ChoiceDeltaToolCall
from pydantic_core import to_json

from app.agents.adapters.openai_failures import StreamCut, failure
from app.agents.adapters.python_tools import PythonTools
from app.agents.adapters.recognised import advice
from app.agents.adapters.tool_calls import ToolCall, Tools, run_calls
from app.agents.contract import AgentEvent, ImageRef, Json, Message, Model, Prompt, Scope
from app.errors import AgentLoadError

log = logging.getLogger(__name__)

Function = TypeVar("Function", bound=Callable[..., Any])
ProviderMessage = dict[str, Any]

_NO_RESULT = "The turn was stopped before this tool had a result."


class OpenAIChatAgent:
    """`tools` are Python functions; more can be added with the decorator `tool`.

    A session may choose one of `other_models` instead of `model`. `mcp_servers` are addresses, commands, or servers in
    this process, whose tools the model may call too; they need the extra `mcp`. `client` replaces the one that
    `base_url`, `api_key` and `timeout` would make. `max_rounds` bounds how often the model may be asked in one turn,
    `timeout` (seconds) each wait for the provider.
    """

    name = "openai"

    def __init__(
        self,
        *,
        model: str,
        other_models: Iterable[str] = (),
        base_url: str | None = None,
        api_key: str | None = None,
        system_prompt: str | None = None,
        tools: Iterable[Callable[..., Any]] = (),
        mcp_servers: Iterable[Any] = (),
        client: openai.AsyncOpenAI | None = None,
        max_rounds: int = 16,
        timeout: float = 300.0,
    ) -> None:
        """Raises AgentLoadError for MCP servers without the extra `mcp`."""
        # Local servers take any key, but the SDK wants one. The environment's is not for foreign addresses.
        self._key = api_key or ("" if base_url else os.environ.get("OPENAI_API_KEY", ""))
        self._client = client or openai.AsyncOpenAI(
            api_key=self._key or "unset", base_url=base_url, timeout=timeout, max_retries=0
        )
        self._model = model
        self.allowed_models: list[Model] = [
            {"id": each, "provider": "openai", "displayName": each} for each in (model, *other_models)
        ]
        self._system_prompt = system_prompt
        self._tools = PythonTools(tools)
        self._mcp_servers = [*mcp_servers]
        if self._mcp_servers:
            _require_mcp()
        self._max_rounds = max_rounds

    def tool(self, function: Function) -> Function:
        """Let the model call this function. A decorator."""
        self._tools.add(function)
        return function

    async def aclose(self) -> None:
        """Close the connections to the provider."""
        await self._client.close()

    async def invoke(self, scope: Scope, prompt: Prompt, /) -> AsyncIterator[AgentEvent]:
        had_text = False
        try:
            messages = await self._conversation(scope, prompt)
            chosen = scope.get("model")
            model = self._model if chosen is None else chosen["id"]
            async with AsyncExitStack() as stack:
                tools = await self._all_tools(stack)
                events = await stack.enter_async_context(aclosing(self._rounds(model, messages, tools)))
                async for event in events:
                    had_text = had_text or event["type"] == "text"
                    yield event
        except Exception as error:  # noqa: BLE001 - the agent's edge: a failure is an event
            log.warning("the provider's answer failed: %s", type(error).__name__)
            yield failure(error, had_text=had_text, secret=self._key)

    async def _all_tools(self, stack: AsyncExitStack) -> Tools:
        """The functions, and the tools of the MCP servers, to which the stack keeps the connections."""
        if not self._mcp_servers:
            return self._tools
        from app.agents.adapters.frameworks.mcp_tools import connected

        return await stack.enter_async_context(connected(self._mcp_servers, self._tools))

    async def _rounds(
        self, model: str, messages: list[ProviderMessage], tools: Tools
    ) -> AsyncGenerator[AgentEvent, None]:
        """Ask, run the tools that the model calls, ask again, until it calls none."""
        for _ in range(self._max_rounds):
            answer = _Answer()
            async with aclosing(self._ask(_request(model, messages, tools), answer)) as events:
                async for event in events:
                    yield event
            if answer.finish_reason == "content_filter":
                yield _failed("the provider's content filter stopped the answer", "content_filtered")
                return
            if not answer.calls:
                yield {"type": "completed"}
                return
            messages.append(answer.message())
            async with aclosing(run_calls(answer.calls, tools)) as events:
                async for event in events:
                    yield event
            messages += [_tool_message(call.id, call.result.text) for call in answer.calls if call.result]
        yield _failed(f"the model still calls tools after {self._max_rounds} rounds", "too_many_rounds")

    async def _ask(self, request: dict[str, Any], answer: "_Answer") -> AsyncGenerator[AgentEvent, None]:
        stream = await self._client.chat.completions.create(**request)
        try:
            async for chunk in stream:
                for event in answer.take(chunk):
                    yield event
        except openai.APITimeoutError:
            raise
        except openai.APIConnectionError as error:
            raise StreamCut from error
        finally:
            # Not the generator that `async for` made, the stream: only that hangs up.
            await stream.close()
        if answer.finish_reason is None:
            raise StreamCut

    async def _conversation(self, scope: Scope, prompt: Prompt) -> list[ProviderMessage]:
        transcript = scope.get("transcript")
        earlier = await transcript.messages() if transcript is not None else []
        system = [{"role": "system", "content": self._system_prompt}] if self._system_prompt else []
        return [*system, *_provider_messages(earlier), _user_message(prompt["text"], prompt.get("images"))]


def _require_mcp() -> None:
    try:
        importlib.import_module("app.agents.adapters.frameworks.mcp_tools")
    except ImportError as error:
        raise AgentLoadError(
            f"MCP servers need a package that is missing ({error}); {advice('mcp')}"
        ) from error


def _request(model: str, messages: list[ProviderMessage], tools: Tools) -> dict[str, Any]:
    request: dict[str, Any] = {"model": model, "messages": messages, "stream": True}
    told = [
        {
            "type": "function",
            "function": {"name": tool.name, "description": tool.description, "parameters": tool.schema},
        }
        for tool in tools
    ]
    return {**request, "tools": told} if told else request


@dataclass(slots=True)
class _Answer:
    """One answer of the model while it comes in."""

    text: list[str] = field(default_factory=list)
    finish_reason: str | None = None
    _calls: dict[int, list[ToolCall]] = field(default_factory=dict)

    @property
    def calls(self) -> list[ToolCall]:
        return [call for _, calls in sorted(self._calls.items()) for call in calls]

    def take(self, chunk: ChatCompletionChunk) -> Iterator[AgentEvent]:
        """The events of a chunk. A chunk without choices only tells usage."""
        for choice in chunk.choices or []:
            self.finish_reason = choice.finish_reason or self.finish_reason
            if choice.delta is not None:
                yield from self._take_delta(choice.delta)

    def _take_delta(self, delta: ChoiceDelta) -> Iterator[AgentEvent]:
        # Both names are vendors' own and lie beside the SDK's fields.
        reasoning = getattr(delta, "reasoning_content", None) or getattr(delta, "reasoning", None)
        if reasoning and isinstance(reasoning, str):
            yield {"type": "thinking", "delta": reasoning}
        for text in (delta.content, delta.refusal):
            if text:
                self.text.append(text)
                yield {"type": "text", "delta": text}
        for fragment in delta.tool_calls or []:
            self._take_fragment(fragment)

    def _take_fragment(self, fragment: ChoiceDeltaToolCall) -> None:
        """Fragments belong together by index; some servers have only index 0, but an id for each call."""
        calls = self._calls.setdefault(fragment.index or 0, [])
        if not calls or (fragment.id and fragment.id != calls[-1].id):
            calls.append(ToolCall(fragment.id or f"call_{uuid.uuid4().hex}"))
        if fragment.function is not None:
            calls[-1].name += fragment.function.name or ""
            calls[-1].arguments += fragment.function.arguments or ""

    def message(self) -> ProviderMessage:
        calls = [_provider_call(call.id, call.name, call.arguments) for call in self.calls]
        return {"role": "assistant", "content": "".join(self.text) or None, "tool_calls": calls}


def _provider_messages(earlier: list[Message]) -> Iterator[ProviderMessage]:
    """Providers refuse a call without a result, and an answer with neither text nor calls.

    The first gets a result, the second is left out.
    """
    answered = {message.get("toolCallId") for message in earlier if message["role"] == "tool"}
    for message in earlier:
        if message["role"] == "user":
            yield _user_message(message["content"], message.get("images"))
        elif message["role"] == "tool":
            yield _tool_message(message.get("toolCallId", ""), message["content"])
        else:
            calls = message.get("toolCalls") or []
            if message["content"] or calls:
                yield _assistant_message(message["content"], calls)
            yield from (_tool_message(call["id"], _NO_RESULT) for call in calls if call["id"] not in answered)


def _assistant_message(content: str, calls: list[dict[str, Any]]) -> ProviderMessage:
    message: ProviderMessage = {"role": "assistant", "content": content or None}
    if calls:
        message["tool_calls"] = [
            _provider_call(call["id"], call["name"], call.get("arguments", {})) for call in calls
        ]
    return message


def _user_message(text: str, images: list[ImageRef] | None) -> ProviderMessage:
    if not images:
        return {"role": "user", "content": text}
    parts: list[dict[str, Any]] = [{"type": "text", "text": text}] if text else []
    for image in images:
        url = f"data:{image['mimeType']};base64,{image['data']}"
        parts.append({"type": "image_url", "image_url": {"url": url}})
    return {"role": "user", "content": parts}


def _tool_message(call_id: str, text: str) -> ProviderMessage:
    return {"role": "tool", "tool_call_id": call_id, "content": text}


def _provider_call(call_id: str, name: str, arguments: Json) -> ProviderMessage:
    written = arguments if isinstance(arguments, str) else to_json(arguments).decode()
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": written or "{}"}}


def _failed(details: str, code: str) -> AgentEvent:
    return {"type": "failed", "details": details, "retryable": False, "code": code}
