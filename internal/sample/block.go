package sample

// block is the number of logits that are scanned together. A block whose largest logit is far below
// the best of the row is skipped. Weights are summed per block.
const block = 512

// vanishing is an exponent below which every kernel's exponential is 0. Processors take a hundred times as long for
// results that underflow, as those of tokens that a constraint forbids, so blocks of them are not computed.
const vanishing = -105

// of is block b of a row.
func of(row []float32, b int) []float32 { return row[b*block : min((b+1)*block, len(row))] }

// argmax is the id of the largest value, the lowest id of equals. It notes the largest of each
// block.
func (s *Sampler) argmax(row []float32) (int32, error) {
	s.peaks = s.peaks[:(len(row)+block-1)/block]
	best, at := negInf, -1
	for b := range s.peaks {
		peak := s.set.Sampling.Max(of(row, b))
		if peak != peak {
			return -1, ErrNotFinite
		}
		if s.peaks[b] = peak; peak > best {
			best, at = peak, b
		}
	}
	if at < 0 {
		return -1, ErrNoCandidate
	}
	if best > maxFloat {
		return -1, ErrNotFinite
	}
	for i, v := range of(row, at) {
		if v == best {
			return int32(at*block + i), nil
		}
	}
	return -1, ErrNoCandidate
}

// weigh fills work with exp((v - best) * scale) for each v of row, whose blocks' largest are known
// and which may be work itself, and total and sums with what they come to.
func (s *Sampler) weigh(row []float32, best, scale float32) {
	s.total, s.sums = 0, s.sums[:len(s.peaks)]
	for b := range s.sums {
		w := of(s.work[:len(row)], b)
		if (s.peaks[b]-best)*scale < vanishing {
			clear(w)
			s.sums[b] = 0
			continue
		}
		s.set.Sampling.SubtractScale(w, of(row, b), best, scale)
		s.sums[b] = float64(s.set.Vector.ExpSum(w, 0))
		s.total += s.sums[b]
	}
}

// drawAny takes the id of those weighed in whose share u falls, u in [0, 1).
func (s *Sampler) drawAny(u float64) int32 {
	left, at := u*s.total, 0
	for b, sum := range s.sums {
		if sum > 0 {
			at = b
			if left < sum {
				break
			}
			left -= sum
		}
	}
	last := int32(0)
	for i, w := range of(s.work, at) {
		if w == 0 {
			continue
		}
		last = int32(at*block + i)
		if left -= float64(w); left < 0 {
			break
		}
	}
	return last
}
