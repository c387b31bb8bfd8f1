"""NVIDIA's runtime: it looks up all names that it has of the driver at its first call. Its path is
the argument."""

import ctypes
import sys

runtime = ctypes.CDLL(sys.argv[1])
count = ctypes.c_int(-1)
code = runtime.cudaGetDeviceCount(ctypes.byref(count))
# It finds that the driver is not NVIDIA's (103), or that the driver's private tables are not there.
print("done", code, count.value)
