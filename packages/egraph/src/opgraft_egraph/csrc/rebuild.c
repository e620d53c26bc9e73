// Congruence closure, and the arrays that a search reads.
//
// Between two rebuilds, unions and new nodes touch nothing that a search looks at: it sees the
// graph as the last rebuild left it, while matches are applied at once. The arrays are made when
// somebody is about to read them, so not after the last round.
#include "egraph.h"

enum { SWEEPS = 24, SMALL = 4096 };

static void link_use(EGraph *g, u32 cls, u32 id) {
    ROOM(g, links, link_room, (u64)g->link_count + 1);
    g->links[g->link_count] = (Link){id, g->extra[cls]};
    g->extra[cls] = g->link_count++;
}

static inline int is_stale(const EGraph *g, const u32 *kids, u32 arity) {
    u32 stale = 0;
    for (u32 i = 0; i < arity; i++) stale |= g->parent[kids[i]] != kids[i];
    return stale != 0;
}

// Gives a node its children's present ids. A node that then equals another one dies, and their
// classes are one. Returns whether it lives on with other children.
static int rekey(EGraph *g, u32 id) {
    Node *n = g->nodes + id;
    if (n->flags & DEAD) return 0;
    const u32 arity = (u32)g->heads[n->head].arity;
    u32 *kids = n->flags & WIDE ? g->wide + n->kid[0] : n->kid;
    if (!is_stale(g, kids, arity)) return 0;
    g->rekeyed++;
    for (u32 i = 0; i < arity; i++) kids[i] = find(g, kids[i]);
    const u32 swapped = order_kids(g, n->head, kids);
    u32 hash;
    const u32 found = lookup(g, n->head, kids, &hash);
    if (found != NONE && found != id) {
        n->flags |= DEAD;
        g->stamp[id] = found;  // what it equals, for those that know it by its id
        g->live--;
        if (unite(g, n->cls, g->nodes[found].cls) && g->explain)
            join_terms(g, g->node_term[id], g->node_term[found], BY_CONGRUENCE, 0);
        return 0;
    }
    n->flags ^= swapped;
    g->stamp[id] = g->now;
    if (found == NONE) enter(g, hash, id);
    return 1;
}

static void mark_lost(EGraph *g, u32 *marked) {
    for (; *marked < g->loser_count; ++*marked) {
        const u32 loser = g->losers[*marked];
        g->lost[loser >> 5] |= 1u << (loser & 31);
    }
}

// Looks at the first so many nodes in turn, for those with a child that lost. `lost` has a bit for
// each class, so that what is asked of every node is at hand. What loses on the way is marked for the
// nodes behind, then all of them, which most parents are; returns how many are to be seen again for it.
static u32 sweep(EGraph *g, u32 count, u32 *marked) {
    u32 again = 0;
    mark_lost(g, marked);
    const u32 *lost = g->lost;
    for (u32 id = 0; id < count; id++) {
        const Node *n = g->nodes + id;
        if (n->kid[0] == NONE) continue;
        if (!(n->flags & WIDE)) {
            const u32 a = n->kid[0], b = n->kid[1] == NONE ? a : n->kid[1];
            if (!((lost[a >> 5] >> (a & 31) | lost[b >> 5] >> (b & 31)) & 1)) continue;
        }
        rekey(g, id);
        if (*marked == g->loser_count) continue;
        if (g->stop == CONFLICT_FOUND) break;
        mark_lost(g, marked);
        again = id + 1;
        count = g->node_count;
    }
    return again;
}

// Whether most nodes are new: then to list the uses of all of them takes longer than some sweeps.
static int sweeps_pay(EGraph *g) {
    if (g->node_count < SMALL || 2 * (u64)(g->node_count - g->linked) < g->node_count) return 0;
    ROOM(g, lost, lost_room, (u64)g->class_count / 32 + 1);
    memset(g->lost, 0, ((u64)g->class_count / 32 + 1) * sizeof(u32));
    return 1;
}

static void rekey_linked(EGraph *g, u32 id) {
    if (!rekey(g, id)) return;
    const u32 arity = (u32)g->heads[g->nodes[id].head].arity;
    for (u32 i = 0; i < arity; i++) link_use(g, kids_of(g, g->nodes + id)[i], id);
}

// Counting sorts: nodes by class, by child, and the changed ones by head.
static void link_anew(EGraph *g) {
    const u32 classes = g->class_count, heads = g->head_count, now = g->now;
    u32 uses = 0, changed = 0;
    ROOM(g, row_span, row_span_room, (u64)classes + 2);
    ROOM(g, use_span, use_span_room, (u64)classes + 2);
    ROOM(g, delta_first, delta_first_room, (u64)heads + 2);
    memset(g->row_span, 0, ((u64)classes + 2) * sizeof(Span));
    memset(g->use_span, 0, ((u64)classes + 2) * sizeof(Span));
    memset(g->delta_first, 0, ((u64)heads + 2) * sizeof(u32));
    Span *row_span = g->row_span, *use_span = g->use_span;
    const u32 *masks = g->masks;
    for (u32 id = 0; id < g->node_count; id++) {
        Node *n = g->nodes + id;
        if (n->flags & DEAD) continue;
        const u32 cls = find(g, n->cls), head = n->head;
        if (cls != n->cls) {
            n->cls = cls;
            g->stamp[id] = now;
        }
        const u32 arity = (u32)g->heads[head].arity, *kids = kids_of(g, n), mask = masks[head];
        row_span[cls + 2].first++;
        row_span[cls].mask |= mask;
        for (u32 i = 0; i < arity; i++) {
            use_span[kids[i] + 2].first++;
            use_span[kids[i]].mask |= mask;
        }
        uses += arity;
        if (g->stamp[id] == now) {
            g->delta_first[head + 2]++;
            changed++;
        }
    }
    for (u32 i = 0; i < classes; i++) {
        row_span[i + 2].first += row_span[i + 1].first;
        use_span[i + 2].first += use_span[i + 1].first;
    }
    for (u32 i = 0; i < heads; i++) g->delta_first[i + 2] += g->delta_first[i + 1];
    ROOM(g, rows, row_room, (u64)g->live + 1);
    ROOM(g, uses, use_room, (u64)uses + 1);
    ROOM(g, delta, delta_room, (u64)changed + 1);
    for (u32 id = 0; id < g->node_count; id++) {
        const Node *n = g->nodes + id;
        if (n->flags & DEAD) continue;
        const u32 cls = n->cls, head = n->head, fresh = g->stamp[id] == now;
        const u32 arity = (u32)g->heads[head].arity, *kids = kids_of(g, n);
        const u32 a = arity ? kids[0] : NONE, b = arity > 1 ? kids[1] : NONE;
        g->rows[row_span[cls + 1].first++] = (Row){head, fresh, id, a, b};
        if (arity) g->uses[use_span[a + 1].first++] = (Use){head, 0, fresh, id, cls, b};
        if (arity > 1) g->uses[use_span[b + 1].first++] = (Use){head, 1, fresh, id, cls, a};
        for (u32 i = 2; i < arity; i++)
            g->uses[use_span[kids[i] + 1].first++] = (Use){head, i < FARTHER ? i : FARTHER, fresh, id, cls, NONE};
        if (fresh) g->delta[g->delta_first[head + 1]++] = (Change){id, cls, a, b};
    }
    g->linked = g->node_count;
    g->linked_classes = classes;
    g->linked_heads = heads;
    g->unlinked = 0;
}

// Looks at the uses of the classes that have lost: those that the arrays list, and those of nodes
// that are new since, or have other children since.
static void follow_uses(EGraph *g, u32 k, int swept) {
    if (g->unlinked) link_anew(g);
    if (g->extra_room < g->class_count) ROOM(g, extra, extra_room, g->class_room);
    memset(g->extra, 0xff, g->class_count * sizeof(u32));
    g->link_count = 0;
    for (u32 id = swept ? 0 : g->linked; id < g->node_count; id++) {
        const Node *n = g->nodes + id;
        if (n->flags & DEAD || (id < g->linked && g->stamp[id] != g->now)) continue;
        const u32 arity = (u32)g->heads[n->head].arity;
        for (u32 i = 0; i < arity; i++) link_use(g, kids_of(g, n)[i], id);
    }
    for (; k < g->loser_count && g->stop != CONFLICT_FOUND; k++) {
        const u32 loser = g->losers[k];
        if (loser < g->linked_classes)
            for (u32 i = g->use_span[loser].first, last = g->use_span[loser + 1].first; i < last; i++) {
                if (i + 4 < last) FETCH(g->nodes + g->uses[i + 4].id);
                rekey_linked(g, g->uses[i].id);
            }
        for (u32 at = g->extra[loser]; at != NONE; at = g->links[at].next)
            rekey_linked(g, g->links[at].id);
    }
}

static void close_congruence(EGraph *g) {
    if (!g->loser_count) return;
    u32 followed = 0, marked = 0, swept = 0;
    if (sweeps_pay(g)) {
        for (u32 count = g->node_count; count && swept < SWEEPS; swept++) {
            followed = g->loser_count;
            count = sweep(g, count, &marked);
            if (g->stop == CONFLICT_FOUND) return;
            if (!count) followed = g->loser_count;
        }
    }
    if (followed < g->loser_count) follow_uses(g, followed, swept > 0);
    for (u32 k = 0; k < g->loser_count; k++) {
        const u32 loser = g->losers[k], winner = find(g, loser);
        if (g->priced && g->asked) {
            // by cost, then height: choices never run in a circle (extract.c)
            Best *own = g->best + winner, *other = g->best + loser;
            if (other->node != NONE &&
                (own->node == NONE || other->cost < own->cost ||
                 (other->cost == own->cost && other->height < own->height))) {
                *own = *other;
                renew(g, winner);
            }
        }
    }
    g->loser_count = 0;
}

// Closes the graph. `linked`: with the arrays that a search reads; else the first reader makes them.
void rebuild(EGraph *g, int linked) {
    g->now++;
    g->changed_count = g->renewed_count = 0;
    const u32 rule = g->rule;
    g->rule = NONE;
    do {
        close_congruence(g);
        if (g->stop == CONFLICT_FOUND) return;
        g->unlinked = 1;
        if (linked || g->touched_count || (g->priced && g->asked)) link_anew(g);
    } while (propagate(g) && g->stop != CONFLICT_FOUND);
    if (g->priced && g->stop != CONFLICT_FOUND) {
        if (g->asked) relax(g);
        else g->stale = 1;
    }
    g->built = progress(g);
    g->rule = rule;
}

// The arrays of the graph as it is.
void ensure_linked(EGraph *g) {
    if (progress(g) != g->built) rebuild(g, 1);
    else if (g->unlinked) link_anew(g);
}

int eg_linked(EGraph *g) {
    if (setjmp(g->escape)) return 0;
    ensure_linked(g);
    return 1;
}

// 1; 0: two classes conflict, and the graph can be looked at no more; -1: memory is out.
int eg_rebuild(EGraph *g) {
    if (g->failed || setjmp(g->escape)) return -1;
    if (g->stop != CONFLICT_FOUND) rebuild(g, 0);
    return g->stop != CONFLICT_FOUND;
}
