package meta

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// A StoredTensor is a tensor of a source, as the checkpoint has it.
type StoredTensor struct {
	Tensor string // as Source.Tensor
	Shape  []int
	DType  DType   // NoDType for a source of values: that of the parameter
	Reads  []DType // the dtypes in which kernels read it
}

// Stored lists the tensors of s for a parameter of the given shape: that of the values, or codes,
// scales, zeros and index in this order. If the format cannot hold such a parameter, reason says
// why.
func (s *TensorSource) Stored(param []int) (tensors []StoredTensor, reason string) {
	shape := s.Shape(param)
	q := s.Quant
	if q == nil {
		return []StoredTensor{{s.Tensor, shape, NoDType, valueDTypes}}, ""
	}
	n := len(shape)
	if n < 2 || !s.From.IsAll() {
		return nil, fmt.Sprintf("rows %v of shape %v cannot be stored as %v", s.From, shape, q.Format)
	}
	stack, rows, columns := shape[:n-2], shape[n-2], shape[n-1]
	row := q.Format.Row()
	if rows%row.Codes.Rows != 0 || !row.Divides(columns) {
		return nil, fmt.Sprintf("shape %v cannot be stored as %v", shape, q.Format)
	}
	tensors = []StoredTensor{{s.Tensor, row.Codes.shape(stack, rows, columns), row.Codes.DTypes[0], row.Codes.DTypes}}
	for _, c := range []struct {
		*Companion
		tensor string
		dtype  DType
	}{{&row.Scales, q.Scales, q.ScaleDType}, {&row.Zeros, q.Zeros, Int32}, {&row.Index, q.Index, Int32}} {
		if !c.exists() || c.Optional && c.tensor == "" {
			continue
		}
		i, j := c.size(q, rows, columns)
		dims := append(slices.Clone(stack), i)
		if j > 0 {
			dims = append(dims, j)
		}
		tensors = append(tensors, StoredTensor{c.tensor, dims, c.dtype, c.DTypes})
	}
	return tensors, ""
}

// quantised is what a config says about stored formats. If the checkpoint's headers are known, they
// decide which weights are quantised; the config gives sizes and conventions only.
type quantised struct {
	formats       []QuantFormat // that the method may stand for; empty without quantization_config
	rows, columns int           // of a block of QuantFP8; 0: one scale for all
	inputs        int           // that share a scale of QuantGPTQ or QuantAWQ; 0: all
	bias          int           // of QuantGPTQ's zeros
	excluded      []exclusion   // modules that are not quantised
	head          bool          // lm_head is quantised as well
}

// usualQuantised has the sizes and conventions that most published models have.
func usualQuantised() quantised { return quantised{rows: 128, columns: 128, bias: 1} }

// quantisation reads quantization_config.
func (f *fields) quantisation() quantised {
	const name = "quantization_config"
	q := usualQuantised()
	c, ok := f.values[name].(map[string]any)
	if !ok {
		if f.has(name) {
			f.fail(name, "%s instead of an object", kindOf(f.values[name]))
		}
		f.refuseMLX()
		return q
	}
	method, _ := c["quant_method"].(string)
	if method == "" {
		f.refuseMLX()
	}
	list, methods := formatsOf(method)
	if len(list) == 0 {
		f.fail(name+".quant_method", "%.40q is not supported (supported: %s); %s", method, strings.Join(methods, ", "), unquantisedAdvice)
		return q
	}
	q.formats = list
	q.exclude(c)
	if read := list[0].Row().read; read != nil {
		read(&q, f, c)
	}
	return q
}

const quantField = "quantization_config."

// unquantisedAdvice says what to do about a published format that Heft does not support.
const unquantisedAdvice = "take the model's bfloat16 folder with --quantize q4_0, or a GGUF file"

// refuseMLX rejects the config of weights that MLX has quantised. They have the names of unquantised
// weights and no quant_method: only the field quantization tells.
func (f *fields) refuseMLX() {
	c, _ := f.values["quantization"].(map[string]any)
	if c["group_size"] != nil && c["bits"] != nil {
		f.fail("quantization", "weights quantised by MLX are not supported; %s", unquantisedAdvice)
	}
}

// readFP8 reads the fields of fine-grained FP8.
func (q *quantised) readFP8(f *fields, c map[string]any) {
	if format, ok := c["fmt"].(string); ok && format != "e4m3" {
		f.fail(quantField+"fmt", "%.40q is not supported (e4m3)", format)
	}
	q.block(f, quantField+"weight_block_size", c["weight_block_size"])
}

// readNibbles reads the fields of GPTQ and AWQ.
func (q *quantised) readNibbles(f *fields, c map[string]any) {
	if group, ok := c["group_size"].(json.Number); ok {
		n, err := group.Int64()
		if err != nil || n < -1 || n == 0 || n > maxSize {
			f.fail(quantField+"group_size", "%.20s is no size", group)
		}
		q.inputs = int(max(n, 0))
	}
	if bits := c["bits"]; bits != nil && bits != json.Number("4") {
		f.fail(quantField+"bits", "%.20s instead of 4 is not supported; %s", fmt.Sprint(bits), unquantisedAdvice)
	}
	if c["checkpoint_format"] == "gptq_v2" {
		q.bias = 0
	}
	q.head, _ = c["lm_head"].(bool)
}

// readAWQ reads the fields of AWQ.
func (q *quantised) readAWQ(f *fields, c map[string]any) {
	q.readNibbles(f, c)
	if version, ok := c["version"].(string); ok && !strings.EqualFold(version, "gemm") {
		f.fail(quantField+"version", "%.40q is not supported (gemm)", version)
	}
}

// block reads the size of the blocks that share a scale.
func (q *quantised) block(f *fields, name string, value any) {
	list, ok := value.([]any)
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

// blockOrAll returns the block of QuantFP8.
func (q *quantised) blockOrAll(rows, columns int, _ []int) (int, int) {
	if q.rows == 0 {
		return rows, columns
	}
	return q.rows, q.columns
}

// groupOfInputs returns the group of QuantGPTQ and QuantAWQ. The last one may be partial: then only
// the config tells the size.
func (q *quantised) groupOfInputs(inputs, _ int, scales []int) (int, int) {
	group := q.inputs
	if scales == nil && group > 0 {
		return group, 1
	}
	if len(scales) != 2 || scales[0] <= 0 {
		return inputs, 1
	}
	if group == 0 || ceil(inputs, group) != scales[0] {
		group = ceil(inputs, scales[0])
	}
	return group, 1
}

func (q *quantised) gptqBias() int { return q.bias }

// An exclusion is an entry of modules_to_not_convert: as in transformers a regular expression
// that the module's path begins with, or a name that stands at its end or among its parts.
type exclusion struct {
	name    string
	pattern *regexp.Regexp // nil where name is none
}

// maxExclusions bounds the list; the longest published one has some 500 names.
const maxExclusions = 1 << 14

// exclude reads the modules that are not quantised.
func (q *quantised) exclude(c map[string]any) {
	list, _ := c["modules_to_not_convert"].([]any)
	for _, v := range list[:min(len(list), maxExclusions)] {
		name, ok := v.(string)
		if !ok || name == "" || len(name) > 500 {
			continue
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

// A weightPlace describes the place of a parameter in the tree.
type weightPlace struct {
	linear  bool // the weight of a linear map
	expert  bool // a stack of experts' matrices
	inBlock bool // within a decoder block
	inOut   bool // the parameter is [inputs, outputs]
}

func (w weightPlace) linearOrExperts() bool { return w.linear || w.expert }
func (w weightPlace) experts() bool         { return w.expert }

// assume gives s the form that a published checkpoint with the config's method has, without a
// header.
func (t *tree) assume(s *TensorSource, shape []int, w weightPlace) {
	head := w.linear && !w.inBlock
	if head && !t.quantised.head {
		return // transformers quantises the head only where the config says so
	}
	module := strings.TrimSuffix(s.at(0), ".weight")
	if slices.ContainsFunc(t.excluded, func(e exclusion) bool { return e.matches(module) }) {
		return
	}
	for _, f := range t.formats {
		if row := f.Row(); row.weights == nil || !row.weights(w) {
			continue
		}
		coded, ok := t.coded(*s, f, shape, w.inOut, nil)
		if !ok {
			continue
		}
		if _, reason := coded.Stored(shape); reason == "" {
			*s = coded
			return
		}
	}
}

// quantise finds the stored form of s in the checkpoint, for a parameter of the given shape. It
// reports whether the tensor exists, and its dtype: that of values, or NoDType for codes.
func (t *tree) quantise(s *TensorSource, shape []int, inOut bool) (DType, bool) {
	_, dtype, there := t.first(*s)
	if there && len(shape) >= 2 {
		if f := t.formatOf(*s); f != QuantNone {
			if coded, ok := t.coded(*s, f, shape, inOut, t.header); ok {
				*s = coded
			}
			return NoDType, true
		}
		s.Transposed = s.Transposed || inOut && t.conventions().OutputsFirst
	}
	if len(shape) < 2 || there && !codesOf(dtype) {
		return dtype, there
	}
	var found *TensorSource
	for f := QuantNone + 1; f < quantFormats; f++ {
		row := f.Row()
		base, ok := row.names(s.Tensor)
		if !ok || row.Method == "" {
			continue
		}
		stored, d, ok := t.first(s.with(base + row.Codes.Suffix))
		if !ok || !row.Codes.Reads(d) {
			continue
		}
		coded, ok := t.coded(*s, f, shape, inOut, t.header)
		if !ok {
			continue
		}
		if tensors, _ := coded.Stored(shape); tensors != nil && slices.Equal(tensors[0].Shape, stored) {
			found = &coded
			break
		}
		if found == nil { // a malformed one, which Bind reports
			found = &coded
		}
	}
	if found == nil {
		return dtype, there
	}
	*s = *found
	return NoDType, true
}

// codesOf reports whether d is the dtype of codes under the parameter's own name.
func codesOf(d DType) bool {
	for f := QuantNone + 1; f < quantFormats; f++ {
		if p := &f.Row().Codes; p.Suffix == "" && f.Row().Method != "" && p.Reads(d) {
			return true
		}
	}
	return false
}

// coded returns s in the form of format f. ok is false if the header has no such tensors. Without a
// header they are assumed to exist.
func (t *tree) coded(s TensorSource, f QuantFormat, shape []int, inOut bool, header CheckpointHeader) (TensorSource, bool) {
	row := f.Row()
	base, ok := row.names(s.Tensor)
	if !ok {
		return s, false
	}
	out := s.with(base + row.Codes.Suffix)
	q := &Quant{Format: f, ScaleDType: row.Scales.assumed()}
	if row.Scales.exists() {
		q.Scales = base + row.Scales.Suffix
	}
	switch row.Layout {
	case InputsFirst:
		out.Transposed = !inOut
	case OutputsFirst:
		out.Transposed = inOut
	}
	if row.Zeros.exists() {
		q.Zeros = base + row.Zeros.Suffix
	}
	if row.Index.exists() {
		q.Index = base + row.Index.Suffix
	}
	var scales []int
	if header != nil {
		var d DType
		if scales, d, ok = t.first(s.with(q.Scales)); ok {
			q.ScaleDType = d
		} else if row.Scales.exists() && row.Codes.Suffix == "" {
			return s, false // a dtype without scales, which is no format
		}
		if _, _, ok := t.first(s.with(q.Index)); !ok {
			q.Index = ""
		}
		if scales == nil {
			scales = []int{}
		}
	}
	out.Quant = q
	whole := out.Shape(shape)
	if len(whole) < 2 {
		return s, false
	}
	q.Rows, q.Columns = row.groupOf(&t.quantised, whole[len(whole)-2], whole[len(whole)-1], scales)
	if row.zeroBias != nil {
		q.ZeroBias = row.zeroBias(&t.quantised)
	}
	return out, true
}

// first returns the shape and dtype of the first tensor of s in the checkpoint.
func (t *tree) first(s TensorSource) ([]int, DType, bool) { return t.header.Tensor(s.at(0)) }

// with returns s with another name.
func (s TensorSource) with(tensor string) TensorSource {
	s.Tensor = tensor
	return s
}

// stored returns the size in bytes of sources in the file if one of them is quantised, else 0.
func (t *tree) stored(sources []TensorSource, shape []int, dtype DType) int64 {
	if !slices.ContainsFunc(sources, func(s TensorSource) bool { return s.Quant != nil }) {
		return 0
	}
	var total int64
	for i := range sources {
		tensors, _ := sources[i].Stored(shape)
		for _, tensor := range tensors {
			if tensor.DType == NoDType {
				tensor.DType = dtype
			}
			total += tensor.DType.Bytes(Elements(tensor.Shape)) * int64(max(sources[i].Stack, 1))
		}
	}
	return total
}
