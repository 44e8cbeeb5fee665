package sample

import (
	"fmt"

	"github.com/heftai/heft/internal/kernels"
)

// Sampler holds scratch for one vocabulary. One call at a time; requests may share it.
type Sampler struct {
	set   *kernels.Set
	work  []float32         // the logits of this step, adjusted; then weights
	peaks []float32         // the largest of each block of the row at hand
	block [2][block]float32 // at hand: exponents and weights
	sums  []float64         // the sum of each block's weights
	cands []candidate       // ids that may still be chosen
	all   []candidate       // their memory, as large as the vocabulary
	total float64           // sum of the candidates' weights

	seen  []uint32 // epoch in which an id was last met
	epoch uint32
}

// candidate is an id with its weight exp(x), where x is its logit less the best
// one, over the temperature. Filters order by x, typical_p by a key it puts there.
type candidate struct {
	id   int32
	x, w float32
}

// New makes a Sampler for rows of vocab logits. Memory for filters (12 bytes an id)
// comes with the first request that needs it. variant is that of the kernels which weigh ids; "",
// or one that this processor lacks, stands for the best.
func New(vocab int, variant string) *Sampler {
	set, err := kernels.Select(variant)
	if err != nil {
		set, _ = kernels.Select("") // there is always one
	}
	blocks := (vocab + block - 1) / block
	return &Sampler{
		set: set, work: make([]float32, vocab), seen: make([]uint32, vocab),
		peaks: make([]float32, blocks), sums: make([]float64, blocks),
	}
}

// Next chooses an id. logits, one row of the vocabulary, is left as it is. Params
// must have passed Validate. src is used unless p is greedy. Errors: ErrNotFinite,
// ErrNoCandidate.
func (s *Sampler) Next(p *Params, src *Source, step Step, logits []float32) (int32, error) {
	row, err := s.adjusted(p, &step, logits)
	if err != nil {
		return -1, err
	}
	best, err := s.argmax(row)
	if err != nil || p.Greedy() {
		return best, err
	}
	if !p.filters(len(row)) {
		s.weigh(row, row[best], p.scale())
		return s.drawAny(src.uniform()), nil
	}
	s.shape(p, row, row[best])
	return s.draw(src.uniform()), nil
}

// adjusted returns logits with single ids changed, or logits itself if none is.
func (s *Sampler) adjusted(p *Params, step *Step, logits []float32) ([]float32, error) {
	if len(logits) != len(s.work) {
		return nil, fmt.Errorf("sample: %d logits for a vocabulary of %d", len(logits), len(s.work))
	}
	if step.Mask != nil && len(step.Mask) < (len(logits)+63)/64 {
		return nil, fmt.Errorf("sample: a mask of %d words for a vocabulary of %d", len(step.Mask), len(s.work))
	}
	if !p.adjusts(step) {
		return logits, nil
	}
	copy(s.work, logits)
	s.adjust(p, step)
	return s.work, nil
}

// draw takes the candidate in whose share u falls, u in [0, 1).
func (s *Sampler) draw(u float64) int32 {
	left := u * s.total
	last := s.cands[0].id
	for i := range s.cands {
		c := &s.cands[i]
		if c.w == 0 {
			continue
		}
		last = c.id
		if left -= float64(c.w); left < 0 {
			break
		}
	}
	return last
}
