package nn

import (
	"math"
	"slices"

	"github.com/heftai/heft/meta"
)

// reference computes the rules in float64, one row after another, from their comments
// in package meta. It knows one sequence from position 0 on.
type reference struct{ w *random }

type rows [][]float64

func (r reference) vector(m *meta.Module, name string) []float64 {
	p := m.Param(name)
	if p == nil {
		return nil
	}
	return wide(r.w.values[p.Resolve()])
}

func wide(v []float32) []float64 {
	out := make([]float64, len(v))
	for i, x := range v {
		out[i] = float64(x)
	}
	return out
}

// times is x·Wᵀ + b with W [out, in], or [in, out] where transposed.
func times(x rows, w, b []float64, transposed bool) rows {
	y := make(rows, len(x))
	for i, v := range x {
		out := len(w) / len(v)
		y[i] = make([]float64, out)
		for o := range out {
			if b != nil {
				y[i][o] = b[o]
			}
			for k, a := range v {
				if transposed {
					y[i][o] += a * w[k*out+o]
				} else {
					y[i][o] += a * w[o*len(v)+k]
				}
			}
		}
	}
	return y
}

func (r reference) linear(m *meta.Module, x rows) rows {
	transposed := m.Kind == meta.KindLinear && m.Spec.(*meta.LinearSpec).Transposed
	return times(x, r.vector(m, "weight"), r.vector(m, "bias"), transposed)
}

func (r reference) norm(m *meta.Module, x rows) rows {
	s := m.Spec.(*meta.NormSpec)
	y := make(rows, len(x))
	if s.Each != "" {
		for h, child := range m.Find(s.Each).Children {
			head := make(rows, len(x))
			for i, v := range x {
				head[i] = v[h*s.Dim : (h+1)*s.Dim]
			}
			for i, v := range r.norm(child, head) {
				y[i] = append(y[i], v...)
			}
		}
		return y
	}
	weight, bias := r.vector(m, "weight"), r.vector(m, "bias")
	for i, v := range x {
		for begin := 0; begin < len(v); begin += s.Dim {
			mean, square := 0.0, 0.0
			group := v[begin : begin+s.Dim]
			if s.Layer {
				for _, a := range group {
					mean += a / float64(s.Dim)
				}
			}
			for _, a := range group {
				square += (a - mean) * (a - mean) / float64(s.Dim)
			}
			for k, a := range group {
				a = (a - mean) / math.Sqrt(square+float64(s.Eps))
				if s.Heads > 0 { // a row of weights for each head
					k += begin
				}
				if weight != nil {
					a *= weight[k] + float64(s.Offset)
				}
				if bias != nil {
					a += bias[k]
				}
				y[i] = append(y[i], a)
			}
		}
	}
	return y
}

func (r reference) named(m *meta.Module, name string, x rows, f func(*meta.Module, rows) rows) rows {
	if name == "" {
		return x
	}
	return f(m.Find(name), x)
}

func (r reference) block(m *meta.Module, x rows) rows {
	s := m.Spec.(*meta.BlockSpec)
	scale := float64(orOne(s.ResidualScale))
	attended := r.named(m, s.AttentionNorm, x, r.norm)
	attended = r.named(m, s.PostAttentionNorm, r.attention(m.Find(s.Attention), attended), r.norm)
	h := plus(x, attended, scale)
	into := h
	if s.Parallel {
		into = x
	}
	fed := r.named(m, s.MLPNorm, into, r.norm)
	fed = r.named(m, s.PostMLPNorm, r.feed(m.Find(s.MLP), fed), r.norm)
	return plus(h, fed, scale)
}

func plus(x, y rows, scale float64) rows {
	z := make(rows, len(x))
	for i := range x {
		for k := range x[i] {
			z[i] = append(z[i], x[i][k]+scale*y[i][k])
		}
	}
	return z
}

func (r reference) attention(m *meta.Module, x rows) rows {
	s := m.Spec.(*meta.AttentionSpec)
	if s.MLA != nil {
		return r.latent(m, s, x)
	}
	q, k, v := make(rows, len(x)), make(rows, len(x)), make(rows, len(x))
	qw, kw := s.Heads*s.HeadDim, s.KVHeads*s.HeadDim
	switch {
	case s.Fused == "":
		q, k, v = r.linear(m.Find(s.Q), x), r.linear(m.Find(s.K), x), r.linear(m.Find(s.V), x)
	case s.FusedOrder == meta.FusedQKV:
		for i, all := range r.linear(m.Find(s.Fused), x) {
			q[i], k[i], v[i] = all[:qw], all[qw:qw+kw], all[qw+kw:]
		}
	default:
		for i, all := range r.linear(m.Find(s.Fused), x) {
			for n := s.Heads / s.KVHeads * s.HeadDim; len(all) > 0; {
				q[i] = append(q[i], all[:n]...)
				k[i] = append(k[i], all[n:n+s.HeadDim]...)
				v[i] = append(v[i], all[n+s.HeadDim:n+s.HeadDim+s.ValueDim]...)
				all = all[n+s.HeadDim+s.ValueDim:]
			}
		}
	}
	q, k = r.named(m, s.QNorm, q, r.norm), r.named(m, s.KNorm, k, r.norm)
	if s.Rope != nil {
		q, k = rotate(q, s.HeadDim, 0, s.Rope), rotate(k, s.HeadDim, 0, s.Rope)
	}
	return r.linear(m.Find(s.Out), attend(q, k, v, s, r.vector(m, s.Sinks), r.relative(m, s, x)))
}

// relative returns the bias of a row and a head by distance.
func (r reference) relative(m *meta.Module, s *meta.AttentionSpec, x rows) func(row, head, distance int) float64 {
	if s.Relative == nil {
		return func(row, head, distance int) float64 { return 0 }
	}
	states, profiles := r.linear(m.Find(s.Relative.States), x), r.vector(m.Find(s.Relative.Profiles), "proj")
	return func(row, head, distance int) (sum float64) {
		for i := 0; i < s.Relative.Rank && distance < s.Relative.Extent; i++ {
			sum += states[row][head*s.Relative.Rank+i] * profiles[i*s.Relative.Extent+distance]
		}
		if g := s.Relative.Growth; g != nil {
			sum *= 1 + g.Growth*math.Log(max(1, float64(row+1)/float64(g.GrowthFrom)))
		}
		return sum
	}
}

// latent expands keys and values of all heads, as the reference does.
func (r reference) latent(m *meta.Module, s *meta.AttentionSpec, x rows) rows {
	a := s.MLA
	q := x
	if a.QDown != "" {
		q = r.linear(m.Find(a.QDown), x)
	}
	q = r.linear(m.Find(a.QUp), r.named(m, a.QNorm, q, r.norm))
	if a.HeadScale != "" {
		scale, bias := r.vector(m.Find(a.HeadScale), "scale"), r.vector(m.Find(a.HeadScale), "bias")
		for i := range q {
			for j := range q[i] {
				q[i][j] *= scale[j/s.HeadDim]*math.Log(float64(i+1)) + bias[j/s.HeadDim]
			}
		}
	}
	turn := func(x rows, dim, first int) rows {
		if s.Rope == nil {
			return x
		}
		return rotate(x, dim, first, s.Rope, r.stretch(s.Rope)...)
	}
	q = turn(q, s.HeadDim, a.NopeDim)
	var compressed, turned, k, v rows
	for _, down := range r.linear(m.Find(a.KVDown), x) {
		compressed, turned = append(compressed, down[:a.LoraRank]), append(turned, down[a.LoraRank:])
	}
	turned = turn(turned, a.RopeDim, 0)
	for i, up := range r.linear(m.Find(a.KVUp), r.named(m, a.KVNorm, compressed, r.norm)) {
		k, v = append(k, nil), append(v, nil)
		for len(up) > 0 {
			k[i] = append(append(k[i], up[:a.NopeDim]...), turned[i]...)
			v[i] = append(v[i], up[a.NopeDim:a.NopeDim+s.ValueDim]...)
			up = up[a.NopeDim+s.ValueDim:]
		}
	}
	all := *s
	all.KVHeads = s.Heads
	return r.linear(m.Find(s.Out), attend(q, k, v, &all, nil, r.relative(m, &meta.AttentionSpec{}, x)))
}

// stretch returns the factors of a rope's frequencies, or nil.
func (r reference) stretch(s *meta.RopeSpec) []float64 {
	if s.Alpha == "" {
		return nil
	}
	stretch := slices.Clone(wide(r.w.alpha))
	for i, a := range stretch {
		stretch[i] = math.Exp(a)
	}
	return stretch
}

// rotate turns the dimensions of each head from first on. Frequencies are multiplied by stretch, if there is any.
func rotate(x rows, dim, first int, s *meta.RopeSpec, stretch ...float64) rows {
	inv, scale := s.Frequencies(len(x))
	for j, by := range stretch {
		inv[j] *= float32(by)
	}
	y := make(rows, len(x))
	for i := range x {
		y[i] = slices.Clone(x[i])
		for h := first; h < len(x[i]); h += dim {
			for j := range s.Dim / 2 {
				a, b := h+j, h+j+s.Dim/2
				if s.Interleaved {
					a, b = h+2*j, h+2*j+1
				}
				sin, cos := math.Sincos(float64(i) * float64(inv[j]))
				y[i][a] = scale * (x[i][a]*cos - x[i][b]*sin)
				y[i][b] = scale * (x[i][b]*cos + x[i][a]*sin)
			}
		}
	}
	return y
}

func attend(q, k, v rows, s *meta.AttentionSpec, sinks []float64, bias func(row, head, distance int) float64) rows {
	y := make(rows, len(q))
	group := s.Heads / s.KVHeads
	for i := range q {
		for h := range s.Heads {
			lo := 0
			if s.Window > 0 {
				lo = max(0, i+1-s.Window)
			}
			var scores []float64
			for j := lo; j <= i; j++ {
				dot := 0.0
				for d := range s.HeadDim {
					dot += q[i][h*s.HeadDim+d] * k[j][h/group*s.HeadDim+d]
				}
				if dot *= float64(s.Scale); s.Softcap > 0 {
					dot = float64(s.Softcap) * math.Tanh(dot/float64(s.Softcap))
				}
				scores = append(scores, dot+bias(i, h, i-j))
			}
			if sinks != nil {
				scores = append(scores, sinks[h])
			}
			shares := softmax64(scores)
			out := make([]float64, s.ValueDim)
			for j := lo; j <= i; j++ {
				for d := range out {
					out[d] += shares[j-lo] * v[j][h/group*s.ValueDim+d]
				}
			}
			y[i] = append(y[i], out...)
		}
	}
	return y
}

func softmax64(x []float64) []float64 {
	top, sum := slices.Max(x), 0.0
	y := make([]float64, len(x))
	for i, v := range x {
		y[i] = math.Exp(v - top)
		sum += y[i]
	}
	for i := range y {
		y[i] /= sum
	}
	return y
}

func sigmoid(x float64) float64 { return 1 / (1 + math.Exp(-x)) }

func act(a meta.Activation, gate, up []float64, limit, alpha float64) []float64 {
	if alpha == 0 {
		alpha = 1.702
	}
	y := make([]float64, len(gate))
	for i, g := range gate {
		switch a {
		case meta.ActClampedSwiGLU:
			g = min(g, limit)
			y[i] = (max(min(up[i], limit), -limit) + 1) * g * sigmoid(alpha*g)
			continue
		case meta.ActSiLU:
			y[i] = g * sigmoid(g)
		case meta.ActGELU:
			y[i] = g * (1 + math.Erf(g/math.Sqrt2)) / 2
		case meta.ActGELUTanh:
			y[i] = g * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(g+0.044715*g*g*g))) / 2
		case meta.ActReLU:
			y[i] = max(g, 0)
		case meta.ActReLU2:
			y[i] = max(g, 0) * max(g, 0)
		default:
			y[i] = g
		}
		if up != nil {
			y[i] *= up[i]
		}
	}
	return y
}

func (r reference) feed(m *meta.Module, x rows) rows {
	if m.Kind == meta.KindMoE {
		return r.moe(m, x)
	}
	s := m.Spec.(*meta.MLPSpec)
	h := make(rows, len(x))
	for i := range x {
		one := x[i : i+1]
		switch {
		case s.Fused != "":
			gate, up := halves(r.linear(m.Find(s.Fused), one)[0], s.FusedOrder)
			h[i] = act(s.Act, gate, up, 0, 0)
		case s.Gate != "":
			h[i] = act(s.Act, r.linear(m.Find(s.Gate), one)[0], r.linear(m.Find(s.Up), one)[0], 0, 0)
		default:
			h[i] = act(s.Act, r.linear(m.Find(s.Up), one)[0], nil, 0, 0)
		}
	}
	return r.linear(m.Find(s.Down), h)
}

func halves(both []float64, order meta.GateOrder) (gate, up []float64) {
	if order == meta.GateHalves {
		return both[:len(both)/2], both[len(both)/2:]
	}
	for i := 0; i < len(both); i += 2 {
		gate, up = append(gate, both[i]), append(up, both[i+1])
	}
	return gate, up
}

func (r reference) moe(m *meta.Module, x rows) rows {
	s := m.Spec.(*meta.MoESpec)
	experts := m.Find(s.Experts)
	slab := func(name string, e int) []float64 {
		p := experts.Param(name)
		if p == nil {
			return nil
		}
		v, _ := r.w.slab(p, e)
		return wide(v)
	}
	y := make(rows, len(x))
	for i := range x {
		one := x[i : i+1]
		y[i] = make([]float64, len(x[i]))
		chosen, shares := r.choose(m, s, r.linear(m.Find(s.Router), one)[0])
		for n, e := range chosen {
			both := times(one, slab(s.GateUp, e), slab(s.GateUpBias, e), s.Transposed)[0]
			gate, up := halves(both, s.GateOrder)
			h := rows{act(s.Act, gate, up, float64(s.Limit), float64(s.Alpha))}
			y[i] = plus(rows{y[i]}, times(h, slab(s.Down, e), slab(s.DownBias, e), s.Transposed), shares[n])[0]
		}
		if s.Shared != "" {
			share := 1.0
			if s.SharedGate != "" {
				share = sigmoid(r.linear(m.Find(s.SharedGate), one)[0][0])
			}
			y[i] = plus(rows{y[i]}, r.feed(m.Find(s.Shared), one), share)[0]
		}
	}
	return y
}

func (r reference) choose(m *meta.Module, s *meta.MoESpec, logits []float64) (chosen []int, shares []float64) {
	scores := slices.Clone(logits)
	switch s.Score {
	case meta.ScoreSoftmax:
		scores = softmax64(logits)
	case meta.ScoreSigmoid:
		for i, v := range logits {
			scores[i] = sigmoid(v)
		}
	}
	ranks := slices.Clone(scores)
	if s.Correction != "" {
		for i, b := range m.Find(s.Router).Buffers {
			if b.Name == s.Correction {
				for j, v := range r.w.buffers[m.Find(s.Router).Buffers[i]] {
					ranks[j] += float64(v)
				}
			}
		}
	}
	if s.Groups > 0 {
		r.groups(s, ranks)
	}
	for range s.TopK {
		best := 0
		for i, v := range ranks {
			if v > ranks[best] {
				best = i
			}
		}
		chosen, shares = append(chosen, best), append(shares, scores[best])
		ranks[best] = math.Inf(-1)
	}
	if s.Score == meta.ScoreTopKSoftmax {
		shares = softmax64(shares)
	}
	sum := 0.0
	for _, v := range shares {
		sum += v
	}
	for i := range shares {
		if s.Renormalise {
			shares[i] /= sum
		}
		shares[i] *= float64(orOne(s.Scale))
	}
	return chosen, shares
}

// groups leaves the best groups, by their best rank or the sum of their two best.
func (r reference) groups(s *meta.MoESpec, ranks []float64) {
	size := len(ranks) / s.Groups
	value := make([]float64, s.Groups)
	for g := range value {
		part := slices.Clone(ranks[g*size : (g+1)*size])
		slices.Sort(part)
		if value[g] = part[size-1]; s.GroupsByTwo {
			value[g] += part[size-2]
		}
	}
	order := make([]int, s.Groups)
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		if value[a] > value[b] {
			return -1
		}
		return 1
	})
	for _, g := range order[s.TopGroups:] {
		for i := range size {
			ranks[g*size+i] = math.Inf(-1)
		}
	}
}
