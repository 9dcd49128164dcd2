"""One rank under ncu: a range of the whole process by which ncu leaves out the other ranks, and one that names the measured rank.

ncu reaches every process of a launcher and filters their kernels by ranges only. The rank to measure is in `ROOFGAP_COUNTERS_RANK`.
"""

import os

OTHER = "roofgap.other_rank"
MEASURED = "roofgap.counters rank="
# Variables of launchers for the rank and the number of ranks.
LAUNCHERS = (
    ("RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
)

_nvtx = None
_open = None


def after_import(nvtx):
    """Opens the range of the rank that the launcher told, before the program can launch a kernel."""
    global _nvtx
    _nvtx = nvtx
    for rank, size in LAUNCHERS:
        rank, size = os.environ.get(rank, ""), os.environ.get(size, "")
        if rank.isdigit() and size.isdigit() and int(size) > 1:
            tell(int(rank), int(size))
            return


def tell(rank, size):
    """Opens the range of a rank; the process group knows it better than the launcher does."""
    global _open
    wanted = os.environ.get("ROOFGAP_COUNTERS_RANK", "")
    if _nvtx is None or not wanted.isdigit() or size < 2:
        return
    name = f"{MEASURED}{rank} world={size}" if rank == int(wanted) else OTHER
    if _open is None or _open[0] != name:
        before, _open = _open, (name, _nvtx.range_start(name))
        if before is not None:
            _nvtx.range_end(before[1])
