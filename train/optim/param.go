package optim

// Param is an array that an optimizer steps, such as a *tensor.Parameter. It owns both slices.
// Optimizers skip a parameter whose Grad is nil.
type Param interface {
	Data() []float32
	Grad() []float32
	// ZeroGrad drops the gradient: Grad is nil afterwards.
	ZeroGrad()
}

// Stored is a Param whose values may be outside memory, such as a *tensor.Parameter. Optimizers
// acquire one parameter at a time.
type Stored interface {
	Param
	// Len returns the number of elements.
	Len() int
	// Acquire loads the values into memory until the matching Release. write reports that the
	// caller changes them.
	Acquire(write bool) ([]float32, error)
	// Release ends an Acquire. After a write it stores the values.
	Release(write bool) error
}

// StoredGrad is a Param whose gradient may be outside memory, such as a *tensor.Parameter. Grad
// then returns nil unless it is acquired.
type StoredGrad interface {
	Param
	// HasGrad reports whether there is a gradient, in memory or not.
	HasGrad() bool
	// AcquireGrad loads the gradient into memory until the matching ReleaseGrad. write reports
	// that the caller changes it.
	AcquireGrad(write bool) ([]float32, error)
	ReleaseGrad() error
	// ScaleGrad multiplies the gradient by s, at the latest when it is next acquired.
	ScaleGrad(s float32)
}

// size returns the number of elements of p.
func size(p Param) int {
	if s, ok := p.(Stored); ok {
		return s.Len()
	}
	return len(p.Data())
}

// change calls f with the values of p, which f may change.
func change(p Param, f func(values []float32) error) error {
	s, ok := p.(Stored)
	if !ok {
		return f(p.Data())
	}
	values, err := s.Acquire(true)
	if err != nil {
		return err
	}
	err = f(values)
	if e := s.Release(true); err == nil {
		err = e
	}
	return err
}

// hasGrad reports whether p has a gradient, in memory or not.
func hasGrad(p Param) bool {
	if s, ok := p.(StoredGrad); ok {
		return s.HasGrad()
	}
	return p.Grad() != nil
}

// withGrad calls f with the gradient of p, if it has one.
func withGrad(p Param, write bool, f func(grad []float32) error) error {
	s, ok := p.(StoredGrad)
	switch {
	case !hasGrad(p):
		return nil
	case !ok:
		return f(p.Grad())
	}
	g, err := s.AcquireGrad(write)
	if err != nil {
		return err
	}
	err = f(g)
	if e := s.ReleaseGrad(); err == nil {
		err = e
	}
	return err
}

// VectorParam is a Param whose values are in memory.
type VectorParam struct {
	Value    []float32
	Gradient []float32
}

// Data returns the values.
func (v *VectorParam) Data() []float32 { return v.Value }

// Grad returns the gradient, or nil.
func (v *VectorParam) Grad() []float32 { return v.Gradient }

// ZeroGrad drops the gradient.
func (v *VectorParam) ZeroGrad() { v.Gradient = nil }
