package meta

// ParseQuantize is the format that weights are to be converted to, by its name in GGUF:
// QuantQ8 or QuantQ4; QuantNone for "" and "none".
func ParseQuantize(name string) (QuantFormat, bool) {
	switch name {
	case "", QuantNone.String():
		return QuantNone, true
	case QuantQ8.String():
		return QuantQ8, true
	case QuantQ4.String():
		return QuantQ4, true
	}
	return QuantNone, false
}

// BlockBytes is the size of a block of 32 columns of QuantQ8 or QuantQ4; 0 for formats whose
// scales lie apart.
func (f QuantFormat) BlockBytes() int64 {
	switch f {
	case QuantQ8:
		return 2 + 32
	case QuantQ4:
		return 2 + 16
	}
	return 0
}

// blockColumns is the number of columns of a block.
const blockColumns = 32

// Quantized lists the parameters below m that can be converted to QuantQ8 or QuantQ4, with
// their elements: the matrices of linear maps and of stacked experts, as far as they are
// stored as floats in rows of whole blocks. Norms, biases, routers and tables that are
// looked up stay as they are; a table that is a head too is converted for the head.
func (m *Module) Quantized() map[*Param]int64 {
	out := map[*Param]int64{}
	for _, n := range m.Walk() {
		n = n.Resolve()
		switch spec := n.Spec.(type) {
		case *LinearSpec:
			if p := n.Param("weight"); n.Kind == KindLinear && p != nil {
				p.Resolve().quantizeTo(out, 2)
			}
		case *MoESpec:
			stack := n.Child(spec.Experts)
			if n.Kind != KindMoE || stack == nil {
				continue
			}
			for _, name := range []string{spec.GateUp, spec.Down} {
				if p := stack.Resolve().Param(name); p != nil {
					p.Resolve().quantizeTo(out, 3)
				}
			}
		}
	}
	return out
}

func (p *Param) quantizeTo(out map[*Param]int64, rank int) {
	if len(p.Shape) != rank {
		return
	}
	for i := range p.Sources {
		s := &p.Sources[i]
		shape := s.Shape(p.Shape)
		if s.Quant != nil || len(shape) < 2 || shape[len(shape)-1]%blockColumns != 0 {
			return
		}
	}
	switch p.DType {
	case BFloat16, Float16, Float32:
		if len(p.Sources) > 0 || p.Shape[rank-1]%blockColumns == 0 {
			out[p] = p.Elements()
		}
	}
}

// LoadedBytes is what the parameters below m take that are converted to f when they are
// loaded. One that is looked up too, a tied table, is kept as it is beside it where whole
// is set.
func (m *Module) LoadedBytes(f QuantFormat, whole bool) map[*Param]int64 {
	if f.BlockBytes() == 0 {
		return nil
	}
	out := m.Quantized()
	for p, elements := range out {
		out[p] = elements / blockColumns * f.BlockBytes()
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
