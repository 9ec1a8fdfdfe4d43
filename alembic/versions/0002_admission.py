"""Admission: turns that wait, idempotency keys, stops asked for by other processes."""

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

UP = """
ALTER TABLE heads ADD COLUMN queued integer NOT NULL DEFAULT 0;
ALTER TABLE turns ADD COLUMN stop text COLLATE "C";

CREATE SEQUENCE queue_positions;
CREATE TABLE queued_turns (
  turn_id text COLLATE "C" PRIMARY KEY,
  session_id text COLLATE "C" NOT NULL,
  position bigint NOT NULL,
  accepted_at bigint NOT NULL,
  trace_id text COLLATE "C",
  query json NOT NULL
);
CREATE UNIQUE INDEX queued_turns_in_order ON queued_turns (session_id, position);

CREATE TABLE idempotency_keys (
  session_id text COLLATE "C" NOT NULL,
  key text COLLATE "C" NOT NULL,
  turn_id text COLLATE "C" NOT NULL,
  request_hash text COLLATE "C" NOT NULL,
  created_at bigint NOT NULL,
  PRIMARY KEY (session_id, key)
);
CREATE INDEX idempotency_keys_by_age ON idempotency_keys (created_at);
"""

DOWN = """
DROP TABLE idempotency_keys, queued_turns;
DROP SEQUENCE queue_positions;
ALTER TABLE turns DROP COLUMN stop;
ALTER TABLE heads DROP COLUMN queued;
"""


def upgrade() -> None:
    _execute(UP)


def downgrade() -> None:
    _execute(DOWN)


def _execute(statements: str) -> None:
    for statement in statements.split(";"):
        if statement.strip():
            op.execute(statement)
