"""Layers, losses, optimizers and states against formulas in NumPy."""

from __future__ import annotations

import math

import numpy as np
import pytest

from checks import check_gradient, same, value
from opgraft_tensor import Tensor, grad, manual_seed, nn
from tested import DEVICES

RNG = np.random.default_rng(6)
X = RNG.normal(size=(5, 4)).astype(np.float32)
CLOSE = {"rtol": 1e-5, "atol": 1e-6}


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


# ---- layers


def test_linear() -> None:
    layer = nn.Linear(4, 3)
    w, b = value(layer.weight), value(layer.bias)
    same(layer(Tensor(X)), X @ w.T + b, **CLOSE)
    assert np.abs(w).max() <= 0.5
    assert nn.Linear(4, 3, bias=False).parameters()[0].shape == (3, 4)


def test_conv_is_the_tensors_conv() -> None:
    layer = nn.Conv2d(4, 6, 3, stride=2, padding=1, groups=2)
    x = Tensor(RNG.normal(size=(2, 4, 7, 7)).astype(np.float32))
    wanted = x.conv2d(layer.weight, layer.bias, 2, 1, 1, 2)
    assert layer(x).shape == (2, 6, 4, 4)
    same(layer(x), value(wanted))


def test_layernorm() -> None:
    layer = nn.LayerNorm(4)
    layer.weight.assign([1.0, 2.0, 3.0, 4.0])
    layer.bias.assign(0.5)
    wanted = (X - X.mean(-1, keepdims=True)) / np.sqrt(X.var(-1, keepdims=True) + 1e-5)
    same(layer(Tensor(X)), wanted * np.array([1, 2, 3, 4], np.float32) + np.float32(0.5), **CLOSE)
    with pytest.raises(ValueError, match=r"\(5, 3\)"):
        layer(Tensor(X[:, :3]))


def test_batchnorm_in_training_and_in_use() -> None:
    layer = nn.BatchNorm(3, momentum=0.25)
    x = RNG.normal(2, 3, (4, 3, 5, 5)).astype(np.float32)
    mean, var = x.mean((0, 2, 3)), x.var((0, 2, 3))
    column = (1, 3, 1, 1)
    wanted = (x - mean.reshape(column)) / np.sqrt(var.reshape(column) + 1e-5)
    same(layer(Tensor(x)), wanted, rtol=1e-4, atol=1e-5)
    same(layer.running_mean, 0.25 * mean, **CLOSE)
    same(layer.running_var, 0.75 + 0.25 * x.var((0, 2, 3), ddof=1), **CLOSE)
    layer.eval()
    running, spread = value(layer.running_mean), value(layer.running_var)
    wanted = (x - running.reshape(column)) / np.sqrt(spread.reshape(column) + 1e-5)
    same(layer(Tensor(x)), wanted, **CLOSE)
    same(layer.running_mean, running)
    assert len(layer.parameters()) == 2
    assert len(layer.state_dict()) == 4
    assert layer(Tensor(X[:, :3])).shape == (5, 3)


def test_batchnorm_differentiates_through_its_statistics() -> None:
    layer = nn.BatchNorm(2, affine=False)
    check_gradient(layer, RNG.normal(size=(3, 2, 2, 2)), rtol=1e-4, atol=1e-6)


def test_embedding_and_its_gradient() -> None:
    layer = nn.Embedding(6, 3)
    ids = Tensor([[1, 1], [5, 0]])
    found = layer(ids)
    same(found, value(layer.weight)[[[1, 1], [5, 0]]])
    found.sum().backward()
    assert value(layer.weight.grad)[:, 0].tolist() == [1, 2, 0, 0, 0, 1]


def test_dropout() -> None:
    manual_seed(4)
    layer = nn.Dropout(0.25)
    out = value(layer(Tensor.ones(20000)))
    assert set(np.unique(out)) == {0, np.float32(1 / 0.75)}
    assert abs((out == 0).mean() - 0.25) < 0.01
    assert value(layer.eval()(Tensor.ones(5))).tolist() == [1] * 5
    x = Tensor(np.ones(100, np.float32))
    dropped = layer.train()(x)
    assert ((value(grad(dropped.sum(), x)[0]) == 0) == (value(dropped) == 0)).all()
    with pytest.raises(ValueError, match="rate"):
        nn.Dropout(1.0)


# ---- losses


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_cross_entropy(reduction, smoothing) -> None:
    labels = np.array([0, 3, 1, 1, 2])
    logs = np.log(softmax(X.astype(np.float64)))
    wanted = -(1 - smoothing) * logs[np.arange(5), labels] - smoothing * logs.mean(-1)
    wanted = {"mean": wanted.mean(), "sum": wanted.sum(), "none": wanted}[reduction]
    found = nn.cross_entropy(Tensor(X), Tensor(labels), reduction, label_smoothing=smoothing)
    same(found, np.asarray(wanted, np.float32), **CLOSE)


def test_cross_entropy_of_probabilities_and_of_another_axis() -> None:
    target = softmax(RNG.normal(size=(5, 4))).astype(np.float32)
    logs = np.log(softmax(X))
    same(nn.cross_entropy(Tensor(X), Tensor(target)), -(target * logs).sum(-1).mean(), **CLOSE)
    same(nn.cross_entropy(Tensor(X.T), Tensor([0, 3, 1, 1, 2]), axis=0),
         -logs[np.arange(5), [0, 3, 1, 1, 2]].mean(), **CLOSE)  # fmt: skip


def test_the_gradient_of_cross_entropy_is_softmax_less_the_label() -> None:
    labels = np.array([0, 3, 1, 1, 2])
    x = Tensor(X)
    (found,) = grad(nn.cross_entropy(x, Tensor(labels)), x)
    same(found, (softmax(X) - np.eye(4, dtype=np.float32)[labels]) / 5, rtol=1e-4, atol=1e-6)


def test_far_off_logits_give_a_finite_loss() -> None:
    x = Tensor([[1e4, -1e4]])
    assert value(nn.cross_entropy(x, Tensor([1]))) == 2e4
    assert value(grad(nn.cross_entropy(x, Tensor([1])), x)[0]).tolist() == [[1, -1]]


def test_other_losses() -> None:
    y = RNG.normal(size=(5, 4)).astype(np.float32)
    same(nn.mse_loss(Tensor(X), Tensor(y)), ((X - y) ** 2).mean(), **CLOSE)
    target = (y > 0).astype(np.float32)
    wide = X.astype(np.float64)
    wanted = (np.log1p(np.exp(wide)) - wide * target).mean()
    same(nn.binary_cross_entropy_with_logits(Tensor(X), Tensor(target)),
         np.float32(wanted), **CLOSE)  # fmt: skip


@pytest.mark.parametrize(
    ("labels", "words"),
    [([0, 1], r"\(5,\)"), (np.zeros((5, 3), np.float32), r"\(5, 3\)"), ([True] * 5, "integers")],
)
def test_labels_that_do_not_fit(labels, words) -> None:
    with pytest.raises(ValueError, match=words):
        nn.cross_entropy(Tensor(X), Tensor(labels))
    with pytest.raises(ValueError, match="reduction"):
        nn.cross_entropy(Tensor(X), Tensor([0] * 5), "median")


# ---- optimizers


def numpy_steps(kind, target, lr=0.1, steps=4, momentum=0.0, decay=0.0, nesterov=False):
    p = np.array([1.0, -2.0, 3.0])
    first, second = np.zeros(3), np.zeros(3)
    for t in range(1, steps + 1):
        g = 2 * (p - target)
        if kind != "adamw":
            g = g + decay * p
        if kind == "sgd":
            first = momentum * first + g
            p = p - lr * ((g + momentum * first) if nesterov else first if momentum else g)
            continue
        if kind == "adamw":
            p = p * (1 - lr * decay)
        first, second = 0.9 * first + 0.1 * g, 0.999 * second + 0.001 * g * g
        p = p - lr * (first / (1 - 0.9**t)) / (np.sqrt(second / (1 - 0.999**t)) + 1e-8)
    return p


@pytest.mark.parametrize(
    ("make", "arguments"),
    [
        (lambda p: nn.SGD(p, 0.1), {"kind": "sgd"}),
        (lambda p: nn.SGD(p, 0.1, 0.9, 0.01), {"kind": "sgd", "momentum": 0.9, "decay": 0.01}),
        (lambda p: nn.SGD(p, 0.1, 0.9, nesterov=True),
         {"kind": "sgd", "momentum": 0.9, "nesterov": True}),
        (lambda p: nn.Adam(p, 0.1, weight_decay=0.01), {"kind": "adam", "decay": 0.01}),
        (lambda p: nn.AdamW(p, 0.1, weight_decay=0.05), {"kind": "adamw", "decay": 0.05}),
    ],
    ids=["sgd", "momentum", "nesterov", "adam", "adamw"],
)  # fmt: skip
def test_optimizers_follow_their_formulas(make, arguments) -> None:
    target = np.array([0.5, 0.25, -1.0])
    p = Tensor(np.array([1.0, -2.0, 3.0]), device="INTERP", requires_grad=True)
    optimizer = make([p])
    goal = Tensor(target, device="INTERP")
    for _ in range(4):
        (p - goal).square().sum().backward()
        optimizer.step()
    np.testing.assert_allclose(p.numpy(), numpy_steps(target=target, **arguments), rtol=1e-9)
    assert p.is_leaf
    assert p.grad is None


def test_a_step_computes_the_loss_with_it_and_a_new_rate_compiles_nothing() -> None:
    p = Tensor([2.0], device="INTERP", requires_grad=True)
    optimizer = nn.SGD([p], lr=0.25)
    losses = []
    for rate in (0.25, 0.125, 0.5):
        optimizer.lr = rate
        loss = (p * p).sum()
        loss.backward()
        optimizer.step()
        assert loss.uop.op.name == "BUFFER"
        losses.append(loss.item())
    assert losses == [4.0, 1.0, 0.5625]
    assert p.tolist() == [0]


def test_parameters_without_a_gradient_stay() -> None:
    p, q = [Tensor([1.0], device="INTERP", requires_grad=True) for _ in range(2)]
    optimizer = nn.Adam([p, q])
    p.sum().backward()
    optimizer.step()
    assert q.tolist() == [1.0]
    with pytest.raises(ValueError, match="does not require"):
        nn.SGD([Tensor([1.0])])
    with pytest.raises(ValueError, match="needs parameters"):
        nn.SGD([])


def test_statistics_are_computed_with_the_step() -> None:
    layer = nn.BatchNorm(2, device="INTERP")
    optimizer = nn.SGD(layer.parameters(), lr=0.1)
    layer(Tensor(X[:, :2], device="INTERP")).square().sum().backward()
    optimizer.step()
    assert layer.running_mean.uop.op.name == "BUFFER"


# ---- modules and states


class Net(nn.Module):
    def __init__(self) -> None:
        self.first = nn.Linear(4, 3)
        self.rest = [nn.BatchNorm(3), nn.Dropout(0.5)]
        self.table = {"scale": Tensor([1.0], requires_grad=True)}

    def forward(self, *inputs):
        x = self.first(inputs[0])
        for layer in self.rest:
            x = layer(x)
        return x * self.table["scale"]


def test_modules_find_their_tensors_by_path() -> None:
    net = Net()
    assert list(net.state_dict()) == [
        "first.weight", "first.bias", "rest.0.weight", "rest.0.bias", "rest.0.running_mean",
        "rest.0.running_var", "table.scale",
    ]  # fmt: skip
    assert len(net.parameters()) == 5
    assert [type(m).__name__ for m in net.modules()] == ["Net", "Linear", "BatchNorm", "Dropout"]
    net.eval()
    assert not net.rest[1].training
    with pytest.raises(NotImplementedError, match="Module"):
        nn.Module()(1)


def test_states_go_from_module_to_module() -> None:
    manual_seed(1)
    one, two = Net(), Net()
    two.load_state_dict(one.state_dict())
    x = Tensor(X)
    same(two.eval()(x), value(one.eval()(x)))
    assert len(two.parameters()) == 5
    state = one.state_dict()
    del state["first.bias"]
    state["other"] = Tensor([1.0])
    with pytest.raises(KeyError, match=r"first\.bias.*other"):
        two.load_state_dict(state)
    two.load_state_dict(state, strict=False)
    with pytest.raises(ValueError, match="shape"):
        two.load_state_dict({"first.weight": Tensor([1.0])}, strict=False)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int8", "bool", "uint64"])
def test_files_hold_every_dtype(tmp_path, dtype) -> None:
    path = tmp_path / "state.safetensors"
    x = Tensor([[0.0, 1.0, 2.5]], device="INTERP").cast(dtype)
    nn.save({"x": x, "empty": Tensor.zeros(0, 2), "number": Tensor(3)}, path)
    found = nn.load(path, device="INTERP")
    assert found["x"].dtype.name == dtype
    np.testing.assert_array_equal(found["x"].numpy(), x.numpy())
    assert found["empty"].shape == (0, 2)
    assert found["number"].item() == 3


def test_files_are_read_by_others_and_others_files_by_us(tmp_path) -> None:
    numpy_files = pytest.importorskip("safetensors.numpy")
    path = tmp_path / "a.safetensors"
    nn.save(Net().eval(), path)
    assert numpy_files.load_file(path)["first.weight"].shape == (3, 4)
    numpy_files.save_file({"w": X}, path)
    assert (nn.load(path)["w"].numpy() == X).all()


@pytest.mark.parametrize(
    "content",
    [
        b"", b"abc", (10**9).to_bytes(8, "little") + b"{}", (2).to_bytes(8, "little") + b"xx",
        (72).to_bytes(8, "little")
        + b'{"x":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}}'.ljust(72) + b"1234",
    ],
)  # fmt: skip
def test_files_that_are_none_are_refused(tmp_path, content) -> None:
    path = tmp_path / "x"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="x"):
        nn.load(path)


# ---- learning


@pytest.mark.sampled(2)
@pytest.mark.parametrize("device", DEVICES)
def test_a_network_learns(device) -> None:
    manual_seed(0)
    model = nn.Sequential(
        nn.Linear(4, 16, device=device), Tensor.relu, nn.Linear(16, 3, device=device)
    )
    optimizer = nn.Adam(model.parameters(), lr=0.05)
    x = np.random.default_rng(0).normal(size=(32, 4)).astype(np.float32)
    inputs, labels = Tensor(x, device=device), Tensor(x[:, :3].argmax(1), device=device)
    losses = []
    for _ in range(6 if device == "INTERP" else 25):
        loss = nn.cross_entropy(model(inputs), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert math.isclose(losses[0], math.log(3), rel_tol=0.3)
    assert losses[-1] < (0.9 if device == "INTERP" else 0.25) * losses[0]
