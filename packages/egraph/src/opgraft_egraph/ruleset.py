"""`RuleSet`: the rules of a PatternMatcher, compiled for the engines once per process."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from opgraft.api import DType, ForkLock, Ops, PatternMatcher, dtypes
from opgraft_egraph.book import Variant
from opgraft_egraph.language import Language
from opgraft_egraph.patterns import Match, ways_of, with_facts
from opgraft_egraph.symbols import Untraceable
from opgraft_egraph.tracing import Captured, facts_of, trace

_SAMPLES: Final = (dtypes.index, dtypes.int32, dtypes.float32, dtypes.bool)


class RuleSet:
    """Rules as ways, and what is known about their functions."""

    def __init__(self, rules: Iterable[Any]) -> None:
        self.rules: Final = tuple(rules)
        self.language: Final = Language()
        self.matches: Final[list[Match]] = []
        self.rule_of: Final[list[Any]] = []
        """Of each way."""
        self.names: Final[list[str]] = []
        self.native: Final[list[bool]] = []
        """Of each way, whether its function can be traced for some dtypes."""
        self._traced: Final[dict[tuple[int, tuple[int, ...]], bool]] = {}
        for rule in self.rules:
            self._compile(rule)

    def _compile(self, rule: Any) -> None:
        wanted = tuple(name for name, _ in rule.parameters if name != "ctx")
        traceable = not rule.takes_ctx
        language = self.language
        for match in ways_of(rule.pattern, language, wanted, terms=False):
            looked_at = None
            if traceable and not match.loose and not match.predicates:
                looked_at = self._sample(rule, match)
            if looked_at is None:
                # its function gets nodes, and they may tell it more when they are cheaper
                outs = {a.out for a in match.way.atoms}
                below = [k for a in match.way.atoms for k in a.kids if k not in outs]
                match = with_facts(match, tuple(below))
                match = match._replace(way=match.way._replace(terms=True))
            else:
                match = with_facts(match, looked_at)
            self.language.book.add_way(match.way)
            self.matches.append(match)
            self.rule_of.append(rule)
            self.names.append(rule.name)
            self.native.append(looked_at is not None)

    def _sample(self, rule: Any, match: Match) -> tuple[int, ...] | None:
        """The slots whose facts the function looks at; None: it cannot be traced."""
        looked_at: dict[int, None] = {}
        found = False
        for dtype in _SAMPLES:
            captures = {}
            for name, part in match.captures.items():
                if not any(name == n for n, _ in rule.parameters):
                    continue
                own = _fitting(part.pattern.dtypes, part.ops, dtype)
                captures[name] = Captured(part.slot, own, part.slot in match.constants)
            try:
                paths = trace(rule.function, captures, match.way.slots, _SCRATCH)
            except Untraceable:
                continue
            found = True
            looked_at.update(dict.fromkeys(facts_of(paths)))
        inner = {a.out for a in match.way.atoms[:1]}
        return tuple(s for s in looked_at if s not in inner) if found else None

    def learn(self, way: int, dtype_ids: tuple[int, ...]) -> bool:
        """Trace a way for captures of these dtypes; whether there is anything new.

        `dtype_ids`: of the slots in `way.captures`.
        """
        key = (way, dtype_ids)
        if key in self._traced:
            return False
        match, rule = self.matches[way], self.rule_of[way]
        paths: Any = ()
        with self.language.lock:
            if key in self._traced:
                return False
            if self.native[way]:
                by_slot = dict(zip(match.way.captures, dtype_ids))
                captures = {}
                for name, part in match.captures.items():
                    if part.slot in by_slot and any(name == n for n, _ in rule.parameters):
                        dtype = self.language.dtypes[by_slot[part.slot]]
                        assert dtype is not None
                        captures[name] = Captured(part.slot, dtype, part.slot in match.constants)
                try:
                    paths = trace(rule.function, captures, match.way.slots, self.language)
                except Untraceable:
                    paths = ()
            self._traced[key] = bool(paths)
            if paths:
                self.language.book.add_variant(way, Variant(dtype_ids, paths))
        return bool(paths)


_SCRATCH: Final = Language()
"""Of traces that are made to see whether they can be."""


def _fitting(wanted: Any, ops: tuple[Ops, ...] | None, dtype: DType) -> DType:
    """A dtype that a part of a pattern accepts: the given one if it does."""
    if wanted is None or dtype in wanted:
        return dtype
    for other in (*_SAMPLES, *dtypes.all):
        if other in wanted:
            return other
    return dtype


_lock: Final = ForkLock()
_known: Final[dict[tuple[Any, ...], RuleSet]] = {}
_MOST: Final = 32


def ruleset_of(matcher: PatternMatcher) -> RuleSet:
    """The compiled rules of a matcher; the same for matchers of the same rules."""
    key = matcher.rules
    found = _known.get(key)
    if found is None:
        with _lock:
            found = _known.get(key)
            if found is None:
                if len(_known) >= _MOST:
                    _known.pop(next(iter(_known)))
                found = _known[key] = RuleSet(key)
    return found
