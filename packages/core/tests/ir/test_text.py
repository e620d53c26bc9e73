"""The text form says everything about a graph: what is printed parses back to the same node."""

from __future__ import annotations

import itertools
import math
import random
import time
from dataclasses import dataclass

import pytest

from opgraft.dtype import dtypes
from opgraft.errors import ParseError
from opgraft.ir import AxisKind, GroupOp, Ops, Space, UOp
from opgraft.ir.argument import format_value, writable_as_text
from opgraft.ir.expression import parse_expression
from opgraft.ir.infix import to_expression
from opgraft.ir.linear import KernelInfo, LinearProgram
from opgraft.ir.text import linear_to_text, parse, parse_linear, to_text

X = UOp.variable("x", 0, 9)
F = UOp.variable("f", -1.0, 1.0, dtypes.float32)
DATA = UOp(Ops.PARAM, dtypes.float32, (), (0, 64))
OUT = UOp(Ops.PARAM, dtypes.float32, (), (1, 64))


def a_node_of(op: Ops) -> UOp:
    """Some node of each op, legal or nearly so: the text form does not judge."""
    i = UOp.range(8, "i")
    k = UOp.range(X + 1, 3, AxisKind.REDUCE)
    store = OUT.store(i, DATA.load(i))
    vector = UOp(Ops.STACK, dtypes.float32.vec(2), (F, UOp.const(dtypes.float32, 2.0)))
    known = {
        Ops.CONST: UOp.const(dtypes.float32, 1.5),
        Ops.VAR: X,
        Ops.PARAM: DATA,
        Ops.LOCAL: UOp(Ops.LOCAL, dtypes.int8, (), ("tile", 32, Space.GROUP)),
        Ops.IOTA: UOp(Ops.IOTA, dtypes.int32.vec(8)),
        Ops.SPECIAL: UOp(Ops.SPECIAL, dtypes.int32, (), ("group0", 16)),
        Ops.RANGE: k,
        Ops.CAST: F.cast("int8"),
        Ops.BITCAST: F.bitcast("uint32"),
        Ops.WHERE: (X < 3).where(F, 2.0),
        Ops.MULACC: UOp(Ops.MULACC, dtypes.float32, (F, F, F)),
        Ops.REDUCE: (F * k.cast("float32")).reduce(Ops.ADD, k),
        Ops.SCAN: UOp(Ops.SCAN, dtypes.float32, (F, k), Ops.MAX),
        Ops.STACK: vector,
        Ops.BROADCAST: F.broadcast(4),
        Ops.EXTRACT: vector.alu(Ops.SQRT).extract(1),
        Ops.HREDUCE: UOp(Ops.HREDUCE, dtypes.float32, (vector,), Ops.MUL),
        Ops.LOAD: DATA.load(i, i < 5, 0.5),
        Ops.STORE: OUT.store(i, F, i < 5),
        Ops.END: store.end(i),
        Ops.AFTER: OUT.after(store.end(i)),
        Ops.BARRIER: UOp(Ops.BARRIER, dtypes.void, (store,)),
        Ops.IF: UOp(Ops.IF, dtypes.void, (X < 3,)),
        Ops.ENDIF: UOp(Ops.ENDIF, dtypes.void, (UOp(Ops.IF, dtypes.void, (X < 3,)),)),
        Ops.SINK: UOp.sink(store.end(i), arg=KernelInfo('a "name"', (("split", 0, 4),))),
        Ops.BUFFER: UOp(Ops.BUFFER, dtypes.float32, (), ("a", (2, 3))),
        Ops.RESHAPE: UOp(Ops.RESHAPE, dtypes.float32, (F,), (2, 3)),
        Ops.PAD: UOp(Ops.PAD, dtypes.float32, (F,), ((1, 0),)),
        Ops.EXPAND: UOp(Ops.EXPAND, dtypes.float32, (F,), ()),
        Ops.REDUCE_AXIS: UOp(Ops.REDUCE_AXIS, dtypes.float32, (F,), (Ops.ADD, (0, 1))),
        Ops.COPY: UOp(Ops.COPY, dtypes.float32, (F,), "CPU:1"),
        Ops.ARANGE: UOp(Ops.ARANGE, dtypes.int64, (), ((4,), 0)),
    }
    if op in known:
        return known[op]
    if op in GroupOp.COMPARISON:
        return F.alu(op, 0.5)
    if op in GroupOp.UNARY:
        return F.alu(op)
    if op in GroupOp.BINARY:
        return F.alu(op, 0.5)
    return UOp(op, dtypes.float32, (F,), (1, 2))


@pytest.mark.parametrize("op", list(Ops), ids=str)
def test_every_op_parses_back_to_the_same_node(op: Ops) -> None:
    n = a_node_of(op)
    assert n.op is op
    assert parse(to_text(n)) is n
    assert parse(to_text(n.rtag("mark"))) is n.rtag("mark")


@dataclass(frozen=True)
class Action:
    """Stands for the actions of a scheduler."""

    axis: int
    sizes: tuple[int, ...] = ()


ARGUMENTS = [
    None,
    0,
    -7,
    10**30,
    True,
    False,
    0.0,
    -0.0,
    1e-300,
    math.inf,
    -math.inf,
    math.nan,
    "",
    'quotes " and \\ and # and\nlines and ümlaut',
    "\r\t\x00\x1c\x85\u2028 \\n \ud800 \U000e0001",
    (),
    (1,),
    ((1,),),
    (1, (2, (3, ())), "x", None),
    ((), ()),
    Ops.ADD,
    Ops.REDUCE,
    AxisKind.REDUCE,
    AxisKind.THREAD,
    Space.GROUP,
    dtypes.bfloat16,
    dtypes.int8.vec(4),
    dtypes.narrow(4, True),
    KernelInfo(),
    KernelInfo("k", (Ops.ADD, (1, 2))),
]


@pytest.mark.parametrize("arg", ARGUMENTS, ids=repr)
def test_every_kind_of_argument_and_tag_parses_back(arg: object) -> None:
    n = UOp(Ops.SINK, dtypes.void, (), arg)
    assert parse(to_text(n)) is n
    tagged = UOp(Ops.SINK, dtypes.void, (), None, arg)
    assert parse(to_text(tagged)) is tagged


def test_a_dataclass_parses_back_once_it_is_announced() -> None:
    n = UOp.sink(arg=KernelInfo("k", (Action(1, (2, 3)),)))
    with pytest.raises(ParseError, match="cannot be read back"):
        parse(to_text(n))
    assert writable_as_text(Action) is Action
    assert parse(to_text(n)) is n


def test_an_object_without_text_is_named_and_refused() -> None:
    n = UOp(Ops.BUFFER, dtypes.float32, (), frozenset({1}))
    assert "frozenset" in to_text(n)
    with pytest.raises(ParseError, match="line 1"):
        parse(to_text(n))


@pytest.mark.parametrize("dtype", [*dtypes.all, dtypes.index, dtypes.int16.vec(4)], ids=str)
def test_constants_of_every_dtype_keep_dtype_and_bits(dtype: object) -> None:
    values = [0, 1, True, 0.0, -0.0, 1.5, math.nan]
    if dtype is not dtypes.index:
        values += [math.inf, -math.inf]
    other = UOp.variable("o", 0, 1, dtypes.int8)
    for v in values:
        c = UOp.const(dtype, v)
        assert parse(to_text(c)) is c
        for n in (c.alu(Ops.ADD, c), c.alu(Ops.CMPLT, c), UOp(Ops.ADD, dtypes.int8, (other, c))):
            assert parse(to_text(n)) is n
        assert parse(to_text(UOp.sink(c, c.rtag(1)))) is UOp.sink(c, c.rtag(1))


def test_random_graphs_parse_back() -> None:
    rng = random.Random(11)
    for _ in range(200):
        nodes = [X, UOp.const("index", 3), UOp.range(7, "r"), X.broadcast(2), F, F.broadcast(2)]
        for _ in range(rng.randint(1, 25)):
            op = rng.choice([Ops.ADD, Ops.MUL, Ops.MAX, Ops.CMPLT, Ops.WHERE, Ops.XOR])
            chosen = [rng.choice(nodes) for _ in range(3 if op is Ops.WHERE else 2)]
            nodes.append(
                UOp(op, rng.choice(nodes).dtype, tuple(chosen), None, rng.choice([None] * 9 + [3]))
            )
        root = UOp.sink(*rng.sample(nodes, 3))
        assert parse(to_text(root)) is root


def test_the_form_is_fit_to_be_read() -> None:
    i, k = UOp.range(16, "i"), UOp.range(4, "k", AxisKind.REDUCE)
    value = (DATA.load(i * 4 + k) * 2.0).reduce(Ops.ADD, k)
    sink = UOp.sink(OUT.store(i, value).end(i), arg=KernelInfo("rows"))
    assert to_text(sink) == (
        "%0: float32 = param[1, 64]\n"
        '%1: index = range["i", loop](16)\n'
        "%2: float32 = param[0, 64]\n"
        "%3: index = mul(%1, 4)\n"
        '%4: index = range["k", axiskind.reduce](4)\n'.replace("axiskind.reduce", "reduce")
        + "%5: index = add(%3, %4)\n"
        "%6: float32 = load(%2, %5)\n"
        "%7: float32 = mul(%6, 2.0)\n"
        "%8: float32 = reduce[add](%7, %4)\n"
        "%9: void = store(%0, %1, %8)\n"
        "%10: void = end(%9, %1)\n"
        'sink[KernelInfo("rows", none)](%10)'
    )


def test_comments_blank_lines_and_names_of_ones_own() -> None:
    text = """
    # the offset of an element
    %row: index = var["row", 0, 9]   # "quoted # in a comment"

      %sum: index = add(%row, 4)
    """
    assert parse(text) is UOp.variable("row", 0, 9) + 4


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds no node"),
        ("%0: index = add(%1, 2)", "line 1, column 17: expected a node that a line above names"),
        ("\n%0: index = plus(1, 2)", "line 2, column 13: expected an operation, found 'plus'"),
        ("%0: int9000 = const[1]", "line 1, column 5: expected a dtype, found 'int9000'"),
        ("%0 = const[1]", "line 1, column 4: expected ':'"),
        ("%0: index = const[1", "expected ',', found the end of the line"),
        ("%0: index = cast(4)", "expected the dtype of the number, such as 4:int32"),
        ("%0: index = const[1] 5", "expected the end of the line, found '5'"),
        ("%0: index = const", "expected the value of the constant"),
        ("%0: index = var[x, 0, 1]", "expected a value; names known here"),
        ("%0: index = var[&]", "found '&'"),
        ("sink[KernelInfo(1, 2, 3)]", "KernelInfo"),
    ],
)
def test_errors_say_where_and_what_was_expected(text: str, message: str) -> None:
    with pytest.raises(ParseError) as raised:
        parse(text)
    assert message in str(raised.value)


@pytest.mark.thorough
def test_a_chain_of_100_000_nodes_is_printed_parsed_and_shown() -> None:
    total = X
    for i in range(100_000):
        total = total + (i + 1)
    assert parse(to_text(total)) is total
    begin = time.perf_counter()
    assert len(repr(total)) < 1000
    assert time.perf_counter() - begin < 0.1


def test_repr_stays_short_where_nodes_are_shared() -> None:
    square = X
    for _ in range(100):
        square = square * square
    wide = UOp(Ops.SINK, dtypes.void, tuple(X + i for i in range(1000)))
    assert len(repr(square)) < 1000
    assert len(repr(wide)) < 1000
    assert repr(X * 4 + 3) == "<ADD index: x*4 + 3>"


# ---- linear programs


def a_program() -> LinearProgram:
    i32 = dtypes.int32
    zero = UOp.const(i32, 0)
    n = UOp.variable("n", 1, 16, i32)
    i = UOp(Ops.RANGE, i32, (n,), ("i", AxisKind.PARALLEL))
    k = UOp(Ops.RANGE, i32, (UOp.const(i32, 4),), ("k", AxisKind.REDUCE))
    acc = UOp(Ops.LOCAL, dtypes.float32, (), ("acc", 1, Space.REGISTER))
    start = acc.store(zero, UOp.const(dtypes.float32, -0.0))
    place = i * 4
    at = place + k
    item, old = DATA.load(at), acc.load(zero)
    new = old + item
    test = i < 3
    branch = UOp(Ops.IF, dtypes.void, (test,))
    save = acc.store(zero, new)
    result = OUT.store(i, old)
    end = [UOp(Ops.END, dtypes.void, (r,)) for r in (k, i)]
    close = UOp(Ops.ENDIF, dtypes.void, (branch,))
    items = (i, acc, start, place, k, at, item, old, new, save, end[0], old, test, branch)
    items += (result, close, start, end[1])
    return LinearProgram("rows", items, (DATA, OUT), (n,), i, ((), ()), (1,), 99)


def test_a_linear_program_parses_back() -> None:
    program = a_program()
    text = linear_to_text(program)
    assert parse_linear(text) == program
    assert linear_to_text(parse_linear(text)) == text
    assert "again" in text
    plain = LinearProgram("nothing", (), ())
    assert parse_linear(linear_to_text(plain)) == plain


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("body", 'says linear["name"]'),
        ('linear["k"]', "says body"),
        ('linear["k"]\nbody\n  again %3', "line 3"),
        ('linear["k"]\nparams %0\nbody', "line 2, column 8: expected a node"),
    ],
)
def test_errors_in_linear_programs(text: str, message: str) -> None:
    with pytest.raises(ParseError) as raised:
        parse_linear(text)
    assert message in str(raised.value)


# ---- expressions

Y8 = UOp.variable("y", -3, 3, dtypes.int8)
Z = UOp.variable("z", -math.inf, math.inf, dtypes.float32)


@pytest.mark.parametrize(
    ("text", "node"),
    [
        ("(x*4+3)//4 where x in [0,9]", lambda: (X * 4 + 3) // 4),
        ("x % 3 - 1 where x in [0, 9]", lambda: X % 3 - 1),
        ("2**5 + x where x in [0, 9]", lambda: 32 + X),
        ("y << 2 | ~y where y:int8 in [-3, 3]", lambda: (Y8 << 2) | ~Y8),
        ("x < 3 and x != 1 where x in [0, 9]", lambda: (X < 3) & X.ne(1)),
        ("0 <= x < 5 where x in [0, 9]", lambda: (UOp.const("index", 0) <= X) & (X < 5)),
        ("not x == 2 where x in [0, 9]", lambda: ~X.eq(2)),
        ("x if x > 2 else 2 where x in [0, 9]", lambda: (X > 2).where(X, 2)),
        ("where(x < 2, 1.5, z) where x in [0, 9], z:float32", lambda: (X < 2).where(1.5, Z)),
        ("max(z, 0.5)*z where z:float32", lambda: Z.maximum(0.5) * Z),
        ("sqrt(z)/exp2(z) where z:float32", lambda: Z.sqrt() / Z.exp2()),
        ("int8(z) + y where y:int8 in [-3, 3], z:float32", lambda: Z.cast("int8") + Y8),
        ("bitcast(z, int32) >> 31 where z:float32", lambda: Z.bitcast("int32") >> 31),
        ("250:uint8 + 10", lambda: UOp.const("uint8", 250) + 10),
        ("mulacc(z, z, -0.0) where z:float32", lambda: Z.alu(Ops.MULACC, Z, -0.0)),
        ("x + -1 where x in [0, 9]", lambda: X + -1),
        ("-1", lambda: UOp.const("index", -1)),
        ("1 < 2", lambda: UOp.const("bool", True)),
        ("-inf:float16", lambda: UOp.const("float16", -math.inf)),
    ],
)
def test_expressions_as_people_write_them(text: str, node: object) -> None:
    assert parse_expression(text) is node()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x + 1", "x is not declared"),
        ("x where x", "x has no range"),
        ("x where x in [9, 0]", "least 9 is above greatest 0"),
        ("x +", "invalid syntax"),
        ("x.y where x in [0, 9]", "has no meaning"),
        ("x + 1.5 where x in [0, 9]", "1.5 meets index"),
        ("x + y where x in [0, 9], y:int8", "index meets int8"),
        ("foo(x) where x in [0, 9]", "no dtype is named 'foo'"),
        ("min(x) where x in [0, 9]", "min takes 2 operands, not 1"),
        ("x @ x where x in [0, 9]", "MatMult has no meaning"),
        ("1 // 0", "zero"),
        ("x where x in 0..9", "no declaration"),
        ("bitcast(z, int64) where z:float32", "widths differ"),
    ],
)
def test_errors_in_expressions_say_what_is_wrong(text: str, message: str) -> None:
    with pytest.raises(ParseError) as raised:
        parse_expression(text)
    assert message in str(raised.value)


def test_an_expression_that_is_too_deep_is_refused_in_a_few_words() -> None:
    with pytest.raises(ParseError) as raised:
        parse_expression("(" * 300 + "1" + ")" * 300)
    assert len(str(raised.value)) < 300


def test_an_expression_is_written_with_the_brackets_it_needs() -> None:
    where = " where x in [0, 9], z:float32"
    texts = ["(x + 1)*2", "x*2 + 1", "x + (x + 1)", "x//(x*2)", "(x < 3) == (x < 4)", "x & 7 | x"]
    texts += ["max(x, 3)", "where(x < 3, x, 2)", "float32(x)*z", "x % 4 % 3"]
    for text in texts:
        n = parse_expression(text + where)
        assert parse_expression(to_expression(n) + where) is n
    for a, b in itertools.product([Ops.ADD, Ops.MUL, Ops.AND, Ops.SHL, Ops.MOD], repeat=2):
        for n in (X.alu(a, X.alu(b, X)), X.alu(a, X).alu(b, X)):
            assert parse_expression(to_expression(n) + where) is n


def test_values_are_formatted_as_documented() -> None:
    assert format_value((AxisKind.LOOP, Ops.REDUCE, 1.0)) == "(loop, Ops.REDUCE, 1.0)"
