"""Mutation operators: one small change of a syntax tree each, as a programmer errs who reads a rule wrongly.

``sites`` finds where an operator applies inside one statement. A site replaces one node by another; it is
reverted after use, so one tree serves all mutants of its module.
"""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Callable, Iterator
from typing import Any

from msgspec import Struct

Definition = ast.FunctionDef | ast.AsyncFunctionDef

_COMPARE: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
}
_TWINS = {"min": "max", "max": "min", "any": "all", "all": "any", "startswith": "endswith"}
_TWINS |= {"append": "appendleft", "popleft": "pop", "appendleft": "append"}
_KEYED = ("get", "pop", "setdefault", "add", "discard", "remove", "set", "clear")  # methods that take a key
# Where a moment is, and what is added to it is a duration.
_MOMENT = re.compile(r"(^|_)(now|at|moment|due|deadline|since|began|start|last\w*|spoke)$")
_DURATION = re.compile(
    r"(^|_)(timeout|wait|interval|window|delay|expires|ttl|age|backoff|pause|heartbeat|threshold|lifetime|s|ns"
    r"|duration|period|grace)$",
    re.IGNORECASE,
)
_TYPED: dict[str, ast.expr] = {
    "bool": ast.Constant(False),
    "int": ast.Constant(0),
    "float": ast.Constant(0.0),
    "str": ast.Constant(""),
    "bytes": ast.Constant(b""),
}


class Site(Struct, frozen=True):
    """``new`` in place of the node ``old``, which is ``field`` of ``parent`` (at ``index`` of a list)."""

    operator: str
    parent: ast.AST
    field: str
    index: int | None
    old: ast.AST
    new: ast.AST
    before: str
    after: str

    def apply(self) -> None:
        """Change the tree."""
        self._put(self.new)

    def revert(self) -> None:
        """The tree as it was."""
        self._put(self.old)

    def _put(self, node: ast.AST) -> None:
        if self.index is None:
            setattr(self.parent, self.field, node)
        else:
            getattr(self.parent, self.field)[self.index] = node


class _Place(Struct, frozen=True):
    """Where a node is."""

    parent: ast.AST
    field: str
    index: int | None
    node: Any

    def becomes(self, operator: str, new: ast.AST) -> Site:
        ast.copy_location(new, self.node)
        ast.fix_missing_locations(new)
        return Site(
            operator, self.parent, self.field, self.index, self.node, new, shown(self.node), shown(new)
        )


def shown(node: ast.AST) -> str:
    """A node as normalised source; of a compound statement its first line."""
    return ast.unparse(node).partition("\n")[0]


def sites(
    statement: ast.stmt, parent: ast.AST, field: str, index: int, inside: Definition | None
) -> list[Site]:
    """All sites of one statement, without those of the statements inside it. ``inside``: the function that it
    is part of; None for a statement of a module or class."""
    place = _Place(parent, field, index, statement)
    found: list[Site] = []
    if inside is not None:
        found += _of_statement(place, inside)
    for below in _expressions(statement, is_constant=inside is None):
        for operator in _OF_EXPRESSIONS:
            found += operator(below)
    if inside is not None:
        found += _other_arguments(statement, inside)
    return found


def argument_sites(function: Definition) -> list[Site]:
    """Ignoring an argument, or doing nothing at all: a new first statement of the function."""
    first = 1 if ast.get_docstring(function, clean=False) is not None else 0
    if first >= len(function.body):
        return []
    place = _Place(function, "body", first, function.body[first])
    found: list[Site] = []
    for argument, default in _arguments(function):
        if argument.arg in ("self", "cls", "now") or not _is_read(function, argument.arg):
            continue
        for value in _ignored(argument, default):
            ignoring: ast.stmt = ast.Assign([ast.Name(argument.arg, ast.Store())], value)
            found.append(_before(place, "ignore an argument", ignoring))
    if (
        isinstance(function.returns, ast.Constant)
        and function.returns.value is None
        and not _is_generator(function)
    ):
        returning = ast.Return(None)
        site = place.becomes("return early", returning)
        found.append(Site(site.operator, *_spot(place), site.old, returning, "", "return"))
    return found


def default_sites(function: Definition) -> list[Site]:
    """Changes of the defaults of arguments."""
    defaults = function.args.defaults
    found: list[Site] = []
    for number, default in enumerate(defaults):
        place = _Place(function.args, "defaults", number, default)
        for operator in _OF_EXPRESSIONS:
            found += operator(place)
    for number, keyword in enumerate(function.args.kw_defaults):
        if keyword is not None:
            for operator in _OF_EXPRESSIONS:
                found += operator(_Place(function.args, "kw_defaults", number, keyword))
    return found


def _spot(place: _Place) -> tuple[ast.AST, str, int | None]:
    return place.parent, place.field, place.index


def _before(place: _Place, operator: str, extra: ast.stmt) -> Site:
    """``extra`` before the statement at ``place``."""
    both = ast.If(ast.Constant(True), [extra, place.node], [])
    ast.copy_location(both, place.node)
    ast.copy_location(extra, place.node)
    ast.fix_missing_locations(both)
    return Site(operator, *_spot(place), place.node, both, "", shown(extra))


def _arguments(function: Definition) -> Iterator[tuple[ast.arg, ast.expr | None]]:
    positional = [*function.args.posonlyargs, *function.args.args]
    missing = len(positional) - len(function.args.defaults)
    defaults: list[ast.expr | None] = [*[None] * missing, *function.args.defaults]
    yield from zip(positional, defaults, strict=True)
    yield from zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True)


def _ignored(argument: ast.arg, default: ast.expr | None) -> list[ast.expr]:
    """What an argument is, whatever was given."""
    if argument.annotation is None:
        return []
    names = [name.strip() for name in ast.unparse(argument.annotation).split("|")]
    if names == ["bool"]:
        return [ast.Constant(False), ast.Constant(True)]
    if default is not None:
        return [copy.deepcopy(default)]
    if "None" in names:
        return [ast.Constant(None)]
    return [copy.deepcopy(_TYPED[names[0]])] if names[0] in _TYPED else []


def _is_read(function: Definition, name: str) -> bool:
    return any(isinstance(node, ast.Name) and node.id == name for node in ast.walk(function))


def _is_generator(function: Definition) -> bool:
    return any(isinstance(node, ast.Yield | ast.YieldFrom) for node in ast.walk(function))


# Statements


def _of_statement(place: _Place, inside: Definition) -> Iterator[Site]:
    node = place.node
    match node:
        case ast.If(test=test) | ast.While(test=test):
            yield from _of_condition(_Place(node, "test", None, test))
        case ast.Match(cases=cases):
            for number, case in enumerate(cases[:-1] if len(cases) > 1 else cases):
                never = copy.copy(case)
                never.guard = ast.copy_location(ast.Constant(False), case.pattern)
                yield Site(
                    "drop a branch",
                    node,
                    "cases",
                    number,
                    case,
                    never,
                    f"case {ast.unparse(case.pattern)}",
                    "",
                )
                if case.guard is not None:
                    yield from _of_condition(_Place(case, "guard", None, case.guard))
        case ast.Return(value=value) if value is not None and not _is_none(value):
            yield place.becomes("return None", ast.Return(ast.Constant(None)))
            if isinstance(inside.returns, ast.Name) and inside.returns.id == "bool":
                yield _Place(node, "value", None, value).becomes("negate", _not(value))
        case ast.Return() | ast.Raise() | ast.AugAssign() | ast.Delete() | ast.Break() | ast.Continue():
            yield place.becomes("skip a statement", ast.Pass())
        case ast.Expr(value=ast.Call() | ast.Await() | ast.Yield() | ast.YieldFrom()):
            yield place.becomes("skip a statement", ast.Pass())
        case ast.Assign(targets=targets):
            if not all(isinstance(target, ast.Name) for target in targets) or all(
                _is_set_elsewhere(inside, node, target) for target in targets
            ):
                yield place.becomes("skip a statement", ast.Pass())


def _is_set_elsewhere(function: Definition, assignment: ast.Assign, target: ast.expr) -> bool:
    """Whether the name has another value without this assignment."""
    assert isinstance(target, ast.Name)
    if any(argument.arg == target.id for argument, _ in _arguments(function)):
        return True
    own = set(map(id, ast.walk(assignment)))
    return any(
        isinstance(node, ast.Name)
        and isinstance(node.ctx, ast.Store)
        and node.id == target.id
        and id(node) not in own
        for node in ast.walk(function)
    )


def _of_condition(place: _Place) -> Iterator[Site]:
    yield place.becomes("negate", _not(place.node))
    yield place.becomes("drop a branch", _constant(place.node, value=False))
    if not isinstance(place.parent, ast.While):
        yield place.becomes("drop a condition", _constant(place.node, value=True))


def _constant(condition: ast.expr, *, value: bool) -> ast.expr:
    """Always ``value``. What ``condition`` assigns is still assigned: without it the mutant would only raise
    ``NameError``."""
    if not any(isinstance(node, ast.NamedExpr) for node in ast.walk(condition)):
        return ast.Constant(value)
    return ast.BoolOp(ast.Or() if value else ast.And(), [copy.deepcopy(condition), ast.Constant(value)])


def _not(node: ast.expr) -> ast.expr:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return copy.deepcopy(node.operand)
    return ast.UnaryOp(ast.Not(), copy.deepcopy(node))


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


# Expressions


def _expressions(statement: ast.stmt, *, is_constant: bool) -> Iterator[_Place]:
    """Every expression of a statement, but those of statements inside it, annotations and docstrings."""
    if isinstance(
        statement, ast.Import | ast.ImportFrom | ast.Assert | ast.FunctionDef | ast.AsyncFunctionDef
    ):
        return
    if isinstance(statement, ast.ClassDef):
        return
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
        return
    if is_constant and not isinstance(statement, ast.Assign | ast.AnnAssign | ast.AugAssign):
        return
    yield from _below(statement)


def _below(node: ast.AST) -> Iterator[_Place]:
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "decorator_list", "format_spec"):
            continue
        for index, child in enumerate(value) if isinstance(value, list) else [(None, value)]:
            if isinstance(child, ast.stmt):
                continue
            if isinstance(child, ast.expr):
                yield _Place(node, field, index, child)
            if isinstance(child, ast.AST):
                yield from _below(child)


def _conditions(place: _Place) -> Iterator[Site]:
    match place.parent:
        case ast.IfExp() if place.field == "test":
            yield from _of_condition(place)
        case ast.comprehension() if place.field == "ifs":
            yield from _of_condition(place)


def _comparisons(place: _Place) -> Iterator[Site]:
    node = place.node
    if not isinstance(node, ast.Compare):
        return
    for number, operator in enumerate(node.ops):
        if type(operator) in _COMPARE:
            other = copy.deepcopy(node)
            other.ops[number] = _COMPARE[type(operator)]()
            is_off_by_one = isinstance(operator, ast.Lt | ast.LtE | ast.Gt | ast.GtE)
            yield place.becomes("off by one" if is_off_by_one else "negate", other)


def _constants(place: _Place) -> Iterator[Site]:
    node = place.node
    if not isinstance(node, ast.Constant):
        return
    match node.value:
        case bool():
            yield place.becomes("swap a constant", ast.Constant(not node.value))
        case int():
            yield place.becomes("off by one", ast.Constant(node.value + 1))
            if node.value > 0:
                yield place.becomes("off by one", ast.Constant(node.value - 1))
        case str() if not isinstance(place.parent, ast.JoinedStr):
            yield place.becomes("swap a constant", ast.Constant(node.value + "~"))
        case str() if place.index == 0 or len(node.value) > 1:
            new = ast.Constant(node.value + "~")
            ast.copy_location(new, node)
            yield Site("swap a constant", *_spot(place), node, new, repr(node.value), repr(new.value))
        case bytes():
            yield place.becomes("swap a constant", ast.Constant(node.value + b"~"))


def _booleans(place: _Place) -> Iterator[Site]:
    node = place.node
    if not isinstance(node, ast.BoolOp):
        return
    other = copy.deepcopy(node)
    other.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
    yield place.becomes("swap and/or", other)
    for number in range(len(node.values)):
        rest = [copy.deepcopy(value) for index, value in enumerate(node.values) if index != number]
        neutral = _constant(node.values[number], value=isinstance(node.op, ast.And))
        if not isinstance(neutral, ast.Constant):
            rest.insert(number, neutral)
        yield place.becomes("drop an operand", rest[0] if len(rest) == 1 else ast.BoolOp(node.op, rest))


def _arithmetic(place: _Place) -> Iterator[Site]:
    node = place.node
    if isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
        other = copy.deepcopy(node)
        other.op = _ARITHMETIC[type(node.op)]()
        yield place.becomes("swap an operator", other)
    if (
        isinstance(node, ast.UnaryOp)
        and isinstance(node.op, ast.Not)
        and not isinstance(place.parent, ast.If)
    ):
        yield place.becomes("negate", copy.deepcopy(node.operand))


def _twins(place: _Place) -> Iterator[Site]:
    node = place.node
    if place.field != "func":
        return
    if isinstance(node, ast.Name) and node.id in _TWINS:
        yield place.becomes("swap a function", ast.Name(_TWINS[node.id], ast.Load()))
    if isinstance(node, ast.Attribute) and node.attr in _TWINS:
        yield place.becomes(
            "swap a function", ast.Attribute(copy.deepcopy(node.value), _TWINS[node.attr], ast.Load())
        )
    if (
        isinstance(node, ast.Name)
        and node.id in ("sorted", "reversed")
        and isinstance(place.parent, ast.Call)
    ):
        yield place.becomes("swap a function", ast.Name("list", ast.Load()))


def _durations(place: _Place) -> Iterator[Site]:
    node = place.node
    is_added = (
        isinstance(place.parent, ast.BinOp)
        and isinstance(place.parent.op, ast.Add | ast.Sub)
        and _MOMENT.search(_name(place.parent.left if place.field == "right" else place.parent.right))
        and not _MOMENT.search(_name(node))
    )
    is_named = (
        isinstance(place.parent, ast.Assign | ast.AnnAssign | ast.keyword)
        and place.field == "value"
        and _DURATION.search(_target(place.parent))
        and isinstance(node, ast.BinOp | ast.Call | ast.Attribute)
    )
    if is_added or is_named:
        yield place.becomes("scale a duration", ast.BinOp(copy.deepcopy(node), ast.Mult(), ast.Constant(2)))
        yield place.becomes(
            "scale a duration", ast.BinOp(copy.deepcopy(node), ast.FloorDiv(), ast.Constant(2))
        )


def _name(node: ast.expr) -> str:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


def _target(node: ast.Assign | ast.AnnAssign | ast.keyword) -> str:
    if isinstance(node, ast.keyword):
        return node.arg or ""
    return _name(node.targets[0] if isinstance(node, ast.Assign) else node.target)


def _scopes(place: _Place) -> Iterator[Site]:
    """A key without one of its parts: what was kept for each of them is kept for all together."""
    node = place.node
    is_key = place.field == "slice" or (
        isinstance(place.parent, ast.Call)
        and place.field == "args"
        and isinstance(place.parent.func, ast.Attribute)
        and place.parent.func.attr in _KEYED
    )
    if is_key and isinstance(node, ast.Tuple) and len(node.elts) > 1:
        for number, part in enumerate(node.elts):
            if not isinstance(part, ast.Slice | ast.Starred | ast.Constant):
                wider = copy.deepcopy(node)
                wider.elts[number] = ast.Constant(None)
                yield place.becomes("widen a scope", wider)


def _keywords(place: _Place) -> Iterator[Site]:
    node = place.node
    if not isinstance(node, ast.Call):
        return
    for number, keyword in enumerate(node.keywords):
        if keyword.arg is not None:
            other = copy.deepcopy(node)
            del other.keywords[number]
            yield place.becomes("ignore an argument", other)


def _other_arguments(statement: ast.stmt, inside: Definition) -> Iterator[Site]:
    """Another argument of the function, of the same type, in place of one that is passed on or looked up."""
    types = {
        argument.arg: ast.unparse(argument.annotation)
        for argument, _ in _arguments(inside)
        if argument.annotation is not None
    }
    for place in _expressions(statement, is_constant=False):
        node = place.node
        if not isinstance(node, ast.Name) or not isinstance(node.ctx, ast.Load) or node.id not in types:
            continue
        if place.field not in ("args", "slice", "value", "left", "right", "comparators"):
            continue
        for other, kind in types.items():
            if other != node.id and kind == types[node.id]:
                yield place.becomes("widen a scope", ast.Name(other, ast.Load()))


class Swaps:
    """Constants of one module that can be confused: upper-case names of the same type, members of one enum.

    ``values``: name -> value, as the module has them.
    """

    def __init__(self, values: dict[str, Any]) -> None:
        self._values = values
        names = sorted(name for name in values if re.fullmatch(r"_?[A-Z][A-Z0-9_]+", name))
        self._names = names

    def sites(self, statement: ast.stmt, *, is_constant: bool) -> Iterator[Site]:
        """Where ``statement`` names one, another."""
        for place in _expressions(statement, is_constant=is_constant):
            node = place.node
            other = self._other(node)
            if other is not None:
                yield place.becomes("swap a constant", other)

    def _other(self, node: ast.expr) -> ast.expr | None:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in self._names:
            name = self._next(node.id)
            return None if name is None else ast.Name(name, ast.Load())
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            member = self._member(node.value.id, node.attr)
            return None if member is None else ast.Attribute(copy.deepcopy(node.value), member, ast.Load())
        return None

    def _next(self, name: str) -> str | None:
        value = self._values[name]
        if callable(value) or isinstance(value, dict | list | set | frozenset | re.Pattern):
            return None
        place = self._names.index(name)
        for other in self._names[place + 1 :] + self._names[:place]:
            if type(self._values[other]) is type(value) and self._values[other] != value:
                return other
        return None

    def _member(self, kind: str, name: str) -> str | None:
        members = getattr(self._values.get(kind), "__members__", None)
        if not members or name not in members or len(members) < 2:
            return None
        names = list(members)
        return str(names[(names.index(name) + 1) % len(names)])


_OF_EXPRESSIONS: tuple[Callable[[_Place], Iterator[Site]], ...] = (
    _conditions,
    _comparisons,
    _constants,
    _booleans,
    _arithmetic,
    _twins,
    _durations,
    _scopes,
    _keywords,
)
