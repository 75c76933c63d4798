"""A BARE schema read from its text, and values written and read by interpreting it: slow, generic, and independent.

Values are plain: numbers, text, bytes, None for an absent optional, the member's name for an enum, a list, a dict for a
struct or map, and ``(type name, value)`` for a member of a union. Only what the engine's schema uses is understood.
"""

# ruff: noqa: C901, PLR0911, PLR0912 - an interpreter has one branch for each kind of type
from __future__ import annotations

import re
from typing import Any

from hypothesis import strategies as st

_TOKEN = re.compile(r"\s*(?:#[^\n]*|([A-Za-z_][A-Za-z0-9_]*|[{}<>|:]))")
_NUMBER_BYTES = {"u8": 1, "u16": 2, "u32": 4, "u64": 8}

Type = tuple[Any, ...]
"""A parsed type: its keyword and what belongs to it, such as ``("list", ("name", "PathSegment"))``."""


class MalformedError(Exception):
    """The bytes are not of the type."""


class Schema:
    """The types of one schema, by name."""

    def __init__(self, text: str) -> None:
        self._tokens: list[str] = [token for token in _TOKEN.findall(text) if token]
        self.types: dict[str, Type] = {}
        while self._tokens:
            self._expect("type")
            name = self._take()
            self.types[name] = self._type()

    # --- parsing

    def _take(self) -> str:
        return self._tokens.pop(0)

    def _expect(self, wanted: str) -> None:
        found = self._take()
        assert found == wanted, f"{found!r} where {wanted!r} belongs"

    def _type(self) -> Type:
        word = self._take()
        match word:
            case "struct":
                return "struct", self._fields()
            case "enum":
                return "enum", self._words()
            case "union":
                return "union", [word for word in self._words() if word != "|"]
            case "optional" | "list":
                return word, self._argument()
            case "map":
                return "map", self._argument(), self._argument()
            case "str" | "data" | "u8" | "u16" | "u32" | "u64":
                return (word,)
        return "name", word

    def _argument(self) -> Type:
        self._expect("<")
        parsed = self._type()
        self._expect(">")
        return parsed

    def _words(self) -> list[str]:
        self._expect("{")
        end = self._tokens.index("}")
        words, self._tokens = self._tokens[:end], self._tokens[end + 1 :]
        return words

    def _fields(self) -> dict[str, Type]:
        self._expect("{")
        fields = {}
        while self._tokens[0] != "}":
            name = self._take()
            self._expect(":")
            fields[name] = self._type()
        self._expect("}")
        return fields

    # --- writing

    def encode(self, type_name: str, value: Any) -> bytes:
        return self._write(("name", type_name), value)

    def _write(self, of_type: Type, value: Any) -> bytes:
        match of_type:
            case ("name", name):
                return self._write(self.types[name], value)
            case ("u8" | "u16" | "u32" | "u64" as word,):
                return int(value).to_bytes(_NUMBER_BYTES[word], "little")
            case ("str",):
                return self._write(("data",), value.encode())
            case ("data",):
                return _varint(len(value)) + bytes(value)
            case ("optional", inner):
                return b"\x00" if value is None else b"\x01" + self._write(inner, value)
            case ("list", inner):
                return _varint(len(value)) + b"".join(self._write(inner, item) for item in value)
            case ("map", key, inner):
                pairs = [self._write(key, name) + self._write(inner, item) for name, item in value.items()]
                return _varint(len(pairs)) + b"".join(pairs)
            case ("enum", members):
                return _varint(members.index(value))
            case ("union", members):
                name, inner_value = value
                return _varint(members.index(name)) + self._write(("name", name), inner_value)
            case ("struct", fields):
                assert value.keys() == fields.keys()
                return b"".join(self._write(inner, value[name]) for name, inner in fields.items())
        raise AssertionError(of_type)

    # --- reading

    def decode(self, type_name: str, data: bytes) -> Any:
        value, rest = self._read(("name", type_name), data)
        if rest:
            raise MalformedError("trailing bytes")
        return value

    def _read(self, of_type: Type, data: bytes) -> tuple[Any, bytes]:
        match of_type:
            case ("name", name):
                return self._read(self.types[name], data)
            case ("u8" | "u16" | "u32" | "u64" as word,):
                head, rest = _split(data, _NUMBER_BYTES[word])
                return int.from_bytes(head, "little"), rest
            case ("str",):
                content, rest = self._read(("data",), data)
                try:
                    return content.decode(), rest
                except UnicodeDecodeError as error:
                    raise MalformedError("not UTF-8") from error
            case ("data",):
                size, rest = _read_varint(data)
                return _split(rest, size)
            case ("optional", inner):
                flag, rest = _split(data, 1)
                if flag[0] > 1:
                    raise MalformedError("neither present nor absent")
                return self._read(inner, rest) if flag[0] else (None, rest)
            case ("list", inner):
                return self._read_list(inner, data)
            case ("map", key, inner):
                return self._read_map(key, inner, data)
            case ("enum", members):
                tag, rest = _read_varint(data)
                return _member(members, tag), rest
            case ("union", members):
                tag, rest = _read_varint(data)
                value, rest = self._read(("name", _member(members, tag)), rest)
                return (members[tag], value), rest
            case ("struct", fields):
                struct = {}
                for name, inner in fields.items():
                    struct[name], data = self._read(inner, data)
                return struct, data
        raise AssertionError(of_type)

    def _read_list(self, inner: Type, data: bytes) -> tuple[list[Any], bytes]:
        count, data = _read_varint(data)
        items: list[Any] = []
        while len(items) < count:
            item, data = self._read(inner, data)
            items.append(item)
        return items, data

    def _read_map(self, key: Type, inner: Type, data: bytes) -> tuple[dict[Any, Any], bytes]:
        count, data = _read_varint(data)
        pairs: dict[Any, Any] = {}
        while len(pairs) < count:
            name, data = self._read(key, data)
            if name in pairs:
                raise MalformedError("the same key twice")
            pairs[name], data = self._read(inner, data)
        return pairs, data

    # --- examples

    def values(self, type_name: str) -> st.SearchStrategy[Any]:
        """Every value of a type, for hypothesis."""
        return self._values(("name", type_name))

    def _values(self, of_type: Type) -> st.SearchStrategy[Any]:
        match of_type:
            case ("name", name):
                return self._values(self.types[name])
            case ("u8" | "u16" | "u32" | "u64" as word,):
                return st.integers(0, 256 ** _NUMBER_BYTES[word] - 1)
            case ("str",):
                return st.text()
            case ("data",):
                return st.binary(max_size=300)
            case ("optional", inner):
                return st.none() | self._values(inner)
            case ("list", inner):
                return st.lists(self._values(inner), max_size=8)
            case ("map", key, inner):
                return st.dictionaries(self._values(key), self._values(inner), max_size=4)
            case ("enum", members):
                return st.sampled_from(members)
            case ("union", members):
                return st.one_of([st.tuples(st.just(name), self._values(("name", name))) for name in members])
            case ("struct", fields):
                return st.fixed_dictionaries({name: self._values(inner) for name, inner in fields.items()})
        raise AssertionError(of_type)


def _varint(number: int) -> bytes:
    digits = []
    while number > 0x7F:
        digits.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*digits, number])


def _read_varint(data: bytes) -> tuple[int, bytes]:
    number = 0
    for index, digit in enumerate(data):
        number |= (digit & 0x7F) << 7 * index
        if digit <= 0x7F:
            if (not digit and index) or number >= 2**64:
                raise MalformedError("not the shortest form of a 64-bit number")
            return number, data[index + 1 :]
    raise MalformedError("truncated")


def _split(data: bytes, size: int) -> tuple[bytes, bytes]:
    if size > len(data):
        raise MalformedError("truncated")
    return data[:size], data[size:]


def _member(members: list[str], tag: int) -> str:
    if tag >= len(members):
        raise MalformedError("no such member")
    return members[tag]
