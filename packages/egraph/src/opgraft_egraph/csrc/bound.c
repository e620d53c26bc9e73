// A lower bound for the price of the cheapest terms of some classes together, each node paid once.
//
// By dual ascent, as exact/ascent.py does it for what this cannot settle: a cut is a set of nodes of
// which every choice that runs in no circle holds at least one, and takes from the prices of all of
// them what the cheapest has left. What was taken in all is the bound.
#include <math.h>

#include "egraph.h"

static const double MOST_EXACT = 1099511627776.0;  // sums of that many whole numbers are exact

typedef struct {
    const EGraph *g;
    double *left;      // of a node's price; below 0: it is not to be taken
    u32 *missing;      // children of a node whose classes are not free
    double *below, *above;
    u8 *free;          // of a class: it has a term of which nothing is left to pay
    u32 *inside, epoch;
    u32 *waiting, *cut, *settled;
    u32 waiting_count, cut_count;
    u64 looks;
} Ascent;

static void settle_classes(Ascent *s, u32 count) {
    const EGraph *g = s->g;
    while (count) {
        const u32 cls = g->nodes[s->settled[--count]].cls;
        if (s->free[cls]) continue;
        s->free[cls] = 1;
        for (u32 i = g->use_span[cls].first; i < g->use_span[cls + 1].first; i++) {
            const u32 user = g->uses[i].id;
            if (!--s->missing[user] && s->left[user] == 0 && !s->free[g->nodes[user].cls])
                s->settled[count++] = user;
        }
    }
}

static void await_members(Ascent *s, u32 cls) {
    const EGraph *g = s->g;
    s->inside[cls] = s->epoch;
    for (u32 i = g->row_span[cls].first; i < g->row_span[cls + 1].first; i++)
        if (s->left[g->rows[i].id] >= 0) s->waiting[s->waiting_count++] = g->rows[i].id;
}

// Goes into a child of each node of which nothing is left; where that ends is the cut.
static void follow(Ascent *s) {
    const EGraph *g = s->g;
    while (s->waiting_count) {
        const u32 id = s->waiting[--s->waiting_count];
        s->looks++;
        if (s->left[id] > 0) {
            s->cut[s->cut_count++] = id;
            continue;
        }
        const Node *n = g->nodes + id;
        const u32 arity = (u32)g->heads[n->head].arity, *kids = kids_of(g, n);
        u32 into = NONE, fewest = NONE;
        for (u32 i = 0; i < arity; i++) {
            const u32 kid = kids[i], members = g->row_span[kid + 1].first - g->row_span[kid].first;
            if (s->inside[kid] == s->epoch) {
                into = NONE;
                break;
            }
            if (!s->free[kid] && members < fewest) {
                into = kid;
                fewest = members;
            }
        }
        if (into != NONE) await_members(s, into);
    }
}

static int leads_inside(const Ascent *s, u32 id) {
    const EGraph *g = s->g;
    const Node *n = g->nodes + id;
    const u32 arity = (u32)g->heads[n->head].arity, *kids = kids_of(g, n);
    for (u32 i = 0; i < arity; i++)
        if (s->inside[kids[i]] == s->epoch) return 1;
    return 0;
}

// What cuts for a target take, until a class more is free; below 0: the target has no term.
static double take(Ascent *s, u32 target) {
    double value = 0;
    s->epoch++;
    s->cut_count = s->waiting_count = 0;
    await_members(s, target);
    for (;;) {
        follow(s);
        u32 kept = 0, settled = 0;
        double least_left = INFINITY;
        for (u32 i = 0; i < s->cut_count; i++) {
            if (leads_inside(s, s->cut[i])) continue;
            s->cut[kept++] = s->cut[i];
            if (s->left[s->cut[i]] < least_left) least_left = s->left[s->cut[i]];
        }
        if (!kept) return -1;
        value += least_left;
        s->looks += s->cut_count;
        s->cut_count = 0;
        for (u32 i = 0; i < kept; i++) {
            const u32 id = s->cut[i];
            s->left[id] -= least_left;
            if (s->left[id] > 0) s->cut[s->cut_count++] = id;
            else if (s->missing[id]) s->waiting[s->waiting_count++] = id;
            else s->settled[settled++] = id;
        }
        if (settled) {
            settle_classes(s, settled);
            return value;
        }
    }
}

// The bound; infinite: some root has no term.
static double ascend(Ascent *s, const double *prices, const u32 *roots, u32 count, u64 looks) {
    const EGraph *g = s->g;
    double value = 0;
    u32 settled = 0;
    memset(s->free, 0, g->class_count);
    memcpy(s->left, prices, g->node_count * sizeof(double));
    for (u32 id = 0; id < g->node_count; id++) {
        s->missing[id] = (u32)g->heads[g->nodes[id].head].arity;
        if (s->left[id] == 0 && !s->missing[id]) s->settled[settled++] = id;
    }
    settle_classes(s, settled);
    for (u32 i = 0; i < count; i++) {
        while (!s->free[roots[i]] && s->looks < looks) {
            const double taken = take(s, roots[i]);
            if (taken < 0) return INFINITY;
            value += taken;
        }
    }
    return value;
}

// Takes out the nodes that make a choice cost `room` or more above the bound: what is left to pay
// on the way down to them, and on the dearest way from there to a leaf. Returns how many.
static u32 prune(Ascent *s, double *prices, const u32 *roots, u32 count, double room) {
    const EGraph *g = s->g;
    double *below = s->below, *above = s->above;
    for (u32 i = 0; i < g->class_count; i++) below[i] = above[i] = INFINITY;
    for (u32 changed = 1; changed;) {
        changed = 0;
        s->looks += g->node_count;
        for (u32 id = 0; id < g->node_count; id++) {
            if (prices[id] < 0) continue;
            const Node *n = g->nodes + id;
            const u32 arity = (u32)g->heads[n->head].arity, *kids = kids_of(g, n);
            double dearest = 0;
            for (u32 i = 0; i < arity; i++)
                if (below[kids[i]] > dearest) dearest = below[kids[i]];
            if (s->left[id] + dearest >= below[n->cls]) continue;
            below[n->cls] = s->left[id] + dearest;
            changed = 1;
        }
    }
    for (u32 i = 0; i < count; i++) above[roots[i]] = 0;
    for (u32 changed = 1; changed;) {
        changed = 0;
        s->looks += g->node_count;
        for (u32 id = g->node_count; id--;) {
            if (prices[id] < 0 || isinf(above[g->nodes[id].cls])) continue;
            const Node *n = g->nodes + id;
            const u32 arity = (u32)g->heads[n->head].arity, *kids = kids_of(g, n);
            const double depth = above[n->cls] + s->left[id];
            for (u32 i = 0; i < arity; i++) {
                if (depth >= above[kids[i]]) continue;
                above[kids[i]] = depth;
                changed = 1;
            }
        }
    }
    u32 gone = 0;
    for (u32 id = 0; id < g->node_count; id++) {
        if (prices[id] < 0) continue;
        const Node *n = g->nodes + id;
        const u32 arity = (u32)g->heads[n->head].arity, *kids = kids_of(g, n);
        double dearest = 0;
        for (u32 i = 0; i < arity; i++)
            if (below[kids[i]] > dearest) dearest = below[kids[i]];
        if (above[n->cls] + s->left[id] + dearest < room) continue;
        prices[id] = -1;
        gone++;
    }
    return gone;
}

// Bounds, each on what the one before has left.
static double close_in(Ascent *s, double *prices, const u32 *roots, u32 count, double best, u64 looks) {
    const EGraph *g = s->g;
    for (u32 id = 0; id < g->node_count; id++) {
        if (g->nodes[id].flags & DEAD || isinf(prices[id])) prices[id] = -1;
        // in floats only sums of whole numbers are exact, and a bound must not be too high
        else if (prices[id] > MOST_EXACT || prices[id] < 0 || prices[id] != floor(prices[id])) return 0;
    }
    double bound = 0;
    while (s->looks < looks) {
        const double value = ascend(s, prices, roots, count, looks);
        // without a term: none is left that is cheaper
        if (value >= best) return best;
        if (value > bound) bound = value;
        if (!prune(s, prices, roots, count, best - value)) break;
    }
    return bound;
}

// No terms of the roots cost less than this, up to `best`, the price of some; 0 where prices are no
// whole numbers. `looks`: at nodes, at most. Below 0: out of memory.
double eg_bound(EGraph *g, const double *prices, const u32 *roots, u32 count, double best, u64 looks) {
    if (!eg_linked(g)) return -1;
    const size_t nodes = (size_t)g->node_count + 1, classes = (size_t)g->class_count + 1;
    Ascent s = {.g = g};
    double value = -1, *own = malloc(nodes * sizeof(double));
    u32 *wanted = malloc((count + 1u) * sizeof(u32));
    s.left = malloc(nodes * sizeof(double));
    s.below = malloc(classes * sizeof(double));
    s.above = malloc(classes * sizeof(double));
    s.missing = malloc(nodes * sizeof(u32));
    s.free = malloc(classes);
    s.inside = calloc(classes, sizeof(u32));
    s.waiting = malloc(2 * nodes * sizeof(u32));
    s.cut = malloc(2 * nodes * sizeof(u32));
    s.settled = malloc(2 * nodes * sizeof(u32));
    if (own && wanted && s.left && s.below && s.above && s.missing && s.free && s.inside && s.waiting && s.cut &&
        s.settled) {
        if (prices) memcpy(own, prices, g->node_count * sizeof(double));
        else eg_node_prices(g, own);
        for (u32 i = 0; i < count; i++) wanted[i] = find(g, roots[i]);
        value = close_in(&s, own, wanted, count, best, looks);
    }
    void *all[] = {own,      wanted,    s.left, s.below,   s.above, s.missing,
                   s.free, s.inside, s.waiting, s.cut, s.settled};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
    return value;
}
