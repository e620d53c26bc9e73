// Facts of classes: what holds together, and how it travels from children to parents.
#include "egraph.h"

enum { MOST_REFINED = 64 };  // after so many an interval no longer shrinks: it may do so forever

static int meet_remainders(Fact *a, const Fact *b) {
    if (b->modulus == 1) return 1;
    if (a->modulus == 1) {
        a->modulus = b->modulus;
        a->rest = b->rest;
        return 1;
    }
    if (a->modulus == 0) return b->modulus ? floor_mod(a->rest, b->modulus) == b->rest : a->rest == b->rest;
    if (b->modulus == 0) {
        if (floor_mod(b->rest, a->modulus) != a->rest) return 0;
        a->modulus = 0;
        a->rest = b->rest;
        return 1;
    }
    const i64 g = gcd(a->modulus, b->modulus);
    if ((a->rest - b->rest) % g) return 0;
    const i64 both = a->modulus / g * b->modulus;
    if (both > (i64)1 << 20) {  // keep the finer one
        if (b->modulus > a->modulus) {
            a->modulus = b->modulus;
            a->rest = b->rest;
        }
        return 1;
    }
    i64 rest = a->rest;
    while (floor_mod(rest, b->modulus) != b->rest) rest += a->modulus;
    a->modulus = both;
    a->rest = rest;
    return 1;
}

// Both hold: says whether that is more than `a` said, and in `why` if it cannot be.
int meet(Fact *a, const Fact *b, u32 *why) {
    const Fact before = *a;
    if (a->dtype != b->dtype) {
        *why = DIFFERENT_DTYPES;
        return 0;
    }
    if (a->number && b->number && (a->number != b->number || a->value != b->value)) {
        *why = DIFFERENT_CONSTANTS;
        return 0;
    }
    if (most(a->low, b->low) > least(a->high, b->high)) {
        *why = DISJOINT_INTERVALS;
        return 0;
    }
    if (!meet_remainders(a, b)) {
        *why = DISJOINT_REMAINDERS;
        return 0;
    }
    if (b->number && !a->number) {
        a->number = b->number;
        a->value = b->value;
    } else if (a->refined >= MOST_REFINED && !a->number) {
        a->modulus = before.modulus;
        a->rest = before.rest;
        return 0;
    }
    a->low = most(a->low, b->low);
    a->high = least(a->high, b->high);
    a->nonzero |= b->nonzero;
    if (!memcmp(a, &before, offsetof(Fact, refined))) return 0;
    a->refined++;
    return 1;
}

// Notes that more is known of a class: its parents are told by the next rebuild.
void touch(EGraph *g, u32 cls) {
    ROOM(g, touched, touched_room, (u64)g->touched_count + 1);
    g->touched[g->touched_count++] = cls;
    g->news++;
}

void eg_touch(EGraph *g, u32 cls) {
    if (setjmp(g->escape)) return;
    touch(g, find(g, cls));
}

int eg_refine(EGraph *g, u32 cls, const Fact *by) {
    if (setjmp(g->escape)) return -1;
    const int changed = refine(g, find(g, cls), by);
    return g->stop == CONFLICT_FOUND ? -1 : changed;
}

const Fact *eg_fact(EGraph *g, u32 cls) { return known(g, find(g, cls)); }

// Carries what is new about classes to their parents, and makes a class of one value one with
// that constant. Says whether there were unions: then congruence is to be closed again.
int propagate(EGraph *g) {
    // while there are no unions the lists of uses stay true, so one pass carries it all the way
    for (u32 k = 0; k < g->touched_count; k++) {
        const u32 cls = find(g, g->touched[k]);
        if (cls >= g->fact_stamps) {
            // graphs of which nothing is known have none
            const u32 old = g->fact_stamps;
            ROOM(g, fact_stamp, fact_stamp_room, g->class_count);
            g->fact_stamps = g->class_count;
            memset(g->fact_stamp + old, 0, (g->class_count - old) * sizeof(u32));
        }
        if (g->fact_stamp[cls] != g->now) {
            g->fact_stamp[cls] = g->now;
            ROOM(g, changed, changed_room, (u64)g->changed_count + 1);
            g->changed[g->changed_count++] = cls;
        }
        if (cls >= g->linked_classes) continue;
        for (u32 i = g->use_span[cls].first, last = g->use_span[cls + 1].first; i < last; i++) {
            const Use *u = g->uses + i;
            if (g->heads[u->head].meaning == OPAQUE) continue;
            const Node *n = g->nodes + u->id;
            const Fact fact = fact_of(g, n->head, kids_of(g, n));
            refine(g, find(g, n->cls), &fact);
            if (g->stop == CONFLICT_FOUND) return 0;
        }
    }
    const u64 unions = g->unions;
    const u32 count = g->touched_count;
    for (u32 k = 0; k < count; k++) {
        const u32 cls = find(g, g->touched[k]);
        const Fact f = *known(g, cls);
        if (!f.number || f.number == ELSEWHERE) continue;
        const u32 number = constant_class(g, f.dtype, f.number, f.value);
        if (find(g, number) == find(g, cls)) continue;
        if (unite(g, cls, number) && g->explain) join_terms(g, cls, number, BY_VALUE, 0);
        if (g->stop == CONFLICT_FOUND) return 0;
    }
    g->touched_count -= count;
    if (g->touched_count) memmove(g->touched, g->touched + count, g->touched_count * sizeof(u32));
    return g->unions != unions || g->touched_count;
}
