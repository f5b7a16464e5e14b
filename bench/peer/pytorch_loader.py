# Images per second of PyTorch's DataLoader over an ImageFolder (ToTensor, Normalize, workers, shuffled).
#   pytorch_loader.py FOLDER WORKERS BATCH SECONDS [IMAGE_SIZE]                          SPDX-License-Identifier: MIT
# IMAGE_SIZE: RandomResizedCrop to it, and RandomHorizontalFlip.
import sys
import time

import torch
from torchvision import datasets, transforms

folder, workers, batch, seconds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
steps = [transforms.ToTensor(), transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))]
if len(sys.argv) > 5:
    steps = [transforms.RandomResizedCrop(int(sys.argv[5])), transforms.RandomHorizontalFlip()] + steps
torch.set_num_threads(1)
data = datasets.ImageFolder(folder, transforms.Compose(steps))
loader = torch.utils.data.DataLoader(data, batch, shuffle=True, num_workers=workers,
                                     persistent_workers=workers > 0)


def batches():
    while True:
        yield from loader


images, begin = 0, None
for i, (x, y) in enumerate(batches()):
    if begin:
        images += len(x)
        if time.monotonic() - begin >= seconds:
            break
    elif i >= 2 * workers + 2:  # batches that were prefetched are not counted
        begin = time.monotonic()
print(f"{images / (time.monotonic() - begin):.1f} images/s", flush=True)
