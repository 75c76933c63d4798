"""The keys of a workflow's namespace: FoundationDB tuples, so that the order of bytes is the order of the run.

Every element of a tuple delimits itself: an integer's type code says how many bytes follow it, texts and nested tuples
end with a zero. So one location's bytes are a prefix of another's exactly where its tuple is a prefix of the other's.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from engine.errors import CorruptHistoryError
from engine.limits import U32_MAX
from engine.location import LoopIteration

if TYPE_CHECKING:
    from engine.location import Location

Element = int | str | bytes | tuple["Element", ...]
"""What a key can hold: integers from 0 to 2**64 - 1, text, bytes, and tuples of these one level deep."""

_BYTES, _TEXT, _NESTED = 0x01, 0x02, 0x05
_ZERO = 0x14
_INTEGER_BYTES_MAX = 8
_BEYOND = b"\xff"
"""Greater than every type code, so that a prefix with it appended is above every key below that prefix."""


def _pack_integer(number: int) -> bytes:
    if number < 0 or number.bit_length() > _INTEGER_BYTES_MAX * 8:
        raise ValueError(f"{number} is outside of what a key can hold")
    size = (number.bit_length() + 7) // 8
    return bytes((_ZERO + size,)) + number.to_bytes(size, "big")


# Nearly every name index and iteration is this small, and packing them is on the path of every operation.
_SMALL = tuple(_pack_integer(number) for number in range(1024))
_SMALL_COUNT = len(_SMALL)
_TWO_BYTES = struct.Struct(">BH")
_TWO_BYTES_MAX = 0xFFFF


def _pack_element(element: Element) -> bytes:
    if isinstance(element, int):
        return _pack_integer(element)
    if isinstance(element, str):
        return b"\x02" + element.encode().replace(b"\0", b"\0\xff") + b"\0"
    if isinstance(element, bytes):
        return b"\x01" + element.replace(b"\0", b"\0\xff") + b"\0"
    return b"\x05" + pack(element) + b"\0"


def pack(elements: tuple[Element, ...]) -> bytes:
    """The bytes of a tuple."""
    return b"".join(map(_pack_element, elements))


NAMES_PREFIX = pack((1,))
HISTORY_PREFIX = pack((2,))
WORKFLOW_PREFIX = pack((3,))
METADATA_PREFIX = pack((4,))
DOCUMENT_PREFIX = pack((5,))
"""Not the reference's: it reads the four above, and leaves these alone."""
STATE_KEY = pack((3, 1))
OUTPUT_KEY = pack((3, 2))
ERROR_KEY = pack((3, 3))
INPUT_KEY = pack((3, 4))


_NAME_STARTS = tuple(NAMES_PREFIX + bytes((_ZERO + size,)) for size in range(3))
_NAME_START_BYTES = len(_NAME_STARTS[0])
_SMALL_BYTES_MAX = len(_NAME_STARTS) - 1
_METADATA_START = METADATA_PREFIX + bytes((_TEXT,))
_METADATA_START_BYTES = len(_METADATA_START)


# --- building -----------------------------------------------------------------------------------------------------


def name_key(index: int) -> bytes:
    """The key of the name with this index in the registry."""
    return child_key(NAMES_PREFIX, index)


def child_key(scope_key: bytes, name_index: int) -> bytes:
    """The key of the entry ``name_index`` directly inside the scope at ``scope_key`` (of the root: HISTORY_PREFIX)."""
    if 0 <= name_index < _SMALL_COUNT:
        return scope_key + _SMALL[name_index]
    if _SMALL_COUNT <= name_index <= _TWO_BYTES_MAX:
        return scope_key + _TWO_BYTES.pack(_ZERO + 2, name_index)
    return scope_key + _pack_integer(name_index)


def iteration_key(loop_key: bytes, loop: int, iteration: int) -> bytes:
    """The key of one iteration of the loop at ``loop_key``, whose name has the index ``loop``: its scope's key."""
    if 0 <= iteration < _SMALL_COUNT and 0 <= loop < _SMALL_COUNT:
        return b"%b\x05%b%b\0" % (loop_key, _SMALL[loop], _SMALL[iteration])
    return b"%b\x05%b%b\0" % (loop_key, _pack_integer(loop), _pack_integer(iteration))


def entry_key(location: Location) -> bytes:
    """The key of the entry at ``location``; of the root, HISTORY_PREFIX."""
    key = HISTORY_PREFIX
    for segment in location:
        key = iteration_key(key, *segment) if isinstance(segment, LoopIteration) else child_key(key, segment)
    return key


def metadata_key(entry_id: str) -> bytes:
    """The key of the metadata of the entry with this id."""
    return METADATA_PREFIX + _pack_element(entry_id)


def document_key(entry_key: bytes) -> bytes:
    """The key of the version of the document that is kept beside the entry at ``entry_key``; their orders are one."""
    return DOCUMENT_PREFIX + entry_key[len(HISTORY_PREFIX) :]


def documented_key(key: bytes) -> bytes:
    """The key of the entry beside which the version of the document at ``key`` is kept."""
    return HISTORY_PREFIX + key[len(DOCUMENT_PREFIX) :]


def range_of(prefix: bytes) -> tuple[bytes, bytes]:
    """``(start, end)``: ``start <= key < end`` holds for ``prefix`` itself and every key below it, and no other."""
    return prefix, prefix + _BEYOND


def iteration_range(loop_key: bytes, loop: int, start: int, end: int) -> tuple[bytes, bytes]:
    """``(start, end)`` keys, half-open, around everything inside the iterations ``start`` to ``end - 1`` of a loop."""
    return iteration_key(loop_key, loop, start), iteration_key(loop_key, loop, end)


# --- reading ------------------------------------------------------------------------------------------------------


def parse_name_key(key: bytes) -> int:
    """The registry index in a name's key.

    Raises:
        CorruptHistoryError: it is no such key.
    """
    size = len(key) - _NAME_START_BYTES
    # Every name of a history is loaded at every wake: the usual form is read without taking the tuple apart.
    if 0 < size <= _SMALL_BYTES_MAX and key[:_NAME_START_BYTES] == _NAME_STARTS[size] and key[_NAME_START_BYTES]:
        return int.from_bytes(key[_NAME_START_BYTES:], "big")
    match unpack(key):
        case (1, int(index)) if index <= U32_MAX:
            return index
    raise _foreign(key, "a name")


def parse_entry_key(key: bytes) -> Location:
    """The location in an entry's key.

    Raises:
        CorruptHistoryError: it is no such key.
    """
    location: list[int | LoopIteration] = []
    match unpack(key):
        case (2, *segments):
            for segment in segments:
                match segment:
                    case int(index) if index <= U32_MAX:
                        location.append(index)
                    case (int(loop), int(iteration)) if loop <= U32_MAX and iteration <= U32_MAX:
                        location.append(LoopIteration(loop, iteration))
                    case _:
                        raise _foreign(key, "an entry")
            return tuple(location)
    raise _foreign(key, "an entry")


def parse_metadata_key(key: bytes) -> str:
    """The entry id in a metadata key.

    Raises:
        CorruptHistoryError: it is no such key.
    """
    # As with names; ASCII cannot fail to decode, and holds no escape beside a zero.
    if key.startswith(_METADATA_START) and key.isascii() and key.find(b"\0", _METADATA_START_BYTES) == len(key) - 1:
        return key[_METADATA_START_BYTES:-1].decode()
    match unpack(key):
        case (4, str(entry_id)):
            return entry_id
    raise _foreign(key, "an entry's metadata")


def unpack(key: bytes) -> tuple[Element, ...]:
    """The tuple whose bytes ``key`` is; ``pack`` of it gives the same bytes.

    Raises:
        CorruptHistoryError: it is no tuple, or not in the one form that ``pack`` writes.
    """
    elements: list[Element] = []
    offset = 0
    while offset < len(key):
        element, offset = _read_element(key, offset)
        elements.append(element)
    return tuple(elements)


def _read_element(key: bytes, offset: int) -> tuple[Element, int]:
    if key[offset] != _NESTED:
        return _read_scalar(key, offset)
    elements: list[Element] = []
    offset += 1
    while offset < len(key):
        if key[offset] == 0:
            return tuple(elements), offset + 1
        element, offset = _read_scalar(key, offset)
        elements.append(element)
    raise _foreign(key, "a tuple")


def _read_scalar(key: bytes, offset: int) -> tuple[int | str | bytes, int]:
    code = key[offset]
    if code in (_BYTES, _TEXT):
        return _read_string(key, offset)
    size = code - _ZERO
    end = offset + 1 + size
    # A leading zero byte would make a second spelling of the same number.
    if not 0 <= size <= _INTEGER_BYTES_MAX or end > len(key) or (size and not key[offset + 1]):
        raise _foreign(key, "a tuple")
    return int.from_bytes(key[offset + 1 : end], "big"), end


def _read_string(key: bytes, offset: int) -> tuple[str | bytes, int]:
    end = key.find(b"\0", offset + 1)
    while end >= 0 and key[end + 1 : end + 2] == _BEYOND:
        end = key.find(b"\0", end + 2)
    if end < 0:
        raise _foreign(key, "a tuple")
    content = key[offset + 1 : end].replace(b"\0\xff", b"\0")
    if key[offset] == _BYTES:
        return content, end + 1
    try:
        return content.decode(), end + 1
    except UnicodeDecodeError:
        raise _foreign(key, "a tuple") from None


def _foreign(key: bytes, wanted: str) -> CorruptHistoryError:
    return CorruptHistoryError(f"Key {key.hex()} is not that of {wanted}")
