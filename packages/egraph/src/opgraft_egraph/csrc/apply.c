// Right sides of rules: which one, and its nodes.
//
// Matches of one right side are put off until there are BATCH of them, so that the places in the
// hash-cons that they need can be fetched ahead. The root goes straight into the matched class.
#include "egraph.h"

enum { DEPTH = 24, AHEAD = 8, FEW = 8 };  // slots are copied by so many: most rules have no more

static int is_limit(i64 x) { return x == INT64_MIN || x == INT64_MAX; }

// The number that a code computes. False where an i64 does not do, or a division by 0 would
// raise: then the caller's own function decides. An end that is not limited compares, no more.
static int compute(const EGraph *g, const i64 *code, u32 length, const u32 *slot, i64 *result) {
    i64 stack[DEPTH];
    u32 top = 0;
    for (u32 at = 0; at < length; at++) {
        const i64 op = code[at];
        if (op <= PUSH_NONZERO) {
            if (top == DEPTH) return 0;
            const i64 operand = code[++at];
            if (op == PUSH) {
                stack[top++] = operand;
                continue;
            }
            const Fact *f = known(g, slot[operand]);
            switch (op) {
                case PUSH_LOW: stack[top++] = f->low; break;
                case PUSH_HIGH: stack[top++] = f->high; break;
                case PUSH_VALUE:
                    if (f->number != NUMBER_INT && f->number != NUMBER_BOOL) return 0;
                    stack[top++] = f->value;
                    break;
                case PUSH_MODULUS: stack[top++] = f->modulus; break;
                case PUSH_REST: stack[top++] = f->rest; break;
                case PUSH_CONSTANT: stack[top++] = f->number != NO_NUMBER; break;
                default: stack[top++] = f->nonzero; break;
            }
            continue;
        }
        i64 *a = stack + top - 1;
        if (op == N_NOT) {
            *a = !*a;
            continue;
        }
        if (op == N_NEG || op == N_ABS) {
            if (is_limit(*a)) return 0;
            if (op == N_NEG || *a < 0) *a = -*a;
            continue;
        }
        const i64 b = stack[--top];
        a = stack + top - 1;
        if (op == N_LESS) {
            *a = *a < b;
            continue;
        }
        if (op == N_EQUAL) {
            *a = *a == b;
            continue;
        }
        if (op == N_MAX || op == N_MIN) {
            if ((op == N_MAX) == (b > *a)) *a = b;
            continue;
        }
        if (is_limit(*a) || is_limit(b)) return 0;
        switch (op) {
            case N_ADD: if (!add_fits(*a, b, a)) return 0; break;
            case N_SUB: if (!add_fits(*a, -b, a)) return 0; break;
            case N_MUL: if (!multiply_fits(*a, b, a)) return 0; break;
            case N_DIV: if (!b) return 0; *a = floor_quotient(*a, b); break;
            case N_MOD: if (!b) return 0; *a -= b * floor_quotient(*a, b); break;
            case N_AND: *a &= b; break;
            case N_OR: *a |= b; break;
            case N_XOR: *a ^= b; break;
            case N_SHL:
                if (b < 0 || b > 62 || !multiply_fits(*a, (i64)1 << b, a)) return 0;
                break;
            case N_SHR:
                if (b < 0 || b > 62) return 0;
                *a = shift_right(*a, b);
                break;
            case N_GCD: *a = gcd(*a, b); break;
            default: return 0;
        }
        if (is_limit(*a)) return 0;
    }
    *result = stack[0];
    return top == 1;
}

// ---- which right side

// 1: this path; 0: another one; -1: the caller's function must say.
static int passes(const EGraph *g, const Path *path, const u32 *slot) {
    const Program *p = g->program;
    for (u32 i = 0; i < path->tests; i++) {
        const Test *t = p->tests + path->first_test + i;
        i64 made;
        if (!compute(g, p->code + t->first, t->length, slot, &made)) return -1;
        if ((made != 0) != (int)t->expected) return 0;
    }
    return 1;
}

static const Variant *variant_of(const EGraph *g, const Rule *rule) {
    const Variant *v = g->program->variants + rule->first_variant;
    for (u32 i = 0; i < rule->variants; i++, v++) {
        u32 k = 0;
        while (k < rule->captures && v->dtype[k] == known(g, g->slot[rule->capture[k]])->dtype) k++;
        if (k == rule->captures) return v;
    }
    return NULL;
}

static void hand_over(EGraph *g, const Rule *rule) {
    u32 room = (u32)g->buffer_room;
    g->buffer = eg_grow(g, g->buffer, &room, g->buffer_count + rule->slots + 1u, sizeof(u32));
    g->buffer_room = room;
    g->buffer[g->buffer_count++] = g->rule;
    memcpy(g->buffer + g->buffer_count, g->slot, rule->slots * sizeof(u32));
    g->buffer_count += rule->slots;
}

static inline void put_off(EGraph *g, const Rule *rule, const Path *path) {
    if (path != g->batch_path) {
        flush(g);
        g->batch_path = path;
    }
    u32 *to = g->batch[g->batched];
    for (u32 i = 0; i < rule->slots; i += FEW) memcpy(to + i, g->slot + i, FEW * sizeof(u32));
    if (++g->batched == BATCH) flush(g);
}

// The right side of a rule that has but one and asks nothing; or NULL.
const Path *sole_path(const EGraph *g, const Rule *rule) {
    const Variant *v = g->program->variants + rule->first_variant;
    if (g->explain || rule->variants != 1 || rule->captures || v->paths != 1) return NULL;
    const Path *path = g->program->paths + v->first_path;
    return path->tests || path->result < 0 ? NULL : path;
}

// Whether a rule has been found more often than it may be in a round.
static int too_often(EGraph *g) {
    RuleState *state = g->states + g->rule;
    if (++state->seen <= (u64)g->limits.matches << state->bans) return 0;
    // it searches the same again when it is back, with twice the limit
    if (state->bans < 20) state->bans++;
    state->banned = g->round + 1 + (g->limits.ban_rounds << (state->bans - 1));
    g->quit = 1;
    return 1;
}

// Where the rule asks something, or there are proofs.
static void emit_asking(EGraph *g, const Rule *rule) {
    const Variant *variant = variant_of(g, rule);
    if (!variant || !variant->paths) {
        hand_over(g, rule);
        return;
    }
    const Path *path = g->program->paths + variant->first_path;
    int found = !path->tests;
    for (u32 i = 0; i < variant->paths && !found; i++) {
        found = passes(g, path, g->slot);
        if (!found) path++;
    }
    if (found < 0) {
        hand_over(g, rule);
        return;
    }
    if (!found || path->result < 0) return;
    if (g->explain) {
        apply_explained(g, rule, path);
        if (g->limits.nodes && g->live > g->limits.nodes) g->stop = STOP_NODES;
        return;
    }
    put_off(g, rule, path);
}

// A match has been found: it is in g->slot.
static inline void emit(EGraph *g, const Rule *rule) {
    g->found++;
    if (g->limits.matches && too_often(g)) return;
    if (g->sole) put_off(g, rule, g->sole);
    else emit_asking(g, rule);
}

// ---- its nodes

static u32 number_class(EGraph *g, const Instruction *q, const u32 *slot, int *fits) {
    i64 made;
    const DType *d = g->program->dtypes + q->dtype;
    if (!compute(g, g->program->code + q->first, q->length, slot, &made) || d->kind == FLOAT) {
        *fits = 0;
        return NONE;
    }
    if (d->kind == BOOL) return constant_class(g, q->dtype, NUMBER_BOOL, made != 0);
    if (d->kind != INDEX) {
        if (d->bits < 64) {
            u64 x = (u64)made & (((u64)1 << d->bits) - 1);
            if (d->kind == SIGNED && x >> (d->bits - 1)) x -= (u64)1 << d->bits;
            made = (i64)x;
        } else if (d->kind == UNSIGNED && made < 0) {
            *fits = 0;
            return NONE;
        }
    }
    return constant_class(g, q->dtype, NUMBER_INT, made);
}

u32 explained_number(EGraph *g, const Instruction *q, const u32 *slot) {
    int fits = 1;
    const u32 made = number_class(g, q, slot, &fits);
    return fits ? made : NONE;
}

static int instruct(EGraph *g, const Instruction *q, u32 head, u32 *slot, u32 into) {
    int fits = 1;
    switch (q->kind) {
        case MAKE_CONSTANT:
            slot[q->out] = constant_class(g, q->dtype, q->number, q->value);
            break;
        case MAKE_NUMBER: slot[q->out] = number_class(g, q, slot, &fits); break;
        default: {
            u32 kids[KIDS];
            for (u32 i = 0; i < q->arity; i++) kids[i] = slot[q->kid[i]];
            slot[q->out] = g->explain ? term_of(g, head, kids) : insert(g, head, kids, into);
        }
    }
    return fits;
}

// A node to be made: where in the hash-cons it may be, and its children.
typedef struct {
    u32 hash, place, a, b;
} Wanted;

WITHIN Wanted wanted(EGraph *g, const Instruction *q, u32 head, u32 arity, u32 sorted, const u32 *slot) {
    const u32 first = arity ? find(g, slot[q->kid[0]]) : NONE, second = arity > 1 ? find(g, slot[q->kid[1]]) : NONE;
    const u32 swap = sorted && first > second, a = swap ? second : first, b = swap ? first : second;
    const u32 hash = mix(head, a, b);
    return (Wanted){hash, hash & (g->table_room - 1), a, b};
}

// One node for each match of the batch, in the class of slot `into`. First the places in the
// hash-cons are fetched, then the nodes that stand there, then it is done.
WITHIN void make_few(EGraph *g, const Instruction *q, u32 head, u32 count, u32 into, u32 arity, u32 sorted) {
    const u32 out = q->out;
    make_room(g, count);
    Wanted all[BATCH];
    const Slot *table = g->table;
    for (u32 k = 0; k < count; k++) {
        all[k] = wanted(g, q, head, arity, sorted, g->batch[k]);
        FETCH(table + all[k].place);
    }
    const Node *nodes = g->nodes - 1;
    const u32 mask = g->table_room - 1, tag = g->table_tag;
    for (u32 k = 0; k < count; k++) {
        u32 at = all[k].place;
        const u32 hash = all[k].hash;
        while (table[at] && (table[at] ^ hash) & tag) at = (at + 1) & mask;
        all[k].place = at;
        FETCH(nodes + (table[at] & ~tag));
    }
    const u32 plain = plain_fact(g, head);
    const u64 unions = g->unions;
    for (u32 k = 0; k < count && !g->stop; k++) {
        u32 *slot = g->batch[k];
        if (k + AHEAD < count) {
            const u32 id = table[all[k + AHEAD].place] & ~tag;
            if (id) FETCH(g->parent + g->nodes[id - 1].cls);
        }
        // what was canonical may not be any more
        const Wanted w = g->unions == unions ? all[k] : wanted(g, q, head, arity, sorted, slot);
        const u32 swapped = sorted && w.a != find(g, slot[q->kid[0]]) ? SWAPPED : 0;
        g->match = slot;
        slot[out] = insert_small(g, w.hash, w.place, head, w.a, w.b, swapped, into < SLOTS ? slot[into] : NONE, plain);
    }
}

// The same for what heads there are, so that each is compiled by itself.
static void make_small(EGraph *g, const Instruction *q, u32 count, u32 into) {
    const u32 head = head_of_symbol(g, q->symbol);  // heads may move
    const u32 sorted = (u32)g->heads[head].commutative;
    if (q->arity == 2 && sorted) make_few(g, q, head, count, into, 2, 1);
    else if (q->arity == 2) make_few(g, q, head, count, into, 2, 0);
    else if (q->arity == 1) make_few(g, q, head, count, into, 1, 0);
    else make_few(g, q, head, count, into, 0, 0);
}

// Numbers, and nodes of more children. A match whose number does not fit leaves the batch: the
// caller's function makes it.
static u32 make_each(EGraph *g, const Rule *rule, const Instruction *q, u32 count, u32 into) {
    const u32 head = q->kind == MAKE_NODE ? head_of_symbol(g, q->symbol) : NONE;
    u32 kept = 0;
    for (u32 k = 0; k < count; k++) {
        u32 *slot = g->batch[k];
        if (!g->stop) {
            g->match = slot;
            if (!instruct(g, q, head, slot, into < SLOTS ? slot[into] : NONE)) {
                memcpy(g->slot, slot, rule->slots * sizeof(u32));
                hand_over(g, rule);
                continue;
            }
        }
        if (kept != k) memcpy(g->batch[kept], slot, sizeof g->batch[k]);
        kept++;
    }
    return kept;
}

void flush(EGraph *g) {
    u32 count = g->batched;
    g->batched = 0;
    if (!count) return;
    const Rule *rule = g->program->rules + g->rule;
    RuleState *state = g->states + g->rule;
    const Path *path = g->batch_path;
    const Instruction *first = g->program->instructions + path->first_instruction;
    const u64 adds = g->adds, unions = g->unions;
    int rooted = 0;  // whether the results are in their classes already
    for (u32 i = 0; i < path->instructions && !g->stop; i++) {
        const Instruction *q = first + i;
        const u32 into = q->kind == MAKE_NODE && i + 1 == path->instructions && q->out == path->result ? rule->root : SLOTS;
        if (q->kind == MAKE_NODE && q->arity <= INLINE) make_small(g, q, count, into);
        else count = make_each(g, rule, q, count, into);
        rooted = into < SLOTS;
    }
    for (u32 k = 0; k < count && !g->stop && !rooted; k++) {
        g->match = g->batch[k];
        unite(g, g->batch[k][path->result], g->batch[k][rule->root]);
    }
    g->match = NULL;
    state->added += g->adds - adds;
    state->united += g->unions - unions;
    if (g->limits.nodes && g->live > g->limits.nodes && !g->stop) g->stop = STOP_NODES;
}
