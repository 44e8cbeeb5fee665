package sample

import (
	"math"
	"slices"
)

const maxFloat = math.MaxFloat32

// shape fills the candidates from row, whose largest value is best, and applies the
// filters of p. At least one candidate stays, and total is their weight.
func (s *Sampler) shape(p *Params, row []float32, best float32) {
	if s.all == nil {
		s.all = make([]candidate, len(s.work))
	}
	scale, likely := p.scale(), false
	switch {
	case p.TopH > 0 && p.TopH < 1:
		s.fill(row, best, scale, s.kthBest(row, topHWidth))
		s.topH(p.TopH)
		if p.TopK > 0 {
			s.topK(p.TopK)
		}
	case p.TopK > 0 && p.TopK < len(row):
		s.fill(row, best, scale, s.kthBest(row, p.TopK))
	case p.TopP > 0 && p.TopP < 1:
		s.fillLikely(row, best, scale, p.TopP)
		likely = true
	case p.MinP > 0:
		s.fill(row, best, scale, best+float32(math.Log(p.MinP)-1e-3)/scale)
	default:
		s.fillAll(row, best, scale)
	}
	if p.TopP > 0 && p.TopP < 1 {
		s.topP(p.TopP)
	}
	if p.MinP > 0 {
		s.minP(p.MinP)
	}
	if p.TypicalP > 0 && p.TypicalP < 1 {
		s.typicalP(p.TypicalP, !likely)
	}
	if p.EpsilonCutoff > 0 {
		s.epsilonCutoff(p.EpsilonCutoff)
	}
}

// filters reports whether p cuts the distribution over so many ids.
func (p *Params) filters(vocab int) bool {
	within := func(v float64) bool { return v > 0 && v < 1 }
	return within(p.TopH) || p.TopK > 0 && p.TopK < vocab || within(p.TopP) || p.MinP > 0 || within(p.TypicalP) || p.EpsilonCutoff > 0
}

// scale is what logits are multiplied by: not 0, which makes NaN of -Inf.
func (p *Params) scale() float32 { return max(float32(1/p.Temperature), 1e-37) }

// fill makes candidates of the logits at or above least that are not forbidden.
func (s *Sampler) fill(row []float32, best, scale, least float32) {
	n, total := 0, 0.0
	for b, peak := range s.peaks {
		if peak < least {
			continue
		}
		for i, v := range of(row, b) {
			if v < least || v == negInf {
				continue
			}
			x := (v - best) * scale
			w := expNeg(x)
			s.all[n] = candidate{int32(b*block + i), x, w}
			total += float64(w)
			n++
		}
	}
	s.cands, s.total = s.all[:n], total
}

// fillAll makes candidates of all logits that are not forbidden.
func (s *Sampler) fillAll(row []float32, best, scale float32) {
	n, total := 0, 0.0
	for b, peak := range s.peaks {
		if peak == negInf {
			continue
		}
		part := of(row, b)
		x, w := s.block[0][:len(part)], s.block[1][:len(part)]
		s.set.Sampling.SubtractScale(x, part, best, scale)
		copy(w, x)
		total += float64(s.set.Vector.ExpSum(w, 0))
		for i, x := range x {
			if x != negInf {
				s.all[n] = candidate{int32(b*block + i), x, w[i]}
				n++
			}
		}
	}
	s.cands, s.total = s.all[:n], total
}

// fillLikely leaves out what top_p is sure to remove: fewer than V ids, each with a
// share below (1-p)/V, cannot reach 1-p together. total still counts them.
func (s *Sampler) fillLikely(row []float32, best, scale float32, p float64) {
	s.weigh(row, best, scale)
	least := float32(0.999 * (1 - p) / float64(len(row)) * s.total)
	n := 0
	for b, peak := range s.peaks {
		if 1.001*expNeg((peak-best)*scale) < least {
			continue
		}
		for i, w := range of(s.work, b) {
			if w >= least && w > 0 {
				s.all[n] = candidate{int32(b*block + i), w, w}
				n++
			}
		}
	}
	s.cands = s.all[:n]
}

// keep shortens the candidates to the first n.
func (s *Sampler) keep(n int) {
	s.cands = s.cands[:n]
	s.total = 0
	for i := range s.cands {
		s.total += float64(s.cands[i].w)
	}
}

// keepFrom keeps the candidates whose x is at least that.
func (s *Sampler) keepFrom(x float32) {
	n := 0
	for _, c := range s.cands {
		if c.x >= x {
			s.cands[n] = c
			n++
		}
	}
	s.keep(n)
}

// keepHeavier drops the candidates lighter than least.
func (s *Sampler) keepHeavier(least float64) {
	n := 0
	for _, c := range s.cands {
		if float64(c.w) >= least {
			s.cands[n] = c
			n++
		}
	}
	s.keep(n)
}

func (s *Sampler) heaviest() float32 {
	w := float32(0)
	for i := range s.cands {
		w = max(w, s.cands[i].w)
	}
	return w
}

func (s *Sampler) topK(k int) {
	if k < len(s.cands) {
		front(s.cands, k)
		s.keepFrom(lastOf(s.cands[:k]).x)
	}
}

// lastOf is the candidate that comes last in the order of before.
func lastOf(c []candidate) candidate {
	last := c[0]
	for _, d := range c[1:] {
		if before(last, d) {
			last = d
		}
	}
	return last
}

func (s *Sampler) topP(p float64) { s.keep(frontMass(s.cands, p*s.total)) }

func (s *Sampler) minP(p float64) { s.keepHeavier(p * float64(s.heaviest())) }

func (s *Sampler) epsilonCutoff(epsilon float64) {
	s.keepHeavier(min(epsilon*s.total, float64(s.heaviest())))
}

// Surprises are told apart by eighths first, as far as a weight that is not 0 can have one.
const (
	surpriseSteps = 8
	surprises     = 128 * surpriseSteps
)

// typicalP replaces x, the logarithm of the weight if logs says so, by how near a candidate's
// surprise is to the entropy (Meister et al. 2022), takes the nearest until they hold p, and what
// ties with the last of them. A surprise is log total - x, and their mean the entropy.
func (s *Sampler) typicalP(p float64, logs bool) {
	moment := 0.0
	for i := range s.cands {
		if c := &s.cands[i]; c.w > 0 {
			if !logs {
				c.x = float32(math.Log(float64(c.w)))
			}
			moment += float64(c.w) * float64(c.x)
		}
	}
	mean := moment / s.total
	var masses [surprises]float64
	for i := range s.cands {
		c := &s.cands[i]
		if c.w > 0 {
			c.x = float32(-math.Abs(float64(c.x) - mean))
			masses[surprise(c.x)] += float64(c.w)
		} else {
			c.x = negInf
		}
	}
	left := p * s.total
	for step, mass := range masses {
		if mass >= left && mass > 0 {
			c := s.surprising(step)
			s.keepFrom(lastOf(c[:frontMass(c, left)]).x)
			return
		}
		left -= mass
	}
}

// surprise is the step of a candidate that is x away from the entropy, with the sign changed.
func surprise(x float32) int { return min(int(-surpriseSteps*x), surprises-1) }

// surprising drops candidates farther from the entropy than a step, and returns those in that step.
func (s *Sampler) surprising(step int) []candidate {
	near, n := 0, 0
	for _, c := range s.cands {
		if c.x == negInf {
			continue
		}
		if at := surprise(c.x); at <= step {
			s.cands[n] = c
			if at < step {
				s.cands[n], s.cands[near] = s.cands[near], s.cands[n]
				near++
			}
			n++
		}
	}
	s.cands = s.cands[:n]
	return s.cands[near:]
}

func plogp(p float64) float64 {
	if p == 0 {
		return 0
	}
	return p * math.Log(p)
}

// topHWidth is how many of the best top_h looks at.
const topHWidth = 100

// topH keeps the leading candidates while the sum of their -p log p is within share
// of the entropy, among the best 100 alone.
func (s *Sampler) topH(share float64) {
	if len(s.cands) > topHWidth {
		front(s.cands, topHWidth)
		s.keep(topHWidth)
	}
	slices.SortFunc(s.cands, compare)
	entropy := 0.0
	for i := range s.cands {
		entropy -= plogp(float64(s.cands[i].w) / s.total)
	}
	n, sum := 0, 0.0
	for n < len(s.cands) {
		sum -= plogp(float64(s.cands[n].w) / s.total)
		if n > 0 && sum > entropy*share {
			break
		}
		n++
	}
	s.keep(n)
}
