"""What parsing alone says about a program. Runs in a sandbox child, loaded by path: standard library only.

Parsing text made by a model can crash or exhaust the parser, so the trainer never does it.
"""

import ast
from collections import Counter

MAX_SOURCE_BYTES = 64 * 1024
_LONG_LINE = 100
_LOOPS = (ast.For, ast.AsyncFor, ast.While, ast.comprehension)
_COMPOUND = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.Try, ast.TryStar, ast.Match)
_BRANCHES = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.ExceptHandler, ast.IfExp, ast.match_case, ast.comprehension)
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Module)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_FREE_SHORT_NAMES = {"_", "i", "j", "k"}


def facts_of(source):
    """The fields of `base.CodeFacts` as a dict.

    >>> facts = facts_of("def f(n):\\n    for i in range(n):\\n        if i: print(i)\\n    return n\\n")
    >>> facts["num_statements"], facts["cyclomatic_complexity"], facts["max_nesting"]
    (5, 3, 2)
    """
    if len(source.encode("utf-8", "surrogatepass")) > MAX_SOURCE_BYTES:
        return {"status": "unreadable", "error": f"longer than {MAX_SOURCE_BYTES // 1024} KiB"}
    try:
        tree = ast.parse(source)
    except SyntaxError as error:
        return {"status": "unreadable", "error": f"line {error.lineno}: {error.msg}"[:200]}
    except (ValueError, RecursionError, MemoryError) as error:
        return {"status": "unreadable", "error": f"{type(error).__name__}: {error}"[:200]}
    nodes = list(ast.walk(tree))
    return {
        "status": "parsed",
        **_line_facts(source),
        **_statement_facts(tree, nodes),
        **_function_facts(nodes),
        **_name_facts(nodes),
    }


def _line_facts(source):
    lines = [line for line in source.splitlines() if line.strip()]
    return {
        "num_lines": len(lines),
        "num_long_lines": sum(len(line) > _LONG_LINE for line in lines),
        "num_comment_lines": sum(line.lstrip().startswith("#") for line in lines),
    }


def _statement_facts(tree, nodes):
    docstrings = {id(node.body[0]): node.body[0].value.value for node in nodes if _has_docstring(node)}
    statements = [node for node in nodes if isinstance(node, ast.stmt) and id(node) not in docstrings]
    simple = Counter(
        ast.dump(node) for node in statements if not isinstance(node, (*_COMPOUND, *_SCOPES, ast.Return, ast.Pass))
    )
    booleans = sum(len(node.values) - 1 for node in nodes if isinstance(node, ast.BoolOp))
    conditions = sum(len(node.ifs) for node in nodes if isinstance(node, ast.comprehension))
    return {
        "num_statements": len(statements),
        "num_repeated_statements": sum(count - 1 for count in simple.values()),
        "has_docstring": bool(docstrings),
        "docstring_chars": sum(len(text) for text in docstrings.values()),
        "cyclomatic_complexity": 1 + sum(isinstance(node, _BRANCHES) for node in nodes) + booleans + conditions,
        "max_nesting": _depth(tree, _COMPOUND),
        "num_loops": sum(isinstance(node, _LOOPS) for node in nodes),
        "max_loop_depth": _loop_depth(tree),
        "num_calls": sum(isinstance(node, ast.Call) for node in nodes),
        "num_bare_excepts": sum(isinstance(node, ast.ExceptHandler) and node.type is None for node in nodes),
        "num_returns": sum(isinstance(node, ast.Return) for node in nodes),
    }


def _has_docstring(node):
    if not isinstance(node, _SCOPES) or not node.body or not isinstance(node.body[0], ast.Expr):
        return False
    value = node.body[0].value
    return isinstance(value, ast.Constant) and isinstance(value.value, str)


def _depth(node, counted):
    """Deepest nesting of counted statements; an elif is an If in the orelse of an If and counts as one level."""
    deepest = 0
    stack = [(node, 0)]
    while stack:
        parent, depth = stack.pop()
        deepest = max(deepest, depth)
        elif_branch = parent.orelse if isinstance(parent, ast.If) and len(parent.orelse) == 1 else []
        for child in ast.iter_child_nodes(parent):
            is_elif = bool(elif_branch) and child is elif_branch[0] and isinstance(child, ast.If)
            inside = 0 if isinstance(child, _SCOPES) else depth + (isinstance(child, counted) and not is_elif)
            stack.append((child, inside))
    return deepest


def _loop_depth(node):
    """A comprehension's element lies inside its generators although the tree has them side by side."""
    deepest = 0
    stack = [(node, 0)]
    while stack:
        parent, depth = stack.pop()
        deepest = max(deepest, depth)
        generators = getattr(parent, "generators", [])
        for child in ast.iter_child_nodes(parent):
            if isinstance(child, ast.comprehension):
                stack.append((child, depth + generators.index(child) + 1))
            elif generators:
                stack.append((child, depth + len(generators)))
            else:
                stack.append((child, 0 if isinstance(child, _SCOPES) else depth + isinstance(child, _LOOPS)))
    return deepest


def _function_facts(nodes):
    functions = [node for node in nodes if isinstance(node, _FUNCTIONS)]
    parameters = [parameter for function in functions for parameter in _parameters(function.args)]
    return {
        "num_functions": len(functions),
        "num_parameters": len(parameters),
        "num_annotations": sum(parameter.annotation is not None for parameter in parameters)
        + sum(function.returns is not None for function in functions),
    }


def _parameters(arguments):
    starred = [argument for argument in (arguments.vararg, arguments.kwarg) if argument is not None]
    return [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, *starred]


def _name_facts(nodes):
    """Names bound and never read anywhere in the program: coarse (no scopes), so it errs towards `used`."""
    stored = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    parameters = {node.arg for node in nodes if isinstance(node, ast.arg)}
    definitions = {node.name for node in nodes if isinstance(node, (*_FUNCTIONS, ast.ClassDef))}
    imported = {
        (alias.asname or alias.name).split(".")[0]
        for node in nodes
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for alias in node.names
        if alias.name != "*"
    }
    read = {node.id for node in nodes if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Store)}
    names = stored | parameters | definitions | imported
    return {
        "num_names": len(names),
        "mean_name_chars": sum(map(len, names)) / len(names) if names else 0.0,
        "num_short_names": sum(len(name) == 1 and name not in _FREE_SHORT_NAMES for name in names),
        "num_unused_names": len((stored | parameters | imported) - read - {"_"}),
    }
