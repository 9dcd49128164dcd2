#!/usr/bin/env python3
"""Writes the utilisation of DRAM and of the tensor pipe by NVML's GPM, every half second, until it is ended. usage: gpm.py FILE"""

import json
import sys
import time

try:
    import pynvml as nvml
except ImportError:
    from vllm.third_party import pynvml as nvml

TENSOR, DRAM = 5, 10


def main(path):
    nvml.nvmlInit()
    device = nvml.nvmlDeviceGetHandleByIndex(0)
    samples = [nvml.nvmlGpmSampleAlloc() for _ in range(2)]
    nvml.nvmlGpmSampleGet(device, samples[0])
    with open(path, "w", encoding="ascii") as file:
        began = time.time_ns()
        while True:
            time.sleep(0.5)
            nvml.nvmlGpmSampleGet(device, samples[1])
            wanted = nvml.c_nvmlGpmMetricsGet_t()
            wanted.version, wanted.numMetrics = 1, 2
            wanted.sample1, wanted.sample2 = samples
            wanted.metrics[0].metricId, wanted.metrics[1].metricId = TENSOR, DRAM
            nvml.nvmlGpmMetricsGet(wanted)
            ended = time.time_ns()
            row = {"start": began, "end": ended, "tensor_pct": wanted.metrics[0].value, "dram_pct": wanted.metrics[1].value}
            file.write(json.dumps(row) + "\n")
            file.flush()
            began, samples = ended, samples[::-1]


if __name__ == "__main__":
    main(sys.argv[1])
