"""Imports go downward only, siblings never import each other, and torch stays in its zone. Each test names the offender."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "src" / "evenkeel"

LAYERS = (
    ("errors", "records", "codec", "embedded"),
    ("config",),
    ("policy", "sandbox", "tasks", "algorithm", "metrics"),
    ("rollout", "reward", "doctor", "readers"),
    ("distributed",),
    ("train",),
    ("report",),
    ("dashboard",),
    ("cli",),
)
LAYER_OF = {name: level for level, names in enumerate(LAYERS) for name in names}

TORCH_ZONE = ("policy", "algorithm", "train", "distributed", "rollout/hf.py", "rollout/sampler.py", "rollout/cache.py")
"""`rollout/sampler.py` draws the tokens for `rollout/hf.py`, `rollout/cache.py` keeps its keys and values."""
OUTSIDE_THE_ZONE = ("algorithm/advantages.py",)
HEAVY = ("torch", "transformers", "peft", "accelerate", "bitsandbytes")


def modules() -> list[tuple[str, ast.Module]]:
    return [(str(path.relative_to(PACKAGE)), ast.parse(path.read_text())) for path in sorted(PACKAGE.rglob("*.py"))]


def imported_names(tree: ast.Module, package: str, *, for_types: bool = True) -> list[tuple[str, int]]:
    """Dotted names that a module imports anywhere, inside functions too, with their lines.

    for_types: also what is imported under `if TYPE_CHECKING`.
    """
    names = []
    for node in ast.walk(tree) if for_types else _walk_what_runs(tree):
        if isinstance(node, ast.Import):
            names += [(alias.name, node.lineno) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = package.split(".")
                base = ".".join([*parents[: len(parents) - node.level + 1], *filter(None, [node.module])])
            names += [(f"{base}.{alias.name}", node.lineno) for alias in node.names]
    return names


def _walk_what_runs(node: ast.AST) -> Iterator[ast.AST]:
    yield node
    for child in ast.iter_child_nodes(node):
        if not (isinstance(child, ast.If) and ast.unparse(child.test).endswith("TYPE_CHECKING")):
            yield from _walk_what_runs(child)


def package_of(path: str) -> str:
    return ".".join(["evenkeel", *Path(path).parts[:-1]])


def part_of(path: str) -> str:
    """`policy` for policy/model.py, `errors` for errors.py."""
    return Path(path).parts[0].removesuffix(".py")


def in_torch_zone(path: str) -> bool:
    return path not in OUTSIDE_THE_ZONE and (path in TORCH_ZONE or part_of(path) in TORCH_ZONE)


def test_every_package_has_a_layer():
    unknown = {part_of(path) for path, _ in modules()} - set(LAYER_OF) - {"__init__", "__main__"}
    assert not unknown, f"give these a layer in the design and here: {sorted(unknown)}"


def test_imports_go_downward_and_siblings_never_import_each_other():
    offenders = []
    for path, tree in modules():
        part = part_of(path)
        for name, line in imported_names(tree, package_of(path)):
            target = name.split(".")[1] if name.startswith("evenkeel.") else None
            if target in LAYER_OF and part in LAYER_OF and target != part and LAYER_OF[target] >= LAYER_OF[part]:
                offenders.append(f"{path}:{line} ({part}, layer {LAYER_OF[part]}) imports {name} (layer {LAYER_OF[target]})")
    assert not offenders, "\n".join(offenders)


def test_torch_is_imported_only_in_its_zone():
    offenders = [
        f"{path}:{line} imports {name}"
        for path, tree in modules()
        if not in_torch_zone(path)
        for name, line in imported_names(tree, package_of(path), for_types=False)
        if name.split(".")[0] in HEAVY
    ]
    assert not offenders, "\n".join(offenders)


def test_everything_outside_the_zone_can_be_imported_without_torch():
    outside = [
        ".".join(["evenkeel", *Path(path).with_suffix("").parts]).removesuffix(".__init__")
        for path, _ in modules()
        if not in_torch_zone(path) and Path(path).name != "__main__.py"
    ]
    script = (
        f"import sys, importlib\nfor name in {HEAVY!r}: sys.modules[name] = None\n"
        f"for name in {outside!r}:\n    try: importlib.import_module(name)\n"
        "    except ImportError as error: print(name, error)\n"
    )
    finished = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert finished.stdout + finished.stderr == ""


def test_the_doctor_never_imports_the_trainer():
    offenders = [
        f"{path}:{line} imports {name}"
        for path, tree in modules()
        if part_of(path) == "doctor"
        for name, line in imported_names(tree, package_of(path))
        if name.startswith(("evenkeel.train", "evenkeel.distributed"))
    ]
    assert not offenders, "\n".join(offenders)


def test_the_walker_sees_relative_nested_and_plain_imports():
    source = (
        "import torch.nn\nfrom . import kl\nfrom ..records import Task\ndef f():\n    from evenkeel.train import loop\n"
        "if TYPE_CHECKING:\n    import peft\n"
    )
    names = {name for name, _ in imported_names(ast.parse(source), "evenkeel.algorithm")}
    assert names == {"torch.nn", "evenkeel.algorithm.kl", "evenkeel.records.Task", "evenkeel.train.loop", "peft"}
    running = {name for name, _ in imported_names(ast.parse(source), "evenkeel.algorithm", for_types=False)}
    assert running == names - {"peft"}
