package nn

import (
	"fmt"
	"math"

	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// ropeClass returns equal numbers for lengths with equal frequencies, and 0 for the default
// frequencies.
func ropeClass(r *meta.RopeSpec, length int) uint64 {
	switch {
	case r.Type == meta.RopeDynamic && length > r.Max:
		return uint64(length)
	case (r.Type == meta.RopeLongRope || r.ShortScale != 0) && length > r.Original:
		return 1
	}
	return 0
}

func lengthDependent(r *meta.RopeSpec) bool {
	return r.Type == meta.RopeDynamic || r.Type == meta.RopeLongRope || r.ShortScale != 0
}

// ropeTable holds the cosines and sines for the rows of a pass. All layers with equal rope specs
// share it.
type ropeTable struct {
	spec      *meta.RopeSpec
	alpha     param         // see meta.RopeSpec.Alpha; empty if there is none
	filled    bool          // in this pass
	cos, sin  tensor.Tensor // [rows, Dim/2], views for the current pass
	angles    tensor.Tensor // with alpha, the angles of cos and sin, in host memory
	all       [2]tensor.Tensor
	host      [2][]float32
	freqScale []float32 // exp of alpha, if there is alpha
	turns     []float32 // memory for angles
	waves     []waves   // by class; the least used ones are at the end and are replaced first
}

// waves holds the frequencies of one class of lengths.
type waves struct {
	class   uint64
	inverse []float32
	scale   float32
}

// keptClasses is the number of length classes that are cached. Dynamic ropes have one for each
// length beyond the configured maximum.
const keptClasses = 16

func (t *ropeTable) init(c *Context, r *meta.RopeSpec, alpha param) {
	t.spec, t.alpha = r, alpha
	for i := range t.all {
		t.all[i] = c.arena.take(c.limits.Rows, r.Dim/2)
		t.host[i] = make([]float32, c.limits.Rows*(r.Dim/2))
	}
	if alpha.Param != nil {
		t.freqScale, t.turns = make([]float32, r.Dim/2), make([]float32, c.limits.Rows*(r.Dim/2))
	}
}

// fill computes the tables of a pass. Angles are float32 products, as in the reference.
func (t *ropeTable) fill(c *Context) error {
	if lengthDependent(t.spec) && c.in.Lengths == nil {
		return fmt.Errorf("nn: input has no Lengths, but the rotary embedding depends on them")
	}
	half := t.spec.Dim / 2
	cos, sin := t.host[0][:c.rows*half], t.host[1][:c.rows*half]
	for i := range c.rows {
		length := 0
		if c.in.Lengths != nil {
			length = int(c.in.Lengths[i])
		}
		w := t.lookup(length)
		position := float32(max(0, c.positions[i]-int32(t.spec.Shift)))
		scale := w.scale * growth(t.spec, c.positions[i])
		sinScale := scale
		if t.spec.Backwards {
			sinScale = -scale
		}
		for j, inv := range w.inverse[:half] {
			if t.freqScale != nil {
				inv *= t.freqScale[j]
				t.turns[i*half+j] = position * inv
			}
			s, co := math.Sincos(float64(position * inv))
			cos[i*half+j] = float32(co) * scale
			sin[i*half+j] = float32(s) * sinScale
		}
	}
	t.filled, t.cos, t.sin = true, matrix(t.all[0], c.rows, half), matrix(t.all[1], c.rows, half)
	if err := c.backend.Copy(t.cos, tensor.Floats(cos, c.rows, half)); err != nil {
		return fmt.Errorf("nn: rope: %w", err)
	}
	if err := c.backend.Copy(t.sin, tensor.Floats(sin, c.rows, half)); err != nil {
		return fmt.Errorf("nn: rope: %w", err)
	}
	return nil
}

// learn computes the tables of a unit whose frequencies depend on its parameters, once per pass.
func (c *Context) learn(tables []int) {
	for _, i := range tables {
		t := &c.ropes[i]
		if t.filled || c.err != nil {
			continue
		}
		for j, a := range c.hostVectors(t.alpha) {
			t.freqScale[j] = float32(math.Exp(float64(a)))
		}
		if c.err != nil {
			return
		}
		if err := t.fill(c); err != nil {
			c.err = err
		}
		t.angles = tensor.Floats(t.turns[:c.rows*len(t.freqScale)], c.rows, len(t.freqScale))
	}
}

// growth returns the factor of a position.
func growth(r *meta.RopeSpec, position int32) float32 {
	if r.Growth == 0 {
		return 1
	}
	if r.GrowthPower {
		return float32(math.Pow(1+float64(int(position)+r.GrowthShift)/float64(r.GrowthEvery), r.Growth))
	}
	if r.GrowthFrom > 0 {
		return float32(1 + r.Growth*math.Log(max(float64(position+1)/float64(r.GrowthFrom), 1)))
	}
	more := r.Growth * math.Log(float64(1+(int(position)+r.GrowthShift)/r.GrowthEvery))
	if r.GrowthAlone {
		return float32(more)
	}
	return float32(1 + more)
}

// rotate applies a rotary embedding to all heads of x in place; table -1 does nothing.
func (c *Context) rotate(table int, x tensor.Tensor, dim int) {
	if table >= 0 {
		t := &c.ropes[table]
		if t.alpha.Param != nil && c.recording() {
			if alpha := c.vector(t.alpha); c.err == nil {
				c.arena.recorder.RopeLearned(x, dim, t.cos, t.sin, t.angles, t.spec.Interleaved, alpha)
			}
			return
		}
		c.backend.Rope(x, dim, t.cos, t.sin, t.spec.Interleaved)
	}
}

func (t *ropeTable) lookup(length int) *waves {
	class := ropeClass(t.spec, length)
	for i := range t.waves {
		if t.waves[i].class == class {
			return &t.waves[i]
		}
	}
	if len(t.waves) == keptClasses {
		t.waves = t.waves[:keptClasses/2]
	}
	inverse, scale := t.spec.Frequencies(length)
	t.waves = append(t.waves, waves{class, inverse, float32(scale)})
	return &t.waves[len(t.waves)-1]
}
