"""Offers one-way rules as equalities."""

from opgraft.api import PatternMatcher, UPat

API = (1, 0)


def opgraft_equalities():
    return {"index": PatternMatcher([(UPat.var("x") * 2, lambda x: x + x)])}
