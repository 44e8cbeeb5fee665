package meta

// A FormatHeader is a [CheckpointHeader] that knows how each tensor is stored, as GGUF files do.
// *loader.Checkpoint implements it.
type FormatHeader interface {
	CheckpointHeader
	// Format returns the format of a tensor's codes. It returns QuantNone for values, and for
	// tensors whose format follows from their names.
	Format(name string) QuantFormat
	// Conventions returns the differences between the checkpoint's weights and those that
	// transformers saves.
	Conventions() Conventions
}

// Conventions are the differences between a checkpoint's weights and those that transformers
// saves for the same model. [New] adapts the specs to them, so that weights are used as they are
// stored. The zero value means no differences.
type Conventions struct {
	// OutputsFirst: every matrix is [outputs, inputs], also where transformers has [inputs,
	// outputs].
	OutputsFirst bool
	// WholeNorms: the weights of norms include [NormSpec].Offset.
	WholeNorms bool
	// RopePairs: rows of queries and keys are in an order in which rope rotates adjacent rows.
	RopePairs bool
	// RopeSpread: rows are in the order of RopePairs, but rope rotates only half of each head. It
	// rotates row 2i together with the row HeadDim/2 after it.
	RopeSpread bool
	// RopeHalves is the opposite of RopePairs: rope rotates halves where transformers rotates
	// adjacent rows.
	RopeHalves bool
	// SeparateGates: gate and up projections of experts are separate tensors.
	SeparateGates bool
	// FusedInParts: a fused projection has all queries, then all keys, then all values.
	FusedInParts bool
	// SplitLatent: the expansion of latent attention is stored as two matrices; see
	// [MLASpec].KeyUp.
	SplitLatent bool
	// DecayRates: layers with a state store -exp(A_log) instead of A_log.
	DecayRates bool
	// TiledHeads: value heads of delta nets, and all parameters per value head, are in an order
	// in which value head v belongs to key head v mod KeyHeads.
	TiledHeads bool
	// SplitDelta: delta nets store queries, keys and values as one tensor and output gates as
	// another, where transformers groups all four by key head.
	SplitDelta bool
	// ScaledLatent: norms of the compressions of latent attention include the factor after them.
	ScaledLatent bool
	// Scaled: multipliers of activations are folded into the weights, so adapters made for
	// transformers do not fit.
	Scaled bool
}

// conventions returns the checkpoint's conventions.
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

// spread sets the rope of attention that rotates half of each head for rows in the order of
// [Conventions].RopeSpread. It reports whether the attention does that.
func (s *AttentionSpec) spread() bool {
	if s.Rope == nil || 2*s.Rope.Dim != s.HeadDim {
		return false
	}
	other := *s.Rope
	other.Dim, other.Spread = s.HeadDim, true
	s.Rope = &other
	return true
}

// linearChild returns the spec of a projection of m, or an unused one if there is none.
func linearChild(m *Module, name string) *LinearSpec {
	if child := m.Find(name); name != "" && child != nil {
		if spec, ok := child.Spec.(*LinearSpec); ok {
			return spec
		}
	}
	return new(LinearSpec) // nothing to mark
}

// conform adapts the specs below root to the checkpoint's conventions.
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
			// Layers without rope have their rows in this order too, which does not change the
			// products of queries and keys.
			linearChild(m, spec.Q).PairRows, linearChild(m, spec.K).PairRows = spec.HeadDim, spec.HeadDim
			linearChild(m, spec.Fused).Reordered = true
			spec.Rope, spec.QueryRope = turned(spec.Rope), turned(spec.QueryRope)
		}
	}
}
