package folder

import (
	"strconv"
	"strings"
)

// Layers behind the model's last one predict further tokens. llama.cpp has the tensors of a block there, and others
// below "nextn." that join its inputs.

// A nextPlace says where the folder has them.
type nextPlace uint8

const (
	nextNone   nextPlace = iota // nowhere: they are ignored
	nextBehind                  // as layers behind the last one, as DeepSeek-V3 is published
	nextBeside                  // below mtp, as Qwen3-Next is published
)

// nextPlaces has the models whose modules are read.
var nextPlaces = map[string]nextPlace{
	"deepseek_v3": nextBehind, "deepseek_v32": nextBehind, "glm4_moe": nextBehind, "glm_moe_dsa": nextBehind,
	"qwen3_next": nextBeside, "qwen3_5_text": nextBeside, "qwen3_5_moe_text": nextBeside,
}

// nextBehindNames and nextBesideNames are the tensors below "nextn.".
var (
	nextBehindNames = map[string]string{
		"eh_proj": "eh_proj", "enorm": "enorm", "hnorm": "hnorm", "embed_tokens": "embed_tokens",
		"shared_head_norm": "shared_head.norm", "shared_head_head": "shared_head.head",
	}
	nextBesideNames = map[string]string{
		"eh_proj": "fc", "enorm": "pre_fc_norm_embedding", "hnorm": "pre_fc_norm_hidden", "shared_head_norm": "norm",
	}
)

// next adds how many modules the file has.
func (k *keys) next(a *architecture, c object) {
	if n := k.int("nextn_predict_layers", 0); n > 0 && nextPlaces[a.modelType] != nextNone {
		c["num_nextn_predict_layers"] = n
	}
}

// nextTensor returns the name in the folder of a tensor of a layer behind the last one. ok is false if it is ignored.
func (f *Folder) nextTensor(layer int64, rest string) (n Name, ok bool) {
	prefix, table := f.arch.names.layers+strconv.FormatInt(layer, 10)+".", nextBehindNames
	own := prefix
	switch nextPlaces[f.arch.modelType] {
	case nextNone:
		return Name{}, false
	case nextBeside:
		prefix, own, table = "mtp.layers."+strconv.FormatInt(layer-f.layers, 10)+".", "mtp.", nextBesideNames
	}
	if join, is := strings.CutPrefix(rest, "nextn."); is {
		base, ending, _ := strings.Cut(join, ".")
		to, ok := table[base]
		return Name{Name: own + to + "." + ending}, ok
	}
	n, ok = f.blockTensor(prefix, rest)
	return n, ok && n.Name != ""
}
