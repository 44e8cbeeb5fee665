package vector

// MulAdd adds a·b to y, element by element.
func (s *Kernels) MulAdd(y, a, b []float32) {
	a, b = a[:len(y)], b[:len(y)]
	for at := 0; at < len(y); at += trainPiece {
		end := min(at+trainPiece, len(y))
		s.ops.mulAdd(y[at:end], a[at:end], b[at:end])
	}
}

// DeltaRead sets seen[j] = Σ k[i]·state[i][j], in ascending order of i. The state has len(k) rows
// of len(seen) elements.
func (s *Kernels) DeltaRead(seen, state, k []float32) {
	if len(seen) > 0 && len(k) > 0 {
		s.ops.deltaRead(seen, state[:len(k)*len(seen)], k)
	}
}

// DeltaStep sets state[i][j] = decay·state[i][j] + k[i]·change[j] and then dst[j] = Σ
// q[i]·state[i][j], in ascending order of i. kq is k followed by q. change has as many elements
// as dst.
func (s *Kernels) DeltaStep(dst, state, kq, change []float32, decay float32) {
	if keys := len(kq) / 2; len(dst) > 0 && keys > 0 {
		s.ops.deltaStep(dst, state[:keys*len(dst)], kq[:2*keys], change[:len(dst)], decay)
	}
}

// recurrent is implemented by each variant for the operations above, with the same bits.
type recurrent interface {
	mulAdd(y, a, b []float32)
	deltaRead(seen, state, k []float32)
	deltaStep(dst, state, kq, change []float32, decay float32)
}

func (goOps) mulAdd(y, a, b []float32) {
	for i := range y {
		y[i] += float32(a[i] * b[i])
	}
}

func (goOps) deltaRead(seen, state, k []float32) {
	clear(seen)
	for i, x := range k {
		for j, s := range state[i*len(seen):][:len(seen)] {
			seen[j] += float32(x * s)
		}
	}
}

func (goOps) deltaStep(dst, state, kq, change []float32, decay float32) {
	clear(dst)
	keys := len(kq) / 2
	for i := range keys {
		k, q, row := kq[i], kq[keys+i], state[i*len(dst):][:len(dst)]
		for j := range row {
			row[j] = float32(row[j]*decay) + float32(k*change[j])
			dst[j] += float32(q * row[j])
		}
	}
}
