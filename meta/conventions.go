package meta

// A FormatHeader is a [CheckpointHeader] that says how each tensor is stored, as GGUF files do.
// *loader.Checkpoint implements it.
type FormatHeader interface {
	CheckpointHeader
	// Format returns the format of a tensor's codes, or QuantNone for values and for tensors whose
	// format follows from their names.
	Format(name string) QuantFormat
	// Conventions returns how the tensors differ from those that transformers saves.
	Conventions() Conventions
}

// Conventions are the differences between a checkpoint's weights and those that transformers saves for
// the same model. The tree takes them into its specs, so that weights are used as they are stored. The
// zero value is transformers' way.
type Conventions struct {
	// OutputsFirst: every matrix is [outputs, inputs], also where transformers has [inputs, outputs].
	OutputsFirst bool
	// WholeNorms: the weights of norms include what [NormSpec].Offset would add.
	WholeNorms bool
	// RopePairs: rows of queries and keys are in an order in which rope rotates neighbours.
	RopePairs bool
	// SeparateGates: gate and up projections of experts are tensors of their own.
	SeparateGates bool
	// FusedInParts: a fused projection has all queries, then all keys, then all values.
	FusedInParts bool
	// SplitLatent: the expansion of latent attention is two matrices; see [MLASpec].KeyUp.
	SplitLatent bool
}

// conventions returns those of the checkpoint.
func (t *tree) conventions() Conventions {
	if h, ok := t.header.(FormatHeader); ok {
		return h.Conventions()
	}
	return Conventions{}
}

// formatOf returns the format that the header states for the first tensor of s.
func (t *tree) formatOf(s TensorSource) QuantFormat {
	if h, ok := t.header.(FormatHeader); ok {
		return h.Format(s.at(0))
	}
	return QuantNone
}

// conform changes the specs below root to the checkpoint's conventions.
func (c Conventions) conform(root *Module) {
	ropes := map[*RopeSpec]*RopeSpec{}
	linear := func(m *Module, name string) *LinearSpec {
		if child := m.Find(name); name != "" && child != nil {
			if spec, ok := child.Spec.(*LinearSpec); ok {
				return spec
			}
		}
		return new(LinearSpec) // nothing to mark
	}
	for _, m := range root.Walk() {
		switch spec := m.Spec.(type) {
		case *NormSpec:
			if c.WholeNorms {
				spec.Offset = 0
			}
		case *AttentionSpec:
			if c.FusedInParts && spec.FusedOrder != FusedQKV {
				linear(m, spec.Fused).Reordered = true
			}
			if c.FusedInParts {
				spec.FusedOrder = FusedQKV
			}
			if !c.RopePairs || spec.Rope == nil || spec.Rope.Interleaved {
				continue
			}
			linear(m, spec.Q).PairRows, linear(m, spec.K).PairRows = spec.HeadDim, spec.HeadDim
			linear(m, spec.Fused).Reordered = true
			if ropes[spec.Rope] == nil {
				pairs := *spec.Rope
				pairs.Interleaved = true
				ropes[spec.Rope] = &pairs
			}
			spec.Rope = ropes[spec.Rope]
		}
	}
}
