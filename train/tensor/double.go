package tensor

// With ConvOptions.Double, the forward pass of a convolution keeps float64 values next to the
// float32 ones, and so do norms, ReLUs, sums and pools of its result. Rounding to float32 can
// decide differently between close neighbours, and training then takes another course.

// float is the type in which a tensor's values are read.
type float interface{ float32 | float64 }

// widen allocates float64 values for t if any of the operands has them.
func (t *Tensor) widen(ins ...*Tensor) bool {
	for _, in := range ins {
		if in != nil && in.wide != nil && len(t.data) > 0 {
			t.wide = make([]float64, len(t.data))
			return true
		}
	}
	return false
}

// at64 returns element i as float64.
func (t *Tensor) at64(i int) float64 {
	if t.wide != nil {
		return t.wide[i]
	}
	return float64(t.data[i])
}

// set64 sets element i of a tensor that has float64 values.
func (t *Tensor) set64(i int, v float64) { t.wide[i], t.data[i] = v, float32(v) }

// double computes the convolution with float64 sums in ascending order, two rows of the result and
// two taps at a time. sum starts as the bias.
func (c *convolution) double(sum []float64, w []float32, image []float64) {
	n := c.places
	weight := func(o, t int) float64 {
		if o >= c.out || t >= c.taps {
			return 0
		}
		return float64(w[o*c.taps+t])
	}
	spare := make([]float64, n) // stands for a row that makes their number even
	for o := 0; o < c.out; o += 2 {
		row0, row1 := sum[o*n:(o+1)*n], spare
		if o+1 < c.out {
			row1 = sum[(o+1)*n : (o+2)*n]
		}
		row1 = row1[:len(row0)]
		for t := 0; t < c.taps; t += 2 {
			a, b := weight(o, t), weight(o, t+1)
			d, e := weight(o+1, t), weight(o+1, t+1)
			p, q := image[t*n:(t+1)*n], image[(t+1)*n:(t+2)*n]
			p, q = p[:len(row0)], q[:len(row0)]
			for i := range row0 {
				u, v := p[i], q[i]
				row0[i] = row0[i] + a*u + b*v
				row1[i] = row1[i] + d*u + e*v
			}
		}
	}
}

// forwardDouble computes one image and group in float64.
func (c *convolution) forwardDouble(out *Tensor, u int) {
	image := make([]float64, (c.taps+c.taps&1)*c.places) // a last tap of zeros makes their number even
	if c.x.wide != nil {
		unfold(c, image, c.image64(u))
	} else {
		x := c.image(c.x.data, u)
		wide := make([]float64, len(x))
		for i, v := range x {
			wide[i] = float64(v)
		}
		unfold(c, image, wide)
	}
	lo, first := u*c.out*c.places, u%c.o.Groups*c.out
	y := out.wide[lo : lo+c.out*c.places]
	if c.bias != nil {
		for i := range y {
			y[i] = float64(c.bias.data[first+i/c.places])
		}
	}
	c.double(y, c.w.data[first*c.taps:], image)
	for i, v := range y {
		out.data[lo+i] = float32(v)
	}
}

// image64 returns the channels of one image and group, numbered together.
func (c *convolution) image64(u int) []float64 {
	n := c.in * c.rows.size * c.cols.size
	return c.x.wide[u*n : (u+1)*n]
}
