# diff_pytorch.sh -- a port beside its original in PyTorch: equal within rounding, and a mistake in it is named.   timeout: 400
# tier: long
# SPDX-License-Identifier: MIT
#
# With the PyTorch of python3, or of the interpreter that TUTTI_TEST_PYTHON names.
. "${SOURCE_DIR:?is set by ctest}/tests/harness/train.sh"
. "$SOURCE_DIR/tests/harness/diff.sh"
python=$(command -v "${TUTTI_TEST_PYTHON:-python3}") && "$python" -c 'import torch, numpy' 2>/dev/null || {
    echo "skipped: ${TUTTI_TEST_PYTHON:-python3} has no PyTorch (pip install torch numpy; TUTTI_TEST_PYTHON names another interpreter)"
    exit 77
}
export PYTHONDONTWRITEBYTECODE=1
unset TUTTI_TEST_PYTHON
cp "$SOURCE_DIR/python/tutti_torch/record.py" .

# The original: model mlp on the digits, the batches of DistributedSampler. For each MISTAKE a record; and the first weights.
cat >original.py <<'END'
import os, re, sys
import torch
import torch.distributed as dist
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data.distributed import DistributedSampler
from record import Record

rows = re.findall(r'^"(.{64})(.)",$', open(os.path.join(os.environ["SOURCE_DIR"], "src/data/format/digits.inc")).read(), re.M)
rows = [row for i, row in enumerate(rows) if i % 5 != 4]  # the training part
pixels = torch.tensor([[(int(c, 17) * 255 + 8) // 16 for c in row[0]] for row in rows]).float()
images = ((pixels / 255 - 0.3059) / 0.3763).reshape(-1, 1, 8, 8)
labels = torch.tensor([int(row[1]) for row in rows])


class MLP(torch.nn.Module):
    def __init__(self, mistake):
        super().__init__()
        self.fc1, self.fc2, self.mistake = torch.nn.Linear(64, 256), torch.nn.Linear(256, 10), mistake

    def forward(self, x):
        h = self.fc1(x.flatten(1))
        return self.fc2(F.gelu(h) if self.mistake == "gelu" else F.relu(h))


def run(mistake):
    torch.manual_seed(3)
    model = MLP(mistake)
    if rank == 0:
        torch.save(model.state_dict(), "weights.pt")
    if mistake == "mirrored":
        with torch.no_grad():
            model.fc1.weight.copy_(model.fc1.weight.flip(1))
    parameters = list(model.parameters())
    if mistake == "rates":
        parameters = [{"params": parameters[:2]}, {"params": parameters[2:], "lr": 0.01}]
    optimizer = torch.optim.SGD(parameters, lr=0.02, momentum=0.8 if mistake == "momentum" else 0.9,
                                weight_decay=0.0005, nesterov=mistake == "nesterov")
    net = DistributedDataParallel(model) if ranks > 1 else model
    record = Record(net, optimizer, mistake)
    order = list(DistributedSampler(images, num_replicas=ranks, rank=rank, shuffle=True, seed=0))
    for step in range(4):
        chosen = order[32 * step : 32 * step + 32]
        x, y = images[chosen], labels[chosen]
        with record.step(chosen, x=x, y=y) as recorded:
            output = net(x)
            loss = F.cross_entropy(output, y, label_smoothing=0.1 if mistake == "smoothing" else 0)
            if mistake == "nan" and step == 2:
                loss = loss * float("nan")
            recorded.loss(loss)
            optimizer.zero_grad()
            loss.backward()
            if mistake == "clipped":
                recorded.reduced()
                torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
    record.close()


rank, ranks = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
if ranks > 1:
    dist.init_process_group("gloo")
for name in sys.argv[1:]:
    run(name)
if ranks > 1:
    dist.destroy_process_group()
END
OMP_NUM_THREADS=1 "$python" original.py none mirrored gelu smoothing momentum nesterov clipped rates nan >original.out 2>&1 || { cat original.out && fail "the original"; }
keys=(--model mlp --init weights.pt --augment false --schedule constant --warmup-epochs 0 --max-steps 4 --trace-digests --threads 1)
train port "${keys[@]}"
equal none port --tolerance 1e-5
says diff '^equal: 4 recorded steps of [12] ranks? \([0-9]+ entries\), within 1e-05$'
differ none port
says diff '^They computed with other kernels, whose rounding differs: --tolerance [0-9e.-]+ looks beyond it'
mistaken() { # MISTAKE VERDICT: a regular expression
    differ "$1" port --tolerance 1e-5
    says diff "^different: $2"
}
mistaken mirrored 'before the first step, rank 0: the initial value of fc1.weight$'
mistaken gelu 'step 1, rank 0: the result of module fc2$'
mistaken smoothing 'step 1, rank 0: the loss$'
mistaken momentum "step 2, rank 0: the optimizer's state fc[12]\\.(weight|bias)\\.momentum_buffer$"
mistaken nesterov 'step 1, rank 0: parameter fc'
mistaken clipped "step 1, rank 0: the optimizer's state fc"
mistaken rates 'step 1, rank 0: the learning rate of fc2.weight$'
says diff '^cause: the learning rate of fc2.weight: 0.01[0-9]* in rates and 0.0(2|19)[0-9]* in port$'
train rates.port "${keys[@]}" --lr-groups fc2=0.5
equal rates rates.port --tolerance 1e-5
mistaken nan 'step 3, rank 0: the loss$'
says diff '^  A  nan: .*, norm NaN, projection NaN$'
says diff '^NaN first in nan: step 3, rank 0: the loss$'
train limit "${keys[@]}" --clip-grad-norm 0.5
equal clipped limit --tolerance 1e-5
differ none limit --tolerance 1e-5
# Two ranks, with DistributedDataParallel
OMP_NUM_THREADS=1 timeout 120 "$TUTTI" run -n 2 "$python" original.py two >original.out 2>&1 || { cat original.out && fail "the original on two ranks"; }
train port.2 "${keys[@]}" -n 2
equal two port.2 --tolerance 1e-5
says diff '^equal: 4 recorded steps of [12] ranks? \([0-9]+ entries\), within 1e-05$'
train port.3 "${keys[@]}" -n 2 --comm-hook bf16
differ two port.3 --tolerance 1e-5
says diff '^different: step 1, rank 0: the reduced gradient of fc[12].(weight|bias)$'
