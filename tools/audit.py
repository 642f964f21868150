#!/usr/bin/env python3
"""Reads the machine code of AMD kernels and fails on what this library must never emit.

    audit.py CODE_OBJECT --arch gfx950 [--kernel REGEX] [--require MNEMONIC]... [--dynamic-lds BYTES] [--threads N]
             [--code-bytes N]

CODE_OBJECT is a plain ELF (clang++ --offload-device-only --no-gpu-bundle-output); llvm-objdump and llvm-readelf are
taken from ROCM_LLVM_BIN. One line a finding: kernel, address, instruction, [rule], why. Exit code 1 if there is one.

Rules
  spill              registers are spilled
  scratch            the kernel has a private segment, or touches scratch
  lds-budget         static LDS and --dynamic-lds exceed the chip's
  register-budget    too many registers for a block of --threads (default: the kernel's own bound) to fit a CU
  cache-invalidate   buffer_inv: an acquire slipped in; it empties the CU's L1 and drains vmcnt
  cache-writeback    buffer_wbl2: a release slipped in; it walks the XCD's L2
  undrained-arrival  a payload store can reach an arrival on a path of its wave without s_waitcnt vmcnt(0)
  producer-drain     vmcnt(0) in a loop with load-to-LDS: the ring's flight is cut to nothing
  narrow-lds-load    load-to-LDS of less than 16 bytes a lane (gfx950)
  barrier-in-loop    s_barrier in a loop of a kernel that has load-to-LDS: the producer wave will not come
  float-atomic       an atomic on floats: its sums depend on the order in which waves come
  flat-access        flat_*: an address space was lost; such an access counts on two counters
  call               a call or computed jump: nothing behind it can be checked
  code-size          the code is larger than --code-bytes
  missing            no instruction named by --require

How things are recognised (include/monolayer/arch/gfx9/isa.hpp emits them):
  payload store      *_store_* with sc1, other than 8 bytes wide (those are tagged words: data and epoch in one
                     store, which nothing has to wait for)
  arrival            a store directly behind `s_nop 0xa100`
  meant vmcnt(0)     directly behind `s_nop 0xd100`: the producer waits for its newest chunk, with nothing to issue
Only s_nop's low 4 bits act, so the markers cost one wait state; compilers emit s_nop 0..15. What is not seen: a
wait of the compiler for fewer operations than needed but more than none, and anything between waves.
The control flow graph is followed by instruction; loops are its strongly connected components. So a kernel must
split into producer and consumers outside of any common loop.
"""
import argparse
import os
import re
import subprocess
import sys

LDS = {"gfx950": 163840, "gfx942": 65536}
ARRIVAL, MEANT = "0xa100", "0xd100"


class Instruction:
    def __init__(self, address, text):
        self.address, self.text = address, text
        self.name, _, self.operands = text.partition(" ")
        self.operands = self.operands.strip()

    def marker(self, value):
        return self.name == "s_nop" and self.operands == value

    def has(self, modifier):
        return modifier in self.operands.replace(",", " ").split()

    def lds_load(self):
        if "_load_lds_" in self.name:
            return True
        return self.name.startswith("buffer_load") and self.has("lds")

    def store(self):
        return re.match(r"(global|buffer)_store_", self.name) is not None

    def payload(self):
        return self.store() and self.has("sc1") and not self.name.endswith("_dwordx2")

    def drains(self):
        return self.name == "s_waitcnt" and ("vmcnt(0)" in self.operands or self.operands in ("0", "0x0"))


def read_kernels(notes):
    """The metadata of each kernel from llvm-readelf --notes: a list of dictionaries."""
    kernels = []
    for line in notes.splitlines():
        field = re.match(r"(  - |    )\.(\w+):\s*(\S*)\s*$", line)
        if not field:
            continue
        if field[1] == "  - ":
            kernels.append({})
        if kernels:
            kernels[-1][field[2]] = field[3].strip("'")
    return [k for k in kernels if "symbol" in k]


def read_code(text):
    """name -> [Instruction] from llvm-objdump -d."""
    functions, current = {}, None
    for line in text.splitlines():
        head = re.match(r"[0-9a-f]+ <(.+)>:$", line)
        if head:
            current = functions.setdefault(head[1], [])
            continue
        body = re.match(r"\t(.+?)\s*// ([0-9A-F]+):", line)
        if body and current is not None:
            current.append(Instruction(int(body[2], 16), body[1]))
    return functions


def successors(code):
    """For each instruction the indices that can follow."""
    at = {instruction.address: i for i, instruction in enumerate(code)}
    follow = []
    for i, instruction in enumerate(code):
        name, after = instruction.name, []
        if name not in ("s_branch", "s_endpgm", "s_setpc_b64"):
            after.append(i + 1)
        if name == "s_branch" or name.startswith("s_cbranch_"):
            offset = int(instruction.operands.split()[-1], 0)
            offset -= 65536 if offset >= 32768 else 0
            after.append(at.get(instruction.address + 4 + 4 * offset, len(code)))
        follow.append([j for j in after if j < len(code)])
    return follow


def reachable(follow, start, stop=lambda i: False):
    """Indices that can be reached from start (itself left out, unless it comes again), not going past `stop`."""
    seen, work = set(), list(follow[start])
    while work:
        i = work.pop()
        if i in seen:
            continue
        seen.add(i)
        if not stop(i):
            work.extend(follow[i])
    return seen


def components(follow, nodes):
    """Tarjan: index -> number of its strongly connected component; None where an instruction is in no loop."""
    order, low, on, stack, result, count = {}, {}, set(), [], {}, 0
    for root in nodes:
        if root in order:
            continue
        work = [(root, iter(follow[root]))]
        order[root] = low[root] = len(order)
        stack.append(root)
        on.add(root)
        while work:
            node, rest = work[-1]
            child = next(rest, None)
            if child is None:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == order[node]:
                    members = []
                    while not members or members[-1] != node:
                        members.append(stack.pop())
                        on.discard(members[-1])
                    loop = len(members) > 1 or node in follow[node]
                    for member in members:
                        result[member] = count if loop else None
                    count += 1
            elif child not in order:
                order[child] = low[child] = len(order)
                stack.append(child)
                on.add(child)
                work.append((child, iter(follow[child])))
            elif child in on:
                low[node] = min(low[node], order[child])
    return result


def audit(kernel, code, arch, require=(), dynamic_lds=0, threads=None, code_bytes=None):
    """[(instruction or None, rule, why)]"""
    found = []
    number = lambda field: int(kernel.get(field, 0))
    spilled = number("vgpr_spill_count") + number("sgpr_spill_count")
    if spilled:
        found.append((None, "spill", f"{spilled} registers"))
    if number("private_segment_fixed_size") or kernel.get("uses_dynamic_stack") == "true":
        found.append((None, "scratch", f"{number('private_segment_fixed_size')} bytes a lane"))
    lds = number("group_segment_fixed_size") + dynamic_lds
    if lds > LDS[arch]:
        found.append((None, "lds-budget", f"{lds} bytes of {LDS[arch]}"))
    waves = -(-(threads or number("max_flat_workgroup_size")) // 64)
    limit = 512 // -(-waves // 4) // 8 * 8  # registers a lane when a SIMD holds its share of the block
    if number("vgpr_count") > limit:
        found.append((None, "register-budget", f"{number('vgpr_count')} of {limit} for {waves} waves"))

    size = code[-1].address + 4 - code[0].address
    if code_bytes is not None and size > code_bytes:
        found.append((None, "code-size", f"{size} bytes of {code_bytes}"))

    follow = successors(code)
    live = {0} | reachable(follow, 0)
    loops = components(follow, sorted(live))
    behind = lambda i, value: i > 0 and code[i - 1].marker(value)
    streaming = {loops[i] for i in live if code[i].lds_load() and loops[i] is not None}
    has_lds_load = any(code[i].lds_load() for i in live)
    names = {code[i].name for i in live}
    for i in sorted(live):
        op = code[i]
        if op.name == "buffer_inv":
            found.append((op, "cache-invalidate", "an acquire"))
        elif op.name == "buffer_wbl2":
            found.append((op, "cache-writeback", "a release"))
        elif re.match(r"(global|buffer|flat|ds)_(atomic_)?(pk_)?(add|min|max)_(rtn_)?b?f\d", op.name):
            found.append((op, "float-atomic", "its sums depend on the schedule"))
        elif op.name.startswith("flat_"):
            found.append((op, "flat-access", "an address space was lost"))
        elif op.name.startswith("scratch_"):
            found.append((op, "scratch", "an access to scratch"))
        elif op.name in ("s_swappc_b64", "s_setpc_b64", "s_call_b64"):
            found.append((op, "call", "nothing behind it can be checked"))
        elif op.name == "s_barrier" and has_lds_load and loops[i] is not None:
            found.append((op, "barrier-in-loop", "the producer wave will not come"))
        elif op.lds_load() and arch == "gfx950" and not op.name.endswith("dwordx4"):
            found.append((op, "narrow-lds-load", "less than 16 bytes a lane"))
        elif op.drains() and loops[i] in streaming and loops[i] is not None and not behind(i, MEANT):
            found.append((op, "producer-drain", "waits for every copy in flight"))
        elif op.payload() and not behind(i, ARRIVAL):
            for j in sorted(reachable(follow, i, lambda k: code[k].drains())):
                if code[j].store() and behind(j, ARRIVAL):
                    found.append((op, "undrained-arrival", f"reaches the arrival at {code[j].address:#x}"))
                    break
    for name in require:
        if not any(n.startswith(name) for n in names):
            found.append((None, "missing", f"no {name}"))
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("code_object")
    parser.add_argument("--arch", required=True, choices=sorted(LDS))
    parser.add_argument("--kernel", default="", help="regular expression; other kernels are left out")
    parser.add_argument("--require", action="append", default=[], metavar="MNEMONIC",
                        help="an instruction whose name starts so must be there")
    parser.add_argument("--dynamic-lds", type=int, default=0, metavar="BYTES", help="what the launch adds")
    parser.add_argument("--threads", type=int, help="threads of a block")
    parser.add_argument("--code-bytes", type=int, metavar="BYTES", help="the most that the code may have")
    args = parser.parse_args()
    tools = os.environ.get("ROCM_LLVM_BIN")
    tool = lambda name: os.path.join(tools, name) if tools else name
    run = lambda *command: subprocess.run(command, capture_output=True, text=True, check=True).stdout
    kernels = read_kernels(run(tool("llvm-readelf"), "--notes", args.code_object))
    code = read_code(run(tool("llvm-objdump"), "-d", f"--mcpu={args.arch}", args.code_object))
    total = looked_at = 0
    for kernel in kernels:
        name = kernel["symbol"].removesuffix(".kd")
        if not re.search(args.kernel, name):
            continue
        looked_at += 1
        found = audit(kernel, code[name], args.arch, args.require, args.dynamic_lds, args.threads,
                      args.code_bytes)
        for op, rule, why in found:
            where = f"{op.address:#x}: {op.text}" if op else "-"
            print(f"{name}: {where}: [{rule}] {why}")
        total += len(found)
        if not found:
            print(f"{name}: ok: {len(code[name])} instructions, "
                  f"{code[name][-1].address + 4 - code[name][0].address} bytes, vgpr {kernel.get('vgpr_count')}, "
                  f"sgpr {kernel.get('sgpr_count')}, lds {kernel.get('group_segment_fixed_size')}")
    if not looked_at:
        print(f"no kernel of {args.code_object} matches '{args.kernel}'")
    return 1 if total or not looked_at else 0


if __name__ == "__main__":
    sys.exit(main())
