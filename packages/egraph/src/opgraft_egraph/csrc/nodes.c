// Heads, nodes and the hash-cons.
#include "egraph.h"
// ---- heads

static u32 new_head(EGraph *g, const Head *head, const u64 *selects) {
    const u32 words = g->program->selector_words;
    if (g->head_count == MOST_HEADS) no_memory(g);
    if (g->head_count == g->head_room) {
        u32 room = NONE;
        g->masks = grow_beside(g, g->masks, g->head_room, &room, sizeof(u32));
        g->selects = grow_beside(g, g->selects, g->head_room, &room, words * sizeof(u64));
        g->heads = grow_beside(g, g->heads, g->head_room, &room, sizeof(Head));
        g->head_room = room;
    }
    g->heads[g->head_count] = *head;
    memcpy(g->selects + (u64)g->head_count * words, selects, words * sizeof(u64));
    u32 mask = 0;
    for (u32 i = 0; i < words; i++) mask |= (u32)selects[i] | (u32)(selects[i] >> 32);
    g->masks[g->head_count] = mask;
    return g->head_count++;
}

static u32 constant_hash(u32 dtype, u32 kind, i64 value) {
    return mix(dtype * 8 + kind, (u32)value, (u32)((u64)value >> 32));
}

// The place of a constant's head in the table of constants; NONE there if it has none yet.
static u32 *constant_place(EGraph *g, u32 dtype, u32 kind, i64 value) {
    if ((g->constant_count + 1) * 2 > g->constant_room) {
        const u32 old_room = g->constant_room, *old = g->constants;
        u32 room = old_room ? old_room * 2 : 32;
        u32 *made = eg_zeros(room * sizeof(u32));
        if (!made) no_memory(g);
        memset(made, 0xff, room * sizeof(u32));
        for (u32 i = 0; i < old_room; i++) {
            if (old[i] == NONE) continue;
            const Head *h = g->heads + old[i];
            u32 at = constant_hash((u32)h->dtype, (u32)h->number, h->value) & (room - 1);
            while (made[at] != NONE) at = (at + 1) & (room - 1);
            made[at] = old[i];
        }
        eg_release(g->constants);
        g->constants = made;
        g->constant_room = room;
    }
    u32 at = constant_hash(dtype, kind, value) & (g->constant_room - 1);
    for (; g->constants[at] != NONE; at = (at + 1) & (g->constant_room - 1)) {
        const Head *h = g->heads + g->constants[at];
        if (h->dtype == (i32)dtype && h->number == (i32)kind && h->value == value) break;
    }
    return g->constants + at;
}

static u32 constant_head(EGraph *g, u32 dtype, u32 kind, i64 value) {
    u32 *place = constant_place(g, dtype, kind, value);
    if (*place == NONE) {
        static const u64 nothing[64];
        const Head head = {CONST, (i32)dtype, 0, 0, -1, (i32)kind, value, 0, 0, 0.0};
        u32 made = new_head(g, &head, nothing);
        *place = made;
        g->constant_count++;
    }
    return *place;
}

u32 eg_head(EGraph *g, const Head *head, const u64 *selects) {
    if (setjmp(g->escape)) return NONE;
    return new_head(g, head, selects);
}

static void know_symbols(EGraph *g) {
    const Program *p = g->program;
    const u32 old = g->symbol_count;
    u32 room = old;
    if (old >= p->symbol_count) return;
    g->symbols = eg_grow(g, g->symbols, &room, p->symbol_count, sizeof(u32));
    memset(g->symbols + old, 0xff, (room - old) * sizeof(u32));
    g->symbol_count = room;
}

u32 eg_symbol_head(EGraph *g, u32 symbol) {
    if (setjmp(g->escape)) return NONE;
    return head_of_symbol(g, symbol);
}

// The prices of symbols, which the caller keeps.
void eg_prices(EGraph *g, const double *prices, u32 count) {
    g->prices = prices;
    g->price_count = count;
}

// Says that a symbol, which is new to the program, has a head here already.
int eg_bind(EGraph *g, u32 symbol, u32 head) {
    if (setjmp(g->escape)) return 0;
    know_symbols(g);
    g->symbols[symbol] = head;
    return 1;
}

u32 eg_heads(const EGraph *g) { return g->head_count; }

const Head *eg_head_at(const EGraph *g, u32 head) { return g->heads + head; }

u32 head_of_symbol(EGraph *g, u32 symbol) {
    const Program *p = g->program;
    know_symbols(g);
    if (g->symbols[symbol] == NONE) {
        Head head = p->symbols[symbol];
        head.symbol = (i32)symbol;
        if (symbol < g->price_count) head.cost = g->prices[symbol];
        u32 made = new_head(g, &head, p->symbol_selects + (u64)symbol * p->selector_words);
        g->symbols[symbol] = made;
    }
    return g->symbols[symbol];
}

// ---- the hash-cons

u32 key_second(const u32 *kids, u32 arity) {
    if (arity <= 2) return arity == 2 ? kids[1] : NONE;
    u32 key = kids[1];
    for (u32 i = 2; i < arity; i++) key = mix(i, key, kids[i]);
    return key;
}

static inline Slot slot_of(const EGraph *g, u32 hash, u32 id) { return (hash & g->table_tag) | (id + 1); }

static inline void place(EGraph *g, u32 hash, u32 id) {
    const u32 mask = g->table_room - 1;
    u32 at = hash & mask;
    while (g->table[at]) at = (at + 1) & mask;
    g->table[at] = slot_of(g, hash, id);
    g->table_count++;
}

static u32 hash_of(const EGraph *g, const Node *n) {
    if (!(n->flags & WIDE)) return mix(n->head, n->kid[0], n->kid[1]);
    const u32 *kids = kids_of(g, n);
    return mix(n->head, kids[0], key_second(kids, (u32)g->heads[n->head].arity));
}

static void grow_table(EGraph *g, u32 more) {
    u32 room = g->table_room ? g->table_room : 64;
    while (((u64)g->live + more) * 2 > room) room *= 2;
    Slot *made = eg_zeros(room * sizeof(Slot));
    if (!made) no_memory(g);
    eg_release(g->table);
    g->table = made;
    g->table_room = room;
    g->table_count = 0;
    // ids that may come before it grows again have room below the tags
    u64 ids = 2;
    while (ids <= (u64)g->node_count + room) ids *= 2;
    g->table_tag = ids > NONE ? 0 : ~(u32)(ids - 1);
    u32 hashes[BATCH];
    for (u32 first = 0; first < g->node_count; first += BATCH) {
        const u32 end = g->node_count - first < BATCH ? g->node_count : first + BATCH;
        for (u32 i = first; i < end; i++) {
            hashes[i - first] = hash_of(g, g->nodes + i);
            FETCH(made + (hashes[i - first] & (room - 1)));
        }
        for (u32 i = first; i < end; i++)
            if (!(g->nodes[i].flags & DEAD)) place(g, hashes[i - first], i);
    }
}

// Room in the hash-cons for so many more.
static inline void make_room(EGraph *g, u32 more) {
    while (((u64)g->table_count + more) * 10 > (u64)g->table_room * 7) grow_table(g, more);
}

// Stale keys stay in the table: their nodes have other children by now, so nobody finds them. They
// go when there are many.
void enter(EGraph *g, u32 hash, u32 id) {
    make_room(g, 1);
    place(g, hash, id);
}

// From a place on, the first that is empty or may be of a node with this hash.
static inline u32 probe(const EGraph *g, u32 hash, u32 at) {
    const u32 mask = g->table_room - 1, tag = g->table_tag;
    while (g->table[at] && (g->table[at] ^ hash) & tag) at = (at + 1) & mask;
    return at;
}

// The node that a place speaks of.
static inline u32 node_at(const EGraph *g, u32 at) { return (g->table[at] & ~g->table_tag) - 1; }

// The node of a head with at most two children, these, canonical and in order; or NONE, and in
// `place` where it would be. Before `place` it is not.
static inline u32 seek(const EGraph *g, u32 hash, u32 head, u32 a, u32 b, u32 *place) {
    for (u32 at = *place;; at = (at + 1) & (g->table_room - 1)) {
        at = probe(g, hash, at);
        const u32 id = node_at(g, at);
        *place = at;
        if (id == NONE) return NONE;
        const Node *n = g->nodes + id;
        if (n->head == head && n->kid[0] == a && n->kid[1] == b && !(n->flags & DEAD)) return id;
    }
}

// The node of a head with these children, which are canonical and in order; or NONE.
u32 lookup(const EGraph *g, u32 head, const u32 *kids, u32 *hash) {
    const u32 arity = (u32)g->heads[head].arity;
    const u32 a = arity ? kids[0] : NONE, b = key_second(kids, arity);
    *hash = mix(head, a, b);
    if (!g->table_room) return NONE;
    const u32 mask = g->table_room - 1;
    u32 at = *hash & mask;
    if (arity <= INLINE) return seek(g, *hash, head, a, b, &at);
    for (;; at = (at + 1) & mask) {
        at = probe(g, *hash, at);
        const u32 id = node_at(g, at);
        if (id == NONE) return NONE;
        const Node *n = g->nodes + id;
        if (n->head == head && !(n->flags & DEAD) && !memcmp(kids_of(g, n), kids, arity * sizeof(u32))) return id;
    }
}

// Puts two children of a commutative head in order; returns SWAPPED if that turned them round.
u32 order_kids(const EGraph *g, u32 head, u32 *kids) {
    if (!g->heads[head].commutative || kids[0] <= kids[1]) return 0;
    const u32 first = kids[0];
    kids[0] = kids[1];
    kids[1] = first;
    return SWAPPED;
}

static inline u32 new_node(EGraph *g, u32 head, u32 a, u32 b, u32 cls, u32 flags) {
    if (g->node_count == g->node_room) {
        u32 room = NONE;
        g->stamp = grow_beside(g, g->stamp, g->node_room, &room, sizeof(u32));
        g->nodes = grow_beside(g, g->nodes, g->node_room, &room, sizeof(Node));
        g->node_room = room;
    }
    const u32 id = g->node_count++;
    g->nodes[id] = (Node){head, flags, cls, {a, b}};
    g->stamp[id] = g->now + 1;
    g->live++;
    g->adds++;
    return id;
}

// The fact of all classes of a head of which nothing else is known, where nothing is known of its
// nodes; else NONE.
static inline u32 plain_fact(const EGraph *g, u32 head) {
    const Head *h = g->heads + head;
    return h->meaning == OPAQUE && (u32)h->dtype < g->plain_count ? g->plain[h->dtype] : NONE;
}

static inline void take_place(EGraph *g, u32 place, u32 hash, u32 id) {
    g->table[place] = slot_of(g, hash, id);
    g->table_count++;
}

// A new node of at most two children, which are canonical and in order, at its place in the
// hash-cons; returns its class.
static u32 insert_new(EGraph *g, u32 place, u32 hash, u32 head, u32 a, u32 b, u32 swapped, u32 into) {
    const u32 kids[INLINE] = {a, b};
    const Fact fact = fact_of(g, head, kids);
    const u32 cls = into == NONE ? new_class(g) : find(g, into);
    g->classes[cls].blame = g->rule;
    if (into == NONE) know(g, cls, &fact);
    take_place(g, place, hash, new_node(g, head, a, b, cls, swapped));
    if (into != NONE) refine(g, cls, &fact);
    else if (fact.number) touch(g, cls);  // so that it is joined with the constant
    return cls;
}

// The same where nothing is known of its values, and nothing new of its class.
static inline u32 insert_plain(EGraph *g, u32 place, u32 hash, u32 head, u32 a, u32 b, u32 swapped, u32 into, u32 plain) {
    u32 cls;
    if (into == NONE) {
        cls = new_class(g);
        g->classes[cls].fact = plain;
    } else {
        cls = find(g, into);
        if (g->classes[cls].fact != plain && known(g, cls)->dtype != g->facts[plain].dtype)
            return insert_new(g, place, hash, head, a, b, swapped, into);
        g->classes[cls].blame = g->rule;
    }
    take_place(g, place, hash, new_node(g, head, a, b, cls, swapped));
    return cls;
}

// Whether there is no room for a node of a rule, by the limit of nodes: then the run stops here, in
// the middle of a right side, which does no harm. (With proofs, at its end.)
static inline int is_full(EGraph *g) {
    if (!g->limits.nodes || g->live < g->limits.nodes || g->rule == NONE || g->explain) return 0;
    if (g->stop == RUNNING) g->stop = STOP_NODES;
    return 1;
}

// The class of such a node, new or not: what nearly all of the time goes into. Before `place` it is
// not in the table, which has room for it. NONE: it would be one too many.
WITHIN u32 insert_small(EGraph *g, u32 hash, u32 place, u32 head, u32 a, u32 b, u32 swapped, u32 into, u32 plain) {
    const u32 found = seek(g, hash, head, a, b, &place);
    if (found == NONE) {
        if (is_full(g)) return NONE;
        if (plain == NONE) return insert_new(g, place, hash, head, a, b, swapped, into);
        return insert_plain(g, place, hash, head, a, b, swapped, into, plain);
    }
    const u32 cls = find(g, g->nodes[found].cls);
    if (into == NONE || cls == find(g, into)) return cls;
    unite(g, cls, into);
    return find(g, cls);
}

static void new_wide_node(EGraph *g, u32 head, const u32 *kids, u32 arity, u32 cls, u32 flags, u32 hash) {
    ROOM(g, wide, wide_room, (u64)g->wide_count + arity);
    const u32 id = new_node(g, head, g->wide_count, NONE, cls, flags | WIDE);
    memmove(g->wide + g->wide_count, kids, arity * sizeof(u32));
    g->wide_count += arity;
    enter(g, hash, id);
}

// The class of a node, which is made if there is none; `into`: the class that it must be in. NONE: it
// would be one too many.
u32 insert(EGraph *g, u32 head, const u32 *kids, u32 into) {
    const u32 arity = (u32)g->heads[head].arity;
    u32 own[KIDS] = {NONE, NONE, NONE, NONE}, *canonical = own, hash;
    make_room(g, 1);
    if (arity <= INLINE) {
        for (u32 i = 0; i < arity; i++) own[i] = find(g, kids[i]);
        const u32 turned = order_kids(g, head, own);
        const u32 key = mix(head, own[0], own[1]);
        return insert_small(g, key, key & (g->table_room - 1), head, own[0], own[1], turned, into, plain_fact(g, head));
    }
    if (arity > KIDS) {
        // behind the place of the node's own copy
        ROOM(g, wide, wide_room, (u64)g->wide_count + 2 * (u64)arity);
        canonical = g->wide + g->wide_count + arity;
    }
    for (u32 i = 0; i < arity; i++) canonical[i] = find(g, kids[i]);
    const u32 swapped = order_kids(g, head, canonical);
    const u32 found = lookup(g, head, canonical, &hash);
    if (found != NONE) {
        const u32 cls = find(g, g->nodes[found].cls);
        if (into != NONE) unite(g, cls, into);
        return into == NONE ? cls : find(g, cls);
    }
    if (is_full(g)) return NONE;
    const Fact fact = fact_of(g, head, canonical);
    u32 cls;
    if (into == NONE) {
        cls = new_class(g);
        know(g, cls, &fact);
        new_wide_node(g, head, canonical, arity, cls, swapped, hash);
        if (fact.number) touch(g, cls);  // so that it is joined with the constant
    } else {
        cls = find(g, into);
        g->classes[cls].blame = g->rule;
        new_wide_node(g, head, canonical, arity, cls, swapped, hash);
        refine(g, cls, &fact);
    }
    return cls;
}

u32 eg_add(EGraph *g, u32 head, const u32 *kids) {
    if (setjmp(g->escape)) return NONE;
    return g->explain ? term_of(g, head, kids) : insert(g, head, kids, NONE);
}

u32 constant_class(EGraph *g, u32 dtype, u32 kind, i64 value) {
    const u32 head = constant_head(g, dtype, kind, value);
    return g->explain ? term_of(g, head, NULL) : insert(g, head, NULL, NONE);
}

u32 eg_constant(EGraph *g, u32 dtype, u32 kind, i64 value) {
    if (setjmp(g->escape)) return NONE;
    return constant_class(g, dtype, kind, value);
}

// A node as [head, class, flags, arity, children...]; returns how many numbers that takes.
u32 eg_node(EGraph *g, u32 id, u32 *out, u32 room) {
    const Node *n = g->nodes + id;
    const u32 arity = (u32)g->heads[n->head].arity, *kids = kids_of(g, n);
    const u32 needed = 4 + arity;
    if (needed > room) return needed;
    out[0] = n->head;
    out[1] = find(g, n->cls);
    out[2] = n->flags;
    out[3] = arity;
    memcpy(out + 4, kids, arity * sizeof(u32));
    return needed;
}

// All live nodes, one after another as [id, head, class, flags, arity, children...], canonical.
u64 eg_dump(EGraph *g, u32 *out, u64 room) {
    u64 at = 0;
    for (u32 id = 0; id < g->node_count; id++) {
        const Node *n = g->nodes + id;
        if (n->flags & DEAD) continue;
        const u32 arity = (u32)g->heads[n->head].arity, *kids = kids_of(g, n);
        if (at + 5 + arity <= room) {
            out[at] = id;
            out[at + 1] = n->head;
            out[at + 2] = find(g, n->cls);
            out[at + 3] = n->flags;
            out[at + 4] = arity;
            for (u32 i = 0; i < arity; i++) out[at + 5 + i] = find(g, kids[i]);
        }
        at += 5 + arity;
    }
    return at;
}
