#!/usr/bin/env python3
"""Writes train/tensor/testdata/torch.json.gz: what torch computes for the operations of train/tensor.

usage: make-tensor-fixtures.py (with torch installed)

Each case has inputs, the result, the gradient of the result and those of the inputs. Numbers that
JSON lacks are the strings "NaN", "Infinity" and "-Infinity".
"""
import gzip
import json
import math
import os

import torch
import torch.nn.functional as F

torch.manual_seed(17)
cases = []


def plain(t):
    return [str(v).replace("nan", "NaN").replace("inf", "Infinity") if not math.isfinite(v) else float("%.9g" % v)
            for v in t.detach().double().flatten().tolist()]


def array(t):
    return {"shape": list(t.shape), "data": plain(t)}


def case(name, op, inputs, f, grads=None, up=None, **attrs):
    """grads says which inputs get a gradient; None means all of them."""
    ins = [i.clone().detach().float() for i in inputs]
    wants = grads if grads is not None else [True] * len(ins)
    for i, w in zip(ins, wants):
        i.requires_grad_(w)
    out = f(*ins)
    index = None
    if isinstance(out, tuple):
        out, index = out
    entry = {"name": name, "op": op, "attrs": attrs, "inputs": [dict(array(i), grad=w) for i, w in zip(ins, wants)]}
    entry["out"] = array(out)
    if index is not None:
        entry["index"] = index.flatten().tolist()
    if out.requires_grad:
        up = torch.randn(out.shape) if up is None else torch.tensor(up).expand(out.shape)
        out.backward(up)
        entry["up"] = plain(up)
        entry["grads"] = [plain(i.grad) if i.grad is not None else None for i in ins]
    cases.append(entry)


inf, nan = math.inf, math.nan
edge = torch.tensor([-inf, -200.0, -30.0, -1.0, -1e-3, -0.0, 0.0, 1e-3, 1.0, 2.0, 30.0, 200.0, inf, nan])
usual = torch.randn(3, 4)
for op, f in {"exp": torch.exp, "log": torch.log, "sqrt": torch.sqrt, "neg": torch.neg, "abs": torch.abs,
              "log_sigmoid": F.logsigmoid}.items():
    case(op, op, [usual.abs() if op in ("log", "sqrt") else usual], f)
    case(op + " at edges", op, [edge], f)
    case(op + " at edges without a gradient from above", op, [edge], f, up=0.0)
for beta, threshold in ((1, 20), (2.5, 3)):
    case(f"softplus {beta}", "softplus", [usual], lambda x: F.softplus(x, beta, threshold), beta=beta, threshold=threshold)
    case(f"softplus {beta} at edges", "softplus", [edge], lambda x: F.softplus(x, beta, threshold), beta=beta, threshold=threshold)
for e in (0.0, 1.0, 2.0, 3.0, -1.0, 0.5, -0.5, 2.5):
    case(f"pow {e}", "pow", [usual.abs() + 0.1], lambda x: x.pow(e), exponent=e)
    case(f"pow {e} at edges", "pow", [edge], lambda x: x.pow(e), exponent=e)
for lo, hi in ((-1.0, 1.0), (0.0, None), (None, 2.0), (2.0, 1.0)):
    case(f"clamp {lo} {hi}", "clamp", [edge], lambda x: x.clamp(lo, hi), lo=lo, hi=hi)
case("div", "div", [torch.randn(2, 3), torch.rand(3) + 0.5], torch.div)
case("div broadcasts both", "div", [torch.randn(3, 1), torch.rand(1, 4) + 0.5], torch.div)
case("div by 0", "div", [torch.tensor([0.0, 1.0, -1.0, inf, 1.0]), torch.tensor([0.0, 0.0, 0.0, inf, inf])], torch.div)
case("pow of tensors", "pow_tensor", [torch.rand(2, 3) + 0.2, torch.randn(3)], torch.pow)
case("pow of tensors at edges", "pow_tensor",
     [torch.tensor([0.0, 0.0, 0.0, -2.0, -2.0, 1.0, inf]), torch.tensor([0.0, 2.0, -1.0, 2.0, 0.5, 3.0, 1.0])], torch.pow)

keep = torch.tensor([[1.0, 0.0, 1.0], [0.0, 1.0, 1.0]])
case("where", "where", [keep, torch.randn(2, 3), torch.randn(3)], lambda c, a, b: torch.where(c != 0, a, b), [False, True, True])
case("where of a column", "where", [keep[:, :1], torch.randn(3), torch.randn(())], lambda c, a, b: torch.where(c != 0, a, b),
     [False, True, True])
case("where leaves infinity out", "where_log", [torch.tensor([1.0, 0.0, 1.0]), torch.tensor([2.0, 0.0, 0.5])],
     lambda c, x: torch.where(c != 0, x.clamp(min=0), torch.zeros(())), [False, True])

a, b = torch.randn(3, 4), torch.randn(3, 4)
b[0, 0] = a[0, 0]
near = torch.tensor([[0.0, 1.0, -1.0, 2.0]]), torch.tensor([[0.0, 0.0, 0.0, 0.0]])
p, t = torch.rand(3, 4), torch.rand(3, 4)
certain = torch.tensor([0.0, 1.0, 0.0, 1.0, 0.5]), torch.tensor([0.0, 1.0, 1.0, 0.0, 1.0])
logp, q = torch.randn(3, 4).log_softmax(-1), torch.randn(3, 4).softmax(-1)
sparse = torch.tensor([[0.0, 0.5, 0.5, 0.0]])
weight, pos = torch.rand(4) + 0.5, torch.rand(4) * 3
lp, labels = torch.randn(5, 4).log_softmax(-1), [1, -100, 0, 3, 3]
for r in ("mean", "sum", "none"):
    case(f"l1 {r}", "l1", [a, b], lambda x, y: F.l1_loss(x, y, reduction=r), reduction=r)
    for d in (1.0, 0.3):
        case(f"huber {d} {r}", "huber", [a, b], lambda x, y: F.huber_loss(x, y, reduction=r, delta=d), reduction=r, delta=d)
    case(f"huber ties {r}", "huber", list(near), lambda x, y: F.huber_loss(x, y, reduction=r), reduction=r, delta=1.0)
    case(f"bce {r}", "bce", [p, t], lambda x, y: F.binary_cross_entropy(x, y, reduction=r), reduction=r)
    case(f"bce certain {r}", "bce", list(certain), lambda x, y: F.binary_cross_entropy(x, y, reduction=r), reduction=r)
    case(f"bce weight {r}", "bce", [p, t, weight], lambda x, y, w: F.binary_cross_entropy(x, y, weight=w, reduction=r),
         [True, True, False], reduction=r, weight=2)
    case(f"bce_with_logits {r}", "bce_with_logits", [a, t], lambda x, y: F.binary_cross_entropy_with_logits(x, y, reduction=r),
         reduction=r)
    case(f"bce_with_logits far {r}", "bce_with_logits", [a * 100, t],
         lambda x, y: F.binary_cross_entropy_with_logits(x, y, reduction=r), reduction=r)
    case(f"bce_with_logits weights {r}", "bce_with_logits", [a, t, weight, pos],
         lambda x, y, w, z: F.binary_cross_entropy_with_logits(x, y, weight=w, pos_weight=z, reduction=r),
         [True, True, False, False], reduction=r, weight=2, pos_weight=3)
    for o, ys in (("", labels), (" all ignored", [-100] * 5)):
        y = torch.tensor(ys)
        case(f"nll {r}{o}", "nll", [lp], lambda x: F.nll_loss(x, y, reduction=r), reduction=r, labels=ys)
        case(f"nll weight {r}{o}", "nll", [lp], lambda x: F.nll_loss(x, y, weight=weight, reduction=r), reduction=r, labels=ys,
             weights=plain(weight))
    y = torch.tensor([1, 2, 0, 3, 3])
    case(f"nll ignore_index {r}", "nll", [lp], lambda x: F.nll_loss(x, y, ignore_index=3, reduction=r), reduction=r,
         labels=y.tolist(), ignore=3)
for r in ("mean", "sum", "none", "batchmean"):
    case(f"kl {r}", "kl", [logp, q], lambda x, y: F.kl_div(x, y, reduction=r), reduction=r)
    case(f"kl log {r}", "kl", [logp, q.log()], lambda x, y: F.kl_div(x, y, reduction=r, log_target=True), reduction=r, log_target=True)
    case(f"kl sparse {r}", "kl", [logp[:1], sparse], lambda x, y: F.kl_div(x, y, reduction=r), [True, False], reduction=r)

ties = torch.tensor([[1.0, 3.0, 3.0, 2.0], [nan, 5.0, nan, 1.0], [-inf, -inf, -inf, -inf]])
for d in (0, 1, -1):
    case(f"argmax {d}", "argmax", [usual], lambda x: (x, x.argmax(d)), [False], dim=d)
    case(f"cumsum {d}", "cumsum", [usual], lambda x: x.cumsum(d), dim=d)
case("argmax of ties", "argmax", [ties], lambda x: (x, x.argmax(1)), [False], dim=1)
case("cumsum of three dimensions", "cumsum", [torch.randn(2, 3, 4)], lambda x: x.cumsum(1), dim=1)
for d, k, smallest in ((0, 2, False), (1, 3, False), (-1, 2, True), (1, 0, False)):
    case(f"topk {k} of {d} {smallest}", "topk", [usual], lambda x: tuple(x.topk(k, d, largest=not smallest)), dim=d, k=k,
         smallest=smallest)
case("topk of nan", "topk", [torch.tensor([1.0, nan, 3.0])], lambda x: tuple(x.topk(2)), dim=0, k=2, smallest=False)
for shape, to in (((3, 1), (3, 4)), ((3,), (2, -1)), ((1, 3, 1), (2, -1, 5)), ((), (2, 2)), ((1,), (0,))):
    case(f"expand {list(shape)} to {list(to)}", "expand", [torch.randn(shape)], lambda x: x.expand(to), shape=to)
for d in (0, 1, 2, -1):
    case(f"stack {d}", "stack", [torch.randn(2, 3), torch.randn(2, 3)], lambda x, y: torch.stack((x, y), d), dim=d)
for size, d in ((2, 1), (3, 0), ([1, 3, 0, 1], 1)):
    case(f"split {size} of {d}", "split", [torch.randn(4, 5)],
         lambda x: torch.cat([s.sum(1 - d) * (i + 1) for i, s in enumerate(x.split(size, d))]), size=size, dim=d)
for pad in ((1, 2), (0, 1, 2, 0), (-1, 1), (1, -2, -1, 3), (-4, 1)):
    case(f"pad {list(pad)}", "pad", [torch.randn(3, 4)], lambda x: F.pad(x, pad, value=0.5), pad=pad, value=0.5)
for shape in ((4, 3), (2, 3, 5)):
    for training in (True, False):
        case(f"batchnorm1d {list(shape)} {training}", "batchnorm1d", [torch.randn(shape), torch.rand(3), torch.randn(3)],
             lambda x, w, z: F.batch_norm(x, torch.zeros(3) + 0.25, torch.ones(3) * 2, w, z, training), training=training)
    case(f"batchnorm1d {list(shape)} plain", "batchnorm1d", [torch.randn(shape)],
         lambda x: F.batch_norm(x, torch.zeros(3) + 0.25, torch.ones(3) * 2, training=True), training=True)


def attention(q, k, v, mask, causal=False):
    share = q.shape[2] // k.shape[2]
    k, v = (x.repeat_interleave(share, 2).transpose(1, 2) for x in (k, v))
    if causal:
        mask = mask + torch.full((q.shape[1], k.shape[2]), -inf).triu(1)
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        return F.scaled_dot_product_attention(q.transpose(1, 2), k, v, attn_mask=mask).transpose(1, 2)


heads = [torch.randn(2, 5, 4, 8), torch.randn(2, 5, 2, 8), torch.randn(2, 5, 2, 8)]
left = torch.zeros(2, 1, 1, 5)
left[0, ..., :2] = -inf
case("attention with padding on the left", "attention", heads + [left], attention, [True, True, True, False])
case("attention causal with padding", "attention", heads + [left], lambda *x: attention(*x, causal=True), [True, True, True, False],
     causal=True)
case("attention with a bias that trains", "attention", heads + [torch.randn(4, 5, 5)], attention)
case("attention to another sequence", "attention", [heads[0], torch.randn(2, 7, 2, 8), torch.randn(2, 7, 2, 6), torch.randn(5, 7)],
     attention)

for shape, kernel, bias, o in (
        ((2, 3, 6, 5), (4, 3, 3, 3), True, {}), ((1, 4, 7, 7), (6, 2, 3, 3), False, {"stride": 2, "padding": 1, "groups": 2}),
        ((2, 2, 9, 8), (3, 2, 2, 3), True, {"padding": 2, "dilation": 2}), ((2, 6, 3, 3), (6, 1, 1, 1), True, {"groups": 6}),
        ((1, 40, 4, 4), (5, 40, 1, 1), False, {"stride": 3}), ((1, 2, 2, 5), (2, 2, 2, 5), True, {})):
    ins = [torch.randn(shape), torch.randn(kernel)] + ([torch.randn(kernel[0])] if bias else [])
    case(f"conv2d {shape} by {kernel} {o}", "conv2d", ins, lambda x, w, b=None: F.conv2d(x, w, b, **o), **o)
special = torch.tensor([[1.0, 1.0, nan, 0.0, 2.0], [-inf, -inf, 3.0, nan, 2.0], [-inf, -inf, 5.0, 5.0, 2.0], [0.0, -0.0, inf, 5.0, 2.0]])[None, None]
for k, st, p in ((2, None, 0), (3, 2, 1), (2, 1, 1), (3, 1, 0)):
    o = {"kernel": k, "stride": st or 0, "padding": p}
    for name, x in (("", torch.randn(1, 2, 7, 6)), (" at edges", special)):
        case(f"maxpool2d {k} {st} {p}{name}", "maxpool2d", [x], lambda x: F.max_pool2d(x, k, st, p), **o)
        case(f"avgpool2d {k} {st} {p}{name}", "avgpool2d", [x], lambda x: F.avg_pool2d(x, k, st, p), **o)
for to in ((1, 1), (3, 2), (7, 6), (5, 4), (9, 1)):
    case(f"adaptive_avgpool2d to {to}", "adaptive_avgpool2d", [torch.randn(1, 2, 7, 6)], lambda x: F.adaptive_avg_pool2d(x, to), shape=to)
for l, r in (((3, 4), (4, 5)), ((2, 3, 4), (4, 2)), ((2, 3, 4), (2, 4, 2)), ((2, 1, 1, 4), (3, 4, 2)), ((3, 4), (2, 4, 3)),
             ((1, 70), (70, 5)), ((2, 5, 80), (2, 80, 3))):
    case(f"matmul {l} by {r}", "matmul", [torch.randn(l), torch.randn(r)], torch.matmul)
case("matmul of infinity", "matmul", [torch.tensor([[1.0, inf], [0.0, 2.0]]), torch.tensor([[1.0, 0.0], [0.0, 1.0]])], torch.matmul)
x, w = torch.randn(2, 3, 8), torch.randn(7, 8)
for r in ("mean", "sum"):
    for s in (0.0, 0.1):
        for ys in ([1, -100, 0, 6, 6, -100], [-100] * 6, [0, 1, 2, 3, 4, 5]):
            y = torch.tensor(ys)
            case(f"linear_cross_entropy {r} {s} {ys}", "linear_cross_entropy", [x, w],
                 lambda x, w: F.cross_entropy((x @ w.T).flatten(0, 1), y, reduction=r, label_smoothing=s), reduction=r, labels=ys, value=s)
case("linear_cross_entropy scaled", "linear_cross_entropy", [x, w],
     lambda x, w: F.cross_entropy((x @ w.T).flatten(0, 1), torch.tensor([3, 1, 4, 1, 5, 2])), up=0.25, reduction="mean", labels=[3, 1, 4, 1, 5, 2])

path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "train", "tensor", "testdata", "torch.json.gz")
text = '{"torch": "%s", "cases": [\n' % torch.__version__.split("+")[0] + ",\n".join(json.dumps(c) for c in cases) + "\n]}\n"
with open(path, "wb") as f:
    f.write(gzip.compress(text.encode(), mtime=0))
print(len(cases), "cases")
