#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""compare.json of dmasync-compare: is it whole, is it worse than what was recorded?

    check.py COMPARE BASELINE          fails where a ratio is worse than its recorded value by more
                                       than the noise that is recorded with it
    check.py --shape COMPARE           fails where a row has neither a number nor a reason
    check.py --record COMPARE BASELINE writes the baseline from a full run
"""
import json
import sys

# Every row of the table. A row that goes missing must not look like a good run.
KEYS = """sg4k_reduction_pct sg1k_reduction_pct sg256_reduction_pct sg64_reduction_pct
sg4k_vs_libpmem sg4k_e2e_vs_libpmem sg256_e2e_vs_libpmem split2_e2e_vs_libpmem small64_vs_inline
rtt_vs_pingpong cold_rtt_vs_wake rtt_vs_socket submit_cpu_share submit_cpu_share_strided
urgent_delay_us urgent_vs_fifo clients64_throughput fairness_clients fairness_users idle_wakeups
rss_anon_mib growth_size growth_clients dmabuf_vs_ioctl""".split()

RUNS, ROUNDS = 5, 31  # the least of a run that may be recorded
NOISE_FLOOR = 0.03  # of a time: five runs in a row drift less than five on another day


class Bad(Exception):
    pass


def need(condition, sentence):
    if not condition:
        raise Bad(sentence)


def is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def check_row(row, runs):
    key = row["key"]
    need(row["better"] in ("less", "more"), f"{key}: better is {row['better']!r}")
    need(row["what"] and isinstance(row["unit"], str), f"{key}: no words or no unit")
    need(row["goal"] is None or is_number(row["goal"]), f"{key}: goal is {row['goal']!r}")
    if row["ratio"] is None:
        need(row["why"], f"{key}: neither a number nor a reason")
        need(row["met"] is None and not row["runs"], f"{key}: no number, but met or runs")
        return
    need(row["why"] is None, f"{key}: a number and a reason why there is none")
    need(is_number(row["ratio"]), f"{key}: ratio is {row['ratio']!r}")
    need(1 <= len(row["runs"]) <= runs, f"{key}: {len(row['runs'])} of {runs} runs")
    best = (min if row["better"] == "less" else max)(row["runs"])
    need(abs(best - row["ratio"]) <= 1e-5, f"{key}: {row['ratio']} is not the best of {row['runs']}")
    spread = max(row["runs"]) - min(row["runs"])
    need(abs(spread - row["noise"]) <= 1e-5, f"{key}: noise {row['noise']}, but runs {row['runs']}")
    need(row["values"], f"{key}: a ratio without absolute values")
    for value in row["values"]:
        need(value["low"] <= value["value"] <= value["high"],
             f"{key}: {value['name']}: {value['value']} is not from {value['low']} to {value['high']}")
    if row["goal"] is None:
        need(row["met"] is None, f"{key}: met without a goal")
    else:
        met = row["ratio"] <= row["goal"] if row["better"] == "less" else row["ratio"] >= row["goal"]
        # The goal is printed with fewer digits than it has.
        need(met == row["met"] or abs(row["ratio"] - row["goal"]) < 1e-3,
             f"{key}: {row['ratio']} against {row['goal']}, but met is {row['met']}")


def check_shape(document):
    need(document["version"] == 1, f"version {document['version']}; 1 is known here")
    need(document["runs"] >= 1 and document["rounds"] >= 1, "no run")
    for fact in ("cpu", "kernel", "line_operation"):
        need(document["machine"][fact], f"machine: no {fact}")
    need(document["machine"]["line_bytes"] >= 16, "machine: no line size")
    for fact in ("clean_ns", "barrier_ns"):
        need(document["machine"][fact] > 0, f"machine: no {fact}")
    keys = [row["key"] for row in document["rows"]]
    need(keys == KEYS, f"rows are {keys}, expected {KEYS}")
    for row in document["rows"]:
        check_row(row, document["runs"])
    for point in document["entry_sizes"]:
        need(point["entry_bytes"] > 0, "entry_sizes: an entry without bytes")
    for series in document["latency"]:
        values = [series[key] for key in ("p50_ns", "p90_ns", "p99_ns", "p99_9_ns", "max_ns")]
        need(values == sorted(values), f"latency: {series['key']}: {values} do not grow")


def record(document):
    need(not document["short"], "the short form measures nothing that may be recorded")
    need(document["runs"] >= RUNS and document["rounds"] >= ROUNDS,
         f"{document['runs']} runs of {document['rounds']} rounds; recorded are at least {RUNS} "
         f"of {ROUNDS}")
    rows = {}
    for row in document["rows"]:
        if row["ratio"] is not None:
            # A reduction is told in percent; what is timed is the rest.
            timed = 100 - row["ratio"] if row["unit"] == "%" else row["ratio"]
            noise = max(row["noise"], NOISE_FLOOR * abs(timed))
            rows[row["key"]] = {"ratio": row["ratio"], "noise": round(noise, 6),
                                "better": row["better"]}
    need(rows, "no row has a number")
    return {"version": 1, "machine": document["machine"], "rows": rows}


def compare(document, baseline):
    """Sentences about what is worse."""
    need(not document["short"], "the short form measures nothing that may be compared")
    need(baseline["version"] == 1, f"baseline: version {baseline['version']}; 1 is known here")
    now = {row["key"]: row for row in document["rows"]}
    worse = []
    for key, was in baseline["rows"].items():
        if key not in now:
            worse.append(f"{key}: recorded, and no row any more")
            continue
        ratio = now[key]["ratio"]
        if ratio is None:
            worse.append(f"{key}: {was['ratio']} recorded, and no number now: {now[key]['why']}")
            continue
        change = ratio - was["ratio"] if was["better"] == "less" else was["ratio"] - ratio
        if change > was["noise"]:
            worse.append(f"{key}: {ratio}, recorded {was['ratio']}: worse by {change:.4g}, noise "
                         f"{was['noise']}")
    for key in now:
        if key not in baseline["rows"] and now[key]["ratio"] is not None:
            print(f"{key}: {now[key]['ratio']}, not recorded yet")
    return worse


def load(path):
    with open(path) as file:
        return json.load(file)


def main(arguments):
    if len(arguments) == 2 and arguments[0] == "--shape":
        check_shape(load(arguments[1]))
        return 0
    if len(arguments) == 3 and arguments[0] == "--record":
        document = load(arguments[1])
        check_shape(document)
        text = json.dumps(record(document), indent=2)
        with open(arguments[2], "w") as file:
            file.write(text + "\n")
        return 0
    if len(arguments) != 2 or arguments[0].startswith("-"):
        print(__doc__, file=sys.stderr)
        return 2
    document, baseline = load(arguments[0]), load(arguments[1])
    check_shape(document)
    for fact in ("cpu", "cpus", "line_operation"):
        was, now = baseline["machine"][fact], document["machine"][fact]
        if was != now:
            print(f"note: recorded with {fact} {was}, this machine has {now}")
    worse = compare(document, baseline)
    for sentence in worse:
        print("worse:", sentence)
    if not worse:
        print(f"{len(baseline['rows'])} recorded ratios: none is worse by more than its noise")
    return 1 if worse else 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except Bad as bad:
        sys.exit(f"check.py: {bad}")
    except (OSError, ValueError, KeyError, TypeError) as error:
        sys.exit(f"check.py: not what dmasync-compare or --record writes: {error!r}")
