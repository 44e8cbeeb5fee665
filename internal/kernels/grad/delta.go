package grad

// DeltaGrad takes the gradient dstate of a state one token back. The token made decay·state + k uᵀ of
// state, which has len(k) rows, where u depends on stateᵀk, and dstate is the gradient of that. v is
// three vectors, one behind the other: the gradient dy of the token's result, u, and the gradient dr of
// decay·stateᵀk. It sets
//
//	dkq[i]        = Σ dstate[i][j]·u[j] + decay·Σ state[i][j]·dr[j]   the gradient of k
//	dkq[len(k)+i] = decay·Σ state[i][j]·dy[j]                         that of the query, but for k (u·dy)
//	dstate[i][j]  = decay·(dstate[i][j] + k[i]·dr[j])
//
// and returns Σ state·dstate, with dstate as it was. Sums over a row are float32.
func (s *Kernels) DeltaGrad(dkq, state, dstate, k, v []float32, decay float32) float64 {
	keys, values := len(k), len(v)/3
	if keys == 0 || values == 0 {
		return 0
	}
	return s.ops.deltaGrad(dkq[:2*keys], state[:keys*values], dstate[:keys*values], k, v[:3*values], decay)
}

func (goOps) deltaGrad(dkq, state, dstate, k, v []float32, decay float32) (sum float64) {
	values := len(v) / 3
	dy, u, dr := v[:values], v[values:2*values], v[2*values:]
	for i, key := range k {
		s, d := state[i*values:][:values], dstate[i*values:][:values]
		var read, wrote, had, both float32
		for j, x := range s {
			g := d[j]
			read += float32(x * dy[j])
			wrote += float32(g * u[j])
			had += float32(x * dr[j])
			both += float32(x * g)
			d[j] = float32(g+float32(key*dr[j])) * decay
		}
		dkq[i] = wrote + float32(decay*had)
		dkq[len(k)+i] = decay * read
		sum += float64(both)
	}
	return sum
}
