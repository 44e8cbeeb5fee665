package optim

import (
	"errors"
	"fmt"
	"math"
)

// ErrUnscaled says that an optimizer's gradients are unscaled already.
var ErrUnscaled = errors.New("optim: unscale was already called on this optimizer since the last update")

// ErrStepped says that an optimizer was stepped already.
var ErrStepped = errors.New("optim: step was already called on this optimizer since the last update")

// ErrNothingChecked says that no gradients were looked at before an update.
var ErrNothingChecked = errors.New("optim: update without a step or unscale before it")

// ScalerOptions are torch.amp.GradScaler's. Zeroes stand for its defaults (65536, 2,
// 0.5, 2000).
type ScalerOptions struct {
	InitialScale   float64
	GrowthFactor   float64
	BackoffFactor  float64
	GrowthInterval int
}

// Scaler keeps gradients in float16's range: the loss is multiplied by Scale, gradients
// are divided by it before a step. Gradients that overflowed skip the step and shrink
// the scale; after GrowthInterval good steps it grows.
type Scaler struct {
	o     ScalerOptions
	scale float32
	good  int // steps since the scale changed
	seen  map[Optimizer]*check
}

// check is what happened to an optimizer since the last update.
type check struct {
	overflow, unscaled, stepped bool
}

// NewScaler makes a scaler.
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
		return nil, fmt.Errorf("optim: a scaler with %+v", o)
	}
	return &Scaler{o: o, scale: float32(o.InitialScale), seen: map[Optimizer]*check{}}, nil
}

// Scale is what the loss is to be multiplied by before its backward pass.
func (s *Scaler) Scale() float32 { return s.scale }

func (s *Scaler) check(o Optimizer) *check {
	c := s.seen[o]
	if c == nil {
		c = new(check)
		s.seen[o] = c
	}
	return c
}

// Unscale divides o's gradients by the scale, for clipping or looking at them before
// Step, which then leaves them as they are. It may be called once between updates.
func (s *Scaler) Unscale(o Optimizer) error {
	c := s.check(o)
	switch {
	case c.unscaled:
		return ErrUnscaled
	case c.stepped:
		return fmt.Errorf("%w: it cannot be unscaled any more", ErrStepped)
	}
	c.unscaled = true
	inverse := float32(1 / float64(s.scale))
	for _, g := range o.Groups() {
		for _, p := range g.Params {
			grad := p.Grad()
			for i, v := range grad {
				if v-v != 0 { // infinite or NaN
					c.overflow = true
				}
				grad[i] = v * inverse
			}
		}
	}
	return nil
}

// Step steps o unless its gradients overflowed, and says whether it did.
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

// Update moves the scale by what the optimizers met, and begins a new step.
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

// ScalerState is what a scaler remembers, by the names in its saved form.
type ScalerState struct {
	Scale          float64 `json:"scale"`
	GrowthFactor   float64 `json:"growth_factor"`
	BackoffFactor  float64 `json:"backoff_factor"`
	GrowthInterval int     `json:"growth_interval"`
	GrowthTracker  int     `json:"_growth_tracker"`
}

// State is taken between an update and the next unscale or step.
func (s *Scaler) State() ScalerState {
	return ScalerState{float64(s.scale), s.o.GrowthFactor, s.o.BackoffFactor, s.o.GrowthInterval, s.good}
}

// LoadState goes on from st; s is unchanged on error.
func (s *Scaler) LoadState(st ScalerState) error {
	n, err := NewScaler(ScalerOptions{st.Scale, st.GrowthFactor, st.BackoffFactor, st.GrowthInterval})
	if err != nil {
		return err
	}
	if st.GrowthTracker < 0 {
		return fmt.Errorf("optim: a scaler with %d good steps", st.GrowthTracker)
	}
	n.good = st.GrowthTracker
	*s = *n
	return nil
}
