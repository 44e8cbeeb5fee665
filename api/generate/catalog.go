package generate

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/heftai/heft/api/wire"
)

// Models are the models of a server. Some stay loaded while the server runs. Others have a
// [Source]: the first request for such a model loads it. It is unloaded when it has been idle for
// long enough, or when another model needs its memory. A model is never unloaded while a request
// uses it. Models is safe for concurrent use.
type Models struct {
	options ModelsOptions

	mu       sync.Mutex
	entries  []*entry
	loaded   []func(*Model)
	changed  chan struct{} // closed and replaced when a model becomes idle, or its state changes
	draining bool
	work     chan struct{} // holds one token, because models are loaded and unloaded one at a time
	loaders  sync.WaitGroup
}

// ModelsOptions are the options of loading and unloading. The zero value never unloads an idle
// model.
type ModelsOptions struct {
	// LoadTimeout is the maximum time that a request waits for its model; 0 means a minute. After
	// that the request fails with kind Loading. Loading continues while other requests wait for it.
	LoadTimeout time.Duration
	// IdleUnload is the time without requests after which a model is unloaded; 0 means never.
	IdleUnload time.Duration
}

// A Source is a model that is loaded on demand.
type Source struct {
	Name    string    // name in requests
	Created time.Time // shown in lists of models; zero means the time of Add
	// Open loads the model. It may wait for memory that other models hold, until ctx ends; see
	// [Models.MakeRoom].
	Open func(ctx context.Context) (*Opened, error)
}

// Opened is a loaded model.
type Opened struct {
	Model *Model
	Plan  func() any // the value of GET /plan; nil: the plan of the dispatched model
	Close func()     // releases the model after its engine has stopped; nil: nothing to release
}

// A ModelState is the state of a model of a server.
type ModelState string

// The states of models.
const (
	ModelKnown   ModelState = "known" // not loaded; the next request loads it
	ModelLoading ModelState = "loading"
	ModelReady   ModelState = "ready"  // requests run at once
	ModelFailed  ModelState = "failed" // the last attempt to load it failed; a later request tries again
)

// Known describes a model of a server at one moment.
type Known struct {
	Name    string
	Parent  string // base model of an adapter; otherwise ""
	Created time.Time
	State   ModelState
	Err     error // why loading failed, if State is ModelFailed
	// Model is nil if the model is not loaded. Its dispatched model may be closed at any time; see
	// [Models.Each].
	Model *Model
}

// entry is a base model with its adapters.
type entry struct {
	source   Source // Open is nil for a model that stays loaded
	state    ModelState
	opened   *Opened
	adapters []*Model // adapters that stay attached
	loras    []*lora
	err      error
	failed   time.Time
	users    int  // number of leases
	unload   bool // unload it when no request uses it
	waiting  int  // number of requests that wait for it to be loaded
	used     time.Time
	done     chan struct{}      // closed when loading has ended
	cancel   context.CancelFunc // cancels loading
}

// NewModels returns the models of list, which stay loaded until the caller closes them. The first
// model answers requests that name no model. NewModels skips nil, and models that were not made by
// [New].
func NewModels(list ...*Model) *Models {
	ms := NewCatalog(ModelsOptions{})
	for _, m := range list {
		if m == nil || m.engine == nil {
			continue
		}
		if m.Parent != "" {
			if e := ms.entry(m.Parent); e != nil {
				e.adapters = append(e.adapters, m)
				continue
			}
		}
		ms.entries = append(ms.entries, &entry{source: Source{Name: m.Name, Created: m.Created}, state: ModelReady, opened: &Opened{Model: m}})
	}
	return ms
}

// NewCatalog returns an empty list of models; see [Models.Add].
func NewCatalog(o ModelsOptions) *Models {
	if o.LoadTimeout == 0 {
		o.LoadTimeout = time.Minute
	}
	ms := &Models{options: o, changed: make(chan struct{}), work: make(chan struct{}, 1)}
	ms.work <- struct{}{}
	return ms
}

// Add adds a model that is loaded on demand. The first added model answers requests that name no
// model. Add fails if the name is empty or taken, or if Open is nil.
func (ms *Models) Add(s Source) error {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	if s.Name == "" {
		return errors.New("generate: a model has no name")
	}
	if s.Open == nil {
		return errors.New("generate: model " + s.Name + ": Source.Open is nil")
	}
	if e, _, _ := ms.search(s.Name); e != nil {
		return errors.New("generate: the name " + s.Name + " is taken")
	}
	if s.Created.IsZero() {
		s.Created = time.Now()
	}
	ms.entries = append(ms.entries, &entry{source: s, state: ModelKnown})
	return nil
}

// Take makes o the loaded model of a name that [Models.Add] has added. It fails if the name is
// unknown or its model is already loaded.
func (ms *Models) Take(name string, o *Opened) error {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	if o == nil || o.Model == nil {
		return errors.New("generate: " + name + ": got no model")
	}
	e := ms.entry(name)
	if e == nil || e.state != ModelKnown {
		return errors.New("generate: " + name + " is unknown, or loaded")
	}
	e.state, e.opened, e.used, e.adapters = ModelReady, o, time.Now(), o.Model.Adapters()
	return nil
}

// entry returns the base model of a name, or nil. The caller holds ms.mu.
func (ms *Models) entry(name string) *entry {
	i := slices.IndexFunc(ms.entries, func(e *entry) bool { return e.source.Name == name })
	if i < 0 {
		return nil
	}
	return ms.entries[i]
}

// latest is a suffix that Ollama's clients add to names of models.
const latest = ":latest"

// find returns the base model of a name, or the first one for "". If the name is an adapter's, it
// also returns the adapter. If no model has the name, find looks for it without ":latest". The
// caller holds ms.mu.
func (ms *Models) find(name string) (*entry, *Model, *lora) {
	if name == "" && len(ms.entries) > 0 {
		return ms.entries[0], nil, nil
	}
	if e, adapter, l := ms.search(name); e != nil {
		return e, adapter, l
	}
	if short, ok := strings.CutSuffix(name, latest); ok && short != "" {
		return ms.find(short)
	}
	return nil, nil, nil
}

// search is find for the exact name. The caller holds ms.mu.
func (ms *Models) search(name string) (*entry, *Model, *lora) {
	if e := ms.entry(name); e != nil {
		return e, nil, nil
	}
	for _, e := range ms.entries {
		for _, a := range e.adapters {
			if a.Name == name {
				return e, a, nil
			}
		}
		for _, l := range e.loras {
			if l.name == name {
				return e, nil, l
			}
		}
	}
	return nil, nil, nil
}

// Known returns all models in the order in which they were added. The adapters of a model follow
// it.
func (ms *Models) Known() []Known {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	var list []Known
	for _, e := range ms.entries {
		list = append(list, e.known())
		for _, a := range e.adapters {
			k := Known{Name: a.Name, Parent: a.Parent, Created: a.Created, State: e.state, Err: e.err}
			if e.opened != nil {
				k.Model = a
			}
			list = append(list, k)
		}
		for _, l := range e.loras {
			list = append(list, l.known(e))
		}
	}
	return list
}

func (e *entry) known() Known {
	k := Known{Name: e.source.Name, Created: e.source.Created, State: e.state, Err: e.err}
	if e.opened != nil {
		k.Model, k.Parent = e.opened.Model, e.opened.Model.Parent
	}
	return k
}

// Look returns the model of a name without loading it. It returns an error of kind wire.NoModel for
// an unknown name.
func (ms *Models) Look(name string) (Known, error) {
	for i, k := range ms.Known() {
		if k.Name == name || name == "" && i == 0 {
			return k, nil
		}
	}
	if short, ok := strings.CutSuffix(name, latest); ok && short != "" {
		return ms.Look(short)
	}
	return Known{}, noModel(name)
}

// Each calls do for every loaded base model with its plan. No model is unloaded during a call of
// do.
func (ms *Models) Each(do func(m *Model, plan func() any)) {
	ms.mu.Lock()
	entries := slices.DeleteFunc(slices.Clone(ms.entries), func(e *entry) bool { return e.opened == nil })
	for _, e := range entries {
		e.users++
	}
	ms.mu.Unlock()
	for _, e := range entries {
		do(e.opened.Model, e.opened.Plan)
		ms.release(e, false)
	}
}

// OnLoad calls f once for every base model that is or will be loaded, before its first request.
func (ms *Models) OnLoad(f func(*Model)) {
	ms.mu.Lock()
	ms.loaded = append(ms.loaded, f)
	ms.mu.Unlock()
	ms.Each(func(m *Model, _ func() any) { f(m) })
}

// Draining reports whether new requests are rejected by all models or by one.
func (ms *Models) Draining() bool {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	return ms.draining || slices.ContainsFunc(ms.entries, func(e *entry) bool { return e.opened != nil && e.opened.Model.Draining() })
}

// signal wakes goroutines that wait for a change. The caller holds ms.mu.
func (ms *Models) signal() {
	close(ms.changed)
	ms.changed = make(chan struct{})
}

// errDraining returns the error of requests while the server shuts down.
func errDraining() error {
	return &wire.Error{Kind: wire.Draining, RetryAfter: time.Second, Message: "The server is shutting down."}
}
