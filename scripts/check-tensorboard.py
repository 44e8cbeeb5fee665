#!/usr/bin/env python3
"""Lets the real TensorBoard read a folder of event files, and prints what it finds.

usage: check-tensorboard.py FOLDER   (needs the package tensorboard)

One JSON object: for each folder with event files, by its path below FOLDER, the scalars ([[step, value]] by
tag), the texts, and the settings of the run.
"""
import json
import pathlib
import sys

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams import plugin_data_pb2


def settings(events):
    found = {}
    try:
        contents = events.PluginTagToContent("hparams")
    except KeyError:
        return found
    for content in contents.values():
        data = plugin_data_pb2.HParamsPluginData.FromString(content)
        for name, value in data.session_start_info.hparams.items():
            found[name] = getattr(value, value.WhichOneof("kind"))
        if data.HasField("session_end_info"):
            found["status"] = data.session_end_info.status
    return found


def read(folder):
    events = EventAccumulator(str(folder), size_guidance={"scalars": 0, "tensors": 0})
    events.Reload()
    tags = events.Tags()
    texts = {}
    for tag in tags["tensors"]:
        if events.SummaryMetadata(tag).plugin_data.plugin_name == "text":
            texts[tag] = [[e.step, e.tensor_proto.string_val[0].decode()] for e in events.Tensors(tag)]
    scalars = {tag: [[e.step, e.value] for e in events.Scalars(tag)] for tag in tags["scalars"]}
    return dict(scalars=scalars, texts=texts, settings=settings(events))


def main():
    root = pathlib.Path(sys.argv[1])
    folders = sorted({f.parent for f in root.rglob("events.out.tfevents.*")})
    print(json.dumps({str(f.relative_to(root)): read(f) for f in folders}, sort_keys=True))


main()
