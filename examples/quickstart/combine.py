"""The merge step of the quickstart: add up the results of analyse.py.

    python3 combine.py

Its input files are those of the job (docs/reference/data-in-jobs.md). It writes result.json, in the same format: the
modules of a package may have been measured by several jobs.
"""

import json
import os
import sys

COUNTS = ("files", "lines", "code_lines", "classes", "functions")
RECORDS = (("longest", "lines"), ("most_complex", "branches"))


def add(total, part):
    """Add the counts of a part of a package to those of the whole."""
    for name in COUNTS:
        total[name] += part[name]
    for record, size in RECORDS:
        if part[record][size] > total[record][size]:
            total[record] = part[record]
    total["unreadable"] += part["unreadable"]


def combine(results):
    packages = {}
    whole = {"python": "", "seconds": 0.0, "jobs": 0}
    versions = set()
    for result in results:
        versions.add(result["python"])
        whole["seconds"] = round(whole["seconds"] + result["seconds"], 3)
        whole["jobs"] += result.get("jobs", 1)
        for part in result["packages"]:
            if part["package"] in packages:
                add(packages[part["package"]], part)
            else:
                packages[part["package"]] = part
    whole["python"] = ", ".join(sorted(versions))
    whole["packages"] = [packages[name] for name in sorted(packages)]
    return whole


def main():
    with open(os.environ["PILOTAGE_INPUT"], encoding="utf-8") as file:
        inputs = json.load(file)["files"]
    results = []
    for entry in inputs:
        with open(entry["path"], encoding="utf-8") as file:
            results.append(json.load(file))
    whole = combine(results)
    with open("result.json", "w", encoding="utf-8") as file:
        json.dump(whole, file, indent=1)
    print(f"{len(results)} results, {len(whole['packages'])} packages", file=sys.stderr)


if __name__ == "__main__":
    main()
