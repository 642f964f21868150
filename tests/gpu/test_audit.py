#!/usr/bin/env python3
"""tools/audit.py goes red where it must: each file in audit_cases names the rules that it breaks.

A case says `// expect: RULE, RULE` (or `nothing`) and may say `// audit: OPTIONS`; it is compiled for gfx950.
Environment: HIPCXX, ROCM_LLVM_BIN; without them the test is skipped (exit code 77).
"""
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
AUDIT = ROOT / "tools/audit.py"


def expected_rules(text):
    return set(re.search(r"^// expect: (.*)$", text, re.M)[1].split(", ")) - {"nothing"}


def check(case, scratch):
    """'' or what went wrong"""
    text = case.read_text()
    expected = expected_rules(text)
    options = re.search(r"^// audit: (.*)$", text, re.M)
    code = scratch / (case.stem + ".co")
    build = subprocess.run([os.environ["HIPCXX"], "-x", "hip", "--offload-arch=gfx950", "--offload-device-only",
                            "--no-gpu-bundle-output", "-O3", "-std=c++20", "-w", "-I", ROOT / "include", "-o", code,
                            case], capture_output=True, text=True)
    if build.returncode:
        return "does not compile:\n" + build.stderr
    run = subprocess.run([sys.executable, AUDIT, code, "--arch", "gfx950", *(options[1].split() if options else [])],
                         capture_output=True, text=True)
    seen = set(re.findall(r": \[([a-z-]+)\]", run.stdout))
    if run.returncode != (1 if expected else 0) or run.stderr or seen != expected:
        return f"expected {sorted(expected)}, seen {sorted(seen)}, exit code {run.returncode}\n{run.stdout}{run.stderr}"
    return ""


def main():
    if not os.environ.get("HIPCXX") or not os.environ.get("ROCM_LLVM_BIN"):
        print("SKIPPED: HIPCXX and ROCM_LLVM_BIN are not set")
        return 77
    cases = sorted((HERE / "audit_cases").glob("*.hip"))
    failed = 0
    tested = set()
    with tempfile.TemporaryDirectory() as scratch, concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for case, wrong in zip(cases, pool.map(lambda c: check(c, pathlib.Path(scratch)), cases)):
            print(f"{'FAILED' if wrong else 'ok':7} {case.name} {wrong}")
            failed += bool(wrong)
            tested.update(expected_rules(case.read_text()))
    rules = set(re.findall(r"^  ([a-z]+(?:-[a-z]+)*)  +\S", AUDIT.read_text().split("Rules\n")[1].split("\n\n")[0], re.M))
    untested = rules - tested
    if untested:
        print("FAILED  no case for the rules:", ", ".join(sorted(untested)))
        failed += 1
    print(f"{len(cases) - failed + bool(untested)} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
