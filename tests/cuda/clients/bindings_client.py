"""NVIDIA's own bindings, cuda-bindings 12 or 13: everything through cuGetProcAddress."""

import ctypes

from cuda.bindings import driver


def ok(answer):
    assert answer[0] == driver.CUresult.CUDA_SUCCESS, answer
    return answer[1] if len(answer) == 2 else answer[1:]


BYTES = 4096
ok(driver.cuInit(0))
context = ok(driver.cuDevicePrimaryCtxRetain(ok(driver.cuDeviceGet(0))))
ok(driver.cuCtxSetCurrent(context))
module = ok(driver.cuModuleLoadData(b"kernels\0"))
kernel = ok(driver.cuModuleGetFunction(module, b"last_10us"))
stream = ok(driver.cuStreamCreate(0))
memory = ok(driver.cuMemAlloc(BYTES))
there = ctypes.create_string_buffer(bytes(range(256)) * 16, BYTES)
back = ctypes.create_string_buffer(BYTES)
ok(driver.cuMemcpyHtoDAsync(memory, ctypes.addressof(there), BYTES, stream))
for _ in range(3):
    ok(driver.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, 0, 0))
ok(driver.cuMemcpyDtoHAsync(ctypes.addressof(back), memory, BYTES, stream))
ok(driver.cuStreamSynchronize(stream))
assert back.raw == there.raw
ok(driver.cuMemsetD8(memory, 7, BYTES))
ok(driver.cuMemcpyDtoH(ctypes.addressof(back), memory, BYTES))
assert back.raw == bytes([7]) * BYTES
print("done")
