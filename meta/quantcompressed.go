package meta

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// A configGroup is compressed-tensors' description of the weights of some modules.
type configGroup struct {
	names   []exclusion // of modules
	classes bool        // all linear layers
	form    *quantised
}

// of returns the description of a module's weight: q itself, unless the config has groups. It
// returns nil for a module in no group. As in the reference, names take precedence over classes.
func (q *quantised) of(module string) *quantised {
	if q.groups == nil {
		return q
	}
	for _, g := range q.groups {
		if slices.ContainsFunc(g.names, func(e exclusion) bool { return e.matches(module) }) {
			return g.form
		}
	}
	for _, g := range q.groups {
		if g.classes {
			return g.form
		}
	}
	return nil
}

// targets reads the modules of a group.
func (g *configGroup) targets(list []any) {
	var names quantised
	for _, v := range list {
		if name, _ := v.(string); name == "Linear" {
			g.classes = true
		} else {
			names.exclude(map[string]any{"ignore": []any{v}})
		}
	}
	g.names = names.excluded
	g.classes = g.classes || len(list) == 0
}

// readCompressedTensors reads the config groups of compressed-tensors. Each group is checked by
// its own flags.
func (q *quantised) readCompressedTensors(f *fields, c map[string]any) {
	q.head, q.otherNames, q.rows, q.columns = true, true, 0, 0
	if s, _ := c["sparsity_config"].(map[string]any); s != nil && s["format"] != nil && s["format"] != "dense" {
		f.fail("sparsity_config", "format %.40q is not supported; %s", fmt.Sprint(s["format"]), unquantisedAdvice)
	}
	f.refuseTransforms(c)
	groups, _ := c["config_groups"].(map[string]any)
	if len(groups) == 0 && c["format"] != "dense" {
		f.fail("config_groups", "names no groups of weights")
	}
	names := make([]string, 0, len(groups))
	for name := range groups {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		field := fmt.Sprintf("config_groups.%.40s", name)
		group, _ := groups[name].(map[string]any)
		weights, _ := group["weights"].(map[string]any)
		if weights == nil {
			continue
		}
		format, _ := group["format"].(string)
		if format == "" {
			format, _ = c["format"].(string)
		}
		form := *q
		form.formats, form.groups = nil, nil
		form.compressedGroup(f, field+".weights", format, weights)
		g := configGroup{form: &form}
		targets, _ := group["targets"].([]any)
		g.targets(targets)
		q.groups = append(q.groups, g)
		for _, found := range form.formats {
			if !slices.Contains(q.formats, found) {
				q.formats = append(q.formats, found)
			}
		}
	}
	if len(q.groups) == 1 && q.groups[0].classes { // all weights have one form
		form := *q.groups[0].form
		*q = form
	}
}

// refuseTransforms rejects rotations of activations, which a model computes between its weights. Rotations of weights alone are
// within them.
func (f *fields) refuseTransforms(c map[string]any) {
	transforms, _ := c["transform_config"].(map[string]any)
	schemes, _ := transforms["config_groups"].(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(schemes)) {
		s, _ := schemes[name].(map[string]any)
		uses, _ := s["apply"].([]any)
		for _, use := range uses {
			u, _ := use.(map[string]any)
			if at, _ := u["location"].(string); at != "weight_input" && at != "weight_output" {
				f.fail("transform_config", "%.40q transforms %.40q, which is not supported; %s", name, at, unquantisedAdvice)
			}
		}
	}
}

// compressedFormats are the formats of compressed-tensors by name, with the bits and types of
// their weights.
var compressedFormats = []struct {
	name, kind string
	bits       int64
	format     QuantFormat
}{
	{"float-quantized", "float", 8, QuantFP8},
	{"naive-quantized", "float", 8, QuantFP8},
	{"int-quantized", "int", 8, QuantInt8},
	{"naive-quantized", "int", 8, QuantInt8},
	{"pack-quantized", "int", 4, QuantInt4Packed},
	{"pack-quantized", "int", 8, QuantInt8Packed},
	{"nvfp4-pack-quantized", "float", 4, QuantNVFP4},
	{"mxfp4-pack-quantized", "float", 4, QuantMXFP4Packed},
	{"mxfp8-quantized", "float", 8, QuantFP8Powers},
}

// compressedGroup reads the description of the weights in a config group.
func (q *quantised) compressedGroup(f *fields, field, format string, w map[string]any) {
	bits, _ := w["num_bits"].(json.Number)
	n, _ := bits.Int64()
	kind, _ := w["type"].(string)
	if kind == "" {
		kind = "int"
	}
	found := QuantNone
	for _, row := range compressedFormats {
		if row.name == format && row.kind == kind && row.bits == n {
			found = row.format
		}
	}
	if found == QuantNone {
		f.fail(field, "format %.40q with %.20s bits of type %.20q is not supported; %s", format, bits, kind, unquantisedAdvice)
		return
	}
	if !slices.Contains(q.formats, found) {
		q.formats = append(q.formats, found)
	}
	q.inOrder = w["actorder"] != "group"
	symmetric, ok := w["symmetric"].(bool)
	q.zeros = ok && !symmetric
	switch w["strategy"] {
	case "block":
		q.block(f, field+".block_structure", w["block_structure"])
	case "channel":
		q.perRow = true
	case "group", "tensor_group":
		size, _ := w["group_size"].(json.Number)
		group, err := size.Int64()
		if err != nil || group <= 0 || group > maxSize {
			f.fail(field+".group_size", "%.20s is no size", size)
		}
		q.rows, q.columns, q.inputs = 1, int(group), int(group)
	}
}

// readModelOpt reads the algorithm of modelopt's quantization_config. Scales of activations and of
// the KV cache are not used.
func (q *quantised) readModelOpt(f *fields, c map[string]any) {
	q.otherNames, q.rows, q.columns = true, 0, 0
	algorithm, ok := c["quant_algo"].(string)
	if !ok && c["quant_algo"] == nil { // the KV cache alone is quantised
		return
	}
	switch strings.ToUpper(algorithm) {
	case "FP8":
		q.formats = []QuantFormat{QuantFP8}
	case "FP8_PER_CHANNEL_PER_TOKEN":
		q.formats, q.perRow = []QuantFormat{QuantFP8}, true
	case "FP8_PB_WO":
		q.formats, q.rows, q.columns = []QuantFormat{QuantFP8}, 128, 128
	case "MXFP8":
		q.formats, q.rows, q.columns = []QuantFormat{QuantFP8Powers}, 1, 32
	case "NVFP4", "NVFP4_AWQ", "W4A16_NVFP4": // loader rejects the scales of activations that AWQ may leave
		q.formats = []QuantFormat{QuantNVFP4ModelOpt}
	case "MXFP4", "W4A8_MXFP4_FP8":
		q.formats = []QuantFormat{QuantMXFP4Packed}
	case "W8A16", "W8A8_SQ_PER_CHANNEL":
		q.formats, q.perRow = []QuantFormat{QuantInt8}, true
	case "MIXED_PRECISION":
		q.readQuantizedLayers(f, c)
	default:
		f.fail("quant_algo", "%.40q is not supported (%s); %s", fmt.Sprint(c["quant_algo"]), modelOptAlgorithms, unquantisedAdvice)
	}
}

const modelOptAlgorithms = "FP8, FP8_PER_CHANNEL_PER_TOKEN, FP8_PB_WO, MXFP8, NVFP4, NVFP4_AWQ, W4A16_NVFP4, MXFP4, W4A8_MXFP4_FP8, W8A16, W8A8_SQ_PER_CHANNEL, MIXED_PRECISION"

// readQuantizedLayers reads the algorithms that modelopt names for each module.
func (q *quantised) readQuantizedLayers(f *fields, c map[string]any) {
	layers, _ := c["quantized_layers"].(map[string]any)
	groups := map[string]*configGroup{}
	for _, module := range slices.Sorted(maps.Keys(layers)) {
		settings, _ := layers[module].(map[string]any)
		algorithm, _ := settings["quant_algo"].(string)
		if groups[algorithm] == nil {
			form := *q
			form.groups = nil
			if algorithm == "MIXED_PRECISION" {
				algorithm += " in a module"
			}
			form.readModelOpt(f, map[string]any{"quant_algo": algorithm})
			groups[algorithm] = &configGroup{form: &form}
		}
		groups[algorithm].names = append(groups[algorithm].names, exclusion{name: module})
	}
	q.groups = []configGroup{}
	for _, algorithm := range slices.Sorted(maps.Keys(groups)) {
		q.groups, q.formats = append(q.groups, *groups[algorithm]), append(q.formats, groups[algorithm].form.formats...)
	}
}

// readBitsAndBytes reads the fields of bitsandbytes.
func (q *quantised) readBitsAndBytes(f *fields, c map[string]any) {
	if c["load_in_4bit"] != true {
		if c["load_in_8bit"] != true {
			f.fail("load_in_8bit", "got neither load_in_8bit nor load_in_4bit; %s", unquantisedAdvice)
		}
		return
	}
	switch kind, ok := c["bnb_4bit_quant_type"].(string); {
	case kind == "nf4":
		q.formats = []QuantFormat{QuantBnbNF4}
	case kind == "fp4", !ok:
		q.formats = []QuantFormat{QuantBnbFP4}
	default:
		f.fail("bnb_4bit_quant_type", "%.20q is not supported (supported: nf4, fp4); %s", kind, unquantisedAdvice)
	}
	if storage, ok := c["bnb_4bit_quant_storage"].(string); ok && storage != "uint8" {
		f.fail("bnb_4bit_quant_storage", "%.20q is not supported (supported: uint8); %s", storage, unquantisedAdvice)
	}
	q.zeros, _ = c["bnb_4bit_use_double_quant"].(bool)
	q.inOrder = true
}
