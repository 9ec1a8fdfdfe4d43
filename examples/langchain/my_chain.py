"""A LangChain chain: a prompt and LangChain's fake chat model. No network, no key."""

from langchain_core.language_models import FakeListChatModel
from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder

prompt = ChatPromptTemplate.from_messages(
    [("system", "You are kind."), MessagesPlaceholder("history"), ("user", "{question}")]
)
chain = prompt | FakeListChatModel(responses=["Hello from the chain."])
