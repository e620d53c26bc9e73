// The e-graph of opgraft_egraph: its data, and which file does what with it.
//
//   memory.c     arrays that grow
//   nodes.c      heads, nodes, the hash-cons: one node for one head and the same child classes
//   unionfind.c  which classes are one, and what it costs to say so
//   rebuild.c    congruence closure, and the arrays that a search reads
//   facts.c      what is known of the values of a node: constant, interval, remainder
//   knowledge.c  what is known of a class, carried from children to parents
//   fold.c       operations on constants, exactly as opgraft.ir.evaluate has them
//   match.c      compiled patterns against classes, semi-naively
//   apply.c      right sides of rules
//   schedule.c   rounds, limits, backoff
//   extract.c    the cheapest term of every class; choices that pay for shared terms once
//   bound.c      how cheap terms can be at best
//   proof.c      why two terms are one
//
// The engine knows no Python and no operation but those in `enum Meaning`. A head stands for
// (operation, dtype, argument); a leaf is a head without children. All state is in `EGraph`;
// `Program` (rules, dtypes, symbols) is shared, belongs to the caller and is never written.
#ifndef OPGRAFT_EGRAPH_H
#define OPGRAFT_EGRAPH_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE  // madvise, clock_gettime
#endif
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "arithmetic.h"
#include "interface.h"

#define NONE 0xffffffffu

// Has a place in memory fetched that will be needed soon.
#ifdef __GNUC__
#define FETCH(place) __builtin_prefetch(place)
#define WITHIN static inline __attribute__((always_inline))  // compiled for what is known at each call
#else
#define FETCH(place) ((void)(place))
#define WITHIN static inline
#endif

enum { DEAD = 1, SWAPPED = 2, WIDE = 4, INLINE = 2, FARTHER = 7 };
enum { MOST_HEADS = 1 << 28 };

// 16 bytes, so that four are fetched at once.
typedef struct {
    u32 head : 29, flags : 3;  // WIDE: of more than two children
    u32 cls;
    u32 kid[INLINE];  // of a node with more children: kid[0] is where they are in `wide`
} Node;

// A place in the hash-cons: one more than the node's id, and in the bits above (`table_tag`) as much
// of its hash, so that nearly all others are told apart without their nodes. 0: nobody is here.
typedef u32 Slot;

// Where the list of a class begins, and which selectors accept any of its nodes (their numbers
// modulo 32, as bits).
typedef struct {
    u32 first, mask;
} Span;

// A node as its class lists it. Fresh: it changed in the last rebuild.
typedef struct {
    u32 head : 28, fresh : 1, id, a, b;
} Row;

// A node as its child lists it; `other` is the other one of two children.
typedef struct {
    u32 head : 28, position : 3, fresh : 1, id, cls, other;
} Use;

// A node that changed in the last rebuild, as its head lists it.
typedef struct {
    u32 id, cls, a, b;
} Change;

typedef struct {
    u32 id, next;
} Link;

typedef struct {
    u32 since;        // searched up to this stamp
    u32 banned;       // sits out until this round
    u32 bans;
    u32 seen;         // matches in this round
    u64 matches, added, united;
    double seconds;
} RuleState;

typedef struct {
    u32 fact;   // in `facts`
    u32 blame;  // the rule that it last grew by, or NONE
} Class;

typedef struct {
    double cost;
    u32 height, node;
} Best;

typedef struct {
    u32 head, first, parent, kind, data;  // kids from `first`; a place in the proof forest
} Term;

struct EGraph {
    const Program *program;
    u32 words;         // of the selectors' bits
    jmp_buf escape;

    Node *nodes;
    u32 *stamp;        // the rebuild in which a node changed last; of a dead one, what it equals
    u32 node_count, node_room, live;
    u32 *wide;
    u32 wide_count, wide_room;
    Slot *table;
    u32 table_room, table_count, table_tag;

    Head *heads;
    u64 *selects;
    u32 *masks;        // the selectors of a head, modulo 32
    u32 head_count, head_room;
    u32 *symbols;      // head of a symbol of the program, or NONE
    u32 symbol_count;
    const double *prices;  // of symbols; the caller's
    u32 price_count;
    u32 *constants;    // open-addressed: head of a constant, by dtype and value
    u32 constant_count, constant_room;

    u32 *parent;       // the union-find
    Class *classes;    // its elements
    Fact *facts;
    u32 fact_count, fact_room;
    u32 *plain;        // of a dtype: the fact of classes of which nothing else is known
    u32 plain_count, plain_room;
    u32 *fact_stamp;   // the rebuild in which the facts of a class changed last; of the first so many
    u32 fact_stamps, fact_stamp_room;
    u32 *term_stamp;
    Best *best;
    u32 class_count, class_room;

    u32 *losers;       // unions since the last rebuild
    u32 loser_count, loser_room;
    u32 *lost;         // bits of classes that are no longer their own, while rebuilding
    u32 lost_room;
    u32 *touched;      // classes whose facts changed since the last propagation
    u32 touched_count, touched_room;
    u32 *changed;      // classes whose facts changed since the last round
    u32 changed_count, changed_room;
    u32 *renewed;      // classes whose facts or cheapest term changed since the last round
    u32 renewed_count, renewed_room;

    // What a search reads; made by rebuild.
    u32 linked;        // nodes and classes that the arrays cover
    u32 linked_classes, linked_heads;
    u32 unlinked;      // whether they are older than the last rebuild
    Row *rows;
    Use *uses;
    Span *row_span, *use_span;
    Change *delta;
    u32 *delta_first;
    u32 row_room, use_room, row_span_room, use_span_room, delta_room, delta_first_room;
    u32 *extra;        // further uses of a class while rebuilding: first of `links`
    u32 extra_room;
    Link *links;
    u32 link_count, link_room;

    u32 now;           // stamp of the last rebuild
    u32 round;
    u32 slot[SLOTS];
    struct {
        u32 count;
        struct {
            u32 slot, bit, uses;
        } wanted[STEPS];
    } ahead[STEPS];    // what a step of the plan must bind for the later ones to have a chance
    const Path *sole;  // the right side of the rule being searched, if there is but one
    u64 found;         // matches of it in this search
    u32 quit;          // whether that rule has been found too often in this round
    const u32 *match;  // slots of the match that is being applied, for errors
    u32 batch[BATCH][SLOTS];
    u32 batched;
    const Path *batch_path;
    u32 rule;          // being searched or applied; NONE: the caller's doing
    RuleState *states;
    u32 state_count;
    u32 *buffer;       // matches for the caller
    u64 buffer_count, buffer_room;

    Limits limits;
    double deadline;
    u32 tried;
    u32 stop;
    u32 failed;        // out of memory: nothing but freeing is allowed
    u64 adds, unions, news;
    u64 mark, built;   // `progress` before the last search, after the last rebuild
    u64 rekeyed, matches;
    Conflict conflict;

    u32 priced;        // whether there are cheapest terms
    u32 asked;         // whether they are kept up to date from round to round
    u32 stale;         // whether they are older than the last rebuild
    u32 *queue;
    u32 queue_count, queue_room;
    u8 *queued;
    u32 queued_room;

    u32 explain;
    Term *terms;       // one for each element of the union-find
    u32 term_room;
    u32 *term_kids;
    u32 term_kid_count, term_kid_room;
    u32 *term_table;
    u32 term_table_room, term_table_count;
    u32 *node_term;
    u32 node_term_room;
};

// memory.c
// Room for at least `wanted` items in a growing array; does not return when memory is out.
void *eg_grow(EGraph *g, void *array, u32 *room, u64 wanted, size_t item);
#define ROOM(g, array, room, wanted) \
    do { \
        if ((u64)(wanted) > (g)->room) \
            (g)->array = eg_grow((g), (g)->array, &(g)->room, (wanted), sizeof *(g)->array); \
    } while (0)

static inline u32 find(EGraph *g, u32 x) {
    u32 *parent = g->parent;
    while (parent[x] != x) x = parent[x] = parent[parent[x]];
    return x;
}

static inline const Fact *known(const EGraph *g, u32 cls) { return g->facts + g->classes[cls].fact; }

static inline u32 mix(u32 head, u32 a, u32 b) {
    u64 x = (u64)head * 0x9E3779B97F4A7C15ull ^ ((u64)b << 32 | a) * 0xD6E8FEB86659FD93ull;
    x ^= x >> 32;
    x *= 0xD6E8FEB86659FD93ull;
    return (u32)(x ^ x >> 29);
}

static inline const u32 *kids_of(const EGraph *g, const Node *n) {
    return n->flags & WIDE ? g->wide + n->kid[0] : n->kid;
}

static inline int selected(const EGraph *g, u32 head, u32 selector) {
    const u32 words = g->words;
    return (int)(g->selects[(u64)head * words + (selector >> 6)] >> (selector & 63) & 1);
}

static inline u64 progress(const EGraph *g) { return g->adds + g->unions + g->news; }

void *grow_beside(EGraph *g, void *array, u32 room, u32 *least, size_t item);
void *eg_zeros(size_t bytes);
void eg_release(void *array);
void no_memory(EGraph *g);

// nodes.c
u32 head_of_symbol(EGraph *g, u32 symbol);
u32 constant_class(EGraph *g, u32 dtype, u32 kind, i64 value);
u32 insert(EGraph *g, u32 head, const u32 *kids, u32 into);
u32 lookup(const EGraph *g, u32 head, const u32 *kids, u32 *hash);
void enter(EGraph *g, u32 hash, u32 id);
u32 order_kids(const EGraph *g, u32 head, u32 *kids);
u32 key_second(const u32 *kids, u32 arity);

// unionfind.c
u32 new_class(EGraph *g);
int unite(EGraph *g, u32 a, u32 b);
void know(EGraph *g, u32 cls, const Fact *fact);
void keep_terms(EGraph *g);

// rebuild.c
void rebuild(EGraph *g, int linked);
void ensure_linked(EGraph *g);
int eg_linked(EGraph *g);

// facts.c
Fact anything(const DType *d, u32 dtype);
Fact fact_of(EGraph *g, u32 head, const u32 *kids);
int refine(EGraph *g, u32 cls, const Fact *by);
int refine_as(EGraph *g, u32 cls, const Fact *by, u32 other);
void settle(const DType *d, Fact *f);
Fact constant_fact(const Program *p, u32 dtype, u32 kind, i64 value);

// knowledge.c
int meet(Fact *a, const Fact *b, u32 *why);
int propagate(EGraph *g);
void touch(EGraph *g, u32 cls);

// fold.c
int fold(const Program *p, const Head *head, const Fact *const *kids, Fact *made);

// match.c
void search(EGraph *g, u32 rule);
double clock_now(void);

// apply.c
void flush(EGraph *g);
const Path *sole_path(const EGraph *g, const Rule *rule);
u32 explained_number(EGraph *g, const Instruction *q, const u32 *slot);

// extract.c
void relax(EGraph *g);
void renew(EGraph *g, u32 cls);

// proof.c
void term_made(EGraph *g, u32 term, u32 head, const u32 *kids);
u32 term_of(EGraph *g, u32 head, const u32 *kids);
void join_terms(EGraph *g, u32 a, u32 b, u32 kind, u32 data);
void apply_explained(EGraph *g, const Rule *rule, const Path *path);

#endif
