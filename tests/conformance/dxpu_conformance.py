#!/usr/bin/env python3
"""Checks another implementation of the wire between two DxPU proxies (tlp-codec/docs/wire.md)
through a socket. README.md, beside this, says how to connect one and how to read a failure.

Exit status: 0 every case that ran passed, 1 one failed, 2 wrong arguments, 3 the implementation
could not be reached.
"""

import sys

from kit.main import main

if __name__ == "__main__":
    sys.exit(main())
