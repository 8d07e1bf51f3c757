"""Where engines ask a sender for its weights: a store, and a ticket for each ask.

Collectives need both sides at the same time. An engine asks here, and a thread of the sender's goes
to meet it; so the sender needs to know neither who there is nor who has died. An ask is a single
message: an engine that is lost in the middle leaves nothing that the next would wait behind.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import ray
import torch.distributed

from grpo.rollout.patience import call_within

# torch's type hints leave most of this out.
distributed: Any = torch.distributed

CONNECT_TIMEOUT = timedelta(seconds=30)
# The store's clients warn when they time out, so the thread that listens waits without a limit.
_FOR_EVER = timedelta(days=3650)
_ASKED, _ANSWER = "asked", "answer"
_CLOSED = "closed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where a desk is.

    Attributes:
        host: Of its node.
        port: Of its store.
    """

    host: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """What was asked.

    Attributes:
        text: In the words of the transport.
        ticket: A name that no other has.
        store: A connection to the store for whoever deals with it.
    """

    text: str
    ticket: str
    store: Any

    def answer(self, text: str) -> None:
        """Say something to who asked; once."""
        self.store.set(f"{_ANSWER}/{self.ticket}", text)


class Desk:
    """Listens for asks, and deals with each in a thread of its own.

    Args:
        deal: With an ask; it answers first. What it raises is its own affair: who asked notices
            that nobody comes.
    """

    def __init__(self, deal: Callable[[Ask], None]) -> None:
        self._deal = deal
        host = own_address()
        self._store = distributed.TCPStore(
            host, 0, is_master=True, wait_for_workers=False, timeout=CONNECT_TIMEOUT
        )
        self.address = Address(host=host, port=self._store.port)
        self._listener = threading.Thread(
            target=self._listen, args=(self._store.clone(),), name="weights", daemon=True
        )
        self._listener.start()

    def close(self) -> None:
        """Stop listening. Calling it twice is harmless."""
        if self._listener.is_alive():
            self._store.queue_push(_ASKED, _CLOSED)
            self._listener.join()

    def _listen(self, store: Any) -> None:
        while True:
            store.wait([_ASKED], _FOR_EVER)
            message = store.queue_pop(_ASKED).decode()
            if message == _CLOSED:
                return
            ticket, text = message.split(maxsplit=1)
            ask = Ask(text=text, ticket=ticket, store=store.clone())
            threading.Thread(target=self._deal, args=(ask,), daemon=True).start()


def ask(address: Address, text: str) -> tuple[Ask, str]:
    """Ask a desk for something.

    Returns:
        The ask, for meeting its sender, and the answer.

    Raises:
        RuntimeError: Nobody listens there, or nobody answers.
    """
    # The store's own limits, for the connection and for the answer, come first where they hold.
    return call_within(3 * CONNECT_TIMEOUT, lambda: _ask(address, text), doing="asking for weights")


def _ask(address: Address, text: str) -> tuple[Ask, str]:
    store = distributed.TCPStore(
        address.host, address.port, wait_for_workers=False, timeout=CONNECT_TIMEOUT
    )
    ticket = uuid.uuid4().hex
    store.queue_push(_ASKED, f"{ticket} {text}")
    return Ask(text=text, ticket=ticket, store=store), store.get(f"{_ANSWER}/{ticket}").decode()


def own_address() -> str:
    """The address of this node that others reach it by."""
    return ray.util.get_node_ip_address()
