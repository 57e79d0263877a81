"""${message}

Frozen: a step that was released never changes, and imports nothing of recovery.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}
branch_labels = None
depends_on = None


def upgrade() -> None:
    """The way up."""
    prefix = op.get_context().opts["table_prefix"]
    ${upgrades if upgrades else "raise NotImplementedError"}


def downgrade() -> None:
    """There is no way down: restore a backup instead."""
    raise NotImplementedError("recovery's ladder only goes up; restore a backup instead.")
