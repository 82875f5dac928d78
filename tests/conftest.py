"""What every test may ask for."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor

from polyhead import functions

# A suite started in the background inherits "ignore SIGINT", and so would the programs whose Ctrl-C it tests.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN and threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _one_thread_and_seed() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(autouse=True)
def _wide_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables fold to the terminal: give every test one wide enough for the longest temporary path."""
    monkeypatch.setenv("COLUMNS", "250")


@pytest.fixture(autouse=True)
def _registry_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test registers is gone after it, so that no test depends on those before it in its process."""
    monkeypatch.setattr(functions, "_REGISTRY", dict(functions._REGISTRY))


@pytest.fixture
def poisoned_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fill fresh memory with NaN, so that an output nobody wrote shows."""

    def poison(make: Callable[..., Tensor]) -> Callable[..., Tensor]:
        def made(*args: object, **kwargs: object) -> Tensor:
            x = make(*args, **kwargs)
            with torch.no_grad():  # some of torch's own code makes leaves this way
                return x.fill_(torch.nan) if x.is_floating_point() else x

        return made

    for owner, name in ((torch, "empty"), (torch, "empty_like"), (Tensor, "new_empty")):
        monkeypatch.setattr(owner, name, poison(getattr(owner, name)))
