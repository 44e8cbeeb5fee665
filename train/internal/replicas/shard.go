package replicas

import (
	"errors"

	"github.com/heftai/heft/meta"
	"github.com/heftai/heft/train/tensor"
)

// Shard is a rank's part of a parameter, for an optimizer to step.
type Shard struct {
	Param  *tensor.Parameter
	Lo, Hi int

	whole bool              // parts are whole parameters or empty
	mean  *tensor.Parameter // holds the averaged gradient of the part
	from  *tensor.Parameter // the parameter whose gradient is acquired
}

func newShard(p *tensor.Parameter, lo, hi int) *Shard {
	return &Shard{Param: p, Lo: lo, Hi: hi, mean: tensor.NewStored(length(hi-lo), hi-lo)}
}

// length is the storage of a parameter of which only the gradient is used.
type length int

var errLength = errors.New("replicas: there are no values")

func (n length) Len() int                      { return int(n) }
func (length) DType() meta.DType               { return meta.Float32 }
func (length) Resident() (int, []float32)      { return 0, nil }
func (length) Acquire(bool) ([]float32, error) { return nil, errLength }
func (length) Release(bool) error              { return errLength }

// KeepGrad makes s store the averaged gradient in to.
func (s *Shard) KeepGrad(to tensor.GradientStorage) { s.mean.KeepGrad(to) }

// add adds a mean to the gradient.
func (s *Shard) add(mean []float32) error {
	g, err := s.mean.AcquireGrad(true)
	if err != nil {
		return err
	}
	if s.mean.HasGrad() {
		for i, v := range mean {
			g[i] += v
		}
		return s.mean.ReleaseGrad()
	}
	g = s.mean.NewGrad()
	copy(g, mean)
	s.mean.SetGrad(g)
	return s.mean.ReleaseGrad()
}

// Whole reports whether the parts of all ranks are whole parameters or empty.
func (s *Shard) Whole() bool { return s.whole }

// Of returns the parameter that s is a part of.
func (s *Shard) Of() *tensor.Parameter { return s.Param }

// Shape returns the parameter's shape if the part is all of it, else that of a vector.
func (s *Shard) Shape() []int {
	if s.Len() == s.Param.Len() {
		return s.Param.Shape()
	}
	return []int{s.Len()}
}

// Len returns the number of elements of the part.
func (s *Shard) Len() int { return s.Hi - s.Lo }

// Data returns the part's values, if the parameter is in memory.
func (s *Shard) Data() []float32 {
	if x := s.Param.Data(); x != nil {
		return x[s.Lo:s.Hi]
	}
	return nil
}

// source returns the parameter that holds the averaged gradient, or the gradient of this rank's
// passes if none was averaged.
func (s *Shard) source() *tensor.Parameter {
	if s.mean.HasGrad() {
		return s.mean
	}
	return s.Param
}

// part returns the part of a gradient of p.
func (s *Shard) part(p *tensor.Parameter, g []float32) []float32 {
	if g == nil || p == s.mean {
		return g
	}
	return g[s.Lo:s.Hi]
}

// Grad returns the averaged gradient, or the gradient of this rank's passes if none was averaged.
func (s *Shard) Grad() []float32 {
	p := s.source()
	return s.part(p, p.Grad())
}

// HasGrad reports whether there is a gradient, in memory or not.
func (s *Shard) HasGrad() bool { return s.source().HasGrad() }

// AcquireGrad brings the gradient into memory until ReleaseGrad.
func (s *Shard) AcquireGrad(write bool) ([]float32, error) {
	s.from = s.source()
	g, err := s.from.AcquireGrad(write)
	return s.part(s.from, g), err
}

// ReleaseGrad ends an AcquireGrad.
func (s *Shard) ReleaseGrad() error { return s.from.ReleaseGrad() }

// ScaleGrad multiplies the gradient.
func (s *Shard) ScaleGrad(by float32) { s.source().ScaleGrad(by) }

// ZeroGrad drops the gradients of the part and of the whole parameter.
func (s *Shard) ZeroGrad() {
	s.mean.ZeroGrad()
	s.Param.ZeroGrad()
}

// Acquire brings the part's values into memory until Release.
func (s *Shard) Acquire(write bool) ([]float32, error) {
	values, err := s.Param.Acquire(write)
	if err != nil {
		return nil, err
	}
	return values[s.Lo:s.Hi], nil
}

// Release ends an Acquire.
func (s *Shard) Release(write bool) error { return s.Param.Release(write) }
