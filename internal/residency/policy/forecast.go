package policy

import "math"

// The features of a segment are exponential averages of its past use, 1 or 0 in each pass of its
// layer, with these rates: the last pass, and about 3, 12 and 70 passes.
//
// No fixed mix of two rates is good for all routings. With popular experts (Zipf) the slow rates
// predict best. With experts that repeat the last token's, or with topics that change, the fast
// ones do. In the replays of TestHitsOfRoutings the best weight of the fast average ranges from
// 0.1 to 0.6, and a wrong weight costs up to 15 points. The weights are therefore fitted while
// the cache is used, by least squares over all experts. Four rates were within 1 point of five,
// and up to 3 points better than two.
var rates = [features]float64{1, 0.3, 0.08, 0.015}

const (
	features = 4
	// forget is the factor by which a pass decays the fitted sums: the weights follow a new topic
	// within a few hundred passes.
	forget = 0.99
	// ridge is the number of squares that the initial weights count as. A token adds about ten,
	// so they matter for the first few tokens only.
	ridge = 30
	// even breaks ties between segments without a forecast: the one whose layer runs last is
	// evicted.
	even = 1e-6
)

// initial are the weights before anything is fitted.
var initial = [features]float64{0.1, 0.15, 0.25, 0.5}

// A forecast is the order of [New]. It predicts the use of a segment by the next pass of its
// layer, as a linear function of its features.
//
// A pass that requests most segments of a layer, as a prompt does, says little about them. It
// changes the features less, and not at all if it requests all of them.
type forecast struct {
	cache    *Cache
	features [][features]float64 // by id
	use      []float64           // predicted use, by id
	passes   []int               // by layer
	now      int                 // the running layer
	soon     []float64           // by layer: 1 divided by the part of a pass until it runs next

	// The normal equations of the weights, in differences from the layer's mean.
	gram    [features][features]float64
	cross   [features]float64
	weights [features]float64

	requested []bool // scratch, by segment of the layer
}

func newForecast(c *Cache) *forecast {
	f := &forecast{cache: c, weights: initial,
		features: make([][features]float64, len(c.layerOf)), use: make([]float64, len(c.layerOf)), passes: make([]int, len(c.layers)), soon: make([]float64, len(c.layers))}
	widest := int32(0)
	for _, l := range c.layers {
		widest = max(widest, l.count)
		if l.count == 1 {
			f.use[l.first] = 1
		}
	}
	f.requested = make([]bool, widest)
	return f
}

// value returns the predicted use per time that the segment is kept for it, until its layer runs
// next. This is bytes saved per byte held, whatever the size of a segment.
func (f *forecast) value(id int32) float64 {
	return (f.use[id] + even) * f.soon[f.cache.layerOf[id]]
}

// expect computes the values for the time when a layer runs.
func (f *forecast) expect(layer int) {
	n := len(f.soon)
	for i := range f.soon {
		f.soon[i] = float64(n) / float64((i-layer+n-1)%n+1)
	}
}

func (f *forecast) request(layer int, segments []int32) {
	if layer <= f.now { // a pass begins
		f.fit()
	}
	f.now = layer
	f.expect(layer)
	l := &f.cache.layers[layer]
	news := 1 - float64(len(segments))/float64(l.count)
	if news <= 0 {
		return
	}
	requested := f.requested[:l.count]
	clear(requested)
	for _, s := range segments {
		requested[s] = true
	}
	of := f.features[l.first : l.first+l.count]
	if f.passes[layer]++; f.passes[layer] > 1 {
		f.learn(of, requested, 1-news)
	}
	for j, rate := range rates {
		rate = news * max(rate, 1/float64(f.passes[layer]+1))
		for s := range of {
			use := 0.0
			if requested[s] {
				use = 1
			}
			of[s][j] += rate * (use - of[s][j])
		}
	}
	for s := range of {
		use := 0.0
		for j, w := range f.weights {
			use += w * of[s][j]
		}
		f.use[l.first+int32(s)] = max(0, use)
	}
}

// learn adds an observation of a layer's segments: their features before the pass, and whether it
// requested them. mean is the share that it requested.
func (f *forecast) learn(of [][features]float64, requested []bool, mean float64) {
	var means [features]float64
	for s := range of {
		for j := range means {
			means[j] += of[s][j]
		}
	}
	for j := range means {
		means[j] /= float64(len(of))
	}
	for s := range of {
		use := -mean
		if requested[s] {
			use = 1 - mean
		}
		for i := range features {
			x := of[s][i] - means[i]
			f.cross[i] += x * use
			for j := range i + 1 {
				f.gram[i][j] += x * (of[s][j] - means[j])
			}
		}
	}
}

// fit solves the normal equations by Cholesky decomposition. The ridge makes them positive
// definite.
func (f *forecast) fit() {
	var l [features][features]float64
	var y [features]float64
	for i := range features {
		for j := range i + 1 {
			sum := f.gram[i][j]
			if i == j {
				sum += ridge
			}
			for k := range j {
				sum -= l[i][k] * l[j][k]
			}
			if i == j {
				l[i][i] = sqrt(sum)
			} else {
				l[i][j] = sum / l[j][j]
			}
			f.gram[i][j] *= forget
		}
		sum := f.cross[i] + ridge*initial[i]
		for k := range i {
			sum -= l[i][k] * y[k]
		}
		y[i] = sum / l[i][i]
		f.cross[i] *= forget
	}
	for i := features - 1; i >= 0; i-- {
		sum := y[i]
		for k := i + 1; k < features; k++ {
			sum -= l[k][i] * f.weights[k]
		}
		f.weights[i] = sum / l[i][i]
	}
}

// sqrt clamps sums that rounding made negative.
func sqrt(x float64) float64 { return math.Sqrt(max(x, ridge/2)) }
