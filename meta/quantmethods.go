package meta

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// A method is a quant_method of published configs: the formats that it may mean, and the reader
// of its own fields.
type method struct {
	name    string
	formats []QuantFormat
	read    func(q *quantised, f *fields, values map[string]any)
}

// methods is the table of quant_methods.
var methods = []method{
	{"auto-round", []QuantFormat{QuantGPTQ}, (*quantised).readAutoRound},
	{"awq", []QuantFormat{QuantAWQ}, (*quantised).readAWQ},
	{"bitsandbytes", []QuantFormat{QuantBnbInt8}, (*quantised).readBitsAndBytes},
	{"compressed-tensors", nil, (*quantised).readCompressedTensors},
	{"fbgemm_fp8", []QuantFormat{QuantFP8}, (*quantised).readRows},
	{"fp8", []QuantFormat{QuantFP8}, (*quantised).readFP8},
	{"gptq", []QuantFormat{QuantGPTQ}, (*quantised).readNibbles},
	{"modelopt", nil, (*quantised).readModelOpt},
	{"mxfp4", []QuantFormat{QuantMXFP4}, nil},
}

// quantised is a config's description of stored formats. If the checkpoint's headers are known,
// they decide which weights are quantised; the config only provides sizes and conventions.
type quantised struct {
	formats       []QuantFormat // that the method may mean; empty without quantization_config
	experts       QuantFormat   // of stacks of experts if they differ, else QuantNone
	rows, columns int           // of a block of QuantFP8 or QuantInt8; 0: no blocks
	perRow        bool          // if there are no blocks: one scale per row
	otherNames    bool          // the config's method writes Companion.Other
	zeros         bool          // optional zeros are written
	inOrder       bool          // groups are in order: no index is written
	inputs        int           // inputs that share a scale of QuantGPTQ or QuantAWQ; 0: all
	bias          int           // of QuantGPTQ's zeros
	gptqModel     bool          // GPTQModel wrote the file
	excluded      []exclusion   // modules that are not quantised
	head          bool          // lm_head is quantised as well
	expertDType   string        // of DeepSeek V4's experts, by a field beside quantization_config
	groups        []configGroup // of compressed-tensors; nil if all weights have one form
}

// usualQuantised returns the sizes and conventions of most published models.
func usualQuantised() quantised { return quantised{rows: 128, columns: 128, bias: 1} }

// quantisation reads quantization_config for the model with the fields f. c has the fields of
// quantization_config, or is nil if there is none.
func (f *fields) quantisation(c *fields) quantised {
	q := usualQuantised()
	if c == nil {
		if f.has(quantConfig) {
			f.fail(quantConfig, "%s instead of an object", kindOf(f.values[quantConfig]))
		}
		f.refuseMLX()
		return q
	}
	name, _ := c.values["quant_method"].(string)
	if name == "" {
		f.refuseMLX()
	}
	i := slices.IndexFunc(methods, func(m method) bool { return m.name == name && name != "" })
	if i < 0 {
		var names []string
		for _, m := range methods {
			names = append(names, m.name)
		}
		c.fail("quant_method", "%.40q is not supported (supported: %s); %s", name, strings.Join(names, ", "), unquantisedAdvice)
		return q
	}
	q.formats = methods[i].formats
	q.expertDType = f.text("expert_dtype", "fp8")
	q.exclude(c.values)
	if read := methods[i].read; read != nil {
		read(&q, c, c.values)
	}
	return q
}

const quantConfig = "quantization_config"

// unquantisedAdvice says how to avoid a published format that Heft does not support.
const unquantisedAdvice = "take the model's bfloat16 folder with --quantize q4_0, or a GGUF file"

// refuseMLX rejects the config of weights that MLX has quantised. They have the names of
// unquantised weights and no quant_method; only the field quantization distinguishes them.
func (f *fields) refuseMLX() {
	c, _ := f.values["quantization"].(map[string]any)
	if c["group_size"] != nil && c["bits"] != nil {
		f.fail("quantization", "weights quantised by MLX are not supported; %s", unquantisedAdvice)
	}
}

// readFP8 reads the fields of fine-grained FP8.
func (q *quantised) readFP8(f *fields, c map[string]any) {
	if format, ok := c["fmt"].(string); ok && format != "e4m3" {
		f.fail("fmt", "%.40q is not supported (e4m3); %s", format, unquantisedAdvice)
	}
	if c["scale_fmt"] == "ue8m0" {
		q.formats = []QuantFormat{QuantFP8Powers}
	}
	experts, _ := c["expert_dtype"].(string)
	switch experts = or(experts, q.expertDType); experts {
	case "fp8":
	case "fp4":
		q.experts = QuantMXFP4Packed
	default:
		f.fail("expert_dtype", "%.40q is not supported (fp8, fp4)", experts)
	}
	q.block(f, "weight_block_size", c["weight_block_size"])
	q.otherNames = q.rows == 0 // AutoFP8 writes weight_scale
}

// readRows reads FP8 with a scale for each row.
func (q *quantised) readRows(*fields, map[string]any) {
	q.rows, q.columns, q.perRow, q.otherNames = 0, 0, true, true
}

// readNibbles reads the fields of GPTQ and AWQ.
func (q *quantised) readNibbles(f *fields, c map[string]any) {
	if group, ok := c["group_size"].(json.Number); ok {
		n, err := group.Int64()
		if err != nil || n < -1 || n == 0 || n > maxSize {
			f.fail("group_size", "%.20s is no size", group)
		}
		q.inputs = int(max(n, 0))
	}
	bits, isNumber := c["bits"].(json.Number)
	format, known := gptqBits[bits]
	switch {
	case c["bits"] == nil, isNumber && bits == "4":
	case isNumber && known && q.formats[0] == QuantGPTQ:
		q.formats = []QuantFormat{format}
	default:
		f.fail("bits", "%.20s is not supported (4, and 2, 3 and 8 for gptq); %s", fmt.Sprint(c["bits"]), unquantisedAdvice)
	}
	q.gptqModel = writtenByGPTQModel(c)
	q.readPacking(f, c)
	q.head, _ = c["lm_head"].(bool)
}

// gptqBits are the formats of GPTQ with other numbers of bits than 4.
var gptqBits = map[json.Number]QuantFormat{"2": QuantGPTQ2, "3": QuantGPTQ3, "8": QuantGPTQ8}

// writtenByGPTQModel reports whether meta.quantizer names GPTQModel, as "gptqmodel:1.4.0" or in a
// list of such texts.
func writtenByGPTQModel(c map[string]any) bool {
	m, _ := c["meta"].(map[string]any)
	names, isList := m["quantizer"].([]any)
	if !isList {
		names = []any{m["quantizer"]}
	}
	return slices.ContainsFunc(names, func(name any) bool {
		text, _ := name.(string)
		return strings.HasPrefix(text, "gptqmodel")
	})
}

// readPacking reads how files of GPTQ are packed, under either of its names.
func (q *quantised) readPacking(f *fields, c map[string]any) {
	for _, field := range []string{"checkpoint_format", "format"} {
		switch packing, _ := c[field].(string); {
		case packing == "gptq_v2":
			q.bias = 0
		case packing != "" && packing != "gptq" && packing != "gemm" && !strings.HasPrefix(packing, "auto_round"):
			f.fail(field, "%.40q is not supported (gptq, gptq_v2, gemm); %s", packing, unquantisedAdvice)
		}
	}
}

// readAutoRound reads the fields of AutoRound, which packs weights like GPTQ or AWQ.
func (q *quantised) readAutoRound(f *fields, c map[string]any) {
	switch packing, _ := c["packing_format"].(string); packing {
	case "", "auto_round:auto_gptq", "auto_round:gptqmodel", "auto_gptq":
	case "auto_round:auto_awq", "auto_awq":
		q.formats = []QuantFormat{QuantAWQ}
	default:
		f.fail("packing_format", "%.40q is not supported (auto_round:auto_gptq, auto_round:auto_awq); %s", packing, unquantisedAdvice)
	}
	if kind, ok := c["data_type"].(string); ok && kind != "int" {
		f.fail("data_type", "%.40q is not supported (int); %s", kind, unquantisedAdvice)
	}
	q.readNibbles(f, c)
	q.inOrder = true
}

// readAWQ reads the fields of AWQ.
func (q *quantised) readAWQ(f *fields, c map[string]any) {
	q.readNibbles(f, c)
	if version, ok := c["version"].(string); ok && !strings.EqualFold(version, "gemm") {
		f.fail("version", "%.40q is not supported (gemm); %s", version, unquantisedAdvice)
	}
}

// block reads the size of the blocks that share a scale: [128, 128], or "128x128" as early versions of compressed-tensors wrote it.
func (q *quantised) block(f *fields, name string, value any) {
	list, ok := value.([]any)
	if text, isText := value.(string); isText {
		rows, columns, _ := strings.Cut(text, "x")
		list, ok = []any{json.Number(rows), json.Number(columns)}, true
	}
	if value == nil {
		q.rows, q.columns = 0, 0
		return
	}
	var sizes [2]int64
	for i := range sizes {
		if ok = ok && len(list) == 2; ok {
			n, isNumber := list[i].(json.Number)
			size, err := n.Int64()
			sizes[i], ok = size, isNumber && err == nil && size > 0 && size <= maxSize
		}
	}
	if !ok {
		f.fail(name, "is not two sizes")
		return
	}
	q.rows, q.columns = int(sizes[0]), int(sizes[1])
}

// An exclusion is an entry of modules_to_not_convert or a similar list. As in transformers it is
// a regular expression that matches a prefix of the module's path, or a name that is the end or
// one of the parts of the path. compressed-tensors writes "re:" before an expression; modelopt
// writes "*" for any characters.
type exclusion struct {
	name    string
	pattern *regexp.Regexp // nil where name is none
}

// maxExclusions is the maximum length of the list. The longest published one has about 500 names.
const maxExclusions = 1 << 14

// exclude reads the modules that are not quantised.
func (q *quantised) exclude(c map[string]any) {
	var list []any
	for _, field := range []string{"modules_to_not_convert", "ignore", "ignored_layers", "exclude_modules", "llm_int8_skip_modules"} {
		more, _ := c[field].([]any)
		list = append(list, more...)
	}
	for _, v := range list[:min(len(list), maxExclusions)] {
		name, ok := v.(string)
		if !ok || name == "" || len(name) > 500 {
			continue
		}
		name, expression := strings.CutPrefix(name, "re:")
		if !expression && strings.Contains(name, "*") && !strings.Contains(name, ".*") {
			name = strings.ReplaceAll(name, "*", ".*")
		}
		e := exclusion{name: name}
		if strings.ContainsAny(name, `*+?[](){}|^$\`) {
			e.pattern, _ = regexp.Compile("^(?:" + name + ")") // else it is a name
		}
		q.excluded = append(q.excluded, e)
	}
}

func (e *exclusion) matches(module string) bool {
	if e.pattern != nil {
		return e.pattern.MatchString(module)
	}
	rest, found := strings.CutPrefix(module, e.name)
	return found && (rest == "" || rest[0] == '.') || strings.HasSuffix(module, "."+e.name) ||
		strings.Contains(module, "."+e.name+".")
}
