#!/bin/bash
# loader.sh: images per second from an image folder, Tutti compared with PyTorch's DataLoader (torchvision's ImageFolder, ToTensor,
# Normalize), the same workers and batch, in one run.
#
#   IMAGES=DIR bench/loader.sh    DIR/train/CLASS/FILE.jpg, DIR/test/...; e.g. CIFAR-10's 32x32 images
#   PYTHON=python3 IMAGES=DIR WORKERS="1 2" BATCH=64 SECONDS_EACH=4 ROUNDS=5 bench/loader.sh
#
# Measures DIR as it is; 224x224 images made from it (300 of each class, PYTHON with PIL); and random crops of
# those to 128x128. PYTHON must be able to import torchvision; if it cannot, only Tutti is measured.
. "$(dirname "$0")/lib.sh"
PYTHON=${PYTHON:-python3} IMAGES=${IMAGES:-} WORKERS=${WORKERS:-1 2} BATCH=${BATCH:-64} SECONDS_EACH=${SECONDS_EACH:-4}
ROUNDS=${ROUNDS:-5}
peer_folder=bench/peer

[ -d "$IMAGES/train" ] || {
    echo "loader.sh: no image folder; name one, as IMAGES=DIR, with DIR/train/CLASS/FILE.jpg and DIR/test"
    exit 0
}
peer=yes
"$PYTHON" -c 'import torchvision' 2>/dev/null || peer=
[ -n "$peer" ] || echo "loader.sh: no PyTorch peer ($PYTHON with torchvision): ours only"

loader() { # FOLDER WORKERS FLAGS...
    "$TUTTI" bench loader --data folder --data-dir "$1" --workers "$2" --batch-size "$BATCH" --seconds "$SECONDS_EACH" \
        --json "$work/rows.json" "${@:3}" >/dev/null
    sed -n 's/.*"images_per_s": *\([0-9.]*\).*/\1/p' "$work/rows.json"
}
theirs() { # FOLDER WORKERS [IMAGE_SIZE]
    "$PYTHON" "$peer_folder/pytorch_loader.py" "$1/train" "$2" "$BATCH" "$SECONDS_EACH" "${@:3}" | sed -n 's/ images.*//p'
}
measure() { # NAME FOLDER IMAGE_SIZE
    local workers flags=(--augment false) size=()
    [ "$3" = 0 ] || flags=(--augment true --image-size "$3") size=("$3")
    for workers in $WORKERS; do
        : >"$work/ours" && : >"$work/theirs"
        for _ in $(seq "$ROUNDS"); do
            loader "$2" "$workers" "${flags[@]}" >>"$work/ours"
            [ -z "$peer" ] || theirs "$2" "$workers" "${size[@]}" >>"$work/theirs"
        done
        if [ -n "$peer" ]; then
            printf '| %s | %d | %.0f | %.0f | %s |\n' "$1" "$workers" "$(median <"$work/ours")" "$(median <"$work/theirs")" \
                "$(ratio "$(median <"$work/ours")" "$(median <"$work/theirs")")"
        else
            printf '| %s | %d | %.0f | | |\n' "$1" "$workers" "$(median <"$work/ours")"
        fi
    done
}

printf '%s\n\n' "images/s, batch $BATCH, medians of $ROUNDS rounds of $SECONDS_EACH s"
echo "| images | workers | ours | PyTorch | ours / PyTorch |"
echo "|---|---|---|---|---|"
measure "as they are" "$IMAGES" 0
if "$PYTHON" -c 'import PIL' 2>/dev/null; then
    "$PYTHON" "$peer_folder/make_images.py" "$IMAGES" "$work/224" 224 300
    measure "224x224" "$work/224" 0
    measure "224x224, random crops to 128x128" "$work/224" 128
fi
