package runstate

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/heftai/heft/internal/smallfile"
	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/meta"
	"github.com/heftai/heft/train/internal/checkpoint"
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
	// Optimizers are changed first: they may report only then that a state does not fit.
	for _, read := range []func(*checkpoint.Reading) error{s.readOptimizers, s.readOthers, s.readModules, s.readOwn} {
		if err := read(r); err != nil {
			return nil, err
		}
	}
	return r, nil
}

func (s *Store) readModules(r *checkpoint.Reading) error {
	for i, m := range s.Rank.Group.Modules {
		frozen := map[string]bool{}
		for name, p := range m.Module.Parameters() {
			if !p.Trainable {
				frozen[name] = true
			}
		}
		set, err := checkpoint.ReadTensors(r.Dir, checkpoint.Numbered(checkpoint.ModelFile, i), s.arrays(m), frozen)
		if err != nil {
			return err
		}
		r.Then(set)
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
		r.Then(func() error { return within(name, checkpoint.ReadOptimizer(path, x.LoadState)) })
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
		r.Then(func() error { return x.LoadState(state) })
	}
	if scaler := s.Rank.Scaler; scaler != nil {
		state, err := checkpoint.ReadJSON[optim.ScalerState](r, checkpoint.ScalerFile)
		if err != nil {
			return err
		}
		r.Then(func() error { return scaler.LoadState(state) })
	}
	for i, x := range s.registered {
		name := checkpoint.CustomFile(i)
		b, err := smallfile.Read(filepath.Join(r.Dir, name), smallfile.State)
		if err != nil {
			return err
		}
		r.Then(func() error { return within(name, x.LoadStateDict(b)) })
	}
	return nil
}

// readOwn reads this rank's own state. In a world larger than the one that saved, the additional
// ranks begin anew, as in Accelerate.
func (s *Store) readOwn(r *checkpoint.Reading) error {
	name := checkpoint.RankFile(s.Rank.Comm.Rank())
	own, err := checkpoint.ReadJSON[ownState](r, name)
	if errors.Is(err, fs.ErrNotExist) {
		s.Warn("the checkpoint has no state of this rank's generator", "file", name)
		return nil
	}
	if err != nil {
		return err
	}
	g := new(rng.Generator)
	if err := g.UnmarshalBinary(own.Generator); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if s.RestoreLoaders && len(own.Loaders) != len(s.Rank.Loaders) {
		return fmt.Errorf("%s: got positions of %d loaders, want %d, the number of prepared loaders", name, len(own.Loaders), len(s.Rank.Loaders))
	}
	r.Then(func() error {
		*s.Rank.Generator = *g
		at := &s.Rank.Position
		at.Step, at.Window, at.Ended = own.Step, own.Window, own.Ended
		return s.restoreLoaders(name, own)
	})
	if s.PendingGradients {
		return s.readGradients(r)
	}
	return nil
}

func (s *Store) restoreLoaders(name string, own ownState) error {
	if !s.RestoreLoaders {
		return nil
	}
	for i, l := range s.Rank.Loaders {
		if l, ok := l.(positioned); ok {
			if err := l.Restore(own.Loaders[i]); err != nil {
				return fmt.Errorf("%s: loader %d: %w", name, i+1, err)
			}
		}
	}
	return nil
}

func (s *Store) readGradients(r *checkpoint.Reading) error {
	path := filepath.Join(r.Dir, checkpoint.GradientsFile(s.Rank.Comm.Rank()))
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	ck, err := loader.Open(path)
	if err != nil {
		return err
	}
	defer ck.Close()
	for _, g := range s.gradients() {
		t, ok := ck.Lookup(g.Name)
		if !ok {
			r.Then(func() error { g.Param.ZeroGrad(); return nil })
			continue
		}
		b, err := t.Bytes()
		if err != nil {
			return err
		}
		if t.DType != meta.Float32 || len(b) != 4*g.Param.Len() {
			return fmt.Errorf("%s: tensor %q has %d bytes, want %d", filepath.Base(path), g.Name, len(b), 4*g.Param.Len())
		}
		grad := checkpoint.Floats(b)
		r.Then(func() error { g.Param.SetGrad(grad); return nil })
	}
	return nil
}
