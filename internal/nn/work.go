package nn

import (
	"slices"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// mapped is a linear layer of a program as operations see it.
type mapped struct {
	*linear
	step  int  // of its rows
	tiled bool // its rows come in tiles
	topK  int  // of the experts in its stack, otherwise 0
	// in and out replace the layer's widths if passes apply parts of it. reversed is set if these
	// parts are transposed.
	in, out  int
	reversed bool
}

// asked is what a program's rules require of a backend, without the limits of a pass.
type asked struct {
	maps      []mapped
	spreads   []spread
	attention []backend.AttentionWork
	columns   int
	vector    int
	taps      int
}

// A spread is a product of values in float32, perRow of them in each row, with a column of dim
// numbers.
type spread struct{ perRow, dim int }

// spreads records a spread.
func (c *compiler) spreads(perRow, dim int) {
	if s := (spread{perRow, dim}); !slices.Contains(c.program.asked.spreads, s) {
		c.program.asked.spreads = append(c.program.asked.spreads, s)
	}
}

// multiplies records a linear layer that passes apply as a whole.
func (c *compiler) multiplies(r *linear) {
	c.program.asked.maps = append(c.program.asked.maps, mapped{linear: r, step: 1, in: r.in, out: r.out})
}

// asks records the layers of experts and the memory of their router.
func (c *compiler) asks(m *moe) {
	s := m.spec
	up := mapped{linear: m.gateUp, step: 1, topK: s.TopK, in: m.gateUp.in, out: m.gateUp.out}
	if !s.Plain && s.GateOrder == meta.GateInterleaved {
		up.step, up.out = 2, m.inner
	}
	down := mapped{linear: m.down, step: 1, topK: s.TopK, in: m.down.in, out: m.down.out}
	c.program.asked.maps = append(c.program.asked.maps, up, down)
	c.keeps(2*m.choices() + s.Groups)
	c.keepsGate(s.Act, m.inner)
	c.widens(max(m.choices(), m.gateUp.out, m.down.out))
}

// keepsGate is keeps for a gate of the given number of columns, if its activation needs it.
func (c *compiler) keepsGate(act meta.Activation, columns int) {
	if act == meta.ActClampedSwiGLU || act == meta.ActClampedSiLU {
		c.keeps(columns)
	}
}

func (c *compiler) attends(w backend.AttentionWork) {
	if !slices.Contains(c.program.asked.attention, w) {
		c.program.asked.attention = append(c.program.asked.attention, w)
	}
}

// widens records that an operation may need a vector of n elements in float32.
func (c *compiler) widens(n int) { c.program.asked.vector = max(c.program.asked.vector, n) }

// keeps records that an operation keeps the given number of floats per row.
func (c *compiler) keeps(columns int) {
	c.program.asked.columns = max(c.program.asked.columns, columns)
}

// tiled records that the layers from number first to number end process tiles of rows.
func (c *compiler) tiled(first, end int) {
	for i := range c.program.asked.maps[first:end] {
		c.program.asked.maps[first+i].tiled = true
	}
}

// A Demand is what the passes of a program require of a backend, for any limits. It is immutable.
type Demand struct {
	program  *Program
	products []demanded // without duplicates
}

// demanded is a product for any limits of a pass.
type demanded struct {
	weight backend.Matrix
	tiled  bool
	topK   int // of the experts that weight stacks, otherwise 0
}

// Demand returns what passes of p require of a backend. formats returns the formats in which a
// parameter is used: those that it is converted to when it is loaded, and QuantNone for the stored
// one. If low is set, adapters may be added to every layer.
func (p *Program) Demand(formats func(*meta.Param) []meta.QuantFormat, low bool) *Demand {
	d := &Demand{program: p}
	seen := map[any]bool{}
	add := func(m *mapped, weight backend.Matrix) {
		if key := keyOf(m, &weight); !seen[key] {
			seen[key] = true
			d.products = append(d.products, demanded{weight, m.tiled, m.topK})
		}
	}
	for i := range p.asked.maps {
		m := &p.asked.maps[i]
		for _, f := range formats(m.weight.Param) {
			add(m, m.matrix(f))
		}
		if low {
			for _, dtype := range []meta.DType{meta.Float32, meta.BFloat16} {
				weight := backend.Matrix{Tensor: tensor.Tensor{DType: dtype, Rank: 2}}
				weight.Dims[0], weight.Dims[1] = m.out, m.in
				add(m, weight)
			}
		}
	}
	return d
}

// keyOf returns equal keys for layers whose products require the same of a backend: the layers of
// a model are mostly alike.
func keyOf(m *mapped, weight *backend.Matrix) any {
	key := struct {
		dtype             meta.DType
		rows, columns     int
		transposed, tiled bool
		step, topK        int
		quant             meta.Quant
		width, height     int
	}{dtype: weight.DType, rows: weight.Dims[0], columns: weight.Dims[1], transposed: weight.Transposed, tiled: m.tiled, step: weight.RowStep, topK: m.topK}
	if q := weight.Quant; q != nil {
		key.quant, key.width, key.height = *q.Quant, q.Width, q.Height
		key.quant.Scales, key.quant.Zeros, key.quant.Index, key.quant.Global = "", "", "", ""
	}
	return key
}

// Within returns what passes within the limits l require of a backend, for sequences of at most
// context tokens.
func (d *Demand) Within(l Limits, context int, kv meta.DType) backend.Work {
	asked := &d.program.asked
	w := backend.Work{Columns: asked.columns, Vector: asked.vector, Taps: asked.taps, KVDType: kv}
	for i := range d.products {
		m := &d.products[i]
		tokens := l.Rows
		if m.tiled {
			tokens = l.tile(l.Rows)
		}
		product := backend.ProductWork{Weight: m.weight, Tokens: tokens, Together: tokens}
		if m.topK > 0 {
			product.Together = max(tokens, lotRows(l.Rows, m.topK))
		}
		w.Products = append(w.Products, product)
	}
	for _, s := range asked.spreads {
		column := backend.Matrix{Tensor: tensor.Tensor{DType: meta.Float32, Rank: 2, Dims: [tensor.MaxRank]int{s.dim, 1}}}
		tokens := min(s.perRow*l.Rows, spreadValues)
		w.Products = append(w.Products, backend.ProductWork{Weight: column, Tokens: tokens, Together: tokens})
	}
	for _, a := range asked.attention {
		a.Context, a.Tokens = context, l.Rows
		w.Attention = append(w.Attention, a)
	}
	return w
}

// matrix returns the weight as it is stored, or as it is converted.
func (m *mapped) matrix(as meta.QuantFormat) backend.Matrix {
	p := m.weight.Param
	turned := m.transposed != m.reversed
	out := backend.Matrix{Tensor: tensor.Tensor{DType: p.DType, Rank: 2}, RowStep: m.step}
	var quant *meta.Quant
	if len(p.Sources) > 0 {
		turned = turned != p.Sources[0].Transposed
		quant = p.Sources[0].Quant
	}
	if as != meta.QuantNone {
		quant, turned = &meta.Quant{Format: as, Rows: 1, Columns: as.BlockColumns()}, false
	} else if quant != nil && quant.Format.Row().Layout == meta.InputsFirst {
		turned = true
	}
	out.Transposed = turned
	stored := m.out
	if m.step > 1 {
		stored *= m.step
	}
	out.Dims[0], out.Dims[1] = stored, m.in
	if turned {
		out.Dims[0], out.Dims[1] = m.in, stored
	}
	if quant != nil {
		out.Quant = &backend.Quant{Quant: quant, Width: out.Dims[1]}
		if as != meta.QuantNone {
			out.Quant.Height = out.Dims[0]
		}
	}
	return out
}
