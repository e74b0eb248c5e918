import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenkeel.metrics.diversity import Diversity, group_diversity

TEXTS = st.lists(st.text(alphabet="ab +\n", max_size=12), min_size=2, max_size=6)


def test_three_answers_worked_by_hand():
    # Tokens:  a + b + c -> {a+b, +b+, b+c}; a + b + d -> {a+b, +b+, b+d}; x -> {x}
    # Pairs:   2 shared of 4 in the union = 0.5;  0;  0   ->  mean 1/6.  All three differ.
    found = group_diversity(["a + b + c", "a + b + d", "x"])
    assert found.unique_fraction == 1.0
    assert found.mean_similarity == pytest.approx(1 / 6)


def test_layout_makes_no_new_answer():
    assert group_diversity(["return  a\n", "return a"]) == Diversity(unique_fraction=0.5, mean_similarity=1.0)


def test_one_answer_has_no_diversity():
    assert group_diversity(["return a"]) is None


def test_empty_answers_are_the_same_answer():
    assert group_diversity(["", " \n"]) == Diversity(0.5, 1.0)


@given(TEXTS)
def test_order_does_not_matter_and_bounds_hold(texts):
    found, reversed_found = group_diversity(texts), group_diversity(texts[::-1])
    assert found.unique_fraction == reversed_found.unique_fraction
    assert found.mean_similarity == pytest.approx(reversed_found.mean_similarity)
    assert 1 / len(texts) <= found.unique_fraction <= 1
    assert 0 <= found.mean_similarity <= 1 + 1e-12


@given(st.text(max_size=20), st.integers(2, 6))
def test_repeating_one_text_gives_similarity_one(text, count):
    assert group_diversity([text] * count) == Diversity(1 / count, 1.0)
