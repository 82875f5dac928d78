"""A process that turns chunks of documents into token ids; ends with its parent.

Run as ``python -m polyhead.language.tokenise_worker``. Over its pipes go messages, each a length of 8 bytes and as many
bytes. The first it is sent is a tokenizer's JSON; then come chunks, `pack_texts`, each answered by its ids, `pack_ids`.
"""

from __future__ import annotations

import os
import signal
import struct
import sys
from collections.abc import Sequence
from typing import IO, Any

import numpy as np
import numpy.typing as npt

__all__ = ["pack_ids", "pack_texts", "receive", "send", "unpack_ids", "unpack_texts"]

_LENGTH = struct.Struct("<Q")

Counts = npt.NDArray[np.uint64]


def send(pipe: IO[bytes], message: bytes) -> None:
    """Write one message."""
    pipe.write(_LENGTH.pack(len(message)))
    pipe.write(message)
    pipe.flush()


def receive(pipe: IO[bytes]) -> bytes | None:
    """Read one message; None when the other side is gone."""
    header = pipe.read(_LENGTH.size)
    if len(header) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack(header)
    message = pipe.read(length)
    return message if len(message) == length else None


def pack_texts(texts: Sequence[bytes]) -> bytes:
    """UTF-8 documents as one message."""
    sizes = np.array([len(texts), *map(len, texts)], dtype="<u8")
    return b"".join((sizes.tobytes(), *texts))


def unpack_texts(message: bytes) -> list[str]:
    """The documents of `pack_texts`."""
    (count,) = _LENGTH.unpack_from(message)
    ends = np.cumsum(np.frombuffer(message, "<u8", count + 1)[1:]) + np.uint64(_LENGTH.size * (count + 1))
    starts = np.concatenate([[_LENGTH.size * (count + 1)], ends[:-1]]) if count else ends
    return [message[int(a) : int(b)].decode("utf-8") for a, b in zip(starts, ends, strict=True)]


def pack_ids(documents: Sequence[npt.NDArray[np.integer[Any]]], end_of_text: int, dtype: np.dtype[Any]) -> bytes:
    """Ids of documents as one message: how many documents, tokens of each with its end-of-text, all ids."""
    counts = np.array([len(documents), *(len(ids) + 1 for ids in documents)], dtype="<u8")
    end = np.array([end_of_text])
    stream = np.concatenate([part for ids in documents for part in (ids, end)])
    return counts.tobytes() + stream.astype(dtype).tobytes()


def unpack_ids(message: bytes) -> tuple[Counts, bytes]:
    """Tokens of each document, end-of-text included, and the bytes of all ids."""
    (count,) = _LENGTH.unpack_from(message)
    return np.frombuffer(message, "<u8", count + 1)[1:], message[_LENGTH.size * (count + 1) :]


def main() -> int:
    """Answer until the pipe ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle; this ends with its pipe
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # one process, one core: the processes are the parallelism
    from polyhead.language import tokenizer
    from polyhead.language.token_files import TokenKind

    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # nothing a library prints may get between the answers
    first = receive(sys.stdin.buffer)
    if first is None:
        return 0
    made = tokenizer.from_json(first.decode("utf-8"))
    dtype = TokenKind("", made.get_vocab_size(), tokenizer.END_OF_TEXT_ID).dtype
    while (message := receive(sys.stdin.buffer)) is not None:
        ids = [document.ids for document in tokenizer.encode(made, unpack_texts(message))]
        send(answers, pack_ids(ids, tokenizer.END_OF_TEXT_ID, dtype))
    return 0


if __name__ == "__main__":
    sys.exit(main())
