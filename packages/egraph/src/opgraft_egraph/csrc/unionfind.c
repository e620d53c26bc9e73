// Which classes are one.
#include "egraph.h"

u32 new_class(EGraph *g) {
    if (g->class_count == g->class_room) {
        u32 room = NONE;
        if (g->asked) {
            g->term_stamp = grow_beside(g, g->term_stamp, g->class_room, &room, sizeof(u32));
            g->best = grow_beside(g, g->best, g->class_room, &room, sizeof(Best));
        }
        g->parent = grow_beside(g, g->parent, g->class_room, &room, sizeof(u32));
        g->classes = grow_beside(g, g->classes, g->class_room, &room, sizeof(Class));
        g->class_room = room;
    }
    const u32 cls = g->class_count++;
    g->parent[cls] = cls;
    g->classes[cls] = (Class){NONE, g->rule};
    if (g->asked) {
        g->term_stamp[cls] = g->now + 1;
        g->best[cls] = (Best){-1.0, 0, NONE};
    }
    return cls;
}

// From now on there are cheapest terms of classes.
void keep_terms(EGraph *g) {
    if (g->asked) return;
    u32 room = 0;
    g->best = eg_grow(g, g->best, &room, g->class_room, sizeof(Best));
    room = 0;
    g->term_stamp = eg_grow(g, g->term_stamp, &room, g->class_room, sizeof(u32));
    memset(g->term_stamp, 0, g->class_count * sizeof(u32));
    g->asked = 1;
}

// Says what is known of a class. Classes of which nothing is known but the dtype, often all of
// them, share one fact.
void know(EGraph *g, u32 cls, const Fact *fact) {
    const u32 dtypes = g->program->dtype_count;
    if (g->plain_count < dtypes) {
        const u32 old = g->plain_count;
        ROOM(g, plain, plain_room, dtypes);
        memset(g->plain + old, 0xff, (dtypes - old) * sizeof(u32));
        g->plain_count = dtypes;
    }
    u32 *plain = g->plain + fact->dtype;
    if (*plain != NONE && !memcmp(g->facts + *plain, fact, offsetof(Fact, refined))) {
        g->classes[cls].fact = *plain;
        return;
    }
    const Fact nothing = anything(g->program->dtypes + fact->dtype, fact->dtype);
    const int is_plain = *plain == NONE && !memcmp(&nothing, fact, offsetof(Fact, refined));
    u32 at = g->classes[cls].fact;
    if (at == NONE || is_plain || (*plain != NONE && at == *plain)) {
        ROOM(g, facts, fact_room, (u64)g->fact_count + 1);
        at = g->classes[cls].fact = g->fact_count++;
        if (is_plain) *plain = at;
    }
    g->facts[at] = *fact;
}

static void report(EGraph *g, u32 kind, u32 a, u32 b) {
    if (g->stop == CONFLICT_FOUND) return;
    g->stop = CONFLICT_FOUND;
    g->conflict.kind = kind;
    g->conflict.rule = g->rule != NONE ? g->rule : g->classes[a].blame != NONE ? g->classes[a].blame : g->classes[b].blame;
    g->conflict.a = a;
    g->conflict.b = b;
    // of what follows from what is equal, and of callers' unions, there is no match to show
    if (g->match) memcpy(g->conflict.slot, g->match, sizeof g->slot);
    else memset(g->conflict.slot, 0xff, sizeof g->slot);
}

// What is known of one more class or node, of the class `other`, holds for `cls` too.
int refine_as(EGraph *g, u32 cls, const Fact *by, u32 other) {
    u32 why = 0;
    Fact own = *known(g, cls);
    const int changed = meet(&own, by, &why);
    if (why) {
        report(g, why, cls, other);
        return 0;
    }
    if (changed) {
        settle(g->program->dtypes + own.dtype, &own);
        know(g, cls, &own);
        touch(g, cls);
    }
    return changed;
}

int refine(EGraph *g, u32 cls, const Fact *by) { return refine_as(g, cls, by, cls); }

// What it takes to give a class another id: how many nodes are listed as its own, and above it.
static u32 weight(const EGraph *g, u32 cls) {
    if (cls >= g->linked_classes) return 0;
    const Span *rows = g->row_span + cls, *uses = g->use_span + cls;
    return rows[1].first - rows->first + uses[1].first - uses->first;
}

// Makes two classes one; returns whether they were two. The heavier one keeps its id. What the
// loser's nodes and parents need is done by the next rebuild.
int unite(EGraph *g, u32 a, u32 b) {
    a = find(g, a);
    b = find(g, b);
    if (a == b) return 0;
    const u32 heavy = weight(g, a), heavier = weight(g, b);
    if (heavy < heavier || (heavy == heavier && a > b)) {
        const u32 other = a;
        a = b;
        b = other;
    }
    if (known(g, a)->dtype != known(g, b)->dtype) {
        report(g, DIFFERENT_DTYPES, a, b);
        return 0;
    }
    ROOM(g, losers, loser_room, (u64)g->loser_count + 1);
    if (g->classes[a].fact != g->classes[b].fact) {
        const Fact other = *known(g, b);
        refine_as(g, a, &other, b);
    }
    if (g->stop == CONFLICT_FOUND) return 0;
    // the loser's parents see the winner's facts, which may be better than what they saw
    if (g->classes[a].fact != g->classes[b].fact && memcmp(known(g, a), known(g, b), offsetof(Fact, refined)))
        touch(g, a);
    g->parent[b] = a;
    if (g->rule != NONE) g->classes[a].blame = g->rule;
    g->losers[g->loser_count++] = b;
    g->unions++;
    return 1;
}

// How many numbers of classes there are, canonical or not.
u32 eg_ids(const EGraph *g) { return g->class_count; }

u32 eg_find(EGraph *g, u32 cls) { return find(g, cls); }

// Whether they were two; -1: they conflict, -2: memory is out. A caller's union that is refused
// leaves the graph as it was; that of a rule ends the run, as do those that the engine makes.
int eg_unite(EGraph *g, u32 a, u32 b, u32 rule, u32 kind, u32 data) {
    if (setjmp(g->escape)) return -2;
    if (g->stop == CONFLICT_FOUND) return -1;
    const u32 before = g->rule, stop = g->stop;
    g->rule = rule;
    const int united = unite(g, a, b);
    g->rule = before;
    if (g->stop == CONFLICT_FOUND) {
        if (rule == NONE) {
            g->conflict.rule = NONE;
            g->stop = stop;
        }
        return -1;
    }
    if (united && g->explain) join_terms(g, a, b, kind, data);
    if (rule != NONE && rule < g->state_count) g->states[rule].united += (u64)united;
    return united;
}

// The rule that made the last union of a class, or its first node; NONE: the caller.
u32 eg_blame(EGraph *g, u32 cls) { return g->classes[find(g, cls)].blame; }

Conflict eg_conflict(const EGraph *g) { return g->conflict; }
