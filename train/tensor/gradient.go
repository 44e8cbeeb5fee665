package tensor

import "fmt"

// GradientStorage stores the gradient of a [Parameter] outside of memory between its uses.
type GradientStorage interface {
	Storage
	// Drop discards the values: the next Acquire returns zeros. It is not called between Acquire
	// and Release.
	Drop()
}

// gradient is the gradient of a parameter, in memory or in a storage.
type gradient struct {
	grad  []float32
	spare []float32 // memory of the dropped gradient, for reuse
	pool  *GradPool // replaces spare

	kept   GradientStorage // nil if the gradient is in memory
	has    bool            // kept holds a gradient
	held   []float32       // the values of kept while they are acquired
	uses   int             // nested uses of held
	writes bool            // held may change
	scale  float32         // pending factor of kept; 0 means 1
}

// Grad returns the accumulated gradient, one float32 per element. It is nil until a Backward
// reaches the parameter. The parameter owns the slice until ZeroGrad, TakeGrad or SetGrad.
// Optimizers and averaging may change its elements.
//
// After [Parameter.KeepGrad] it is also nil while the gradient is not acquired: use
// [Parameter.HasGrad] and [Parameter.AcquireGrad].
func (p *Parameter) Grad() []float32 {
	if p.grad == nil && p.has {
		return p.held
	}
	return p.grad
}

// HasGrad reports whether there is a gradient, in memory or not.
func (p *Parameter) HasGrad() bool { return p.grad != nil || p.has }

// KeepGrad stores the gradients in s. They are then in memory only from [Parameter.AcquireGrad]
// to [Parameter.ReleaseGrad]. There must be no gradient. Passes acquire the gradients to which
// they add. nil keeps gradients in memory.
func (p *Parameter) KeepGrad(s GradientStorage) {
	p.gradient = gradient{kept: s, pool: p.pool}
}

// KeepsGrad reports whether a storage set by [Parameter.KeepGrad] holds the gradients.
func (p *Parameter) KeepsGrad() bool { return p.kept != nil }

// AcquireGrad loads the gradient into memory until the matching ReleaseGrad. Without a gradient
// it returns zeros if [Parameter.KeepGrad] has set a storage, and [Parameter.SetGrad] can then
// make them the gradient; otherwise it returns nil. With write the caller may change the values.
// Calls nest, except for one with write inside one without.
func (p *Parameter) AcquireGrad(write bool) ([]float32, error) {
	switch {
	case p.grad != nil || p.kept == nil:
		return p.grad, nil
	case p.uses > 0 && write && !p.writes:
		return nil, fmt.Errorf("tensor: acquire gradient of a parameter of shape %v: it is acquired for reading", p.shape)
	case p.uses > 0:
		p.uses++
		return p.held, nil
	}
	scale := p.scale != 0 && p.has
	p.writes = write || scale || !p.has
	g, err := p.kept.Acquire(p.writes)
	if err != nil {
		return nil, fmt.Errorf("tensor: acquire gradient of a parameter of shape %v: %w", p.shape, err)
	}
	if scale {
		for i, v := range g {
			g[i] = v*p.scale + 0 // like the kernel that scales gradients in memory
		}
	}
	p.held, p.scale, p.uses = g, 0, 1
	return g, nil
}

// ReleaseGrad ends an AcquireGrad. It returns an error if the storage cannot store a change.
func (p *Parameter) ReleaseGrad() error {
	if p.uses == 0 {
		return nil // it was in memory
	}
	if p.uses--; p.uses > 0 {
		return nil
	}
	p.held = nil
	err := p.kept.Release(p.writes)
	if !p.has {
		p.kept.Drop()
	}
	if err != nil {
		return fmt.Errorf("tensor: release gradient of a parameter of shape %v: %w", p.shape, err)
	}
	return nil
}

// AccessGrad calls f with the gradient, if there is one, between [Parameter.AcquireGrad] and
// [Parameter.ReleaseGrad]. It returns the first error of the three.
func (p *Parameter) AccessGrad(write bool, f func(grad []float32) error) error {
	if !p.HasGrad() {
		return nil
	}
	g, err := p.AcquireGrad(write)
	if err != nil {
		return err
	}
	err = f(g)
	if e := p.ReleaseGrad(); err == nil {
		err = e
	}
	return err
}

// ScaleGrad multiplies the gradient by s: at once if it is in memory, otherwise when it is next
// acquired.
func (p *Parameter) ScaleGrad(s float32) {
	g := p.Grad()
	switch {
	case g != nil:
		for i, v := range g {
			g[i] = v * s
		}
	case p.has && p.scale != 0:
		p.scale *= s
	case p.has:
		p.scale = s
	}
}

// SetGrad sets the gradient to g, which p keeps in memory, or in the storage if g was returned by
// AcquireGrad. nil means no gradient. Tapes report a gradient of the wrong length.
func (p *Parameter) SetGrad(g []float32) {
	if len(g) > 0 && len(p.held) > 0 && &g[0] == &p.held[0] {
		p.grad, p.has = nil, true
		return
	}
	if p.grad = g; p.kept != nil {
		p.forget()
	}
}

// TakeGrad returns the gradient and removes it from p. The caller owns the slice. For a gradient
// in a storage it returns nil and removes nothing.
func (p *Parameter) TakeGrad() []float32 {
	g := p.grad
	p.grad = nil
	return g
}

// ZeroGrad drops the gradient. The next Backward reuses its memory, or that of the storage.
func (p *Parameter) ZeroGrad() {
	if p.kept != nil {
		p.grad = nil
		p.forget()
		return
	}
	switch {
	case p.grad == nil:
	case p.PutGrad(p.grad):
		p.grad = nil
	default:
		p.grad, p.spare = nil, p.grad
	}
}

// forget drops the gradient in the storage.
func (p *Parameter) forget() {
	if p.scale = 0; p.has && p.uses == 0 {
		p.kept.Drop()
	}
	p.has = false
}

// NewGrad returns a zeroed gradient that is not yet set on p. It reuses the memory of a dropped
// gradient, or that of the storage while it is acquired.
func (p *Parameter) NewGrad() []float32 {
	g := p.held
	if g == nil {
		g = p.takeSpare(p.Len())
	}
	if g == nil {
		return make([]float32, p.Len())
	}
	clear(g)
	return g
}

// takeSpare returns the memory of a dropped gradient of n elements, or nil.
func (p *Parameter) takeSpare(n int) []float32 {
	if p.pool != nil {
		return p.pool.take(n)
	}
	g := p.spare
	p.spare = nil
	if len(g) != n {
		return nil
	}
	return g
}

// into returns the gradient to which a pass adds. If add is false, it is new memory that the pass
// must set.
func (p *Parameter) into() (g []float32, add bool) {
	switch {
	case p.grad != nil:
		return p.grad, true
	case p.held != nil:
		add, p.has = p.has, true
		return p.held, add
	}
	if p.grad = p.takeSpare(p.Len()); p.grad == nil {
		p.grad = make([]float32, p.Len())
	}
	return p.grad, false
}

// gradientOf is into for a pass, which keeps a gradient of a storage in memory until its end.
func (tp *Tape) gradientOf(p *Parameter) (g []float32, add bool) {
	if p.kept == nil || p.grad != nil || p.held != nil {
		return p.into()
	}
	if _, err := p.AcquireGrad(true); err != nil {
		tp.fail("backward: %w", err)
		return tp.borrow(p.Len()), false
	}
	tp.grads = append(tp.grads, p)
	return p.into()
}

// releaseGradients ends the use of the gradients of p, or of all parameters if p is nil.
func (tp *Tape) releaseGradients(p *Parameter) {
	kept := tp.grads[:0]
	for _, x := range tp.grads {
		if p != nil && x != p {
			kept = append(kept, x)
		} else if err := x.ReleaseGrad(); err != nil {
			tp.fail("backward: %w", err)
		}
	}
	clear(tp.grads[len(kept):])
	tp.grads = kept
}
