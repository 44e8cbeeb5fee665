package model

import (
	"github.com/heftai/heft/meta"
	"github.com/heftai/heft/train/tensor"
)

// pass is one forward of a model on a tape. Activations are [batch length width].
type pass struct {
	*tensor.Tape
	m             *Model
	batch, length int
	routers       []*tensor.Tensor // logits [rows experts], of each mixture
}

// use is a parameter of a module, nil if it has none of the name.
func (p *pass) use(m *meta.Module, name string) *tensor.Tensor {
	param := m.Param(name)
	if param == nil {
		return nil
	}
	return p.Use(p.m.params[param.Resolve()])
}

// run runs the module below m called name on x; "" is x itself.
func (p *pass) run(m *meta.Module, name string, x *tensor.Tensor) *tensor.Tensor {
	if name == "" {
		return x
	}
	child := m.Find(name)
	if child == nil {
		return p.fail(x)
	}
	child = child.Resolve()
	switch s := child.Spec.(type) {
	case *meta.LinearSpec:
		if s.Transposed {
			return p.Conv1D(x, p.use(child, "weight"), p.use(child, "bias"))
		}
		return p.Linear(x, p.use(child, "weight"), p.use(child, "bias"))
	case *meta.NormSpec:
		return p.norm(child, s, x)
	case *meta.BlockSpec:
		return p.block(child, s, x)
	case *meta.AttentionSpec:
		return p.attention(child, s, x)
	case *meta.MLPSpec:
		return p.mlp(child, s, x)
	case *meta.MoESpec:
		return p.moe(child, s, x)
	case *meta.ActivationSpec:
		return p.activate(s.Act, x)
	}
	return p.fail(x)
}

// fail makes the tape report a tree that does not hold what its specs name.
func (p *pass) fail(x *tensor.Tensor) *tensor.Tensor { return p.Add(x, nil) }

func (p *pass) norm(m *meta.Module, s *meta.NormSpec, x *tensor.Tensor) *tensor.Tensor {
	weight := p.use(m, "weight")
	if weight == nil {
		ones := make([]float32, s.Dim)
		for i := range ones {
			ones[i] = 1
		}
		weight = p.Input(ones)
	}
	if s.Offset != 0 {
		weight = p.Add(weight, p.Scalar(s.Offset))
	}
	if s.Layer {
		return p.LayerNorm(x, weight, p.use(m, "bias"), float64(s.Eps))
	}
	return p.RMSNorm(x, weight, float64(s.Eps))
}

func (p *pass) block(m *meta.Module, s *meta.BlockSpec, x *tensor.Tensor) *tensor.Tensor {
	join := func(x, y *tensor.Tensor) *tensor.Tensor {
		if s.ResidualScale != 0 {
			y = p.Scale(y, s.ResidualScale)
		}
		return p.Add(x, y)
	}
	a := p.run(m, s.AttentionNorm, x)
	h := p.run(m, s.PostAttentionNorm, p.run(m, s.Attention, a))
	if s.Parallel {
		n := a
		if s.MLPNorm != s.AttentionNorm {
			n = p.run(m, s.MLPNorm, x)
		}
		return join(join(x, h), p.run(m, s.PostMLPNorm, p.run(m, s.MLP, n)))
	}
	x = join(x, h)
	return join(x, p.run(m, s.PostMLPNorm, p.run(m, s.MLP, p.run(m, s.MLPNorm, x))))
}

func (p *pass) attention(m *meta.Module, s *meta.AttentionSpec, x *tensor.Tensor) *tensor.Tensor {
	q, k, v := p.project(m, s, x)
	q, k = p.headNorm(m, s.QNorm, q), p.headNorm(m, s.KNorm, k)
	heads := func(x *tensor.Tensor, n int) *tensor.Tensor { return p.Reshape(x, p.batch, p.length, n, s.HeadDim) }
	q, k, v = heads(q, s.Heads), heads(k, s.KVHeads), heads(v, s.KVHeads)
	if s.Rope != nil {
		inverse, scale := s.Rope.Frequencies(p.length)
		table := tensor.NewRotaryFrom(inverse, p.length, scale)
		q, k = p.Rope(q, table, nil), p.Rope(k, table, nil)
	}
	y := p.Attention(q, k, v, tensor.AttentionOptions{Scale: float64(s.Scale), Causal: true, Window: s.Window})
	return p.run(m, s.Out, p.Reshape(y, p.batch, p.length, s.Heads*s.HeadDim))
}

// project makes queries [batch length heads·width] and keys and values alike. Norms of
// one head see [batch length heads width], to which the caller brings them anyhow.
func (p *pass) project(m *meta.Module, s *meta.AttentionSpec, x *tensor.Tensor) (q, k, v *tensor.Tensor) {
	if s.Fused == "" {
		return p.run(m, s.Q, x), p.run(m, s.K, x), p.run(m, s.V, x)
	}
	y, a, b := p.run(m, s.Fused, x), s.Heads*s.HeadDim, s.KVHeads*s.HeadDim
	if s.FusedOrder == meta.FusedPerHead {
		y, a, b = p.Reshape(y, p.batch, p.length, s.Heads, 3*s.HeadDim), s.HeadDim, s.HeadDim
	}
	return p.Slice(y, -1, 0, a), p.Slice(y, -1, a, a+b), p.Slice(y, -1, a+b, a+2*b)
}

// headNorm runs a norm on the last dimension as wide as the norm is.
func (p *pass) headNorm(m *meta.Module, name string, x *tensor.Tensor) *tensor.Tensor {
	if name == "" {
		return x
	}
	if child := m.Find(name); child != nil {
		if s, ok := child.Resolve().Spec.(*meta.NormSpec); ok {
			x = p.Reshape(x, p.batch, p.length, -1, s.Dim)
		}
	}
	return p.run(m, name, x)
}

func (p *pass) mlp(m *meta.Module, s *meta.MLPSpec, x *tensor.Tensor) *tensor.Tensor {
	if s.Gate == "" && s.Fused == "" {
		return p.run(m, s.Down, p.activate(s.Act, p.run(m, s.Up, x)))
	}
	var gate, up *tensor.Tensor
	if s.Fused == "" {
		gate, up = p.run(m, s.Gate, x), p.run(m, s.Up, x)
	} else {
		gate, up = p.halves(p.run(m, s.Fused, x))
	}
	return p.run(m, s.Down, p.gated(s.Act, gate, up))
}

// halves splits the last dimension.
func (p *pass) halves(x *tensor.Tensor) (a, b *tensor.Tensor) {
	n := 0
	if shape := x.Shape(); len(shape) > 0 {
		n = shape[len(shape)-1]
	}
	return p.Slice(x, -1, 0, n/2), p.Slice(x, -1, n/2, n)
}

func (p *pass) gated(act meta.Activation, gate, up *tensor.Tensor) *tensor.Tensor {
	if act == meta.ActSiLU {
		return p.SwiGLU(gate, up)
	}
	return p.Mul(p.activate(act, gate), up)
}

func (p *pass) activate(act meta.Activation, x *tensor.Tensor) *tensor.Tensor {
	switch act {
	case meta.ActSiLU:
		return p.SiLU(x)
	case meta.ActGELU:
		return p.GELU(x)
	case meta.ActGELUTanh:
		return p.GELUTanh(x)
	case meta.ActReLU:
		return p.ReLU(x)
	case meta.ActTanh:
		return p.Tanh(x)
	case meta.ActSigmoid:
		return p.Sigmoid(x)
	}
	return x
}

func (p *pass) moe(m *meta.Module, s *meta.MoESpec, x *tensor.Tensor) *tensor.Tensor {
	router, experts := m.Find(s.Router), m.Find(s.Experts)
	if router == nil || experts == nil {
		return p.fail(x)
	}
	shape := x.Shape()
	rows := p.Reshape(x, p.batch*p.length, -1)
	logits := p.Linear(rows, p.use(router, "weight"), p.use(router, "bias"))
	p.routers = append(p.routers, logits)
	// A softmax over the chosen is the softmax over all, renormalised.
	weights, chosen := p.Route(logits, s.TopK, s.Renormalise || s.Score == meta.ScoreTopKSoftmax)
	if s.Scale != 0 {
		weights = p.Scale(weights, s.Scale)
	}
	gateUp, down := p.use(experts, s.GateUp), p.use(experts, s.Down)
	y := p.Experts(rows, weights, chosen, s.Count, func(e int, x *tensor.Tensor) *tensor.Tensor {
		w := p.Select(gateUp, e)
		inner := len(w.Data()) / max(2*shape[len(shape)-1], 1)
		gate, up := p.Linear(x, p.Slice(w, 0, 0, inner), nil), p.Linear(x, p.Slice(w, 0, inner, 2*inner), nil)
		return p.Linear(p.gated(s.Act, gate, up), p.Select(down, e), nil)
	})
	y = p.Reshape(y, shape...)
	if s.Shared != "" {
		shared := p.run(m, s.Shared, x)
		if s.SharedGate != "" {
			shared = p.Mul(shared, p.Sigmoid(p.run(m, s.SharedGate, x)))
		}
		y = p.Add(y, shared)
	}
	return y
}
