#!/usr/bin/env python3
"""Makes tiny random checkpoints of model families with transformers, and what they compute.

    scripts/make-family-fixtures.py testdata/golden/infer/models [FAMILY...]
    scripts/make-family-fixtures.py --fresh 5 --seed 7 DIR/infer/models [FAMILY...]

The first form makes the committed fixtures, the second as many models of each family as asked for,
of other shapes and options, varied by families/vary.py and families/widen.py, and for models of text alone the gradients of their weights in DIR/train/gradients.
scripts/check-families.sh makes fresh models and runs the golden tests on them. Configs have the form in which models are published, or that of transformers 5. Layout and
figures are those of make-arch-fixtures.py; golden.json is gzipped, and so are the weights of committed fixtures.
"""
import argparse
import contextlib
import copy
import gzip
import io
import json
import logging
import pathlib
import random
import re
import runpy
import shutil
import sys
import tempfile
import types

import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForMultimodalLM

transformers.logging.set_verbosity_error()
logging.disable(logging.CRITICAL)
here = pathlib.Path(__file__).parent
sys.path.insert(0, str(here))
arch = types.SimpleNamespace(**runpy.run_path(str(here / "make-arch-fixtures.py")))
train = types.SimpleNamespace(**runpy.run_path(str(here / "make-train-fixtures.py")))
base = arch.base
import packed
from families import FAMILIES, NARROW, shapes, vary, widen
from families.reference import MANY_PARTS, dory_published, is_of_images, is_text_within, step3p5_published, without_idle_experts, without_layers_of_images
torch.set_num_threads(1)

MARGIN = 1e-3
CHOICE_MARGIN = 2e-5
LENGTHS = (1, 7, 12, 21)
DECAYS = ("slope_rate", "query_decay", "key_decay", "diagonal_decay")  # of lightning attention, which the config says
DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}


def text_of(model):
    """The text model of a wrapper, or the model's own."""
    inner = model.base_model
    for name in ("language_model", "text_model", "model", "decoder"):  # in llama4 the first has the last
        inner = getattr(inner, name, inner)
    return inner


def layers_of(model):
    text = text_of(model)
    if hasattr(text, "L_module"):
        return [*text.L_module.layers, *text.H_module.layers]
    return list(next(getattr(text, name) for name in ("layers", "h", "blocks") if hasattr(text, name)))


def is_wrapper(model):
    return is_text_within(model.config.to_dict())


@torch.no_grad()
def build(config, dtype, seed):
    """The model in float32, its weights random values that dtype holds."""
    torch.manual_seed(seed)
    made = AutoConfig.for_model(**transformers.PreTrainedConfig._decode_special_floats(json.loads(json.dumps(config))))
    made._attn_implementation = attention = "sdpa" if config.get("alibi") else "eager"  # Falcon's eager one adds its biases twice
    cls = AutoModelForMultimodalLM if is_text_within(config) else AutoModelForCausalLM
    model = cls.from_config(made, attn_implementation=attention, experts_implementation="eager", dtype=torch.float32).float().eval()
    without_layers_of_images(without_idle_experts(model))
    for _, p in model.named_parameters():
        if p.dim() > 1:
            p.normal_(0, 1.6 / p.shape[-1] ** 0.5)
        else:
            p.add_(torch.randn_like(p) * 0.2)
        p.copy_(p.to(dtype).float())
    saved = model.state_dict()
    for name, b in model.named_buffers():
        if name.endswith(DECAYS):
            continue
        if name in saved and b.is_floating_point():
            b.copy_((float("layer_scalar" in name) + torch.randn_like(b) * 0.1).to(dtype).to(b.dtype))
        elif name.endswith("tid2eid"):  # the experts of each token, zeros so far
            b.copy_(torch.rand(b.shape[0], config["n_routed_experts"]).argsort(-1)[:, :b.shape[1]])
    return model


def text_parameters(model):
    if not is_wrapper(model):
        return sum(p.numel() for n, p in model.named_parameters() if "embed_tokens_extend" not in n)
    return sum(p.numel() for n, p in model.named_parameters()
               if n.startswith(("model.language_model.", "model.text_model.", "language_model.", "lm_head.")) and not is_of_images(n))


def as_published(file, config, style):
    """Undoes what save_pretrained of transformers 5 changes beside the published form, and leaves out
    the large tensors of vision towers, which nothing reads."""
    kind, tensors = config["model_type"], load_file(file)
    if style == "published":
        tensors = {n: t for n, t in tensors.items() if not n.endswith(DECAYS)}
    if "vision_config" in config or is_text_within(config):
        text = re.compile(r"language_model|text_model|lm_head|^model\.(layers|embed_tokens|norm|hc_head)\.|^(layers|embed_tokens|tok_embeddings|norm|output|lerope)\.|^model\.llm\.|^model\.transformer\.")
        tensors = {n: t for n, t in tensors.items() if text.search(n) or t.numel() < (20 if kind in MANY_PARTS else 100)}
    if kind == "kimi_k25":  # its renaming of the vision tower's layers, undone, reaches those of the text
        tensors = {re.sub(r"^(language_model\.model\.)blocks\.", r"\1layers.", n): t for n, t in tensors.items()}
    elif kind == "qianfan_ocr":  # likewise
        tensors = {re.sub(r"^(language_model\.model\.)encoder\.layers\.", r"\1layers.", n): t for n, t in tensors.items()}
    elif kind == "dory" and "mlp" in config["layer_types"]:
        tensors = {dory_published(n): t for n, t in tensors.items()}
    elif kind == "step3p5" and style == "published":
        tensors = {name: t for n, t in tensors.items() for name, t in step3p5_published(n, t)}
    elif kind == "qwen3_vl_moe" and style == "published":
        tensors = {n: t.transpose(1, 2).contiguous() if ".experts." in n else t for n, t in tensors.items()}
    save_file(tensors, file, metadata={"format": "pt"})


def check_form(config, model, folder):
    """The config that was written must mean the model that was computed."""
    again = AutoConfig.from_pretrained(folder)
    a, b = again.to_dict(), model.config.to_dict()
    for noise in ("architectures", "_name_or_path", "transformers_version", "dtype", "_attn_implementation"):
        a.pop(noise, None)
        b.pop(noise, None)
    for d in (a, b):
        for sub in [v for v in d.values() if isinstance(v, dict)]:
            sub.pop("dtype", None)
            sub.pop("_name_or_path", None)
    if json.dumps(a, sort_keys=True, default=str) != json.dumps(b, sort_keys=True, default=str):
        raise SystemExit(f"{folder}: config differs: {[(k, a.get(k), b.get(k)) for k in a | b if a.get(k) != b.get(k)]}")


def has_mixers(config):
    """Whether a model has mixers of Mamba2, gated linear recurrent units, or lightning attention."""
    return any(name in config for name in ("conv_kernel", "mamba_d_conv", "conv1d_width")) or config["model_type"] in ("minimax", "rwkv", "zaya")


def is_delta_net(config):
    c = config.get("text_config", config)
    return any(name in c for name in ("linear_key_head_dim", "linear_head_dim", "linear_attn_config", "short_conv_kernel_size"))


SCANS = ("hrm_text", "mamba", "falcon_mamba", "jamba", "recurrent_gemma", "zamba", "zamba2")


def in_double(config):
    """Whether float32 is too short for what a model computes, in some choices of weights."""
    return is_delta_net(config) or config["model_type"] in SCANS or config["model_type"].startswith(("gemma3n", "gemma4"))


@torch.no_grad()
def well_conditioned(model, ids, recurrent):
    """Leaves model in float64: the reference's sums over chunks are off by up to 1e-4 in float32, the scores of gemma3n and gemma4 are not scaled, hidden states of Mamba grow, and shares of gated units are differences to 1. Reports
    whether float32 is within that, also where recurrent says so for tokens one by one, whose states the reference keeps in float32."""
    shorts, cache = [model(input_ids=torch.tensor([ids])).logits[0]], None
    if recurrent:
        shorts.append(torch.empty_like(shorts[0]))
        for i, token in enumerate(ids):
            out = model(input_ids=torch.tensor([[token]]), past_key_values=cache, use_cache=True)
            cache, shorts[1][i] = out.past_key_values, out.logits[0, -1]
    states = lambda: [h[0, [n - 1 for n in LENGTHS]] for h in model(input_ids=torch.tensor([ids]), output_hidden_states=True).hidden_states]
    short_states = states() if model.config.model_type in SCANS else []
    want = model.double()(input_ids=torch.tensor([ids])).logits[0]
    # Hidden states of Mamba are far larger than their sums, in some choices of weights.
    if any(((a - b).abs() > 3e-5 + 3e-5 * b.abs()).any() for a, b in zip(short_states, states() if short_states else [])):
        return False
    return all((want - short).abs().max() < 1e-4 for short in shorts)


@torch.no_grad()
def steep(model, case):
    """Whether float32 is too short for a prompt with its greedy answer, in a model of float64, which it stays."""
    ids = torch.tensor([case["input_ids"] + case["greedy_ids"]])
    short = model.float()(input_ids=ids).logits
    return (model.double()(input_ids=ids).logits - short).abs().max() > 1e-4


@torch.no_grad()
def shaky(model, ids):
    """Whether weights that are off by float32's rounding move logits or hidden states of a model of float64 visibly. That one float32 is near says little where states grow."""
    def figures():
        out = model(input_ids=torch.tensor([ids]), output_hidden_states=True)
        return torch.cat([out.logits[0].flatten() * 0.3] + [h[0, [n - 1 for n in LENGTHS]].flatten() for h in out.hidden_states])

    weights, want = [p.clone() for p in model.parameters()], figures()
    moved = []
    for seed in range(4):
        g = torch.Generator().manual_seed(seed)
        for p in model.parameters():
            p.mul_(1 + 6e-8 * torch.randn(p.shape, generator=g, dtype=p.dtype))
        moved.append(figures())
        for p, w in zip(model.parameters(), weights):
            p.copy_(w)
    return any(((m - want).abs() > 3e-5 + 3e-5 * want.abs()).any() for m in moved)


class Choices:
    """Watches how close the choices of sparse attention's indexers are to ties."""

    def __enter__(self):
        self.margin, self.topk, self.function = 1e9, torch.Tensor.topk, torch.topk

        def watched(scores, k, *args, **kwargs):
            if scores.dim() in (1, 3, 4) and scores.shape[-1] > k:
                best = self.topk(scores, k + 1).values
                gap = (best[..., k - 1] - best[..., k])[best[..., k] > -1e30]
                if gap.numel():
                    self.margin = min(self.margin, gap.min().item())
            return self.topk(scores, k, *args, **kwargs)

        torch.Tensor.topk = torch.topk = watched
        return self

    def __exit__(self, *_):
        torch.Tensor.topk, torch.topk = self.topk, self.function


def search(config, dtype, first, vocab, recurrent):
    """A model none of whose greedy choices is nearly a tie."""
    globals_of = base.prompt.__wrapped__.__globals__  # of the function within no_grad
    for seed in range(first, first + 60):
        model = build(config, dtype, seed)
        globals_of["layers_of"] = layers_of
        ids = torch.randint(3, vocab, (max(LENGTHS),), generator=torch.Generator().manual_seed(seed)).tolist()
        if in_double(config) and not well_conditioned(model, ids, recurrent and is_delta_net(config)):
            continue
        if config["model_type"] == "zamba" and shaky(model, ids):
            continue
        cases = []
        for n in LENGTHS:
            with Choices() as choices:
                cases.append(base.prompt(model, ids[:n]))
            if cases[-1][1] < MARGIN or choices.margin < CHOICE_MARGIN or config["model_type"] in ("zamba", "zamba2") and steep(model, cases[-1][0]):
                break
        else:
            return seed, model, cases
    return None


def shards(folder, R):
    """Stores a model as published ones often are: in several files, its vectors in float32."""
    tensors = load_file(folder / "model.safetensors")
    if R.random() < 0.3:
        tensors = {n: t.float() if t.dim() == 1 and t.is_floating_point() else t for n, t in tensors.items()}
    count = min(R.choice([1, 1, 2, 5]), len(tensors))
    (folder / "model.safetensors").unlink()
    if count == 1:
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
        return
    names = list(tensors)
    R.shuffle(names)
    where = {n: f"model-{1 + i % count:05d}-of-{count:05d}.safetensors" for i, n in enumerate(names)}
    for file in set(where.values()):
        save_file({n: tensors[n] for n in names if where[n] == file}, folder / file, metadata={"format": "pt"})
    index = dict(metadata=dict(total_size=sum(t.nbytes for t in tensors.values())), weight_map=where)
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def disguise(folder, name, model, case, R):
    """Rewrites the files of a model in other forms that the reference loads alike."""
    places = [p for p in (folder / name, folder.parents[1] / "train" / "gradients" / name) if p.exists()]
    state, change = R.getstate(), None
    with tempfile.TemporaryDirectory() as kept:
        for i, place in enumerate(places):
            shutil.copytree(place, pathlib.Path(kept) / str(i))
        for place in places:
            R.setstate(state)  # the same in both places
            change = widen.Disguise(R, model)
            widen.rewrite(place, change.tensors)
            widen.config_forms(R, place)
        try:
            fine = widen.agrees(folder / name, case["input_ids"], case["last_logits"])
        except Exception:
            fine = False
        if not fine:
            for i, place in enumerate(places):
                shutil.rmtree(place)
                shutil.copytree(pathlib.Path(kept) / str(i), place)
            return ""
    golden = places[-1] / "golden.json"
    if len(places) == 2:
        told = json.loads(golden.read_text())
        told["gradients"] = change.names(told["gradients"])
        golden.write_text(json.dumps(told))
    return " ".join(k for k in ("bare", "head", "extra", "mixed") if getattr(change, k))


def make(folder, name, config, first, R=None):
    """Writes one model, or reports False if all its seeds have ties."""
    config = dict(config)
    globals()["LENGTHS"] = widen.lengths(R, config) if R else (1, 7, 12, 21)
    style = "v5" if "dtype" in config else "published"
    kind = config.get("dtype") or config.get("torch_dtype")
    text = config.get("text_config") or config.get("llm_config") or config
    dtype = DTYPES[kind]
    found = search(config, dtype, first, text.get("output_vocab_size") or text.get("unpadded_vocab_size") or text.get("vocab_size") or config["vocab_size"], R is not None)
    if not found:
        return False
    seed, model, cases = found
    prompts = [case for case, _ in cases]
    golden = dict(
        name=name, architecture=type(model).__name__, model_type=config["model_type"], weights_dtype=kind,
        config_style=style, shards=1, seed=seed, compute="float64" if in_double(config) else "float32, weights widened from the checkpoint's dtype",
        versions=dict(torch=torch.__version__, transformers=transformers.__version__),
        tolerance=dict(logits_atol=2e-4, logits_rtol=2e-4), min_greedy_margin=min(margin for _, margin in cases),
        num_parameters=text_parameters(model), prompts=prompts)
    if not (is_wrapper(model) or in_double(config) or has_mixers(config) or config.get("hc_mult") or config["model_type"].startswith("inkling") or config.get("conv_bias") or any(name in json.dumps(config) for name in ("short_mscale", "short_factor", "floor_scale", "minimax_m3"))):  # in the reference they see padding
        golden["padding"] = arch.padding(model, prompts)
    out = folder / name
    out.mkdir(parents=True, exist_ok=True)
    model.generation_config.eos_token_id = text.get("eos_token_id", config.get("eos_token_id"))
    model.generation_config.bos_token_id = text.get("bos_token_id", config.get("bos_token_id"))
    precise = copy.deepcopy(model)  # to() rounds buffers too, such as frequencies
    with contextlib.redirect_stderr(io.StringIO()):
        model.to(dtype).save_pretrained(out)
    as_published(out / "model.safetensors", config, style)
    if R:
        shards(out, R)
    for file in out.glob("*.safetensors"):
        file.chmod(0o644)
    config.setdefault("architectures", [type(model).__name__])
    (out / "config.json").write_text(json.dumps(config, indent=1, sort_keys=True) + "\n")
    check_form(config, model, out)
    if R and not is_wrapper(model):
        gradients(folder, name, config, style, precise)
    (out / "golden.json.gz").write_bytes(gzip.compress((json.dumps(arch.shorter(golden)) + "\n").encode(), mtime=0))
    if not R:
        packed.pack(out / "model.safetensors")
    elif not is_wrapper(model):
        name += " " + disguise(folder, name, precise.float(), prompts[2], R)
    print(name, "seed", seed, sum(f.stat().st_size for f in out.iterdir()), "bytes", flush=True)
    return True


def saved_gradients(model, ids, config, style):
    """The loss of ids, and the gradients of a model's weights under the names of their file: they are saved in place of the weights."""
    model.zero_grad()
    loss = model(torch.tensor(ids), labels=torch.tensor(ids), use_cache=False).loss
    loss.backward()
    with torch.no_grad():
        state, weights = model.state_dict(), dict(model.named_parameters(remove_duplicate=False))
        kept = [t.clone() for t in state.values()]
        for p in model.parameters():
            p.copy_(torch.zeros_like(p) if p.grad is None else p.grad)
        for n, t in state.items():
            if n not in weights and t.is_floating_point():
                t.fill_(torch.nan)
        with tempfile.TemporaryDirectory() as made, contextlib.redirect_stderr(io.StringIO()):
            file = pathlib.Path(made) / "model.safetensors"
            model.save_pretrained(made)
            as_published(file, config, style)
            tensors = {n: t.double() for n, t in load_file(file).items() if t.is_floating_point() and not t.isnan().any() and "embed_tokens_extend" not in n}
        for t, before in zip(state.values(), kept):
            t.copy_(before)
    return loss.item(), tensors


def gradients(folder, name, config, style, model):
    """Writes the gradients of a model by torch in float64, with those of its files, as make-train-fixtures.py does, and how far torch in float32 is off."""
    for seed in range(20):
        ids = torch.randint(3, config["vocab_size"], (2, 19), generator=torch.Generator().manual_seed(seed)).tolist()
        with Choices() as choices:
            rounded, short = saved_gradients(model.float(), ids, config, style)
        if choices.margin >= CHOICE_MARGIN:
            break
    else:
        return print(f"{name}: no gradients: choices are ties", file=sys.stderr)
    try:
        loss, exact = saved_gradients(model.double(), ids, config, style)
    except RuntimeError as e:  # XGLM's mask has no float64
        return print(f"{name}: no gradients: torch fails in float64: {e}", file=sys.stderr)
    out = folder.parents[1] / "train" / "gradients" / name
    shutil.copytree(folder / name, out, ignore=shutil.ignore_patterns("golden*"))
    golden = dict(input_ids=ids, labels=ids, loss=loss, loss_off=abs(loss - rounded), gradients={n: dict(train.summary(t), off=(t - short[n]).norm().item()) for n, t in exact.items()})
    (out / "golden.json").write_text(json.dumps(golden))


def fresh(folder, name, family, seed, maker):
    """A model of a varied config, the first that the reference runs and that has no ties."""
    failures = []
    for turn in range(40):
        R = vary.Wide(f"{family} {seed} {turn}")
        try:
            config = maker(R)
            if turn < 30:
                vary.vary(R, config)
            if turn < 20:
                widen.widen(R, config)
            if make(folder, name, config, 1 + seed % 1000, R):
                return
            failures.append("ties")
        except (Exception, SystemExit) as e:
            failures.append(f"{type(e).__name__}: {str(e)[:200]}")
            for part in (folder, folder.parents[1] / "train" / "gradients"):
                shutil.rmtree(part / name, ignore_errors=True)
    raise ValueError(f"no config that the reference runs: {failures[-1]}")


def fixture(folder, name, family, seed, maker):
    draws = shapes.Narrow if name.removeprefix("family-") in NARROW else random.Random
    for turn in range(20):  # another shape where every choice of weights has a tie
        if make(folder, name, maker(draws(f"{family} {seed} {turn}")), 1 + seed % 1000):
            return
    sys.exit(f"{name}: no model without ties")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--fresh", type=int, default=0, help="make this many models of each family instead of the fixtures")
    parser.add_argument("--seed", type=int, default=1, help="first seed of fresh models")
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("families", nargs="*")
    args = parser.parse_args()
    known = dict(FAMILIES)
    if args.fresh:
        known.update((name, (maker, [])) for name, maker in vary.usual().items())
    unknown = set(args.families) - set(known)
    if unknown:
        sys.exit(f"unknown families {sorted(unknown)}; known: {' '.join(known)}")
    for family, (maker, chosen) in known.items():
        if args.families and family not in args.families:
            continue
        seeds = chosen
        if args.fresh:
            seeds = range(args.seed * 1000, args.seed * 1000 + args.fresh)
        for seed in seeds:
            name = f"family-{family}-{seed}".replace("_", "-")
            try:
                (fresh if args.fresh else fixture)(args.folder, name, family, seed, maker)
            except Exception as e:  # of this version of transformers
                if not args.fresh:
                    raise
                print(f"{name}: transformers fails: {type(e).__name__}: {e}", file=sys.stderr)
                shutil.rmtree(args.folder / name, ignore_errors=True)


if __name__ == "__main__":
    main()
