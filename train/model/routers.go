package model

import (
	"cmp"
	"math"
	"slices"

	"github.com/heftai/heft/internal/nn"
	view "github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// routers computes Mixtral's auxiliary loss, which balances experts. It is the number of experts
// times the sum over experts of (choices of the expert / rows, over all layers) times its mean
// probability. The choices have no gradient. Padding does not count.
type routers struct {
	*session
	topK   int
	counts []float64 // of choices, by expert
	means  []float64 // sums of probabilities
	rows   int       // of all layers
	seen   []view.Tensor
	again  bool    // Backward computes units again
	scale  float32 // of the gradient
}

func newRouters(s *session, topK int) *routers { return &routers{session: s, topK: topK} }

// topK returns the number of experts per token.
func (m *Model) topK() int {
	for _, node := range m.meta.Root.Walk() {
		if s, ok := node.Spec.(*meta.MoESpec); ok {
			return s.TopK
		}
	}
	return 0
}

// Trace receives the logits of a router: in Forward to count the choices, and in Backward to add
// their gradient.
func (r *routers) Trace(at nn.Point, _ string, x view.Tensor) {
	if at != nn.PointRouter {
		return
	}
	if r.again {
		r.addGradient(x)
		return
	}
	if r.recorder.Recording() {
		r.seen = append(r.seen, x)
	}
	n := x.Cols()
	if r.counts == nil {
		r.counts, r.means = make([]float64, n), make([]float64, n)
	}
	order := make([]int, n)
	for i := range x.Rows() {
		r.rows++
		row := x.Row(i)
		for e, p := range softmax(row) {
			r.means[e] += p
			order[e] = e
		}
		slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(row[b], row[a]) })
		for _, e := range order[:r.topK] {
			r.counts[e]++
		}
	}
}

// loss returns experts · Σ share · mean.
func (r *routers) loss() float32 {
	sum := 0.0
	for e, c := range r.counts {
		sum += c * r.means[e]
	}
	n := float64(max(r.rows, 1))
	return float32(float64(len(r.counts)) * sum / n / n)
}

// reverse adds scale times the loss's gradient to the gradients of the routers.
func (r *routers) reverse(scale float32) {
	r.again, r.scale = true, scale
	for _, x := range r.seen {
		r.addGradient(x)
	}
}

// addGradient adds the gradient of one layer's logits.
func (r *routers) addGradient(x view.Tensor) {
	to := r.training.Gradient(x)
	n := float64(max(r.rows, 1))
	by := float64(r.scale) * float64(len(r.counts)) / n / n
	for i := range x.Rows() {
		g, p := to.Row(i), softmax(x.Row(i))
		mean := 0.0
		for e, v := range p {
			mean += v * r.counts[e]
		}
		for e, v := range p {
			g[e] += float32(by * v * (r.counts[e] - mean))
		}
	}
}

func softmax(x []float32) []float64 {
	p, top, sum := make([]float64, len(x)), slices.Max(x), 0.0
	for i, v := range x {
		p[i] = math.Exp(float64(v) - float64(top))
		sum += p[i]
	}
	for i := range p {
		p[i] /= sum
	}
	return p
}
