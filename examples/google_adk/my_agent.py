"""A Google ADK agent. ADK has no public test model, so this one is ten lines. No network, no key."""

from collections.abc import AsyncGenerator

from google.adk.agents import LlmAgent
from google.adk.models import BaseLlm, LlmRequest, LlmResponse
from google.genai import types


class Parrot(BaseLlm):
    """Says again what the user said."""

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        said = llm_request.contents[-1].parts[0].text
        yield LlmResponse(content=types.Content(role="model", parts=[types.Part(text=f"You said: {said}")]))


root_agent = LlmAgent(name="parrot", model=Parrot(model="parrot"))
