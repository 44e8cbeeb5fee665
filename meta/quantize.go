package meta

import (
	"cmp"
	"slices"
)

// Conversions returns the block formats that Heft can convert weights to, the largest first.
func Conversions() []QuantFormat {
	var list []QuantFormat
	for f := range quantFormats {
		if f.Row().Convert {
			list = append(list, f)
		}
	}
	slices.SortStableFunc(list, func(a, b QuantFormat) int {
		return -cmp.Compare(a.BlockBytes()*int64(b.BlockColumns()), b.BlockBytes()*int64(a.BlockColumns()))
	})
	return list
}

// ConvertColumns returns the number of which a row's columns must be a multiple for every format
// of [Conversions].
func ConvertColumns() int {
	columns := 1
	for _, f := range Conversions() {
		columns = max(columns, f.BlockColumns()) // blocks are powers of two
	}
	return columns
}

// Quantized returns the parameters below m that can be converted to the formats of [Conversions],
// with their numbers of elements. These are matrices of linear layers and of stacked experts that
// are stored as floats in rows of whole blocks. Norms, biases, routers and lookup tables are not
// converted. A lookup table that is also the head is converted for the head.
func (m *Module) Quantized() map[*Param]int64 { return m.convertible(ConvertColumns()) }

// FourBits returns the sizes of the parameters below m that are converted to QuantBnbNF4, as
// bitsandbytes does: the parameters of [Module.Quantized] except the head's, and also matrices
// whose rows are not a whole number of blocks.
func (m *Module) FourBits() map[*Param]int64 {
	out := m.convertible(2)
	if s, ok := m.Spec.(*CausalLMSpec); ok {
		if head := m.Find(s.Head); head != nil && head.Resolve().Param("weight") != nil {
			delete(out, head.Resolve().Param("weight").Resolve())
		}
	}
	for p, elements := range out {
		out[p] = NF4Bytes(elements)
	}
	return out
}

// convertible returns the matrices whose rows are multiples of columns, with their numbers of elements.
func (m *Module) convertible(columns int) map[*Param]int64 {
	out, routers := map[*Param]int64{}, map[*Module]bool{}
	for _, n := range m.Walk() {
		n = n.Resolve()
		switch spec := n.Spec.(type) {
		case *LinearSpec:
			if p := n.Param("weight"); n.Kind == KindLinear && p != nil && !routers[n] {
				p.Resolve().quantizeTo(out, 2, columns)
			}
		case *MoESpec:
			if n.Kind != KindMoE {
				continue
			}
			for _, p := range n.matricesOfExperts(spec) {
				p.Resolve().quantizeTo(out, 3, columns)
			}
			if spec.Deep != nil { // its maps are below n
				for _, r := range n.Find(spec.Router).Walk() {
					routers[r.Resolve()] = true
				}
			}
		}
	}
	return out
}

func (p *Param) quantizeTo(out map[*Param]int64, rank, columns int) {
	if len(p.Shape) != rank {
		return
	}
	for i := range p.Sources {
		s := &p.Sources[i]
		shape := s.Shape(p.Shape)
		if s.Quant != nil || len(shape) < 2 || shape[len(shape)-1]%columns != 0 {
			return
		}
	}
	if QuantNone.Row().Codes.Reads(p.DType) && (len(p.Sources) > 0 || p.Shape[rank-1]%columns == 0) {
		out[p] = p.Elements()
	}
}

// LoadedBytes returns the sizes of parameters below m that are converted to f when they are
// loaded. If whole is set, a tied lookup table counts twice, because it is also kept unconverted.
func (m *Module) LoadedBytes(f QuantFormat, whole bool) map[*Param]int64 {
	if f == QuantCoded {
		return m.Coded(CodedShare)
	}
	if !f.Row().Convert {
		return nil
	}
	out := m.Quantized()
	for p, elements := range out {
		out[p] = elements / int64(f.BlockColumns()) * f.BlockBytes()
	}
	if !whole {
		return out
	}
	for _, n := range m.Walk() {
		if n = n.Resolve(); n.Kind != KindEmbedding {
			continue
		}
		if p := n.Param("weight"); p != nil {
			if p = p.Resolve(); out[p] > 0 {
				out[p] += p.Bytes()
			}
		}
	}
	return out
}

// NF4Columns is the number of elements that share a scale when Heft converts to NF4. It is
// bitsandbytes' default.
const NF4Columns = 64

// NF4Bytes returns the size of the given number of elements in NF4, with their float32 scales.
func NF4Bytes(elements int64) int64 {
	return elements/2 + 4*((elements+NF4Columns-1)/NF4Columns)
}

// ParseQuantize returns the format for the GGUF name of one that Heft converts weights to:
// QuantQ8 or QuantQ4. It returns QuantNone for "" and "none". ok is false for other names.
func ParseQuantize(name string) (f QuantFormat, ok bool) {
	if name == "" {
		return QuantNone, true
	}
	for f := range quantFormats {
		if row := f.Row(); row.Name == name && (row.Convert || f == QuantNone) {
			return f, true
		}
	}
	return QuantNone, false
}
