"""All mutants of the modules of a broker core, each with an id that stays while its statement stays.

What is replaced as a whole is a unit: a function or method with all that is inside it, or one statement of a
module or class body, which needs the module to be imported again.
"""

from __future__ import annotations
import __future__

import ast
import hashlib
import marshal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import CodeType
from typing import Any

from msgspec import Struct

from tests.adequacy.operators import (
    Definition,
    Site,
    Swaps,
    argument_sites,
    default_sites,
    shown,
    sites,
)

ID_LENGTH = 12
_NOT_JUDGED = ("__repr__", "__str__", "__hash__")  # for readers, or without a meaning of its own
_ANNOUNCING = ("__all__", "__slots__")


class Mutant(Struct, frozen=True):
    """One mutant, as reports and lists name it. ``function`` is empty for a statement of the module.

    ``statement`` is the first line of the statement, normalised; ``line`` is where it is now.
    """

    id: str
    module: str
    function: str
    operator: str
    statement: str
    before: str
    after: str
    line: int

    def __str__(self) -> str:
        change = f"{self.before}  ->  {self.after or 'nothing'}" if self.before else f"first: {self.after}"
        return f"{self.id} {self.module}:{self.line} {self.function or '(module)'}: {self.operator}: {change}"


class Candidate(Struct, frozen=True):
    """A mutant that can be made: the tree of its module, where to change it, and what has to be replaced.

    ``qualname`` and ``first_line`` name the function whose code is replaced; empty if the module has to be
    imported again. ``lines`` are those whose execution reaches the mutant.
    """

    mutant: Mutant
    tree: ast.Module
    unit: ast.stmt
    site: Site
    path: Path
    qualname: str
    first_line: int
    lines: tuple[int, ...]
    names: tuple[str, ...] = ()  # of a statement of a module or class: what it gives a value

    def module_code(self) -> CodeType:
        """The code of the whole module, changed."""
        return self._compiled(self.tree)

    def function_code(self) -> CodeType:
        """The code of the changed function. Raises ``LookupError`` if what is changed is no function."""
        if not self.qualname:
            raise LookupError(self.mutant.function)
        body: list[ast.stmt] = [self.unit]
        for name in reversed(self.qualname.split(".")[:-1]):
            owner = ast.ClassDef(name, [], [], body, [])
            body = [ast.fix_missing_locations(ast.copy_location(owner, self.unit))]
        code = self._compiled(ast.Module(body, []))
        for _ in self.qualname.split("."):
            code = next(each for each in code.co_consts if isinstance(each, CodeType))
        return code

    def _compiled(self, tree: ast.Module) -> CodeType:
        self.site.apply()
        try:
            code: CodeType = compile(
                tree, str(self.path), "exec", flags=__future__.annotations.compiler_flag, dont_inherit=True
            )
        finally:
            self.site.revert()
        return code


class Source(Struct, frozen=True):
    """A module to be mutated. ``values``: its names, for constants that can be confused.

    Without ``has_fixed_text`` no rule fixes the words of its errors: strings with a space are left alone.
    """

    module: str  # as reports name it: nats.jetstream.consumers.pull
    path: Path
    text: str
    values: dict[str, Any] = {}
    has_fixed_text: bool = True


def mutants_of(source: Source) -> list[Candidate]:
    """All mutants of a module that compile and differ from it and from each other."""
    return list(_Module(source).candidates())


class _Found(Struct, frozen=True):
    """A site and where it was found."""

    site: Site
    statement: ast.stmt
    lines: tuple[int, ...]


class _Module:
    def __init__(self, source: Source) -> None:
        self._source = source
        self._tree = ast.parse(source.text)
        self._swaps = Swaps(source.values)
        self._seen: Counter[tuple[str, ...]] = Counter()

    def candidates(self) -> Iterator[Candidate]:
        yield from self._of_body(self._tree, ())

    def _of_body(self, owner: ast.Module | ast.ClassDef, path: tuple[str, ...]) -> Iterator[Candidate]:
        for number, statement in enumerate(owner.body):
            if isinstance(statement, ast.ClassDef):
                yield from self._of_body(statement, (*path, statement.name))
            elif isinstance(statement, Definition):
                if statement.name not in _NOT_JUDGED and not _is_abstract(statement):
                    yield from self._of_function(statement, ".".join((*path, statement.name)))
            else:
                found = [
                    _Found(site, statement, _lines(statement))
                    for site in [
                        *sites(statement, owner, "body", number, None),
                        *self._swaps.sites(statement, is_constant=True),
                    ]
                ]
                names = tuple(_assigned(statement))
                if not set(names) & set(_ANNOUNCING):
                    yield from self._distinct(found, statement, ".".join(path), "", 0, names)

    def _of_function(self, function: Definition, name: str) -> Iterator[Candidate]:
        first = _code_line(function)
        needs_import = any(isinstance(node, ast.Name) and node.id == "super" for node in ast.walk(function))
        found = [
            _Found(
                site,
                function.body[0],
                tuple(sorted({line for each in function.body for line in _lines(each)})),
            )
            for site in argument_sites(function)
        ]
        found += list(self._of_statements(function, function))
        yield from self._distinct(
            found, function, name, "" if needs_import else name, first, (function.name,)
        )
        defaults = [_Found(site, function, _body_lines(function)) for site in default_sites(function)]
        yield from self._distinct(defaults, function, name, "", 0, (function.name,))

    def _of_statements(self, owner: ast.AST, inside: Definition) -> Iterator[_Found]:
        for field, value in ast.iter_fields(owner):
            if not isinstance(value, list):
                continue
            for number, child in enumerate(value):
                if isinstance(child, ast.stmt):
                    lines = _lines(child)
                    for site in sites(child, owner, field, number, inside):
                        yield _Found(site, child, lines)
                    for site in self._swaps.sites(child, is_constant=False):
                        yield _Found(site, child, lines)
                    nested = child if isinstance(child, Definition) else inside
                    yield from self._of_statements(child, nested)
                elif isinstance(child, ast.match_case | ast.ExceptHandler):
                    yield from self._of_statements(child, inside)

    def _distinct(
        self,
        found: list[_Found],
        unit: ast.stmt,
        function: str,
        qualname: str,
        first_line: int,
        names: tuple[str, ...],
    ) -> Iterator[Candidate]:
        """Those that compile to something new. The unit is compiled alone, which is quicker."""
        whole = ast.Module([unit], [])
        codes = {_code(whole)}
        for one in found:
            mutant = self._mutant(one, function)  # also of those left out: the number of another stays
            if not self._source.has_fixed_text and _is_prose(one.site.old):
                continue
            one.site.apply()
            try:
                code = _code(whole)
            finally:
                one.site.revert()
            if code is None or code in codes:
                continue
            codes.add(code)
            yield Candidate(
                mutant,
                self._tree,
                unit,
                one.site,
                self._source.path,
                qualname,
                first_line,
                one.lines,
                names,
            )

    def _mutant(self, found: _Found, function: str) -> Mutant:
        site = found.site
        statement = shown(found.statement)
        if isinstance(found.statement, Definition):
            statement = f"def {found.statement.name}"  # its other arguments may change
        key = (self._source.module, function, site.operator, statement, site.before, site.after)
        self._seen[key] += 1
        text = "\0".join((*key, str(self._seen[key])))
        identity = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:ID_LENGTH]
        line = getattr(site.old, "lineno", found.statement.lineno)
        return Mutant(
            identity,
            self._source.module,
            function,
            site.operator,
            statement,
            site.before,
            site.after,
            line,
        )


def _is_prose(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value


def _code(tree: ast.Module) -> bytes | None:
    """What ``tree`` compiles to; None if it does not."""
    try:
        return marshal.dumps(compile(tree, "", "exec"))
    except (SyntaxError, ValueError, TypeError):
        return None


def _code_line(function: Definition) -> int:
    return min([function.lineno, *(decorator.lineno for decorator in function.decorator_list)])


def _lines(statement: ast.stmt) -> tuple[int, ...]:
    """The lines of a statement itself, without those of the statements inside it."""
    last = statement.end_lineno or statement.lineno
    inner = [
        child.lineno
        for node in ast.iter_child_nodes(statement)
        for child in ([node] if isinstance(node, ast.stmt) else ast.walk(node))
        if isinstance(child, ast.stmt)
    ]
    return tuple(range(statement.lineno, min([last + 1, *inner])))


def _body_lines(function: Definition) -> tuple[int, ...]:
    return tuple(range(function.body[0].lineno, (function.end_lineno or function.lineno) + 1))


def _is_abstract(function: Definition) -> bool:
    return all(
        isinstance(statement, ast.Pass)
        or (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant))
        for statement in function.body
    )


def _assigned(statement: ast.stmt) -> Iterator[str]:
    for node in ast.walk(statement):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
