package runstate

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/heftai/heft/internal/smallfile"
	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/meta"
	"github.com/heftai/heft/train/data"
	"github.com/heftai/heft/train/internal/checkpoint"
	"github.com/heftai/heft/train/internal/rank"
	"github.com/heftai/heft/train/optim"
	"github.com/heftai/heft/train/rng"
)

// read reads and checks all files of this rank and returns the changes to make.
func (s *Store) read(dir string) (*checkpoint.Reading, error) {
	for _, hook := range s.LoadHooks {
		if err := hook(dir); err != nil {
			return nil, err
		}
	}
	r := &checkpoint.Reading{Dir: dir}
	// Change optimizers first, because they may detect only then that a state does not fit.
	for _, read := range []func(*checkpoint.Reading) error{s.readOptimizers, s.readOthers, s.readModules, s.readOwn} {
		if err := read(r); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// Readable splits the arrays of a checkpoint into those that r reads and the names of those that
// rank 0 reads for all ranks, because they share them.
func Readable(r *rank.Rank, arrays []checkpoint.Array) (mine []checkpoint.Array, others []string) {
	for _, x := range arrays {
		if x.Param != nil && !r.Group.Changes(x.Param) {
			others = append(others, x.Name)
			continue
		}
		mine = append(mine, x)
	}
	return mine, others
}

func (s *Store) readModules(r *checkpoint.Reading) error {
	for i, m := range s.Rank.Group.Modules {
		frozen := map[string]bool{}
		for name, p := range m.Module.Parameters() {
			if !p.Trainable {
				frozen[name] = true
			}
		}
		arrays, skip := Readable(s.Rank, s.arrays(m))
		for _, name := range skip {
			frozen[name] = true
		}
		set, err := checkpoint.ReadTensors(r.Dir, checkpoint.Numbered(checkpoint.ModelFile, i), arrays, frozen)
		if err != nil {
			return err
		}
		r.Defer(set)
	}
	return nil
}

func (s *Store) readOptimizers(r *checkpoint.Reading) error {
	for i, o := range s.Rank.Optimizers {
		name := checkpoint.Numbered(checkpoint.OptimizerFile, i)
		x, ok := o.Optimizer.(optim.Stateful)
		if !ok {
			return fmt.Errorf("optimizer %d, a %T, cannot be loaded", i+1, o.Optimizer)
		}
		path := filepath.Join(r.Dir, name)
		if err := checkpoint.ReadOptimizer(path, func(optim.OptimizerState) error { return nil }); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if err := checkpoint.Verify(r.Dir, name); err != nil {
			return err
		}
		r.Defer(func() error { return within(name, checkpoint.ReadOptimizer(path, x.LoadState)) })
	}
	return nil
}

// within adds the name of a file to an error.
func within(name string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", name, err)
}

func (s *Store) readOthers(r *checkpoint.Reading) error {
	for i, x := range s.Rank.Schedulers {
		state, err := checkpoint.ReadJSON[optim.SchedulerState](r, checkpoint.Numbered(checkpoint.SchedulerFile, i))
		if err != nil {
			return err
		}
		r.Defer(func() error { return x.LoadState(state) })
	}
	if scaler := s.Rank.Scaler; scaler != nil {
		state, err := checkpoint.ReadJSON[optim.ScalerState](r, checkpoint.ScalerFile)
		if err != nil {
			return err
		}
		r.Defer(func() error { return scaler.LoadState(state) })
	}
	for i, x := range s.registered {
		name := checkpoint.CustomFile(i)
		b, err := smallfile.Read(filepath.Join(r.Dir, name), smallfile.State)
		if err == nil {
			err = checkpoint.Verify(r.Dir, name)
		}
		if err != nil {
			return err
		}
		r.Defer(func() error { return within(name, x.LoadStateDict(b)) })
	}
	return nil
}

// readOwn reads this rank's own state. If there are more ranks than when the checkpoint was
// saved, the additional ranks start with new generators, as in Accelerate.
func (s *Store) readOwn(r *checkpoint.Reading) error {
	first, err := checkpoint.ReadJSON[ownState](r, checkpoint.RankFile(0))
	if err != nil {
		return err
	}
	ranks, size, rank := first.Ranks, s.Rank.Comm.Size(), s.Rank.Comm.Rank()
	if rank == 0 && ranks > 0 && ranks != size {
		s.warnResized(ranks, size)
	}
	loaders, name := first.Loaders, checkpoint.RankFile(0)
	if ranks > 0 && ranks != size {
		loaders = s.resized(loaders, ranks, size)
	}
	own := first
	if rank > 0 {
		own, err = checkpoint.ReadJSON[ownState](r, checkpoint.RankFile(rank))
		if errors.Is(err, fs.ErrNotExist) && (ranks == 0 || rank >= ranks) {
			return s.readAdditional(r, first, loaders)
		}
		if ranks == 0 || ranks == size {
			loaders, name = own.Loaders, checkpoint.RankFile(rank)
		}
	}
	if err != nil {
		return err
	}
	g := new(rng.Generator)
	if err := g.UnmarshalBinary(own.Generator); err != nil {
		return fmt.Errorf("%s: %w", checkpoint.RankFile(rank), err)
	}
	if err := s.checkLoaders(name, loaders); err != nil {
		return err
	}
	r.Defer(func() error {
		*s.Rank.Generator = *g
		at := &s.Rank.Position
		at.Step, at.Window, at.Ended = own.Step, own.Window, own.Ended
		return s.restoreLoaders(name, loaders)
	})
	if s.PendingGradients {
		return s.readGradients(r)
	}
	return nil
}

// readAdditional reads for a rank that did not exist when the checkpoint was saved. The rank
// takes rank 0's place in the accumulation window; otherwise ranks would end their windows at
// different batches.
func (s *Store) readAdditional(r *checkpoint.Reading, first ownState, loaders []data.LoaderPosition) error {
	if first.Ranks == 0 {
		s.Warn("the checkpoint has no state of this rank's generator", "file", checkpoint.RankFile(s.Rank.Comm.Rank()))
		return nil
	}
	if err := s.checkLoaders(checkpoint.RankFile(0), loaders); err != nil {
		return err
	}
	r.Defer(func() error {
		at := &s.Rank.Position
		at.Step, at.Window, at.Ended = first.Step, first.Window, first.Ended
		return s.restoreLoaders(checkpoint.RankFile(0), loaders)
	})
	return nil
}

// warnResized warns about the effects of a different number of ranks.
func (s *Store) warnResized(saved, now int) {
	lost := "none"
	if now < saved {
		lost = fmt.Sprintf("generators of ranks %d to %d", now, saved-1)
		if now == saved-1 {
			lost = fmt.Sprintf("the generators of rank %d", now)
		}
		if s.PendingGradients {
			lost += " and their gradients of an unfinished window"
		}
	}
	loaders := "begin a new walk"
	if s.RestoreLoaders {
		loaders = "continue at the same sample, or less than one step of all ranks before it"
	}
	s.Warn("the checkpoint is of another number of ranks: weights and optimizer state continue, random numbers and the samples of a step differ from here on",
		"saved_by", saved, "ranks", now, "not_used", lost, "loaders", loaders)
}

// resized returns the positions at which loaders of now ranks continue after those of saved
// ranks. If the number of batches taken is not a multiple of now, some samples repeat.
func (s *Store) resized(positions []data.LoaderPosition, saved, now int) []data.LoaderPosition {
	if s.SplitBatches { // a batch is that of all ranks together
		return positions
	}
	positions = slices.Clone(positions)
	for i := range positions {
		positions[i].Batches = positions[i].Batches * saved / now
	}
	return positions
}

func (s *Store) checkLoaders(name string, positions []data.LoaderPosition) error {
	if s.FirstLoaders && len(positions) > 0 {
		return nil
	}
	if s.RestoreLoaders && len(positions) != len(s.Rank.Loaders) {
		return fmt.Errorf("%s: got positions of %d loaders, want %d, the number of prepared loaders", name, len(positions), len(s.Rank.Loaders))
	}
	return nil
}

func (s *Store) restoreLoaders(name string, positions []data.LoaderPosition) error {
	if !s.RestoreLoaders {
		return nil
	}
	for i, l := range s.Rank.Loaders[:min(len(s.Rank.Loaders), len(positions))] {
		if l, ok := l.(positioned); ok {
			if err := l.Restore(positions[i]); err != nil {
				return fmt.Errorf("%s: loader %d: %w", name, i+1, err)
			}
		}
	}
	return nil
}

func (s *Store) readGradients(r *checkpoint.Reading) error {
	name := checkpoint.GradientsFile(s.Rank.Comm.Rank())
	path := filepath.Join(r.Dir, name)
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	ck, err := loader.Open(path)
	if err != nil {
		return err
	}
	defer ck.Close()
	if err := checkpoint.Verify(r.Dir, name); err != nil {
		return err
	}
	for _, g := range s.gradients() {
		t, ok := ck.Lookup(g.Name)
		if !ok {
			r.Defer(func() error { g.Param.ZeroGrad(); return nil })
			continue
		}
		b, err := t.Bytes()
		if err != nil {
			return err
		}
		if t.DType != meta.Float32 || len(b) != 4*g.Param.Len() {
			return fmt.Errorf("%s: tensor %q has %d bytes, want %d", name, g.Name, len(b), 4*g.Param.Len())
		}
		grad := checkpoint.Floats(b)
		r.Defer(func() error { g.Param.SetGrad(grad); return nil })
	}
	return nil
}
