package meta

// The layout of QuantCoded, as package coded has it; a test compares them.
const (
	codedColumns = 128 // of a group
	codedGroup   = 192 // bytes of a group
	codedTable   = 32  // bytes of a row's table
	codedUnit    = 24  // bytes of a unit for exceptions
	codedUnitFor = 6   // groups, of which each first one comes with a unit
)

// CodedRowBytes returns the size of a row with the given number of columns in QuantCoded.
func CodedRowBytes(columns int) int64 {
	groups := ceil(columns, codedColumns)
	return codedTable + codedGroup*int64(groups) + codedUnit*int64(ceil(groups, codedUnitFor))
}

// CodedShare is the largest ratio of the size of a coded matrix to its plain size with which coding pays.
const CodedShare = 0.9

// Coded returns the parameters below m that can be coded in QuantCoded, with their sizes: bfloat16
// matrices of linear maps and of stacked experts whose size becomes at most share of what it is. Matrices
// that are also lookup tables, that are stored transposed, or of which a part is multiplied transposed
// (the expansion of keys of latent attention) are used as they are.
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

// paramOf returns n's parameter of a name, or nil.
func paramOf(n *Module, name string) *Param {
	p := n.Param(name)
	if p == nil {
		return nil
	}
	return p.Resolve()
}

// codedBytes returns the size of p in QuantCoded, or 0 where it stays as it is.
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
