package nn

import (
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// activation is a pointwise activation function that is a module of its own.
type activation struct {
	act   meta.Activation
	width int
}

func (c *compiler) activation(n Node, in int) (*activation, error) {
	s, err := spec[meta.ActivationSpec](n, meta.KindActivation)
	if err != nil {
		return nil, err
	}
	return &activation{s.Act, in}, nil
}

func (r *activation) forward(c *Context, dst, x tensor.Tensor) {
	c.backend.Gate(dst, x, tensor.Tensor{}, r.act, 0)
}

func (r *activation) scratch(int) int { return 0 }
func (r *activation) cols() int       { return r.width }
