package backendtest

import (
	"math"

	"github.com/heftai/heft/internal/backend"
)

// testMeasure compares with values computed in float64. The third row has logits of −Inf, and the
// fourth has two equal maxima.
func testMeasure(e *env) {
	g := e.gradients()
	if g == nil {
		return
	}
	const rows, classes, scale = 5, 300, 0.7
	logits := e.values(rows * classes)
	for i := range logits {
		logits[i] = logits[i]*6 - 3
	}
	labels := []int32{0, 17, 299, 20, 10}
	logits[1*classes+17] = 90 // a probability of 1, up to rounding
	for i := 2 * classes; i < 2*classes+100; i++ {
		logits[i] = float32(math.Inf(-1))
	}
	logits[3*classes+10], logits[3*classes+20] = 50, 50
	logits[4*classes+10], logits[4*classes+20] = 50, 50
	m := backend.Measures{Entropies: make([]float32, rows), Means: make([]float32, rows), Tops: make([]float32, rows)}
	g.Measure(m, e.strided(logits, rows, classes, 3), labels, scale)
	e.sync()
	for r := range rows {
		entropy, mean, top := measured(logits[r*classes:][:classes], scale)
		right := float32(0)
		if top == int(labels[r]) {
			right = 1
		}
		if d := float64(m.Entropies[r]) - entropy; !(math.Abs(d) < 2e-5) {
			e.Errorf("row %d: got entropy %g, want %g", r, m.Entropies[r], entropy)
		}
		if r != 2 && !(math.Abs(float64(m.Means[r])-mean) < 1e-5) {
			e.Errorf("row %d: got mean %g, want %g", r, m.Means[r], mean)
		}
		if m.Tops[r] != right {
			e.Errorf("row %d: the label is likeliest: got %g, want %g", r, m.Tops[r], right)
		}
	}
	only := backend.Measures{Entropies: make([]float32, rows)}
	g.Measure(only, e.floats(logits, rows, classes), nil, scale)
	e.sync()
	for r, v := range only.Entropies {
		if v != m.Entropies[r] {
			e.Errorf("row %d: got entropy %g when it is measured alone, want %g", r, v, m.Entropies[r])
		}
	}
}

// measured returns the entropy of the softmax of scale times x, the mean of x, and the index of the
// first maximum.
func measured(x []float32, scale float64) (entropy, mean float64, top int) {
	total := 0.0
	for i, v := range x {
		mean += float64(v) / float64(len(x))
		if v > x[top] {
			top = i
		}
	}
	for _, v := range x {
		total += math.Exp(scale * float64(v-x[top]))
	}
	for _, v := range x {
		if p := math.Exp(scale*float64(v-x[top])) / total; p > 0 {
			entropy -= p * math.Log(p)
		}
	}
	return entropy, mean, top
}
