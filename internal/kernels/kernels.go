package kernels

import (
	"fmt"
	"strings"
)

// Format is how the elements of [Weights] are stored, little-endian.
type Format uint8

// The formats.
const (
	BFloat16 Format = iota
	Float16
	Float32
	formats
)

// Size is the bytes of one element.
func (f Format) Size() int {
	if f == Float32 {
		return 4
	}
	return 2
}

// Floats is a matrix of activations. Row i starts at element i·Stride.
type Floats struct {
	V      []float32
	Stride int
}

// Weights is a matrix as it is stored. Row i starts at byte i·Stride; no alignment is
// asked for.
type Weights struct {
	Data   []byte
	Stride int
	Format Format
}

// Set is one variant of the kernels. It has no state: any number of goroutines may use
// it at once.
type Set struct {
	// Name is the variant: go, avx2, avx512, avx512bf16, amx.
	Name string
	// Lanes is the number of partial sums of a dot product.
	Lanes int
	// WidenAt is the number of tokens from which it pays to widen 16-bit weights to
	// float32 before Mul; 0 means never.
	WidenAt int
	// GroupTokens is the number of tokens that a group packs together; 0: see [Set.Groups].
	GroupTokens int
	// SlowPairs says that MulPairs and Tile are slower than Mul and SumPanels: this processor
	// multiplies half as many pairs of bfloat16 as float32 numbers at a time.
	SlowPairs bool

	ops      ops
	grouper  grouper  // nil: there are no groups
	halver   halver   // nil: nor halves
	coder    coder    // nil: nor products with codes
	fewer    fewer    // nil: nor products of few tokens with weights that are turned meanwhile
	rounder  rounder  // nil: activations are never rounded
	integers integers // nil: nor to integers
	pager    pager    // nil: pages are read a piece at a time
}

// ops is what a variant implements. Bounds have been checked.
type ops interface {
	pointwise
	rower
	unpacker
	panels
	prompter
	sampler
	trainer
	mul(y Floats, w Weights, x Floats, rows, tokens, n int)
	mix(y, p Floats, step int, v Weights, keys, tokens, cols int)
	addLanes(lanes, x []float32, v Weights, cols int)
	expSum(x []float32, shift float32) float32
	gate(dst, gate, up []float32, c1, c3 float32)
	gelu(dst, x []float32)
	tanh(x []float32, inner, outer float32)
	scaleMax(x []float32, scale float32) float32
	sumSquares(x []float32, shift float32) float32
	widen(dst []float32, src []byte, f Format)
	columns(dst Floats, w Weights, rows, cols int)
	unpackRows(dst Floats, w []byte, stride, rows, blocks int)
}

// Names lists the variants this processor can run, best first.
func Names() []string {
	var names []string
	for _, s := range available() {
		names = append(names, s.Name)
	}
	return names
}

// Select returns the variant called name, or the best one where name is empty. The
// error lists the variants this processor can run.
func Select(name string) (*Set, error) {
	sets := available()
	for i := range sets {
		if name == "" || sets[i].Name == name {
			return &sets[i], nil
		}
	}
	return nil, fmt.Errorf("kernels: no variant %q on this processor (it has %s)", name, strings.Join(Names(), ", "))
}

func goSet() Set { return Set{Name: "go", Lanes: goLanes, WidenAt: 2, ops: goOps{}} }

// Mul sets y[t][r] = Σ_k w[r][k] · x[t][k] for r < rows, t < tokens, k < n: a dot
// product for each element.
func (s *Set) Mul(y Floats, w Weights, x Floats, rows, tokens, n int) {
	if rows <= 0 || tokens <= 0 {
		return
	}
	y.check(tokens, rows)
	w.check(rows, n)
	x.check(tokens, n)
	s.ops.mul(y, w, x, rows, tokens, n)
}

// Mix adds y[t][c] += Σ_j p[t][j·step] · v[j][c] for c < cols, t < tokens, j < keys, in
// ascending order of j.
func (s *Set) Mix(y, p Floats, step int, v Weights, keys, tokens, cols int) {
	if keys <= 0 || tokens <= 0 || cols <= 0 {
		return
	}
	y.check(tokens, cols)
	p.check(tokens, (keys-1)*step+1)
	v.check(keys, cols)
	s.ops.mix(y, p, step, v, keys, tokens, cols)
}

// AddLanes adds the partial sums of a dot product down each column of v: x[j] · v[j][c]
// is added to lanes[l·cols+c] with l = j mod s.Lanes, in ascending order of j.
// [Set.FoldLanes] ends it.
func (s *Set) AddLanes(lanes, x []float32, v Weights, cols int) {
	if len(x) == 0 || cols <= 0 {
		return
	}
	v.check(len(x), cols)
	s.ops.addLanes(lanes[:s.Lanes*cols], x, v, cols)
}

// FoldLanes adds s.Lanes vectors of n elements, which lie one after another in lanes,
// in the order of a dot product. The sum is left in lanes[:n].
func (s *Set) FoldLanes(lanes []float32, n int) {
	for half := s.Lanes / 2; half > 0; half /= 2 {
		a, b := lanes[:half*n], lanes[half*n:2*half*n]
		for i := range a {
			a[i] += b[i]
		}
	}
}

// ExpSum sets x[i] = exp(x[i] − shift) and returns the sum, in the order of a dot
// product.
func (s *Set) ExpSum(x []float32, shift float32) float32 { return s.ops.expSum(x, shift) }

// Gate sets dst[i] = g · σ(g·(c1 + c3·g²)) · up[i] with g = gate[i]; up may be nil,
// which stands for ones. (1, 0) is SiLU, (1.702, 0) the sigmoid form of GELU and
// (2√(2/π), 0.044715·2√(2/π)) its tanh form. dst may be gate.
func (s *Set) Gate(dst, gate, up []float32, c1, c3 float32) {
	gate = gate[:len(dst)]
	if up != nil {
		up = up[:len(dst)]
	}
	s.ops.gate(dst, gate, up, c1, c3)
}

// GELU sets dst[i] = x·Φ(x) with x = x[i] and Φ the normal distribution. dst may be x.
func (s *Set) GELU(dst, x []float32) { s.ops.gelu(dst, x[:len(dst)]) }

// Tanh sets x[i] = outer · tanh(inner · x[i]).
func (s *Set) Tanh(x []float32, inner, outer float32) { s.ops.tanh(x, inner, outer) }

// ScaleMax multiplies x by scale and returns the largest element, −Inf for none. NaNs
// are passed over.
func (s *Set) ScaleMax(x []float32, scale float32) float32 { return s.ops.scaleMax(x, scale) }

// SumSquares is Σ (x[i] − shift)², in the order of a dot product.
func (s *Set) SumSquares(x []float32, shift float32) float32 { return s.ops.sumSquares(x, shift) }

// Widen converts len(dst) elements of src to float32, exactly.
func (s *Set) Widen(dst []float32, src []byte, f Format) {
	if len(dst) > 0 {
		s.ops.widen(dst, src[:len(dst)*f.Size()], f)
	}
}

// Columns sets dst[c][r] = w[r][c] for r < rows, c < cols: the transpose as float32, exactly.
func (s *Set) Columns(dst Floats, w Weights, rows, cols int) {
	if rows <= 0 || cols <= 0 {
		return
	}
	dst.check(cols, rows)
	w.check(rows, cols)
	s.ops.columns(dst, w, rows, cols)
}

// check panics, as indexing does, where the view is too short for the shape.
func (m Floats) check(rows, cols int) { _ = m.V[:(rows-1)*m.Stride+cols] }

func (m Weights) check(rows, cols int) {
	_ = m.Data[:(rows-1)*m.Stride+cols*m.Format.Size()]
}
