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

// mostAdapters bounds the adapters that are known, of all models, as clients may add some.
const mostAdapters = 4096

// lora is a known adapter of a base model. It is attached to the model when a request uses it.
type lora struct {
	name, dir string
	created   time.Time

	mu       sync.Mutex // held while it is attached
	unloaded bool       // UnloadAdapter was called
	of       *Opened    // what it is attached to
	attached *Model
}

// AddAdapter makes a LoRA adapter of a base model known, in the folder dir of PEFT's files. Its files are read when a request
// first uses it, which fails if they do not fit the model. It fails if the name is empty or taken, the base is unknown,
// or too many adapters are known.
func (ms *Models) AddAdapter(base, name, dir string) error {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	e := ms.entry(base)
	if e == nil {
		return errors.New("generate: unknown model " + base)
	}
	return ms.addLora(e, &lora{name: name, dir: dir, created: modifiedAt(dir)})
}

// addLora adds an adapter. ms.mu is held.
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

// adapters is the number of known adapters. ms.mu is held.
func (ms *Models) adapters() (n int) {
	for _, e := range ms.entries {
		n += len(e.loras)
	}
	return n
}

// BaseOf returns the name of the base model that an adapter's config calls by path or name: the model of that name, else
// the only one with the same last element, else the first one.
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

// LoadAdapter is AddAdapter for a base model while it serves: it checks the files at once, for which it loads the model if
// necessary. Errors are of type *wire.Error.
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
	opened := e.opened // the request of ctx keeps it
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

// UnloadAdapter forgets an adapter of AddAdapter or LoadAdapter. Requests that use it, or wait for it, finish. It fails with an error of kind
// wire.NoModel for another name.
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
	of.users++ // it stays loaded
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

// attach returns the adapter as a model of opened, which stays loaded meanwhile.
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

// adapter is a model that runs an adapter of m.
func (m *Model) adapter(name string, created time.Time) *Model {
	return &Model{Name: name, Adapter: name, Parent: m.Name, Created: created, Config: m.Config, Text: m.Text,
		engine: m.engine, dispatched: m.dispatched, compiled: m.compiled}
}

// known is the adapter in lists.
func (l *lora) known(e *entry) Known {
	k := Known{Name: l.name, Parent: e.source.Name, Created: l.created, State: ModelKnown}
	if l.mu.TryLock() { // else it is being attached
		if e.opened != nil && l.of == e.opened {
			k.State, k.Model = ModelReady, l.attached
		}
		l.mu.Unlock()
	}
	return k
}
