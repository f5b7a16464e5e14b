# Milliseconds from $BEGIN to the end of a rank's first all_reduce, with PyTorch and Gloo.   SPDX-License-Identifier: MIT
import os
import time

import torch
import torch.distributed as dist

imported = time.time()
dist.init_process_group("gloo")
value = torch.full((1,), dist.get_rank() + 1.0)
dist.all_reduce(value)
begin = float(os.environ["BEGIN"])
if dist.get_rank() == 0:
    print(f"first all_reduce after {(time.time() - begin) * 1e3:.3f} ms "
          f"(imported {(imported - begin) * 1e3:.3f}), sum {value.item():g}", flush=True)
dist.destroy_process_group()
