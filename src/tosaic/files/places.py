"""Locations in MLIR text: where Tosaic keeps names of values and the places they come from."""

from __future__ import annotations

from dataclasses import dataclass

from tosaic.files.lex import Tokens, shown
from tosaic.ir.graph import Loc

_DEEPEST = 32  # locations inside of locations


@dataclass(frozen=True, slots=True)
class Place:
    """What a location says: names of the results and regions, and where the operator is from."""

    names: tuple[str, ...] = ()
    regions: tuple[str, ...] = ()
    loc: Loc | None = None

    def name(self) -> str:
        """The name of a single value."""
        return self.names[0] if len(self.names) == 1 else ""


NOWHERE = Place()


class Places:
    """Reads locations, and the aliases (``#loc3``) that tosa-opt puts at the end of a text."""

    def __init__(self, tokens: Tokens) -> None:
        self.tokens = tokens
        self.aliases: dict[str, Place | int] = {}
        if "#loc" in tokens.text:
            words = tokens.tokens
            self.aliases = {
                w: i + 2 for i, w in enumerate(words) if w.startswith("#") and words[i + 1] == "="
            }

    def optional(self) -> Place:
        """A location if one follows."""
        return self.needed() if self.tokens.peek().startswith("loc") else NOWHERE

    def needed(self, depth: int = 0) -> Place:
        tokens = self.tokens
        if depth > _DEEPEST:
            tokens.fail("locations are nested too deep")
        if tokens.peek().startswith("loc("):
            return self._plain(tokens.take(), depth)
        tokens.expect("loc")
        tokens.expect("(")
        place = self._place(depth)
        tokens.expect(")")
        return place

    def _plain(self, token: str, depth: int) -> Place:
        """``loc("name")``, ``loc("name"(#loc3))`` or ``loc(#loc3)``: one token each."""
        name, quote, alias = token[5:-1].rpartition('"')
        if token[4] == "#":
            return self._alias(token[4:-1], depth)
        assert quote
        return Place((name,), (), self._alias(alias[1:-1], depth).loc if alias else None)

    def _place(self, depth: int) -> Place:
        tokens = self.tokens
        if depth > _DEEPEST:
            tokens.fail("locations are nested too deep")
        token = tokens.take()
        if token[0] == '"':
            tokens.at -= 1
            return self._named(depth)
        if token[0] == "#":
            return self._alias(token, depth)
        if token == "unknown":
            return NOWHERE
        if token == "callsite":
            tokens.expect("(")
            place = self._place(depth + 1)
            tokens.expect("at")
            self._place(depth + 1)
            tokens.expect(")")
            return place
        if token == "fused":
            return self._fused(depth)
        tokens.fail(f"{shown(token)} is no location")

    def _named(self, depth: int) -> Place:
        """``"name"``, ``"name"(location)`` or ``"file":line:column``."""
        tokens = self.tokens
        name = tokens.name()
        if tokens.accept("("):
            place = self._place(depth + 1)
            tokens.expect(")")
            return Place((name,), (), place.loc)
        if not tokens.accept(":"):
            return Place((name,))
        line = tokens.integer()
        tokens.expect(":")
        tokens.integer()
        if tokens.accept("to"):  # a range, which ends at :column or line:column
            while tokens.peek() not in (")", "]", ",", ""):
                tokens.take()
        return Place(loc=Loc(file=name, line=line))

    def _alias(self, token: str, depth: int) -> Place:
        known = self.aliases.get(token)
        if known is None:
            self.tokens.fail(f"the location {shown(token)} is defined nowhere")
        if isinstance(known, int):
            back, self.tokens.at = self.tokens.at, known
            known = self.needed(depth + 1)
            self.aliases[token] = known
            self.tokens.at = back
        return known

    def _fused(self, depth: int) -> Place:
        tokens = self.tokens
        names: tuple[str, ...] = ()
        regions: tuple[str, ...] = ()
        facts = {"node": "", "module": "", "file": ""}
        line = 0
        if tokens.accept("<{"):
            names, regions = self._facts(facts)
        elif tokens.accept("<"):
            tokens.skip_value()
            tokens.expect(">")
        parts: list[Place] = []
        tokens.expect("[")
        tokens.separated("]", lambda: parts.append(self._place(depth + 1)))
        for part in parts:
            names = names or part.names
            if part.loc is not None and not facts["file"]:
                line = part.loc.line
                for key, fact in facts.items():
                    facts[key] = fact or getattr(part.loc, key)
        loc = Loc(facts["node"], facts["module"], facts["file"], line)
        return Place(names, regions, None if loc == Loc() else loc)

    def _facts(self, facts: dict[str, str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The dictionary that the printer puts on a fused location."""
        tokens = self.tokens
        lists: dict[str, tuple[str, ...]] = {"names": (), "regions": ()}

        def entry() -> None:
            key = tokens.take()
            if not tokens.accept("="):
                return
            if key in facts and tokens.peek().startswith('"'):
                facts[key] = tokens.name()
            elif key in lists and tokens.accept("["):
                found: list[str] = []
                tokens.separated("]", lambda: found.append(tokens.name()))
                lists[key] = tuple(found)
            else:
                tokens.skip_value()

        tokens.separated("}>", entry)
        return lists["names"], lists["regions"]
