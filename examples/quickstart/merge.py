"""After the jobs of the quickstart: one table (CSV), the ten largest packages printed, one picture (PNG).

python merge.py RESULTS TABLE.csv PICTURE.png

RESULTS is a result of combine.py, or a folder with a folder of results for each job.
"""

import csv
import json
import sys
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt

INK, FAINT, BLUE, ORANGE = "#1f2933", "#9aa5b1", "#2f6f9f", "#d9822b"


def read(folder: Path) -> tuple[list[dict[str, Any]], int, str]:
    """All packages of all results, the largest first; how many jobs there were; whose Python."""
    rows, versions, jobs = [], set(), 0
    for file in [folder] if folder.is_file() else sorted(folder.glob("*/result*.json")):
        result = json.loads(file.read_text(encoding="utf-8"))
        versions.add(result["python"])
        rows += result["packages"]
        jobs += result.get("jobs", 1)
    rows.sort(key=lambda row: -row["lines"])
    return rows, jobs, ", ".join(sorted(versions))


COLUMNS = ("package", "files", "lines", "code_lines", "classes", "functions")
WORST = ("longest_function", "its_lines", "most_complex_function", "its_branches", "unreadable")


def write_table(rows: list[dict[str, Any]], path: Path) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow([*COLUMNS, *WORST])
        for row in rows:
            longest, complexity = row["longest"], row["most_complex"]
            worst = (longest["name"], longest["lines"], complexity["name"], complexity["branches"])
            writer.writerow([*(row[name] for name in COLUMNS), *worst, len(row["unreadable"])])


def print_top(rows: list[dict[str, Any]]) -> None:
    width = max(16, *(len(row["package"]) + 1 for row in rows[:10]))
    print(f"  {'package':<{width}}{'lines':>8}{'functions':>11}   most complex function (branches)")
    for row in rows[:10]:
        worst = row["most_complex"]
        complexity = f"{worst['name']} ({worst['branches']})" if worst["name"] else "-"
        print(f"  {row['package']:<{width}}{row['lines']:>8,}{row['functions']:>11,}   {complexity}")


def tidy(axes: Any) -> None:
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(FAINT)
    axes.tick_params(which="both", colors=INK, length=0, labelsize=9)
    axes.set_axisbelow(True)


def draw_bars(axes: Any, rows: list[dict[str, Any]]) -> None:
    shown = rows[:20][::-1]
    names = [row["package"] for row in shown]
    axes.barh(names, [row["lines"] for row in shown], color="#c9dbe8", height=0.72, label="all lines")
    axes.barh(names, [row["code_lines"] for row in shown], color=BLUE, height=0.72, label="code")
    for index, row in enumerate(shown):
        axes.text(row["lines"], index, f"  {row['lines']:,}", va="center", fontsize=8, color=INK)
    axes.set_title("Largest packages, lines", loc="left", fontsize=11, color=INK)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value / 1000:.0f} k" if value else "0")
    axes.grid(axis="x", color="#e4e7eb", linewidth=0.8)
    axes.margins(x=0.12, y=0.01)
    axes.legend(frameon=False, fontsize=9, loc="lower right")
    tidy(axes)


def draw_scatter(axes: Any, rows: list[dict[str, Any]]) -> None:
    shown = [row for row in rows if row["functions"] and row["most_complex"]["branches"]]
    x = [row["functions"] for row in shown]
    y = [row["most_complex"]["branches"] for row in shown]
    axes.scatter(x, y, s=26, color=ORANGE, alpha=0.55, linewidths=0)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.grid(color="#e4e7eb", linewidth=0.8)
    axes.set_xlabel("functions in the package", fontsize=9, color=INK)
    axes.set_title("Branches of the most complex function", loc="left", fontsize=11, color=INK)
    for formatter in (axes.xaxis, axes.yaxis):
        formatter.set_major_formatter(lambda value, _: f"{value:,.0f}")
    named: list[tuple[float, float]] = []
    for row in sorted(shown, key=lambda one: -one["most_complex"]["branches"]):
        place = (row["functions"], row["most_complex"]["branches"])
        crowded = any(0.45 < place[0] / a < 2.2 and 0.9 < place[1] / b < 1.1 for a, b in named)
        if len(named) >= 10 or crowded:
            continue
        named.append(place)
        left = row["functions"] > 500
        axes.annotate(
            row["package"],
            place,
            xytext=(-6 if left else 6, 0),
            textcoords="offset points",
            ha="right" if left else "left",
            va="center",
            fontsize=8,
            color=INK,
        )
    tidy(axes)


def draw(rows: list[dict[str, Any]], jobs: int, version: str, path: Path) -> None:
    figure, (left, right) = plt.subplots(1, 2, figsize=(13, 6.6), width_ratios=(1.1, 1), layout="constrained")
    figure.get_layout_engine().set(w_pad=0.15, h_pad=0.1, wspace=0.04)
    lines = sum(row["lines"] for row in rows)
    figure.suptitle(
        f"Python's standard library: {lines:,} lines in {len(rows)} packages, measured by {jobs} jobs",
        x=0.012,
        ha="left",
        fontsize=14,
        fontweight="bold",
        color=INK,
    )
    draw_bars(left, rows)
    draw_scatter(right, rows)
    figure.savefig(path, dpi=140, facecolor="white")


def main() -> None:
    folder, table, picture = (Path(argument) for argument in sys.argv[1:])
    rows, jobs, version = read(folder)
    if not rows:
        sys.exit(f"there are no results in {folder}")
    write_table(rows, table)
    print_top(rows)
    draw(rows, jobs, version, picture)
    broken = sum(len(row["unreadable"]) for row in rows)
    if broken:
        print(f"  {broken} files could not be parsed; the table's last column tells where")


if __name__ == "__main__":
    main()
