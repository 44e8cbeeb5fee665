package meta

// The layout of QuantCoded, as package coded defines it. A test compares the two.
const (
	codedColumns = 128 // columns of a group
	codedGroup   = 192 // bytes of a group
	codedTable   = 32  // bytes of a row's table
	codedUnit    = 24  // bytes of a unit for exceptions
	codedUnitFor = 6   // groups per unit, which comes with the first of them
)

// CodedRowBytes returns the size of a row with the given number of columns in QuantCoded.
func CodedRowBytes(columns int) int64 {
	groups := ceil(columns, codedColumns)
	return codedTable + codedGroup*int64(groups) + codedUnit*int64(ceil(groups, codedUnitFor))
}

// CodedShare is the maximum ratio of the coded to the plain size of a matrix for which coding
// pays.
const CodedShare = 0.9

// Coded returns the parameters below m that can be coded in QuantCoded, with their coded sizes.
// These are bfloat16 matrices of linear layers and of stacked experts whose size is reduced to at
// most the given share. Matrices that are also lookup tables, that are stored transposed, or of
// which a part is multiplied transposed (the key expansion of latent attention) are not coded.
func (m *Module) Coded(share float64) map[*Param]int64 {
	out := m.Quantized()
	for _, n := range m.Walk() {
		n = n.Resolve()
		switch spec := n.Spec.(type) {
		case *LinearSpec:
			if spec.Transposed {
				delete(out, paramOf(n, "weight"))
			}
		case *MoESpec:
			if stack := n.Child(spec.Experts); stack != nil && spec.Transposed {
				delete(out, paramOf(stack.Resolve(), spec.GateUp))
				delete(out, paramOf(stack.Resolve(), spec.Down))
			}
		case *AttentionSpec:
			if spec.MLA == nil || spec.MLA.KVUp == "" {
				break
			}
			if up := n.Child(spec.MLA.KVUp); up != nil {
				delete(out, paramOf(up.Resolve(), "weight"))
			}
		}
		if n.Kind == KindEmbedding {
			delete(out, paramOf(n, "weight"))
		}
	}
	for p := range out {
		if out[p] = p.codedBytes(share); out[p] == 0 {
			delete(out, p)
		}
	}
	return out
}

// paramOf returns n's parameter called name, or nil.
func paramOf(n *Module, name string) *Param {
	p := n.Param(name)
	if p == nil {
		return nil
	}
	return p.Resolve()
}

// codedBytes returns the size of p in QuantCoded, or 0 if p is not coded.
func (p *Param) codedBytes(share float64) int64 {
	columns := p.Shape[len(p.Shape)-1]
	size := p.Elements() / int64(max(columns, 1)) * CodedRowBytes(columns)
	if p.DType != BFloat16 || float64(size) > share*float64(p.Bytes()) {
		return 0
	}
	for i := range p.Sources {
		if p.Sources[i].Transposed {
			return 0
		}
	}
	return size
}
