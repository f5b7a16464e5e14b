# Compressed gradients train MiniResNet on the digits to the accuracy of plain ones, within 1.5 points. Of 359 images
# that is 5: two trainings that differ in roundings alone are 2 apart (one standard deviation of 98% of 359 is 2.7 images).
# SPDX-License-Identifier: MIT    tier: long    timeout: 400
. "${SOURCE_DIR:?is set by ctest}/tests/harness/train.sh"
export TUTTI_KERNELS=${TUTTI_KERNELS:-auto}

for hook in none bf16 powersgd; do
    train $hook -n 2 --comm-hook $hook
    echo "$hook: accuracy $(field $hook/summary.json val_accuracy), $(field $hook/summary.json wire_bytes) of" \
        "$(field $hook/summary.json gradient_bytes) bytes on the wire, $(field $hook/summary.json seconds) s"
    awk -v a="$(field none/summary.json val_accuracy)" -v b="$(field $hook/summary.json val_accuracy)" \
        'BEGIN { d = a - b; exit !(d <= 0.015 && d >= -0.015) }' || fail "$hook: accuracies differ by more than 1.5 points"
done
