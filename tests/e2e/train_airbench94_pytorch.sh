# train_airbench94_pytorch.sh -- the recipe configs/cifar10-94.json is bench/peer/airbench94.py's, step by step, from the same weights, in the
# same order of samples: with all of its keys but random crops and flips.   timeout: 300, tier: long   SPDX-License-Identifier: MIT
#
# With the PyTorch of python3, or of the interpreter that TUTTI_TEST_PYTHON names.
. "${SOURCE_DIR:?is set by ctest}/tests/harness/train.sh"
python=$(command -v "${TUTTI_TEST_PYTHON:-python3}") && "$python" -c 'import torch, numpy' 2>/dev/null || {
    echo "skipped: ${TUTTI_TEST_PYTHON:-python3} has no PyTorch (pip install torch numpy; TUTTI_TEST_PYTHON names another interpreter)"
    exit 77
}
unset TUTTI_TEST_PYTHON
export PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$SOURCE_DIR/bench/peer
peer=$SOURCE_DIR/bench/peer/airbench94.py

# 160 images of blurred noise about a colour of each class, in CIFAR-10's files, and the peer's weights for them.
"$python" - <<'END'
import numpy as np, torch
from torch.nn import functional as F
import airbench94 as peer

torch.manual_seed(1)
colour = torch.rand(10, 3, 1, 1) * 160 + 40
for name, n in [*((f"data_batch_{i}.bin", 32) for i in range(1, 6)), ("test_batch.bin", 60)]:
    labels = torch.randint(0, 10, (n,))
    noise = F.interpolate(torch.randn(n, 3, 8, 8), 32, mode="bilinear") * 60 + torch.randn(n, 3, 32, 32) * 10
    images = (colour[labels] + noise).clamp(0, 255).byte()
    np.concatenate([labels.byte().view(-1, 1).numpy(), images.view(n, -1).numpy()], 1).tofile(name)
images, _ = peer.read(".", [f"data_batch_{i}.bin" for i in range(1, 6)])
mean, std = peer.moments(".")
net = peer.Net()
peer.whiten(net, ((images.float() / 255 - mean) / std)[:100])
torch.save(net.state_dict(), "whitened.pt")
END

# The decay is of as many samples as there are here: 2e-6 of each.
recipe="--config $SOURCE_DIR/configs/cifar10-94.json --data-dir . --epochs 4 --weight-decay 0.00008 --no-augment --flip auto --crop-padding -1
    --padding-mode constant --log-every 1 --eval-every 4 --whiten 0"
compare() { # NAME: losses of all steps, which drift as rounding does: within 0.02 after 16 steps; and the evaluation
    paste <(sed -n 's/^step \([0-9]*\) loss \([0-9.]*\).*/\1 \2/p' "$1.torch") <(figures "$1") | awk '
        { d = $2 - $4; d = d < 0 ? -d : d; if ($1 != $3 || d > ($1 == 1 ? 2e-6 : $1 < 4 ? 1e-3 : 0.02)) { print "step " $1 ": " $2 " and " $4; bad = 1 } }
        END { exit bad || NR != 16 }' || fail "$1: other losses than PyTorch's"
    "$TUTTI" eval "$1" --tta 0 --json "$1.json" >"$1.eval" || fail "eval of $1"
    paste <(field "$1.json" accuracy) <(field "$1/summary.json" val_accuracy) <(sed -n 's/^accuracy //p' "$1.torch") <(sed -n 's/^accuracy_tta //p' "$1.torch") |
        awk '{ a = $1 - $3; b = $2 - $4; exit !(a * a < 0.01 && b * b < 0.01) }' || fail "$1: other accuracies than PyTorch's"
}
train one $recipe --batch-size 40 --init whitened.pt
"$python" "$peer" . --epochs 4 --batch 40 --no-augment --init whitened.pt --evaluate >one.torch || fail "the peer"
compare one
train two $recipe --batch-size 20 --init whitened.pt -n 2
bash "$SOURCE_DIR/bench/peer/ranks.sh" 2 "$python" "$peer" . --epochs 4 --batch 20 --threads 1 --no-augment --init whitened.pt --evaluate >two.torch || fail "two ranks of the peer"
compare two

# bf16 and the recipe's own crops and flips run, and learn.
"$python" "$peer" . --epochs 4 --batch 40 --evaluate --bf16 >bf16.torch || fail "the peer in bf16"
awk '/^step/ { if ($2 == 1) first = $4; last = $4 } END { exit !(last < first) }' bf16.torch || { cat bf16.torch; fail "the peer does not learn"; }
echo "airbench94: its recipe is the peer's"
