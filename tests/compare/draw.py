#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The pictures of compare.json as SVG, by gnuplot: reduction against entry size, and percentiles
of latencies.

    draw.py COMPARE DIRECTORY
"""
import json
import os
import subprocess
import sys

# Told apart without colour too (the points), and readable on the picture's own white.
COLOURS = ("#0b5fa5", "#c2410c", "#15803d", "#7e22ce", "#b91c1c", "#0f766e", "#a16207", "#475569",
           "#be185d")
POINTS = (7, 5, 9, 13, 11, 6, 4, 8, 12)

# A background of its own: a page may be dark.
HEAD = """
set terminal svg size 900,{height} dynamic font "sans-serif,15" background "#ffffff"
set output "{output}"
set title "{title}" textcolor rgb "#111827"
set border 3 linecolor rgb "#374151"
set tics nomirror textcolor rgb "#111827"
set xlabel "{xlabel}" offset 0,0.4 textcolor rgb "#111827"
set ylabel "{ylabel}" textcolor rgb "#111827"
set grid linetype 1 linewidth 1 linecolor rgb "#d1d5db"
set key below horizontal Left reverse textcolor rgb "#111827" font ",13"
set encoding utf8
"""

REDUCTION = (("daemon_us", "daemon, end to end"),
             ("daemon_asleep_us", "daemon, its worker asleep at first"),
             ("one_barrier_us", "in-process, one barrier"),
             ("libpmem_flush_drain_us", "libpmem, flush each and one drain"))

PERCENTILES = (("p50_ns", "p50"), ("p90_ns", "p90"), ("p99_ns", "p99"), ("p99_9_ns", "p99.9"))


def data(name, rows):
    lines = [" ".join(str(cell) for cell in row) for row in rows]
    return f"${name} << END\n" + "\n".join(lines) + "\nEND\n"


def curve(name, number, title):
    colour, point = COLOURS[number % len(COLOURS)], POINTS[number % len(POINTS)]
    return (f'${name} using 1:2 with linespoints linewidth 2 pointsize 0.8 pointtype {point} '
            f'linecolor rgb "{colour}" title "{title}"')


def size_text(size):
    return f"{size} B" if size < 1024 else f"{size // 1024} KiB"


def reduction(document, output):
    points = document["entry_sizes"]
    script = HEAD.format(output=output, height=480, xlabel="size of an entry",
                         ylabel="less time than a barrier per entry (%)",
                         title="10 MB in random order, every line dirty, at most 20480 entries")
    script += "set logscale x 2\nset xrange [52:80000]\nset yrange [*<0:100]\n"
    tics = ", ".join(f'"{size_text(p["entry_bytes"])}" {p["entry_bytes"]}' for p in points)
    script += f"set xtics ({tics})\n"
    plots = []
    for number, (key, title) in enumerate(REDUCTION):
        rows = [(p["entry_bytes"], 100 * (1 - p[key] / p["per_entry_us"])) for p in points
                if p[key] and p["per_entry_us"]]
        if rows:
            script += data(key, rows)
            plots.append(curve(key, number, title))
    return script + "plot " + ", ".join(plots) + "\n", bool(plots)


def latency(document, output):
    script = HEAD.format(output=output, height=620, xlabel="percentile",
                         ylabel="from submit to the completion read (us)",
                         title="One dirty line of one batch")
    tics = ", ".join(f'"{text}" {n}' for n, (_, text) in enumerate(PERCENTILES))
    script += (f"set logscale y\nset format y \"%g\"\nset xtics ({tics})\n"
               f"set xrange [-0.2:{len(PERCENTILES) - 0.8}]\n")
    plots = []
    for number, series in enumerate(document["latency"]):
        rows = [(n, series[key] / 1000) for n, (key, _) in enumerate(PERCENTILES)]
        script += data(series["key"], rows)
        plots.append(curve(series["key"], number, series["name"]))
    return script + "plot " + ", ".join(plots) + "\n", bool(plots)


def main():
    if len(sys.argv) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    with open(sys.argv[1]) as file:
        document = json.load(file)
    os.makedirs(sys.argv[2], exist_ok=True)
    for name, draw in (("reduction.svg", reduction), ("latency.svg", latency)):
        output = os.path.join(sys.argv[2], name)
        script, something = draw(document, output)
        if not something:
            print(f"{name}: nothing was measured for it")
            continue
        subprocess.run(["gnuplot"], input=script, text=True, check=True)
        # It ends without one, and a text file has one.
        with open(output, "rb+") as file:
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                file.write(b"\n")
        print(output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
