package sample

import "math"

// LogProb is an id with the natural logarithm of its probability.
type LogProb struct {
	ID      int32
	LogProb float32
}

// negligible is where a logit below the best adds nothing that float32 shows, were there
// a million of them.
const negligible = -32

// LogProbs returns log p(id) under the unprocessed logits, and appends to top the n
// most likely ids, best first, the lower id first of equals. A -Inf logit has the
// log-probability -Inf. Errors: ErrNotFinite, ErrNoCandidate.
func (s *Sampler) LogProbs(top []LogProb, logits []float32, id int32, n int) (float32, []LogProb, error) {
	at, err := argmax(logits)
	if err != nil {
		return 0, top, err
	}
	best, sum := logits[at], 0.0
	for _, v := range logits {
		if x := v - best; x > negligible {
			sum += float64(expNeg(x))
		}
	}
	norm := float64(best) + math.Log(sum)
	own := float32(math.Inf(-1))
	if uint(id) < uint(len(logits)) {
		own = float32(float64(logits[id]) - norm)
	}
	top = topLogits(top, logits, n)
	for i := len(top) - min(n, len(logits)); i < len(top); i++ {
		top[i].LogProb = float32(float64(top[i].LogProb) - norm)
	}
	return own, top, nil
}

// topLogits appends the n largest logits in order by insertion: n is small.
func topLogits(dst []LogProb, logits []float32, n int) []LogProb {
	if n <= 0 {
		return dst
	}
	start, n := len(dst), min(n, len(logits))
	for id, v := range logits {
		list := dst[start:]
		if len(list) == n {
			if !(v > list[n-1].LogProb) {
				continue
			}
			list = list[:n-1]
		}
		i := len(list)
		dst = append(dst[:start+i], LogProb{})
		list = dst[start:]
		for ; i > 0 && list[i-1].LogProb < v; i-- {
			list[i] = list[i-1]
		}
		list[i] = LogProb{int32(id), v}
	}
	return dst
}
