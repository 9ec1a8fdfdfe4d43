"""Questions: turns that answer an earlier one, and the order of a session's turns."""

from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

UP = """
ALTER TABLE turns ADD COLUMN continues text COLLATE "C";
CREATE INDEX turns_continuing ON turns (continues, first_seq) WHERE continues IS NOT NULL;
DROP INDEX turns_of_session;
CREATE INDEX turns_of_session ON turns (session_id, first_seq);
"""

DOWN = """
DROP INDEX turns_of_session;
CREATE INDEX turns_of_session ON turns (session_id, started_at);
DROP INDEX turns_continuing;
ALTER TABLE turns DROP COLUMN continues;
"""


def upgrade() -> None:
    _execute(UP)


def downgrade() -> None:
    _execute(DOWN)


def _execute(statements: str) -> None:
    for statement in statements.split(";"):
        if statement.strip():
            op.execute(statement)
