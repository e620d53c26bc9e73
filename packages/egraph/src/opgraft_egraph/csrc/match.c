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

static void bind(EGraph *g, const Rule *rule, const Plan *plan, u32 k, const Step *s, u32 id, u32 cls,
                 const u32 *kids, int turned) {
    u32 *slot = g->slot;
    const u32 named = s->arity;
    for (u32 i = 0; i < named; i++) {
        const u32 kid = kids[turned && i < 2 ? 1 - i : i];
        if (s->known >> i & 1) {
            if (slot[s->kid[i]] != kid) return;
        } else slot[s->kid[i]] = kid;
    }
    if (s->known >> 7) {
        if (slot[s->out] != cls) return;
    } else slot[s->out] = cls;
    slot[s->row] = id;
    if (s->guards && !guarded(g, s)) return;
    if (k + 1 == plan->steps) emit(g, rule);
    else step(g, rule, plan, k + 1);
}

static void consider(EGraph *g, const Rule *rule, const Plan *plan, u32 k, const Step *s, u32 id, u32 head,
                     u32 cls, const u32 *kids, u32 stamp) {
    if (s->old && stamp > g->states[g->rule].since) return;
    const u32 arity = (u32)g->heads[head].arity;
    if (s->each) {
        if (s->guards && !each_guarded(g, s, kids, arity)) return;
    } else if (arity != s->arity && !(s->open && arity > s->arity)) return;
    u32 own[KIDS];
    for (u32 i = 0; i < s->arity; i++) own[i] = kids[i];
    bind(g, rule, plan, k, s, id, cls, own, 0);
    if (s->swap && own[0] != own[1] && !g->stop) bind(g, rule, plan, k, s, id, cls, own, 1);
}

static int late(EGraph *g) {
    if ((++g->tried & 1023) == 0 && g->deadline > 0 && clock_now() > g->deadline) g->stop = STOP_SECONDS;
    return g->stop != RUNNING;
}

static int over(const EGraph *g) {
    return g->stop != RUNNING || g->states[g->rule].banned > g->round;
}

static void from_node(EGraph *g, const Rule *rule, const Plan *plan, u32 k, const Step *s, u32 id) {
    const Node *n = g->nodes + id;
    u32 own[KIDS];
    const u32 arity = (u32)g->heads[n->head].arity;
    const u32 *kids = n->kid;
    if (arity > KIDS) kids = g->wide + n->kid[0];
    else {
        memcpy(own, n->kid, sizeof own);
        kids = own;
    }
    consider(g, rule, plan, k, s, id, n->head, n->cls, kids, n->stamp);
}

static void from_changed(EGraph *g, const Rule *rule, const Plan *plan, const Step *s) {
    const u32 since = g->states[g->rule].since;
    if (since + 1 < g->now) {  // it missed a round
        for (u32 id = 0; id < g->linked && !over(g); id++) {
            const Node *n = g->nodes + id;
            if (!(n->flags & DEAD) && n->stamp > since && selected(g, n->head, s->selector)) {
                if (late(g)) return;
                from_node(g, rule, plan, 0, s, id);
            }
        }
        return;
    }
    for (u32 h = 0; h < g->linked_heads; h++) {
        const u32 first = g->delta_first[h], last = g->delta_first[h + 1];
        if (first == last || !selected(g, h, s->selector)) continue;
        for (u32 i = first; i < last; i++) {
            if (over(g) || late(g)) return;
            if (i + 8 < last) FETCH(g->nodes + g->delta[i + 8]);
            from_node(g, rule, plan, 0, s, g->delta[i]);
        }
    }
}

static void from_facts(EGraph *g, const Rule *rule, const Plan *plan, const Step *s) {
    const u32 since = g->states[g->rule].since;
    const u32 *stamps = rule->terms ? g->term_stamp : g->fact_stamp;
    const int missed = since + 1 < g->now;
    const u32 *list = rule->terms ? g->renewed : g->changed;
    const u32 count = missed ? g->linked_classes : rule->terms ? g->renewed_count : g->changed_count;
    for (u32 i = 0; i < count; i++) {
        if (over(g) || late(g)) return;
        const u32 cls = missed ? i : list[i];
        if (missed && (g->classes[cls].parent != cls || stamps[cls] <= since)) continue;
        g->slot[s->out] = cls;
        if (s->guards && !guarded(g, s)) continue;
        step(g, rule, plan, 1);
    }
}

static void from_class(EGraph *g, const Rule *rule, const Plan *plan, u32 k, const Step *s) {
    const u32 cls = g->slot[s->out];
    for (u32 i = g->row_first[cls], last = g->row_first[cls + 1]; i < last; i++) {
        const Row *r = g->rows + i;
        if (!selected(g, r->head, s->selector)) continue;
        if (over(g) || late(g)) return;
        if (g->heads[r->head].arity > 2) {
            from_node(g, rule, plan, k, s, r->id);
            continue;
        }
        const u32 kids[KIDS] = {r->a, r->b, NONE, NONE};
        consider(g, rule, plan, k, s, r->id, r->head, cls, kids, r->stamp);
    }
}

static void from_child(EGraph *g, const Rule *rule, const Plan *plan, u32 k, const Step *s) {
    const u32 child = g->slot[s->kid[s->position]];
    u32 before = NONE;
    for (u32 i = g->use_first[child], last = g->use_first[child + 1]; i < last; i++) {
        const Use *u = g->uses + i;
        if (i + 3 < last) FETCH(g->nodes + u[3].id);
        if (u->id == before || !selected(g, u->head, s->selector)) continue;
        if (!s->swap && u->position != s->position) continue;
        if (over(g) || late(g)) return;
        before = u->id;  // with both children of one class it is listed twice in a row
        from_node(g, rule, plan, k, s, u->id);
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

// All matches of one rule that are new since it last searched.
void search(EGraph *g, u32 rule) {
    const Rule *r = g->program->rules + rule;
    g->rule = rule;
    for (u32 i = 0; i < r->plans && !over(g); i++)
        step(g, r, g->program->plans + r->first_plan + i, 0);
    flush(g);
    g->rule = NONE;
}
