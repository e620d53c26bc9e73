// Why two terms are one.
//
// With `explain`, every element of the union-find stands for a term as it was written: a head
// and its children's elements, before any of them was found equal to another. A forest over the
// elements has an edge for each union that made two classes one: a rule, two terms with equal
// children, a value, or the caller's word. The path between two elements is the explanation
// (Nieuwenhuis and Oliveras, "Proof-producing congruence closure", RTA 2005).
#include "egraph.h"

static u32 term_hash(u32 head, const u32 *kids, u32 arity) {
    u32 key = mix(head, arity, 0x9e37);
    for (u32 i = 0; i < arity; i++) key = mix(key, kids[i], i);
    return key;
}

static u32 *term_place(EGraph *g, u32 head, const u32 *kids) {
    const u32 arity = (u32)g->heads[head].arity;
    if (((u64)g->term_table_count + 1) * 2 > g->term_table_room) {
        const u32 *old = g->term_table, old_room = g->term_table_room;
        const u32 room = old_room ? old_room * 2 : 64;
        u32 *made = eg_zeros(room * sizeof(u32));
        if (!made) no_memory(g);
        memset(made, 0xff, room * sizeof(u32));
        for (u32 i = 0; i < old_room; i++) {
            if (old[i] == NONE) continue;
            const Term *t = g->terms + old[i];
            u32 at = term_hash(t->head, g->term_kids + t->first, (u32)g->heads[t->head].arity) & (room - 1);
            while (made[at] != NONE) at = (at + 1) & (room - 1);
            made[at] = old[i];
        }
        eg_release(g->term_table);
        g->term_table = made;
        g->term_table_room = room;
    }
    u32 at = term_hash(head, kids, arity) & (g->term_table_room - 1);
    for (; g->term_table[at] != NONE; at = (at + 1) & (g->term_table_room - 1)) {
        const Term *t = g->terms + g->term_table[at];
        if (t->head == head && (!arity || !memcmp(g->term_kids + t->first, kids, arity * sizeof(u32)))) break;
    }
    return g->term_table + at;
}

// Notes what a new element stands for.
void term_made(EGraph *g, u32 term, u32 head, const u32 *kids) {
    const u32 arity = (u32)g->heads[head].arity;
    ROOM(g, terms, term_room, (u64)term + 1);
    ROOM(g, term_kids, term_kid_room, (u64)g->term_kid_count + arity);
    if (arity) memcpy(g->term_kids + g->term_kid_count, kids, arity * sizeof(u32));
    g->terms[term] = (Term){head, g->term_kid_count, NONE, 0, 0};
    g->term_kid_count += arity;
}

// The element of a term, written with elements as children.
u32 term_of(EGraph *g, u32 head, const u32 *kids) {
    static const u32 none[1];
    if (!kids) kids = none;
    u32 *place = term_place(g, head, kids);
    if (*place != NONE) return *place;
    const u32 before = g->node_count;
    const u32 cls = insert(g, head, kids, NONE);
    u32 term = cls;
    if (g->node_count == before) {
        // a node that was there already, perhaps written with other children
        const u32 arity = (u32)g->heads[head].arity;
        u32 own[KIDS], *canonical = own, hash;
        u32 *wide = NULL;
        if (arity > KIDS) {
            canonical = wide = malloc(arity * sizeof(u32));
            if (!wide) no_memory(g);
        }
        for (u32 i = 0; i < arity; i++) canonical[i] = find(g, kids[i]);
        order_kids(g, head, canonical);
        const u32 id = lookup(g, head, canonical, &hash);
        free(wide);
        term = new_class(g);
        g->classes[term].fact = g->classes[cls].fact;  // for what asks before the next rebuild
        term_made(g, term, head, kids);
        join_terms(g, term, g->node_term[id], BY_CONGRUENCE, 0);
        g->parent[term] = cls;
    } else {
        ROOM(g, node_term, node_term_room, g->node_count);
        g->node_term[before] = term;
        term_made(g, term, head, kids);
    }
    place = term_place(g, head, kids);
    *place = term;
    g->term_table_count++;
    return term;
}

// An edge of the forest; a and b are in different trees.
void join_terms(EGraph *g, u32 a, u32 b, u32 kind, u32 data) {
    u32 at = a, parent = b, edge_kind = kind, edge_data = data;
    // turns the path from a to its root round
    while (at != NONE) {
        Term *t = g->terms + at;
        const u32 next = t->parent, next_kind = t->kind, next_data = t->data;
        t->parent = parent;
        // the lowest bit says whether the edge now leads against the direction of the union
        t->kind = edge_kind;
        t->data = edge_data;
        parent = at;
        at = next;
        edge_kind = next_kind ^ 0x100;
        edge_data = next_data;
    }
}

// A match, with terms of both sides.
void apply_explained(EGraph *g, const Rule *rule, const Path *path) {
    const Program *p = g->program;
    RuleState *state = g->states + g->rule;
    u32 slot[SLOTS];
    memcpy(slot, g->slot, sizeof slot);
    const Atom *atoms = p->atoms + rule->first_atom;
    u32 nodes = 0;  // slots of classes of which the pattern has a node
    for (u32 i = 0; i < rule->atoms; i++) nodes |= 1u << atoms[i].out;
    for (u32 i = 0; i < rule->atoms; i++) {
        for (u32 k = 0; k < atoms[i].arity; k++) {
            // a constant stands for its class, so that the rule's function sees it
            const u32 at = atoms[i].kid[k];
            const Fact f = *known(g, slot[at]);
            if (nodes >> at & 1 || !f.number || f.number == ELSEWHERE) continue;
            slot[at] = constant_class(g, f.dtype, f.number, f.value);
        }
    }
    for (u32 i = 0; i < rule->atoms; i++) {
        const Atom *atom = p->atoms + rule->first_atom + i;
        u32 kids[KIDS];
        for (u32 k = 0; k < atom->arity; k++) kids[k] = slot[atom->kid[k]];
        const u32 head = g->nodes[slot[atom->row]].head;
        if ((u32)g->heads[head].arity != atom->arity) return;
        if (atom->arity == 2 && !g->heads[head].commutative &&
            g->slot[atom->kid[0]] != g->nodes[slot[atom->row]].kid[0]) {
            // it was matched the other way round
            const u32 first = kids[0];
            kids[0] = kids[1];
            kids[1] = first;
        }
        slot[atom->out] = term_of(g, head, kids);
    }
    const u64 adds = g->adds;
    for (u32 i = 0; i < path->instructions; i++) {
        const Instruction *q = p->instructions + path->first_instruction + i;
        if (q->kind == MAKE_CONSTANT) {
            slot[q->out] = constant_class(g, q->dtype, q->number, q->value);
        } else if (q->kind == MAKE_NUMBER) {
            u32 made = explained_number(g, q, slot);
            if (made == NONE) return;
            slot[q->out] = made;
        } else {
            u32 kids[KIDS];
            const u32 head = head_of_symbol(g, q->symbol);
            for (u32 k = 0; k < q->arity; k++) kids[k] = slot[q->kid[k]];
            slot[q->out] = term_of(g, head, kids);
        }
    }
    state->added += g->adds - adds;
    const u32 left = slot[rule->root], right = slot[path->result];
    g->match = g->slot;
    const int united = unite(g, left, right);
    g->match = NULL;
    if (!united) return;
    join_terms(g, left, right, BY_RULE, g->rule);
    state->united++;
}

// A term as [head, parent in the forest, kind, data, arity, children...].
u32 eg_term(const EGraph *g, u32 term, u32 *out, u32 room) {
    const Term *t = g->terms + term;
    const u32 arity = (u32)g->heads[t->head].arity, needed = 5 + arity;
    if (needed > room) return needed;
    out[0] = t->head;
    out[1] = t->parent;
    out[2] = t->kind;
    out[3] = t->data;
    out[4] = arity;
    memcpy(out + 5, g->term_kids + t->first, arity * sizeof(u32));
    return needed;
}
