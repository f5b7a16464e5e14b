# docs_env.sh -- docs/env.md matches the tables.   SPDX-License-Identifier: MIT
"$SOURCE_DIR/tools/make-env-doc" "$TUTTI" - | diff - "$SOURCE_DIR/docs/env.md" ||
    { echo "FAILED: docs/env.md is old: run tools/make-env-doc $TUTTI"; exit 1; }
