package data

import (
	"errors"
	"fmt"
	"slices"

	"github.com/heftai/heft/train/rng"
)

// LoaderPosition is the position of a loader. A second loader over the same data that is made and
// prepared alike continues from it with the next batch. [Loader.Position] returns it and
// [Loader.Restore] takes it. It shares no memory with the loader, and stays valid while the loader
// continues. It has a plain JSON form, with bytes in base64.
type LoaderPosition struct {
	// Iteration is [Loader.Iteration]. Epoch is that of a [SeedableRandomSampler], or nil for other
	// orders. Both refer to the current walk, or between walks to the next one.
	Iteration int  `json:"iteration"`
	Epoch     *int `json:"epoch,omitempty"`
	// Batches is the number of batches of the current walk that this rank has passed: those yielded
	// and those skipped by [SkipFirstBatches]. It is 0 between walks. A walk that was left early is
	// current until the next one begins.
	Batches int `json:"batches"`
	// Generators are the states of the loader's own generators, and Global that of the shared one
	// (Options.Global), both at the beginning of the current walk, as encoded by
	// [rng.Generator.MarshalBinary]. Between walks Global is empty, because the owner of the shared
	// generator saves it.
	Generators [][]byte `json:"generators,omitempty"`
	Global     []byte   `json:"global,omitempty"`
}

// progress is the state of the current iteration. A loader shares it with loaders that
// SkipFirstBatches has derived from it.
type progress struct {
	started *LoaderPosition // nil between walks
	yielded int
	resume  *LoaderPosition // where the next walk begins
	shared  []byte          // where Global continues once the order has been drawn again
}

// Position returns the position of l after the batch that the walk has yielded last, no matter what
// workers have read ahead. Call it between batches or walks, in the goroutine that walks l. It
// copies some kilobytes per generator.
func (l *Loader[B]) Position() (LoaderPosition, error) {
	w := l.progress
	switch {
	case w.resume != nil:
		return *w.resume, nil
	case w.started == nil:
		return l.start()
	}
	p := *w.started
	p.Batches = l.skipped + w.yielded
	return p, nil
}

// Restore lets the next walk of l continue at p. The walk draws the same order and skips the
// batches that have been yielded, without reading them; a stream or a dispatching loader reads and
// drops them. The shared generator does not advance. l must be prepared like the loader of p,
// except for the number of ranks: the caller converts Batches. Restore fails if p has another
// number of generators than l or damaged ones, if a number is negative, or if only one of p and l
// has a shared generator. Call it between walks.
func (l *Loader[B]) Restore(p LoaderPosition) error {
	p, err := l.adopt(p)
	if err != nil {
		return err
	}
	own, shared := l.generators()
	switch {
	case len(p.Generators) != len(own):
		return fmt.Errorf("data: restore: got a position with %d generators, want %d", len(p.Generators), len(own))
	case p.Iteration < 0 || p.Batches < 0:
		return fmt.Errorf("data: restore: got a position at epoch %d, batch %d, want neither negative", p.Iteration, p.Batches)
	case p.Batches > 0 && (shared != nil) != (len(p.Global) > 0):
		return errors.New("data: only one of the position and the loader draws from a shared generator")
	}
	for i, b := range append(slices.Clone(p.Generators), p.Global) { // check before changing anything
		if i == len(own) && len(b) == 0 {
			continue
		}
		if err := rng.New(0).UnmarshalBinary(b); err != nil {
			return fmt.Errorf("data: the position's generator %d: %w", i, err)
		}
	}
	for i, g := range own {
		if err := g.UnmarshalBinary(p.Generators[i]); err != nil {
			return fmt.Errorf("data: the position's generator %d: %w", i, err)
		}
	}
	l.SetEpoch(p.Iteration)
	if s := l.seedable(); s != nil && p.Epoch != nil {
		s.SetEpoch(*p.Epoch)
	}
	*l.progress = progress{}
	if p.Batches > 0 {
		l.progress.resume = &p
	}
	return nil
}

// adopt returns p for a loader that shuffles from another generator: its own with several ranks,
// the shared one with one rank. The walk at p keeps its order.
func (l *Loader[B]) adopt(p LoaderPosition) (LoaderPosition, error) {
	r, ok := l.sampler().(*RandomSampler)
	if !ok || l.opts.Generator != nil {
		return p, nil
	}
	switch {
	case r.Generator == nil && len(p.Generators) == 1: // of several ranks
		r.Generator = rng.New(0)
	case r.Generator != nil && len(p.Generators) == 0: // of one rank
		g := r.Generator
		if p.Batches > 0 && len(p.Global) > 0 {
			walk := rng.New(0)
			if err := walk.UnmarshalBinary(p.Global); err != nil {
				return p, fmt.Errorf("data: the position's shared generator: %w", err)
			}
			if l.opts.Global != nil {
				walk.Int63() // as All draws before the order
			}
			g = rng.New(uint64(walk.Int63()))
		}
		b, err := g.MarshalBinary()
		if err != nil {
			return p, err
		}
		p.Generators = [][]byte{b}
	}
	return p, nil
}

// start returns the position at which a walk begins now.
func (l *Loader[B]) start() (LoaderPosition, error) {
	p := LoaderPosition{Iteration: l.iteration}
	if s := l.seedable(); s != nil {
		epoch := s.Epoch()
		p.Epoch = &epoch
	}
	own, _ := l.generators()
	for _, g := range own {
		b, err := g.MarshalBinary()
		if err != nil {
			return p, err
		}
		p.Generators = append(p.Generators, b)
	}
	return p, nil
}

// enter records the beginning of a walk. To resume a walk, it sets the generators to their states
// at the beginning of that walk.
func (l *Loader[B]) enter() error {
	w := l.progress
	_, shared := l.generators()
	if w.resume != nil && shared != nil {
		now, err := shared.MarshalBinary()
		if err == nil {
			err = shared.UnmarshalBinary(w.resume.Global)
		}
		if err != nil {
			return fmt.Errorf("data: resume: %w", err)
		}
		w.shared = now
	}
	p, err := l.start()
	if err == nil && shared != nil {
		p.Global, err = shared.MarshalBinary()
	}
	w.started, w.yielded = &p, 0
	return err
}

// passOver returns how many batches the walk that just began must skip.
func (l *Loader[B]) passOver() int {
	w := l.progress
	if w.resume == nil {
		return 0
	}
	n := max(0, w.resume.Batches-l.skipped)
	w.resume, w.yielded = nil, n
	return n
}

// drawn restores the state of the shared generator from before the order was drawn again.
func (l *Loader[B]) drawn() error {
	w := l.progress
	if w.shared == nil {
		return nil
	}
	_, shared := l.generators()
	b := w.shared
	w.shared = nil
	return shared.UnmarshalBinary(b)
}

// leave records that the walk has reached its end.
func (l *Loader[B]) leave() { l.progress.started = nil }

// generators returns the generators of l: its own, and the shared one.
func (l *Loader[B]) generators() (own []*rng.Generator, shared *rng.Generator) {
	add := func(g *rng.Generator) {
		if g != nil && !slices.Contains(own, g) {
			own = append(own, g)
		}
	}
	shared = l.opts.Global
	add(l.opts.Generator)
	if r, ok := l.sampler().(*RandomSampler); ok {
		add(r.Generator)
		if shared == nil {
			shared = r.Global
		}
	}
	return own, shared
}

func (l *Loader[B]) seedable() *SeedableRandomSampler {
	s, _ := l.sampler().(*SeedableRandomSampler)
	return s
}

// sampler returns the sampler that orders the samples, or nil if it is unknown.
func (l *Loader[B]) sampler() Sampler {
	b := l.src.batchSampler()
	for {
		switch x := b.(type) {
		case *FixedBatchSampler:
			return x.sampler
		case skipped:
			b = x.of
		case *BatchShard:
			b = x.of
		default:
			return nil
		}
	}
}

// resumed returns the source without its first n batches, and the number of these that the walk
// must still skip.
func (l *Loader[B]) resumed(n int) (source[B], int) {
	if n > 0 && !l.src.streams() {
		return l.src.skip(n), 0
	}
	return l.src, n
}
