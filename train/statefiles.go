package train

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"

	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/train/data"
	"github.com/heftai/heft/train/optim"
	"github.com/heftai/heft/train/rng"
)

func stateful(x any) (Stateful, error) {
	if s, ok := x.(Stateful); ok && !nilPointer(x) {
		return s, nil
	}
	if v := reflect.ValueOf(x); v.Kind() != reflect.Pointer || v.IsNil() {
		return nil, errors.New("has no StateDict and LoadStateDict and is no pointer")
	}
	if _, err := json.Marshal(x); err != nil {
		return nil, fmt.Errorf("has no StateDict and LoadStateDict and no JSON form: %w", err)
	}
	return plain{x}, nil
}

func nilPointer(x any) bool {
	v := reflect.ValueOf(x)
	return v.Kind() == reflect.Pointer && v.IsNil()
}

// rankState is what each rank saves for itself.
type rankState struct {
	// Step is the number of batches since the last end of a loader: the reference's
	// "step". Window is that of batches since the last step, Ended whether it was at the
	// last batch.
	Step   int  `json:"step"`
	Window int  `json:"window"`
	Ended  bool `json:"window_ended"`
	// Generator is where [Accelerator.Generator] is.
	Generator []byte `json:"generator"`
	// Loaders are where the prepared loaders are, in their order.
	Loaders []data.Position `json:"loaders"`
}

// positioned is a loader that knows where it is.
type positioned interface {
	Position() (data.Position, error)
	Restore(data.Position) error
}

// writeState writes this rank's files.
func (a *Accelerator) writeState(f *aside) error {
	own, err := a.rankState()
	if err != nil {
		return err
	}
	for _, hook := range a.saveHooks {
		if err := hook(f.temp()); err != nil {
			return err
		}
	}
	if a.cfg.Corrections.PendingGradients {
		if err := a.writeGradients(f); err != nil {
			return err
		}
	}
	if a.IsMainProcess() {
		if err := a.writeShared(f); err != nil {
			return err
		}
	}
	return writeJSON(f, randomFile(a.comm.Rank()), own)
}

func (a *Accelerator) rankState() (rankState, error) {
	s := rankState{Step: a.state.step, Window: a.state.window, Ended: a.state.ended}
	var err error
	if s.Generator, err = a.generator.MarshalBinary(); err != nil {
		return s, err
	}
	for i, l := range a.loaders {
		var p data.Position
		if l, ok := l.(positioned); ok {
			if p, err = l.Position(); err != nil {
				return s, fmt.Errorf("loader %d: %w", i+1, err)
			}
		}
		s.Loaders = append(s.Loaders, p)
	}
	return s, nil
}

// writeShared writes what is the same on all ranks.
func (a *Accelerator) writeShared(f *aside) error {
	for i, p := range a.modules {
		if err := a.writeTensors(f, numbered(modelFile, i), a.weights(p.module), nil); err != nil {
			return fmt.Errorf("module %d: %w", i+1, err)
		}
	}
	for i, o := range a.optimizers {
		if err := a.writeOptimizer(f, numbered(optimizerFile, i), o); err != nil {
			return fmt.Errorf("optimizer %d: %w", i+1, err)
		}
	}
	for i, s := range a.schedulers {
		if err := writeJSON(f, numbered(schedulerFile, i), s.State()); err != nil {
			return err
		}
	}
	if a.cfg.Scaler != nil {
		if err := a.settleScale(); err != nil {
			return err
		}
		if err := writeJSON(f, scalerFile, a.cfg.Scaler.State()); err != nil {
			return err
		}
	}
	for i, x := range a.custom {
		state, err := x.StateDict()
		if err == nil {
			err = writeJSON(f, customFile(i), state)
		}
		if err != nil {
			return fmt.Errorf("registered object %d: %w", i+1, err)
		}
	}
	return nil
}

func writeJSON(f *aside, name string, x any) error {
	b, err := json.MarshalIndent(x, "", " ")
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return f.write(name, append(b, '\n'))
}

// writeTensors writes a safetensors file.
func (a *Accelerator) writeTensors(f *aside, name string, tensors []namedFloats, metadata map[string]string) error {
	if err := f.change("write %s", name); err != nil {
		return err
	}
	stem := name[:len(name)-len(filepath.Ext(name))]
	return loader.Save(f.temp(), slices.Values(toSave(tensors)), loader.SaveOptions{Stem: stem, Metadata: metadata})
}

// reading is a checkpoint that is looked at as a whole before anything is changed.
type reading struct {
	dir    string
	change []func() error
}

func (r *reading) then(f func() error) { r.change = append(r.change, f) }

func readJSON[T any](r *reading, name string) (x T, err error) {
	b, err := os.ReadFile(filepath.Join(r.dir, name))
	if err == nil {
		err = json.Unmarshal(b, &x)
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", name, err)
	}
	return x, err
}

// readState reads all files of this rank's and returns the changes to make.
func (a *Accelerator) readState(dir string) ([]func() error, error) {
	for _, hook := range a.loadHooks {
		if err := hook(dir); err != nil {
			return nil, err
		}
	}
	r := &reading{dir: dir}
	// What may find only then that a state does not fit is changed first.
	for _, read := range []func(*reading) error{a.readOptimizers, a.readOthers, a.readModules, a.readRank} {
		if err := read(r); err != nil {
			return nil, err
		}
	}
	return r.change, nil
}

func (a *Accelerator) readModules(r *reading) error {
	for i, p := range a.modules {
		set, err := readTensors(r, numbered(modelFile, i), a.weights(p.module), frozenOf(p))
		if err != nil {
			return err
		}
		r.then(set)
	}
	return nil
}

func (a *Accelerator) readOptimizers(r *reading) error {
	for i, o := range a.optimizers {
		name := numbered(optimizerFile, i)
		s, ok := o.Optimizer.(optim.Stateful)
		if !ok {
			return fmt.Errorf("optimizer %d, a %T, cannot be loaded", i+1, o.Optimizer)
		}
		path := filepath.Join(r.dir, name)
		if err := withOptimizer(path, func(optim.State) error { return nil }); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		r.then(func() error { return wrap(name, withOptimizer(path, s.LoadState)) })
	}
	return nil
}

func (a *Accelerator) readOthers(r *reading) error {
	for i, s := range a.schedulers {
		state, err := readJSON[optim.SchedulerState](r, numbered(schedulerFile, i))
		if err != nil {
			return err
		}
		r.then(func() error { return s.LoadState(state) })
	}
	if s := a.cfg.Scaler; s != nil {
		state, err := readJSON[optim.ScalerState](r, scalerFile)
		if err != nil {
			return err
		}
		r.then(func() error { return s.LoadState(state) })
	}
	for i, x := range a.custom {
		b, err := os.ReadFile(filepath.Join(r.dir, customFile(i)))
		if err != nil {
			return err
		}
		r.then(func() error { return wrap(customFile(i), x.LoadStateDict(b)) })
	}
	return nil
}

// readRank reads what is this rank's own. In a larger world than the one that saved, the
// ranks that it did not have begin anew, as in the reference.
func (a *Accelerator) readRank(r *reading) error {
	name := randomFile(a.comm.Rank())
	s, err := readJSON[rankState](r, name)
	if errors.Is(err, fs.ErrNotExist) {
		a.logger.Warn("the checkpoint has no state of this rank's generator", "file", name)
		return nil
	}
	if err != nil {
		return err
	}
	g := new(rng.Generator)
	if err := g.UnmarshalBinary(s.Generator); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	stateful := a.cfg.DataLoader.UseStatefulDataLoader
	if stateful && len(s.Loaders) != len(a.loaders) {
		return fmt.Errorf("%s: the positions of %d loaders, %d are prepared", name, len(s.Loaders), len(a.loaders))
	}
	r.then(func() error {
		*a.generator = *g
		a.state.step, a.state.window, a.state.ended = s.Step, s.Window, s.Ended
		for i, l := range a.loaders {
			if l, ok := l.(positioned); ok && stateful {
				if err := l.Restore(s.Loaders[i]); err != nil {
					return fmt.Errorf("%s: loader %d: %w", name, i+1, err)
				}
			}
		}
		return nil
	})
	if a.cfg.Corrections.PendingGradients {
		return a.readGradients(r)
	}
	return nil
}
