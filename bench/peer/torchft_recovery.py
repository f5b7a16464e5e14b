# Workers of torchft, on the CPU with Gloo, killed and replaced one after the other; then the same steps undisturbed. Prints a line of
# JSON: seconds until a step that began after the kill is committed, the longest time without a commit until the replacement's first,
# seconds until that, samples never trained on, whether the weights are those of the undisturbed run.
# SPDX-License-Identifier: MIT
#
#   python3 bench/peer/torchft_recovery.py [KEY=VALUE]...     workers=3 kills=3 shard_ms=5 heartbeat_ms=1000
#
# PyPI: torch torchft opentelemetry-sdk opentelemetry-exporter-otlp-proto-http. A step is one batch of 32 for each worker, drawn
# from (step, worker), and shard_ms of waiting in place of a larger model's arithmetic: as in bench/ddp_elastic.c. Gradients are averaged by
# Manager.allreduce: if a connection breaks while torchft's DistributedDataParallel (0.2.0) waits, it fails with an assertion, and
# the survivors die too.
import hashlib
import json
import os
import random
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

KEYS = {"workers": 3, "kills": 3, "shard_ms": 5, "heartbeat_ms": 1000}
BATCH, FEATURES, HIDDEN, CLASSES, RATE = 32, 64, 256, 10, 0.05
PATIENCE_S, SETTLED_STEPS, REST_STEPS = 60, 30, 60


def log(folder, *words):
    """A whole line at once: workers share the file."""
    fd = os.open(os.path.join(folder, "log"), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(fd, (" ".join(map(str, words)) + "\n").encode())
    os.close(fd)


def read_number(path):
    try:
        with open(path, encoding="ascii") as f:
            return int(f.read() or 0)
    except (FileNotFoundError, ValueError):
        return 0


def work(worker, keys, folder, port, first):
    from datetime import timedelta

    import torch
    import torch.distributed as dist
    from torch import nn
    from torchft import Manager, Optimizer, ProcessGroupGloo

    torch.set_num_threads(1)
    torch.manual_seed(1)
    limit = timedelta(seconds=10)
    model = nn.Sequential(nn.Linear(FEATURES, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, CLASSES))
    sgd = torch.optim.SGD(model.parameters(), lr=RATE)
    generator = torch.Generator()

    def state():
        return {"model": model.state_dict(), "optim": sgd.state_dict()}

    def load(kept):
        model.load_state_dict(kept["model"])
        sgd.load_state_dict(kept["optim"])

    # The initial workers start together, or some would train alone until the others have imported their modules.
    open(os.path.join(folder, f"ready.{worker}"), "w").close()
    while first and sum(name.startswith("ready.") for name in os.listdir(folder)) < keys["workers"]:
        time.sleep(0.01)
    store = dist.TCPStore("127.0.0.1", 0, is_master=True)
    manager = Manager(pg=ProcessGroupGloo(timeout=limit), state_dict=state, load_state_dict=load, min_replica_size=1,
                      replica_id=f"worker{worker}", lighthouse_addr=f"http://127.0.0.1:{port}", hostname="127.0.0.1",
                      store_addr="127.0.0.1", store_port=store.port, rank=0, world_size=1,
                      timeout=limit, quorum_timeout=limit, connect_timeout=limit)
    optim = Optimizer(manager, sgd)
    end = os.path.join(folder, "end")
    while not 0 < read_number(end) <= manager.current_step():
        step = manager.current_step()
        generator.manual_seed(step * 4096 + worker)
        x = torch.randn(BATCH, FEATURES, generator=generator)
        y = torch.randint(0, CLASSES, (BATCH,), generator=generator)
        optim.zero_grad()
        time.sleep(keys["shard_ms"] / 1e3)
        nn.functional.cross_entropy(model(x), y).backward()
        gradients = torch.cat([p.grad.flatten() for p in model.parameters()])
        manager.allreduce(gradients).wait()
        for p, mean in zip(model.parameters(), gradients.split([p.numel() for p in model.parameters()])):
            p.grad.copy_(mean.view_as(p))
        before = manager.current_step()
        optim.step()
        if manager.current_step() > before:
            log(folder, time.time(), os.getpid(), manager.current_step(), manager.num_participants())
    digest = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters())).hexdigest()[:32]
    log(folder, "digest", os.getpid(), digest)
    manager.shutdown(wait=False)
    os._exit(0)


class Job:
    def __init__(self, keys):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.port = s.getsockname()[1]
        self.keys, self.folder, self.workers = keys, tempfile.mkdtemp(prefix="torchft-"), {}
        self.commits, self.digests = [], []  # (time, pid, step, participants) of each commit
        self.lines = open(os.path.join(self.folder, "log"), "a+", encoding="ascii")
        self.lines.seek(0)
        self.quiet = open(os.path.join(self.folder, "output"), "ab")
        self.lighthouse = subprocess.Popen(
            [os.path.join(os.path.dirname(sys.executable), "torchft_lighthouse"), "--min_replicas", "1", "--quorum_tick_ms", "50",
             "--join_timeout_ms", "1000", "--heartbeat_timeout_ms", str(keys["heartbeat_ms"]), "--bind", f"[::]:{self.port}"],
            stdout=self.quiet, stderr=self.quiet)
        for worker in range(keys["workers"]):
            self.start(worker, True)

    def start(self, worker, first):
        arguments = [sys.executable, os.path.abspath(__file__), "worker", str(worker), json.dumps(self.keys), self.folder,
                     str(self.port), str(int(first))]
        self.workers[worker] = subprocess.Popen(arguments, stdout=self.quiet, stderr=self.quiet)

    def read(self):
        while True:
            at = self.lines.tell()
            line = self.lines.readline()
            if not line.endswith("\n"):
                self.lines.seek(at)
                return
            words = line.split()
            if words[0] == "digest":
                self.digests.append(words[2])
            else:
                self.commits.append((float(words[0]), int(words[1]), int(words[2]), int(words[3])))

    def wait_for(self, condition, what):
        until = time.time() + PATIENCE_S
        while not condition():
            self.read()
            if time.time() > until:
                raise SystemExit(f"torchft_recovery.py: {what} did not come within {PATIENCE_S} s; see {self.folder}/output")
            time.sleep(0.05)

    def settled(self, since, pid=None):
        """All have committed so many steps together, `pid` among them."""
        def is_so():
            commits = [c for c in self.commits if c[0] > since and c[3] == self.keys["workers"]]
            mine = [c for c in commits if c[1] == pid] if pid else commits
            return len(mine) >= SETTLED_STEPS * (1 if pid else self.keys["workers"])
        return is_so

    def finish(self, step=None):
        """At `step`, or some after the last; returns the step."""
        if not step:
            step = max(c[2] for c in self.commits) + REST_STEPS
        path = os.path.join(self.folder, "end")
        with open(path + ".new", "w", encoding="ascii") as f:
            f.write(str(step))
        os.rename(path + ".new", path)
        self.wait_for(lambda: all(w.poll() is not None for w in self.workers.values()), "the end of all workers")
        return step

    def close(self):
        for process in [*self.workers.values(), self.lighthouse]:
            if process.poll() is None:
                process.kill()
            process.wait()
        self.read()
        if sys.exc_info()[0] is None:
            shutil.rmtree(self.folder)


def disturb(job, keys):
    """Kills in turn; of each the seconds until the next step, the pause, how long the replacement took."""
    following, pauses, replaced = [], [], []
    job.wait_for(job.settled(0), "the first steps together")
    for _ in range(keys["kills"]):
        victim = random.randrange(keys["workers"])
        old = job.workers[victim]
        killed = time.time()
        old.send_signal(signal.SIGKILL)
        old.wait()
        job.start(victim, False)
        new = job.workers[victim].pid
        job.wait_for(job.settled(killed, new), "the replacement's steps")
        back = min(t for t, pid, _, _ in job.commits if pid == new)
        others = sorted(t for t, pid, _, _ in job.commits if pid not in (new, old.pid) and t <= back)
        at_hand = max(step for t, _, step, _ in job.commits if t <= killed) + 1
        following.append(min(t for t, pid, step, _ in job.commits if pid != old.pid and step > at_hand) - killed)
        last = max(t for t in others if t <= killed)
        times = [last] + [t for t in others if t > killed]
        pauses.append(max(b - a for a, b in zip(times, times[1:])))
        replaced.append(back - killed)
    return following, pauses, replaced


def main():
    keys = dict(KEYS, **{k: int(v) for k, v in (a.split("=", 1) for a in sys.argv[1:])})
    job = Job(keys)
    try:
        following, pauses, replaced = disturb(job, keys)
        end = job.finish()
    finally:
        job.close()
    trained = {step: n for _, _, step, n in job.commits}
    calm = Job(keys)
    try:
        calm.finish(end)
    finally:
        calm.close()
    calm_trained = {step: n for _, _, step, n in calm.commits}
    print(json.dumps({
        "system": "torchft", "workers": keys["workers"], "kills": keys["kills"], "heartbeat_ms": keys["heartbeat_ms"], "steps": end,
        "next_s": round(statistics.median(following), 4), "next_most_s": round(max(following), 4),
        "pause_s": round(statistics.median(pauses), 4), "pause_most_s": round(max(pauses), 4),
        "replaced_s": round(statistics.median(replaced), 4), "replaced_most_s": round(max(replaced), 4),
        "samples": end * keys["workers"] * BATCH,
        "samples_lost": sum(BATCH * (keys["workers"] - trained.get(s, 0)) for s in range(1, end + 1)),
        "samples_lost_undisturbed": sum(BATCH * (keys["workers"] - calm_trained.get(s, 0)) for s in range(1, end + 1)),
        "replicas_equal": len(set(job.digests)) == 1, "equal": set(job.digests) == set(calm.digests)}))


if __name__ == "__main__":
    if sys.argv[1:2] == ["worker"]:
        work(int(sys.argv[2]), json.loads(sys.argv[3]), sys.argv[4], int(sys.argv[5]), sys.argv[6] == "1")
    else:
        main()
