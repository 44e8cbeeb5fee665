"""Configs of small models of each family, for make-family-fixtures.py and make-tree-fixtures.py.

A maker draws shapes and options from a random.Random and returns the contents of a config.json. FAMILIES names the
makers, each with the seeds of the committed fixtures. Modules divide them by the text model's layers; shapes has what
makers share, and reference what has to change in transformers' models. vary and widen change the configs and files of
fresh models further.
"""
from families import classic, dense, experts, image_wrappers, images, latent, looped, reference, sound, states  # noqa: F401 (reference registers models)

# The fixtures whose heads are narrow, since wide ones would take the most room: see shapes.Narrow.
NARROW = """
afmoe-2 bailing-hybrid-2 bailing-hybrid-3 bamba-2 bamba-3 codegen-1 cohere2-moe-1 dots1-1 exaone-moe-1 falcon-h1-2 flex-olmo-1 gemma4-1 gemma4-dense-1
gemma4-experts-1 gemma4-small-2 granite-swa-2 granitemoe-1 granitemoeshared-1 hy-v3-1 kimi-linear-2 kolibri1-2 lfm2-moe-1 lfm2-moe-2 lfm3-1
llama4-text-1 llama4-text-2 mellum-1 mimo-v2-flash-1 mimo-v2-flash-2 mimo-v2-flash-3 mimo-v2-flash-still-1 minimax-m2-2 mistral3-of-ministral-1 mistral4-2
mpt-5 mpt-7 nanochat-2 phi-1 phi-3 phimoe-2 phimoe-3 qwen3-5-moe-1 qwen3-next-1 qwen3-next-3 qwen3-next-act-1 xglm-1
""".split()

FAMILIES = {}
for module in (dense, classic, experts, latent, states, looped, images, image_wrappers, sound):
    assert not FAMILIES.keys() & module.MAKERS.keys(), module.__name__
    FAMILIES |= module.MAKERS
