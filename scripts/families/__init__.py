"""Configs of small models of each family, for make-family-fixtures.py and make-tree-fixtures.py.

A maker draws shapes and options from a random.Random and returns the contents of a config.json. FAMILIES names the
makers, each with the seeds of the committed fixtures. Modules divide them by the text model's layers; shapes has what
makers share, and reference what has to change in transformers' models. vary and widen change the configs and files of
fresh models further.
"""
from families import classic, dense, experts, image_wrappers, images, latent, reference, sound, states  # noqa: F401 (reference registers models)

FAMILIES = {}
for module in (dense, classic, experts, latent, states, images, image_wrappers, sound):
    assert not FAMILIES.keys() & module.MAKERS.keys(), module.__name__
    FAMILIES |= module.MAKERS
