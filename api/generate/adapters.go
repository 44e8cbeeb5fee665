package generate

import (
	"context"
	"errors"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/heftai/heft/api/wire"
	"github.com/heftai/heft/dispatch"
)

// mostAdapters is the maximum number of known adapters of all models, because clients may add
// adapters.
const mostAdapters = 4096

// lora is a known LoRA adapter of a base model. It is attached to the model when a request first
// uses it.
type lora struct {
	name, dir string
	created   time.Time

	mu       sync.Mutex // held while the adapter is being attached
	unloaded bool       // UnloadAdapter was called
	of       *Opened    // the model that it is attached to
	attached *Model
}

// AddAdapter adds a LoRA adapter to the known adapters of a base model. dir is a folder in PEFT's
// format. Its files are read when a request first uses the adapter; that request fails if they do
// not fit the model. AddAdapter fails if the name is empty or taken, if the base is unknown, or if
// there are too many adapters.
func (ms *Models) AddAdapter(base, name, dir string) error {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	e := ms.entry(base)
	if e == nil {
		return errors.New("generate: unknown model " + base)
	}
	return ms.addLora(e, &lora{name: name, dir: dir, created: modifiedAt(dir)})
}

// addLora adds an adapter. The caller holds ms.mu.
func (ms *Models) addLora(e *entry, l *lora) error {
	switch other, _, _ := ms.search(l.name); {
	case l.name == "":
		return errors.New("generate: an adapter has no name")
	case other != nil:
		return errors.New("generate: the name " + l.name + " is taken")
	case ms.adapters() >= mostAdapters:
		return errors.New("generate: too many adapters are known")
	}
	e.loras = append(e.loras, l)
	return nil
}

// adapters returns the number of known adapters. The caller holds ms.mu.
func (ms *Models) adapters() (n int) {
	for _, e := range ms.entries {
		n += len(e.loras)
	}
	return n
}

// BaseOf returns the base model for the path or name in an adapter's config. It is the model of
// that name, or the only one with the same last element, or the first model.
func (ms *Models) BaseOf(config string) string {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	config = strings.TrimRight(filepath.ToSlash(config), "/")
	if ms.entry(config) != nil {
		return config
	}
	var similar []string
	for _, e := range ms.entries {
		if path.Base(e.source.Name) == path.Base(config) {
			similar = append(similar, e.source.Name)
		}
	}
	switch {
	case len(similar) == 1:
		return similar[0]
	case len(ms.entries) > 0:
		return ms.entries[0].source.Name
	}
	return ""
}

// LoadAdapter is AddAdapter for a server that is running. It checks the files at once and loads the
// base model for that if necessary. Errors are of type *wire.Error.
func (ms *Models) LoadAdapter(ctx context.Context, base, name, dir string) error {
	ms.mu.Lock()
	other, _, _ := ms.search(name)
	e := ms.entry(base)
	ms.mu.Unlock()
	switch {
	case other != nil:
		return wire.Invalidf("lora_name", "The name `%s` is taken.", name)
	case e == nil:
		return noModel(base)
	}
	m, err := ms.Use(ctx, base)
	if err != nil {
		return err
	}
	ms.mu.Lock()
	l := &lora{name: name, dir: dir, created: modifiedAt(dir)}
	err = ms.addLora(e, l)
	opened := e.opened // the request of ctx keeps it loaded
	ms.mu.Unlock()
	if err != nil {
		return wire.Invalidf("lora_name", "%v.", err)
	}
	if _, err := l.attach(opened, m); err != nil {
		_ = ms.UnloadAdapter(name)
		return wire.Invalidf("lora_path", "The adapter cannot be loaded: %v.", err)
	}
	return nil
}

// UnloadAdapter removes an adapter that AddAdapter or LoadAdapter added. Requests that use it or
// wait for it finish. It returns an error of kind wire.NoModel for any other name.
func (ms *Models) UnloadAdapter(name string) error {
	ms.mu.Lock()
	var gone *lora
	var of *entry
	for _, e := range ms.entries {
		if i := slices.IndexFunc(e.loras, func(l *lora) bool { return l.name == name }); i >= 0 {
			gone, of = e.loras[i], e
			e.loras = slices.Delete(e.loras, i, i+1)
		}
	}
	if gone == nil {
		ms.mu.Unlock()
		return noModel(name)
	}
	opened := of.opened
	of.users++ // keeps it loaded
	ms.mu.Unlock()
	defer ms.release(of, false)
	gone.mu.Lock()
	defer gone.mu.Unlock()
	gone.unloaded = true
	if gone.of != nil && gone.of == opened {
		gone.attached.dispatched.RemoveAdapter(name)
	}
	return nil
}

// attach attaches the adapter to opened and returns it as a model. opened must stay loaded
// meanwhile.
func (l *lora) attach(opened *Opened, base *Model) (*Model, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.of == opened:
		return l.attached, nil
	case l.unloaded, base.dispatched == nil:
		return nil, dispatch.ErrNoAdapter
	}
	if err := base.dispatched.AddAdapter(dispatch.Adapter{Name: l.name, Dir: l.dir}); err != nil {
		return nil, err
	}
	adapted, err := base.engine.Adapted(l.name)
	if err != nil {
		return nil, err
	}
	l.of, l.attached = opened, base.adapter(l.name, l.created)
	l.attached.adapted = adapted
	return l.attached, nil
}

// adapter returns a model that runs an adapter of m.
func (m *Model) adapter(name string, created time.Time) *Model {
	return &Model{Name: name, Adapter: name, Parent: m.Name, Created: created, Config: m.Config, Text: m.Text,
		engine: m.engine, dispatched: m.dispatched, compiled: m.compiled}
}

// known returns the adapter's entry in lists of models.
func (l *lora) known(e *entry) Known {
	k := Known{Name: l.name, Parent: e.source.Name, Created: l.created, State: ModelKnown}
	if l.mu.TryLock() { // otherwise it is being attached
		if e.opened != nil && l.of == e.opened {
			k.State, k.Model = ModelReady, l.attached
		}
		l.mu.Unlock()
	}
	return k
}
