// Compiled patterns against classes, modulo equality and semi-naively.
//
// A pattern of k nodes has k plans. Each starts at one node that changed since the rule last
// searched, takes the nodes before it (in the pattern) only where they did not change, and joins
// the rest down (class to nodes) or up (child to parents). So every match is found once. Further
// plans start at classes of which more is known than before, for patterns that ask about that.
#include "egraph.h"

static void step(EGraph *g, const Rule *rule, const Plan *plan, u32 k);

static int holds(const EGraph *g, const Guard *guard, u32 cls) {
    const Fact *f = known(g, cls);
    switch (guard->kind) {
        case GUARD_DTYPE: return (int)(g->program->dtypes[f->dtype].sets >> guard->set & 1);
        case GUARD_CONSTANT: return f->number != NO_NUMBER;
        case GUARD_NONZERO: return f->nonzero;
        case GUARD_BOOL: return f->number == NUMBER_BOOL && f->value == guard->number;
        case GUARD_FLOAT: return f->number == NUMBER_FLOAT && f->value == guard->number;
        case GUARD_INT: {
            const DType *d = g->program->dtypes + f->dtype;
            if (f->number == NUMBER_FLOAT) {
                double x;
                memcpy(&x, &f->value, sizeof x);
                // an int is a zero without a sign of its own: it is the positive one
                return x == (double)guard->number && (guard->number || f->value == 0);
            }
            if (!f->number || f->number == ELSEWHERE) return 0;
            if (d->kind == UNSIGNED && guard->number < 0 && d->bits < 63)
                return f->value == guard->number + ((i64)1 << d->bits) &&
                       guard->number >= -((i64)1 << (d->bits - 1));
            return f->value == guard->number;
        }
        default: return 0;
    }
}

static int guarded(const EGraph *g, const Step *s) {
    const Guard *guard = g->program->guards + s->first_guard;
    for (u32 i = 0; i < s->guards; i++)
        if (guard[i].slot != 0xff && !holds(g, guard + i, g->slot[guard[i].slot])) return 0;
    return 1;
}

static int each_guarded(const EGraph *g, const Step *s, const u32 *kids, u32 arity) {
    const Guard *guard = g->program->guards + s->first_guard;
    for (u32 i = 0; i < s->guards; i++) {
        if (guard[i].slot != 0xff) continue;
        for (u32 k = 0; k < arity; k++)
            if (!holds(g, guard + i, kids[k])) return 0;
    }
    return 1;
}

// Whether the later steps of the plan find anything in the classes that this one has bound.
static inline int promising(const EGraph *g, u32 k) {
    for (u32 i = 0; i < g->ahead[k].count; i++) {
        const u32 cls = g->slot[g->ahead[k].wanted[i].slot];
        const Span *span = g->ahead[k].wanted[i].uses ? g->use_span : g->row_span;
        if (!(span[cls].mask & g->ahead[k].wanted[i].bit)) return 0;
    }
    return 1;
}

// One child in its place; whether it may be there.
WITHIN int put(u32 *slot, const Step *s, u32 i, u32 kid) {
    if (s->known >> i & 1) return slot[s->kid[i]] == kid;
    slot[s->kid[i]] = kid;
    return 1;
}

// A node in the place of a step, when its children are in theirs.
WITHIN void go_on(EGraph *g, const Rule *rule, const Plan *plan, u32 k, const Step *s, u32 id, u32 cls) {
    u32 *slot = g->slot;
    if (s->known >> 7) {
        if (slot[s->out] != cls) return;
    } else slot[s->out] = cls;
    const int last = k + 1 == plan->steps;
    if (!last && !promising(g, k)) return;
    slot[s->row] = id;
    if (s->guards && !guarded(g, s)) return;
    if (last) emit(g, rule);
    else step(g, rule, plan, k + 1);
}

// Whether a step may take a node of a head.
static inline int suits(const EGraph *g, const Step *s, u32 head) {
    const u32 arity = (u32)g->heads[head].arity;
    return selected(g, head, s->selector) && (s->each || arity == s->arity || (s->open && arity > s->arity));
}

// A node of two children or fewer, of a head that suits.
WITHIN void consider(EGraph *g, const Rule *rule, const Plan *plan, u32 k, const Step *s, u32 id,
                            u32 head, u32 cls, u32 a, u32 b) {
    if (s->each && s->guards) {
        const u32 kids[INLINE] = {a, b};
        if (!each_guarded(g, s, kids, (u32)g->heads[head].arity)) return;
    }
    const u32 arity = s->arity;
    if ((!arity || put(g->slot, s, 0, a)) && (arity < 2 || put(g->slot, s, 1, b)))
        go_on(g, rule, plan, k, s, id, cls);
    if (s->swap && a != b && !g->stop && put(g->slot, s, 0, b) && put(g->slot, s, 1, a))
        go_on(g, rule, plan, k, s, id, cls);
}

// A node of more.
static void consider_wide(EGraph *g, const Rule *rule, const Plan *plan, u32 k, const Step *s, u32 id) {
    const Node *n = g->nodes + id;
    const u32 arity = (u32)g->heads[n->head].arity, cls = n->cls, *kids = kids_of(g, n);
    if (s->each && s->guards && !each_guarded(g, s, kids, arity)) return;
    u32 own[KIDS] = {NONE, NONE, NONE, NONE}, i = 0;  // the node may move while a match is applied
    for (u32 i = 0; i < s->arity; i++) own[i] = kids[i];
    while (i < s->arity && put(g->slot, s, i, own[i])) i++;
    if (i == s->arity) go_on(g, rule, plan, k, s, id, cls);
    if (s->swap && own[0] != own[1] && !g->stop && put(g->slot, s, 0, own[1]) && put(g->slot, s, 1, own[0]))
        go_on(g, rule, plan, k, s, id, cls);
}

static inline void consider_any(EGraph *g, const Rule *rule, const Plan *plan, u32 k, const Step *s, u32 id,
                                u32 head, u32 cls, u32 a, u32 b) {
    if (g->heads[head].arity > INLINE) consider_wide(g, rule, plan, k, s, id);
    else consider(g, rule, plan, k, s, id, head, cls, a, b);
}

// Whether the search of this rule ends here.
static inline int over(EGraph *g) {
    if ((++g->tried & 1023) == 0 && g->deadline > 0 && clock_now() > g->deadline) g->stop = STOP_SECONDS;
    return (g->stop | g->quit) != 0;
}

// Whether a node that the arrays list changed since the rule last searched.
static inline int is_new(const EGraph *g, u32 id, u32 fresh) {
    const u32 since = g->states[g->rule].since;
    return since + 1 == g->now ? (int)fresh : g->stamp[id] > since;
}

static void from_changed(EGraph *g, const Rule *rule, const Plan *plan, const Step *s) {
    const u32 since = g->states[g->rule].since;
    if (since + 1 < g->now) {  // it missed a round
        for (u32 id = 0; id < g->linked && !over(g); id++) {
            const Node n = g->nodes[id];
            if (n.flags & DEAD || g->stamp[id] <= since || !suits(g, s, n.head)) continue;
            consider_any(g, rule, plan, 0, s, id, n.head, n.cls, n.kid[0], n.kid[1]);
        }
        return;
    }
    const u32 *heads_first = g->delta_first;
    for (u32 h = 0; h < g->linked_heads; h++) {
        const u32 first = heads_first[h], last = heads_first[h + 1];
        if (first == last || !suits(g, s, h)) continue;
        if (g->heads[h].arity > INLINE) {
            for (u32 i = first; i < last && !over(g); i++) consider_wide(g, rule, plan, 0, s, g->delta[i].id);
            continue;
        }
        for (u32 i = first; i < last; i++) {
            if (over(g)) return;
            const Change c = g->delta[i];
            consider(g, rule, plan, 0, s, c.id, h, c.cls, c.a, c.b);
        }
    }
}

static void from_facts(EGraph *g, const Rule *rule, const Plan *plan, const Step *s) {
    const u32 since = g->states[g->rule].since;
    const u32 *stamps = rule->terms ? g->term_stamp : g->fact_stamp;
    const u32 stamped = rule->terms ? g->linked_classes : g->fact_stamps;
    const int missed = since + 1 < g->now;
    const u32 *list = rule->terms ? g->renewed : g->changed;
    const u32 count = missed ? g->linked_classes : rule->terms ? g->renewed_count : g->changed_count;
    for (u32 i = 0; i < count; i++) {
        if (over(g)) return;
        const u32 cls = missed ? i : list[i];
        if (missed && (g->parent[cls] != cls || cls >= stamped || stamps[cls] <= since)) continue;
        g->slot[s->out] = cls;
        if (s->guards && !guarded(g, s)) continue;
        step(g, rule, plan, 1);
    }
}

// The same, remembering the last head that did and the last that did not: a class has few.
WITHIN int is_suited(const EGraph *g, const Step *s, u32 head, u32 *suited, u32 *other) {
    if (head == *suited) return 1;
    const int does = suits(g, s, head);
    *(does ? suited : other) = head;
    return does;
}

// Steps that take children in any order compare them later.
static void from_class(EGraph *g, const Rule *rule, const Plan *plan, u32 k, const Step *step) {
    const Step own = *step, *s = &own;
    const u32 cls = g->slot[s->out];
    if (!(g->row_span[cls].mask >> (s->selector & 31) & 1)) return;
    const u32 fixed = s->swap ? 0 : s->known, a = g->slot[s->kid[0]], b = g->slot[s->kid[1]];
    // (a child that is bound by the other one of the same node is none that is known here)
    const u32 check_a = fixed & 1 && s->arity, check_b = fixed & 2 && s->arity > 1 && s->kid[0] != s->kid[1];
    u32 suited = NONE, other = NONE;
    for (u32 i = g->row_span[cls].first, last = g->row_span[cls + 1].first; i < last; i++) {
        const Row r = g->rows[i];
        if (r.head == other || !is_suited(g, s, r.head, &suited, &other)) continue;
        if ((check_a && r.a != a) || (check_b && r.b != b) || (s->old && is_new(g, r.id, r.fresh))) continue;
        if (over(g)) return;
        consider_any(g, rule, plan, k, s, r.id, r.head, cls, r.a, r.b);
    }
}

static void from_child(EGraph *g, const Rule *rule, const Plan *plan, u32 k, const Step *step) {
    const Step own = *step, *s = &own;
    const u32 child = g->slot[s->kid[s->position]];
    if (!(g->use_span[child].mask >> (s->selector & 31) & 1)) return;
    u32 before = NONE, suited = NONE, other = NONE;
    for (u32 i = g->use_span[child].first, last = g->use_span[child + 1].first; i < last; i++) {
        const Use u = g->uses[i];
        if (u.head == other || !is_suited(g, s, u.head, &suited, &other)) continue;
        if (u.id == before || (!s->swap && u.position != s->position)) continue;
        if (s->old && is_new(g, u.id, u.fresh)) continue;
        if (over(g)) return;
        before = u.id;  // with both children of one class it is listed twice in a row
        const u32 first = u.position == 0 ? child : u.other, second = u.position == 0 ? u.other : child;
        consider_any(g, rule, plan, k, s, u.id, u.head, u.cls, first, second);
    }
}

static void step(EGraph *g, const Rule *rule, const Plan *plan, u32 k) {
    const Step *s = g->program->steps + plan->first_step + k;
    switch (s->source) {
        case FROM_CHANGED: from_changed(g, rule, plan, s); break;
        case FROM_CLASS: from_class(g, rule, plan, k, s); break;
        case FROM_CHILD: from_child(g, rule, plan, k, s); break;
        case FROM_FACTS: from_facts(g, rule, plan, s); break;
        default: break;
    }
}

// Which later steps look into a class that a step binds: where no node there, or above it, has such a
// head, there is no need to go on.
static void look_ahead(EGraph *g, const Plan *plan) {
    const Step *steps = g->program->steps + plan->first_step;
    u32 bound = 0;
    for (u32 k = 0; k < plan->steps; k++) {
        const Step *s = steps + k;
        u32 here = s->source == FROM_FACTS ? 0 : 1u << s->out, count = 0;
        if (s->source != FROM_FACTS)
            for (u32 i = 0; i < s->arity; i++) here |= 1u << s->kid[i];
        here &= ~bound;
        for (u32 later = k + 1; later < plan->steps; later++) {
            const Step *t = steps + later;
            const u32 uses = t->source == FROM_CHILD, slot = uses ? t->kid[t->position] : t->out;
            if ((t->source != FROM_CLASS && !uses) || !(here >> slot & 1)) continue;
            g->ahead[k].wanted[count].slot = slot;
            g->ahead[k].wanted[count].uses = uses;
            g->ahead[k].wanted[count++].bit = 1u << (t->selector & 31);
        }
        g->ahead[k].count = count;
        bound |= here | 1u << s->out;
    }
}

// All matches of one rule that are new since it last searched.
void search(EGraph *g, u32 rule) {
    const Rule *r = g->program->rules + rule;
    g->rule = rule;
    g->quit = 0;
    g->found = 0;
    g->sole = sole_path(g, r);
    for (u32 i = 0; i < r->plans && !(g->stop | g->quit); i++) {
        const Plan *plan = g->program->plans + r->first_plan + i;
        look_ahead(g, plan);
        step(g, r, plan, 0);
    }
    flush(g);
    g->states[rule].matches += g->found;
    g->matches += g->found;
    g->rule = NONE;
}
