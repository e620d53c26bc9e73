"""Train a small network on scikit-learn's handwritten digits, with kernels that opgraft compiles.

Run it with opgraft-core, opgraft-tensor and scikit-learn installed: `python examples/digits.py`.
It prints the device, the kernels of a step with their times, the accuracy on the fifth of the
images that training never saw, and a few of them with the network's guesses.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator

import numpy as np
from sklearn.datasets import load_digits

from opgraft import journal
from opgraft_tensor import Tensor, manual_seed, nn

SHADES = " .:-=+*#%@"


class Net(nn.Module):
    """Three linear layers over the 64 points of an image."""

    def __init__(self) -> None:
        self.linear1 = nn.Linear(64, 128)
        self.linear2 = nn.Linear(128, 128)
        self.linear3 = nn.Linear(128, 10)
        self.dropout = nn.Dropout(0.3)

    def forward(self, *inputs: Tensor) -> Tensor:
        (x,) = inputs
        x = self.dropout(self.linear1(x.flatten(1)).relu())
        x = self.dropout(self.linear2(x).relu())
        result: Tensor = self.linear3(x)
        return result


def digits(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Images (n, 1, 8, 8) within 0 .. 1 and labels: four fifths to train, one fifth held out."""
    data = load_digits()
    images = (data.images / 16).astype(np.float32)[:, None]
    order = np.random.default_rng(seed).permutation(len(images))
    images, labels = images[order], data.target[order].astype(np.int64)
    kept = len(images) * 4 // 5
    return images[:kept], labels[:kept], images[kept:], labels[kept:]


def batches(count: int, size: int, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """Indices of whole batches in random order: every step has the same shapes."""
    order = rng.permutation(count)
    for begin in range(0, count - size + 1, size):
        yield order[begin : begin + size]


def bar(done: int, total: int, text: str) -> None:
    """A progress bar on a terminal; on anything else nothing."""
    if sys.stderr.isatty():
        filled = 30 * done // total
        print(f"\r[{'#' * filled}{'.' * (30 - filled)}] {text} ", end="", file=sys.stderr)
        if done == total:
            print(file=sys.stderr)


def train(
    model: Net, images: np.ndarray, labels: np.ndarray, epochs: int, batch: int, seed: int
) -> list[journal.Event]:
    """Train; the launches of the last step of the first epoch, with times."""
    optimizer = nn.AdamW(model.parameters(), lr=3e-3, weight_decay=0.02)
    rng = np.random.default_rng(seed)
    x, y = Tensor(images), Tensor(labels)
    events: list[journal.Event] = []
    for epoch in range(epochs):
        # the rate falls along half a wave of a cosine
        optimizer.lr = 3e-3 * 0.5 * (1 + np.cos(np.pi * epoch / epochs))
        total, steps = 0.0, 0
        for chosen in batches(len(images), batch, rng):
            picked = Tensor(chosen)
            loss = nn.cross_entropy(model(x[picked]), y[picked])
            loss.backward()
            if epoch == 0:
                events.clear()
                with journal.listening(events.append):
                    optimizer.step()
            else:
                optimizer.step()
            total, steps = total + loss.item(), steps + 1
        bar(epoch + 1, epochs, f"epoch {epoch + 1}/{epochs}, loss {total / steps:.4f}")
    return [e for e in events if e.kind == "launch"]


def guesses(model: Net, images: np.ndarray) -> np.ndarray:
    """The likeliest class of each image."""
    model.eval()
    found: np.ndarray = model(Tensor(images)).argmax(1).numpy()
    model.train()
    return found


def picture(image: np.ndarray) -> list[str]:
    """An 8 by 8 image in shades, two characters for each point."""
    return ["".join(SHADES[int(v * (len(SHADES) - 1))] * 2 for v in row) for row in image[0]]


def show(images: np.ndarray, labels: np.ndarray, found: np.ndarray) -> None:
    """A few images side by side, wrong guesses first."""
    order = np.argsort(found == labels, kind="stable")[:4]
    for lines in zip(*[picture(images[i]) for i in order]):
        print("   ".join(lines))
    print("   ".join(f"is {labels[i]}, guess {found[i]}".ljust(16) for i in order))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()

    manual_seed(options.seed)
    begin = time.perf_counter()
    images, labels, held_images, held_labels = digits(options.seed)
    model = Net()
    print(f"device   {Tensor(0).device}")
    print(f"images   {len(images)} to train, {len(held_images)} held out")

    launches = train(model, images, labels, options.epochs, options.batch, options.seed)
    seconds = time.perf_counter() - begin
    print(f"trained  {options.epochs} epochs in {seconds:.1f} s")

    print(f"kernels  of one step: {len(launches)}")
    times: dict[str, list[float]] = {}
    for launch in launches:
        times.setdefault(launch.name, []).append(launch.details.get("took") or launch.seconds)
    for name, taken in sorted(times.items(), key=lambda item: -sum(item[1])):
        print(f"  {sum(taken) * 1e6:9.1f} us  {len(taken)} x {name}")

    found = guesses(model, held_images)
    right = float((found == held_labels).mean())
    print(f"accuracy {right:.2%} on the held-out fifth")
    show(held_images, held_labels, found)
    if right < 0.97:
        raise SystemExit("the accuracy is below 97 %")


if __name__ == "__main__":
    main()
