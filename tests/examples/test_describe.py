"""describe: test_describe.py DESCRIBE"""
import re
import sys

from running import Checker


def main():
    c = Checker(sys.argv[1])
    for arguments, texts in ((["glm5", "--tp", "8", "--rows", "2", "--bandwidth", "8"],
                              ["glm5, own formats, TP8", "16 of 256", "kind moe_listed", "memory floor", "at 8.00 TB/s",
                               "ring slots of", "mailbox"]),
                             (["micro", "--target", "sm90", "--caches", "fp8", "--formats", "mxfp4"],
                              ["on sm90", "cache: 576 bytes a token", "LDS of a block: 232448 bytes"])):
        code, out, err = c.run(*arguments)
        c.expect(code == 0 and err == "", f"{arguments}", err)
        for text in texts:
            c.expect(text in out, f"{arguments}: '{text}'", out)
    # Weights by hand: GLM-5 at TP8, q_a 2048 x 6144 in FP8 with f32 scales of 128 x 128 blocks.
    _, out, _ = c.run("glm5", "--tp", "8", "--rows", "2")
    c.expect(re.search(r"q_a +128 tiles.*, 12\.\d\d MB", out), "bytes of q_a", out)
    c.expect(re.search(r"program: 4 kinds, 19 slots, 2 rows of 8, top 8, 8 ranks", out), "the program", out)
    # Fewer experts read fewer bytes.
    floor = lambda n: float(re.search(r"kind moe:.*?weights ([\d.]+) MB", c.run("glm5", "--tp", "8", "--experts", n)[1], re.S)[1])
    c.expect(floor("8") < floor("16") < floor("64"), "weights by experts")
    c.refused(["glm9"], "config: seen 'glm9/TP4/own', wanted a known one")
    c.refused(["glm5", "--tp", "3"], "'glm5/TP3/own'")
    c.refused(["glm5", "--tp", "x"], "--tp: seen 'x'")
    c.refused(["glm5", "--rows", "9"], "--rows: seen '9', wanted at most the config's max_rows 8")
    c.refused(["micro", "--experts", "9"], "--experts: seen '9'")
    c.refused(["glm5", "--bandwidth", "-2"], "--bandwidth: seen '-2'")
    c.refused(["glm5", "--target", "gfx906"], "--target: seen 'gfx906', wanted gfx950 or sm90")
    c.refused(["glm5", "--caches", "x"], "--caches: seen 'x'")
    c.refused(["glm5", "--colour", "x"], "argument: seen '--colour'")
    return c.end()


if __name__ == "__main__":
    sys.exit(main())
