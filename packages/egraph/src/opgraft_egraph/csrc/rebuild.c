// Congruence closure, and the arrays that a search reads.
//
// Between two rebuilds, unions and new nodes touch nothing that a search looks at: it sees the
// graph as the last rebuild left it, while matches are applied at once.
#include "egraph.h"

static void link_use(EGraph *g, u32 cls, u32 id) {
    ROOM(g, links, link_room, (u64)g->link_count + 1);
    g->links[g->link_count] = (Link){id, g->extra[cls]};
    g->extra[cls] = g->link_count++;
}

// Gives a node its children's present ids. A node that then equals another one dies, and their
// classes are one.
static void rekey(EGraph *g, u32 id) {
    Node *n = g->nodes + id;
    if (n->flags & DEAD) return;
    const u32 arity = (u32)g->heads[n->head].arity;
    u32 *kids = arity > KIDS ? g->wide + n->kid[0] : n->kid;
    u32 stale = 0;
    for (u32 i = 0; i < arity; i++) stale |= g->classes[kids[i]].parent != kids[i];
    if (!stale) return;
    g->rekeyed++;
    for (u32 i = 0; i < arity; i++) kids[i] = find(g, kids[i]);
    const u32 swapped = order_kids(g, n->head, kids);
    u32 hash;
    const Entry *found = lookup(g, n->head, kids, &hash);
    if (found && found->id != id) {
        const u32 other = found->id;
        n->flags |= DEAD;
        n->stamp = other;  // what it equals, for those that know it by its id
        g->live--;
        if (g->explain && find(g, n->cls) != find(g, g->nodes[other].cls))
            join_terms(g, g->node_term[id], g->node_term[other], BY_CONGRUENCE, 0);
        unite(g, n->cls, g->nodes[other].cls);
        return;
    }
    n->flags ^= swapped;
    n->stamp = g->now;
    for (u32 i = 0; i < arity; i++) link_use(g, kids[i], id);
    if (!found) enter(g, hash, id);
}

static void close_congruence(EGraph *g) {
    if (!g->loser_count) return;
    if (g->extra_room < g->class_count) ROOM(g, extra, extra_room, g->class_room);
    memset(g->extra, 0xff, g->class_count * sizeof(u32));
    g->link_count = 0;
    for (u32 id = g->linked; id < g->node_count; id++) {
        const Node *n = g->nodes + id;
        if (n->flags & DEAD) continue;
        const u32 arity = (u32)g->heads[n->head].arity;
        for (u32 i = 0; i < arity; i++) link_use(g, kids_of(g, n)[i], id);
    }
    for (u32 k = 0; k < g->loser_count && g->stop != CONFLICT_FOUND; k++) {
        const u32 loser = g->losers[k];
        if (loser < g->linked_classes)
            for (u32 i = g->use_first[loser], last = g->use_first[loser + 1]; i < last; i++) {
                if (i + 4 < last) FETCH(g->nodes + g->uses[i + 4].id);
                rekey(g, g->uses[i].id);
            }
        for (u32 at = g->extra[loser]; at != NONE; at = g->links[at].next)
            rekey(g, g->links[at].id);
    }
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

// Counting sorts: nodes by class, by child, and the changed ones by head.
static void link_all(EGraph *g) {
    const u32 classes = g->class_count, heads = g->head_count;
    u32 uses = 0, changed = 0;
    ROOM(g, row_first, row_first_room, (u64)classes + 2);
    ROOM(g, use_first, use_first_room, (u64)classes + 2);
    ROOM(g, delta_first, delta_first_room, (u64)heads + 2);
    memset(g->row_first, 0, ((u64)classes + 2) * sizeof(u32));
    memset(g->use_first, 0, ((u64)classes + 2) * sizeof(u32));
    memset(g->delta_first, 0, ((u64)heads + 2) * sizeof(u32));
    for (u32 id = 0; id < g->node_count; id++) {
        Node *n = g->nodes + id;
        if (n->flags & DEAD) continue;
        const u32 cls = find(g, n->cls);
        if (cls != n->cls) {
            n->cls = cls;
            n->stamp = g->now;
        }
        const u32 arity = (u32)g->heads[n->head].arity, *kids = kids_of(g, n);
        g->row_first[cls + 2]++;
        for (u32 i = 0; i < arity; i++) g->use_first[kids[i] + 2]++;
        uses += arity;
        if (n->stamp == g->now) {
            g->delta_first[n->head + 2]++;
            changed++;
        }
    }
    for (u32 i = 0; i < classes; i++) {
        g->row_first[i + 2] += g->row_first[i + 1];
        g->use_first[i + 2] += g->use_first[i + 1];
    }
    for (u32 i = 0; i < heads; i++) g->delta_first[i + 2] += g->delta_first[i + 1];
    ROOM(g, rows, row_room, (u64)g->live + 1);
    ROOM(g, uses, use_room, (u64)uses + 1);
    ROOM(g, delta, delta_room, (u64)changed + 1);
    for (u32 id = 0; id < g->node_count; id++) {
        const Node *n = g->nodes + id;
        if (n->flags & DEAD) continue;
        const u32 arity = (u32)g->heads[n->head].arity, *kids = kids_of(g, n);
        g->rows[g->row_first[n->cls + 1]++] =
            (Row){n->head, id, arity ? kids[0] : NONE, arity > 1 ? kids[1] : NONE, n->stamp};
        for (u32 i = 0; i < arity; i++) g->uses[g->use_first[kids[i] + 1]++] = (Use){n->head, id, i};
        if (n->stamp == g->now) g->delta[g->delta_first[n->head + 1]++] = id;
    }
    g->linked = g->node_count;
    g->linked_classes = classes;
    g->linked_heads = heads;
}

void rebuild(EGraph *g) {
    g->now++;
    g->changed_count = g->renewed_count = 0;
    const u32 rule = g->rule;
    g->rule = NONE;
    do {
        close_congruence(g);
        if (g->stop == CONFLICT_FOUND) return;
        link_all(g);
    } while (propagate(g) && g->stop != CONFLICT_FOUND);
    if (g->priced && g->stop != CONFLICT_FOUND) {
        if (g->asked) relax(g);
        else g->stale = 1;
    }
    g->built = progress(g);
    g->rule = rule;
}

void eg_rebuild(EGraph *g) {
    if (setjmp(g->escape)) return;
    rebuild(g);
}
