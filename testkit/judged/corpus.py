#!/usr/bin/env python3
"""The judged corpus: gets third-party captures, and computes facts about timelines with the standard library only.

    corpus.py facts FILE...            prints the facts of some files, one JSON object each
    corpus.py collect CLONES FOLDER    copies the third-party captures out of git clones CLONES/OWNER+NAME, by hash, into FOLDER
    corpus.py update FOLDER            computes the facts of the corpus again

It shares no code with roofgap, so that the two can be compared. Times are in nanoseconds. Gaps of a GPU are divided at the return
of the call that launched the operation after them. A step's time is the median distance between the ends of consecutive steps;
a step ends with its marker or with the GPU work launched in it, and one without GPU work does not count.
"""
import bisect
import gzip
import hashlib
import json
import os
import re
import sqlite3
import statistics
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict

COMM = re.compile(r"nccl|rccl|cross_device_reduce|all_?reduce|multimem|deep_ep|ncclDev|allgather|reducescatter", re.I)
SYNC = re.compile(r"Synchronize|EventQuery", re.I)
COLD = re.compile(r"ModuleLoad|cudaMalloc$|hipMalloc$|LibraryLoad|cuLink|StreamCreate|HostAlloc|cudaFree$|GraphInstantiate|hipModule", re.I)
LOADER = re.compile(r"enumerate\(DataLoader\)|DataLoaderIter", re.I)
MARKS = [re.compile(p) for p in (
    r"^ProfilerStep#\d+$", r"^(LLM@)?decode_step$", r"^execute_(context|new)_?\S*.*$", r"^(token|step|iteration|iter|batch)[ _#:]?\d+$",
    r"^Optimizer\.step#", r"^(forward|forward pass|train_step|training_step|forward_pass)$", r"^Torch-Compiled Region")]
FAMILIES = [(n, re.compile(p, re.I)) for n, p in (
    ("communication", COMM.pattern),
    ("attention", r"flash|fmha|attention|sdpa|mha|attn|paged"),
    ("convolution", r"conv|wgrad|dgrad|winograd|scudnn|xmma_(fprop|dgrad|wgrad)|fft"),
    ("gemm", r"gemm|gemv|nvjet|cutlass|Cijk|_mm_|matmul|cublas|splitK|xmma"),
    ("norm", r"norm|bn_fw|bn_bw"),
    ("softmax", r"softmax"),
    ("optimizer", r"multi_tensor|adam|sgd"),
    ("elementwise", r"elementwise|vectorized|unrolled|triton_poi|pointwise|Functor|CatArray|copy_kernel|index|gather|scatter|fill"),
    ("reduction", r"reduce|triton_red|triton_per|cub::"),
    ("pool", r"pool"))]


def family(name):
    return next((f for f, p in FAMILIES if p.search(name)), "other")


def union(spans):
    out = []
    for a, b in sorted(spans):
        if out and a <= out[-1][1]:
            out[-1][1] = max(out[-1][1], b)
        else:
            out.append([a, b])
    return out


def total(spans):
    return sum(b - a for a, b in spans)


def overlap(spans, a, b):
    """Returns how much of [a, b) is covered by disjoint sorted spans."""
    i = _first(spans, a)
    covered = 0
    while i < len(spans) and spans[i][0] < b:
        covered += max(0, min(b, spans[i][1]) - max(a, spans[i][0]))
        i += 1
    return covered


def _first(spans, a):
    low, high = 0, len(spans)
    while low < high:
        mid = (low + high) // 2
        if spans[mid][1] <= a:
            low = mid + 1
        else:
            high = mid
    return low


class Capture:
    """GPU operations (device, start, end, name, kind, correlation), calls by correlation, calls and ranges."""

    def __init__(self):
        self.ops, self.launch, self.calls, self.ranges, self.host = [], {}, [], [], []


def read_kineto(text):
    data = json.loads(text, strict=False)
    if isinstance(data, dict) and "traceEvents" not in data:
        raise ValueError("JSON that is no trace")
    events = data["traceEvents"] if isinstance(data, dict) else data
    capture = Capture()
    capture.gpus = [d.get("name") for d in data.get("deviceProperties", [])] if isinstance(data, dict) else []
    ns = lambda us: round(float(us) * 1000)
    for e in events:
        if not isinstance(e, dict) or e.get("ph") != "X" or "dur" not in e or "ts" not in e:
            continue
        cat, args = str(e.get("cat", "")).lower(), e.get("args") or {}
        start = ns(e["ts"])
        end = start + ns(e["dur"])
        name = str(e.get("name", ""))
        correlation = args.get("correlation", args.get("External id"))
        if cat in ("kernel", "gpu_memcpy", "gpu_memset", "memcpy", "memset"):
            kind = "kernel" if cat == "kernel" else "copy"
            capture.ops.append((args.get("device", e.get("pid")), start, end, name, kind, args.get("correlation"), e.get("tid")))
        elif cat in ("cuda_runtime", "cuda_driver", "runtime", "hip_runtime", "hip_driver", "privateuse1_runtime"):
            call = (start, end, name, (e.get("pid"), e.get("tid")))
            capture.calls.append(call)
            if args.get("correlation") is not None and not SYNC.search(name):
                capture.launch.setdefault(args["correlation"], call)
        elif cat == "user_annotation" or (cat in ("cpu_op", "operator") and (name.startswith(("ProfilerStep#", "enumerate(", "Optimizer.")))):
            capture.ranges.append((start, end, name, (e.get("pid"), e.get("tid"))))
        elif cat in ("cpu_op", "operator", "python_function"):
            capture.host.append((start, end, name, (e.get("pid"), e.get("tid"))))
    return capture


def read_nsys(path):
    db = sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)
    db.text_factory = lambda b: b.decode(errors="replace")
    tables = {r[0] for r in db.execute("select name from sqlite_master where type in ('table','view')")}
    names = dict(db.execute("select id, value from StringIds")) if "StringIds" in tables else {}
    capture = Capture()
    capture.gpus = [r[0] for r in db.execute("select name from TARGET_INFO_GPU")] if "TARGET_INFO_GPU" in tables else []
    def columns(table):
        return {r[1] for r in db.execute(f"pragma table_info({table})")}
    for table, kind in (("CUPTI_ACTIVITY_KIND_KERNEL", "kernel"), ("CUPTI_ACTIVITY_KIND_MEMCPY", "copy"), ("CUPTI_ACTIVITY_KIND_MEMSET", "copy"), ("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", "kernel")):
        if table not in tables:
            continue
        label = "demangledName" if table.endswith("KERNEL") else "-1"
        pid = "globalPid" if "globalPid" in columns(table) else "0"
        for device, start, end, name, correlation, stream, process in db.execute(
                f"select deviceId, start, end, {label}, correlationId, streamId, {pid} from {table}"):
            capture.ops.append((device, start, end, names.get(name, table[20:].lower()), kind, (process >> 24, correlation), stream))
    if "CUPTI_ACTIVITY_KIND_RUNTIME" in tables:
        for start, end, name, correlation, tid in db.execute("select start, end, nameId, correlationId, globalTid from CUPTI_ACTIVITY_KIND_RUNTIME"):
            call = (start, end, re.sub(r"_v\d+$", "", names.get(name, "")), tid)
            capture.calls.append(call)
            if not SYNC.search(call[2]):
                capture.launch.setdefault((tid >> 24, correlation), call)
    if "NVTX_EVENTS" in tables:
        has = columns("NVTX_EVENTS")
        text_id = "textId" if "textId" in has else "null"
        for start, end, text, number, tid in db.execute(f"select start, end, text, {text_id}, globalTid from NVTX_EVENTS where eventType in (59, 60) and end is not null"):
            capture.ranges.append((start, end, text if text is not None else names.get(number, ""), tid))
    return capture


def read(path):
    with open(path, "rb") as file:
        head = file.read(16)
    packed = head[:2] == b"\x1f\x8b"
    raw = gzip.open(path).read() if packed else open(path, "rb").read()
    if raw[:15] == b"SQLite format 3":
        if not packed:
            return read_nsys(path)
        with tempfile.NamedTemporaryFile(suffix=".sqlite") as copy:
            copy.write(raw)
            copy.flush()
            return read_nsys(copy.name)
    if raw.lstrip()[:1] in (b"{", b"["):
        return read_kineto(raw.decode("utf-8", "replace"))
    raise ValueError("no timeline")


def marks(capture):
    """Returns the ranges that mark iterations, of the first kind that occurs at least twice."""
    for pattern in MARKS:
        found = sorted(r for r in set(capture.ranges) if pattern.search(r[2]))
        if found:
            threads = Counter(r[3] for r in found)
            thread = threads.most_common(1)[0][0]
            return pattern.pattern, [r for r in found if r[3] == thread]
    return None, []


def facts(capture):
    if not capture.ops:
        return {"kernels": 0, "gpus": capture.gpus}
    count = Counter(op[0] for op in capture.ops)
    # One device is described: the one with most kernel time.
    weight = Counter()
    for op in capture.ops:
        weight[op[0]] += op[2] - op[1] if op[4] == "kernel" else 0
    device = weight.most_common(1)[0][0]
    ops = sorted((op for op in capture.ops if op[0] == device), key=lambda op: (op[1], op[2]))
    kernels = [op for op in ops if op[4] == "kernel"]
    busy = union([(op[1], op[2]) for op in ops])
    first, last = busy[0][0], busy[-1][1]
    comm = union([(o[1], o[2]) for o in kernels if COMM.search(o[3])])
    rest = union([(o[1], o[2]) for o in ops if not COMM.search(o[3])])
    families = Counter()
    for op in kernels:
        families[family(op[3])] += op[2] - op[1]
    syncs = defaultdict(list)
    for call in capture.calls:
        if SYNC.search(call[2]):
            syncs[call[3]].append(call[:2])
    syncs = {k: union(v) for k, v in syncs.items()}
    loader = union([r[:2] for r in capture.ranges + capture.host if LOADER.search(r[2])])
    cold = union([c[:2] for c in capture.calls if COLD.search(c[2])])
    starts = [op[1] for op in ops]
    gaps = Counter()
    gaplist = []
    for (a, b), (c, d) in zip(busy, busy[1:]):
        follower = ops[bisect.bisect_left(starts, c)]
        call = capture.launch.get(follower[5])
        gap = c - b
        if call is None:
            gaps["unknown"] += gap
            gaplist.append((gap, b, "unknown", follower[3][:40], None))
            continue
        returned = min(max(call[1], b), c)
        before = returned - b
        gaps["after_launch"] += gap - before
        in_loader = overlap(loader, b, returned)
        in_sync = overlap(syncs.get(call[3], []), b, returned) if before > in_loader else 0
        in_cold = overlap(cold, b, returned)
        in_call = max(0, returned - max(call[0], b))
        gaps["before_launch"] += before
        gaps["  loader"] += in_loader
        gaps["  sync"] += in_sync
        gaps["  cold"] += in_cold
        gaps["  in_call"] += in_call
        gaplist.append((gap, b, f"before {before} loader {in_loader} sync {in_sync} cold {in_cold} call {in_call}", follower[3][:40], call[2]))
    result = {
        "gpus": capture.gpus, "devices": len(count), "kernels": len(kernels), "copies": len(ops) - len(kernels),
        "kernel_ns": sum(o[2] - o[1] for o in kernels), "copy_ns": total(union([(o[1], o[2]) for o in ops if o[4] == "copy"])),
        "busy_ns": total(busy), "span_ns": last - first,
        "kernel_median_ns": int(statistics.median([o[2] - o[1] for o in kernels])) if kernels else None,
        "streams": len({o[6] for o in ops}),
        "comm_ns": total(comm), "exposed_comm_ns": total(comm) - sum(overlap(rest, a, b) for a, b in comm),
        "gaps": dict(gaps), "families": dict(families.most_common(6)),
        "host_span_ns": (max(x[1] for x in capture.host + capture.calls + capture.ranges) - min(x[0] for x in capture.host + capture.calls + capture.ranges)) if capture.calls else None,
        "launch_call_median_ns": int(statistics.median([c[1] - c[0] for c in capture.launch.values()])) if capture.launch else None,
        "largest_gaps": [[g[0], g[1] - first, *g[2:]] for g in sorted(gaplist, reverse=True)[:4]],
    }
    pattern, found = marks(capture)
    if found:
        per = []
        for i, r in enumerate(found):
            begin = r[0]
            end = found[i + 1][0] if i + 1 < len(found) else r[1]
            launched = [o for o in ops if (c := capture.launch.get(o[5])) and begin <= c[0] < end]
            on_gpu = union([(o[1], o[2]) for o in launched])
            if on_gpu:
                per.append({"name": r[2][:30], "wall_ns": end - begin, "begin": begin, "end": max(r[1], on_gpu[-1][1]),
                            "gpu_ns": total(on_gpu), "ops": len(launched), "before_first_ns": on_gpu[0][0] - begin})
        result["marker"] = pattern
        if per:
            times = [b["end"] - a["end"] for a, b in zip(per, per[1:])] or [per[0]["end"] - per[0]["begin"]]
            result["step_ns"] = int(statistics.median(times))
            result["steps"] = [{k: v for k, v in p.items() if k not in ("begin", "end")} for p in per]
    result["ranges"] = [[n, k, int(sum(r[1] - r[0] for r in capture.ranges if r[2] == n))] for n, k in Counter(r[2] for r in capture.ranges).most_common(8)]
    return result


CORPUS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "corpus.jsonl")
KEPT = ("kernels", "kernel_ns", "busy_ns", "span_ns", "exposed_comm_ns", "before_launch_ns", "after_launch_ns", "step_ns")


def name(public):
    return f"{public['sha256'][:12]}-{public['path'].rsplit('/', 1)[-1]}"


def cases():
    with open(CORPUS) as file:
        return [json.loads(line) for line in file]


def collect(clones, folder):
    os.makedirs(folder, exist_ok=True)
    for case in cases():
        public = case["from"].get("public")
        if not public or os.path.exists(os.path.join(folder, name(public))):
            continue
        clone = os.path.join(clones, public["repo"].replace("/", "+"))
        clone = next((d for d in (f"{clone}/repo/.git", f"{clone}/repo", f"{clone}/.git", clone) if os.path.exists(f"{d}/HEAD")), clone)
        blob = subprocess.run(["git", "-C", clone, "cat-file", "blob", f"{public['commit']}:{public['path']}"], capture_output=True).stdout
        if hashlib.sha256(blob).hexdigest() != public["sha256"]:
            print(f"{case['id']}: {public['repo']} {public['commit'][:8]} {public['path']} is not at hand", file=sys.stderr)
            continue
        with open(os.path.join(folder, name(public)), "wb") as file:
            file.write(blob)


def update(folder):
    fixtures = os.path.join(os.path.dirname(CORPUS), "..", "..", "fixtures")
    lines = []
    for case in cases():
        origin = case["from"]
        path = os.path.join(folder, name(origin["public"])) if "public" in origin else os.path.join(fixtures, origin.get("fixture", ""))
        if "planted" not in origin and os.path.exists(path):
            try:
                found = facts(read(path))
                found |= {f"{k}_ns": v for k, v in found.get("gaps", {}).items() if not k.startswith(" ")}
                case["facts"] = {k: found[k] for k in KEPT if found.get(k) is not None}
            except ValueError as error:
                case.pop("facts", None)
                print(f"{case['id']}: {error}", file=sys.stderr)
        lines.append(json.dumps(case, ensure_ascii=False))
    with open(CORPUS, "w") as file:
        file.write("\n".join(lines) + "\n")


def main(arguments):
    match arguments:
        case ["facts", *paths]:
            for path in paths:
                try:
                    print(json.dumps({"file": path, **facts(read(path))}))
                except ValueError as error:
                    print(json.dumps({"file": path, "error": str(error)}))
        case ["collect", clones, folder]:
            collect(clones, folder)
        case ["update", folder]:
            update(folder)
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
