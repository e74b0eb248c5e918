"""How different the answers to one task are from one another."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

_TOKEN = re.compile(r"\w+|[^\w\s]")
_GRAM = 3


@dataclass(frozen=True)
class Diversity:
    """Of one task's answers.

    >>> Diversity(unique_fraction=0.5, mean_similarity=0.75).unique_fraction
    0.5
    """

    unique_fraction: float
    """Distinct texts / texts, 1/N .. 1."""
    mean_similarity: float
    """Mean Jaccard index over pairs, 0 nothing shared .. 1 the same. Low is diverse."""


def group_diversity(texts: Sequence[str]) -> Diversity | None:
    """Diversity of the N answers to one task; None for fewer than two, where it has no meaning.

        unique_fraction = |{t without its white space runs}| / N
        mean_similarity = mean over pairs i < j of |G_i and G_j| / |G_i or G_j|

    G is the set of 3-grams of a text's tokens (words and single punctuation marks); a text of fewer than three tokens is
    one gram. Layout is ignored by both: texts that differ only in white space count as one, with similarity 1.

    Source:  Jaccard 1912. 3-grams, because single tokens of short programs nearly all agree.

    >>> group_diversity(["return a + b", "return  a + b", "return a - b"])
    Diversity(unique_fraction=0.6666666666666666, mean_similarity=0.3333333333333333)
    """
    if len(texts) < 2:
        return None
    grams: dict[str, frozenset[tuple[str, ...]]] = {}
    normal = [" ".join(text.split()) for text in texts]
    for text in normal:
        if text not in grams:
            grams[text] = _grams(text)
    total = sum(1.0 if one == other else _jaccard(grams[one], grams[other]) for one, other in combinations(normal, 2))
    num_pairs = len(normal) * (len(normal) - 1) // 2
    return Diversity(len(grams) / len(normal), total / num_pairs)


def _grams(text: str) -> frozenset[tuple[str, ...]]:
    tokens = _TOKEN.findall(text)
    if len(tokens) < _GRAM:
        return frozenset((tuple(tokens),))
    return frozenset(zip(tokens, tokens[1:], tokens[2:], strict=False))


def _jaccard(one: frozenset, other: frozenset) -> float:
    shared = len(one & other)
    return shared / (len(one) + len(other) - shared)
