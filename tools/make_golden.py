#!/usr/bin/env python3
# make_golden.py: results of PyTorch as files for tests/golden.   SPDX-License-Identifier: MIT
#
#   python3 -m venv V && V/bin/pip install torch numpy safetensors
#   V/bin/python tools/make_golden.py
#
# <model>.safetensors: ten SGD steps from PyTorch's own initial weights: every loss and the first step's gradients. Weights,
# images and labels are not stored: they are MT19937 numbers, which the test draws again (weights: the generator
# of torch.manual_seed in order of construction; a CRC-32 in the file's metadata tells whether they are the same).
# rules.safetensors: a small vector under every optimizer (LAMB: the paper's, written here), learning-rate schedules, gradient clipping.
# operations.safetensors: results and gradients of operations that no golden model uses.
# amp.safetensors: the losses of ten such steps under torch.autocast("cpu", torch.bfloat16), and some first gradients.
# state_dict.safetensors: a small network's weights as users save them; logits.safetensors: its outputs.
# A second run gives the same tensors; safetensors writes the metadata in any order, so compare contents, not bytes.
import functools
import inspect
import math
import os
import sys
import zlib

import numpy as np
import torch
from safetensors.torch import save_file
from torch import nn

OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "golden")
CLASSES = 10


class Draws:
    """Numbers from MT19937 words, each exact in float32: the C test makes the same."""

    def __init__(self, seed):
        self.state = np.random.RandomState(seed)

    def words(self, n):
        return np.frombuffer(self.state.bytes(4 * n), dtype="<u4")

    def uniform(self, *shape):
        """In [-1, 1), with 24 bits."""
        u = (self.words(math.prod(shape)) >> 8).astype(np.float64) * 2.0**-23 - 1.0
        return torch.from_numpy(u.astype(np.float32).reshape(shape))

    def labels(self, n):
        return torch.from_numpy((self.words(n) % CLASSES).astype(np.int64))


class ReLU(nn.ReLU):
    """Remembers how near an input ever came to zero: there, rounding decides whether a gradient passes."""

    nearest = math.inf

    def forward(self, x):
        ReLU.nearest = min(ReLU.nearest, x.detach().abs().min().item())
        return super().forward(x)


class Linear(nn.Module):
    def __init__(self, inputs):
        super().__init__()
        self.fc = nn.Linear(inputs, CLASSES)

    def forward(self, x):
        return self.fc(x.flatten(1))


class MLP(nn.Module):
    def __init__(self, inputs):
        super().__init__()
        self.fc1 = nn.Linear(inputs, 256)
        self.fc2 = nn.Linear(256, CLASSES)
        self.relu = ReLU()

    def forward(self, x):
        return self.fc2(self.relu(self.fc1(x.flatten(1))))


class Block(nn.Module):
    def __init__(self, c_in, c_out, stride):
        super().__init__()
        self.c1 = nn.Conv2d(c_in, c_out, 3, stride, 1, bias=False)
        self.b1 = nn.BatchNorm2d(c_out)
        self.c2 = nn.Conv2d(c_out, c_out, 3, 1, 1, bias=False)
        self.b2 = nn.BatchNorm2d(c_out)
        self.relu = ReLU()
        self.sc = nn.Sequential()
        if stride != 1 or c_in != c_out:
            self.sc = nn.Sequential(nn.Conv2d(c_in, c_out, 1, stride, bias=False), nn.BatchNorm2d(c_out))

    def forward(self, x):
        y = self.relu(self.b1(self.c1(x)))
        return self.relu(self.b2(self.c2(y)) + self.sc(x))


class MiniResNet(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(channels, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), ReLU())
        blocks = [Block(64, 64, 1), Block(64, 64, 1)]
        for c in (128, 256):
            blocks += [Block(c // 2, c, 2), Block(c, c, 1)]
        self.layers = nn.Sequential(*blocks)
        self.fc = nn.Linear(256, CLASSES)

    def forward(self, x):
        return self.fc(self.layers(self.stem(x)).mean((2, 3)))


def as_f16(name, gradient):
    """Halves that use the type's whole range, and the factor that undoes it: about 2e-4 of the norm is lost."""
    scale = gradient.abs().max() / 32768.0
    return {f"grad.{name}": (gradient / scale).half(), f"scale.{name}": scale}


def golden_model(name, make, batch, size, lr, seed, f16=False):
    torch.manual_seed(0)
    ReLU.nearest = math.inf
    model = make()
    state = model.state_dict()
    crc = 0
    for value in model.parameters():
        crc = zlib.crc32(value.detach().numpy().tobytes(), crc)
    order = list(state)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9, weight_decay=5e-4)
    draws = Draws(seed)
    patterns = draws.uniform(CLASSES, 3, size, size)
    losses, out = [], {}
    for step in range(10):
        # A pattern for each class plus noise: it is learned steadily, so that ten losses measure the
        # arithmetic; random labels would make them chaotic.
        y = draws.labels(batch)
        x = patterns[y] + draws.uniform(batch, 3, size, size) * 0.5
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        losses.append(loss.item())
        if step == 0:
            for key, parameter in model.named_parameters():
                out |= as_f16(key, parameter.grad) if f16 else {f"grad.{key}": parameter.grad.clone()}
        optimizer.step()
    out["losses"] = torch.tensor(losses, dtype=torch.float64)
    for key, value in model.named_buffers():
        if key.startswith("stem."):
            out[key] = value.clone()  # after ten steps: catches a wrong momentum or variance
    metadata = {
        "torch": torch.__version__, "names": " ".join(order), "weights_crc32": str(crc), "batch": str(batch),
        "size": str(size), "lr": repr(lr), "seed": str(seed),
        "parameters": str(sum(p.numel() for p in model.parameters())),
    }
    save_file(out, os.path.join(OUT, f"{name}.safetensors"), metadata)
    print(name, ["%.6f" % v for v in losses], "relu inputs came to %.1e of zero" % ReLU.nearest)


def golden_amp(models):
    """The loops of the other golden models with the forward pass under autocast. Weights, gradients, optimizer: f32."""
    out, metadata = {}, {"torch": torch.__version__}
    for name, make, batch, size, lr, seed, kept in models:
        torch.manual_seed(0)
        model = make()
        optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9, weight_decay=5e-4)
        draws = Draws(seed)
        patterns = draws.uniform(CLASSES, 3, size, size)
        losses = []
        for step in range(10):
            y = draws.labels(batch)
            x = patterns[y] + draws.uniform(batch, 3, size, size) * 0.5
            with torch.autocast("cpu", torch.bfloat16):
                loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            losses.append(loss.item())
            if step == 0:
                for key, parameter in model.named_parameters():
                    assert parameter.grad.dtype == torch.float32
                    if key in kept:
                        out[f"{name}.grad.{key}"] = parameter.grad.clone()
            optimizer.step()
        out[f"{name}.losses"] = torch.tensor(losses, dtype=torch.float64)
        metadata |= {f"{name}.batch": str(batch), f"{name}.size": str(size), f"{name}.lr": repr(lr),
                     f"{name}.seed": str(seed)}
        print("amp", name, ["%.6f" % v for v in losses])
    save_file(out, os.path.join(OUT, "amp.safetensors"), metadata)


def golden_optimizer(make, shape=(5, 7)):
    """Two parameters, five steps; the second one has no gradient in the first two."""
    draws = Draws(2)
    a, b = nn.Parameter(draws.uniform(*shape)), nn.Parameter(draws.uniform(3))
    optimizer = make([a, b])
    history = []
    for step in range(5):
        ga, gb = draws.uniform(*shape), draws.uniform(3)
        a.grad, b.grad = ga, gb if step >= 2 else None
        optimizer.step()
        history.append(torch.cat([a.detach().flatten(), b.detach()]))
    return torch.stack(history)


class Lamb(torch.optim.Optimizer):
    """Algorithm 2 of arXiv:1904.00962v5; without weight decay the trust ratio is 1."""

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-6, weight_decay=0.01):
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            (beta1, beta2), decay = group["betas"], group["weight_decay"]
            for p in (p for p in group["params"] if p.grad is not None):
                state, g = self.state[p], p.grad.double()
                t = state["t"] = state.get("t", 0) + 1
                m = state["m"] = beta1 * state.get("m", 0) + (1 - beta1) * g
                v = state["v"] = beta2 * state.get("v", 0) + (1 - beta2) * g * g
                u = m / (1 - beta1 ** t) / ((v / (1 - beta2 ** t)).sqrt() + group["eps"]) + decay * p.double()
                norms = p.double().norm(), u.norm()
                ratio = norms[0] / norms[1] if decay and min(norms) > 0 else 1.0
                p -= (group["lr"] * ratio * u).float()


@functools.cache
def newton_schulz_in_f32():
    muon = sys.modules["torch.optim._muon"]
    source = inspect.getsource(muon._zeropower_via_newtonschulz).replace("torch.bfloat16", "torch.float32")
    exec(source, muon.__dict__)


class MuonAndAdamW:
    """torch.optim.Muon, with Newton-Schulz in F32, for the first parameter, and AdamW for the second."""

    def __init__(self, params, lr, weight_decay, **options):
        newton_schulz_in_f32()
        self.both = (torch.optim.Muon(params[:1], lr=lr, weight_decay=weight_decay, **options),
                     torch.optim.AdamW(params[1:], lr=lr, weight_decay=weight_decay))

    def step(self):
        for optimizer in self.both:
            optimizer.step()


class MuonAndSgd:
    """The two optimizers of airbench94_muon, from their formulas: Muon with scaled weights for the first parameter, SGD for the second.
    Tall matrices, which it does not have, get PyTorch's factor."""

    def __init__(self, params, lr, momentum, others):
        self.p, self.lr, self.momentum, self.buffer = params[0], lr, momentum, 0
        self.sgd = torch.optim.SGD(params[1:], nesterov=True, **others)

    @torch.no_grad()
    def step(self):
        g = self.p.grad.double()
        self.buffer = self.momentum * self.buffer + g
        x = g + self.momentum * self.buffer
        x = x.T if x.shape[0] > x.shape[1] else x
        x = x / (x.norm() + 1e-7)
        for _ in range(3):
            a = x @ x.T
            x = 3.4445 * x + (-4.775 * a + 2.0315 * a @ a) @ x
        self.p.mul_(len(self.p) ** 0.5 / self.p.norm())
        self.p.sub_(self.lr * max(1, self.p.shape[0] / self.p.shape[1]) ** 0.5 * (x if x.shape == self.p.shape else x.T).float())
        self.sgd.step()


OPTIMIZERS = {
    "rmsprop": lambda p: torch.optim.RMSprop(p),
    "rmsprop_momentum": lambda p: torch.optim.RMSprop(p, lr=0.02, alpha=0.9, eps=1e-6, momentum=0.8, weight_decay=0.1),
    "rmsprop_centered": lambda p: torch.optim.RMSprop(p, lr=0.02, alpha=0.9, centered=True),
    "rmsprop_both": lambda p: torch.optim.RMSprop(p, lr=0.02, alpha=0.9, centered=True, momentum=0.8),
    "rmsprop_groups": lambda p: torch.optim.RMSprop(
        [{"params": p[:1]}, {"params": p[1:], "lr": 0.01, "momentum": 0.5, "alpha": 0.8}], lr=0.02, centered=True),
    "adagrad": lambda p: torch.optim.Adagrad(p),
    "adagrad_all": lambda p: torch.optim.Adagrad(
        p, lr=0.1, lr_decay=0.2, eps=1e-6, initial_accumulator_value=0.3, weight_decay=0.1),
    "lamb": lambda p: Lamb(p, lr=0.01),
    "lamb_no_decay_groups": lambda p: Lamb(
        [{"params": p[:1]}, {"params": p[1:], "weight_decay": 0.0}], lr=0.02, betas=(0.8, 0.99), eps=1e-8, weight_decay=0.1),
    "muon": lambda p: MuonAndAdamW(p, lr=0.02, weight_decay=0.1),
    "muon_tall": lambda p: MuonAndAdamW(p, lr=0.02, weight_decay=0.1),
    "muon_match": lambda p: MuonAndAdamW(p, lr=0.01, weight_decay=0.2, momentum=0.8, nesterov=False, ns_steps=3,
                                         ns_coefficients=(3.4, -4.7, 2.0), adjust_lr_fn="match_rms_adamw"),
    "muon_spectral_tall": lambda p: MuonAndAdamW(p, lr=0.01, weight_decay=0.2, adjust_lr_fn="spectral_unclamped"),
    "muon_sgd": lambda p: MuonAndSgd(p, 0.24, 0.6, {"lr": 0.053, "momentum": 0.85, "weight_decay": 0.1}),
    "muon_sgd_tall": lambda p: MuonAndSgd(p, 0.24, 0.6, {"lr": 0.053, "momentum": 0.85, "weight_decay": 0.1}),
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "sgd_decay": lambda p: torch.optim.SGD(p, lr=0.1, weight_decay=0.01),
    "sgd_momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=5e-4),
    "sgd_dampening": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.3),
    "sgd_nesterov": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=5e-4, nesterov=True),
    "adam": lambda p: torch.optim.Adam(p),
    "adam_decay": lambda p: torch.optim.Adam(p, lr=0.01, betas=(0.8, 0.99), eps=1e-6, weight_decay=0.1),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.1),
    "sgd_groups": lambda p: torch.optim.SGD(
        [{"params": p[:1]}, {"params": p[1:], "lr": 0.05, "momentum": 0.5, "weight_decay": 0.0}],
        lr=0.1, momentum=0.9, weight_decay=5e-4),
    "sgd_momentum_of_one_group": lambda p: torch.optim.SGD([{"params": p[:1], "momentum": 0.9}, {"params": p[1:]}], lr=0.1),
    "adam_groups": lambda p: torch.optim.Adam(
        [{"params": p[:1], "betas": (0.8, 0.99), "eps": 1e-6}, {"params": p[1:], "lr": 0.02}], lr=0.01, weight_decay=0.1),
    "adamw_no_decay": lambda p: torch.optim.AdamW(
        [{"params": p[:1]}, {"params": p[1:], "weight_decay": 0.0}], lr=0.01, weight_decay=0.1),
}


def rates(make, steps):
    parameter = nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    schedule = make(optimizer)
    out = []
    for _ in range(steps):
        out.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    return torch.tensor(out, dtype=torch.float64)


def with_warmup(steps, then):
    """Linear from 1/steps up to 1, then the other schedule from its start."""
    lr = torch.optim.lr_scheduler

    def make(optimizer):
        warm = lr.LinearLR(optimizer, start_factor=1 / steps, end_factor=1.0, total_iters=steps - 1)
        return lr.SequentialLR(optimizer, [warm, then(optimizer)], milestones=[steps])

    return make


def golden_rules():
    lr = torch.optim.lr_scheduler
    out = {f"optimizer.{name}": golden_optimizer(make, (7, 5) if "tall" in name else (5, 7))
           for name, make in OPTIMIZERS.items()}
    out["schedule.cosine"] = rates(lambda o: lr.CosineAnnealingLR(o, T_max=30, eta_min=0.001), 31)
    out["schedule.step"] = rates(lambda o: lr.StepLR(o, step_size=10, gamma=0.5), 31)
    out["schedule.warm_cosine"] = rates(
        with_warmup(5, lambda o: lr.CosineAnnealingLR(o, T_max=25, eta_min=0.001)), 31)
    out["schedule.warm_step"] = rates(with_warmup(5, lambda o: lr.StepLR(o, step_size=10, gamma=0.5)), 31)

    out["schedule.linear"] = rates(lambda o: lr.LinearLR(o, start_factor=1, end_factor=0.01, total_iters=30), 31)
    for name, options in {"onecycle": {}, "onecycle_late": {"pct_start": 0.65, "div_factor": 7, "final_div_factor": 300}}.items():
        out[f"schedule.{name}"] = rates(
            lambda o, options=options: lr.OneCycleLR(o, max_lr=0.1, total_steps=31, cycle_momentum=False, **options), 30)
    for mult in (1, 2):
        out[f"schedule.restarts_{mult}"] = rates(
            lambda o, mult=mult: lr.CosineAnnealingWarmRestarts(o, T_0=7, T_mult=mult, eta_min=0.001), 60)

    draws = Draws(3)
    a, b = nn.Parameter(torch.zeros(5, 7)), nn.Parameter(torch.zeros(3))
    a.grad, b.grad = draws.uniform(5, 7), draws.uniform(3)
    norm = nn.utils.clip_grad_norm_([a, b], 0.5)
    out["clip.norm"] = norm.reshape(1)
    out["clip.gradients"] = torch.cat([a.grad.flatten(), b.grad])
    nn.utils.clip_grad_value_([a, b], 0.05)
    out["clip.value"] = torch.cat([a.grad.flatten(), b.grad])
    save_file(out, os.path.join(OUT, "rules.safetensors"), {"torch": torch.__version__})
    print("rules:", ", ".join(out))


def golden_state_dict():
    torch.manual_seed(0)
    model = nn.Sequential()
    for name, layer in (("conv", nn.Conv2d(3, 4, 3, 1, 1)), ("norm", nn.BatchNorm2d(4)), ("relu", ReLU()),
                        ("flatten", nn.Flatten()), ("fc", nn.Linear(4 * 4 * 4, CLASSES))):
        model.add_module(name, layer)
    draws = Draws(5)
    for _ in range(3):  # so that the statistics differ from their initial values
        model(draws.uniform(8, 3, 4, 4))
    model.eval()
    save_file(model.state_dict(), os.path.join(OUT, "state_dict.safetensors"))
    logits = model(draws.uniform(2, 3, 4, 4)).detach()
    save_file({"logits": logits}, os.path.join(OUT, "logits.safetensors"), {"torch": torch.__version__})
    print("state_dict:", ", ".join(model.state_dict()))


OPERATIONS = {
    "sigmoid": torch.sigmoid, "tanh": torch.tanh, "sub": torch.sub, "mul": torch.mul, "mean": torch.mean,
    # In F32 PyTorch's tails have few correct digits, or none.
    "gelu": lambda x: nn.functional.gelu(x.double()).float(),
    "gelu_tanh": lambda x: nn.functional.gelu(x.double(), approximate="tanh").float(),
}


def golden_operations():
    """y = f(a[, b]), and the gradients of a and b from dy; a has numbers near zero and far from it."""
    draws, out = Draws(11), {}
    a, b = draws.uniform(32) * 12, draws.uniform(32)
    a[:8] = torch.tensor([0.0, 1e-8, -1e-4, 2e-3, 30.0, -30.0, -200.0, 200.0])
    out |= {"a": a.clone(), "b": b.clone(), "dy": draws.uniform(32)}
    for name, function in OPERATIONS.items():
        x = [t.clone().requires_grad_() for t in ((a, b) if name in ("sub", "mul") else (a,))]
        y = function(*x)
        y.backward(out["dy"][0] if y.dim() == 0 else out["dy"])
        out |= {f"{name}.y": y.detach().reshape(-1)} | {f"{name}.grad{i}": t.grad for i, t in enumerate(x)}
    save_file(out, os.path.join(OUT, "operations.safetensors"), {"torch": torch.__version__})
    print("operations:", ", ".join(OPERATIONS))


def main():
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    golden_model("linear", lambda: Linear(3 * 8 * 8), batch=32, size=8, lr=0.1, seed=1)
    golden_model("mlp", lambda: MLP(3 * 8 * 8), batch=32, size=8, lr=0.1, seed=1)
    # A relu input whose sign flips changes the later losses by 1e-3, and among a million inputs some come within
    # rounding of zero. Of the data seeds 1 to 119, this one has the largest distance.
    golden_model("mini_resnet", lambda: MiniResNet(3), batch=8, size=8, lr=0.005, seed=7, f16=True)
    golden_amp([("mlp", lambda: MLP(3 * 8 * 8), 32, 8, 0.1, 1, ("fc2.weight", "fc1.bias")),
                ("mini_resnet", lambda: MiniResNet(3), 8, 8, 0.005, 7, ("fc.weight", "stem.0.weight", "stem.1.weight"))])
    golden_rules()
    golden_operations()
    golden_state_dict()


if __name__ == "__main__":
    sys.exit(main())
