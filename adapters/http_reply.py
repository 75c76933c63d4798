"""One reply of HTTP/1.1 as it comes in, piece by piece, put together. Pure."""

from __future__ import annotations

from msgspec import Struct

HEAD_BYTES_MAX = 64 * 1024
"""Bytes of a reply's head. Design choice: the services need one or two thousand."""

_END_OF_HEAD = b"\r\n\r\n"
_FINAL = 200
_WITHOUT_BODY = (204, 304)


class UnreadableReplyError(Exception):
    """What came is no reply of HTTP/1.1, or was cut short."""


class Reply(Struct, frozen=True):
    """A whole reply; names of headers are in lower case, and ``is_last`` says that no other follows it."""

    status: int
    headers: dict[str, str]
    body: bytes
    is_last: bool


class ReplyReader:
    """Reads one reply to a POST; ``feed`` it what comes, then ``end`` it if the connection ends first."""

    __slots__ = ("_body", "_buffer", "_chunks_done", "_headers", "_is_last", "_length", "_status")

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._status = 0
        self._headers: dict[str, str] = {}
        self._is_last = False
        # Bytes that the body has; None where it comes in chunks, or ends with the connection.
        self._length: int | None = None
        self._body = bytearray()
        self._chunks_done = False

    def feed(self, data: bytes) -> Reply | None:
        """Take in what came; the reply, once it is whole. Raises ``UnreadableReplyError``."""
        self._buffer += data
        while self._status < _FINAL:
            if not self._read_head():
                return None
        if self._length is not None:
            return self._reply(self._length) if len(self._buffer) >= self._length else None
        if self._is_chunked:
            return self._read_chunks()
        return None

    def end(self) -> Reply:
        """The reply, where the end of the connection is its end; raises ``UnreadableReplyError`` where it is not."""
        if self._status < _FINAL or self._length is not None or self._is_chunked:
            raise UnreadableReplyError("the connection ended within a reply")
        return self._reply(len(self._buffer))

    @property
    def _is_chunked(self) -> bool:
        return "transfer-encoding" in self._headers

    def _reply(self, length: int) -> Reply:
        # What lies beyond the reply was not asked for: whoever sends it is not to be asked again.
        is_last = self._is_last or len(self._buffer) > length
        return Reply(self._status, self._headers, bytes(self._buffer[:length]), is_last)

    def _read_head(self) -> bool:
        end = self._buffer.find(_END_OF_HEAD)
        if end < 0:
            if len(self._buffer) > HEAD_BYTES_MAX:
                raise UnreadableReplyError("the head of a reply does not end")
            return False
        first, *lines = self._buffer[:end].decode("latin-1").split("\r\n")
        del self._buffer[: end + len(_END_OF_HEAD)]
        version, _, rest = first.partition(" ")
        status = rest.partition(" ")[0]
        if version not in {"HTTP/1.1", "HTTP/1.0"} or len(status) != len("200") or not status.isdecimal():
            raise UnreadableReplyError(f"{first[:40]!r} begins no reply")
        self._status = int(status)
        # A reply below 200 only says that another is to come.
        self._headers = _headers(lines)
        self._is_last = version == "HTTP/1.0" or "close" in self._headers.get("connection", "").lower()
        self._length = self._length_told()
        return True

    def _length_told(self) -> int | None:
        coding, length = self._headers.get("transfer-encoding"), self._headers.get("content-length")
        if coding is not None:
            if coding.lower() != "chunked":
                raise UnreadableReplyError(f"a body in {coding[:40]!r} was not asked for")
            return None
        if self._status in _WITHOUT_BODY:
            return 0
        if length is None:
            self._is_last = True
            return None
        if not (length.isascii() and length.isdecimal()):
            raise UnreadableReplyError(f"{length[:40]!r} is no length")
        return int(length)

    def _read_chunks(self) -> Reply | None:
        while not self._chunks_done:
            line_end = self._buffer.find(b"\r\n")
            if line_end < 0:
                return None
            size = _chunk_size(bytes(self._buffer[:line_end]))
            begin = line_end + 2
            if size == 0:
                self._chunks_done = True
                # What may stand after the last chunk are further headers; with none, the line end is the end of them.
                del self._buffer[:line_end]
                break
            if len(self._buffer) < begin + size + 2:
                return None
            if self._buffer[begin + size : begin + size + 2] != b"\r\n":
                raise UnreadableReplyError("a chunk is longer than it says")
            self._body += self._buffer[begin : begin + size]
            del self._buffer[: begin + size + 2]
        end = self._buffer.find(_END_OF_HEAD)
        if end < 0:
            return None
        is_last = self._is_last or len(self._buffer) > end + len(_END_OF_HEAD)
        return Reply(self._status, self._headers, bytes(self._body), is_last)


def _headers(lines: list[str]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        name, value = name.lower(), value.strip()
        if not colon or not name or name != name.strip():
            raise UnreadableReplyError(f"{line[:40]!r} is no header")
        if name == "content-length" and headers.get(name, value) != value:
            raise UnreadableReplyError("a reply has two lengths")
        headers[name] = value
    return headers


def _chunk_size(line: bytes) -> int:
    digits = line.partition(b";")[0].strip()
    try:
        size = int(digits, 16)
    except ValueError:
        size = -1
    if size < 0 or not digits.isalnum():
        raise UnreadableReplyError(f"{line[:40]!r} is no size of a chunk")
    return size
