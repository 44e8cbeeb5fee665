package cpu

import (
	"slices"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/kernels/mat"
)

// relative holds the operands of [backend.Relative]. profiles [rank, extent] are reversed, so
// that each ends with distance 0, in the order of the keys.
type relative struct {
	states       mat.Floats
	profiles     []float32
	rank, extent int // 0 for none
}

// relative checks the biases of op for n rows of queries, and reverses their profiles.
func (b *Backend) relative(op string, n int, a *backend.AttentionArgs) (r relative, ok bool) {
	if a.Relative.States.IsZero() && a.Relative.Profiles.IsZero() {
		return r, true
	}
	r.rank, r.extent = a.Relative.Sizes(a.Heads)
	if r.rank == 0 || a.Softcap != 0 {
		b.fail("%s: biases of distances with %d states for %d heads, %d profiles' elements and capped scores at %g", op, a.Relative.States.Cols(), a.Heads, a.Relative.Profiles.Elements(), a.Softcap)
		return r, false
	}
	if r.states, ok = b.floats(op, "states of biases", a.Relative.States, n, a.Heads*r.rank); !ok {
		return r, false
	}
	from, ok := b.vector(op, "profiles of biases", a.Relative.Profiles, slotProfiles, r.rank*r.extent)
	if !ok {
		return r, false
	}
	s := &b.vectors[slotProfiles]
	if err := s.grow(b.ledger, len(from)); err != nil {
		b.fail("%s: %w", op, err)
		return r, false
	}
	r.profiles = s.v[:len(from)]
	b.reverse = reverseProfiles{dst: r.profiles, src: from, extent: r.extent}
	b.run(&b.reverse, 1, len(from))
	return r, true
}

// reverseProfiles copies profiles in reverse order and recovers from faults. dst may be src.
type reverseProfiles struct {
	dst, src []float32
	extent   int
}

func (t *reverseProfiles) run(_ *worker, _ int) {
	copy(t.dst, t.src)
	for i := 0; i < len(t.dst); i += t.extent {
		slices.Reverse(t.dst[i:][:t.extent])
	}
}

// of returns the states of a query.
func (r *relative) of(query, head int) []float32 {
	return r.states.V[query*r.states.Stride+head*r.rank:][:r.rank]
}

// profile returns the profile of a rank for the last n distances down to 0.
func (r *relative) profile(rank, n int) []float32 {
	return r.profiles[rank*r.extent:][r.extent-n : r.extent]
}

// bias adds the biases of positions to the scores of one query, in row query of the call.
func (op *attentionOp) bias(x []float32, query, head int) {
	if op.relative.rank > 0 {
		near := x[max(0, len(x)-op.relative.extent):]
		for i, by := range op.relative.of(query, head) {
			op.set.Vector.AddScaled(near, op.relative.profile(i, len(near)), by)
		}
	}
	if len(op.a.Slopes) == 0 {
		return
	}
	slope := op.a.Slopes[head]
	if !op.a.RoundedSlopes {
		for i := range x {
			x[i] += float32(slope * float32(i-len(x)+1)) // not fused with the sum on any processor
		}
		return
	}
	rounded := func(x float32) float32 { return mat.FromBFloat16(mat.ToBFloat16(x)) }
	slope = rounded(slope)
	for i := range x { // the first key is that of position 0
		x[i] += float32(op.a.Scale * rounded(slope*rounded(float32(i))))
	}
}

// openRelative checks the biases of op and their gradients, and takes memory for those of the profiles. It returns the
// memory that these are for, nil for none.
func (op *attentionGrad) openRelative(b *Backend, name string, n int, d *backend.Relative) (profiles []float32, ok bool) {
	if op.relative, ok = b.relative(name, n, &op.a); !ok || op.rank == 0 {
		return nil, ok
	}
	if !d.States.IsZero() {
		if op.dstates, ok = b.floats(name, "gradient of biases' states", d.States, n, op.a.Heads*op.rank); !ok {
			return nil, false
		}
	}
	profiles, stride, ok := b.gradient(name, "gradient of biases' profiles", d.Profiles, len(op.profiles))
	if ok && stride != 1 {
		b.fail("%s: gradient of biases' profiles with a stride", name)
		return nil, false
	}
	if profiles != nil {
		op.dprofiles = make([]float32, len(op.spans)*op.a.KVHeads*len(op.profiles))
	}
	return profiles, ok
}

// relativeGrad adds the gradients of a query's biases; g are those of the products of its keys, times the scale.
func (op *attentionGrad) relativeGrad(g []float32, query, head, span int) {
	if op.rank == 0 {
		return
	}
	near := g[max(0, len(g)-op.extent):]
	states := op.of(query, head)
	for i := range op.rank {
		if op.dstates.V != nil {
			dot := op.set.Vector.Dot64(near, op.profile(i, len(near))) / float64(op.a.Scale)
			op.dstates.V[query*op.dstates.Stride+head*op.rank+i] += float32(dot)
		}
		if op.dprofiles != nil {
			all := op.dprofiles[(span*op.a.KVHeads+head/op.group)*len(op.profiles):][:len(op.profiles)]
			op.set.Vector.AddScaled(all[(i+1)*op.extent-len(near):(i+1)*op.extent], near, states[i]/op.a.Scale)
		}
	}
}

// closeRelative adds the gradients of profiles, turned round again, to profiles, in the order of spans and heads.
func (op *attentionGrad) closeRelative(profiles []float32) {
	for from := op.dprofiles; len(from) > 0; from = from[len(profiles):] {
		for i := range op.rank {
			for j, v := range from[i*op.extent:][:op.extent] {
				profiles[(i+1)*op.extent-1-j] += v
			}
		}
	}
}
