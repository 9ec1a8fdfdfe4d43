"""Every setting, typed and in one place. Each is read from the environment with the prefix `TARKO_`."""

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic_settings import BaseSettings, SettingsConfigDict


class A2ARemote(BaseModel):
    """How one remote A2A agent is talked to. Times are seconds."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    token: str | None = Field(None, repr=False, description="Sent as a bearer token; else `remote_token` is.")
    headers: dict[str, str] = Field({}, repr=False, description="Sent with every request.")
    session_header: str | None = Field(
        None, description="The header by which the agent tells conversations apart."
    )
    card: bool = Field(
        default=True, description="Look for the agent's card; else only the endpoint is asked."
    )
    version: Literal["1.0", "0.3"] | None = Field(None, description="The only version to speak.")
    streaming: bool | None = Field(None, description="Ask for streams or don't, whatever the card says.")
    idempotent: bool = Field(default=False, description="A message that comes twice is taken once.")
    deadline: float = Field(900, gt=0, description="How long a task may show no sign of life.")
    silence: float = Field(330, gt=0, description="How long a stream or an answer may say nothing.")


class Settings(BaseSettings):
    """What an operator may choose. Sizes are bytes, times are seconds."""

    model_config = SettingsConfigDict(env_prefix="TARKO_", extra="ignore")

    host: str = Field("127.0.0.1", description="Address to listen on. Any but a loopback one needs tokens.")
    port: int = Field(8888, ge=0, le=65535, description="Port to listen on; 0 takes a free one.")
    insecure: bool = Field(default=False, description="Listen on a foreign address without tokens.")
    agent: str = Field(
        "demo",
        description="`demo`, `openai`, `tarko:<url>`, `a2a:<url>` or `fastagent:<url>` (an agent elsewhere), or "
        "`package.module:name`.",
    )
    middleware: str = Field(
        "",
        description="What is put around the agent, outermost first: `deadline(seconds=60), retry(times=2)`.",
    )
    data_dir: Path = Field(Path(".tarko"), description="Where the embedded database lives.")
    database_url: str | None = Field(None, description="A PostgreSQL 15+ server; unset: the embedded one.")
    workers: int = Field(1, ge=1, le=64, description="Processes that serve; each runs turns of its own.")
    pool_size: int = Field(8, ge=2, le=100, description="Database connections of each worker.")
    tokens: str = Field(
        "", description="Who may come in: `alice=token1,bob=token2`. Empty: no token is asked."
    )
    allowed_hosts: str = Field(
        "", description="Names in the Host header besides the loopback ones, by comma; `*`: any."
    )
    allowed_origins: str = Field(
        "", description="Foreign web origins that may call, by comma, such as `https://chat.example`."
    )
    cookie_lifetime: int = Field(7 * 24 * 3600, gt=0, description="How long a browser stays logged in.")
    delta_retention: float = Field(
        3600, ge=0, description="How long deltas are kept after their turn has ended."
    )
    on_busy: Literal["reject", "queue", "interrupt"] = Field(
        "reject", description="What a query to a busy session does if it does not say."
    )
    queue_limit: int = Field(16, ge=0, description="How many turns may wait in a session.")
    turn_deadline: float = Field(0, ge=0, description="How long a turn may take; 0: for ever.")
    turn_silence: float = Field(0, ge=0, description="How long an agent may say nothing; 0: for ever.")
    outage_limit: float = Field(30, gt=0, description="How long the database may be away before turns fail.")
    drain_grace: float = Field(10, gt=0, description="How long a stopping server takes at most.")
    ping_interval: float = Field(
        15, gt=0, le=29, description="Silence on a stream after which a comment is sent."
    )
    send_timeout: float = Field(
        60, gt=0, description="How long a reader may refuse bytes before it is let go."
    )
    max_body: int = Field(20 * 2**20, gt=0, description="Largest request body and socket message.")
    max_event: int = Field(16 * 2**20, gt=0, description="Largest event of an agent, encoded.")
    max_turn: int = Field(64 * 2**20, gt=0, description="Largest sum of a turn's closing messages, encoded.")
    public_url: str | None = Field(
        None,
        pattern=r"^https?://\S+$",
        description="How callers reach the server, for A2A cards; unset: as they did.",
    )
    a2a_final_task: str = Field(
        "",
        description="Whose A2A 0.3 streams end with the full task, by principal and comma; `*`: everybody's. "
        "Those of 1.0 always do.",
    )
    a2a_idempotency: bool = Field(
        default=True, description="Take an A2A message with a known id for the same message."
    )
    a2a_heartbeat: float = Field(
        30, gt=0, description="Silence on an A2A stream after which the status is said again."
    )
    log_level: str = Field("info", description="`debug`, `info`, `warning` or `error`.")
    ui_title: str = Field("Tarko", description="What the official UI at `/ui/` calls itself.")
    workspace: Path | None = Field(
        None, description="A folder whose files the UI offers behind an `@`, to be read only; unset: none."
    )
    openai_base_url: str | None = Field(None, description="Where the `openai` agent finds its model.")
    openai_api_key: str | None = Field(None, repr=False, description="Its key; local servers take any.")
    openai_model: str = Field("gpt-4o-mini", description="Its model.")
    openai_models: str = Field("", description="Others that a session may choose, by comma.")
    openai_system_prompt: str | None = Field(None, description="What the model is told first.")
    openai_mcp_servers: str = Field(
        "", description="MCP servers whose tools it may call, by comma: addresses or commands."
    )
    remote_token: str | None = Field(
        None,
        repr=False,
        description="The token that a `tarko:<url>`, `a2a:<url>` or `fastagent:<url>` agent is asked with.",
    )
    a2a_remotes: dict[str, A2ARemote] = Field(
        {},
        repr=False,
        description="How remote A2A agents are talked to: JSON, by address (see docs/remote-agents.md).",
    )
