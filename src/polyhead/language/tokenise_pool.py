"""Chunks of documents through several tokenising processes, answered in the order they came, few at a time."""

from __future__ import annotations

import contextlib
import itertools
import os
import queue
import subprocess
import sys
from collections import deque
from collections.abc import Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from tokenizers import Tokenizer

from polyhead.errors import PolyheadError
from polyhead.language import tokenizer
from polyhead.language.token_files import TokenKind
from polyhead.language.tokenise_worker import pack_ids, pack_texts, receive, send

__all__ = ["default_processes", "tokenised"]

_COMMAND = (sys.executable, "-m", "polyhead.language.tokenise_worker")
_FEW = 8  # chunks or fewer are done in this process: they take less time than starting others

Tagged = TypeVar("Tagged")


def default_processes() -> int:
    """One process a core this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def tokenised(
    made: Tokenizer, chunks: Iterable[tuple[Tagged, list[bytes]]], processes: int
) -> Generator[tuple[Tagged, bytes]]:
    """Yield (tag, `pack_ids` of the documents) for each (tag, documents as UTF-8), in the order of `chunks`.

    At most 2 `processes` + 1 chunks are held at once. The ids do not depend on `processes`.

    Raises:
        PolyheadError: a process ended early, killed for want of memory, say.
    """
    stream = iter(chunks)
    first = list(itertools.islice(stream, _FEW + 1))
    if len(first) <= _FEW:
        for tag, texts in first:
            yield tag, _here(made, texts)
        return
    with contextlib.ExitStack() as stack:
        workers: queue.SimpleQueue[_Worker] = queue.SimpleQueue()
        asking = stack.enter_context(ThreadPoolExecutor(processes))
        for _ in range(processes):
            worker = _Worker(made)
            stack.callback(worker.stop)  # before the pool waits for its threads, which then read the end of the pipe
            workers.put(worker)

        def ask(texts: list[bytes]) -> bytes:
            worker = workers.get()
            try:
                return worker.ask(texts)
            finally:
                workers.put(worker)

        waiting: deque[tuple[Tagged, Future[bytes]]] = deque()
        for tag, texts in itertools.chain(first, stream):
            waiting.append((tag, asking.submit(ask, texts)))
            if len(waiting) > 2 * processes:
                done, answer = waiting.popleft()
                yield done, answer.result()
        while waiting:
            done, answer = waiting.popleft()
            yield done, answer.result()


def _here(made: Tokenizer, texts: list[bytes]) -> bytes:
    ids = [document.ids for document in tokenizer.encode(made, (text.decode("utf-8") for text in texts))]
    end_of_text = tokenizer.END_OF_TEXT_ID
    return pack_ids(ids, end_of_text, TokenKind("", made.get_vocab_size(), end_of_text).dtype)


class _Worker:
    """A tokenising process and its pipes; used by one thread at a time."""

    def __init__(self, made: Tokenizer) -> None:
        # a session of its own: Ctrl-C reaches this process only, which then stops the others
        self.process = subprocess.Popen(_COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
        with contextlib.suppress(BrokenPipeError):  # it ended at once: the first answer will say so
            self._send(made.to_str().encode("utf-8"))

    def ask(self, texts: list[bytes]) -> bytes:
        answer = None
        with contextlib.suppress(BrokenPipeError):
            self._send(pack_texts(texts))
            assert self.process.stdout is not None
            answer = receive(self.process.stdout)
        if answer is None:
            code = self.process.wait()
            why = f"signal {-code}" if code < 0 else f"exit code {code}"
            do = "run again, with fewer processes if memory ran out: what is done is kept"
            raise PolyheadError.of("tokenising", f"a process that ended early ({why})", "it to go on", do)
        return answer

    def _send(self, message: bytes) -> None:
        assert self.process.stdin is not None
        send(self.process.stdin, message)

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
