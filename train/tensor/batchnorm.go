package tensor

import "math"

// BatchNorm is the state of a batch norm: the running mean and variance of each channel. It belongs
// to the goroutine of the tape that uses it.
type BatchNorm struct {
	// Mean and Var are the running moments, one for each channel. Each training pass sets them to
	// (1-Momentum) times themselves plus Momentum times those of the batch.
	Mean, Var []float32
	Momentum  float64
	Eps       float64
	// Training uses the moments of the batch and updates the running ones. Otherwise the running
	// ones are used and not changed.
	Training bool
}

// NewBatchNorm returns torch's initial state: mean 0, variance 1, momentum 0.1, eps 1e-5, training
// mode.
func NewBatchNorm(channels int) *BatchNorm {
	s := &BatchNorm{Mean: make([]float32, max(channels, 0)), Var: make([]float32, max(channels, 0)), Momentum: 0.1, Eps: 1e-5, Training: true}
	fill(s.Var, 1)
	return s
}

// BatchNorm2D normalises each channel of x [batch, channels, height, width], then scales by weight
// and adds bias, both [channels]: (x - mean) / √(variance + Eps) · weight + bias. In training mode the
// moments are those of the batch, with the variance divided by the number n of values, and the running
// variance moves towards the unbiased one, divided by n - 1. A channel of fewer than two values is then
// an error.
func (tp *Tape) BatchNorm2D(x, weight, bias *Tensor, s *BatchNorm) *Tensor {
	if !tp.ready("batchnorm2d", x, weight, bias) {
		return tp.void()
	}
	if x.dims() != 4 || !weight.is(x.shape[1]) || !bias.is(x.shape[1]) || s == nil || len(s.Mean) != x.shape[1] || len(s.Var) != x.shape[1] {
		return tp.fail("batchnorm2d: x has shape %v, weight %v, bias %v, want [batch channels height width], [channels], [channels], and a state of as many channels",
			x, weight, bias)
	}
	c := &channels{tp: tp, x: x, weight: weight, bias: bias, training: s.Training, n: x.shape[0] * x.shape[2] * x.shape[3],
		mean: make([]float64, x.shape[1]), scale: make([]float64, x.shape[1])}
	if s.Training && c.n < 2 {
		return tp.fail("batchnorm2d: x has shape %v: got one value per channel, want at least 2 to compute a variance", x)
	}
	c.out = tp.result(x.shape, x, weight, bias)
	c.out.widen(x)
	tp.parallel(x.shape[1], func(ch int) { c.forward(ch, s) })
	return tp.record(c.out, c.backward)
}

// BatchNorm1D is [Tape.BatchNorm2D] for x [batch, channels] or [batch, channels, length]. weight and
// bias may be nil, which means 1 and 0.
func (tp *Tape) BatchNorm1D(x, weight, bias *Tensor, s *BatchNorm) *Tensor {
	if !tp.ready("batchnorm1d", x) {
		return tp.void()
	}
	if x.dims() != 2 && x.dims() != 3 {
		return tp.fail("batchnorm1d: x has shape %v, want [batch channels] or [batch channels length]", x)
	}
	channels := x.shape[1]
	if weight == nil {
		weight = tp.repeated(1, channels)
	}
	if bias == nil {
		bias = tp.repeated(0, channels)
	}
	shape := append(append([]int(nil), x.shape...), 1, 1)[:4]
	return tp.Reshape(tp.BatchNorm2D(tp.Reshape(x, shape...), weight, bias, s), x.shape...)
}

// channels is the state of one call.
type channels struct {
	tp                   *Tape
	x, weight, bias, out *Tensor
	training             bool
	n                    int       // values per channel
	mean, scale          []float64 // scale is the reciprocal of the standard deviation
}

// runs calls f with each contiguous run of a channel.
func (c *channels) runs(ch int, f func(lo, hi int)) {
	plane := c.x.shape[2] * c.x.shape[3]
	for i := range c.x.shape[0] {
		lo := (i*c.x.shape[1] + ch) * plane
		f(lo, lo+plane)
	}
}

func (c *channels) forward(ch int, s *BatchNorm) {
	mean, variance := float64(s.Mean[ch]), float64(s.Var[ch])
	if c.training {
		if c.x.wide != nil {
			mean, variance = channelMoments(c, ch, c.x.wide)
		} else {
			mean, variance = channelMoments(c, ch, c.x.data)
		}
		n := float64(c.n)
		s.Mean[ch] = float32((1-s.Momentum)*float64(s.Mean[ch]) + s.Momentum*mean)
		s.Var[ch] = float32((1-s.Momentum)*float64(s.Var[ch]) + s.Momentum*variance*n/(n-1))
	}
	c.mean[ch], c.scale[ch] = mean, 1/math.Sqrt(variance+s.Eps)
	by := c.scale[ch] * float64(c.weight.data[ch])
	c.runs(ch, func(lo, hi int) {
		if c.x.wide != nil {
			for i, v := range c.x.wide[lo:hi] {
				c.out.set64(lo+i, (v-mean)*by+float64(c.bias.data[ch]))
			}
			return
		}
		for i, v := range c.x.data[lo:hi] {
			c.out.data[lo+i] = float32((float64(v)-mean)*by + float64(c.bias.data[ch]))
		}
	})
}

// channelMoments returns the mean and the biased variance of a channel of x.
func channelMoments[F float](c *channels, ch int, x []F) (mean, variance float64) {
	c.runs(ch, func(lo, hi int) {
		for _, v := range x[lo:hi] {
			mean += float64(v)
		}
	})
	mean /= float64(c.n)
	c.runs(ch, func(lo, hi int) {
		for _, v := range x[lo:hi] {
			d := float64(v) - mean
			variance += d * d
		}
	})
	return mean, variance / float64(c.n)
}

func (c *channels) backward(grad []float32) {
	gx, gw, gb := c.tp.gradient(c.x), c.tp.gradient(c.weight), c.tp.gradient(c.bias)
	c.tp.parallel(c.x.shape[1], func(ch int) {
		var sum, along float64 // sum of the gradient, and of its product with the normalised values
		mean, scale := c.mean[ch], c.scale[ch]
		c.runs(ch, func(lo, hi int) {
			for i, d := range grad[lo:hi] {
				sum += float64(d)
				along += float64(d) * (float64(c.x.data[lo+i]) - mean) * scale
			}
		})
		if gw != nil {
			gw[ch] += float32(along)
		}
		if gb != nil {
			gb[ch] += float32(sum)
		}
		if gx == nil {
			return
		}
		if by := scale * float64(c.weight.data[ch]); c.training {
			level, slope := sum/float64(c.n), along/float64(c.n)*scale
			c.runs(ch, func(lo, hi int) {
				for i, d := range grad[lo:hi] {
					gx[lo+i] += float32(by * (float64(d) - level - (float64(c.x.data[lo+i])-mean)*slope))
				}
			})
		} else {
			c.runs(ch, func(lo, hi int) {
				for i, d := range grad[lo:hi] {
					gx[lo+i] += float32(by * float64(d))
				}
			})
		}
	})
}

func fill(row []float32, v float32) {
	for i := range row {
		row[i] = v
	}
}
