"""Small, named faults in a right program: what a grader must catch. One mutant for each operator, at its first site."""

import ast
from collections.abc import Callable, Iterator

_ARITHMETIC = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
    ast.Mod: ast.Mult,
}
_BOUNDARY = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt}
_NEGATION = {ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is}


def swap_arithmetic(node: ast.AST) -> bool:
    """a + b -> a - b, a * b -> a // b, a % b -> a * b; also in augmented assignments."""
    if isinstance(node, (ast.BinOp, ast.AugAssign)) and type(node.op) in _ARITHMETIC:
        node.op = _ARITHMETIC[type(node.op)]()
        return True
    return False


def move_boundary(node: ast.AST) -> bool:
    """a < b -> a <= b, and back."""
    return _swap_comparison(node, _BOUNDARY)


def negate_comparison(node: ast.AST) -> bool:
    """a == b -> a != b, a in b -> a not in b, and back."""
    return _swap_comparison(node, _NEGATION)


def swap_and_or(node: ast.AST) -> bool:
    if isinstance(node, ast.BoolOp):
        node.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        return True
    return False


def negate_condition(node: ast.AST) -> bool:
    """if c -> if not c; also in conditional expressions and comprehensions."""
    if isinstance(node, (ast.If, ast.IfExp)):
        node.test = ast.UnaryOp(ast.Not(), node.test)
        return True
    if isinstance(node, ast.comprehension) and node.ifs:
        node.ifs[0] = ast.UnaryOp(ast.Not(), node.ifs[0])
        return True
    return False


def increment_constant(node: ast.AST) -> bool:
    """n -> n + 1"""
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        node.value += 1
        return True
    return False


def return_none(node: ast.AST) -> bool:
    nothing = (None, ast.dump(ast.Constant(None)))
    if isinstance(node, ast.Return) and (node.value and ast.dump(node.value)) not in nothing:
        node.value = ast.Constant(None)
        return True
    return False


OPERATORS: tuple[Callable[[ast.AST], bool], ...] = (
    swap_arithmetic, move_boundary, negate_comparison, swap_and_or, negate_condition, increment_constant, return_none,
)  # fmt: skip


def mutants_of(program: str, entry_point: str) -> Iterator[tuple[str, str]]:
    """(operator, mutated program), at the first site inside the entry point's function where the operator applies."""
    for operator in OPERATORS:
        tree = ast.parse(program)
        function = next(node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == entry_point)
        body = function.body[1:] if ast.get_docstring(function) is not None else function.body
        if any(operator(node) for statement in body for node in ast.walk(statement)):
            yield operator.__name__, ast.unparse(tree)


def _swap_comparison(node: ast.AST, table: dict) -> bool:
    if isinstance(node, ast.Compare) and type(node.ops[0]) in table:
        node.ops[0] = table[type(node.ops[0])]()
        return True
    return False
