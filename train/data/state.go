package data

import (
	"errors"
	"fmt"
	"slices"

	"github.com/heftai/heft/train/rng"
)

// LoaderPosition is the position of a loader: what a second loader over the same data, made and prepared
// alike, needs to continue with the next batch. [Loader.Position] returns it and [Loader.Restore] takes
// it. It shares no memory with the loader, and stays valid while the loader continues. It has a plain JSON form,
// in base64 where bytes are.
type LoaderPosition struct {
	// Iteration is [Loader.Iteration], and Epoch that of a [SeedableRandomSampler], nil for other
	// orders. Both are of the walk under way, or of the next one.
	Iteration int  `json:"iteration"`
	Epoch     *int `json:"epoch,omitempty"`
	// Batches is how many batches of the walk under way this rank has passed: those that it was given,
	// and those that [SkipFirstBatches] left out. It is 0 between walks. A walk that was left early is
	// under way until the next begins.
	Batches int `json:"batches"`
	// Generators are the states of the loader's own generators, and Global that of the one it shares
	// (Options.Global), both when the walk under way began, as [rng.Generator.MarshalBinary] encodes
	// them. Between walks Global is empty, because the owner of the shared generator saves it.
	Generators [][]byte `json:"generators,omitempty"`
	Global     []byte   `json:"global,omitempty"`
}

// progress is the state of the current iteration. A loader shares it with those that
// SkipFirstBatches made of it.
type progress struct {
	started *LoaderPosition // nil between walks
	yielded int
	resume  *LoaderPosition // what the next walk begins with
	shared  []byte          // where Global continues once the order is drawn anew
}

// Position returns the position of l: after the batch that the walk has yielded last, whatever workers
// have read ahead. Call it between batches or walks, in the goroutine that walks l. It copies some
// kilobytes per generator.
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
// batches that were yielded already, without reading them; a stream or a dispatching loader reads
// and drops them. The shared generator does not move. l must be prepared as the loader was that p
// comes from, except for the number of ranks: the caller converts Batches. Restore fails if p has
// another number of generators than l or damaged ones, if a number is negative, or if only one of p and l
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
	for i, b := range append(slices.Clone(p.Generators), p.Global) { // look before changing anything
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

// adopt returns p for a loader that shuffles from another generator: from its own on several ranks,
// and from the shared one on one rank. The walk at p keeps its order.
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

// enter notes the beginning of a walk, and puts the generators to where the walk that is
// to be resumed began.
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

// passOver returns how many batches the walk that just began is to leave out.
func (l *Loader[B]) passOver() int {
	w := l.progress
	if w.resume == nil {
		return 0
	}
	n := max(0, w.resume.Batches-l.skipped)
	w.resume, w.yielded = nil, n
	return n
}

// drawn puts the shared generator back to where it was before the order was drawn anew.
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

// leave notes that the walk came to its end.
func (l *Loader[B]) leave() { l.progress.started = nil }

// generators returns what l draws from: its own, and the one it shares with others.
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

// sampler returns what orders the samples, or nil if that is not known.
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

// resumed returns the source without its first n batches, and how many of them are yet to be
// passed over.
func (l *Loader[B]) resumed(n int) (source[B], int) {
	if n > 0 && !l.src.streams() {
		return l.src.skip(n), 0
	}
	return l.src, n
}
