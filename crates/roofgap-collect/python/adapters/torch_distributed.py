"""torch.distributed: one range for each collective and transfer of any backend, and one mark for each process group.

The names are read by the analysis: `roofgap.collective all_reduce group=0 desc=default_pg size=2 in=4096 out=4096 on=host wait=1 seq=17`
and `roofgap.group rank=0 world=2 name=0 size=2 ranks=0-1 desc=default_pg`. Bytes are those of this rank. Collectives of a group are
numbered from 0 in the order of their calls, transfers between two ranks by themselves; the numbers are the same on every rank.
"""

import functools
import inspect
import os
import sys
import threading

# Parameters that hold the input and the output of this rank.
COLLECTIVES = {
    "all_reduce": ("tensor", "tensor"),
    "all_reduce_coalesced": ("tensors", "tensors"),
    "all_gather": ("tensor", "tensor_list"),
    "all_gather_into_tensor": ("input_tensor", "output_tensor"),
    "reduce_scatter": ("input_list", "output"),
    "reduce_scatter_tensor": ("input", "output"),
    "all_to_all": ("input_tensor_list", "output_tensor_list"),
    "all_to_all_single": ("input", "output"),
    "broadcast": ("tensor", "tensor"),
    "reduce": ("tensor", "tensor"),
    "gather": ("tensor", "gather_list"),
    "scatter": ("scatter_list", "tensor"),
    "barrier": (None, None),
}
# Parameters that hold the tensor and the other rank.
TRANSFERS = {"send": "dst", "isend": "dst", "recv": "src", "irecv": "src"}
# Functions that return before they have ended, unlike those whose `async_op` says so.
IMMEDIATE = ("isend", "irecv")
# Backends whose collectives run kernels.
ON_DEVICE = ("nccl", "xccl", "hccl", "rccl")


def patch(module, load):
    """Annotates the functions of `torch.distributed.distributed_c10d`, before `torch.distributed` imports them from it."""
    shared = load("roofgap_steps")
    if not shared.LABELS:
        return
    ranges = Ranges(module, shared)
    for name in (*COLLECTIVES, *TRANSFERS):
        original = getattr(module, name, None)
        if callable(original):
            setattr(module, name, ranges.wrap(name, original))
    start = getattr(module, "init_process_group", None)
    if callable(start):

        @functools.wraps(start)
        def init_process_group(*arguments, **keywords):
            result = start(*arguments, **keywords)
            shared.ignoring_errors(ranges.mark_group, module.group.WORLD)
            if os.environ.get("ROOFGAP_COUNTERS_RANK"):
                shared.ignoring_errors(lambda: load("roofgap_counters_rank").tell(module.get_rank(), module.get_world_size()))
            return result

        module.init_process_group = init_process_group


class Ranges:
    """Ranges of the collectives of this process."""

    def __init__(self, module, shared):
        self._module = module
        self._shared = shared
        self._steps = shared.Steps()
        self._numbers = {}
        self._marked = set()
        self._lock = threading.Lock()
        self._inside = threading.local()

    def wrap(self, name, original):
        """Returns a function that opens a range around a collective. A collective inside another is a part of it."""
        # Resolved once; the frames of the library's own decorators hide the parameters.
        signature = inspect.signature(original)

        @functools.wraps(original)
        def annotated(*arguments, **keywords):
            if getattr(self._inside, "call", False) or is_compiling():
                return original(*arguments, **keywords)
            text = self._shared.ignoring_errors(self._name, name, signature, arguments, keywords)
            if text is None:
                return original(*arguments, **keywords)
            self._inside.call = True
            try:
                return self._steps.around(text, original, *arguments, **keywords)
            finally:
                self._inside.call = False

        return annotated

    def mark_group(self, group):
        """Marks a process group that this rank belongs to, once; returns its name and size."""
        module = self._module
        name, description = clean(getattr(group, "group_name", "")), clean(getattr(group, "group_desc", ""))
        size = group.size()
        if id(group) not in self._marked:
            self._marked.add(id(group))
            ranks = spans(module.get_process_group_ranks(group))
            place = f"rank={module.get_rank()} world={module.get_world_size()}"
            self._steps.mark(f"roofgap.group {place} name={name} size={size} ranks={ranks} desc={description}")
        return name, description, size

    def _name(self, function, signature, arguments, keywords):
        """Returns the name of the range; None outside of the group, where the call does nothing."""
        module = self._module
        given = signature.bind(*arguments, **keywords).arguments
        group = given.get("group")
        group = module.group.WORLD if group is None else group
        if group is None or group == module.GroupMember.NON_GROUP_MEMBER:
            return None
        name, description, size = self.mark_group(group)
        if function in TRANSFERS:
            source, target = ("tensor", None) if TRANSFERS[function] == "dst" else (None, "tensor")
            peer = given.get(TRANSFERS[function])
            in_group = given.get(f"group_{TRANSFERS[function]}")
            if peer is None and in_group is not None:
                peer = module.get_global_rank(group, in_group)
            shown = function.removeprefix("i")
        else:
            source, target = COLLECTIVES[function]
            peer, shown = None, function
        # A list that only the root passes is absent on the others.
        sent, received = given.get(source), given.get(target)
        fields = [f"roofgap.collective {shown}", f"group={name}", f"desc={description}", f"size={size}"]
        fields += [f"in={bytes_of(sent)}"] if sent is not None else []
        fields += [f"out={bytes_of(received)}"] if received is not None else []
        on_device = self._backend(group, sent if sent is not None else received) in ON_DEVICE
        waits = not given.get("async_op", False) and function not in IMMEDIATE
        fields += [f"on={'device' if on_device else 'host'}", f"wait={int(waits)}"]
        fields += [f"peer={peer}"] if peer is not None else []
        own = module.get_rank()
        ends = (own, peer) if shown == "send" else (peer, own)
        with self._lock:
            key = (name, description, ends if function in TRANSFERS else None)
            number = self._numbers.get(key, 0)
            self._numbers[key] = number + 1
        return " ".join(fields) + f" seq={number}"

    def _backend(self, group, tensors):
        """Returns the name of the backend that a group uses for a tensor; a barrier has none."""
        first = next(flat(tensors), None)
        device = getattr(first, "device", None)
        if device is not None and hasattr(group, "_get_backend"):
            found = type(group._get_backend(device)).__name__.lower().removeprefix("processgroup")
            if found in ("nccl", "gloo", "mpi", "ucc", "xccl", "hccl"):
                return found
        return str(self._module.get_backend(group)).lower().split(":")[-1]


def flat(tensors):
    """Iterates over a tensor, or the tensors of nested lists."""
    if isinstance(tensors, (list, tuple)):
        for tensor in tensors:
            yield from flat(tensor)
    elif tensors is not None:
        yield tensors


def bytes_of(tensors):
    return sum(tensor.numel() * tensor.element_size() for tensor in flat(tensors))


def spans(ranks):
    """Formats ranks as spans, such as `0-3,8`."""
    found = []
    for rank in sorted(ranks):
        if found and found[-1][1] == rank - 1:
            found[-1][1] = rank
        else:
            found.append([rank, rank])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in found)


def clean(text):
    """Returns a text without the blanks that separate fields."""
    return "_".join(str(text or "").split())


def is_compiling():
    compiler = getattr(sys.modules.get("torch"), "compiler", None)
    return compiler is not None and getattr(compiler, "is_compiling", lambda: False)()
