"""Where the tensor tier gains, by the number and shape of the products, and where it declines.

The examples 7 to 12 and the four traps of the measurements that this tier is built on.
"""

from __future__ import annotations

import pytest

pytest.importorskip("opgraft_tensor", reason="the programs are written with opgraft-tensor")

from tensor_cases.programs import Case

N = 64


# ---- 7: a product that two programs share


def two_chains(a, b, c, d):
    return (a @ b) @ c, b @ (c @ d)


def test_four_products_become_three() -> None:
    case = Case(two_chains, *[(256, 256)] * 4)
    assert len(case.sums(egraph=False)) == 4
    assert len(case.sums()) == 3
    assert Case(two_chains, *[(N, N)] * 4).error() < 2e-6


def three_of_one(b, c, *xs):
    return [(x @ b) @ c for x in xs]


def test_six_products_become_four() -> None:
    case = Case(three_of_one, *[(256, 256)] * 5)
    assert len(case.sums(egraph=False)) == 6
    assert len(case.sums()) == 4
    assert Case(three_of_one, *[(N, N)] * 5).error() < 2e-6


# ---- 8: short queries share k.T @ v


def short_queries(k, v, *queries):
    return [(q @ k.transpose(0, 1)) @ v for q in queries]


def test_six_short_queries_share_one_product() -> None:
    case = Case(short_queries, (512, 64), (512, 64), *[(16, 64)] * 6)
    assert sorted(case.sums()) == sorted([(64, 64, 512), *[(16, 64, 64)] * 6])
    assert case.error() < 2e-6


def test_one_short_query_alone_does_not() -> None:
    case = Case(short_queries, (512, 64), (512, 64), (16, 64))
    assert case.sums() == case.sums(egraph=False) == [(16, 512, 64), (16, 64, 512)]


# ---- 9: a product that many use is kept


def many_columns(a, b, *ws):
    return [(a @ b) @ w for w in ws]


def test_a_product_that_five_use_is_kept() -> None:
    case = Case(many_columns, (1024, 1024), (1024, 1024), *[(1024, 256)] * 5)
    assert case.same_graph()
    assert (1024, 1024, 1024) in case.sums()


def test_a_product_that_one_uses_is_not() -> None:
    case = Case(many_columns, (1024, 1024), (1024, 1024), (1024, 256))
    assert sorted(case.sums()) == [(1024, 256, 1024), (1024, 256, 1024)]


# ---- 10: low rank


def gradient_twice(dy, x, v, u):
    g = dy @ x.transpose(0, 1)
    return g @ v, u.transpose(0, 1) @ g


def test_a_matrix_of_low_rank_is_never_formed() -> None:
    case = Case(gradient_twice, (1024, 32), (1024, 32), (1024, 64), (1024, 64))
    assert (1024, 1024, 32) in case.sums(egraph=False)
    assert max(s[0] * s[1] for s in case.sums()) <= 1024 * 64
    assert len(case.sums()) == 4
    assert case.steps() * 10 < case.steps(egraph=False)


def test_a_matrix_of_high_rank_is_formed() -> None:
    case = Case(gradient_twice, (256, 512), (256, 512), (256, 256), (256, 256))
    assert case.same_graph()
    assert (256, 256, 512) in case.sums()


def test_low_rank_has_the_same_values() -> None:
    assert Case(gradient_twice, (128, 4), (128, 4), (128, 8), (128, 8)).error() < 2e-6


# ---- 11: transposes are no plateau


def gram_times_vector(x, w, u):
    y = x @ w
    return (y.transpose(0, 1) @ y) @ u


def test_a_vector_goes_through_a_gram_matrix_from_the_right() -> None:
    case = Case(gram_times_vector, (4096, 256), (256, 256), (256,))
    assert sorted(case.sums()) == [(256, 256), (256, 256), (256, 4096), (4096, 256)]
    assert Case(gram_times_vector, (200, 32), (32, 32), (32,)).error() < 2e-6


# ---- 12: exponentials of sums


def weights_of_a_sum(a, b, x):
    n, m = x.shape
    return ((a.reshape(n, 1) + b.reshape(1, m)).exp() * x).sum(1)


def test_the_exponential_of_a_broadcast_sum_is_taken_apart() -> None:
    case = Case(weights_of_a_sum, (300,), (200,), (300, 200))
    assert sorted(case.powers()) == [(200,), (300,)]
    assert case.error() < 2e-6


def test_what_guards_it_keeps_it_finite() -> None:
    case = Case(weights_of_a_sum, (64,), (96,), (64, 96))
    case.inputs[0][:] += 1000.0
    case.inputs[1][:] -= 1000.0
    assert sorted(case.powers()) == [(64,), (96,)]
    # 1000 has three digits of the seven: what the sum has, the guarded powers have as well
    assert case.error() < 2e-4
    case.inputs[0][:] = -200.0
    case.inputs[1][:] = -float("inf")
    assert (case.values()[0] == 0).all()


def product_of_two(a, b):
    return a.exp() * b.exp()


def test_two_exponentials_of_full_arrays_become_one() -> None:
    case = Case(product_of_two, (128, 64), (128, 64))
    assert case.powers() == [(128, 64)]
    assert case.error() < 2e-6


def used_elsewhere(a, b, c):
    return a.exp() * b.exp() * c.exp(), a.exp()


def test_an_exponential_that_is_used_elsewhere_is_kept() -> None:
    case = Case(used_elsewhere, *[(128, 64)] * 3)
    assert case.powers() == [(128, 64)] * 2
    assert case.error() < 2e-6


# ---- traps: what a model could get wrong, and what is declined


def queries_keys_values(x, q, k, v):
    return (x @ q).cat(x @ k, x @ v, axis=1)


def test_few_rows_are_not_worth_a_copy_of_the_weights() -> None:
    assert Case(queries_keys_values, (16, 256), *[(256, 256)] * 3).same_graph()


def narrow_ones(x, *ws):
    first, *rest = [x @ w for w in ws]
    return first.cat(*rest, axis=1)


def test_many_rows_of_narrow_products_are_one_product() -> None:
    case = Case(narrow_ones, (4096, 16), *[(16, 16)] * 4)
    assert case.sums(egraph=False) == [(4096, 16, 16)] * 4
    assert case.sums() == [(4096, 64, 16)]
    assert case.error() < 2e-6


def low_rank_update(x, w, u, v):
    return x @ w + (x @ u) @ v


def test_one_row_does_not_merge_an_update_of_low_rank() -> None:
    assert Case(low_rank_update, (1, 512), (512, 512), (512, 64), (64, 512)).same_graph()


def test_many_rows_do() -> None:
    case = Case(low_rank_update, (4096, 512), (512, 512), (512, 64), (64, 512))
    assert sorted(case.sums()) == [(512, 512, 64), (4096, 512, 512)]
    assert Case(low_rank_update, (600, 32), (32, 32), (32, 8), (8, 32)).error() < 2e-6


def layernorm(x, gain, bias):
    d = x - x.mean(1, keepdims=True)
    return d / ((d * d).mean(1, keepdims=True) + 1e-5).sqrt() * gain + bias


@pytest.mark.parametrize("level", ["reassoc", "unsafe"])
def test_a_layernorm_stays_one_kernel(level: str) -> None:
    assert Case(layernorm, (256, 512), (512,), (512,)).same_graph(level)


def softmax_of(x, v):
    return x.softmax(1) @ v


def test_a_softmax_stays_as_it_is() -> None:
    assert Case(softmax_of, (64, 64), (64, 64)).same_graph()


# ---- levels


@pytest.mark.parametrize(
    "case",
    [
        Case(two_chains, *[(N, N)] * 4),
        Case(gradient_twice, (128, 4), (128, 4), (128, 8), (128, 8)),
        Case(gram_times_vector, (200, 32), (32, 32), (32,)),
        Case(weights_of_a_sum, (64,), (96,), (64, 96)),
        Case(product_of_two, (32, 64), (32, 64)),
        Case(low_rank_update, (600, 32), (32, 32), (32, 8), (8, 32)),
    ],
    ids=lambda case: case.program.__name__,
)
def test_at_strict_floats_stay_as_they_are(case: Case) -> None:
    assert case.same_graph("strict")
