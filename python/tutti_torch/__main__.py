# __main__.py -- python3 -m tutti_torch.   SPDX-License-Identifier: MIT
# Apart from selftest.py, because processes that multiprocessing starts do not import a module of this name.
import sys

from .selftest import main

sys.exit(main())
