import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenkeel.codec import CodecError, NotData, decode, encode

_SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary()
    | st.complex_numbers(allow_nan=False)
)
_KEYS = st.integers() | st.text() | st.tuples(st.integers(), st.text()) | st.frozensets(st.integers())
_VALUES = st.recursive(
    _SCALARS,
    lambda inner: (
        st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(_KEYS, inner) | st.sets(_KEYS) | st.frozensets(_KEYS)
    ),
    max_leaves=12,
)


def _same(left, right) -> bool:
    """== and the same types all the way down."""
    if type(left) is not type(right) or left != right:
        return False
    if isinstance(left, dict):
        return all(_same(left[key], right[key]) for key in left) and all(map(_same, left, right))
    return all(map(_same, left, right)) if isinstance(left, (list, tuple)) else True


@given(_VALUES)
def test_every_plain_value_comes_back_as_it_was(value):
    assert _same(decode(encode(value)), value)


def test_nan_comes_back_as_nan():
    assert math.isnan(decode(encode([float("nan")]))[0])


def test_integers_beyond_the_decimal_digit_limit_cross():
    huge = 7**9000  # 7606 digits; Python refuses more than 4300 in decimal
    assert decode(encode(huge)) == huge


def test_subclasses_are_widened_by_the_base_types_own_methods():
    class Liar(int):
        __eq__ = lambda self, other: True  # noqa: E731
        __hash__ = int.__hash__
        __int__ = __index__ = __repr__ = lambda self: 99  # noqa: E731

    back = decode(encode([Liar(3)]))
    assert back == [3] and type(back[0]) is int


@pytest.mark.parametrize("value", [object(), len, (x for x in ()), int, range(3)])
def test_an_object_is_no_data(value):
    with pytest.raises(NotData):
        encode([value])


def test_a_list_that_holds_itself_is_no_data():
    value = []
    value.append(value)
    with pytest.raises(NotData, match="deeper than 100"):
        encode(value)


@pytest.mark.parametrize(
    "text",
    [
        "{", "NaN", "[" * 100_000, "[" * 150 + "]" * 150, "9" * 5000,
        '{"$":"pickle","v":"gASV"}', '{"$":["x"],"v":1}', '{"$":"set","v":[[1]]}', '{"$":"tuple","v":5}', '{"$":"tuple"}',
        '{"$":"dict","v":[[1,2,3]]}', '{"$":"bytes","v":"zz"}', '{"$":"int","v":"0xzz"}', '{"$":"float","v":"1e5"}',
        '{"$":"complex","v":[1]}', '{"$":"int","v":5}', '{"$":"float","v":[]}', '{"$":"complex","v":["x","y"]}',
    ],
)  # fmt: skip
def test_what_encode_never_writes_is_refused(text):
    with pytest.raises(CodecError):
        decode(text)


def test_keys_made_to_collide_are_refused_before_they_cost_time():
    # integers hash modulo 2**61 - 1, so all of these hash to 0; 40,000 of them take a set 40,000**2 / 2 comparisons
    keys = ",".join(str(n * (2**61 - 1)) for n in range(1, 40_000))
    with pytest.raises(CodecError, match="equal hashes"):
        decode(f'{{"$":"set","v":[{keys}]}}')


def test_a_plain_json_object_is_a_dict_with_text_keys():
    assert decode('{"a": {"b": [1, null]}}') == {"a": {"b": [1, None]}}
