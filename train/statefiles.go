package train

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"

	"github.com/heftai/heft/internal/smallfile"
	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/meta"
	"github.com/heftai/heft/train/data"
	"github.com/heftai/heft/train/internal/checkpoint"
	"github.com/heftai/heft/train/internal/replicas"
	"github.com/heftai/heft/train/optim"
	"github.com/heftai/heft/train/rng"
)

func stateful(x any) (Stateful, error) {
	if s, ok := x.(Stateful); ok && !nilPointer(x) {
		return s, nil
	}
	if v := reflect.ValueOf(x); v.Kind() != reflect.Pointer || v.IsNil() {
		return nil, errors.New("has no StateDict and LoadStateDict and is not a pointer")
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
	Loaders []data.LoaderPosition `json:"loaders"`
}

// positioned is a loader that knows where it is.
type positioned interface {
	Position() (data.LoaderPosition, error)
	Restore(data.LoaderPosition) error
}

// writeState writes this rank's files.
func (a *Accelerator) writeState(f *checkpoint.Folder) error {
	own, err := a.rankState()
	if err != nil {
		return err
	}
	for _, hook := range a.saveHooks {
		if err := hook(f.Temp()); err != nil {
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
	return f.WriteJSON(checkpoint.RankFile(a.comm.Rank()), own)
}

func (a *Accelerator) rankState() (rankState, error) {
	s := rankState{Step: a.state.Step, Window: a.state.Window, Ended: a.state.Ended}
	var err error
	if s.Generator, err = a.generator.MarshalBinary(); err != nil {
		return s, err
	}
	for i, l := range a.loaders {
		var p data.LoaderPosition
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
func (a *Accelerator) writeShared(f *checkpoint.Folder) error {
	for i, p := range a.group.Modules {
		if err := f.WriteTensors(checkpoint.Numbered(checkpoint.ModelFile, i), a.weights(p.Module), nil); err != nil {
			return fmt.Errorf("module %d: %w", i+1, err)
		}
	}
	for i, o := range a.optimizers {
		if err := f.WriteOptimizer(checkpoint.Numbered(checkpoint.OptimizerFile, i), o.Optimizer); err != nil {
			return fmt.Errorf("optimizer %d: %w", i+1, err)
		}
	}
	for i, s := range a.schedulers {
		if err := f.WriteJSON(checkpoint.Numbered(checkpoint.SchedulerFile, i), s.State()); err != nil {
			return err
		}
	}
	if a.cfg.Scaler != nil {
		if err := a.settleScale(); err != nil {
			return err
		}
		if err := f.WriteJSON(checkpoint.ScalerFile, a.cfg.Scaler.State()); err != nil {
			return err
		}
	}
	for i, x := range a.custom {
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

// readState reads all files of this rank's and returns the changes to make.
func (a *Accelerator) readState(dir string) (*checkpoint.Reading, error) {
	for _, hook := range a.loadHooks {
		if err := hook(dir); err != nil {
			return nil, err
		}
	}
	r := &checkpoint.Reading{Dir: dir}
	// What may find only then that a state does not fit is changed first.
	for _, read := range []func(*checkpoint.Reading) error{a.readOptimizers, a.readOthers, a.readModules, a.readRank} {
		if err := read(r); err != nil {
			return nil, err
		}
	}
	return r, nil
}

func (a *Accelerator) readModules(r *checkpoint.Reading) error {
	for i, p := range a.group.Modules {
		set, err := checkpoint.ReadTensors(r.Dir, checkpoint.Numbered(checkpoint.ModelFile, i), a.weights(p.Module), frozenOf(p))
		if err != nil {
			return err
		}
		r.Then(set)
	}
	return nil
}

func (a *Accelerator) readOptimizers(r *checkpoint.Reading) error {
	for i, o := range a.optimizers {
		name := checkpoint.Numbered(checkpoint.OptimizerFile, i)
		s, ok := o.Optimizer.(optim.Stateful)
		if !ok {
			return fmt.Errorf("optimizer %d, a %T, cannot be loaded", i+1, o.Optimizer)
		}
		path := filepath.Join(r.Dir, name)
		if err := checkpoint.ReadOptimizer(path, func(optim.OptimizerState) error { return nil }); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		r.Then(func() error { return wrap(name, checkpoint.ReadOptimizer(path, s.LoadState)) })
	}
	return nil
}

func (a *Accelerator) readOthers(r *checkpoint.Reading) error {
	for i, s := range a.schedulers {
		state, err := checkpoint.ReadJSON[optim.SchedulerState](r, checkpoint.Numbered(checkpoint.SchedulerFile, i))
		if err != nil {
			return err
		}
		r.Then(func() error { return s.LoadState(state) })
	}
	if s := a.cfg.Scaler; s != nil {
		state, err := checkpoint.ReadJSON[optim.ScalerState](r, checkpoint.ScalerFile)
		if err != nil {
			return err
		}
		r.Then(func() error { return s.LoadState(state) })
	}
	for i, x := range a.custom {
		b, err := smallfile.Read(filepath.Join(r.Dir, checkpoint.CustomFile(i)), smallfile.State)
		if err != nil {
			return err
		}
		r.Then(func() error { return wrap(checkpoint.CustomFile(i), x.LoadStateDict(b)) })
	}
	return nil
}

// readRank reads what is this rank's own. In a larger world than the one that saved, the
// ranks that it did not have begin anew, as in the reference.
func (a *Accelerator) readRank(r *checkpoint.Reading) error {
	name := checkpoint.RankFile(a.comm.Rank())
	s, err := checkpoint.ReadJSON[rankState](r, name)
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
	r.Then(func() error {
		*a.generator = *g
		a.state.Step, a.state.Window, a.state.Ended = s.Step, s.Window, s.Ended
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

// weights are the arrays of a module, tied ones once. A bare parameter is called weight.
func (a *Accelerator) weights(m Module) []checkpoint.Array {
	return checkpoint.Arrays(m, a.project.SkipFrozen)
}

func frozenOf(p *replicas.Module) map[string]bool {
	frozen := map[string]bool{}
	for name, param := range p.Module.Parameters() {
		if !param.Trainable {
			frozen[name] = true
		}
	}
	return frozen
}

// writeGradients saves this rank's gradients of a window that has not ended.
func (a *Accelerator) writeGradients(f *checkpoint.Folder) error {
	if a.state.Ended || a.state.Window == 0 {
		return nil
	}
	var arrays []checkpoint.Array
	for _, g := range a.gradients() {
		if g.Param.Grad() != nil {
			g.Data = g.Param.Grad()
			arrays = append(arrays, g)
		}
	}
	return f.WriteTensors(checkpoint.GradientsFile(a.comm.Rank()), arrays, nil)
}

// gradients are the trainable parameters, under names that no two have.
func (a *Accelerator) gradients() []checkpoint.Array {
	var all []checkpoint.Array
	for i, p := range a.group.Modules {
		for j, param := range p.Params {
			if param.Trainable {
				all = append(all, checkpoint.Array{Name: fmt.Sprintf("%d.%d", i, j), Shape: param.Shape(), Param: param})
			}
		}
	}
	return all
}

func (a *Accelerator) readGradients(r *checkpoint.Reading) error {
	path := filepath.Join(r.Dir, checkpoint.GradientsFile(a.comm.Rank()))
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	ck, err := loader.Open(path)
	if err != nil {
		return err
	}
	defer ck.Close()
	for _, g := range a.gradients() {
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
