package sample

import (
	"fmt"
	"math"
)

// LogProb is an id with the natural logarithm of its probability.
type LogProb struct {
	ID      int32
	LogProb float32
}

// LogProbs returns log p(id) under the unprocessed logits, and appends to top the n
// most likely ids, best first, the lower id first of equals. A -Inf logit has the
// log-probability -Inf. Errors: ErrNotFinite, ErrNoCandidate.
func (s *Sampler) LogProbs(top []LogProb, logits []float32, id int32, n int) (float32, []LogProb, error) {
	if len(logits) > len(s.work) {
		return 0, top, fmt.Errorf("sample: %d logits for a vocabulary of %d", len(logits), len(s.work))
	}
	at, err := s.argmax(logits)
	if err != nil {
		return 0, top, err
	}
	s.weigh(logits, logits[at], 1)
	norm := float64(logits[at]) + math.Log(s.total)
	own := float32(math.Inf(-1))
	if uint(id) < uint(len(logits)) {
		own = float32(float64(logits[id]) - norm)
	}
	top = s.topLogits(top, logits, n)
	for i := len(top) - min(n, len(logits)); i < len(top); i++ {
		top[i].LogProb = float32(float64(top[i].LogProb) - norm)
	}
	return own, top, nil
}

// Rank returns how many logits are at least as large as that of id, which is 1 for the largest. It returns 0 for
// an id outside the vocabulary.
func Rank(logits []float32, id int32) int {
	if uint(id) >= uint(len(logits)) {
		return 0
	}
	own, n := logits[id], 0
	for _, v := range logits {
		if v >= own {
			n++
		}
	}
	return n
}

// topLogits appends the n largest logits in order by insertion: n is small.
func (s *Sampler) topLogits(dst []LogProb, logits []float32, n int) []LogProb {
	if n <= 0 {
		return dst
	}
	start, n := len(dst), min(n, len(logits))
	for b, peak := range s.peaks {
		if list := dst[start:]; len(list) == n && peak <= list[n-1].LogProb {
			continue
		}
		for i, v := range of(logits, b) {
			dst = insert(dst, start, n, LogProb{int32(b*block + i), v})
		}
	}
	return dst
}

// insert puts l in its place among the n best, which begin at start.
func insert(dst []LogProb, start, n int, l LogProb) []LogProb {
	list := dst[start:]
	if len(list) == n {
		if !(l.LogProb > list[n-1].LogProb) {
			return dst
		}
		list = list[:n-1]
	}
	i := len(list)
	dst = append(dst[:start+i], LogProb{})
	list = dst[start:]
	for ; i > 0 && list[i-1].LogProb < l.LogProb; i-- {
		list[i] = list[i-1]
	}
	list[i] = l
	return dst
}
