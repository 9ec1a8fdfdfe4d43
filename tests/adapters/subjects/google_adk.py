"""Google ADK: a `BaseLlm` that streams, since ADK has no public model for tests."""

import json
import uuid
from collections.abc import AsyncGenerator
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.models import BaseLlm, LlmRequest, LlmResponse
from google.adk.runners import InMemoryRunner
from google.genai import types
from pydantic import BaseModel

from tests.adapters.brain import (
    REPORT,
    Call,
    Fail,
    Hang,
    ProviderError,
    Say,
    Seen,
    Think,
    broken,
    gates,
    steps,
    wait,
    weather,
)


class BrainModel(BaseLlm):
    """Partial responses, then the whole of them."""

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        whole: list[types.Part] = []
        for step in steps(_seen(llm_request.contents)):
            match step:
                case Say(text):
                    part = types.Part(text=text)
                case Think(text):
                    part = types.Part(text=text, thought=True)
                case Call(name, arguments):
                    call = types.FunctionCall(id=f"call_{uuid.uuid4().hex}", name=name, args=arguments)
                    whole.append(types.Part(function_call=call))
                    continue
                case Fail(status):
                    raise ProviderError(status)
                case Hang():
                    await gates["text"].hang()
            yield _response([part], partial=True)
            whole = _joined(whole, part)
        yield _response(whole)


def _joined(whole: list[types.Part], part: types.Part) -> list[types.Part]:
    if whole and whole[-1].thought == part.thought:
        return [*whole[:-1], types.Part(text=f"{whole[-1].text}{part.text}", thought=part.thought)]
    return [*whole, part]


def _response(parts: list[types.Part], *, partial: bool = False) -> LlmResponse:
    return LlmResponse(content=types.Content(role="model", parts=parts), partial=partial)


def _seen(contents: list[types.Content]) -> list[Seen]:
    seen = []
    for content in contents:
        parts = content.parts or []
        text = "".join(part.text for part in parts if part.text)
        images = tuple(part.inline_data.mime_type or "" for part in parts if part.inline_data)
        for part in parts:
            if part.function_response is not None:
                response = part.function_response.response or {}
                seen.append(Seen("tool", str(response.get("result", response))))
        if text or images:
            seen.append(Seen("assistant" if content.role == "model" else "user", text, images))
    return seen


root_agent = LlmAgent(name="brain", model=BrainModel(model="brain"), tools=[weather, wait, broken])


class Report(BaseModel):
    city: str
    celsius: int


class ReportModel(BaseLlm):
    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        yield _response([types.Part(text=json.dumps(REPORT))])


structured = LlmAgent(name="report", model=ReportModel(model="report"), output_schema=Report)


async def final_text() -> str:
    """What ADK itself calls the answer to `hello`."""
    runner = InMemoryRunner(root_agent)
    session = await runner.session_service.create_session(app_name=runner.app_name, user_id="u")
    content = types.Content(role="user", parts=[types.Part(text="hello")])
    text = ""
    async for event in runner.run_async(user_id="u", session_id=session.id, new_message=content):
        if event.is_final_response() and event.content and event.content.parts:
            text = event.content.parts[0].text or ""
    return text


def make() -> Any:
    return root_agent
