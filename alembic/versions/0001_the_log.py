"""The log: sessions, heads, turns, events, replicas."""

from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

UP = """
CREATE TABLE sessions (
  id text COLLATE "C" PRIMARY KEY,
  principal text COLLATE "C" NOT NULL,
  agent text COLLATE "C" NOT NULL,
  name text,
  tags json NOT NULL,
  attributes json NOT NULL,
  created_at bigint NOT NULL,
  updated_at bigint NOT NULL,
  deleted_at bigint
);
CREATE INDEX sessions_of_principal ON sessions (principal, created_at DESC, id DESC);
CREATE INDEX sessions_deleted ON sessions (deleted_at) WHERE deleted_at IS NOT NULL;

CREATE TABLE heads (
  session_id text COLLATE "C" PRIMARY KEY,
  last_seq bigint NOT NULL,
  lasting_count bigint NOT NULL,
  phase text COLLATE "C" NOT NULL
) WITH (fillfactor = 50);

CREATE TABLE turns (
  id text COLLATE "C" PRIMARY KEY,
  session_id text COLLATE "C" NOT NULL,
  state text COLLATE "C" NOT NULL,
  owner text COLLATE "C" NOT NULL,
  epoch integer NOT NULL,
  stored integer NOT NULL,
  first_seq bigint NOT NULL,
  last_seq bigint NOT NULL,
  trace_id text COLLATE "C",
  status text COLLATE "C",
  code text COLLATE "C",
  started_at bigint NOT NULL,
  ended_at bigint,
  is_retired boolean NOT NULL
) WITH (fillfactor = 70);
CREATE UNIQUE INDEX turns_running ON turns (session_id) WHERE state = 'running';
CREATE INDEX turns_of_session ON turns (session_id, started_at);
CREATE INDEX turns_owned ON turns (owner) WHERE state = 'running';
CREATE INDEX turns_to_retire ON turns (ended_at) WHERE state = 'ended' AND NOT is_retired;

CREATE TABLE events (
  session_id text COLLATE "C" NOT NULL,
  seq bigint NOT NULL,
  ordinal bigint,
  turn_id text COLLATE "C",
  type text COLLATE "C" NOT NULL,
  ts bigint NOT NULL,
  data json NOT NULL,
  metadata json NOT NULL,
  key text COLLATE "C",
  PRIMARY KEY (session_id, seq)
);
ALTER TABLE events ALTER COLUMN data SET STORAGE EXTERNAL;
CREATE UNIQUE INDEX events_lasting ON events (session_id, ordinal) WHERE ordinal IS NOT NULL;
CREATE UNIQUE INDEX events_keyed ON events (key) WHERE key IS NOT NULL;
CREATE INDEX events_tool_calls ON events (session_id, seq) WHERE type = 'tool_call';

CREATE TABLE replicas (
  id text COLLATE "C" PRIMARY KEY,
  beat_at timestamptz NOT NULL
);
"""

DOWN = "DROP TABLE replicas, events, turns, heads, sessions"


def upgrade() -> None:
    for statement in UP.split(";"):
        if statement.strip():
            op.execute(statement)


def downgrade() -> None:
    op.execute(DOWN)
