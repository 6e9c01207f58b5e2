"""Names bound by a function, a module or a class: what Python's own scoping says, read off the tree."""

from __future__ import annotations

import ast

Function = ast.FunctionDef | ast.AsyncFunctionDef


def parameters_of(function: Function) -> list[str]:
    return [a.arg for a in ast.walk(function.args) if isinstance(a, ast.arg)]


def bound_in(function: Function) -> set[str]:
    """The function's own local variables."""
    names = set(parameters_of(function))
    elsewhere: set[str] = set()
    todo: list[ast.AST] = list(function.body)
    while todo:
        node = todo.pop()
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                names.add(name)
                continue
            case ast.Lambda():
                continue
            case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
                names.update(n.target.id for n in ast.walk(node) if isinstance(n, ast.NamedExpr))
                continue
            case ast.Name(id=name, ctx=ast.Store()):
                names.add(name)
            case ast.alias():
                names.add(node.asname or node.name.partition(".")[0])
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                names.add(name)
            case ast.MatchMapping(rest=str(name)):
                names.add(name)
            case ast.Global(names=declared) | ast.Nonlocal(names=declared):
                elsewhere.update(declared)
        todo.extend(ast.iter_child_nodes(node))
    return names - elsewhere


def module_names(tree: ast.Module) -> frozenset[str]:
    """Every name bound outside functions, and those any function declares global."""
    names = {"operator", "create_llm_instance", "DatasetType"}
    todo: list[ast.AST] = list(tree.body)
    while todo:
        node = todo.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.add(node.name)
            names.update(n for g in ast.walk(node) if isinstance(g, ast.Global) for n in g.names)
            continue
        if isinstance(node, ast.alias):
            names.add(node.asname or node.name.partition(".")[0])
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.ExceptHandler) and node.name:
            names.add(node.name)
        todo.extend(ast.iter_child_nodes(node))
    return frozenset(names)


def attributes_of(workflow: ast.ClassDef) -> set[str]:
    """Names that ``self.name`` may have: set anywhere in the class, methods, class variables."""
    names = {n.attr for n in ast.walk(workflow) if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store)}
    for node in workflow.body:
        names.update(n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.add(node.name)
    return names
