# Makes an image folder of JPEGs of another size from one: SOURCE/SPLIT/CLASS/FILE.jpg scaled to SIDE x SIDE.
#   make_images.py SOURCE DEST SIDE COUNT          COUNT of each class                   SPDX-License-Identifier: MIT
import os
import sys

from PIL import Image

source, dest, side, count = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
for split in ("train", "test"):
    for name in sorted(os.listdir(os.path.join(source, split))):
        folder = os.path.join(dest, split, name)
        os.makedirs(folder, exist_ok=True)
        for file in sorted(os.listdir(os.path.join(source, split, name)))[:count]:
            image = Image.open(os.path.join(source, split, name, file)).convert("RGB")
            image.resize((side, side), Image.BICUBIC).save(os.path.join(folder, file), quality=90)
