"""generate on the checkpoint in tests/data: test_generate.py PART GENERATE MAKE_CHECKPOINT DATA

  runs     free generation: bits do not depend on rows, blocks, seed; a recorded token; trace and table
  follows  teacher-forced: equal choices, an excused flip, a divergence that is none of the layers' doing
  refuses  wrong inputs get a line that says what, seen and wanted
  all      (long) the whole recorded run, teacher-forced, on both simulated targets
"""
import json
import os
import re
import struct
import sys
import tempfile

from running import Checker

BF16_VOCAB = 256


def read(path):
    with open(path, "rb") as f:
        header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
        data = f.read()
    return {name: (t["dtype"], t["shape"], data[t["data_offsets"][0]:t["data_offsets"][1]])
            for name, t in header.items() if name != "__metadata__"}


def write(path, tensors):
    header, data = {}, b""
    for name, (kind, shape, values) in tensors.items():
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [len(data), len(data) + len(values)]}
        data += values
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)


def shortened(golden, tokens, prompt):
    """The first `tokens` positions of a recorded run, as one with a prompt of `prompt`."""
    rows = golden["tokens"][1][0]
    short = {}
    for name, (kind, shape, values) in golden.items():
        if shape and shape[0] == rows:
            short[name] = (kind, [tokens] + shape[1:], values[:len(values) // rows * tokens])
    short["prompt_len"] = ("I32", [1], struct.pack("<i", prompt))
    return short


def logits_of(golden, position):
    return list(struct.unpack_from(f"<{BF16_VOCAB}f", golden["logits"][2], position * BF16_VOCAB * 4))


def changed(tensor, element, value, code):
    kind, shape, values = tensor
    size = struct.calcsize(code)
    return kind, shape, values[:element * size] + struct.pack("<" + code, value) + values[(element + 1) * size:]


def directory_with(folder, data, golden=None, config=None):
    os.makedirs(folder)
    os.symlink(os.path.join(os.path.abspath(data), "model.safetensors"), os.path.join(folder, "model.safetensors"))
    with open(os.path.join(data, "config.json")) as f:
        settings = json.load(f)
    settings.update(config or {})
    with open(os.path.join(folder, "config.json"), "w") as f:
        json.dump(settings, f)
    if golden:
        write(os.path.join(folder, "golden.safetensors"), golden)
    return folder


def runs(c, data, scratch):
    # A prompt of 8 recorded tokens and the recorded choice after it.
    golden = shortened(read(f"{data}/golden.safetensors"), 9, 8)
    values = logits_of(golden, 7)
    del golden["logits"]  # it is not needed; the rows that follow belong to another token
    golden["tokens"] = changed(golden["tokens"], 8, values.index(max(values)), "i")
    folder = directory_with(f"{scratch}/short", data, golden)
    trace = f"{scratch}/trace.csv"
    code, out, err = c.run(folder, "--tokens", 3, "--target", "sm90", "--blocks", 1, "--trace", trace)
    c.expect(code == 0 and err == "", "a short run", out + err)
    c.expect("prompt: positions 0..7 of 8" in out, "progress", out)
    c.expect(out.rstrip().splitlines()[-1] == "generate: OK, 1 of 1 tokens equal", "the recorded token", out)
    generated = re.search(r"^generated: (.*)$", out, re.M)
    c.expect(generated and len(generated[1].split()) == 3, "three tokens", out)
    for stage in ("q_a", "attention", "routed_gate_up", "mlp_sum", "together"):
        c.expect(re.search(rf"^{stage} .*\d+ +\d+ +\d+$", out, re.M), f"stage {stage} in the table", out)
    with open(trace) as f:
        lines = f.read().splitlines()
    c.expect(lines[0] == "launch,rank,block,wave,layer,stage,tile,virtual_ns,waits_for" and len(lines) > 100, "the trace", lines[:3])
    waits = re.search(r"^together +\d+ +(\d+) +(\d+)$", out, re.M)
    c.expect(waits and int(waits[1]) + int(waits[2]) == len(lines) - 1, "as many waits in the trace as in the table", out)

    # The bits depend on neither the launches' widths, the grid, nor the schedule.
    with_prompt = [folder, "--prompt", ",".join(str(t) for t in struct.unpack("<8i", golden["tokens"][2][:32])), "--tokens", 3]
    for extra in (["--rows", 3, "--seed", 7, "--target", "sm90", "--checks", "off"],
                  ["--rows", 5, "--blocks", 3, "--target", "sm90", "--checks", "off"]):
        code, out, _ = c.run(*with_prompt, *extra)
        again = re.search(r"^generated: (.*)$", out, re.M)
        c.expect(code == 0 and again and again[1] == generated[1], f"the same tokens with {extra}", out)
        c.expect(out.rstrip().endswith("generate: OK, 3 tokens, nothing to compare with"), "nothing recorded", out)
    # One rank, the other machine; FP8 caches round differently, and still run.
    code, out, _ = c.run(folder, "--tokens", 1, "--tp", 1, "--target", "gfx950", "--checks", "off")
    c.expect(code == 0 and "TP1 on gfx950" in out and "1 of 1 tokens equal" in out, "TP1", out)
    code, out, _ = c.run(folder, "--prompt", "1,2", "--tokens", 2, "--caches", "fp8", "--target", "sm90")
    c.expect(code == 0 and "caches fp8" in out, "FP8 caches", out)


def follows(c, data, scratch):
    golden = read(f"{data}/golden.safetensors")
    short, other = f"{scratch}/short.safetensors", f"{scratch}/other.safetensors"
    forced = [data, "--teacher-forced", None, "--target", "sm90", "--checks", "off"]
    # At position 9 a router's near tie falls the other way than the reference's, whose activations are f32.
    write(short, shortened(golden, 13, 11))
    forced[2] = short
    code, out, err = c.run(*forced)
    last = out.rstrip().splitlines()[-1]
    c.expect(code == 0 and err == "", "a flip is excused", out + err)
    c.expect(last.startswith("generate: OK, 11 of 12 positions equal; first divergence at position 9") and
             "chose other experts" in last, "the flip is named", out)
    # A recorded choice that no layer explains.
    values = logits_of(golden, 3)
    wrong = (values.index(max(values)) + 1) % BF16_VOCAB
    forged = shortened(golden, 6, 4)
    forged["logits"] = changed(forged["logits"], 3 * BF16_VOCAB + wrong, 1e3, "f")
    write(other, forged)
    forced[2] = other
    code, out, _ = c.run(*forced)
    last = out.rstrip().splitlines()[-1]
    c.expect(code == 1, "a divergence fails", out)
    c.expect(last.startswith("generate: FAILED, 4 of 5 positions equal; first divergence at position 3") and
             last.endswith("no layer picked otherwise"), "and is named", out)
    # The same within a near tie.
    forged["logits"] = changed(forged["logits"], 3 * BF16_VOCAB + wrong, max(values) + 0.03, "f")
    write(other, forged)
    code, out, _ = c.run(*forced)
    c.expect(code == 0 and out.rstrip().endswith("a near tie"), "a near tie is excused", out)


def refuses(c, data, scratch, make_checkpoint):
    import subprocess
    c.refused([], "generate: first argument: seen nothing, wanted the directory of a checkpoint")
    c.refused(["--tp", 4], "first argument: seen '--tp'")
    c.refused([f"{scratch}/nowhere"], f"{scratch}/nowhere/config.json", "No such file")
    c.refused([data, "--rwos", 4], "argument: seen '--rwos', wanted an option that generate --help lists")
    c.refused([data, "--rows"], "--rows: seen nothing, wanted a value after it")
    for rows in ("0", "9", "3x", "-1", ""):
        c.refused([data, "--rows", rows], f"--rows: seen '{rows}', wanted a whole number from 1 to 8")
    c.refused([data, "--tp", 9], "--tp: seen '9', wanted a whole number from 1 to 8")
    c.refused([data, "--tp", 3], "--tp: seen 3, wanted a divisor of num_attention_heads 8")
    c.refused([data, "--tp", 2], "--tp: seen 2, wanted one that is compiled (1, 4",
              "or 'with_mxfp4_layer<micro_layer<2>>' in examples/generate/configs.hpp")
    c.refused([data, "--target", "gfx906"], "--target: seen 'gfx906', wanted one that this program is compiled for: gfx950,sm90")
    c.refused([data, "--caches", "int4"], "--caches: seen 'int4', wanted fp8 or bf16")
    c.refused([data, "--caches", "fp8", "--tp", 1], "'with_fp8_caches<with_mxfp4_layer<micro_layer<1>>>'")
    c.refused([data, "--checks", "maybe"], "--checks: seen 'maybe', wanted on or off")
    c.refused([data, "--seed", "x"], "--seed: seen 'x'")
    c.refused([data, "--tokens", "0"], "--tokens: seen '0'")
    c.refused([data, "--tokens", "5000"], "prompt and --tokens: seen 5096, wanted at most 4096 together")
    c.refused([data, "--blocks", "1000"], "--blocks: seen 1000, wanted at most ")
    c.refused([data, "--prompt", "1,,2"], "--prompt: seen ''")
    c.refused([data, "--prompt", "1,256"], "--prompt: seen 256, wanted ids below vocab_size 256")
    c.refused([data, "--prompt", "1", "--teacher-forced", "x"], "--prompt: seen given with --teacher-forced")
    c.refused([data, "--teacher-forced", f"{scratch}/none"], f"{scratch}/none", "No such file")
    c.refused([data, "--teacher-forced", f"{data}/model.safetensors"], "tensor 'tokens'")
    c.refused([data, "--trace", f"{scratch}/no/folder"], "--trace: seen ", "wanted a file that can be written")
    bare = directory_with(f"{scratch}/bare", data)
    c.refused([bare], "--prompt: seen nothing, and no golden.safetensors in the directory, wanted token ids")
    short = shortened(read(f"{data}/golden.safetensors"), 9, 8)
    for name, change, text in (("prompt", {"prompt_len": ("I32", [1], struct.pack("<i", 9))}, "'prompt_len': seen 9, wanted 1..8"),
                               ("tokens", {"tokens": changed(short["tokens"], 2, 256, "i")}, "'tokens': seen 256, wanted ids below"),
                               ("logits", {"logits": ("F32", [9, 2], short["logits"][2][:72])}, "'logits': seen F32 [9, 2], wanted F32 [9, 256]")):
        c.refused([directory_with(f"{scratch}/bad_{name}", data, {**short, **change})], text)
    # Geometries and formats without a line.
    other = directory_with(f"{scratch}/top3", data, config={"num_experts_per_tok": 3, "routed_scaling_factor": 1.5})
    c.refused([other], "geometry of the checkpoint: seen hidden 256 and others that no line has",
              "'template <int TP> struct my_layer : glm5_layer<TP> { static constexpr int hidden = 256; ",
              "static constexpr int heads = 8 / TP; ", "static constexpr int top_k = 3; ",
              "static constexpr float routed_scaling = float(1.5); ", "and 'with_mxfp4_layer<my_layer<4>>'",
              " in examples/generate/configs.hpp")
    for formats, line in ((["--attention", "fp8_channel"], "'with_mxfp4_layer<mini_layer<8>>'"),
                          (["--attention", "bf16", "--experts", "bf16"], "'with_bf16_layer<mini_layer<8>>'"),
                          (["--attention", "fp8_block", "--index", "fp8_block"], "'mini_layer<8>'")):
        mini = f"{scratch}/mini{len(line)}{formats[1]}"
        subprocess.run([make_checkpoint, mini, *formats], check=True, capture_output=True)
        c.refused([mini, "--tp", 8, "--prompt", "1"], "geometry of the checkpoint: seen mini_layer's", line)
    code, out, err = c.run("--help")
    c.expect(code == 0 and "--teacher-forced" in out and err == "", "--help", out + err)


def all_of(c, data):
    for target in ("sm90", "gfx950"):
        code, out, err = c.run(data, "--teacher-forced", f"{data}/golden.safetensors", "--target", target)
        equal = re.search(r"generate: OK, (\d+) of (\d+) positions equal", out)
        c.expect(code == 0 and equal and int(equal[2]) == 127 and int(equal[1]) >= 120, f"all positions on {target}", out + err)
        print(f"{target}: {out.rstrip().splitlines()[-1]}")


def main():
    part, generate, make_checkpoint, data = sys.argv[1:]
    c = Checker(generate)
    with tempfile.TemporaryDirectory() as scratch:
        if part == "refuses":
            refuses(c, data, scratch, make_checkpoint)
        elif part == "all":
            all_of(c, data)
        else:
            {"runs": runs, "follows": follows}[part](c, data, scratch)
    return c.end()


if __name__ == "__main__":
    sys.exit(main())
