"""Tokens of a ClassAd into its tree, within limits of text, nesting and nodes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, NoReturn

from pilotage.core.classads.lexer import MOST_NEGATIVE, RESERVED, Source, Token, tokens
from pilotage.core.classads.tree import (
    ERROR,
    LEVEL,
    UNDEFINED,
    Attribute,
    Call,
    Chain,
    ClassAd,
    Conditional,
    Expression,
    ListOf,
    Literal,
    Logic,
    Scalar,
    Subscript,
    Unary,
    children,
)
from pilotage.core.errors import InvalidInput, TooLarge

MAX_TEXT: Final = 64 * 1024
MAX_DEPTH: Final = 100
MAX_NODES: Final = 10_000
# Characters of a name such as `Parameters.Seed`.
MAX_DOTTED_NAME: Final = 1000

_CONSTANTS: Final[dict[str, Scalar]] = {
    "true": True,
    "false": False,
    "undefined": UNDEFINED,
    "error": ERROR,
}
_WORD_OPERATORS: Final = {"is": "=?=", "isnt": "=!="}


@dataclass(frozen=True, slots=True)
class ParserLimits:
    """Limits on the cost of a text. `text` counts UTF-8 bytes, `depth` nested nodes, `nodes` all of them."""

    text: int = MAX_TEXT
    depth: int = MAX_DEPTH
    nodes: int = MAX_NODES


DEFAULT_LIMITS: Final = ParserLimits()


@dataclass(frozen=True, slots=True)
class Definition:
    """One `name = expression` and where it stands; lines and columns count from 1."""

    name: str
    expression: Expression
    line: int
    column: int


def parse_expression(text: str, limits: ParserLimits = DEFAULT_LIMITS) -> Expression:
    """The tree of one expression; anything after it, or a limit exceeded, raises `InvalidInput`."""
    with _shallow():
        parser = _Parser(text, limits)
        expression = parser.expression()
        parser.finish()
    check_size(expression, limits)
    return expression


def parse_ad(text: str, limits: ParserLimits = DEFAULT_LIMITS) -> ClassAd:
    """The tree of one bracketed ad; an attribute defined twice raises `InvalidInput`."""
    with _shallow():
        parser = _Parser(text, limits)
        ad = parser.record()
        parser.finish()
    check_size(ad, limits)
    return ad


def parse_definitions(text: str, limits: ParserLimits = DEFAULT_LIMITS) -> tuple[Definition, ...]:
    """The attributes of a job description in the order written.

    The enclosing brackets may be absent, names may be dotted (`Parameters.Seed`), and repeated names are
    kept: the caller decides their meaning.
    """
    with _shallow():
        parser = _Parser(text, limits)
        bracketed = parser.peek().kind == "["
        if bracketed:
            parser.advance()
        definitions = parser.definitions("]" if bracketed else "end", dotted=True)
        if bracketed:
            parser.expect("]", "the description ends with ']'")
        parser.finish()
    check_size(ListOf(tuple(definition.expression for definition in definitions)), limits)
    return tuple(definitions)


@contextmanager
def _shallow() -> Iterator[None]:
    """Refuse a text within the limits but too deep for a caller that is nested deep itself."""
    try:
        yield
    except RecursionError:
        raise TooLarge("the text nests too deep to be read here") from None


def check_size(tree: Expression, limits: ParserLimits = DEFAULT_LIMITS) -> None:
    """Raises `TooLarge` for a tree of more nodes or deeper nesting than allowed."""
    nodes = 0
    stack = [(tree, 1)]
    while stack:
        node, depth = stack.pop()
        nodes += 1
        if depth > limits.depth:
            raise TooLarge(f"the expression nests deeper than {limits.depth} levels")
        if nodes > limits.nodes:
            raise TooLarge(f"the expression has more than {limits.nodes} parts")
        stack.extend((below, depth + 1) for below in children(node))


class _Parser:
    """Recursive descent, never deeper than the limit; one operator stack per level of brackets.

    Tokens are read as they are needed, one ahead, and nodes are counted as they are made: a hostile text costs
    no more memory than the limits allow.
    """

    def __init__(self, text: str, limits: ParserLimits) -> None:
        if len(text.encode("utf-8", "surrogatepass")) > limits.text:
            raise TooLarge(f"the text is longer than {limits.text} bytes")
        self._source = Source(text)
        self._tokens = tokens(self._source)
        self._token = next(self._tokens)
        self._following = next(self._tokens, self._token)
        self._depth = 0
        self._limits = limits
        self._nodes = 0

    def peek(self) -> Token:
        return self._token

    def advance(self) -> Token:
        token = self._token
        self._token = self._following
        # The last token, of kind `end`, stays.
        self._following = next(self._tokens, self._following)
        return token

    def _made(self) -> None:
        """Count one node more."""
        self._nodes += 1
        if self._nodes > self._limits.nodes:
            raise TooLarge(f"the expression has more than {self._limits.nodes} parts")

    def _nested(self, depth: int) -> None:
        if depth > self._limits.depth:
            line, column = self._source.place(self._token.start)
            raise TooLarge(f"nested deeper than {self._limits.depth} levels", line=line, column=column)

    def accept(self, kind: str) -> bool:
        if self.peek().kind == kind:
            self.advance()
            return True
        return False

    def expect(self, kind: str, why: str) -> Token:
        if self.peek().kind != kind:
            self.unexpected(f"expected {kind!r}", why)
        return self.advance()

    def unexpected(self, wanted: str, hint: str = "") -> NoReturn:
        token = self.peek()
        problem = "the text ends" if token.kind == "end" else f"{token.text!r} is not expected"
        self._source.refuse(f"{problem} here: {wanted}", token.start, hint)

    def finish(self) -> None:
        if self.peek().kind != "end":
            self.unexpected("the expression was complete", "an operator or ';' may be missing")

    def expression(self) -> Expression:
        """Conditionals, loosest of all and to the right."""
        self._depth += 1
        self._nested(self._depth)
        result = self._binary()
        if self.accept("?"):
            yes = self.expression()
            self.expect(":", "a conditional is written test ? yes : no")
            result = Conditional(result, yes, self.expression())
        self._depth -= 1
        return result

    def _binary(self) -> Expression:
        operands = [self._unary()]
        waiting: list[str] = []
        while (op := self._operator()) is not None:
            self.advance()
            while waiting and LEVEL[waiting[-1]] > LEVEL[op]:
                _reduce(operands, waiting)
            waiting.append(op)
            operands.append(self._unary())
        while waiting:
            _reduce(operands, waiting)
        return operands[0]

    def _operator(self) -> str | None:
        token = self.peek()
        if token.kind in LEVEL:
            return token.kind
        if token.kind == "name" and token.text[0] != "'":
            return _WORD_OPERATORS.get(token.text.lower())
        if token.kind == "=":
            self.unexpected("'=' only defines attributes", "compare with == or =?=")
        return None

    def _unary(self) -> Expression:
        signs: list[str] = []
        while self.peek().kind in ("-", "+", "!", "~"):
            signs.append(self.advance().kind)
            self._nested(len(signs))
        operand = self._negative_number() if signs and signs[-1] == "-" else None
        if operand is None:
            operand = self._alternatives(self._postfix())
        else:
            operand = self._alternatives(operand)
            signs.pop()
        for sign in reversed(signs):
            operand = Unary(sign, operand)
        return operand

    def _alternatives(self, first: Expression) -> Expression:
        """`first ?: second ?: …`, each a value without sign or operator but for negative numbers."""
        length = 0
        while self.peek().kind == "?" and self._following.kind == ":":
            self.advance()
            self.advance()
            length += 1
            self._nested(length)
            second = None
            if self.accept("-"):
                second = self._negative_number()
                if second is None:
                    self.unexpected("after ?: only a value can stand", "use parentheses")
            first = Conditional(first, None, self._postfix() if second is None else second)
        return first

    def _negative_number(self) -> Expression | None:
        token = self.peek()
        if token.kind != "number" or self._following.kind in (".", "["):
            return None
        self.advance()
        self._made()
        assert not isinstance(token.value, str)
        return Literal(-token.value)

    def _postfix(self) -> Expression:
        result = self._primary()
        length = 0
        while True:
            if self.peek().kind in (".", "["):
                length += 1
                self._nested(length)
            if self.accept("."):
                result = Attribute(self._name("an attribute name"), result)
            elif self.accept("["):
                index = self.expression()
                self.expect("]", "a subscript is written list[index]")
                result = Subscript(result, index)
            else:
                return result

    def _primary(self) -> Expression:
        token = self.peek()
        self._made()
        match token.kind:
            case "number":
                self.advance()
                return self._positive_number(token)
            case "string":
                return self._string()
            case "name":
                return self._named(token)
            case ".":
                self.advance()
                return Attribute(self._name("an attribute name"), absolute=True)
            case "(":
                self.advance()
                inner = self.expression()
                self.expect(")", "a parenthesis is not closed")
                return inner
            case "{":
                self.advance()
                return ListOf(self._separated("}"))
            case "[":
                return self.record()
        return self.unexpected("a value was expected")

    def _positive_number(self, token: Token) -> Expression:
        assert not isinstance(token.value, str)
        if token.value == MOST_NEGATIVE and isinstance(token.value, int):
            self._source.refuse(f"integer {token.text} does not fit 64 bits", token.start)
        return Literal(token.value)

    def _string(self) -> Expression:
        parts: list[str] = []
        while self.peek().kind == "string":
            self._made()
            parts.append(str(self.advance().value))
        return Literal("".join(parts))

    def _named(self, token: Token) -> Expression:
        bare = token.text[0] != "'"
        if bare and token.text.lower() in _CONSTANTS:
            self.advance()
            return Literal(_CONSTANTS[token.text.lower()])
        name = self._name("a value")
        if bare and self.accept("("):
            return Call(name, self._separated(")"))
        return Attribute(name)

    def _name(self, what: str) -> str:
        token = self.peek()
        if token.kind != "name":
            self.unexpected(f"{what} was expected")
        if token.text[0] != "'" and token.text.lower() in RESERVED:
            self.unexpected(f"{what} was expected", "this word is reserved; a name of it needs single quotes")
        self.advance()
        return str(token.value)

    def _separated(self, closing: str) -> tuple[Expression, ...]:
        if self.accept(closing):
            return ()
        items = [self.expression()]
        while self.accept(","):
            items.append(self.expression())
        self.expect(closing, "items are separated by commas")
        return tuple(items)

    def record(self) -> ClassAd:
        self.expect("[", "an ad begins with '['")
        definitions = self.definitions("]", dotted=False)
        self.expect("]", "attributes are separated by ';'")
        seen: dict[str, Definition] = {}
        for definition in definitions:
            first = seen.setdefault(definition.name.lower(), definition)
            if first is not definition:
                raise InvalidInput(
                    f"attribute {definition.name!r} is already defined on line {first.line}",
                    line=definition.line,
                    column=definition.column,
                    field=definition.name,
                )
        return ClassAd(tuple((definition.name, definition.expression) for definition in definitions))

    def definitions(self, closing: str, *, dotted: bool) -> list[Definition]:
        definitions: list[Definition] = []
        while True:
            while self.accept(";"):
                self._made()
            if self.peek().kind in (closing, "end"):
                return definitions
            line, column = self._source.place(self.peek().start)
            name = self._name("an attribute name")
            while dotted and self.accept("."):
                name += "." + self._name("an attribute name")
                if len(name) > MAX_DOTTED_NAME:
                    raise TooLarge("the name of an attribute is too long", line=line, column=column)
            self.expect("=", f"attributes are written {name} = value;")
            definitions.append(Definition(name, self.expression(), line, column))
            if self.peek().kind not in (closing, ";"):
                self.unexpected("expected ';'", f"the value of {name!r} was complete")


def _reduce(operands: list[Expression], waiting: list[str]) -> None:
    """Takes all waiting operators of the topmost level off both stacks, as one node."""
    level = LEVEL[waiting[-1]]
    count = 0
    while count < len(waiting) and LEVEL[waiting[-1 - count]] == level:
        count += 1
    ops = waiting[-count:]
    parts = operands[-count - 1 :]
    del waiting[-count:]
    del operands[-count - 1 :]
    if level <= LEVEL["&&"]:
        operands.append(Logic(ops[0], tuple(parts)))
    else:
        operands.append(Chain(parts[0], tuple(zip(ops, parts[1:], strict=True))))
