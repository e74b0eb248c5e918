"""Plain data as tagged JSON: the only thing that crosses the border between a program and its grader.

None, bool, int, float, str and list are themselves in JSON; the rest is tagged:

    (1, 2)            {"$": "tuple", "v": [1, 2]}
    {"a": 1}          {"$": "dict", "v": [["a", 1]]}      keys of any kind; a plain JSON object decodes as a dict too
    {1}  frozenset()  {"$": "set", "v": [1]}   {"$": "frozenset", "v": []}
    b"\\x01"           {"$": "bytes", "v": "01"}
    nan inf 2+1j      {"$": "float", "v": "nan"}   {"$": "complex", "v": [2.0, 1.0]}
    2**70             {"$": "int", "v": "0x400000000000000000"}      hexadecimal is linear in the digits, decimal is not

Subclasses are widened to their base (a namedtuple is a tuple, a Counter a dict), so that after decoding only builtin
types exist and `==` means what it says. Anything else is no data. Never pickle: unpickling runs the sender's code.

This file is loaded by the trainer and, by path, by the sandbox child: standard library only. Decoding is the side that
must not trust: length, depth and hash collisions are bounded.
"""

import json
import math

MAX_DEPTH = 100
MAX_CHARS = 1 << 24
_PLAIN_INT = 1 << 63


class NotData(ValueError):
    """The value is not plain data (encoding)."""


class CodecError(ValueError):
    """The text is not what `encode` writes (decoding)."""


def encode(value):
    """Tagged JSON of plain data, ASCII, one line. Raises NotData.

    >>> encode((1, [True, None], {"a": {2}}))
    '{"$":"tuple","v":[1,[true,null],{"$":"dict","v":[["a",{"$":"set","v":[2]}]]}]}'
    """
    return json.dumps(to_tree(value), separators=(",", ":"), allow_nan=False)


def decode(text, max_chars=MAX_CHARS):
    """The plain data that `encode` wrote. Raises CodecError.

    >>> decode('{"$":"tuple","v":[1,2.5]}'), decode('{"a": [1]}')
    ((1, 2.5), {'a': [1]})
    """
    return from_tree(parse(text, max_chars))


def parse(text, max_chars=MAX_CHARS):
    """JSON text to a tree of lists, dicts and scalars, with the caps. Raises CodecError."""
    if len(text) > max_chars:
        raise CodecError(f"{len(text)} characters, more than {max_chars}")
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except RecursionError:
        raise CodecError("nested too deeply") from None
    except ValueError as error:  # json.JSONDecodeError, UnicodeDecodeError, and int() beyond its digit limit
        raise CodecError(f"not JSON: {str(error)[:200]}") from None


def to_tree(value, depth=0):
    """Plain data to what `json` can write. Raises NotData."""
    kind = type(value)
    if value is None or kind is bool or kind is str:
        return value
    if kind is int:
        return value if -_PLAIN_INT <= value < _PLAIN_INT else {"$": "int", "v": hex(value)}
    if kind is float:
        return value if math.isfinite(value) else {"$": "float", "v": repr(value)}
    if depth >= MAX_DEPTH:
        raise NotData(f"nested deeper than {MAX_DEPTH}")
    below = depth + 1
    if kind is list:
        return [to_tree(item, below) for item in value]
    if kind is dict:
        return {"$": "dict", "v": [[to_tree(key, below), to_tree(item, below)] for key, item in value.items()]}
    if kind is tuple:
        return {"$": "tuple", "v": [to_tree(item, below) for item in value]}
    if kind is set or kind is frozenset:  # sorted: the text must not depend on the hash seed of this process
        return {"$": kind.__name__, "v": sorted((to_tree(item, below) for item in value), key=json.dumps)}
    if kind is bytes or kind is bytearray:
        return {"$": "bytes", "v": value.hex()}
    if kind is complex:
        return {"$": "complex", "v": [to_tree(value.real, below), to_tree(value.imag, below)]}
    return to_tree(_widened(value), depth)


def from_tree(tree, depth=0):
    """What `to_tree` made, back. Raises CodecError."""
    kind = type(tree)
    if kind is not list and kind is not dict:
        return tree
    if depth > MAX_DEPTH:
        raise CodecError(f"nested deeper than {MAX_DEPTH}")
    if kind is list:
        return [from_tree(item, depth + 1) for item in tree]
    if "$" not in tree:
        return {key: from_tree(item, depth + 1) for key, item in tree.items()}
    decoder = _DECODERS.get(tree["$"]) if isinstance(tree["$"], str) else None
    if decoder is None or set(tree) != {"$", "v"}:
        raise CodecError(f"unknown tag {str(tree['$'])[:40]!r}")
    try:
        return decoder(tree["v"], depth + 1)
    except CodecError:
        raise
    except (TypeError, ValueError, OverflowError) as error:
        raise CodecError(f"bad {tree['$']}: {str(error)[:200]}") from None


def _widened(value):
    """The builtin value inside a subclass, read by the base type's own methods so that overrides have no say."""
    if isinstance(value, int):
        return int.__pos__(value)
    if isinstance(value, float):
        return float.__pos__(value)
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, (bytes, bytearray)):
        return bytes(memoryview(value))
    if isinstance(value, complex):
        return complex.__pos__(value)
    for base in (tuple, list, set, frozenset):
        if isinstance(value, base):
            return base(base.__iter__(value))
    if isinstance(value, dict):
        return dict(dict.items(value))
    raise NotData(f"{type(value).__module__}.{type(value).__qualname__} is not plain data"[:200])


def _refuse_constant(name):
    raise CodecError(f"bare {name}")


def _hashable(values):
    """Values whose hashes do not collide on purpose: integers hash to themselves modulo 2**61 - 1, so a short line of
    well-chosen ones would keep a set or dict busy for minutes."""
    if len(values) > 1000 and 2 * len({hash(value) for value in values}) < len(values):
        raise CodecError("too many equal hashes")
    return values


def _decode_items(tree, depth):
    return [from_tree(item, depth) for item in _expect(tree, list)]


def _decode_dict(tree, depth):
    pairs = [(from_tree(key, depth), from_tree(item, depth)) for key, item in _expect(tree, list)]
    _hashable([key for key, _ in pairs])
    return dict(pairs)


def _decode_float(tree, _depth):
    if tree not in ("nan", "inf", "-inf"):
        raise CodecError("bad float")
    return float(tree)


def _decode_complex(tree, depth):
    real, imaginary = (from_tree(part, depth) for part in _expect(tree, list))
    return complex(float(real), float(imaginary))


def _expect(tree, kind):
    if type(tree) is not kind:
        raise CodecError(f"{type(tree).__name__} where a {kind.__name__} belongs")
    return tree


_DECODERS = {
    "tuple": lambda tree, depth: tuple(_decode_items(tree, depth)),
    "set": lambda tree, depth: set(_hashable(_decode_items(tree, depth))),
    "frozenset": lambda tree, depth: frozenset(_hashable(_decode_items(tree, depth))),
    "dict": _decode_dict,
    "bytes": lambda tree, depth: bytes.fromhex(_expect(tree, str)),
    "int": lambda tree, depth: int(_expect(tree, str), 16),
    "float": _decode_float,
    "complex": _decode_complex,
}
