"""After the Monte Carlo example: a picture of the merged histograms.

python plot.py HISTOGRAMS.json PICTURE.png
"""

import json
import sys
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt

INK, FAINT, BLUE = "#1f2933", "#9aa5b1", "#2f6f9f"
AXES = {
    "mass": ("mass of the muon pair", "GeV"),
    "pt": ("transverse momentum of the pair", "GeV"),
    "rapidity": ("rapidity of the pair", ""),
}


def draw(axes: Any, name: str, histogram: dict[str, Any]) -> None:
    low, high, bins = histogram["low"], histogram["high"], histogram["bins"]
    width = (high - low) / bins
    counts = histogram["counts"]
    edges = [low + width * number for number in range(bins + 1)]
    centres = [edge + width / 2 for edge in edges[:-1]]
    axes.stairs(counts, edges, fill=True, color="#c9dbe8")
    axes.stairs(counts, edges, color=BLUE, linewidth=1.2)
    errors = [count**0.5 for count in counts]
    axes.errorbar(centres, counts, yerr=errors, fmt="none", ecolor=BLUE, elinewidth=0.7, alpha=0.7)
    label, unit = AXES[name]
    axes.set_xlabel(f"{label} / {unit}" if unit else label, fontsize=10, color=INK)
    axes.set_ylabel(f"events per {width:g} {unit}".rstrip(), fontsize=10, color=INK)
    axes.set_xlim(low, high)
    if name == "mass":
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(FAINT)
    axes.tick_params(which="both", colors=INK, labelsize=9)
    axes.grid(color="#e4e7eb", linewidth=0.6)
    axes.set_axisbelow(True)


def title(result: dict[str, Any]) -> str:
    text = f"pp → Z/γ* → μμ at 13 TeV, {result['generator']}: {result['events']:,} events of {result['jobs']} jobs"
    if result["cross_section"]:
        value, error = result["cross_section"]
        text += f", σ = {value:,.0f} ± {error:,.0f} pb"
    return text


def main() -> None:
    source, picture = map(Path, sys.argv[1:])
    result = json.loads(source.read_text(encoding="utf-8"))
    figure, all_axes = plt.subplots(1, 3, figsize=(14, 4.8), layout="constrained")
    figure.get_layout_engine().set(w_pad=0.15, h_pad=0.1, wspace=0.04)
    figure.suptitle(title(result), x=0.012, ha="left", fontsize=13, fontweight="bold", color=INK)
    for axes, (name, histogram) in zip(all_axes, result["histograms"].items(), strict=True):
        draw(axes, name, histogram)
    figure.savefig(picture, dpi=140, facecolor="white")
    print(title(result))


if __name__ == "__main__":
    main()
