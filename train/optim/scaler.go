package optim

import (
	"errors"
	"fmt"
	"math"
)

// ErrUnscaled reports that an optimizer's gradients have already been unscaled.
var ErrUnscaled = errors.New("optim: unscale was already called on this optimizer since the last update")

// ErrStepped reports that an optimizer has already stepped.
var ErrStepped = errors.New("optim: step was already called on this optimizer since the last update")

// ErrNothingChecked reports that Update was called before any Unscale or Step.
var ErrNothingChecked = errors.New("optim: update without a step or unscale before it")

// ScalerOptions configures torch.amp.GradScaler. Zero values mean its defaults (65536, 2, 0.5,
// 2000).
type ScalerOptions struct {
	InitialScale   float64
	GrowthFactor   float64
	BackoffFactor  float64
	GrowthInterval int
}

// Scaler keeps gradients in the range of float16. The caller multiplies the loss by Scale, and
// the scaler divides gradients by it before a step. If gradients overflow, the scaler skips the
// step and reduces the scale. After GrowthInterval good steps the scale grows.
type Scaler struct {
	o     ScalerOptions
	scale float32
	good  int // steps since the scale changed
	seen  map[Optimizer]*check
}

// check is the state of an optimizer since the last update.
type check struct {
	overflow, unscaled, stepped bool
}

// NewScaler returns a scaler.
func NewScaler(o ScalerOptions) (*Scaler, error) {
	if o.InitialScale == 0 {
		o.InitialScale = 65536
	}
	if o.GrowthFactor == 0 {
		o.GrowthFactor = 2
	}
	if o.BackoffFactor == 0 {
		o.BackoffFactor = 0.5
	}
	if o.GrowthInterval == 0 {
		o.GrowthInterval = 2000
	}
	if !(o.InitialScale > 0) || !(o.GrowthFactor > 1) || !(o.BackoffFactor > 0 && o.BackoffFactor < 1) || o.GrowthInterval < 1 {
		return nil, fmt.Errorf("optim: scaler: invalid options %+v", o)
	}
	return &Scaler{o: o, scale: float32(o.InitialScale), seen: map[Optimizer]*check{}}, nil
}

// Scale returns the factor by which to multiply the loss before its backward pass.
func (s *Scaler) Scale() float32 { return s.scale }

func (s *Scaler) check(o Optimizer) *check {
	c := s.seen[o]
	if c == nil {
		c = new(check)
		s.seen[o] = c
	}
	return c
}

// Unscale divides o's gradients by the scale, so that they can be clipped or inspected before Step.
// Step does not divide them again. Call it at most once between updates.
func (s *Scaler) Unscale(o Optimizer) error {
	c := s.check(o)
	switch {
	case c.unscaled:
		return ErrUnscaled
	case c.stepped:
		return fmt.Errorf("%w: unscale before the step", ErrStepped)
	}
	c.unscaled = true
	inverse := float32(1 / float64(s.scale))
	for _, g := range o.Groups() {
		for _, p := range g.Params {
			err := withGrad(p, true, func(grad []float32) error {
				for i, v := range grad {
					if v-v != 0 { // infinite or NaN
						c.overflow = true
					}
					grad[i] = v * inverse
				}
				return nil
			})
			if err != nil {
				return fmt.Errorf("optim: unscale: %w", err)
			}
		}
	}
	if a, ok := o.(agreeing); ok {
		var err error
		c.overflow, err = a.AgreeOverflow(c.overflow)
		return err
	}
	return nil
}

// An agreeing optimizer sees only a part of the gradients on each rank.
type agreeing interface {
	AgreeOverflow(mine bool) (any bool, err error)
}

// Step steps o unless its gradients overflowed. It reports whether it did.
func (s *Scaler) Step(o Optimizer) (bool, error) {
	c := s.check(o)
	if c.stepped {
		return false, ErrStepped
	}
	if !c.unscaled {
		if err := s.Unscale(o); err != nil {
			return false, err
		}
	}
	c.stepped = true
	if c.overflow {
		return false, nil
	}
	return true, o.Step()
}

// Stepped reports whether an optimizer has stepped since the last update.
func (s *Scaler) Stepped() bool {
	for _, c := range s.seen {
		if c.stepped {
			return true
		}
	}
	return false
}

// Update adjusts the scale after the optimizers' steps and begins a new step.
func (s *Scaler) Update() error {
	checked, overflow := false, false
	for _, c := range s.seen {
		checked = checked || c.unscaled
		overflow = overflow || c.overflow
	}
	if !checked {
		return ErrNothingChecked
	}
	clear(s.seen)
	if overflow {
		s.scale = float32(float64(s.scale) * s.o.BackoffFactor)
		s.good = 0
		return nil
	}
	if s.good++; s.good == s.o.GrowthInterval {
		if grown := float32(float64(s.scale) * s.o.GrowthFactor); !math.IsInf(float64(grown), 0) {
			s.scale = grown
		}
		s.good = 0
	}
	return nil
}

// ScalerState is a scaler's saved state.
type ScalerState struct {
	Scale          float64 `json:"scale"`
	GrowthFactor   float64 `json:"growth_factor"`
	BackoffFactor  float64 `json:"backoff_factor"`
	GrowthInterval int     `json:"growth_interval"`
	GrowthTracker  int     `json:"_growth_tracker"`
}

// State returns the state. Call it between Update and the next Unscale or Step.
func (s *Scaler) State() ScalerState {
	return ScalerState{float64(s.scale), s.o.GrowthFactor, s.o.BackoffFactor, s.o.GrowthInterval, s.good}
}

// LoadState restores st. On error s is unchanged.
func (s *Scaler) LoadState(st ScalerState) error {
	n, err := NewScaler(ScalerOptions{st.Scale, st.GrowthFactor, st.BackoffFactor, st.GrowthInterval})
	if err != nil {
		return err
	}
	if st.GrowthTracker < 0 {
		return fmt.Errorf("optim: load scaler state: invalid growth tracker %d", st.GrowthTracker)
	}
	n.good = st.GrowthTracker
	*s = *n
	return nil
}
