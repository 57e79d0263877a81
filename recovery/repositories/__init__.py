"""Four repositories along one corridor: inbox, tasks, outbox, and across the street the receipts; one journal.

Each takes a Connection and never begins, commits or retries: on the caller's own Connection its rows live or die with
the caller's rows.
"""

from recovery.repositories.inbox import InboxRepository
from recovery.repositories.journal import JournalRepository
from recovery.repositories.outbox import OutboxRepository
from recovery.repositories.receipts import ReceiptRepository
from recovery.repositories.tasks import TaskRepository

__all__ = ["InboxRepository", "JournalRepository", "OutboxRepository", "ReceiptRepository", "TaskRepository"]
