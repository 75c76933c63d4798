"""BARE's own types as bytes and back: lengths, bytes, texts, and what may be missing.

What reads raises ``IndexError``, ``struct.error`` or ``ValueError`` for bytes that are none of these.
"""

from __future__ import annotations

import struct

from engine.limits import U64_MAX

BYTE = tuple(bytes((number,)) for number in range(256))
"""Each number of one byte, as bytes: looked up, since making one costs more."""

_U64 = struct.Struct("<Q")
_ONE_BYTE_MAX = 0x7F
_VARINT_SHIFT_MAX = 63


def write_varint(number: int) -> bytes:
    """A length or a count, in its shortest form."""
    if number <= _ONE_BYTE_MAX:
        return BYTE[number]
    digits = bytearray()
    while number > _ONE_BYTE_MAX:
        digits.append(number & _ONE_BYTE_MAX | 0x80)
        number >>= 7
    digits.append(number)
    return bytes(digits)


def write_data(content: bytes) -> bytes:
    """Bytes behind their length."""
    size = len(content)
    return (BYTE[size] if size <= _ONE_BYTE_MAX else write_varint(size)) + content


def write_text(text: str) -> bytes:
    """A text in UTF-8 behind its length."""
    return write_data(text.encode())


def write_optional_text(text: str | None) -> bytes:
    """A text, or that there is none."""
    return b"\0" if text is None else b"\1" + write_data(text.encode())


def write_optional_error(text: str | None) -> bytes:
    """As ``write_optional_text``, of any text."""
    # The message of an error may hold lone surrogates (of an undecodable file name, say); it must not fail the flush.
    return b"\0" if text is None else b"\1" + write_data(text.encode(errors="backslashreplace"))


def write_optional_data(content: bytes | None) -> bytes:
    """Bytes, or that there are none."""
    return b"\0" if content is None else b"\1" + write_data(content)


def read_varint(data: bytes, offset: int) -> tuple[int, int]:
    """What ``write_varint`` wrote, and where it ends."""
    digit = data[offset]
    offset += 1
    number = digit & _ONE_BYTE_MAX
    shift = 7
    while digit > _ONE_BYTE_MAX:
        if shift > _VARINT_SHIFT_MAX:
            raise ValueError("a length is longer than 64 bits")
        digit = data[offset]
        offset += 1
        if not digit:
            raise ValueError("a length is not in its shortest form")
        number |= (digit & _ONE_BYTE_MAX) << shift
        shift += 7
    if number > U64_MAX:
        raise ValueError("a length is longer than 64 bits")
    return number, offset


def read_data(data: bytes, offset: int) -> tuple[bytes, int]:
    """What ``write_data`` wrote, and where it ends."""
    size = data[offset]
    offset += 1
    if size > _ONE_BYTE_MAX:
        size, offset = read_varint(data, offset - 1)
    end = offset + size
    if end > len(data):
        raise ValueError(f"{size} bytes are announced and {len(data) - offset} are there")
    return data[offset:end], end


def read_text(data: bytes, offset: int) -> tuple[str, int]:
    """What ``write_text`` wrote, and where it ends."""
    content, offset = read_data(data, offset)
    return content.decode(), offset


def read_optional_data(data: bytes, offset: int) -> tuple[bytes | None, int]:
    """What ``write_optional_data`` wrote, and where it ends."""
    if data[offset] == 0:
        return None, offset + 1
    _check_present(data[offset])
    return read_data(data, offset + 1)


def read_optional_text(data: bytes, offset: int) -> tuple[str | None, int]:
    """What ``write_optional_text`` wrote, and where it ends."""
    if data[offset] == 0:
        return None, offset + 1
    _check_present(data[offset])
    return read_text(data, offset + 1)


def read_optional_u64(data: bytes, offset: int) -> tuple[int | None, int]:
    """A number of 64 bits, or None, and where it ends."""
    if data[offset] == 0:
        return None, offset + 1
    _check_present(data[offset])
    return _U64.unpack_from(data, offset + 1)[0], offset + 9


def _check_present(flag: int) -> None:
    if flag != 1:
        raise ValueError(f"{flag} says neither present nor absent")
