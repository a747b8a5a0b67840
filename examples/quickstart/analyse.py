"""One job of the quickstart: measure modules of Python's standard library by their syntax trees.

    python3 analyse.py                                       the input files of a request's job
    python3 analyse.py OUTPUT STDLIB PACKAGE[,PACKAGE...]    packages by name, for jobs without a request

Runs on any node with Python 3.9 or newer; needs nothing but the standard library. Each PACKAGE is a name below
STDLIB, a folder or a file. Files that cannot be parsed are counted and named, not hidden.
"""

import ast
import json
import os
import sys
import time

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
BRANCHES = (
    ast.If,
    ast.For,
    ast.AsyncFor,
    ast.While,
    ast.ExceptHandler,
    ast.IfExp,
    ast.comprehension,
    ast.Assert,
)
SKIPPED = {"test", "tests", "idle_test", "__pycache__", "site-packages", "dist-packages", "lib2to3_tests"}


def python_files(path):
    if os.path.isfile(path):
        yield path
        return
    for folder, folders, names in os.walk(path):
        folders[:] = sorted(name for name in folders if name not in SKIPPED)
        for name in sorted(names):
            if name.endswith(".py"):
                yield os.path.join(folder, name)


def branches(function):
    """Cyclomatic complexity: one plus the branches of the function, without nested functions."""
    count, stack = 1, list(ast.iter_child_nodes(function))
    while stack:
        node = stack.pop()
        if isinstance(node, FUNCTIONS):
            continue
        if isinstance(node, BRANCHES):
            count += 1
        elif isinstance(node, ast.BoolOp):
            count += len(node.values) - 1
        elif type(node).__name__ == "match_case":
            count += 1
        stack.extend(ast.iter_child_nodes(node))
    return count


def code_lines(text):
    return sum(1 for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#"))


def measure_file(path, total):
    with open(path, "rb") as file:
        source = file.read()
    tree = ast.parse(source, path)  # minds the encoding that the file declares
    text = source.decode("utf-8", "replace")
    total["files"] += 1
    total["lines"] += text.count("\n")
    total["code_lines"] += code_lines(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            total["classes"] += 1
        if not isinstance(node, FUNCTIONS):
            continue
        total["functions"] += 1
        name = f"{os.path.basename(path)}:{node.name}"
        length = node.end_lineno - node.lineno + 1
        if length > total["longest"]["lines"]:
            total["longest"] = {"name": name, "lines": length}
        complexity = branches(node)
        if complexity > total["most_complex"]["branches"]:
            total["most_complex"] = {"name": name, "branches": complexity}


def new_total(package):
    return {
        "package": package[:-3] if package.endswith(".py") else package,
        "files": 0,
        "lines": 0,
        "code_lines": 0,
        "classes": 0,
        "functions": 0,
        "longest": {"name": "", "lines": 0},
        "most_complex": {"name": "", "branches": 0},
        "unreadable": [],
    }


def measure_package(stdlib, package):
    total = new_total(package)
    for path in python_files(os.path.join(stdlib, package)):
        try:
            measure_file(path, total)
        except (SyntaxError, ValueError, OSError) as trouble:
            total["unreadable"].append(f"{os.path.relpath(path, stdlib)}: {trouble}")
    return total


def measure_input():
    """Measure the input files of this job. Their names in the data set begin with the package."""
    with open(os.environ["PILOTAGE_INPUT"], encoding="utf-8") as file:
        files = json.load(file)["files"]
    totals = {}
    for entry in files:
        package = entry["name"].split("/")[0]
        total = totals.setdefault(package, new_total(package))
        try:
            measure_file(entry["path"], total)
        except (SyntaxError, ValueError, OSError) as trouble:
            total["unreadable"].append(f"{entry['name']}: {trouble}")
    return list(totals.values())


def main():
    start = time.perf_counter()
    if len(sys.argv) == 1:
        output, measured = "result.json", measure_input()
    else:
        output, stdlib, packages = sys.argv[1], sys.argv[2], sys.argv[3].split(",")
        measured = [measure_package(stdlib, package) for package in packages]
    for total in measured:
        print(
            f"{total['package']:<28} {total['lines']:7} lines in {total['functions']:4} functions", flush=True
        )
    result = {
        "python": sys.version.split()[0],
        "seconds": round(time.perf_counter() - start, 3),
        "packages": measured,
    }
    with open(output, "w", encoding="utf-8") as file:
        json.dump(result, file, indent=1)


if __name__ == "__main__":
    main()
