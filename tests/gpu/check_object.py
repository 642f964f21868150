#!/usr/bin/env python3
"""Checks a compiled GPU unit without a GPU: it holds a kernel for the right chip, and no kernel spills.

AMD: the code object's own notes, read by llvm-readelf. sm_90a: what ptxas -v wrote in the log.
One line for each kernel goes to standard output.
"""
import argparse
import pathlib
import re
import subprocess
import sys


def amd_kernels(notes):
    """(chip, [fields of a kernel]) from the text of llvm-readelf --notes."""
    target = re.search(r"^amdhsa\.target:\s*'?\S*?(gfx\w+)", notes, re.M)
    kernels = []
    # A kernel's own fields stand at the list's first level; those of its arguments lie deeper.
    for line in notes.splitlines():
        field = re.match(r"(  - |    )\.(\w+):\s*(\S*)\s*$", line)
        if not field:
            continue
        if field[1] == "  - ":
            kernels.append({})
        if kernels:
            kernels[-1][field[2]] = field[3]
    return (target[1] if target else None), [k for k in kernels if "name" in k]


def check_amd(arch, notes):
    chip, kernels = amd_kernels(notes)
    wrong = [] if chip == arch else [f"the code object is for {chip}, not {arch}"]
    spills = []
    for k in kernels:
        spilled = int(k["vgpr_spill_count"]) + int(k["sgpr_spill_count"])
        scratch = int(k["private_segment_fixed_size"])
        print(f"{k['name']}: vgpr {k['vgpr_count']} (agpr {k.get('agpr_count', 0)}) sgpr {k['sgpr_count']} "
              f"lds {k['group_segment_fixed_size']} scratch {scratch} spilled {spilled}")
        if spilled or scratch:
            spills.append(f"{k['name']} spills {spilled} registers, scratch {scratch} bytes a lane")
    if not kernels:
        wrong.append("there is no kernel in the code object")
    return wrong, spills


def check_ptxas(log):
    wrong, spills = [], []
    parts = re.split(r"Compiling entry function '([^']+)' for '([^']+)'", log)[1:]
    for name, chip, text in zip(parts[0::3], parts[1::3], parts[2::3]):
        bytes_of = re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", text)
        used = re.search(r"Used (\d+) registers", text)
        if not bytes_of or not used:
            wrong.append(f"{name}: ptxas did not say what it uses")
            continue
        print(f"{name}: registers {used[1]} stack {bytes_of[1]} spill stores {bytes_of[2]} loads {bytes_of[3]}")
        if chip != "sm_90a":
            wrong.append(f"{name} is for {chip}, not sm_90a")
        if bytes_of[2] != "0" or bytes_of[3] != "0":
            spills.append(f"{name} spills: {bytes_of[2]} bytes stored, {bytes_of[3]} loaded")
    # Functions that were not inlined report by 'Function properties for NAME' alone.
    total = sum(int(a) + int(b) for a, b in re.findall(r"(\d+) bytes spill stores, (\d+) bytes spill loads", log))
    if total and not spills:
        spills.append("a function that was not inlined spills")
    if not parts:
        wrong.append("ptxas names no kernel")
    return wrong, spills


def self_test():
    amd = ("amdhsa.kernels:\n  - .agpr_count:     0\n    .args:\n      - .offset:         0\n    .group_segment_fixed_size: 64\n"
           "    .name:           k\n    .private_segment_fixed_size: {0}\n    .sgpr_count:     8\n    .sgpr_spill_count: 0\n"
           "    .vgpr_count:     9\n    .vgpr_spill_count: {1}\namdhsa.target:   amdgcn-amd-amdhsa--gfx950\n")
    nv = ("ptxas info    : Compiling entry function 'k' for 'sm_90a'\nptxas info    : Function properties for k\n"
          "    0 bytes stack frame, {0} bytes spill stores, {1} bytes spill loads\nptxas info    : Used 8 registers\n")
    cases = [
        ("amd good", check_amd("gfx950", amd.format(0, 0)), (0, 0)),
        ("amd spill", check_amd("gfx950", amd.format(0, 3)), (0, 1)),
        ("amd scratch", check_amd("gfx950", amd.format(16, 0)), (0, 1)),
        ("amd other chip", check_amd("gfx942", amd.format(0, 0)), (1, 0)),
        ("amd empty", check_amd("gfx950", "amdhsa.target:   amdgcn-amd-amdhsa--gfx950\n"), (1, 0)),
        ("sm_90a good", check_ptxas(nv.format(0, 0)), (0, 0)),
        ("sm_90a spill", check_ptxas(nv.format(4, 0)), (0, 1)),
        ("sm_90a other chip", check_ptxas(nv.format(0, 0).replace("sm_90a", "sm_90")), (1, 0)),
        ("sm_90a spill in a callee", check_ptxas(nv.format(0, 0) + nv.format(0, 8).split("\n", 1)[1]), (0, 1)),
        ("sm_90a empty", check_ptxas(""), (1, 0)),
    ]
    bad = [name for name, got, want in cases if tuple(map(len, got)) != want]
    print("self-test:", "WRONG: " + ", ".join(bad) if bad else f"{len(cases)} cases ok")
    return 1 if bad else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--readelf", default="llvm-readelf")
    parser.add_argument("--allow-spill", action="store_true")
    parser.add_argument("--self-test", action="store_true", help="check that the checks go red when they should")
    parser.add_argument("arch", nargs="?", help="gfx950, gfx942 or sm90")
    parser.add_argument("object", nargs="?", type=pathlib.Path)
    parser.add_argument("log", nargs="?", type=pathlib.Path)
    args = parser.parse_args()
    if args.self_test:
        return self_test()
    if not args.log:
        parser.error("ARCH OBJECT LOG are needed")
    if not args.object.is_file() or args.object.stat().st_size == 0:
        print(f"{args.object} was not built")
        return 1
    if args.arch == "sm90":
        wrong, spills = check_ptxas(args.log.read_text(errors="replace"))
    else:
        notes = subprocess.run([args.readelf, "--notes", args.object], capture_output=True, text=True, check=True)
        wrong, spills = check_amd(args.arch, notes.stdout)
    if not args.allow_spill:
        wrong += spills
    for line in wrong:
        print("WRONG:", line)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
