package meta

import (
	"fmt"
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

// Stored lists the tensors of s for a parameter of the given shape: values or codes, then scales,
// zeros, index and global. If the format cannot hold such a parameter, reason says why.
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
	codes := row.Codes.DTypes
	if row.Codes.Own != nil && !strings.HasSuffix(s.Tensor, row.Codes.Suffix) {
		codes = row.Codes.Own
	}
	tensors = []StoredTensor{{s.Tensor, row.Codes.shape(stack, rows, columns), codes[0], codes}}
	for _, c := range []struct {
		*Companion
		tensor string
		dtype  DType
	}{{&row.Scales, q.Scales, q.ScaleDType}, {&row.Zeros, q.Zeros, row.Zeros.assumed()}, {&row.Index, q.Index, row.Index.assumed()}, {&row.Global, q.Global, row.Global.assumed()}} {
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

// AllRows is the Rows of a [Quant] with one scale for all rows.
const AllRows = 1 << 30

// blockOrAll returns the block of elements that share a scale of QuantFP8 and QuantInt8. The
// shape of the scales says whether there is one per block, per row or for the whole matrix.
func (q *quantised) blockOrAll(rows, columns int, scales []int) (int, int) {
	blocks := q.rows > 0 && q.columns > 0
	fits := blocks && len(scales) == 2 && ceil(rows, q.rows) == scales[0] && ceil(columns, q.columns) == scales[1]
	fits = fits || blocks && Elements(scales) == 1 && rows <= q.rows && columns <= q.columns // one block, as modelopt writes it
	switch {
	case fits, scales == nil && blocks:
		return q.rows, q.columns
	case scales == nil && q.perRow:
		return 1, columns
	case scales == nil, Elements(scales) == 1:
		return AllRows, columns
	case len(scales) == 1, len(scales) == 2 && scales[0] == rows && scales[1] == 1:
		return 1, columns
	case len(scales) == 2 && scales[0] == rows && scales[1] > 1 && columns%scales[1] == 0: // groups of columns
		return 1, columns / scales[1]
	case blocks:
		return q.rows, q.columns
	}
	return AllRows, columns // blocks of unknown size, which Bind rejects
}

// groupOfInputs returns the group size of QuantGPTQ and QuantAWQ. The last group may be partial;
// then only the config has the size.
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

// elements returns the number of elements that share a scale of QuantBnbNF4 and QuantBnbFP4, from
// the number of scales or from the config.
func (q *quantised) elements(rows, columns int, scales []int) (int, int) {
	if len(scales) == 1 {
		for size := 32; size <= 1<<16; size *= 2 {
			if ceil(rows*columns, size) == scales[0] && (size >= 64 || scales[0] > 1) {
				return 1, size
			}
		}
	}
	return 1, 64
}

// usualState is the approximate size of bitsandbytes' state of a matrix, in bytes.
const usualState = 170

// A weightPlace describes the place of a parameter in the tree.
type weightPlace struct {
	linear  bool // the weight of a linear layer
	expert  bool // a stack of experts' matrices
	inBlock bool // within a decoder block
	inOut   bool // the parameter is [inputs, outputs]
}

func (w weightPlace) linearOrExperts() bool { return w.linear || w.expert }
func (w weightPlace) experts() bool         { return w.expert }
func (w weightPlace) onlyLinear() bool      { return w.linear }

// assume sets the form of s that a published checkpoint with the config's method has. It is used
// if there is no header.
func (t *tree) assume(s *TensorSource, shape []int, w weightPlace) {
	head := w.linear && !w.inBlock
	if head && !t.quantised.head {
		return // transformers quantises the head only if the config says so
	}
	module := strings.TrimSuffix(s.at(0), ".weight")
	if slices.ContainsFunc(t.excluded, func(e exclusion) bool { return e.matches(module) }) {
		return
	}
	form := t.quantised.of(module)
	if form == nil {
		return
	}
	formats := form.formats
	if w.expert && form.experts != QuantNone {
		formats = []QuantFormat{form.experts}
	}
	for _, f := range formats {
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

// quantise determines the stored form of s in the checkpoint, for a parameter of the given shape.
// It reports whether the tensor exists, and its dtype: that of values, or NoDType for codes.
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
		if !ok || !row.Published {
			continue
		}
		stored, d, ok := t.first(s.with(base + t.codesSuffix(*s, base, row)))
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

// codesOf reports whether d is a dtype of codes under the parameter's own name.
func codesOf(d DType) bool {
	for f := QuantNone + 1; f < quantFormats; f++ {
		if p := &f.Row().Codes; f.Row().Published && (p.Suffix == f.Row().Trim && p.Reads(d) || slices.Contains(p.Own, d)) {
			return true
		}
	}
	return false
}

// coded returns s in the form of format f. ok is false if the header has no such tensors. Without
// a header they are assumed to exist.
func (t *tree) coded(s TensorSource, f QuantFormat, shape []int, inOut bool, header CheckpointHeader) (TensorSource, bool) {
	row, form := f.Row(), t.formOf(s)
	base, ok := row.names(s.Tensor)
	if !ok {
		return s, false
	}
	out := s.with(base + t.codesSuffix(s, base, row))
	q := &Quant{Format: f, ScaleDType: row.Scales.assumed()}
	if row.Scales.exists() {
		q.Scales = t.companion(s, base, &row.Scales, header)
	}
	switch row.Layout {
	case InputsFirst:
		out.Transposed = !inOut
	case OutputsFirst:
		out.Transposed = inOut
	}
	if row.Zeros.exists() && (header != nil || !row.Zeros.Optional || form.zeros) {
		q.Zeros = base + row.Zeros.Suffix
	}
	if row.Index.exists() && (header != nil || !form.inOrder || row.Codes.Flat && form.zeros) {
		q.Index = base + row.Index.Suffix
	}
	if row.Global.exists() {
		q.Global = base + row.Global.Suffix
	}
	var scales []int
	if header != nil {
		if scales, ok = t.present(s, q, row, form); !ok || out.Tensor == base && row.Codes.Suffix != row.Trim && len(scales) == 0 {
			return s, false // codes under the parameter's own name require scales
		}
	}
	out.Quant = q
	whole := out.Shape(shape)
	if len(whole) < 2 {
		return s, false
	}
	q.Rows, q.Columns = row.groupOf(form, whole[len(whole)-2], whole[len(whole)-1], scales)
	if row.zeroWords != nil {
		q.ZeroWords = row.zeroWords(form)
	}
	if row.Codes.Flat {
		q.Width = whole[len(whole)-1]
		if header == nil {
			q.State = usualState
			if form.zeros {
				q.ScaleDType = Uint8
			}
		}
	}
	return out, true
}

// formOf returns the config's form of the weight that s fills.
func (t *tree) formOf(s TensorSource) *quantised {
	if form := t.quantised.of(strings.TrimSuffix(s.at(0), ".weight")); form != nil {
		return form
	}
	return &t.quantised
}

// codesSuffix returns the suffix of the codes of s: that of the row, or "" if the header has them
// under the parameter's own name.
func (t *tree) codesSuffix(s TensorSource, base string, row *Format) string {
	if t.header != nil && row.Codes.Own != nil {
		if _, d, ok := t.first(s.with(base)); ok && slices.Contains(row.Codes.Own, d) {
			return ""
		}
	}
	return row.Codes.Suffix
}

// companion returns the name of a companion of s: the first of its names that the header has, or
// the name that the config's method writes.
func (t *tree) companion(s TensorSource, base string, c *Companion, header CheckpointHeader) string {
	name := base + c.Suffix
	if header == nil {
		if t.otherNames && c.Other != "" {
			return base + c.Other
		}
		return name
	}
	names := []string{name}
	if c.Other != "" {
		names = append(names, base+c.Other)
	}
	if bare, ok := strings.CutSuffix(base, ".weight"); ok {
		for _, end := range c.Instead {
			names = append(names, bare+end)
		}
	}
	for _, n := range names {
		if _, _, ok := t.first(s.with(n)); ok {
			return n
		}
	}
	return name
}

// besideWeights are the names of scales in files of DeepSeek V4 and of Mistral Large 4.
var besideWeights = []string{".scale", ".qscale_weight"}

// first returns the shape and dtype of the first tensor of s in the checkpoint.
func (t *tree) first(s TensorSource) ([]int, DType, bool) { return t.header.Tensor(s.at(0)) }

// states sets the sizes of bitsandbytes' states, which s names. A state holds numbers as text, so
// sizes differ between experts.
func (t *tree) states(s TensorSource, q *Quant) {
	for i := range max(s.Stack, 1) {
		if state, _, ok := t.header.Tensor(s.at(i)); ok {
			n := int(Elements(state))
			q.State, q.States = max(q.State, n), q.States+n
		}
	}
}

// with returns s with another name.
func (s TensorSource) with(tensor string) TensorSource {
	s.Tensor = tensor
	return s
}

// dtypeOf returns the dtype of the values of s in the file, or dtype if that is unknown.
func (t *tree) dtypeOf(s *TensorSource, dtype DType) DType {
	if t.header != nil && s.Quant == nil {
		if _, d, ok := t.first(*s); ok {
			return d
		}
	}
	return dtype
}

// elements returns how many values of the parameter s fills, if its tensors have the given shape.
func (s *TensorSource) elements(shape []int) int64 {
	n := Elements(shape)
	if !s.From.IsAll() {
		n = n / int64(max(s.From.End, 1)) * int64(s.From.End-s.From.Begin)
	}
	if s.Each > 0 { // one tensor has all experts
		return n
	}
	return n * int64(max(s.Stack, 1))
}

// stored returns the size of sources in the file, in bytes, if one of them is quantised or has another
// dtype than the parameter, otherwise 0.
func (t *tree) stored(sources []TensorSource, shape []int, dtype DType) int64 {
	if !slices.ContainsFunc(sources, func(s TensorSource) bool { return s.Quant != nil || t.dtypeOf(&s, dtype) != dtype }) {
		return 0
	}
	var total int64
	for i := range sources {
		tensors, _ := sources[i].Stored(shape)
		for _, tensor := range tensors {
			if tensor.DType == NoDType {
				total += t.dtypeOf(&sources[i], dtype).Bytes(sources[i].elements(tensor.Shape))
				continue
			}
			if q := sources[i].Quant; q != nil && q.States > 0 && tensor.Tensor == q.Global {
				total += int64(q.States)
				continue
			}
			total += tensor.DType.Bytes(Elements(tensor.Shape)) * int64(max(sources[i].Stack, 1))
		}
	}
	return total
}

// present keeps the companions of q that the header has, and sets the dtype of its scales. It
// returns the shape of the scales. ok is false if a tensor of codes lacks a companion that its
// format requires.
func (t *tree) present(s TensorSource, q *Quant, row *Format, form *quantised) (scales []int, ok bool) {
	scales, d, ok := t.first(s.with(q.Scales))
	if ok {
		q.ScaleDType = d
		if slices.Contains(powerDTypes, d) != row.powers && !row.Scales.Reads(d) {
			return nil, false
		}
	} else if row.Scales.exists() && row.Codes.Suffix == row.Trim {
		return nil, false // a dtype without scales does not belong to the format
	}
	if row.Codes.Flat {
		t.states(s.with(q.Global), q)
		if q.State == 0 {
			return nil, false
		}
	}
	if row.Global.Optional {
		if _, _, ok := t.first(s.with(q.Global)); !ok {
			q.Global = ""
		}
	}
	needed := row.Codes.Flat && d == Uint8 // scales of scales
	if _, _, ok := t.first(s.with(q.Index)); !ok && !needed {
		q.Index = ""
	}
	if _, _, ok := t.first(s.with(q.Zeros)); !ok && row.Zeros.Optional && !needed && (row.Codes.Flat || !form.zeros) {
		q.Zeros = ""
	}
	switch {
	case scales == nil:
		scales = []int{}
	case len(scales) == 4 && scales[1] == 1 && scales[3] == 1: // modelopt's blocks
		scales = []int{scales[0], scales[2]}
	}
	return scales, true
}
