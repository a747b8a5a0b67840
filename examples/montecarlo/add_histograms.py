"""The merge step of the Monte Carlo example: add the histograms of several jobs.

python add_histograms.py
"""

import json
import os


def add(total, part):
    total["events"] += part["events"]
    total["jobs"] += part["jobs"]
    for name, histogram in part["histograms"].items():
        summed = total["histograms"][name]
        summed["outside"] += histogram["outside"]
        summed["counts"] = [a + b for a, b in zip(summed["counts"], histogram["counts"])]  # noqa: B905


def mean_cross_section(results):
    """The mean with the events as weights, and its error; None without a cross-section."""
    if any(result["cross_section"] is None for result in results):
        return None
    events = sum(result["events"] for result in results)
    mean = sum(result["cross_section"][0] * result["events"] for result in results) / events
    error = sum((result["cross_section"][1] * result["events"]) ** 2 for result in results) ** 0.5 / events
    return mean, error


def main():
    with open(os.environ["PILOTAGE_INPUT"], encoding="utf-8") as file:
        inputs = json.load(file)["files"]
    results = []
    for entry in inputs:
        with open(entry["path"], encoding="utf-8") as file:
            results.append(json.load(file))
    if len({result["generator"] for result in results}) > 1:
        raise SystemExit("the results are of different generators: they are not added")
    cross_section = mean_cross_section(results)
    total = results[0]
    for part in results[1:]:
        add(total, part)
    total["cross_section"] = cross_section
    with open("histograms.json", "w", encoding="utf-8") as file:
        json.dump(total, file)
    print(f"{total['events']} events of {total['jobs']} jobs")


if __name__ == "__main__":
    main()
