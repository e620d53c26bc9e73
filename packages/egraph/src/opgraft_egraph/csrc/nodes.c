// Heads, nodes and the hash-cons.
#include "egraph.h"
#ifdef __linux__
#include <sys/mman.h>
#endif

void *eg_grow(EGraph *g, void *array, u32 *room, u64 wanted, size_t item) {
    u64 size = *room ? *room : 16;
    while (size < wanted) size += size >> 1;
    void *made = size < NONE ? realloc(array, size * item) : NULL;
    if (!made) {
        g->failed = 1;
        g->stop = OUT_OF_MEMORY;
        longjmp(g->escape, 1);
    }
    *room = (u32)size;
    return made;
}

// ---- heads

static u32 new_head(EGraph *g, const Head *head, const u64 *selects) {
    const u32 words = g->program->selector_words;
    if (g->head_count == g->head_room) {
        u32 room = g->head_room;
        g->selects = eg_grow(g, g->selects, &room, (u64)g->head_count + 1, words * sizeof(u64));
        room = g->head_room;
        g->heads = eg_grow(g, g->heads, &room, (u64)g->head_count + 1, sizeof(Head));
        g->head_room = room;
    }
    g->heads[g->head_count] = *head;
    memcpy(g->selects + (u64)g->head_count * words, selects, words * sizeof(u64));
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
        u32 *made = malloc(room * sizeof(u32));
        if (!made) {
            g->failed = 1;
            g->stop = OUT_OF_MEMORY;
            longjmp(g->escape, 1);
        }
        memset(made, 0xff, room * sizeof(u32));
        for (u32 i = 0; i < old_room; i++) {
            if (old[i] == NONE) continue;
            const Head *h = g->heads + old[i];
            u32 at = constant_hash((u32)h->dtype, (u32)h->number, h->value) & (room - 1);
            while (made[at] != NONE) at = (at + 1) & (room - 1);
            made[at] = old[i];
        }
        free(g->constants);
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

static void place(EGraph *g, u32 hash, u32 id) {
    const Node *n = g->nodes + id;
    const u32 arity = (u32)g->heads[n->head].arity, *kids = kids_of(g, n);
    const u32 mask = g->table_room - 1;
    u32 at = hash & mask;
    while (g->table[at].id != NONE) at = (at + 1) & mask;
    g->table[at] = (Entry){n->head, arity ? kids[0] : NONE, key_second(kids, arity), n->cls, id};
    g->table_count++;
}

// Memory for the table: it is read at random, so large pages help much where there are some.
static Entry *table_memory(u64 room) {
    const size_t size = room * sizeof(Entry);
#if defined(__linux__) && defined(MADV_HUGEPAGE)
    const size_t page = (size_t)2 << 20;
    void *made;
    if (size >= page) {
        if (posix_memalign(&made, page, size)) return NULL;
        madvise(made, size, MADV_HUGEPAGE);
        return made;
    }
#endif
    return malloc(size);
}

static void grow_table(EGraph *g) {
    u32 room = g->table_room ? g->table_room : 64;
    while ((u64)g->live * 2 + 2 > room) room *= 2;
    Entry *made = table_memory(room);
    if (!made) {
        g->failed = 1;
        g->stop = OUT_OF_MEMORY;
        longjmp(g->escape, 1);
    }
    memset(made, 0xff, room * sizeof(Entry));
    free(g->table);
    g->table = made;
    g->table_room = room;
    g->table_count = 0;
    u32 waiting[BATCH], hashes[BATCH], count = 0;
    for (u32 i = 0; i < g->node_count; i++) {
        const Node *n = g->nodes + i;
        if (n->flags & DEAD) continue;
        const u32 arity = (u32)g->heads[n->head].arity, *kids = kids_of(g, n);
        hashes[count] = mix(n->head, arity ? kids[0] : NONE, key_second(kids, arity));
        FETCH(made + (hashes[count] & (room - 1)));
        waiting[count++] = i;
        if (count < BATCH) continue;
        for (u32 k = 0; k < count; k++) place(g, hashes[k], waiting[k]);
        count = 0;
    }
    for (u32 k = 0; k < count; k++) place(g, hashes[k], waiting[k]);
}

// Stale keys stay in the table: they hold ids that are no longer canonical, so nobody asks for
// them. They go when it grows, which puts all live nodes in, this one too.
void enter(EGraph *g, u32 hash, u32 id) {
    if ((u64)(g->table_count + 1) * 10 > (u64)g->table_room * 6) grow_table(g);
    else place(g, hash, id);
}

Entry *lookup(EGraph *g, u32 head, const u32 *kids, u32 *hash) {
    const u32 arity = (u32)g->heads[head].arity;
    const u32 a = arity ? kids[0] : NONE, b = key_second(kids, arity);
    const u32 mask = g->table_room - 1;
    *hash = mix(head, a, b);
    if (!g->table_room) return NULL;
    for (u32 at = *hash & mask;; at = (at + 1) & mask) {
        Entry *e = g->table + at;
        if (e->id == NONE) return NULL;
        if (e->head != head || e->a != a || e->b != b) continue;
        if (arity <= 2) return e;
        if (!memcmp(kids_of(g, g->nodes + e->id), kids, arity * sizeof(u32))) return e;
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

static u32 new_node(EGraph *g, u32 head, const u32 *kids, u32 arity, u32 cls, u32 flags, u32 hash) {
    ROOM(g, nodes, node_room, (u64)g->node_count + 1);
    const u32 id = g->node_count;
    Node *n = g->nodes + id;
    *n = (Node){head, cls, g->now + 1, flags, {NONE, NONE, NONE, NONE}};
    if (arity > KIDS) {
        ROOM(g, wide, wide_room, (u64)g->wide_count + arity);
        n->kid[0] = g->wide_count;
        memcpy(g->wide + g->wide_count, kids, arity * sizeof(u32));
        g->wide_count += arity;
    } else {
        memcpy(n->kid, kids, arity * sizeof(u32));
    }
    g->node_count++;
    g->live++;
    g->adds++;
    for (u32 i = 0; i < arity; i++) g->classes[kids[i]].weight++;
    g->classes[cls].weight++;
    enter(g, hash, id);
    return id;
}

// The same for at most two children that are canonical and in order: what nearly all of the time
// goes into.
u32 insert_small(EGraph *g, u32 head, u32 arity, u32 a, u32 b, u32 swapped, u32 into) {
    const u32 mask = g->table_room - 1, hash = mix(head, a, b);
    if (g->table_room) {
        for (u32 at = hash & mask;; at = (at + 1) & mask) {
            const Entry *e = g->table + at;
            if (e->id == NONE) break;
            if (e->head != head || e->a != a || e->b != b) continue;
            const u32 cls = find(g, e->cls);
            if (into == NONE) return cls;
            unite(g, cls, into);
            return find(g, cls);
        }
    }
    const u32 kids[2] = {a, b};
    const Head *h = g->heads + head;
    const u32 cls = into == NONE ? new_class(g) : find(g, into);
    g->classes[cls].blame = g->rule;
    if (h->meaning == OPAQUE && (u32)h->dtype < g->plain_count && g->plain[h->dtype] != NONE &&
        (into == NONE || known(g, cls)->dtype == h->dtype)) {
        // nothing is known of its values, and nothing new of the class
        if (into == NONE) g->classes[cls].fact = g->plain[h->dtype];
        new_node(g, head, kids, arity, cls, swapped, hash);
        return cls;
    }
    const Fact fact = fact_of(g, head, kids);
    if (into == NONE) know(g, cls, &fact);
    new_node(g, head, kids, arity, cls, swapped, hash);
    if (into != NONE) refine(g, cls, &fact);
    else if (fact.number) touch(g, cls);  // so that it is joined with the constant
    return cls;
}

// The class of a node, which is made if there is none; `into`: the class that it must be in.
u32 insert(EGraph *g, u32 head, const u32 *kids, u32 into) {
    const u32 arity = (u32)g->heads[head].arity;
    u32 own[KIDS] = {NONE, NONE, NONE, NONE}, *canonical = own, hash;
    if (arity <= 2) {
        for (u32 i = 0; i < arity; i++) own[i] = find(g, kids[i]);
        const u32 turned = order_kids(g, head, own);
        return insert_small(g, head, arity, own[0], own[1], turned, into);
    }
    if (arity > KIDS) {
        // the node's own copy, kept if the node turns out to be new
        ROOM(g, wide, wide_room, (u64)g->wide_count + 2 * (u64)arity);
        canonical = g->wide + g->wide_count + arity;
    }
    for (u32 i = 0; i < arity; i++) canonical[i] = find(g, kids[i]);
    const u32 swapped = order_kids(g, head, canonical);
    const Entry *found = lookup(g, head, canonical, &hash);
    if (found) {
        const u32 cls = find(g, found->cls);
        if (into != NONE) unite(g, cls, into);
        return into == NONE ? cls : find(g, cls);
    }
    const Fact fact = fact_of(g, head, canonical);
    u32 cls;
    if (into == NONE) {
        cls = new_class(g);
        know(g, cls, &fact);
        if (arity > KIDS) canonical = g->wide + g->wide_count + arity;
        new_node(g, head, canonical, arity, cls, swapped, hash);
        if (fact.number) touch(g, cls);  // so that it is joined with the constant
    } else {
        cls = find(g, into);
        g->classes[cls].blame = g->rule;
        new_node(g, head, canonical, arity, cls, swapped, hash);
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
u32 eg_node(const EGraph *g, u32 id, u32 *out, u32 room) {
    const Node *n = g->nodes + id;
    const u32 arity = (u32)g->heads[n->head].arity, *kids = kids_of(g, n);
    const u32 needed = 4 + arity;
    if (needed > room) return needed;
    out[0] = n->head;
    out[1] = n->cls;
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
