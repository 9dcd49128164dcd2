"""One run: asks an engine for a generate, and writes the account. With `grid FILE`: measures all 24 configurations. With `table GRID TUNE`: compares."""
import itertools, json, os, random, socket, sys

ROOT = os.environ.get("OUT") or os.getcwd()
SPACE = [["eager", "graphs"], [16, 64, 256], [1024, 512, 2048, 8192]]


def ask(mode, seqs, tokens):
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(os.path.join(ROOT, f"{mode}.sock"))
        with client.makefile("rw") as file:
            file.write(json.dumps({"seqs": seqs, "tokens": tokens}) + "\n")
            file.flush()
            return json.loads(file.readline())


def grid(path):
    times = {}
    for repeat in range(2):
        every = list(itertools.product(*SPACE))
        random.Random(repeat).shuffle(every)
        for values in every:
            times.setdefault("/".join(map(str, values)), []).append(ask(*values)["wall_ns"])
    json.dump(times, open(path, "w"))


def table(grid_path, tune_path):
    mean = {key: sum(times) / len(times) for key, times in json.load(open(grid_path)).items()}
    runs = 2 * len(mean)
    best = min(mean.values())
    trial = json.load(open(tune_path))["trials"][0]
    config = {"MODE": "eager", "SEQS": "16", "TOKENS": "1024"}
    for knob in (trial["winner"] or {"knobs": []})["knobs"]:
        name, value = knob.removeprefix("env.").split("=")
        config[name] = value
    print(f"grid: {len(mean)} configurations, {runs} runs; best {min(mean, key=mean.get)} {best / 1e6:.0f} ms, base {mean['eager/16/1024'] / 1e6:.0f} ms")
    key = "/".join(config.values())
    print(f"search: {key}, {100 * best / mean[key]:.1f} % of the best, {len(trial['runs'])} runs; grid at 5 runs each: {5 * len(mean)}")
    some = len(trial["runs"]) // 5
    rng, shares = random.Random(0), []
    for _ in range(1000):
        shares.append(best / min(rng.sample(list(mean.values()), min(some, len(mean)))))
    print(f"random search of {some} configurations at 5 runs: {100 * sum(shares) / len(shares):.1f} % on average, 97 % reached in {sum(s >= 0.97 for s in shares) / 10:.0f} %")
    now, used = [options[0] for options in SPACE], 0
    for at, options in enumerate(SPACE):
        used += 5 * len(options)
        now[at] = min(options, key=lambda value: mean["/".join(map(str, now[:at] + [value] + now[at + 1:]))])
    print(f"one at a time: {'/'.join(map(str, now))}, {100 * best / mean['/'.join(map(str, now))]:.1f} % of the best, {used} runs")


if sys.argv[1:2] == ["grid"]:
    grid(sys.argv[2])
elif sys.argv[1:2] == ["table"]:
    table(*sys.argv[2:])
else:
    found = ask(os.environ.get("MODE", "eager"), int(os.environ.get("SEQS", 16)), int(os.environ.get("TOKENS", 1024)))
    account = {"schema": "roofgap.workload/1", "token_hash": "sha256:" + found["hash"], "tokens": {"generated": found["tokens"]},
               "repeats": [{"stages": [{"name": "generate", "wall_ns": found["wall_ns"]}]}]}
    json.dump(account, open(os.environ["ROOFGAP_WORKLOAD_JSON"], "w"))
