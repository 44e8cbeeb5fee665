package runstate

import (
	"fmt"

	"github.com/heftai/heft/train/data"
	"github.com/heftai/heft/train/internal/checkpoint"
	"github.com/heftai/heft/train/internal/replicas"
)

// ownState is the state that each rank saves for itself.
type ownState struct {
	// Step is the number of batches since the last end of a loader, which is Accelerate's "step".
	// Window is the number of batches since the last optimizer step. Ended reports whether the
	// last batch ended a window.
	Step   int  `json:"step"`
	Window int  `json:"window"`
	Ended  bool `json:"window_ended"`
	// Ranks is the number of ranks that saved. 0 means unknown: older checkpoints do not store
	// it.
	Ranks int `json:"ranks,omitempty"`
	// Generator is the state of the rank's generator.
	Generator []byte `json:"generator"`
	// Loaders are the positions of the prepared loaders, in their order.
	Loaders []data.LoaderPosition `json:"loaders"`
}

// positioned is a loader that knows its position.
type positioned interface {
	Position() (data.LoaderPosition, error)
	Restore(data.LoaderPosition) error
}

// write writes this rank's files.
func (s *Store) write(f *checkpoint.Folder) error {
	err := s.writeOwn(f)
	// Even after an error this rank takes part in gathering the weights, because the others wait
	// for it.
	if e := s.writeModules(f, err == nil && s.Rank.IsMain()); err == nil {
		err = e
	}
	if e := s.Rank.GatherState(); err == nil {
		err = e
	}
	if err != nil {
		return err
	}
	return s.Rank.OnMain(func() error { return s.writeShared(f) })
}

// writeOwn writes the state of this rank alone.
func (s *Store) writeOwn(f *checkpoint.Folder) error {
	own, err := s.ownState()
	if err != nil {
		return err
	}
	for _, hook := range s.SaveHooks {
		if err := hook(f.Temp()); err != nil {
			return err
		}
	}
	if s.PendingGradients {
		if err := s.writeGradients(f); err != nil {
			return err
		}
	}
	return f.WriteJSON(checkpoint.RankFile(s.Rank.Comm.Rank()), own)
}

// writeModules gathers the weights of all modules, and writes them if writes is set.
func (s *Store) writeModules(f *checkpoint.Folder, writes bool) error {
	var first error
	for i, m := range s.Rank.Group.Modules {
		err := checkpoint.Gathered(m.Module, func() error {
			if !writes || first != nil {
				return nil
			}
			return f.WriteTensors(checkpoint.Numbered(checkpoint.ModelFile, i), s.arrays(m), nil)
		})
		if err != nil && first == nil {
			first = fmt.Errorf("module %d: %w", i+1, err)
		}
	}
	return first
}

func (s *Store) ownState() (ownState, error) {
	if s.rewound {
		return *s.marked, nil
	}
	at := s.Rank.Position
	own := ownState{Step: at.Step, Window: at.Window, Ended: at.Ended, Ranks: s.Rank.Comm.Size()}
	var err error
	if own.Generator, err = s.Rank.Generator.MarshalBinary(); err != nil {
		return own, err
	}
	for i, l := range s.Rank.Loaders {
		var p data.LoaderPosition
		if l, ok := l.(positioned); ok {
			if p, err = l.Position(); err != nil {
				return own, fmt.Errorf("loader %d: %w", i+1, err)
			}
		}
		own.Loaders = append(own.Loaders, p)
	}
	return own, nil
}

// writeShared writes the state that is the same on all ranks, except weights.
func (s *Store) writeShared(f *checkpoint.Folder) error {
	r := s.Rank
	for i, o := range r.Optimizers {
		if err := f.WriteOptimizer(checkpoint.Numbered(checkpoint.OptimizerFile, i), o.Optimizer); err != nil {
			return fmt.Errorf("optimizer %d: %w", i+1, err)
		}
	}
	for i, x := range r.Schedulers {
		if err := f.WriteJSON(checkpoint.Numbered(checkpoint.SchedulerFile, i), x.State()); err != nil {
			return err
		}
	}
	if r.Scaler != nil {
		if err := r.SettleScale(); err != nil {
			return err
		}
		if err := f.WriteJSON(checkpoint.ScalerFile, r.Scaler.State()); err != nil {
			return err
		}
	}
	for i, x := range s.registered {
		state, err := x.StateDict()
		if err == nil {
			err = f.WriteJSON(checkpoint.CustomFile(i), state)
		}
		if err != nil {
			return fmt.Errorf("registered object %d: %w", i+1, err)
		}
	}
	return nil
}

// arrays returns the arrays of a module, with tied ones only once.
func (s *Store) arrays(m *replicas.Module) []checkpoint.Array {
	return checkpoint.Arrays(m.Module, s.SkipFrozen)
}

// writeGradients saves this rank's gradients of an unfinished window.
func (s *Store) writeGradients(f *checkpoint.Folder) error {
	if s.rewound || s.Rank.Position.Ended || s.Rank.Position.Window == 0 {
		return nil
	}
	var arrays []checkpoint.Array
	for _, g := range s.gradients() {
		if g.Param.HasGrad() {
			g.Each = func(f func([]float32) error) error { return g.Param.AccessGrad(false, f) }
			arrays = append(arrays, g)
		}
	}
	return f.WriteTensors(checkpoint.GradientsFile(s.Rank.Comm.Rank()), arrays, nil)
}

// gradients returns the trainable parameters under unique names.
func (s *Store) gradients() []checkpoint.Array {
	var all []checkpoint.Array
	for i, m := range s.Rank.Group.Modules {
		for j, p := range m.Params {
			if p.Trainable {
				all = append(all, checkpoint.Array{Name: fmt.Sprintf("%d.%d", i, j), Shape: p.Shape(), Param: p})
			}
		}
	}
	return all
}
