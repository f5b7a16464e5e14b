"""Models against torchvision's, and unet and airbench94 against twins that are written here: state dict, logits, gradients, and a step of SGD and of AdamW, from the same random weights.
SPDX-License-Identifier: MIT

    python torch_models.py [--library libtutti.so] [NAME...]

Tolerances, relative to the largest element: logits 1e-5; gradients 1e-4 from those in F64; parameters after a step from the same gradients
1e-5. Blocks add a tenth of what they would after initialisation: else rounding is amplified from block to block, and the gradients of
PyTorch's own resnet50 in F32 differ from those in F64 by 0.2, and mobilenet_v2's by 0.1, whose norms lie in the middle of relu6; resnet101's do so even then, and are not compared. Without torchvision the twins alone; exit code 77 if this Python has no torch."""
import copy
import ctypes
import math
import os
import sys

from tutti_structs import AdamOpts, ModelOpts, P, SgdOpts

try:
    import torch
except ImportError as e:
    print(f"skipped: {sys.executable} has no torch ({e}); TUTTI_TEST_PYTHON names another interpreter")
    sys.exit(77)
try:
    import torchvision
except ImportError as e:
    torchvision = None
    print(f"{sys.executable} has no torchvision ({e}): the models that are written here alone")
from tutti_model import FAILED, Model, arguments, check, finish

def double_conv(channels, out):
    return torch.nn.Sequential(torch.nn.Conv2d(channels, out, 3, padding=1, bias=False), torch.nn.BatchNorm2d(out), torch.nn.ReLU(),
                               torch.nn.Conv2d(out, out, 3, padding=1, bias=False), torch.nn.BatchNorm2d(out), torch.nn.ReLU())


def nested(**modules):  # parts of a state dict's names
    m = torch.nn.Module()
    for name, child in modules.items():
        m.add_module(name, child)
    return m


class UNet(torch.nn.Module):
    """Four levels, of 64 channels to 1024; names as in milesial/Pytorch-UNet."""
    def __init__(self, num_classes, width=64, levels=4):
        super().__init__()
        self.levels = levels
        self.inc = nested(double_conv=double_conv(3, width))
        for i in range(levels):
            block = torch.nn.Sequential(torch.nn.MaxPool2d(2), nested(double_conv=double_conv(width << i, width << i + 1)))
            self.add_module(f"down{i + 1}", nested(maxpool_conv=block))
        for i in range(levels):
            n = width << levels - i
            self.add_module(f"up{i + 1}", nested(up=torch.nn.ConvTranspose2d(n, n // 2, 2, 2), conv=nested(double_conv=double_conv(n, n // 2))))
        self.outc = nested(conv=torch.nn.Conv2d(width, num_classes, 1))

    def forward(self, x):
        skips = [self.inc.double_conv(x)]
        for i in range(self.levels):
            pool, conv = getattr(self, f"down{i + 1}").maxpool_conv
            skips.append(conv.double_conv(pool(skips[-1])))
        x = skips.pop()
        for i in range(self.levels):
            block, skip = getattr(self, f"up{i + 1}"), skips.pop()
            x = block.up(x)
            h, w = skip.shape[2] - x.shape[2], skip.shape[3] - x.shape[3]
            x = torch.nn.functional.pad(x, (w // 2, w - w // 2, h // 2, h - h // 2))
            x = block.conv.double_conv(torch.cat([skip, x], 1))
        return self.outc.conv(x)


class Airbench94(torch.nn.Module):
    """Of images of 32 x 32; names as in airbench94_muon.py."""
    def __init__(self, num_classes, widths=(24, 64, 256, 256)):
        super().__init__()
        self.whiten = torch.nn.Conv2d(3, widths[0], 2)
        self.layers = torch.nn.Sequential(torch.nn.GELU(), *(self.group(a, b) for a, b in zip(widths, widths[1:])), torch.nn.MaxPool2d(3))
        self.head = torch.nn.Linear(widths[-1], num_classes, bias=False)
        for name, p in self.named_parameters():
            p.requires_grad = name != "whiten.weight" and ".norm" not in name or name.endswith("bias")

    @staticmethod
    def group(channels, out):
        def norm():
            return torch.nn.BatchNorm2d(out, eps=1e-12, momentum=0.4)
        return nested(conv1=torch.nn.Conv2d(channels, out, 3, padding=1, bias=False), norm1=norm(),
                      conv2=torch.nn.Conv2d(out, out, 3, padding=1, bias=False), norm2=norm())

    def forward(self, x):
        gelu = torch.nn.functional.gelu
        x = self.layers[0](self.whiten(x))
        for group in self.layers[1:4]:
            x = gelu(group.norm1(torch.nn.functional.max_pool2d(group.conv1(x), 2)))
            x = gelu(group.norm2(group.conv2(x)))
        x = self.layers[4](x).flatten(1)
        return self.head(x) / x.shape[1]


TWINS = {"unet": UNet, "airbench94": Airbench94}


def run(t, name, side, batch, options):
    torch.manual_seed(1)
    theirs = TWINS[name](10) if name in TWINS else torchvision.models.get_model(name, num_classes=10, **options)
    ours = Model(t, name, ModelOpts(3, side, side, 10))
    state, mine = theirs.state_dict(), ours.state()
    if list(state) != list(mine):
        FAILED.append(f"{name}: the state dict is {list(mine)[:6]}..., expected {list(state)[:6]}...")
        return
    for key, p in mine.items():
        if ours.shape(p) != list(state[key].shape):
            FAILED.append(f"{name}: {key} is {ours.shape(p)}, expected {list(state[key].shape)}")
            return
    for key, value in state.items():  # statistics as after some training
        if key.endswith(("running_mean", "running_var")):
            value.copy_(torch.rand_like(value) * 0.1 + (1 if key.endswith("var") else 0))
        if name.startswith("vit"):  # what begins with zeros
            value.add_(torch.randn_like(value) * 0.02)
        elif name == "mobilenet_v2" and key.endswith((".1.weight", ".1.bias")) and value.dim() == 1:  # between relu6's kinks
            value.fill_(0.5 if key.endswith("weight") else 3)
        elif name == "unet" and key.endswith((".1.weight", ".1.bias", ".4.weight", ".4.bias")) and value.dim() == 1:  # above relu's kink
            value.fill_(0.5 if key.endswith("weight") else 3)
        elif key.endswith(("bn3.weight" if "layer1.0.bn3.weight" in state else "bn2.weight")) and name.startswith("resnet"):
            value.mul_(0.1)
    theirs.load_state_dict(state)
    ours.load(state)
    x, labels = torch.randn(batch, 3, side, side), torch.arange(batch) % 10
    if name == "unet":  # a label for each pixel
        labels = (torch.arange(batch * side * side) // 7 % 10).reshape(batch, side, side)
    theirs.eval()
    with torch.no_grad():
        wanted = theirs(x)
    errors = [check(f"{name}: logits in eval", ours.logits(x, wanted, True), wanted, 1e-5)]
    exact = copy.deepcopy(theirs).double()
    for model, inputs in ((theirs, x), (exact, x.double())):
        model.train()
        torch.nn.functional.cross_entropy(model(inputs), labels).backward()
    ours.backward(x, labels)
    worst = worst_of_theirs = 0
    least = 1e-3 * max(q.grad.abs().max().item() for q in exact.parameters() if q.requires_grad)  # a bias before a norm has none but rounding
    found = {}
    for (key, p), q in zip(theirs.named_parameters(), exact.parameters()):
        if not p.requires_grad:
            continue
        off = (p.grad.double() - q.grad).abs().max().item() / max(q.grad.abs().max().item(), least)
        worst_of_theirs = max(worst_of_theirs, off)
        found[key] = ours.read(mine[key], p.grad, True)
        worst = max(worst, check(f"{name}: gradient of {key}", found[key], q.grad, math.inf if name == "resnet101" else 1e-4, least))
    errors += [worst, worst_of_theirs]
    before = {k: v.clone() for k, v in theirs.state_dict().items()}
    for optimizer, opts, make in (("sgd", SgdOpts(0.01), lambda p: torch.optim.SGD(p, lr=0.01)),
                                  ("adamw", AdamOpts(lr=0.01, weight_decay=0.01), lambda p: torch.optim.AdamW(p, lr=0.01))):
        p = P()
        for key, gradient in found.items():
            theirs.get_parameter(key).grad = gradient.clone()
        t.must(getattr(t.c, f"tutti_{optimizer}_new")(ctypes.byref(p), ours.module, ctypes.byref(opts)))
        t.must(t.c.tutti_optim_step(p))
        make(theirs.parameters()).step()
        errors.append(max(check(f"{name}: {key} after {optimizer}", ours.read(mine[key], q), q.detach(), 1e-5)
                          for key, q in theirs.named_parameters()))
        t.c.tutti_optim_free(p)
        theirs.load_state_dict(before)
        ours.load(before)
    print(f"{name}: {len(state)} tensors; off by at most {errors[0]:.1e} in logits, {errors[1]:.1e} in gradients (PyTorch's F32: "
          f"{errors[2]:.1e}), {errors[3]:.1e} and {errors[4]:.1e} after a step of SGD and AdamW")
    t.c.tutti_model_free(ours.p)


def main():
    t, is_asked = arguments()
    for name, side, batch, options in (("resnet18", 64, 4, {}), ("resnet34", 64, 4, {}), ("resnet50", 64, 4, {}), ("resnet101", 64, 4, {}),
                                       ("mobilenet_v2", 64, 8, {"dropout": 0}), ("vit_b_16", 64, 2, {"image_size": 64}),
                                       ("unet", 36, 4, {}), ("airbench94", 32, 8, {})):  # 36: up2 and up3 pad
        if is_asked(name) and (torchvision or name in TWINS):
            run(t, name, side, batch, options)
    finish()


if __name__ == "__main__":
    main()
