from evenkeel.sandbox.facts import facts_of


def test_nesting_counts_an_elif_as_its_if():
    chain = (
        "def f(x):\n    if x == 1:\n        return 1\n    elif x == 2:\n        return 2\n    elif x == 3:\n        return 3\n"
    )
    assert facts_of(chain)["max_nesting"] == 1


def test_loops_in_loops_and_in_comprehensions_are_deep():
    source = "def f(n):\n    for i in n:\n        while i:\n            i -= 1\n    return [a for b in n for a in b]\n"
    facts = facts_of(source)
    assert facts["num_loops"] == 4  # for, while, two generators
    assert facts["max_loop_depth"] == 2
    assert facts_of("def f(n):\n    for i in n:\n        x = [sum(k for k in j) for j in i]\n")["max_loop_depth"] == 3


def test_complexity_is_one_plus_the_branches():
    # 1 + if + `and` + for + comprehension's for + its if
    source = "def f(n):\n    if n and n[0]:\n        for i in n:\n            print(i)\n    return [x for x in n if x]\n"
    assert facts_of(source)["cyclomatic_complexity"] == 6


def test_names_that_nothing_reads_are_unused():
    facts = facts_of("import os\nimport math\ndef f(a, b):\n    total = a\n    waste = 3\n    return math.floor(total)\n")
    assert facts["num_unused_names"] == 3  # os, b, waste
    assert facts["num_parameters"] == 2


def test_repeated_statements_are_counted_beyond_the_first():
    assert facts_of("x = 1\nx = 1\nx = 1\ny = 2\n")["num_repeated_statements"] == 2


def test_a_docstring_is_no_statement():
    facts = facts_of('def f():\n    """Twelve chars"""\n    return 1  # note\n# comment\n')
    assert (facts["num_statements"], facts["has_docstring"], facts["docstring_chars"], facts["num_comment_lines"]) == (
        2,
        True,
        12,
        1,
    )


def test_what_does_not_parse_says_where():
    assert facts_of("x = 1\nx = (\n") == {"status": "unreadable", "error": "line 2: '(' was never closed"}
    assert facts_of("x = '\0'")["status"] == "unreadable"
    assert "64 KiB" in facts_of("x = 1\n" * 20_000)["error"]
