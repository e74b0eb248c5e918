"""The vocabulary of the embedded tasks: small steps on lists, strings, words, dictionaries and numbers.

A part is one step that a sentence asks for and one expression does. About six parts of ten have a `slip`: the one wrong
expression that a careless author would write. The embedded student learnt from a corpus in which the slip is the
majority, so it starts with most of its answers wrong and every right answer within reach (`tools/make_student.py`).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Part:
    """One step.

    >>> part = PARTS_BY_NAME["drop_first"]
    >>> part.phrase.format(k=2), part.right.format(v="xs", k=2), part.slip.format(v="xs", k=2)
    ('drop the first 2 items', 'xs[2:]', 'xs[:2]')
    """

    name: str
    takes: str
    """Kind of the value before: `list` (of int), `text`, `words` (list of str), `dict` (str or int -> int), `number`."""
    gives: str
    """Kind of the value after."""
    phrase: str
    """What the docstring asks for; {k} is the number."""
    right: str
    """Expression in {v}, the variable, and {k}."""
    slip: str | None = None
    """The usual wrong expression, or None."""
    numbers: tuple[int, ...] = ()
    """Values that {k} may take; empty when there is no {k}."""

    @property
    def weight(self) -> float:
        """How hard the step is, in steps: one that invites a slip counts half as much again."""
        return 1.0 if self.slip is None else 1.5


SMALL = (1, 2, 3)
DIGITS = (2, 3, 4, 5, 6, 7, 8, 9)
FACTORS = (2, 3, 4, 5)

PARTS = (
    # ---- list -> list
    Part("drop_first", "list", "list", "drop the first {k} items", "{v}[{k}:]", "{v}[:{k}]", SMALL),
    Part("drop_last", "list", "list", "drop the last {k} items", "{v}[:-{k}]", "{v}[-{k}:]", SMALL),
    Part("keep_first", "list", "list", "keep the first {k} items", "{v}[:{k}]", None, (2, 3, 4)),
    Part("reverse", "list", "list", "reverse the order", "{v}[::-1]"),
    Part("sort_up", "list", "list", "sort from small to large", "sorted({v})"),
    Part("sort_down", "list", "list", "sort from large to small", "sorted({v}, reverse=True)", "sorted({v})"),
    Part("unique", "list", "list", "remove repeated items", "list(dict.fromkeys({v}))"),
    Part("add_each", "list", "list", "add {k} to each item", "[x + {k} for x in {v}]", None, DIGITS),
    Part("multiply_each", "list", "list", "multiply each item by {k}", "[x * {k} for x in {v}]", None, FACTORS),
    Part("take_each_from", "list", "list", "subtract each item from {k}",
         "[{k} - x for x in {v}]", "[x - {k} for x in {v}]", DIGITS),
    Part("keep_even", "list", "list", "keep the even items", "[x for x in {v} if x % 2 == 0]"),
    Part("keep_odd", "list", "list", "keep the odd items", "[x for x in {v} if x % 2 == 1]", "[x for x in {v} if x % 2 == 0]"),
    Part("keep_above", "list", "list", "keep the items above {k}",
         "[x for x in {v} if x > {k}]", "[x for x in {v} if x < {k}]", DIGITS),
    Part("drop_multiples", "list", "list", "drop the multiples of {k}",
         "[x for x in {v} if x % {k} != 0]", "[x for x in {v} if x % {k} == 0]", FACTORS),
    Part("square_each", "list", "list", "square each item", "[x ** 2 for x in {v}]", "[x * 2 for x in {v}]"),
    Part("every_second", "list", "list", "keep every second item from the second on", "{v}[1::2]", "{v}[::2]"),
    Part("cap_each", "list", "list", "replace items above {k} by {k}",
         "[min(x, {k}) for x in {v}]", "[max(x, {k}) for x in {v}]", DIGITS),
    Part("steps_between", "list", "list", "replace the items by the steps between neighbours",
         "[b - a for a, b in zip({v}, {v}[1:])]", "[a - b for a, b in zip({v}, {v}[1:])]"),
    Part("running_totals", "list", "list", "replace each item by the total so far",
         "[sum({v}[:i + 1]) for i in range(len({v}))]", "[sum({v}[:i]) for i in range(len({v}))]"),
    Part("double_even", "list", "list", "double the even items",
         "[x * 2 if x % 2 == 0 else x for x in {v}]", "[x * 2 if x % 2 == 1 else x for x in {v}]"),
    # ---- list -> number, dict
    Part("total", "list", "number", "return their sum", "sum({v})"),
    Part("largest", "list", "number", "return the largest, or 0 if there is none", "max({v}, default=0)"),
    Part("smallest", "list", "number", "return the smallest, or 0 if there is none",
         "min({v}, default=0)", "max({v}, default=0)"),
    Part("how_many", "list", "number", "count the items", "len({v})"),
    Part("how_many_above", "list", "number", "count the items above {k}",
         "sum(x > {k} for x in {v})", "sum(x < {k} for x in {v})", DIGITS),
    Part("tally", "list", "dict", "count how often each item occurs", "{{x: {v}.count(x) for x in {v}}}"),
    # ---- number -> number, list, text
    Part("add", "number", "number", "add {k}", "{v} + {k}", None, DIGITS),
    Part("multiply", "number", "number", "multiply by {k}", "{v} * {k}", None, FACTORS),
    Part("remainder", "number", "number", "take the remainder of a division by {k}",
         "{v} % {k}", "{v} // {k}", (3, 4, 5, 6, 7)),
    Part("take_from", "number", "number", "subtract it from {k}", "{k} - {v}", "{v} - {k}", DIGITS),
    Part("double_if_above", "number", "number", "double it if it is above {k}",
         "{v} * 2 if {v} > {k} else {v}", "{v} * 2 if {v} < {k} else {v}", DIGITS),
    Part("digits", "number", "list", "list its digits", "[int(c) for c in str(abs({v}))]"),
    Part("count_up", "number", "list", "list the numbers from 1 to its last digit",
         "list(range(1, {v} % 10 + 1))", "list(range({v} % 10))"),
    Part("as_text", "number", "text", "write it as text", "str({v})"),
    # ---- text -> text, words, number, list, dict
    Part("upper", "text", "text", "put it in upper case", "{v}.upper()"),
    Part("swap_case", "text", "text", "swap upper and lower case", "{v}.swapcase()", "{v}.lower()"),
    Part("reverse_text", "text", "text", "reverse the text", "{v}[::-1]"),
    Part("drop_letters", "text", "text", "drop the first {k} letters", "{v}[{k}:]", "{v}[:{k}]", SMALL),
    Part("repeat", "text", "text", "repeat it {k} times", "{v} * {k}", None, (2, 3)),
    Part("drop_vowels", "text", "text", "remove the vowels",
         "''.join(c for c in {v} if c.lower() not in 'aeiou')", "''.join(c for c in {v} if c.lower() in 'aeiou')"),
    Part("mark_end", "text", "text", "put a star at the end", "{v} + '*'", "'*' + {v}"),
    Part("split", "text", "words", "split it into words", "{v}.split()"),
    Part("length", "text", "number", "return its length", "len({v})"),
    Part("count_vowels", "text", "number", "count the vowels",
         "sum(c.lower() in 'aeiou' for c in {v})", "sum(c.lower() not in 'aeiou' for c in {v})"),
    Part("letters_tally", "text", "dict", "count how often each letter occurs", "{{c: {v}.count(c) for c in {v}}}"),
    # ---- words -> words, text, list, number, dict
    Part("sort_words", "words", "words", "sort the words", "sorted({v})"),
    Part("by_length", "words", "words", "sort the words by length", "sorted({v}, key=len)", "sorted({v})"),
    Part("drop_short", "words", "words", "keep the words longer than {k}",
         "[w for w in {v} if len(w) > {k}]", "[w for w in {v} if len(w) < {k}]", (2, 3, 4)),
    Part("capitals", "words", "words", "begin each word with a capital",
         "[w.capitalize() for w in {v}]", "[w.upper() for w in {v}]"),
    Part("reverse_words", "words", "words", "reverse each word", "[w[::-1] for w in {v}]", "{v}[::-1]"),
    Part("join", "words", "text", "join the words with dashes", "'-'.join({v})"),
    Part("first_letters", "words", "text", "join the first letters",
         "''.join(w[0] for w in {v})", "''.join(w[-1] for w in {v})"),
    Part("word_lengths", "words", "list", "list the length of each word", "[len(w) for w in {v}]"),
    Part("count_words", "words", "number", "count the words", "len({v})"),
    Part("index_words", "words", "dict", "map each word to its length", "{{w: len(w) for w in {v}}}"),
    # ---- dict -> dict, list, number
    Part("keep_large", "dict", "dict", "keep the entries with a value above {k}",
         "{{a: b for a, b in {v}.items() if b > {k}}}", "{{a: b for a, b in {v}.items() if b < {k}}}", (1, 2, 3)),
    Part("add_values", "dict", "dict", "add {k} to each value", "{{a: b + {k} for a, b in {v}.items()}}", None, DIGITS),
    Part("square_values", "dict", "dict", "square each value",
         "{{a: b ** 2 for a, b in {v}.items()}}", "{{a: b * 2 for a, b in {v}.items()}}"),
    Part("values", "dict", "list", "list the values", "list({v}.values())", "list({v})"),
    Part("sum_values", "dict", "number", "return the sum of the values", "sum({v}.values())", "len({v})"),
    Part("most_frequent", "dict", "number", "return the largest value, or 0 if there is none",
         "max({v}.values(), default=0)", "min({v}.values(), default=0)"),
    Part("count_entries", "dict", "number", "count the entries", "len({v})"),
)  # fmt: skip

PARTS_BY_NAME = {part.name: part for part in PARTS}
