package sample

import (
	"math"
	"math/bits"
)

var negInf = float32(math.Inf(-1))

// adjusts reports whether any id's logit is to be changed before the choice.
func (p *Params) adjusts(step *Step) bool {
	return len(p.Bias) > 0 || p.penalises() || p.NoRepeatNGram > 0 || len(p.BadWords) > 0 ||
		len(p.Suppress) > 0 || len(p.Allow) > 0 || p.holdsBack(step) || step.Mask != nil
}

func (p *Params) penalises() bool {
	return p.repeats() || p.PresencePenalty != 0 || p.FrequencyPenalty != 0
}

func (p *Params) repeats() bool { return p.RepetitionPenalty != 0 && p.RepetitionPenalty != 1 }

// holdsBack reports whether the text is still too short to end.
func (p *Params) holdsBack(step *Step) bool {
	return len(step.Generated) < p.MinTokens && len(p.Stop) > 0 && !step.MayEnd
}

// adjust changes single logits of s.work in transformers' order.
func (s *Sampler) adjust(p *Params, step *Step) {
	for _, b := range p.Bias {
		s.work[b.ID] += b.Value
	}
	if p.repeats() {
		s.repetition(p.RepetitionPenalty, step)
	}
	if p.PresencePenalty != 0 || p.FrequencyPenalty != 0 {
		s.presence(p.PresencePenalty, p.FrequencyPenalty, step.Generated)
	}
	if p.NoRepeatNGram > 0 {
		s.noRepeat(p.NoRepeatNGram, step)
	}
	for _, w := range p.BadWords {
		s.badWord(w, step)
	}
	if p.holdsBack(step) {
		s.forbidAll(p.Stop)
	}
	s.forbidAll(p.Suppress)
	if len(p.Allow) > 0 {
		s.allowOnly(p.Allow)
	}
	if step.Mask != nil {
		s.mask(step.Mask)
	}
}

func (s *Sampler) forbid(id int32) {
	if uint(id) < uint(len(s.work)) {
		s.work[id] = negInf
	}
}

func (s *Sampler) forbidAll(ids []int32) {
	for _, id := range ids {
		s.forbid(id)
	}
}

// visit calls f once for each distinct id within the vocabulary.
func (s *Sampler) visit(f func(id int32), lists ...[]int32) {
	s.newEpoch()
	for _, ids := range lists {
		for _, id := range ids {
			if uint(id) < uint(len(s.seen)) && s.seen[id] != s.epoch {
				s.seen[id] = s.epoch
				f(id)
			}
		}
	}
}

// newEpoch forgets which ids were seen without touching the vocabulary.
func (s *Sampler) newEpoch() {
	s.epoch++
	if s.epoch == 0 {
		clear(s.seen)
		s.epoch = 1
	}
}

func (s *Sampler) repetition(penalty float64, step *Step) {
	s.visit(func(id int32) {
		if v := float64(s.work[id]); v < 0 {
			s.work[id] = float32(v * penalty)
		} else {
			s.work[id] = float32(v / penalty)
		}
	}, step.Prompt, step.Generated)
}

func (s *Sampler) presence(presence, frequency float64, generated []int32) {
	s.visit(func(id int32) {
		s.work[id] = float32(float64(s.work[id]) - presence)
	}, generated)
	for _, id := range generated {
		if uint(id) < uint(len(s.work)) {
			s.work[id] = float32(float64(s.work[id]) - frequency)
		}
	}
}

// noRepeat forbids what followed the last n-1 ids wherever they stood before.
func (s *Sampler) noRepeat(n int, step *Step) {
	total := step.len()
	for end := n - 1; end < total; end++ {
		if step.sameRun(end-(n-1), total-(n-1), n-1) {
			s.forbid(step.at(end))
		}
	}
}

// sameRun reports whether the n ids from a are those from b.
func (s *Step) sameRun(a, b, n int) bool {
	for i := n - 1; i >= 0; i-- {
		if s.at(a+i) != s.at(b+i) {
			return false
		}
	}
	return true
}

func (s *Sampler) badWord(w []int32, step *Step) {
	before := step.len() - (len(w) - 1)
	if before < 0 {
		return
	}
	for i, id := range w[:len(w)-1] {
		if step.at(before+i) != id {
			return
		}
	}
	s.forbid(w[len(w)-1])
}

func (s *Sampler) allowOnly(ids []int32) {
	s.newEpoch()
	for _, id := range ids {
		s.seen[id] = s.epoch
	}
	for id := range s.work {
		if s.seen[id] != s.epoch {
			s.work[id] = negInf
		}
	}
}

// mask forbids the ids that words do not have, a word at a time.
func (s *Sampler) mask(words []uint64) {
	for at := 0; at < len(s.work); at += 64 {
		part := s.work[at:min(at+64, len(s.work))]
		w := words[at>>6]
		switch n := bits.OnesCount64(w); {
		case n == 0:
			copy(part, noneOf[:])
		case n == 64:
		case n > maxKept:
			for forbidden := ^w << (64 - len(part)) >> (64 - len(part)); forbidden != 0; forbidden &= forbidden - 1 {
				part[bits.TrailingZeros64(forbidden)] = negInf
			}
		default:
			keepOnly(part, w<<(64-len(part))>>(64-len(part)))
		}
	}
}

// maxKept is how many ids of a word are kept one by one; of more, the others are forbidden one by one.
const maxKept = 24

// keepOnly forbids all ids of part but those of the bits of w, of which there are at most maxKept.
func keepOnly(part []float32, w uint64) {
	var kept [maxKept]float32
	n := 0
	for m := w; m != 0; m &= m - 1 {
		kept[n] = part[bits.TrailingZeros64(m)]
		n++
	}
	copy(part, noneOf[:])
	n = 0
	for m := w; m != 0; m &= m - 1 {
		part[bits.TrailingZeros64(m)] = kept[n]
		n++
	}
}

// noneOf are the logits of ids that are all forbidden.
var noneOf = func() (part [64]float32) {
	for i := range part {
		part[i] = negInf
	}
	return part
}()
