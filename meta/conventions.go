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
	// RopeSpread: rows are in the order of RopePairs, but rope rotates a half of each head: of the first rows of
	// neighbours, row 2i and that HeadDim/2 behind it.
	RopeSpread bool
	// RopeHalves is the opposite: rope rotates halves of what it rotates neighbours of in transformers.
	RopeHalves bool
	// SeparateGates: gate and up projections of experts are tensors of their own.
	SeparateGates bool
	// FusedInParts: a fused projection has all queries, then all keys, then all values.
	FusedInParts bool
	// SplitLatent: the expansion of latent attention is two matrices; see [MLASpec].KeyUp.
	SplitLatent bool
	// DecayRates: layers with a state have -exp(A_log) where transformers has A_log.
	DecayRates bool
	// TiledHeads: value heads of delta nets, with all that belongs to them, are in an order in which value
	// head v belongs to key head v mod KeyHeads.
	TiledHeads bool
	// SplitDelta: queries, keys and values of delta nets are one tensor, and output gates another, where
	// transformers has all of a key head together.
	SplitDelta bool
	// Scaled: multipliers of activations are within weights, so adapters for transformers do not fit.
	Scaled bool
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

// tile marks the projections of a delta net whose value heads are tiled.
func (s *DeltaNetSpec) tile(linear func(name string) *LinearSpec) {
	heads := func(from, dim int) *Tiling {
		return &Tiling{From: from, Keys: s.KeyHeads, Per: s.ValueHeads / s.KeyHeads, Dim: dim}
	}
	linear(s.QKV).RowTiling, linear(s.Z).RowTiling = heads(2*s.KeyHeads*s.KeyDim, s.ValueDim), heads(0, s.ValueDim)
	linear(s.B).RowTiling, linear(s.A).RowTiling = heads(0, 1), heads(0, 1)
	linear(s.Out).ColumnTiling = heads(0, s.ValueDim)
}

// spread gives attention that rotates a half of each head the rope of rows in the order of
// [Conventions].RopeSpread. It reports whether it does.
func (s *AttentionSpec) spread() bool {
	if s.Rope == nil || 2*s.Rope.Dim != s.HeadDim {
		return false
	}
	other := *s.Rope
	other.Dim, other.Spread = s.HeadDim, true
	s.Rope = &other
	return true
}

// linearChild returns the spec of a projection of m, or one that nothing has.
func linearChild(m *Module, name string) *LinearSpec {
	if child := m.Find(name); name != "" && child != nil {
		if spec, ok := child.Spec.(*LinearSpec); ok {
			return spec
		}
	}
	return new(LinearSpec) // nothing to mark
}

// conform changes the specs below root to the checkpoint's conventions.
func (c Conventions) conform(root *Module) {
	ropes := map[*RopeSpec]*RopeSpec{}
	turned := func(r *RopeSpec) *RopeSpec {
		if r == nil {
			return nil
		}
		if ropes[r] == nil {
			other := *r
			other.Interleaved = !r.Interleaved
			ropes[r] = &other
		}
		return ropes[r]
	}
	for _, m := range root.Walk() {
		switch spec := m.Spec.(type) {
		case *NormSpec:
			if c.WholeNorms {
				spec.Offset, spec.Whole = 0, spec.Whole || spec.Offset != 0
			}
		case *DeltaNetSpec:
			spec.Rates = c.DecayRates
			if spec.Tiled = c.TiledHeads; spec.Tiled {
				spec.tile(func(name string) *LinearSpec { return linearChild(m, name) })
			}
			if c.SplitDelta {
				linearChild(m, spec.QKV).Reordered, linearChild(m, spec.Z).Reordered = true, true
			}
		case *Mamba2Spec:
			spec.Rates = c.DecayRates
		case *MambaSpec:
			spec.Rates = c.DecayRates
		case *LinearSpec:
			spec.Reordered = spec.Reordered || c.Scaled
		case *AttentionSpec:
			if c.FusedInParts && spec.FusedOrder != FusedQKV {
				linearChild(m, spec.Fused).Reordered = true
			}
			if c.FusedInParts {
				spec.FusedOrder = FusedQKV
			}
			if c.RopeHalves && spec.Rope != nil && spec.Rope.Interleaved {
				linearChild(m, spec.Q).Reordered, linearChild(m, spec.K).Reordered = true, true
				spec.Rope, spec.QueryRope = turned(spec.Rope), turned(spec.QueryRope)
			}
			if c.RopeSpread && spec.spread() {
				linearChild(m, spec.Q).PairRows, linearChild(m, spec.K).PairRows = spec.HeadDim, spec.HeadDim
			}
			if !c.RopePairs || spec.Rope != nil && spec.Rope.Interleaved {
				continue
			}
			// Layers without rope have their rows in this order too, which changes no product of query and key.
			linearChild(m, spec.Q).PairRows, linearChild(m, spec.K).PairRows = spec.HeadDim, spec.HeadDim
			linearChild(m, spec.Fused).Reordered = true
			spec.Rope, spec.QueryRope = turned(spec.Rope), turned(spec.QueryRope)
		}
	}
}
