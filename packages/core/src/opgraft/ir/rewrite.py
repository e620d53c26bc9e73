"""`graph_rewrite`: apply rules to a whole graph until none fires."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, Protocol

from opgraft.errors import RewriteError
from opgraft.ir.collector import paused
from opgraft.ir.graph import toposort
from opgraft.ir.matcher import PatternMatcher, signature
from opgraft.ir.rule import brief
from opgraft.ir.steps import Function
from opgraft.ir.trace import Recorder, recording
from opgraft.ir.uop import UOp, make, node


def graph_rewrite(
    sink: UOp,
    matcher: PatternMatcher,
    ctx: Any = None,
    bottom_up: bool = False,
    name: str | None = None,
    settled: Iterable[UOp] = (),
) -> UOp:
    """The graph with every node rewritten until no rule fires on any.

    Each node meets the rules when its sources are done; what a rule makes is treated in the
    same way, new nodes in it included, until nothing fires. With `bottom_up` a node meets the
    rules as it stands, before its sources are looked at, and again whenever they have changed:
    for rules that replace or stop at whole subgraphs. Either way equal nodes are rewritten once,
    and no rule fires on any node of the result. `ctx` is handed to the rules that take it;
    `name` appears in traces and errors. Nodes that are `settled` are taken to be in their final
    form, and all below them. What an EqualitySet brought to its final form is marked as such, and
    not looked at again by it or by a part of it.

    Raises RewriteError if a rule raises, and if rules run in a circle, with their names.

    >>> from opgraft.ir.pattern import UPat
    >>> n = UOp.variable("n", 0, 9)
    >>> graph_rewrite((n + 0) * 1, PatternMatcher([
    ...     (UPat.var("x") + 0, lambda x: x), (UPat.var("x") * 1, lambda x: x)])) is n
    True
    """
    trace = recording()
    done = {n: n for n in settled}
    watch = _Watch(sink, matcher, ctx, name)
    with paused:
        if trace is not None:
            with Recorder(matcher, trace, name) as recorder:
                if bottom_up:
                    return _early(sink, recorder, ctx, watch, done)
                return _late(sink, recorder, ctx, watch, done, 0, 0)
        if bottom_up:
            return _early(sink, matcher.table, ctx, watch, done)
        mark, marks = matcher.marks
        for known in done:
            if not known._final & marks:
                mark = 0  # what stands on a node that is only said to be final may not be
                break
        return _late(sink, matcher.table, ctx, watch, done, mark, marks)


class _Functions(Protocol):
    """What the loops ask of a table of functions."""

    def __getitem__(self, key: Any, /) -> Function | None: ...


class _Watch:
    """The rewrites that are still open, to see circles.

    A node is open from the first rule that fired on it until its final form is known. If that
    final form is needed to find it, the rules run in a circle. A circle in which the nodes grow
    never meets itself; it shows as far more open rewrites than the graph has nodes.
    """

    def __init__(self, sink: UOp, matcher: PatternMatcher, ctx: Any, name: str | None) -> None:
        self.sink, self.matcher, self.ctx, self.name = sink, matcher, ctx, name
        self.trails: Final[dict[UOp, list[UOp]]] = {}
        """Open nodes, outermost first, with their rewrites: matched, made, matched, made ..."""
        self.owner: Final[dict[UOp, UOp]] = {}
        """Every form of an open node, and the node."""
        self.open = 0
        self.total = 0
        self.most_open = _OPEN
        self.most_total = _TOTAL
        self.measured = False

    def fired(self, start: UOp, matched: UOp, made: UOp) -> None:
        """Note a rewrite of `start`, whose form `matched` became `made`."""
        owner = self.owner
        trail = self.trails.get(start)
        if trail is None:
            trail = self.trails[start] = []
            owner[start] = start
        trail.append(matched)
        trail.append(made)
        owner[matched] = start
        if made in owner:
            raise self.circle(made)
        owner[made] = start
        self.open += 1
        self.total += 1
        if self.open > self.most_open or self.total > self.most_total:
            self._measure()

    def closed(self, start: UOp, final: UOp, done: dict[UOp, UOp]) -> None:
        """`final` is the form of `start` on which no rule fires, and so of all its forms."""
        trail = self.trails.pop(start)
        self.open -= len(trail) // 2
        del self.owner[start]
        for form in trail:
            done[form] = final
            self.owner.pop(form, None)

    def _measure(self) -> None:
        if not self.measured:
            size = len(toposort((self.sink,)))
            self.most_open = _OPEN + 16 * size
            self.most_total = _TOTAL + 1000 * size
            self.measured = True
        if self.open > self.most_open:
            raise self._report(self._fires()[-100:], "seem to run in a circle that grows")
        if self.total > self.most_total:
            raise self._report(self._fires()[-100:], "did not come to an end")

    def circle(self, form: UOp) -> RewriteError:
        """The error when the final form of the open node with this form is needed to find it."""
        first = self.owner[form]
        starts = list(self.trails)
        fires = [f for start in starts[starts.index(first) :] for f in self._of(start)]
        # the circle begins where the form was matched, or at the start of its node
        begin = next((i for i, (matched, _) in enumerate(fires) if matched is form), 0)
        return self._report(fires[begin:], "run in a circle")

    def _of(self, start: UOp) -> list[tuple[UOp, UOp]]:
        trail = self.trails[start]
        return list(zip(trail[::2], trail[1::2]))

    def _fires(self) -> list[tuple[UOp, UOp]]:
        return [f for start in self.trails for f in self._of(start)]

    def _report(self, fires: list[tuple[UOp, UOp]], what: str) -> RewriteError:
        """Which rules these rewrites were is found by matching again."""
        names: dict[str, str] = {}
        for matched, _ in fires:
            found = self.matcher.trace(matched, self.ctx)
            names.setdefault("a rule" if found is None else str(found[0]), brief(matched))
        where = f" in {self.name}" if self.name else ""
        return RewriteError(
            f"these rules {what}{where}:",
            tried=tuple(names.items()),
            remedy="each must decline where another undoes its work",
        )


_OPEN: Final = 10_000
_TOTAL: Final = 2_000_000


def _late(
    sink: UOp,
    table: _Functions,
    ctx: Any,
    watch: _Watch,
    done: dict[UOp, UOp],
    mark: int,
    marks: int,
) -> UOp:
    """Sources first, then the node.

    Nodes on which no rule fires get `mark`; those that have one of `marks` are not looked at. As
    long as nothing fires no rewrite is open, so no circle is looked for: `_follow` does that.
    """
    get = done.get
    stack = [sink]
    pop, push = stack.pop, stack.append
    while stack:
        start = pop()
        if start in done:
            continue
        while True:  # down to the first node whose sources are done
            if start._final & marks:
                done[start] = start
                break
            current = start
            src = start.src
            if len(src) == 2:
                left, right = src
                new_left, new_right = get(left), get(right)
                if new_left is None:
                    push(start)
                    if new_right is None:
                        push(right)
                    start = left
                    continue
                if new_right is None:
                    push(start)
                    start = right
                    continue
                if new_left is not left or new_right is not right:
                    # as `node` does, without the call: half of the nodes of a kernel come here
                    head, src = start.head, (new_left, new_right)
                    ref = head.get(src)
                    known: UOp | None = None if ref is None else ref()
                    current = make(head, src) if known is None else known
                key: Any = (current.kind, new_left.kind, new_right.kind)
            elif not src:
                key = (start.kind,)
            else:
                new = tuple(map(get, src))
                if None in new:
                    push(start)
                    stack += [source for source in reversed(src) if source not in done]
                    start = pop()
                    continue
                if new != src:
                    current = node(start.head, new)  # type: ignore[arg-type]
                key = signature(current)
            if current is not start:
                final = get(current)
                if final is None and current._final & marks:
                    final = done[current] = current
                if final is not None:
                    done[start] = final
                    break
            function = table[key]
            made = None if function is None else function(current, ctx)
            if made is None:
                current._final |= mark
                done[current] = done[start] = current
                break
            final = get(made)
            if final is None:
                watch.fired(start, current, made)
                _follow(start, table, ctx, watch, done, mark, marks)
            else:
                done[current] = done[start] = final  # no circle: what was made has its final form
            break
    return done[sink]


def _follow(
    first: UOp,
    table: _Functions,
    ctx: Any,
    watch: _Watch,
    done: dict[UOp, UOp],
    mark: int,
    marks: int,
) -> None:
    """The same for a node of which a rewrite is open, until its final form is known."""
    get = done.get
    trails, owner = watch.trails, watch.owner
    stack = [first]
    while stack:
        start = stack[-1]
        if start in done:
            stack.pop()
            continue
        current = trails[start][-1] if start in trails else start
        while True:
            final = None
            if current._final & marks:
                final = done[current] = current
            else:
                src = current.src
                if len(src) == 2:
                    left, right = src
                    new_left, new_right = get(left), get(right)
                    if new_left is None or new_right is None:
                        # in this order the left one is done first
                        for missing in (right, left):
                            if missing in owner:
                                raise watch.circle(missing)
                        if new_right is None:
                            stack.append(right)
                        if new_left is None:
                            stack.append(left)
                        break
                    if new_left is not left or new_right is not right:
                        current = node(current.head, (new_left, new_right))
                        final = get(current)
                        if final is None and current in owner:
                            raise watch.circle(current)
                    key: Any = (current.kind, new_left.kind, new_right.kind)
                else:
                    new = tuple(map(get, src))
                    if None in new:
                        for missing in reversed(src):
                            if missing in owner:
                                raise watch.circle(missing)
                            if missing not in done:
                                stack.append(missing)
                        break
                    if new != src:
                        current = node(current.head, new)  # type: ignore[arg-type]
                        final = get(current)
                        if final is None and current in owner:
                            raise watch.circle(current)
                    key = signature(current)
            if final is None:
                function = table[key]
                made = None if function is None else function(current, ctx)
                if made is None:
                    current._final |= mark
                    final = done[current] = current
                else:
                    final = get(made)
                    if final is None:
                        watch.fired(start, current, made)
                        current = made
                        continue
                    done[current] = final  # no circle: what was made has its final form
            done[start] = final
            if start in trails:
                watch.closed(start, final, done)
            stack.pop()
            break


def _early(sink: UOp, table: _Functions, ctx: Any, watch: _Watch, done: dict[UOp, UOp]) -> UOp:
    """The node first, as it stands, then its sources, then the node again if they changed."""
    get = done.get
    now: dict[UOp, UOp] = {}  # the form of a node that waits for its sources
    trails, owner = watch.trails, watch.owner
    stack = [sink]
    while stack:
        start = stack[-1]
        if start in done:
            stack.pop()
            continue
        waited = now.pop(start, None)
        if waited is None:
            current, final = _settle(start, start, table, ctx, watch, done)
        else:
            current, final = waited, None
        while final is None:
            src = current.src
            new = tuple(map(get, src))
            if None in new:
                for missing in reversed(src):
                    if missing in owner:
                        raise watch.circle(missing)
                    if missing not in done:
                        stack.append(missing)
                now[start] = current
                break
            if new == src:
                final = current
                done[final] = final
                break
            current = node(current.head, new)  # type: ignore[arg-type]
            final = get(current)
            if final is None:
                if current in owner:
                    raise watch.circle(current)
                current, final = _settle(start, current, table, ctx, watch, done)
        if final is not None:
            done[start] = final
            if start in trails:
                watch.closed(start, final, done)
            stack.pop()
    return done[sink]


def _settle(
    start: UOp,
    current: UOp,
    table: _Functions,
    ctx: Any,
    watch: _Watch,
    done: Mapping[UOp, UOp],
) -> tuple[UOp, UOp | None]:
    """The form of a node on which, as it stands, no rule fires; and its final form if known."""
    while True:
        function = table[signature(current)]
        made = None if function is None else function(current, ctx)
        if made is None:
            return current, None
        final = done.get(made)
        watch.fired(start, current, made)
        if final is not None:
            return made, final
        current = made
